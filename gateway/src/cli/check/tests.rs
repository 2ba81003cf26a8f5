//! Answers and exit codes.

use std::path::Path;

use super::*;

const LEVEL: &str = "\
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: mine}
spec: {type: Limited, limited: {limitResponse: {type: Reject}}}
";

fn ask(folder: &Path, output: Format) -> (String, u8) {
    answer(&CheckArgs { folder: folder.into(), flow_control_suggested: true, output })
}

#[test]
fn a_good_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.yaml"), format!("{LEVEL}extra: 1\n")).expect("a file");
    assert_eq!(
        ask(folder.path(), Format::Text),
        (
            "warning: a.yaml, document 1, PriorityLevelConfiguration \"mine\": extra: is no field of this kind and was \
             ignored; check its spelling and its place\n\
             good: 11 flow schemas and 9 priority levels, built-in ones included\n"
                .into(),
            0
        )
    );
    let (answer, code) = ask(folder.path(), Format::Json);
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["valid"], code), (&json!(true), 0));
    assert_eq!(answer["warnings"][0]["field"], "extra");
    assert_eq!(answer["priorityLevelConfigurations"].as_array().map(Vec::len), Some(9));
}

#[test]
fn a_bad_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.yaml"), LEVEL.replace("Reject", "Drop")).expect("a file");
    assert_eq!(
        ask(folder.path(), Format::Text),
        (
            "error: a.yaml, document 1, PriorityLevelConfiguration \"mine\": spec.limited.limitResponse.type: \
             Unsupported value: \"Drop\": supported values: \"Queue\", \"Reject\"; use one of the supported values\n\
             bad: 1 error\n"
                .into(),
            1
        )
    );
    let (answer, code) = ask(folder.path(), Format::Json);
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["valid"], code), (&json!(false), 1));
    assert_eq!(
        answer["errors"][0],
        json!({
            "file": "a.yaml", "document": 1, "object": "PriorityLevelConfiguration \"mine\"",
            "field": "spec.limited.limitResponse.type",
            "problem": "Unsupported value: \"Drop\": supported values: \"Queue\", \"Reject\"",
            "remedy": "use one of the supported values",
        })
    );
}

#[test]
fn no_folder() {
    let (answer, code) = ask(Path::new("/nonexistent"), Format::Text);
    assert_eq!(code, 2);
    assert!(answer.starts_with("error: /nonexistent: the folder cannot be read"), "{answer}");
}
