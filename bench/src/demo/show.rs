//! What the demo prints.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Outcome, READ_SEATS, SERVICE_TIME, STANDIN_CONCURRENCY, WRITE_SEATS};
use crate::load::Tally;

/// Between two lines of progress where there is no terminal to redraw.
const PLAIN_EVERY_S: u64 = 5;

/// Says what is about to run.
pub(super) fn opening(admission: bool, standin: SocketAddr, usher: SocketAddr, seconds: u64) {
    if admission {
        println!(
            "A stand-in apiserver (in process, not a real one) at {standin}: {STANDIN_CONCURRENCY} requests at once, {SERVICE_TIME:?} each."
        );
        println!(
            "usher at {usher} in front of it, with {} seats and kube-apiserver's default levels.\n",
            READ_SEATS + WRITE_SEATS
        );
        println!("WITH admission, {seconds} s: a controller has run away and keeps 400 lists under way.");
    } else {
        println!("\nWITHOUT admission, {seconds} s: the same load, usher only passes it on.");
    }
}

/// One second's state: redrawn in place on a terminal, else a line now and then.
pub(super) fn progress(tallies: &[Arc<Tally>], second: u64, seconds: u64) {
    if std::io::stdout().is_terminal() {
        if second > 1 {
            print!("\x1b[{}A", tallies.len() + 1);
        }
        println!(
            "\x1b[2K  {:24} {:>9} {:>12} {:>10} {:>10}   {second:>3}/{seconds} s",
            "", "served", "turned away", "p50", "p99"
        );
        for tally in tallies {
            println!(
                "\x1b[2K  {:24} {:>9} {:>12} {:>10} {:>10}",
                tally.name,
                served(tally),
                rejected(tally),
                millis(tally.latency_ms(50.0)),
                millis(tally.latency_ms(99.0))
            );
        }
    } else if second.is_multiple_of(PLAIN_EVERY_S) || second == seconds {
        let parts: Vec<String> = tallies
            .iter()
            .map(|tally| {
                format!("{} {} served, p99 {}", tally.name, served(tally), millis(tally.latency_ms(99.0)))
            })
            .collect();
        println!("  {second:>3} s: {}", parts.join("; "));
    }
}

/// The two runs side by side.
pub(super) fn table(with: &Outcome, without: &Outcome) {
    println!("\nWho got what                    WITH usher's admission                     WITHOUT");
    println!(
        "  {:24} {:>8} {:>9} {:>9} {:>9}   {:>8} {:>9} {:>9}",
        "", "served/s", "turned", "p50", "p99", "served/s", "p50", "p99"
    );
    println!("  {:24} {:>8} {:>9} {:>9} {:>9}   {:>8} {:>9} {:>9}", "", "", "away", "", "", "", "", "");
    for (one, other) in with.tallies.iter().zip(&without.tallies) {
        println!(
            "  {:24} {:>8.1} {:>9} {:>9} {:>9}   {:>8.1} {:>9} {:>9}",
            one.name,
            rate(one, with.seconds),
            rejected(one),
            millis(one.latency_ms(50.0)),
            millis(one.latency_ms(99.0)),
            rate(other, without.seconds),
            millis(other.latency_ms(50.0)),
            millis(other.latency_ms(99.0)),
        );
    }
    let failed: u64 =
        with.tallies.iter().chain(&without.tallies).map(|tally| tally.failed.load(Ordering::Relaxed)).sum();
    println!("\nWhere they waited (usher's own metrics)");
    println!(
        "  {:18} {:28} {:>10} {:>11} {:>10}",
        "priority level", "flow schema", "dispatched", "turned away", "mean wait"
    );
    for wait in &with.schemas {
        println!(
            "  {:18} {:28} {:>10} {:>11} {:>10}",
            wait.level,
            wait.schema,
            wait.dispatched,
            wait.rejected,
            millis(Some(wait.wait_mean_ms))
        );
    }
    println!(
        "\nThe stand-in held at most {} requests at once with admission (levels round their shares of the {STANDIN_CONCURRENCY} seats up, and what runs \
         when limits move runs on), {} without. Requests that failed otherwise: {failed}.",
        with.standin_most, without.standin_most
    );
}

/// The same for programs.
pub(super) fn json(with: &Outcome, without: &Outcome) -> Value {
    let side = |outcome: &Outcome| {
        let clients: Vec<Value> = outcome
            .tallies
            .iter()
            .map(|tally| {
                json!({
                    "name": tally.name, "served": served(tally), "turnedAway": rejected(tally), "failed": tally.failed.load(Ordering::Relaxed),
                    "servedPerSecond": rate(tally, outcome.seconds), "p50Ms": tally.latency_ms(50.0), "p99Ms": tally.latency_ms(99.0),
                })
            })
            .collect();
        let schemas: Vec<Value> = outcome
            .schemas
            .iter()
            .map(|wait| {
                json!({"priorityLevel": wait.level, "flowSchema": wait.schema, "dispatched": wait.dispatched, "turnedAway": wait.rejected, "meanWaitMs": wait.wait_mean_ms})
            })
            .collect();
        json!({"seconds": outcome.seconds, "clients": clients, "flowSchemas": schemas, "standinHeldMost": outcome.standin_most})
    };
    json!({"withAdmission": side(with), "withoutAdmission": side(without)})
}

/// Tells how to use what stays up.
pub(super) fn staying(kubeconfig: &Path, admin: SocketAddr) {
    println!("\nusher and the stand-in stay up until Ctrl-C. In another shell:");
    println!("  kubectl --kubeconfig {} get pods -A", kubeconfig.display());
    println!("  curl http://{admin}/debug/api_priority_and_fairness/dump_priority_levels");
    println!("  curl http://{admin}/metrics");
}

fn served(tally: &Tally) -> u64 {
    tally.served.load(Ordering::Relaxed)
}

fn rejected(tally: &Tally) -> u64 {
    tally.rejected.load(Ordering::Relaxed)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a short run are exact in f64")]
fn rate(tally: &Tally, seconds: u64) -> f64 {
    served(tally) as f64 / seconds as f64
}

fn millis(value: Option<f64>) -> String {
    value.map_or_else(
        || "–".to_owned(),
        |value| if value < 100.0 { format!("{value:.1} ms") } else { format!("{value:.0} ms") },
    )
}
