use clap::{Args as _, Command, FromArgMatches as _};

use super::*;
use crate::config::options::Options;

fn plan(arguments: &[&str]) -> Result<Option<Plan>, String> {
    let arguments = ["serve"].into_iter().chain(arguments.iter().copied());
    let given = Options::augment_args(Command::new("serve")).get_matches_from(arguments);
    Plan::of(&Options::from_arg_matches(&given).unwrap())
}

fn addresses(given: &[&str]) -> Vec<SocketAddr> {
    given.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn what_is_taken_are_the_upstreams_ports_or_what_was_named() {
    assert_eq!(plan(&["--upstream=https://127.0.0.1:6443"]), Ok(None));
    let open = "--takeover=fail-open";
    let two = [
        "--upstream=https://127.0.0.1:6443",
        "--upstream=https://[::1]:6444",
        "--upstream=https://192.0.2.1:6443",
    ];
    let all = plan(&[open, two[0], two[1], two[2]]).unwrap().unwrap();
    assert_eq!(all.places, addresses(&["0.0.0.0:6443", "0.0.0.0:6444"]));
    assert_eq!(all.apiservers, addresses(&["127.0.0.1:6443", "[::1]:6444"]), "the third is another host's");
    assert!(!all.is_closed());
    let named = plan(&["--takeover=fail-closed", two[0], "--takeover-address=[::1]:6443"]).unwrap().unwrap();
    assert_eq!(named.places, addresses(&["[::1]:6443"]));
    assert!(named.is_closed());
}

#[test]
fn a_port_is_not_taken_by_whom_would_have_nowhere_to_go() {
    for arguments in [
        &["--takeover=fail-open", "--upstream=https://192.0.2.1:6443"][..],
        &["--takeover=fail-open", "--upstream=https://127.0.0.1:6444", "--takeover-address=0.0.0.0:6443"],
    ] {
        let refused = plan(arguments).unwrap_err();
        assert!(refused.contains("no --upstream is an apiserver of this host on port 6443"), "{refused}");
        assert!(refused.contains("give --upstream=https://127.0.0.1:6443"), "{refused}");
    }
}

#[test]
fn one_socket_of_each_family_stands_for_all() {
    let bind = |address: &str| Arc::new(ring::bind(address.parse().unwrap()).unwrap());
    let lacking = |sockets: &[&Arc<TcpListener>]| {
        let chosen = Sockets::among(sockets.iter().copied());
        chosen.lacking().map(|address| address.to_string()).collect::<Vec<_>>()
    };
    let (v4, v6, both) = (bind("127.0.0.1:0"), bind("[::1]:0"), bind("[::]:0"));
    assert_eq!(lacking(&[]), ["127.0.0.1", "::1"]);
    assert_eq!(lacking(&[&v4]), ["::1"]);
    assert!(lacking(&[&v4, &v6]).is_empty());
    assert!(lacking(&[&both]).is_empty(), "a socket of IPv6 takes IPv4, too, unless it is told not to");
}

#[test]
fn how_it_stands_is_told_to_people_and_programs() {
    let look = Look {
        mode: Mode::FailOpen,
        places: addresses(&["0.0.0.0:6443"]),
        held: true,
        since: Duration::from_secs(1_800_000_000),
        paths: Some([7, 2, 1, 0]),
        own: (2, 0),
        relayed: Relayed { open: 1, relayed: 3, ..Relayed::default() },
    };
    assert_eq!(
        look.to_string(),
        "fail-open: 0.0.0.0:6443 is usher's since 2027-01-15T08:00:00Z, 7 taken, 2 own, 1 open, 0 dropped; 3 of the \
         apiserver's own client relayed"
    );
    let section = look.section();
    assert_eq!(section.summary, look.to_string());
    assert_eq!((&section.more["owner"], &section.more["connections"]["own"]), (&"usher".into(), &2.into()));
    let released = Look { held: false, ..look };
    assert!(released.to_string().contains("is the apiserver's since"));
    assert_eq!(released.section().more["owner"], "apiserver");
}

#[test]
fn a_folder_without_a_hold_has_none_to_release() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!release_pinned(folder.path()).unwrap());
    assert_eq!(left_behind(folder.path()), None);
}
