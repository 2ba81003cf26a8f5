//! What flags must hold together. Every sentence names the flag and the remedy; all are said at once.

use std::net::SocketAddr;
use std::time::Duration;

use crate::takeover::{self, Mode};

use super::{
    Authentication, FlowControl, Histograms, Limits, Options, OptionsError, Serving, Steering, Upstream,
    Workers,
};
use crate::steering::Wish;

/// A queue wait of a quarter of less than this rounds to nothing useful.
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Judges everything.
pub(super) fn all(options: &Options) -> Result<(), OptionsError> {
    let mut faults = Vec::new();
    serving(&options.serving, &mut faults);
    authentication(&options.authentication, &mut faults);
    upstream(&options.upstream, &mut faults);
    faults.extend(flow_control(&options.flow_control));
    takeover(options, &mut faults);
    limits(&options.limits, &mut faults);
    workers(&options.workers, &mut faults);
    steering(&options.steering, &mut faults);
    histograms(&options.histograms, &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(OptionsError::Together(faults)) }
}

fn serving(serving: &Serving, faults: &mut Vec<String>) {
    match (&serving.tls_cert_file, &serving.tls_private_key_file) {
        (Some(_), None) => faults.push("--tls-cert-file needs its key: give --tls-private-key-file".into()),
        (None, Some(_)) => {
            faults.push("--tls-private-key-file needs its certificate: give --tls-cert-file".into());
        }
        (None, None) if serving.insecure_port.is_none() => faults.push(
            "nothing to listen on: give --tls-cert-file and --tls-private-key-file \
             (kubeadm: /etc/kubernetes/pki/apiserver.crt and .key), or --insecure-port for plain HTTP"
                .into(),
        ),
        _ => {}
    }
    let remote = !serving.insecure_bind_address.is_loopback();
    if serving.insecure_port.is_some() && remote && !serving.insecure_allow_remote {
        faults.push(format!(
            "--insecure-bind-address={} is not loopback: tokens would travel in the clear; \
             use 127.0.0.1, or say --insecure-allow-remote if that is what you want",
            serving.insecure_bind_address
        ));
    }
}

fn authentication(authentication: &Authentication, faults: &mut Vec<String>) {
    if !authentication.service_account_key_file.is_empty() && authentication.service_account_issuer.is_empty()
    {
        faults.push(
            "--service-account-key-file needs --service-account-issuer: give kube-apiserver's \
             (kubeadm: https://kubernetes.default.svc.cluster.local)"
                .into(),
        );
    }
    let proxies = authentication.requestheader_client_ca_file.is_some();
    if proxies && authentication.requestheader_username_headers.is_empty() {
        faults.push(
            "--requestheader-client-ca-file needs --requestheader-username-headers: \
             give X-Remote-User, as kube-apiserver has it"
                .into(),
        );
    }
    let headers = [
        ("username-headers", &authentication.requestheader_username_headers),
        ("uid-headers", &authentication.requestheader_uid_headers),
        ("group-headers", &authentication.requestheader_group_headers),
        ("extra-headers-prefix", &authentication.requestheader_extra_headers_prefix),
    ];
    for (flag, names) in headers {
        for name in names.iter().filter(|name| http::HeaderName::try_from(name.as_str()).is_err()) {
            faults.push(format!("--requestheader-{flag}: {name:?} cannot be part of an HTTP header's name"));
        }
    }
}

fn upstream(upstream: &Upstream, faults: &mut Vec<String>) {
    if upstream.upstream.is_empty() {
        faults.push("--upstream is missing: give the kube-apiserver's https://HOST:PORT".into());
    }
    let tls = upstream.upstream.iter().find(|url| url.tls);
    match tls {
        Some(url) if upstream.upstream_ca_file.is_none() => faults.push(format!(
            "--upstream={url} needs --upstream-ca-file: the cluster's CA (kubeadm: /etc/kubernetes/pki/ca.crt)"
        )),
        _ => {}
    }
    match (&upstream.proxy_client_cert_file, &upstream.proxy_client_key_file) {
        (Some(_), None) => {
            faults.push("--proxy-client-cert-file needs its key: give --proxy-client-key-file".into());
        }
        (None, Some(_)) => {
            faults
                .push("--proxy-client-key-file needs its certificate: give --proxy-client-cert-file".into());
        }
        _ => {}
    }
    let bad = |group: &&String| group.is_empty() || http::HeaderValue::from_str(group).is_err();
    for group in upstream.upstream_groups.iter().filter(bad) {
        faults.push(format!("--upstream-groups: {group:?} is not the name of a group"));
    }
    if upstream.upstream_connect_timeout.is_zero() {
        faults.push("--upstream-connect-timeout must be more than 0".into());
    }
}

/// What `usher explain` needs to hold, too.
pub(crate) fn flow_control(flow_control: &FlowControl) -> Vec<String> {
    let mut faults = Vec::new();
    let seats = u64::from(flow_control.max_requests_inflight)
        + u64::from(flow_control.max_mutating_requests_inflight);
    if flow_control.enable_priority_and_fairness && seats == 0 {
        faults.push(
            "--max-requests-inflight and --max-mutating-requests-inflight are both 0: with \
             --enable-priority-and-fairness their sum is the server's seats and must be more than 0"
                .into(),
        );
    }
    if flow_control.request_timeout < REQUEST_TIMEOUT_MIN {
        faults.push(format!("--request-timeout must be at least {REQUEST_TIMEOUT_MIN:?}"));
    }
    faults
}

