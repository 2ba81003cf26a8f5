//! Watches over the levels that workers share: their demand, their limits, and what the dead leave behind.
//!
//! A thread of its own looks at all levels every [`TICK`] and moves seats between them when that is due. No worker
//! waits for it. If it panics another coordinator takes over: limits stay as they are until that one has watched for a
//! whole period. What is decided, and how, is in `usher_shards::Coordinator`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use usher_flowcontrol::snapshot::{Past, Snapshot};
use usher_flowcontrol::units::Seats as Count;
use usher_shards::{Coordinator, Starts};

use crate::config::objects;
use crate::ring;
use crate::worker::{Bells, Objects, Together};

/// Between two looks. Demand is sampled: what rises and falls between two looks is not seen. An adjustment period has
/// 2 000 of them, so an average over it is off by a seat held for 5 ms in 10 s.
const TICK: Duration = Duration::from_millis(5);

/// Before another coordinator takes the place of one that panicked: what killed it may be there still, and the log must
/// stay readable. Workers do not notice.
const PAUSE: Duration = Duration::from_secs(1);

/// The coordinator, for the threads that ask it something. No worker does.
#[derive(Debug)]
pub struct Seats {
    inside: Mutex<Inside>,
    bells: Bells,
    server_limit: Count,
    exact: bool,
}

#[derive(Debug)]
struct Inside {
    coordinator: Coordinator,
    /// What coordinators before it had counted.
    past: Past,
    objects: Arc<Objects>,
}

impl Seats {
    /// For so many workers, before they start. `exact`: `--flow-control-exact`.
    #[must_use]
    pub fn new(server_limit: Count, workers: usize, exact: bool) -> Self {
        let coordinator = Coordinator::new(ring::precise(), server_limit, workers, exact);
        let inside = Inside { coordinator, past: Past::default(), objects: Arc::default() };
        Self { inside: Mutex::new(inside), bells: Bells::new(workers), server_limit, exact }
    }

    /// What a worker is started with.
    #[must_use]
    pub fn together(&self) -> Together {
        Together { shared: self.inside().coordinator.shared().clone(), bells: self.bells.clone() }
    }

    /// From now on these objects are in force. Returns what workers are told.
    pub fn configure(&self, objects: &objects::Objects) -> Arc<Objects> {
        let mut inside = self.inside();
        let shared = inside.coordinator.configure(ring::precise(), &objects.schemas, &objects.levels, true);
        let objects = Objects {
            schemas: objects.schemas.clone(),
            levels: objects.levels.clone(),
            shared: Some(shared),
        };
        inside.objects = Arc::new(objects);
        self.wake(&mut inside.coordinator);
        Arc::clone(&inside.objects)
    }

    /// That worker has died: what it held is given back, before another one takes its place. `false`: somebody is in
    /// the way of that at some level; try again.
    #[must_use]
    pub fn bury(&self, worker: usize) -> bool {
        let mut inside = self.inside();
        let is_buried = inside.coordinator.bury(ring::precise(), worker);
        self.wake(&mut inside.coordinator);
        is_buried
    }

    /// The levels as a whole.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut inside = self.inside();
        let mut snapshot = inside.coordinator.snapshot(ring::precise());
        inside.past.join(&mut snapshot);
        snapshot
    }

    /// What workers have started. A level that goes takes its part with it.
    #[must_use]
    pub fn starts(&self) -> Starts {
        self.inside().coordinator.shared().starts()
    }

    /// Starts the thread, for as long as the process lives. `tidy` is called when a level has gone.
    ///
    /// # Errors
    /// No thread.
    pub fn start(self: &Arc<Self>, tidy: impl Fn() + Send + 'static) -> std::io::Result<()> {
        let seats = Arc::clone(self);
        std::thread::Builder::new().name("usher-seats".into()).spawn(move || {
            loop {
                std::thread::sleep(TICK);
                match catch_unwind(AssertUnwindSafe(|| seats.tick())) {
                    Ok(true) => tidy(),
                    Ok(false) => {}
                    Err(_) => {
                        std::thread::sleep(PAUSE);
                        if catch_unwind(AssertUnwindSafe(|| seats.succeed())).is_err() {
                            tracing::error!("the coordinator's successor has panicked; another one is tried");
                        }
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Looks, and moves seats if that is due. Whether a level has gone.
    fn tick(&self) -> bool {
        let mut inside = self.inside();
        let now = ring::precise();
        let unix_second = i64::try_from(ring::date().as_secs()).unwrap_or(i64::MAX);
        inside.coordinator.observe(now, unix_second);
        let gone = inside.coordinator.borrow_due() <= now && inside.coordinator.borrow(now);
        self.wake(&mut inside.coordinator);
        gone
    }

    /// Another coordinator takes the place of one that panicked.
    fn succeed(&self) {
        let mut inside = self.inside();
        let now = ring::precise();
        let shared = inside.coordinator.shared().clone();
        let objects = Arc::clone(&inside.objects);
        let past = inside.coordinator.past(now);
        inside.past.add(&past);
        inside.coordinator = Coordinator::succeed(now, self.server_limit, self.exact, shared);
        inside.coordinator.configure(now, &objects.schemas, &objects.levels, false);
        self.wake(&mut inside.coordinator);
        tracing::error!("the coordinator has panicked; limits stay as they are for a period of 10 s");
    }

    fn wake(&self, coordinator: &mut Coordinator) {
        while let Some(worker) = coordinator.next_wake() {
            self.bells.ring(worker);
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::objects::Source;

    fn limits(seats: &Seats) -> Vec<(String, u64)> {
        let levels = seats.snapshot().levels;
        levels.iter().map(|level| (level.name.to_string(), level.limit.0)).collect()
    }

    #[test]
    fn limits_outlive_a_coordinator_that_panics() {
        let seats = Seats::new(Count(600), 2, false);
        let objects = Source { folder: None, suggested: true }.read().unwrap();
        seats.configure(&objects);
        let before = limits(&seats);
        let held = |snapshot: &Snapshot| {
            let seats = snapshot.levels.iter().map(|level| level.meters.seats.read(snapshot.at).count());
            let crowd = snapshot.crowd.executing.iter().map(|meter| meter.read(snapshot.at).count());
            seats.chain(crowd).collect::<Vec<_>>()
        };
        for _ in 0..3 {
            let shown = held(&seats.snapshot());
            let died = catch_unwind(AssertUnwindSafe(|| {
                let _inside = seats.inside();
                panic!("in the midst of it");
            }));
            assert!(died.is_err());
            seats.succeed();
            assert_eq!(limits(&seats), before);
            let now = held(&seats.snapshot());
            assert_eq!(now.len(), shown.len());
            assert!(now.iter().zip(&shown).all(|(now, then)| now >= then), "{now:?} after {shown:?}");
            assert!(!seats.tick(), "no level has gone");
        }
        seats.configure(&objects);
        assert_eq!(limits(&seats), before);
    }
}
