//! Clients that send, or take, next to nothing: they hold no seat and no stream for long.

use crate::bystander::{beside_a_bystander, glitches, seats};
use crate::h2::{ENHANCE_YOUR_CALM, H2, flag, frame, get, kind, number, post, request};
use crate::upstream::Upstream;
use crate::usher::{Setup, until};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: u16 = 4;

#[test]
fn a_body_that_trickles_gives_its_seat_back_long_before_the_deadline() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address).flag("--request-body-timeout=1s");
    beside_a_bystander(setup, |usher| {
        let mut slow = usher.connect();
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: usher\r\nAuthorization: Bearer alice\r\nContent-Length: 100000\r\n\r\n"
        );
        slow.send(head).expect("usher reads");
        until("it is seated", || seats(usher) > 0.5);
        let mut next = usher.connect();
        next.get(CONFIG_MAPS, "alice");
        // A byte now and then does not help.
        until("its seat is another's", || slow.send("x").is_err() || glitches(usher, "slow-body") > 0.5);
        assert_eq!(next.answer().expect("served").status, 200);
        let answer = slow.answer().expect("an answer");
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")), "{answer:?}");
        slow.until_closed();
        let refused = usher.metric("usher_requests_refused_total", "reason=\"slow-body\"");
        assert!((refused - 1.0).abs() < 0.5, "{refused}");
    });
}

#[test]
fn bodies_that_trickle_over_http2_end_their_connection() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address).flag("--request-body-timeout=1s").flag("--max-glitches=1500");
    beside_a_bystander(setup, |usher| {
        let mut client = H2::connect(usher.address, usher.tls(None, &[b"h2"]), &[]);
        for stream in [1, 3] {
            assert!(client.send(&post(stream, CONFIG_MAPS, "master")));
            assert!(client.send(&frame(kind::DATA, 0, stream, b"a body that never ends")));
        }
        client.until(kind::HEADERS, 1);
        assert_eq!(client.goodbye(), Some(ENHANCE_YOUR_CALM), "two such are too many here");
        assert!((glitches(usher, "slow-body") - 2.0).abs() < 0.5);
    });
}

#[test]
fn answers_without_a_window_end_with_the_request() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address).flag("--request-timeout=2s");
    beside_a_bystander(setup, |usher| {
        const STREAMS: u32 = 100;
        let tls = usher.tls(None, &[b"h2"]);
        let mut client = H2::connect(usher.address, tls, &[(INITIAL_WINDOW, 0)]);
        // The apiserver's answers, and usher's own to those that find no room in the queue.
        let ask = |number| {
            let user = if number % 2 == 0 { "alice" } else { "master" };
            get(2 * number + 1, CONFIG_MAPS, user)
        };
        let requests: Vec<u8> = (0..STREAMS).flat_map(ask).collect();
        assert!(client.send(&requests));
        let ended = client.frames().filter(|frame| frame.kind == kind::RST_STREAM).take(STREAMS as usize);
        assert_eq!(ended.count(), STREAMS as usize, "every stream is ended by usher, one by one");
        until("all seats are back", || seats(usher) < 0.5);
        // The connection has room for as many again.
        assert!(client.send(&get(2 * STREAMS + 1, CONFIG_MAPS, "master")));
        client.until(kind::HEADERS, 2 * STREAMS + 1);
    });
}

#[test]
fn a_header_that_never_ends_is_no_request() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address).flag("--header-timeout=1s");
    beside_a_bystander(setup, |usher| {
        let mut client = H2::connect(usher.address, usher.tls(None, &[b"h2"]), &[]);
        let block = request("GET", CONFIG_MAPS, "alice");
        assert!(client.send(&frame(kind::HEADERS, flag::END_STREAM, 1, &block)));
        assert_eq!(client.goodbye(), Some(0), "told to go, and closed");
        assert!(upstream.seen().iter().all(|request| request.target.contains("bystander")));
    });
}

#[test]
fn a_client_that_talks_and_takes_nothing_is_cut() {
    let upstream = Upstream::with(|request, stream, _| {
        let size = if request.target.contains("large") { 8 << 20 } else { 10 };
        crate::upstream::answer(stream, "200 OK", &"x".repeat(size))
    });
    let setup = Setup::new(upstream.address).flag("--request-timeout=2s");
    beside_a_bystander(setup, |usher| {
        let tls = usher.tls(None, &[b"h2"]);
        let mut client = H2::connect(usher.address, tls, &[(INITIAL_WINDOW, u32::MAX >> 1)]);
        assert!(client.send(&number(kind::WINDOW_UPDATE, 0, 1 << 30)));
        let large = format!("{CONFIG_MAPS}/large");
        let requests: Vec<u8> = (0..10).flat_map(|number| get(2 * number + 1, &large, "master")).collect();
        assert!(client.send(&requests));
        // It says something now and then, so that nobody takes it for dead.
        until("it is cut", || !client.send(&frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1])));
        assert!(usher.metric("usher_requests_cut_off_total", "reason=\"time-out\"") > 0.5);
    });
}
