//! Which cores there are for workers, and how many workers that makes.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use core_affinity::CoreId;

/// The most workers that can be asked for: beyond 64 cores nothing was tried, neither the shared levels (their models,
/// simulations and measures end at 64) nor the kernel's spreading of connections.
pub const WORKERS_MAX: usize = 64;

/// `--workers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// One for each core that usher may use and does not leave to others.
    Auto,
    /// So many.
    Of(usize),
}

/// Part of `--exclude-cores`: `3`, or `2-5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(RangeInclusive<usize>);

/// Where workers go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The core of each worker; `None`: wherever the kernel likes.
    pub cores: Vec<Option<CoreId>>,
    /// More workers than cores: some share one.
    pub crowded: bool,
}

/// Every core that is there is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--exclude-cores leaves no core for workers: usher may use {count}, from {first} to {last} (its affinity, its \
     control group's cpuset); exclude fewer"
)]
pub struct NoCore {
    count: usize,
    first: usize,
    last: usize,
}

/// The core of each worker, of those that the process may use (`sched_getaffinity(2)`, which knows the control group's
/// cpuset). `Auto` makes no more workers than the control group's quota pays for.
///
/// # Errors
/// All are excluded.
pub fn place(count: Count, excluded: &[Cores], pin: bool) -> Result<Places, NoCore> {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    let paid_for = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    place_on(&allowed, paid_for, count, excluded, pin)
}

fn place_on(
    allowed: &[CoreId],
    paid_for: usize,
    count: Count,
    excluded: &[Cores],
    pin: bool,
) -> Result<Places, NoCore> {
    // The last one first: interrupts usually go to the first.
    let left: Vec<CoreId> = allowed
        .iter()
        .rev()
        .copied()
        .filter(|core| !excluded.iter().any(|cores| cores.0.contains(&core.id)))
        .collect();
    if left.is_empty() && !allowed.is_empty() {
        let ids = || allowed.iter().map(|core| core.id);
        let (first, last) = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
        return Err(NoCore { count: allowed.len(), first, last });
    }
    let there_are = left.len().max(1);
    let workers = match count {
        Count::Auto => there_are.min(paid_for).clamp(1, WORKERS_MAX),
        Count::Of(count) => count,
    };
    let core = |index: usize| left.get(index % there_are).copied().filter(|_| pin);
    Ok(Places { cores: (0..workers).map(core).collect(), crowded: workers > there_are })
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(count) if (1..=WORKERS_MAX).contains(&count) => Ok(Self::Of(count)),
            _ => Err(format!("wanted auto, or a number from 1 to {WORKERS_MAX}")),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Of(count) => count.fmt(formatter),
        }
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || "wanted cores by their numbers, like 0,2-3".to_owned();
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wanted());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (number(first)?, number(last)?);
        if first <= last { Ok(Self(first..=last)) } else { Err(wanted()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(text: &str) -> Vec<Cores> {
        text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect()
    }

    /// Cores 0 to `there_are`, exclusively; the ids of the workers' cores.
    fn placed(there_are: usize, paid_for: usize, count: &str, excluded: &str) -> (Vec<usize>, bool) {
        let allowed: Vec<CoreId> = (0..there_are).map(|id| CoreId { id }).collect();
        let places = place_on(&allowed, paid_for, count.parse().unwrap(), &cores(excluded), true).unwrap();
        (places.cores.into_iter().map(|core| core.unwrap().id).collect(), places.crowded)
    }

    #[test]
    fn one_for_each_core_the_last_first() {
        assert_eq!(placed(4, 4, "auto", ""), (vec![3, 2, 1, 0], false));
        assert_eq!(placed(4, 4, "auto", "3,0-1"), (vec![2], false));
        assert_eq!(placed(4, 2, "auto", "3"), (vec![2, 1], false), "a quota of two cores");
        assert_eq!(placed(4, 1, "3", "2"), (vec![3, 1, 0], false), "who names a number gets it");
        assert_eq!(placed(2, 2, "3", ""), (vec![1, 0, 1], true));
        assert_eq!(placed(100, 100, "auto", "").0.len(), WORKERS_MAX);
    }

    #[test]
    fn none_left_is_refused_by_the_flags_name() {
        let allowed = [CoreId { id: 2 }, CoreId { id: 5 }];
        let refused = place_on(&allowed, 2, Count::Auto, &cores("0-7"), true).unwrap_err().to_string();
        assert!(
            refused.starts_with("--exclude-cores leaves no core") && refused.contains("2 to 5"),
            "{refused}"
        );
    }

    #[test]
    fn where_nothing_is_known_or_wanted_nobody_is_pinned() {
        let places = place_on(&[], 4, Count::Auto, &cores("0-7"), true).unwrap();
        assert_eq!(places, Places { cores: vec![None], crowded: false });
        let places = place_on(&[CoreId { id: 0 }], 1, Count::Of(2), &[], false).unwrap();
        assert_eq!(places, Places { cores: vec![None, None], crowded: true });
    }

    #[test]
    fn what_is_written_is_read() {
        for good in ["auto", "1", "64"] {
            assert_eq!(good.parse::<Count>().unwrap().to_string(), good);
        }
        for bad in ["", "0", "65", "-1", "all", "1.5"] {
            assert!(bad.parse::<Count>().unwrap_err().contains("from 1 to 64"), "{bad}");
        }
        for bad in ["", "-", "1-", "-1", "3-2", "a", "1-2-3"] {
            assert!(bad.parse::<Cores>().unwrap_err().contains("0,2-3"), "{bad}");
        }
    }
}
