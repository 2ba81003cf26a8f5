//! `cargo xtask bench overload`: what is left of an apiserver when a controller asks ten times what it can answer.
//!
//! The whole gateway in front of the stand-in apiserver, whose capacity is known: so many requests at once, each for so
//! long. A protected level's clients ask at a modest rate all the time; beside them nobody, or a controller that has run away,
//! with admission and without. Every run is a process of its own; rounds are interleaved. `bench/README.md` says
//! what each number means.

use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::json;
use tokio_rustls::TlsConnector;
use usher::observe::hdr::formats;
use usher_tests::cluster::programs::root;

use crate::Failure;
use crate::process::{self, usage};
use crate::proxy::client;
use crate::report::{Metric, Report, Row, goals as judged, put, table};
use crate::standin::{Manner, Standin};

mod cast;
mod gateway;
mod generator;
mod goals;

use gateway::{Files, Gateway};
use generator::{Load, Schedule, Server, Tally};

/// What to measure.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "cargo xtask bench overload",
    about = "The whole gateway under far more load than the apiserver bears"
)]
pub struct Options {
    /// Interleaved rounds; the median of them is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Seconds that are counted in a run; two more before them are not
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,
    /// Numbers of workers to measure usher with; by default 1, and 2 where this usher has --workers
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workers: Vec<usize>,
    /// Requests that the apiserver works on at once, and seats that usher has
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub seats: u32,
    /// Milliseconds that one request takes it
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub service_ms: u32,
    /// How many times its capacity is asked for
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub times: u32,
    /// The usher program; without it the one beside this program
    #[arg(long, value_name = "FILE")]
    pub usher: Option<PathBuf>,
    /// Cores of usher: its first N with N workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [0, 1])]
    pub usher_cores: Vec<usize>,
    /// Core of the apiserver and the generator
    #[arg(long, default_value_t = 1)]
    pub load_core: usize,
    /// Compare with an earlier result: target/bench/overload/result.json of another commit
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Only look whether everything works: a small capacity, one short round; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Where results go
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// What the apiserver can do.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    /// Requests at once.
    seats: u32,
    service_ms: u32,
}

/// One run of a cell: what stands in front of the apiserver, and who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Overload,
    /// The same with `--steering=off`: the kernel's hash spreads connections over workers.
    Unsteered,
    Unloaded,
    Unlimited,
    /// The apiserver without usher, by itself under more load than it bears: what it can do on this machine.
    Alone,
}

const RUNS: [Run; 5] = [Run::Overload, Run::Unsteered, Run::Unloaded, Run::Unlimited, Run::Alone];
/// The run with which latencies are compared.
const UNLOADED: &str = "usher-unloaded";
/// How many times its capacity the apiserver alone is asked for: enough that it is never idle.
const ALONE_TIMES: u32 = 2;

const GOODPUT: Metric = Metric::plain("goodput/s");
/// The same over what the apiserver could do if its timers were exact.
const OF_NOMINAL: Metric = Metric::plain("% of nominal");
/// What the apiserver alone had more, in percent of that.
const LOST: Metric = Metric::less("% lost");
const PROTECTED_P50: Metric = Metric::less("protected p50 ms");
const PROTECTED_P99: Metric = Metric::less("protected p99 ms");
/// Protected tries told to come back, given up or failed.
const PROTECTED_BAD: Metric = Metric::plain("protected refused");
const REJECTED: Metric = Metric::plain("429/s");
const TIMED_OUT: Metric = Metric::plain("given up/s");
/// Requests that another worker started and had to tell theirs of, in percent of all that were started.
const TOLD: Metric = Metric::less("% told by another");
const HELD: Metric = Metric::plain("apiserver holds");
const USHER_CPU: Metric = Metric::plain("usher % of a core");
const LOAD_CPU: Metric = Metric::plain("load % of a core");
const LATE: Metric = Metric::plain("generator late ms");

