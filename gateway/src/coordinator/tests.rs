//! Fetching from apiservers of the test's own making: each says one thing, then hangs up.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use super::fetch::{Fetcher, Question, Whole};
use super::{Asker, Configuration, Settings, keys, statistics};
use crate::config::objects::Objects;
use crate::crew::Posts;
use crate::identity::{Authenticator, Options};
use crate::ring;
use crate::tls::Presents;
use crate::upstream::Server;
use crate::worker::Command;

/// An apiserver that answers every connection with that text. What it was asked comes through the channel.
fn apiserver(answer: &'static str) -> (Server, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                request.push(byte[0]);
            }
            let _ = sender.send(String::from_utf8_lossy(&request).into_owned());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (server, asked)
}

/// One at whose address nobody listens.
fn nobody() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap()).parse().unwrap()
}

fn ok(body: &str) -> &'static str {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).leak()
}

fn asker(front_proxy: bool) -> Asker {
    let settings = Settings {
        passage: None,
        upstreams: Vec::new(),
        tls: None,
        front_proxy,
        groups: vec!["one".into(), "two".into()],
        keys_for: None,
        issuer_too: false,
        statistics_for: None,
    };
    Asker::new(&settings).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// What comes of a GET of `/x`, at most ten bytes of it.
fn get(servers: Vec<Server>) -> Result<String, String> {
    let question = Question { path: "/x", presents: Presents::Nothing, headers: Vec::new() };
    let mut body = Whole::at_most(10);
    runtime()
        .block_on(Fetcher::new(servers, None, None).get(&question, &mut body))
        .map(|()| String::from_utf8(body.bytes).unwrap())
        .map_err(|error| error.to_string())
}

#[test]
fn a_body_comes_whole_or_the_reason_does() {
    assert_eq!(get(vec![apiserver(ok("ten bytes.")).0]), Ok("ten bytes.".into()));
    for (answer, reason) in [
        (ok("eleven byte"), "longer than 10 bytes"),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "/x: the answer is 403 Forbidden"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "/x: "),
        ("SSH-2.0-x\r\n", "/x: "),
        ("", "/x: "),
    ] {
        let error = get(vec![apiserver(answer).0]).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn another_is_asked_when_one_fails() {
    let (half, _) = apiserver("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    let servers = vec![nobody(), half, apiserver(ok("good")).0, nobody()];
    assert_eq!(get(servers), Ok("good".into()), "and what the second began with is forgotten");
}

#[test]
fn usher_asks_in_its_own_name_if_it_has_a_certificate() {
    let (server, asked) = apiserver(ok("x"));
    for front_proxy in [true, false] {
        let fetcher = Fetcher::new(vec![server.clone()], None, None);
        let question = asker(front_proxy).question("/x");
        runtime().block_on(fetcher.get(&question, &mut Whole::at_most(10))).unwrap();
        let request = asked.recv().unwrap().to_lowercase();
        for header in ["x-remote-user: system:usher\r\n", "x-remote-group: one\r\nx-remote-group: two\r\n"] {
            assert_eq!(request.contains(header), front_proxy, "{request}");
        }
    }
}

#[test]
fn keys_are_taken_over_and_kept() {
    let authenticator = Authenticator::new(&Options::default()).unwrap();
    let fetch = |answer| {
        let fetcher = Fetcher::new(vec![apiserver(answer).0], None, None);
        runtime().block_on(keys::once(&fetcher, &asker(false), &authenticator, false))
    };
    assert_eq!(fetch(ok(include_str!("../identity/testdata/jwks.json"))), Ok(()));
    assert!(fetch(ok("{}")).unwrap_err().contains("JWKS"));
    assert!(fetch(ok("{\"keys\":[]}")).unwrap_err().contains("no RSA or ECDSA key"));
}

#[test]
fn the_issuer_is_fetched_where_no_flag_names_it() {
    let authenticator = Authenticator::new(&Options::default()).unwrap();
    let fetch = |answer: &str| {
        let (server, asked) = apiserver(ok(answer));
        let fetcher = Fetcher::new(vec![server], None, None);
        let outcome = runtime().block_on(keys::once(&fetcher, &asker(false), &authenticator, true));
        (outcome, asked.try_iter().collect::<String>())
    };
    let keys = include_str!("../identity/testdata/jwks.json").trim_start();
    let both = keys.replacen('{', "{\"issuer\": \"https://a\",", 1);
    let (outcome, asked) = fetch(&both);
    assert_eq!(outcome, Ok(()));
    assert!(asked.contains("GET /.well-known/openid-configuration") && asked.contains("GET /openid/v1/jwks"));
    assert!(!authenticator.set_fetched_issuer("https://a".into()), "known by now");
    let (outcome, asked) = fetch("{}");
    assert!(outcome.unwrap_err().contains("names no issuer") && !asked.contains("jwks"));
}

#[test]
fn object_counts_reach_the_worker() {
    let text = "apiserver_resource_objects{group=\"apps\",resource=\"deployments\"} 7\n";
    let fetcher = Fetcher::new(vec![apiserver(ok(text)).0], None, None);
    let (post, mut mailbox) = ring::mailbox();
    runtime().block_on(async {
        statistics::once(&fetcher, &asker(false), &Posts::one(post)).await.unwrap();
        let Some(Command::Statistics(counts)) = mailbox.next().await else { panic!("another command") };
        assert_eq!((&*counts[0].key, counts[0].count), ("deployments.apps", 7));
    });
}

#[test]
fn objects_reach_the_worker_once_there_is_one() {
    let configuration = Configuration::default();
    configuration.put_in_force(&Objects::default()); // nobody yet: the first set is sent when there is somebody
    let (post, mut mailbox) = ring::mailbox();
    configuration.connect(Posts::one(post), None);
    configuration.put_in_force(&Objects::default());
    let command = runtime().block_on(mailbox.next());
    assert!(matches!(command, Some(Command::Configure(_))), "{command:?}");
}

#[test]
fn a_group_that_is_no_header_value_is_refused() {
    let settings = Settings {
        passage: None,
        upstreams: Vec::new(),
        tls: None,
        front_proxy: true,
        groups: vec!["a\nb".into()],
        keys_for: Some(Arc::new(Authenticator::new(&Options::default()).unwrap())),
        issuer_too: false,
        statistics_for: None,
    };
    assert!(Asker::new(&settings).unwrap_err().to_string().contains("--upstream-groups"));
}
