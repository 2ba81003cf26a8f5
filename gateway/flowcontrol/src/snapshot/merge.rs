//! One look at levels that several workers share, out of a look at each worker and the coordinator's.
//!
//! The coordinator knows the levels, each worker knows its requests; a request in a queue is known to the one by
//! worker and slot, to the other by what it is about. The looks were taken one after another: a request that came
//! or went between is left out.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Level, Request, Snapshot};
use crate::meters::SchemaMeters;

/// The look, and whose its requests are.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Everything; [`Request::tag`] is an index into `owners`.
    pub snapshot: Snapshot,
    /// The worker that holds a request, and what that calls it.
    pub owners: Vec<(usize, u64)>,
}

/// Requests that no queue has claimed, by name of the level, worker and slot.
type Unclaimed = BTreeMap<(Arc<str>, usize, u32), Request>;

/// `workers`: by number; `None` for one that did not answer. What the coordinator calls a request is its worker's
/// number above 32 bits of slot.
#[must_use]
pub fn merge(coordinator: Snapshot, workers: &[Option<Snapshot>]) -> Merged {
    let mut requests = Unclaimed::new();
    let mut schemas = BTreeMap::<(Arc<str>, Arc<str>), SchemaMeters>::new();
    for (number, worker) in workers.iter().enumerate() {
        let Some(worker) = worker else { continue };
        for level in &worker.levels {
            for request in &level.queueless {
                requests.insert((level.name.clone(), number, request.slot), request.clone());
            }
        }
        for meters in &worker.schemas {
            let sum = schemas.entry((meters.level.clone(), meters.schema.clone()));
            sum.and_modify(|sum| sum.add(meters)).or_insert_with(|| meters.clone());
        }
    }
    let mut owners = Vec::new();
    let levels = coordinator.levels.into_iter().map(|level| claim(level, &mut requests, &mut owners));
    let snapshot = Snapshot {
        levels: levels.collect(),
        schemas: schemas.into_values().collect(),
        ..Snapshot { levels: Vec::new(), schemas: Vec::new(), ..coordinator }
    };
    Merged { snapshot, owners }
}

/// Puts each request where the level has it; what executes outside of its queues comes last.
fn claim(level: Level, requests: &mut Unclaimed, owners: &mut Vec<(usize, u64)>) -> Level {
    let name = level.name.clone();
    let mut own = |owner: usize, mut request: Request| {
        owners.push((owner, request.tag));
        request.tag = owners.len() as u64 - 1;
        request
    };
    let mut find = |seen: Request| {
        let owner = usize::try_from(seen.tag >> 32).ok()?;
        let slot = u32::try_from(seen.tag & u64::from(u32::MAX)).ok()?;
        let found = requests.remove(&(name.clone(), owner, slot))?;
        // The level's times are those of the order that it keeps.
        Some(own(owner, Request { arrived: seen.arrived, started: seen.started, work: seen.work, ..found }))
    };
    let mut level = level;
    for queue in &mut level.queues {
        queue.waiting = core::mem::take(&mut queue.waiting).into_iter().filter_map(&mut find).collect();
        queue.executing = core::mem::take(&mut queue.executing).into_iter().filter_map(&mut find).collect();
    }
    level.queueless = core::mem::take(&mut level.queueless).into_iter().filter_map(&mut find).collect();
    let first = (name.clone(), 0, 0);
    let rest: Vec<_> =
        requests.range(first..).map_while(|(key, _)| (key.0 == name).then(|| key.clone())).collect();
    for key in rest {
        let Some(request) = requests.remove(&key).filter(|request| request.started.is_some()) else {
            continue;
        };
        level.queueless.push(own(key.1, request));
    }
    level.queueless.sort_by_key(|request| request.arrived);
    level
}
