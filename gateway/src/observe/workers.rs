//! Asking a worker for a look, through its mailbox.

use tokio::sync::oneshot;
use usher_flowcontrol::dump::Details;
use usher_flowcontrol::request_info::RequestInfo;

use super::{Answer, NoAnswer, View, Workers};
use crate::ring::Post;
use crate::worker::{Command, Described, Snapshot};

/// The one worker there is.
#[derive(Clone, Debug)]
pub struct OneWorker(pub Post<Command>);

impl Workers for OneWorker {
    fn look(&self) -> Answer<'_> {
        Box::pin(async {
            let (asker, answer) = oneshot::channel();
            self.0.send(Command::Snapshot(asker)).map_err(|_| NoAnswer::Gone)?;
            let snapshot = answer.await.map_err(|_| NoAnswer::Gone)?;
            Ok(View::of(*snapshot))
        })
    }
}

impl View {
    /// What a worker answered; made on the asker's thread.
    fn of(snapshot: Snapshot) -> Self {
        let Snapshot { counters, turned_away, glitched, core, requests, upstreams, draining, ring, .. } =
            snapshot;
        let details = requests.into_iter().map(|(tag, described)| (tag, details(&described))).collect();
        Self { snapshot: core, details, counters, turned_away, glitched, upstreams, draining, ring }
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
