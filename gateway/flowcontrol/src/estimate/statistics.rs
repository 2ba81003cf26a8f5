//! How many objects a resource has and how large they are.
//!
//! kube-apiserver counts its own stores; a gateway is told from outside (the apiserver's metrics, its own
//! observation of answers) and feeds this table. What nobody reports any more grows stale, then goes.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use hashbrown::HashMap;

use crate::request_info::RequestInfo;
use crate::units::Nanos;

/// What is known of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stats {
    /// Nothing.
    #[default]
    Absent,
    /// Something, but it is too old to be believed.
    Stale,
    /// The last report.
    Fresh {
        /// Number of objects, in all namespaces.
        count: i64,
        /// Bytes of an object on average; 0 or less: unknown.
        average_size: i64,
    },
}

/// Statistics of all resources, by [`key`].
#[derive(Clone, Debug, Default)]
pub struct Statistics(HashMap<Box<[u8]>, Report>);

#[derive(Clone, Copy, Debug)]
struct Report {
    count: i64,
    average_size: i64,
    at: Nanos,
}

/// A report older than this is not believed (reporters speak every one to two minutes).
const STALE_AFTER: Nanos = Nanos::from_secs(3 * 60);
/// A report older than this is forgotten: its resource is gone.
const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(60 * 60);
/// Resources that are kept: no cluster has so many, and no reporter may fill the memory.
const RESOURCES_MAX: usize = 20_000;

/// The name under which the statistics of a resource are kept: `pods`, `deployments.apps`.
#[must_use]
pub fn key<'a>(request: &'a RequestInfo<'_>) -> Cow<'a, [u8]> {
    match request.api_group() {
        b"" => Cow::Borrowed(request.resource()),
        group => Cow::Owned([request.resource(), group].join(&b'.')),
    }
}

// === impl Statistics ===

impl Statistics {
    /// Takes a report of `key`. `false` if there is no room for another resource.
    pub fn report(&mut self, now: Nanos, key: &[u8], count: i64, average_size: i64) -> bool {
        let report = Report { count, average_size, at: now };
        if let Some(known) = self.0.get_mut(key) {
            *known = report;
            return true;
        }
        let room = self.0.len() < RESOURCES_MAX;
        if room {
            self.0.insert(key.into(), report);
        }
        room
    }

    /// What is known of the resource that a request is about.
    #[must_use]
    pub fn of(&self, now: Nanos, request: &RequestInfo<'_>) -> Stats {
        match self.0.get(&*key(request)) {
            None => Stats::Absent,
            Some(report) if now - report.at > STALE_AFTER => Stats::Stale,
            Some(&Report { count, average_size, .. }) => Stats::Fresh { count, average_size },
        }
    }

    /// Forgets what has not been reported for an hour; once in a while will do.
    pub fn prune(&mut self, now: Nanos) {
        self.0.retain(|_, report| now - report.at <= FORGOTTEN_AFTER);
    }
}
