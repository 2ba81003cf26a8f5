//! Without flow control: kube-apiserver's two limits on requests in flight (apf-behaviour 1.26).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use usher_flowcontrol::request_info::RequestInfo;

use super::common::{Common, Place};
use crate::identity::Identity;
use crate::steering::Line;

/// The two limits, 0 for none, over all workers.
#[derive(Debug)]
pub(super) struct InFlight {
    reading_max: usize,
    writing_max: usize,
    common: Arc<Common>,
    /// Requests of this worker that have a slot.
    running: Rc<Running>,
}

/// One request's share. Dropped, it is given back.
#[derive(Debug)]
pub(super) struct Slot {
    #[expect(dead_code, reason = "its destructor is what counts")]
    place: Option<Place>,
    /// `None`: it is long-running.
    running: Option<Rc<Running>>,
}

#[derive(Debug)]
struct Running {
    count: Cell<u64>,
    /// Where that is told.
    line: Line,
}

/// Members are served whatever the limits say.
const PRIVILEGED_GROUP: &str = "system:masters";

impl InFlight {
    pub(super) fn new(reading_max: usize, writing_max: usize, common: &Arc<Common>, line: Line) -> Self {
        let running = Rc::new(Running { count: Cell::new(0), line });
        Self { reading_max, writing_max, common: Arc::clone(common), running }
    }

    /// A slot, or `None`: too many requests. Long-running requests are not counted.
    pub(super) fn enter(&self, info: &RequestInfo<'_>, user: &Identity) -> Option<Slot> {
        let reading = matches!(info.verb(), "get" | "list" | "watch");
        let max = if reading { self.reading_max } else { self.writing_max };
        if info.is_long_running() {
            return Some(Slot { place: None, running: None });
        }
        let place = if max == 0 {
            None
        } else {
            let place = self.common.place(if reading { |all| &all.reading } else { |all| &all.writing }, max);
            let privileged = || user.groups.iter().any(|group| group == PRIVILEGED_GROUP);
            if place.is_none() && !privileged() {
                return None;
            }
            place
        };
        self.running.change(|count| count + 1);
        Some(Slot { place, running: Some(Rc::clone(&self.running)) })
    }
}

impl Running {
    fn change(&self, change: impl FnOnce(u64) -> u64) {
        self.count.set(change(self.count.get()));
        self.line.busy(self.count.get());
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.change(|count| count - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_limit_and_masters_are_served_anyway() {
        let in_flight = InFlight::new(1, 0, &Common::new(1), Line::default());
        let (user, mut master) = (Identity::default(), Identity::default());
        master.groups.push(PRIVILEGED_GROUP.to_owned());
        let info = |method, target| RequestInfo::parse(method, target).unwrap();
        let pods = info("GET", "/api/v1/pods");

        let first = in_flight.enter(&pods, &user);
        assert!(first.is_some());
        assert!(in_flight.enter(&pods, &user).is_none(), "one at a time");
        assert!(in_flight.enter(&pods, &master).is_some());
        assert!(in_flight.enter(&info("GET", "/api/v1/pods?watch=1"), &user).is_some());
        assert!(in_flight.enter(&info("POST", "/api/v1/pods"), &user).is_some(), "0 is no limit");
        assert_eq!(in_flight.running.count.get(), 1, "who watches does not run");
        drop(first);
        assert!(in_flight.enter(&pods, &user).is_some());
        assert_eq!(in_flight.running.count.get(), 0);
    }
}
