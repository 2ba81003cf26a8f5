//! Takeover: connections to an apiserver's own address and port come to usher, while the apiserver keeps its socket and
//! knows nothing of it.
//!
//! A program in the kernel (`usher_ebpf::takeover`) is asked whenever a connection begins and says whose it is. It is
//! attached by a *link*, a descriptor of this process: when the process ends, however it ends, the kernel closes the
//! link and the port is the apiserver's again (fail-open). In fail-closed the link has a name on the bpf filesystem, too, and
//! outlives the process: then nobody is answered until usher is back, or `usher release` removes the name.
//!
//! - [`plan`]: what is to be taken over. [`kernel`], [`link`]: program, maps, attachment. [`privileges`]: what that asks for.
//! - [`own`]: usher's own connections to the apiserver pass. [`relay`]: so does the apiserver's own client, through usher.
//!
//! What is where, for the next process: [`Takeover::export`], [`Takeover::adopt`].

mod kernel;
mod link;
mod own;
mod plan;
mod privileges;
mod relay;

pub use kernel::Problem;
pub(crate) use plan::places;
pub use plan::{Mode, Plan};
pub use relay::{Relayed, Relays};

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use usher_ebpf::takeover::{self as words, Place, listener};

use crate::control::Section;
use crate::ring::{self, Passage};
use kernel::Kernel;
use own::Own;

/// The port of an apiserver, ours to take and to give back.
pub struct Takeover {
    plan: Plan,
    kernel: Kernel,
    own: Arc<Own>,
    relays: Arc<Relays>,
    hold: Mutex<Hold>,
}

/// Who gets the connections of each address family: one socket, which stands for all of its group. Not held: when the
/// workers close theirs, the kernel must see it.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    v4: Weak<TcpListener>,
    v6: Weak<TcpListener>,
}

/// Whether we have the port.
#[derive(Debug)]
struct Hold {
    sockets: Sockets,
    link: Option<OwnedFd>,
    /// The usher before us had been told to give the port back: so it stays, until it is told otherwise.
    rests: bool,
    /// Since when it is so: time since 1970.
    since: Duration,
}

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whose the port is without usher.
    pub mode: Mode,
    /// What is taken over.
    pub places: Vec<SocketAddr>,
    /// Usher has it; else the apiserver.
    pub held: bool,
    /// Since then: time since 1970.
    pub since: Duration,
    /// How many connections went each way, by `usher_ebpf::takeover::Path`; `None`: the kernel does not say.
    pub paths: Option<[u64; words::Path::ALL.len()]>,
    /// Own connections to the apiserver open now, and how many did not come about because there were too many.
    pub own: (u64, u64),
    /// The apiserver's own client.
    pub relayed: Relayed,
}

/// What one process hands to the next.
#[derive(Debug)]
pub struct Exported {
    /// The program and its maps, in this order. Of the form `usher_ebpf::takeover::FORM`: who hands over says so.
    pub descriptors: Vec<OwnedFd>,
    /// What attaches the program; `None`: usher had given the port back.
    pub link: Option<OwnedFd>,
    /// Since when it is so: time since 1970. `None`: that is not known.
    pub since: Option<Duration>,
}

/// `--takeover-pin-dir`, unless another is given.
pub const PINS: &str = "/sys/fs/bpf/usher";
/// Name of the link among the pins, and of one that is about to get that name.
const LINK: &str = "takeover";
const NEXT: &str = "takeover-next"; // the bpf filesystem takes no dots

// === impl Takeover ===

impl Takeover {
    /// Loads what is needed and takes nothing yet: [`Takeover::take`] does.
    ///
    /// # Errors
    /// The kernel does not do it; says what is missing.
    pub fn load(plan: Plan, sockets: Sockets) -> Result<Arc<Self>, Problem> {
        let hold = Hold { sockets, rests: false, link: None, since: ring::date() };
        Self::new(plan, Kernel::load()?, hold)
    }

    /// Goes on with the program, the maps and the link of the process before. Nothing changes in the kernel before
    /// [`Takeover::take`]: if this process dies until then, the other one goes on.
    ///
    /// # Errors
    /// They are not what this version knows.
    pub fn adopt(plan: Plan, sockets: Sockets, before: Exported) -> Result<Arc<Self>, Problem> {
        let since = before.since.unwrap_or_else(ring::date);
        let hold = Hold { sockets, rests: before.link.is_none(), link: before.link, since };
        Self::new(plan, Kernel::of(before.descriptors)?, hold)
    }

