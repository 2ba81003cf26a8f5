//! Where ours is meant to differ from hyper.
//!
//! 1. It refuses what has two meanings, where hyper chooses one: a length beside a transfer coding (RFC 9112, section
//!    6.3: hyper takes the coding, and does not look whether the lengths make sense); codings before `chunked`, which hyper leaves to the service (section 6.1); more
//!    digits of a chunk's size than 64 bits have; trailers beyond 16 KiB, or with a bare LF among them, behind which
//!    hyper swallows whatever comes.
//! 2. A request in HTTP/1.0 that would keep its connection, answered with a body of unknown length: hyper promises
//!    `keep-alive` and closes.
//! 3. hyper spells several `Connection` values of an answer in one line.
//! 4. After a body that is malformed hyper closes without saying so; ours says `Connection: close`.
//! 5. What is no request is refused in HTTP/1.1; hyper does it in the version of the connection's request before.
//! 6. Bytes that begin like HTTP/2 are closed by hyper without a word; ours answers 400.

use usher::http1::Fault;

use crate::transcript::{Answer, Heard};

/// `Ok`: none that is not meant.
pub(crate) fn between(own: &Heard, hyper: &Heard) -> Result<(), String> {
    let different = |what: &str| Err(format!("{what}\nours: {own:#?}\nhyper's: {hyper:#?}"));
    if is_stricter(own.log.refused) {
        // The same up to there.
        let (seen, answered) = (own.log.seen.len(), own.answers.len());
        let before =
            seen.saturating_sub(own.log.seen.last().map_or(0, |last| usize::from(last.body.is_none())));
        if hyper.log.seen.get(..before) != own.log.seen.get(..before) {
            return different("requests before a refusal");
        }
        let alike = answered.saturating_sub(1).min(hyper.answers.len());
        if own.answers[..alike] != hyper.answers[..alike] || !own.closed {
            return different("answers before a refusal");
        }
        return Ok(());
    }
    if own.log.seen != hyper.log.seen {
        return different("what the service sees");
    }
    if own.answers.len() != hyper.answers.len() {
        return different("how many answers");
    }
    for (own, hyper) in own.answers.iter().zip(&hyper.answers) {
        if told(own) != told(hyper) {
            return different("an answer");
        }
    }
    if own.closed != hyper.closed {
        return different("whether the connection is closed");
    }
    Ok(())
}

/// Difference 1 (and 6, which no generator here makes).
fn is_stricter(refused: Option<Fault>) -> bool {
    matches!(
        refused,
        Some(
            Fault::LengthAndCoding
                | Fault::Length
                | Fault::LengthsDiffer
                | Fault::Trailers
                | Fault::CodingUnknown
                | Fault::TrailersTooLarge
                | Fault::ExtensionsTooLong
        )
    )
}

/// An answer without what may differ: 2, 3, 4, 5.
fn told(answer: &Answer) -> (&str, Vec<&String>, &str) {
    let headers = answer.headers.iter().filter(|line| !line.starts_with("Connection:")).collect();
    let is_refusal = answer.line.contains(" 4") && answer.body.is_empty();
    let line = if is_refusal { &answer.line["HTTP/1.x".len()..] } else { &answer.line };
    (line, headers, &answer.body)
}
