//! Floods over HTTP/2: each hurts only the connection it comes from.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};

use crate::bystander::{assert_cut_for, beside_a_bystander, glitches, seats};
use crate::h2::{
    ENHANCE_YOUR_CALM, H2, flag, frame, get, kind, literal, number, post, remembered, request, settings,
};
use crate::upstream::Upstream;
use crate::usher::{Setup, Usher, until};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOLD: &str = "/api/v1/namespaces/default/configmaps/hold";
/// Frames that each test sends at most: more than any limit lets pass, and little to write.
const FRAMES_MAX: u32 = 20_000;
fn setup() -> Setup {
    Setup::new(Upstream::start().address)
}

fn connect(usher: &Usher) -> H2 {
    H2::connect(usher.address, usher.tls(None, &[b"h2"]), &[])
}

/// Sends frames until usher hangs up, which it must do before [`FRAMES_MAX`]; it says why.
fn until_cut(client: &mut H2, mut frame: impl FnMut(u32) -> Vec<u8>) {
    const BATCH: u32 = 100;
    for batch in 0..FRAMES_MAX / BATCH {
        let bytes: Vec<u8> = (0..BATCH).flat_map(|number| frame(batch * BATCH + number)).collect();
        if !client.send(&bytes) {
            break;
        }
    }
    let code = client.goodbye();
    assert_eq!(code, Some(ENHANCE_YOUR_CALM));
}

/// A flood of one frame over and over, on a connection with one request that is being served.
fn flood(glitch: &str, of: impl Fn(u32) -> Vec<u8>) {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        assert!(client.send(&get(1, HOLD, "alice")));
        until("it is seated", || seats(usher) > 0.5);
        until_cut(&mut client, of);
        assert!(glitches(usher, glitch) > 1.0);
        assert_cut_for(usher, glitch);
        until("its seat is back", || seats(usher) < 0.5);
    });
}

#[test]
fn pings() {
    flood("ping", |_| frame(kind::PING, 0, 0, &[0; 8]));
}

#[test]
fn answers_to_pings_that_nobody_sent() {
    flood("unasked-ack", |_| frame(kind::PING, flag::ACK, 0, &[0; 8]));
}

#[test]
fn settings_over_and_over() {
    flood("settings", |number| settings(&[(3, number)]));
}

#[test]
fn priorities() {
    flood("priority", |_| frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 1]));
}

#[test]
fn priority_updates() {
    flood("priority", |_| frame(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1, b'u', b'=', b'1']));
}

#[test]
fn frames_that_nobody_knows() {
    flood("useless-frame", |_| frame(0xfa, 0, 0, b"grease"));
}

#[test]
fn tiny_window_updates() {
    flood("window-update", |_| number(kind::WINDOW_UPDATE, 0, 1));
}

#[test]
fn windows_that_shrink_and_grow() {
    flood("shrunk-window", |number| settings(&[(4, if number % 2 == 0 { 65_535 } else { 0 })]));
}

#[test]
fn rapid_reset() {
    // All at once: none of the streams was looked at before it was reset.
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        until_cut(&mut client, |number| {
            let stream = 2 * number + 1;
            [get(stream, HOLD, "alice"), self::number(kind::RST_STREAM, stream, 8)].concat()
        });
        assert!(glitches(usher, "reset") > 1.0);
        assert_cut_for(usher, "library-limit");
    });
}

#[test]
fn resets_of_requests_that_have_begun() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address).flag("--max-glitches=300");
    beside_a_bystander(setup, |usher| {
        let mut client = connect(usher);
        let streams = || (0..40).map(|number| 2 * number + 1);
        let requests: Vec<u8> = streams().flat_map(|stream| get(stream, HOLD, "master")).collect();
        assert!(client.send(&requests));
        until("all have begun", || upstream.held() == 40);
        let resets: Vec<u8> = streams().flat_map(|stream| number(kind::RST_STREAM, stream, 8)).collect();
        assert!(client.send(&resets));
        assert_eq!(client.goodbye(), Some(ENHANCE_YOUR_CALM));
        assert_cut_for(usher, "reset");
    });
}

