//! Bearer tokens that usher can verify itself: the token file's and service accounts'. What has been verified is
//! remembered for a while.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::cache::{Cache, Fingerprint};
use super::service_account::{Expectations, Token};
use super::token_file::TokenFile;
use super::{Identity, Keys, Options};
use crate::reload::{Contents, FileFault, Reload, Reloaded};

/// The token that came last over a connection, and its fingerprint: clients send the same one again and again, and
/// SHA-256 of a service account's costs more than the rest of what is done about it. What it stands for is looked up
/// all the same.
#[derive(Clone, Debug, Default)]
pub(super) struct LastToken(RefCell<Option<(Box<str>, Fingerprint)>>);

/// Longer tokens are not kept: many connections keep one.
const KEPT_BYTES_MAX: usize = 2 << 10;

/// Longest token that is looked at; parity: longer ones are passed on unverified. Service-account tokens have 1 to
/// 2 kB, and whoever has a longer one that the apiserver accepts loses nothing but its flow.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Tokens {
    file: Option<Arc<Reloaded<TokenFile>>>,
    key_files: Option<Arc<Reloaded<Keys>>>,
    fetched_keys: ArcSwapOption<Keys>,
    fetches: AtomicU64,
    expected: ArcSwap<Expectations>,
    /// `--api-audiences`; empty: the issuers.
    audiences: Vec<String>,
    cache: Cache,
    pub(super) remembered: AtomicU64,
    pub(super) verified: AtomicU64,
    pub(super) unknown: AtomicU64,
}

impl Tokens {
    pub(super) fn new(options: &Options) -> Result<Tokens, FileFault> {
        let audiences = options.api_audiences.clone();
        let expected = Expectations::new(options.service_account_issuers.clone(), &audiences);
        let file = options.token_auth_file.as_ref();
        Ok(Tokens {
            file: file
                .map(|path| Reloaded::of_file("token file", path, TokenFile::parse).map(Arc::new))
                .transpose()?,
            key_files: key_files(&options.service_account_key_files)?,
            fetched_keys: ArcSwapOption::empty(),
            fetches: AtomicU64::new(0),
            expected: ArcSwap::from_pointee(expected),
            audiences,
            cache: Cache::new(),
            remembered: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
        })
    }

    pub(super) fn reloads(&self) -> impl Iterator<Item = Arc<dyn Reload>> {
        let file = self.file.clone().map(|file| file as Arc<dyn Reload>);
        file.into_iter().chain(self.key_files.clone().map(|keys| keys as Arc<dyn Reload>))
    }

    /// Takes over keys fetched from the apiserver. Returns whether they are others than before.
    pub(super) fn set_fetched_keys(&self, keys: Keys) -> bool {
        if self.fetched_keys.load().as_deref() == Some(&keys) {
            return false;
        }
        self.fetched_keys.store(Some(Arc::new(keys)));
        self.fetches.fetch_add(1, Ordering::Release);
        true
    }

    /// Takes over the issuer that the apiserver names.
    pub(super) fn set_fetched_issuer(&self, issuer: String) -> bool {
        let expected = Expectations::new(vec![issuer], &self.audiences);
        if *self.expected.load_full() == expected {
            return false;
        }
        self.expected.store(Arc::new(expected));
        self.fetches.fetch_add(1, Ordering::Release);
        true
    }

    /// The user of a token, `system:authenticated` included, if it is known here. `last`: of the same connection.
    pub(super) fn user(&self, token: &str, last: &LastToken, now: i64) -> Option<Arc<Identity>> {
        if token.len() > TOKEN_BYTES_MAX {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // Read before what it stands for: a judgement may be forgotten too early, never too late.
        let generation = self.generation();
        let fingerprint = last.fingerprint(token);
        if let Some(known) = self.cache.get(fingerprint, generation, now) {
            self.remembered.fetch_add(1, Ordering::Relaxed);
            return known;
        }
        let (user, until) = self.verify(token, now).unzip();
        let counter = if user.is_some() { &self.verified } else { &self.unknown };
        counter.fetch_add(1, Ordering::Relaxed);
        self.cache.put(fingerprint, user.clone(), until.unwrap_or(i64::MAX), generation, now);
        user
    }

    /// The user, and the first second at which the token ends by itself.
    fn verify(&self, token: &str, now: i64) -> Option<(Arc<Identity>, i64)> {
        if let Some(user) = self.file.as_ref().and_then(|file| file.current().user(token)) {
            return Some((user, i64::MAX));
        }
        let token = Token::parse(token).ok()?;
        let expected = self.expected.load();
        let by = |keys: &Keys| match token.verify(keys, &expected, now) {
            Ok(found) => Some(found),
            Err(refusal) => {
                tracing::debug!(?refusal, "service-account token not verified");
                None
            }
        };
        let found = self.key_files.as_ref().and_then(|files| by(&files.current()));
        let found = found.or_else(|| self.fetched_keys.load().as_deref().and_then(by));
        found.map(|(user, until)| (Arc::new(user.authenticated()), until))
    }

    /// Changes whenever something changes that tokens are judged by.
    fn generation(&self) -> u64 {
        let file = self.file.as_ref().map_or(0, |file| file.reloads());
        let keys = self.key_files.as_ref().map_or(0, |keys| keys.reloads());
        file + keys + self.fetches.load(Ordering::Acquire)
    }
}

// === impl LastToken ===

impl LastToken {
    /// SHA-256 of `token`.
    fn fingerprint(&self, token: &str) -> Fingerprint {
        let mut last = self.0.borrow_mut();
        // In constant time: whoever shares the connection (behind a proxy) learns nothing about others' tokens.
        let is_same = |kept: &str| verify_slices_are_equal(kept.as_bytes(), token.as_bytes()).is_ok();
        if let Some((kept, fingerprint)) = &*last
            && is_same(kept)
        {
            return *fingerprint;
        }
        let fingerprint = Fingerprint::of(token);
        *last = (token.len() <= KEPT_BYTES_MAX).then(|| (token.into(), fingerprint));
        fingerprint
    }
}

fn key_files(paths: &[PathBuf]) -> Result<Option<Arc<Reloaded<Keys>>>, FileFault> {
    if paths.is_empty() {
        return Ok(None);
    }
    let own = paths.to_vec();
    let build = move |contents: &Contents| {
        own.iter()
            .try_fold(Keys::default(), |keys, path| Ok(keys.and(Keys::from_pem(path, contents.of(path))?)))
    };
    Reloaded::new("service-account keys", paths.to_vec(), build).map(|keys| Some(Arc::new(keys)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_of_the_token_at_hand_whichever_came_last() {
        let last = LastToken::default();
        let long = "x".repeat(KEPT_BYTES_MAX + 1);
        for token in ["one", "one", "two", "on", "", "one", &long, &long, "one"] {
            assert_eq!(last.fingerprint(token), Fingerprint::of(token), "{token}");
        }
    }
}
