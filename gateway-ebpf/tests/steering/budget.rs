//! A source that opens connections faster than it may is refused, and only that one.

use std::io::ErrorKind;

use usher_ebpf::steer::{Path, Rules};

use crate::group::{Group, connect};
use crate::network::{Network, SERVER_V4, SERVER_V6, client};

#[test]
fn a_flood_is_refused_and_others_are_not() {
    Network::with(|network| {
        for server in [SERVER_V4, SERVER_V6] {
            let mut group = Group::steered(network, server, 2);
            // One in 100 seconds and 20 at once: however slow this machine is, the flood gets 21 or so.
            group.steering().rule(Rules { slots: 2, budget: 1, burst: 20, ..Rules::default() });
            let (mut refused, mut passed, mut others) = (0, 0, 0);
            for number in 0..400 {
                match connect(client(&group.address, 7), group.address) {
                    Ok(_) => passed += 1,
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => refused += 1,
                    Err(error) => panic!("{error}"),
                }
                if number % 10 == 0 {
                    // Forty others, one connection each.
                    connect(client(&group.address, 100 + number), group.address).unwrap();
                    others += 1;
                }
                while group.accept().is_some() {}
            }
            let tallies = group.steering().tallies();
            println!("{server}: {passed} passed, {refused} refused, {others} of others: {tallies:?}");
            assert_eq!(tallies[Path::Refused as usize], refused);
            group.steering().must_have_chosen(passed + others);
            assert!((20..200).contains(&passed), "a burst, and one for each second that this took");
        }
    });
}
