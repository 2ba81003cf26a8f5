//! What the frames of a connection tell about its client.
//!
//! h2 serves HTTP/2 and has limits of its own; usher sees the frames pass and adds what it lacks: a
//! measure over all kinds of trouble together, and over time. Who holds which attack:
//!
//! | attack | held by |
//! |---|---|
//! | rapid reset, CVE-2023-44487 | h2: as many streams reset before usher looks at them as may be open (`max_pending_accept_reset_streams`); the score: [`Reset`](Glitch::Reset) |
//! | MadeYouReset, CVE-2025-8671 | h2: 1 024 resets of ours for errors (`max_local_error_reset_streams`), refused streams included; the score: [`ProvokedReset`](Glitch::ProvokedReset) |
//! | CONTINUATION flood, CVE-2024-27316 | h2: a quarter more frames than `--max-header-bytes` needs, 80 by default, then GOAWAY; nothing is kept of a list that is too large; the score: [`Continuation`](Glitch::Continuation); the time: an unfinished header is no request, the idle time-out ends it |
//! | header bombs by references, CVE-2016-6581 | h2: `--max-header-bytes` counts decoded bytes, four times as many end the connection; `--max-header-lines`; the score, before anything is decoded: [`HeaderLines`](Glitch::HeaderLines), and [`HeaderList`](Glitch::HeaderList) |
//! | SETTINGS never acknowledged: h2 applies its limit on header lists when they are | the score: [`Unsettled`](Glitch::Unsettled) |
//! | header-table bombs (SETTINGS_HEADER_TABLE_SIZE) | h2: both tables have 4 KiB, whatever the client wants |
//! | ping flood, CVE-2019-9512 | h2: no frame is read before the last answer is written; the score: [`Ping`](Glitch::Ping), [`UnaskedAck`](Glitch::UnaskedAck) |
//! | settings flood, CVE-2019-9515 | h2: as for pings; the score: [`Settings`](Glitch::Settings) |
//! | priorities, CVE-2019-9513 | h2 ignores them; the score: [`Priority`](Glitch::Priority) |
//! | empty frames, CVE-2019-9518 | h2: 100 of DATA for a connection's life; the score: [`EmptyData`](Glitch::EmptyData) |
//! | DATA in crumbs | h2: a budget for what lies unread; the score: [`TinyData`](Glitch::TinyData) |
//! | WINDOW_UPDATE floods, tiny increments, CVE-2019-9511 | the score: [`WindowUpdate`](Glitch::WindowUpdate) |
//! | zero windows, CVE-2019-9517 | the time: `--request-timeout` ends an answer that is not taken; back-pressure leaves the rest with the apiserver; the score: [`ShrunkWindow`](Glitch::ShrunkWindow) |
//! | answers that are asked for and not taken off the wire | the time: `--request-timeout` for a client that talks on, our PING for one that does not |
//! | more streams than allowed | h2 refuses them; the score: [`RefusedStream`](Glitch::RefusedStream) |
//! | requests that are answered and never end | h2: resets them with NO_ERROR; the score: [`Unfinished`](Glitch::Unfinished) |
//! | bodies that trickle | the time: `--request-body-timeout`; the score: [`SlowBody`](Glitch::SlowBody) |
//! | frames that nobody knows | h2 ignores them; the score: [`UselessFrame`](Glitch::UselessFrame) |

use super::Glitch;
use super::frames::{Frames, Head, Seen, kind};

/// Judges one connection, from what passes in both directions.
#[derive(Debug)]
pub(super) struct Judge {
    arriving: Frames,
    leaving: Frames,
    /// The last stream that the client opened.
    last_stream: u32,
    /// WINDOW_UPDATEs that it may send for what it was sent.
    updates_due: u32,
    /// PINGs that it has not answered.
    pings_asked: u32,
    /// Something was sent since its last PING: it may measure how long that takes.
    ping_is_due: bool,
    /// Its first SETTINGS has come.
    is_settled: bool,
    /// Bytes of headers that it may send before it acknowledges ours; `None`: it has.
    unsettled: Option<u32>,
    /// The window that its streams begin with.
    window: u32,
    /// The last stream whose header list was too large.
    answered: u32,
    /// A GOAWAY has left that names an error.
    is_dismissed: bool,
}

