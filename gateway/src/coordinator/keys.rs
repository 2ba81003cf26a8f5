//! The keys of service-account tokens, from the apiserver's `/openid/v1/jwks` (RFC 7517), and their issuer, from its
//! `/.well-known/openid-configuration` (OpenID Connect Discovery 1.0).
//!
//! For operators who give no `--service-account-key-file`, and no `--service-account-issuer`. The last good set stays while the apiserver is away.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::Asker;
use super::fetch::{Fetcher, Whole};
use super::patience::Patience;
use crate::identity::{Authenticator, Keys};

/// Keys change when an administrator changes them, and old ones stay valid for as long as their tokens.
const EVERY: Duration = Duration::from_secs(5 * 60);

/// A document of a few keys has some KB.
const BYTES_MAX: usize = 1 << 20;

const REMEDY: &str = "give --service-account-issuer and --service-account-key-file, or have --upstream-groups contain \
    a group that may read /openid/v1/jwks (by default system:serviceaccounts), with --proxy-client-cert-file to ask \
    as system:usher; until then service accounts share the flows of the unauthenticated";

/// Fetches them for ever.
pub(super) async fn refresh(
    fetcher: &Fetcher,
    asker: &Asker,
    authenticator: &Arc<Authenticator>,
    issuer_too: bool,
) {
    let mut patience = Patience::new("service-account keys", REMEDY, EVERY);
    loop {
        let pause = patience.note(once(fetcher, asker, authenticator, issuer_too).await);
        tokio::time::sleep(pause).await;
    }
}

pub(super) async fn once(
    fetcher: &Fetcher,
    asker: &Asker,
    authenticator: &Authenticator,
    issuer_too: bool,
) -> Result<(), String> {
    if issuer_too {
        let document = document(fetcher, asker, "/.well-known/openid-configuration").await?;
        let Configuration { issuer } = serde_json::from_slice(&document)
            .map_err(|error| format!("/.well-known/openid-configuration names no issuer: {error}"))?;
        if authenticator.set_fetched_issuer(issuer.clone()) {
            tracing::info!(issuer, "issuer of service-account tokens");
        }
    }
    let keys = Keys::from_jwks(&document(fetcher, asker, "/openid/v1/jwks").await?)?;
    let count = keys.len();
    if authenticator.set_fetched_keys(keys) {
        tracing::info!(count, "new service-account keys");
    }
    Ok(())
}

/// What is of interest of it.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
}

async fn document(fetcher: &Fetcher, asker: &Asker, path: &'static str) -> Result<Vec<u8>, String> {
    let mut document = Whole::at_most(BYTES_MAX);
    fetcher.get(&asker.question(path), &mut document).await.map_err(|error| error.to_string())?;
    Ok(document.bytes)
}
