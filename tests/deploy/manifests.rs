//! The manifests before a real kube-apiserver, which checks them as it would in earnest (`--dry-run=server`).

use serde_json::{Value, json};
use usher_tests::Outcome;
use usher_tests::clock::{Pending, until};
use usher_tests::runner::Verdict;

use crate::chart::{MORE_VALUES, VARIANTS, daemon_set, kustomize, template};
use crate::world::{NAMESPACE, World};

/// The Prometheus operator's kinds as far as they are used here, made by hand: its own definitions cannot be had here.
const PROMETHEUS: &str = include_str!("prometheus.yaml");

/// Applies in earnest, or only tries to: unknown fields are errors.
async fn apply(world: &World, text: &str, more: &[&str]) -> Outcome<String> {
    let arguments = [&["apply", "--validate=strict", "-f", "-"], more].concat();
    world.cluster.kubectl_direct("admin").run_with_input(&arguments, text).await?.success()
}

pub(crate) async fn the_apiserver_takes_every_manifest(world: &World) -> Verdict {
    apply(world, PROMETHEUS, &[]).await?;
    // The definitions are served a moment after they were taken.
    let tried = template(&["monitoring.enabled=true"])?;
    until("the Prometheus operator's kinds", std::time::Duration::from_secs(20), async || {
        apply(world, &tried, &["--dry-run=server"]).await.map(drop).map_err(Pending::NotYet)
    })
    .await?;
    let mut texts = Vec::new();
    for (folder, values) in VARIANTS {
        texts.push((format!("kustomize {folder}"), kustomize(world, folder).await?));
        texts.push((format!("chart {values:?}"), template(values)?));
    }
    for values in MORE_VALUES {
        texts.push((format!("chart {values:?}"), template(values)?));
    }
    let mut count = 0;
    for (name, text) in &texts {
        let said = apply(world, text, &["--dry-run=server"]).await.map_err(|why| format!("{name}: {why}"))?;
        count += said.lines().filter(|line| line.ends_with("(server dry run)")).count();
        // A manifest that says what the apiserver would not keep is wrong even if it is taken.
        let kept = apply(world, text, &["--dry-run=server", "-o", "json"]).await?;
        kept_as_written(text, &kept).map_err(|why| format!("{name}: {why}"))?;
    }
    // The check can fail: a field that does not exist, a value out of range.
    let daemon = template(&[])?;
    for (right, wrong) in
        [("hostNetwork: true", "hostNetwrk: true"), ("maxUnavailable: 0", "maxUnavailable: 1")]
    {
        if apply(world, &daemon.replace(right, wrong), &["--dry-run=server"]).await.is_ok() {
            return Err(format!("{wrong} is taken"));
        }
    }
    Ok(format!("{count} objects of {} renderings", texts.len()))
}

/// Of the DaemonSet: what decides whether the new pod may run beside the old one.
fn kept_as_written(text: &str, kept: &str) -> Outcome {
    let kept: Value = serde_json::from_str(kept).map_err(|error| error.to_string())?;
    let items = kept["items"].as_array().cloned().unwrap_or_default();
    let kept = items.iter().find(|item| item["kind"] == "DaemonSet").ok_or("no DaemonSet")?;
    let container = &kept["spec"]["template"]["spec"]["containers"][0];
    if !container["ports"].is_null() {
        return Err(format!("it has ports, which keep the new pod off the host: {}", container["ports"]));
    }
    let update = &kept["spec"]["updateStrategy"];
    if *update != json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}) {
        return Err(format!("update strategy {update}"));
    }
    let written = &daemon_set(text)?["spec"]["template"]["spec"]["containers"][0]["securityContext"];
    if container["securityContext"] != *written {
        return Err(format!("security context {} instead of {written}", container["securityContext"]));
    }
    Ok(())
}

/// The DaemonSet's template as a pod: priority class, service account, pod security are admission's.
pub(crate) async fn pods_are_admitted(world: &World) -> Verdict {
    apply(world, &template(&[])?, &[]).await?;
    let mut admitted = 0;
    for (_, values) in VARIANTS {
        let template = &daemon_set(&template(values)?)?["spec"]["template"];
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]});
        pod["metadata"] =
            json!({"name": "usher-tried", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]});
        let said = apply(world, &pod.to_string(), &["--dry-run=server", "-o", "json"]).await?;
        let said: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        if said["spec"]["priority"] != 2_000_001_000 || said["spec"]["hostNetwork"] != true {
            return Err(format!(
                "priority {}, hostNetwork {}",
                said["spec"]["priority"], said["spec"]["hostNetwork"]
            ));
        }
        admitted += 1;
    }
    Ok(format!("{admitted} pods"))
}

/// With no more than the groups that every user has, and the manifest's role.
pub(crate) async fn usher_may_ask_what_it_asks(world: &World) -> Verdict {
    let kubectl = world.cluster.kubectl_direct("admin");
    let usher = ["--as=system:usher", "--as-group=system:authenticated"];
    let may = async |what: &[&str]| kubectl.run(&[&["auth", "can-i"], what, &usher[..]].concat()).await;
    apply(world, &template(&[])?, &[]).await?;
    for path in ["/metrics", "/openid/v1/jwks", "/.well-known/openid-configuration"] {
        until(&format!("leave to get {path}"), std::time::Duration::from_secs(20), async || {
            let said = may(&["get", path]).await?;
            if said.out.trim() == "yes" { Ok(()) } else { Err(Pending::NotYet(said.out + &said.err)) }
        })
        .await?;
    }
    for what in [["get", "/logs"], ["list", "pods"], ["get", "secrets"], ["impersonate", "users"]] {
        if may(&what).await?.out.trim() != "no" {
            return Err(format!("system:usher may {what:?}"));
        }
    }
    Ok(String::new())
}
