//! Handshakes over the ring, driven through rustls' unbuffered API: we own every byte, and what is left of the session
//! at its end is its keys.
//!
//! A server's handshake has three parts. Until the ClientHello is complete nothing is worked out and nothing but the
//! bytes is held. Then it waits for a turn ([`super::Gate`]). From there to the end it is half done.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{Acceptor, ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, ExtractedSecrets};
use rustls_pki_types::ServerName;

use super::hello::{Hello, Look};
use super::{Failed, Gate, Observer, Server, Stream};
use crate::ring;

/// Bytes that a peer may say before its handshake is complete. A chain of certificates is some kilobytes, Go's limit on
/// one message 64 KiB; rustls' is the same.
pub const HANDSHAKE_BYTES_MAX: usize = 128 * 1024;

/// A client's first word: a whole ClientHello, or something that will never be one.
#[derive(Debug)]
pub struct Greeting(Vec<u8>);

impl Greeting {
    /// As it came.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whom the client wants to talk to (SNI, RFC 6066 §3), if it says so.
    #[must_use]
    pub fn server_name(&self) -> Option<String> {
        let mut acceptor = Acceptor::default();
        acceptor.read_tls(&mut &self.0[..]).ok()?;
        let accepted = acceptor.accept().ok()??;
        accepted.client_hello().server_name().map(str::to_owned)
    }
}

/// Waits for a client's first word. No time limit: see [`ring::within`].
///
/// # Errors
/// See [`Failed`].
pub async fn greet(below: &ring::Stream) -> Result<Greeting, Failed> {
    let mut received = Vec::new();
    let mut hello = Hello::default();
    loop {
        receive(below, &mut received).await?;
        match hello.look(&received) {
            Look::Ready => return Ok(Greeting(received)),
            Look::PlainHttp => return Err(Failed::PlainHttp),
            Look::Incomplete if received.len() > HANDSHAKE_BYTES_MAX => return Err(Failed::TooLong),
            Look::Incomplete => {}
        }
    }
}

/// The rest of a client's handshake. No time limit: see [`ring::within`].
///
/// # Errors
/// See [`Failed`]. What TLS has to say about it is on its way to the client.
pub async fn accept(
    below: ring::Stream,
    greeting: Greeting,
    server: &Server,
    gate: &Rc<Gate>,
    observer: Option<Rc<dyn Observer>>,
) -> Result<Stream, Failed> {
    gate.turn().await;
    let session = UnbufferedServerConnection::new(server.current())?;
    let rest = Box::pin(shake_hands(&below, Box::new(session), greeting.0));
    let agreed = gate.half_done_while(rest).await.ok_or(Failed::Crowded)??;
    Ok(Stream::new(below, agreed, observer)?)
}

/// A handshake with a server of that name. No time limit: see [`ring::within`].
///
/// # Errors
/// See [`Failed`].
pub async fn connect(
    below: ring::Stream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Stream, Failed> {
    let session = Box::new(UnbufferedClientConnection::new(config, name)?);
    let agreed = Box::pin(shake_hands(&below, session, Vec::new())).await?;
    Ok(Stream::new(below, agreed, None)?)
}

/// What a handshake comes to.
pub(super) struct Agreed {
    pub(super) secrets: ExtractedSecrets,
    pub(super) kernel: Kernel,
    pub(super) protocol: Option<Box<[u8]>>,
    pub(super) certificates: Vec<rustls_pki_types::CertificateDer<'static>>,
    /// In the clear, received with the end of the handshake.
    pub(super) plain: Vec<u8>,
    /// Sealed, received with the end of the handshake.
    pub(super) sealed: Vec<u8>,
}

/// What rustls keeps of a session: it derives further keys and remembers tickets.
pub(super) enum Kernel {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

/// rustls' two unbuffered connections, alike.
trait Session: std::ops::Deref<Target: std::ops::Deref<Target = CommonState>> {
    type Data;
    fn process<'a>(&'a mut self, received: &'a mut [u8]) -> UnbufferedStatus<'a, 'a, Self::Data>;
    fn into_kernel(self: Box<Self>) -> Result<(ExtractedSecrets, Kernel), Error>;
}

impl Session for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'a>(&'a mut self, received: &'a mut [u8]) -> UnbufferedStatus<'a, 'a, Self::Data> {
        self.process_tls_records(received)
    }

    fn into_kernel(self: Box<Self>) -> Result<(ExtractedSecrets, Kernel), Error> {
        let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Kernel::Server(kernel)))
    }
}