/// CONTINUATIONs that are not the last are full (16 KiB) if a client is honest.
const CONTINUATION_BYTES_MIN: u32 = 1024;
/// Smaller than any JSON or protobuf object with a name.
const DATA_BYTES_MIN: u32 = 16;
/// A client may answer so many bytes of DATA with a WINDOW_UPDATE: Go's does, for the stream and for the connection,
/// every 4 KiB. Four times as often is fine.
const BYTES_AN_UPDATE: u32 = 512;
/// Every stream and every DATA may have one for the stream and one for the connection, however small.
const UPDATES_A_FRAME: u32 = 2;
/// More updates than for 512 MiB nobody saves up.
const UPDATES_MAX: u32 = 1 << 20;
/// Before anything is sent, clients widen the connection's window.
const UPDATES_AT_START: u32 = 16;

/// A hundred requests with long tokens, from a client that starts them all before it has heard from us. h2 takes
/// lists of 16 MiB until then: a byte may stand for a line of 33, which takes 72 in memory.
const UNSETTLED_BYTES_MAX: u32 = 256 * 1024;

/// RFC 9113 §6.5.2.
const INITIAL_WINDOW_SIZE: u16 = 4;
const INITIAL_WINDOW_DEFAULT: u32 = 65_535;

/// The first and the last of the statuses that have an index of their own (RFC 7541, appendix A).
const STATUS_200: u8 = 0x88;
const STATUS_500: u8 = 0x8e;

/// Error codes (RFC 9113 §7).
mod code {
    pub(super) const NO_ERROR: u32 = 0;
    pub(super) const PROTOCOL_ERROR: u32 = 1;
    pub(super) const INTERNAL_ERROR: u32 = 2;
    pub(super) const REFUSED_STREAM: u32 = 7;
    pub(super) const CANCEL: u32 = 8;
    pub(super) const ENHANCE_YOUR_CALM: u32 = 11;
}

impl Judge {
    /// Of a client whose requests may have so many header lines.
    pub(super) fn new(header_lines: usize) -> Self {
        Self {
            arriving: Frames::of_client(header_lines),
            leaving: Frames::of_server(),
            last_stream: 0,
            updates_due: UPDATES_AT_START,
            pings_asked: 0,
            ping_is_due: true,
            is_settled: false,
            unsettled: Some(UNSETTLED_BYTES_MAX),
            window: INITIAL_WINDOW_DEFAULT,
            answered: 0,
            is_dismissed: false,
        }
    }

    /// The next glitch in bytes that the client has sent, which are shortened by what has been looked at; `None`:
    /// they are used up.
    pub(super) fn arrive(&mut self, bytes: &mut &[u8]) -> Option<Glitch> {
        while let Some(seen) = self.arriving.next(bytes) {
            let glitch = match seen {
                Seen::Head(head) => self.head_arrives(head),
                Seen::Setting { identifier: INITIAL_WINDOW_SIZE, value } => self.window_arrives(value),
                Seen::ManyLines => Some(Glitch::HeaderLines),
                Seen::Setting { .. } | Seen::Code(..) | Seen::Alone(..) | Seen::Padding => None,
            };
            if glitch.is_some() {
                return glitch;
            }
        }
        None
    }

    /// The same for bytes that go to the client.
    pub(super) fn leave(&mut self, bytes: &mut &[u8]) -> Option<Glitch> {
        while let Some(seen) = self.leaving.next(bytes) {
            let glitch = match seen {
                Seen::Head(head) => {
                    self.head_leaves(head);
                    None
                }
                Seen::Code(head, code) => self.code_leaves(head, code),
                // Nobody but h2 answers with a status alone that is none of the usual ones: 431.
                Seen::Alone(_, STATUS_200..=STATUS_500)
                | Seen::Setting { .. }
                | Seen::ManyLines
                | Seen::Padding => None,
                Seen::Alone(head, _) => {
                    self.answered = head.stream;
                    Some(Glitch::HeaderList)
                }
            };
            if glitch.is_some() {
                return glitch;
            }
        }
        None
    }

