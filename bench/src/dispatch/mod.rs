//! `cargo xtask bench dispatch`: what a decision costs, beside kube-apiserver's own implementation in the same run.
//!
//! A decision is: classify a request whose digest (user and request info) is there, find its flow, estimate its width,
//! let it arrive, execute nothing, finish. Here it is made by the core as a worker makes it, on the same objects and for
//! the same requests as by the Go package `k8s.io/apiserver/pkg/util/flowcontrol` (`bench/peer`), on one thread by itself or
//! on many that share a level. Rounds are interleaved; what counts is the ratio within a round. `bench/README.md` says what each number means.

use std::path::PathBuf;

use serde_json::json;
use usher_tests::cluster::programs::root;

pub mod allocations;
mod cells;
mod clients;
mod crowd;
mod distributions;
mod goals;
mod instructions;
mod peer;
mod plan;
mod usher;
mod workers;

use cells::Cell;
use distributions::Distributions;
use peer::Peer;
use plan::Plan;

use crate::Failure;
use crate::report::{Metric, Report, Row, goals as judged, table};

/// What to measure.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "cargo xtask bench dispatch", about = "what a decision costs, beside kube-apiserver's own")]
pub struct Options {
    /// Cells to measure: names, or beginnings of names; without it all of them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cells: Vec<String>,
    /// Interleaved rounds of each cell; the median of them is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Milliseconds a round and contestant
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub millis: u32,
    /// Only look whether everything works: short rounds, without Go; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Leave kube-apiserver's implementation out
    #[arg(long)]
    pub without_go: bool,
    /// Compare with an earlier result: target/bench/dispatch/result.json of another commit
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Where results go
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Make so many decisions of the one cell named and measure nothing: what callgrind looks at
    #[arg(long, value_name = "NUMBER")]
    pub spin: Option<u64>,
}

/// usher's core.
const USHER: &str = "usher";
/// kube-apiserver's implementation: what ratios are taken of.
const GO: &str = "go";

/// Wall time over decisions, all threads together.
const MEAN: Metric = Metric::less("ns/decision");
const P50: Metric = Metric::less("p50");
const P99: Metric = Metric::less("p99");
const P999: Metric = Metric::less("p99.9");
const MAX: Metric = Metric::plain("max");
const ALLOCATIONS: Metric = Metric::less("allocations");
const WAITING: Metric = Metric::plain("waiting");
const INSTRUCTIONS: Metric = Metric::plain("instructions");
/// Decisions in the same time, over those of one thread.
const TIMES_ONE: Metric = Metric::more("times one thread");

/// What a round of one contestant has found.
struct Round {
    mean: f64,
    allocations: f64,
    /// Requests that waited.
    waiting: f64,
    /// Decisions timed one by one, in ns.
    singles: hdrhistogram::Histogram<u64>,
}

/// Measures, prints and writes.
///
/// # Errors
/// If the peer does not build, or any request was turned away or lost: such a figure would mean nothing.
pub fn run(mut options: Options) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cells = Cell::chosen(&options.cells, cores)?;
    if let Some(decisions) = options.spin {
        let [cell] = cells[..] else { return Err("--spin wants one cell".into()) };
        return usher::spin(cell, decisions);
    }
    allocations::require()?;
    if options.quick {
        (options.runs, options.millis) = (1, 10);
    }
    let folder = options.out.clone().unwrap_or_else(|| root().join("target/bench/dispatch"));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let bench = Bench {
        peer: Peer::build(&options, &folder)?,
        counts: instructions::available(&options),
        options,
        folder,
    };
    let earlier = bench.options.compare.as_deref().map(Report::read).transpose()?;
    let mut report = Report::new(bench.about());
    let mut distributions = Distributions::begin();
    for (cell, rows) in bench.rounds(&cells, &mut distributions)? {
        println!("\n{cell}: {}", cell.about());
        print!("{}", table::cell(&rows, GO));
        report.add(&cell.to_string(), rows);
    }
    report.write(&bench.folder.join("result.json"))?;
    distributions.write(&bench.folder)?;
    if !bench.options.quick {
        println!("\n{}", judged::judge(&report, goals::GOALS));
    }
    if let Some(earlier) = earlier {
        println!("{}", table::comparison(&earlier, &report, GO));
    }
    println!("written to {}", bench.folder.display());
    Ok(())
}

