use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::json;

use super::*;

fn pair() -> (Line, Line) {
    let (one, other) = UnixStream::pair().unwrap();
    (Line::new(one), Line::new(other))
}

/// A desk that says `here`, in this folder.
fn open(dir: &Path) -> Open {
    let mut desk = Desk::default();
    desk.on("where", |with| Ok(json!({ "here": with })));
    desk.on("never", |_| Err("not today".into()));
    start(Socket::bind(dir).unwrap().unwrap(), desk).unwrap()
}

fn asked(dir: &Path, verb: &str) -> Result<Value, String> {
    ask(&mut connect(dir).unwrap(), verb, json!(7))
}

#[test]
fn what_is_asked_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let open = open(dir.path());
    assert_eq!(asked(dir.path(), "where").unwrap(), json!({ "here": 7 }));
    assert_eq!(asked(dir.path(), "never").unwrap_err(), "not today");
    assert!(asked(dir.path(), "dance").unwrap_err().contains("never, where"));
    open.close();
    assert!(!dir.path().join("control.sock").exists());
    assert!(matches!(connect(dir.path()), Err(Nobody::There(_))));
}

#[test]
fn nonsense_is_refused_and_the_next_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let _open = open(dir.path());
    for nonsense in [&b"\n"[..], b"{}\n", b"\xff\xfe\n", b"{\"verb\":3}\n", &[b'x'; 70_000]] {
        let mut stream = UnixStream::connect(dir.path().join("control.sock")).unwrap();
        stream.write_all(nonsense).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer); // what was not read makes it a reset
        assert!(answer.is_empty() || answer.contains("error"), "{answer}");
    }
    assert!(asked(dir.path(), "where").is_ok());
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("control.sock")).unwrap()); // its file stays
    let first = open(dir.path());
    assert!(Socket::bind(dir.path()).unwrap().is_none(), "somebody answers");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(dir.path().join("control.sock")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let second = Socket::bind_anyway(dir.path()).unwrap();
    first.close();
    assert!(dir.path().join("control.sock").exists(), "it is the second one's by now");
    second.remove();
}

#[test]
fn descriptors_come_with_their_line() {
    let (mut near, mut far) = pair();
    let files: Vec<_> = (0..line::DESCRIPTORS_MAX).map(|_| tempfile::tempfile().unwrap()).collect();
    let lent: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    near.send(&"first", &[]).unwrap();
    near.send(&"second", &lent).unwrap();
    near.send(&"third", &[]).unwrap();
    assert!(near.send(&"fourth", &[lent.as_slice(), &lent[..1]].concat()).is_err(), "one too many");
    drop(near);
    let mut receive = || far.receive(ANSWER_TIMEOUT).unwrap();
    let counts: Vec<usize> = std::iter::from_fn(&mut receive)
        .inspect(|letter| assert!(letter.read::<String>().is_ok()))
        .map(|letter| letter.descriptors.len())
        .take(3)
        .collect();
    assert_eq!(counts[1], line::DESCRIPTORS_MAX);
    assert_eq!(counts[2], 0);
}

#[test]
fn who_is_silent_is_not_waited_for() {
    let (near, mut far) = pair();
    let late = far.receive(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(late, Broken::Late(_)), "{late}");
    drop(near);
    assert!(far.receive(ANSWER_TIMEOUT).unwrap().is_none());
}
