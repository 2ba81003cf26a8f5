//! HTTP/2 frames, told apart as their bytes pass (RFC 9113 §4.1): heads, and the few payloads that matter.
//!
//! Sans-io, without allocation; what it is given may be cut anywhere. It judges nothing and refuses nothing: that
//! frames are in order is the business of who serves the connection.

use super::lines::Lines;

/// Types of frames (RFC 9113 §6, RFC 9218 §7.1).
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PUSH_PROMISE: u8 = 5;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
    pub(in super::super) const PRIORITY_UPDATE: u8 = 16;
}

/// A frame's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of its payload.
    pub(super) length: u32,
    /// See [`kind`].
    pub(super) kind: u8,
    flags: u8,
    /// 0: the connection.
    pub(super) stream: u32,
}

/// What has just passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A head; its payload follows.
    Head(Head),
    /// The error code of the RST_STREAM or GOAWAY with that head.
    Code(Head, u32),
    /// The first byte of a header list that is a stream's last frame and has room for little more than a status.
    Alone(Head, u8),
    /// How a header list is padded.
    Padding,
    /// A header list has a thousand lines more than it may have, or another thousand.
    ManyLines,
    /// A parameter of SETTINGS.
    Setting { identifier: u16, value: u32 },
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes to come that say nothing.
    skip: u32,
    /// Bytes of a header list after that, and of its frame after those.
    list: u32,
    padding: u32,
    /// Counts their lines; `None`: the lists are ours.
    lines: Option<Lines>,
    awaited: Awaited,
    /// Its bytes so far.
    part: [u8; HEAD_BYTES],
    part_length: usize,
}

#[derive(Clone, Copy, Debug)]
enum Awaited {
    Head,
    /// Of that frame.
    Code(Head),
    /// The first byte of its list.
    Alone(Head),
    /// The number of bytes that pad its list.
    Padding(Head),
    /// And so many bytes of parameters after it.
    Setting(u32),
}

const HEAD_BYTES: usize = 9;
/// An identifier and a value.
const SETTING_BYTES: u32 = 6;
/// A status that no table knows: a name's index, a length, three digits (RFC 7541 §6.2.1).
const ALONE_BYTES_MAX: u32 = 5;
/// A stream that it depends on, and a weight.
const PRIORITY_BYTES: u32 = 5;
/// The magic that a client begins with (RFC 9113 §3.4).
const PREFACE_BYTES: u32 = 24;

impl Head {
    fn parse(bytes: [u8; HEAD_BYTES]) -> Self {
        let [length_2, length_1, length_0, kind, flags, stream @ ..] = bytes;
        Self {
            length: u32::from_be_bytes([0, length_2, length_1, length_0]),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & !(1 << 31), // the reserved bit
        }
    }

    /// The answer to SETTINGS or PING.
    pub(super) const fn is_ack(self) -> bool {
        self.flags & 1 != 0
    }

    /// The last frame of DATA or HEADERS of its stream.
    pub(super) const fn ends_stream(self) -> bool {
        self.flags & 1 != 0
    }

    /// Its payload, or most of it, is of a header list.
    const fn has_list(self) -> bool {
        matches!(self.kind, kind::HEADERS | kind::CONTINUATION)
    }

    const fn is_padded(self) -> bool {
        self.kind == kind::HEADERS && self.flags & 8 != 0
    }

    const fn has_priority(self) -> bool {
        self.kind == kind::HEADERS && self.flags & 0x20 != 0
    }

    /// No CONTINUATION follows.
    pub(super) const fn ends_headers(self) -> bool {
        self.flags & 4 != 0
    }
}

impl Frames {
    /// What a client says.
    pub(super) fn of_client(header_lines: usize) -> Self {
        Self { skip: PREFACE_BYTES, lines: Some(Lines::new(header_lines)), ..Self::of_server() }
    }

    /// What a server says.
    pub(super) const fn of_server() -> Self {
        let (awaited, part) = (Awaited::Head, [0; HEAD_BYTES]);
        Self { skip: 0, list: 0, padding: 0, lines: None, awaited, part, part_length: 0 }
    }

    /// Whether the next byte is the first of a frame.
    pub(super) const fn is_between(&self) -> bool {
        self.skip == 0 && self.list == 0 && self.part_length == 0 && matches!(self.awaited, Awaited::Head)
    }

