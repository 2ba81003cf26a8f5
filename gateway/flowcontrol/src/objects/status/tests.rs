//! Quoting and the write limiter at their edges.

use super::*;

#[test]
fn quotes_as_go_does() {
    for (text, expected) in [
        ("plain", r#""plain""#),
        ("a\"b\\c", r#""a\"b\\c""#),
        ("\n\t\r\u{7}\u{8}\u{b}\u{c}", r#""\n\t\r\a\b\v\f""#),
        ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
        ("it's ünï 日本 🎉", "\"it's ünï 日本 🎉\""),
        ("e\u{301}\u{301}", "\"e\u{301}\u{301}\""),
        ("\u{301}", "\"\u{301}\""),
        ("\u{200b}\u{ad}\u{a0}\u{2028}\u{feff}\u{85}", r#""\u200b\u00ad\u00a0\u2028\ufeff\u0085""#),
        ("\u{e000}\u{f0000}\u{fffd}", "\"\\ue000\\U000f0000\u{fffd}\""),
    ] {
        assert_eq!(quoted(text), expected);
    }
}

#[test]
fn a_write_exactly_a_minute_old_counts() {
    let mut limiter = Limiter::default();
    for second in 0..6 {
        assert!(limiter.admit(Nanos::from_secs(second), "a"));
    }
    assert!(limiter.admit(Nanos::from_secs(6), "b"), "schemas are counted apart");
    assert!(!limiter.admit(Nanos::from_secs(60), "a"));
    assert!(limiter.admit(Nanos(60_000_000_001), "a"));
    assert!(!limiter.admit(Nanos::from_secs(61), "a"));
}

#[test]
fn a_limiter_forgets_schemas_that_are_quiet() {
    let mut limiter = Limiter::default();
    for number in 0..100 {
        limiter.admit(Nanos::from_secs(number * 30), &number.to_string());
    }
    assert!(limiter.writes.len() <= 3);
}
