//! The memory ceiling: how much there is ([`limit`]), how much is used ([`meter`]), and what is given up as it runs
//! out ([`pressure`]); and the allocator that it comes from ([`Allocator`]).
//!
//! A thread of its own reads the meter, moves the ladder, says so in the log and in the metrics, and then tells the
//! workers, which act. They read no files and take no clock for it, and the control thread, which may wait
//! for an apiserver, is not waited for.
//!
//! The ceiling is ours, not the kernel's: what is allocated between two readings may overshoot it. Who wants to be
//! safe from being killed gives usher a little less than the kernel gives it; so do the defaults.

mod allocator;
mod limit;
mod meter;
mod pressure;

pub use allocator::Allocator;
pub use limit::Limit;
pub use pressure::{Ladder, Rung};

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Between two readings. A link of 10 Gbit/s brings 125 MB meanwhile; budgets of their own bound what of it stays.
pub const READ_EVERY: Duration = Duration::from_millis(100);

/// What operators see of it.
#[derive(Debug, Default)]
pub struct Gauge {
    limit: u64,
    used: AtomicU64,
    rung: AtomicU8,
}

impl Gauge {
    /// Bytes; 0 is none.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes at the last reading.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether that much, or more, is given up.
    #[must_use]
    pub fn is_at(&self, rung: Rung) -> bool {
        self.rung.load(Ordering::Relaxed) >= rung as u8
    }
}

/// Watches over a limit for as long as the process lives. `tell`: tells the workers; false if one did not hear it.
///
/// # Errors
/// No thread.
pub fn start(limit: Option<Limit>, tell: impl Fn(Rung) -> bool + Send + 'static) -> io::Result<Arc<Gauge>> {
    let Some(limit) = limit else { return Ok(Arc::default()) };
    let gauge = Arc::new(Gauge { limit: limit.bytes, ..Gauge::default() });
    let shown = Arc::clone(&gauge);
    std::thread::Builder::new().name("usher-memory".into()).spawn(move || watch(&limit, &shown, &tell))?;
    Ok(gauge)
}

fn watch(limit: &Limit, gauge: &Gauge, tell: &dyn Fn(Rung) -> bool) {
    let mut ladder = Ladder::new(limit.bytes);
    let (mut before, mut told) = (Rung::Calm, Rung::Calm);
    loop {
        let used = match limit.meter.read() {
            Ok(used) => used,
            Err(error) => {
                tracing::error!(limit = limit.bytes, %error, "memory cannot be measured: --memory-limit does not hold");
                return;
            }
        };
        let rung = ladder.read(used);
        gauge.used.store(used, Ordering::Relaxed);
        gauge.rung.store(rung as u8, Ordering::Relaxed);
        if rung != before {
            announce(before, rung, used, limit.bytes);
            before = rung;
        }
        // Told again and again while memory is tight: each time some more is given up.
        if (rung != Rung::Calm || told != Rung::Calm) && tell(rung) {
            told = rung;
        }
        std::thread::sleep(READ_EVERY);
    }
}

/// Before anything is done.
fn announce(before: Rung, rung: Rung, used: u64, limit: u64) {
    if rung > before {
        tracing::warn!(rung = rung.name(), used, limit, "memory is tight: {}", rung.sentence());
    } else {
        tracing::info!(rung = rung.name(), used, limit, "memory is less tight: {}", rung.sentence());
    }
}

/// Has this thread's allocator give what it does not use back to the kernel.
pub fn give_back() {
    // SAFETY: it frees only what nobody uses; it may be called at any time, by any thread, for its own heap.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