/// What one run found.
struct Found {
    runaway: Option<Tally>,
    protected: Option<Tally>,
    held: u64,
    /// Of the time that counts.
    starts: Option<gateway::Starts>,
    /// CPU of usher and of this process, in cores.
    usher_cpu: Option<f64>,
    load_cpu: f64,
}

/// Everything that the runs share.
struct Bench {
    options: Options,
    folder: PathBuf,
    files: Files,
    usher: PathBuf,
    has_workers: bool,
    has_steering: bool,
    tls: TlsConnector,
    capacity: Capacity,
}

/// Measures, prints and writes.
///
/// # Errors
/// If usher does not start, or an answer was neither a success nor a 429 where usher limits what it lets through: such a
/// figure would mean nothing.
pub async fn run(mut options: Options) -> Result<(), Failure> {
    if options.quick {
        (options.runs, options.seconds, options.seats, options.times) = (1, 1, 4, 5);
    }
    let earlier = options.compare.as_deref().map(Report::read).transpose()?;
    process::pin(options.load_core)?;
    let bench = Bench::prepare(options)?;
    let workers = bench.workers();
    let mut report = Report::new(bench.about());
    for (workers, rows) in bench.rounds(&workers).await? {
        println!("\nworkers-{workers}: {}", bench.heading(workers));
        print!("{}", table::cell(&rows, UNLOADED));
        report.add(&format!("workers-{workers}"), rows);
    }
    report.write(&bench.folder.join("result.json"))?;
    if !bench.options.quick {
        println!("\n{}", judged::judge(&report, goals::GOALS));
    }
    if let Some(earlier) = earlier {
        println!("{}", table::comparison(&earlier, &report, UNLOADED));
    }
    println!("written to {}", bench.folder.display());
    Ok(())
}

impl Bench {
    fn prepare(options: Options) -> Result<Self, Failure> {
        let folder = options.out.clone().unwrap_or_else(|| root().join("target/bench/overload"));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let usher = match &options.usher {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("usher"),
        };
        let capacity = Capacity { seats: options.seats, service_ms: options.service_ms };
        Ok(Self {
            files: Files::write(&folder)?,
            has_workers: gateway::has_flag(&usher, "--workers")?,
            has_steering: gateway::has_flag(&usher, "--steering")?,
            tls: client::connector(b"h2")?,
            options,
            folder,
            usher,
            capacity,
        })
    }

    fn workers(&self) -> Vec<usize> {
        match &self.options.workers[..] {
            [] if self.has_workers => vec![1, 2],
            [] => {
                eprintln!("this usher has no --workers: it is measured with its one");
                vec![1]
            }
            chosen => chosen.to_vec(),
        }
    }

    fn heading(&self, workers: usize) -> String {
        format!(
            "{} requests at once of {} ms, {}/s; asked for {} times that; usher on core {}, apiserver and generator on {}",
            self.capacity.seats,
            self.capacity.service_ms,
            self.capacity.per_second(),
            self.options.times,
            self.cores(workers).iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
            self.options.load_core,
        )
    }

    fn about(&self) -> serde_json::Value {
        json!({
            "seats": self.capacity.seats,
            "service_ms": self.capacity.service_ms,
            "times": self.options.times,
            "usher_cores": self.options.usher_cores,
            "load_core": self.options.load_core,
            "runs": self.options.runs,
            "seconds": self.options.seconds,
            "quick": self.options.quick,
        })
    }

    /// The cores of so many workers.
    fn cores(&self, workers: usize) -> &[usize] {
        let all = &self.options.usher_cores[..];
        all.get(..workers).unwrap_or(all)
    }

