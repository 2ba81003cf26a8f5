//! The cells of the table: what is measured, by name.

use std::fmt;

use super::Failure;

/// One thing that is measured of every contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// CPU per request under as much load as goes through.
    Closed(Load),
    /// The same in front of a real kube-apiserver.
    Apiserver(Transport, Wish),
    /// What a second worker is worth.
    Workers(Transport),
    /// CPU per request of the smallest relay on four ways of I/O.
    Relay,
    /// Added latency at a rate that everyone can bear.
    Latency,
    /// New TLS connections with a request each.
    Handshakes,
    /// Memory of connections that do nothing.
    IdleConnections(Transport),
    /// Memory and CPU of watches that see no event, so many on each connection.
    IdleWatches { streams: u32 },
}

/// A load that waits for its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) transport: Transport,
    pub(super) size: Size,
}

/// How the generator talks to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// HTTP/1.1.
    Plain,
    /// HTTP/1.1 over TLS 1.3.
    Tls,
    /// HTTP/2 over TLS 1.3.
    Http2,
}

/// What is asked of a real kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// One object.
    Get,
    /// Ten objects.
    List,
}

/// How large the answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// 1 KiB.
    Small,
    /// 100 KiB.
    Large,
}

/// Streams on a connection of a client with many watches: as kube-apiserver allows and a controller has.
const WATCHES_MANY: u32 = 100;

/// All, in the order in which they are measured.
pub(super) const CELLS: &[Cell] = &[
    Cell::Closed(Load { transport: Transport::Plain, size: Size::Small }),
    Cell::Closed(Load { transport: Transport::Plain, size: Size::Large }),
    Cell::Closed(Load { transport: Transport::Tls, size: Size::Small }),
    Cell::Closed(Load { transport: Transport::Tls, size: Size::Large }),
    Cell::Closed(Load { transport: Transport::Http2, size: Size::Small }),
    Cell::Closed(Load { transport: Transport::Http2, size: Size::Large }),
    Cell::Latency,
    Cell::Handshakes,
    Cell::IdleConnections(Transport::Plain),
    Cell::IdleConnections(Transport::Tls),
    Cell::IdleWatches { streams: WATCHES_MANY },
    Cell::IdleWatches { streams: 1 },
    Cell::Apiserver(Transport::Tls, Wish::Get),
    Cell::Apiserver(Transport::Tls, Wish::List),
    Cell::Apiserver(Transport::Http2, Wish::Get),
    Cell::Apiserver(Transport::Http2, Wish::List),
    Cell::Workers(Transport::Plain),
    Cell::Workers(Transport::Http2),
    Cell::Relay,
];

/// One of each sort.
const QUICK: [&str; 7] = [
    "plain-1k",
    "http2-1k",
    "latency",
    "handshakes",
    "idle-connections-tls",
    "idle-watches-100",
    "workers-plain",
];

impl Cell {
    /// Those whose names begin with one of `wanted`; if nothing is wanted all, or one of each sort for a `quick` look.
    pub(super) fn chosen(wanted: &[String], quick: bool) -> Result<Vec<Self>, Failure> {
        let fits = |cell: &Self, word: &String| cell.to_string().starts_with(word.as_str());
        if let Some(unknown) = wanted.iter().find(|word| !CELLS.iter().any(|cell| fits(cell, word))) {
            let names: Vec<String> = CELLS.iter().map(ToString::to_string).collect();
            return Err(format!("there is no cell {unknown:?}; there are {}", names.join(", ")).into());
        }
        let quick: &[String] = if quick { &QUICK.map(str::to_owned) } else { &[] };
        let wanted = if wanted.is_empty() { quick } else { wanted };
        let chosen = |cell: &&Self| wanted.is_empty() || wanted.iter().any(|word| fits(cell, word));
        Ok(CELLS.iter().filter(chosen).copied().collect())
    }

    /// A line for the reader.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Closed(Load { transport: Transport::Http2, .. }) => {
                "as fast as it goes, 8 connections with 16 streams each (h2load)"
            }
            Self::Closed(_) => "as fast as it goes, 64 connections (wrk)",
            Self::Apiserver(..) => "in front of kube-apiserver with etcd, TLS on both sides",
            Self::Workers(_) => {
                "usher with one and two workers, answers of 1 KiB, with a fixed share of CPU for each and with whole cores"
            }
            Self::Relay => {
                "not usher but a relay of bytes on four ways of I/O, plain HTTP/1.1, 64 connections (wrk)"
            }
            Self::Latency => "5 000 requests/s from 64 connections, timed from when each was due",
            Self::Handshakes => "new TLS connections, full handshakes, one request each",
            Self::IdleConnections(_) => "connections that are idle after one request",
            Self::IdleWatches { .. } => "watches without events, HTTP/2 over TLS on both sides",
        }
    }

    /// Programs that it needs besides the proxies.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Closed(Load { transport: Transport::Http2, .. }) => &["nginx", "h2load"],
            Self::Closed(_) => &["nginx", "wrk"],
            Self::Apiserver(Transport::Http2, _) => &["h2load"],
            Self::Apiserver(..) => &["wrk"],
            Self::Workers(Transport::Http2) => &["nginx", "h2load"],
            Self::Workers(_) => &["nginx", "wrk"],
            Self::Relay => &["haproxy", "nginx", "wrk"],
            Self::Latency | Self::Handshakes | Self::IdleConnections(_) => &["nginx"],
            Self::IdleWatches { .. } => &[],
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(Load { transport, size: Size::Small }) => write!(f, "{transport}-1k"),
            Self::Closed(Load { transport, size: Size::Large }) => write!(f, "{transport}-100k"),
            Self::Apiserver(transport, Wish::Get) => write!(f, "apiserver-get-{transport}"),
            Self::Apiserver(transport, Wish::List) => write!(f, "apiserver-list-{transport}"),
            Self::Workers(transport) => write!(f, "workers-{transport}"),
            Self::Relay => f.write_str("relay"),
            Self::Latency => f.write_str("latency"),
            Self::Handshakes => f.write_str("handshakes"),
            Self::IdleConnections(transport) => write!(f, "idle-connections-{transport}"),
            Self::IdleWatches { streams } => write!(f, "idle-watches-{streams}"),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
            Self::Http2 => "http2",
        })
    }
}

impl Size {
    /// The path of a pod whose document is that large.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Small => "/api/v1/namespaces/default/pods/small",
            Self::Large => "/api/v1/namespaces/default/pods/large",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CELLS, Cell, QUICK};

    #[test]
    fn cells_are_chosen_by_the_beginnings_of_their_names() {
        let names = |wanted: &[&str], quick| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let cells = Cell::chosen(&wanted, quick).expect("known names");
            cells.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(&["tls", "latency"], false), ["tls-1k", "tls-100k", "latency"]);
        assert_eq!(names(&["tls-1k"], true), ["tls-1k"]);
        assert_eq!(names(&[], false).len(), CELLS.len());
        assert_eq!(names(&[], true), QUICK);
        assert!(Cell::chosen(&["pla".into(), "nowhere".into()], false).is_err());
    }
}
