//! The clock: read once a turn, at most.
//!
//! A turn is one round of the ring over its ready tasks. All that happens in it happens at one instant: the
//! core sees few different times, and reading the time costs nothing per request.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use usher_flowcontrol::units::Nanos;

/// The time of this turn: nanoseconds since the Unix epoch as the wall clock told when the process first asked,
/// carried on by the monotonic clock. Never runs backwards.
#[must_use]
pub fn now() -> Nanos {
    CLOCK.with(|clock| match clock.turn_now.get() {
        Some(now) => now,
        None => {
            let now = clock.read();
            clock.turn_now.set(Some(now));
            now
        }
    })
}

/// The time of this very moment, on the scale of [`now`]. A reading of the clock each time: for what is shorter than
/// a turn.
#[must_use]
pub fn precise() -> Nanos {
    CLOCK.with(Clock::read)
}

/// The wall clock since the start of 1970, for what people and other programs read. It follows the clock when that
/// is set.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that asks the machine for the date")]
pub fn date() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Unix seconds of the wall clock as this turn first asked, for the validity of certificates and tokens. It follows
/// the clock when that is set. For workers: a thread without turns would be told its first reading for ever.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that asks the machine for the date")]
pub fn wall() -> i64 {
    let read = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    };
    CLOCK.with(|clock| {
        let wall = clock.turn_wall.get().unwrap_or_else(read);
        clock.turn_wall.set(Some(wall));
        wall
    })
}

/// A new turn begins: the next [`now`] reads the clock.
pub(super) fn turn() {
    CLOCK.with(|clock| {
        clock.turn_now.set(None);
        clock.turn_wall.set(None);
    });
}

/// The monotonic instant of a time told by [`now`]; an instant long past becomes the origin.
pub(super) fn instant(at: Nanos) -> Instant {
    CLOCK.with(|clock| {
        let since = at.0.saturating_sub(clock.origin_unix.0).max(0);
        let since = Duration::from_nanos(u64::try_from(since).unwrap_or(0)).min(FAR);
        clock.origin + since
    })
}

/// "For ever" for a timer: longer than any process lives, and far from overflowing an instant.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A monotonic instant as [`now`] would tell it.
pub(super) fn nanos(at: Instant) -> Nanos {
    CLOCK.with(|clock| {
        let since = at.saturating_duration_since(clock.origin);
        clock.origin_unix + Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX / 4))
    })
}

struct Clock {
    origin: Instant,
    origin_unix: Nanos,
    turn_now: Cell<Option<Nanos>>,
    turn_wall: Cell<Option<i64>>,
}

/// One scale for all threads, whenever each began: the wall clock may have been set meanwhile, and workers share levels.
static ORIGIN: OnceLock<(Instant, Nanos)> = OnceLock::new();

#[expect(clippy::disallowed_methods, reason = "the one place that asks the machine for the time")]
fn origin() -> (Instant, Nanos) {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Instant::now(), Nanos(i64::try_from(unix.as_nanos()).unwrap_or(0)))
}

thread_local! {
    static CLOCK: Clock = Clock::start();
}

impl Clock {
    fn start() -> Self {
        let (origin, origin_unix) = *ORIGIN.get_or_init(origin);
        Self { origin, origin_unix, turn_now: Cell::new(None), turn_wall: Cell::new(None) }
    }

    fn read(&self) -> Nanos {
        let since = i64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.origin_unix + Nanos(since)
    }
}
