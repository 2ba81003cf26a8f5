//! What is a glitch and what is not.

use super::*;

const SETTINGS: Frame = Frame(kind::SETTINGS, 0, 0, b"");
const SETTINGS_ACK: Frame = Frame(kind::SETTINGS, 1, 0, b"");
const HEADERS: Frame = Frame(kind::HEADERS, 5, 1, b"x");
const PING: Frame = Frame(kind::PING, 0, 0, &[0; 8]);
const PONG: Frame = Frame(kind::PING, 1, 0, &[0; 8]);
const UPDATE: Frame = Frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);

/// Kind, flags, stream, payload.
#[derive(Clone, Copy)]
struct Frame(u8, u8, u32, &'static [u8]);

impl Frame {
    fn bytes(self) -> Vec<u8> {
        let Self(kind, flags, stream, payload) = self;
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }
}

/// A judge of a client that has said hello.
fn greeted() -> Judge {
    let mut judge = Judge::new(256);
    assert_eq!(judge.arrive(&mut &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]), None);
    assert_eq!(arrive(&mut judge, SETTINGS), None);
    assert_eq!(leave(&mut judge, SETTINGS), None);
    assert_eq!(leave(&mut judge, SETTINGS_ACK), None);
    assert_eq!(arrive(&mut judge, SETTINGS_ACK), None);
    judge
}

fn arrive(judge: &mut Judge, frame: Frame) -> Option<Glitch> {
    let bytes = frame.bytes();
    let mut bytes = &bytes[..];
    let glitch = judge.arrive(&mut bytes);
    assert_eq!(judge.arrive(&mut bytes), None, "one glitch a frame");
    glitch
}

fn leave(judge: &mut Judge, frame: Frame) -> Option<Glitch> {
    let bytes = frame.bytes();
    let mut bytes = &bytes[..];
    let glitch = judge.leave(&mut bytes);
    assert_eq!(judge.leave(&mut bytes), None, "one glitch a frame");
    glitch
}

#[test]
fn what_arrives() {
    let judge = |frame, expected| {
        let mut judge = greeted();
        assert_eq!(arrive(&mut judge, HEADERS), None);
        assert_eq!(arrive(&mut judge, frame), expected);
    };
    judge(Frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]), Some(Glitch::Reset));
    judge(SETTINGS, Some(Glitch::Settings));
    judge(Frame(kind::PRIORITY, 0, 1, &[0; 5]), Some(Glitch::Priority));
    judge(Frame(kind::PRIORITY_UPDATE, 0, 0, b"...."), Some(Glitch::Priority));
    judge(Frame(0xfe, 0, 0, b""), Some(Glitch::UselessFrame));
    judge(PONG, Some(Glitch::UnaskedAck));
    judge(Frame(kind::DATA, 0, 1, b""), Some(Glitch::EmptyData));
    judge(Frame(kind::DATA, 1, 1, b""), None);
    judge(Frame(kind::DATA, 0, 1, b"crumb"), Some(Glitch::TinyData));
    judge(Frame(kind::DATA, 1, 1, b"crumb"), None);
    judge(Frame(kind::DATA, 0, 1, &[0; 4096]), None);
    judge(Frame(kind::CONTINUATION, 0, 1, b""), Some(Glitch::Continuation));
    judge(Frame(kind::CONTINUATION, 4, 1, b""), None);
    judge(Frame(kind::CONTINUATION, 0, 1, &[0xff; 16_384]), None);
}

#[test]
fn what_leaves() {
    let judge = |frame, expected| assert_eq!(leave(&mut greeted(), frame), expected);
    let reset = |payload| Frame(kind::RST_STREAM, 0, 3, payload);
    judge(reset(&[0, 0, 0, 0]), Some(Glitch::Unfinished));
    judge(reset(&[0, 0, 0, 1]), Some(Glitch::ProvokedReset));
    judge(reset(&[0, 0, 0, 2]), None);
    judge(reset(&[0, 0, 0, 3]), Some(Glitch::ProvokedReset));
    judge(reset(&[0, 0, 0, 5]), Some(Glitch::ProvokedReset));
    judge(reset(&[0, 0, 0, 7]), Some(Glitch::RefusedStream));
    judge(reset(&[0, 0, 0, 8]), None);
    let away = |payload| Frame(kind::GOAWAY, 0, 0, payload);
    judge(away(&[0; 8]), None);
    judge(away(&[0, 0, 0, 1, 0, 0, 0, 1]), Some(Glitch::ConnectionError));
    judge(away(&[0, 0, 0, 1, 0, 0, 0, 11, b'x']), Some(Glitch::LibraryLimit));
}

#[test]
fn a_header_list_that_is_too_large_is_told_from_other_errors() {
    let mut judge = greeted();
    // As h2 answers it, the first time and later.
    assert_eq!(
        leave(&mut judge, Frame(kind::HEADERS, 5, 7, &[0x48, 3, b'4', b'3', b'1'])),
        Some(Glitch::HeaderList)
    );
    assert_eq!(leave(&mut judge, Frame(kind::HEADERS, 5, 1, &[0xbe])), Some(Glitch::HeaderList));
    assert_eq!(leave(&mut judge, Frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 1])), None);
    assert_eq!(leave(&mut judge, Frame(kind::RST_STREAM, 0, 3, &[0, 0, 0, 1])), Some(Glitch::ProvokedReset));
}

