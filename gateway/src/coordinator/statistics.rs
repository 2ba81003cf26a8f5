//! How many objects of each resource the apiserver holds: what the cost of a list is estimated from.
//!
//! kube-apiserver counts them in its storage; from outside they are seen in its `/metrics`, as
//! `apiserver_resource_objects` and, where it estimates them, `apiserver_resource_size_estimate_bytes`. That text
//! runs to many megabytes, so it is read line by line and only these lines are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Asker;
use super::fetch::{Fetcher, Sink};
use super::patience::Patience;
use crate::crew::{self, Order, Posts};
use crate::worker::ObjectCount;

/// How often they are read: kube-apiserver counts anew once a minute.
const EVERY: Duration = Duration::from_secs(60);

const REMEDY: &str = "have --upstream-groups contain a group that may read /metrics (by default \
    system:monitoring), with --proxy-client-cert-file to ask as system:usher; until then lists are taken for small";

/// Resources that are kept: a cluster with more kinds than this has the others estimated as unknown.
const RESOURCES_MAX: usize = 20_000;
/// A line longer than this is none of ours.
const LINE_BYTES_MAX: usize = 4096;
/// The text as a whole: four times the largest that operators tell of.
const TEXT_BYTES_MAX: usize = 512 << 20;

const OBJECTS: &str = "apiserver_resource_objects";
const SIZES: &str = "apiserver_resource_size_estimate_bytes";

/// What is known of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Objects in the store; `None` if the apiserver does not know either.
    pub objects: Option<u64>,
    /// Their size together, in bytes.
    pub bytes: Option<u64>,
}

/// Resources by API group and name.
pub type Resources = BTreeMap<(String, String), Resource>;

/// Reads them for ever.
pub(super) async fn refresh(fetcher: &Fetcher, asker: &Asker, posts: &Posts) {
    let mut patience = Patience::new("object counts", REMEDY, EVERY);
    loop {
        let pause = patience.note(once(fetcher, asker, posts).await);
        tokio::time::sleep(pause).await;
    }
}

pub(super) async fn once(fetcher: &Fetcher, asker: &Asker, posts: &Posts) -> Result<(), String> {
    let mut reader = Reader::default();
    fetcher.get(&asker.question("/metrics"), &mut reader).await.map_err(|error| error.to_string())?;
    let counts = counts(&reader.finish());
    match posts.tell(&Order::Statistics(counts.into())).first() {
        None => Ok(()),
        Some(worker) => Err(format!("{} takes no messages", crew::name(*worker))),
    }
}

/// As the estimator wants them. What the apiserver could not count is left out, and so goes stale.
fn counts(resources: &Resources) -> Vec<ObjectCount> {
    let count = |((group, name), known): (&(String, String), &Resource)| {
        let count = i64::try_from(known.objects?).ok()?;
        let bytes = known.bytes.and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(0);
        let key = if group.is_empty() { name.clone() } else { format!("{name}.{group}") };
        Some(ObjectCount { key, count, average_size: bytes.checked_div(count).unwrap_or(0) })
    };
    resources.iter().filter_map(count).collect()
}

/// Reads the text of `/metrics` as it comes.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    found: Resources,
    line: Vec<u8>,
    /// The present line is too long: it is skipped to its end.
    skipping: bool,
    bytes: usize,
}

// === impl Reader ===

impl Sink for Reader {
    fn start(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), usize> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > TEXT_BYTES_MAX {
            return Err(TEXT_BYTES_MAX);
        }
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.append(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.append(rest);
        Ok(())
    }
}

impl Reader {
    /// What was found.
    pub(crate) fn finish(mut self) -> Resources {
        self.end_line();
        self.found
    }

    fn append(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            self.skipping = true;
        }
        if !self.skipping {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !std::mem::take(&mut self.skipping) {
            self.read(&line);
        }
        self.line = line;
        self.line.clear();
    }

