//! Lines of JSON over a Unix socket, with file descriptors beside them.
//!
//! Descriptors belong to the line they came with. Everything is bounded: a line's bytes, its descriptors, and the time
//! until it is complete.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use usher_flowcontrol::units::Nanos;

use super::ANSWER_TIMEOUT;
use crate::ring;

/// Bytes of a line. The longest, a status of 64 workers, has some ten thousand.
const BYTES_MAX: usize = 64 * 1024;
/// Descriptors beside a line: what Linux passes with one message (`SCM_MAX_FD`). 64 workers with three listening addresses
/// have 192 sockets.
pub(super) const DESCRIPTORS_MAX: usize = 253;

/// One side of a conversation.
#[derive(Debug)]
pub struct Line(UnixStream);

/// A line that was received.
#[derive(Debug)]
pub struct Letter {
    text: Vec<u8>,
    /// What came beside it, in the sender's order.
    pub descriptors: Vec<OwnedFd>,
}

/// A line that did not come, or not as it should.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It took too long.
    #[error("there was no answer within {0:?}")]
    Late(Duration),
    /// The other side has gone in the midst of it, or could not be written to.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// A line without an end.
    #[error("a line of more than {BYTES_MAX} bytes came")]
    TooLong,
    /// More than the kernel passes, or this process may have.
    #[error(
        "not all file descriptors came through: more than {DESCRIPTORS_MAX}, or the limit of open files is too low"
    )]
    Descriptors,
    /// Not what was expected.
    #[error("what came is not understood: {0}")]
    Garbled(serde_json::Error),
}

// === impl Line ===

impl Line {
    /// Over this connection, which blocks.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// Sends a line, and these descriptors beside it.
    ///
    /// # Errors
    /// Nobody takes it.
    pub fn send(&mut self, what: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), Broken> {
        let mut text = serde_json::to_vec(what).map_err(Broken::Garbled)?;
        text.push(b'\n');
        if text.len() > BYTES_MAX {
            return Err(Broken::TooLong);
        }
        self.0.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let sent = if descriptors.is_empty() { 0 } else { self.send_beside(&text, descriptors)? };
        self.0.write_all(&text[sent..])?;
        Ok(())
    }

    /// The descriptors go with the first bytes of the line. Returns how many.
    fn send_beside(&mut self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, Broken> {
        let message = SendAncillaryMessage::ScmRights(descriptors);
        let mut space = vec![MaybeUninit::uninit(); message.size()];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if descriptors.len() > DESCRIPTORS_MAX || !beside.push(message) {
            return Err(Broken::Descriptors);
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(text)], &mut beside, SendFlags::NOSIGNAL);
        Ok(sent.map_err(io::Error::from)?)
    }

    /// The next line, complete within `patience`; `None` if the other side has closed.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn receive(&mut self, patience: Duration) -> Result<Option<Letter>, Broken> {
        let until = ring::precise() + Nanos(i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX / 4));
        let mut letter = Letter { text: Vec::new(), descriptors: Vec::new() };
        loop {
            let left = u64::try_from((until - ring::precise()).0).unwrap_or(0);
            if left == 0 {
                return Err(Broken::Late(patience));
            }
            // Less than a microsecond would mean: for ever.
            self.0.set_read_timeout(Some(Duration::from_nanos(left.max(1_000))))?;
            let some = self.receive_some(&mut letter);
            if letter.descriptors.len() > DESCRIPTORS_MAX {
                return Err(Broken::Descriptors); // a few with each piece of a line
            }
            match some {
                Ok(0) if letter.text.is_empty() => return Ok(None),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(_) if letter.text.ends_with(b"\n") => return Ok(Some(letter)),
                Ok(_) if letter.text.len() >= BYTES_MAX => return Err(Broken::TooLong),
                Ok(_) => {}
                Err(Broken::Io(error)) if is_late(&error) => {}
                Err(Broken::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(broken) => return Err(broken),
            }
        }
    }

    /// Looks ahead so as not to take anything of the line after this one: the sides take turns but for a hand-over's
    /// reports, which come without being asked for.
    fn receive_some(&mut self, letter: &mut Letter) -> Result<usize, Broken> {
        let mut bytes = [0; 4096];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let room = &mut [IoSliceMut::new(&mut bytes)];
        let seen = recvmsg(&self.0, room, &mut beside, RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC);
        let seen = seen.map_err(io::Error::from)?;
        if seen.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Broken::Descriptors);
        }
        // A look passes descriptors, too, as copies of their own; taking the bytes without room for them drops the others.
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                letter.descriptors.extend(descriptors);
            }
        }
        let line = bytes[..seen.bytes].iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        let taken = &mut bytes[..line.unwrap_or(seen.bytes)];
        self.0.read_exact(taken)?;
        letter.text.extend_from_slice(taken);
        Ok(taken.len())
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

// === impl Letter ===

impl Letter {
    /// What it says.
    ///
    /// # Errors
    /// Something else.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Broken> {
        serde_json::from_slice(&self.text).map_err(Broken::Garbled)
    }
}
