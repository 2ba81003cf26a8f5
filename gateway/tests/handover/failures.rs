//! One usher after the other takes the sockets and comes to nothing before it is ready: nobody loses anything, the old one
//! has all that it had, and the next one takes over.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use aya::maps::{HashMap, Map, MapData};
use serde_json::Value;
use socket2::SockRef;
use usher::control;
use usher::handover::{Taken, ask, what};
use usher::steering::{Budget, Steering};
use usher_ebpf::takeover::{MAPS, OWN, Source};

use crate::apiserver::Apiserver;
use crate::load::Load;
use crate::process::{self, Folder, Serving, ends};
use crate::{awaited, privileges};

/// The old one, and clients who notice everything.
struct Trial<'a> {
    folder: &'a Folder,
    apiserver: &'a Apiserver,
    old: Serving,
    load: Load,
    /// What it said of itself before anybody came.
    status: Value,
    /// How many have come to nothing.
    given_up: u64,
}

#[test]
fn who_fails_before_it_is_ready_leaves_steering_and_takeover_to_the_old_one() {
    if let Some(reason) = privileges::missing() {
        return privileges::not_tried(reason);
    }
    let (folder, apiserver) = (Folder::new(), Apiserver::start());
    let takeover = format!("--takeover-address={}", apiserver.address);
    let more = ["--steering=on", "--takeover=fail-open", &takeover];
    let old = Serving::start(&folder, &apiserver, &[&["--io=uring", "--workers=2"], &more[..]].concat());
    let trial = Trial::new(&folder, &apiserver, old, apiserver.address);
    assert_eq!((&trial.status["steering"]["mode"], trial.port("owner")), (&"on".into(), &"usher".into()));
    // One worker more: a socket that only the new one has, and to which the old one's program sends nobody.
    trial.run(&[&["--io=epoll", "--workers=3"], &more[..]].concat());
}

#[test]
fn who_fails_before_it_is_ready_leaves_plain_sockets_to_the_old_one() {
    let (folder, apiserver) = (Folder::new(), Apiserver::start());
    let old = Serving::start(&folder, &apiserver, &["--io=epoll", "--workers=2", "--steering=off"]);
    let address = old.secure;
    Trial::new(&folder, &apiserver, old, address).run(&["--io=uring", "--workers=2", "--steering=off"]);
}

impl<'a> Trial<'a> {
    fn new(folder: &'a Folder, apiserver: &'a Apiserver, old: Serving, clients: SocketAddr) -> Self {
        let status = old.status(folder); // it answers when it has all that it is to have
        Self { folder, apiserver, load: Load::start(clients, folder), old, status, given_up: 0 }
    }

    fn has_programs(&self) -> bool {
        self.status["steering"]["mode"] == "on"
    }

    /// What it said of the apiserver's port.
    fn port(&self, name: &str) -> &Value {
        &self.status["takeover"][name]
    }

    /// New ones with these flags.
    fn run(mut self, flags: &[&str]) {
        let new = |trial: &Self, more: &[&str]| {
            let flags = [flags, more].concat();
            process::command(trial.folder, trial.apiserver, Some(&trial.old), &flags)
        };
        // Another program's port: it is tried when the sockets have been taken.
        let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let busy = format!("--insecure-port={}", elsewhere.local_addr().unwrap().port());
        let (code, said) = ends(new(&self, &[&busy]));
        assert!(code == Some(1) && said.contains("--insecure-port="), "{code:?} {said}");
        self.goes_on("after one with a bad configuration");

        drop(Serving::run(held_at_its_workers(new(&self, &[])))); // kill -9
        self.goes_on("after one that was killed");

        let (code, said) = ends(held_at_its_workers(new(&self, &[])));
        assert!(code == Some(1) && said.contains("did not answer within"), "{code:?} {said}");
        self.goes_on("after one whose workers hang");

        self.one_is_never_ready();
        drop(self.taken());
        self.goes_on("after one that only looked");

        let before = self.load.counts();
        let next = Serving::after(&self.old, self.folder, self.apiserver, flags);
        assert_eq!(self.old.ended(), Some(0));
        awaited("all kinds of clients to be served by the next one", || {
            self.load.counts().all_beyond(&before, 3)
        });
        self.load.assert_well("with the next one");
        let status = next.status(self.folder);
        assert_eq!(status["pid"], next.pid());
        assert_eq!(status["takeover"]["since"], self.status["takeover"]["since"], "usher's all the time");
        assert_ne!(status["since"], self.status["since"], "of the process");
        eprintln!("{} new ones came to nothing: {}", self.given_up, self.load.end());
        assert_eq!(next.end(), 0);
    }

