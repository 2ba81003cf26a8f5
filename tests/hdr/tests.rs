//! What must agree.

use std::path::PathBuf;
use std::process::Command;

use usher_tests::runner::Verdict;

use crate::World;
use crate::witness::{All, output, usher};

/// Tags that the load is sure to have brought.
const SURE: &[&str] = &[
    "wait/narrow/executed",
    "execution/narrow/executed",
    "dispatch/narrow/executed",
    "dispatch/narrow/queue-full",
    "added/narrow/executed",
    "added/narrow/queue-full",
    "seats/narrow/queue-full",
    "execution/global-default/executed",
];

/// The logs, oldest first.
fn logs(world: &World) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(&world.logs).map_err(|error| error.to_string())?;
    let mut logs: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    logs.sort_unstable();
    Ok(logs)
}

/// Fails unless two say the same of every tag.
fn same(usher: &All, other: &All, name: &str) -> Verdict {
    let tags: Vec<&String> = usher.keys().chain(other.keys()).collect();
    for tag in tags {
        if usher.get(tag) != other.get(tag) {
            return Err(format!("{tag}:\nusher {:?}\n{name} {:?}", usher.get(tag), other.get(tag)));
        }
    }
    let count: u64 = usher.values().map(|said| said.count).sum();
    Ok(format!("{} tags, {count} values", usher.len()))
}

pub(crate) async fn the_logs_hold_what_happened(world: &World) -> Verdict {
    let logs = logs(world)?;
    let all = usher(&world.usher, &logs)?;
    if let Some(missing) = SURE.iter().find(|tag| !all.contains_key(**tag)) {
        return Err(format!("no {missing} in {:?}", all.keys()));
    }
    let waited = &all["wait/narrow/executed"];
    if waited.max < 1_000_000 {
        return Err(format!("five clients of one seat waited for milliseconds, not so: {waited:?}"));
    }
    if logs.len() < 2 {
        return Err("the size of the load was meant to begin a second file".into());
    }
    Ok(format!("{} files", logs.len()))
}

pub(crate) async fn the_java_library_reads_the_same(world: &World) -> Verdict {
    let logs = logs(world)?;
    same(&usher(&world.usher, &logs)?, &world.java.read(&logs)?, "Java")
}

pub(crate) async fn the_python_library_reads_the_same(world: &World) -> Verdict {
    let logs = logs(world)?;
    same(&usher(&world.usher, &logs)?, &world.python.read(&logs)?, "Python")
}

pub(crate) async fn the_java_log_processor_prints_the_same_distribution(world: &World) -> Verdict {
    let log = logs(world)?.swap_remove(0);
    let mut lines = 0;
    for tag in SURE {
        let java = world.java.process(&log, tag)?;
        // What stands before is the log's intervals, one a line.
        let at = java.find("       Value ").ok_or_else(|| format!("no distribution in\n{java}"))?;
        let mut command = Command::new(&world.usher);
        let ours = output(command.args(["hdr", "percentiles", "-o", "hgrm", "--tag", tag]).arg(&log))?;
        if ours.trim_end() != java[at..].trim_end() {
            return Err(format!("{tag}:\nusher\n{ours}\nJava\n{}", &java[at..]));
        }
        lines += ours.lines().count();
    }
    Ok(format!("{lines} lines"))
}

pub(crate) async fn merged_logs_are_read_the_same(world: &World) -> Verdict {
    let logs = logs(world)?;
    let merged = world.scratch.join("merged.hlog");
    let text = output(Command::new(&world.usher).args(["hdr", "merge", "--every", "1s"]).args(&logs))?;
    std::fs::write(&merged, text).map_err(|error| error.to_string())?;
    let (all, merged) = (usher(&world.usher, &logs)?, [merged]);
    same(&all, &world.java.read(&merged)?, "Java")?;
    same(&all, &world.python.read(&merged)?, "Python")
}

pub(crate) async fn usher_reads_what_the_java_library_writes(world: &World) -> Verdict {
    let log = [world.scratch.join("java.hlog")];
    world.java.write(&log[0])?;
    same(&usher(&world.usher, &log)?, &world.java.read(&log)?, "Java")
}

pub(crate) async fn usher_reads_what_the_python_library_writes(world: &World) -> Verdict {
    let log = [world.scratch.join("python.hlog")];
    world.python.write(&log[0])?;
    same(&usher(&world.usher, &log)?, &world.python.read(&log)?, "Python")
}
