//! Every request falls under the same FlowSchema and priority level through usher as in kube-apiserver.
//!
//! Generated requests (`generate`) under generated objects (`objects`), besides the default ones: each is
//! sent directly and through usher, and the `X-Kubernetes-PF-*-UID` of the two answers are compared.

mod generate;
mod objects;
mod random;
mod words;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use usher_tests::Outcome;
use usher_tests::client::{Client, Credential, Endpoint, Protocol};
use usher_tests::clock::{Pending, until};
use usher_tests::cluster::pki;
use usher_tests::runner::Verdict;

use crate::world::{PATIENCE, World};
use generate::{Case, Proof};
use random::Random;

/// Requests under way at once.
const WORKERS: usize = 8;

/// A body that takes longer is given up: a generated request may turn out to be a watch after all.
const BODY_TIME_MAX: Duration = Duration::from_secs(2);

/// Mismatches shown in full; the rest is counted.
const SHOWN: usize = 20;

pub(crate) async fn flow_schemas_and_levels_are_the_same(world: &World) -> Verdict {
    let mut random = Random::new(world.seed);
    let own = objects::generate(&mut random);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": own}).to_string();
    let kubectl = world.cluster.kubectl_direct("admin");
    kubectl.run_with_input(&["apply", "--validate=false", "-f", "-"], &list).await?.success()?;
    let verdict = compare(world, &mut random).await;
    kubectl.run_with_input(&["delete", "-f", "-"], &list).await?.success()?;
    verdict
}

async fn compare(world: &World, random: &mut Random) -> Verdict {
    let sentinel = Credential::certificate(&world.cluster.certificates(), pki::FRONT_PROXY)?
        .with("x-remote-user", objects::SENTINEL_USER);
    wait_until_in_force(world, objects::SENTINEL, &sentinel).await?;
    let tokens = generate::tokens(world).await?;
    let cases: Vec<Case> = (0..world.requests).map(|_| generate::case(random, &tokens)).collect();
    let clients = Clients::new(world)?;
    let next = AtomicUsize::new(0);
    let workers = (0..WORKERS).map(|_| worker(&clients, &cases, &next));
    let reports = futures_util::future::join_all(workers).await;
    let mut total = Report::default();
    for report in reports {
        total.add(report);
    }
    total.verdict(&names(world).await?, world.seed)
}

/// Waits until requests of this user fall under the FlowSchema of this name: directly, then, once usher has
/// the cluster's objects, through usher too.
pub(crate) async fn wait_until_in_force(world: &World, schema: &str, credential: &Credential) -> Outcome {
    let target = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}");
    let object = world.cluster.administrator_direct()?.get(&target).await?.success()?.json();
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    world.cluster.dump_flow_control().await?;
    let (mut direct, mut through) = world.clients(credential, Protocol::Http1)?;
    for (side, client) in [("kube-apiserver", &mut direct), ("usher", &mut through)] {
        until(&format!("{schema} in force in {side}"), PATIENCE, async || {
            let answer = client.get("/api/v1/namespaces/default").await?;
            let seen = answer.header("x-kubernetes-pf-flowschema-uid");
            if seen == uid { Ok(()) } else { Err(Pending::NotYet(format!("{seen:?} is not {uid:?}"))) }
        })
        .await?;
    }
    Ok(())
}

/// What a worker saw.
#[derive(Default)]
struct Report {
    agreed: usize,
    /// Agreed, and with a schema: long-running requests have none.
    by_schema: BTreeMap<String, usize>,
    problems: Vec<String>,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.agreed += other.agreed;
        self.problems.extend(other.problems);
        for (schema, count) in other.by_schema {
            *self.by_schema.entry(schema).or_default() += count;
        }
    }

    fn verdict(self, names: &BTreeMap<String, String>, seed: u64) -> Verdict {
        if !self.problems.is_empty() {
            let named = |problem: &String| {
                names.iter().fold(problem.clone(), |text, (uid, name)| text.replace(uid.as_str(), name))
            };
            let shown: Vec<String> = self.problems.iter().take(SHOWN).map(named).collect();
            let more = self.problems.len().saturating_sub(SHOWN);
            let rest = if more > 0 { format!("\n… and {more} more") } else { String::new() };
            let (wrong, agreed) = (self.problems.len(), self.agreed);
            return Err(format!("{wrong} differ, {agreed} agree; seed {seed}\n{}{rest}", shown.join("\n")));
        }
        let schemas = self.by_schema.keys().filter(|uid| !uid.is_empty()).count();
        let none = self.by_schema.get("").copied().unwrap_or(0);
        Ok(format!("{} requests agree, {schemas} flow schemas met, {none} requests under none", self.agreed))
    }
}

