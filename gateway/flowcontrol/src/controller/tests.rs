//! Lives of a few requests at one narrow level; random histories of many are in `history`.

mod history;

use super::*;
use crate::objects::bootstrap::{mandatory_levels, mandatory_schemas, suggested_levels, suggested_schemas};
use crate::objects::{FlowSchema, LimitResponse, Limited, PriorityLevelConfiguration, Queuing};
use crate::snapshot::{self, Snapshot};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

const SECOND: Nanos = Nanos::from_secs(1);

fn built_in() -> (Vec<FlowSchema>, Vec<PriorityLevelConfiguration>) {
    let mut schemas = mandatory_schemas();
    schemas.extend(suggested_schemas());
    let mut levels = mandatory_levels();
    levels.extend(suggested_levels());
    (schemas, levels)
}

/// One queue, one seat or a few, for every authenticated user.
fn narrow(shares: i32) -> (Vec<FlowSchema>, Vec<PriorityLevelConfiguration>) {
    let (schemas, levels) = built_in();
    let mut schema = schemas.into_iter().find(|schema| schema.metadata.name == "global-default").unwrap();
    schema.spec.priority_level_configuration.name = "narrow".into();
    let mut level = levels.into_iter().find(|level| level.metadata.name == "global-default").unwrap();
    level.metadata.name = "narrow".into();
    level.metadata.uid = "uid-of-narrow".into();
    level.spec.limited = Some(Limited {
        nominal_concurrency_shares: Some(shares),
        limit_response: LimitResponse {
            kind: "Queue".into(),
            queuing: Some(Queuing { queues: 1, hand_size: 1, queue_length_limit: 2 }),
        },
        lendable_percent: Some(0),
        borrowing_limit_percent: Some(0),
    });
    (vec![schema], vec![level])
}

struct World {
    controller: Controller,
    groups: Vec<String>,
    now: Nanos,
}

impl World {
    /// 1 seat for `narrow`.
    fn narrow() -> Self {
        let mut controller = Controller::new(Nanos::ZERO, Seats(6));
        let (schemas, levels) = narrow(1);
        controller.configure(Nanos::ZERO, &schemas, &levels);
        Self { controller, groups: vec!["system:authenticated".to_string()], now: Nanos::ZERO }
    }

    fn class(&self, target: &str) -> Class {
        let user = User { name: "alice", groups: &self.groups };
        self.controller.classify(user, &RequestInfo::parse("GET", target).unwrap())
    }

    fn arrive(&mut self, tag: u64) -> (LevelId, Verdict) {
        let class = self.class("/api/v1/pods");
        (class.level, self.controller.arrive(self.now, &class, Work::seats(1), tag))
    }

    fn snapshot(&mut self) -> Snapshot {
        self.controller.snapshot(self.now)
    }

    fn level(&mut self, name: &str) -> snapshot::Level {
        self.snapshot().levels.into_iter().find(|level| *level.name == *name).unwrap()
    }

    fn pass(&mut self, span: Nanos) {
        self.now = self.now + span;
    }
}

#[test]
fn built_in_objects_on_six_hundred_seats() {
    let mut controller = Controller::new(Nanos::ZERO, Seats(600));
    let (schemas, levels) = built_in();
    controller.configure(Nanos::ZERO, &schemas, &levels);
    let limits: Vec<(String, u64)> = controller
        .snapshot(Nanos::ZERO)
        .levels
        .iter()
        .map(|level| (level.name.to_string(), level.limit.0))
        .collect();
    let expected = [
        ("catch-all", 30),
        ("exempt", 0),
        ("global-default", 56),
        ("leader-election", 58),
        ("node-high", 170),
        ("system", 117),
        ("workload-high", 114),
        ("workload-low", 56),
    ];
    assert_eq!(limits, expected.map(|(name, limit)| (name.to_string(), limit)));
}

