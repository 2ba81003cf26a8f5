//! What controllers that are gone had counted. A counter must not fall while its process lives, and neither must a sum
//! over workers of which one has died.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Snapshot;
use crate::level::{Counters, Epochs};
use crate::meters::{CrowdMeters, LevelMeters, SchemaMeters};

/// Schemas, and levels, that are kept although the last controller did not know them any more. As many as a
/// controller itself keeps of former schemas.
const FORMER_MAX: usize = 256;

/// The counts of controllers that are gone; what was under way is not among them.
#[derive(Clone, Debug, Default)]
pub struct Past {
    schemas: Vec<SchemaMeters>,
    levels: Vec<PastLevel>,
    crowd: Option<CrowdMeters>,
}

/// What went with a controller of a level.
#[derive(Clone, Debug)]
pub(crate) struct PastLevel {
    pub(crate) name: Arc<str>,
    /// Up to the end.
    pub(crate) meters: LevelMeters,
    /// What the level itself had counted; zero if that has outlived the controller.
    pub(crate) counters: Counters,
    /// The same.
    pub(crate) epochs: Epochs,
}

impl Past {
    /// Of one controller. `crowd`: up to its end; `None` if others counted it, too.
    pub(crate) fn new(
        mut schemas: Vec<SchemaMeters>,
        levels: Vec<PastLevel>,
        crowd: Option<CrowdMeters>,
    ) -> Self {
        schemas.iter_mut().for_each(SchemaMeters::end);
        Self { schemas, levels, crowd }
    }

    /// One more controller is gone.
    pub fn add(&mut self, last: &Self) {
        let Self { schemas, levels, crowd } = last;
        keep(&mut self.schemas, |former| schemas.iter().any(|known| is_same(known, former)));
        for meters in schemas {
            add_schema(&mut self.schemas, meters);
        }
        keep(&mut self.levels, |former| levels.iter().any(|known| known.name == former.name));
        for level in levels {
            match self.levels.iter_mut().find(|known| known.name == level.name) {
                Some(known) => {
                    known.meters.add(&level.meters);
                    known.counters.add(level.counters);
                    known.epochs.add(level.epochs);
                }
                None => self.levels.push(level.clone()),
            }
        }
        match (&mut self.crowd, crowd) {
            (Some(sum), Some(crowd)) => sum.add(crowd),
            (sum, crowd) => *sum = sum.take().or_else(|| crowd.clone()),
        }
    }

    /// Adds what is past to what is now. A level that is no more is shown no more.
    pub fn join(&self, now: &mut Snapshot) {
        for meters in &self.schemas {
            add_schema(&mut now.schemas, meters);
        }
        now.schemas.sort_by(|one, other| (&one.level, &one.schema).cmp(&(&other.level, &other.schema)));
        for PastLevel { name, meters, counters, epochs } in &self.levels {
            if let Some(level) = now.levels.iter_mut().find(|level| level.name == *name) {
                level.meters.add(meters);
                level.counters.add(*counters);
                level.epochs.add(*epochs);
            }
        }
        if let Some(crowd) = &self.crowd {
            now.crowd.add(crowd);
        }
    }
}

fn is_same(one: &SchemaMeters, other: &SchemaMeters) -> bool {
    one.level == other.level && one.schema == other.schema
}

fn add_schema(all: &mut Vec<SchemaMeters>, meters: &SchemaMeters) {
    match all.iter_mut().find(|known| is_same(known, meters)) {
        Some(known) => known.add(meters),
        None => all.push(meters.clone()),
    }
}

/// Those that are known, and so many others.
fn keep<T>(all: &mut Vec<T>, is_known: impl Fn(&T) -> bool) {
    let mut others = 0;
    all.retain(|one| {
        is_known(one) || {
            others += 1;
            others <= FORMER_MAX
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Controller, User};
    use crate::level::Verdict;
    use crate::request_info::RequestInfo;
    use crate::units::{Nanos, Seats, Work};
    use alloc::string::ToString;

    /// A request each second from `begin`, done half a second later; the last is under way.
    fn serve(controller: &mut Controller, begin: i64, requests: i64) -> Nanos {
        let time = |halves: i64| Nanos(halves * 500_000_000);
        let groups = ["system:authenticated".to_string()];
        let user = User { name: "alice", groups: &groups };
        let work = Work { initial_seats: Seats(1), ..Work::default() };
        let info = RequestInfo::parse("GET", "/api/v1/pods").expect("valid");
        for at in begin..begin + requests {
            let class = controller.classify(user, &info);
            let Verdict::Execute(ticket) = controller.arrive(time(2 * at), &class, work, 0) else {
                panic!("there are seats");
            };
            if at + 1 < begin + requests {
                let _ = controller.finish(time(2 * at + 1), class.level, ticket);
            }
        }
        time(2 * (begin + requests))
    }

    #[test]
    fn whoever_counted_the_sum_is_the_same() {
        let seats = Seats(600);
        let mut first = Controller::new(Nanos(0), seats);
        let died = serve(&mut first, 0, 5);
        let mut past = Past::default();
        past.add(&first.past(died));
        let before = first.snapshot(died);
        let mut second = Controller::new(died, seats);
        let now = serve(&mut second, 5, 3);
        let mut joined = second.snapshot(now);
        past.join(&mut joined);
        let [schema] = &*joined.schemas else { panic!("{:?}", joined.schemas) };
        assert_eq!((schema.dispatched, schema.wait[0].count(), schema.widths.count()), (8, 8, 8));
        assert_eq!(
            (schema.executing, schema.executing_seats),
            (1, 1),
            "what the dead one had under way is over"
        );
        let level = |snapshot: &Snapshot| {
            let level = snapshot.levels.iter().find(|level| *level.name == *schema.level).expect("known");
            (level.counters.dispatched, level.meters.seats.read(snapshot.at).count())
        };
        assert_eq!(level(&before), (5, 5_000_000_000));
        assert_eq!(level(&joined), (8, 8_000_000_000), "each nanosecond once");
        assert_eq!(joined.crowd.executing[0].read(now).count(), 8_000_000_000);
    }

    #[test]
    fn what_nobody_knows_any_more_is_bounded() {
        let mut past = Past::default();
        for death in 0..3 * FORMER_MAX {
            let meters = SchemaMeters::new("level".into(), alloc::format!("schema-{death}").into());
            past.add(&Past::new(alloc::vec![meters], Vec::new(), None));
        }
        assert_eq!(past.schemas.len(), FORMER_MAX + 1);
        assert_eq!(*past.schemas[FORMER_MAX].schema, *alloc::format!("schema-{}", 3 * FORMER_MAX - 1));
    }
}
