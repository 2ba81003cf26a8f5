//! When a watch is initialised, and where one of its events ends: seen from outside.
//!
//! A watch holds seats only while it begins (apf-behaviour 1.26). A client that asks for the initial events gets
//! a bookmark annotated `k8s.io/initial-events-end` after them: that is the end. Otherwise the first quiet
//! moment after the head of the answer is taken for it. In both cases a bound ends it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::Nanos;

use super::Worker;
use super::admission::Seat;
use crate::observe::hdr::{Measured, Outcome};
use crate::ring;

/// The annotation of the bookmark; the same bytes in JSON and protobuf.
const MARK: &[u8] = b"k8s.io/initial-events-end";

/// A watch that begins. Shared by its answer and its timer.
#[derive(Debug)]
pub(super) struct Beginning {
    seat: RefCell<Option<Box<Seat>>>,
    /// When it was last heard of.
    heard: Cell<Nanos>,
    /// Whether it will say when it is initialised.
    says: bool,
    /// How much of [`MARK`] the last bytes heard are the beginning of.
    matched: Cell<usize>,
}

/// Tells where an event ends.
#[derive(Debug)]
pub(super) enum Framing {
    /// JSON: a line each. Holds whether one has begun.
    Lines { begun: bool },
    /// Protobuf: four bytes of length, then so many. Holds what is missing of each.
    Lengths { header: [u8; 4], header_got: usize, body_missing: usize },
    /// Anything else (an error, a table rendered by somebody): no events to cut.
    Whole,
}

// === impl Beginning ===

impl Beginning {
    /// A watch has been seated. It is timed from the head of its answer on: see [`Beginning::answered`].
    pub(super) fn new(info: &RequestInfo<'_>, seat: Option<Box<Seat>>) -> Rc<Self> {
        let says = info.query().first("sendInitialEvents").is_some_and(|value| *value == *b"true");
        Rc::new(Self { seat: RefCell::new(seat), heard: Cell::new(ring::now()), says, matched: Cell::new(0) })
    }

    /// The bound runs from the beginning, whether or not there is an answer.
    pub(super) fn bound(self: &Rc<Self>, worker: &Rc<Worker>) {
        if self.is_over() {
            return;
        }
        let (beginning, worker) = (Rc::downgrade(self), Rc::clone(worker));
        let until = ring::now() + nanos(worker.settings.watch_initialised_max);
        ring::spawn(async move {
            ring::sleep_until(until).await;
            if beginning.upgrade().is_some_and(|beginning| beginning.end()) {
                worker.counters.watches_initialised_by_bound.add();
            }
        });
    }

    /// The head of the answer is there: from now on silence ends it, unless it is going to say so itself.
    pub(super) fn answered(self: &Rc<Self>, worker: &Rc<Worker>) {
        self.heard.set(ring::now());
        if self.says || self.is_over() {
            return;
        }
        let (beginning, worker) = (Rc::downgrade(self), Rc::clone(worker));
        let quiet = nanos(worker.settings.watch_quiet);
        ring::spawn(async move {
            loop {
                let Some(watched) = beginning.upgrade() else { return };
                let until = watched.heard.get() + quiet;
                if until <= ring::now() {
                    if watched.end() {
                        worker.counters.watches_initialised_by_silence.add();
                    }
                    return;
                }
                drop(watched);
                ring::sleep_until(until).await;
            }
        });
    }

    /// Part of the answer came.
    pub(super) fn hear(&self, data: &Bytes, worker: &Worker) {
        self.heard.set(ring::now());
        if self.says && !self.is_over() && self.is_marked(data) && self.end() {
            worker.counters.watches_initialised_by_bookmark.add();
        }
    }

    /// Gives the seats back; `false` if they were already.
    pub(super) fn end(&self) -> bool {
        let mut seat = self.seat.take();
        if let Some(seat) = &mut seat {
            seat.measured().ends(Outcome::Executed);
        }
        seat.is_some()
    }

    /// Tells what is measured of it, while it holds its seats.
    pub(super) fn measured(&self, tell: fn(&mut Measured)) {
        if let Some(seat) = self.seat.borrow_mut().as_mut() {
            tell(seat.measured());
        }
    }

    fn is_over(&self) -> bool {
        self.seat.borrow().is_none()
    }

    /// Whether the mark ends in `data`; it may have begun in earlier data.
    fn is_marked(&self, data: &[u8]) -> bool {
        let mut matched = self.matched.get();
        for &byte in data {
            // The first byte of the mark occurs only there in "k8s.io/initial-events-end", so that a mismatch
            // can only begin anew at this byte.
            matched = match byte {
                _ if byte == MARK[matched] => matched + 1,
                _ if byte == MARK[0] => 1,
                _ => 0,
            };
            if matched == MARK.len() {
                return true;
            }
        }
        self.matched.set(matched);
        false
    }
}

// === impl Framing ===

impl Framing {
    /// By the answer's content type.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("application/vnd.kubernetes.protobuf") {
            Self::Lengths { header: [0; 4], header_got: 0, body_missing: 0 }
        } else if kind.starts_with("application/json") {
            Self::Lines { begun: false }
        } else {
            Self::Whole
        }
    }

    /// Follows the bytes. Returns where in `data` its last complete event ends, if one does.
    pub(super) fn pass(&mut self, data: &[u8]) -> Option<usize> {
        match self {
            Self::Whole => Some(data.len()),
            Self::Lines { begun } => {
                *begun = data.last().map_or(*begun, |last| *last != b'\n');
                data.iter().rposition(|byte| *byte == b'\n').map(|last| last + 1)
            }
            Self::Lengths { header, header_got, body_missing } => {
                let (mut at, mut border) = (0, None);
                while at < data.len() {
                    if *body_missing == 0 {
                        header[*header_got] = data[at];
                        *header_got = (*header_got + 1) % header.len();
                        at += 1;
                        if *header_got == 0 {
                            *body_missing =
                                usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
                        }
                    } else {
                        let body = (*body_missing).min(data.len() - at);
                        *body_missing -= body;
                        at += body;
                    }
                    if *body_missing == 0 && *header_got == 0 {
                        border = Some(at);
                    }
                }
                border
            }
        }
    }

    /// Whether no event is cut in two here.
    pub(super) fn is_between_events(&self) -> bool {
        match self {
            Self::Whole => true,
            Self::Lines { begun } => !begun,
            Self::Lengths { header_got, body_missing, .. } => *header_got == 0 && *body_missing == 0,
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
