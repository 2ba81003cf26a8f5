//! One listening address: its copy of the program and its maps.

use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, SockMap};
use aya::programs::SkReuseport;
use aya::{Ebpf, EbpfLoader};
use usher_ebpf::steer::{self, Path, Rules, SLOTS};

use super::table::Table;
use super::{Budget, Fault, events};

/// A copy of the program, for the sockets of one address.
pub(super) struct Group {
    ebpf: Ebpf,
    address: String,
    table: Arc<Table>,
    tally: PerCpuArray<MapData, u64>,
}

/// How many connections took which path to their worker since the program was loaded, in order of [`Path::ALL`].
pub type Counts = [u64; Path::ALL.len()];

/// What `cargo xtask ebpf` built.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway-ebpf/object/steer.o"));

impl Group {
    /// Has the kernel verify a copy, and tells it all that it needs to know of these sockets, worker by worker. Nobody
    /// serves yet.
    pub(super) fn load(budget: Budget, sockets: &[&TcpListener]) -> Result<Self, Fault> {
        let first = sockets.first().ok_or(Fault::Missing("sockets"))?;
        let address = first.local_addr().map_err(Fault::Socket)?.to_string();
        let slots = u32::try_from(sockets.len()).ok().filter(|count| *count <= SLOTS);
        let slots = slots.ok_or(Fault::Workers { workers: sockets.len(), max: SLOTS })?;
        let level = events::level();
        let mut ebpf = EbpfLoader::new().override_global(events::LEVEL, &level, false).load(OBJECT)?;
        program(&mut ebpf)?.load().map_err(Fault::Program)?;
        // Taken out after that: the program refers to them while it is loaded.
        let Some(Map::Array(loads)) = ebpf.take_map(steer::LOADS) else {
            return Err(Fault::Missing(steer::LOADS));
        };
        let table = Table::map(loads.fd().as_fd()).map_err(Fault::Mapping)?;
        let rules = Rules { slots, budget: budget.rate, burst: budget.burst, reserved: 0 };
        let mut group =
            Self { tally: taken(&mut ebpf, steer::TALLY)?, table: Arc::new(table), address, ebpf };
        group.fill(rules, sockets)?;
        Ok(group)
    }

    fn fill(&mut self, rules: Rules, sockets: &[&TcpListener]) -> Result<(), Fault> {
        let filled = |map| move |source| Fault::Filling { map, source };
        let mut all: Array<MapData, Rules> = taken(&mut self.ebpf, steer::RULES)?;
        all.set(0, rules, 0).map_err(filled(steer::RULES))?;
        let mut places: SockMap<MapData> = taken(&mut self.ebpf, steer::SOCKETS)?;
        for (slot, socket) in (0..).zip(sockets) {
            places.set(slot, *socket, 0).map_err(filled(steer::SOCKETS))?;
        }
        Ok(())
    }

    /// From now on it chooses, for all sockets of that address.
    pub(super) fn attach(&self, sockets: &[&TcpListener]) -> Result<(), Fault> {
        let socket = sockets.first().ok_or(Fault::Missing("sockets"))?;
        let address = socket.local_addr().map_err(Fault::Socket)?;
        let program = self.ebpf.program(steer::PROGRAM).ok_or(Fault::Missing(steer::PROGRAM))?;
        let program: &SkReuseport = program.try_into().map_err(|_| Fault::Missing(steer::PROGRAM))?;
        program.attach(socket).map_err(|source| Fault::Attaching { address, source })
    }

    /// What it has to say goes to the log, if anybody wants to read it.
    pub(super) fn listen_to_events(&mut self) {
        events::listen(&mut self.ebpf, &self.address);
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What is not known is 0: the map is there as long as this is.
    pub(super) fn counts(&self) -> Counts {
        let count = |path: Path| {
            let of_each_cpu = self.tally.get(&(path as u32), 0);
            of_each_cpu.map_or(0, |counts| counts.iter().sum())
        };
        Path::ALL.map(count)
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Group").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The kernel's hash chooses again, whoever's program was attached.
pub(super) fn detach(sockets: &[&TcpListener]) {
    if let Some(socket) = sockets.first()
        && let Err(error) = SkReuseport::detach(socket)
    {
        tracing::debug!(%error, "nothing was attached");
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut SkReuseport, Fault> {
    let program = ebpf.program_mut(steer::PROGRAM).ok_or(Fault::Missing(steer::PROGRAM))?;
    program.try_into().map_err(|_| Fault::Missing(steer::PROGRAM))
}

/// A map, of its kind.
fn taken<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Fault> {
    let map = ebpf.take_map(name).ok_or(Fault::Missing(name))?;
    T::try_from(map).map_err(|source| Fault::Filling { map: name, source })
}
