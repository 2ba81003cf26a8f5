//! Counts what is allocated: the program of this bench installs [`Counting`] as its allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::Failure;

/// The system's allocator, and a count for each thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the promises. Growing goes through
// `alloc`, as `GlobalAlloc` has it unless told otherwise, and so is counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends frees and allocates when its count is gone.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations of this thread so far.
pub(super) fn count() -> u64 {
    COUNT.get()
}

/// An error where nothing is counted: then no allocation would be seen, and none be reported.
pub(super) fn require() -> Result<(), Failure> {
    let before = count();
    drop(std::hint::black_box(Box::new(before)));
    if count() > before { Ok(()) } else { Err("allocations are not counted in this program".into()) }
}
