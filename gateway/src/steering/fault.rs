//! Why connections cannot be steered, and what to do about it.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;

/// What is in the way. The verifier's log, where there is one, is in it: see [`Fault::log`].
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Not with these capabilities.
    #[error(
        "the kernel does not let usher steer connections: it lacks {missing}; give it {missing} (for a container: \
         securityContext.capabilities.add), or --steering=off"
    )]
    Capabilities {
        /// Their names.
        missing: String,
        /// What the kernel said.
        #[source]
        source: Box<Fault>,
    },
    /// Not at all.
    #[error(
        "the kernel does not let usher steer connections, although it has the capabilities: a seccomp profile, a security \
         module or a lockdown forbids bpf(2); permit that, or give --steering=off"
    )]
    Forbidden {
        /// What the kernel said.
        #[source]
        source: Box<Fault>,
    },
    /// The object, or a map.
    #[error("the kernel does not take the maps of the steering program: {}; it needs Linux 5.14", causes(.0))]
    Maps(#[from] EbpfError),
    /// The program.
    #[error("the kernel does not take the steering program: {}; it needs Linux 5.14", causes(.0))]
    Program(#[source] ProgramError),
    /// A map's contents.
    #[error("the steering program's {map} cannot be filled: {}", causes(.source))]
    Filling {
        /// Which map.
        map: &'static str,
        /// What the kernel said.
        #[source]
        source: MapError,
    },
    /// Workers could not write to it.
    #[error("the table of the workers' loads cannot be mapped: {0}; it needs Linux 5.5")]
    Mapping(#[source] io::Error),
    /// To sockets.
    #[error("the steering program cannot be attached to {address}: {}", causes(.source))]
    Attaching {
        /// Where they listen.
        address: SocketAddr,
        /// What the kernel said.
        #[source]
        source: ProgramError,
    },
    /// More than the program has slots.
    #[error("{workers} workers are more than connections can be steered to: {max}")]
    Workers {
        /// So many.
        workers: usize,
        /// At most.
        max: u32,
    },
    /// A socket does not tell where it listens.
    #[error("a listening socket has no address: {0}")]
    Socket(#[source] io::Error),
    /// It is not the object that belongs to this usher.
    #[error("the steering program's object has no {0}: it is not this usher's")]
    Missing(&'static str),
}

/// What steering takes, by number and name (`capabilities(7)`): maps of sockets are the network administrator's, and the
/// verifier allows arithmetic with pointers only to who may look into the kernel anyway.
const NEEDED: [(u32, &str); 3] = [(39, "CAP_BPF"), (12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON")];
/// Has them all.
const SYS_ADMIN: u32 = 21;

impl Fault {
    /// The same with its cause, where the kernel does not permit it.
    pub(super) fn explained(self) -> Self {
        if !self.is_of_permission() {
            return self;
        }
        let source = Box::new(self);
        let missing = missing(effective().unwrap_or(0));
        if missing.is_empty() {
            return Self::Forbidden { source };
        }
        Self::Capabilities { missing: missing.join(" and "), source }
    }

    /// In a few words, for a metric's label.
    #[must_use]
    pub fn in_short(&self) -> String {
        match self {
            Self::Capabilities { missing, .. } => format!("no {missing}"),
            Self::Forbidden { .. } => "bpf(2) is forbidden".to_owned(),
            other => other.to_string().lines().next().unwrap_or_default().chars().take(SHORT).collect(),
        }
    }

    /// The verifier's log, if it was the verifier who refused.
    #[must_use]
    pub fn log(&self) -> Option<String> {
        match self {
            Self::Program(ProgramError::LoadError { verifier_log, .. }) => Some(verifier_log.to_string()),
            Self::Capabilities { source, .. } | Self::Forbidden { source } => source.log(),
            _ => None,
        }
    }

    fn is_of_permission(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<io::Error>()
                && matches!(io.raw_os_error(), Some(libc::EPERM | libc::EACCES))
            {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// An error and what caused it. The verifier's log, which aya puts into its sentence, is not in it: [`Fault::log`].
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = match error.downcast_ref() {
        Some(ProgramError::LoadError { .. }) => "the verifier refuses it".to_owned(),
        _ => error.to_string().trim_end().to_owned(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let further = error.to_string();
        if !text.contains(&further) {
            text = format!("{text}: {further}");
        }
        cause = error.source();
    }
    text
}

/// Characters of a label.
const SHORT: usize = 200;

/// The needed ones that are not in a set.
fn missing(effective: u64) -> Vec<&'static str> {
    let has = |number: u32| effective >> number & 1 == 1;
    let lacks = |number: u32| !has(number) && !has(SYS_ADMIN);
    NEEDED.into_iter().filter(|(number, _)| lacks(*number)).map(|(_, name)| name).collect()
}

/// The process's effective capabilities, as Linux tells them.
fn effective() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(0), ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
        assert_eq!(missing(1 << 39), ["CAP_NET_ADMIN", "CAP_PERFMON"]);
        assert_eq!(missing(1 << 39 | 1 << 38 | 1 << 12), [""; 0]);
        assert_eq!(missing(1 << 38 | 1 << 12), ["CAP_BPF"]);
        assert!(effective().is_some());
    }

    #[test]
    fn who_may_not_is_told_what_to_do() {
        let denied = || Fault::Mapping(io::Error::from_raw_os_error(libc::EPERM));
        assert!(denied().is_of_permission());
        assert!(!Fault::Missing("x").is_of_permission());
        let fault = Fault::Capabilities { missing: "CAP_BPF".to_owned(), source: Box::new(denied()) };
        assert!(
            fault.to_string().contains("give it CAP_BPF") && fault.to_string().contains("--steering=off")
        );
        assert_eq!(fault.in_short(), "no CAP_BPF");
    }
}
