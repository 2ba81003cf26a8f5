//! Restarting without a lost connection: one usher after the other takes over, under load from clients who notice
//! everything. Each is another process of the real program.

#![expect(clippy::disallowed_methods, reason = "patience is measured by the test's own clock")]

mod apiserver;
mod drain;
mod failures;
mod load;
#[path = "../../../gateway-ebpf/tests/privileges/mod.rs"]
mod privileges;
mod process;

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use apiserver::Apiserver;
use load::Load;
use process::{Folder, Serving, ends};

/// Longer than anything here takes, on a busy machine: an old usher waits 30 s for one that is not ready.
const PATIENCE: Duration = Duration::from_secs(60);

fn awaited(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited for {what} in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ways of I/O and numbers of workers, each after each and after itself; and connections in a table of the ring's.
const GENERATIONS: [&[&str]; 21] = {
    const A: &[&str] = &["--io=uring", "--workers=1"];
    const B: &[&str] = &["--io=uring", "--workers=2"];
    const C: &[&str] = &["--io=epoll", "--workers=1"];
    const D: &[&str] = &["--io=epoll", "--workers=2"];
    const E: &[&str] = &["--io=uring", "--workers=3", "--ring-registered-files"];
    [A, A, B, A, C, A, D, B, B, C, B, D, C, C, D, D, A, E, E, B, E]
};

#[test]
fn twenty_restarts_under_load_lose_nothing() {
    restarts(&GENERATIONS, &Folder::new(), &Apiserver::start(), &[], None).end();
}

/// The clients speak TLS to the apiserver's own port, and the apiserver only plain HTTP: one whose connection did not come to
/// usher would notice.
#[test]
fn twenty_restarts_that_hold_the_apiservers_port_lose_nothing() {
    if let Some(reason) = privileges::missing() {
        return privileges::not_tried(reason);
    }
    let (folder, apiserver) = (Folder::new(), Apiserver::start());
    let takeover = ["--takeover=fail-open", &format!("--takeover-address={}", apiserver.address)];
    let last = restarts(&GENERATIONS, &folder, &apiserver, &takeover, Some(apiserver.address));
    let directly = || load::plain(apiserver.address).is_some_and(|answer| answer.ends_with("ok"));
    assert!(!directly(), "the port is the last one's");
    last.end();
    assert!(directly(), "and nobody's after it");
}

/// One usher after the other, under load on that address, or on the first one's own. The last one goes on.
fn restarts(
    generations: &[&[&str]],
    folder: &Folder,
    apiserver: &Apiserver,
    more: &[&str],
    address: Option<SocketAddr>,
) -> Serving {
    let mut serving = Serving::start(folder, apiserver, &[generations[0], more].concat());
    if address.is_some() {
        serving.has_taken_the_port();
    }
    let (secure, admin) = (serving.secure, serving.admin);
    let load = Load::start(address.unwrap_or(secure), folder);
    for (generation, flags) in generations.iter().enumerate().skip(1) {
        let before = load.counts();
        let next = Serving::after(&serving, folder, apiserver, &[flags, more].concat());
        assert_eq!((next.secure, next.admin), (secure, admin), "generation {generation}");
        if privileges::missing().is_none() {
            let mode = if flags.contains(&"--workers=1") { "off" } else { "on" };
            let steered = format!("usher_steering_info{{mode=\"{mode}\"");
            assert!(next.ask_admin("/metrics").contains(&steered), "{generation}: {steered}");
        }
        let former = std::mem::replace(&mut serving, next);
        assert_eq!(former.ended(), Some(0), "generation {generation}");
        awaited("each kind of client to be served by the new one", || load.counts().all_beyond(&before, 3));
        load.assert_well(&format!("generation {generation}, {flags:?}"));
    }
    let counts = load.end();
    eprintln!("{} restarts: {counts}", generations.len() - 1);
    assert!(counts.said_goodbye > 0, "clients that kept a connection were told to go");
    serving
}

#[test]
fn what_executes_and_what_waits_is_finished_by_who_began_it() {
    let folder = Folder::new();
    let apiserver = Apiserver::start();
    let objects = format!("--flow-control-dir={}", folder.one_seat().display());
    let one_seat = [&*objects, "--max-requests-inflight=15", "--max-mutating-requests-inflight=5"];
    let first = Serving::start(&folder, &apiserver, &one_seat);
    let (executing, waiting) = (
        load::get_later(first.secure, "/hold/1", &folder),
        load::get_later(first.secure, "/hold/2", &folder),
    );
    awaited("one to execute and one to wait", || {
        let status = first.status(&folder);
        (&status["executing"], &status["waiting"]) == (&1.into(), &1.into())
    });
    let second = Serving::after(&first, &folder, &apiserver, &one_seat);
    awaited("the new one to know what the old one has", || {
        let status = second.status(&folder);
        assert_eq!(status["pid"], second.pid());
        let former = &status["hand_over"]["former"];
        (&former["executing"], &former["waiting"]) == (&1.into(), &1.into())
    });
    let metrics = second.ask_admin("/metrics");
    assert!(metrics.contains("usher_handover_former_requests{phase=\"waiting\"} 1"), "{metrics}");
    assert!(
        load::get_later(second.secure, "/api/v1/pods", &folder).join().unwrap().starts_with("HTTP/1.1 200")
    );
    apiserver.let_go();
    for answer in [executing, waiting] {
        let answer = answer.join().unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\r\nConnection: close\r\n"),
            "{answer}"
        );
    }
    assert_eq!(first.ended(), Some(0));
    awaited("the new one to know that the old one has ended", || {
        second.status(&folder)["hand_over"]["former"].is_null()
    });
    assert!(second.ask_admin("/metrics").contains("usher_handovers_total{result=\"taken\"} 1"));
    assert_eq!(second.end(), 0);
}