    fn read(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else { return };
        let objects = sample(line, OBJECTS);
        let Some((labels, value)) = objects.or_else(|| sample(line, SIZES)) else { return };
        let (Some(group), Some(resource)) = (label(labels, "group"), label(labels, "resource")) else {
            return;
        };
        let key = (group.to_owned(), resource.to_owned());
        if self.found.len() >= RESOURCES_MAX && !self.found.contains_key(&key) {
            return;
        }
        let known = self.found.entry(key).or_default();
        if objects.is_some() {
            known.objects = whole(value);
        } else {
            known.bytes = whole(value);
        }
    }
}

/// `metric{labels} value`: the labels and the value.
fn sample<'a>(line: &'a str, metric: &str) -> Option<(&'a str, f64)> {
    let (labels, rest) = line.strip_prefix(metric)?.strip_prefix('{')?.rsplit_once('}')?;
    Some((labels, rest.split_ascii_whitespace().next()?.parse().ok()?))
}

/// A label's value. Groups and resources are DNS names: nothing in them is escaped.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

/// A count; -1 is how the apiserver says that it could not count.
fn whole(value: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (0.0..9e18).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, Reader, Resource, Resources, Sink as _, counts};

    /// Reads the text in pieces of that length.
    fn read(text: &str, piece: usize) -> Resources {
        let mut reader = Reader::default();
        text.as_bytes().chunks(piece).for_each(|piece| reader.take(piece).unwrap());
        reader.finish()
    }

    #[test]
    fn only_our_lines_are_read_however_they_arrive() {
        let text = "# HELP apiserver_resource_objects [STABLE] Number of stored objects\n\
            # TYPE apiserver_resource_objects gauge\n\
            apiserver_resource_objects{group=\"\",resource=\"pods\"} 5000\n\
            apiserver_resource_objects{group=\"apps\",resource=\"deployments\"} 1.2e+06\n\
            apiserver_resource_objects{group=\"\",resource=\"secrets\"} -1\n\
            apiserver_resource_objects_of_others{group=\"\",resource=\"nodes\"} 7\n\
            apiserver_resource_objects{group=\"\"} 7\n\
            apiserver_resource_objects{group=\"\",resource=\"bad\"} many\n\
            apiserver_resource_size_estimate_bytes{group=\"\",resource=\"pods\"} 12345678\n\
            go_goroutines 12";
        let wanted: Resources = [
            ("", "pods", Some(5000), Some(12_345_678)),
            ("apps", "deployments", Some(1_200_000), None),
            ("", "secrets", None, None),
        ]
        .into_iter()
        .map(|(group, name, objects, bytes)| ((group.into(), name.into()), Resource { objects, bytes }))
        .collect();
        for piece in [1, 7, 64, 10_000] {
            assert_eq!(read(text, piece), wanted, "in pieces of {piece}");
        }
    }

    #[test]
    fn counts_are_what_the_estimator_wants() {
        let known = |objects, bytes| Resource { objects, bytes };
        let resources: Resources = [
            (("", "pods"), known(Some(10), Some(25_000))),
            (("apps", "deployments"), known(Some(3), None)),
            (("", "empty"), known(Some(0), Some(0))),
            (("", "unknown"), known(None, Some(9))),
        ]
        .into_iter()
        .map(|((group, name), known)| ((group.into(), name.into()), known))
        .collect();
        let counts: Vec<(String, i64, i64)> =
            counts(&resources).into_iter().map(|row| (row.key, row.count, row.average_size)).collect();
        let wanted = [("empty", 0, 0), ("pods", 10, 2500), ("deployments.apps", 3, 0)];
        assert_eq!(counts, wanted.map(|(key, count, size)| (key.to_owned(), count, size)));
    }

    #[test]
    fn a_line_without_end_fills_no_memory() {
        let long = "x".repeat(LINE_BYTES_MAX * 10);
        let text = format!("{long}\napiserver_resource_objects{{group=\"\",resource=\"pods\"}} 1\n{long}");
        let mut reader = Reader::default();
        for piece in text.as_bytes().chunks(100) {
            reader.take(piece).unwrap();
            assert!(reader.line.len() <= LINE_BYTES_MAX);
        }
        assert_eq!(reader.finish().len(), 1);
    }
}
