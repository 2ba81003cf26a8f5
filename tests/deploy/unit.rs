//! The systemd unit: systemd itself looks at it.

use std::fs;
use std::process::Command;

use usher_tests::cluster::{read, write};
use usher_tests::runner::Verdict;

use crate::world::{World, deploy};

/// systemd's own measure of what a service may do, from 0 (nothing) to 10: usher needs the network and its three capabilities.
const EXPOSURE_MAX: f64 = 2.5;

pub(crate) async fn systemd_takes_the_unit(world: &World) -> Verdict {
    let unit = read(&deploy("systemd/usher@.service"))?;
    // The program must be there to be looked at.
    let program = world.on_host("/usr/local/bin/usher");
    write(&program, "")?;
    crate::world::set_mode(&program, 0o755)?;
    let unit = unit.replace("/usr/local/bin/usher", &program.display().to_string());
    let path = world.on_host("/etc/systemd/system/usher@a.service");
    write(&path, &unit)?;
    let output = Command::new("systemd-analyze").arg("verify").arg(&path).output();
    let output = output.map_err(|error| format!("systemd-analyze: {error}: install systemd"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() || said.contains("usher@") {
        return Err(format!("systemd-analyze verify: {} {said}", output.status));
    }
    let limit = format!("--threshold={:.0}", EXPOSURE_MAX * 10.0);
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &limit])
        .arg(&path)
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let overall =
        said.lines().find(|line| line.contains("Overall exposure")).unwrap_or_default().trim().to_owned();
    let _ = fs::remove_file(&path);
    if output.status.success() { Ok(overall) } else { Err(format!("more than {EXPOSURE_MAX}: {said}")) }
}
