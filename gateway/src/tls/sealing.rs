//! The way out of a TLS connection: bytes in the clear are collected for a turn, and sealed into what will be sent.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use super::handshake::Kernel;
use super::record::{ALERT, DATA, Fault, HANDSHAKE, Keys, PLAIN_MAX};
use super::stream::{CLOSE_NOTIFY, KEY_UPDATE, WARNING};
use crate::ring::{self, AtEnd};

/// One connection's way out. It lives to the end of the turn in which something was put last.
pub(super) struct Sealing {
    below: ring::Stream,
    keys: RefCell<Keys>,
    kernel: RefCell<Kernel>,
    /// To be sealed at the end of the turn; at most one record.
    plain: RefCell<Vec<u8>>,
    /// It will be called at the end of the turn.
    called: Cell<bool>,
    /// `close_notify` was sent.
    closed: Cell<bool>,
    failed: Cell<Option<Fault>>,
}

/// Buffers that are kept for the next turn's bytes in the clear, of all connections of a worker together: a buffer that
/// has grown once need not grow again. At most half a MiB.
const SPARES_MAX: usize = 16;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

// === impl Sealing ===

impl Sealing {
    pub(super) fn new(below: ring::Stream, keys: Keys, kernel: Kernel) -> Rc<Self> {
        Rc::new(Self {
            below,
            keys: RefCell::new(keys),
            kernel: RefCell::new(kernel),
            plain: RefCell::default(),
            called: Cell::new(false),
            closed: Cell::new(false),
            failed: Cell::new(None),
        })
    }

    pub(super) fn below(&self) -> &ring::Stream {
        &self.below
    }

    /// Whether it can still seal.
    pub(super) fn check(&self) -> io::Result<()> {
        self.failed.get().map_or(Ok(()), |fault| Err(fault.into()))
    }

    pub(super) fn unsent(&self) -> usize {
        self.below.unsent() + self.plain.borrow().len()
    }

    /// Collects bytes. Those that do not fit into the turn's record are sealed at once, from where they are.
    pub(super) fn put(self: &Rc<Self>, bytes: &[u8]) {
        let mut rest = bytes;
        if self.plain.borrow().len() + bytes.len() > PLAIN_MAX {
            self.seal_now();
            let full = bytes.len() - bytes.len() % PLAIN_MAX;
            self.seal(DATA, &bytes[..full]);
            rest = &bytes[full..];
        }
        if rest.is_empty() {
            return;
        }
        let mut plain = self.plain.borrow_mut();
        if plain.capacity() == 0 {
            *plain = SPARES.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        plain.extend_from_slice(rest);
        if !self.called.replace(true) {
            ring::at_end(Rc::clone(self) as Rc<dyn AtEnd>);
        }
    }

    /// Seals what was collected.
    pub(super) fn seal_now(&self) {
        let mut plain = self.plain.take(); // its memory goes: an idle connection holds none
        if plain.capacity() == 0 {
            return;
        }
        self.seal(DATA, &plain);
        plain.clear();
        SPARES.with_borrow_mut(|spares| {
            if spares.len() < SPARES_MAX {
                spares.push(plain);
            }
        });
    }

    /// A message of TLS itself, behind what was put before it.
    pub(super) fn put_control(&self, kind: u8, bytes: &[u8]) {
        self.seal_now();
        self.seal(kind, bytes);
    }

    /// `close_notify`, once.
    pub(super) fn put_end(&self) {
        if !self.closed.replace(true) {
            self.put_control(ALERT, &[WARNING, CLOSE_NOTIFY]);
        }
    }

    fn seal(&self, kind: u8, plain: &[u8]) {
        if plain.is_empty() || self.failed.get().is_some() {
            return;
        }
        if let Err(fault) = self.try_seal(kind, plain) {
            self.failed.set(Some(fault));
        }
    }

    fn try_seal(&self, kind: u8, plain: &[u8]) -> Result<(), Fault> {
        if !self.keys.borrow().last_for(plain.len().div_ceil(PLAIN_MAX)) {
            self.change_keys(0)?;
        }
        let mut keys = self.keys.borrow_mut();
        let mut sealed = Ok(());
        if kind == DATA {
            let length = keys.sealed_len_of_all(plain.len());
            self.below.put_with(length, |out| {
                sealed = keys.seal_all(plain, out).inspect_err(|_| out.fill(0)); // no leftovers of other connections
            });
        } else {
            let length = keys.sealed_len(plain.len());
            self.below.put_with(length, |out| sealed = keys.seal(kind, plain, out));
        }
        sealed
    }

    /// The peer asked for new keys.
    pub(super) fn update_keys(&self) -> Result<(), Fault> {
        self.seal_now();
        self.change_keys(0)
    }

    /// Says that other keys follow, and takes them (RFC 8446 §4.6.3).
    fn change_keys(&self, asks: u8) -> Result<(), Fault> {
        let mut kernel = self.kernel.borrow_mut();
        let next = match &mut *kernel {
            Kernel::Server(kernel) => kernel.update_tx_secret(),
            Kernel::Client(kernel) => kernel.update_tx_secret(),
        };
        let next = next.map_err(|_| Fault::Exhausted)?; // TLS 1.2 has no others
        let mut keys = self.keys.borrow_mut();
        let message = [KEY_UPDATE, 0, 0, 1, asks];
        let mut sealed = Ok(());
        self.below.put_with(keys.sealed_len(message.len()), |out| {
            sealed = keys.seal(HANDSHAKE, &message, out);
        });
        *keys = Keys::new(kernel.suite(), next).map_err(|_| Fault::Exhausted)?;
        sealed
    }

    /// The peer's next keys.
    pub(super) fn peer_keys(&self) -> Result<Keys, Fault> {
        let mut kernel = self.kernel.borrow_mut();
        let next = match &mut *kernel {
            Kernel::Server(kernel) => kernel.update_rx_secret(),
            Kernel::Client(kernel) => kernel.update_rx_secret(),
        };
        let next = next.map_err(|_| Fault::Unexpected)?;
        Keys::new(kernel.suite(), next).map_err(|_| Fault::Unexpected)
    }

    /// A server's ticket.
    pub(super) fn remember(&self, ticket: &[u8]) -> Result<(), Fault> {
        match &mut *self.kernel.borrow_mut() {
            Kernel::Client(kernel) => kernel.handle_new_session_ticket(ticket).map_err(|_| Fault::Malformed),
            Kernel::Server(_) => Err(Fault::Unexpected),
        }
    }
}

impl AtEnd for Sealing {
    fn at_end(&self) {
        self.called.set(false);
        self.seal_now();
    }
}

/// What tests do that nobody else may.
#[cfg(test)]
impl Sealing {
    /// Any record.
    pub(super) fn put_record(&self, kind: u8, bytes: &[u8]) {
        let mut keys = self.keys.borrow_mut();
        let length = keys.sealed_len(bytes.len());
        self.below.put_with(length, |out| keys.seal(kind, bytes, out).unwrap());
    }

    /// The keys are good for so many records.
    pub(super) fn expire_keys_after(&self, records: u64) {
        self.keys.borrow_mut().expire_after(records);
    }

    /// Takes other keys without saying so.
    pub(super) fn renew_silently(&self) {
        let Kernel::Client(kernel) = &mut *self.kernel.borrow_mut() else { panic!("a client") };
        let next = kernel.update_tx_secret().unwrap();
        *self.keys.borrow_mut() = Keys::new(kernel.negotiated_cipher_suite(), next).unwrap();
    }
}
