use super::*;

/// Debug builds are slow: some seconds' worth. `cargo xtask seeds` runs as many as fit into its minutes.
const SEEDS: u64 = 300;

/// The first seed, and how many: `USHER_SEEDS=1000..2000`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("USHER_SEEDS") else { return 0..SEEDS };
    let (from, to) = asked.split_once("..").expect("USHER_SEEDS=FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Drawn scenarios that found something once. The coordinator buried a worker before its place was taken, and the checks held it for
/// alive.
const FOUND: [u64; 1] = [700_498];

#[test]
fn whatever_is_drawn_keeps_the_rules() {
    for seed in seeds().chain(FOUND) {
        if let Err(Violation { at, what }) = check(&drawn(seed), seed) {
            panic!("{what}, at {} ns: usher simulate drawn --seed {seed}", at.0);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_one_another() {
    let report = |seed| run(&small(2, ""), seed).expect("keeps the rules").json().to_string();
    assert_eq!(report(1), report(1));
    assert_ne!(report(1), report(2));
}

/// An elephant everywhere beside mice on one worker.
fn small(workers: usize, more: &str) -> Scenario {
    let text = format!(
        "{{duration: 1s, workers: {workers}, level: {{seats: 4, queues: 16, hand-size: 4}}, flows: \
         [{{name: elephant, connections: 40, service: 1ms}}, \
         {{name: mice, count: 4, connections: 4, service: 1ms, on: [0]}}]{more}}}"
    );
    Scenario::parse("small", &text).expect("a scenario")
}

#[test]
fn one_worker_in_exact_mode_is_the_exact_level() {
    let report = run(&small(1, ", exact: true"), 7).expect("keeps the rules");
    for flow in &report.flows {
        assert!(flow.executed > 0 && flow.share == flow.share_exact, "{flow:?}");
    }
    assert_eq!(report.level.utilisation, report.level.utilisation_exact);
    assert_eq!(report.level.sequenced, 1.0);
}

#[test]
fn shares_on_many_workers_are_those_of_the_exact_level() {
    let report = run(&small(4, ", spread: elephant, message-delay: 1us"), 7).expect("keeps the rules");
    for flow in &report.flows {
        assert!(flow.deviation().abs() < 0.1, "{flow:?}");
    }
    let spread = report.spread.expect("asked for");
    assert!((0.9..1.1).contains(&spread), "{spread}");
    assert!(report.level.utilisation > 0.98, "{}", report.level.utilisation);
}

/// Two levels, of which one wants all that the other does not use; the coordinator is gone for the second half.
#[test]
fn seats_are_lent_and_stay_where_they_are_without_a_coordinator() {
    let text = "{duration: 60s, workers: 2, seats: 20, levels: [\
                {name: idle, shares: 45, lendable-percent: 80, queues: 4, hand-size: 1}, \
                {name: busy, shares: 50, queues: 4, hand-size: 1}], \
                flows: [{name: all, level: busy, connections: 40, service: 200ms}], \
                coordinator-lost: [{at: 30s, for: 20s}]}";
    let report = run(&Scenario::parse("lends", text).expect("a scenario"), 1).expect("keeps the rules");
    let [busy, idle] = &report.levels[..] else { panic!("two levels") };
    assert!(busy.limits.1 > busy.nominal && idle.limits.0 < idle.nominal, "{busy:?} {idle:?}");
    assert!((busy.limit - busy.limit_exact).abs() < 1.0, "the limits stay: {busy:?}");
    assert!(report.sampling.expect("it was sampled").average.1 < 0.05);
}

#[test]
fn embedded_scenarios_can_be_read_and_run() {
    for (name, _) in scenario::EMBEDDED {
        let mut scenario = Scenario::read(name).expect("is ours");
        assert!(!scenario.flows.is_empty());
        if *name == "restart" {
            scenario.flows.truncate(1); // what happens to workers, without the crowd
            run(&scenario, 1).expect("keeps the rules");
        }
    }
}

#[test]
fn what_is_wrong_with_a_scenario_is_told_with_its_place() {
    let told = |text: &str| Scenario::parse("mine.yaml", text).expect_err("wrong");
    let good = "duration: 1s\nworkers: 2\nlevel: { seats: 4, queues: 16 }\nflows:\n  - name: a\n    rate: 5\n    service: 1ms\n";
    assert!(Scenario::parse("mine.yaml", good).is_ok());
    for (from, to, field, line) in [
        ("workers: 2", "workers: two", "", "line 2"),
        ("workers: 2", "wokers: 2", "wokers", "line 2"),
        ("rate: 5", "rat: 5", "rat", "line 6"),
        ("service: 1ms", "service: 1 parsec", "1 parsec", "line 7"),
        ("service: 1ms", "service: 0s", "service", "line 5"),
        ("rate: 5", "rate: 5\n    burst: 3", "rate, burst", "line 5"),
    ] {
        let told = told(&good.replace(from, to));
        let place = told.starts_with("mine.yaml: ") && told.contains(field) && told.contains(line);
        assert!(place, "{told:?} does not tell of {field:?} in {line}");
    }
    assert!(told(&good.replace("workers: 2", "workers: 0")).contains("workers: wanted"));
    assert!(told(&format!("{good}stalls: [{{worker: 2, at: 1s, for: 1s}}]")).contains("stalls[0].worker"));
}

/// A rule that never fails is no rule: each is shown what it is for.
mod rules {
    use super::super::checks::{Checks, divided};
    use super::super::world::Sabotage;
    use super::*;
    use usher_flowcontrol::level::QueueState;
    use usher_flowcontrol::units::{Nanos, Seats};
    use usher_shards::{Glance, Look};

    fn checks() -> Checks {
        let scenario = small(2, "");
        Checks::new(&scenario, &scenario.levels[0])
    }

    #[test]
    fn seats_beyond_the_limit_are_seen() {
        let mut checks = checks();
        for _ in 0..4 {
            assert_eq!(checks.start(Nanos(1), 1, Nanos::ZERO), Ok(()));
        }
        assert!(checks.start(Nanos(1), 1, Nanos::ZERO).is_err());
        assert!(checks.start(Nanos(1), 9, Nanos::ZERO).is_err(), "the wide one is not alone");
    }

    #[test]
    fn a_wide_request_alone_is_within_the_rules() {
        assert_eq!(checks().start(Nanos(1), 9, Nanos::ZERO), Ok(()));
    }

    #[test]
    fn a_limit_that_was_lowered_counts_when_grants_have_arrived() {
        let mut checks = checks();
        assert_eq!(checks.start(Nanos(1), 2, Nanos::ZERO), Ok(()));
        checks.set_limit(Nanos(2), 2);
        assert_eq!(checks.start(Nanos(3), 1, Nanos::ZERO), Ok(()));
        assert!(checks.start(Nanos::from_secs(1), 1, Nanos::ZERO).is_err());
    }

    #[test]
    fn somebody_beside_a_free_seat_and_one_who_waits_too_long_are_seen() {
        let mut checks = checks();
        let glance = Glance { free: 0, waiting: 1, leased: 1 };
        assert_eq!(checks.step(Nanos(1), glance, false), Ok(()));
        assert!(checks.step(Nanos::from_millis(1), glance, false).is_err());
        assert!(checks.start(Nanos(1), 1, Nanos::from_secs(3600)).is_err());
    }

    /// The code under test does not do what it must not; so somebody else does it in its place.
    #[test]
    fn what_goes_wrong_once_is_noticed() {
        for (sabotage, told) in [
            (Sabotage::KeepSeats, "seats are taken, and"),
            (Sabotage::RunUnasked, "exceed the limit"),
            (Sabotage::LoseWake, "seats are taken, and"),
        ] {
            let scenario = small(2, "");
            let mut world = World::new(&scenario, (1, 0), Kind::Workers);
            world.sabotage = Some(sabotage);
            let violation = world.run().expect_err("somebody notices");
            assert!(violation.what.contains(told), "{sabotage:?}: {violation:?}");
        }
    }

    #[test]
    fn levels_that_have_too_much_together_or_alone_are_seen() {
        let mut coordinator = usher_shards::Coordinator::new(Nanos::ZERO, Seats(20), 1, false);
        coordinator.configure(Nanos::ZERO, &[], &[], true);
        let levels = coordinator.snapshot(Nanos::ZERO).levels;
        assert_eq!(divided(Nanos::ZERO, &levels), Ok(()));
        let with = |seats: u64| {
            let mut levels = levels.clone();
            levels.iter_mut().for_each(|level| level.limit = Seats(seats));
            divided(Nanos::ZERO, &levels)
        };
        assert!(with(0).is_err() && with(40).is_err());
    }

    #[test]
    fn a_queue_beyond_its_limit_and_a_seat_that_is_missing_are_seen() {
        let checks = checks();
        let scenario = small(2, "");
        let look = World::new(&scenario, (1, 0), Kind::Workers).look(0).expect("of workers");
        assert_eq!((checks.look(Nanos(1), &look), checks.end(Nanos(1), &look, true)), (Ok(()), Ok(())));
        assert!(checks.end(Nanos(1), &Look { free: look.free - 1, ..look.clone() }, true).is_err());
        let mut long = look;
        let queue = QueueState { waiting: 51, ..QueueState::default() };
        long.sequenced.as_mut().expect("nobody visits").queues.push(queue);
        assert!(checks.look(Nanos(1), &long).is_err());
    }
}
