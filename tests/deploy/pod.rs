//! What a kubelet and a container runtime would do with the DaemonSet's pod, as far as it matters to what is inside: runc runs
//! the image with the manifest's user, capabilities, seccomp profile, read-only root, volumes and arguments.
//!
//! A small part of a kubelet, on purpose: what a manifest asks for that is not known here is an error, never left out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use usher_tests::Outcome;
use usher_tests::clock::{self, Pending};
use usher_tests::cluster::{read, write};

use crate::world::{World, make_folder};

/// A container that drains ends within this; then it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(20);

/// One container of a pod, ready to run.
pub(crate) struct Container<'a> {
    world: &'a World,
    /// The pod's `spec`.
    pub(crate) pod: Value,
    /// The container's own, of `containers` or `initContainers`.
    pub(crate) spec: Value,
}

impl<'a> Container<'a> {
    /// A container of the DaemonSet's by its name.
    pub(crate) fn of(world: &'a World, daemon_set: &Value, name: &str) -> Outcome<Self> {
        let pod = &daemon_set["spec"]["template"]["spec"];
        let all = ["initContainers", "containers"]
            .into_iter()
            .flat_map(|kind| pod[kind].as_array().into_iter().flatten());
        let mut all = all.filter(|container| container["name"] == name);
        let spec = all.next().ok_or_else(|| format!("no container {name}"))?.clone();
        Ok(Self { world, pod: pod.clone(), spec })
    }

    /// Starts it under a name; what it writes goes to a file.
    pub(crate) fn start(&self, name: &str) -> Outcome<Running> {
        let folder = self.world.on_host(&format!("/var/lib/containers/{name}"));
        make_folder(&folder)?;
        write(&folder.join("config.json"), &format!("{:#}", self.bundle()?))?;
        let log = folder.join("log");
        let failed = |error: std::io::Error| format!("runc {name}: {error}");
        let file = File::create(&log).map_err(failed)?;
        let state = self.world.on_host("/run/runc");
        let id = format!("usher-deploy-{}-{name}", std::process::id());
        let child = Command::new("runc")
            .arg("--root")
            .arg(&state)
            .args(["run", "--bundle"])
            .arg(&folder)
            .arg(&id)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(failed)?)
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{}: install runc", failed(error)))?;
        let probe = self.startup_probe()?;
        Ok(Running { id, state, log, child, probe })
    }

    /// The runtime's configuration (OCI runtime specification).
    fn bundle(&self) -> Outcome<Value> {
        let security = &self.spec["securityContext"];
        let user = |name: &str, image: u64| {
            security[name].as_u64().or(self.pod["securityContext"][name].as_u64()).unwrap_or(image)
        };
        let capabilities = capabilities(security)?;
        match security["appArmorProfile"]["type"].as_str() {
            None | Some("Unconfined") => {} // here nothing is confined by AppArmor
            Some(kind) => return Err(format!("AppArmor profile {kind}")),
        }
        Ok(json!({
            "ociVersion": "1.0.2",
            "process": {
                "args": self.arguments()?,
                "env": ["PATH=/"],
                "cwd": "/",
                "user": {"uid": user("runAsUser", NOBODY), "gid": user("runAsGroup", NOBODY)},
                "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
                "noNewPrivileges": security["allowPrivilegeEscalation"] == false,
            },
            "root": {"path": self.world.image.folder, "readonly": security["readOnlyRootFilesystem"] == true},
            "mounts": self.mounts()?,
            "linux": {
                // hostNetwork: there is none of the network.
                "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}],
                "seccomp": self.seccomp(&security["seccompProfile"])?,
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            },
        }))
    }

    /// The image's entry point and the manifest's arguments, `$(NAME)` replaced.
    fn arguments(&self) -> Outcome<Vec<String>> {
        let mut arguments = vec![self.world.image.entrypoint.clone()];
        for argument in self.spec["args"].as_array().into_iter().flatten() {
            let argument = argument.as_str().ok_or("an argument that is no text")?;
            let argument = argument.replace("$(HOST_IP)", "127.0.0.1");
            if argument.contains("$(") {
                return Err(format!("{argument}: what variable?"));
            }
            arguments.push(argument);
        }
        Ok(arguments)
    }

    fn mounts(&self) -> Outcome<Vec<Value>> {
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]}),
            json!({"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro", "nosuid", "noexec", "nodev"]}),
        ];
        for mount in self.spec["volumeMounts"].as_array().into_iter().flatten() {
            let access = if mount["readOnly"] == true { "ro" } else { "rw" };
            mounts.push(json!({
                "destination": mount["mountPath"],
                "type": "none",
                "source": self.volume(&mount["name"])?,
                "options": ["rbind", access],
            }));
        }
        Ok(mounts)
    }

    /// What the kubelet runs inside to know whether it has started; empty: it does not ask.
    fn startup_probe(&self) -> Outcome<Vec<String>> {
        let probe = &self.spec["startupProbe"];
        let Some(command) = probe["exec"]["command"].as_array() else {
            return if probe.is_null() { Ok(Vec::new()) } else { Err(format!("what probe is {probe}?")) };
        };
        let word = |word: &Value| word.as_str().map(str::to_owned).ok_or_else(|| format!("{word}"));
        command.iter().map(word).collect()
    }

    /// Where a volume lies.
    fn volume(&self, name: &Value) -> Outcome<PathBuf> {
        let volumes = self.pod["volumes"].as_array().into_iter().flatten();
        let volume = volumes
            .into_iter()
            .find(|one| one["name"] == *name)
            .ok_or_else(|| format!("no volume {name}"))?;
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            let path = self.world.on_host(path);
            match volume["hostPath"]["type"].as_str() {
                Some("DirectoryOrCreate") => make_folder(&path)?,
                Some("Directory") if path.is_dir() => {}
                kind => return Err(format!("{}: {kind:?}", path.display())),
            }
            return Ok(path);
        }
        if volume["configMap"]["name"] == "usher-flow-control" {
            return Ok(self.world.cluster.flow_control());
        }
        Err(format!("what volume is {volume}?"))
    }

    fn seccomp(&self, profile: &Value) -> Outcome<Value> {
        match profile["type"].as_str() {
            Some("Localhost") => {
                let name = profile["localhostProfile"].as_str().unwrap_or_default();
                let path = self.world.on_host("/var/lib/kubelet/seccomp").join(name);
                serde_json::from_str(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))
            }
            // No runtime is here to say what its default is: one that is stricter than any.
            Some("RuntimeDefault") => Ok(strict()),
            kind => Err(format!("seccomp profile {kind:?}")),
        }
    }
}

