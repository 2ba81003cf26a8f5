//! What operators install, tried: manifests, chart, container image, systemd unit, guide (`deploy/`).
//!
//! On a real kube-apiserver and etcd, without nodes: what a kubelet would do with the pod, [`pod`] does with runc. Run by
//! `cargo xtask deploy check [FILTER …]`, which builds the image; `--render` writes the kustomize base instead.

mod chart;
mod image;
mod manifests;
mod pod;
mod unit;
mod words;
mod world;

use std::process::ExitCode;

use usher_tests::Outcome;
use usher_tests::cluster::programs;
use usher_tests::runner::{self, Test};

use world::World;

const TESTS: &[Test<World>] = usher_tests::tests![
    chart::helm_lints_it within 30 s,
    chart::wrong_values_are_refused within 60 s,
    chart::capabilities_follow_the_values within 30 s,
    chart::kustomize_and_chart_are_alike within 60 s,
    manifests::the_apiserver_takes_every_manifest within 120 s,
    manifests::pods_are_admitted within 60 s,
    manifests::usher_may_ask_what_it_asks within 60 s,
    unit::systemd_takes_the_unit within 30 s,
    words::every_flag_is_known within 30 s,
    image::it_runs_as_nobody within 60 s,
    image::names_are_looked_up within 60 s,
    image::the_pod_serves_with_these_privileges within 120 s,
    image::each_privilege_is_needed within 120 s,
    image::takeover_and_back within 120 s,
    image::fail_closed_outlives_the_pod within 180 s,
    image::one_pod_hands_over_to_the_next within 120 s,
    words::every_metric_exists within 60 s,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(run(&arguments)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            println!("{message}\n\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// How many tests failed.
async fn run(arguments: &[String]) -> Outcome<usize> {
    programs::build_installation()?;
    if arguments.iter().any(|argument| argument == "--render") {
        return chart::render_kustomize().map(|()| 0);
    }
    let world = World::prepare().await?;
    let failed = runner::run(TESTS, arguments, &world).await;
    world.end().await?;
    Ok(failed)
}
