//! Tokens good and bad. Every verdict here but the ones marked is kube-apiserver v1.36.2's to a token of that kind.

use std::path::Path;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self as sig, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;
const ISSUER: &str = "https://kubernetes.default.svc";

fn expected() -> Expectations {
    Expectations {
        issuers: vec!["https://old".into(), ISSUER.into()],
        audiences: vec![ISSUER.into(), "other".into()],
    }
}

/// An issuer's keys, made once: RSA takes its time.
struct Issuer {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p521: EcdsaKeyPair,
    keys: Keys,
    rsa_public: Vec<u8>,
}

fn issuer() -> &'static Issuer {
    static ISSUER: std::sync::OnceLock<Issuer> = std::sync::OnceLock::new();
    ISSUER.get_or_init(|| {
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let p256 = EcdsaKeyPair::generate(&sig::ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let p521 = EcdsaKeyPair::generate(&sig::ECDSA_P521_SHA512_FIXED_SIGNING).expect("a key");
        let der =
            |public: Result<PublicKeyX509Der<'static>, _>| public.expect("a public key").as_ref().to_vec();
        let rsa_public = der(rsa.public_key().as_der());
        let publics = [rsa_public.clone(), der(p256.public_key().as_der()), der(p521.public_key().as_der())];
        let pem: String = publics.iter().map(|public| pem(public)).collect();
        let keys = Keys::from_pem(Path::new("sa.pub"), pem.as_bytes()).expect("keys");
        Issuer { rsa, p256, p521, keys, rsa_public }
    })
}

fn pem(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
}

impl Issuer {
    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.signature(&header["alg"], signed.as_bytes())))
    }

    fn signature(&self, algorithm: &Value, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let padding: &'static dyn sig::RsaEncoding = match algorithm.as_str() {
            Some("RS384") => &sig::RSA_PKCS1_SHA384,
            Some("PS256") => &sig::RSA_PSS_SHA256,
            Some("ES256") => return self.p256.sign(&random, message).expect("signed").as_ref().to_vec(),
            Some("ES512") => return self.p521.sign(&random, message).expect("signed").as_ref().to_vec(),
            // What an attacker has: the public key, taken for a secret.
            Some("HS256") => {
                let secret = hmac::Key::new(hmac::HMAC_SHA256, pem(&self.rsa_public).as_bytes());
                return hmac::sign(&secret, message).as_ref().to_vec();
            }
            Some("none") => return Vec::new(),
            _ => &sig::RSA_PKCS1_SHA256,
        };
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        self.rsa.sign(padding, &random, message, &mut signature).expect("signed");
        signature
    }
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:lab:sa", "jti": "id",
        "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 3600,
        "kubernetes.io": {"namespace": "lab", "serviceaccount": {"name": "sa", "uid": "u"}},
    })
}

fn judge(token: &str, now: i64) -> Result<(Identity, i64), Refusal> {
    Token::parse(token)?.verify(&issuer().keys, &expected(), now)
}

/// The verdict on a token with these changes to a good one; `null` removes.
fn changed(header: Value, changes: Value) -> Result<(Identity, i64), Refusal> {
    let merge = |mut into: Value, changes: Value| {
        for (key, value) in changes.as_object().expect("an object") {
            if value.is_null() {
                into.as_object_mut().expect("an object").remove(key);
            } else {
                into[key] = value.clone();
            }
        }
        into
    };
    judge(&issuer().sign(&merge(json!({"alg": "RS256"}), header), &merge(claims(), changes)), NOW)
}

fn with_header(header: Value) -> Result<(), Refusal> {
    changed(header, json!({})).map(|_| ())
}

fn with_claims(changes: Value) -> Result<(), Refusal> {
    changed(json!({}), changes).map(|_| ())
}

