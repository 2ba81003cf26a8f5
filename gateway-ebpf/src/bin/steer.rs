//! The kernel program that brings each new connection to a worker. What it decides: [`usher_ebpf::steer::choose`].
//!
//! Here: who the client is, from the packet or, for a connection that migrates, from its socket; the maps behind
//! [`View`]; the selection; the tally.
#![no_std]
#![no_main]

use core::mem::{MaybeUninit, offset_of};
use core::ptr;

use aya_ebpf::bindings::bpf_hdr_start_off::BPF_HDR_START_NET;
use aya_ebpf::bindings::bpf_sock;
use aya_ebpf::bindings::sk_action::{SK_DROP, SK_PASS};
use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_sk_select_reuseport, bpf_skb_load_bytes_relative};
use aya_ebpf::macros::{map, sk_reuseport};
use aya_ebpf::maps::{Array, LruHashMap, PerCpuArray, SockMap};
use aya_ebpf::programs::SkReuseportContext;
use aya_ebpf::{EbpfContext, programs::sock::SockContext};
use aya_log_ebpf::debug;
use usher_ebpf::steer::{
    self, ARRIVALS_ALL, Arrival, Arrivals, CLIENTS_MAX, Client, Kind, Load, NOBODY, Path, Record, Rules,
    SLOTS, View, choose,
};

/// `BPF_F_MMAPABLE`: workers write their loads without a system call (Linux 5.5).
const MAPPED: u32 = 1 << 10;

#[map]
static SOCKETS: SockMap = SockMap::with_max_entries(SLOTS, 0);
#[map]
static LOADS: Array<Load> = Array::with_max_entries(SLOTS, MAPPED);
#[map]
static RULES: Array<Rules> = Array::with_max_entries(1, 0);
#[map]
static CLIENTS: LruHashMap<Client, Record> = LruHashMap::with_max_entries(CLIENTS_MAX, 0);
#[map]
static ARRIVALS: Array<Arrivals> = Array::with_max_entries(ARRIVALS_ALL + 1, 0);
#[map]
static TALLY: PerCpuArray<u64> = PerCpuArray::with_max_entries(Path::ALL.len() as u32, 0);

#[sk_reuseport(migrate)]
fn steer(context: SkReuseportContext) -> u32 {
    let Some(arrival) = arrival(&context) else {
        tally(Path::Kernel);
        return SK_PASS;
    };
    let choice = choose(&mut Maps, &arrival);
    let path = match choice.path {
        Path::Refused => Path::Refused,
        path if select(&context, choice.slot) => path,
        _ if select(&context, choice.second) => Path::Fallback,
        _ => Path::Kernel,
    };
    tally(path);
    debug!(
        &context,
        "slot {} second {} path {} hash {:x}", choice.slot, choice.second, path as u32, arrival.hash
    );
    if path == Path::Refused { SK_DROP } else { SK_PASS }
}

/// What the kernel asks; nothing if the packet is not what it should be.
#[inline(always)]
fn arrival(context: &SkReuseportContext) -> Option<Arrival> {
    let (client, kind) = match context.migrating_sk() {
        Some(socket) => (peer(&socket)?, Kind::Migrating),
        None => (source(context)?, if is_syn(context)? { Kind::New } else { Kind::Later }),
    };
    // SAFETY: takes nothing, touches nothing.
    let now = unsafe { bpf_ktime_get_ns() };
    Some(Arrival { client, hash: context.hash(), kind, now })
}

/// The source address in the packet's IP header.
#[inline(always)]
fn source(context: &SkReuseportContext) -> Option<Client> {
    const IPV4: u32 = 0x0800_u16.to_be() as u32;
    const IPV6: u32 = 0x86dd_u16.to_be() as u32;
    match context.eth_protocol() {
        IPV4 => Some(Client::from_v4(read(context, 12)?)),
        IPV6 => Some(Client(read(context, 8)?)),
        _ => None,
    }
}

/// Reads `N` bytes from `offset` on in the network header.
#[inline(always)]
fn read<const N: usize>(context: &SkReuseportContext, offset: u32) -> Option<[u8; N]> {
    let mut bytes = MaybeUninit::<[u8; N]>::uninit();
    // SAFETY: the helper writes all N bytes, or fails; the verifier checks the room.
    let result = unsafe {
        bpf_skb_load_bytes_relative(
            context.as_ptr(),
            offset,
            bytes.as_mut_ptr().cast(),
            N as u32,
            BPF_HDR_START_NET,
        )
    };
    // SAFETY: written, as the result tells.
    (result == 0).then(|| unsafe { bytes.assume_init() })
}