    fn new(plan: Plan, kernel: Kernel, hold: Hold) -> Result<Arc<Self>, Problem> {
        let own = Arc::new(Own::new(plan.places.clone(), &kernel)?);
        let relays = Relays::new(plan.apiservers.clone(), Arc::clone(&own) as Arc<dyn Passage>);
        Ok(Arc::new(Self { plan, kernel, own, relays, hold: Mutex::new(hold) }))
    }

    /// By which usher's own connections get to the apiserver.
    #[must_use]
    pub fn passage(&self) -> Arc<dyn Passage> {
        Arc::clone(&self.own) as Arc<dyn Passage>
    }

    /// Where the apiserver's own client goes.
    #[must_use]
    pub fn relays(&self) -> Arc<Relays> {
        Arc::clone(&self.relays)
    }

    /// usher serves: the port is taken, unless it was given back before this process began.
    ///
    /// # Errors
    /// As [`Takeover::take`].
    pub fn begin(&self) -> Result<(), Problem> {
        let mut hold = self.hold();
        // The one before us may have been told so while we were getting ready.
        let detached = hold.link.take_if(|link| !link::is_attached(link.as_fd())).is_some();
        if detached {
            hold.since = ring::date();
        }
        if std::mem::take(&mut hold.rests) || detached {
            tracing::info!("takeover: the port stays the apiserver's, as before: `usher take` takes it");
            return Ok(());
        }
        drop(hold);
        self.take().map(drop)
    }

    /// From now on connections come to usher. False: they did so before.
    ///
    /// # Errors
    /// The kernel says no, or usher drains.
    pub fn take(&self) -> Result<bool, Problem> {
        let mut hold = self.hold();
        let wanted: Vec<Place> =
            self.plan.places.iter().map(|place| Place::new(place.ip(), place.port())).collect();
        if !self.listen(&hold.sockets)? {
            return Err(Problem::Closed);
        }
        self.kernel.take(&wanted)?;
        self.kernel.close(self.plan.is_closed())?;
        if let Some(link) = hold.link.as_ref().filter(|link| link::is_attached(link.as_fd())) {
            self.name_as_planned(link)?;
            return Ok(false);
        }
        let link = link::attach(self.kernel.program())
            .map_err(Problem::call("attaching the program to the network namespace"))?;
        if self.plan.is_closed() {
            self.pin(&link)?;
        } else {
            release_pinned(&self.plan.pins)?; // of a time when usher was fail-closed
        }
        (hold.rests, hold.link, hold.since) = (false, Some(link), ring::date());
        drop(hold);
        self.own.sweep(&self.kernel)?;
        let places = self.shown_places();
        tracing::info!(mode = self.plan.mode.name(), places, "takeover: the apiserver's port is usher's now");
        Ok(true)
    }

    /// Before a worker closes the sockets that stood for their groups: from now on these do. A family that none of them takes
    /// stays as it is.
    ///
    /// # Errors
    /// The kernel says no.
    pub fn stand_in(&self, sockets: Sockets) -> Result<(), Problem> {
        let hold = &mut *self.hold();
        // While another process has the port, what its program knows is that one's to say.
        if hold.link.is_some() {
            self.listen(&sockets)?;
        }
        let Sockets { v4, v6 } = sockets;
        for (new, place) in [(v4, &mut hold.sockets.v4), (v6, &mut hold.sockets.v6)] {
            if new.strong_count() > 0 {
                *place = new;
            }
        }
        Ok(())
    }

    /// Connections are for these. False: all of them are closed.
    fn listen(&self, Sockets { v4, v6 }: &Sockets) -> Result<bool, Problem> {
        let (v4, v6) = (v4.upgrade(), v6.upgrade());
        for (socket, is_v6) in [(&v4, false), (&v6, true)] {
            if let Some(socket) = socket {
                self.kernel.listen(listener(is_v6), &**socket)?;
            }
        }
        Ok(v4.is_some() || v6.is_some())
    }

    /// From now on connections go to the apiserver. False: they did so before. Those that usher has stay.
    ///
    /// # Errors
    /// The name of the link cannot be removed.
    pub fn release(&self) -> Result<bool, Problem> {
        let mut hold = self.hold();
        let Some(link) = hold.link.take() else { return Ok(false) };
        let _ = link::detach(link.as_fd()); // whoever else has it open; else it ends with the next line
        drop(link);
        hold.since = ring::date();
        drop(hold);
        release_pinned(&self.plan.pins)?;
        let places = self.shown_places();
        tracing::info!(places, "takeover: the port is the apiserver's again");
        Ok(true)
    }

