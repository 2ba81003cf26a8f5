//! What it costs to divide the seats: the solver alone, and a whole adjustment of the built-in levels.
//!
//! It runs every ten seconds, so what matters is that hundreds of levels do not make it a pause.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use usher_flowcontrol::borrowing::solver::{Item, allocate};
use usher_flowcontrol::controller::Controller;
use usher_flowcontrol::objects::bootstrap;
use usher_flowcontrol::units::{Nanos, Seats};

criterion_group!(benches, solver, adjustment);
criterion_main!(benches);

/// Every third level is idle, every third at its upper bound, the others in between.
fn solver(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("solver");
    for levels in [8_u32, 64, 512] {
        let item = |index: u32| {
            let lower = f64::from(index % 17);
            let wish = [0.0, 1000.0, f64::from(index % 29)][(index % 3) as usize];
            Item { lower, upper: lower + 40.0, target: lower + wish }
        };
        let items: Vec<Item> = (0..levels).map(item).collect();
        let required = items.iter().map(|item| item.lower + 20.0).sum::<f64>();
        allocate(required, &items).expect("the bench solves something");
        group.bench_with_input(BenchmarkId::from_parameter(levels), &items, |bench, items| {
            bench.iter(|| allocate(black_box(required), black_box(items)));
        });
    }
    group.finish();
}

fn adjustment(criterion: &mut Criterion) {
    let mut controller = Controller::new(Nanos::ZERO, Seats(600));
    controller.configure(Nanos::ZERO, &bootstrap::suggested_schemas(), &bootstrap::suggested_levels());
    let mut now = Nanos::ZERO;
    criterion.bench_function("adjustment of the built-in levels", |bench| {
        bench.iter(|| {
            now = now + Nanos::from_secs(10);
            controller.borrow(black_box(now));
        });
    });
}
