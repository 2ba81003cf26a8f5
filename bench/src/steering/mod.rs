//! `cargo xtask bench steering`: what the kernel program that chooses a worker costs a connection.
//!
//! Listeners and clients are in this one process, on the loopback network, whose 16 million addresses are all this host's. A
//! connection is opened, accepted and closed by one thread, so a round's CPU time is that of the connections alone.
//! The kernel counts how often the program runs and for how long (`BPF_ENABLE_STATS`). `bench/README.md` says what each
//! number means.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use aya::maps::{Array, MapData, PerCpuArray, SockMap};
use aya::programs::SkReuseport;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use serde_json::json;
use socket2::{Domain, Socket, Type};
use usher_ebpf::steer::{self, DRAINING, Load, Path, Rules, SERVING};
use usher_tests::cluster::programs::root;

use crate::Failure;
use crate::process::usage;
use crate::report::{Metric, Report, Row, table};

/// What to measure.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "cargo xtask bench steering", about = "What the choice of a worker in the kernel costs")]
pub struct Options {
    /// Interleaved rounds; the median of them is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Connections in a round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub connections: u32,
    /// Only look whether everything works: one short round; the figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// Where results go
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Who connects to whom.
struct Cell {
    name: &'static str,
    workers: u32,
    /// The first of them serve, the others drain.
    serving: u32,
    /// Addresses that connections come from in turn.
    clients: u32,
    budget: u32,
}

const CELLS: [Cell; 5] = [
    Cell { name: "2-workers", workers: 2, serving: 2, clients: 1000, budget: 0 },
    Cell { name: "64-workers", workers: 64, serving: 64, clients: 1000, budget: 0 },
    Cell { name: "one-address", workers: 8, serving: 8, clients: 1, budget: 0 },
    Cell { name: "budget", workers: 8, serving: 8, clients: 1000, budget: 1_000_000 },
    Cell { name: "one-of-64-serves", workers: 64, serving: 1, clients: 1000, budget: 0 },
];

/// Connections that are open at once; a listener's queue holds them all.
const BATCH: usize = 100;
const PLAIN: &str = "plain";
const STEERED: &str = "steered";
/// Time in the program for each time that it ran.
const PROGRAM: Metric = Metric::less("program ns/SYN");
/// Of both ends: connect, accept, close, close.
const CPU: Metric = Metric::less("CPU us/connection");

/// Measures, prints and writes.
///
/// # Errors
/// If programs may not be loaded here, or the kernel's own hash chose for one connection where the program should have.
pub fn run(mut options: Options) -> Result<(), Failure> {
    if options.quick {
        (options.runs, options.connections) = (1, 500);
    }
    let folder = options.out.clone().unwrap_or_else(|| root().join("target/bench/steering"));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // The kernel counts as long as this is open.
    let _counted = match aya::sys::enable_stats(aya::sys::Stats::RunTime) {
        Err(reason) if options.quick && std::env::var_os("CI").is_none() => {
            println!("NOT TRIED, and CI would fail here: {reason}");
            return Ok(());
        }
        counted => counted?,
    };
    let mut rows: Vec<[Row; 2]> = CELLS.iter().map(|_| [Row::new(PLAIN), Row::new(STEERED)]).collect();
    for round in 0..options.runs {
        println!("round {} of {}", round + 1, options.runs);
        for (cell, [plain, steered]) in CELLS.iter().zip(&mut rows) {
            plain.push(CPU, Group::plain(cell.workers)?.round(cell, options.connections)?);
            let mut group = Group::steered(cell)?;
            steered.push(CPU, group.round(cell, options.connections)?);
            steered.push(PROGRAM, group.program_ns(options.connections)?);
        }
    }
    let about = json!({"runs": options.runs, "connections": options.connections, "quick": options.quick});
    let mut report = Report::new(about);
    for (cell, rows) in CELLS.iter().zip(rows) {
        println!(
            "\n{}: {} workers, {} serve, {} addresses",
            cell.name, cell.workers, cell.serving, cell.clients
        );
        print!("{}", table::cell(&rows, PLAIN));
        report.add(cell.name, rows.into());
    }
    report.write(&folder.join("result.json"))?;
    println!("written to {}", folder.display());
    Ok(())
}

/// The listeners of one address, with the program or without.
struct Group {
    address: SocketAddr,
    listeners: Vec<Socket>,
    steering: Option<(Ebpf, PerCpuArray<MapData, u64>)>,
}

impl Group {
    fn plain(workers: u32) -> Result<Self, Failure> {
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listeners = Vec::new();
        for _ in 0..workers {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            socket.listen(1024)?;
            socket.set_nonblocking(true)?;
            address = socket.local_addr()?.as_socket().ok_or("an address that is none")?;
            listeners.push(socket);
        }
        Ok(Self { address, listeners, steering: None })
    }

