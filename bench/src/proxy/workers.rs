//! What a second worker is worth, on a machine whose cores generator and upstream need, too.
//!
//! Two ways. *Share*: usher has a fixed share of CPU for each worker (a control group's quota), generator and upstream may use
//! all the rest of the cores: the second worker brings a second share and takes nobody's place, and what goes through is simply
//! measured. *Whole cores*: one worker on its core, or two on both, among generator and upstream; there CPU for a request
//! is measured, and **computed** from it what two cores of their own would serve if no worker waits for the other.

use super::cells::{Size, Transport};
use super::closed::{self, CPU, RATE};
use super::contestant::Proxy;
use super::files::TOKEN;
use super::generator::Generator;
use super::share::Share;
use super::upstream::Upstream;
use super::{Bench, Failure, in_turn};
use crate::report::{Metric, Row};

/// Of a core for each worker: the rest, 1.4 of two cores, is more than generator and upstream need for what two such
/// shares serve. `share used %` near 100 says that it was so.
const PERCENT: u32 = 30;

/// Wall time over requests: what second workers are to make less of.
pub(super) const WALL: Metric = Metric::less("µs/request");
/// Of the share, or of the workers' cores.
const USED: Metric = Metric::plain("share used %");
/// Requests a second over those of one worker; with whole cores 2 × CPU of one / CPU of two instead.
const TIMES_ONE: Metric = Metric::plain("times one worker");

/// One worker with its share.
pub(super) const ONE_SHARE: &str = "usher-1-share";
const TWO_SHARE: &str = "usher-2-share";
const ONE: &str = "usher-1";
const TWO: &str = "usher-2";

/// One usher.
struct Crew {
    workers: u32,
    proxy: Proxy,
    share: Option<Share>,
    row: Row,
}

pub(super) async fn measure(bench: &Bench, transport: Transport) -> Result<Vec<Row>, Failure> {
    let Some(first) = bench.contestants.iter().find(|one| one.is_usher()) else {
        return Err("usher takes no part".into());
    };
    if !first.has_workers()? {
        eprintln!("  left out: this usher has no --workers");
        return Ok(Vec::new());
    }
    let upstream = Upstream::start(bench).await?;
    let target = upstream.target();
    // The goal is held against the first row.
    let mut wanted = vec![(TWO_SHARE, 2, true), (ONE_SHARE, 1, true), (TWO, 2, false), (ONE, 1, false)];
    if let Err(why) = Share::possible() {
        eprintln!("  no fixed shares: {why}");
        wanted.retain(|(_, _, shared)| !shared);
    }
    let mut crews = Vec::new();
    for (name, workers, shared) in wanted {
        let proxy = first.with_workers(name, workers).start(bench, &target).await?;
        let share = shared.then(|| Share::new(PERCENT * workers, proxy.process.pid())).transpose()?;
        crews.push(Crew { workers, share, proxy, row: Row::new(name) });
    }
    let seconds = bench.options.seconds;
    let generator = Generator { transport, path: Size::Small.path(), token: TOKEN, seconds };
    for crew in &crews {
        // The first time round makes the connections to the upstream.
        generator.with_seconds(1).run(closed::address(&crew.proxy, transport)).await?;
    }
    for round in 0..bench.options.runs {
        for index in in_turn(round, crews.len()) {
            let Crew { workers, proxy, share, row } = &mut crews[index];
            let once = closed::once(proxy, generator, &target, row).await;
            once.map_err(|why| format!("{}: {why}", proxy.name))?;
            proxy.process.check()?;
            let last = |metric: Metric| row.series(metric.name).and_then(|one| one.rounds.last().copied());
            let (cpu, rate) = last(CPU).zip(last(RATE)).ok_or("nothing was measured")?;
            let cores = f64::from(*workers) * share.as_ref().map_or(1.0, |_| f64::from(PERCENT) / 100.0);
            row.push(WALL, 1e6 / rate);
            row.push(USED, cpu * rate / 1e4 / cores);
        }
    }
    let mut rows: Vec<Row> = crews.into_iter().map(|crew| crew.row).collect();
    compare(&mut rows, (TWO_SHARE, ONE_SHARE), WALL, 1.0);
    compare(&mut rows, (TWO, ONE), CPU, 2.0);
    Ok(rows)
}

/// Notes for `two`, round by round, `times` what `one` needs over what it needs itself.
fn compare(rows: &mut [Row], (two, one): (&str, &str), metric: Metric, times: f64) {
    let rounds = |name: &str| -> Vec<f64> {
        let row = rows.iter().find(|row| row.contestant == name);
        row.and_then(|row| row.series(metric.name)).map_or_else(Vec::new, |series| series.rounds.clone())
    };
    let ratios: Vec<f64> = rounds(one).iter().zip(rounds(two)).map(|(one, two)| times * one / two).collect();
    if let Some(row) = rows.iter_mut().find(|row| row.contestant == two) {
        ratios.iter().for_each(|ratio| row.push(TIMES_ONE, *ratio));
    }
}

#[cfg(test)]
mod tests {
    use super::{CPU, ONE, TIMES_ONE, TWO, compare};
    use crate::report::Row;

    #[test]
    fn two_workers_are_compared_with_one_round_by_round() {
        let mut rows = [(TWO, [12.0, 24.0]), (ONE, [9.0, 24.0])].map(|(name, rounds)| {
            let mut row = Row::new(name);
            rounds.iter().for_each(|value| row.push(CPU, *value));
            row
        });
        compare(&mut rows, (TWO, ONE), CPU, 2.0);
        let times = rows[0].series(TIMES_ONE.name).expect("a ratio a round");
        assert_eq!(times.rounds, [1.5, 2.0]);
        assert!(rows[1].series(TIMES_ONE.name).is_none());
    }
}
