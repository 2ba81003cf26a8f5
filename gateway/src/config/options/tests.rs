//! Options through one door: arguments, environment, file → options or the exact complaint.

use std::ffi::OsString;
use std::io::Write as _;
use std::time::Duration;

use clap::{Args as _, Command};

use super::{Options, OptionsError, read};
use crate::worker;

/// A command line that is complete: what tests add or spoil.
const ENOUGH: [&str; 3] = ["--upstream=http://127.0.0.1:8080", "--insecure-port=0", "--secure-port=0"];

fn program() -> Command {
    Command::new("usher").subcommand(Options::augment_args(Command::new("serve")))
}

struct Given<'a> {
    arguments: &'a [&'a str],
    environment: &'a [(&'a str, &'a str)],
    file: &'a str,
}

const NOTHING: Given<'_> = Given { arguments: &[], environment: &[], file: "" };

/// Reads it; the file's path in complaints becomes `FILE`.
fn load(given: &Given<'_>, enough: bool) -> Result<Options, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(given.file.as_bytes()).unwrap();
    let mut arguments: Vec<OsString> = vec!["usher".into(), "serve".into()];
    arguments.push(format!("--config={}", file.path().display()).into());
    if enough {
        arguments.extend(ENOUGH.iter().map(OsString::from));
    }
    arguments.extend(given.arguments.iter().map(OsString::from));
    let environment: Vec<(OsString, OsString)> =
        given.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
    read(&program(), "serve", &arguments, &environment)
        .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
}

#[track_caller]
fn check_refused(given: Given<'_>, complaint: &str) {
    let error = load(&given, true).map(|_| ()).expect_err(complaint);
    assert!(error.contains(complaint), "wanted: {complaint}\n   got: {error}");
}

#[track_caller]
fn check_incomplete(arguments: &[&str], complaint: &str) {
    let error = load(&Given { arguments, ..NOTHING }, false).map(|_| ()).expect_err(complaint);
    assert!(error.contains(complaint), "wanted: {complaint}\n   got: {error}");
}

#[test]
fn the_table_is_sound() {
    program().debug_assert();
}

#[test]
fn defaults_are_kube_apiservers() {
    let options = load(&NOTHING, true).unwrap();
    assert_eq!(options.flow_control.max_requests_inflight, 400);
    assert_eq!(options.flow_control.max_mutating_requests_inflight, 200);
    assert_eq!(options.flow_control.request_timeout, Duration::from_secs(60));
    assert!(options.flow_control.enable_priority_and_fairness);
    assert!(options.authentication.anonymous_auth);
    assert_eq!(options.observation.admin_bind_address.to_string(), "127.0.0.1:9180");
}

#[test]
fn takeover_needs_a_port_of_its_own_and_tls() {
    let check = |arguments: &[&str], complaint| {
        let arguments = [&["--upstream=http://127.0.0.1:8080", "--insecure-port=0"], arguments].concat();
        check_incomplete(&arguments, complaint);
    };
    let open = "--takeover=fail-open";
    check(&["--takeover-address=0.0.0.0:6443"], "--takeover-address needs --takeover=fail-open");
    check(&[open], "--takeover needs --tls-cert-file and --tls-private-key-file");
    check(&[open, "--takeover-address=10.0.0.5:0"], "port 0 is nobody's");
    check(&[open, "--secure-port=8080"], "give usher one of its own, --secure-port=7443");
    check(&[open, "--takeover-address=10.0.0.5:6443"], "give usher one of its own"); // by default it has this one
    let elsewhere = [open, "--bind-address=10.0.0.6", "--takeover-address=10.0.0.5:6443"];
    let error = load(&Given { arguments: &elsewhere, ..NOTHING }, false).unwrap_err();
    assert!(!error.contains("one of its own"), "{error}");
}

