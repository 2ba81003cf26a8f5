//! The kernel program that brings each new connection to a worker. What it decides: `usher_ebpf::steer`.
#![no_std]
#![no_main]

use aya_ebpf::bindings::sk_action::SK_PASS;
use aya_ebpf::macros::{map, sk_reuseport};
use aya_ebpf::maps::{Array, LruHashMap, PerCpuArray, ReusePortSockArray};
use aya_ebpf::programs::SkReuseportContext;
use usher_ebpf::steer::{CLIENTS_MAX, Load, Path, Rules, SLOTS};

/// `BPF_F_MMAPABLE`: workers write their loads without a system call (Linux 5.5).
const MAPPED: u32 = 1 << 10;

#[map]
static SOCKETS: ReusePortSockArray = ReusePortSockArray::with_max_entries(SLOTS, 0);
#[map]
static LOADS: Array<Load> = Array::with_max_entries(SLOTS, MAPPED);
#[map]
static RULES: Array<Rules> = Array::with_max_entries(1, 0);
#[map]
static CLIENTS: LruHashMap<[u8; 16], u64> = LruHashMap::with_max_entries(CLIENTS_MAX, 0);
#[map]
static TALLY: PerCpuArray<u64> = PerCpuArray::with_max_entries(Path::ALL.len() as u32, 0);

#[sk_reuseport(migrate)]
fn steer(context: SkReuseportContext) -> u32 {
    let slots = RULES.get(0).map_or(0, |rules| rules.slots);
    let serving = LOADS.get(0).is_some_and(|load| load.state == 1);
    let chosen = if slots > 0 && serving { context.hash() % slots } else { 0 };
    let path = match SOCKETS.select_reuseport(&context, chosen) {
        Ok(()) => Path::Affinity,
        Err(_) => Path::Kernel,
    };
    if let Some(count) = TALLY.get_ptr_mut(path as u32) {
        // SAFETY: the pointer is into this CPU's own copy, and a program is not interrupted by itself.
        unsafe { *count += 1 };
    }
    let _ = CLIENTS.get_ptr(&[0; 16]);
    SK_PASS
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel asks for it before it lends its helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
