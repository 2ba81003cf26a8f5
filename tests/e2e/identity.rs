//! The apiserver sees the same user through usher as without it, whatever the user proves itself with; wrong
//! proofs get the same answer.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use usher_tests::client::{Answer, Client, Credential, Protocol};
use usher_tests::cluster::{ISSUER, pki, read};
use usher_tests::runner::Verdict;
use usher_tests::{Outcome, clock};

use crate::world::{NAMESPACE, POD, World};

/// What to prove oneself with, and a name for reports.
type Case = (String, Credential);

pub(crate) async fn every_identity_is_the_same(world: &World) -> Verdict {
    let mut cases = certificates(world, &["admin", "alice", "bob", "node-0", "kwok", "unicode", "nameless"])?;
    cases.extend(certificates(world, &["kube-controller-manager", "kube-scheduler"])?);
    for (token, user, _, _) in pki::TOKENS {
        cases.push((format!("static token of {user}"), Credential::token(token)));
    }
    cases.push(("anonymous".into(), Credential::default()));
    cases.extend(service_accounts(world).await?);
    cases.extend(front_proxy(world)?);
    cases.extend(impersonation(world)?);
    cases.extend(several_at_once(world)?);
    let seen = compare_all(world, &cases, "/apis/authentication.k8s.io/v1/selfsubjectreviews").await?;
    // The comparison is worth something only if users were seen at all.
    let users = seen.values().filter(|answer| answer.status == 201).count();
    let alice = &seen["certificate alice"].json()["status"]["userInfo"];
    let credential_id = &alice["extra"]["authentication.kubernetes.io/credential-id"][0];
    if alice["username"] != "alice" || !credential_id.as_str().is_some_and(|id| id.starts_with("X509SHA256="))
    {
        return Err(format!("alice is seen as {alice}"));
    }
    if users * 3 < cases.len() * 2 {
        return Err(format!("only {users} of {} identities were accepted", cases.len()));
    }
    Ok(format!("{} identities, {users} of them accepted, over both protocols", cases.len()))
}

pub(crate) async fn wrong_credentials_are_refused_alike(world: &World) -> Verdict {
    let mut cases = certificates(world, &["expired", "not-yet-valid", "unknown", "server-only"])?;
    cases.extend(certificates(world, &[pki::FRONT_PROXY, "front-proxy-stranger"])?);
    cases.extend(wrong_tokens(world)?);
    let stranger = Credential::certificate(&world.cluster.certificates(), "front-proxy-stranger")?;
    cases.push((
        "X-Remote-User of a front proxy that is not allowed".into(),
        stranger.with("x-remote-user", "root"),
    ));
    let mut count = 0;
    for target in
        ["/apis/authentication.k8s.io/v1/selfsubjectreviews", "/version", "/api/v1/nodes", "/healthz"]
    {
        let seen = compare_all(world, &cases, target).await?;
        count += seen.len();
        if target.contains("selfsubjectreviews")
            && let Some((name, answer)) = seen.iter().find(|(_, answer)| answer.status == 201)
        {
            return Err(format!("{name} was accepted: {}", answer.json()["status"]["userInfo"]));
        }
    }
    Ok(format!("{} credentials, {count} answers over both protocols", cases.len()))
}

fn certificates(world: &World, names: &[&str]) -> Outcome<Vec<Case>> {
    let folder = world.cluster.certificates();
    names
        .iter()
        .map(|name| Ok((format!("certificate {name}"), Credential::certificate(&folder, name)?)))
        .collect()
}

async fn service_accounts(world: &World) -> Outcome<Vec<Case>> {
    let mut cases = Vec::new();
    for (namespace, name) in [(NAMESPACE, "robot"), ("kube-system", "kube-scheduler")] {
        let token = world.cluster.service_account_token(namespace, name).await?;
        cases.push((format!("service account {namespace}/{name}"), Credential::token(&token)));
    }
    // Bound to a pod, a token also tells the pod and its node.
    let mut client = world.cluster.administrator_direct()?;
    let pod = client.get(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}")).await?.success()?.json();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": POD, "uid": pod["metadata"]["uid"]}},
    });
    let target = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/robot/token");
    let answer = client.json(Method::POST, &target, &request).await?.success()?.json();
    let token = answer["status"]["token"].as_str().unwrap_or_default();
    cases.push(("service account's token bound to a pod".into(), Credential::token(token)));
    Ok(cases)
}

