//! The table of flags: the one place where a flag's name, type, default and help are written.
//!
//! Where kube-apiserver has a flag, its name and its default are used. The environment and the file are
//! read by the same names: see [`super::sources`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::values::{
    HandOver, LogFormat, RuntimeDir, boolean, bytes, duration, limit, log_level, runtime_dir,
};
use crate::crew::cores::{Cores, Count};
use crate::http1::Speaker;
use crate::ring;
use crate::steering;
use crate::takeover::{self, Mode};
use crate::upstream::{Http2, Server};
use crate::worker;

/// Everything `usher serve` is told.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// YAML file with any of the flags below, by their names without the dashes
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where clients come in.
    #[command(flatten)]
    pub serving: Serving,
    /// How clients are known.
    #[command(flatten)]
    pub authentication: Authentication,
    /// Where requests go.
    #[command(flatten)]
    pub upstream: Upstream,
    /// Who gets seats.
    #[command(flatten)]
    pub flow_control: FlowControl,
    /// Whose an apiserver's own port is.
    #[command(flatten)]
    pub takeover: Takeover,
    /// What protects usher itself.
    #[command(flatten)]
    pub limits: Limits,
    /// How many cores serve.
    #[command(flatten)]
    pub workers: Workers,
    /// Which of them a connection comes to.
    #[command(flatten)]
    pub steering: Steering,
    /// How bytes come and go.
    #[command(flatten)]
    pub ring: Ring,
    /// What operators see.
    #[command(flatten)]
    pub observation: Observation,
    /// Latencies for capacity planning.
    #[command(flatten)]
    pub histograms: Histograms,
}

/// Where clients come in.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct Serving {
    /// Address to listen on with TLS
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    pub bind_address: IpAddr,
    /// Port to listen on with TLS; 0 chooses a free one, the log says which
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub secure_port: u16,
    /// Serving certificate, PEM, followed by its intermediates
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Private key of the serving certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Listen for plain HTTP too, on this port (0: a free one)
    #[arg(long, value_name = "PORT")]
    pub insecure_port: Option<u16>,
    /// Address of the plain HTTP port
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub insecure_bind_address: IpAddr,
    /// Allow plain HTTP beyond loopback: tokens then travel in the clear
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub insecure_allow_remote: bool,
    /// How long requests in flight may take to finish after SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub shutdown_grace_period: Duration,
    /// Folder of the control socket, by which usher status asks and another usher takes over; empty: none. Without it
    /// /run/usher, if usher may write there and no other usher has it
    #[arg(long, value_name = "DIR", value_parser = runtime_dir)]
    pub runtime_dir: Option<RuntimeDir>,
    /// Whether to take over from the usher that runs in --runtime-dir: its sockets, with no connection refused, after
    /// which it drains and ends
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = HandOver::default())]
    pub hand_over: HandOver,
    /// After another usher has taken over and this one has drained, wait for SIGTERM: in a container, which would be
    /// started again
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub hand_over_wait: bool,
}

/// How clients are known. As kube-apiserver is told, so that both see the same users.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Authentication (give what kube-apiserver is given)")]
pub struct Authentication {
    /// CA bundle that vouches for client certificates
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Static bearer tokens: CSV of token, user, uid, "groups"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Public (or private) keys of service-account tokens, PEM; repeatable. Without it they are fetched from
    /// the upstream's /openid/v1/jwks
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Issuer of service-account tokens; repeatable. Without it the one that the upstream's
    /// /.well-known/openid-configuration names
    #[arg(long, value_name = "ISSUER")]
    pub service_account_issuer: Vec<String>,
    /// Audiences a service-account token may be for; without it the issuers
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// CA bundle that vouches for front proxies in front of usher
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of trusted front proxies; empty: all that the bundle vouches for
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers to find a front proxy's user name in
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_username_headers: Vec<String>,
    /// Headers to find its UID in
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers to find its groups in
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of the headers to find its extra attributes in
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Requests without credentials are system:anonymous
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub anonymous_auth: bool,
}

