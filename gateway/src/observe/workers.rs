//! Asking all workers for a look, through their mailboxes, and putting the answers together.
//!
//! All are asked at once. One that is being restarted is no reason not to answer: what it had counted is known. One that
//! does not answer although it is at work is.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::oneshot;
use usher_flowcontrol::dump::Details;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::snapshot;
use usher_flowcontrol::units::Nanos;

use super::dumps::ByTag;
use super::server::ANSWER_TIMEOUT;
use super::{Answer, NoAnswer, View, Workers};
use crate::coordinator::Seats;
use crate::crew::{Berth, Posts};
use crate::ring;
use crate::upstream;
use crate::worker::{Command, Described, Legacy, Snapshot};

/// One worker, for those who want to see how work spreads.
#[derive(Clone, Debug)]
pub struct Each {
    /// `worker-0` …
    pub name: String,
    /// The core that it is kept on.
    pub core: Option<usize>,
    /// What it does.
    pub state: State,
    /// How often it has died.
    pub deaths: u64,
    /// Its open connections.
    pub connections_open: u64,
    /// All that it has accepted.
    pub connections: u64,
    /// Its requests.
    pub requests: u64,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It serves.
    Serving,
    /// It is about to end, as it was told.
    Draining,
    /// It has ended, as it was told, and does not come back.
    Out,
    /// It has died, so long ago, and another one is about to take its place.
    Restarting(Nanos),
}

impl State {
    /// What it is called in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Out => "out",
            Self::Restarting(_) => "restarting",
        }
    }

    /// All that [`State::name`] may say.
    pub const NAMES: [&str; 4] = ["serving", "draining", "out", "restarting"];
}

/// What a worker answered, and what is known of its former incarnations.
struct Report {
    berth: Berth,
    snapshot: Option<Box<Snapshot>>,
    legacy: Legacy,
}

/// All workers, and who watches over the levels that they share.
#[derive(Clone, Debug)]
pub struct Everybody {
    /// The workers.
    pub posts: Posts,
    /// `None`: one worker has the levels for itself.
    pub seats: Option<Arc<Seats>>,
}

impl Workers for Everybody {
    fn look(&self) -> Answer<'_> {
        Box::pin(async {
            let reports = try_join_all(self.posts.berths().into_iter().map(Report::of)).await?;
            let seats = self.seats.as_ref();
            let view = View::of(reports, seats.map(|seats| seats.snapshot()));
            Ok(View { starts: seats.map(|seats| seats.starts()), ..view })
        })
    }
}

impl Report {
    async fn of(berth: Berth) -> Result<Self, NoAnswer> {
        match in_time(Self::ask(&berth)).await {
            Some(answer) => answer.map(|(snapshot, legacy)| Self { berth, snapshot, legacy }),
            None => Err(NoAnswer::Late(berth.name)),
        }
    }

    /// Its snapshot, if it is at work, and what was counted before.
    async fn ask(berth: &Berth) -> Result<(Option<Box<Snapshot>>, Legacy), NoAnswer> {
        let Some(post) = &berth.post else { return Ok((None, berth.legacy())) };
        let (asker, answer) = oneshot::channel();
        if post.send(Command::Snapshot(asker)).is_err() && !post.is_for_nobody() {
            return Err(NoAnswer::Stuck(berth.name.clone()));
        }
        if let Ok(snapshot) = answer.await {
            let legacy = berth.legacy();
            // If it has died since, what it answered is part of what it left.
            let lives = legacy.ended < berth.started;
            return Ok((Some(snapshot).filter(|_| lives), legacy));
        }
        loop {
            let legacy = berth.legacy();
            if legacy.ended >= berth.started {
                return Ok((None, legacy));
            }
            tokio::time::sleep(LAST_WORDS).await; // it is about to leave what it has counted
        }
    }
}

/// Between two looks whether a worker that is ending has left its numbers. It closes its connections before.
const LAST_WORDS: Duration = Duration::from_millis(1);

async fn in_time<F: Future>(answer: F) -> Option<F::Output> {
    tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok()
}

