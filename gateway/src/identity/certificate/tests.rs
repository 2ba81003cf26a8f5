//! Chains and subjects. What kube-apiserver v1.36.2 answers to the same certificates was looked at.

use rcgen::{CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, date_time_ymd};
use rustls_pki_types::pem::PemObject as _;

use super::*;
use crate::tls::testing::{Authority, client};

const NOW: i64 = 1_800_000_000; // 2027-01-15
const DAY: i64 = 86_400;

fn at(year: i32) -> i64 {
    date_time_ymd(year, 1, 1).unix_timestamp()
}

fn trust(authorities: &[&Authority]) -> Trust {
    let pem: String = authorities.iter().map(|authority| authority.pem.as_str()).collect();
    Trust::parse(Path::new("ca.crt"), pem.as_bytes()).expect("a bundle")
}

fn signed(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = client("alice", &["dev"]);
    change(&mut params);
    authority.sign(&params).der
}

#[test]
fn a_good_chain_is_good_until_its_first_certificate_ends() {
    let authority = Authority::new("clients");
    let leaf = signed(&authority, |params| {
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2028, 1, 1);
    });
    let window = trust(&[&Authority::new("others"), &authority]).vouches(&[leaf], NOW).expect("vouched for");
    assert_eq!(window, Window { from: at(2026), until: at(2028) });
    assert!(window.holds(NOW) && !window.holds(at(2028) + 1) && !window.holds(at(2026) - 1));
}

#[test]
fn an_intermediate_is_used_and_counts() {
    let root = Authority::new("root");
    let middle = root.intermediate("middle", |params| params.not_after = date_time_ymd(2027, 6, 1));
    let leaf = signed(&middle, |params| params.not_after = date_time_ymd(2028, 1, 1));
    let trust = trust(&[&root]);
    let window = trust.vouches(&[leaf.clone(), middle.der.clone()], NOW).expect("vouched for");
    assert_eq!(window.until, date_time_ymd(2027, 6, 1).unix_timestamp());
    assert!(trust.vouches(std::slice::from_ref(&leaf), NOW).is_err(), "without the intermediate");
    assert!(trust.vouches(&[leaf, middle.der], at(2028) - DAY).is_err(), "the intermediate has ended");
}

#[test]
fn chains_that_nobody_vouches_for() {
    let authority = Authority::new("clients");
    let bundle = trust(&[&authority]);
    let refused = |leaf: CertificateDer<'static>, why: &str| {
        assert!(bundle.vouches(&[leaf], NOW).is_err(), "{why}");
    };
    refused(signed(&authority, |params| params.not_after = date_time_ymd(2020, 1, 1)), "expired");
    refused(signed(&authority, |params| params.not_before = date_time_ymd(2030, 1, 1)), "not yet valid");
    refused(signed(&Authority::new("strangers"), |_| ()), "unknown authority");
    refused(signed(&Authority::new("clients"), |_| ()), "an authority of the same name with another key");
    let servers = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    refused(signed(&authority, servers), "for servers only");
    refused(CertificateDer::from(vec![0x30, 0]), "no certificate");
    assert!(bundle.vouches(&[], NOW).is_err());
    assert!(bundle.vouches(&[signed(&authority, |_| ())], -1).is_err());
}

fn is_ca(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
}

