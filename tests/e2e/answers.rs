//! Status, headers and bodies as they come off the wire are the same through usher as without it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;
use usher_tests::Outcome;
use usher_tests::client::{Answer, Client, Credential, Protocol};
use usher_tests::clock::{Pending, until};
use usher_tests::cluster::read;
use usher_tests::runner::Verdict;

use crate::world::{BIG_MAPS, PATIENCE, World};

/// Headers that differ between any two answers, or that belong to one connection.
const OWN_HEADERS: &[&str] = &["date", "audit-id", "connection", "keep-alive"];

/// How the headers begin that name the flow schema and the level.
const FLOW_CONTROL: &str = "x-kubernetes-pf-";

const MAPS: &str = "/api/v1/namespaces/e2e/configmaps?labelSelector=size%3Dsmall";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const DISCOVERY: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

pub(crate) async fn answers_are_the_same_over_both_protocols(world: &World) -> Verdict {
    let requests: &[(Method, &str, &[Pair], &str)] = &[
        (Method::GET, "/version", &[], ""),
        (Method::GET, "/api", &[("accept", DISCOVERY)], ""),
        (Method::GET, "/apis", &[("accept", DISCOVERY)], ""),
        (Method::GET, "/apis", &[("accept", PROTOBUF)], ""),
        (Method::GET, "/apis/apps/v1", &[], ""),
        (Method::GET, "/healthz", &[], ""),
        (Method::GET, "/livez?verbose", &[], ""),
        (Method::GET, "/readyz/no-such-check", &[], ""),
        (Method::GET, MAPS, &[("accept", JSON)], ""),
        (Method::GET, MAPS, &[("accept", PROTOBUF)], ""),
        (Method::GET, MAPS, &[("accept", TABLE)], ""),
        (Method::GET, MAPS, &[("accept", JSON), ("accept-encoding", "gzip")], ""),
        (Method::GET, MAPS, &[("accept", "image/png")], ""),
        (Method::GET, "/api/v1/namespaces/e2e/configmaps?limit=5", &[], ""),
        (Method::GET, "/api/v1/namespaces/e2e/configmaps?limit=x", &[], ""),
        (Method::GET, "/api/v1/namespaces/e2e/configmaps?timeout=never", &[], ""),
        (Method::GET, "/api/v1/namespaces/e2e/configmaps/none", &[], ""),
        (Method::GET, "/api/v1/namespaces/e2e/configmaps/none", &[("accept", PROTOBUF)], ""),
        (Method::GET, "/api/v1/watch/namespaces/e2e/configmaps?timeoutSeconds=1&labelSelector=none", &[], ""),
        (Method::GET, "/apis/no.such.group/v1/things", &[], ""),
        (Method::GET, "//api/v1/namespaces", &[], ""),
        (Method::GET, "/api/v1/namespaces/", &[], ""),
        (Method::HEAD, "/version", &[], ""),
        (Method::HEAD, "/api/v1/namespaces/e2e", &[], ""),
        (Method::OPTIONS, "/version", &[], ""),
        (Method::POST, "/version", &[("content-type", JSON)], "{}"),
        (Method::POST, "/api/v1/namespaces/e2e/configmaps", &[("content-type", JSON)], "{"),
        (Method::POST, "/api/v1/namespaces/e2e/configmaps", &[("content-type", "text/plain")], "hello"),
        (
            Method::POST,
            "/api/v1/namespaces/e2e/configmaps",
            &[("content-type", JSON)],
            r#"{"metadata":{"name":"B A D"}}"#,
        ),
        (
            Method::PUT,
            "/api/v1/namespaces/e2e/configmaps/small-00",
            &[("content-type", JSON)],
            r#"{"metadata":{"name":"other"}}"#,
        ),
        (Method::PATCH, "/api/v1/namespaces/e2e/configmaps/small-00", &[("content-type", JSON)], "{}"),
        (Method::DELETE, "/api/v1/namespaces/e2e/configmaps/none", &[], ""),
    ];
    let mut credentials = vec![("administrator", world.cluster.administrator()?)];
    credentials.push(("token", Credential::token("token-of-carol")));
    credentials.push(("nobody", Credential::default()));
    let mut problems = Vec::new();
    let mut count = 0;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for (who, credential) in &credentials {
            let (mut direct, mut through) = world.clients(credential, protocol)?;
            for (method, target, headers, body) in requests {
                count += 1;
                let headers = header_map(headers);
                let request = (method.clone(), *target, headers, Bytes::from_static(body.as_bytes()));
                if let Err(why) = same(&mut direct, &mut through, &request).await {
                    problems.push(format!("{protocol:?}, {who}, {method} {target}: {why}"));
                }
            }
        }
    }
    if problems.is_empty() { Ok(format!("{count} requests")) } else { Err(problems.join("\n")) }
}

