//! What is measured, for whom, and how it ended: the names under which histograms are kept.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

macro_rules! names {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)+ }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// As it is spelt in tags, queries and flags.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let names: Vec<&str> = Self::ALL.iter().map(|each| each.name()).collect();
                let found = Self::ALL.iter().copied().find(|each| each.name() == text);
                found.ok_or_else(|| format!("{text:?} is none of {}", names.join(", ")))
            }
        }
    };
}

names! {
    /// What is measured. The room's page ([`super`]) defines each.
    Metric {
        /// From the digest of a request to the verdict, in ns.
        Dispatch = "dispatch",
        /// In a queue, in ns; 0 for requests that run at once.
        Wait = "wait",
        /// From the seats' being taken to their being given back, in ns.
        Execution = "execution",
        /// What usher itself adds to a request's time, in ns.
        Added = "added",
        /// Seats that the request takes.
        Seats = "seats",
    }
}

names! {
    /// How a request ended.
    Outcome {
        /// It ran, and its answer was complete (of a watch: its beginning).
        Executed = "executed",
        /// It ran, but its time was up, its client left, or the apiserver failed.
        Failed = "failed",
        /// Turned away: its queue was full.
        QueueFull = "queue-full",
        /// Turned away: no seat was free at a level without queues.
        ConcurrencyLimit = "concurrency-limit",
        /// Turned away: too many requests wait at this worker.
        TooManyWaiting = "too-many-waiting",
        /// It waited as long as it may.
        TimedOut = "time-out",
        /// Its client left while it waited.
        Cancelled = "cancelled",
    }
}

/// The level of requests for whose own level there is no room. No level's name has an underscore.
pub const OTHER_LEVELS: &str = "_other";

/// What a histogram is about. Written as a tag: `METRIC/LEVEL/OUTCOME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What is measured.
    pub metric: Metric,
    /// The priority level, or [`OTHER_LEVELS`]: a DNS name, so that it can stand in a tag.
    pub level: Arc<str>,
    /// How the requests ended.
    pub outcome: Outcome,
}

impl Metric {
    /// What its numbers count.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Seats => "seats",
            Self::Dispatch | Self::Wait | Self::Execution | Self::Added => "ns",
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.metric.name(), self.level, self.outcome.name())
    }
}

impl Key {
    /// Of a tag that usher wrote; `None` for anybody else's.
    #[must_use]
    pub fn of_tag(tag: &str) -> Option<Self> {
        let mut parts = tag.split('/');
        let (metric, level, outcome) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Some(Self { metric: metric.parse().ok()?, level: level.into(), outcome: outcome.parse().ok()? })
    }
}