/// Takes cases until there are none left.
async fn worker(clients: &Clients, cases: &[Case], next: &AtomicUsize) -> Report {
    let mut report = Report::default();
    let mut open = BTreeMap::new();
    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
        let [direct, through] = open
            .entry((case.proof.certificate(), case.http2))
            .or_insert_with(|| clients.pair(case.proof.certificate(), case.http2));
        let mut left = ask(direct, case).await;
        if left.is_err() {
            // kube-apiserver ends the HTTP/2 connection of a stranger with the answer; the end may come first.
            left = ask(direct, case).await;
        }
        let right = ask(through, case).await;
        match (left, right) {
            (Ok(left), Ok(right)) if left.agrees(&right) => {
                report.agreed += 1;
                *report.by_schema.entry(left.schema).or_default() += 1;
            }
            (left, right) => report.problems.push(format!("{case}\n  direct {left:?}\n  usher  {right:?}")),
        }
    }
    report
}

/// What an answer told.
#[derive(Debug)]
struct Seen {
    status: StatusCode,
    schema: String,
    level: String,
    body: String,
}

impl Seen {
    fn agrees(&self, other: &Self) -> bool {
        (self.status, &self.schema, &self.level) == (other.status, &other.schema, &other.level)
    }
}

async fn ask(client: &mut Client, case: &Case) -> Outcome<Seen> {
    let answer = client.open(case.method.clone(), &case.target, &case.headers, case.body.clone()).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) => {
            client.disconnect();
            return Err(why);
        }
    };
    let text = |name: &str| {
        let value = answer.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let mut seen = Seen {
        status: answer.status(),
        schema: text("x-kubernetes-pf-flowschema-uid"),
        level: text("x-kubernetes-pf-prioritylevel-uid"),
        body: String::new(),
    };
    // A watch never ends: on HTTP/2 its stream is reset by dropping it, on HTTP/1.1 its connection.
    if case.endless() && answer.status().is_success() {
        drop(answer);
        if !case.http2 {
            client.disconnect();
        }
    } else {
        let body = http_body_util::BodyExt::collect(answer.into_body());
        match tokio::time::timeout(BODY_TIME_MAX, body).await {
            Ok(Ok(body)) => seen.body = String::from_utf8_lossy(&body.to_bytes()).chars().take(300).collect(),
            _ => client.disconnect(),
        }
    }
    Ok(seen)
}

/// The credentials of connections; what changes with a request is in its headers.
struct Clients {
    endpoints: [Endpoint; 2],
    credentials: BTreeMap<&'static str, Credential>,
}

impl Clients {
    fn new(world: &World) -> Outcome<Self> {
        let folder = world.cluster.certificates();
        let mut credentials = BTreeMap::from([(Proof::NO_CERTIFICATE, Credential::default())]);
        for name in Proof::CERTIFICATES {
            credentials.insert(name, Credential::certificate(&folder, name)?);
        }
        Ok(Self { endpoints: [world.cluster.direct()?, world.cluster.through()?], credentials })
    }

    fn pair(&self, certificate: &str, http2: bool) -> [Client; 2] {
        let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
        let credential = &self.credentials[certificate];
        self.endpoints.each_ref().map(|endpoint| Client::new(endpoint, credential, protocol))
    }
}

/// UIDs to names, for reports.
async fn names(world: &World) -> Outcome<BTreeMap<String, String>> {
    let mut client = world.cluster.administrator_direct()?;
    let mut names = BTreeMap::new();
    for kind in ["flowschemas", "prioritylevelconfigurations"] {
        let list =
            client.get(&format!("/apis/flowcontrol.apiserver.k8s.io/v1/{kind}")).await?.success()?.json();
        for object in list["items"].as_array().into_iter().flatten() {
            let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
            names.insert(field("uid"), field("name"));
        }
    }
    Ok(names)
}

/// Headers of one request.
fn header_map(pairs: &[(String, String)]) -> HeaderMap {
    pairs
        .iter()
        .filter_map(|(name, value)| {
            Some((
                http::HeaderName::try_from(name.as_str()).ok()?,
                HeaderValue::try_from(value.as_str()).ok()?,
            ))
        })
        .collect()
}