#[test]
fn a_ca_may_be_a_client_if_an_authority_signed_it_itself() {
    let authority = Authority::new("clients");
    let bundle = trust(&[&Authority::new("clients"), &authority]);
    let vouched = |leaf: CertificateDer<'static>| bundle.vouches(&[leaf], NOW);
    assert!(vouched(signed(&authority, is_ca)).is_ok());
    assert!(vouched(authority.der.clone()).is_ok(), "in the bundle itself");
    let refused = |change: fn(&mut CertificateParams)| {
        let leaf = signed(&authority, |params| {
            is_ca(params);
            change(params);
        });
        assert!(vouched(leaf).is_err());
    };
    refused(|params| params.not_after = date_time_ymd(2020, 1, 1));
    refused(|params| params.not_before = date_time_ymd(2030, 1, 1));
    refused(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    refused(|params| {
        let mut unknown = rcgen::CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0]);
        unknown.set_criticality(true);
        params.custom_extensions.push(unknown);
    });
    assert!(vouched(signed(&Authority::new("strangers"), is_ca)).is_err());
    assert!(vouched(signed(&Authority::new("clients"), is_ca)).is_err(), "the same name, another key");
    let middle = authority.intermediate("middle", |_| ());
    assert!(vouched(signed(&middle, is_ca)).is_err(), "a longer path is not looked for");
    let ended = Authority::with("clients", |params| params.not_after = date_time_ymd(2026, 1, 1));
    let leaf = signed(&ended, is_ca);
    assert!(trust(&[&ended]).vouches(&[leaf], NOW).is_err(), "its authority has ended");
    let signs_nothing = Authority::with("clients", |params| {
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    });
    let leaf = signed(&signs_nothing, is_ca);
    assert!(trust(&[&signs_nothing]).vouches(&[leaf], NOW).is_err());
}

#[test]
fn version_1_certificates_are_read() {
    let authority = Authority::new("clients");
    let leaf = authority.version_1(&client("alice", &["dev"]));
    let alice = user(&leaf.der).expect("well-formed").expect("a user");
    assert_eq!((alice.name.as_str(), alice.groups), ("alice", vec!["dev".to_owned()]));
    let window = trust(&[&authority]).vouches(std::slice::from_ref(&leaf.der), NOW).expect("vouched for");
    assert!(window.holds(NOW));
    let strangers = trust(&[&Authority::new("clients")]);
    assert!(strangers.vouches(&[leaf.der], NOW).is_err());
    let mut late = client("alice", &[]);
    late.not_after = date_time_ymd(2020, 1, 1);
    assert!(trust(&[&authority]).vouches(&[authority.version_1(&late).der], NOW).is_err());
}

#[test]
fn usages_that_include_clients() {
    let authority = Authority::new("clients");
    let bundle = trust(&[&authority]);
    let both = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    for usages in [vec![], vec![ExtendedKeyUsagePurpose::Any], both] {
        let leaf = signed(&authority, |params| params.extended_key_usages = usages.clone());
        assert!(bundle.vouches(&[leaf], NOW).is_ok(), "{usages:?}");
    }
}

#[test]
fn an_authority_that_has_ended_vouches_for_nobody() {
    let old = Authority::with("clients", |params| params.not_after = date_time_ymd(2026, 1, 1));
    let leaf = signed(&old, |_| ());
    assert!(trust(&[&old]).vouches(std::slice::from_ref(&leaf), NOW).is_err());
    assert!(trust(&[&old]).vouches(std::slice::from_ref(&leaf), at(2025)).is_ok());
    let renewed = old.renewed(|params| params.not_after = date_time_ymd(2030, 1, 1));
    let window = trust(&[&old, &renewed]).vouches(&[leaf], NOW).expect("by the renewed certificate");
    assert_eq!(window.until, at(2030));
}

fn who(change: impl FnOnce(&mut CertificateParams)) -> Result<Option<Identity>, String> {
    user(&signed(&Authority::new("clients"), change))
}

#[test]
fn the_subject_names_the_user() {
    let leaf = Authority::new("clients").client("alice", &["zebra", "dev"]).der;
    let alice = user(&leaf).expect("well-formed").expect("a user");
    assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", ""));
    assert_eq!(alice.groups, ["zebra", "dev"], "in the order of the certificate");
    let [(key, values)] = &alice.extra[..] else { panic!("one extra") };
    assert_eq!(key, CREDENTIAL_ID);
    let hash = aws_lc_rs::digest::digest(&digest::SHA256, &leaf);
    assert_eq!(values.len(), 1);
    assert_eq!(
        values[0],
        format!("X509SHA256={}", hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    );
}

#[test]
fn the_last_common_name_counts_and_without_one_it_is_nobody() {
    let second =
        who(|params| params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), "second"));
    assert_eq!(second.expect("well-formed").expect("a user").name, "second");
    let nobody = who(|params| params.distinguished_name = rcgen::DistinguishedName::new());
    assert_eq!(nobody, Ok(None));
}