impl Session for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'a>(&'a mut self, received: &'a mut [u8]) -> UnbufferedStatus<'a, 'a, Self::Data> {
        self.process_tls_records(received)
    }

    fn into_kernel(self: Box<Self>) -> Result<(ExtractedSecrets, Kernel), Error> {
        let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Kernel::Client(kernel)))
    }
}

async fn shake_hands<S: Session>(
    below: &ring::Stream,
    mut session: Box<S>,
    mut received: Vec<u8>,
) -> Result<Agreed, Failed> {
    let (mut plain, mut to_send) = (Vec::new(), Vec::new());
    let mut total = received.len();
    loop {
        let done = advance(&mut *session, &mut received, &mut plain, &mut to_send);
        below.put(&to_send); // an alert, if it failed
        to_send.clear();
        if done? {
            break;
        }
        if total > HANDSHAKE_BYTES_MAX {
            return Err(Failed::TooLong);
        }
        total += receive(below, &mut received).await?;
    }
    let protocol = session.alpn_protocol().map(Box::from);
    let certificates = session.peer_certificates().unwrap_or_default().to_vec();
    let (secrets, kernel) = session.into_kernel()?;
    Ok(Agreed { secrets, kernel, protocol, certificates, plain, sealed: received })
}

async fn receive(below: &ring::Stream, received: &mut Vec<u8>) -> io::Result<usize> {
    let chunk = poll_fn(|cx| below.poll_recv(cx)).await?;
    if chunk.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    received.extend_from_slice(&chunk);
    Ok(chunk.len())
}

/// Goes on as far as the bytes received reach; true at the end of the handshake.
fn advance<S: Session>(
    session: &mut S,
    received: &mut Vec<u8>,
    plain: &mut Vec<u8>,
    to_send: &mut Vec<u8>,
) -> Result<bool, Error> {
    loop {
        let (discard, step) = step(session.process(received), plain, to_send);
        let step = step.inspect_err(|_| last_words(session, to_send))?;
        received.drain(..discard);
        // Once the handshake is complete records are ours to open: rustls is not asked to look at any that follows.
        match step {
            Step::Blocked => return Ok(false),
            Step::Complete => return Ok(true),
            Step::Done if !session.is_handshaking() && !session.wants_write() => return Ok(true),
            Step::Done => {}
        }
    }
}

enum Step {
    /// Done: on with the next.
    Done,
    /// More bytes are needed.
    Blocked,
    /// The handshake is complete.
    Complete,
}

/// Does what rustls says; how many of the bytes received are used.
fn step<Data>(
    UnbufferedStatus { mut discard, state }: UnbufferedStatus<'_, '_, Data>,
    plain: &mut Vec<u8>,
    to_send: &mut Vec<u8>,
) -> (usize, Result<Step, Error>) {
    let step = state.and_then(|state| match state {
        ConnectionState::EncodeTlsData(mut message) => {
            encode(to_send, |out| message.encode(out))?;
            Ok(Step::Done)
        }
        ConnectionState::TransmitTlsData(sent) => {
            sent.done(); // it will be, before we wait
            Ok(Step::Done)
        }
        ConnectionState::ReadTraffic(mut records) => {
            while let Some(record) = records.next_record() {
                let record = record?;
                plain.extend_from_slice(record.payload);
                discard += record.discard;
            }
            Ok(Step::Done)
        }
        ConnectionState::BlockedHandshake => Ok(Step::Blocked),
        ConnectionState::WriteTraffic(_) => Ok(Step::Complete),
        _ => Err(Error::HandshakeNotComplete), // closed before that
    });
    (discard, step)
}

/// The alert of a handshake that failed. Asked for as long as there is one and no longer: behind it rustls would look
/// at records again, which are not there any more.
fn last_words<S: Session>(session: &mut S, to_send: &mut Vec<u8>) {
    while session.wants_write() {
        let Ok(ConnectionState::EncodeTlsData(mut alert)) = session.process(&mut []).state else { return };
        if encode(to_send, |out| alert.encode(out)).is_err() {
            return;
        }
    }
}

/// Appends what `write` writes.
fn encode(
    to_send: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Error> {
    let start = to_send.len();
    let lost = |error: EncodeError| Error::General(error.to_string());
    let written = match write(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => {
            to_send.resize(start + size.required_size, 0);
            write(&mut to_send[start..]).map_err(lost)?
        }
        other => other.map_err(lost)?,
    };
    to_send.truncate(start + written);
    Ok(())
}
