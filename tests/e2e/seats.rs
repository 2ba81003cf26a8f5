//! Seats: a saturated level leaves others alone, refuses politely, and gives everything back.
//!
//! Writers (an *elephant*) fill a level of few seats with requests that a slow webhook holds up; meanwhile a
//! *mouse* reads at another level. Nothing but usher's limits keeps the two apart.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use usher_tests::Outcome;
use usher_tests::client::{Answer, Client, Credential, Protocol};
use usher_tests::clock::{self, Pending, until};
use usher_tests::cluster::read;
use usher_tests::runner::Verdict;

use crate::classification::wait_until_in_force;
use crate::webhook::SlowWebhook;
use crate::world::{PATIENCE, World, label};

const NAMESPACE: &str = "e2e-seats";
const ELEPHANT_LEVEL: &str = "e2e-elephant";
const MOUSE_LEVEL: &str = "e2e-mouse";

/// How long one of the elephant's writes holds its seat.
const WRITE_TIME: Duration = Duration::from_millis(250);

/// Writers at once: several times the level's seats and queues together.
const WRITERS: usize = 40;

/// The mouse's reads in one measurement; the 99th percentile is the sixth slowest.
const READS: usize = 600;

/// Another level's p99 may be this much slower than when usher is idle.
const SLOWER_MAX: f64 = 1.5;

/// Whatever else the machine does can only make the mouse slower, so the best of so many rounds counts.
const ROUNDS: usize = 6;

pub(crate) async fn a_saturated_level_leaves_others_alone(world: &World) -> Verdict {
    let webhook = SlowWebhook::start(&world.cluster.certificates(), WRITE_TIME).await?;
    let kubectl = world.cluster.kubectl_direct("admin");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects(world, &webhook)?}).to_string();
    kubectl.run_with_input(&["apply", "-f", "-"], &list).await?.success()?;
    wait_until_in_force(world, MOUSE_LEVEL, &Credential::token("token-of-mouse")).await?;
    wait_until_in_force(world, ELEPHANT_LEVEL, &Credential::token("token-of-elephant")).await?;

    let verdict = measure(world).await;
    kubectl.run_with_input(&["delete", "-f", "-"], &list).await?.success()?;
    verdict
}

async fn measure(world: &World) -> Verdict {
    let mouse = Credential::token("token-of-mouse");
    let (_, mut mouse) = world.clients(&mouse, Protocol::Http1)?;
    read_many(&mut mouse).await?;
    let mut best = f64::INFINITY;
    let mut remark = String::new();
    let mut refusals = 0;
    for _ in 0..ROUNDS {
        let idle = p99(&read_many(&mut mouse).await?);
        let elephants = Elephants::start(world)?;
        saturated(world).await?;
        let busy = p99(&read_many(&mut mouse).await?);
        refusals += elephants.stop().await?;
        let slower = busy.as_secs_f64() / idle.as_secs_f64();
        if slower < best {
            best = slower;
            remark = format!("p99 {idle:.1?} idle, {busy:.1?} beside a saturated level");
        }
        if best <= SLOWER_MAX {
            break;
        }
    }
    everything_given_back(world).await?;
    if refusals == 0 {
        return Err("nothing was refused: the level was never full".into());
    }
    if best > SLOWER_MAX {
        return Err(format!("{best:.2} times slower at best: {remark}"));
    }
    Ok(format!("{remark}; {refusals} refusals, each with Retry-After"))
}

/// Reads one after another; how long each took.
async fn read_many(client: &mut Client) -> Outcome<Vec<Duration>> {
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let start = clock::now();
        client.get("/api/v1/namespaces/e2e-seats/configmaps/cheese").await?.success()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn p99(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() * 99 / 100]
}

/// Waits until the elephant's level has all seats taken and requests waiting, as usher's metrics tell.
async fn saturated(world: &World) -> Outcome {
    let labels = [label("priority_level", ELEPHANT_LEVEL)];
    until("the level to be saturated", PATIENCE, async || {
        let metrics = world.metrics().await?;
        let limit = metrics.sum("apiserver_flowcontrol_current_limit_seats", &labels);
        let seats = metrics.sum("apiserver_flowcontrol_current_executing_seats", &labels);
        let waiting = metrics.sum("apiserver_flowcontrol_current_inqueue_requests", &labels);
        if limit > 0.0 && seats >= limit && waiting > 0.0 {
            Ok(())
        } else {
            Err(Pending::NotYet(format!("{seats} of {limit} seats taken, {waiting} waiting")))
        }
    })
    .await
}