    /// All rounds. Each begins with another run.
    async fn rounds(&self, workers: &[usize]) -> Result<Vec<(usize, Vec<Row>)>, Failure> {
        let rows = |workers| self.runs(workers).iter().map(|run| Row::new(run.name())).collect();
        let mut all: Vec<(usize, Vec<Row>)> =
            workers.iter().map(|workers| (*workers, rows(*workers))).collect();
        let mut latencies: Vec<(String, Histogram<u64>)> = Vec::new();
        for round in 0..self.options.runs as usize {
            println!("round {} of {}", round + 1, self.options.runs);
            for (workers, rows) in &mut all {
                let mut found: Vec<(usize, Found)> = Vec::new();
                let runs = self.runs(*workers);
                for turn in 0..runs.len() {
                    let place = (round + turn) % runs.len();
                    let run = runs[place];
                    let one = self.once(run, *workers).await;
                    found.push((place, one.map_err(|failure| format!("{}: {failure}", run.name()))?));
                }
                let alone = found.iter().find(|(place, _)| runs[*place] == Run::Alone);
                let most = alone.map_or(f64::NAN, |(_, found)| found.goodput(self.options.seconds));
                for (place, found) in &found {
                    found.note(&mut rows[*place], self.options.seconds, self.capacity.per_second(), most);
                    let name = format!("workers-{workers}-{}", runs[*place].name());
                    add_latency(&mut latencies, name, found)?;
                }
            }
        }
        for (name, latency) in &latencies {
            put(&self.folder.join(format!("{name}.hgrm")), formats::hgrm(latency, 1000.0))?;
        }
        Ok(all)
    }

    /// The runs of a cell. One worker alone has nothing to be steered to.
    fn runs(&self, workers: usize) -> Vec<Run> {
        let steers = self.has_steering && workers > 1;
        RUNS.into_iter().filter(|run| steers || *run != Run::Unsteered).collect()
    }

    /// One run: apiserver and usher started, load, everything ended.
    async fn once(&self, run: Run, workers: usize) -> Result<Found, Failure> {
        let standin = Standin::start(self.capacity.manner()).await?;
        let mut gateway = match run {
            Run::Alone => None,
            _ => Some(self.start(run, workers, &standin).await?),
        };
        let server = match &gateway {
            Some(gateway) => Server { address: gateway.address, tls: Some(self.tls.clone()) },
            None => Server { address: standin.address, tls: None },
        };
        let times = if run == Run::Alone { ALONE_TIMES } else { self.options.times };
        let schedule = Schedule::of(Duration::from_secs(self.options.seconds.into()));
        let protected = match run {
            Run::Alone => None,
            _ => Some(Load::start(cast::nodes(self.options.quick), &server, schedule).await?),
        };
        let runaway = match run {
            Run::Unloaded => None,
            _ => Some(Load::start(cast::runaway(self.capacity, times), &server, schedule).await?),
        };
        schedule.begins_to_count().await;
        let started_before = starts(gateway.as_ref()).await;
        let usher_before = gateway.as_mut().map(Gateway::usage).transpose()?;
        let load_before = usage(std::process::id())?;
        schedule.is_counted().await;
        let cores = |used: process::Usage| used.cpu_us() / 1e6 / f64::from(self.options.seconds);
        let usher_after = gateway.as_mut().map(Gateway::usage).transpose()?;
        let started = starts(gateway.as_ref()).await.zip(started_before);
        let starts = started.map(|(after, before)| after.since(before));
        let usher_cpu = usher_after.zip(usher_before).map(|(after, before)| cores(after.since(before)));
        let load_cpu = cores(usage(std::process::id())?.since(load_before));
        if let Some(protected) = &protected {
            protected.is_through().await?;
        }
        let runaway = match runaway {
            Some(load) => Some(load.stop().await),
            None => None,
        };
        let protected = match protected {
            Some(load) => Some(load.stop().await),
            None => None,
        };
        let found = Found { runaway, protected, held: standin.busy_most(), starts, usher_cpu, load_cpu };
        standin.stop();
        found.check(run)?;
        Ok(found)
    }

    async fn start(&self, run: Run, workers: usize, standin: &Standin) -> Result<Gateway, Failure> {
        let manner = gateway::Manner {
            cores: self.cores(workers),
            workers: self.has_workers.then_some(workers),
            admission: run != Run::Unlimited,
            steering: (run == Run::Unsteered).then_some("off"),
        };
        Gateway::start(&self.usher, &self.files, manner, self.capacity, standin.address).await
    }
}

impl Capacity {
    fn per_second(self) -> u32 {
        self.seats * 1000 / self.service_ms
    }