#[test]
fn continuations_without_end() {
    for (size, reason) in [(100, "continuation"), (16_000, "library-limit")] {
        beside_a_bystander(setup(), |usher| {
            let mut client = connect(usher);
            let mut filler = request("GET", HOLD, "alice");
            literal(&mut filler, "x-filler", &"x".repeat(15_000));
            assert!(client.send(&frame(kind::HEADERS, flag::END_STREAM, 1, &filler)));
            let mut block = Vec::new();
            literal(&mut block, "x-filler", &"x".repeat(size));
            until_cut(&mut client, |_| frame(kind::CONTINUATION, 0, 1, &block));
            assert_cut_for(usher, reason);
        });
    }
}

#[test]
fn header_lists_that_are_too_large() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        let large = header_bomb(300); // 1.2 MB, announced is 1 MiB
        assert!(client.send(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &large)));
        client.until(kind::HEADERS, 1);
        until_cut(&mut client, |number| {
            frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2 * number + 3, &large)
        });
        // What comes in one piece is more than the streams that there may be at once: that may be the last straw.
        assert!(glitches(usher, "header-list") > 1.0);
        let cut = usher.metric("usher_connections_cut_total", "");
        assert!((cut - 1.0).abs() < 0.5, "{cut}");
    });
}

#[test]
fn header_lists_that_are_far_too_large() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        let huge = header_bomb(12_000); // 48 MB in a frame of 16 KiB
        assert!(client.send(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &huge)));
        assert_eq!(client.goodbye(), Some(ENHANCE_YOUR_CALM));
        assert_cut_for(usher, "library-limit");
    });
}

/// A header list of 4 KB lines, each a byte long: one literal, and references to it.
fn header_bomb(lines: usize) -> Vec<u8> {
    let mut block = request("GET", HOLD, "alice");
    remembered(&mut block, "x-bomb", &"x".repeat(4_000));
    block.extend(std::iter::repeat_n(0xbe, lines));
    block
}

#[test]
fn header_tables_are_as_large_as_usher_wants() {
    beside_a_bystander(setup(), |usher| {
        let tls = usher.tls(None, &[b"h2"]);
        let mut client = H2::connect(usher.address, tls, &[(1, u32::MAX)]);
        for number in 0..200 {
            let stream = 2 * number + 1;
            // A size update to nothing and back for each of many lines, then a request.
            let mut block = [0x20, 0x3f, 0xe1, 0x1f].repeat(500);
            block.extend(request("GET", CONFIG_MAPS, "alice"));
            assert!(client.send(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block)));
            client.until(kind::HEADERS, stream);
        }
        // A table larger than it allows is an error.
        let mut block = vec![0x3f, 0xff, 0xff, 0xff, 0x7f];
        block.extend(request("GET", CONFIG_MAPS, "alice"));
        client.send(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 401, &block));
        assert!(client.goodbye().is_some_and(|code| code != 0));
        assert!(glitches(usher, "connection-error") > 0.5);
    });
}

#[test]
fn empty_data() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        assert!(client.send(&post(1, CONFIG_MAPS, "alice")));
        until("it is seated", || seats(usher) > 0.5);
        until_cut(&mut client, |_| frame(kind::DATA, 0, 1, b""));
        assert_cut_for(usher, "empty-data");
    });
}

#[test]
fn data_in_crumbs() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        assert!(client.send(&post(1, CONFIG_MAPS, "alice")));
        until("it is seated", || seats(usher) > 0.5);
        until_cut(&mut client, |_| frame(kind::DATA, 0, 1, b"x"));
        assert!(glitches(usher, "tiny-data") > 1.0);
    });
}

