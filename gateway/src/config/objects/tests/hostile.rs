//! Files that mean harm: none makes the reader panic, hang or grow without bound.

use proptest::prelude::*;

use super::*;
use crate::config::objects::folder::{FILE_SIZE_MAX, FILES_MAX, File};

/// What becomes of one file of these bytes.
fn check(name: &str, bytes: &[u8]) -> Result<Objects, Refusal> {
    let file = File { name: name.into(), bytes: bytes.into() };
    Source { folder: None, suggested: true }.check(&[file])
}

fn problem(name: &str, bytes: &[u8]) -> String {
    check(name, bytes).expect_err("refused").findings.swap_remove(0).problem
}

#[test]
fn a_billion_laughs_are_not_laughed() {
    let mut bomb = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let references = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{references}]\n");
    }
    assert!(problem("a.yaml", bomb.as_bytes()).contains("is not YAML that usher takes"));
}

#[test]
fn depth_documents_and_aliases_are_bounded() {
    for bomb in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "--- a\n".repeat(10_000),
        (0..5000).map(|number| format!("a{number}: &b{number} x\n")).collect(),
        format!("a: &a x\nb: [{}]\n", "*a, ".repeat(5000)),
    ] {
        assert!(problem("a.yaml", bomb.as_bytes()).contains("is not YAML"), "{}", &bomb[..20]);
    }
    assert!(problem("a.json", "[".repeat(100_000).as_bytes()).contains("is not JSON"));
    assert!(problem("a.json", "1 ".repeat(10_000).as_bytes()).contains("documents"));
    assert!(problem("a.yaml", b"\xff\xfe\x00").contains("is not UTF-8"));
}

#[test]
fn findings_are_bounded() {
    let many = "kind: Pod\n---\n".repeat(1000);
    let refusal = check("a.yaml", many.as_bytes()).expect_err("refused");
    assert_eq!((refusal.findings.len(), refusal.unlisted), (100, 900));
    assert!(refusal.to_string().ends_with("and 900 more"));
    let unknown: String = (0..1000).map(|number| format!("x{number}: 1\n")).collect();
    let warnings = check("a.yaml", format!("{LEVEL}{unknown}").as_bytes()).expect("good").warnings;
    assert_eq!(warnings.len(), 100);
}

#[test]
fn sizes_are_bounded() {
    let folder = folder(&[]);
    let big = fs::File::create(folder.path().join("big.yaml")).expect("a file");
    big.set_len(FILE_SIZE_MAX + 1).expect("a big file");
    let source = Source { folder: Some(folder.path().into()), suggested: true };
    let refusal = source.read().expect_err("refused");
    assert!(refusal.unreadable && refusal.to_string().contains("is larger than 8388608 bytes"), "{refusal}");
    fs::remove_file(folder.path().join("big.yaml")).expect("removed");

    for number in 0..=FILES_MAX {
        fs::write(folder.path().join(format!("{number}.yaml")), "").expect("a file");
    }
    let refusal = source.read().expect_err("refused");
    assert!(refusal.unreadable && refusal.to_string().contains("more than 1000 files"), "{refusal}");
}

#[test]
fn objects_are_bounded() {
    let level = |number| LEVEL.replace("my-level", &format!("l{number}"));
    let levels: Vec<String> = (0..2001).map(level).collect();
    assert!(problem("a.yaml", levels.join("---\n").as_bytes()).contains("more than 2000 objects"));
}

/// Text that is nearly an object: words of the format in any order.
fn nearly_an_object() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "apiVersion: flowcontrol.apiserver.k8s.io/v1\n",
        "kind: FlowSchema\n",
        "kind: PriorityLevelConfiguration\n",
        "kind: List\n",
        "items:\n",
        "metadata: {name: x}\n",
        "spec:\n",
        "  limited: {}\n",
        "  type: Limited\n",
        "  rules:\n",
        "  - subjects: [{kind: User}]\n",
        "    resourceRules: [{}]\n",
        "---\n",
        "null\n",
        "&a ",
        "*a ",
        "<<: *a\n",
        "- ",
        "  ",
        "{",
        "}",
        "[",
        "]",
        ": ",
        "\"",
        "'",
        "|\n",
        ">-\n",
        "!!binary ",
        "\t",
        "0x1F",
        "1e999",
        ".inf\n",
        "\u{0}",
        "é",
        "\"kind\":\"FlowSchema\",",
        "\"spec\":{",
        "\"rules\":[null,{}],",
        "#",
        "? ",
        "...\n",
        "%YAML 1.1\n",
        "2147483648\n",
    ]);
    prop::collection::vec(words, 0..40).prop_map(|words| words.concat())
}

fn whatever_comes_is_sound(name: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    match check(name, bytes) {
        Ok(objects) => {
            let names: Vec<&str> = objects.levels.iter().map(|level| level.metadata.name.as_str()).collect();
            prop_assert!(names.contains(&EXEMPT) && names.contains(&CATCH_ALL));
            prop_assert!(names.is_sorted());
        }
        Err(refusal) => {
            prop_assert!(!refusal.findings.is_empty());
            prop_assert!(
                refusal.findings.iter().all(|one| !one.problem.is_empty() && !one.remedy.is_empty())
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        whatever_comes_is_sound("a.yaml", &bytes)?;
        whatever_comes_is_sound("a.json", &bytes)?;
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        whatever_comes_is_sound("a.yaml", text.as_bytes())?;
        whatever_comes_is_sound("a.json", text.as_bytes())?;
    }

    #[test]
    fn near_objects_never_panic(text in nearly_an_object()) {
        whatever_comes_is_sound("a.yaml", text.as_bytes())?;
        whatever_comes_is_sound("a.json", text.as_bytes())?;
    }

    /// An object with one byte changed, anywhere.
    #[test]
    fn damaged_objects_never_panic(at in 0..SCHEMA.len(), byte: u8) {
        let mut bytes = format!("{SCHEMA}---\n{LEVEL}").into_bytes();
        bytes[at] = byte;
        whatever_comes_is_sound("a.yaml", &bytes)?;
    }
}

#[test]
fn aliases_do_not_multiply_text() {
    let long = "x".repeat(1 << 20);
    let many = "*a, ".repeat(900);
    let refusal = problem("a.yaml", format!("a: &a {long}\nb: [{many}]\n").as_bytes());
    assert!(refusal.contains("is not YAML"), "{}", refusal.len());
}

#[test]
fn findings_quote_little_and_safely() {
    let name = format!("\\e[2J{}", "x".repeat(1 << 20));
    let object = SCHEMA.replace("name: mine", &format!("name: \"{name}\""));
    let refusal = check("a\u{1b}.yaml", object.as_bytes()).expect_err("refused");
    let text = refusal.to_string();
    assert!(text.len() < 5000 && !text.chars().any(|letter| letter.is_control() && letter != '\n'), "{text}");
    let warnings = check("a.yaml", format!("{LEVEL}\"\\e[2J\\n\": 1\n").as_bytes()).expect("good").warnings;
    assert_eq!(warnings[0].to_string().lines().count(), 1);
    assert!(!warnings[0].to_string().contains('\u{1b}'));
}
