use super::*;

/// Of a URL's query without anything to decode.
pub(in crate::observe::hdr) fn query(text: &str) -> Query {
    parse(text).unwrap()
}

fn parse(text: &str) -> Result<Query, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    Query::of(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>())
}

#[test]
fn what_is_not_understood_is_said() {
    for (text, why) in [
        ("format=xml", "\"xml\" is none of json, hgrm, hlog"),
        ("metric=lag", "\"lag\" is none of dispatch, wait, execution, added, seats"),
        ("outcome=lost", "\"lost\" is none of executed, failed,"),
        ("since=yesterday", "since can only be start"),
        ("intervals=0", "above 0"),
        ("intervals=many", "above 0"),
        ("levels=a", "\"levels\" is none of"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_question_selects_by_each_part_of_a_key() {
    let key = Key::of_tag("wait/workload-low/executed").unwrap();
    for (text, wanted) in [
        ("", true),
        ("metric=wait&level=workload-low&outcome=executed", true),
        ("metric=added", false),
        ("level=workload-high", false),
        ("outcome=failed", false),
    ] {
        assert_eq!(query(text).wants(&key), wanted, "{text}");
    }
}

#[test]
fn every_format_tells_the_same() {
    let mut merged = Merged::new();
    for (tag, values) in [("wait/a/executed", 1..=1000), ("wait/b/executed", 1001..=2000)] {
        let mut histogram = crate::observe::hdr::recorder::empty::<u64>(Metric::Wait);
        values.for_each(|value| histogram.saturating_record(value));
        merged.insert(Key::of_tag(tag).unwrap(), histogram);
    }
    let selected = Selected { start: Duration::from_secs(100), length: Duration::from_secs(7), merged };
    let ask = |text: &str| query(text).answer(&selected, &History::default());

    let (kind, json) = ask("").unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (kind, &json["start"], &json["seconds"]),
        ("application/json", &json!("1970-01-01T00:01:40Z"), &json!(7.0))
    );
    let row = &json["histograms"][1];
    assert_eq!(
        (&row["tag"], &row["level"], &row["count"], &row["unit"]),
        (&json!("wait/b/executed"), &json!("b"), &json!(1000), &json!("ns"))
    );
    let median = row["percentiles"]["50"].as_u64().unwrap();
    assert!(median.abs_diff(1500) <= 1500 / 128, "{median}");

    let (_, hlog) = ask("format=hlog").unwrap();
    let log = hlog::read(hlog.as_bytes()).unwrap();
    assert_eq!(log.lines.iter().map(|line| line.histogram.len()).collect::<Vec<_>>(), [1000, 1000]);

    let (_, hgrm) = ask("format=hgrm&metric=wait").unwrap();
    assert!(hgrm.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"), "{hgrm}");
    assert!(hgrm.contains("Total count    =         2000]"), "both levels: {hgrm}");
    assert!(ask("format=hgrm").unwrap_err().contains("metric="));
}