fn front_proxy(world: &World) -> Outcome<Vec<Case>> {
    let proxy = || Credential::certificate(&world.cluster.certificates(), pki::FRONT_PROXY);
    let alice = || Credential::certificate(&world.cluster.certificates(), "alice");
    let extra = "x-remote-extra-example.org%2fscopes";
    let cases = [
        ("a user", proxy()?.with("x-remote-user", "jane")),
        (
            "a user in groups",
            proxy()?.with("x-remote-user", "jane").with("x-remote-group", "a").with("x-remote-group", "b"),
        ),
        ("a user with a uid", proxy()?.with("x-remote-user", "jane").with("x-remote-uid", "uid-17")),
        ("a user with extras", proxy()?.with("x-remote-user", "jane").with(extra, "one").with(extra, "two")),
        (
            "a service account",
            proxy()?
                .with("x-remote-user", "system:serviceaccount:e2e:robot")
                .with("x-remote-group", "system:serviceaccounts"),
        ),
        (
            "a node",
            proxy()?.with("x-remote-user", "system:node:node-1").with("x-remote-group", "system:nodes"),
        ),
        ("a master", proxy()?.with("x-remote-user", "jane").with("x-remote-group", "system:masters")),
        (
            "a member of system:authenticated",
            proxy()?.with("x-remote-user", "jane").with("x-remote-group", "system:authenticated"),
        ),
        (
            "anonymous by name",
            proxy()?
                .with("x-remote-user", "system:anonymous")
                .with("x-remote-group", "system:unauthenticated"),
        ),
        ("two users", proxy()?.with("x-remote-user", "jane").with("x-remote-user", "joe")),
        ("an empty user", proxy()?.with("x-remote-user", "")),
        ("nobody", proxy()?),
        ("groups without a user", proxy()?.with("x-remote-group", "system:masters")),
        (
            "a user, and a token",
            proxy()?.with("x-remote-user", "jane").with("authorization", "Bearer token-of-carol"),
        ),
        ("nobody, and a token", proxy()?.with("authorization", "Bearer token-of-carol")),
        ("a user who impersonates", proxy()?.with("x-remote-user", "jane").with("impersonate-user", "joe")),
        (
            "a master who impersonates",
            proxy()?
                .with("x-remote-user", "jane")
                .with("x-remote-group", "system:masters")
                .with("impersonate-user", "joe"),
        ),
        ("forged by a user", alice()?.with("x-remote-user", "root").with("x-remote-group", "system:masters")),
        ("forged extras by a user", alice()?.with("x-remote-extra-scopes", "all").with("x-remote-uid", "0")),
        (
            "forged by a token",
            Credential::token("token-of-dave")
                .with("x-remote-user", "root")
                .with("x-remote-group", "system:masters"),
        ),
        (
            "forged by nobody",
            Credential::default().with("x-remote-user", "root").with("x-remote-group", "system:masters"),
        ),
    ];
    Ok(cases.into_iter().map(|(name, credential)| (format!("front proxy: {name}"), credential)).collect())
}

fn impersonation(world: &World) -> Outcome<Vec<Case>> {
    let admin = || Credential::certificate(&world.cluster.certificates(), "admin");
    let alice = Credential::certificate(&world.cluster.certificates(), "alice")?;
    let cases = [
        ("a user", admin()?.with("impersonate-user", "jane")),
        (
            "a user in groups",
            admin()?
                .with("impersonate-user", "jane")
                .with("impersonate-group", "a")
                .with("impersonate-group", "b"),
        ),
        (
            "everything",
            admin()?
                .with("impersonate-user", "jane")
                .with("impersonate-uid", "17")
                .with("impersonate-group", "a")
                .with("impersonate-extra-scopes", "one"),
        ),
        ("a service account", admin()?.with("impersonate-user", "system:serviceaccount:e2e:robot")),
        ("anonymous", admin()?.with("impersonate-user", "system:anonymous")),
        ("groups without a user", admin()?.with("impersonate-group", "a")),
        ("by a token of a master", Credential::token("token-of-root").with("impersonate-user", "jane")),
        ("not allowed", alice.with("impersonate-user", "jane")),
        ("by nobody", Credential::default().with("impersonate-user", "jane")),
    ];
    Ok(cases.into_iter().map(|(name, credential)| (format!("impersonation: {name}"), credential)).collect())
}

fn several_at_once(world: &World) -> Outcome<Vec<Case>> {
    let folder = world.cluster.certificates();
    let certificate = |name: &str| Credential::certificate(&folder, name);
    let (carol, wrong) = ("Bearer token-of-carol", "Bearer wrong");
    let cases = [
        ("certificate and token", certificate("alice")?.with("authorization", carol)),
        ("certificate and wrong token", certificate("alice")?.with("authorization", wrong)),
        ("expired certificate and token", certificate("expired")?.with("authorization", carol)),
        ("unknown certificate and token", certificate("unknown")?.with("authorization", carol)),
        ("nameless certificate and token", certificate("nameless")?.with("authorization", carol)),
        ("two tokens", Credential::token("token-of-carol").with("authorization", "Bearer token-of-dave")),
        ("lower-case bearer", Credential::default().with("authorization", "bearer token-of-carol")),
        ("bearer with spaces", Credential::default().with("authorization", " Bearer  token-of-carol")),
        ("basic authentication", Credential::default().with("authorization", "Basic Y2Fyb2w6c2VjcmV0")),
    ];
    Ok(cases.into_iter().map(|(name, credential)| (name.to_owned(), credential)).collect())
}

