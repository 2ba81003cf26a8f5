//! Words that must mean something: flags and metrics that manifests, rules, dashboard and guide name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;
use usher_tests::Outcome;
use usher_tests::clock::Pending;
use usher_tests::cluster::{programs, read, write};
use usher_tests::runner::Verdict;

use crate::chart::{MORE_VALUES, VARIANTS, daemon_set, template};
use crate::image::{metrics, start, through};
use crate::world::{World, deploy};

/// Every flag in manifests, unit, its file and guide is one of `usher serve`'s, or of the subcommand it is shown with.
pub(crate) async fn every_flag_is_known(_: &World) -> Verdict {
    let serve = flags_of(&["serve"])?;
    let mut uses: Vec<(String, String)> = Vec::new();
    for values in VARIANTS.iter().map(|(_, values)| values).chain(MORE_VALUES) {
        let set = daemon_set(&template(values)?)?;
        for argument in
            set["spec"]["template"]["spec"]["containers"][0]["args"].as_array().into_iter().flatten()
        {
            if let Some(flag) = argument.as_str().and_then(|argument| argument.strip_prefix("--")) {
                uses.push((format!("the chart with {values:?}"), name(flag)));
            }
        }
    }
    let unit = read(&deploy("systemd/usher@.service"))?;
    let line = unit.lines().find(|line| line.starts_with("ExecStart=")).ok_or("no ExecStart")?;
    uses.extend(written(line).map(|flag| ("the unit".into(), flag)));
    let options: BTreeMap<String, Value> =
        serde_saphyr::from_str(&read(&deploy("systemd/usher.yaml"))?).map_err(|error| error.to_string())?;
    uses.extend(options.into_keys().map(|key| ("usher.yaml".into(), key)));
    for (place, flag) in &uses {
        if !serve.contains(flag) {
            return Err(format!("{place}: usher serve has no --{flag}"));
        }
    }
    // The guide and the comments also show other programs' flags, in lines that name the program.
    let mut known = serve;
    for subcommand in ["seccomp", "check", "explain", "simulate", "status", "release", "take", "drain"] {
        known.extend(flags_of(&[subcommand])?);
    }
    let mut shown = 0;
    for file in
        ["README.md", "systemd/usher@.service", "helm/usher/values.yaml", "helm/usher/files/rules.yaml"]
    {
        for line in
            read(&deploy(file))?.lines().filter(|line| !OTHERS.iter().any(|other| line.contains(other)))
        {
            for flag in written(line) {
                shown += 1;
                if !known.contains(&flag) {
                    return Err(format!("{file}: nothing has --{flag}: {line}"));
                }
            }
        }
    }
    Ok(format!("{} flags of manifests and unit, {shown} in texts", uses.len()))
}

/// Programs whose flags are not usher's.
const OTHERS: &[&str] =
    &["kubectl", "helm ", "cargo xtask", "systemctl", "kube-apiserver's", "curl", "install -", "buildah"];

