//! What another usher may take over from this one: every listening socket, while this one serves.
//!
//! Workers' sockets are not held here but found when somebody asks: one that retires closes its own, and the kernel must see
//! that they are closed. The one that takes over binds what it lacks.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::mpsc;

use super::assembly::{by_address, refs};
use super::control;
use crate::control::{Desk, Socket};
use crate::crew::{Crew, Member};
use crate::handover::{self, Belonging, Besides, Follower, Giver, Ledger, what};
use crate::observe::{self, Everybody};
use crate::ring::Io;
use crate::steering::Steering;
use crate::takeover::{self, Takeover};
use crate::worker::Listen;

/// Before there is anybody to ask for it.
pub(super) struct Estate {
    pub(super) ledger: Arc<Ledger>,
    belongings: Vec<Belonging>,
    takeover: Option<Arc<Takeover>>,
    lent: Lent,
}

/// Clients' sockets, and what another process may change while it has them, too: what steers them, how they wait.
#[derive(Clone)]
struct Lent {
    steering: Arc<Steering>,
    addresses: Vec<Vec<Weak<TcpListener>>>,
    clients: Vec<(&'static str, Weak<TcpListener>)>,
    io: Io,
}

/// To be had.
pub(super) struct Open {
    giver: Arc<Giver>,
    doors: Arc<OnceLock<Doors>>,
    handed_over: mpsc::UnboundedReceiver<()>,
    is_handed_over: bool,
}

/// Where others than clients come in.
struct Doors {
    admin: observe::server::Open,
    control: Option<crate::control::Open>,
}

// === impl Estate ===

impl Estate {
    /// The sockets of these.
    pub(super) fn of(
        members: &[Member],
        admin: &TcpListener,
        control: Option<&Socket>,
        takeover: Option<Arc<Takeover>>,
        steering: &Arc<Steering>,
        io: Io,
    ) -> io::Result<Self> {
        let mut clients = Vec::new();
        for (what, has_tls) in [(what::SECURE, true), (what::INSECURE, false)] {
            let sockets = in_order(members, has_tls);
            let first = sockets.first().and_then(|first| first.local_addr().ok());
            for socket in sockets {
                let is_first = socket.local_addr().ok() == first;
                clients.push((if is_first { what } else { what::SPARE }, Arc::downgrade(&socket)));
            }
        }
        let mut belongings: Vec<Belonging> = vec![(what::ADMIN, Arc::new(admin.try_clone()?))];
        if let Some(control) = control {
            belongings.push((what::CONTROL, Arc::new(control.listener().try_clone()?)));
        }
        let lent = Lent::of(steering, members, clients, io);
        Ok(Self { ledger: Arc::default(), belongings, takeover, lent })
    }

    /// It has come from another usher, which drains now: its workers' turn.
    pub(super) fn succeed(&self, former: Follower, crew: &Crew) -> io::Result<()> {
        self.lent.steer();
        crew.open();
        let (lent, takeover) = (self.lent.clone(), self.takeover.clone());
        let ended = move || takeover.iter().for_each(|takeover| takeover.forget_others());
        former.start(Arc::clone(&self.ledger), move || lent.reclaim(), ended)
    }

