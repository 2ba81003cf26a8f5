//! The program itself: started, asked, ended. What it says on the way and how it ends is what operators and their
//! tools rely on.

#![expect(clippy::disallowed_methods, reason = "patience is measured by the test's own clock")]

#[path = "../../gateway-ebpf/tests/privileges/not_tried.rs"]
mod not_tried;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An apiserver that says `ok` to everything but `/never`, from threads of its own. Returns its URL.
fn apiserver() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    url
}

fn answer(stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    let mut never = false;
    while let Some(Ok(line)) = lines.next() {
        never |= line.contains("/never");
        if line.is_empty()
            && !never
            && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err()
        {
            return;
        }
    }
}

fn usher(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code and stderr of a run that ends by itself.
fn ends(arguments: &[&str]) -> (i32, String) {
    let output = usher(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// An usher that serves.
struct Serving {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    /// The line that tells the way of I/O.
    chosen: Option<serde_json::Value>,
    /// The line that tells who brings connections to workers.
    steering: Option<serde_json::Value>,
    insecure: String,
    admin: String,
}

impl Serving {
    fn start(more: &[&str]) -> Self {
        let upstream = format!("--upstream={}", apiserver());
        let mut arguments = vec![
            "serve",
            &*upstream,
            "--insecure-port=0",
            "--admin-bind-address=127.0.0.1:0",
            "--log-format=json",
        ];
        arguments.extend(more);
        Self::run(&mut usher(&arguments))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (insecure, admin) = (String::new(), String::new());
        let mut serving = Self { child, log, chosen: None, steering: None, insecure, admin };
        serving.chosen = Some(serving.line("way of I/O"));
        serving.steering = Some(serving.line("steering"));
        let line = serving.line("listening");
        serving.insecure = line["insecure"].as_str().unwrap().to_owned();
        serving.admin = line["admin"].as_str().unwrap().to_owned();
        serving
    }

    /// The next log line with that message.
    fn line(&mut self, message: &str) -> serde_json::Value {
        let mut text = String::new();
        loop {
            text.clear();
            assert_ne!(self.log.read_line(&mut text).unwrap(), 0, "the log ended without {message:?}");
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            if line["message"] == message {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    fn end(mut self) -> i32 {
        self.signal("TERM");
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole answer.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: usher\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_serves_and_says_where_and_ends_when_asked() {
    let serving = Serving::start(&[]);
    let answer = get(&serving.insecure, "/api/v1/pods");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    assert!(answer.contains("X-Kubernetes-Pf-Prioritylevel-Uid"), "{answer}");
    assert!(awaited(|| get(&serving.admin, "/readyz").ends_with("ok")));
    let metrics = get(&serving.admin, "/metrics");
    let series = "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"catch-all\",priority_level=\"catch-all\"}";
    let global = series.replace("catch-all", "global-default");
    assert!(
        metrics.contains(&format!("{global} 1")) || metrics.contains(&format!("{series} 1")),
        "{metrics}"
    );
    assert_eq!(serving.end(), 0);
}

#[test]
fn a_new_configuration_is_taken_and_a_bad_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let argument = format!("--flow-control-dir={}", folder.path().display());
    let mut serving = Serving::start(&[&argument]);
    let level = "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\n\
                 metadata: {name: box-office}\n\
                 spec: {type: Limited, limited: {nominalConcurrencyShares: 10, limitResponse: {type: Reject}}}\n";
    put(folder.path(), level);
    serving.signal("HUP");
    serving.line("reloaded");
    assert!(awaited(|| get(&serving.admin, "/metrics").contains("priority_level=\"box-office\"")));
    put(folder.path(), &level.replace("10", "-10"));
    serving.signal("HUP");
    let refused = serving.line("refused");
    assert!(refused["finding"].as_str().unwrap().contains("nominalConcurrencyShares"), "{refused}");
    let metrics = get(&serving.admin, "/metrics");
    assert!(metrics.contains("priority_level=\"box-office\""), "the last good one is gone");
    assert!(
        metrics.contains("usher_config_reloads_total{result=\"refused\",what=\"flow-control objects\"} 1")
    );
    assert_eq!(serving.end(), 0);
}

/// Forbids `io_uring_setup` to a program and its threads, as seccomp profiles of container runtimes do.
fn forbid_io_uring(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt as _;
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let (load, equal, answer) = (0x20, 0x15, 0x06); // BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    let number = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let refusal = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let filter = [
        step(load, 0), // the number of the call
        libc::sock_filter { jf: 1, ..step(equal, number) },
        step(answer, refusal),
        step(answer, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
        // SAFETY: two system calls that read `program` and what it points to, which live until they are back; they
        // allocate nothing and take no lock, as is asked between fork and exec.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: `install` does nothing that is not allowed between fork and exec: see there.
    unsafe { command.pre_exec(install) }
}

#[test]
fn where_io_uring_is_forbidden_epoll_serves_and_says_why() {
    let upstream = format!("--upstream={}", apiserver());
    let serve = ["serve", &*upstream, "--insecure-port=0", "--admin-bind-address=127.0.0.1:0"];
    let mut insisting = usher(&serve);
    let output = forbid_io_uring(insisting.arg("--io=uring")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("seccomp") && said.contains("--io=auto"), "{said}");

    let mut serving = Serving::run(forbid_io_uring(usher(&serve).arg("--log-format=json")));
    let answer = get(&serving.insecure, "/api/v1/pods");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    let chosen = serving.chosen.take().unwrap();
    assert_eq!(chosen["io"], "epoll");
    assert!(chosen["reason"].as_str().unwrap().contains("seccomp"), "{chosen}");
    assert!(
        awaited(|| get(&serving.admin, "/readyz?verbose").contains("[i]io epoll: io_uring is forbidden"))
    );
    assert!(
        get(&serving.admin, "/metrics")
            .contains("usher_ring_info{io=\"epoll\",reason=\"io_uring is forbidden")
    );
    assert_eq!(serving.end(), 0);
}

#[test]
fn the_way_of_io_is_chosen_and_told() {
    for io in ["auto", "uring", "epoll"] {
        let mut serving = Serving::start(&[&format!("--io={io}")]);
        let chosen = serving.chosen.take().unwrap();
        let (name, reason) = (chosen["io"].as_str().unwrap(), chosen["reason"].as_str().unwrap());
        assert!(io == "auto" || name == io, "{chosen}");
        assert!(get(&serving.insecure, "/").ends_with("ok"));
        let line = format!("[i]io {name}: {reason}");
        assert!(awaited(|| get(&serving.admin, "/readyz?verbose").contains(&line)), "{line}");
        let enters = get(&serving.admin, "/metrics");
        assert_eq!(enters.contains("\nusher_ring_enters_total 0\n"), name == "epoll", "{enters}");
        assert_eq!(serving.end(), 0);
    }
}

/// Without capabilities, whoever runs this.
fn powerless(arguments: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/setpriv");
    // Who is not root has none to lose, and may not lose them.
    let is_root = std::fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t");
    command.args(if is_root { &["--bounding-set=-all", "--inh-caps=-all"][..] } else { &["--no-new-privs"] });
    command.arg(env!("CARGO_BIN_EXE_usher")).args(arguments);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn who_may_not_steer_connections_serves_without_and_says_so() {
    let upstream = format!("--upstream={}", apiserver());
    let serve = ["serve", &*upstream, "--insecure-port=0", "--admin-bind-address=127.0.0.1:0", "--workers=2"];
    let output = powerless(&serve).arg("--steering=on").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("--steering=on: "), "{said}");
    assert!(
        said.contains("it lacks CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON; give it")
            && said.contains("--steering=off"),
        "{said}"
    );

    let mut serving = Serving::run(powerless(&serve).arg("--log-format=json"));
    assert!(get(&serving.insecure, "/api/v1/pods").ends_with("ok"));
    let chosen = serving.steering.take().unwrap();
    let (mode, reason) = (chosen["steering"].as_str().unwrap(), chosen["reason"].as_str().unwrap());
    assert_eq!((mode, reason), ("off", "no CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON"));
    let line = format!("[i]steering off: {reason}\n");
    assert!(awaited(|| get(&serving.admin, "/readyz?verbose").contains(&line)));
    let info = format!("usher_steering_info{{mode=\"off\",reason=\"{reason}\"}} 1\n");
    assert!(get(&serving.admin, "/metrics").contains(&info));
    assert_eq!(serving.end(), 0);
}

/// CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or CAP_SYS_ADMIN.
fn may_steer() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    let capabilities = u64::from_str_radix(line, 16).unwrap();
    let has = |number: u32| capabilities >> number & 1 == 1;
    has(21) || has(39) && has(38) && has(12)
}

#[test]
fn who_may_steers_connections_and_counts_them() {
    let upstream = format!("--upstream={}", apiserver());
    let serve = ["serve", &*upstream, "--insecure-port=0", "--admin-bind-address=127.0.0.1:0"];
    let more = ["--workers=2", "--steering=on", "--log-format=json", "--connection-budget-per-source=1000"];
    if !may_steer() {
        return not_tried::not_tried("not all of CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON");
    }
    let serving = Serving::run(&mut usher(&[&serve[..], &more[..]].concat()));
    let ready = || get(&serving.admin, "/readyz?verbose");
    assert!(awaited(|| ready().matches("steering sees it serving with ").count() == 2), "{}", ready());
    for _ in 0..10 {
        assert!(get(&serving.insecure, "/api/v1/pods").ends_with("ok"));
    }
    let text = get(&serving.admin, "/metrics");
    let counts = text.lines().filter(|line| line.starts_with("usher_steering_connections_total{"));
    let chosen: u64 = counts
        .filter(|line| {
            ["affinity", "load", "spread"].iter().any(|path| line.contains(&format!("path=\"{path}\"")))
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(chosen, 10, "{text}");
    assert!(text.contains("usher_steering_info{mode=\"on\""), "{text}");
    assert_eq!(serving.end(), 0);
}

fn put(folder: &Path, text: &str) {
    let hidden = folder.join(".flow.yaml");
    std::fs::write(&hidden, text).unwrap();
    std::fs::rename(hidden, folder.join("flow.yaml")).unwrap();
}

fn awaited(mut what: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn without_flow_control_the_admin_port_says_so() {
    let serving = Serving::start(&["--enable-priority-and-fairness=false"]);
    let answer = get(&serving.insecure, "/api/v1/pods");
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("X-Kubernetes-Pf"), "{answer}");
    assert!(awaited(|| get(&serving.admin, "/readyz").ends_with("ok")));
    let dump = get(&serving.admin, "/debug/api_priority_and_fairness/dump_queues");
    assert!(dump.contains("flow control is off"), "{dump}");
    assert_eq!(serving.end(), 0);
}

#[test]
fn a_second_signal_does_not_wait() {
    let serving = Serving::start(&["--shutdown-grace-period=1h"]);
    // A request that gets no answer keeps it from draining.
    let mut slow = TcpStream::connect(&serving.insecure).unwrap();
    write!(slow, "GET /never HTTP/1.1\r\nHost: usher\r\n\r\n").unwrap();
    assert!(awaited(|| get(&serving.admin, "/metrics").contains("usher_requests_total 1")));
    serving.signal("TERM");
    assert!(awaited(|| get(&serving.admin, "/readyz").contains("draining")));
    assert_eq!(serving.end(), 1);
}

#[test]
fn what_cannot_be_used_is_named_with_its_remedy() {
    let upstream = "--upstream=https://127.0.0.1:1";
    for (arguments, code, complaint) in [
        (&["serve"][..], 2, "--upstream is missing"),
        (&["serve", "--uptream=https://a:1"], 2, "'--upstream'"),
        (&["serve", upstream, "--upstream-ca-file=/no/ca.crt", "--insecure-port=0"], 1, "/no/ca.crt"),
        (&["serve", "--upstream=http://a:1", "--insecure-port=0", "--token-auth-file=/no/t"], 1, "/no/t"),
        (&["serve", "--upstream=http://a:1", "--insecure-port=0", "--flow-control-dir=/no/d"], 1, "/no/d"),
        (
            &["serve", "--upstream=http://a:1", "--tls-cert-file=/no/c", "--tls-private-key-file=/no/k"],
            1,
            "/no/c",
        ),
        (&["explain", "GET", "pods"], 2, "is no URL"),
        (&["check", "/no/d"], 2, ""),
        (&["dance"], 2, "dance"),
    ] {
        let (ended, text) = ends(arguments);
        assert_eq!(ended, code, "{arguments:?}: {text}");
        assert!(text.contains(complaint), "{arguments:?}: {text}");
    }
}

#[test]
fn an_address_in_use_is_named_with_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--insecure-port={}", taken.local_addr().unwrap().port());
    let (code, text) = ends(&["serve", "--upstream=http://a:1", &port, "--admin-bind-address=127.0.0.1:0"]);
    assert!(code == 1 && text.contains(&port) && text.contains("give another"), "{text}");
}

#[test]
fn help_and_version_are_no_failures() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["explain", "-h"], &["--version"]] {
        assert_eq!(ends(arguments).0, 0, "{arguments:?}");
    }
}

/// All lines of the logs in a folder, by tag: how many requests.
fn logged(folder: &Path) -> std::collections::BTreeMap<String, u64> {
    let mut counts = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let log = usher::observe::hdr::hlog::read(&std::fs::read(entry.unwrap().path()).unwrap()).unwrap();
        for line in log.lines {
            *counts.entry(line.tag).or_default() += line.histogram.len();
        }
    }
    counts
}

#[test]
fn histograms_are_logged_up_to_the_end_and_told_before() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let usher = Serving::start(&[&format!("--hdr-log-dir={}", logs.display()), "--hdr-log-interval=100ms"]);
    for _ in 0..10 {
        assert!(get(&usher.insecure, "/api/v1/pods").starts_with("HTTP/1.1 200"));
    }
    let told = || {
        let answer = get(&usher.admin, "/debug/hdr?metric=seats");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<serde_json::Value>(body).unwrap()["histograms"][0]["count"] == 10
    };
    assert!(awaited(told), "{}", get(&usher.admin, "/debug/hdr"));
    assert!(get(&usher.admin, "/debug/hdr?metric=lag").starts_with("HTTP/1.1 400"));
    assert!(get(&usher.admin, "/metrics").contains("\nusher_hdr_log_errors_total 0\n"));
    assert_eq!(usher.end(), 0);
    let logged = logged(&logs);
    assert_eq!(
        logged.values().filter(|count| **count == 10).count(),
        3,
        "wait, execution, seats: {logged:?}"
    );
}

#[test]
fn a_kill_loses_the_last_interval_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let mut usher =
        Serving::start(&[&format!("--hdr-log-dir={}", folder.path().display()), "--hdr-log-interval=100ms"]);
    for _ in 0..10 {
        get(&usher.insecure, "/api/v1/pods");
    }
    let told = || get(&usher.admin, "/debug/hdr?intervals=360&format=hlog").contains("Tag=seats/");
    assert!(awaited(told));
    usher.child.kill().unwrap();
    usher.child.wait().unwrap();
    let seats: u64 = logged(folder.path())
        .iter()
        .filter(|(tag, _)| tag.starts_with("seats/"))
        .map(|(_, count)| count)
        .sum();
    assert!(seats > 0, "what was told was logged before");
}

#[test]
fn a_folder_of_histograms_that_cannot_be_had_is_named() {
    let (code, said) =
        ends(&["serve", "--insecure-port=0", "--upstream=http://127.0.0.1:1", "--hdr-log-dir=/proc/no"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("--hdr-log-dir=/proc/no"), "{said}");
}

/// `--runtime-dir=` a folder of its own.
fn runtime_dir() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let argument = format!("--runtime-dir={}", folder.path().display());
    (folder, argument)
}

#[test]
fn status_tells_how_it_stands_and_its_exit_code_whether_anybody_is_there() {
    let (folder, dir) = runtime_dir();
    let (code, said) = ends(&["status", &dir]);
    assert!(code == 3 && said.contains("no usher runs with --runtime-dir="), "{code}: {said}");

    let serving = Serving::start(&[&dir, "--workers=2"]);
    get(&serving.insecure, "/api/v1/pods");
    let output = usher(&["status", &dir, "-o", "json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["pid"], serving.child.id());
    assert_eq!(
        (&status["insecure"], &status["admin"]),
        (&serving.insecure.clone().into(), &serving.admin.clone().into())
    );
    assert_eq!((status["workers"].as_array().unwrap().len(), &status["waiting"]), (2, &0.into()), "{status}");
    let requests = |worker: &serde_json::Value| worker["requests"].as_u64().unwrap();
    assert_eq!(status["workers"].as_array().unwrap().iter().map(requests).sum::<u64>(), 1, "{status}");
    let steering = status["steering"]["mode"].as_str().unwrap();
    let counted = status["steering"]["connections"].as_object().unwrap().values();
    let steered = counted.map(|count| count.as_u64().unwrap()).sum::<u64>();
    assert!(matches!((steering, steered), ("on", 1) | ("off", 0)), "{status}");
    let output = usher(&["status", &dir]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let begins =
        format!("usher {} serves, process {}, since 2", env!("CARGO_PKG_VERSION"), serving.child.id());
    assert!(
        output.status.success() && text.starts_with(&begins) && text.contains(&serving.insecure),
        "{text}"
    );

    let (code, said) = ends(&["release", &dir]);
    assert!(code == 1 && said.contains("nothing to release"), "{code}: {said}");
    assert_eq!(serving.end(), 0);
    assert_eq!(ends(&["status", &dir]).0, 3);
    assert!(!folder.path().join("control.sock").exists());
}

#[test]
fn a_second_usher_is_told_what_to_do_and_a_dead_one_is_in_nobodys_way() {
    let (_folder, dir) = runtime_dir();
    let serve =
        ["serve", "--upstream=http://a:1", "--insecure-port=0", "--admin-bind-address=127.0.0.1:0", &dir];
    let mut first = Serving::start(&[&dir]);
    let (code, said) = ends(&serve);
    let who = format!("process {}", first.child.id());
    assert!(code == 1 && said.contains(&who) && said.contains(&dir), "{code}: {said}");
    assert_eq!(ends(&["status", &dir]).0, 0, "the first has not noticed");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert_eq!(ends(&["status", &dir]).0, 3);
    let second = Serving::start(&[&dir]);
    assert_eq!(ends(&["status", &dir]).0, 0);
    assert_eq!(second.end(), 0);
}

/// Whether this test may become another user. Where CI runs it must.
fn may_become_another_user() -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    let may = unsafe { libc::geteuid() } == 0;
    assert!(may || std::env::var_os("CI").is_none(), "CI must run this test as root");
    if !may {
        eprintln!("NOT TRIED: only root can become another user");
    }
    may
}

#[test]
fn a_stranger_is_refused_at_the_control_socket() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    const NOBODY: u32 = 65_534;
    if !may_become_another_user() {
        return;
    }
    let (folder, dir) = runtime_dir();
    let serving = Serving::start(&[&dir]);
    let program = folder.path().join("usher"); // where anybody can run it
    std::fs::copy(env!("CARGO_BIN_EXE_usher"), &program).unwrap();
    let as_nobody = || {
        let output = Command::new(&program).args(["status", &dir]).uid(NOBODY).gid(NOBODY).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    open(folder.path());
    let (code, said) = as_nobody();
    assert!(code == Some(4) && said.contains("another user's"), "by the file's mode: {code:?} {said}");
    open(&folder.path().join("control.sock"));
    let (code, said) = as_nobody();
    assert!(code == Some(1) && said.contains("ask as root"), "by who is asking: {code:?} {said}");
    assert_eq!(ends(&["status", &dir]).0, 0);
    assert_eq!(serving.end(), 0);
}