#[test]
fn resets_that_usher_is_made_to_send() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        // The window of each stream is made to overflow: an error of the stream that the server has to answer.
        for number in 0..FRAMES_MAX {
            let stream = 2 * number + 1;
            let request = get(stream, HOLD, "alice");
            let overflow = self::number(kind::WINDOW_UPDATE, stream, u32::MAX >> 1);
            if !client.send(&[request, overflow].concat()) {
                break;
            }
            let answer = client.frames().find(|frame| matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY));
            if answer.is_none_or(|frame| frame.kind == kind::GOAWAY) {
                break;
            }
        }
        assert_cut_for(usher, "provoked-reset");
    });
}

#[test]
fn more_streams_than_there_may_be() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address).flag("--http2-max-streams-per-connection=10");
    beside_a_bystander(setup, |usher| {
        let mut client = connect(usher);
        let requests: Vec<u8> = (0..10).flat_map(|number| get(2 * number + 1, HOLD, "master")).collect();
        assert!(client.send(&requests));
        until("all that may have begun", || upstream.held() == 10);
        until_cut(&mut client, |number| get(2 * number + 21, HOLD, "master"));
        assert_cut_for(usher, "refused-stream");
        assert_eq!(upstream.held(), 10, "no more than allowed ever ran");
    });
}

#[test]
fn requests_that_are_answered_and_never_end() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address).flag("--max-glitches=1000");
    beside_a_bystander(setup, |usher| {
        let mut seated = usher.connect();
        seated.get(HOLD, "alice");
        until("it is seated", || upstream.held() == 1);
        let mut client = connect(usher);
        // Two wait, all others are told to come back before their bodies have begun.
        assert!(client.send(&[post(1, CONFIG_MAPS, "alice"), post(3, CONFIG_MAPS, "alice")].concat()));
        usher.until_waiting(2.0);
        for number in 2..FRAMES_MAX {
            let stream = 2 * number + 1;
            if !client.send(&post(stream, CONFIG_MAPS, "alice")) {
                break;
            }
            let reset = client.frames().find(|frame| matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY));
            if reset.is_none_or(|frame| frame.kind == kind::GOAWAY) {
                break;
            }
        }
        assert_cut_for(usher, "unfinished");
        upstream.release(1);
        assert_eq!(seated.answer().expect("served").status, 200);
    });
}

#[test]
fn settings_that_are_never_acknowledged() {
    beside_a_bystander(setup(), |usher| {
        let mut client = H2::connect_rudely(usher.address, usher.tls(None, &[b"h2"]), &[]);
        // Until then h2 would take 16 MiB of headers a request.
        let mut block = request("GET", CONFIG_MAPS, "alice");
        literal(&mut block, "x-filler", &"x".repeat(16_000));
        until_cut(&mut client, |number| {
            frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2 * number + 1, &block)
        });
        assert!(glitches(usher, "unsettled") > 0.5);
    });
}

#[test]
fn more_header_lines_than_there_may_be() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        let mut block = request("GET", CONFIG_MAPS, "alice");
        remembered(&mut block, "x", "");
        block.extend(std::iter::repeat_n(0xbe, 500));
        for number in 0..FRAMES_MAX {
            let stream = 2 * number + 1;
            let request = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block);
            if !client.send(&request) || client.frames().all(|frame| frame.kind != kind::HEADERS) {
                break;
            }
        }
        assert_cut_for(usher, "header-list");
    });
}

