//! End to end: real clients through usher to a real kube-apiserver, compared with what the same clients get
//! without usher.
//!
//! One cluster serves all tests, one after another; each is named by what it protects. Run by
//! `cargo xtask e2e [--seed N] [FILTER …]`; with `--without-usher` both sides are kube-apiserver itself, which
//! tests the tests.

mod answers;
mod classification;
mod controllers;
mod identity;
mod reads;
mod seats;
mod streams;
mod takeover;
mod webhook;
mod world;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use usher_tests::Outcome;
use usher_tests::cluster::{Cluster, Options, programs};
use usher_tests::runner::{self, Test};

use world::World;

const TESTS: &[Test<World>] = usher_tests::tests![
    reads::kubectl_reads_the_same within 120 s,
    reads::chunked_lists_are_the_same within 120 s,
    reads::a_watch_brings_every_event within 60 s,
    writes::kubectl_writes_the_same within 180 s,
    answers::answers_are_the_same_over_both_protocols within 120 s,
    answers::a_5_mb_list_is_the_same within 120 s,
    answers::conditional_requests_and_formats_are_kept within 60 s,
    answers::audit_logs_stay_true within 60 s,
    streams::exec_over_websocket_and_spdy within 120 s,
    streams::logs_are_followed within 60 s,
    streams::attach_over_websocket_and_spdy within 60 s,
    streams::port_forward_over_websocket_and_spdy within 60 s,
    streams::cp_over_websocket_and_spdy within 120 s,
    identity::every_identity_is_the_same within 120 s,
    identity::wrong_credentials_are_refused_alike within 120 s,
    controllers::a_deployment_scales_to_50_pods within 180 s,
    controllers::go_clients_that_change_their_minds_are_never_cut within 120 s,
    classification::flow_schemas_and_levels_are_the_same within 600 s,
    seats::a_saturated_level_leaves_others_alone within 300 s,
    takeover::usher_is_killed_20_times_on_the_apiservers_port within 300 s,
    takeover::fail_closed_lets_nobody_past within 300 s,
    controllers::leader_election_holds_for_the_whole_run within 60 s,
];

/// End-to-end tests on a real control plane.
#[derive(Parser)]
#[command(name = "cargo xtask e2e")]
struct Arguments {
    /// Seed of everything that is generated [default: from the clock; always printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Requests of the classification test
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    requests: usize,
    /// Compare kube-apiserver with itself: tests the tests
    #[arg(long)]
    without_usher: bool,
    /// Leave the cluster running at the end
    #[arg(long)]
    keep: bool,
    /// The cluster's folder [default: target/cluster/e2e]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only list the tests' names
    #[arg(long)]
    list: bool,
    /// Only tests whose names hold one of these
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for test in TESTS.iter().filter(|test| runner::wanted(test.name, &arguments.filters)) {
            println!("{}", test.name);
        }
        return ExitCode::SUCCESS;
    }
    let folder = arguments.dir.clone().unwrap_or_else(|| programs::root().join("target/cluster/e2e"));
    let failed = tokio::select! {
        failed = whole_run(&arguments, &folder) => failed,
        stopped = stop_asked() => Err(stopped),
    };
    if !arguments.keep
        && let Err(message) = end(&folder).await
    {
        println!("{message}");
    }
    match failed {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => {
            println!("logs of the control plane and of usher: {}", folder.join("logs").display());
            ExitCode::FAILURE
        }
        Err(message) => {
            println!("{message}\n\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Starts the cluster and runs the tests; how many failed.
async fn whole_run(arguments: &Arguments, folder: &std::path::Path) -> Outcome<usize> {
    end(folder).await?;
    let options = Options { folder: folder.into(), usher: !arguments.without_usher, nodes: 3 };
    let cluster = Cluster::up(&options).await?;
    let seed = arguments.seed.unwrap_or_else(usher_tests::clock::unix);
    println!("\nseed {seed}");
    let world = World::prepare(cluster, seed, arguments.requests).await?;
    Ok(runner::run(TESTS, &arguments.filters, &world).await)
}

/// Ends what runs in the folder, an earlier run's too.
async fn end(folder: &std::path::Path) -> Outcome {
    if let Ok(cluster) = Cluster::open(folder) {
        cluster.down().await?;
    }
    Ok(())
}

/// Ctrl-C or SIGTERM.
async fn stop_asked() -> String {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "interrupted".into(),
        _ = terminate.recv() => "terminated".into(),
    }
}
