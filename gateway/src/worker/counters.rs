//! What a worker counts: plain numbers, ever growing unless said otherwise. A snapshot copies them.

use std::cell::Cell;

use crate::tls::Reason;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A worker's numbers at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[doc = $doc])+ pub $name: u64,)+ }

        /// The same, being counted.
        #[derive(Debug, Default)]
        pub(super) struct Counting { $(pub(super) $name: Count,)+ }

        impl Counting {
            pub(super) fn copy(&self) -> Counters {
                Counters { $($name: self.$name.0.get(),)+ }
            }
        }

        impl Counters {
            /// With another worker's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }

            /// Every number another one, to see where each goes.
            #[cfg(test)]
            pub(crate) fn numbered() -> Self {
                let mut next = 0;
                let mut number = || {
                    next += 1;
                    next
                };
                Self { $($name: number(),)+ }
            }

            /// Every number with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections_accepted,
    /// Connections open now.
    connections_open,
    /// Times that accepting stopped because there were too many connections.
    connections_refused_full,
    /// Connections closed at once because memory is tight.
    connections_refused_memory,
    /// Idle connections closed because memory is tight.
    connections_shed,
    /// Times that accepting failed for want of descriptors or memory.
    accept_failed,
    /// TLS handshakes that had to wait for their turn.
    handshakes_delayed,
    /// TLS handshakes half done now.
    handshakes_half_done,
    /// TLS handshakes that took too long.
    handshakes_timed_out,
    /// TLS handshakes whose client hung up.
    handshakes_closed,
    /// TLS handshakes that began with something else.
    handshakes_not_tls,
    /// TLS handshakes with too many bytes.
    handshakes_too_long,
    /// TLS handshakes cut because too many were half done.
    handshakes_crowded,
    /// TLS handshakes without a version, cipher or key exchange in common.
    handshakes_incompatible,
    /// TLS handshakes with a certificate that cannot be used, or not its key.
    handshakes_certificate,
    /// TLS handshakes that the client refused.
    handshakes_refused,
    /// TLS handshakes that broke the protocol.
    handshakes_protocol,
    /// Connections closed because a header took too long.
    header_timeouts,
    /// Connections closed because nothing happened on them.
    idle_timeouts,
    /// Connections that ended with a protocol error: malformed or oversize headers, bad chunks.
    connections_broken,
    /// Requests received.
    requests,
    /// Requests refused as malformed: 400.
    refused_malformed,
    /// Requests whose attributes cannot be determined: 500.
    refused_without_attributes,
    /// Requests given up because their body came too slowly: 408.
    refused_slow_body,
    /// Requests refused for their `timeout`: 400.
    refused_timeout_value,
    /// Requests refused for what usher sees of their credentials: 401.
    refused_unauthorized,
    /// Requests turned away because their queue was full: 429.
    rejected_queue_full,
    /// Requests turned away because no seat was free at a level without queues: 429.
    rejected_concurrency_limit,
    /// Requests turned away because they had waited long enough: 429.
    rejected_time_out,
    /// Requests turned away because this worker holds too many that wait: 429.
    rejected_too_many_waiting,
    /// Requests turned away by the limits in force without flow control: 429.
    rejected_in_flight,
    /// Requests with a large body turned away because memory is tight: 429.
    rejected_memory,
    /// Requests whose client left while they waited.
    cancelled_waiting,
    /// Requests that executed (or bypassed flow control).
    executed,
    /// Requests whose time was up before the apiserver answered: 504.
    timed_out_executing,
    /// Answers cut off because the request's time was up, or the client did not read them.
    timed_out_answering,
    /// Answers stalled now: their clients do not take them.
    stalled_answers,
    /// Bytes held for them.
    stalled_bytes,
    /// Answers whose seats were given back because their clients did not take them.
    stalled_released,
    /// Answers cut off because too many were stalled.
    stalled_cut_answers,
    /// Answers cut off because too many bytes were held for stalled ones.
    stalled_cut_bytes,
    /// Answers cut off because memory had run out.
    stalled_cut_memory,
    /// Clients that left before their answer was complete.
    clients_gone,
    /// Requests that no apiserver could be given: 503.
    upstream_unavailable,
    /// Requests for which no connection could be opened for want of descriptors, ports or memory: 503.
    upstream_starved,
    /// Requests whose apiserver broke the connection: 502.
    upstream_broken,
    /// Answers that an apiserver did not complete.
    upstream_broken_answering,
    /// Requests that no apiserver answered in time: 504.
    upstream_timed_out,
    /// `X-Remote-*` lines dropped that strangers had sent.
    forged_identity_lines,
    /// Watches open now.
    watches_open,
    /// Watches that gave their seats back because they said that they are initialised.
    watches_initialised_by_bookmark,
    /// Watches that gave their seats back because they fell silent.
    watches_initialised_by_silence,
    /// Watches that gave their seats back because they took too long.
    watches_initialised_by_bound,
    /// Connections switched to another protocol.
    upgrades,
    /// Connections open now that were switched.
    tunnels_open,
    /// Panics that cost one request.
    panics_requests,
    /// Panics that cost one connection.
    panics_connections,
}

impl Counters {
    /// What is left of them when their worker has ended: it has nothing open any more.
    #[must_use]
    pub fn of_the_dead(self) -> Self {
        Self {
            connections_open: 0,
            handshakes_half_done: 0,
            stalled_answers: 0,
            stalled_bytes: 0,
            watches_open: 0,
            tunnels_open: 0,
            ..self
        }
    }
}

impl Counting {
    /// A TLS handshake came to nothing.
    pub(super) fn handshake_failed(&self, reason: Reason) {
        let count = match reason {
            Reason::Closed => &self.handshakes_closed,
            Reason::NotTls => &self.handshakes_not_tls,
            Reason::TooLong => &self.handshakes_too_long,
            Reason::Crowded => &self.handshakes_crowded,
            Reason::Incompatible => &self.handshakes_incompatible,
            Reason::Certificate => &self.handshakes_certificate,
            Reason::Refused => &self.handshakes_refused,
            Reason::Protocol => &self.handshakes_protocol,
        };
        count.add();
    }
}

/// One number.
#[derive(Debug, Default)]
pub(super) struct Count(Cell<u64>);

impl Count {
    /// One more.
    pub(super) fn add(&self) {
        self.add_many(1);
    }

    /// Several more.
    pub(super) fn add_many(&self, more: u64) {
        self.0.set(self.0.get().wrapping_add(more));
    }

    /// So many, for those that tell how many there are now.
    pub(super) fn set(&self, now: u64) {
        self.0.set(now);
    }

    /// One less, for those that tell how many there are now.
    pub(super) fn remove(&self) {
        self.0.set(self.0.get().saturating_sub(1));
    }

    /// How many.
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}
