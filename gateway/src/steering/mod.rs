//! Which worker a connection comes to: a program in the kernel chooses, and is told here what it needs to know.
//!
//! Each listening address has a copy of the program (`usher_ebpf::steer`) with maps of its own ([`group`]). It knows
//! the workers' sockets, and from a table that is mapped into our memory ([`table`]) who of them serves and how much each
//! has to do: workers write there with plain stores, no system call. Without the program the kernel spreads connections
//! by a hash of their addresses, as it does anyway among sockets that share an address.
//!
//! Attaching is of the group of sockets, and replaces whatever was attached. Dropping a [`Steering`] does not detach: the
//! sockets may be another process's by then, with a program of its own, and with the last socket the kernel lets go
//! of the program by itself.

mod events;
mod fault;
mod group;
mod table;

pub use fault::Fault;
pub use group::Counts;
pub use table::{Line, State};
pub use usher_ebpf::steer::{Load, Path};

use std::net::TcpListener;
use std::str::FromStr;
use std::sync::Arc;

use crate::control::Section;
use group::Group;

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `--steering`.
    pub wish: Wish,
    /// What one source address may open.
    pub budget: Budget,
}

/// `--steering`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// If there is something to choose, and it can be had.
    #[default]
    Auto,
    /// In any case, or usher does not start.
    On,
    /// Not.
    Off,
}

/// New connections of one source address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// A second, in the long run; 0: as many as it likes.
    pub rate: u32,
    /// At once.
    pub burst: u32,
}

/// Who brings connections to workers, and why.
#[derive(Debug)]
pub struct Steering {
    groups: Vec<Group>,
    reason: String,
}

impl Steering {
    /// Chooses and, if that is what comes of it, steers the connections to each of these addresses from now on. Of each:
    /// its sockets, worker by worker.
    ///
    /// # Errors
    /// It was asked for and cannot be had.
    pub fn choose(settings: Settings, addresses: &[Vec<&TcpListener>]) -> Result<Self, Fault> {
        Self::chosen(settings, addresses, Self::start)
    }

    /// The same, but nothing is attached before [`Steering::reclaim`]: until then these sockets are another process's, too, and
    /// what that has attached is in force.
    ///
    /// # Errors
    /// As there.
    pub fn prepare(settings: Settings, addresses: &[Vec<&TcpListener>]) -> Result<Self, Fault> {
        Self::chosen(settings, addresses, Self::loaded)
    }

    fn chosen(
        settings: Settings,
        addresses: &[Vec<&TcpListener>],
        start: fn(Budget, &[Vec<&TcpListener>]) -> Result<Self, Fault>,
    ) -> Result<Self, Fault> {
        let workers = addresses.iter().map(Vec::len).max().unwrap_or(0);
        match settings.wish {
            Wish::Off => Ok(Self::off("asked for")),
            Wish::Auto if workers <= 1 && settings.budget.rate == 0 => {
                Ok(Self::off("one worker: there is nothing to choose"))
            }
            Wish::Auto | Wish::On => match start(settings.budget, addresses) {
                Err(fault) if settings.wish == Wish::Auto => {
                    let verifier = fault.log();
                    tracing::warn!(%fault, verifier, "the kernel spreads connections by a hash of their addresses");
                    Ok(Self::off(fault.in_short()))
                }
                started => started,
            },
        }
    }

    /// Steers from now on; at all of these addresses or, if one cannot be had, at none.
    ///
    /// # Errors
    /// The kernel does not take the program; no privileges; sockets that do not share an address.
    pub fn start(budget: Budget, addresses: &[Vec<&TcpListener>]) -> Result<Self, Fault> {
        let loaded = Self::loaded(budget, addresses)?;
        for (index, sockets) in addresses.iter().enumerate() {
            if let Err(fault) = loaded.groups[index].attach(sockets) {
                for sockets in &addresses[..index] {
                    group::detach(sockets);
                }
                return Err(fault.explained());
            }
        }
        Ok(loaded)
    }

    fn loaded(budget: Budget, addresses: &[Vec<&TcpListener>]) -> Result<Self, Fault> {
        let groups = addresses.iter().map(|sockets| Group::load(budget, sockets));
        let mut groups = groups.collect::<Result<Vec<_>, _>>().map_err(Fault::explained)?;
        groups.iter_mut().for_each(Group::listen_to_events);
        Ok(Self { groups, reason: "the kernel has taken the program".to_owned() })
    }

    /// Plain sockets that share an address.
    #[must_use]
    pub fn off(reason: impl Into<String>) -> Self {
        Self { groups: Vec::new(), reason: reason.into() }
    }

    /// Whether the program chooses.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.groups.is_empty()
    }

    /// `on` or `off`, as in metrics.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }

    /// Why, in a sentence for operators.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Where a worker says how it is.
    #[must_use]
    pub fn line(&self, worker: usize) -> Line {
        Line::new(self.groups.iter().map(|group| Arc::clone(group.table())).collect(), worker)
    }

    /// What a worker has said last; `None`: nobody is to be told.
    #[must_use]
    pub fn load(&self, worker: usize) -> Option<Load> {
        self.groups.first()?.table().read(worker)
    }

    /// Address by address how connections came to their workers.
    pub fn tallies(&self) -> impl Iterator<Item = (&str, Counts)> {
        self.groups.iter().map(|group| (group.address(), group.counts()))
    }

    /// For `usher status`.
    #[must_use]
    pub fn section(&self) -> Section {
        let mut sums = Counts::default();
        for (_, counts) in self.tallies() {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let taken = Path::ALL.iter().zip(sums).filter(|(_, count)| *count > 0);
        let ways: String = taken.map(|(path, count)| format!(", {count} {}", path.name())).collect();
        let mut section = Section::says(format!("{}: {}{ways}", self.mode(), self.reason));
        section.more.insert("mode".into(), self.mode().into());
        let paths = Path::ALL.iter().zip(sums).map(|(path, count)| (path.name().to_owned(), count.into()));
        section.more.insert("connections".into(), serde_json::Value::Object(paths.collect()));
        section
    }

    /// Another process has had these sockets, too, and what it had attached is in force: from now on this one's program chooses,
    /// or none if there is none.
    pub fn reclaim(&self, addresses: &[Vec<&TcpListener>]) {
        if !self.is_on() {
            return addresses.iter().for_each(|sockets| group::detach(sockets));
        }
        for (group, sockets) in self.groups.iter().zip(addresses) {
            if let Err(fault) = group.attach(sockets) {
                tracing::warn!(%fault, "connections are steered by another process's program");
            }
        }
    }
}

impl Default for Steering {
    fn default() -> Self {
        Self::off("asked for")
    }
}

impl Wish {
    /// As the flag has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl std::fmt::Display for Wish {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Auto, Self::On, Self::Off];
        let found = all.into_iter().find(|wish| wish.name() == name);
        found.ok_or_else(|| "wanted auto, on or off".to_owned())
    }
}

#[cfg(test)]
mod tests;