#[test]
fn schemas_that_concern_a_user_lead_to_the_same_class() {
    let mut controller = Controller::new(Nanos::ZERO, Seats(600));
    let (schemas, levels) = built_in();
    controller.configure(Nanos::ZERO, &schemas, &levels);
    let account = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    let users: [(&str, &[&str]); 6] = [
        ("system:serviceaccount:kube-system:job-controller", &account),
        ("system:node:a", &["system:nodes", "system:authenticated"]),
        ("system:kube-scheduler", &["system:authenticated"]),
        ("admin", &["system:masters", "system:authenticated"]),
        ("system:anonymous", &["system:unauthenticated"]),
        ("nobody", &[]),
    ];
    let targets =
        ["/api/v1/pods", "/healthz", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a", "/x"];
    let mut sizes = Vec::new();
    for (name, groups) in users {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let user = User { name, groups: &groups };
        let concerning = controller.concerning(user);
        sizes.push(concerning.schemas.len());
        for (method, target) in
            ["GET", "PUT"].iter().flat_map(|method| targets.map(|target| (method, target)))
        {
            let info = RequestInfo::parse(method, target).unwrap();
            let among = controller.classify_among(&concerning, &mut FlowCache::default(), user, &info);
            assert_eq!(among, controller.classify(user, &info), "{name} {method} {target}");
        }
    }
    assert!(sizes.iter().all(|&size| size < controller.plan.schemas().len()), "{sizes:?}");

    let user = User { name: "late", groups: &[] };
    let before = controller.concerning(user);
    controller.configure(Nanos::ZERO, &schemas, &levels);
    let info = RequestInfo::parse("GET", "/x").unwrap();
    assert!(!controller.is_current(&before));
    let class = controller.classify_among(&before, &mut FlowCache::default(), user, &info);
    assert_eq!(class, controller.classify(user, &info), "by all schemas of the configuration in force");
}

#[test]
fn a_request_waits_its_turn_and_is_counted_all_the_way() {
    let mut world = World::narrow();
    let (level, Verdict::Execute(first)) = world.arrive(1) else { panic!() };
    let (_, Verdict::Wait(second)) = world.arrive(2) else { panic!() };
    world.pass(SECOND);
    assert_eq!(world.controller.finish(world.now, level, first), Finish::Released);
    let dispatched = Event::Dispatched(Dispatched { ticket: second, tag: 2 });
    assert_eq!(world.controller.next_event(), Some((level, dispatched)));
    assert_eq!(world.controller.next_event(), None);

    let meters = world.snapshot().schemas.remove(0);
    assert_eq!((&*meters.level, &*meters.schema), ("narrow", "global-default"));
    assert_eq!((meters.dispatched, meters.executing, meters.executing_seats, meters.waiting), (2, 1, 1, 0));
    assert_eq!(meters.wait[0].distribution().sum, 1.0, "one waited, the other did not");
    assert_eq!(meters.wait[0].count(), 2);
    assert_eq!(meters.execution[0].count(), 1);
    assert_eq!(world.controller.crowd(), ([0, 0], [1, 0]));

    assert_eq!(world.controller.finish(world.now, level, second), Finish::Released);
    assert_eq!(world.controller.finish(world.now, level, second), Finish::Released, "twice is once");
    assert!(world.snapshot().schemas.remove(0).is_idle());
    assert_eq!(world.controller.crowd(), ([0, 0], [0, 0]));
}

// parity: C8, C9.

#[test]
fn who_waited_too_long_and_who_left_are_told_apart_and_never_executed() {
    let mut world = World::narrow();
    let _ = world.arrive(1);
    let (level, Verdict::Wait(second)) = world.arrive(2) else { panic!() };
    let (_, Verdict::Wait(third)) = world.arrive(3) else { panic!() };
    let (_, Verdict::Reject(Reason::QueueFull)) = world.arrive(4) else { panic!() };
    world.pass(SECOND);
    assert!(world.controller.cancel(world.now, level, second, Reason::TimeOut));
    assert!(world.controller.cancel(world.now, level, third, Reason::Cancelled));
    assert!(!world.controller.cancel(world.now, level, third, Reason::Cancelled));

    let snapshot = world.snapshot();
    let counters = world.level("narrow").counters;
    assert_eq!((counters.rejected, counters.timed_out, counters.cancelled), (3, 1, 1));
    assert_eq!(snapshot.schemas[0].rejected, [1, 0, 1, 1]);
    let [executed, not] = snapshot.schemas[0].wait;
    assert_eq!((executed.count(), not.count(), not.distribution().sum), (1, 3, 2.0));
}

#[test]
fn a_level_without_an_object_stays_until_it_is_empty() {
    let mut world = World::narrow();
    let (level, Verdict::Execute(first)) = world.arrive(1) else { panic!() };
    world.controller.configure(world.now, &[], &[]);
    assert!(world.level("narrow").quiescing);
    assert_eq!(world.controller.level_uid(level), "uid-of-narrow");
    let class = world.class("/api/v1/pods");
    assert_eq!(world.controller.level_name(class.level), "catch-all");

    let _ = world.controller.finish(world.now, level, first);
    assert!(world.level("narrow").idle, "it is forgotten at the next adjustment");
    world.controller.borrow(world.now);
    assert_eq!(world.snapshot().levels.len(), 2);
    assert_eq!(world.controller.level_name(level), "");
    assert_eq!(world.controller.finish(world.now, level, first), Finish::Released);
}

#[test]
fn lingering_seats_are_given_back_to_a_level_that_is_gone() {
    let mut world = World::narrow();
    let class = world.class("/api/v1/pods");
    let work = Work { initial_seats: Seats(1), final_seats: Seats(1), additional_latency: SECOND };
    let Verdict::Execute(ticket) = world.controller.arrive(world.now, &class, work, 1) else { panic!() };
    let Finish::Lingers { until } = world.controller.finish(world.now, class.level, ticket) else { panic!() };
    world.controller.configure(world.now, &[], &[]);
    assert_eq!(world.snapshot().levels.len(), 2, "an idle level goes at once");
    world.controller.linger_end(until, class.level, ticket);
    assert!(world.snapshot().schemas[0].is_idle());

    // Its id may be another level's now, but not for who classified before.
    let (schemas, levels) = narrow(1);
    world.controller.configure(until, &schemas, &levels);
    assert_eq!(world.controller.arrive(until, &class, work, 2), Verdict::Reject(Reason::ConcurrencyLimit));
}

#[test]
fn absurd_widths_are_counted_in_and_out() {
    let mut world = World::narrow();
    let class = world.class("/api/v1/pods");
    let absurd = Work {
        initial_seats: Seats(u64::MAX),
        final_seats: Seats(u64::MAX),
        additional_latency: Nanos(i64::MAX),
    };
    let Verdict::Execute(first) = world.controller.arrive(world.now, &class, absurd, 1) else { panic!() };
    let Verdict::Wait(second) = world.controller.arrive(world.now, &class, absurd, 2) else { panic!() };
    world.controller.borrow(Nanos(i64::MAX));
    assert!(world.controller.cancel(Nanos(i64::MAX), class.level, second, Reason::TimeOut));
    let Finish::Lingers { until } = world.controller.finish(Nanos(i64::MAX), class.level, first) else {
        panic!()
    };
    world.controller.linger_end(until, class.level, first);
    assert!(world.snapshot().schemas[0].is_idle());
}

/// Validation refuses such a level; whatever comes in all the same has one flow, as in the plan.
#[test]
fn a_level_that_does_not_say_queue_has_one_flow() {
    let mut world = World::narrow();
    let (schemas, mut levels) = narrow(1);
    let response = |kind: &str| LimitResponse {
        kind: kind.into(),
        queuing: Some(Queuing { queues: 8, hand_size: 2, queue_length_limit: 2 }),
    };
    for (kind, told_apart) in [("Queue", true), ("Foo", false)] {
        levels[0].spec.limited.as_mut().unwrap().limit_response = response(kind);
        world.controller.configure(world.now, &schemas, &levels);
        let class = world.class("/api/v1/pods");
        assert_eq!((class.flow != FlowHash(0), class.distinguisher.is_some()), (told_apart, told_apart));
        let user = User { name: "alice", groups: &world.groups };
        let why = world.controller.explain(user, &RequestInfo::parse("GET", "/api/v1/pods").unwrap());
        assert_eq!((why.distinguisher.is_some(), why.hand.len(), why.class), (told_apart, 2, class));
    }
}

// parity: C15.

#[test]
fn a_level_that_rejects_forgets_its_widest_request() {
    let mut world = World::narrow();
    let level = world.class("/api/v1/pods").level;
    assert_eq!(world.controller.max_seats(level), Seats(1));
    let (schemas, mut levels) = narrow(1);
    let limited = levels[0].spec.limited.as_mut().unwrap();
    limited.limit_response = LimitResponse { kind: "Reject".into(), queuing: None };
    world.controller.configure(world.now, &schemas, &levels);
    assert_eq!(world.controller.max_seats(level), Seats(0));
}

// parity: C12.

#[test]
fn a_configuration_change_starts_the_period_anew() {
    let mut world = World::narrow();
    assert_eq!(world.controller.borrow_due(), Nanos::from_secs(10));
    let (schemas, levels) = narrow(2);
    world.controller.configure(Nanos::from_secs(7), &schemas, &levels);
    assert_eq!(world.controller.borrow_due(), Nanos::from_secs(17));
    world.controller.borrow(Nanos::from_secs(18));
    assert_eq!(world.controller.borrow_due(), Nanos::from_secs(28));
}

#[test]
fn a_mandatory_level_whose_object_is_deleted_stays_as_it_was() {
    let mut controller = Controller::new(Nanos::ZERO, Seats(600));
    let (schemas, mut levels) = built_in();
    let catch_all = levels.iter_mut().find(|level| level.metadata.name == "catch-all").unwrap();
    catch_all.metadata.uid = "uid-of-catch-all".into();
    catch_all.spec.limited.as_mut().unwrap().nominal_concurrency_shares = Some(50);
    controller.configure(Nanos::ZERO, &schemas, &levels);
    let limits = |controller: &mut Controller| {
        let level = controller.snapshot(Nanos::ZERO).levels.remove(0);
        (level.name.to_string(), level.uid.to_string(), level.limits.nominal)
    };
    let before = limits(&mut controller);
    levels.retain(|level| level.metadata.name != "catch-all");
    controller.configure(Nanos::ZERO, &schemas, &levels);
    assert_eq!(limits(&mut controller), before);
}

#[test]
fn every_moment_has_its_metrics() {
    let mut world = World::narrow();
    for tag in 0..4 {
        let _ = world.arrive(tag);
        world.pass(SECOND);
    }
    let snapshot = world.snapshot();
    let families = crate::meters::families(&snapshot);
    for family in &families {
        for child in &family.children {
            assert_eq!(child.labels.len(), family.description.labels.len(), "{}", family.description.name);
        }
    }
    let missing: Vec<&str> = crate::meters::ALL
        .iter()
        .filter(|metric| {
            !metric.is_hidden() && families.iter().all(|family| family.description.name != metric.name)
        })
        .map(|metric| metric.name)
        .collect();
    assert_eq!(
        missing,
        [
            "apiserver_flowcontrol_epoch_advance_total",
            "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
            "apiserver_flowcontrol_request_execution_seconds",
            "apiserver_flowcontrol_watch_count_samples",
        ]
    );
}
