//! Somebody who is served while somebody else misbehaves, and what is looked at afterwards.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::usher::{Setup, Usher};

/// What usher's memory may grow by at any moment, whatever happens to it here: a connection's windows, and what the
/// allocator does not give back at once.
const GROWTH_MAX_KIB: u64 = 40 * 1024;

/// Lets a client misbehave while another is served. Afterwards: the bystander never noticed, the memory has not
/// grown, the seats are back.
pub(crate) fn beside_a_bystander(setup: Setup, misbehave: impl FnOnce(&Usher)) {
    let usher = setup.start();
    let before = memory_kib(usher.pid(), "VmRSS:");
    let over = AtomicBool::new(false);
    let serve = || {
        let mut client = usher.connect();
        let mut served = 0;
        while !over.load(Ordering::SeqCst) || served == 0 {
            client.get("/api/v1/namespaces/default/configmaps/bystander", "master");
            assert_eq!(client.answer().expect("served").status, 200);
            served += 1;
        }
    };
    std::thread::scope(|scope| {
        let bystander = scope.spawn(serve);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| misbehave(&usher)));
        over.store(true, Ordering::SeqCst);
        bystander.join().expect("the bystander is served all the while");
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    let grown = memory_kib(usher.pid(), "VmHWM:").saturating_sub(before);
    assert!(grown < GROWTH_MAX_KIB, "memory has grown by {grown} KiB");
    usher.all_seats_are_back();
}

/// In use at the level of everybody but the bystander.
pub(crate) fn seats(usher: &Usher) -> f64 {
    usher.metric("apiserver_flowcontrol_current_executing_seats", "\"one-seat\"")
}

pub(crate) fn glitches(usher: &Usher, kind: &str) -> f64 {
    usher.metric("usher_glitches_total", &format!("kind=\"{kind}\""))
}

/// One connection was cut, for this.
pub(crate) fn assert_cut_for(usher: &Usher, kind: &str) {
    let one = |labels: &str| usher.metric("usher_connections_cut_total", labels);
    assert!((one(&format!("reason=\"{kind}\"")) - 1.0).abs() < 0.5, "cut for {kind}");
    assert!((one("") - 1.0).abs() < 0.5, "one connection");
}

/// What is resident, or was at most.
fn memory_kib(pid: i32, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(which)).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