#[test]
fn what_breaks_the_protocol_ends_its_connection() {
    beside_a_bystander(setup(), |usher| {
        let whole = flag::END_HEADERS | flag::END_STREAM;
        let block = request("GET", HOLD, "alice");
        let faults = [
            ("a push from a client", frame(5, whole, 1, &block)),
            ("data without a stream", frame(kind::DATA, 0, 0, b"x")),
            ("data for a stream that nobody opened", frame(kind::DATA, 0, 9, b"x")),
            ("a stream of the server's", frame(kind::HEADERS, whole, 2, &block)),
            ("a stream that was passed over", [get(7, HOLD, "alice"), get(5, HOLD, "alice")].concat()),
            ("settings of half a parameter", frame(kind::SETTINGS, 0, 0, &[0; 5])),
            ("settings acknowledged again", frame(kind::SETTINGS, flag::ACK, 0, &[])),
            ("a ping that is too short", frame(kind::PING, 0, 0, &[0; 7])),
            ("a window that grows by nothing", number(kind::WINDOW_UPDATE, 0, 0)),
            ("a continuation of nothing", frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block)),
            ("another frame within a header", {
                [frame(kind::HEADERS, 0, 1, &block), frame(kind::PING, 0, 0, &[0; 8])].concat()
            }),
            ("a frame that is too large", frame(kind::DATA, 0, 1, &[0; 16_385])),
            ("a header list that is no HPACK", frame(kind::HEADERS, whole, 1, &[0xff; 40])),
        ];
        let count = faults.len();
        for (what, fault) in faults {
            let mut client = connect(usher);
            assert!(client.send(&fault), "{what}");
            assert!(client.goodbye().is_some_and(|code| code != 0), "{what}");
        }
        let counted = glitches(usher, "connection-error");
        assert!(
            (counted - f64::from(u32::try_from(count).expect("few"))).abs() < 0.5,
            "{counted} of {count}"
        );
    });
}

#[test]
fn honest_clients_come_nowhere_near_the_limit() {
    const LARGE: usize = 8 << 20;
    let upstream = Upstream::with(|request, stream, gate| {
        if request.target.contains("hold") {
            gate.pass();
        }
        let size = if request.target.contains("large") { LARGE } else { 10 };
        crate::upstream::answer(stream, "200 OK", &"x".repeat(size))
    });
    // A tenth of the default.
    let setup = Setup::new(upstream.address).flag("--max-glitches=1000");
    beside_a_bystander(setup, |usher| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut client = crate::gone::connect(usher.address, usher.tls(None, &[b"h2"])).await;
            let mut ask = |path: &str| {
                let request = http::Request::get(format!("https://{}{path}", usher.address))
                    .header("authorization", "Bearer master")
                    .body(Empty::<Bytes>::new())
                    .expect("a request");
                client.send_request(request)
            };
            for _ in 0..200 {
                let answer = ask(CONFIG_MAPS).await.expect("served");
                answer.into_body().collect().await.expect("a body");
            }
            for _ in 0..2 {
                let large = ask("/api/v1/namespaces/default/configmaps/large").await.expect("served");
                let body = large.into_body().collect().await.expect("a body").to_bytes();
                assert_eq!(body.len(), LARGE);
            }
            // As many watches as it may have, cancelled at once.
            let watches: Vec<_> = (0..90).map(|_| tokio::spawn(ask(HOLD))).collect();
            while upstream.held() < 90 {
                tokio::task::yield_now().await;
            }
            drop(watches.into_iter().map(|watch| watch.abort()).collect::<Vec<_>>());
            let answer = ask(CONFIG_MAPS).await.expect("served on the same connection");
            answer.into_body().collect().await.expect("a body");
        });
        for kind in ["window-update", "ping", "unasked-ack", "provoked-reset", "tiny-data"] {
            assert!(glitches(usher, kind) < 0.5, "{kind}");
        }
        assert!(usher.metric("usher_connections_cut_total", "") < 0.5);
        upstream.release(90);
    });
}

#[test]
fn a_hundred_times_sixteen_thousand_header_lines_at_once() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        let mut block = request("GET", CONFIG_MAPS, "alice");
        remembered(&mut block, "x", "");
        block.extend(std::iter::repeat_n(0xbe, 16_000));
        // 1.6 MB on the wire that would be 160 in memory.
        until_cut(&mut client, |number| {
            frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2 * number + 1, &block)
        });
        assert_cut_for(usher, "header-lines");
    });
}
