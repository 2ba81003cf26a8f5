use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use serde_json::Value;

use super::*;
use crate::observe::hdr::recorder::empty;
use crate::observe::hdr::{Key, hlog};

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    args: HdrArgs,
}

/// What `usher hdr` with these arguments says.
fn hdr(arguments: &[&str]) -> Told {
    let program =
        Program::try_parse_from([&["hdr"], arguments].concat()).map_err(|error| error.to_string())?;
    match &program.args.task {
        Task::Merge(merge) => merge.tell(),
        Task::Diff(diff) => diff.tell(),
        Task::Percentiles(percentiles) => percentiles.tell(),
        Task::Plot(plot) => plot.tell(),
    }
}

/// A log with an interval of ten seconds for each of these, one after the other from 1 000 s on.
fn log(path: &Path, intervals: &[(&str, std::ops::RangeInclusive<u64>)]) -> String {
    let mut text = hlog::header(Duration::from_secs(1_000));
    for (index, (tag, values)) in intervals.iter().enumerate() {
        let mut histogram = empty(Key::of_tag(tag).unwrap().metric);
        values.clone().for_each(|value| histogram.saturating_record(value * 1_000));
        let start = Duration::from_secs(1_000 + 10 * index as u64);
        hlog::put_line(
            &mut text,
            tag,
            start,
            Duration::from_secs(10),
            histogram.max(),
            &hlog::encode(&histogram),
        );
    }
    std::fs::write(path, &text).unwrap();
    path.display().to_string()
}

const WAIT: &str = "wait/a/executed";
const FAILED: &str = "wait/a/failed";
const SEATS: &str = "seats/a/executed";

#[test]
fn percentiles_are_of_all_selected_intervals_together() {
    let folder = tempfile::tempdir().unwrap();
    log(&folder.path().join("1.hlog"), &[(WAIT, 1..=500), (FAILED, 7..=7)]);
    log(&folder.path().join("2.hlog"), &[(WAIT, 501..=1000), (SEATS, 1..=1)]);
    let folder = folder.path().display().to_string();
    let (json, code) = hdr(&["percentiles", &folder, "-o", "json", "--percentiles", "50,99.9"]).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["start"], &json["seconds"]), (0, &"1970-01-01T00:16:40Z".into(), &20.0.into()));
    let rows = json["histograms"].as_array().unwrap();
    let row = rows.iter().find(|row| row["tag"] == WAIT).unwrap();
    assert_eq!((rows.len(), &row["count"], &row["unit"]), (3, &1000.into(), &"ns".into()));
    let median = row["percentiles"]["50"].as_u64().unwrap();
    assert!(median.abs_diff(500_000) <= 500_000 / 64, "{median}");

    let (text, _) = hdr(&["percentiles", &folder]).unwrap();
    let row = text.lines().find(|line| line.starts_with(WAIT)).unwrap();
    assert!(row.contains(" 1000 ") && row.contains("µs") && row.contains("1.00 ms"), "{text}");
    assert!(text.lines().any(|line| line.starts_with(SEATS) && !line.contains("µs")), "{text}");
}

#[test]
fn what_is_selected_is_selected_by_tag_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = log(&folder.path().join("a.hlog"), &[(WAIT, 1..=1), (WAIT, 2..=2), (FAILED, 3..=3)]);
    let count = |more: &[&str]| {
        let json = hdr(&[&["percentiles", &file, "-o", "json"], more].concat())?.0;
        let json: Value = serde_json::from_str(&json).unwrap();
        let rows = json["histograms"].as_array().unwrap().iter();
        Ok::<u64, String>(rows.map(|row| row["count"].as_u64().unwrap()).sum())
    };
    assert_eq!(count(&[]), Ok(3));
    assert_eq!(count(&["--tag", "wait/*/failed"]), Ok(1));
    assert_eq!(count(&["--from", "1010"]), Ok(2));
    assert_eq!(count(&["--from", "1970-01-01T00:16:50Z", "--to", "1020"]), Ok(1));
    let nothing = count(&["--tag", "added/*"]).unwrap_err();
    assert!(nothing.contains("none of the 3 histograms is selected"), "{nothing}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.hlog");
    let file = log(&path, &[(WAIT, 1..=9)]);
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}Tag=x,1.0,1.0,nonsense\n{whole}")).unwrap();
    let bad = hdr(&["percentiles", &file]).unwrap_err();
    assert!(bad.starts_with(&format!("{file}:6: wanted START,LENGTH,MAX,HISTOGRAM")), "{bad}");
    std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let empty = hdr(&["percentiles", &file]).unwrap_err();
    assert_eq!(empty, "the logs hold no histograms", "the only one is torn");
    let nowhere = hdr(&["percentiles", "/nowhere.hlog"]).unwrap_err();
    assert!(nowhere.starts_with("/nowhere.hlog: No such file"), "{nowhere}");
}

