//! How connections spread: the same client to the same worker, and no worker far above the mean.

use std::net::{IpAddr, Ipv6Addr};

use usher_ebpf::steer::{ABSENT, DRAINING, Path, Rules};

use crate::clients::{one_of_many, play, zipf};
use crate::group::{Group, connect};
use crate::network::{Network, SERVER_V4, SERVER_V6, client};

const CONNECTIONS: usize = 5000;

fn zipf_clients(server: IpAddr, workers: usize) {
    Network::with(move |network| {
        let shares = zipf(1000);
        let mut group = Group::steered(network, server, workers);
        let steered = play(&mut group, &shares, CONNECTIONS);
        group.steering().must_have_chosen(CONNECTIONS);
        let plain = play(&mut Group::plain(network, server, workers), &shares, CONNECTIONS);
        println!(
            "{workers} workers, {server}: max/mean {:.3}, same worker {:.4}; plain SO_REUSEPORT {:.3}, {:.4}; {:?}",
            steered.skew(),
            steered.same(),
            plain.skew(),
            plain.same(),
            group.steering().tallies()
        );
        assert!(steered.skew() <= 1.3 && steered.same() >= 0.99);
        // That a hash of ports keeps nobody on a worker shows that the measure is one.
        assert!(plain.same() < 0.8);
    });
}

#[test]
fn clients_of_zipf_activity_stay_and_are_shared_out_over_2_workers() {
    zipf_clients(SERVER_V4, 2);
}

#[test]
fn clients_of_zipf_activity_stay_and_are_shared_out_over_4_workers() {
    zipf_clients(SERVER_V4, 4);
}

#[test]
fn clients_of_zipf_activity_stay_and_are_shared_out_over_8_workers() {
    zipf_clients(SERVER_V4, 8);
}

#[test]
fn clients_of_zipf_activity_stay_and_are_shared_out_over_ipv6() {
    zipf_clients(SERVER_V6, 4);
}

#[test]
fn clients_of_both_families_come_to_one_listener() {
    Network::with(|network| {
        // A listener for all of IPv6 takes IPv4 as well.
        let mut group = Group::steered(network, IpAddr::V6(Ipv6Addr::UNSPECIFIED), 4);
        let port = group.address.port();
        for server in [SERVER_V4, SERVER_V6] {
            group.address = (server, port).into();
            assert!(play(&mut group, &zipf(1000), 2000).same() >= 0.99);
        }
        group.steering().must_have_chosen(4000);
    });
}

#[test]
fn an_address_that_hides_many_clients_is_spread() {
    Network::with(|network| {
        for workers in [2, 4, 8] {
            let mut group = Group::steered(network, SERVER_V4, workers);
            let outcome = play(&mut group, &one_of_many(0.8), CONNECTIONS);
            group.steering().must_have_chosen(CONNECTIONS);
            let spread = group.steering().tally(Path::Spread) as f64 / CONNECTIONS as f64;
            println!(
                "{workers} workers: max/mean {:.3}, {spread:.3} spread, others {:.4}",
                outcome.skew(),
                outcome.same()
            );
            assert!(outcome.skew() <= 1.3 && outcome.same() >= 0.99 && (0.7..0.85).contains(&spread));
        }
    });
}

#[test]
fn workers_that_drain_or_are_absent_get_nobody_while_another_serves() {
    Network::with(|network| {
        let mut group = Group::steered(network, SERVER_V4, 4);
        for (slot, state) in [(0, DRAINING), (2, ABSENT), (3, DRAINING)] {
            group.steering().tell(slot, |load| load.state = state);
        }
        for number in 0..200 {
            let _near = connect(client(&group.address, number), group.address).unwrap();
            assert_eq!(group.accept().unwrap().0, 1);
        }
        group.steering().must_have_chosen(200);
        // Nobody serves: the kernel's own hash, which the tally tells.
        group.steering().tell(1, |load| load.state = DRAINING);
        for number in 0..100 {
            let _near = connect(client(&group.address, number), group.address).unwrap();
            group.accept().unwrap();
        }
        assert_eq!(group.steering().tally(Path::Kernel), 100);
    });
}

#[test]
fn what_falls_back_to_the_kernel_is_counted() {
    Network::with(|network| {
        let mut group = Group::steered(network, SERVER_V4, 4);
        group.steering().rule(Rules::default());
        for number in 0..100 {
            let _near = connect(client(&group.address, number), group.address).unwrap();
            group.accept().unwrap();
        }
        let tallies = group.steering().tallies();
        assert_eq!(tallies[Path::Kernel as usize], 100, "{tallies:?}");
        assert_eq!(tallies.iter().sum::<u64>(), 100, "{tallies:?}");
    });
}
