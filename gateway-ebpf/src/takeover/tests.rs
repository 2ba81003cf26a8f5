extern crate std;

use core::cell::Cell;
use core::net::{IpAddr, SocketAddr};
use std::vec::Vec;

use super::*;

/// The maps, as a list each.
#[derive(Default)]
struct Model {
    places: Vec<Place>,
    own: Vec<Source>,
    listeners: Vec<u32>,
    closed: bool,
    given: Cell<Option<u32>>,
}

impl View for Model {
    fn is_taken(&self, place: &Place) -> bool {
        self.places.contains(place)
    }

    fn is_own(&self, source: &Source) -> bool {
        self.own.contains(source)
    }

    fn listens(&self, listener: u32) -> bool {
        self.listeners.contains(&listener)
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn give(&self, listener: u32) -> bool {
        let there = self.listens(listener);
        self.given.set(there.then_some(listener));
        there
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn place(text: &str) -> Place {
    let address = address(text);
    Place::new(address.ip(), address.port())
}

fn from_to(from: &str, to: &str) -> Connection {
    let to = address(to);
    Connection { from: Source::new(address(from)), to: Place::new(to.ip(), to.port()), v6: to.is_ipv6() }
}

/// What becomes of a connection, and whose listener got it.
fn check(model: &Model, from: &str, to: &str, expected: Option<Path>) {
    let decided = decide(model, &from_to(from, to));
    assert_eq!(decided, expected, "{from} to {to}");
    let given = (expected == Some(Path::Taken)).then(|| listener(address(to).is_ipv6()));
    assert_eq!(model.given.take(), given, "{from} to {to}");
}

#[test]
fn an_address_and_port_that_was_named_is_taken_and_no_other() {
    let model = Model {
        places: [place("10.0.0.5:6443"), place("[fd00::5]:6443")].into(),
        listeners: [0, 1].into(),
        ..Model::default()
    };
    check(&model, "10.0.0.9:40000", "10.0.0.5:6443", Some(Path::Taken));
    check(&model, "[fd00::9]:40000", "[fd00::5]:6443", Some(Path::Taken));
    check(&model, "10.0.0.9:40000", "10.0.0.5:443", None);
    check(&model, "10.0.0.9:40000", "10.0.0.6:6443", None);
    check(&model, "[fd00::9]:40000", "[fd00::6]:6443", None);
}

#[test]
fn a_port_on_any_address_is_taken_in_both_families() {
    for any in ["0.0.0.0:6443", "[::]:6443"] {
        let model = Model { places: [place(any)].into(), listeners: [0, 1].into(), ..Model::default() };
        for (from, to) in
            [("127.0.0.1:1", "127.0.0.1:6443"), ("10.0.0.9:1", "10.0.0.5:6443"), ("[::1]:1", "[::1]:6443")]
        {
            check(&model, from, to, Some(Path::Taken));
        }
        check(&model, "127.0.0.1:1", "127.0.0.1:6444", None);
    }
}

#[test]
fn own_connections_pass_by_address_and_port_together() {
    let own = ["127.0.0.1:40000", "[::1]:40000"].map(|text| Source::new(address(text)));
    let model = Model {
        places: [place("0.0.0.0:6443")].into(),
        own: own.into(),
        listeners: [0, 1].into(),
        ..Model::default()
    };
    check(&model, "127.0.0.1:40000", "127.0.0.1:6443", Some(Path::Own));
    check(&model, "[::1]:40000", "[::1]:6443", Some(Path::Own));
    for stranger in ["127.0.0.1:40001", "127.0.0.2:40000", "10.0.0.9:40000"] {
        check(&model, stranger, "127.0.0.1:6443", Some(Path::Taken));
    }
}

#[test]
fn without_usher_the_switch_says_what_happens_to_everybody() {
    for (closed, path) in [(false, Path::Open), (true, Path::Dropped)] {
        let own = [Source::new(address("127.0.0.1:40000"))];
        let places = [place("0.0.0.0:6443")];
        let model = Model { places: places.into(), own: own.into(), closed, ..Model::default() };
        check(&model, "127.0.0.1:40000", "127.0.0.1:6443", Some(path)); // left behind by one that died
        check(&model, "127.0.0.1:40001", "127.0.0.1:6443", Some(path));
        check(&model, "127.0.0.1:40001", "127.0.0.1:6444", None);
        // One family has no listener.
        let model = Model { places: places.into(), listeners: [0].into(), closed, ..Model::default() };
        check(&model, "127.0.0.1:40001", "127.0.0.1:6443", Some(Path::Taken));
        check(&model, "[::1]:40001", "[::1]:6443", Some(path));
    }
}

/// An IPv4 address is the same whichever way it is written; no two others are.
#[test]
fn addresses_keep_apart() {
    let mapped = "::ffff:10.0.0.5".parse::<IpAddr>().unwrap();
    assert_eq!(Place::new(mapped, 1), place("10.0.0.5:1"));
    let all = ["10.0.0.5:1", "10.0.0.5:2", "5.0.0.10:1", "[::a00:5]:1", "0.0.0.0:1"].map(place);
    for (at, one) in all.iter().enumerate() {
        assert!(all.iter().skip(at + 1).all(|other| other != one), "{one:?}");
    }
}