impl View {
    /// What all workers answered; made on the asker's thread.
    fn of(reports: Vec<Report>, levels: Option<snapshot::Snapshot>) -> Self {
        let mut view = Self::default();
        let (mut cores, mut requests, mut past) = (Vec::new(), Vec::new(), Vec::new());
        for Report { berth, snapshot, legacy } in reports {
            let mut counters = legacy.counters;
            view.turned_away.add(&legacy.turned_away);
            view.glitched.add(&legacy.glitched);
            view.ring.add(&legacy.ring);
            let mut state = match berth.down_since {
                _ if berth.retired && berth.post.is_some() => State::Draining, // it is ending at this moment
                _ if berth.retired => State::Out,
                Some(since) => State::Restarting(ring::precise() - since),
                None => State::Restarting(Nanos::ZERO),
            };
            let (mut core, mut described) = (None, Vec::new());
            if let Some(snapshot) = snapshot {
                let upstreams;
                let draining;
                Snapshot { core, requests: described, upstreams, draining, .. } = *snapshot;
                counters.add(&snapshot.counters);
                view.turned_away.add(&snapshot.turned_away);
                view.glitched.add(&snapshot.glitched);
                view.ring.add(&snapshot.ring);
                merge_upstreams(&mut view.upstreams, upstreams);
                state = if draining { State::Draining } else { State::Serving };
            }
            past.push(legacy.core);
            cores.push(core);
            requests.push(described);
            view.workers.push(Each {
                name: berth.name,
                core: berth.core,
                state,
                deaths: berth.deaths,
                connections_open: counters.connections_open,
                connections: counters.connections_accepted,
                requests: counters.requests,
            });
            view.counters.add(&counters);
        }
        let is_leaving = |worker: &Each| matches!(worker.state, State::Draining | State::Out);
        view.draining = !view.workers.is_empty() && view.workers.iter().all(is_leaving);
        (view.snapshot, view.details) = match levels {
            Some(levels) => together(levels, &cores, requests),
            None => alone(cores, requests),
        };
        if let Some(snapshot) = &mut view.snapshot {
            past.iter().for_each(|past| past.join(snapshot));
        }
        view
    }
}

/// Levels that workers share, and what their requests are about.
fn together(
    levels: snapshot::Snapshot,
    cores: &[Option<snapshot::Snapshot>],
    requests: Vec<Requests>,
) -> (Option<snapshot::Snapshot>, ByTag) {
    let snapshot::Merged { snapshot, owners } = snapshot::merge(levels, cores);
    let requests: Vec<HashMap<_, _>> = requests.into_iter().map(HashMap::from_iter).collect();
    let described = |(worker, tag): (usize, u64)| requests.get(worker)?.get(&tag).map(details);
    let tagged = (0..).zip(owners).filter_map(|(tag, owner)| Some((tag, described(owner)?)));
    // What is in force is what all have been told; one worker alone counts the mandatory levels as its first.
    let generation = cores.iter().flatten().map(|core| core.generation).min().unwrap_or(0) + 1;
    (Some(snapshot::Snapshot { generation, ..snapshot }), tagged.collect())
}

/// The levels of one worker, and what its requests are about.
fn alone(
    cores: Vec<Option<snapshot::Snapshot>>,
    requests: Vec<Requests>,
) -> (Option<snapshot::Snapshot>, ByTag) {
    let details = requests.into_iter().flatten().map(|(tag, described)| (tag, details(&described)));
    (cores.into_iter().flatten().next(), details.collect())
}

/// What a worker's requests are about, by tag.
type Requests = Vec<(u64, Described)>;

/// Workers have connections of their own to the same apiservers; one is well if it is for any of them: who has just
/// begun has not asked yet.
fn merge_upstreams(all: &mut Vec<upstream::Look>, of_worker: Vec<upstream::Look>) {
    for look in of_worker {
        match all.iter_mut().find(|known| known.server == look.server) {
            Some(known) => {
                known.healthy |= look.healthy;
                known.http1_idle += look.http1_idle;
                known.http1_unasked += look.http1_unasked;
                known.http2 += look.http2;
            }
            None => all.push(look),
        }
    }
}

/// What a request is about, for the tables.
fn details(described: &Described) -> Details<'static> {
    let target = described.target.path_and_query().map_or("/", |target| target.as_str());
    let user = described.user.name.clone().into();
    let Ok(info) = RequestInfo::parse(described.method.as_str(), target) else {
        return Details { user, ..Details::default() }; // it would not have come that far
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned().into();
    Details {
        user,
        verb: info.verb().to_owned().into(),
        path: text(info.path()),
        namespace: text(info.namespace()),
        name: text(info.name()),
        api_group: text(info.api_group()),
        api_version: text(info.api_version()),
        resource: text(info.resource()),
        subresource: text(info.subresource()),
    }
}
