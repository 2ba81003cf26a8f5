//! The image as the manifests run it, and as nobody: what it needs of the host, and that it needs all of it.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use usher_tests::Outcome;
use usher_tests::client::plain_get;
use usher_tests::clock::{Pending, until};
use usher_tests::cluster::kubeconfig::{User, write_kubeconfig};
use usher_tests::cluster::{ISSUER, programs};
use usher_tests::kubectl::Kubectl;
use usher_tests::runner::Verdict;

use crate::chart::{daemon_set, template};
use crate::pod::{Container, Running};
use crate::world::{BpfFilesystem, World, set_mode};

/// The DaemonSet for the test's cluster: ports that were free, its issuer; all else is the chart's.
pub(crate) fn manifest(world: &World, more: &[&str]) -> Outcome<Value> {
    let ports = &world.cluster.ports;
    let own = [
        format!("upstreams={{https://127.0.0.1:{}}}", ports.apiserver),
        format!("securePort={}", ports.usher),
        format!("admin.port={}", ports.usher_admin),
        format!("serviceAccountIssuers={{{ISSUER}}}"),
        "flags.bind-address=127.0.0.1".into(),
        "flags.workers=2".into(),
        "flags.shutdown-grace-period=5s".into(),
    ];
    let values: Vec<&str> = own.iter().map(String::as_str).chain(more.iter().copied()).collect();
    daemon_set(&template(&values)?)
}

/// Runs the container that brings the seccomp profile, to its end.
async fn bring_profile(world: &World, daemon_set: &Value) -> Outcome {
    let mut running = Container::of(world, daemon_set, "seccomp")?.start("seccomp")?;
    match running.ended().await? {
        (0, _) => Ok(()),
        (code, log) => Err(format!("the container that brings the profile: exit code {code}: {log}")),
    }
}

/// The whole pod until usher is ready.
pub(crate) async fn start(world: &World, name: &str, more: &[&str]) -> Outcome<Running> {
    let daemon_set = manifest(world, more)?;
    bring_profile(world, &daemon_set).await?;
    let mut running = Container::of(world, &daemon_set, "usher")?.start(name)?;
    ready(world, &mut running).await?;
    Ok(running)
}

async fn ready(world: &World, running: &mut Running) -> Outcome {
    running
        .until("/readyz", async || {
            plain_get(world.cluster.admin(), "/readyz").await?.success()?;
            Ok(())
        })
        .await?;
    running.started().map(drop)
}