fn takeover(options: &Options, faults: &mut Vec<String>) {
    let (given, serving) = (&options.takeover, &options.serving);
    if given.takeover == Mode::Off {
        if !given.takeover_address.is_empty() {
            faults.push("--takeover-address needs --takeover=fail-open or --takeover=fail-closed".into());
        }
        return;
    }
    if serving.tls_cert_file.is_none() {
        faults.push(
            "--takeover needs --tls-cert-file and --tls-private-key-file: clients of the apiserver's port speak TLS \
             (kubeadm: /etc/kubernetes/pki/apiserver.crt and .key)"
                .into(),
        );
    }
    let places = takeover::places(&given.takeover_address, &options.upstream.upstream);
    if places.iter().any(|place| place.port() == 0) {
        faults.push("--takeover-address: port 0 is nobody's; give the apiserver's port".into());
    }
    let bound = serving.bind_address;
    let is_own = |place: &SocketAddr| {
        place.port() == serving.secure_port
            && (place.ip() == bound || place.ip().is_unspecified() || bound.is_unspecified())
    };
    if serving.secure_port != 0 && places.iter().any(is_own) {
        faults.push(format!(
            "--secure-port={} is the apiserver's port, which --takeover takes over while the apiserver keeps its socket: \
             give usher one of its own, --secure-port=7443 or 0 for any",
            serving.secure_port
        ));
    }
}

fn limits(limits: &Limits, faults: &mut Vec<String>) {
    let counts = [
        ("max-connections", limits.max_connections),
        ("http2-max-streams-per-connection", limits.http2_max_streams_per_connection as usize),
        ("max-header-lines", limits.max_header_lines),
        ("max-handshakes", limits.max_handshakes),
        ("max-waiting-requests", limits.max_waiting_requests),
    ];
    for (flag, _) in counts.iter().filter(|(_, count)| *count == 0) {
        faults.push(format!("--{flag} must be more than 0"));
    }
    for (flag, bytes) in [
        ("max-header-bytes", limits.max_header_bytes),
        ("max-body-buffer-bytes", limits.max_body_buffer_bytes as usize),
    ] {
        if bytes < BYTES_MIN {
            faults.push(format!("--{flag} must be at least {BYTES_MIN}"));
        }
    }
    for (flag, count, max) in [
        ("max-header-lines", limits.max_header_lines, HEADER_LINES_MAX),
        ("max-body-buffer-bytes", limits.max_body_buffer_bytes as usize, BODY_BYTES_MAX),
        ("max-handshakes", limits.max_handshakes, HANDSHAKES_MAX),
    ] {
        if count > max {
            faults.push(format!("--{flag} can be {max} at most"));
        }
    }
    if limits.memory_limit.is_some_and(|bytes| bytes > 0 && bytes < MEMORY_MIN) {
        faults.push(format!("--memory-limit must be 0 for none, or at least {}Mi", MEMORY_MIN >> 20));
    }
    let times = [
        ("handshake-timeout", limits.handshake_timeout),
        ("header-timeout", limits.header_timeout),
        ("request-body-timeout", limits.request_body_timeout),
        ("idle-timeout", limits.idle_timeout),
        ("slow-reader-grace", limits.slow_reader_grace),
    ];
    for (flag, _) in times.iter().filter(|(_, time)| time.is_zero()) {
        faults.push(format!("--{flag} must be more than 0"));
    }
}

fn workers(workers: &Workers, faults: &mut Vec<String>) {
    if !workers.exclude_cores.is_empty() && !workers.pin_worker {
        faults.push(
            "--exclude-cores needs --pin-worker: workers that are not kept on a core go wherever the kernel likes; \
             without it, give usher a cpuset"
                .into(),
        );
    }
}

fn steering(steering: &Steering, faults: &mut Vec<String>) {
    if steering.connection_budget_per_source == 0 {
        return;
    }
    if steering.steering == Wish::Off {
        faults.push(
            "--connection-budget-per-source needs --steering=auto or on: the program in the kernel refuses what is beyond it"
                .into(),
        );
    }
    if steering.connection_budget_burst == 0 {
        faults.push("--connection-budget-burst must be more than 0: nobody could connect".into());
    }
}

fn histograms(histograms: &Histograms, faults: &mut Vec<String>) {
    if !HDR_INTERVALS.contains(&histograms.hdr_log_interval) {
        let (min, max) = (HDR_INTERVALS.start(), HDR_INTERVALS.end());
        faults.push(format!("--hdr-log-interval must be from {min:?} to {max:?}"));
    }
    if histograms.hdr_log_max_age < histograms.hdr_log_interval {
        faults.push("--hdr-log-max-age must not be less than --hdr-log-interval".into());
    }
    if histograms.hdr_log_max_size == 0 || histograms.hdr_log_max_files == 0 {
        faults.push("--hdr-log-max-size and --hdr-log-max-files must be more than 0".into());
    }
}

/// Shorter ones cost more than they tell; in longer ones a counter of 32 bits could come to its end.
const HDR_INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);
/// Below it usher, with a few connections, would be short of memory always.
const MEMORY_MIN: u64 = 64 << 20;
/// hyper's smallest read buffer: below it not even a plain request fits.
const BYTES_MIN: usize = 8 << 10;
/// A map of headers (crate `http`) holds some 24 000; some are added on the way.
const HEADER_LINES_MAX: usize = 16_384;
/// A connection's window is that of several streams, and must fit into 31 bits (RFC 9113, section 6.9.1).
const BODY_BYTES_MAX: usize = 64 << 20;
/// More than there are ports of a client's address; what counts them needs some bound.
const HANDSHAKES_MAX: usize = 65_536;
