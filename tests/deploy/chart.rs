//! The Helm chart, and the kustomize base that is rendered from it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use usher_tests::Outcome;
use usher_tests::cluster::{programs, read, write};
use usher_tests::runner::Verdict;

use crate::world::{NAMESPACE, World, deploy};

/// The version that helm renders for: that of the cluster.
const KUBERNETES: &str = "1.36";

/// What is installed from kustomize, and the values with which the chart gives the same.
pub(crate) const VARIANTS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("overlays/takeover", &["takeover=fail-open"]),
    ("overlays/privileged", &["privileged=true"]),
    ("overlays/monitoring", &["monitoring.enabled=true"]),
];

/// Values whose manifests no overlay has.
pub(crate) const MORE_VALUES: &[&[&str]] = &[
    &["takeover=fail-open", "monitoring.enabled=true", "privileged=true"],
    &["takeover=fail-closed", "takeoverAddresses={10.0.0.1:6443,[fd00::1]:6443}"],
    &["steering=off", "securePort=443", "seccomp.type=RuntimeDefault", "admin.address=127.0.0.2"],
    &[
        "flags.max-requests-inflight=800",
        "flags.log-format=text",
        "image.tag=x",
        "podLabels.a=b",
        "upstreams={https://a:1,https://b:2}",
    ],
];

/// Values that must be refused, and what the refusal names.
const WRONG: &[(&str, &str)] = &[
    ("takeover=maybe", "takeover"),
    ("steering=yes", "steering"),
    ("securePort=70000", "securePort"),
    ("securePort=https", "securePort"),
    ("upstreams={http://127.0.0.1:6443}", "upstreams"),
    ("upstreams=null", "upstreams"),
    ("takeoverAddresses={localhost}", "takeoverAddresses"),
    ("flags.Bad_Name=1", "flags"),
    ("flags.takeover=fail-open", "flags"),
    ("flags.secure-port=443", "flags"),
    ("monitorin.enabled=true", "monitorin"),
    ("resources.limit.memory=1Gi", "limit"),
    ("admin.port=0", "admin"),
    ("pki=relative", "pki"),
];

/// What helm renders with some values.
pub(crate) fn template(values: &[&str]) -> Outcome<String> {
    helm(
        &[
            &["template", "usher", &chart(), "--namespace", NAMESPACE, "--kube-version", KUBERNETES],
            &sets(values)[..],
        ]
        .concat(),
    )
}

fn sets<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|value| ["--set", value]).collect()
}

fn chart() -> String {
    deploy("helm/usher").display().to_string()
}

