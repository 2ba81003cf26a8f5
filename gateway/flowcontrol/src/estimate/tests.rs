//! Age of statistics, odd numbers.
use super::*;
use proptest::prelude::*;

fn facts(statistics: Stats, watches: u64, max_seats: u64) -> Facts {
    Facts { statistics, watches, max_seats: Seats(max_seats), consistent_reads: true }
}

#[test]
fn reports_grow_stale_and_go() {
    let info = RequestInfo::parse("GET", "/apis/apps/v1/deployments").expect("valid");
    let mut statistics = Statistics::default();
    let minutes = |minutes: i64| Nanos::from_secs(60 * minutes);
    assert_eq!(statistics.of(Nanos(0), &info), Stats::Absent);
    assert!(statistics.report(Nanos(0), b"deployments.apps", 3, 4));
    assert_eq!(statistics.of(minutes(3), &info), Stats::Fresh { count: 3, average_size: 4 });
    assert_eq!(statistics.of(minutes(3) + Nanos(1), &info), Stats::Stale);
    statistics.prune(minutes(60));
    assert_eq!(statistics.of(minutes(60), &info), Stats::Stale);
    assert!(statistics.report(minutes(60), b"deployments.apps", 5, 6));
    statistics.prune(minutes(61));
    assert_eq!(statistics.of(minutes(61), &info), Stats::Fresh { count: 5, average_size: 6 });
    statistics.prune(minutes(121));
    assert_eq!(statistics.of(minutes(121), &info), Stats::Absent);
}

#[test]
fn a_table_of_statistics_has_an_end() {
    let mut statistics = Statistics::default();
    let taken =
        (0..30_000_u32).filter(|number| statistics.report(Nanos(0), &number.to_le_bytes(), 1, 1)).count();
    assert_eq!(taken, 20_000);
    assert!(statistics.report(Nanos(0), &0_u32.to_le_bytes(), 2, 2), "what is known is updated");
}

#[test]
fn sizes_below_zero_are_unknown_or_wrap() {
    let seats = |target: &str, count: i64, average_size: i64| {
        let info = RequestInfo::parse("GET", target).expect("valid");
        work(&info, &facts(Stats::Fresh { count, average_size }, 0, 50)).initial_seats.0
    };
    assert_eq!(seats("/api/v1/pods", 1, -1), 10);
    assert_eq!(seats("/api/v1/pods", 0, -200_000), 1);
    assert_eq!(seats("/api/v1/pods?fieldSelector=metadata.name=x", 0, -99_999), 1);
    assert_eq!(seats("/api/v1/pods?fieldSelector=metadata.name=x", 0, -200_000), 50);
}

#[test]
fn notifications_are_stretched_to_fit() {
    let info = RequestInfo::parse("PUT", "/api/v1/namespaces/a/pods/b").expect("valid");
    let of = |watches: u64, max: u64| {
        let work = work(&info, &facts(Stats::Absent, watches, max));
        (work.initial_seats.0, work.final_seats.0, work.additional_latency.0)
    };
    assert_eq!(of(9, 0), (1, 0, 0));
    assert_eq!(of(29, 0), (1, 3, 5_000_000));
    assert_eq!(of(199, 10), (1, 10, 10_000_000));
    assert_eq!(of(100, 5), (1, 5, 10_000_000));
    assert_eq!(of(40, 3), (1, 3, 6_666_666));
}

proptest! {
    #[test]
    fn no_number_is_too_odd(
        count in any::<i64>(),
        average_size in any::<i64>(),
        limit in any::<i64>(),
        watches in any::<u64>(),
        max in 0_u64..200,
        method in prop::sample::select(["GET", "PUT", "DELETE"].as_slice()),
    ) {
        let target = alloc::format!("/api/v1/pods?limit={limit}&labelSelector=a");
        let info = RequestInfo::parse(method, &target).expect("valid");
        let work = work(&info, &facts(Stats::Fresh { count, average_size }, watches, max));
        prop_assert!((1..=100).contains(&work.initial_seats.0));
        prop_assert!(max == 0 || work.max_seats() <= Seats(max.max(1)));
        prop_assert!(work.additional_latency >= Nanos(0));
    }
}
