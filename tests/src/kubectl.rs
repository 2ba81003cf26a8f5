//! kubectl as a user runs it, with one kubeconfig and one deadline.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::Outcome;

/// One run must end within this.
const RUN_TIME_MAX: Duration = Duration::from_secs(90);

/// The program with the environment it gets.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    environment: Vec<(String, String)>,
}

/// What a run left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Exit code; 128 if it was killed.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Run {
    /// Standard output of a run that ended well, else a sentence.
    pub fn success(self) -> Outcome<String> {
        if self.code == 0 {
            Ok(self.out)
        } else {
            Err(format!("exit {}: {}{}", self.code, self.err, self.out))
        }
    }
}

impl Kubectl {
    /// kubectl at `program` with `kubeconfig`. Discovery is cached beside the kubeconfig, never in the home.
    pub fn new(program: &Path, kubeconfig: &Path) -> Self {
        let cache = kubeconfig.with_extension("cache");
        Self { program: program.into(), kubeconfig: kubeconfig.into(), cache, environment: Vec::new() }
    }

    /// The same with one more environment variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs to the end without input.
    pub async fn run(&self, arguments: &[&str]) -> Outcome<Run> {
        self.run_with_input(arguments, "").await
    }

    /// Runs to the end with `input` on standard input.
    pub async fn run_with_input(&self, arguments: &[&str], input: &str) -> Outcome<Run> {
        let mut child = self.start(arguments)?;
        let words = arguments.join(" ");
        let failed = |error: std::io::Error| format!("kubectl {words}: {error}");
        if let Some(mut stdin) = child.stdin.take() {
            // A kubectl that does not want its input closes the pipe: not a failure.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = tokio::time::timeout(RUN_TIME_MAX, child.wait_with_output())
            .await
            .map_err(|_| format!("kubectl {words}: not done within {RUN_TIME_MAX:?}"))?
            .map_err(failed)?;
        Ok(Run {
            code: output.status.code().unwrap_or(128),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Starts a run whose streams the caller reads; it is killed when dropped.
    pub fn start(&self, arguments: &[&str]) -> Outcome<Child> {
        Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))
    }
}
