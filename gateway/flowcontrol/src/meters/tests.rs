//! What the names of series look like.

use super::*;

#[test]
fn thirty_four_metrics_are_known_and_two_are_hidden() {
    assert_eq!(ALL.len(), 34);
    assert_eq!(ALL.iter().filter(|metric| metric.is_hidden()).count(), 2);
    assert!(ALL.is_sorted_by(|one, other| one.name < other.name));
}

#[test]
fn labels_are_sorted_and_escaped_and_the_bound_is_last() {
    assert_eq!(
        EPOCH_ADVANCE_TOTAL.series(&["a\"b\\c\nd", "true"]),
        [r#"apiserver_flowcontrol_epoch_advance_total{priority_level="a\"b\\c\nd",success="true"}"#]
    );
    assert_eq!(SEAT_FAIR_FRAC.series(&[]), ["apiserver_flowcontrol_seat_fair_frac"]);
    let series = PRIORITY_LEVEL_SEAT_UTILIZATION.series(&["x"]);
    assert_eq!(
        series[1],
        r#"apiserver_flowcontrol_priority_level_seat_utilization_bucket{phase="executing",priority_level="x",le="0.1"}"#
    );
    assert_eq!(series.len(), 16);
}
