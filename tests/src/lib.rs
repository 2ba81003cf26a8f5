//! What the tests of usher from outside share: a real control plane on loopback ([`cluster`]), an HTTP client
//! that shows everything ([`client`]), kubectl ([`kubectl`]), a runner of named tests ([`runner`]).

pub mod client;
pub mod clock;
pub mod cluster;
pub mod kubectl;
pub mod runner;

/// How everything here fails: with a sentence for the person who started it.
pub type Outcome<T = ()> = Result<T, String>;
