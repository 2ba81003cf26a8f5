//! Who has connected: asked of the kernel before a connection in a slot is handed out, because accepting many for one
//! asking tells no addresses, and `getpeername` knows no slots.

use std::cell::{Cell, UnsafeCell};
use std::net::SocketAddr;
use std::rc::Rc;

use io_uring::opcode;
use socket2::{SockAddr, SockAddrStorage};

use super::Uring;
use super::descriptor::{Descriptor, Slot};
use super::listener::Listening;
use super::queue;
use super::table::{Key, Kind, Place, Token};

/// An accepted connection whose peer is being asked for; the driver's until the kernel has answered.
pub(super) struct Naming {
    slot: Cell<Option<Slot>>,
    /// The kernel writes it.
    peer: UnsafeCell<SockAddrStorage>,
    listening: Rc<Listening>,
}

/// Asks who is at the other end; `listening` hears of it.
pub(super) fn ask(driver: &Uring, slot: Slot, listening: Rc<Listening>) {
    let fixed = slot.fixed();
    let len = listening.name_len();
    let peer = UnsafeCell::new(SockAddrStorage::zeroed());
    let naming = Rc::new(Naming { slot: Cell::new(Some(slot)), peer, listening });
    let mut get = opcode::SetSockOpt::new(
        fixed,
        libc::SOL_SOCKET.cast_unsigned(),
        libc::SO_PEERNAME.cast_unsigned(),
        naming.peer.get().cast_const().cast(),
        len,
    )
    .build();
    queue::get_instead_of_set(&mut get);
    let key = driver.table.borrow_mut().insert(|_| Place::Naming(naming));
    // SAFETY: the kernel writes as many bytes as it was told, which `peer` has; `peer` stays in the table, where nobody
    // looks at it, until the operation has completed.
    unsafe { driver.push(get, Token::new(Kind::Naming, key)) };
}

/// The kernel has answered: how many bytes the address has, or why there is none.
pub(super) fn completed(driver: &Uring, key: Key, result: i32) {
    let Some(Place::Naming(naming)) = driver.table.borrow_mut().remove(key) else { return };
    let named = naming.slot.take().zip(naming.address(result));
    // Without a peer it was over before anybody looked.
    let named = named.map(|(slot, peer)| (Descriptor::Slot(slot), peer));
    naming.listening.named(driver, named.ok_or(libc::ECONNABORTED));
}

// === impl Naming ===

impl Naming {
    fn address(&self, len: i32) -> Option<SocketAddr> {
        let len = libc::socklen_t::try_from(len).ok().filter(|len| *len > 0)?;
        // SAFETY: the operation has completed, so nobody writes any more; all bytes were there before.
        let peer = unsafe { self.peer.get().read() };
        // SAFETY: the kernel has written an address of that length.
        unsafe { SockAddr::new(peer, len) }.as_socket()
    }
}