    /// Before usher ends: in fail-open the port is given back while its workers still take what has come to them; in
    /// fail-closed it stays nobody's. True if it was given back. The link is not detached, only let go of: an usher that is
    /// about to take over may have it by now, and goes on with it.
    pub fn end(&self) -> bool {
        let ends = !self.plan.is_closed() && self.hold().link.take().is_some();
        if ends {
            tracing::info!(places = self.shown_places(), "takeover: the port is let go of");
        }
        ends
    }

    /// Everything that the next process needs to go on.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn export(&self) -> std::io::Result<Exported> {
        let hold = self.hold();
        let link = hold.link.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(Exported { descriptors: self.kernel.descriptors()?, link, since: Some(hold.since) })
    }

    /// The next process has it: this one lets go of the link without detaching it. Its own connections are still known.
    pub fn leave(&self) {
        self.hold().link = None;
    }

    /// No other usher goes on with the program: what one has left among the connections that pass is forgotten. Not if the
    /// port is not ours any more: the process after us has connections of its own there, and will forget both of us; and
    /// taking the port again begins with this.
    pub fn forget_others(&self) {
        if self.hold().link.is_none() {
            return;
        }
        match self.own.sweep(&self.kernel) {
            Ok(0) => {}
            Ok(left) => {
                tracing::info!(left, "takeover: connections that another usher has left are forgotten")
            }
            Err(problem) => {
                tracing::warn!(%problem, "takeover: connections that another usher has left still pass")
            }
        }
    }

    /// How it stands.
    #[must_use]
    pub fn look(&self) -> Look {
        let (held, since) = {
            let hold = self.hold();
            (hold.link.as_ref().is_some_and(|link| link::is_attached(link.as_fd())), hold.since)
        };
        Look {
            mode: self.plan.mode,
            places: self.plan.places.clone(),
            held,
            since,
            paths: self.kernel.paths().ok(),
            own: (self.own.open(), self.own.refused()),
            relayed: self.relays.look(),
        }
    }

    /// A link that we have from the process before us: it has a name in fail-closed, and none in fail-open, whatever it had.
    fn name_as_planned(&self, link: &OwnedFd) -> Result<(), Problem> {
        let name = self.plan.pins.join(LINK);
        match (self.plan.is_closed(), name.exists()) {
            (true, false) => self.pin(link),
            (false, true) => {
                remove(&name).map(drop).map_err(Problem::call(format!("removing {}", name.display())))
            }
            _ => Ok(()),
        }
    }

    /// Gives the link its name, in the place of one that a process before us has left.
    fn pin(&self, link: &OwnedFd) -> Result<(), Problem> {
        let folder = &self.plan.pins;
        let failed = || {
            Problem::call(format!(
                "--takeover-pin-dir={}: it must be on a bpf filesystem (mount -t bpf bpf /sys/fs/bpf) and writable",
                folder.display()
            ))
        };
        let (next, name) = (folder.join(NEXT), folder.join(LINK));
        std::fs::create_dir_all(folder).map_err(failed())?;
        remove(&next).map_err(failed())?;
        link::pin(link.as_fd(), &next).map_err(failed())?;
        if let Ok(before) = link::pinned(&name) {
            let _ = link::detach(before.as_fd()); // at once: as long as it is attached it refuses our own connections
        }
        std::fs::rename(&next, &name).map_err(failed())
    }

    fn shown_places(&self) -> String {
        let shown: Vec<String> = self.plan.places.iter().map(SocketAddr::to_string).collect();
        shown.join(",")
    }

    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the link that a fail-closed usher has left in that folder, whether one runs or not. False: there is none.
///
/// # Errors
/// It is there and cannot be removed.
pub fn release_pinned(folder: &Path) -> Result<bool, Problem> {
    let mut released = false;
    for path in [folder.join(LINK), folder.join(NEXT)] {
        if !path.exists() {
            continue;
        }
        if let Ok(link) = link::pinned(&path) {
            let _ = link::detach(link.as_fd()); // whoever else has it open; else it ends with its name
        }
        let what = || format!("{} cannot be removed: only root may", path.display());
        released |= remove(&path).map_err(|error| Problem::Call { what: what(), error })?;
    }
    Ok(released)
}

