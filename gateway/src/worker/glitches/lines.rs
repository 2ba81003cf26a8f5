//! Lines of a header list, counted as its bytes pass (RFC 7541 §6), before anybody makes room for them.
//!
//! A byte can stand for a line that takes a hundred in memory; the limit of HTTP/2 is on bytes. Nothing is decoded:
//! strings are stepped over, indexes are not looked up. In a list that is no HPACK the count is as good as any: it ends
//! its connection.

/// Counts the lines of one list after the other.
#[derive(Debug)]
pub(super) struct Lines {
    count: u32,
    /// The count to tell next.
    mark: u32,
    first_mark: u32,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The first byte of a line.
    Line,
    /// More bytes of an index, and so many strings.
    Index(u8),
    /// The first byte of a string's length, and so many strings after it.
    Length(u8),
    /// More bytes of it.
    LongLength { length: u32, shift: u8, more: u8 },
    /// Bytes of a string.
    Text { left: u32, more: u8 },
}

/// It is told whenever a list has so many more lines than it may have.
const LINES_A_MARK: u32 = 1024;

impl Lines {
    /// Lists may have `lines_max` lines.
    pub(super) fn new(lines_max: usize) -> Self {
        let first_mark = u32::try_from(lines_max).unwrap_or(u32::MAX).saturating_add(LINES_A_MARK);
        Self { count: 0, mark: first_mark, first_mark, state: State::Line }
    }

    /// The next list begins.
    pub(super) fn begin(&mut self) {
        (self.count, self.mark, self.state) = (0, self.first_mark, State::Line);
    }

    /// Counts in these bytes, which are shortened by what has passed. `true`: there are a thousand lines more than
    /// there may be, or another thousand; `false`: the bytes are used up.
    pub(super) fn pass(&mut self, bytes: &mut &[u8]) -> bool {
        while let Some((&byte, rest)) = bytes.split_first() {
            if let State::Text { left, more } = self.state {
                let taken = bytes.len().min(left as usize);
                *bytes = &bytes[taken..];
                self.state = text(left - u32::try_from(taken).unwrap_or(left), more);
                continue;
            }
            *bytes = rest;
            self.state = self.step(byte);
            if self.count >= self.mark {
                self.mark = self.mark.saturating_add(LINES_A_MARK);
                return true;
            }
        }
        false
    }

    fn step(&mut self, byte: u8) -> State {
        let continues = byte & 0x80 != 0;
        match self.state {
            State::Line => {
                self.count = self.count.saturating_add(1);
                match byte {
                    0x80.. => index(byte, 0x7f, 0),
                    0x40.. => index(byte, 0x3f, strings(byte & 0x3f)),
                    0x20.. => index(byte, 0x1f, 0), // the table's size
                    _ => index(byte, 0x0f, strings(byte & 0x0f)),
                }
            }
            State::Index(more) if continues => State::Index(more),
            State::Index(more) => then(more),
            State::Length(more) => match byte & 0x7f {
                0x7f => State::LongLength { length: 0x7f, shift: 0, more },
                length => text(length.into(), more),
            },
            State::LongLength { length, shift, more } => {
                let add = u32::from(byte & 0x7f).checked_shl(shift.into()).unwrap_or(0);
                let length = length.saturating_add(add);
                if continues {
                    State::LongLength { length, shift: shift.saturating_add(7), more }
                } else {
                    text(length, more)
                }
            }
            State::Text { .. } => State::Line, // stepped over before
        }
    }
}

/// A literal's strings: its value, and its name if no index stands for it.
const fn strings(index: u8) -> u8 {
    if index == 0 { 2 } else { 1 }
}

/// An index with its first byte read, and so many strings.
fn index(byte: u8, prefix: u8, strings: u8) -> State {
    if byte & prefix == prefix { State::Index(strings) } else { then(strings) }
}

/// So many strings are to come.
const fn then(strings: u8) -> State {
    match strings {
        0 => State::Line,
        strings => State::Length(strings - 1),
    }
}

const fn text(left: u32, more: u8) -> State {
    if left == 0 { then(more) } else { State::Text { left, more } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lists: &[&[u8]]) -> u32 {
        let mut lines = Lines::new(usize::MAX);
        lists.iter().for_each(|bytes| assert!(!lines.pass(&mut &bytes[..])));
        lines.count
    }

    /// RFC 7541, appendix C.
    #[test]
    fn lines_of_every_kind() {
        let check = |bytes: &[u8], expected| {
            assert_eq!(count(&[bytes]), expected, "{bytes:02x?}");
            for cut in 1..bytes.len() {
                assert_eq!(count(&[&bytes[..cut], &bytes[cut..]]), expected, "{bytes:02x?} cut at {cut}");
            }
        };
        check(b"\x40\x0acustom-key\x0dcustom-header", 1); // C.2.1
        check(b"\x04\x0c/sample/path", 1); // C.2.2
        check(b"\x10\x08password\x06secret", 1); // C.2.3
        check(b"\x82", 1); // C.2.4
        check(b"\x82\x86\x84\x41\x0fwww.example.com", 4); // C.3.1
        check(b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value", 5); // C.3.3
        check(b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", 4); // C.4.1
        check(b"\x20\x3f\xe1\x1f\x82", 3); // sizes of the table
        check(b"\xff\x80\x01\x82", 2); // a long index
        check(b"\x0f\x08\x01x\x82", 2); // a literal with a long index
        check(b"\x00\x00\x00\x82", 2); // empty strings
        let long =
            [b"\x00\x7f\x49".to_vec(), vec![b'n'; 200], b"\x7f\x81\x01".to_vec(), vec![0x82; 256]].concat();
        check(&[long, vec![0x82; 3]].concat(), 4);
    }

    #[test]
    fn too_many_are_told_by_the_thousand() {
        let mut lines = Lines::new(100);
        let list = [0x82; 5_000];
        let mut told = 0;
        for _ in 0..2 {
            lines.begin();
            let mut bytes = &list[..];
            while lines.pass(&mut bytes) {
                told += 1;
            }
        }
        assert_eq!(told, 8, "at 1124, 2148, 3172, 4196, twice");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same(bytes: Vec<u8>, cut in 1_usize..20) {
            let pieces: Vec<_> = bytes.chunks(cut).collect();
            assert_eq!(count(&pieces), count(&[&bytes]));
        }
    }
}
