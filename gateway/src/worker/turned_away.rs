//! How often which kind of request was turned away: labels of `apiserver_request_total{code="429"}`.

use usher_flowcontrol::reply::RequestLabels;

/// Label sets kept. Resources and verbs of a cluster are some thousands at most; paths of non-resources are the
/// client's to invent, and must not fill memory.
const KINDS_MAX: usize = 4096;

/// Kinds of requests turned away, and how often.
#[derive(Clone, Debug, Default)]
pub struct TurnedAway {
    kinds: std::collections::HashMap<RequestLabels, u64>,
    /// Those for whose labels there was no room.
    pub others: u64,
}

impl TurnedAway {
    pub(crate) fn count(&mut self, labels: RequestLabels) {
        if let Some(count) = self.kinds.get_mut(&labels) {
            *count += 1;
        } else if self.kinds.len() < KINDS_MAX {
            self.kinds.insert(labels, 1);
        } else {
            self.others += 1;
        }
    }

    /// With another worker's.
    pub fn add(&mut self, other: &Self) {
        self.others += other.others;
        for (labels, count) in &other.kinds {
            if let Some(sum) = self.kinds.get_mut(labels) {
                *sum += count;
            } else if self.kinds.len() < KINDS_MAX {
                self.kinds.insert(labels.clone(), *count);
            } else {
                self.others += count;
            }
        }
    }

    /// Every kind and its count.
    pub fn each(&self) -> impl Iterator<Item = (&RequestLabels, u64)> {
        self.kinds.iter().map(|(labels, count)| (labels, *count))
    }
}
