//! Buffers to write into and to send, used again once they are sent: fresh memory would be cleared for every one of
//! them, and is cold.

use std::cell::RefCell;

use bytes::Bytes;

/// Buffers kept, of all connections of a thread together: as many as a turn fills on a busy worker.
const SPARES_MAX: usize = 16;
/// Longer ones are not kept: all together 1.25 MiB at the most.
const LENGTH_MAX: usize = 80 * 1024;
/// Lengths are multiples of that, so that one fits the next time, too.
const STEP: usize = 4096;

thread_local! {
    /// The one used last is the last.
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer in use.
struct Spare {
    buffer: Vec<u8>,
    used: usize,
}

/// `count` bytes that `fill` writes, all of them: what they are before may have been sent to somebody else.
pub(super) fn filled(count: usize, fill: impl FnOnce(&mut [u8])) -> Bytes {
    let mut buffer = take(count).unwrap_or_else(|| vec![0; count.next_multiple_of(STEP)]);
    fill(&mut buffer[..count]);
    Bytes::from_owner(Spare { buffer, used: count })
}

/// One that is long enough, but not so long that it would be wasted on a client that does not take it.
fn take(count: usize) -> Option<Vec<u8>> {
    SPARES.with_borrow_mut(|spares| {
        let fits = |spare: &Vec<u8>| (count..=2 * count + STEP).contains(&spare.len());
        let place = spares.iter().rposition(fits)?;
        Some(spares.remove(place))
    })
}

impl AsRef<[u8]> for Spare {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.used]
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if buffer.len() > LENGTH_MAX {
            return;
        }
        // At the thread's end there is nowhere to put it.
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SPARES_MAX {
                spares.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_by_what_it_fits() {
        let first = filled(5_000, |bytes| bytes.fill(1));
        let place = first.as_ptr();
        let other = filled(5_000, |bytes| bytes.fill(2));
        assert!(first.iter().all(|byte| *byte == 1) && other.iter().all(|byte| *byte == 2));
        drop(first);
        assert_ne!(filled(20_000, |bytes| bytes.fill(3)).as_ptr(), place, "too short");
        assert_ne!(filled(1_000, |bytes| bytes.fill(4)).as_ptr(), place, "a waste");
        let again = filled(6_000, |bytes| bytes.fill(5));
        assert_eq!((again.as_ptr(), again.len()), (place, 6_000));
        assert!(again.iter().all(|byte| *byte == 5));
    }

    #[test]
    fn few_are_kept_and_none_that_is_long() {
        let many: Vec<_> = (0..2 * SPARES_MAX).map(|_| filled(STEP, |_| ())).collect();
        drop((many, filled(LENGTH_MAX + 1, |_| ())));
        let lengths = SPARES.with_borrow(|spares| spares.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(lengths, [STEP; SPARES_MAX]);
    }
}
