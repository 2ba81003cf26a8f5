//! kubectl writes the same through usher as without it: each side works in a namespace of its own, and what
//! it prints must not differ.

use usher_tests::Outcome;
use usher_tests::kubectl::{Kubectl, Run};
use usher_tests::runner::Verdict;

use crate::reads::difference;
use crate::world::World;

/// A step: arguments and input. `@NS` is the side's namespace.
type Step = (&'static [&'static str], &'static str);

const STEPS: &[Step] = &[
    (&["create", "namespace", "@NS"], ""),
    (&["apply", "-f", "-"], MANIFEST),
    (&["apply", "-f", "-"], MANIFEST),
    (&["get", "configmap", "settings", "-n", "@NS", "-o", "yaml"], ""),
    (&["diff", "-f", "-"], CHANGED),
    (&["apply", "-f", "-"], CHANGED),
    (&["diff", "-f", "-"], CHANGED),
    (&["apply", "--dry-run=server", "-f", "-"], MANIFEST),
    (&["apply", "--server-side", "--field-manager=one", "-f", "-"], SERVER_SIDE),
    (&["apply", "--server-side", "--field-manager=two", "-f", "-"], SERVER_SIDE_CONFLICT),
    (
        &["apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-"],
        SERVER_SIDE_CONFLICT,
    ),
    (&["get", "configmap", "owned", "-n", "@NS", "-o", "yaml", "--show-managed-fields"], ""),
    (&["patch", "configmap", "settings", "-n", "@NS", "-p", r#"{"data":{"merged":"yes"}}"#], ""),
    (
        &[
            "patch",
            "configmap",
            "settings",
            "-n",
            "@NS",
            "--type=json",
            "-p",
            r#"[{"op":"replace","path":"/data/colour","value":"green"}]"#,
        ],
        "",
    ),
    (
        &[
            "patch",
            "configmap",
            "settings",
            "-n",
            "@NS",
            "--type=json",
            "-p",
            r#"[{"op":"test","path":"/data/colour","value":"pink"}]"#,
        ],
        "",
    ),
    (&["patch", "deployment", "web", "-n", "@NS", "--type=merge", "-p", r#"{"spec":{"paused":true}}"#], ""),
    (&["label", "configmap", "settings", "-n", "@NS", "tier=front"], ""),
    (&["annotate", "configmap", "settings", "-n", "@NS", "note=a note"], ""),
    (&["scale", "deployment", "web", "-n", "@NS", "--replicas=0"], ""),
    (&["create", "-f", "-"], INVALID),
    (&["create", "-f", "-"], UNKNOWN_FIELD),
    (&["create", "configmap", "settings", "-n", "@NS"], ""),
    (&["replace", "-f", "-"], MANIFEST),
    (&["get", "configmap", "settings", "-n", "@NS", "-o", "yaml"], ""),
    (&["create", "token", "default", "-n", "@NS", "--dry-run=client"], ""),
    (&["create", "serviceaccount", "worker", "-n", "@NS"], ""),
    (&["auth", "reconcile", "-f", "-"], RIGHTS),
    (&["delete", "configmap", "settings", "-n", "@NS", "--dry-run=server"], ""),
    (&["delete", "configmap", "settings", "-n", "@NS"], ""),
    (&["delete", "configmap", "settings", "-n", "@NS"], ""),
    (&["delete", "configmap", "settings", "-n", "@NS", "--ignore-not-found"], ""),
    (&["delete", "deployment", "web", "-n", "@NS", "--cascade=foreground"], ""),
    (&["delete", "namespace", "@NS"], ""),
];

pub(crate) async fn kubectl_writes_the_same(world: &World) -> Verdict {
    let (direct, through) = world.kubectls();
    for step in STEPS {
        let left = run(&direct, step, "e2e-writes-direct").await?;
        let right = run(&through, step, "e2e-writes-usher").await?;
        if left != right {
            let command = step.0.join(" ");
            return Err(format!("kubectl {command}: {}", difference(&left, &right)));
        }
    }
    Ok(format!("{} steps", STEPS.len()))
}

async fn run(kubectl: &Kubectl, step: &Step, namespace: &str) -> Outcome<Run> {
    let arguments: Vec<String> = step.0.iter().map(|word| word.replace("@NS", namespace)).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = kubectl.run_with_input(&arguments, &step.1.replace("@NS", namespace)).await?;
    Ok(Run { code: run.code, out: comparable(&run.out, namespace), err: comparable(&run.err, namespace) })
}

/// Without what differs between any two runs: names of our making, times, numbers of versions.
fn comparable(text: &str, namespace: &str) -> String {
    let changing = ["uid:", "resourceVersion:", "creationTimestamp:", "time:", "diff -u", "--- /", "+++ /"];
    text.replace(namespace, "@NS")
        .lines()
        .filter(|line| {
            !changing.iter().any(|start| line.trim_start_matches([' ', '-', '+']).starts_with(start))
        })
        .filter(|line| !changing.iter().any(|start| line.starts_with(start)))
        .map(|line| format!("{line}\n"))
        .collect()
}

const MANIFEST: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: settings, namespace: "@NS"}
  data: {colour: blue, text: "ünïcode and a\nsecond line"}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: "@NS"}
  spec:
    replicas: 0
    selector: {matchLabels: {app: web}}
    template:
      metadata: {labels: {app: web}}
      spec: {containers: [{name: web, image: fake}]}
"#;

const CHANGED: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: "@NS"}
data: {colour: red}
"#;

const SERVER_SIDE: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: owned, namespace: "@NS"}
data: {owner: one, mine: "1"}
"#;

const SERVER_SIDE_CONFLICT: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: owned, namespace: "@NS"}
data: {owner: two}
"#;

const INVALID: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: "Not A Name", namespace: "@NS"}
"#;

const UNKNOWN_FIELD: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: odd, namespace: "@NS"}
dataa: {colour: red}
"#;

const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: "@NS"}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]
"#;
