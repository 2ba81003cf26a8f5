//! The kernel program that decides whose a connection to the apiserver's port is. What it decides: `usher_ebpf::takeover`.
#![no_std]
#![no_main]

use aya_ebpf::bindings::sk_action::SK_PASS;
use aya_ebpf::macros::{map, sk_lookup};
use aya_ebpf::maps::{PerCpuArray, SockMap};
use aya_ebpf::programs::SkLookupContext;
use usher_ebpf::takeover::{LISTENERS_MAX, Path};

#[map]
static LISTENERS: SockMap = SockMap::with_max_entries(LISTENERS_MAX, 0);
#[map]
static TALLY: PerCpuArray<u64> = PerCpuArray::with_max_entries(Path::ALL.len() as u32, 0);

#[sk_lookup]
fn takeover(context: SkLookupContext) -> u32 {
    let path = match LISTENERS.redirect_sk_lookup(&context, 0, 0) {
        Ok(()) => Path::Taken,
        Err(_) => Path::Open,
    };
    if let Some(count) = TALLY.get_ptr_mut(path as u32) {
        // SAFETY: the pointer is into this CPU's own copy, and a program is not interrupted by itself.
        unsafe { *count += 1 };
    }
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
