//! The interval log of HdrHistogram (`.hlog`, format 1.3): written and read line by line.
//!
//! A line is `Tag=TAG,START,LENGTH,MAX,HISTOGRAM`: seconds, seconds, the largest value for people, and the histogram
//! in the V2 encoding, deflated, in base64. The reader takes what the Java, Python and other libraries write: with or
//! without tags, deflated or not, times absolute or relative to a `BaseTime` or `StartTime` as the Java reader has it.
//! A last line without its end that makes no sense was torn by the end of its writer; it is left out and reported.

use std::fmt::Write as _;
use std::io::Read as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::keys::{Key, Metric};

/// A histogram of an interval.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is about; empty if it does not say.
    pub tag: String,
    /// Beginning of the interval, since the start of 1970.
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// What was recorded in it.
    pub histogram: Histogram<u64>,
}

/// What a log holds.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Its lines, as they stand there.
    pub lines: Vec<Line>,
    /// The number of the last line, if that was torn.
    pub torn: Option<usize>,
}

/// A line that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Fault {
    /// Which, from 1.
    pub line: usize,
    /// Why.
    pub problem: String,
}

/// A line longer than this is no histogram: the largest that the encoding allows for has 6 million counts, and
/// ours have 5 000.
const LINE_MAX: usize = 64 << 20;

/// The lines that a log begins with whose first interval begins at `start`: the Java tools leave out what is earlier.
#[must_use]
pub fn header(start: Duration) -> String {
    format!(
        "#[usher {}: times in ns (Interval_Max in ms), seats in seats; tags are METRIC/LEVEL/OUTCOME]\n\
         #[Histogram log format version 1.3]\n\
         #[StartTime: {}.{:03} (seconds since epoch), {}]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        env!("CARGO_PKG_VERSION"),
        start.as_secs(),
        start.subsec_millis(),
        rfc3339(start),
    )
}

/// Appends one line. `encoded` is of [`encode`].
pub fn put_line(text: &mut String, tag: &str, start: Duration, length: Duration, max: u64, encoded: &str) {
    if !tag.is_empty() {
        let _ = write!(text, "Tag={tag},");
    }
    let times = Key::of_tag(tag).is_none_or(|key| key.metric != Metric::Seats);
    let (whole, rest) = if times { (max / 1_000_000, max / 1_000 % 1_000) } else { (max, 0) };
    let _ = writeln!(
        text,
        "{}.{:03},{}.{:03},{whole}.{rest:03},{encoded}",
        start.as_secs(),
        start.subsec_millis(),
        length.as_secs(),
        length.subsec_millis(),
    );
}

/// A histogram as it stands in a line.
#[must_use]
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("counts of one process fit, memory takes all");
    STANDARD.encode(bytes)
}

/// The histogram of [`encode`].
///
/// # Errors
/// It is none, in a sentence.
pub fn decode(encoded: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(encoded).map_err(|error| format!("the histogram is not base64: {error}"))?;
    let bytes = if field(&bytes, 0) == Some(DEFLATED) { inflate(&bytes)? } else { bytes };
    if field(&bytes, 0) != Some(PLAIN) {
        return Err("the histogram is not in the V2 encoding".into());
    }
    // The library makes room for what is declared before it looks whether that is there.
    if field(&bytes, 4).is_none_or(|declared| bytes.len() < PLAIN_HEADER.saturating_add(declared as usize)) {
        return Err("the histogram is not whole".into());
    }
    let histogram = Deserializer::new().deserialize(&mut bytes.as_slice());
    histogram.map_err(|error| format!("the histogram is not in the V2 encoding: {error}"))
}

/// How a histogram begins, deflated or not; its length follows.
const DEFLATED: u32 = 0x1c84_9314;
const PLAIN: u32 = 0x1c84_9313;
/// Bytes before the counts of one that is not deflated.
const PLAIN_HEADER: usize = 40;
/// A histogram is not longer when inflated: six million counts of nine bytes are 54 MB.
const INFLATED_MAX: u64 = 64 << 20;

/// What is in there.
fn inflate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let declared = field(bytes, 4).and_then(|declared| bytes.get(8..)?.get(..declared as usize));
    let deflated = declared.ok_or("the histogram is not whole")?;
    let mut inflated = Vec::new();
    ZlibDecoder::new(deflated)
        .take(INFLATED_MAX)
        .read_to_end(&mut inflated)
        .map_err(|error| format!("the histogram is not deflated as it says: {error}"))?;
    Ok(inflated)
}

/// Four bytes, the highest first.
fn field(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Reads a log.
///
/// # Errors
/// The first line that makes no sense and is not a torn last one.
pub fn read(text: &[u8]) -> Result<Log, Fault> {
    let (mut log, mut origin) = (Log::default(), Origin::default());
    for (index, bytes) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = index + 1;
        match interval(bytes, &mut origin) {
            Ok(Some(interval)) => log.lines.push(interval),
            Ok(None) => {}
            Err(_) if !bytes.ends_with(b"\n") => log.torn = Some(line),
            Err(problem) => return Err(Fault { line, problem }),
        }
    }
    Ok(log)
}

/// A moment as people write it.
#[must_use]
pub fn rfc3339(at: Duration) -> String {
    let millis = i128::try_from(at.as_millis()).unwrap_or(0);
    let date = OffsetDateTime::from_unix_timestamp_nanos(millis * 1_000_000);
    date.ok().and_then(|date| date.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{} s", at.as_secs()))
}

/// What times are relative to.
#[derive(Default)]
struct Origin {
    start: Option<f64>,
    base: Option<f64>,
}

/// How far before its `StartTime` a time must be to be taken as relative to it: the Java reader's rule.
const YEAR: f64 = 365.0 * 24.0 * 3600.0;

/// `None`: a line about the log itself, or an empty one.
fn interval(bytes: &[u8], origin: &mut Origin) -> Result<Option<Line>, String> {
    if bytes.len() > LINE_MAX {
        return Err(format!("it is longer than {LINE_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?.trim_end();
    if let Some(comment) = text.strip_prefix('#') {
        let after = |name: &str| comment.strip_prefix(name)?.split_whitespace().next()?.parse().ok();
        origin.start = after("[StartTime:").or(origin.start);
        origin.base = after("[BaseTime:").or(origin.base);
        return Ok(None);
    }
    if text.is_empty() || text.starts_with("\"StartTimestamp\"") {
        return Ok(None);
    }
    let (tag, text) = match text.strip_prefix("Tag=") {
        Some(tagged) => tagged.split_once(',').ok_or("nothing follows its tag")?,
        None => ("", text),
    };
    let fields: Vec<&str> = text.split(',').collect();
    let [start, length, _max, encoded] = fields[..] else {
        return Err(format!("wanted START,LENGTH,MAX,HISTOGRAM, got {} fields", fields.len()));
    };
    let start = seconds(start)?;
    let first = *origin.start.get_or_insert(start);
    let base = *origin.base.get_or_insert(if start < first - YEAR { first } else { 0.0 });
    Ok(Some(Line {
        tag: tag.to_owned(),
        start: span(base + start)?,
        length: span(seconds(length)?)?,
        histogram: decode(encoded)?,
    }))
}

fn seconds(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is no number of seconds"))
}

fn span(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{seconds} is no time"))
}

#[cfg(test)]
mod tests;