#[test]
fn limits_are_the_workers_own() {
    let limits = load(&NOTHING, true).unwrap().limits;
    let defaults = worker::Limits::default();
    assert_eq!(limits.handshake_timeout, defaults.handshake_timeout);
    assert_eq!(limits.header_timeout, defaults.header_timeout);
    assert_eq!(limits.idle_timeout, defaults.idle_timeout);
    assert_eq!(limits.slow_reader_grace, defaults.slow_reader_grace);
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = "max-requests-inflight: 1\nmax-mutating-requests-inflight: 2\nrequest-timeout: 3s\n";
    let environment = [("USHER_MAX_REQUESTS_INFLIGHT", "10"), ("USHER_MAX_MUTATING_REQUESTS_INFLIGHT", "20")];
    let arguments = ["--max-requests-inflight=100"];
    let options = load(&Given { arguments: &arguments, environment: &environment, file }, true).unwrap();
    assert_eq!(options.flow_control.max_requests_inflight, 100);
    assert_eq!(options.flow_control.max_mutating_requests_inflight, 20);
    assert_eq!(options.flow_control.request_timeout, Duration::from_secs(3));
    assert_eq!(options.flow_control.watch_init_timeout, Duration::from_secs(10));
}

#[test]
fn a_list_comes_from_one_source_only() {
    let file = "service-account-issuer: [https://file.one, https://file.two]\napi-audiences: [a, b]\n";
    let environment = [("USHER_SERVICE_ACCOUNT_ISSUER", "https://env.one, https://env.two")];
    let options = load(&Given { environment: &environment, file, ..NOTHING }, true).unwrap();
    assert_eq!(options.authentication.service_account_issuer, ["https://env.one", "https://env.two"]);
    assert_eq!(options.authentication.api_audiences, ["a", "b"]);
    let arguments = ["--service-account-issuer=https://flag"];
    let options = load(&Given { arguments: &arguments, environment: &environment, file }, true).unwrap();
    assert_eq!(options.authentication.service_account_issuer, ["https://flag"]);
}

#[test]
fn a_file_may_hold_every_kind_of_value() {
    let file = "# usher\nupstream: \"https://[::1]:6443\"\nupstream-ca-file: /ca.crt\nanonymous-auth: no\n\
                enable-priority-and-fairness: false\nlog-format: json\nsecure-port: 0\ninsecure-port: 0\n\
                requestheader-allowed-names: front-proxy-client\nclient-ca-file: ~\n";
    let options = load(&Given { file, ..NOTHING }, false).unwrap();
    assert_eq!(options.upstream.upstream[0].to_string(), "https://[::1]:6443");
    assert_eq!(options.authentication.requestheader_allowed_names, ["front-proxy-client"]);
    assert!(!options.flow_control.enable_priority_and_fairness);
    assert!(!options.authentication.anonymous_auth);
    assert_eq!(options.authentication.client_ca_file, None);
}

#[test]
fn booleans_are_written_as_for_kube_apiserver() {
    for (argument, value) in
        [("--anonymous-auth", true), ("--anonymous-auth=F", false), ("--anonymous-auth=1", true)]
    {
        let options = load(&Given { arguments: &[argument], ..NOTHING }, true).unwrap();
        assert_eq!(options.authentication.anonymous_auth, value, "{argument}");
    }
}

#[test]
fn variables_of_a_service_called_usher_do_no_harm() {
    let environment = [("USHER_SERVICE_HOST", "10.0.0.1"), ("USHER_PORT", "tcp://10.0.0.1:443")];
    load(&Given { environment: &environment, ..NOTHING }, true).unwrap();
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    let file = "max-requests-inflight: 3\nrequest-timout: 3s\n";
    check_refused(
        Given { file, ..NOTHING },
        "FILE:2: no such key: request-timout; did you mean request-timeout?",
    );
    check_refused(
        Given { file: "zebra: 1", ..NOTHING },
        "FILE:1: no such key: zebra; usher serve --help lists all",
    );
    check_refused(Given { file: "config: other.yaml", ..NOTHING }, "FILE:1: no such key: config");
    check_refused(Given { arguments: &["--request-timout=3s"], ..NOTHING }, "'--request-timeout'");
}