    /// The old one has noticed that it was for nothing, and serves everybody as before.
    fn goes_on(&mut self, when: &str) {
        self.given_up += 1;
        let given_up = format!("usher_handovers_total{{result=\"given-up\"}} {}\n", self.given_up);
        awaited("the old one to notice", || self.old.ask_admin("/metrics").contains(&given_up));
        let (before, steered) = (self.load.counts(), self.steered());
        awaited("all kinds of clients to be served", || self.load.counts().all_beyond(&before, 3));
        self.load.assert_well(when);
        let status = self.old.status(self.folder);
        assert_eq!(status["pid"], self.old.pid(), "{when}");
        for name in ["owner", "since"] {
            assert_eq!(&status["takeover"][name], self.port(name), "{when}");
        }
        if self.has_programs() {
            awaited("its own program to choose again", || self.steered() > steered);
        }
    }

    /// Connections for which the old one's own program has chosen a worker.
    fn steered(&self) -> u64 {
        let status = self.old.status(self.folder);
        let ways = status["steering"]["connections"].as_object().unwrap().values();
        ways.map(|count| count.as_u64().unwrap()).sum()
    }

    /// As a new one gets it: set as the old one needs it, whoever has had it in between.
    fn taken(&self) -> Taken {
        let mut taken = ask(control::connect(&self.folder.runtime_dir()).unwrap()).unwrap();
        for socket in taken.all(what::SECURE) {
            let socket = SockRef::from(&socket);
            let is_told_to_wait = !socket.nonblocking().unwrap();
            assert_eq!(is_told_to_wait, self.status["io"] == "uring");
            assert_eq!(socket.read_timeout().unwrap(), None);
        }
        taken
    }

    /// It changes all that a new one changes (of a former version, too), and then says nothing until it is too late.
    fn one_is_never_ready(&mut self) {
        let mut taken = ask(control::connect(&self.folder.runtime_dir()).unwrap()).unwrap();
        let sockets = taken.listeners(what::SECURE, self.old.secure);
        assert_eq!(sockets.len(), 2);
        let mut left = None;
        let _steering = self.has_programs().then(|| {
            let own = MAPS.iter().position(|map| *map == OWN).unwrap();
            let own = taken.all(what::TAKEOVER).swap_remove(1 + own); // the first is the program
            let own = Map::from_map_data(MapData::from_fd(own).unwrap()).unwrap();
            let mut own = HashMap::<_, Source, u64>::try_from(own).unwrap();
            let source = Source::new("192.0.2.1:1".parse().unwrap());
            own.insert(source, 0, 0).unwrap();
            left = Some((own, source));
            Steering::start(Budget::default(), &[sockets.iter().collect()]).unwrap()
        });
        self.goes_on("after one that was never ready");
        let refused = taken.ready().unwrap_err();
        assert!(refused.contains("not ready in time"), "{refused}");
        if let Some((own, source)) = left {
            own.get(&source, 0).expect_err("what it has let pass to the apiserver is forgotten");
        }
    }
}

/// It never gets beyond keeping its first worker on a core: then it has the sockets, and all of its own. The kernel asks
/// somebody whether it may, who does not answer.
fn held_at_its_workers(mut command: Command) -> Command {
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let (load, equal, answer) = (0x20, 0x15, 0x06); // BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    let number = u32::try_from(libc::SYS_sched_setaffinity).unwrap();
    let filter = [
        step(load, 0), // the number of the call
        libc::sock_filter { jf: 1, ..step(equal, number) },
        step(answer, libc::SECCOMP_RET_USER_NOTIF),
        step(answer, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
        // SAFETY: system calls that read `program` and what it points to, which live until they are back; they allocate
        // nothing and take no lock, as is asked between fork and exec.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || {
                let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
                let asked = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program);
                // It is asked itself, for as long as it lives.
                i32::try_from(asked).is_ok_and(|asked| asked < 0 || libc::fcntl(asked, libc::F_SETFD, 0) != 0)
            }
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: `install` does nothing that is not allowed between fork and exec: see there.
    unsafe { command.pre_exec(install) };
    command
}
