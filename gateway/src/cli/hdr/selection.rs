//! Which histograms: files or folders of them, tags, a stretch of time; and their sums.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::observe::hdr::Key;
use crate::observe::hdr::hlog::{self, Line};

/// Which lines of the logs.
#[derive(Args, Clone, Debug)]
pub(super) struct Filter {
    /// Only these tags (METRIC/LEVEL/OUTCOME); * stands for anything; repeatable
    #[arg(long = "tag", value_name = "PATTERN")]
    tags: Vec<String>,
    /// Only intervals that begin then or later: 2026-11-21T14:00:00Z, or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Duration>,
    /// Only intervals that begin before
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Duration>,
}

/// Where they are, and which.
#[derive(Args, Clone, Debug)]
pub(super) struct Selection {
    /// Interval logs (.hlog), or folders of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    filter: Filter,
}

/// A tag's histograms in one.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    /// From the first beginning to the last end.
    pub(super) start: Duration,
    pub(super) end: Duration,
    pub(super) histogram: Histogram<u64>,
}

/// By tag.
pub(super) type Sums = BTreeMap<String, Sum>;

impl Selection {
    /// All selected lines, in one sum a tag.
    pub(super) fn sums(&self) -> Result<Sums, String> {
        sums(&self.lines()?)
    }

    /// All selected lines.
    pub(super) fn lines(&self) -> Result<Vec<Line>, String> {
        self.filter.lines(&self.files)
    }
}

impl Filter {
    /// The selected lines of these logs; an error if there are none.
    pub(super) fn lines(&self, files: &[PathBuf]) -> Result<Vec<Line>, String> {
        let (mut all, mut selected) = (0, Vec::new());
        for file in listed(files)? {
            for line in read(&file)? {
                all += 1;
                if self.wants(&line) {
                    selected.push(line);
                }
            }
        }
        if selected.is_empty() {
            return Err(match all {
                0 => "the logs hold no histograms".to_owned(),
                _ => format!("none of the {all} histograms is selected: look at --tag, --from and --to"),
            });
        }
        Ok(selected)
    }

    fn wants(&self, line: &Line) -> bool {
        let tagged = self.tags.is_empty() || self.tags.iter().any(|pattern| matches(pattern, &line.tag));
        let in_time =
            self.from.is_none_or(|from| from <= line.start) && self.to.is_none_or(|to| line.start < to);
        tagged && in_time
    }
}

/// One sum a tag.
pub(super) fn sums<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Result<Sums, String> {
    let mut sums = Sums::new();
    for line in lines {
        let end = line.start + line.length;
        let Some(sum) = sums.get_mut(&line.tag) else {
            let mut histogram = line.histogram.clone();
            histogram.auto(true); // others' logs may mix ranges
            sums.insert(line.tag.clone(), Sum { start: line.start, end, histogram });
            continue;
        };
        (sum.start, sum.end) = (sum.start.min(line.start), sum.end.max(end));
        sum.histogram.add(&line.histogram).map_err(|error| format!("{}: {error}", line.tag))?;
    }
    Ok(sums)
}

/// All in one: they must count the same.
pub(super) fn one(sums: &Sums) -> Result<Histogram<u64>, String> {
    let metric =
        |tag: &String| Key::of_tag(tag).map_or_else(|| tag.clone(), |key| key.metric.name().to_owned());
    let mut metrics: Vec<String> = sums.keys().map(metric).collect();
    metrics.dedup();
    if metrics.len() > 1 {
        return Err(format!(
            "a distribution is of one metric, and these are {}: choose with --tag, as in --tag '{}/*'",
            metrics.join(", "),
            metrics[0]
        ));
    }
    let mut histograms = sums.values().map(|sum| &sum.histogram);
    let mut one = histograms.next().cloned().ok_or("there is no histogram")?;
    histograms.try_for_each(|histogram| one.add(histogram)).map_err(|error| error.to_string())?;
    Ok(one)
}

/// Folders stand for the logs in them.
fn listed(files: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut listed = Vec::new();
    for path in files {
        if !path.is_dir() {
            listed.push(path.clone());
            continue;
        }
        let cannot = |error| format!("{}: {error}", path.display());
        let mut within = Vec::new();
        for entry in fs::read_dir(path).map_err(cannot)? {
            let entry = entry.map_err(cannot)?.path();
            if entry.extension().is_some_and(|extension| extension == "hlog") {
                within.push(entry);
            }
        }
        if within.is_empty() {
            return Err(format!("{}: there is no .hlog file in this folder", path.display()));
        }
        within.sort_unstable();
        listed.extend(within);
    }
    Ok(listed)
}

fn read(path: &Path) -> Result<Vec<Line>, String> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let log =
        hlog::read(&text).map_err(|fault| format!("{}:{}: {}", path.display(), fault.line, fault.problem))?;
    if let Some(line) = log.torn {
        eprintln!(
            "usher hdr: {}:{line}: left out, the last line is torn: its writer ended while writing it",
            path.display()
        );
    }
    Ok(log.lines)
}

/// Whether a text is of a pattern in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// A moment, since the start of 1970.
fn moment(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    let wanted = || "wanted a time like 2026-11-21T14:00:00Z, or Unix seconds".to_owned();
    let date = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wanted())?;
    u64::try_from(date.unix_timestamp_nanos()).map(Duration::from_nanos).map_err(|_| wanted())
}

#[cfg(test)]
mod tests {
    use super::{matches, moment};

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, is) in [
            ("wait/a/executed", "wait/a/executed", true),
            ("wait/a/executed", "wait/a/executed2", false),
            ("wait/*", "wait/a/executed", true),
            ("*/executed", "wait/a/executed", true),
            ("*/a/*", "wait/a/executed", true),
            ("wait/*/failed", "wait/a/executed", false),
            ("*", "", true),
            ("", "", true),
            ("a*a", "a", false),
            ("*b*b", "abab", true),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn a_moment_is_a_date_or_seconds() {
        assert_eq!(moment("1970-01-01T00:01:00Z").unwrap().as_secs(), 60);
        assert_eq!(moment("60.5").unwrap().as_millis(), 60_500);
        for bad in ["yesterday", "-5", "1969-12-31T00:00:00Z", "inf"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }
}
