//! The apiservers as operators see them.

use super::{Pool, Upstream};

/// One apiserver at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Its URL.
    pub server: String,
    /// Whether it answered the last question after its health. Requests go to one that was not asked yet, but nobody
    /// is told that it is well.
    pub healthy: bool,
    /// Unused HTTP/1.1 connections.
    pub http1_idle: usize,
    /// Times that it sent something over HTTP/1.1 that nobody had asked for.
    pub http1_unasked: u64,
    /// HTTP/2 connections.
    pub http2: usize,
}

impl Upstream {
    /// All of them.
    #[must_use]
    pub fn look(&self) -> Vec<Look> {
        self.servers.iter().map(|pool| pool.look()).collect()
    }
}

impl Pool {
    fn look(&self) -> Look {
        Look {
            server: self.server.to_string(),
            healthy: self.healthy.get() && self.answered.get(),
            http1_idle: self.idle.iter().map(|idle| idle.borrow().len()).sum(),
            http1_unasked: self.unasked.get(),
            http2: self.shared.iter().map(|shared| shared.borrow().len()).sum(),
        }
    }
}