#[test]
fn bad_values_say_where_they_were_written() {
    check_refused(
        Given { file: "log-format: text\nrequest-timeout: 3 parsecs\n", ..NOTHING },
        "FILE:2: request-timeout: invalid value '3 parsecs'",
    );
    check_refused(Given { file: "request-timeout: [3s, 4s]", ..NOTHING }, "wanted one value, not a list");
    check_refused(Given { file: "request-timeout: {a: b}", ..NOTHING }, "a value or a list of values");
    check_refused(Given { file: "- request-timeout", ..NOTHING }, "expected mapping");
    check_refused(Given { file: "io: epoll\nio: epoll", ..NOTHING }, "duplicate");
    check_refused(
        Given { environment: &[("USHER_SECURE_PORT", "70000")], ..NOTHING },
        "USHER_SECURE_PORT: invalid value '70000'",
    );
    check_refused(Given { environment: &[("USHER_CONFIG", "")], ..NOTHING }, "USHER_CONFIG");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let arguments: Vec<OsString> =
        ["usher", "serve", "--config=/no/such"].iter().map(OsString::from).collect();
    let error = read(&program(), "serve", &arguments, &[]).expect_err("no file");
    assert!(matches!(error, OptionsError::File { .. }));
    assert!(error.to_string().contains("/no/such") && error.to_string().contains("--config"), "{error}");
}

#[test]
fn bad_flags_say_what_was_wanted() {
    for (argument, complaint) in [
        ("--max-requests-inflight=-1", "it cannot be negative"),
        ("--max-mutating-requests-inflight=-1", "it cannot be negative"),
        ("--request-timeout=-1s", "cannot be negative"),
        ("--request-timeout=60", "60s"),
        ("--io=io_uring", "auto, uring or epoll"),
        ("--ring-buffers=0", "8..=32768"),
        ("--upstream=127.0.0.1:6443", "give https://HOST:PORT"),
        ("--upstream=https://a:1/path", "a path or query has no use here"),
        ("--upstream=https://u@a:1", "user names and passwords have no use here"),
        ("--log-level=loud", "wanted off, error, warn"),
        ("--anonymous-auth=maybe", "wanted true or false"),
    ] {
        check_refused(Given { arguments: &[argument], ..NOTHING }, complaint);
    }
}

#[test]
fn what_is_missing_or_does_not_go_together_is_said_with_its_remedy() {
    check_incomplete(&[], "--upstream is missing: give");
    check_incomplete(&[], "nothing to listen on: give --tls-cert-file");
    check_incomplete(&["--tls-cert-file=a"], "give --tls-private-key-file");
    check_incomplete(&["--tls-private-key-file=a"], "give --tls-cert-file");
    check_incomplete(&["--upstream=https://a:1"], "needs --upstream-ca-file");
    for (arguments, complaint) in [
        (&["--proxy-client-cert-file=a"][..], "give --proxy-client-key-file"),
        (&["--proxy-client-key-file=a"], "give --proxy-client-cert-file"),
        (&["--insecure-bind-address=0.0.0.0"], "--insecure-allow-remote"),
        (&["--service-account-key-file=a"], "needs --service-account-issuer"),
        (&["--requestheader-client-ca-file=a"], "needs --requestheader-username-headers"),
        (&["--requestheader-uid-headers=a b"], "cannot be part of an HTTP header's name"),
        (&["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"], "must be more than 0"),
        (&["--request-timeout=0"], "--request-timeout must be at least 1s"),
        (&["--upstream-groups=a\nb"], "--upstream-groups: \"a\\nb\" is not the name of a group"),
        (&["--max-connections=0"], "--max-connections must be more than 0"),
        (&["--max-header-bytes=1"], "--max-header-bytes must be at least 8192"),
        (&["--max-body-buffer-bytes=4294967295"], "--max-body-buffer-bytes can be 67108864 at most"),
        (&["--max-header-lines=100000"], "--max-header-lines can be 16384 at most"),
        (&["--max-handshakes=18446744073709551615"], "--max-handshakes can be 65536 at most"),
        (&["--idle-timeout=0"], "--idle-timeout must be more than 0"),
    ] {
        check_refused(Given { arguments, ..NOTHING }, complaint);
    }
}

#[test]
fn without_flow_control_the_limits_may_both_be_off() {
    let arguments = [
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
    ];
    load(&Given { arguments: &arguments, ..NOTHING }, true).unwrap();
}

#[test]
fn plain_http_beyond_loopback_only_by_force() {
    let arguments = ["--insecure-bind-address=0.0.0.0", "--insecure-allow-remote"];
    load(&Given { arguments: &arguments, ..NOTHING }, true).unwrap();
}
