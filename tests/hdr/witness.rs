//! The libraries that usher's logs are held against, and what all three say of a log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The version of `org.hdrhistogram:HdrHistogram`.
const JAVA: &str = "2.2.2";
/// The version of `hdrhistogram`.
const PYTHON: &str = "0.10.8";

/// Percentiles that must agree.
pub(crate) const PERCENTILES: &str = "50,90,99,99.9,100";

/// What is said of a tag.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) count: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    /// In the order of [`PERCENTILES`].
    pub(crate) percentiles: Vec<u64>,
}

/// By tag.
pub(crate) type All = BTreeMap<String, Said>;

/// The Java library.
pub(crate) struct Java {
    jar: PathBuf,
}

/// The Python library, in an environment of its own.
pub(crate) struct Python {
    program: PathBuf,
}

/// Runs a program to its end; what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot start {name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    Err(format!("{name}: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// What usher says of logs.
pub(crate) fn usher(program: &Path, logs: &[PathBuf]) -> Result<All, String> {
    let mut command = Command::new(program);
    command.args(["hdr", "percentiles", "-o", "json", "--percentiles", PERCENTILES]).args(logs);
    let said: Value = serde_json::from_str(&output(&mut command)?).map_err(|error| error.to_string())?;
    let rows = said["histograms"].as_array().ok_or("no histograms")?;
    rows.iter().map(|row| said_of(row, |value| value.as_u64())).collect()
}

impl Java {
    /// By Maven, unless it is there already.
    pub(crate) fn fetch(folder: &Path) -> Result<Self, String> {
        let jar = folder.join(format!("HdrHistogram-{JAVA}.jar"));
        if !jar.exists() {
            let artifact = format!("-Dartifact=org.hdrhistogram:HdrHistogram:{JAVA}");
            let target = format!("-DoutputDirectory={}", folder.display());
            let mut maven = Command::new("mvn");
            maven.args(["--batch-mode", "--quiet", "dependency:copy", &artifact, &target]);
            output(&mut maven)
                .map_err(|error| format!("the Java library is needed: {error}\n(Debian: apt-get install maven default-jdk-headless)"))?;
        }
        Ok(Self { jar })
    }

    /// What it says of logs.
    pub(crate) fn read(&self, logs: &[PathBuf]) -> Result<All, String> {
        let said = output(self.tools().args(["read", PERCENTILES]).args(logs))?;
        rows(&said, |value| value.as_u64())
    }

    /// Has it write a log.
    pub(crate) fn write(&self, log: &Path) -> Result<(), String> {
        output(self.tools().arg("write").arg(log)).map(drop)
    }

    /// What its `HistogramLogProcessor` prints of a tag, values as they were recorded.
    pub(crate) fn process(&self, log: &Path, tag: &str) -> Result<String, String> {
        let mut command = Command::new("java");
        command.arg("-cp").arg(&self.jar).arg("org.HdrHistogram.HistogramLogProcessor");
        command.arg("-i").arg(log).args(["-tag", tag, "-outputValueUnitRatio", "1.0"]);
        output(&mut command)
    }

    fn tools(&self) -> Command {
        let mut command = Command::new("java");
        command.arg("-cp").arg(&self.jar).arg(source("Tools.java"));
        command
    }
}

impl Python {
    /// By pip, unless it is there already.
    pub(crate) fn install(folder: &Path) -> Result<Self, String> {
        let environment = folder.join(format!("python-{PYTHON}"));
        let program = environment.join("bin/python3");
        if !environment.join("lib").exists()
            || output(Command::new(&program).args(["-c", "import hdrh"])).is_err()
        {
            let needed = |error| {
                format!("the Python library is needed: {error}\n(Debian: apt-get install python3-venv)")
            };
            output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))
                .map_err(needed)?;
            let package = format!("hdrhistogram=={PYTHON}");
            output(Command::new(&program).args(["-m", "pip", "install", "--quiet", &package]))
                .map_err(needed)?;
        }
        Ok(Self { program })
    }

    /// What it says of logs: the rank of each percentile rounded up. Fails unless what it says by its own rounding is
    /// that, or the rank before.
    pub(crate) fn read(&self, logs: &[PathBuf]) -> Result<All, String> {
        let said = output(self.tools().args(["read", PERCENTILES]).args(logs))?;
        rows(&said, |value| {
            let [own, up, before] = [value[0].as_u64()?, value[1].as_u64()?, value[2].as_u64()?];
            (own == up || own == before).then_some(up)
        })
    }

    /// Has it write a log.
    pub(crate) fn write(&self, log: &Path) -> Result<(), String> {
        output(self.tools().arg("write").arg(log)).map(drop)
    }

    fn tools(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(source("tools.py"));
        command
    }
}

/// A file beside this one.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hdr").join(name)
}

fn rows(said: &str, percentile: impl Fn(&Value) -> Option<u64>) -> Result<All, String> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        said_of(&row, &percentile)
    };
    said.lines().map(row).collect()
}

fn said_of(row: &Value, percentile: impl Fn(&Value) -> Option<u64>) -> Result<(String, Said), String> {
    let missing = |what: &str| format!("no {what} in {row}");
    let number = |name: &str| row[name].as_u64().ok_or_else(|| missing(name));
    let percentiles = PERCENTILES.split(',').map(|name| {
        percentile(&row["percentiles"][name]).ok_or_else(|| missing(&format!("sound percentile {name}")))
    });
    let said = Said {
        count: number("count")?,
        min: number("min")?,
        max: number("max")?,
        percentiles: percentiles.collect::<Result<_, _>>()?,
    };
    Ok((row["tag"].as_str().ok_or_else(|| missing("tag"))?.to_owned(), said))
}
