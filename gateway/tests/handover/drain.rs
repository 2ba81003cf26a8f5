//! `usher drain --worker=N`: one worker goes, and no client notices; a new process has all of them again.

use std::process::Command;

use crate::apiserver::Apiserver;
use crate::load::{self, Load};
use crate::process::{Folder, Serving};
use crate::{awaited, privileges};

/// Exit code, and what it said.
fn drain(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.arg("drain").args(arguments).arg("--runtime-dir").arg(folder.runtime_dir());
    let output = command.env_clear().output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// It is told to, and is out after a while.
fn drained(folder: &Folder, serving: &Serving, worker: usize) {
    let (code, said) = drain(folder, &[&format!("--worker={worker}")]);
    assert!(code == Some(0) && said.contains("ends within 60s"), "the process's own grace period: {said}");
    awaited("the worker to be out", || serving.status(folder)["workers"][worker]["state"] == "out");
    let line = format!("[i]worker-{worker} is out on ");
    assert!(serving.ask_admin("/readyz?verbose").contains(&line));
}

/// How many sockets listen on the port of that usher.
fn listening(serving: &Serving) -> usize {
    let ends = format!(":{:04X}", serving.secure.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let listens = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().is_some_and(|near| near.ends_with(&ends)) && words.nth(1) == Some("0A")
    };
    table.lines().filter(listens).count()
}

/// Two of three workers go, one after the other, under load; then another process takes over, with `next` workers.
fn two_of_three_go(flags: &[&str], next: usize, apiserver: &Apiserver, takes_port: bool) {
    let folder = Folder::new();
    let mut serving =
        Serving::start(&folder, apiserver, &[flags, &["--workers=3", "--steering=on"]].concat());
    if takes_port {
        serving.has_taken_the_port();
    }
    assert_eq!(listening(&serving), 3);
    let load = Load::start(if takes_port { apiserver.address } else { serving.secure }, &folder);
    let served = |what: &str| {
        let before = load.counts();
        awaited("each kind of client to be served", || load.counts().all_beyond(&before, 20));
        load.assert_well(what);
        assert!(!takes_port || load::plain(apiserver.address).is_none(), "{what}: the port is usher's");
    };
    served("all three");
    let refused = |worker: usize, why: &str| {
        let (code, said) = drain(&folder, &[&format!("--worker={worker}")]);
        assert!(code == Some(1) && said.contains(why), "worker {worker}: {code:?}, {said}");
    };
    refused(3, "there is no worker-3: the workers are worker-0 to worker-2");
    for (number, worker) in [0, 2].into_iter().enumerate() {
        drained(&folder, &serving, worker);
        awaited("its socket to be closed", || listening(&serving) == 2 - number);
        served(&format!("without worker-{worker}"));
        refused(worker, &format!("worker-{worker} has drained already"));
    }
    refused(1, "worker-1 is the last worker that serves");
    assert_eq!(serving.status(&folder)["draining"], false);
    assert!(serving.ask_admin("/metrics").contains("usher_workers{state=\"out\"} 2\n"));

    let workers = format!("--workers={next}");
    let next_one = Serving::after(&serving, &folder, apiserver, &[flags, &[&workers]].concat());
    assert_eq!(serving.ended(), Some(0));
    served("another process");
    assert_eq!(listening(&next_one), next, "it got one socket and made the others");
    awaited("all workers to have served somebody", || {
        let status = next_one.status(&folder);
        let workers = status["workers"].as_array().unwrap();
        workers.len() == next
            && workers.iter().all(|it| it["state"] == "serving" && it["requests"].as_u64() > Some(0))
    });
    eprintln!("{flags:?}: {}", load.end());
    assert_eq!(next_one.end(), 0);
}

#[test]
fn workers_that_are_drained_are_missed_by_nobody() {
    if let Some(reason) = privileges::missing() {
        return privileges::not_tried(reason);
    }
    for (io, next) in [("--io=uring", 3), ("--io=epoll", 4)] {
        two_of_three_go(&[io], next, &Apiserver::start(), false);
    }
}

/// The socket that stands for all where the port is taken over is the first worker's, which goes.
#[test]
fn the_apiservers_port_is_held_by_those_who_stay() {
    if let Some(reason) = privileges::missing() {
        return privileges::not_tried(reason);
    }
    let apiserver = Apiserver::start();
    let address = format!("--takeover-address={}", apiserver.address);
    two_of_three_go(&["--takeover=fail-open", &address], 3, &apiserver, true);
}

#[test]
fn where_connections_would_be_reset_nobody_is_drained() {
    let (folder, apiserver) = (Folder::new(), Apiserver::start());
    let serving = Serving::start(&folder, &apiserver, &["--workers=2", "--steering=off"]);
    let (code, said) = drain(&folder, &["--worker=0", "--grace=1s"]);
    let migrates = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req").unwrap().trim() == "1";
    if migrates {
        assert!(code == Some(0) && said.contains("ends within 1s"), "{said}");
    } else {
        assert!(code == Some(1) && said.contains("sysctl net.ipv4.tcp_migrate_req=1"), "{said}");
        assert_eq!(serving.status(&folder)["workers"][0]["state"], "serving");
    }
    assert_eq!(serving.end(), 0);
    let (code, said) = drain(&folder, &["--worker=0"]);
    assert!(code == Some(3) && said.contains("no usher runs"), "{code:?}: {said}");
    assert_eq!(drain(&folder, &[]).0, Some(2), "which worker?");
}