#[test]
fn a_real_token_of_a_real_cluster() {
    let keys = Keys::from_pem(Path::new("sa.pub"), include_bytes!("../testdata/sa.pub")).expect("a key");
    let token = Token::parse(include_str!("../testdata/sa-pod.token").trim()).expect("a token");
    let (mut user, until) = token.verify(&keys, &expected(), 1_795_263_800).expect("verified");
    user.extra.sort();
    let extra: Vec<_> = user.extra.iter().map(|(key, values)| (key.as_str(), values[0].as_str())).collect();
    assert_eq!(
        (user.name.as_str(), user.uid.as_str()),
        ("system:serviceaccount:lab:sa", "577256a3-4237-4881-9ed8-e453e43ff5cf")
    );
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:lab"]);
    assert_eq!(
        extra,
        [
            ("authentication.kubernetes.io/credential-id", "JTI=75c63c68-f5f0-4c2a-a652-9ab5e231ac5f"),
            ("authentication.kubernetes.io/node-name", "n1"),
            ("authentication.kubernetes.io/node-uid", "714c63c2-8398-4177-abe9-aacfb5d24f3e"),
            ("authentication.kubernetes.io/pod-name", "p"),
            ("authentication.kubernetes.io/pod-uid", "fb77bb33-d6ed-42e2-bc29-fbeb21282f2f"),
        ]
    );
    assert_eq!(until, 1_795_263_759 + 3600 + 60 + 1);
    assert_eq!(token.verify(&keys, &expected(), until).map(|_| ()), Err(Refusal::Expired));
    assert!(token.verify(&keys, &expected(), until - 1).is_ok());
}

#[test]
fn algorithms_belong_to_keys() {
    for good in ["RS256", "RS384", "PS256", "ES256", "ES512"] {
        assert_eq!(with_header(json!({"alg": good})), Ok(()), "{good}");
    }
    for bad in ["none", "None", "HS256", "RS1", "EdDSA", ""] {
        assert_eq!(with_header(json!({"alg": bad})), Err(Refusal::Signature), "{bad}");
    }
    assert_eq!(with_header(json!({"alg": null})), Err(Refusal::Malformed));
    assert_eq!(with_header(json!({"alg": "RS256", "crit": ["x"], "x": 1})), Err(Refusal::Malformed));
}

#[test]
fn a_key_id_chooses_the_key() {
    let id =
        URL_SAFE_NO_PAD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &issuer().rsa_public));
    assert_eq!(with_header(json!({"kid": id})), Ok(()));
    assert_eq!(with_header(json!({"kid": ""})), Ok(()));
    assert_eq!(with_header(json!({"kid": "another"})), Err(Refusal::Signature));
    assert_eq!(
        with_header(json!({"kid": id, "alg": "ES256"})),
        Err(Refusal::Signature),
        "a key of another kind"
    );
}

#[test]
fn time_has_a_minute_of_leeway() {
    assert_eq!(with_claims(json!({"exp": NOW - 60})), Ok(()));
    assert_eq!(with_claims(json!({"exp": NOW - 61})), Err(Refusal::Expired));
    assert_eq!(with_claims(json!({"exp": 0})), Err(Refusal::Expired));
    assert_eq!(with_claims(json!({"exp": null})), Ok(()));
    assert_eq!(with_claims(json!({"exp": 1e300})), Ok(()));
    assert_eq!(with_claims(json!({"exp": NOW as f64 + 0.5})), Ok(()));
    assert_eq!(with_claims(json!({"exp": "soon"})), Err(Refusal::Malformed));
    assert_eq!(with_claims(json!({"nbf": NOW + 60})), Ok(()));
    assert_eq!(with_claims(json!({"nbf": NOW + 61})), Err(Refusal::NotYetValid));
    assert_eq!(with_claims(json!({"iat": NOW + 61})), Err(Refusal::IssuedInTheFuture));
}

#[test]
fn issuers_and_audiences() {
    assert_eq!(with_claims(json!({"iss": "https://old"})), Ok(()));
    assert_eq!(with_claims(json!({"iss": "https://evil"})), Err(Refusal::Issuer));
    assert_eq!(with_claims(json!({"iss": null})), Err(Refusal::Malformed));
    assert_eq!(with_claims(json!({"aud": "other"})), Ok(()));
    assert_eq!(with_claims(json!({"aud": ["x", "other"]})), Ok(()));
    assert_eq!(with_claims(json!({"aud": ["x"]})), Err(Refusal::Audience));
    assert_eq!(with_claims(json!({"aud": 1})), Err(Refusal::Malformed));
    assert_eq!(with_claims(json!({"aud": []})), Ok(()), "for the apiserver, as tokens without any");
    assert_eq!(with_claims(json!({"aud": null})), Ok(()));
}