/// Whether the segment begins a connection: SYN without ACK.
#[inline(always)]
fn is_syn(context: &SkReuseportContext) -> Option<bool> {
    const FLAGS: usize = 13;
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let start = context.data();
    if start + FLAGS + 1 > context.data_end() {
        return None;
    }
    // SAFETY: within the packet, as just compared; the data begins with the TCP header.
    let flags = unsafe { *((start + FLAGS) as *const u8) };
    Some(flags & (SYN | ACK) == SYN)
}

/// The other end of a connection that has not been accepted yet.
#[inline(always)]
fn peer(socket: &SockContext) -> Option<Client> {
    const AF_INET: u32 = 2;
    const AF_INET6: u32 = 10;
    match word(socket, offset_of!(bpf_sock, family)) {
        AF_INET => Some(Client::from_v4(word(socket, offset_of!(bpf_sock, dst_ip4)).to_ne_bytes())),
        AF_INET6 => {
            let at = offset_of!(bpf_sock, dst_ip6);
            let mut bytes = [0; 16];
            for (part, piece) in bytes.chunks_exact_mut(4).enumerate() {
                piece.copy_from_slice(&word(socket, at + 4 * part).to_ne_bytes());
            }
            Some(Client(bytes))
        }
        _ => None,
    }
}

/// A word of the kernel's view of a socket. One at a time, as it is: the verifier translates each to the real field.
#[inline(always)]
fn word(socket: &SockContext, offset: usize) -> u32 {
    // SAFETY: within `bpf_sock`, as `offset_of` says; the verifier checks that the field may be read.
    unsafe { ptr::read_volatile(socket.sock.cast::<u8>().add(offset).cast()) }
}

/// Whether the connection is now that slot's.
#[inline(always)]
fn select(context: &SkReuseportContext, slot: u32) -> bool {
    if slot == NOBODY {
        return false;
    }
    let mut key = slot;
    // SAFETY: a context, a map and a key as the helper wants them, which the verifier checks. aya has this call for
    // reuseport socket arrays only.
    let result = unsafe {
        bpf_sk_select_reuseport(
            context.as_ptr().cast(),
            ptr::from_ref(&SOCKETS).cast_mut().cast(),
            ptr::from_mut(&mut key).cast(),
            0,
        )
    };
    result == 0
}

/// Counts a path on this processor.
#[inline(always)]
fn tally(path: Path) {
    if let Some(count) = TALLY.get_ptr_mut(path as u32) {
        // SAFETY: the pointer is into this CPU's own copy, and a program is not interrupted by itself.
        unsafe { *count += 1 };
    }
}

/// The maps, as the choice sees them. Others write them at the same time: every word is read and written whole.
struct Maps;

impl View for Maps {
    #[inline(always)]
    fn rules(&self) -> Rules {
        // SAFETY: the kernel's memory, as large as its type; plain integers.
        RULES.get_ptr(0).map_or_else(Rules::default, |rules| unsafe { ptr::read_volatile(rules) })
    }

    #[inline(always)]
    fn load(&self, slot: u32) -> Load {
        let Some(load) = LOADS.get_ptr(slot) else { return Load::default() };
        // SAFETY: as above, word by word, without the rest of the line.
        unsafe {
            Load {
                state: ptr::read_volatile(&raw const (*load).state),
                connections: ptr::read_volatile(&raw const (*load).connections),
                busy: ptr::read_volatile(&raw const (*load).busy),
                reserved: [0; 13],
            }
        }
    }

    #[inline(always)]
    fn arrivals(&self, slot: u32) -> Arrivals {
        // SAFETY: as in `rules`.
        ARRIVALS
            .get_ptr(slot)
            .map_or_else(Arrivals::default, |arrivals| unsafe { ptr::read_volatile(arrivals) })
    }

    #[inline(always)]
    fn set_arrivals(&mut self, slot: u32, arrivals: Arrivals) {
        if let Some(place) = ARRIVALS.get_ptr_mut(slot) {
            // SAFETY: as in `rules`.
            unsafe { ptr::write_volatile(place, arrivals) };
        }
    }

    #[inline(always)]
    fn record(&self, client: &Client) -> Record {
        // SAFETY: as in `rules`. An element that gives way meanwhile is not given to the system before the program ends.
        CLIENTS.get_ptr(client).map_or_else(Record::default, |record| unsafe { ptr::read(record) })
    }

    #[inline(always)]
    fn set_record(&mut self, client: &Client, record: &Record) {
        match CLIENTS.get_ptr_mut(client) {
            // SAFETY: as above.
            Some(place) => unsafe { ptr::write(place, *record) },
            // A full map makes room; if it cannot at this moment, the client is new once more next time.
            None => _ = CLIENTS.insert(client, record, 0),
        }
    }

    #[inline(always)]
    fn next(&self, gone: u32, other: u32) -> u32 {
        next(gone, other)
    }
}

/// Global, so that the verifier looks at its loop once (Linux 5.6).
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn next(gone: u32, other: u32) -> u32 {
    steer::next(&Maps, gone, other)
}

mod program;
