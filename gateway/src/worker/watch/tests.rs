use super::*;

/// Where events end in what is passed in pieces, counted from the beginning of each piece.
fn borders(framing: &mut Framing, pieces: &[&[u8]]) -> Vec<(Option<usize>, bool)> {
    pieces.iter().map(|piece| (framing.pass(piece), framing.is_between_events())).collect()
}

#[test]
fn lines_end_events() {
    let mut lines = Framing::Lines { begun: false };
    assert!(lines.is_between_events());
    let pieces: [&[u8]; 4] = [b"{\"a\":", b"1}\n{", b"", b"}\n"];
    let expected = [(None, false), (Some(3), false), (None, false), (Some(2), true)];
    assert_eq!(borders(&mut lines, &pieces), expected);
}

#[test]
fn lengths_end_events_wherever_they_are_cut() {
    let fresh = || Framing::Lengths { header: [0; 4], header_got: 0, body_missing: 0 };
    let stream = [0, 0, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 0, 0, 1, b'c'];
    for cut in 0..=stream.len() {
        let (mut framing, (first, second)) = (fresh(), stream.split_at(cut));
        let seen = borders(&mut framing, &[first, second]);
        let complete = [6, 10, 15].into_iter().rev().find(|end| *end <= cut);
        assert_eq!(seen[0], (complete, cut == 0 || complete == Some(cut)), "cut at {cut}");
        assert!(seen[1].1, "complete, cut at {cut}");
    }
}

#[test]
fn the_mark_is_found_wherever_it_is_cut() {
    let stream = b"xk8s.io/initial-k8s.io/initial-events-end\":\"true\"";
    let end = stream.len() - b"\":\"true\"".len();
    for cut in 0..stream.len() {
        let info = RequestInfo::parse("GET", "/api/v1/pods?watch=1&sendInitialEvents=true").unwrap();
        let beginning = Beginning::new(&info, None);
        assert!(beginning.says);
        let (first, second) = stream.split_at(cut);
        assert_eq!(beginning.is_marked(first), cut >= end, "before {cut}");
        if cut < end {
            assert!(beginning.is_marked(second), "after {cut}");
        }
    }
}