pub(crate) async fn a_5_mb_list_is_the_same(world: &World) -> Verdict {
    let credential = world.cluster.administrator()?;
    let target = "/api/v1/namespaces/e2e/configmaps?labelSelector=size%3Dbig";
    let mut sizes = Vec::new();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let (mut direct, mut through) = world.clients(&credential, protocol)?;
        for headers in [&[][..], &[("accept-encoding", "gzip")][..], &[("accept", PROTOBUF)][..]] {
            let request = (Method::GET, target, header_map(headers), Bytes::new());
            sizes.push(same(&mut direct, &mut through, &request).await?.body.len());
        }
    }
    let whole = sizes[0];
    if whole < 5_000_000 {
        return Err(format!("{BIG_MAPS} big maps are a list of {whole} bytes only"));
    }
    Ok(format!("{whole} bytes"))
}

pub(crate) async fn conditional_requests_and_formats_are_kept(world: &World) -> Verdict {
    let credential = world.cluster.administrator()?;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let (mut direct, mut through) = world.clients(&credential, protocol)?;
        for target in ["/openapi/v2", "/api", "/apis"] {
            let accept = if target.starts_with("/api") { DISCOVERY } else { JSON };
            let plain = (Method::GET, target, header_map(&[("accept", accept)]), Bytes::new());
            let first =
                same(&mut direct, &mut through, &plain).await.map_err(|why| format!("{target}: {why}"))?;
            let tag = first.header("etag");
            if tag.is_empty() {
                return Err(format!("{target}: no ETag"));
            }
            let headers = header_map(&[("accept", accept), ("if-none-match", tag)]);
            let conditional = (Method::GET, target, headers, Bytes::new());
            let second = same(&mut direct, &mut through, &conditional).await?;
            if second.status != StatusCode::NOT_MODIFIED {
                return Err(format!("{target} with If-None-Match: {}", second.status));
            }
        }
    }
    Ok(String::new())
}

/// The apiserver's audit log must name the client's address and keep its Audit-ID.
pub(crate) async fn audit_logs_stay_true(world: &World) -> Verdict {
    let id = format!("e2e-audit-{}", world.seed);
    let credential = Credential::certificate(&world.cluster.certificates(), "alice")?;
    let credential = credential.with("audit-id", &id).with("x-forwarded-for", "192.0.2.7");
    let (_, mut through) = world.clients(&credential, Protocol::Http1)?;
    let answer = through.get("/api/v1/namespaces/e2e/configmaps").await?;
    if answer.header("audit-id") != id {
        return Err(format!("Audit-ID {:?} was sent, {:?} came back", id, answer.header("audit-id")));
    }
    let entry = audit_entry(world, |entry| entry["auditID"] == id).await?;
    if entry["user"]["username"] != "alice" {
        return Err(format!("audited as {}", entry["user"]));
    }
    let sources = entry["sourceIPs"].as_array().cloned().unwrap_or_default();
    let expected: &[&str] = &["192.0.2.7", "127.0.0.1"];
    let as_expected = sources.first().is_some_and(|first| first == expected[0])
        && sources.iter().skip(1).all(|one| one == expected[1])
        && sources.len() >= expected.len();
    if as_expected { Ok(String::new()) } else { Err(format!("sourceIPs {sources:?}, not {expected:?}")) }
}