    /// From now on another usher may have it.
    pub(super) fn open(
        self,
        admin: observe::server::Open,
        socket: Option<Socket>,
        mut desk: Desk,
        workers: Everybody,
    ) -> io::Result<Open> {
        let (hand_over, handed_over) = mpsc::unbounded_channel();
        let doors = Arc::new(OnceLock::<Doors>::new());
        let to_close = Arc::clone(&doors);
        let (takeover, to_leave, to_keep) = (self.takeover.clone(), self.takeover.clone(), self.takeover);
        let (lent, clients, ledger) = (self.lent.clone(), self.lent.clients, Arc::clone(&self.ledger));
        let giver = Giver::new(
            self.belongings,
            move || {
                let mut besides = takeover.as_deref().map(of_takeover).unwrap_or_default();
                let living = |(what, socket): &(&'static str, Weak<TcpListener>)| -> Option<Belonging> {
                    Some((*what, socket.upgrade()? as _))
                };
                besides.belongings.extend(clients.iter().filter_map(living));
                besides
            },
            self.lent.io,
            self.ledger,
            move || {
                to_leave.iter().for_each(|takeover| takeover.leave());
                if let Some(doors) = to_close.get() {
                    doors.admin.leave();
                    doors.control.iter().for_each(crate::control::Open::leave);
                }
                let _ = hand_over.send(()); // the process is ending anyway
            },
            move || control::look(&workers).ok().map(|view| control::report(&view)),
        );
        let giver = giver.or_else_keeps(move || {
            lent.reclaim();
            // Not while a former one drains, which has connections of its own there; they are forgotten with its end.
            to_keep
                .iter()
                .filter(|_| ledger.former().is_none())
                .for_each(|takeover| takeover.forget_others());
        });
        let giver = Arc::new(giver);
        let asked = Arc::clone(&giver);
        desk.talk(handover::VERB, move |_, line| asked.give(line));
        let control = socket.map(|socket| crate::control::start(socket, desk)).transpose()?;
        let _ = doors.set(Doors { admin, control }); // once
        Ok(Open { giver, doors, handed_over, is_handed_over: false })
    }
}

/// What the next usher needs to go on with the apiserver's port.
fn of_takeover(takeover: &Takeover) -> Besides {
    match takeover.export() {
        Ok(takeover::Exported { descriptors, link, since }) => {
            let descriptors = descriptors.into_iter().map(|descriptor| (what::TAKEOVER, descriptor));
            let all = descriptors.chain(link.map(|link| (what::TAKEOVER_LINK, link)));
            let belongings = all.map(|(what, descriptor)| (what, Arc::new(descriptor) as _)).collect();
            Besides { belongings, takeover_since: since }
        }
        Err(error) => {
            tracing::warn!(%error, "takeover is not handed over: the next usher makes its own");
            Besides::default()
        }
    }
}

// === impl Lent ===

impl Lent {
    fn of(
        steering: &Arc<Steering>,
        members: &[Member],
        clients: Vec<(&'static str, Weak<TcpListener>)>,
        io: Io,
    ) -> Self {
        let weak = |sockets: &Vec<_>| sockets.iter().map(Arc::downgrade).collect();
        let addresses = by_address(members.iter().map(|member| &*member.listeners));
        let addresses = addresses.iter().map(weak).collect();
        Self { steering: Arc::clone(steering), addresses, clients, io }
    }

    /// From now on this process's program chooses.
    fn steer(&self) {
        let living = |sockets: &Vec<Weak<_>>| sockets.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        let addresses: Vec<_> = self.addresses.iter().map(living).collect();
        self.steering.reclaim(&addresses.iter().map(|sockets| refs(sockets)).collect::<Vec<_>>());
    }

    /// The same, and it alone accepts on them.
    fn reclaim(&self) {
        self.steer();
        for socket in self.clients.iter().filter_map(|(_, socket)| socket.upgrade()) {
            if let Err(error) = handover::suit(&socket, self.io) {
                tracing::warn!(%error, "a socket that another usher has had, too, cannot be set");
            }
        }
    }
}

/// As they were bound or handed over: first one of each worker, then the others.
fn in_order(members: &[Member], has_tls: bool) -> Vec<Arc<TcpListener>> {
    let of_one = |member: &Member| -> Vec<Arc<TcpListener>> {
        let those = |listen: &&Listen| listen.tls.is_some() == has_tls;
        member.listeners.iter().filter(those).map(|listen| Arc::clone(&listen.socket)).collect()
    };
    let of_all: Vec<_> = members.iter().map(of_one).collect();
    let rows = of_all.iter().map(Vec::len).max().unwrap_or(0);
    (0..rows).flat_map(|row| of_all.iter().filter_map(move |own| own.get(row)).cloned()).collect()
}

// === impl Open ===

impl Open {
    /// Done once another usher has it.
    pub(super) async fn handed_over(&mut self) {
        match self.handed_over.recv().await {
            Some(()) => self.is_handed_over = true,
            None => std::future::pending().await,
        }
    }

    /// Nobody gets it any more: this process ends, and where it listened nobody does.
    pub(super) fn give_up(&self) {
        self.giver.end();
    }

    /// The process ends.
    pub(super) fn close(mut self) {
        self.give_up();
        let is_handed_over = self.is_handed_over || self.handed_over.try_recv().is_ok();
        if let Some(Doors { control: Some(control), .. }) = self.doors.get()
            && !is_handed_over
        {
            control.close();
        }
    }
}
