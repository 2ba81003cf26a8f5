//! kubeconfigs: one for each identity and endpoint, with everything inside, so that they can be copied.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::Outcome;
use crate::cluster::{pki, read, write};

/// What the kubeconfig's user proves itself with.
#[derive(Clone, Copy, Debug)]
pub enum User<'a> {
    /// `NAME.crt` and `NAME.key` of the cluster's certificates.
    Certificate(&'a str),
    /// A bearer token.
    Token(&'a str),
}

/// Writes a kubeconfig (JSON, which is YAML) for `user` at `https://127.0.0.1:PORT`.
pub fn write_kubeconfig(path: &Path, certificates: &Path, port: u16, user: User<'_>) -> Outcome {
    let encoded = |path: &Path| Ok::<_, String>(STANDARD.encode(read(path)?));
    let credential: Value = match user {
        User::Certificate(name) => {
            let (certificate, key) = pki::pair(certificates, name);
            json!({"client-certificate-data": encoded(&certificate)?, "client-key-data": encoded(&key)?})
        }
        User::Token(token) => json!({"token": token}),
    };
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": encoded(&certificates.join("ca.crt"))?,
        }}],
        "users": [{"name": "user", "user": credential}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    });
    write(path, &format!("{document:#}\n"))
}
