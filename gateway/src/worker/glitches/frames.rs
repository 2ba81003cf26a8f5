//! HTTP/2 frames, told apart as their bytes pass (RFC 9113 §4.1): heads, and the few payloads that matter.
//!
//! Sans-io, without allocation; what it is given may be cut anywhere. It judges nothing and refuses nothing: that
//! frames are in order is the business of who serves the connection.

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
    /// A parameter of SETTINGS.
    Setting { identifier: u16, value: u32 },
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes to come that say nothing.
    skip: u32,
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
    /// And so many bytes of parameters after it.
    Setting(u32),
}

const HEAD_BYTES: usize = 9;
/// An identifier and a value.
const SETTING_BYTES: u32 = 6;
/// A status that no table knows: a name's index, a length, three digits (RFC 7541 §6.2.1).
const ALONE_BYTES_MAX: u32 = 5;
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

    /// No CONTINUATION follows.
    pub(super) const fn ends_headers(self) -> bool {
        self.flags & 4 != 0
    }
}

impl Frames {
    /// What a client says.
    pub(super) const fn of_client() -> Self {
        Self { skip: PREFACE_BYTES, ..Self::of_server() }
    }

    /// What a server says.
    pub(super) const fn of_server() -> Self {
        Self { skip: 0, awaited: Awaited::Head, part: [0; HEAD_BYTES], part_length: 0 }
    }

    /// Whether the next byte is the first of a frame.
    pub(super) const fn is_between(&self) -> bool {
        self.skip == 0 && self.part_length == 0 && matches!(self.awaited, Awaited::Head)
    }

    /// The next thing to see in these bytes, which are shortened by what has passed; `None`: they are used up.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Seen> {
        loop {
            let skipped = bytes.len().min(self.skip as usize);
            *bytes = &bytes[skipped..];
            self.skip -= u32::try_from(skipped).unwrap_or(self.skip);
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

    /// The awaited part is there.
    fn complete(&mut self) -> Seen {
        match self.awaited {
            Awaited::Head => {
                let head = Head::parse(self.part);
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
            Self::Alone(_) => 1,
            Self::Setting(_) => SETTING_BYTES as usize,
        }
    }
}

#[cfg(test)]
mod tests;
