//! How workers are told and asked, whichever incarnation of them is at work.
//!
//! What is in force (objects, numbers of objects, how scarce memory is) is remembered and told to a worker that takes
//! the place of a dead one before anything else. Only control threads come here: a worker never waits for this lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::Rung;
use crate::ring::{self, Post};
use crate::worker::{Command, Legacy, ObjectCount, Objects};
use usher_flowcontrol::units::Nanos;

/// The workers' addresses. Clones are the same.
#[derive(Clone, Debug)]
pub struct Posts(Arc<Mutex<Inside>>);

/// What holds until something else is said.
#[derive(Clone, Debug)]
pub enum Order {
    /// These objects are in force.
    Configure(Arc<Objects>),
    /// So many objects there are.
    Statistics(Arc<[ObjectCount]>),
    /// Memory is so scarce.
    Memory(Rung),
}

/// One worker, to be asked.
#[derive(Clone, Debug)]
pub struct Berth {
    /// `worker-0` …
    pub name: String,
    /// The core that it is kept on.
    pub core: Option<usize>,
    /// `None` while it is being restarted, and once it is out.
    pub post: Option<Post<Command>>,
    /// It was told to end: nobody takes its place.
    pub retired: bool,
    /// Since when there is none although there should be.
    pub down_since: Option<Nanos>,
    /// How often it was started.
    pub started: u64,
    /// How often it has died.
    pub deaths: u64,
    /// What its former incarnations have counted.
    pub legacy: Arc<Mutex<Legacy>>,
}

#[derive(Debug)]
struct Inside {
    berths: Vec<Berth>,
    configure: Option<Order>,
    statistics: Option<Order>,
    memory: Option<Order>,
}

impl Posts {
    /// For workers of these names and cores, none of them at work yet.
    #[must_use]
    pub fn new(workers: impl Iterator<Item = (String, Option<usize>)>) -> Self {
        let berth = |(name, core)| Berth {
            name,
            core,
            post: None,
            retired: false,
            down_since: None,
            started: 0,
            deaths: 0,
            legacy: Arc::default(),
        };
        let berths = workers.map(berth).collect();
        Self(Arc::new(Mutex::new(Inside { berths, configure: None, statistics: None, memory: None })))
    }

    /// For one worker that is at work.
    #[cfg(test)]
    pub(crate) fn one(post: Post<Command>) -> Self {
        let posts = Self::new(std::iter::once((super::name(0), None)));
        posts.arrived(0, post);
        posts
    }

    /// How many workers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inside().berths.len()
    }

    /// All of them, as they are now.
    #[must_use]
    pub fn berths(&self) -> Vec<Berth> {
        self.inside().berths.clone()
    }

    /// Tells all. Returns those who did not take it; one that is being restarted will be told.
    #[must_use]
    pub fn tell(&self, order: &Order) -> Vec<usize> {
        let mut inside = self.inside();
        let place = match order {
            Order::Configure(_) => &mut inside.configure,
            Order::Statistics(_) => &mut inside.statistics,
            Order::Memory(_) => &mut inside.memory,
        };
        *place = Some(order.clone());
        let untold = |(index, berth): (usize, &Berth)| {
            let sent = berth.post.as_ref()?.send(Command::from(order.clone()));
            sent.is_err().then_some(index)
        };
        inside.berths.iter().enumerate().filter_map(untold).collect()
    }

    /// Tells all that a level which they shared has gone. Who does not hear keeps what it held there a little longer.
    pub fn tidy(&self) {
        for worker in 0..self.count() {
            let _ = self.send(worker, Command::Tidy);
        }
    }

    /// Tells one something that holds for it alone; false if it does not take it.
    #[must_use]
    pub fn send(&self, worker: usize, command: Command) -> bool {
        let post = self.inside().berths.get(worker).and_then(|berth| berth.post.clone());
        post.is_some_and(|post| post.send(command).is_ok())
    }

    /// A worker is at work, and is told what is in force.
    pub(super) fn arrived(&self, worker: usize, post: Post<Command>) {
        let mut inside = self.inside();
        for order in [&inside.configure, &inside.statistics, &inside.memory].into_iter().flatten() {
            let _ = post.send(Command::from(order.clone())); // a new mailbox has room
        }
        if let Some(berth) = inside.berths.get_mut(worker) {
            (berth.post, berth.down_since) = (Some(post), None);
            berth.started += 1;
        }
    }

    /// A worker is to end, or is not to come back.
    pub(super) fn retires(&self, worker: usize) {
        if let Some(berth) = self.inside().berths.get_mut(worker) {
            (berth.retired, berth.down_since) = (true, None);
        }
    }

    /// A worker has ended. `died`: unasked.
    pub(super) fn left(&self, worker: usize, died: bool) {
        if let Some(berth) = self.inside().berths.get_mut(worker) {
            (berth.post, berth.down_since) = (None, (died && !berth.retired).then(ring::precise));
            berth.deaths += u64::from(died);
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Berth {
    /// What its former incarnations have counted.
    #[must_use]
    pub fn legacy(&self) -> Legacy {
        self.legacy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl From<Order> for Command {
    fn from(order: Order) -> Self {
        match order {
            Order::Configure(objects) => Self::Configure(objects),
            Order::Statistics(table) => Self::Statistics(table),
            Order::Memory(rung) => Self::Memory(rung),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_takes_the_place_of_another_hears_what_is_in_force() {
        let posts = Posts::new((0..2).map(|index| (format!("worker-{index}"), None)));
        let (post, mut first) = ring::mailbox();
        posts.arrived(0, post);
        assert!(posts.tell(&Order::Configure(Arc::default())).is_empty(), "nobody else is there to be told");
        assert!(posts.tell(&Order::Memory(Rung::Idle)).is_empty());
        assert!(posts.tell(&Order::Memory(Rung::Bodies)).is_empty());
        assert!(!posts.send(1, Command::Memory(Rung::Calm)));

        let (post, mut second) = ring::mailbox();
        posts.arrived(1, post);
        ring::run(async move {
            for rung in [None, Some(Rung::Idle), Some(Rung::Bodies)] {
                match first.next().await {
                    Some(Command::Memory(told)) => assert_eq!(Some(told), rung),
                    told => {
                        assert!(matches!(told, Some(Command::Configure(_))) && rung.is_none(), "{told:?}")
                    }
                }
            }
            assert!(matches!(second.next().await, Some(Command::Configure(_))));
            assert!(matches!(second.next().await, Some(Command::Memory(Rung::Bodies))));
            posts.left(1, true);
            let berths = posts.berths();
            assert!(berths[0].post.is_some() && berths[0].deaths == 0);
            assert!(berths[1].post.is_none() && berths[1].down_since.is_some() && berths[1].deaths == 1);
            posts.retires(1);
            posts.retires(0);
            posts.left(0, true);
            assert!(posts.berths().iter().all(|berth| berth.down_since.is_none() && berth.deaths <= 1));
        })
        .unwrap();
    }

    #[test]
    fn who_does_not_take_it_is_named() {
        let (post, mailbox) = ring::mailbox();
        let posts = Posts::one(post);
        drop(mailbox);
        assert_eq!(posts.tell(&Order::Configure(Arc::default())), [0]);
    }
}
