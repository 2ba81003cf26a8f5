//! The demo: a noisy neighbour in front of a stand-in apiserver, with usher's admission and without it.
//!
//! One process holds the stand-in and the clients; usher runs as its own process, as it would anywhere.
//! The same load runs twice, so that the table at the end can put the two side by side.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use crate::load::{self, Population, Tally};
use crate::standin::{Manner, Standin};

mod cast;
mod files;
mod gateway;
mod show;

use gateway::Gateway;

/// What to run.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "usher-demo",
    about = "A noisy neighbour, with usher and without, in front of a stand-in apiserver"
)]
pub struct Options {
    /// Seconds of load, with admission and again without
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub seconds: u64,
    /// Keep usher and the stand-in up afterwards and print a kubeconfig
    #[arg(long)]
    pub stay: bool,
    /// The usher program; without it the one beside this program
    #[arg(long, value_name = "FILE")]
    pub usher: Option<PathBuf>,
    /// How to print the result
    #[arg(short, long, default_value = "text", value_parser = ["text", "json"])]
    pub output: String,
}

/// Seats for reading requests that usher may use: small, so that a laptop shows a full house.
const READ_SEATS: usize = 15;
/// Seats for writing requests.
const WRITE_SEATS: usize = 5;
/// What one request costs the stand-in.
const SERVICE_TIME: Duration = Duration::from_millis(40);
/// What the stand-in can do at once: as much as usher has seats.
const STANDIN_CONCURRENCY: usize = READ_SEATS + WRITE_SEATS;

/// What one of the two runs brought.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tallies: Vec<Arc<Tally>>,
    pub(crate) seconds: u64,
    /// Flow schema, mean wait in milliseconds, turned away; from usher's own metrics.
    pub(crate) schemas: Vec<gateway::SchemaWait>,
    /// The most requests that the stand-in held at once.
    pub(crate) standin_most: u64,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs it.
///
/// # Errors
/// If the stand-in or usher does not come up: the text says what was missing.
pub async fn run(options: Options) -> Result<(), Failure> {
    let folder = tempfile::Builder::new().prefix("usher-demo-").tempdir()?;
    let files = files::write(folder.path())?;
    let quiet = options.output == "json";
    let with = one_run(&options, folder.path(), &files, true, quiet).await?;
    let without = one_run(&options, folder.path(), &files, false, quiet).await?;
    if quiet {
        println!("{}", show::json(&with, &without));
    } else {
        show::table(&with, &without);
    }
    if options.stay {
        stay(&options, folder.path(), &files).await?;
    }
    Ok(())
}

async fn one_run(
    options: &Options,
    folder: &Path,
    files: &files::Files,
    admission: bool,
    quiet: bool,
) -> Result<Outcome, Failure> {
    let program = usher(options)?;
    let standin = start_standin().await?;
    let gateway = Gateway::start(&program, folder, files, standin.address, admission).await?;
    if !quiet {
        show::opening(admission, standin.address, gateway.address, options.seconds);
    }
    let populations = cast::everyone();
    let tallies: Vec<Arc<Tally>> =
        populations.iter().map(|population| Arc::new(Tally::new(population.name))).collect();
    let (stop, stopped) = watch::channel(false);
    let clients = start_clients(populations, gateway.address, &files.connector, &tallies, &stopped);
    for second in 1..=options.seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !quiet {
            show::progress(&tallies, second, options.seconds);
        }
    }
    stop.send_replace(true);
    for client in clients {
        client.await?;
    }
    let schemas = if admission { gateway.schema_waits().await? } else { Vec::new() };
    let outcome = Outcome { tallies, seconds: options.seconds, schemas, standin_most: standin.busy_most() };
    gateway.stop().await?;
    if outcome.tallies.iter().all(|tally| tally.served.load(Ordering::Relaxed) == 0) {
        return Err("no client was served: see what usher printed above".into());
    }
    Ok(outcome)
}

fn usher(options: &Options) -> Result<PathBuf, Failure> {
    match &options.usher {
        Some(program) => Ok(program.clone()),
        None => Ok(std::env::current_exe()?.with_file_name("usher")),
    }
}

async fn start_standin() -> Result<Standin, Failure> {
    let manner = Manner {
        service_time: SERVICE_TIME,
        concurrency: STANDIN_CONCURRENCY,
        namespaces: 4,
        pods: 10,
        nodes: cast::NODES,
    };
    Ok(Standin::start(manner).await?)
}

fn start_clients(
    populations: Vec<Population>,
    server: SocketAddr,
    tls: &TlsConnector,
    tallies: &[Arc<Tally>],
    stopped: &watch::Receiver<bool>,
) -> Vec<tokio::task::JoinHandle<()>> {
    populations
        .into_iter()
        .zip(tallies)
        .map(|(population, tally)| {
            tokio::spawn(load::drive(population, server, tls.clone(), Arc::clone(tally), stopped.clone()))
        })
        .collect()
}

/// Usher and the stand-in, for as long as the user likes.
async fn stay(options: &Options, folder: &Path, files: &files::Files) -> Result<(), Failure> {
    let program = usher(options)?;
    let standin = start_standin().await?;
    let gateway = Gateway::start(&program, folder, files, standin.address, true).await?;
    let kubeconfig = files.write_kubeconfig(folder, gateway.address)?;
    show::staying(&kubeconfig, gateway.admin);
    tokio::signal::ctrl_c().await?;
    gateway.stop().await
}