    fn steered(cell: &Cell) -> Result<Self, Failure> {
        let mut group = Self::plain(cell.workers)?;
        let mut ebpf = EbpfLoader::new()
            .override_global(steer::EVENTS, &0_u8, true)
            .load(include_bytes_aligned!("../../../gateway-ebpf/object/steer.o"))?;
        let mut sockets: SockMap<_> = map(&mut ebpf, steer::SOCKETS)?.try_into()?;
        let mut loads: Array<_, Load> = map(&mut ebpf, steer::LOADS)?.try_into()?;
        let mut rules: Array<_, Rules> = map(&mut ebpf, steer::RULES)?.try_into()?;
        for (slot, listener) in (0..).zip(&group.listeners) {
            sockets.set(slot, listener, 0)?;
            let state = if slot < cell.serving { SERVING } else { DRAINING };
            loads.set(slot, Load { state, ..Load::default() }, 0)?;
        }
        rules.set(
            0,
            Rules { slots: cell.workers, budget: cell.budget, burst: 1000, ..Rules::default() },
            0,
        )?;
        let program = program(&mut ebpf)?;
        program.load()?;
        program.attach(&group.listeners[0])?;
        let tally = map(&mut ebpf, steer::TALLY)?.try_into()?;
        group.steering = Some((ebpf, tally));
        Ok(group)
    }

    /// Opens, accepts and closes all connections; CPU microseconds for each.
    fn round(&self, cell: &Cell, connections: u32) -> Result<f64, Failure> {
        let before = usage(std::process::id())?;
        let mut batch = Vec::new();
        for number in 0..connections {
            let [_, _, high, low] = (number % cell.clients).to_be_bytes();
            let near = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            near.bind(&SocketAddr::new(IpAddr::from([127, 1, high, low]), 0).into())?;
            near.connect(&self.address.into())?;
            batch.push(near);
            if batch.len() == BATCH || number + 1 == connections {
                // Every listener is looked into, whoever chose: that costs both contestants the same.
                let accepted =
                    self.listeners.iter().map(|one| std::iter::from_fn(|| one.accept().ok()).count());
                if accepted.sum::<usize>() != batch.len() {
                    return Err("a connection that nobody got".into());
                }
                batch.clear();
            }
        }
        Ok(usage(std::process::id())?.since(before).cpu_us() / f64::from(connections))
    }

    /// Time of the program for each connection; an error if it did not choose for all of them.
    fn program_ns(&mut self, connections: u32) -> Result<f64, Failure> {
        let (ebpf, tally) = self.steering.as_mut().ok_or("nothing is attached")?;
        let of = |path: Path| -> Result<u64, Failure> { Ok(tally.get(&(path as u32), 0)?.iter().sum()) };
        let tallies = Path::ALL.iter().map(|path| of(*path)).collect::<Result<Vec<_>, _>>()?;
        // Segments of connections that are over may come after them; they take the same way through the program.
        let chosen = tallies.iter().sum::<u64>() - of(Path::Later)?;
        if of(Path::Kernel)? != 0 || chosen != u64::from(connections) {
            return Err(
                format!("the program chose for {chosen} of {connections} connections: {tallies:?}").into()
            );
        }
        let descriptor = program(ebpf)?.fd()?.try_clone()?;
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor_of(&descriptor)))?;
        let (time, times) = (number(&told, "run_time_ns")?, number(&told, "run_cnt")?);
        Ok(time / times)
    }
}

fn descriptor_of(program: &aya::programs::ProgramFd) -> i32 {
    use std::os::fd::AsFd as _;
    program.as_fd().as_raw_fd()
}

fn map(ebpf: &mut Ebpf, name: &str) -> Result<aya::maps::Map, Failure> {
    ebpf.take_map(name).ok_or_else(|| format!("the object has no map {name}").into())
}

fn program(ebpf: &mut Ebpf) -> Result<&mut SkReuseport, Failure> {
    Ok(ebpf.program_mut(steer::PROGRAM).ok_or("the object has no program")?.try_into()?)
}

/// The number after `name:` on a line of its own.
fn number(lines: &str, name: &str) -> Result<f64, Failure> {
    let line = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.ok_or_else(|| format!("the kernel does not tell {name}"))?.trim().parse()?)
}
