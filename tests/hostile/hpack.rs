//! Header blocks that are more than they look like (RFC 7541): Huffman codes that unfold, numbers and strings without an
//! end, tables that grow, shrink and turn over. Memory stays what it is, and somebody is told.

use crate::bystander::{assert_cut_for, beside_a_bystander, glitches};
use crate::h2::{H2, flag, frame, get, kind, remembered, request};
use crate::upstream::Upstream;
use crate::usher::{Setup, Usher};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Of a frame, unless somebody says otherwise (RFC 9113 §4.2).
const FRAME_BYTES_MAX: usize = 16_384;

/// `:status: 431`, to be remembered, in Huffman codes.
const STATUS_431: &[u8] = &[0x48, 0x83, 0x69, 0x90, 0xff];

fn setup() -> Setup {
    Setup::new(Upstream::start().address)
}

fn connect(usher: &Usher) -> H2 {
    H2::connect(usher.address, usher.tls(None, &[b"h2"]), &[])
}

/// HEADERS, and as many CONTINUATIONs as it takes.
fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    let (first, rest) = block.split_at(block.len().min(FRAME_BYTES_MAX));
    let ends = if rest.is_empty() { flag::END_HEADERS } else { 0 };
    let mut frames = frame(kind::HEADERS, flag::END_STREAM | ends, stream, first);
    let mut pieces = rest.chunks(FRAME_BYTES_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let ends = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
        frames.extend(frame(kind::CONTINUATION, ends, stream, piece));
    }
    frames
}

/// A literal whose value is Huffman-coded and so long: all zeros, which are five bits each.
fn unfolding(block: &mut Vec<u8>, coded: usize) {
    block.extend(b"\x00\x06x-bomb");
    block.push(0xff);
    integer(block, coded - 127);
    block.extend(std::iter::repeat_n(0, coded));
}

/// The rest of an integer that did not fit into its prefix (RFC 7541 §5.1).
fn integer(block: &mut Vec<u8>, mut value: usize) {
    while value >= 128 {
        block.push(u8::try_from(value % 128).expect("seven bits") | 128);
        value /= 128;
    }
    block.push(u8::try_from(value).expect("seven bits"));
}

#[test]
fn huffman_codes_count_as_what_they_unfold_to() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        // 700 KB on the wire, which is below the limit of 1 MiB; 1.1 MB unfolded, which is not.
        let mut block = request("GET", CONFIG_MAPS, "alice");
        unfolding(&mut block, 700_000);
        for number in 0..10 {
            let stream = 2 * number + 1;
            assert!(client.send(&headers(stream, &block)));
            let answer = client.until(kind::HEADERS, stream);
            // A literal the first time; later what the table remembers.
            assert!(number > 0 || answer.payload.starts_with(STATUS_431), "{answer:?}");
        }
        assert!((glitches(usher, "header-list") - 10.0).abs() < 0.5);
        // What is below the limit when unfolded is none of this.
        let mut small = request("GET", CONFIG_MAPS, "alice");
        unfolding(&mut small, 1_000);
        assert!(client.send(&headers(21, &small)));
        client.until(kind::DATA, 21);
        assert!((glitches(usher, "header-list") - 10.0).abs() < 0.5);
    });
}

#[test]
fn updates_of_the_tables_size_count_as_lines() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        let mut block = vec![0x20; 16_000];
        block.extend(request("GET", CONFIG_MAPS, "alice"));
        for number in 0..100 {
            let stream = 2 * number + 1;
            if !client.send(&headers(stream, &block)) || client.frame().is_none() {
                break;
            }
        }
        client.goodbye();
        assert_cut_for(usher, "header-lines");
    });
}

#[test]
fn tables_that_turn_over_stay_small() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        let mut block = request("GET", CONFIG_MAPS, "alice");
        (0..10).for_each(|_| remembered(&mut block, "x-churn", &"x".repeat(4_000)));
        for number in 0..90 {
            let stream = 2 * number + 1;
            assert!(client.send(&headers(stream, &block)));
            client.until(kind::DATA, stream);
        }
        assert!(usher.metric("usher_connections_cut_total", "") < 0.5, "there is nothing wrong with it");
    });
}

#[test]
fn numbers_and_indexes_that_lead_nowhere_end_the_connection() {
    beside_a_bystander(setup(), |usher| {
        let endless = |first: u8| [vec![first], vec![0x80; 16_000]].concat();
        let attacks = [
            ("an index without an end", endless(0xff)),
            ("a size of the table without an end", endless(0x3f)),
            ("a length without an end", [b"\x00".to_vec(), endless(0x7f)].concat()),
            ("an index of nothing", vec![0x80]),
            ("an index beyond the table", vec![0xff, 0xff, 0x7f]),
            ("codes that end in the middle", vec![0x00, 0x81, 0x1f, 0x81, 0xfe]),
            ("a code for the end of the string", vec![0x00, 0x84, 0xff, 0xff, 0xff, 0xff, 0x01, b'x']),
        ];
        let mut times = 0.0;
        for (what, attack) in attacks {
            let mut client = connect(usher);
            let block = [request("GET", CONFIG_MAPS, "alice"), attack].concat();
            client.send(&headers(1, &block));
            assert!(client.goodbye().is_some_and(|code| code != 0), "{what}");
            times += 1.0;
            assert!((glitches(usher, "connection-error") - times).abs() < 0.5, "{what}");
        }
    });
}

#[test]
fn a_string_without_an_end_is_not_waited_for() {
    beside_a_bystander(setup(), |usher| {
        let mut client = connect(usher);
        let mut block = request("GET", CONFIG_MAPS, "alice");
        block.extend(b"\x00\x06x-long\x7f");
        integer(&mut block, 200 << 20); // so much it says it is
        assert!(client.send(&frame(kind::HEADERS, flag::END_STREAM, 1, &block)));
        let filler = frame(kind::CONTINUATION, 0, 1, &[b'x'; FRAME_BYTES_MAX]);
        let is_cut = (0..1_000).any(|_| !client.send(&filler));
        assert!(is_cut, "16 MB were taken");
        assert!(client.goodbye().is_some_and(|code| code != 0));
        // Somebody else's connection, and one's own next one, work as before.
        let mut next = connect(usher);
        assert!(next.send(&get(1, CONFIG_MAPS, "alice")));
        next.until(kind::DATA, 1);
    });
}