/// Waits for an entry of the audit log.
pub(crate) async fn audit_entry(world: &World, wanted: impl Fn(&Value) -> bool) -> Outcome<Value> {
    until("an entry in the audit log", PATIENCE, async || {
        let log = read(&world.cluster.audit_log())?;
        log.lines()
            .rev()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|entry| wanted(entry))
            .ok_or_else(|| Pending::NotYet("none yet".into()))
    })
    .await
}

/// A header's name and value.
type Pair = (&'static str, &'static str);

type Request<'a> = (Method, &'a str, HeaderMap, Bytes);

/// Asks both sides until they agree; objects may change between two requests, so a difference counts only
/// when it stays.
async fn same(direct: &mut Client, through: &mut Client, request: &Request<'_>) -> Outcome<Answer> {
    let (method, target, headers, body) = request;
    let mut last = String::new();
    for _ in 0..3 {
        let before = direct.send(method.clone(), target, headers, body.clone()).await?;
        let seen = through.send(method.clone(), target, headers, body.clone()).await?;
        match difference(&before, &seen) {
            None => return Ok(seen),
            Some(why) => last = why,
        }
    }
    Err(last)
}

fn difference(direct: &Answer, through: &Answer) -> Option<String> {
    if direct.status != through.status {
        let body: String = String::from_utf8_lossy(&through.body).chars().take(200).collect();
        return Some(format!("{} directly, {} through usher: {body}", direct.status, through.status));
    }
    let (left, right) = (&direct.body, &through.body);
    if left == right {
        return headers_difference(direct, through);
    }
    let at =
        left.iter().zip(right).position(|(one, other)| one != other).unwrap_or(left.len().min(right.len()));
    let around = |body: &Bytes| {
        let part = &body[at.saturating_sub(40).min(body.len())..(at + 80).min(body.len())];
        String::from_utf8_lossy(part).into_owned()
    };
    Some(format!(
        "bodies of {} and {} bytes differ at {at}:\ndirect {}\nusher  {}",
        left.len(),
        right.len(),
        around(left),
        around(right)
    ))
}

fn headers_difference(direct: &Answer, through: &Answer) -> Option<String> {
    let (mut left, mut right) = (comparable(&direct.headers), comparable(&through.headers));
    if !left.iter().any(|(name, _)| name.starts_with(FLOW_CONTROL)) {
        // kube-apiserver answered before its flow control, of which usher's stands in front.
        right.retain(|(name, _)| !name.starts_with(FLOW_CONTROL));
    }
    // Which answers say their length beforehand is up to the HTTP version that they come over.
    let lengths = [&left, &right].map(|side| side.iter().any(|(name, _)| name == "content-length"));
    if lengths[0] != lengths[1] {
        left.retain(|(name, _)| name != "content-length");
        right.retain(|(name, _)| name != "content-length");
    }
    if left != right {
        let only = |one: &[(String, String)], other: &[(String, String)]| {
            one.iter()
                .filter(|pair| !other.contains(pair))
                .map(|(k, v)| format!("{k}: {v}"))
                .collect::<Vec<_>>()
        };
        return Some(format!(
            "headers only directly {:?}, only through usher {:?}",
            only(&left, &right),
            only(&right, &left)
        ));
    }
    None
}

/// Sorted by name; several values of one name keep their order.
fn comparable(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = headers
        .iter()
        .filter(|(name, _)| !OWN_HEADERS.contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    pairs.sort_by(|one, other| one.0.cmp(&other.0));
    pairs
}

fn header_map(headers: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name = HeaderName::try_from(*name).expect("a header's name");
        (name, HeaderValue::try_from(*value).expect("a header's value"))
    };
    headers.iter().map(pair).collect()
}