fn wrong_tokens(world: &World) -> Outcome<Vec<Case>> {
    let folder = world.cluster.certificates();
    let key = EncodingKey::from_rsa_pem(read(&folder.join("sa.key"))?.as_bytes())
        .map_err(|error| format!("sa.key: {error}"))?;
    let other = EncodingKey::from_ec_pem(read(&folder.join("admin.key"))?.as_bytes())
        .map_err(|error| format!("admin.key: {error}"))?;
    let shared = EncodingKey::from_secret(read(&folder.join("sa.pub"))?.as_bytes());
    let now = clock::unix();
    let robot = |change: &dyn Fn(&mut Value)| {
        let mut claims = json!({
            "iss": ISSUER, "aud": [ISSUER], "exp": now + 3600, "iat": now, "nbf": now, "jti": "e2e",
            "sub": "system:serviceaccount:e2e:robot",
            "kubernetes.io": {"namespace": NAMESPACE, "serviceaccount": {"name": "robot", "uid": "no-such-uid"}},
        });
        change(&mut claims);
        claims
    };
    let sign = |algorithm: Algorithm, claims: &Value, key: &EncodingKey| {
        jsonwebtoken::encode(&Header::new(algorithm), claims, key)
            .map_err(|error| format!("a token: {error}"))
    };
    let rs256 = |claims: &Value| sign(Algorithm::RS256, claims, &key);
    let good = rs256(&robot(&|_| {}))?;
    let unsigned = {
        use base64::Engine;
        let encode = |text: String| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
        format!(
            "{}.{}.",
            encode(json!({"alg": "none", "typ": "JWT"}).to_string()),
            encode(robot(&|_| {}).to_string())
        )
    };
    let cases = [
        ("of nobody", "no-such-token".into()),
        ("of a service account with another uid", good.clone()),
        ("expired", rs256(&robot(&|claims| claims["exp"] = json!(now - 60)))?),
        ("not yet valid", rs256(&robot(&|claims| claims["nbf"] = json!(now + 3600)))?),
        ("of another issuer", rs256(&robot(&|claims| claims["iss"] = json!("https://elsewhere.example")))?),
        ("for another audience", rs256(&robot(&|claims| claims["aud"] = json!(["elsewhere"])))?),
        ("without claims of Kubernetes", rs256(&robot(&|claims| claims["kubernetes.io"] = json!({})))?),
        ("of a user instead of a service account", rs256(&robot(&|claims| claims["sub"] = json!("root")))?),
        ("with algorithm none", unsigned),
        ("signed by another key", sign(Algorithm::ES256, &robot(&|_| {}), &other)?),
        ("signed with the public key as a secret", sign(Algorithm::HS256, &robot(&|_| {}), &shared)?),
        ("with a changed signature", format!("{}AAAA", &good[..good.len() - 4])),
        ("with half a signature", good[..good.len() - 40].to_owned()),
        ("of three dots", "...".into()),
        ("that is long", "x".repeat(20_000)),
    ];
    Ok(cases.into_iter().map(|(name, token)| (format!("token {name}"), Credential::token(&token))).collect())
}

/// Sends every case's review directly and through usher over both protocols; the answers through usher.
async fn compare_all(world: &World, cases: &[Case], target: &str) -> Outcome<BTreeMap<String, Answer>> {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    for (name, credential) in cases {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let (mut direct, mut through) = world.clients(credential, protocol)?;
            let left = ask_again(&mut direct, target).await?;
            match ask(&mut through, target).await {
                Err(why) => problems.push(format!("{name}, {protocol:?}: {}; {why}", left.status)),
                Ok(right) => {
                    let (expected, mut got) = (essence(&left), essence(&right));
                    if expected["flow schema"] == "" {
                        // kube-apiserver refused it before its flow control, of which usher's stands in front.
                        got["flow schema"] = expected["flow schema"].clone();
                    }
                    if expected != got {
                        problems.push(format!(
                            "{name}, {protocol:?}, {target}:\ndirect {expected}\nusher  {got}"
                        ));
                    }
                    seen.insert(name.clone(), right);
                }
            }
        }
    }
    if problems.is_empty() { Ok(seen) } else { Err(problems.join("\n")) }
}

/// kube-apiserver ends the HTTP/2 connection of a stranger with the answer; the end may come first.
async fn ask_again(client: &mut Client, target: &str) -> Outcome<Answer> {
    for _ in 0..3 {
        if let Ok(answer) = ask(client, target).await {
            return Ok(answer);
        }
    }
    ask(client, target).await
}

async fn ask(client: &mut Client, target: &str) -> Outcome<Answer> {
    if !target.ends_with("selfsubjectreviews") {
        return client.send(Method::GET, target, &HeaderMap::new(), Bytes::new()).await;
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    client.json(Method::POST, target, &review).await
}

/// Status, and user or refusal.
fn essence(answer: &Answer) -> Value {
    let document = answer.json();
    json!({
        "status": answer.status.as_u16(),
        "user": document["status"]["userInfo"],
        "message": document["message"],
        "reason": document["reason"],
        "flow schema": answer.header("x-kubernetes-pf-flowschema-uid"),
    })
}