    fn manner(self) -> Manner {
        Manner {
            service_time: Duration::from_millis(self.service_ms.into()),
            concurrency: self.seats as usize,
            namespaces: 1,
            pods: 1,
            nodes: 1,
        }
    }
}

impl Run {
    fn name(self) -> &'static str {
        match self {
            Self::Overload => "usher-overload",
            Self::Unsteered => "usher-unsteered",
            Self::Unloaded => UNLOADED,
            Self::Unlimited => "usher-unlimited",
            Self::Alone => "apiserver-alone",
        }
    }
}

impl Found {
    /// Successes a second.
    #[expect(clippy::cast_precision_loss, reason = "requests of a run are exact in f64")]
    fn goodput(&self, seconds: u32) -> f64 {
        let tallies = self.protected.iter().chain(&self.runaway);
        tallies.map(|tally| tally.served).sum::<u64>() as f64 / f64::from(seconds)
    }

    #[expect(clippy::cast_precision_loss, reason = "requests and microseconds of a run are exact in f64")]
    fn note(&self, row: &mut Row, seconds: u32, nominal: u32, most: f64) {
        let goodput = self.goodput(seconds);
        row.push(GOODPUT, goodput);
        row.push(OF_NOMINAL, goodput / f64::from(nominal) * 100.0);
        if let Some(runaway) = &self.runaway {
            row.push(LOST, (1.0 - goodput / most) * 100.0);
            row.push(REJECTED, runaway.rejected as f64 / f64::from(seconds));
            row.push(TIMED_OUT, runaway.timed_out as f64 / f64::from(seconds));
        }
        if let Some(protected) = &self.protected {
            for (metric, quantile) in [(PROTECTED_P50, 0.5), (PROTECTED_P99, 0.99)] {
                row.push(metric, protected.latency.value_at_quantile(quantile) as f64 / 1000.0);
            }
            row.push(PROTECTED_BAD, (protected.rejected + protected.timed_out + protected.failed) as f64);
            row.push(LATE, protected.late.value_at_quantile(0.99) as f64 / 1000.0);
        }
        row.push(HELD, self.held as f64);
        if let Some(starts) = self.starts.filter(|starts| starts.all > 0.0) {
            row.push(TOLD, starts.by_others / starts.all * 100.0);
        }
        if let Some(cpu) = self.usher_cpu {
            row.push(USHER_CPU, cpu * 100.0);
        }
        row.push(LOAD_CPU, self.load_cpu * 100.0);
    }

    /// Nothing may fail where usher limits what it lets through, and a flood must have been one.
    fn check(&self, run: Run) -> Result<(), Failure> {
        let tallies = self.protected.iter().chain(&self.runaway);
        for tally in tallies.filter(|_| run != Run::Unlimited) {
            if let (failed @ 1.., Some(example)) = (tally.failed, &tally.example) {
                return Err(format!("{failed} of {} tries failed, one with: {example}", tally.due).into());
            }
            if tally.served == 0 {
                return Err("nobody was served".into());
            }
        }
        match &self.runaway {
            Some(runaway) if matches!(run, Run::Overload | Run::Unsteered) && runaway.rejected == 0 => {
                Err("nothing was told to come back: it was no overload".into())
            }
            _ => Ok(()),
        }
    }
}

/// A machine so busy that usher's admin port does not answer gets no such figure; the others stand.
async fn starts(gateway: Option<&Gateway>) -> Option<gateway::Starts> {
    let starts = gateway?.starts().await;
    starts.inspect_err(|failure| eprintln!("no count of starts: {failure}")).ok()
}

fn add_latency(all: &mut Vec<(String, Histogram<u64>)>, name: String, found: &Found) -> Result<(), Failure> {
    let Some(protected) = &found.protected else { return Ok(()) };
    match all.iter_mut().find(|(one, _)| *one == name) {
        Some((_, sum)) => sum.add(&protected.latency)?,
        None => all.push((name, protected.latency.clone())),
    }
    Ok(())
}
