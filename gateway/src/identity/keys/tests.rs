//! Keys in every form in which kube-apiserver takes them, and documents that hold none.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256};

use super::*;

const PUBLIC: &str = include_str!("../testdata/sa.pub");
const JWKS: &[u8] = include_bytes!("../testdata/jwks.json");

fn parse(pem: &str) -> Result<Keys, FileFault> {
    Keys::from_pem(Path::new("sa.pub"), pem.as_bytes())
}

#[test]
fn a_key_has_the_id_that_the_apiserver_gives_it() {
    let keys = parse(PUBLIC).expect("a key");
    assert_eq!(keys.0[0].id, "EzZPdYegq8nZv4D-bgUQhAdDX7x_rWynETsMbJs_quE");
    let fetched = Keys::from_jwks(JWKS).expect("two keys");
    assert_eq!(fetched.0[0], keys.0[0], "the same key from its file and from the JWKS");
    assert_eq!(fetched.0[1].kind, Kind::P521);
}

#[test]
fn public_halves_of_private_keys_and_certificates() {
    for algorithm in [&PKCS_RSA_SHA256, &PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let pair = KeyPair::generate_for(algorithm).expect("a key");
        let public = parse(&pair.public_key_pem()).expect("a public key");
        assert_eq!(parse(&pair.serialize_pem()).expect("a private key"), public);
        let params = rcgen::CertificateParams::default();
        let certificate = params.self_signed(&pair).expect("self-signed");
        assert_eq!(parse(&certificate.pem()).expect("a certificate"), public);
    }
}

#[test]
fn several_keys_and_other_blocks_in_one_file() {
    let other = KeyPair::generate().expect("a key").public_key_pem();
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let keys = parse(&format!("a comment\n{parameters}{PUBLIC}{other}")).expect("two keys");
    assert_eq!((keys.len(), keys.is_empty()), (2, false));
}

#[test]
fn files_without_a_usable_key() {
    let edwards = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    for pem in ["", "no PEM", broken, &edwards.public_key_pem(), &edwards.serialize_pem()] {
        let fault = parse(pem).expect_err("no key");
        assert!(fault.problem.contains("no usable key"), "{fault}");
    }
    assert!(parse("-----BEGIN PUBLIC KEY-----\nAAAA\n").expect_err("half").problem.contains("broken PEM"));
    let many = parse(&PUBLIC.repeat(KEYS_MAX + 1)).expect_err("too many");
    assert!(many.problem.contains("more than 64"), "{many}");
}

#[test]
fn documents_without_a_usable_key() {
    let refused = |document: &str, problem: &str| {
        let error = Keys::from_jwks(document.as_bytes()).expect_err("refused");
        assert!(error.contains(problem), "{error}");
    };
    refused("", "not a JWKS");
    refused("{}", "not a JWKS");
    refused(r#"{"keys":{}}"#, "not a JWKS");
    refused(r#"{"keys":[]}"#, "no RSA or ECDSA key");
    refused(r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#, "no RSA or ECDSA key");
    refused(r#"{"keys":[{"kty":"RSA","n":"AAAA","e":"AQAB"}]}"#, "no RSA or ECDSA key");
    refused(r#"{"keys":[{"kty":"RSA","n":"!!","e":"AQAB"},{"kty":"RSA"}]}"#, "no RSA or ECDSA key");
    refused(r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#, "no RSA or ECDSA key");
    refused(r#"{"keys":[{"kty":"EC","crv":"P-224","x":"AA","y":"AA"}]}"#, "no RSA or ECDSA key");
    let long = URL_SAFE_NO_PAD.encode([1; 67]);
    refused(
        &format!(r#"{{"keys":[{{"kty":"EC","crv":"P-521","x":"{long}","y":"AA"}}]}}"#),
        "no RSA or ECDSA key",
    );
    let many = format!(r#"{{"keys":[{}]}}"#, vec![r#"{"kty":"oct"}"#; KEYS_MAX + 1].join(","));
    refused(&many, "more than 64");
    let for_encryption = String::from_utf8_lossy(JWKS).replace(r#""use":"sig""#, r#""use":"enc""#);
    refused(&for_encryption, "no RSA or ECDSA key");
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = Keys::from_pem(Path::new("x"), &bytes);
        let _ = Keys::from_jwks(&bytes);
    }

    #[test]
    fn a_damaged_key_never_panics(at in 0usize..2000, byte in 32u8..127) {
        let mut pem = PUBLIC.as_bytes().to_vec();
        let length = pem.len();
        pem[at % length] = byte;
        let _ = Keys::from_pem(Path::new("x"), &pem);
        let mut document = JWKS.to_vec();
        let length = document.len();
        document[at % length] = byte;
        let _ = Keys::from_jwks(&document);
    }
}
