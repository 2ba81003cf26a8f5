//! Whatever way the bytes are cut, the same is seen.

use super::*;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn see(frames: &mut Frames, mut bytes: &[u8]) -> Vec<Seen> {
    std::iter::from_fn(|| frames.next(&mut bytes)).collect()
}

fn conversation() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0, 0, 3, 0, 0, 0, 100]));
    bytes.extend(frame(kind::SETTINGS, 1, 0, &[]));
    bytes.extend(frame(kind::HEADERS, 5, 1 | 1 << 31, b"headers"));
    bytes.extend(frame(kind::DATA, 0, 1, &[]));
    bytes.extend(frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    bytes.extend(frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11, b'b', b'y', b'e']));
    bytes.extend(frame(0xfe, 0, 0, &[0; 300]));
    bytes
}

#[test]
fn frames_are_told_apart_however_they_are_cut() {
    let bytes = conversation();
    let whole = see(&mut Frames::of_client(256), &bytes);
    let head = |kind, flags, stream, length| Head { length, kind, flags, stream };
    let (reset, away) = (head(kind::RST_STREAM, 0, 1, 4), head(kind::GOAWAY, 0, 0, 11));
    assert_eq!(
        whole,
        [
            Seen::Head(head(kind::SETTINGS, 0, 0, 12)),
            Seen::Setting { identifier: 4, value: 256 },
            Seen::Setting { identifier: 3, value: 100 },
            Seen::Head(head(kind::SETTINGS, 1, 0, 0)),
            Seen::Head(head(kind::HEADERS, 5, 1, 7)),
            Seen::Head(head(kind::DATA, 0, 1, 0)),
            Seen::Head(reset),
            Seen::Code(reset, 8),
            Seen::Head(away),
            Seen::Code(away, 11),
            Seen::Head(head(0xfe, 0, 0, 300)),
        ]
    );
    for cut in 1..bytes.len() {
        let mut frames = Frames::of_client(256);
        let seen: Vec<_> = bytes.chunks(cut).flat_map(|bytes| see(&mut frames, bytes)).collect();
        assert_eq!(seen, whole, "in pieces of {cut}");
        assert!(frames.is_between());
    }
}

#[test]
fn the_border_between_frames_is_known() {
    let bytes = frame(kind::GOAWAY, 0, 0, &[0; 12]);
    for end in 0..=bytes.len() {
        let mut frames = Frames::of_server();
        see(&mut frames, &bytes[..end]);
        assert_eq!(frames.is_between(), end == 0 || end == bytes.len(), "after {end} bytes");
    }
}

#[test]
fn frames_of_wrong_sizes_do_not_confuse_it() {
    for (length, kind, flags) in (0..30)
        .flat_map(|length| (0..=17).flat_map(move |kind| [0, 1, 8, 0x28].map(|flags| (length, kind, flags))))
    {
        for mut frames in [Frames::of_server(), Frames { skip: 0, ..Frames::of_client(256) }] {
            let mut bytes = frame(kind, flags, 1, &vec![0xff; length]);
            bytes.extend(frame(kind::PING, 0, 0, &[0; 8]));
            let seen = see(&mut frames, &bytes);
            let ping = Head { length: 8, kind: kind::PING, flags: 0, stream: 0 };
            assert_eq!(seen.last(), Some(&Seen::Head(ping)), "kind {kind}, {length} bytes");
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_the_same(bytes: Vec<u8>, cut in 1_usize..40) {
        let whole = see(&mut Frames::of_client(256), &bytes);
        let mut frames = Frames::of_client(256);
        let seen: Vec<_> = bytes.chunks(cut).flat_map(|bytes| see(&mut frames, bytes)).collect();
        assert_eq!(seen, whole);
    }
}
