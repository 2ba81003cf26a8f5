//! Durations at their edges, words of errors, time that has run out.
use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

#[test]
fn durations_are_gos() {
    let nanos =
        |text: &str| parse_duration(text.as_bytes()).map(|nanos| nanos.0).map_err(|error| error.to_string());
    for (text, expected) in [
        ("0", 0),
        ("-0", 0),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1h2m3s4ms5us6ns", 3_723_004_005_006),
        ("1\u{b5}s1\u{3bc}s", 2_000),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("0.100000000000000000000h", 360_000_000_000),
        ("0.9223372036854775807h", 3_320_413_933_267),
        ("9223372036854775807ns", i64::MAX),
        ("-9223372036854775808ns", i64::MIN),
        ("9223372036854775808ns9223372036854775808ns", 0),
    ] {
        assert_eq!(nanos(text), Ok(expected), "{text}");
    }
    let said =
        |what: &str| Err(alloc::format!("invalid timeout specified in the request URL - time: {what}"));
    for (text, expected) in [
        ("", "invalid duration \"\""),
        ("-", "invalid duration \"-\""),
        (".s", "invalid duration \".s\""),
        ("10", "missing unit in duration \"10\""),
        ("1.5", "missing unit in duration \"1.5\""),
        ("1d", "unknown unit \"d\" in duration \"1d\""),
        ("1 s", "unknown unit \" s\" in duration \"1 s\""),
        ("\"\\\u{e9}", "invalid duration \"\\\"\\\\\\xc3\\xa9\""),
        ("9223372036854775808ns", "invalid duration \"9223372036854775808ns\""),
        ("9223372036854775809ns", "invalid duration \"9223372036854775809ns\""),
        ("3000000h", "invalid duration \"3000000h\""),
    ] {
        assert_eq!(nanos(text), said(expected), "{text}");
    }
}

#[test]
fn what_is_over_does_not_wait() {
    let execution = Execution { deadline: Some(Nanos(100)), cancelled: false };
    assert_eq!(execution.wait_deadline(Nanos(99), Nanos(0), Nanos(7)), Some(Nanos(25)));
    assert_eq!(execution.wait_deadline(Nanos(100), Nanos(0), Nanos(7)), Some(Nanos(100)));
    let gone = Execution { deadline: None, cancelled: true };
    assert_eq!(gone.wait_deadline(Nanos(1), Nanos(0), Nanos(7)), None);
}

proptest! {
    #[test]
    fn durations_never_panic(text in "[-+]?[0-9.a-z\u{b5}]{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = parse_duration(text.as_bytes());
        let _ = parse_duration(&bytes);
    }

    #[test]
    fn whole_numbers_are_exact(value in 0_i64..9_000_000_000_000_000) {
        prop_assert_eq!(parse_duration(alloc::format!("{value}us").as_bytes()), Ok(Nanos(value * 1_000)));
    }

    #[test]
    fn nobody_waits_past_a_deadline(deadline in 1_i64..i64::MAX / 2, now in 0_i64..i64::MAX / 2, default in 0_i64..i64::MAX / 2) {
        let execution = Execution { deadline: Some(Nanos(deadline)), cancelled: false };
        let until = execution.wait_deadline(Nanos(now), Nanos(0), Nanos(default)).expect("there is a deadline");
        prop_assert!(until <= Nanos(deadline));
        prop_assert!(until <= Nanos(60_000_000_000) || now >= deadline);
    }
}
