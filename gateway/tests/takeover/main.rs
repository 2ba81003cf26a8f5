//! Takeover in a network of the test's own: whose the apiserver's port is while usher comes and goes.
//!
//! The apiserver is a stand-in that listens on every address and says where each request came from; the real one is in
//! `tests/e2e`.

mod world;

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustls_pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};

use world::{OWN_CLIENT, PORT, World, alone};

/// How usher does its I/O, and with how many workers.
const WAYS: [[&str; 2]; 2] = [["--io=uring", "--workers=1"], ["--io=epoll", "--workers=2"]];
const OPEN: &str = "--takeover=fail-open";

#[test]
fn the_port_is_ushers_while_it_lives_and_the_apiservers_at_once_when_it_does_not() {
    alone(|| {
        let world = World::new();
        for [io, workers] in WAYS {
            for address in ["127.0.0.1", "::1"] {
                assert!(!world.ask(address).unwrap().by_usher);
            }
            for _ in 0..3 {
                let usher = world.usher(&[OPEN, io, workers]);
                for address in ["127.0.0.1", "::1"] {
                    let answer = world.ask(address).unwrap();
                    assert!(answer.by_usher, "{address} {io}");
                    assert_eq!(answer.seen.ip().to_string(), "127.0.0.1", "usher's own connection");
                }
                assert!(usher.went("taken") >= 2 && usher.metric("usher_takeover_own_connections") >= 1);
                assert_eq!(usher.went("open") + usher.went("dropped"), 0);
                assert_eq!(usher.metric("usher_takeover_held{mode=\"fail-open\"}"), 1);
                let ready = usher.admin("/readyz?verbose");
                assert!(ready.contains("[i]takeover fail-open: 0.0.0.0:6443 is usher's since 20"), "{ready}");
                usher.kill();
                for address in ["127.0.0.1", "::1"] {
                    assert!(
                        !world.ask(address).unwrap().by_usher,
                        "the very next connection, {address} {io}"
                    );
                }
            }
        }
    });
}

#[test]
fn other_ports_and_addresses_are_left_alone() {
    alone(|| {
        let world = World::new();
        let _usher = world.usher(&[OPEN, "--takeover-address=127.0.0.1:6443"]);
        assert!(world.ask("127.0.0.1").unwrap().by_usher);
        assert!(!world.ask("::1").unwrap().by_usher);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
    });
}

#[test]
fn nobody_passes_by_a_port_that_is_ushers() {
    alone(|| {
        let world = World::new();
        for [io, workers] in WAYS {
            let usher = world.usher(&[OPEN, io, workers]);
            let own = world.ask("127.0.0.1").unwrap().seen;
            assert!(usher.metric("usher_takeover_own_connections") >= 1);
            let to: SocketAddr = ([127, 0, 0, 1], PORT).into();
            // The same port of another address of this host; a port that nobody has; the one that usher has.
            let elsewhere = SocketAddr::new("127.0.0.2".parse().unwrap(), own.port());
            for from in [elsewhere, "127.0.0.1:0".parse().unwrap()] {
                let answer = world.ask_on(connect(from, to).unwrap(), to.ip().into()).unwrap();
                assert!(answer.by_usher, "from {from}, {io}");
            }
            let taken = connect(own, to).unwrap_err();
            assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse, "usher's connection is open: {io}");
            usher.kill();
        }
    });
}