/// The usher before us had the port and we are not to have it: it goes back to the apiserver, in fail-closed, too.
pub fn give_back(link: OwnedFd, folder: &Path) {
    if let Err(error) = link::detach(link.as_fd()) {
        tracing::error!(%error, "the usher before us still keeps a port if it was fail-closed: `usher release` gives it back");
        return;
    }
    tracing::info!("takeover: the port of the usher before us is the apiserver's again");
    let name = folder.join(LINK);
    if link::pinned(&name).is_ok_and(|named| !link::is_attached(named.as_fd())) {
        let _ = remove(&name); // it holds nothing any more
    }
}

/// The name of a link that a fail-closed usher has left in that folder.
#[must_use]
pub fn left_behind(folder: &Path) -> Option<PathBuf> {
    Some(folder.join(LINK)).filter(|path| path.exists())
}

/// False: there was none.
fn remove(path: &Path) -> std::io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

// === impl Sockets ===

impl Sockets {
    /// The first listening socket that can take connections of each family.
    #[must_use]
    pub fn among<'a>(sockets: impl IntoIterator<Item = &'a Arc<TcpListener>>) -> Self {
        let mut chosen = Self::default();
        for socket in sockets {
            let (v4, v6) = families(socket);
            for (takes, place) in [(v4, &mut chosen.v4), (v6, &mut chosen.v6)] {
                if takes && place.strong_count() == 0 {
                    *place = Arc::downgrade(socket);
                }
            }
        }
        chosen
    }

    /// Families that none of them takes, by an address to listen on for it.
    pub fn lacking(&self) -> impl Iterator<Item = std::net::IpAddr> {
        let v4 = (self.v4.strong_count() == 0).then_some(std::net::Ipv4Addr::LOCALHOST.into());
        let v6 = (self.v6.strong_count() == 0).then_some(std::net::Ipv6Addr::LOCALHOST.into());
        [v4, v6].into_iter().flatten()
    }
}

/// Whether a socket takes connections over IPv4, and over IPv6. Where it listens does not matter: the program hands them
/// over whatever their address is.
fn families(socket: &TcpListener) -> (bool, bool) {
    match socket.local_addr() {
        Ok(SocketAddr::V4(_)) => (true, false),
        Ok(SocketAddr::V6(_)) => (!socket2::SockRef::from(socket).only_v6().unwrap_or(true), true),
        Err(_) => (false, false),
    }
}

// === impl Look ===

impl Look {
    /// For `usher status`.
    #[must_use]
    pub fn section(&self) -> Section {
        let more = match self.json() {
            serde_json::Value::Object(more) => more.into_iter().collect(),
            _ => Default::default(),
        };
        Section { summary: self.to_string(), more }
    }

    fn json(&self) -> serde_json::Value {
        let places: Vec<String> = self.places.iter().map(SocketAddr::to_string).collect();
        let connections = self.paths.map(|paths| {
            let named = words::Path::ALL.iter().zip(paths);
            named
                .map(|(path, count)| (path.name().to_owned(), count.into()))
                .collect::<serde_json::Map<_, _>>()
        });
        serde_json::json!({
            "mode": self.mode.name(),
            "addresses": places,
            "owner": self.owner(),
            "since": self.since(),
            "connections": connections,
            "own_open": self.own.0,
            "relayed": self.relayed.relayed,
            "relays_open": self.relayed.open,
        })
    }

    /// Whose the port is.
    #[must_use]
    pub fn owner(&self) -> &'static str {
        if self.held { "usher" } else { "apiserver" }
    }

    /// Since when, as RFC 3339 has it.
    #[must_use]
    pub fn since(&self) -> String {
        let seconds = i64::try_from(self.since.as_secs()).unwrap_or(i64::MAX);
        let moment = time::OffsetDateTime::from_unix_timestamp(seconds).ok();
        let format = &time::format_description::well_known::Rfc3339;
        moment.and_then(|moment| moment.format(format).ok()).unwrap_or_default()
    }
}

impl fmt::Display for Look {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.places.iter().map(SocketAddr::to_string).collect();
        write!(
            formatter,
            "{}: {} is {}'s since {}",
            self.mode.name(),
            places.join(", "),
            if self.held { "usher" } else { "the apiserver" },
            self.since()
        )?;
        if let Some(paths) = self.paths {
            for (path, count) in words::Path::ALL.iter().zip(paths) {
                write!(formatter, ", {count} {}", path.name())?;
            }
        }
        write!(formatter, "; {} of the apiserver's own client relayed", self.relayed.relayed)
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Takeover")
            .field("plan", &self.plan)
            .field("hold", &*self.hold())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
