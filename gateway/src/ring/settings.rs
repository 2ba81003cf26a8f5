//! What a worker's I/O is told when it starts.

use std::str::FromStr;

/// Which way of I/O is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring where it works, else epoll.
    #[default]
    Auto,
    /// io_uring, or nothing.
    Uring,
    /// tokio's current-thread runtime, on epoll.
    Epoll,
}

/// How to do I/O. Figures are of one study: CPU per request, Linux 6.18, loopback, 64 keep-alive connections, a worker, nginx
/// behind it and the generator on two busy cores; only the ratios carry over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which way. io_uring took 0.70 to 0.77 of what epoll did for answers of 1 KiB, as much for those of 100 KiB.
    pub io: Io,
    /// Operations that a turn hands over in one system call. More take another call; they are 64 bytes each, and each
    /// has room for 8 completions of 16 bytes.
    pub entries: u32,
    /// Buffers that bytes are received into, shared by all connections of the worker; a power of two. When few are
    /// left, chunks are copied out; when none is, a connection waits for one. The kernel takes them in turn, so that many
    /// are never in the cache: answers of 100 KiB took 0.97 of HAProxy's CPU with 64 of them, 1.16 with 256, 1.03 with 32;
    /// answers of 1 KiB as much with all three.
    pub buffers: u16,
    /// Bytes of one of them: a TLS record. Answers of 1 KiB took 0.95 of the CPU with 4 KiB and 1.00 with 64 KiB, over TLS HTTP/2
    /// 1.07 and 1.08 (13 paired rounds beside other load; the same program twice gave 0.99): noise.
    pub buffer_size: u32,
    /// A core on which a thread of the kernel looks for operations all the time, instead of being called. On a core
    /// that others need it took 4 to 5 times the CPU: off.
    pub sqpoll: Option<u32>,
    /// Microseconds for which waiting polls the network card before it sleeps; 0: never. Loopback has no card, so 50
    /// changed nothing that could be told from noise: off.
    pub busy_poll: u32,
    /// Microseconds for which a worker whose last wait brought several completions waits for more at once, instead of for
    /// one (6.12); 0: never. Under full load a call of the kernel serves a dozen requests without it, and 30 and
    /// 100 took 0.96 to 1.11 of the CPU (medians of 11 paired rounds, single ones 0.70 to 1.46): noise. At 5 000 requests/s they added
    /// 6 and 5 µs to the median of 167 (noise, too), once several are four: from two on, one wait for several makes the
    /// next find several, and they added 26 and 223. Off.
    pub min_wait: u32,
    /// Microseconds for which a worker that has sent something looks for what comes back before it sleeps; 0: never. A
    /// byte takes 10 to 15 µs to a thread that looks and 50 to 58 to one on a core that sleeps, so at 5 000 requests/s 100
    /// took the median of what usher adds from 171 to 101 and from 167 to 79 µs, 50 to 143, for twice the CPU (88 to 179
    /// µs per request; 136 with 50). Off.
    pub spin: u32,
    /// Sends of at least so many bytes are not copied by the kernel; `None`: all are. Loopback copies them all the same,
    /// later, and tells twice: from 16 KiB on, answers of 100 KiB took 1.2 to 1.3 times the CPU: off. A card may gain.
    pub zero_copy_from: Option<usize>,
    /// Accepted connections are slots of the ring's table of files, which has room for so many, instead of descriptors of
    /// the process (6.13); `None`: they are descriptors. Connections to apiservers always are. `ss -p` and `/proc/PID/fd` do not
    /// show slots. Answers of 1 KiB took 0.96 and 1.02 of the CPU, over TLS HTTP/2 0.98 and 0.97 (medians of 13 and 17 paired rounds
    /// beside other load, quartiles 0.89 to 1.10; the same program twice gave 0.99 to 1.02): noise. Off, for what it
    /// costs otherwise (`ARCHITECTURE.md`).
    pub registered_files: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            io: Io::Auto,
            entries: 1024,
            buffers: 64,
            buffer_size: 16 * 1024,
            sqpoll: None,
            busy_poll: 0,
            min_wait: 0,
            spin: 0,
            zero_copy_from: None,
            registered_files: None,
        }
    }
}

// === impl Io ===

impl Io {
    /// As the flag spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

impl FromStr for Io {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Auto, Self::Uring, Self::Epoll];
        let found = all.into_iter().find(|io| io.name() == name);
        found.ok_or_else(|| "wanted auto, uring or epoll".to_owned())
    }
}