#[test]
fn answers_without_a_body_are_no_errors() {
    let mut judge = greeted();
    assert_eq!(leave(&mut judge, Frame(kind::HEADERS, 5, 1, &[0x89])), None);
    assert_eq!(leave(&mut judge, Frame(kind::HEADERS, 5, 3, b"\x48\x03403 and why")), None);
    assert_eq!(leave(&mut judge, Frame(kind::HEADERS, 4, 5, &[0xbe])), None);
}

#[test]
fn pings_may_measure_what_was_sent() {
    let mut judge = greeted();
    for _ in 0..3 {
        assert_eq!(arrive(&mut judge, PING), None);
        assert_eq!(leave(&mut judge, PONG), None);
        assert_eq!(arrive(&mut judge, PING), Some(Glitch::Ping));
        assert_eq!(leave(&mut judge, Frame(kind::DATA, 0, 1, b"x")), None);
    }
    assert_eq!(leave(&mut judge, PING), None);
    assert_eq!(arrive(&mut judge, PONG), None);
    assert_eq!(arrive(&mut judge, PONG), Some(Glitch::UnaskedAck));
}

#[test]
fn window_updates_follow_what_was_sent() {
    let mut judge = greeted();
    let mut allowed = 0;
    while arrive(&mut judge, UPDATE).is_none() {
        allowed += 1;
    }
    assert_eq!(allowed, UPDATES_AT_START);
    // As Go answers 16 KiB read in pieces of 4: the stream's and the connection's.
    for _ in 0..100 {
        assert_eq!(leave(&mut judge, Frame(kind::DATA, 0, 1, &[0; 16_384])), None);
        (0..8).for_each(|_| assert_eq!(arrive(&mut judge, UPDATE), None));
    }
}

#[test]
fn headers_come_in_bounds_until_our_settings_are_acknowledged() {
    const FULL: Frame = Frame(kind::HEADERS, 4, 1, &[0xff; 16_384]);
    let mut judge = Judge::new(256);
    assert_eq!(judge.arrive(&mut &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]), None);
    assert_eq!(arrive(&mut judge, SETTINGS), None);
    (0..16).for_each(|_| assert_eq!(arrive(&mut judge, FULL), None));
    assert_eq!(arrive(&mut judge, FULL), Some(Glitch::Unsettled));
    assert_eq!(arrive(&mut judge, SETTINGS_ACK), None);
    assert_eq!(arrive(&mut judge, FULL), None);
}

#[test]
fn windows_shrink_only_at_the_start() {
    const SMALL: Frame = Frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    const ZERO: Frame = Frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let mut judge = Judge::new(256);
    assert_eq!(judge.arrive(&mut &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]), None);
    assert_eq!(arrive(&mut judge, SMALL), None);
    assert_eq!(arrive(&mut judge, HEADERS), None);
    let bytes = ZERO.bytes();
    let mut rest = &bytes[..];
    let glitches: Vec<_> = std::iter::from_fn(|| judge.arrive(&mut rest)).collect();
    assert_eq!(glitches, [Glitch::Settings, Glitch::ShrunkWindow]);
}

#[test]
fn the_farewell_comes_between_frames_and_once() {
    let mut judge = greeted();
    assert_eq!(arrive(&mut judge, HEADERS), None);
    let farewell = judge.farewell().expect("between frames");
    assert_eq!(farewell, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 11]);
    let data = Frame(kind::DATA, 0, 1, b"halves").bytes();
    assert_eq!(judge.leave(&mut &data[..11]), None);
    assert_eq!(judge.farewell(), None, "in the middle of a frame");
    assert_eq!(judge.leave(&mut &data[11..]), None);
    assert_eq!(judge.leave(&mut &farewell[..]), Some(Glitch::LibraryLimit));
    assert_eq!(judge.farewell(), None, "said already");
}

#[test]
fn header_lines_are_counted_over_all_frames_of_a_list() {
    const HALF: &[u8] = &[0x82; 800];
    let mut judge = greeted();
    assert_eq!(arrive(&mut judge, Frame(kind::HEADERS, 1, 1, HALF)), None);
    assert_eq!(arrive(&mut judge, Frame(kind::CONTINUATION, 4, 1, HALF)), Some(Glitch::HeaderLines));
    assert_eq!(arrive(&mut judge, Frame(kind::HEADERS, 5, 3, HALF)), None, "the next list");
    // Padding and priority are no lines.
    const PADDED: &[u8] = &[200; 800];
    assert_eq!(arrive(&mut judge, Frame(kind::HEADERS, 5 | 8 | 0x20, 5, PADDED)), None);
    assert_eq!(arrive(&mut judge, PING), None, "in step");
    assert_eq!(arrive(&mut judge, PING), Some(Glitch::Ping));
}