/// Where requests go.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Upstream")]
pub struct Upstream {
    /// A kube-apiserver, https://HOST:PORT; repeatable
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<Server>,
    /// CA bundle that vouches for the apiservers
    #[arg(long, value_name = "FILE")]
    pub upstream_ca_file: Option<PathBuf>,
    /// Name to expect in their certificates, if not the host of the URL
    #[arg(long, value_name = "NAME")]
    pub upstream_server_name: Option<String>,
    /// Front-proxy certificate that lets the apiserver believe X-Remote-*; kubeadm's front-proxy-client.crt
    #[arg(long, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Its private key; kubeadm's front-proxy-client.key
    #[arg(long, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// How long a connection to an apiserver may take to be made, TLS included
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub upstream_connect_timeout: Duration,
    /// What goes over HTTP/2 to the apiservers
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Http2::default())]
    pub upstream_http2: Http2,
    /// The apiserver answers lists of the newest state from its cache (etcd 3.4.31, 3.5.13 or newer): such lists
    /// need fewer seats
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub upstream_consistent_reads: bool,
    /// Groups in which usher, as user system:usher, asks the apiserver for the keys of tokens and for the number
    /// of objects; these two may do so by default
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "system:serviceaccounts,system:monitoring"
    )]
    pub upstream_groups: Vec<String>,
}

/// Who gets seats.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Flow control")]
pub struct FlowControl {
    /// API Priority and Fairness; without it the two limits below hold by themselves
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub enable_priority_and_fairness: bool,
    /// Seats of the server, first summand; without flow control: reads at a time, 0 for no limit
    #[arg(long, value_name = "N", default_value = "400", value_parser = limit, allow_negative_numbers = true)]
    pub max_requests_inflight: u32,
    /// Seats of the server, second summand; without flow control: writes at a time, 0 for no limit
    #[arg(long, value_name = "N", default_value = "200", value_parser = limit, allow_negative_numbers = true)]
    pub max_mutating_requests_inflight: u32,
    /// Deadline of a request that is not long-running; it may wait for a quarter of it
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration,
        allow_hyphen_values = true)]
    pub request_timeout: Duration,
    /// Folder of FlowSchemas and PriorityLevelConfigurations, YAML or JSON, followed as it changes
    #[arg(long, value_name = "DIR")]
    pub flow_control_dir: Option<PathBuf>,
    /// Have kube-apiserver's suggested objects where the folder does not name them
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub flow_control_suggested: bool,
    /// Decide about every request in the one exact order of its level, as kube-apiserver does, even while nobody waits.
    /// One worker always does
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub flow_control_exact: bool,
    /// How long at most a watch holds its seat for its initial events
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub watch_init_timeout: Duration,
    /// How long a watch that did not ask for a bookmark is silent before its initial events are over
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = duration)]
    pub watch_quiet_period: Duration,
}

/// Whose an apiserver's own port is: [`crate::takeover`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Takeover (Linux 5.15; CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON)")]
pub struct Takeover {
    /// Take the connections to the port of the apiserver of this host, which keeps its socket. Without usher, however it
    /// ended, the port is the apiserver's again (fail-open), or nobody's until usher is back or `usher release` is said
    /// (fail-closed: nothing gets past flow control, and a dead usher is a dead control plane)
    #[arg(long, value_name = "off|fail-open|fail-closed", value_enum, default_value_t = Mode::Off, hide_possible_values = true)]
    pub takeover: Mode,
    /// Address and port to take over; repeatable. 0.0.0.0 is any address of the host, IPv4 and IPv6. Without it the
    /// ports of --upstream on any address
    #[arg(long, value_name = "IP:PORT")]
    pub takeover_address: Vec<SocketAddr>,
    /// Folder on the bpf filesystem where fail-closed keeps its hold on the port
    #[arg(long, value_name = "DIR", default_value = takeover::PINS)]
    pub takeover_pin_dir: PathBuf,
}