/// All seats and queues of all levels are empty: controllers work on, so one empty moment must be found.
async fn everything_given_back(world: &World) -> Outcome {
    let families = [
        "apiserver_flowcontrol_current_executing_seats",
        "apiserver_flowcontrol_current_executing_requests",
        "apiserver_flowcontrol_current_inqueue_requests",
        "apiserver_flowcontrol_current_inqueue_seats",
    ];
    until("all seats and queues to be empty", PATIENCE, async || {
        let metrics = world.metrics().await?;
        for family in families {
            let mut series = metrics.series(family, &[]).peekable();
            if series.peek().is_none() && family != "apiserver_flowcontrol_current_inqueue_seats" {
                return Err(Pending::Never(format!("there is no metric {family}")));
            }
            // kube-apiserver counts the very request that reads its metrics; usher has a port for that.
            let own = if world.cluster.with_usher { "-" } else { "exempt" };
            if let Some((labels, value)) =
                series.find(|(labels, value)| *value != 0.0 && !labels.contains(own))
            {
                return Err(Pending::NotYet(format!("{family}{{{labels}}} {value}")));
            }
        }
        Ok(())
    })
    .await
}

/// Writers that try again and again; the task's result is how many refusals it got.
struct Elephants(Vec<JoinHandle<Outcome<usize>>>, tokio::sync::watch::Sender<bool>);

impl Elephants {
    fn start(world: &World) -> Outcome<Self> {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let credential = Credential::token("token-of-elephant");
        let tasks = (0..WRITERS)
            .map(|number| {
                let (_, client) = world.clients(&credential, Protocol::Http1)?;
                Ok(tokio::spawn(write_until(client, number, stopped.clone())))
            })
            .collect::<Outcome<Vec<_>>>()?;
        Ok(Self(tasks, stop))
    }

    /// Lets every writer finish its last request.
    async fn stop(self) -> Outcome<usize> {
        self.1.send_replace(true);
        let mut refusals = 0;
        for task in self.0 {
            refusals += task.await.map_err(|error| format!("a writer: {error}"))??;
        }
        Ok(refusals)
    }
}

async fn write_until(
    mut client: Client,
    number: usize,
    mut stop: tokio::sync::watch::Receiver<bool>,
) -> Outcome<usize> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("hay-{number}")}});
    let target = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All");
    let mut refusals = 0;
    while !*stop.borrow() {
        let answer = client.json(Method::POST, &target, &map).await?;
        match answer.status {
            StatusCode::CREATED => {}
            StatusCode::TOO_MANY_REQUESTS => {
                refusals += 1;
                let after = refusal(&answer)?;
                tokio::select! {
                    () = tokio::time::sleep(after) => {}
                    _ = stop.changed() => {}
                }
            }
            status => {
                let body = String::from_utf8_lossy(&answer.body).into_owned();
                return Err(format!("a write: {status}: {body}"));
            }
        }
    }
    Ok(refusals)
}

/// When to come back; an error if the refusal is not what clients understand.
fn refusal(answer: &Answer) -> Outcome<Duration> {
    let seconds: u64 = answer
        .header("retry-after")
        .parse()
        .map_err(|_| format!("429 with Retry-After {:?}", answer.header("retry-after")))?;
    if seconds == 0 {
        return Err("429 with Retry-After 0".into());
    }
    for header in ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"] {
        if answer.header(header).is_empty() {
            return Err(format!("429 without {header}"));
        }
    }
    Ok(Duration::from_secs(seconds))
}

fn objects(world: &World, webhook: &SlowWebhook) -> Outcome<Vec<Value>> {
    use base64::Engine;
    let authority = read(&world.cluster.certificates().join("ca.crt"))?;
    let authority = base64::engine::general_purpose::STANDARD.encode(authority);
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": "cheese", "namespace": NAMESPACE}, "data": {"a": "b"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "animals", "namespace": NAMESPACE},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "animals", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "animals"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "elephant"},
                         {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mouse"}],
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "e2e-slow"},
            "webhooks": [{
                "name": "slow.e2e.usher.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "timeoutSeconds": 30, "failurePolicy": "Fail",
                "clientConfig": {"url": format!("https://{}/", webhook.address), "caBundle": authority},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                           "resources": ["configmaps"]}],
            }],
        }),
    ];
    for (level, user, shares) in [(ELEPHANT_LEVEL, "elephant", 2), (MOUSE_LEVEL, "mouse", 10)] {
        objects.push(json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": level},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": shares, "lendablePercent": 0, "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Queue",
                                  "queuing": {"queues": 4, "handSize": 1, "queueLengthLimit": 5}},
            }},
        }));
        objects.push(json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": level},
            "spec": {
                "matchingPrecedence": 50,
                "priorityLevelConfiguration": {"name": level},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": user}}],
                    "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"],
                                       "namespaces": ["*"], "clusterScope": true}],
                    "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
                }],
            },
        }));
    }
    Ok(objects)
}