/// The image's own user.
const NOBODY: u64 = 65_532;

/// usher's own profile without what no runtime allows by default.
fn strict() -> Value {
    let mut profile: Value =
        serde_json::from_str(include_str!("../../deploy/seccomp/usher.json")).unwrap_or_default();
    for rule in profile["syscalls"].as_array_mut().into_iter().flatten() {
        if let Some(names) = rule["names"].as_array_mut() {
            names.retain(|name| {
                name != "bpf" && !name.as_str().is_some_and(|name| name.starts_with("io_uring_"))
            });
        }
    }
    if let Some(rules) = profile["syscalls"].as_array_mut() {
        rules.retain(|rule| rule["names"].as_array().is_some_and(|names| !names.is_empty()));
    }
    profile
}

/// Only those that drop all and add some are known.
fn capabilities(security: &Value) -> Outcome<Vec<String>> {
    if security["privileged"] == true || security["capabilities"]["drop"] != json!(["ALL"]) {
        return Err(format!("what capabilities has {security}?"));
    }
    let added = security["capabilities"]["add"].as_array().into_iter().flatten();
    added
        .map(|name| name.as_str().map(|name| format!("CAP_{name}")).ok_or_else(|| format!("{name}")))
        .collect()
}

/// A container that was started; dropped, it is killed.
pub(crate) struct Running {
    id: String,
    state: PathBuf,
    log: PathBuf,
    child: Child,
    probe: Vec<String>,
}

impl Running {
    /// Waits until `ask` is content; an error with its log as soon as it has ended.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut ask: impl AsyncFnMut() -> Result<(), Pending>,
    ) -> Outcome {
        let Self { child, log, .. } = self;
        clock::until(what, Duration::from_secs(30), async || {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(Pending::Never(format!("ended ({status}):\n{}", tail(log))));
            }
            ask().await
        })
        .await
        .map_err(|why| format!("{why}\n{}", tail(&self.log)))
    }

    /// Waits for its end; its exit code and all that it wrote.
    pub(crate) async fn ended(&mut self) -> Outcome<(i32, String)> {
        let child = &mut self.child;
        let code = clock::until("the container's end", END_TIME_MAX, async || match child.try_wait() {
            Ok(Some(status)) => Ok(status.code().unwrap_or(128)),
            Ok(None) => Err(Pending::NotYet("it runs".into())),
            Err(error) => Err(Pending::Never(error.to_string())),
        })
        .await
        .map_err(|why| format!("{why}\n{}", tail(&self.log)))?;
        Ok((code, fs::read_to_string(&self.log).unwrap_or_default()))
    }

    /// As the kubelet ends it: SIGTERM, and time to drain.
    pub(crate) async fn end(mut self) -> Outcome<String> {
        self.signal("TERM");
        let (code, log) = self.ended().await?;
        if code == 0 { Ok(log) } else { Err(format!("exit code {code} after SIGTERM:\n{log}")) }
    }

    /// Whether it has started, as its probe has it.
    pub(crate) fn started(&self) -> Outcome<String> {
        self.run(&self.probe.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs usher inside, as `kubectl exec` and `crictl exec` do: what it says.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Outcome<String> {
        self.run(&[&["/usher"], arguments].concat())
    }

    fn run(&self, command: &[&str]) -> Outcome<String> {
        let output =
            self.runc(&[&["exec", &self.id], command].concat()).map_err(|error| error.to_string())?;
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            Ok(said)
        } else {
            Err(format!("{}: {}: {said}", command.join(" "), output.status))
        }
    }

    /// An error if it has ended.
    pub(crate) fn still_runs(&self, why: &str) -> Outcome {
        let state = self.runc(&["state", &self.id]).map_err(|error| error.to_string())?;
        if String::from_utf8_lossy(&state.stdout).contains("\"running\"") {
            Ok(())
        } else {
            Err(format!("{why}:\n{}", tail(&self.log)))
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let _ = self.runc(&["kill", &self.id, signal]);
    }

    fn runc(&self, arguments: &[&str]) -> std::io::Result<std::process::Output> {
        Command::new("runc").arg("--root").arg(&self.state).args(arguments).output()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.runc(&["delete", "--force", &self.id]);
        let _ = self.child.wait();
    }
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
