//! Certificates, keys and tokens of a cluster, made anew for each.
//!
//! Laid out as kubeadm does (`ca`, `front-proxy-ca`, `sa`), so that what starts usher here starts it on a real
//! control plane. Besides working identities there are wrong ones, for the tests of refusal.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize, SerialNumber, date_time_ymd,
};

use crate::Outcome;
use crate::cluster::write;

/// The name that `--requestheader-allowed-names` allows.
pub const FRONT_PROXY: &str = "front-proxy-client";

/// Who signed a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signer {
    /// The cluster's authority.
    Cluster,
    /// The front proxies' authority.
    FrontProxy,
    /// An authority that nobody knows.
    Stranger,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Valid {
    Now,
    Expired,
    NotYet,
}

/// A client certificate: file name, user (CN) and at most two groups (O).
struct Client {
    name: &'static str,
    user: &'static str,
    groups: &'static [&'static str],
    signer: Signer,
    valid: Valid,
    /// Made for servers alone: to be refused from a client.
    servers_only: bool,
}

impl Client {
    const fn of(name: &'static str, user: &'static str, groups: &'static [&'static str]) -> Self {
        Self { name, user, groups, signer: Signer::Cluster, valid: Valid::Now, servers_only: false }
    }
}

/// Client certificates that every endpoint must know or refuse.
const CLIENTS: &[Client] = &[
    Client::of("admin", "kubernetes-admin", &["system:masters"]),
    Client::of("kube-controller-manager", "system:kube-controller-manager", &[]),
    Client::of("kube-scheduler", "system:kube-scheduler", &[]),
    Client::of("apiserver-kubelet-client", "kube-apiserver-kubelet-client", &["system:masters"]),
    Client::of("kwok", "system:kwok", &[]),
    Client::of("node-0", "system:node:node-0", &["system:nodes"]),
    Client::of("alice", "alice", &["developers", "testers"]),
    Client::of("bob", "bob", &[]),
    Client::of("unicode", "zoë:ünïcode user", &["gruppe ä"]),
    Client::of("nameless", "", &["developers"]),
    Client { signer: Signer::FrontProxy, ..Client::of(FRONT_PROXY, FRONT_PROXY, &[]) },
    Client { signer: Signer::FrontProxy, ..Client::of("front-proxy-stranger", "somebody-else", &[]) },
    Client { signer: Signer::Stranger, ..Client::of("unknown", "kubernetes-admin", &["system:masters"]) },
    Client { valid: Valid::Expired, ..Client::of("expired", "alice", &["developers"]) },
    Client { valid: Valid::NotYet, ..Client::of("not-yet-valid", "alice", &["developers"]) },
    Client { servers_only: true, ..Client::of("server-only", "alice", &["developers"]) },
];

/// Client certificates for which a kubeconfig is written.
pub const CERTIFICATE_USERS: &[&str] =
    &["admin", "kube-controller-manager", "kube-scheduler", "kwok", "node-0", "alice", "bob"];

/// Lines of `tokens.csv` (`--token-auth-file`): token, user, uid, groups.
pub const TOKENS: &[(&str, &str, &str, &str)] = &[
    ("token-of-carol", "carol", "uid-of-carol", "developers,testers"),
    ("token-of-dave", "dave", "uid-of-dave", ""),
    ("token-of-elephant", "elephant", "uid-of-elephant", "e2e:writers"),
    ("token-of-mouse", "mouse", "uid-of-mouse", "e2e:readers"),
    ("token-of-root", "root", "uid-of-root", "system:masters"),
];

/// Writes everything into `folder`.
pub fn write_all(folder: &Path) -> Outcome {
    make(folder).map_err(|error| format!("certificates: {error}"))?;
    let lines: Vec<String> = TOKENS
        .iter()
        .map(|(token, user, uid, groups)| format!("{token},{user},{uid},\"{groups}\"\n"))
        .collect();
    write(&folder.join("tokens.csv"), &lines.concat())
}

/// The path of a certificate and of its key.
pub fn pair(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")))
}

fn make(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(folder)?;
    let cluster = authority("usher-test-ca")?;
    let front_proxy = authority("usher-test-front-proxy-ca")?;
    let stranger = authority("usher-test-stranger-ca")?;
    fs::write(folder.join("ca.crt"), cluster.pem())?;
    fs::write(folder.join("front-proxy-ca.crt"), front_proxy.pem())?;
    fs::write(folder.join("stranger-ca.crt"), stranger.pem())?;
    for (index, server) in ["apiserver", "usher", "kwok-server", "webhook"].iter().enumerate() {
        let mut names = vec!["127.0.0.1".into(), "localhost".into()];
        if *server == "apiserver" {
            // What kubeadm's is called; 127.0.0.1 and localhost are not among kubeadm's names.
            names.extend(["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(String::from));
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = subject(server, &[]);
        params.serial_number = Some(SerialNumber::from(1000 + index as u64));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        sign(folder, server, params, Valid::Now, &cluster)?;
    }
    for (index, client) in CLIENTS.iter().enumerate() {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(client.user, client.groups);
        params.serial_number = Some(SerialNumber::from(2000 + index as u64));
        params.extended_key_usages = vec![if client.servers_only {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        let issuer = match client.signer {
            Signer::Cluster => &cluster,
            Signer::FrontProxy => &front_proxy,
            Signer::Stranger => &stranger,
        };
        sign(folder, client.name, params, client.valid, issuer)?;
    }
    let service_accounts = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
    fs::write(folder.join("sa.key"), service_accounts.serialize_pem())?;
    fs::write(folder.join("sa.pub"), service_accounts.public_key_pem())?;
    Ok(())
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    limit(&mut params, Valid::Now);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn sign(
    folder: &Path,
    name: &str,
    mut params: CertificateParams,
    valid: Valid,
    issuer: &CertifiedIssuer<'static, KeyPair>,
) -> Result<(), Box<dyn std::error::Error>> {
    limit(&mut params, valid);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    let (certificate_path, key_path) = pair(folder, name);
    fs::write(certificate_path, certificate.pem())?;
    fs::write(key_path, key.serialize_pem())?;
    Ok(())
}

fn subject(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    // rcgen keeps one value a type; the organisation's number spelled out counts as another type.
    let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (group, kind) in groups.iter().zip(types) {
        subject.push(kind, *group);
    }
    if !user.is_empty() {
        subject.push(DnType::CommonName, user);
    }
    subject
}

fn limit(params: &mut CertificateParams, valid: Valid) {
    let (first, last) = match valid {
        Valid::Now => (2020, 2090),
        Valid::Expired => (2020, 2021),
        Valid::NotYet => (2089, 2090),
    };
    params.not_before = date_time_ymd(first, 1, 1);
    params.not_after = date_time_ymd(last, 1, 1);
}