#[test]
fn one_that_cannot_start_leaves_the_old_one_as_it_is() {
    let folder = Folder::new();
    let apiserver = Apiserver::start();
    let serving = Serving::start(&folder, &apiserver, &["--workers=2"]);
    let refused = |flags: &[&str]| {
        let (code, said) = ends(process::command(&folder, &apiserver, Some(&serving), flags));
        assert_eq!(code, Some(1), "{flags:?}: {said}");
        assert!(load::get_later(serving.secure, "/api/v1/pods", &folder).join().unwrap().ends_with("ok"));
        assert_eq!(serving.status(&folder)["pid"], serving.pid(), "{flags:?}: {said}");
        said
    };
    let said = refused(&[&format!("--tls-cert-file={}", folder.put("bad.crt", "no certificate").display())]);
    assert!(said.contains("bad.crt"), "{said}");
    assert!(
        serving.ask_admin("/metrics").contains("usher_handovers_total{result=\"given-up\"} 0"),
        "not even asked"
    );

    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let said = refused(&[&format!("--insecure-port={}", elsewhere.local_addr().unwrap().port())]);
    assert!(said.contains("--insecure-port="), "{said}");
    awaited("the old one to have noticed", || {
        serving.ask_admin("/metrics").contains("usher_handovers_total{result=\"given-up\"} 1")
    });
    let next = Serving::after(&serving, &folder, &apiserver, &[]);
    assert_eq!(serving.ended(), Some(0));
    assert_eq!(next.end(), 0);
}

#[test]
fn in_a_container_the_old_one_waits_to_be_ended() {
    let folder = Folder::new();
    let apiserver = Apiserver::start();
    let mut first = Serving::start(&folder, &apiserver, &["--hand-over-wait"]);
    let second = Serving::after(&first, &folder, &apiserver, &[]);
    first.line("drained; waits for SIGTERM, so as not to be started again");
    assert_eq!(first.end(), 0);
    assert_eq!(second.status(&folder)["pid"], second.pid(), "the control socket is the new one's");
    assert_eq!(second.end(), 0);
    assert!(!folder.runtime_dir().join("control.sock").exists());
}

#[test]
fn who_must_take_over_does_not_start_alone() {
    let folder = Folder::new();
    let apiserver = Apiserver::start();
    let (code, said) = ends(process::command(&folder, &apiserver, None, &["--hand-over=required"]));
    assert!(code == Some(1) && said.contains("no usher runs"), "{said}");
    // Who may take over may start alone, too.
    assert_eq!(Serving::start(&folder, &apiserver, &["--hand-over=auto"]).end(), 0);
}

/// `usher status --own` through that program: exit code and what it said.
fn own_status(through: &[&str], folder: &Folder) -> (Option<i32>, String) {
    let usher = env!("CARGO_BIN_EXE_usher");
    let (program, arguments) =
        through.split_first().map_or((usher, None), |(first, rest)| (*first, Some(rest)));
    let mut command = Command::new(program);
    if let Some(arguments) = arguments {
        command.args(arguments).arg(usher);
    }
    command.args(["status", "--own", "--runtime-dir"]).arg(folder.runtime_dir());
    ends(command)
}

#[test]
fn a_container_knows_its_own_usher_from_another_that_answers() {
    let another = ["unshare", "--pid", "--fork"];
    if !Command::new(another[0]).args(&another[1..]).arg("true").status().unwrap().success() {
        return privileges::not_tried("no PID namespace");
    }
    let (folder, apiserver) = (Folder::new(), Apiserver::start());
    let serving = Serving::start(&folder, &apiserver, &[]);
    assert_eq!(own_status(&[], &folder).0, Some(0));
    let (code, said) = own_status(&another, &folder);
    assert!(code == Some(3) && said.contains("another container's usher answers"), "{code:?} {said}");
    assert_eq!(serving.end(), 0);
    assert_eq!(own_status(&[], &folder).0, Some(3), "nobody runs");
}