/// All that a cell needs to be measured.
struct Bench {
    options: Options,
    folder: PathBuf,
    /// `None`: without Go.
    peer: Option<Peer>,
    /// Whether instructions are counted.
    counts: bool,
}

impl Bench {
    /// All rounds of all cells. A round is one of every cell, so that what disturbs the machine for a while disturbs all
    /// alike; each begins with another cell.
    fn rounds(
        &self,
        cells: &[Cell],
        distributions: &mut Distributions,
    ) -> Result<Vec<(Cell, Vec<Row>)>, Failure> {
        let mut all: Vec<_> = cells.iter().map(|cell| (*cell, Vec::new())).collect();
        for round in 0..self.options.runs as usize {
            println!("round {} of {}", round + 1, self.options.runs);
            for turn in 0..all.len() {
                let place = (round + turn) % all.len();
                let (cell, rows) = &mut all[place];
                self.round(*cell, rows, distributions).map_err(|failure| format!("{cell}: {failure}"))?;
            }
        }
        for (cell, rows) in all.iter_mut().filter(|(cell, _)| self.counts && cell.is_counted()) {
            let count = instructions::count(*cell, &self.folder)?;
            rows.iter_mut()
                .filter(|row| row.contestant == USHER)
                .for_each(|row| row.push(INSTRUCTIONS, count));
        }
        compare_with_one_thread(&mut all);
        Ok(all)
    }

    /// One round of a cell.
    fn round(
        &self,
        cell: Cell,
        rows: &mut Vec<Row>,
        distributions: &mut Distributions,
    ) -> Result<(), Failure> {
        if cell == Cell::Clock {
            row(rows, USHER).push(MEAN, usher::clock());
            return Ok(());
        }
        let plan = Plan::of(cell);
        let millis = self.options.millis;
        note(row(rows, USHER), cell, &usher::measure(cell, &plan, millis)?, distributions)?;
        if let Some(peer) = self.peer.as_ref().filter(|_| cell.is_theirs()) {
            note(row(rows, GO), cell, &peer.measure(&plan, millis)?, distributions)?;
        }
        Ok(())
    }

    fn about(&self) -> serde_json::Value {
        json!({
            "go": self.peer.as_ref().map(Peer::version),
            "runs": self.options.runs,
            "milliseconds": self.options.millis,
            "quick": self.options.quick,
        })
    }
}

/// The row of a contestant, made when he is first measured.
fn row<'a>(rows: &'a mut Vec<Row>, contestant: &str) -> &'a mut Row {
    let place = rows.iter().position(|row| row.contestant == contestant).unwrap_or_else(|| {
        rows.push(Row::new(contestant));
        rows.len() - 1
    });
    &mut rows[place]
}

/// Notes for every cell of many threads, round by round, what they did more than one.
fn compare_with_one_thread(all: &mut [(Cell, Vec<Row>)]) {
    for place in 0..all.len() {
        let Some(alone) = all[place].0.alone() else { continue };
        let Some(alone) = all.iter().find(|(cell, _)| *cell == alone).map(|(_, rows)| rows.clone()) else {
            continue;
        };
        for row in &mut all[place].1 {
            let Some(one) = alone.iter().find(|one| one.contestant == row.contestant) else { continue };
            let rounds =
                |row: &Row| row.series(MEAN.name).map(|means| means.rounds.clone()).unwrap_or_default();
            for (one, many) in rounds(one).iter().zip(rounds(row)) {
                row.push(TIMES_ONE, one / many);
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds in nanoseconds are exact in f64")]
fn note(row: &mut Row, cell: Cell, round: &Round, distributions: &mut Distributions) -> Result<(), Failure> {
    row.push(MEAN, round.mean);
    for (metric, quantile) in [(P50, 0.5), (P99, 0.99), (P999, 0.999), (MAX, 1.0)] {
        row.push(metric, round.singles.value_at_quantile(quantile) as f64);
    }
    row.push(ALLOCATIONS, round.allocations);
    row.push(WAITING, round.waiting);
    distributions.add(cell, &row.contestant, &round.singles)
}