fn helm(arguments: &[&str]) -> Outcome<String> {
    let output = Command::new(programs::folder().join("helm"))
        .args(arguments)
        .output()
        .map_err(|error| format!("helm: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("helm {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// The objects of a YAML text, by kind and name.
pub(crate) fn objects(text: &str) -> Outcome<BTreeMap<(String, String), Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let named = documents.into_iter().filter(|document| !document.is_null()).map(|object| {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        ((word(&object["kind"]), word(&object["metadata"]["name"])), object)
    });
    Ok(named.collect())
}

/// The DaemonSet among them.
pub(crate) fn daemon_set(text: &str) -> Outcome<Value> {
    objects(text)?.remove(&("DaemonSet".into(), "usher".into())).ok_or_else(|| "no DaemonSet usher".into())
}

/// What kustomize makes of a folder.
pub(crate) async fn kustomize(world: &World, folder: &str) -> Outcome<String> {
    let folder = deploy("kustomize").join(folder).display().to_string();
    world.cluster.kubectl_direct("admin").run(&["kustomize", &folder]).await?.success()
}

/// Files under `deploy/kustomize` that the chart renders, and what they begin with.
fn rendered() -> Outcome<Vec<(PathBuf, String)>> {
    let monitoring = ["--show-only", "templates/monitoring.yaml", "--set", "monitoring.enabled=true"];
    let arguments = ["template", "usher", &chart(), "--namespace", NAMESPACE, "--kube-version", KUBERNETES];
    let header = "# Rendered from deploy/helm/usher by `cargo xtask deploy render`.\n";
    Ok(vec![
        (deploy("kustomize/base/usher.yaml"), format!("{header}{}", template(&[])?)),
        (
            deploy("kustomize/components/monitoring/objects.yaml"),
            format!("{header}{}", helm(&[&arguments[..], &monitoring[..]].concat())?),
        ),
    ])
}

/// Writes them.
pub(crate) fn render_kustomize() -> Outcome {
    for (path, text) in rendered()? {
        write(&path, &text)?;
        println!("{}", path.display());
    }
    Ok(())
}

pub(crate) async fn helm_lints_it(_: &World) -> Verdict {
    let said = helm(&["lint", "--strict", "--kube-version", KUBERNETES, &chart()])?;
    if said.contains("[WARNING]") || said.contains("[ERROR]") {
        return Err(said);
    }
    let version = format!("appVersion: {}", env!("CARGO_PKG_VERSION"));
    if !read(&deploy("helm/usher/Chart.yaml"))?.lines().any(|line| line == version) {
        return Err(format!("the chart's is not {version}"));
    }
    for values in MORE_VALUES {
        helm(&[&["lint", "--strict", "--kube-version", KUBERNETES, &chart()], &sets(values)[..]].concat())?;
    }
    Ok(format!("{} sets of values", MORE_VALUES.len() + 1))
}

pub(crate) async fn wrong_values_are_refused(_: &World) -> Verdict {
    for (value, named) in WRONG {
        match template(&[value]) {
            Ok(_) => return Err(format!("{value} is taken")),
            Err(why) if why.contains("schema") && why.contains(named) => {}
            Err(why) => return Err(format!("{value} is refused, but not by the schema for {named}: {why}")),
        }
    }
    Ok(format!("{} of them", WRONG.len()))
}

/// The chart is the source: the committed base is what it renders, and each overlay gives what its value gives.
pub(crate) async fn kustomize_and_chart_are_alike(world: &World) -> Verdict {
    for (path, text) in rendered()? {
        if read(&path)? != text {
            return Err(format!(
                "{} is not what the chart renders: `cargo xtask deploy render`",
                path.display()
            ));
        }
    }
    let mut count = 0;
    for (folder, values) in VARIANTS {
        let (by_kustomize, by_helm) =
            (objects(&kustomize(world, folder).await?)?, objects(&template(values)?)?);
        count += by_helm.len();
        compare(&by_kustomize, &by_helm)
            .map_err(|why| format!("{folder} and the chart with {values:?}: {why}"))?;
    }
    Ok(format!("{count} objects in {} variants", VARIANTS.len()))
}

/// Capabilities are those that the values need, and no others.
pub(crate) async fn capabilities_follow_the_values(_: &World) -> Verdict {
    let (kernel, low) = (["BPF", "NET_ADMIN", "PERFMON"], ["NET_BIND_SERVICE"]);
    let cases: [(&[&str], &[&str]); 6] = [
        (&[], &kernel),
        (&["steering=off"], &[]),
        (&["steering=off", "takeover=fail-open"], &kernel),
        (&["steering=off", "securePort=443"], &low),
        (&["steering=off", "admin.port=980"], &low),
        (&["securePort=443"], &[kernel.as_slice(), &low].concat()),
    ];
    for (values, wanted) in cases {
        let set = daemon_set(&template(values)?)?;
        let added =
            &set["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]["add"];
        let added: Vec<&str> = added.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if added != wanted {
            return Err(format!("with {values:?} it has {added:?} instead of {wanted:?}"));
        }
    }
    Ok(format!("{} sets of values", cases.len()))
}

fn compare(left: &BTreeMap<(String, String), Value>, right: &BTreeMap<(String, String), Value>) -> Outcome {
    if !left.keys().eq(right.keys()) {
        return Err(format!("{:?} and {:?}", left.keys(), right.keys()));
    }
    for (name, value) in left {
        difference("", value, &right[name]).map_or(Ok(()), |why| Err(format!("{name:?}{why}")))?;
    }
    Ok(())
}

/// Where two values differ first.
fn difference(path: &str, left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys());
            let value =
                |of: &serde_json::Map<String, Value>, key| of.get(key).cloned().unwrap_or(Value::Null);
            keys.into_iter()
                .find_map(|key| difference(&format!("{path}.{key}"), &value(one, key), &value(other, key)))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .enumerate()
            .find_map(|(index, (a, b))| difference(&format!("{path}[{index}]"), a, b)),
        // What kustomize takes out leaves an empty list.
        (Value::Array(list), Value::Null) | (Value::Null, Value::Array(list)) if list.is_empty() => None,
        _ if left == right => None,
        _ => Some(format!(" {path}: {left} and {right}")),
    }
}
