//! The ladder: what is given up as memory runs out, in order. Pure; readings in, rungs out.
//!
//! It is climbed at once and descended a rung at a time, after a while of calm: what was refused comes back as soon
//! as it is let in, and a ladder without this hysteresis would go up and down with every wave.

/// How much is given up. Each rung includes those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// Nothing.
    #[default]
    Calm,
    /// Requests with large bodies are told to come back; new HTTP/2 connections get the smallest window.
    Bodies,
    /// And new connections are refused.
    Connections,
    /// And idle connections are closed, the longest idle first.
    Idle,
    /// And the answers that their clients take slowest are cut off.
    Readers,
}

/// Where the ladder stands.
#[derive(Debug)]
pub struct Ladder {
    limit: u64,
    rung: Rung,
    calm: u32,
}

impl Rung {
    /// All but the ground.
    pub const ALL: [Self; 4] = [Self::Bodies, Self::Connections, Self::Idle, Self::Readers];

    /// As the metric and the log call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Bodies => "bodies",
            Self::Connections => "connections",
            Self::Idle => "idle",
            Self::Readers => "readers",
        }
    }

    /// What it means, for the log.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Calm => "nothing is refused any more",
            Self::Bodies => "requests with large bodies are told to come back later",
            Self::Connections => "new connections are refused, too",
            Self::Idle => "idle connections are closed, too",
            Self::Readers => "the answers that their clients take slowest are cut off, too",
        }
    }

    /// From which percentage of the limit on it is climbed. The first leaves room for everything that is being done
    /// already; the last leaves what may be allocated between two readings.
    const fn percent(self) -> u64 {
        match self {
            Self::Calm => 0,
            Self::Bodies => 75,
            Self::Connections => 83,
            Self::Idle => 88,
            Self::Readers => 92,
        }
    }

    const fn below(self) -> Self {
        match self {
            Self::Calm | Self::Bodies => Self::Calm,
            Self::Connections => Self::Bodies,
            Self::Idle => Self::Connections,
            Self::Readers => Self::Idle,
        }
    }
}

/// A rung is left so many percent of the limit below where it was climbed.
const SLACK_PERCENT: u64 = 5;
/// And after so many readings in a row (a second, see [`super::READ_EVERY`]).
const CALM_READINGS: u32 = 10;

impl Ladder {
    /// For so many bytes; on the ground.
    #[must_use]
    pub const fn new(limit: u64) -> Self {
        Self { limit, rung: Rung::Calm, calm: 0 }
    }

    /// Takes a reading, in bytes.
    pub fn read(&mut self, used: u64) -> Rung {
        let reached = Rung::ALL.into_iter().rev().find(|rung| used >= self.at(rung.percent()));
        let reached = reached.unwrap_or_default();
        if reached > self.rung {
            (self.rung, self.calm) = (reached, 0);
        } else if self.rung == Rung::Calm || used >= self.at(self.rung.percent() - SLACK_PERCENT) {
            self.calm = 0;
        } else {
            self.calm += 1;
            if self.calm >= CALM_READINGS {
                (self.rung, self.calm) = (self.rung.below(), 0);
            }
        }
        self.rung
    }

    fn at(&self, percent: u64) -> u64 {
        self.limit / 100 * percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings in percent of the limit, and the rung after the last.
    fn check(readings: &[u64], rung: Rung) {
        let mut ladder = Ladder::new(1_000_000);
        let last = readings.iter().map(|percent| ladder.read(percent * 10_000)).last();
        assert_eq!(last, Some(rung), "{readings:?}");
    }

    #[test]
    fn it_is_climbed_at_once() {
        check(&[74], Rung::Calm);
        check(&[75], Rung::Bodies);
        check(&[10, 87], Rung::Connections);
        check(&[88], Rung::Idle);
        check(&[300], Rung::Readers);
    }

    #[test]
    fn it_is_descended_slowly_and_a_rung_at_a_time() {
        let calm = [10; CALM_READINGS as usize];
        check(&[&[95][..], &calm[1..]].concat(), Rung::Readers);
        check(&[&[95][..], &calm].concat(), Rung::Idle);
        check(&[&[95][..], &calm, &calm].concat(), Rung::Connections);
        check(&[&[95][..], &calm, &calm, &calm, &calm].concat(), Rung::Calm);
        check(&[&[95][..], &calm, &[90]].concat(), Rung::Idle);
    }

    #[test]
    fn a_little_less_is_no_calm() {
        let tight = [80; 100]; // below 83, not below 83 - 5
        check(&[&[84][..], &tight].concat(), Rung::Connections);
        let wave = [[70; 9].as_slice(), &[79]].concat().repeat(10);
        check(&[&[84][..], &wave].concat(), Rung::Connections);
    }
}
