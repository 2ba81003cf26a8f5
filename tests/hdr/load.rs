//! An usher under load, killed in the middle of it: what is left are its logs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use usher_tests::clock;

/// How long the load lasts: some ten intervals of the log.
const LOAD: Duration = Duration::from_secs(3);
/// Clients at once: more than there are seats for.
const CLIENTS: usize = 12;
/// How long usher may take to say where it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program beside this test's own.
pub(crate) fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.parent().and_then(Path::parent).ok_or("no folder above our own")?.join("usher");
    if program.exists() {
        Ok(program)
    } else {
        Err(format!("{} is not built: cargo build -p usher", program.display()))
    }
}

/// Runs it; the folder of its logs.
pub(crate) fn run(program: &Path, folder: &Path) -> Result<PathBuf, String> {
    let objects = folder.join("objects");
    fs::create_dir_all(&objects).map_err(|error| error.to_string())?;
    for (path, text) in [(objects.join("narrow.yaml"), NARROW), (folder.join("tokens.csv"), TOKENS)] {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let logs = folder.join("logs");
    let mut usher = Killed(
        Command::new(program)
            .args(["serve", "--insecure-port=0", "--admin-bind-address=127.0.0.1:0"])
            .args(["--max-requests-inflight=15", "--max-mutating-requests-inflight=5"])
            .arg(format!("--upstream=http://{}", apiserver()?))
            .arg(format!("--token-auth-file={}", folder.join("tokens.csv").display()))
            .arg(format!("--flow-control-dir={}", objects.display()))
            .arg(format!("--hdr-log-dir={}", logs.display()))
            .args(["--hdr-log-interval=250ms", "--hdr-log-max-size=20000", "--hdr-log-max-files=1000"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?,
    );
    let address = listening(&mut usher.0)?;
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let (address, over) = (address.clone(), Arc::clone(&over));
            std::thread::spawn(move || client(&address, index, &over))
        })
        .collect();
    std::thread::sleep(LOAD);
    drop(usher); // under load: nothing is finished, nothing is flushed
    over.store(true, Ordering::Relaxed);
    let answered: usize = clients.into_iter().map(|client| client.join().unwrap_or(0)).sum();
    println!("{answered} requests were answered before usher was killed");
    if answered < 200 { Err("too few requests to tell percentiles of".into()) } else { Ok(logs) }
}

/// Killed when dropped, by SIGKILL.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where it listens: its log says so. What it logs after that is read and thrown away.
fn listening(usher: &mut Child) -> Result<String, String> {
    let log = usher.stderr.take().ok_or("no log")?;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            // The first one is waited for.
            let address = line.split_once("insecure=\"").and_then(|(_, rest)| rest.split('"').next());
            let _ = address.map(|address| sender.send(address.to_owned()));
        }
    });
    receiver.recv_timeout(PATIENCE).map_err(|_| "usher does not say where it listens".into())
}

/// Requests on connections that are kept, until they break; how many were answered.
fn client(address: &str, index: usize, over: &AtomicBool) -> usize {
    let token = ["", "Authorization: Bearer alice\r\n"][index % 2];
    let mut answered = 0;
    while !over.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(address) else { return answered };
        for number in 0.. {
            // Some clients leave while they wait.
            let leaves = index == 1 && number % 5 == 4;
            let request =
                format!("GET /api/v1/namespaces/n{number}/pods/p HTTP/1.1\r\nHost: usher\r\n{token}\r\n");
            if stream.write_all(request.as_bytes()).is_err() || leaves || !read_answer(&mut stream) {
                break;
            }
            answered += 1;
        }
    }
    answered
}

/// Reads a head and the body that it announces.
fn read_answer(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return false;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    length.is_some_and(|length: usize| stream.read_exact(&mut vec![0; length]).is_ok())
}

/// An apiserver that takes its time, longer for some than for others; its address.
fn apiserver() -> Result<String, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    Ok(address.to_string())
}

fn answer(stream: TcpStream) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut seed = u64::from(stream.peer_addr().map_or(1, |peer| peer.port()));
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if !line.is_empty() {
            continue;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let busy = clock::now() + Duration::from_micros(200 + (seed >> 33) % 6_000);
        std::thread::sleep(busy.saturating_duration_since(clock::now()));
        if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

const TOKENS: &str = "alice,alice,1,\"people\"\n";

/// alice has one seat and a queue of two; the others have the suggested objects.
const NARROW: &str = "apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: narrow, uid: 11111111-1111-1111-1111-111111111111}
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 1
    lendablePercent: 0
    borrowingLimitPercent: 0
    limitResponse: {type: Queue, queuing: {queues: 1, handSize: 1, queueLengthLimit: 2}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: narrow, uid: 22222222-2222-2222-2222-222222222222}
spec:
  matchingPrecedence: 3
  priorityLevelConfiguration: {name: narrow}
  rules:
  - subjects:
    - {kind: User, user: {name: alice}}
    resourceRules:
    - {verbs: ['*'], apiGroups: ['*'], resources: ['*'], clusterScope: true, namespaces: ['*']}
";
