//! The kernel program that decides whose a connection to the apiserver's port is. What it decides: `usher_ebpf::takeover`.
#![no_std]
#![no_main]

use core::ffi::c_void;
use core::ptr::{addr_of, read_volatile};

use aya_ebpf::bindings::bpf_sk_lookup;
use aya_ebpf::bindings::sk_action::{SK_DROP, SK_PASS};
use aya_ebpf::helpers::{bpf_map_lookup_elem, bpf_sk_release};
use aya_ebpf::macros::{map, sk_lookup};
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, SockMap};
use aya_ebpf::programs::SkLookupContext;
use usher_ebpf::takeover::{
    Connection, LISTENERS_MAX, OWN_MAX, PLACES_MAX, Path, Place, Source, Switch, View, decide,
};

#[map]
static LISTENERS: SockMap = SockMap::with_max_entries(LISTENERS_MAX, 0);
#[map]
static PLACES: HashMap<Place, u32> = HashMap::with_max_entries(PLACES_MAX, 0);
#[map]
static OWN: HashMap<Source, u64> = HashMap::with_max_entries(OWN_MAX, NO_PREALLOCATION);
#[map]
static SWITCH: Array<Switch> = Array::with_max_entries(1, 0);
#[map]
static TALLY: PerCpuArray<u64> = PerCpuArray::with_max_entries(Path::ALL.len() as u32, 0);

/// `BPF_F_NO_PREALLOC`: memory for connections that there are, not for those that there may be.
const NO_PREALLOCATION: u32 = 1;
/// `AF_INET6`, `IPPROTO_TCP`.
const INET6: u32 = 10;
const TCP: u32 = 6;

#[sk_lookup]
fn takeover(context: SkLookupContext) -> u32 {
    let Some(connection) = connection(context.lookup) else { return SK_PASS };
    let Some(path) = decide(&Kernel(context), &connection) else { return SK_PASS };
    if let Some(count) = TALLY.get_ptr_mut(path as u32) {
        // SAFETY: the pointer is into this CPU's own copy, and a program is not interrupted by itself.
        unsafe { *count += 1 };
    }
    match path {
        Path::Dropped => SK_DROP,
        Path::Taken | Path::Own | Path::Open => SK_PASS,
    }
}

/// Where a TCP connection comes from and goes to.
///
/// Each field is read by itself, as wide as it is: the verifier wants that (`volatile`: no two reads become one). What is of
/// the other address family reads as 0.
#[inline(always)]
fn connection(of: *const bpf_sk_lookup) -> Option<Connection> {
    /// A field of the context.
    macro_rules! field {
        ($($path:tt)+) => {
            // SAFETY: the kernel hands the program a context that lives as long as the program runs.
            unsafe { read_volatile(addr_of!((*of).$($path)+)) }
        };
    }
    if field!(protocol) != TCP {
        return None;
    }
    let v6 = field!(family) == INET6;
    let from4 = field!(remote_ip4);
    let from6 = [field!(remote_ip6[0]), field!(remote_ip6[1]), field!(remote_ip6[2]), field!(remote_ip6[3])];
    let from_port = u32::from(u16::from_be(field!(remote_port)));
    let to4 = field!(local_ip4);
    let to6 = [field!(local_ip6[0]), field!(local_ip6[1]), field!(local_ip6[2]), field!(local_ip6[3])];
    let port = field!(local_port);
    Some(Connection {
        from: Source { address: address(v6, from4, from6), port: from_port },
        to: Place { address: address(v6, to4, to6), port },
        v6,
    })
}

/// IPv4 as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2). All words are in network order.
#[inline(always)]
fn address(v6: bool, of4: u32, of6: [u32; 4]) -> [u8; 16] {
    let mark = if v6 { 0 } else { 0xffff_u32.to_be() };
    let words = [of6[0], of6[1], of6[2] | mark, of6[3] | of4];
    let mut octets = [0; 16];
    let mut at = 0;
    while at < 4 {
        let [first, second, third, fourth] = words[at].to_ne_bytes();
        octets[4 * at] = first;
        octets[4 * at + 1] = second;
        octets[4 * at + 2] = third;
        octets[4 * at + 3] = fourth;
        at += 1;
    }
    octets
}

/// The maps, and the connection that is asked about.
struct Kernel(SkLookupContext);

impl View for Kernel {
    #[inline(always)]
    fn is_taken(&self, place: &Place) -> bool {
        PLACES.get_ptr(place).is_some()
    }

    #[inline(always)]
    fn is_own(&self, source: &Source) -> bool {
        OWN.get_ptr(source).is_some()
    }

    #[inline(always)]
    fn listens(&self, listener: u32) -> bool {
        let map = addr_of!(LISTENERS).cast_mut().cast::<c_void>();
        // SAFETY: a map of this program's and a key of its kind.
        let socket = unsafe { bpf_map_lookup_elem(map, addr_of!(listener).cast()) };
        if socket.is_null() {
            return false;
        }
        // SAFETY: looked up above, and released once.
        unsafe { bpf_sk_release(socket) };
        true
    }

    #[inline(always)]
    fn is_closed(&self) -> bool {
        SWITCH.get(0).is_some_and(|switch| switch.closed != 0)
    }

    #[inline(always)]
    fn give(&self, listener: u32) -> bool {
        LISTENERS.redirect_sk_lookup(&self.0, listener, 0).is_ok()
    }
}

mod program;