/// What protects usher itself. Defaults, and the reasons for them: [`worker::Limits`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Clients' connections at a time, over all workers as all numbers of requests and connections here
    #[arg(long, value_name = "N", default_value_t = worker::Limits::default().connections)]
    pub max_connections: usize,
    /// Requests at a time on one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = worker::Limits::default().streams)]
    pub http2_max_streams_per_connection: u32,
    /// Bytes of a request's headers
    #[arg(long, value_name = "BYTES", default_value_t = worker::Limits::default().header_bytes)]
    pub max_header_bytes: usize,
    /// Header lines of a request
    #[arg(long, value_name = "N", default_value_t = worker::Limits::default().header_lines)]
    pub max_header_lines: usize,
    /// Bytes of a body read ahead while its request waits or its reader is slow
    #[arg(long, value_name = "BYTES", default_value_t = worker::Limits::default().body_bytes)]
    pub max_body_buffer_bytes: u32,
    /// The same for all HTTP/2 connections together; at most a quarter of --memory-limit
    #[arg(long, value_name = "BYTES", default_value_t = worker::Limits::default().body_bytes_total, value_parser = bytes)]
    pub max_body_buffer_total_bytes: u64,
    /// Memory to keep to: 512Mi, 2Gi; 0 for none. Without it what the control group leaves, or half of the machine's
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_limit: Option<u64>,
    /// TLS handshakes half done at a time; with more, the oldest is cut
    #[arg(long, value_name = "N", default_value_t = worker::Limits::default().handshakes)]
    pub max_handshakes: usize,
    /// How long a TLS handshake may take
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub handshake_timeout: Duration,
    /// How long the headers of a request may take to arrive
    #[arg(long, value_name = "DURATION", default_value = "32s", value_parser = duration)]
    pub header_timeout: Duration,
    /// How long a request with a seat may wait for its body, all pauses together; every 500 bytes earn another second
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub request_body_timeout: Duration,
    /// How long a connection may be idle
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = duration)]
    pub idle_timeout: Duration,
    /// How long, all in all, a client may keep an answer waiting before its seats are given back
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub slow_reader_grace: Duration,
    /// Answers that their clients do not take; beyond it the slowest are cut off
    #[arg(long, value_name = "N", default_value_t = worker::Limits::default().stalled_streams)]
    pub stalled_streams_max: usize,
    /// Bytes held for them; at most an eighth of --memory-limit
    #[arg(long, value_name = "BYTES", default_value_t = worker::Limits::default().stalled_bytes, value_parser = bytes)]
    pub stalled_bytes_max: u64,
    /// Requests that wait at a time, over all levels
    #[arg(long, value_name = "N", default_value_t = worker::Limits::default().waiting)]
    pub max_waiting_requests: usize,
    /// Points that a connection may collect in 10s by resets, pings, empty frames and the like before it is cut; 0:
    /// it never is
    #[arg(long, value_name = "POINTS", default_value_t = worker::Limits::default().glitches)]
    pub max_glitches: u32,
}

/// How many cores serve: [`crate::crew`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Workers")]
pub struct Workers {
    /// Threads that serve: a number, or auto for one on each core that usher may use and that is not excluded (no more
    /// than its control group's quota pays for)
    #[arg(long, value_name = "auto|N", default_value = "auto")]
    pub workers: Count,
    /// Cores to keep off: 0,2-3
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub exclude_cores: Vec<Cores>,
    /// Keep each worker on one core, from the last that usher may use downwards
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub pin_worker: bool,
}

/// Which worker a connection comes to: [`crate::steering`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Steering (by a program in the kernel: CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON)")]
pub struct Steering {
    /// Bring a client's connections to one worker, the less busy of two: on, off, or auto, which leaves it to the kernel's
    /// own hash where the program cannot be loaded
    #[arg(long, value_name = "auto|on|off", default_value = "auto")]
    pub steering: steering::Wish,
    /// New connections a second that one source address may open in the long run; 0: as many as it likes. Those beyond are
    /// refused before TLS costs anything
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub connection_budget_per_source: u32,
    /// How many of them it may open at once
    #[arg(long, value_name = "N", default_value_t = BUDGET_BURST)]
    pub connection_budget_burst: u32,
}

/// An address is a node, or a NAT with many behind it. After an apiserver's restart a node's kubelet, proxy, agents and
/// host-network pods come back at once, some with several connections each.
const BUDGET_BURST: u32 = 200;

impl Steering {
    /// What it comes to.
    #[must_use]
    pub fn settings(&self) -> steering::Settings {
        let budget =
            steering::Budget { rate: self.connection_budget_per_source, burst: self.connection_budget_burst };
        steering::Settings { wish: self.steering, budget }
    }
}

