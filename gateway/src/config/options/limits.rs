//! Defaults of the limits that protect usher itself, and why they are what they are.

/// Two file descriptors a connection when each has one request in flight: 20 000 of them fit the usual
/// 65 536 a process, and at 30 KB each their buffers stay below a gigabyte.
pub const CONNECTIONS: u32 = 20_000;

/// Go's default, which clients of kube-apiserver live with: a controller-manager keeps about a hundred
/// watches on one connection. When they run out a client opens another.
pub const STREAMS: u32 = 250;

/// Go's `DefaultMaxHeaderBytes`, hence what kube-apiserver accepts.
pub const HEADER_BYTES: u32 = 1 << 20;

/// One HTTP/2 flow-control window: what a client sends before it must be told to go on.
pub const BODY_BUFFER_BYTES: u32 = 64 << 10;

/// A handshake costs about a millisecond of one core: 64 of them delay what is already connected by less
/// than a client notices; the others wait to be accepted.
pub const HANDSHAKES: u32 = 64;

/// The default objects have room for 26 400 waiting requests (528 queues of 50); each costs about 10 KB with
/// its connection's buffers. The queues' own lengths limit first; this one holds whatever they are set to.
pub const WAITING_REQUESTS: u32 = 30_000;
