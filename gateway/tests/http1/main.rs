//! Our HTTP/1.1 beside hyper's: the same bytes to a connection of each, served by the same service; what the service
//! sees and what the client hears must be the same, but for the differences that `differences` lists.
//!
//! `PROPTEST_CASES=100000 cargo test -p usher --test http1` runs for longer.

mod corpus;
mod differences;
mod grammar;
mod server;
mod transcript;

use std::time::Duration;

use proptest::prelude::*;

use server::{Server, Speaker};
use transcript::Heard;

/// A server that says nothing for so long has nothing to say; if that looks like a difference, it gets more time.
const QUIET: [Duration; 2] = [Duration::from_millis(15), Duration::from_millis(600)];

/// Both, side by side.
struct Pair {
    own: Server,
    hyper: Server,
}

impl Pair {
    fn start() -> Self {
        Self { own: Server::start(Speaker::Own), hyper: Server::start(Speaker::Hyper) }
    }

    /// Sends `pieces` to both.
    fn compare(&self, pieces: &[&[u8]]) -> Result<(), String> {
        let mut told = Ok(());
        for quiet in QUIET {
            let own = Heard::of(&self.own, pieces, quiet);
            let hyper = Heard::of(&self.hyper, pieces, quiet);
            told = differences::between(&own, &hyper);
            if told.is_ok() {
                break;
            }
        }
        told.map_err(|difference| {
            let sent = String::from_utf8_lossy(&pieces.concat()).into_owned();
            format!("{difference}\nsent: {sent:?}")
        })
    }
}

#[test]
fn the_corpus_is_read_alike() {
    let pair = Pair::start();
    let differences: Vec<String> =
        corpus::cases().iter().filter_map(|case| pair.compare(&[case.as_bytes()]).err()).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn whatever_is_sent_is_read_alike() {
    let pair = Pair::start();
    let cases = (grammar::conversation(), prop::collection::vec(any::<prop::sample::Index>(), 0..3));
    proptest!(|((bytes, cuts) in cases)| {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        pair.compare(&pieces).map_err(TestCaseError::fail)?;
    });
}