/// The flags in a subcommand's help.
fn flags_of(subcommand: &[&str]) -> Outcome<BTreeSet<String>> {
    let output = Command::new(programs::usher()?).args(subcommand).arg("--help").output();
    let output = output.map_err(|error| format!("usher: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "usher {} --help: {}",
            subcommand.join(" "),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(written(&String::from_utf8_lossy(&output.stdout)).collect())
}

/// The flags in a text.
fn written(text: &str) -> impl Iterator<Item = String> + '_ {
    let words =
        text.split(|character: char| !(character.is_ascii_alphanumeric() || "-=".contains(character)));
    words.filter_map(|word| word.strip_prefix("--")).map(name).filter(|flag| flag.len() > 1)
}

/// A flag without its value.
fn name(flag: &str) -> String {
    flag.split('=').next().unwrap_or(flag).trim_end_matches('-').to_owned()
}

/// A metric as an expression selects it.
#[derive(Deserialize)]
struct Selector {
    name: String,
    labels: Vec<Label>,
}

/// What it wants of a label.
#[derive(Deserialize)]
struct Label {
    name: String,
    compared: String,
    value: String,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    selectors: Vec<Selector>,
    #[serde(default)]
    error: String,
}

/// Every expression parses (Prometheus' own parser), and what it selects is in /metrics, with these labels.
pub(crate) async fn every_metric_exists(world: &World) -> Verdict {
    let text = all_metrics(world).await?;
    let exposed = families(&text);
    let (expressions, recorded) = expressions()?;
    let answers = parse(&expressions)?;
    let mut names = BTreeSet::new();
    for ((place, expression), answer) in expressions.iter().zip(&answers) {
        if !answer.error.is_empty() {
            return Err(format!("{place}: {}: {expression}", answer.error));
        }
        for selector in &answer.selectors {
            names.insert(selector.name.clone());
            if selector.name == "up" || recorded.contains(&selector.name) {
                continue;
            }
            let labels = exposed.get(&selector.name);
            let labels = labels.ok_or_else(|| format!("{place}: /metrics has no {}", selector.name))?;
            for label in &selector.labels {
                wanted(label, &selector.name, labels).map_err(|why| format!("{place}: {why}"))?;
            }
        }
    }
    Ok(format!("{} expressions, {} metrics", expressions.len(), names.len()))
}

/// /metrics of an usher that has let requests pass and turned some away: what never happened has no series.
async fn all_metrics(world: &World) -> Outcome<String> {
    let narrow = world.cluster.flow_control().join("narrow.yaml");
    write(&narrow, NARROW)?;
    let taken = format!("takeoverAddresses={{127.0.0.1:{}}}", world.cluster.ports.apiserver);
    // A watch has its seat until it has been silent for so long.
    let slow = "flags.watch-quiet-period=10s";
    let values = ["steering=on", "takeover=fail-open", &taken, slow, "flags.hdr-log-dir=/run/usher/hdr"];
    let mut running = start(world, "metrics", &values).await?;
    // Not the administrator, whom the exempt level takes.
    let kubectl = through(world, world.cluster.ports.usher, "kube-controller-manager")?;
    kubectl.run(&["get", "namespaces"]).await?.success()?;
    let watch = ["get", "--raw=/api/v1/namespaces?watch=true"];
    let watches = [kubectl.start(&watch)?, kubectl.start(&watch)?];
    let mut text = String::new();
    running
        .until("one of two watches to be turned away", async || {
            text = metrics(world).await?;
            let turned_away = text.contains("apiserver_flowcontrol_rejected_requests_total{");
            if turned_away { Ok(()) } else { Err(Pending::NotYet("both have a seat".into())) }
        })
        .await?;
    drop(watches);
    running.end().await?;
    std::fs::remove_file(&narrow).map_err(|error| error.to_string())?;
    Ok(text)
}

/// A level in which one request executes at a time, and nobody waits.
const NARROW: &str = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: narrow}
spec: {type: Limited, limited: {nominalConcurrencyShares: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: narrow}
spec:
  matchingPrecedence: 2
  priorityLevelConfiguration: {name: narrow}
  rules:
  - subjects: [{kind: User, user: {name: 'system:kube-controller-manager'}}]
    resourceRules: [{verbs: [watch], apiGroups: [''], resources: [namespaces], clusterScope: true, namespaces: ['*']}]
";

/// Labels of a family's series, with the values that they have.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// An error if no series can be what an expression wants. Prometheus itself adds job and instance.
fn wanted(label: &Label, metric: &str, labels: &Labels) -> Outcome {
    if ["job", "instance"].contains(&label.name.as_str()) {
        return Ok(());
    }
    let values = labels.get(&label.name);
    let values =
        values.ok_or_else(|| format!("{metric} has no label {}, but {:?}", label.name, labels.keys()))?;
    // What usher counts by kind is there from the start, for every kind; an info says only what is so now.
    let complete = metric.starts_with("usher_") && !metric.ends_with("_info");
    if complete && label.compared == "=" && !values.contains(&label.value) {
        return Err(format!("{metric} has no {} {:?}, but {values:?}", label.name, label.value));
    }
    Ok(())
}

/// Names that may be selected, with the labels of their series. Histograms have three of them.
fn families(text: &str) -> BTreeMap<String, Labels> {
    let mut families: BTreeMap<String, Labels> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let labels = families.entry(line[..end].to_owned()).or_default();
        let inside = line[end..].strip_prefix('{').and_then(|rest| rest.rsplit_once("} "));
        let pairs = inside.map_or("", |(inside, _)| inside).split("\",");
        for (name, value) in pairs.filter_map(|pair| pair.split_once("=\"")) {
            labels.entry(name.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
        }
    }
    families
}

/// Where an expression stands, and the expression.
type Expression = (String, String);

/// All expressions with where they stand, and the names that rules record.
fn expressions() -> Outcome<(Vec<Expression>, BTreeSet<String>)> {
    let rules: Value = serde_saphyr::from_str(&read(&deploy("helm/usher/files/rules.yaml"))?)
        .map_err(|error| error.to_string())?;
    let (mut expressions, mut recorded) = (Vec::new(), BTreeSet::new());
    for rule in rules["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten())
    {
        let name = rule["alert"].as_str().or(rule["record"].as_str()).ok_or("a rule without a name")?;
        expressions.push((format!("rule {name}"), line(&rule["expr"])));
        if rule["record"].is_string() {
            recorded.insert(name.to_owned());
        } else {
            for annotation in ["summary", "runbook"] {
                rule["annotations"][annotation]
                    .as_str()
                    .ok_or_else(|| format!("rule {name} has no {annotation}"))?;
            }
        }
    }
    let dashboard: Value = serde_json::from_str(&read(&deploy("helm/usher/files/dashboard.json"))?)
        .map_err(|error| error.to_string())?;
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            // Grafana's own words.
            let expression =
                line(&target["expr"]).replace("$__rate_interval", "5m").replace("$instance", ".+");
            expressions.push((format!("panel {}", panel["title"]), expression));
        }
    }
    Ok((expressions, recorded))
}

fn line(expression: &Value) -> String {
    expression.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asks Prometheus' parser.
fn parse(expressions: &[Expression]) -> Outcome<Vec<Answer>> {
    let failed = |error: std::io::Error| format!("promql: {error}");
    let mut child = Command::new(programs::folder().join("promql"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let text: String = expressions.iter().map(|(_, expression)| format!("{expression}\n")).collect();
    child.stdin.take().ok_or("no pipe")?.write_all(text.as_bytes()).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    let answers: Result<Vec<Answer>, _> =
        String::from_utf8_lossy(&output.stdout).lines().map(serde_json::from_str).collect();
    let answers = answers.map_err(|error| format!("promql: {error}"))?;
    if answers.len() == expressions.len() { Ok(answers) } else { Err("promql lost some".into()) }
}