#[test]
fn a_uid_must_be_one_and_not_empty() {
    let oid = || DnType::from_oid(&[1, 3, 6, 1, 4, 1, 57683, 2]);
    let uid = who(|params| params.distinguished_name.push(oid(), "uid-1"));
    assert_eq!(uid.expect("well-formed").expect("a user").uid, "uid-1");
    assert!(who(|params| params.distinguished_name.push(oid(), "")).is_err());
    let two =
        CertificateDer::from_pem_slice(include_bytes!("../testdata/two-uids.crt")).expect("a certificate");
    assert_eq!(user(&two), Err("more than one UID".into()));
    assert_eq!(common_name(&two), Ok("twouid".into()));
}

#[test]
fn strings_of_every_kind_are_read_as_go_reads_them() {
    let named = |value: DnValue| {
        who(|params| params.distinguished_name.push(DnType::CommonName, value))
            .map(|user| user.map(|user| user.name))
    };
    assert_eq!(named(DnValue::Utf8String("jürgen".into())), Ok(Some("jürgen".into())));
    assert_eq!(named(DnValue::PrintableString("a b".try_into().expect("printable"))), Ok(Some("a b".into())));
    assert_eq!(named(DnValue::Ia5String("a@b".try_into().expect("ascii"))), Ok(Some("a@b".into())));
    let bmp = rcgen::string::BmpString::try_from("größe").expect("in the plane");
    assert_eq!(named(DnValue::BmpString(bmp)), Ok(Some("größe".into())));
    let universal = rcgen::string::UniversalString::try_from("a").expect("a string");
    assert!(named(DnValue::UniversalString(universal)).is_err(), "Go does not know these");
}

#[test]
fn malformed_strings_are_refused() {
    let read = |tag: Tag, bytes: &[u8]| text(&Any::from_tag_and_data(tag, bytes));
    assert_eq!(read(Tag::Utf8String, b"\xff"), None);
    assert_eq!(read(Tag::PrintableString, b"a@b"), None);
    assert_eq!(read(Tag::PrintableString, b"a*&b"), Some("a*&b".into()));
    assert_eq!(read(Tag::Ia5String, b"\xe9"), None);
    assert_eq!(read(Tag::NumericString, b"1 2"), Some("1 2".into()));
    assert_eq!(read(Tag::NumericString, b"1a"), None);
    assert_eq!(read(Tag::T61String, b"\xe9"), Some("é".into()));
    assert_eq!(read(Tag::BmpString, b"\0a\0\0"), Some("a".into()), "a terminator is dropped");
    for bad in [&b"\0"[..], b"\xd8\0", b"\xff\xff", b"\xfd\xd0"] {
        assert_eq!(read(Tag::BmpString, bad), None, "{bad:?}");
    }
}

proptest::proptest! {
    #[test]
    fn a_damaged_certificate_never_panics(at in 0usize..400, bits in 1u8..=255) {
        thread_local!(static LEAF: (Trust, Vec<u8>) = {
            let authority = Authority::new("clients");
            (trust(&[&authority]), authority.client("alice", &["dev"]).der.to_vec())
        });
        LEAF.with(|(trust, good)| {
            let mut bytes = good.clone();
            let at = at % bytes.len();
            bytes[at] ^= bits;
            let leaf = CertificateDer::from(bytes);
            proptest::prop_assert!(trust.vouches(std::slice::from_ref(&leaf), NOW).is_err());
            let _ = (user(&leaf), common_name(&leaf));
            Ok(())
        })?;
    }
}