#[test]
fn the_account_is_the_one_of_the_claims() {
    let (user, _) =
        changed(json!({}), json!({"sub": "system:serviceaccount:kube-system:root"})).expect("verified");
    assert_eq!(user.name, "system:serviceaccount:lab:sa");
    let (user, _) = changed(json!({}), json!({"jti": null})).expect("verified");
    assert_eq!(user.extra, []);
    assert_eq!(with_claims(json!({"kubernetes.io": null})), Err(Refusal::Claims));
    assert_eq!(with_claims(json!({"kubernetes.io": {"namespace": "lab"}})), Err(Refusal::Claims));
    let nameless = json!({"kubernetes.io": {"namespace": "", "serviceaccount": {"name": "sa", "uid": "u"}}});
    assert_eq!(with_claims(nameless), Err(Refusal::Claims));
}

/// parity: kube-apiserver also looks up the Secret; that is left to it.
#[test]
fn tokens_from_secrets() {
    let legacy = json!({
        "iss": LEGACY_ISSUER, "sub": "system:serviceaccount:lab:sa",
        "kubernetes.io/serviceaccount/namespace": "lab",
        "kubernetes.io/serviceaccount/secret.name": "sa-token",
        "kubernetes.io/serviceaccount/service-account.name": "sa",
        "kubernetes.io/serviceaccount/service-account.uid": "u",
    });
    let (user, until) = judge(&issuer().sign(&json!({"alg": "RS256"}), &legacy), NOW).expect("verified");
    assert_eq!(
        (user.name.as_str(), user.uid.as_str(), until),
        ("system:serviceaccount:lab:sa", "u", i64::MAX)
    );
    for (claim, value) in [
        ("sub", "system:serviceaccount:lab:other"),
        ("kubernetes.io/serviceaccount/secret.name", ""),
        ("kubernetes.io/serviceaccount/service-account.uid", ""),
        ("kubernetes.io/serviceaccount/namespace", ""),
    ] {
        let mut bad = legacy.clone();
        bad[claim] = value.into();
        let verdict = judge(&issuer().sign(&json!({"alg": "RS256"}), &bad), NOW);
        assert_eq!(verdict.map(|_| ()), Err(Refusal::Claims), "{claim}");
    }
}

#[test]
fn tampered_and_malformed_tokens() {
    let good = issuer().sign(&json!({"alg": "RS256"}), &claims());
    let [header, body, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let mut richer = claims();
    richer["kubernetes.io"]["namespace"] = "kube-system".into();
    let forged = format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(richer.to_string()));
    assert_eq!(judge(&forged, NOW).map(|_| ()), Err(Refusal::Signature));
    let bare = format!("{header}.{body}.");
    assert_eq!(judge(&bare, NOW).map(|_| ()), Err(Refusal::Signature));
    for malformed in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        &format!("{good}."),
        &format!("{good}="),
        &format!("{good}.x"),
        &good[1..],
        &format!("{body}.{body}.{signature}"),
        &format!(" {good}"),
    ] {
        assert_eq!(judge(malformed, NOW).map(|_| ()), Err(Refusal::Malformed), "{malformed}");
    }
    let twice = claims().to_string().replacen('{', &format!("{{\"iss\":\"{ISSUER}\","), 1);
    let twice = format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(twice));
    assert_eq!(judge(&twice, NOW).map(|_| ()), Err(Refusal::Malformed), "a claim said twice");
}

proptest! {
    #[test]
    fn never_panics(token in "[A-Za-z0-9_.=-]{0,80}") {
        let _ = judge(&token, NOW);
    }

    #[test]
    fn never_panics_on_signed_nonsense(header in "\\PC{0,20}", body in "\\PC{0,40}") {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let _ = judge(&format!("{}.{}.AAAA", part(&header), part(&body)), NOW);
    }

    #[test]
    fn any_times_are_judged(exp in any::<f64>(), nbf in any::<i64>(), iat in any::<f64>(), now in any::<i64>()) {
        let changes = json!({"exp": exp, "nbf": nbf, "iat": iat});
        let mut claims = claims();
        for (key, value) in changes.as_object().expect("an object") {
            claims[key] = value.clone();
        }
        let claims: Claims = serde_json::from_value(claims).expect("claims");
        let _ = claims.check_time(now);
    }
}
