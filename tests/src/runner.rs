//! Runs named tests one after another and prints a line each; the last line is `N passed, N failed`.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::{Outcome, clock};

/// What a test gives back: a remark for its line, or why it failed.
pub type Verdict = Outcome<String>;

/// One test on a fixture `F`.
pub struct Test<F> {
    /// What it protects, as a sentence in snake case.
    pub name: &'static str,
    /// The test.
    pub run: for<'a> fn(&'a F) -> Pin<Box<dyn Future<Output = Verdict> + 'a>>,
    /// It must be done within this.
    pub time_max: Duration,
}

/// A table of tests: `tests![F; path::name, …]`, each an `async fn(&F) -> Verdict`.
#[macro_export]
macro_rules! tests {
    ($($room:ident :: $name:ident within $seconds:literal s),* $(,)?) => {
        &[$($crate::runner::Test {
            name: concat!(stringify!($room), "::", stringify!($name)),
            run: |fixture| Box::pin($room::$name(fixture)),
            time_max: ::std::time::Duration::from_secs($seconds),
        }),*]
    };
}

/// Whether a test is asked for: by any of the filters, or by none at all.
pub fn wanted(name: &str, filters: &[String]) -> bool {
    filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
}

/// Runs those that `filters` ask for; how many failed. No test at all counts as a failure.
pub async fn run<F>(tests: &[Test<F>], filters: &[String], fixture: &F) -> usize {
    let (mut passed, mut failed) = (0_usize, 0_usize);
    for test in tests.iter().filter(|test| wanted(test.name, filters)) {
        let start = clock::now();
        let verdict = tokio::time::timeout(test.time_max, (test.run)(fixture))
            .await
            .unwrap_or_else(|_| Err(format!("not done within {:?}", test.time_max)));
        let took = start.elapsed().as_secs_f64();
        match verdict {
            Ok(remark) => {
                passed += 1;
                let remark = if remark.is_empty() { remark } else { format!(" ({remark})") };
                println!("test {} ... ok in {took:.1} s{remark}", test.name);
            }
            Err(why) => {
                failed += 1;
                println!("test {} ... FAILED in {took:.1} s\n{}", test.name, indented(&why));
            }
        }
    }
    if passed + failed == 0 {
        println!("no test has a name with {}", filters.join(" or "));
        failed = 1;
    }
    println!("\n{passed} passed, {failed} failed");
    failed
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
