//! What a process must be allowed to do to take over a port.

use std::fmt;

/// Capabilities that are needed and not there, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(Vec<&'static str>);

/// Numbers of capabilities: linux/capability.h.
const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// Whether this process has all of them, in the namespace that it lives in.
///
/// # Errors
/// The ones that it does not have.
pub(super) fn check() -> Result<(), Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    missing(effective.unwrap_or(u64::MAX)) // without /proc the kernel says it itself
}

fn missing(effective: u64) -> Result<(), Missing> {
    let has = |number: u32| effective & (1 << number) != 0;
    let needed = [
        ("CAP_BPF", has(BPF) || has(SYS_ADMIN)),
        ("CAP_NET_ADMIN", has(NET_ADMIN)),
        // For arithmetic with pointers, which the verifier allows to nobody else.
        ("CAP_PERFMON", has(PERFMON) || has(SYS_ADMIN)),
    ];
    let missing: Vec<_> = needed.into_iter().filter_map(|(name, there)| (!there).then_some(name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "usher has not {}; run it as root, or with AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_PERFMON (systemd), \
             capabilities: {{add: [BPF, NET_ADMIN, PERFMON]}} (Kubernetes)",
            self.0.join(" and ")
        )
    }
}

impl std::error::Error for Missing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let all = 1 << BPF | 1 << NET_ADMIN | 1 << PERFMON;
        assert_eq!(missing(all), Ok(()));
        assert_eq!(
            missing(1 << SYS_ADMIN | 1 << NET_ADMIN),
            Ok(()),
            "before Linux 5.8 there was nothing finer"
        );
        assert_eq!(missing(1 << NET_ADMIN), Err(Missing(vec!["CAP_BPF", "CAP_PERFMON"])));
        let said = missing(0).unwrap_err().to_string();
        assert!(
            said.contains("has not CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON")
                && said.contains("AmbientCapabilities")
        );
    }
}
