//! HTTP/1.1 used against its grain: floods of requests nobody waits for, chunks that say more than their bytes.

use crate::bystander::{beside_a_bystander, glitches, seats};
use crate::upstream::Upstream;
use crate::usher::{Setup, Usher, until};

const HOLD: &str = "/api/v1/namespaces/default/configmaps/hold";
/// What a client here sends at most.
const BYTES_MAX: usize = 8 << 20;

const CHUNKED: &str = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Sends `beginning`, then `piece` again and again; usher must not take it all. It ends the connection, in words if it
/// has any.
fn never_taken(usher: &Usher, beginning: &str, piece: &str) -> Option<u16> {
    let mut client = usher.connect();
    client.send(beginning).expect("usher reads");
    let batch = piece.repeat(64 * 1024 / piece.len() + 1);
    let mut taken = 0;
    while taken < BYTES_MAX && client.push(&batch) {
        taken += batch.len();
    }
    assert!(taken < BYTES_MAX, "no end in sight");
    let said = client.until_closed_quietly();
    until("its seat is back", || seats(usher) < 0.5);
    String::from_utf8_lossy(&said).split(' ').nth(1)?.parse().ok()
}

#[test]
fn chunk_extensions() {
    beside_a_bystander(Setup::new(Upstream::start().address), |usher| {
        let piece = format!("1;{}\r\nx\r\n", "x".repeat(1000));
        let status = never_taken(usher, CHUNKED, &piece);
        assert!(matches!(status, None | Some(400)), "{status:?}");
        assert!(glitches(usher, "chunk-extension") + glitches(usher, "bad-syntax") > 0.5);
    });
}

#[test]
fn one_endless_chunk_extension() {
    beside_a_bystander(Setup::new(Upstream::start().address), |usher| {
        let status = never_taken(usher, &format!("{CHUNKED}1;"), &"x".repeat(1000));
        assert!(matches!(status, None | Some(400)), "{status:?}");
        assert!(glitches(usher, "chunk-extension") + glitches(usher, "bad-syntax") > 0.5);
    });
}

#[test]
fn trailers_without_end() {
    beside_a_bystander(Setup::new(Upstream::start().address), |usher| {
        let piece = format!("X-Trailer: {}\r\n", "x".repeat(1000));
        let status = never_taken(usher, &format!("{CHUNKED}1\r\nx\r\n0\r\n"), &piece);
        assert!(matches!(status, None | Some(400 | 431)), "{status:?}");
        assert!(glitches(usher, "trailers") + glitches(usher, "bad-syntax") > 0.5);
    });
}

#[test]
fn headers_without_end() {
    beside_a_bystander(Setup::new(Upstream::start().address), |usher| {
        let piece = format!("X-Header: {}\r\n", "x".repeat(1000));
        let status = never_taken(usher, &format!("GET {HOLD} HTTP/1.1\r\n"), &piece);
        assert!(matches!(status, None | Some(400 | 431)), "{status:?}");
    });
}

#[test]
fn pipelined_requests_wait_in_the_clients_own_socket() {
    let upstream = Upstream::start();
    beside_a_bystander(Setup::new(upstream.address), |usher| {
        let mut client = usher.connect();
        client.get(HOLD, "alice");
        until("it is served", || upstream.held() == 1);
        // The first is not answered: none of the others may so much as wait in a queue.
        let more =
            format!("GET {HOLD} HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\n\r\n").repeat(500);
        let mut pushed = 0;
        while pushed < 64 << 20 && client.push(&more) {
            pushed += more.len();
        }
        assert!(pushed < 64 << 20, "usher stops reading, or hangs up");
        let waiting = usher.metric("apiserver_flowcontrol_current_inqueue_requests", "\"one-seat\"");
        assert!(waiting < 0.5, "{waiting} wait");
        client.abort();
        until("its seat is back", || seats(usher) < 0.5);
        assert_eq!(upstream.held(), 1, "no other ever ran");
        upstream.release(1);
    });
}
