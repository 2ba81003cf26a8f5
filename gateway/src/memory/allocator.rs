//! The program's allocator: mimalloc, several times faster than the system's on the small short-lived blocks that
//! requests are made of.
//!
//! The `mimalloc` crate names an alignment with every block, and for most sizes mimalloc then takes a longer way: it
//! looks whether the next free block happens to be aligned, and else takes a larger one. Every block of mimalloc is
//! aligned to a word; who needs no more is served by the short way, everybody else by the crate.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;
use mimalloc::MiMalloc;

/// mimalloc.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// What any block is aligned to. mimalloc's own smallest block is a word.
const WORD: usize = size_of::<usize>();

// SAFETY: mimalloc keeps the contract of an allocator: a block is nobody else's until it is freed, has the size that
// was asked for, the alignment that was named or else that of a word, and keeps its bytes when it is resized. It never
// unwinds. Both ways are of the same allocator, so each may free or resize what the other gave.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= WORD {
            // SAFETY: may be called at any time; a size of 0 is allowed.
            return unsafe { mi::mi_malloc(layout.size()).cast() };
        }
        // SAFETY: the caller's promises are the crate's.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= WORD {
            // SAFETY: as in `alloc`.
            return unsafe { mi::mi_zalloc(layout.size()).cast() };
        }
        // SAFETY: the caller's promises are the crate's.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the crate's.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= WORD {
            // SAFETY: the caller's block is of this allocator, and is not used any more under its old address.
            return unsafe { mi::mi_realloc(block.cast(), size).cast() };
        }
        // SAFETY: the caller's promises are the crate's.
        unsafe { MiMalloc.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_size_are_aligned_and_keep_their_bytes() {
        for align in [1, 2, 4, 8, 16, 64, 4096] {
            for size in (1..200).chain([1023, 1024, 1025, 5000, 70_000]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: sizes are not 0; what is written and read lies within them; each block is freed once.
                unsafe {
                    let block = Allocator.alloc(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                    block.write_bytes(7, size);
                    let larger = Allocator.realloc(block, layout, size * 3);
                    assert!(larger.addr().is_multiple_of(align), "{layout:?}");
                    assert!((0..size).all(|at| larger.add(at).read() == 7), "{layout:?}");
                    Allocator.dealloc(larger, Layout::from_size_align(size * 3, align).unwrap());
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert!((0..size).all(|at| zeroed.add(at).read() == 0), "{layout:?}");
                    Allocator.dealloc(zeroed, layout);
                }
            }
        }
    }
}