/// How bytes come and go. Defaults, and the reasons for them: [`ring::Settings`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "I/O")]
pub struct Ring {
    /// How workers do their I/O: uring, epoll, or auto, which takes io_uring if a self-test passes
    #[arg(long, value_name = "auto|uring|epoll", default_value = "auto")]
    pub io: ring::Io,
    /// Operations handed to the kernel in one call
    #[arg(long, value_name = "N", default_value_t = ring::Settings::default().entries,
        value_parser = clap::value_parser!(u32).range(8..=32_768))]
    pub ring_entries: u32,
    /// Buffers to receive into, for all connections of a worker; a power of two
    #[arg(long, value_name = "N", default_value_t = ring::Settings::default().buffers,
        value_parser = clap::value_parser!(u16).range(8..=32_768))]
    pub ring_buffers: u16,
    /// Bytes of each
    #[arg(long, value_name = "BYTES", default_value_t = ring::Settings::default().buffer_size,
        value_parser = clap::value_parser!(u32).range(1024..=1_048_576))]
    pub ring_buffer_size: u32,
    /// Spare core on which a thread of the kernel looks for operations; it is busy all the time
    #[arg(long, value_name = "CORE")]
    pub ring_sqpoll: Option<u32>,
    /// Microseconds to poll the network card before sleeping; 0: never
    #[arg(long, value_name = "MICROSECONDS", default_value_t = ring::Settings::default().busy_poll)]
    pub ring_busy_poll: u32,
    /// Microseconds for which a busy worker waits for more to do at once; 0: never (Linux 6.12)
    #[arg(long, value_name = "MICROSECONDS", default_value_t = ring::Settings::default().min_wait,
        value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub ring_min_wait: u32,
    /// Microseconds to look for an answer before sleeping, after something was sent; 0: never
    #[arg(long, value_name = "MICROSECONDS", default_value_t = ring::Settings::default().spin,
        value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub ring_spin: u32,
    /// Do not copy sends of so many bytes or more; 0: copy all
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub ring_zero_copy_from: usize,
    /// Keep clients' connections in a table of the ring's instead of among the process's descriptors (Linux 6.13)
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false,
        default_missing_value = "true", num_args = 0..=1, require_equals = true, value_parser = boolean)]
    pub ring_registered_files: bool,
}

impl Ring {
    /// For a worker with so many connections.
    #[must_use]
    pub fn settings(&self, connections: usize) -> ring::Settings {
        let connections = u32::try_from(connections).unwrap_or(u32::MAX);
        ring::Settings {
            io: self.io,
            entries: self.ring_entries,
            buffers: self.ring_buffers,
            buffer_size: self.ring_buffer_size,
            sqpoll: self.ring_sqpoll,
            busy_poll: self.ring_busy_poll,
            min_wait: self.ring_min_wait,
            spin: self.ring_spin,
            zero_copy_from: Some(self.ring_zero_copy_from).filter(|from| *from > 0),
            registered_files: self.ring_registered_files.then_some(connections),
        }
    }
}

/// What operators see.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Observation")]
pub struct Observation {
    /// Address of /metrics, /debug, /readyz: plain HTTP for whoever can reach it, so keep it on loopback
    #[arg(long, value_name = "IP:PORT", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180))]
    pub admin_bind_address: SocketAddr,
    /// Who speaks HTTP/1.1
    #[arg(long, value_name = "WHO", value_enum, default_value_t = Speaker::Own)]
    pub http1: Speaker,
    /// Shape of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Which log lines are written; also by module: info,usher::worker=debug. A release has no trace lines
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: String,
}

/// Latencies for capacity planning: [`crate::observe::hdr`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Histograms (HdrHistogram's .hlog; read them with usher hdr)")]
pub struct Histograms {
    /// Folder to log histograms of latencies to; without it they are only at /debug/hdr
    #[arg(long, value_name = "DIR")]
    pub hdr_log_dir: Option<PathBuf>,
    /// How long a histogram's interval is
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub hdr_log_interval: Duration,
    /// Bytes of a file before another one is begun
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub hdr_log_max_size: u64,
    /// Age of a file before another one is begun
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    pub hdr_log_max_age: Duration,
    /// Files that are kept; the oldest are removed
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub hdr_log_max_files: usize,
}
