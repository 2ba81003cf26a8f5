//! Whether a client has said all of its first word, before anything is worked out for it.
//!
//! Only lengths are read here (RFC 8446 §5.1, §4): what they enclose is rustls' to judge.

/// Where the reader of a ClientHello stands. Work is proportional to the records, however few bytes come at a time.
#[derive(Debug, Default)]
pub(super) struct Hello {
    /// Where the next record begins.
    next: usize,
    /// The first bytes of the message: type and length.
    header: [u8; 4],
    /// Bytes of the message in whole records so far.
    message: usize,
}

/// What the bytes so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The beginning of a ClientHello.
    Incomplete,
    /// A whole ClientHello, or something that will never be one.
    Ready,
    /// A request of HTTP/1 without TLS.
    PlainHttp,
}

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
/// Most bytes in a record in the clear.
const RECORD_MAX: usize = 16 * 1024;
/// How Go tells (`tlsRecordHeaderLooksLikeHTTP` in net/http).
const HTTP: [&[u8]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];

// === impl Hello ===

impl Hello {
    /// Looks at all bytes so far; some must have come since the last look.
    pub(super) fn look(&mut self, bytes: &[u8]) -> Look {
        if bytes.first().is_some_and(|first| *first != HANDSHAKE) {
            let beginning = &bytes[..bytes.len().min(RECORD_HEADER)];
            return match HTTP.iter().find(|method| method.starts_with(beginning)) {
                Some(_) if beginning.len() == RECORD_HEADER => Look::PlainHttp,
                Some(_) => Look::Incomplete,
                None => Look::Ready,
            };
        }
        while let Some([kind, major, _, high, low, rest @ ..]) = bytes.get(self.next..) {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if *kind != HANDSHAKE || *major != 3 || length == 0 || length > RECORD_MAX {
                return Look::Ready;
            }
            let Some(payload) = rest.get(..length) else { return Look::Incomplete };
            for (place, byte) in self.header.iter_mut().skip(self.message).zip(payload) {
                *place = *byte;
            }
            self.message += length;
            self.next += RECORD_HEADER + length;
            let [_, high, middle, low] = self.header;
            let whole = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
            if self.message >= 4 && self.message >= whole {
                return Look::Ready;
            }
        }
        Look::Incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of `length` bytes after its header, in records of `step` bytes.
    fn records(length: usize, step: usize) -> Vec<u8> {
        let length_bytes = u32::try_from(length).unwrap().to_be_bytes();
        let message = [&[1], &length_bytes[1..], &vec![7; length]].concat();
        let record = |payload: &[u8]| {
            let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
            [&[HANDSHAKE, 3, 1, length[0], length[1]], payload].concat()
        };
        message.chunks(step).flat_map(record).collect()
    }

    #[test]
    fn a_hello_is_complete_with_its_last_byte_however_it_comes() {
        for (length, step) in [(300, 16_384), (300, 1), (300, 3), (40_000, 16_384), (0, 2)] {
            let bytes = records(length, step);
            let mut hello = Hello::default();
            for end in 1..bytes.len() {
                assert_eq!(hello.look(&bytes[..end]), Look::Incomplete, "{length} {step} {end}");
            }
            assert_eq!(hello.look(&bytes), Look::Ready);
            assert_eq!(Hello::default().look(&bytes), Look::Ready, "at once");
        }
    }

    #[test]
    fn what_can_be_no_hello_waits_for_nothing() {
        for bytes in [
            &b"\x15\x03\x01"[..],
            b"\x16\x02\x00\x00\x01",
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03\x01\xff\xff",
            b"SSH-2.0",
        ] {
            assert_eq!(Hello::default().look(bytes), Look::Ready, "{bytes:?}");
        }
        assert_eq!(Hello::default().look(b"GET"), Look::Incomplete);
        assert_eq!(Hello::default().look(b"GET / HTTP/1.1"), Look::PlainHttp);
        assert_eq!(Hello::default().look(b"GETTER"), Look::Ready);
    }
}
