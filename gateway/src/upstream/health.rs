//! Which servers are well, and which connections have been unused for too long.

use std::rc::{Rc, Weak};
use std::time::Duration;

use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use usher_flowcontrol::units::Nanos;

use super::{Attempt, Fault, Kind, Pool, Presents, Settings, Upload, Upstream};
use crate::ring;

/// How soon a server is asked again that was not well: it, or usher, has just been started perhaps.
const UNWELL_INTERVAL: Duration = Duration::from_secs(1);

/// Asks one server again and again, for as long as somebody holds it.
pub(super) async fn watch_over(upstream: Weak<Upstream>, pool: Weak<Pool>) {
    loop {
        let (Some(upstream), Some(pool)) = (upstream.upgrade(), pool.upgrade()) else { return };
        let settings = upstream.settings.clone();
        drop(upstream); // nothing is kept alive by being asked after
        let asked = ring::within(settings.health_timeout, is_well(&pool, &settings)).await;
        // A question that we could not ask tells nothing.
        let well = asked.unwrap_or(Some(false)).unwrap_or(pool.healthy.get());
        pool.answered.set(pool.answered.get() || well);
        if pool.healthy.replace(well) != well {
            tracing::warn!(server = %pool.server, well, "an apiserver's health changed");
        }
        drop(pool);
        let pause =
            if well { settings.health_interval } else { settings.health_interval.min(UNWELL_INTERVAL) };
        ring::sleep_until(later(pause)).await;
    }
}

/// `/readyz`, without a certificate: as a stranger, over HTTP/1.1. An apiserver that does not tell strangers (401, 403) is there and answers:
/// that must do. `None`: it could not be asked.
async fn is_well(pool: &Rc<Pool>, settings: &Settings) -> Option<bool> {
    let Ok(request) = Request::get("/readyz")
        .header(header::USER_AGENT, "usher")
        .header(header::HOST, pool.server.authority.as_str())
        .body(Upload::empty())
    else {
        return Some(false);
    };
    let (mut request, mut fresh) = (Box::new(request), false);
    loop {
        match pool.attempt(settings, Presents::Nothing, Kind::Stranger, request, fresh).await {
            Attempt::Answered(response) => {
                let status = response.status();
                let read = response.into_body().collect().await.is_ok(); // so that the connection is kept
                let silent = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
                return Some(read && (status.is_success() || silent));
            }
            Attempt::Unsent(unsent) if !fresh && !unsent.1.is_of_server() => {
                request = unsent.0;
                fresh = true;
            }
            Attempt::Unsent(unsent) if matches!(unsent.1, Fault::Starved(_)) => return None,
            Attempt::Unsent(_) | Attempt::Failed(_) => return Some(false),
        }
    }
}

/// Closes what has been unused for too long, for as long as somebody holds the servers.
pub(super) async fn sweep(upstream: Weak<Upstream>) {
    loop {
        let Some(upstream) = upstream.upgrade() else { return };
        let interval = upstream.settings.idle_timeout / 2;
        let stale = ring::now() - nanos(upstream.settings.idle_timeout);
        for pool in &upstream.servers {
            for idle in &pool.idle {
                idle.borrow_mut().retain(|connection| connection.since > stale);
            }
            for shared in &pool.shared {
                shared.borrow_mut().retain(|connection| {
                    !(connection.is_over() || connection.is_idle() && connection.idle_since.get() < stale)
                });
            }
        }
        drop(upstream);
        ring::sleep_until(later(interval)).await;
    }
}

fn later(interval: Duration) -> Nanos {
    ring::now() + nanos(interval)
}

fn nanos(duration: Duration) -> Nanos {
    Nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