    /// The next thing to see in these bytes, which are shortened by what has passed; `None`: they are used up.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Seen> {
        loop {
            let skipped = bytes.len().min(self.skip as usize);
            *bytes = &bytes[skipped..];
            self.skip -= u32::try_from(skipped).unwrap_or(self.skip);
            if self.list > 0 && !bytes.is_empty() {
                if self.pass_list(bytes) {
                    return Some(Seen::ManyLines);
                }
                continue;
            }
            if let (Awaited::Head, 0, Some((head, rest))) =
                (self.awaited, self.part_length, bytes.split_first_chunk())
            {
                (self.part, *bytes) = (*head, rest); // the same as below, for nearly all
                return Some(self.complete());
            }
            let wanted = self.awaited.bytes();
            let (have, missing) = (self.part_length, wanted - self.part_length);
            let taken = missing.min(bytes.len());
            if taken == 0 {
                return None;
            }
            let (now, rest) = bytes.split_at(taken);
            *bytes = rest;
            self.part[have..have + taken].copy_from_slice(now);
            self.part_length += taken;
            if taken == missing {
                self.part_length = 0;
                return Some(self.complete());
            }
        }
    }

    /// Whether there are too many lines in these bytes of a header list.
    fn pass_list(&mut self, bytes: &mut &[u8]) -> bool {
        let (list, after) = bytes.split_at(bytes.len().min(self.list as usize));
        let mut rest = list;
        let many = self.lines.as_mut().is_some_and(|lines| lines.pass(&mut rest));
        if !many {
            rest = &[];
        }
        let passed = list.len() - rest.len();
        self.list -= u32::try_from(passed).unwrap_or(self.list);
        *bytes = if rest.is_empty() { after } else { &bytes[passed..] };
        if self.list == 0 {
            self.skip = std::mem::take(&mut self.padding);
        }
        many
    }

    /// What surrounds a header list: the dependency before it, `padding` after it.
    fn frame_list(&mut self, head: Head, padding: u32) {
        let before = if head.has_priority() { PRIORITY_BYTES } else { 0 };
        let rest = head.length.saturating_sub(head.is_padded().into());
        self.awaited = Awaited::Head;
        match rest.checked_sub(before + padding) {
            Some(list) if list > 0 => (self.skip, self.list, self.padding) = (before, list, padding),
            _ => self.skip = rest, // nothing, or an error
        }
    }

    /// The awaited part is there.
    fn complete(&mut self) -> Seen {
        match self.awaited {
            Awaited::Head => {
                let head = Head::parse(self.part);
                if let Some(lines) = self.lines.as_mut().filter(|_| head.has_list()) {
                    if head.kind == kind::HEADERS {
                        lines.begin();
                    }
                    if head.is_padded() && head.length > 0 {
                        self.awaited = Awaited::Padding(head);
                    } else {
                        self.frame_list(head, 0);
                    }
                    return Seen::Head(head);
                }
                (self.awaited, self.skip) = match (head.kind, head.length) {
                    (kind::RST_STREAM, 4..) => (Awaited::Code(head), 0),
                    (kind::GOAWAY, 8..) => (Awaited::Code(head), 4), // behind the last stream's number
                    (kind::SETTINGS, SETTING_BYTES..) => (Awaited::Setting(head.length - SETTING_BYTES), 0),
                    (kind::HEADERS, 1..=ALONE_BYTES_MAX) if head.ends_stream() => (Awaited::Alone(head), 0),
                    (_, length) => (Awaited::Head, length),
                };
                Seen::Head(head)
            }
            Awaited::Code(head) => {
                let before = if head.kind == kind::GOAWAY { 8 } else { 4 };
                (self.awaited, self.skip) = (Awaited::Head, head.length - before);
                Seen::Code(head, value(self.part))
            }
            Awaited::Alone(head) => {
                (self.awaited, self.skip) = (Awaited::Head, head.length - 1);
                Seen::Alone(head, self.part[0])
            }
            Awaited::Padding(head) => {
                self.frame_list(head, self.part[0].into());
                Seen::Padding
            }
            Awaited::Setting(left) => {
                (self.awaited, self.skip) = match left {
                    SETTING_BYTES.. => (Awaited::Setting(left - SETTING_BYTES), 0),
                    left => (Awaited::Head, left),
                };
                let [high, low, value @ ..] = self.part;
                let [a, b, c, d, ..] = value;
                Seen::Setting {
                    identifier: u16::from_be_bytes([high, low]),
                    value: u32::from_be_bytes([a, b, c, d]),
                }
            }
        }
    }
}

fn value([a, b, c, d, ..]: [u8; HEAD_BYTES]) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

impl Awaited {
    const fn bytes(self) -> usize {
        match self {
            Self::Head => HEAD_BYTES,
            Self::Code(_) => 4,
            Self::Alone(_) | Self::Padding(_) => 1,
            Self::Setting(_) => SETTING_BYTES as usize,
        }
    }
}

#[cfg(test)]
mod tests;
