//! `cargo xtask bench proxy`: what usher costs beside HAProxy and nginx, all measured in one run.
//!
//! One upstream, one load generator at a time, all proxies configured alike and pinned to one core, upstream
//! and generator on another. Rounds are interleaved (A B C, B C A, …), so that whatever else the machine does
//! meets all of them; what counts is the ratio within a round. `bench/README.md` says what each number means.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use usher_tests::cluster::programs::root;

use crate::report::{Report, goals as judged, put, table};
use crate::{Failure, process};

mod apiserver;
mod cells;
pub(crate) mod client;
mod closed;
mod contestant;
mod files;
mod generator;
mod goals;
mod handshakes;
mod idle;
mod open;
mod programs;
mod share;
mod upstream;
mod workers;

use cells::Cell;
use contestant::{BASE, Contestant};
use files::Files;

/// What to measure.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "cargo xtask bench proxy", about = "usher beside HAProxy and nginx, in one run")]
pub struct Options {
    /// Cells to measure: names, or beginnings of names; without it all of them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cells: Vec<String>,
    /// Interleaved rounds of each cell; the median of them is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Seconds of load a round and contestant
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Contestants to leave out or, without a minus before the name, the only ones: -nginx, usher-epoll
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    pub only: Vec<String>,
    /// One more usher: NAME=PROGRAM FLAG…, for example 'before=/tmp/usher --io=epoll'; repeatable
    #[arg(long, value_name = "NAME=PROGRAM FLAG…")]
    pub also: Vec<String>,
    /// The usher program; without it the one beside this program
    #[arg(long, value_name = "FILE")]
    pub usher: Option<PathBuf>,
    /// Idle connections, and idle watches, whose memory is measured
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub idle: u32,
    /// Seconds over which the CPU of idle watches is measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub idle_seconds: u32,
    /// Compare with an earlier result: target/bench/proxy/result.json of another commit
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Only look whether everything works: some cells, one short round; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Core of the proxies
    #[arg(long, default_value_t = 0)]
    pub proxy_core: usize,
    /// Core of the upstream and the generator
    #[arg(long, default_value_t = 1)]
    pub load_core: usize,
    /// Where results and everybody's configuration go
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// All that a cell needs to be measured.
#[derive(Debug)]
struct Bench {
    options: Options,
    folder: PathBuf,
    files: Files,
    contestants: Vec<Contestant>,
}

/// Measures, prints and writes.
///
/// # Errors
/// If a program is missing or does not start, or if any answer was not a success: such a figure would mean nothing.
pub async fn run(mut options: Options) -> Result<(), Failure> {
    if options.quick {
        options.runs = 1;
        options.seconds = 1;
        options.idle = options.idle.min(100);
        options.idle_seconds = 1;
    }
    let earlier = options.compare.as_deref().map(Report::read).transpose()?;
    let cells = Cell::chosen(&options.cells, options.quick)?;
    process::pin(options.load_core)?;
    let folder = options.out.clone().unwrap_or_else(|| root().join("target/bench/proxy"));
    let bench = Bench::prepare(options, folder)?;
    programs::require(&bench.programs(&cells))?;
    let mut report = Report::new(bench.about());
    for cell in cells {
        bench.measure(cell, &mut report).await.map_err(|failure| format!("{cell}: {failure}"))?;
        // After each, so that a run that is broken off leaves what it had.
        report.write(&bench.folder.join("result.json"))?;
    }
    if !bench.options.quick {
        println!("\n{}", judged::judge(&report, goals::GOALS));
    }
    if let Some(earlier) = earlier {
        println!("{}", table::comparison(&earlier, &report, BASE));
    }
    println!("written to {}", bench.folder.display());
    Ok(())
}

/// The order in which so many are measured in a round. Each begins with another: who comes after a hungry one finds
/// caches and clocks as that one left them.
fn in_turn(round: u32, count: usize) -> impl Iterator<Item = usize> {
    let first = round as usize % count.max(1);
    (first..count).chain(0..first)
}

impl Bench {
    fn prepare(options: Options, folder: PathBuf) -> Result<Self, Failure> {
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let usher = match &options.usher {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("usher"),
        };
        let contestants = Contestant::all(&usher, &options.also, &options.only)?;
        let files = Files::write(&folder)?;
        Ok(Self { options, folder, files, contestants })
    }

    /// For the reader of its results.
    fn about(&self) -> Value {
        let contestants: Map<String, Value> =
            self.contestants.iter().map(|one| (one.name.clone(), one.description().into())).collect();
        let congestion = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        json!({
            "contestants": contestants,
            "congestion_control": congestion.unwrap_or_default().trim(),
            "runs": self.options.runs,
            "seconds": self.options.seconds,
            "quick": self.options.quick,
        })
    }

    fn programs(&self, cells: &[Cell]) -> BTreeSet<&'static str> {
        let proxies = self.contestants.iter().filter_map(Contestant::package_program);
        cells.iter().flat_map(|cell| cell.programs()).copied().chain(proxies).collect()
    }

    async fn measure(&self, cell: Cell, report: &mut Report) -> Result<(), Failure> {
        println!("\n{cell}: {}", cell.about());
        let measured = match cell {
            Cell::Closed(load) => closed::measure(self, load).await,
            Cell::Apiserver(transport, wish) => apiserver::measure(self, transport, wish).await,
            Cell::Relay => closed::relays(self).await,
            Cell::Workers(transport) => workers::measure(self, transport).await,
            Cell::Latency => open::measure(self).await,
            Cell::Handshakes => handshakes::measure(self).await,
            Cell::IdleConnections(kind) => idle::connections(self, kind).await,
            Cell::IdleWatches { streams } => idle::watches(self, streams).await,
        }?;
        print!("{}", table::cell(&measured, BASE));
        report.add(&cell.to_string(), measured);
        Ok(())
    }

    /// Where a contestant's configuration and log go.
    fn room(&self, name: &str) -> Result<PathBuf, Failure> {
        let room = self.folder.join(name);
        std::fs::create_dir_all(&room)?;
        Ok(room)
    }
}