/// All of /metrics.
pub(crate) async fn metrics(world: &World) -> Outcome<String> {
    let answer = plain_get(world.cluster.admin(), "/metrics").await?.success()?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// The user that the image says, no capability, a strict profile: enough where the keys can be read.
pub(crate) async fn it_runs_as_nobody(world: &World) -> Verdict {
    let values = ["steering=off", "seccomp.type=RuntimeDefault", "pki=/etc/usher-pki"];
    // What a Secret would give it: files that it can read.
    let pki = world.on_host("/etc/usher-pki");
    crate::world::make_folder(&pki)?;
    for entry in
        fs::read_dir(world.on_host("/etc/kubernetes/pki")).map_err(|error| error.to_string())?.flatten()
    {
        let copy = pki.join(entry.file_name());
        fs::copy(entry.path(), &copy).map_err(|error| error.to_string())?;
        set_mode(&copy, 0o644)?;
    }
    let runtime = world.on_host("/run/usher");
    crate::world::make_folder(&runtime)?;
    set_mode(&runtime, 0o777)?;
    let mut container = Container::of(world, &manifest(world, &values)?, "usher")?;
    for (name, value) in [("runAsUser", Value::Null), ("runAsGroup", Value::Null)] {
        container.spec["securityContext"][name] = value;
    }
    if container.spec["securityContext"]["capabilities"] != json!({"drop": ["ALL"]}) {
        return Err(format!("without steering it has {}", container.spec["securityContext"]["capabilities"]));
    }
    let mut running = container.start("nobody")?;
    ready(world, &mut running).await?;
    let text = metrics(world).await?;
    running.end().await?;
    fs::remove_dir_all(&runtime).map_err(|error| error.to_string())?;
    has(&text, "usher_ring_info{io=\"epoll\"")?;
    // These words UsherWithoutSteering leaves out, and those of one worker below.
    has(&text, "usher_steering_info{mode=\"off\",reason=\"asked for\"}")?;
    Ok("user 65532, no capabilities, epoll".into())
}

/// A static program looks names up in /etc/hosts and asks the DNS, without any library of the C library's beside it.
pub(crate) async fn names_are_looked_up(world: &World) -> Verdict {
    let apiserver = format!("upstreams={{https://apiserver.test:{}}}", world.cluster.ports.apiserver);
    let daemon_set = manifest(world, &[&apiserver, "flags.workers=1"])?;
    bring_profile(world, &daemon_set).await?;
    let mut container = Container::of(world, &daemon_set, "usher")?;
    // A kubelet mounts a file of hosts into every container.
    let hosts = world.on_host("/etc/container-hosts");
    crate::world::make_folder(&hosts)?;
    fs::write(hosts.join("hosts"), "127.0.0.1 apiserver.test\n").map_err(|error| error.to_string())?;
    fs::copy(crate::world::deploy("image/nsswitch.conf"), hosts.join("nsswitch.conf"))
        .map_err(|error| error.to_string())?;
    container.pod["volumes"]
        .as_array_mut()
        .ok_or("no volumes")?
        .push(json!({"name": "hosts", "hostPath": {"path": "/etc/container-hosts", "type": "Directory"}}));
    // Into the folder's place: the image has nothing else there.
    container.spec["volumeMounts"]
        .as_array_mut()
        .ok_or("no mounts")?
        .insert(0, json!({"name": "hosts", "mountPath": "/etc"}));
    for place in ["kubernetes/pki", "usher/flow-control"] {
        crate::world::make_folder(&hosts.join(place))?;
    }
    let mut running = container.start("hosts")?;
    ready(world, &mut running).await?;
    has(&metrics(world).await?, "usher_steering_info{mode=\"off\",reason=\"one worker: ")?;
    running.end().await?;
    Ok("apiserver.test by /etc/hosts".into())
}

/// The pod as the chart has it: root without anything but three capabilities, io_uring and bpf by its own profile.
pub(crate) async fn the_pod_serves_with_these_privileges(world: &World) -> Verdict {
    let running = start(world, "usher", &["steering=on"]).await?;
    let text = metrics(world).await?;
    has(&text, "usher_ring_info{io=\"uring\"")?;
    has(&text, "usher_steering_info{mode=\"on\"")?;
    let kubectl = through(world, world.cluster.ports.usher, "admin")?;
    let names = kubectl.run(&["get", "namespaces", "-o", "name"]).await?.success()?;
    let after = metrics(world).await?;
    let log = running.end().await?;
    if !names.contains("namespace/kube-system") {
        return Err(format!("kubectl through the pod: {names}"));
    }
    if sum(&after, EXECUTED) <= sum(&text, EXECUTED) {
        return Err("kubectl's requests are not among usher's".into());
    }
    if let Some(line) = log.lines().find(|line| line.contains("\"level\":\"ERROR\"")) {
        return Err(format!("an error in its log: {line}"));
    }
    Ok("io_uring, steering, kubectl through it".into())
}

/// Without one of its capabilities steering is refused, and takeover too: the manifest has none too many.
pub(crate) async fn each_privilege_is_needed(world: &World) -> Verdict {
    let address = format!("takeoverAddresses={{127.0.0.1:{}}}", world.cluster.ports.apiserver);
    let mut tried = 0;
    for (what, values) in [
        ("steering", ["steering=on", "takeover=off"].as_slice()),
        ("takeover", &["steering=off", "takeover=fail-open", &address]),
    ] {
        let daemon_set = manifest(world, values)?;
        bring_profile(world, &daemon_set).await?;
        let added = capabilities(&daemon_set)?;
        for (index, name) in added.iter().enumerate() {
            let mut less = Container::of(world, &daemon_set, "usher")?;
            let kept: Vec<&Value> = added.iter().filter(|other| *other != name).collect();
            less.spec["securityContext"]["capabilities"]["add"] = json!(kept);
            let (code, log) = less.start(&format!("{what}-{index}"))?.ended().await?;
            if code == 0 || !log.contains(what) {
                return Err(format!("{what} without {name}: exit code {code}: {log}"));
            }
            tried += 1;
        }
    }
    // And with auto it serves all the same.
    let mut without = Container::of(world, &manifest(world, &["steering=auto"])?, "usher")?;
    without.spec["securityContext"]["capabilities"]["add"] = json!([]);
    let mut running = without.start("none")?;
    ready(world, &mut running).await?;
    has(&metrics(world).await?, "usher_steering_info{mode=\"off\"")?;
    running.end().await?;
    Ok(format!("{tried} times one too few; with --steering=auto it serves without any"))
}

/// What the pod's main container has.
fn capabilities(daemon_set: &Value) -> Outcome<Vec<Value>> {
    let security = &daemon_set["spec"]["template"]["spec"]["containers"][0]["securityContext"];
    let added = security["capabilities"]["add"].as_array().filter(|added| !added.is_empty());
    added.cloned().ok_or_else(|| format!("no capabilities: {security}"))
}

/// The guide's takeover: kubectl at the apiserver's own port comes through usher, and back, and when usher is killed.
pub(crate) async fn takeover_and_back(world: &World) -> Verdict {
    let port = world.cluster.ports.apiserver;
    let address = format!("takeoverAddresses={{127.0.0.1:{port}}}");
    // Each by itself: steering is tried above.
    let running = start(world, "takeover", &["takeover=fail-open", "steering=off", &address]).await?;
    // Nothing of the apiserver's or of its clients' was changed.
    let kubectl = world.cluster.kubectl_direct("admin");
    let through_usher = async |running: bool| -> Outcome<bool> {
        let before = if running { sum(&metrics(world).await?, EXECUTED) } else { 0.0 };
        kubectl.run(&["get", "namespaces"]).await?.success()?;
        Ok(running && sum(&metrics(world).await?, EXECUTED) > before)
    };
    let expect = async |through: bool, when: &str| match through_usher(true).await? == through {
        true => Ok(()),
        false => Err(format!("{when}: {}through usher", if through { "not " } else { "" })),
    };
    expect(true, "taken over").await?;
    let status = running.exec(&["status"])?;
    if !status.contains(&port.to_string()) {
        return Err(format!("usher status does not tell of port {port}:\n{status}"));
    }
    running.exec(&["release"])?;
    expect(false, "after usher release").await?;
    running.exec(&["take"])?;
    expect(true, "after usher take").await?;
    running.signal("KILL");
    through_usher(false).await.map_err(|why| format!("after kill -9: {why}"))?;
    drop(running);
    Ok("release, take, kill -9".into())
}

/// takeover=fail-closed: the pin is on the host, so that nobody gets past a pod that was killed, or ended, until the next one is
/// there; and `usher release` in the pod removes it.
pub(crate) async fn fail_closed_outlives_the_pod(world: &World) -> Verdict {
    let port = world.cluster.ports.apiserver;
    let address = format!("takeoverAddresses={{127.0.0.1:{port}}}");
    let values = ["takeover=fail-closed", "steering=off", &address];
    let _bpf = BpfFilesystem::mount(world.on_host("/sys/fs/bpf"))?;
    let pin = world.on_host("/sys/fs/bpf/usher/takeover");
    let kubectl = world.cluster.kubectl_direct("admin");
    let ask = async || kubectl.run(&["get", "namespaces", "-o", "name"]).await?.success().map(drop);
    // What a killed pod had is cleared up a moment after its end: until then connections may be reset.
    let expect_nobody = async |when: &str| {
        until(&format!("kubectl to be refused {when}"), PATIENCE, async || match ask().await {
            Ok(()) => Err(Pending::Never("it is answered".into())),
            Err(why) if why.contains("refused") && pin.exists() => Ok(()),
            Err(why) => Err(Pending::NotYet(format!("pinned: {}, {why}", pin.exists()))),
        })
        .await
    };
    let first = start(world, "closed", &values).await?;
    ask().await?;
    first.signal("KILL");
    drop(first);
    expect_nobody("after kill -9").await?;

    let second = start(world, "closed-again", &values).await?;
    let (third, asked) = start_after(world, "closed-after", &values, &ask).await?;
    second.end().await?;
    ask().await?;
    has(&metrics(world).await?, "usher_takeover_held{mode=\"fail-closed\"} 1")?;
    third.end().await?;
    expect_nobody("after the last pod's end").await?;

    let released = start(world, "closed-released", &values).await?;
    released.exec(&["release"])?;
    if pin.exists() {
        return Err("usher release leaves the pin".into());
    }
    released.signal("KILL");
    drop(released);
    ask().await.map_err(|why| format!("after usher release: {why}"))?;

    let last = start(world, "closed-last", &values).await?;
    let (off, more) = start_after(world, "off", &["takeover=off"], &ask).await?;
    last.end().await?;
    off.end().await?;
    ask().await.map_err(|why| format!("after takeover=off: {why}"))?;
    Ok(format!("kill -9, {} requests over two hand-overs, an end, a release, takeover=off", asked + more))
}

/// Another pod beside the one that runs, until it has taken over from it; how often was asked meanwhile, always well.
async fn start_after(
    world: &World,
    name: &str,
    values: &[&str],
    ask: &impl AsyncFn() -> Outcome,
) -> Outcome<(Running, usize)> {
    let mut next = Container::of(world, &manifest(world, values)?, "usher")?.start(name)?;
    let mut asked = 0;
    next.until("the next pod to take over", async || {
        asked += 1;
        ask().await.map_err(Pending::Never)?;
        has(&metrics(world).await?, "usher_handovers_total{result=\"taken\"} 1").map_err(Pending::NotYet)
    })
    .await?;
    Ok((next, asked))
}

/// The DaemonSet's update: a second pod beside the first on the same host, and kubectl never notices. Of the two the kubelet
/// takes for started whose own usher it is that answers.
pub(crate) async fn one_pod_hands_over_to_the_next(world: &World) -> Verdict {
    let first = start(world, "first", &[]).await?;
    let kubectl = through(world, world.cluster.ports.usher, "admin")?;
    let mut second =
        Container::of(world, &manifest(world, &["podLabels.new=yes"])?, "usher")?.start("second")?;
    let mut asked = 0;
    let both = async {
        second
            .until("the second pod to take over", async || {
                asked += 1;
                kubectl.run(&["get", "--raw=/readyz"]).await?.success().map_err(Pending::Never)?;
                let text = metrics(world).await?;
                has(&text, "usher_handovers_total{result=\"taken\"} 1").map_err(Pending::NotYet)
            })
            .await
    };
    both.await?;
    second.started()?;
    if let Ok(said) = first.started() {
        return Err(format!(
            "the first pod's startup probe takes the second one's answer for its own: {said}"
        ));
    }
    first.still_runs("the first pod has handed over, and is to wait for its end")?;
    first.end().await?;
    kubectl.run(&["get", "--raw=/readyz"]).await?.success()?;
    second.end().await?;
    Ok(format!("{asked} requests meanwhile"))
}

/// Longer than a kernel clears up after a process.
const PATIENCE: Duration = Duration::from_secs(20);
/// What usher has let pass.
const EXECUTED: &str = "usher_requests_executed_total";

/// kubectl of somebody's at a port of this host's.
pub(crate) fn through(world: &World, port: u16, who: &str) -> Outcome<Kubectl> {
    let path = world.on_host(&format!("/root/{who}-{port}.yaml"));
    write_kubeconfig(&path, &world.cluster.certificates(), port, User::Certificate(who))?;
    Ok(Kubectl::new(&programs::folder().join("kubectl"), &path))
}

fn has(metrics: &str, series: &str) -> Outcome {
    if metrics.lines().any(|line| line.starts_with(series)) {
        return Ok(());
    }
    let name = series.split('{').next().unwrap_or_default();
    let near: Vec<&str> = metrics.lines().filter(|line| line.starts_with(name)).collect();
    Err(format!("no {series}…; there is {near:?}"))
}

/// All of a family's series together.
pub(crate) fn sum(metrics: &str, family: &str) -> f64 {
    let values = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(family));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
