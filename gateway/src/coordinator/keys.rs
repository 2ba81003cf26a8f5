//! The keys of service-account tokens, from the apiserver's `/openid/v1/jwks` (RFC 7517).
//!
//! For operators who give no `--service-account-key-file`. The last good set stays while the apiserver is away.

use std::sync::Arc;
use std::time::Duration;

use super::Asker;
use super::fetch::{Fetcher, Whole};
use super::patience::Patience;
use crate::identity::{Authenticator, Keys};

/// Keys change when an administrator changes them, and old ones stay valid for as long as their tokens.
const EVERY: Duration = Duration::from_secs(5 * 60);

/// A document of a few keys has some KB.
const BYTES_MAX: usize = 1 << 20;

const REMEDY: &str = "give --service-account-key-file, or have --upstream-groups contain a group that may read \
    /openid/v1/jwks (by default system:serviceaccounts), with --proxy-client-cert-file to ask as system:usher";

/// Fetches them for ever.
pub(super) async fn refresh(fetcher: &Fetcher, asker: &Asker, authenticator: &Arc<Authenticator>) {
    let mut patience = Patience::new("service-account keys", REMEDY, EVERY);
    loop {
        let pause = patience.note(once(fetcher, asker, authenticator).await);
        tokio::time::sleep(pause).await;
    }
}

pub(super) async fn once(
    fetcher: &Fetcher,
    asker: &Asker,
    authenticator: &Authenticator,
) -> Result<(), String> {
    let mut document = Whole::at_most(BYTES_MAX);
    fetcher
        .get(&asker.question("/openid/v1/jwks"), &mut document)
        .await
        .map_err(|error| error.to_string())?;
    let keys = Keys::from_jwks(&document.bytes)?;
    let count = keys.len();
    if authenticator.set_fetched_keys(keys) {
        tracing::info!(count, "new service-account keys");
    }
    Ok(())
}
