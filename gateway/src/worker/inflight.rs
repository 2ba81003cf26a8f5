//! Without flow control: kube-apiserver's two limits on requests in flight (apf-behaviour 1.26).

use std::cell::Cell;
use std::rc::Rc;

use usher_flowcontrol::request_info::RequestInfo;

use crate::identity::Identity;

/// The two limits and how much of each is taken.
#[derive(Debug)]
pub(super) struct InFlight {
    reading: Rc<Kind>,
    writing: Rc<Kind>,
}

#[derive(Debug)]
struct Kind {
    /// 0: no limit.
    max: usize,
    now: Cell<usize>,
}

/// One request's share. Dropped, it is given back.
#[derive(Debug)]
pub(super) struct Slot(Option<Rc<Kind>>);

/// Members are served whatever the limits say.
const PRIVILEGED_GROUP: &str = "system:masters";

impl InFlight {
    pub(super) fn new(reading_max: usize, writing_max: usize) -> Self {
        let kind = |max| Rc::new(Kind { max, now: Cell::new(0) });
        Self { reading: kind(reading_max), writing: kind(writing_max) }
    }

    /// A slot, or `None`: too many requests. Long-running requests are not counted.
    pub(super) fn enter(&self, info: &RequestInfo<'_>, user: &Identity) -> Option<Slot> {
        let reading = matches!(info.verb(), "get" | "list" | "watch");
        let kind = if reading { &self.reading } else { &self.writing };
        if info.is_long_running() || kind.max == 0 {
            return Some(Slot(None));
        }
        if kind.now.get() < kind.max {
            kind.now.set(kind.now.get() + 1);
            return Some(Slot(Some(Rc::clone(kind))));
        }
        user.groups.iter().any(|group| group == PRIVILEGED_GROUP).then_some(Slot(None))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(kind) = &self.0 {
            kind.now.set(kind.now.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_limit_and_masters_are_served_anyway() {
        let in_flight = InFlight::new(1, 0);
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
        drop(first);
        assert!(in_flight.enter(&pods, &user).is_some());
    }
}
