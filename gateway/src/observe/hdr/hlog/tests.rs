use super::*;
use crate::observe::hdr::recorder::empty;

fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
    let mut histogram = empty(Metric::Wait);
    values.into_iter().for_each(|value| histogram.saturating_record(value));
    histogram
}

fn log(tag: &str, start: Duration, values: std::ops::Range<u64>) -> String {
    let histogram = histogram(values);
    let mut text = header(start);
    put_line(&mut text, tag, start, Duration::from_secs(10), histogram.max(), &encode(&histogram));
    text
}

const START: Duration = Duration::from_millis(1_763_735_400_250);

#[test]
fn what_is_written_is_read() {
    let text = log("wait/workload-low/executed", START, 0..5_000_000);
    let log = read(text.as_bytes()).unwrap();
    assert_eq!((log.lines.len(), log.torn), (1, None));
    let line = &log.lines[0];
    assert_eq!(line.tag, "wait/workload-low/executed");
    assert_eq!((line.start, line.length), (START, Duration::from_secs(10)));
    assert_eq!(line.histogram, histogram(0..5_000_000));
    assert!(
        text.contains("\nTag=wait/workload-low/executed,1763735400.250,10.000,5."),
        "ms for people: {text}"
    );
}

#[test]
fn seats_are_not_written_as_milliseconds() {
    let text = log("seats/a/executed", START, 7..8);
    assert!(text.contains(",10.000,7.000,"), "{text}");
}

#[test]
fn a_torn_last_line_is_left_out_and_reported_wherever_it_was_torn() {
    let whole = log("wait/a/executed", START, 0..1000);
    let head = whole.lines().count();
    let line = whole.lines().last().unwrap();
    for cut in 1..line.len() {
        let text = format!("{whole}{}", &line[..cut]);
        let log = read(text.as_bytes()).unwrap();
        assert_eq!((log.lines.len(), log.torn), (1, Some(head + 1)), "cut at {cut}");
    }
    let unended = format!("{whole}{line}");
    assert_eq!(
        read(unended.as_bytes()).unwrap().lines.len(),
        2,
        "nothing is missing but the end of the line"
    );
}

#[test]
fn a_damaged_line_is_named() {
    let good = log("", START, 0..10);
    assert_eq!(good.lines().count(), 5, "so that the bad line is the sixth");
    for (bad, why) in [
        ("Tag=a\n", "line 6: nothing follows its tag"),
        ("1.0,2.0\n", "line 6: wanted START,LENGTH,MAX,HISTOGRAM, got 2 fields"),
        ("x,1.0,1.0,HISTFAAA\n", "line 6: \"x\" is no number of seconds"),
        ("-5000000000.0,1.0,1.0,HISTFAAA\n", "line 6: "),
        ("1.0,1.0,1.0,HIST!\n", "line 6: the histogram is not base64"),
        ("1.0,1.0,1.0,HISTFAAA\n", "line 6: the histogram is not whole"),
        ("1.0,1.0,1.0,AAAAAAAAAAAA\n", "line 6: the histogram is not in the V2 encoding"),
    ] {
        let text = format!("{good}{bad}{good}");
        let fault = read(text.as_bytes()).unwrap_err();
        assert!(fault.to_string().starts_with(why), "{fault}");
    }
}

#[test]
fn times_are_taken_as_the_java_reader_takes_them() {
    let encoded = encode(&histogram(0..3));
    let starts = |head: &str, start: &str| {
        let text = format!("{head}{start},1.0,1.0,{encoded}\n");
        read(text.as_bytes()).unwrap().lines[0].start.as_secs_f64()
    };
    let is = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-3, "{got}, not {wanted}");
    is(starts("", "17.5"), 17.5);
    is(starts("#[BaseTime: 1763735400.000 (seconds since epoch)]\n", "17.5"), 1_763_735_417.5);
    is(starts("#[StartTime: 1763735400.000 (seconds since epoch), Fri]\n", "17.5"), 1_763_735_417.5);
    is(starts("#[StartTime: 1763735400.000 (seconds since epoch), Fri]\n", "1763735417.5"), 1_763_735_417.5);
}

#[test]
fn histograms_that_are_not_deflated_are_read_too() {
    let (mut bytes, expected) = (Vec::new(), histogram(5..500));
    hdrhistogram::serialization::V2Serializer::new().serialize(&expected, &mut bytes).unwrap();
    let text = format!("1.0,1.0,1.0,{}\r\n", STANDARD.encode(bytes));
    assert_eq!(read(text.as_bytes()).unwrap().lines[0].histogram, expected);
}

proptest::proptest! {
    /// Whatever a disk makes of a histogram, reading it ends in a histogram or in a sentence.
    #[test]
    fn damaged_histograms_are_refused_and_no_more(changes in proptest::collection::vec((0_usize..600, 0_u8..), 1..6)) {
        use std::io::Write as _;
        let mut bytes = Vec::new();
        hdrhistogram::serialization::V2Serializer::new().serialize(&histogram(0..3000), &mut bytes).unwrap();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let _ = decode(&STANDARD.encode(&bytes));
        let mut deflated = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        deflated.write_all(&bytes).unwrap();
        let deflated = deflated.finish().unwrap();
        let length = u32::try_from(deflated.len()).unwrap();
        let whole = [&DEFLATED.to_be_bytes(), &length.to_be_bytes(), &*deflated].concat();
        let _ = decode(&STANDARD.encode(whole));
    }
}
