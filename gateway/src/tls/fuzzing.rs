//! The record layer on bytes that a fuzzer makes up (`gateway/fuzz`): nothing but what was sealed is ever opened.

use rustls::ConnectionTrafficSecrets;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::cipher::{AeadKey, Iv};

use super::record::{self, Keys};

/// Sealed, and what it was in the clear.
type Honest = (u8, Vec<u8>);

/// One stream of records. The first byte chooses the cipher. Of what follows, each step is a byte that says what to do and
/// another that says with how much: seal a record, seal one and change a bit of it, or send bytes as they are.
///
/// # Panics
/// A record is opened that was not sealed so, or after one that was not the peer's.
pub fn record(input: &[u8]) {
    let Some((cipher, mut steps)) = input.split_first() else { return };
    let (mut sender, mut receiver) = (keys(*cipher), keys(*cipher));
    let (mut wire, mut honest) = (Vec::new(), Vec::<Honest>::new());
    let mut is_honest = true;
    while let Some(([what, length], rest)) = steps.split_first_chunk() {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        steps = rest;
        let start = wire.len();
        match what % 4 {
            0 => {
                wire.extend_from_slice(bytes);
                is_honest &= bytes.is_empty();
                continue;
            }
            _ => seal(&mut sender, *what, bytes, &mut wire),
        }
        if what % 4 == 1 && wire.len() > start + 2 {
            // TLS 1.2 does not authenticate the version of a record: leave its second half.
            let at = start + usize::from(*length) % (wire.len() - start);
            let at = if at == start + 2 { start } else { at };
            wire[at] ^= 1 << (what >> 5);
            is_honest = false;
        } else if is_honest {
            // A record of nothing but padding is none in TLS 1.3.
            honest.push((*what, bytes.to_vec()));
        }
    }
    let mut honest = honest.into_iter();
    let mut rest = &mut wire[..];
    loop {
        let missing = record::missing(rest);
        let Ok(Some(length)) = record::whole(rest) else { return };
        assert_eq!(missing, Ok(0), "a whole record lacks nothing");
        let (one, after) = rest.split_at_mut(length);
        let Ok((kind, plain)) = receiver.open(one) else { return };
        let (sealed_kind, sealed) = honest.next().expect("only what was sealed is opened");
        assert_eq!((kind, &one[plain]), (sealed_kind, &sealed[..]));
        rest = after;
    }
}

fn seal(keys: &mut Keys, kind: u8, plain: &[u8], wire: &mut Vec<u8>) {
    let start = wire.len();
    wire.resize(start + keys.sealed_len(plain.len()), 0);
    keys.seal(kind, plain, &mut wire[start..]).expect("far from the keys' limit");
}

fn keys(cipher: u8) -> Keys {
    let (key, iv) = (AeadKey::from([7; 32]), Iv::copy(&[9; 12]));
    let aes = |key, iv| ConnectionTrafficSecrets::Aes256Gcm { key, iv };
    let chacha = |key, iv| ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv };
    let (suite, secrets) = match cipher % 4 {
        0 => (TLS13_AES_256_GCM_SHA384, aes(key, iv)),
        1 => (TLS13_CHACHA20_POLY1305_SHA256, chacha(key, iv)),
        2 => (TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, aes(key, iv)),
        _ => (TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, chacha(key, iv)),
    };
    Keys::new(suite, (0, secrets)).expect("a cipher that is known here")
}
