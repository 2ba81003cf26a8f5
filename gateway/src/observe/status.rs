//! What `usher status` tells, for people and for programs.
//!
//! The gateway's own numbers are here; other rooms add a [`Section`] each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{State, View};
use crate::control::Section;
use crate::ring;

/// A running usher at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Who it is.
    #[serde(flatten)]
    pub process: Process,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// Clients' connections that are open.
    pub connections: u64,
    /// Requests that execute; `None` without flow control.
    pub executing: Option<u64>,
    /// Requests that wait; `None` without flow control.
    pub waiting: Option<u64>,
    /// No new connections are taken: the end is near.
    pub draining: bool,
    /// What other rooms say.
    #[serde(flatten)]
    pub sections: BTreeMap<String, Section>,
}

/// What does not change as long as it lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Of the program.
    pub version: String,
    /// Its number, in its own PID namespace.
    pub pid: u32,
    /// That namespace, by which a container knows its own usher; `None`: it does not say.
    #[serde(default)]
    pub pid_namespace: Option<String>,
    /// When it began to serve (RFC 3339).
    pub since: String,
    /// How workers do their I/O.
    pub io: String,
    /// Where clients come in with TLS.
    pub secure: Option<SocketAddr>,
    /// Where without.
    pub insecure: Option<SocketAddr>,
    /// The admin port.
    pub admin: SocketAddr,
}

/// A worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worker {
    /// `worker-0` …
    pub name: String,
    /// `serving`, `draining`, `out`, `restarting`.
    pub state: String,
    /// Its open connections.
    pub connections: u64,
    /// Requests that it has received.
    pub requests: u64,
}

/// This moment, for [`Process::since`].
#[must_use]
pub fn this_moment() -> String {
    let since = i64::try_from(ring::date().as_secs()).unwrap_or(0);
    let moment = OffsetDateTime::from_unix_timestamp(since).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    moment.format(&Rfc3339).unwrap_or_default()
}

/// The PID namespace of whoever asks: `pid:[…]`.
#[must_use]
pub fn pid_namespace() -> Option<String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    namespace.into_os_string().into_string().ok()
}

impl Status {
    /// Of this process, whose workers look like that.
    #[must_use]
    pub fn of(process: Process, view: &View, sections: BTreeMap<String, Section>) -> Self {
        let of_levels = |count: fn(&usher_flowcontrol::snapshot::Level) -> usize| {
            let levels = view.snapshot.as_ref().map(|snapshot| snapshot.levels.iter());
            levels.map(|levels| levels.map(count).sum::<usize>() as u64)
        };
        let worker = |each: &super::Each| Worker {
            name: each.name.clone(),
            state: State::name(each.state).to_owned(),
            connections: each.connections_open,
            requests: each.requests,
        };
        Self {
            process,
            workers: view.workers.iter().map(worker).collect(),
            connections: view.counters.connections_open,
            executing: of_levels(|level| level.executing),
            waiting: of_levels(|level| level.waiting),
            draining: view.draining,
            sections,
        }
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let Process { version, pid, pid_namespace: _, since, io, secure, insecure, admin } = &self.process;
        let state = if self.draining { "drains" } else { "serves" };
        let mut text = format!("usher {version} {state}, process {pid}, since {since}\n");
        let mut line = |name: &str, said: &str| {
            for (index, said) in said.lines().enumerate() {
                let name = if index == 0 { name } else { "" };
                let _ = writeln!(text, "  {name:<12} {said}");
            }
        };
        let addresses = [("TLS", *secure), ("plain", *insecure), ("admin", Some(*admin))]
            .into_iter()
            .filter_map(|(name, address)| address.map(|address| format!("{address} ({name})")));
        line("listens on", &addresses.collect::<Vec<_>>().join(", "));
        line("connections", &self.connections.to_string());
        if let Some((executing, waiting)) = self.executing.zip(self.waiting) {
            line("requests", &format!("{executing} executing, {waiting} waiting"));
        }
        line("I/O", io);
        for Worker { name, state, connections, requests } in &self.workers {
            line(name, &format!("{state}, {connections} connections, {requests} requests so far"));
        }
        for (name, section) in &self.sections {
            line(&name.replace('_', "-"), &section.summary);
        }
        text
    }
}
