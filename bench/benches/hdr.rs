//! What a request pays for its histograms, and what an interval costs the thread that merges them.
//!
//! `request` is all that happens to one request from its digest to the end of its answer: three or five records, and for
//! one request in two four readings of the clock. `off` is the same in a worker that keeps no histograms.
//! The aim: less than 1 % of what the cheapest proxied request costs (some 12 µs).

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;

use criterion::{Criterion, criterion_group, criterion_main};
use usher::observe::hdr::{Filled, Measured, Outcome, Recorder, Set, feeds};
use usher::ring;
use usher_flowcontrol::units::{Nanos, Seats};

const LEVELS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

fn request(recorder: Option<&Rc<Recorder>>, now: Nanos, level: u32) {
    let mut measured = Measured::begin(recorder, now);
    measured.arrives(now, (1, level), LEVELS[level as usize], Seats(1));
    measured.decided();
    measured.starts(now);
    measured.sent();
    measured.answered();
    measured.ends(Outcome::Executed);
    drop(black_box(measured));
}

fn recorder() -> (Rc<Recorder>, tokio::sync::mpsc::Receiver<Filled>) {
    let (mut feeds, filled) = feeds(1);
    (Recorder::new(feeds.pop().expect("one of one")), filled)
}

fn record(criterion: &mut Criterion) {
    let (recorder, _filled) = recorder();
    criterion.bench_function("hdr/request", |bencher| {
        bencher.iter(|| request(Some(&recorder), ring::now(), black_box(0)));
    });
    criterion.bench_function("hdr/off", |bencher| bencher.iter(|| request(None, ring::now(), black_box(0))));
    criterion.bench_function("hdr/clock", |bencher| bencher.iter(ring::precise));
}

/// Ten levels, five histograms each.
fn interval(criterion: &mut Criterion) {
    let (recorder, filled) = recorder();
    let filled = RefCell::new(filled);
    let spare = RefCell::new(Some(Box::<Set>::default()));
    criterion.bench_function("hdr/interval_of_50", |bencher| {
        bencher.iter(|| {
            for level in 0..10 {
                (0..8).for_each(|_| request(Some(&recorder), ring::now(), level));
            }
            recorder.hand_over(spare.take().unwrap_or_default());
            let full = filled.borrow_mut().try_recv().expect("what was handed over");
            let set = full.pour(|key, histogram| {
                black_box((key, histogram.len()));
            });
            spare.replace(Some(set));
        });
    });
}

criterion_group!(benches, record, interval);
criterion_main!(benches);