    /// The last words to the client, if now is a moment to say them: GOAWAY with ENHANCE_YOUR_CALM.
    pub(super) fn farewell(&self) -> Option<[u8; 17]> {
        if self.is_dismissed || !self.leaving.is_between() {
            return None;
        }
        let mut frame = [0; 17];
        frame[2] = 8;
        frame[3] = kind::GOAWAY;
        frame[9..13].copy_from_slice(&self.last_stream.to_be_bytes());
        frame[13..].copy_from_slice(&code::ENHANCE_YOUR_CALM.to_be_bytes());
        Some(frame)
    }

    fn head_arrives(&mut self, head: Head) -> Option<Glitch> {
        match head.kind {
            kind::DATA if head.ends_stream() => None,
            kind::DATA => match head.length {
                0 => Some(Glitch::EmptyData),
                1..DATA_BYTES_MIN => Some(Glitch::TinyData),
                _ => None,
            },
            kind::HEADERS => {
                self.last_stream = self.last_stream.max(head.stream);
                self.allow_updates(UPDATES_A_FRAME);
                self.headers_arrive(head)
            }
            kind::CONTINUATION => {
                let is_crumb = !head.ends_headers() && head.length < CONTINUATION_BYTES_MIN;
                is_crumb.then_some(Glitch::Continuation).or_else(|| self.headers_arrive(head))
            }
            kind::RST_STREAM => Some(Glitch::Reset),
            kind::PRIORITY | kind::PRIORITY_UPDATE => Some(Glitch::Priority),
            kind::SETTINGS if head.is_ack() => {
                self.unsettled = None; // h2 knows whether it asked
                None
            }
            kind::SETTINGS => std::mem::replace(&mut self.is_settled, true).then_some(Glitch::Settings),
            kind::PING if head.is_ack() => {
                let unasked = self.pings_asked == 0;
                self.pings_asked = self.pings_asked.saturating_sub(1);
                unasked.then_some(Glitch::UnaskedAck)
            }
            kind::PING => (!std::mem::take(&mut self.ping_is_due)).then_some(Glitch::Ping),
            kind::WINDOW_UPDATE => {
                let undue = self.updates_due == 0;
                self.updates_due = self.updates_due.saturating_sub(1);
                undue.then_some(Glitch::WindowUpdate)
            }
            kind::PUSH_PROMISE => None, // h2 ends the connection
            _ => Some(Glitch::UselessFrame),
        }
    }

    fn headers_arrive(&mut self, head: Head) -> Option<Glitch> {
        let left = self.unsettled.as_mut()?;
        let Some(after) = left.checked_sub(head.length) else { return Some(Glitch::Unsettled) };
        *left = after;
        None
    }

    fn window_arrives(&mut self, window: u32) -> Option<Glitch> {
        let shrinks = window < std::mem::replace(&mut self.window, window);
        // Streams come after the first SETTINGS: until then nothing is held back.
        (shrinks && self.last_stream > 0).then_some(Glitch::ShrunkWindow)
    }

    fn head_leaves(&mut self, head: Head) {
        match head.kind {
            kind::DATA => {
                self.ping_is_due = true;
                self.allow_updates(UPDATES_A_FRAME + head.length / BYTES_AN_UPDATE);
            }
            kind::HEADERS => {
                self.ping_is_due = true;
            }
            kind::PING if !head.is_ack() => self.pings_asked = self.pings_asked.saturating_add(1),
            _ => {}
        }
    }

    fn code_leaves(&mut self, head: Head, code: u32) -> Option<Glitch> {
        if head.kind == kind::GOAWAY {
            self.is_dismissed = code != code::NO_ERROR;
            return match code {
                code::NO_ERROR => None,
                code::ENHANCE_YOUR_CALM => Some(Glitch::LibraryLimit),
                _ => Some(Glitch::ConnectionError),
            };
        }
        match code {
            code::NO_ERROR => Some(Glitch::Unfinished),
            // The answer ended without being complete: its time was up, or the apiserver broke it off.
            code::CANCEL | code::INTERNAL_ERROR => None,
            code::REFUSED_STREAM => Some(Glitch::RefusedStream),
            // Has been counted: h2 resets the stream after it.
            code::PROTOCOL_ERROR if head.stream == self.answered => None,
            _ => Some(Glitch::ProvokedReset),
        }
    }

    fn allow_updates(&mut self, updates: u32) {
        self.updates_due = self.updates_due.saturating_add(updates).min(UPDATES_MAX);
    }
}

#[cfg(test)]
mod tests;