/// A connection from that address and port.
fn connect(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(from), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&from.into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

#[test]
fn the_apiservers_own_client_gets_to_the_apiserver() {
    alone(|| {
        let world = World::new();
        for [io, workers] in WAYS {
            let usher = world.usher(&[OPEN, io, workers]);
            for address in ["127.0.0.1", "::1"] {
                let to = SocketAddr::new(address.parse().unwrap(), PORT);
                let name = ServerName::try_from(OWN_CLIENT).unwrap();
                let answer = world.ask_on(TcpStream::connect(to).unwrap(), name).unwrap();
                assert!(!answer.by_usher, "its certificate is the apiserver's, and nobody came between");
                assert_eq!(answer.seen.ip().to_string(), "127.0.0.1", "{io}");
            }
            assert_eq!(usher.metric("usher_takeover_relayed_total{result=\"relayed\"}"), 2);
            assert!(usher.went("own") >= 2, "each over a connection of its own");
            usher.end();
        }
    });
}

/// Clients that come one after the other while something happens, and hear an answer each time.
struct Crowd {
    world: Arc<World>,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    /// Answers without and with usher.
    clients: Vec<JoinHandle<std::io::Result<[u64; 2]>>>,
}

impl Crowd {
    fn new(world: &Arc<World>) -> Self {
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |_| {
            let (world, stop, asked) = (Arc::clone(world), Arc::clone(&stop), Arc::clone(&asked));
            std::thread::spawn(move || {
                let mut by_usher = [0, 0];
                while !stop.load(Ordering::Relaxed) {
                    let answer = world.ask("127.0.0.1")?;
                    by_usher[usize::from(answer.by_usher)] += 1;
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                Ok(by_usher)
            })
        };
        let clients = (0..4).map(client).collect();
        Self { world: Arc::clone(world), stop, asked, clients }
    }

    /// Waits until some more have been answered.
    fn some(&self, when: &str) {
        let patience = world::Patience::new("clients to be answered");
        let until = self.asked.load(Ordering::Relaxed) + 40;
        let all_well = || self.clients.iter().all(|client| !client.is_finished());
        while self.asked.load(Ordering::Relaxed) < until && all_well() {
            patience.wait();
        }
        assert!(all_well(), "a client failed {when}");
    }

    /// How many were answered without and with usher; none was refused.
    fn end(self) -> [u64; 2] {
        self.stop.store(true, Ordering::Relaxed);
        let each = self.clients.into_iter().map(|client| client.join().unwrap().unwrap());
        let all = each.fold([0, 0], |all, one| [all[0] + one[0], all[1] + one[1]]);
        drop(self.world);
        all
    }
}

#[test]
fn usher_steps_in_and_out_while_clients_come_without_refusing_any() {
    alone(|| {
        let world = Arc::new(World::new());
        let crowd = Crowd::new(&world);
        for [io, workers] in WAYS {
            crowd.some("without usher");
            let usher = world.usher(&[OPEN, io, workers]);
            crowd.some("with usher");
            usher.end();
        }
        crowd.some("after usher");
        let [without, with] = crowd.end();
        assert!(without > 0 && with > 0, "{without} {with}");
    });
}

#[test]
fn one_usher_hands_the_port_to_the_next_and_it_is_the_apiservers_at_no_time() {
    alone(|| {
        let world = Arc::new(World::new());
        let pins = format!("--takeover-pin-dir={}", world.bpf_filesystem().join("usher").display());
        for mode in [OPEN, "--takeover=fail-closed"] {
            let mut usher = world.usher(&[mode, &pins]);
            let crowd = Crowd::new(&world);
            for [io, workers] in WAYS {
                crowd.some("before");
                let next = world.usher_after(&[mode, &pins, "--hand-over=required", io, workers]);
                crowd.some("while the former one drains");
                usher.ends_by_itself();
                crowd.some("after it");
                assert!(next.went("own") > 0, "the program counts on, for both");
                usher = next;
            }
            let [without, with] = crowd.end();
            assert!(without == 0 && with > 0, "{without} {with} {mode}");
            // Given back it stays given back, whoever is next.
            assert_eq!(world.tell("release", &[&pins]).0, 0);
            let next = world.usher_after(&[mode, &pins, "--hand-over=required"]);
            assert!(!world.ask("127.0.0.1").unwrap().by_usher);
            usher.ends_by_itself();
            assert_eq!(world.tell("take", &[]).0, 0);
            assert!(world.ask("127.0.0.1").unwrap().by_usher);
            assert_eq!(world.tell("release", &[&pins]).0, 0);
            next.end();
        }
    });
}

/// `--takeover=off` from now on, as `helm upgrade` does it.
#[test]
fn who_takes_over_and_is_to_have_no_port_gives_it_back() {
    alone(|| {
        let world = Arc::new(World::new());
        let folder = world.bpf_filesystem().join("usher");
        let pins = format!("--takeover-pin-dir={}", folder.display());
        for mode in [OPEN, "--takeover=fail-closed"] {
            let usher = world.usher(&[mode, &pins]);
            let crowd = Crowd::new(&world);
            crowd.some("with usher");
            let next = world.usher_after(&["--takeover=off", "--hand-over=required", &pins]);
            let patience = world::Patience::new("the port to be the apiserver's");
            while world.ask("127.0.0.1").unwrap().by_usher {
                patience.wait();
            }
            usher.ends_by_itself();
            crowd.some("after it");
            let [without, with] = crowd.end();
            assert!(without > 0 && with > 0, "{without} {with} {mode}");
            assert!(!folder.join("takeover").exists());
            next.kill();
            assert!(!world.ask("127.0.0.1").unwrap().by_usher, "{mode}");
        }
    });
}

/// By somebody who cannot ask usher itself: the file on the bpf filesystem is enough.
#[test]
fn a_port_that_somebody_else_gave_back_is_not_shown_as_ushers() {
    alone(|| {
        let world = World::new();
        let pins = format!("--takeover-pin-dir={}", world.bpf_filesystem().join("usher").display());
        let usher = world.usher(&["--takeover=fail-closed", &pins]);
        let mut stranger = Command::new(env!("CARGO_BIN_EXE_usher"));
        stranger.args(["release", &pins]).arg(format!("--runtime-dir={}", world.path("nobody").display()));
        assert!(stranger.output().unwrap().status.success());
        assert!(!world.ask("127.0.0.1").unwrap().by_usher);
        assert_eq!(usher.metric("usher_takeover_held{mode=\"fail-closed\"}"), 0);
        let (code, told) = world.tell("take", &[]);
        assert!(code == 0 && told.contains("is usher's again"), "{code} {told}");
        assert!(world.ask("127.0.0.1").unwrap().by_usher);
        usher.kill();
        refused(&world, "127.0.0.1");
    });
}

#[test]
fn fail_closed_refuses_everybody_until_usher_is_back_or_the_port_is_released() {
    alone(|| {
        let world = World::new();
        let folder = world.bpf_filesystem().join("usher");
        let pins = format!("--takeover-pin-dir={}", folder.display());
        let closed = ["--takeover=fail-closed", &pins];
        for _ in 0..2 {
            let usher = world.usher(&closed);
            assert!(world.ask("127.0.0.1").unwrap().by_usher && world.ask("::1").unwrap().by_usher);
            let own = world.ask("127.0.0.1").unwrap().seen;
            usher.kill();
            let to: SocketAddr = ([127, 0, 0, 1], PORT).into();
            for address in ["127.0.0.1", "::1"] {
                refused(&world, address);
            }
            // Nor by a port that usher had when it died, if the kernel gives it to anybody by now.
            let refused = connect(own, to).unwrap_err().kind();
            let ways = [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::AddrInUse];
            assert!(ways.contains(&refused), "{refused}");
        }
        // It is back, and goes as asked: the port stays closed.
        let usher = world.usher(&closed);
        assert!(world.ask("127.0.0.1").unwrap().by_usher);
        usher.end();
        refused(&world, "127.0.0.1");
        let (code, said) = world.tell("release", &[&pins]);
        assert!(code == 0 && said.contains("a fail-closed usher had left"), "{code} {said}");
        assert_eq!(world.tell("release", &[&pins]).0, 3, "nobody runs, and nothing is left");
        assert!(!world.ask("127.0.0.1").unwrap().by_usher && !world.ask("::1").unwrap().by_usher);
        assert!(!folder.join("takeover").exists());
        // Fail-open after fail-closed leaves nothing behind.
        world.usher(&closed).kill();
        let usher = world.usher(&[OPEN, &pins]);
        assert!(world.ask("127.0.0.1").unwrap().by_usher);
        usher.kill();
        assert!(!world.ask("127.0.0.1").unwrap().by_usher);
    });
}

/// Nobody answers, and soon nobody takes a connection. (A ring is taken down after its process has ended, and what it
/// accepts from until then resets who comes.)
fn refused(world: &World, address: &str) {
    let patience = world::Patience::new("connections to be refused");
    while world.ask(address).unwrap_err().kind() != std::io::ErrorKind::ConnectionRefused {
        patience.wait();
    }
}

#[test]
fn the_port_is_released_and_taken_as_told() {
    alone(|| {
        let world = World::new();
        let pins = format!("--takeover-pin-dir={}", world.bpf_filesystem().join("usher").display());
        for mode in [OPEN, "--takeover=fail-closed"] {
            let usher = world.usher(&[mode, &pins]);
            let owner = || {
                let (code, told) = world.tell("status", &["-o", "json"]);
                assert_eq!(code, 0, "{told}");
                serde_json::from_str::<serde_json::Value>(&told).unwrap()["takeover"].clone()
            };
            let told = owner();
            assert_eq!((&told["owner"], &told["addresses"][0]), (&"usher".into(), &"0.0.0.0:6443".into()));
            let (_, text) = world.tell("status", &[]);
            assert!(text.contains("0.0.0.0:6443 is usher's since 20"), "{text}");

            for said in ["is the apiserver's again", "is the apiserver's already"] {
                let (code, told) = world.tell("release", &[&pins]);
                assert!(code == 0 && told.contains(said), "{code} {told}");
                assert!(!world.ask("127.0.0.1").unwrap().by_usher && !world.ask("::1").unwrap().by_usher);
            }
            assert_eq!(owner()["owner"], "apiserver");
            assert_eq!(usher.metric(&format!("usher_takeover_held{{mode=\"{}\"}}", &mode[11..])), 0);
            for said in ["is usher's again", "is usher's already"] {
                let (code, told) = world.tell("take", &[]);
                assert!(code == 0 && told.contains(said), "{code} {told}");
                assert!(world.ask("127.0.0.1").unwrap().by_usher && world.ask("::1").unwrap().by_usher);
            }
            let told = owner();
            assert!(told["connections"]["taken"].as_u64() >= Some(2), "{told}");
            assert_eq!((&told["owner"], &told["connections"]["dropped"]), (&"usher".into(), &0.into()));
            assert_eq!(world.tell("release", &[&pins]).0, 0);
            usher.end();
            assert!(!world.ask("127.0.0.1").unwrap().by_usher, "released is released: {mode}");
        }
    });
}

#[test]
fn without_privileges_it_does_not_start_and_says_what_is_missing() {
    alone(|| {
        let world = World::new();
        let serve = world.command(&[OPEN]);
        let mut command = Command::new("setpriv");
        command
            .args(["--inh-caps=-all", "--bounding-set=-bpf,-net_admin,-sys_admin"])
            .arg(serve.get_program());
        let output = command.args(serve.get_args()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(said.contains("usher has not CAP_BPF and CAP_NET_ADMIN; run it as root"), "{said}");
        assert!(said.contains("--takeover=off"), "{said}");
    });
}
