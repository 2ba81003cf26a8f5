//! TLS on both sides, by rustls on aws-lc-rs: [`Server`] towards clients, [`Client`] towards the apiserver.
//!
//! Both follow their files ([`crate::reload`]): a connection keeps the configuration it was accepted with, the
//! next one gets the newest good one. TLS 1.2 and 1.3.
//!
//! Whether a client's certificate is any good is not decided here but in [`crate::identity`]: as in
//! kube-apiserver, a wrong certificate does not end the handshake, it ends in 401 (or does no harm beside a
//! good token). The handshake proves one thing only: the client holds the certificate's key.

mod client;
mod failed;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gate;
mod handshake;
mod hello;
mod pem;
mod record;
mod sealing;
mod server;
mod stream;

pub use failed::{Failed, Reason};
pub use gate::Gate;
pub use handshake::{Greeting, HANDSHAKE_BYTES_MAX, accept, connect, greet};
pub use stream::{Observer, Stream, Trouble};

pub use client::{Client, ClientFiles, Presents, Protocol};
pub use pem::{certificates, private_key};
pub use server::{Server, ServerFiles};

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;

/// The one crypto provider, made once.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