#[test]
fn a_merged_log_is_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = log(&folder.path().join("a.hlog"), &[(WAIT, 1..=10), (WAIT, 11..=20), (WAIT, 21..=30)]);
    let (all, _) = hdr(&["merge", &file]).unwrap();
    let all = hlog::read(all.as_bytes()).unwrap().lines;
    assert_eq!((all.len(), all[0].histogram.len(), all[0].length.as_secs()), (1, 30, 30));
    let (parts, _) = hdr(&["merge", &file, "--every", "20s"]).unwrap();
    let parts = hlog::read(parts.as_bytes()).unwrap().lines;
    assert_eq!(parts.iter().map(|line| line.histogram.len()).collect::<Vec<_>>(), [20, 10]);
    let (hgrm, _) = hdr(&["merge", &file, "-o", "hgrm"]).unwrap();
    assert!(hgrm.contains("Total count    =           30]"), "{hgrm}");
}

#[test]
fn a_distribution_is_of_one_metric() {
    let folder = tempfile::tempdir().unwrap();
    let file = log(&folder.path().join("a.hlog"), &[(WAIT, 1..=9), (SEATS, 1..=1), (FAILED, 1..=1)]);
    let mixed = hdr(&["percentiles", &file, "-o", "hgrm"]).unwrap_err();
    assert!(mixed.contains("these are seats, wait"), "{mixed}");
    let (hgrm, _) = hdr(&["percentiles", &file, "-o", "hgrm", "--tag", "wait/*"]).unwrap();
    assert!(hgrm.contains("Total count    =           10]"), "both outcomes: {hgrm}");
}

#[test]
fn a_diff_tells_what_is_worse_by_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let before = log(&folder.path().join("before.hlog"), &[(WAIT, 100..=100), (FAILED, 5..=5)]);
    let after = log(&folder.path().join("after.hlog"), &[(WAIT, 150..=150), (SEATS, 1..=1)]);
    let diff = |more: &[&str]| hdr(&[&["diff", &before, &after], more].concat()).unwrap();
    let (text, code) = diff(&[]);
    assert_eq!(code, 0, "nothing was said of what is borne");
    assert!(text.contains("100 µs → 151 µs (+50 %)"), "{text}");
    assert!(text.contains("1 → 0") && text.contains("0 → 1"), "what is on one side only: {text}");
    assert_eq!((diff(&["--worse-by", "20"]).1, diff(&["--worse-by", "80"]).1), (1, 0));
    let backwards = hdr(&["diff", &after, &before, "--worse-by", "0", "-o", "json"]).unwrap();
    let rows: Value = serde_json::from_str(&backwards.0).unwrap();
    assert_eq!((backwards.1, rows.as_array().unwrap().len()), (0, 3), "it has become better");
}

#[test]
fn a_plot_has_its_curves_and_its_axes() {
    let folder = tempfile::tempdir().unwrap();
    let file = log(&folder.path().join("a.hlog"), &[(WAIT, 1..=5000), (FAILED, 1..=100), (SEATS, 1..=1)]);
    let both = ["--tag", "wait/*"];
    let (text, _) = hdr(&[&["plot", &file], &both[..]].concat()).unwrap();
    for part in ["1.00 ms |", "10.0 µs |", "90 %", "99.9 %", "* wait/a/executed", "o wait/a/failed"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    assert!(!text.contains("99.99 %"), "5 000 requests have no such percentile:\n{text}");
    let (svg, _) = hdr(&[&["plot", &file, "-o", "svg"], &both[..]].concat()).unwrap();
    assert_eq!((svg.matches("<polyline").count(), svg.matches("</svg>").count()), (2, 1));
    let mixed = hdr(&["plot", &file]).unwrap_err();
    assert!(mixed.contains("times and seats"), "{mixed}");
}

#[test]
fn values_are_shown_with_three_digits() {
    for (value, text) in [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_234, "1.23 µs"),
        (56_789, "56.8 µs"),
        (123_456_789, "123 ms"),
        (3_600_000_000_000, "3600 s"),
    ] {
        assert_eq!(shown(value, Unit::Nanoseconds), text);
    }
    assert_eq!(shown(12, Unit::Plain), "12");
}
