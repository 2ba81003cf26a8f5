//! `usher drain --worker=N`: one worker goes, the others serve on.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;

use crate::control::Drain;
use crate::crew::{self, Kept, Member, Retiring};
use crate::handover::Ledger;
use crate::steering::Steering;
use crate::takeover::{Sockets, Takeover};

/// Tells the kernel to pass on what waits for a listener that closes (Linux 5.14, as the steering program does).
const MIGRATE: &str = "/proc/sys/net/ipv4/tcp_migrate_req";

/// What letting a worker go takes.
pub(super) struct Desk {
    pub(super) retiring: Retiring,
    pub(super) sockets: Secure,
    pub(super) steering: Arc<Steering>,
    pub(super) takeover: Option<Arc<Takeover>>,
    pub(super) ledger: Arc<Ledger>,
    /// `--shutdown-grace-period`.
    pub(super) grace: Duration,
}

/// Of each worker: its sockets for TLS, which takeover may have chosen. Not held: they are to close.
pub(super) struct Secure(Mutex<Vec<Vec<Weak<TcpListener>>>>);

impl Secure {
    pub(super) fn of(members: &[Member]) -> Self {
        let own = |member: &Member| {
            let with_tls = member.listeners.iter().filter(|listen| listen.tls.is_some());
            with_tls.map(|listen| Arc::downgrade(&listen.socket)).collect()
        };
        Self(Mutex::new(members.iter().map(own).collect()))
    }
}

impl Desk {
    /// Does it, and says so. Returns when the worker has been told.
    ///
    /// # Errors
    /// A sentence: nothing has changed.
    pub(super) fn drain(&self, with: &Value) -> Result<Value, String> {
        let Drain { worker, grace } =
            serde_json::from_value(with.clone()).map_err(|error| format!("drain: {error}"))?;
        let grace = grace.unwrap_or(self.grace);
        if self.ledger.former().is_some_and(|former| !former.stopped) {
            return Err("the usher before this one still has the sockets, too: try again in a moment".into());
        }
        if !self.steering.is_on() && !kernel_migrates() {
            return Err(format!(
                "connections that the kernel has ready for {} would be reset, for they are not steered ({}): have \
                 the kernel pass them on by `sysctl net.ipv4.tcp_migrate_req=1` (Linux 5.14), and try again",
                crew::name(worker),
                self.steering.reason()
            ));
        }
        // One after the other: who stands in for one must not be the next.
        let sockets = self.sockets.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(takeover) = &self.takeover {
            let others = sockets.iter().enumerate().filter(|(other, _)| *other != worker);
            let living: Vec<_> = others.flat_map(|(_, own)| own).filter_map(Weak::upgrade).collect();
            let problem = |problem| format!("--takeover: {problem}: nothing has changed");
            takeover.stand_in(Sockets::among(&living)).map_err(problem)?;
        }
        self.retiring.retire(worker, grace).map_err(|kept: Kept| kept.to_string())?;
        Ok(Value::from(format!(
            "{} takes no new connections and ends within {grace:?}: `usher status` tells how it drains, and when it is out",
            crew::name(worker)
        )))
    }
}

/// Whether the kernel passes on what waits for a listener that closes, without a program that says to whom.
fn kernel_migrates() -> bool {
    std::fs::read_to_string(MIGRATE).is_ok_and(|set| set.trim() == "1")
}
