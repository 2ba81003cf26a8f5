//! The program and its maps, whether we loaded them or a process before us did.

use std::collections::HashMap as Entries;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, SockMap};
use aya::programs::{ProgramError, SkLookup};
use aya::{EbpfError, EbpfLoader};
use usher_ebpf::takeover::{
    LISTENERS, MAPS, OWN, PLACES, PROGRAM, Path, Place, SWITCH, Source, Switch, TALLY,
};

use super::privileges;

/// Descriptors of the program and of its maps: [`MAPS`], in that order.
#[derive(Debug)]
pub(super) struct Kernel {
    program: OwnedFd,
    maps: [OwnedFd; MAPS.len()],
}

/// What the kernel does not do for us.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Without these it does nothing of the kind.
    #[error(transparent)]
    Privileges(#[from] privileges::Missing),
    /// It refuses the program or a map.
    #[error("the kernel does not take the program (Linux 5.15 or newer does): {}", chain(.0))]
    Load(#[from] EbpfError),
    /// The same, with what the verifier says.
    #[error("the kernel does not take the program (Linux 5.15 or newer does): {}", chain(.0))]
    Verify(#[from] ProgramError),
    /// A map cannot be read or written.
    #[error("the kernel does not take it into its table: {}", chain(.0))]
    Map(#[from] MapError),
    /// Another call failed.
    #[error("{what}: {error}")]
    Call {
        /// What was tried, and what may help.
        what: String,
        /// What the system said.
        error: io::Error,
    },
    /// The sockets that are to get the connections are closed.
    #[error("usher does not listen any more")]
    Closed,
}

/// An error with what is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}

impl Problem {
    pub(super) fn call(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |error| Self::Call { what: what.into(), error }
    }
}

// === impl Kernel ===

impl Kernel {
    /// Loads the program: the kernel's verifier looks at it. It is attached to nothing.
    ///
    /// # Errors
    /// No privileges, or what the verifier says.
    pub(super) fn load() -> Result<Self, Problem> {
        privileges::check()?;
        let object = aya::include_bytes_aligned!("../../../gateway-ebpf/object/takeover.o");
        let mut loaded = EbpfLoader::new().btf(None).load(object)?; // it asks for no type of the kernel's
        let copy = |descriptor: BorrowedFd<'_>| {
            descriptor.try_clone_to_owned().map_err(Problem::call("copying a descriptor"))
        };
        let program: &mut SkLookup = loaded.program_mut(PROGRAM).ok_or_else(strange)?.try_into()?;
        program.load()?;
        let program = copy(program.fd()?.as_fd())?;
        let map = |name: &str| match loaded.map(name) {
            Some(Map::SockMap(map) | Map::HashMap(map) | Map::Array(map) | Map::PerCpuArray(map)) => {
                copy(map.fd().as_fd())
            }
            _ => Err(strange()),
        };
        let [listeners, places, own, switch, tally] = MAPS;
        Ok(Self { program, maps: [map(listeners)?, map(places)?, map(own)?, map(switch)?, map(tally)?] })
    }

    /// As a process before us had it: the program, and [`MAPS`] in their order.
    ///
    /// # Errors
    /// Too few descriptors, or of other things.
    pub(super) fn of(descriptors: impl IntoIterator<Item = OwnedFd>) -> Result<Self, Problem> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(strange);
        let kernel = Self { program: next()?, maps: [next()?, next()?, next()?, next()?, next()?] };
        kernel.listeners()?;
        kernel.places()?;
        kernel.own()?;
        kernel.switch()?;
        kernel.paths()?;
        Ok(kernel)
    }

    /// Copies of all, for the process after us.
    ///
    /// # Errors
    /// No descriptor left.
    pub(super) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        std::iter::once(&self.program).chain(&self.maps).map(OwnedFd::try_clone).collect()
    }

    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    fn map(&self, name: &str) -> Result<Map, Problem> {
        let index = MAPS.iter().position(|map| *map == name).ok_or_else(strange)?;
        let copy = self.maps[index].try_clone().map_err(Problem::call("copying a descriptor"))?;
        Ok(Map::from_map_data(MapData::from_fd(copy)?)?)
    }

    fn listeners(&self) -> Result<SockMap<MapData>, Problem> {
        Ok(SockMap::try_from(self.map(LISTENERS)?)?)
    }

    fn places(&self) -> Result<HashMap<MapData, Place, u32>, Problem> {
        Ok(HashMap::try_from(self.map(PLACES)?)?)
    }

    fn switch(&self) -> Result<Array<MapData, Switch>, Problem> {
        Ok(Array::try_from(self.map(SWITCH)?)?)
    }

    /// Where our own connections come from.
    pub(super) fn own(&self) -> Result<HashMap<MapData, Source, u64>, Problem> {
        Ok(HashMap::try_from(self.map(OWN)?)?)
    }

    /// Connections go to that socket from now on, instead of any that there was at that index.
    pub(super) fn listen(&self, index: u32, socket: &impl AsRawFd) -> Result<(), Problem> {
        Ok(self.listeners()?.set(index, socket, 0)?)
    }

    /// These places are taken over, and no others.
    pub(super) fn take(&self, wanted: &[Place]) -> Result<(), Problem> {
        let mut places = self.places()?;
        let mut there: Entries<Place, u32> = places.iter().collect::<Result<_, _>>()?;
        for place in wanted {
            there.remove(place);
            places.insert(place, 0, 0)?;
        }
        for place in there.keys() {
            places.remove(place)?;
        }
        Ok(())
    }

    /// What happens when usher's sockets are gone.
    pub(super) fn close(&self, closed: bool) -> Result<(), Problem> {
        Ok(self.switch()?.set(0, Switch { closed: u32::from(closed) }, 0)?)
    }

    /// How many connections went each way, by [`Path`].
    pub(super) fn paths(&self) -> Result<[u64; Path::ALL.len()], Problem> {
        let tally = PerCpuArray::<_, u64>::try_from(self.map(TALLY)?)?;
        let mut paths = [0; Path::ALL.len()];
        for (path, count) in Path::ALL.iter().zip(&mut paths) {
            *count = tally.get(&(*path as u32), 0)?.iter().sum();
        }
        Ok(paths)
    }
}

/// The object is built from the same words: that cannot be, but for a broken build or a stranger's descriptors.
fn strange() -> Problem {
    Problem::Call {
        what: "the program is not what this usher knows".into(),
        error: io::ErrorKind::InvalidData.into(),
    }
}
