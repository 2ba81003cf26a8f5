//! Folders good and bad.

use std::fs;

use tempfile::TempDir;
use usher_flowcontrol::objects::{CATCH_ALL, EXEMPT, bootstrap};

use super::*;

mod every_error;
mod following;
mod hostile;

/// A folder of these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, content) in files {
        fs::write(folder.path().join(name), content).expect("a file in it");
    }
    folder
}

/// What becomes of a folder of these files.
fn read(files: &[(&str, &str)]) -> Result<Objects, Refusal> {
    let folder = folder(files);
    Source { folder: Some(folder.path().into()), suggested: true }.read()
}

/// The findings that a folder of these files is refused with.
fn refused(files: &[(&str, &str)]) -> Vec<String> {
    match read(files) {
        Ok(objects) => panic!("accepted: {objects:?}"),
        Err(refusal) => refusal.findings.iter().map(ToString::to_string).collect(),
    }
}

const SCHEMA: &str = "\
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: mine, uid: 6d0c2f0e-0000-4000-8000-000000000001}
spec:
  priorityLevelConfiguration: {name: my-level}
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: User, user: {name: alice}}]
    resourceRules: [{verbs: ['*'], apiGroups: [''], resources: [pods], namespaces: ['*']}]
";

const LEVEL: &str = "\
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: my-level, uid: 6d0c2f0e-0000-4000-8000-000000000002}
spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {}}}}
";

fn schema<'a>(objects: &'a Objects, name: &str) -> &'a FlowSchema {
    objects.schemas.iter().find(|schema| schema.metadata.name == name).expect(name)
}

fn level<'a>(objects: &'a Objects, name: &str) -> &'a PriorityLevelConfiguration {
    objects.levels.iter().find(|level| level.metadata.name == name).expect(name)
}

#[test]
fn without_a_folder_there_are_the_built_in_objects() {
    let all = Source { folder: None, suggested: true }.read().expect("built-in objects");
    assert_eq!((all.schemas.len(), all.levels.len(), all.warnings.len()), (11, 8, 0));
    let few = Source { folder: None, suggested: false }.read().expect("built-in objects");
    let names: Vec<&str> = few.schemas.iter().map(|schema| schema.metadata.name.as_str()).collect();
    assert_eq!(names, [CATCH_ALL, EXEMPT]);
    assert_eq!(few.levels.len(), 2);
}

#[test]
fn objects_are_filled_in_and_keep_their_uids() {
    let objects = read(&[("a.yaml", SCHEMA), ("b.yml", LEVEL)]).expect("good");
    assert_eq!(objects.warnings, []);
    let schema = schema(&objects, "mine");
    assert_eq!(schema.metadata.uid, "6d0c2f0e-0000-4000-8000-000000000001");
    assert_eq!(schema.spec.matching_precedence, 1000);
    let limited = level(&objects, "my-level").spec.limited.clone().expect("limited");
    assert_eq!(limited.nominal_concurrency_shares, Some(30));
    assert_eq!(limited.limit_response.queuing.map(|queuing| queuing.queues), Some(64));
    assert_eq!((objects.schemas.len(), objects.levels.len()), (12, 9));
}

#[test]
fn json_lists_and_several_documents_are_read() {
    let documents = format!("# two\n---\n{SCHEMA}---\n---\n{LEVEL}...\n");
    let objects = read(&[("all.yaml", &documents)]).expect("good");
    assert_eq!((objects.schemas.len(), objects.levels.len()), (12, 9));

    let value = |text| serde_saphyr::from_str::<serde_json::Value>(text).expect("YAML");
    let list = json(&serde_json::json!({
        "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""},
        "items": [value(SCHEMA), value(LEVEL)],
    }));
    assert_eq!(read(&[("list.json", &list)]).expect("good"), objects);

    // The API itself leaves kind and version out of the items of a typed list.
    let mut bare = value(LEVEL);
    bare.as_object_mut().expect("an object").retain(|name, _| name != "kind" && name != "apiVersion");
    let typed = json(&serde_json::json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfigurationList",
        "items": [bare],
    }));
    assert_eq!(read(&[("levels.json", &typed), ("s.yaml", SCHEMA)]).expect("good"), objects);
    let schemas = "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchemaList, items: null}";
    assert_eq!(read(&[("none.yaml", schemas)]).expect("good").schemas.len(), 11);
}

fn json(value: &serde_json::Value) -> String {
    value.to_string()
}

#[test]
fn what_kubectl_prints_is_taken_as_it_is() {
    let printed = r#"apiVersion: v1
items:
- apiVersion: flowcontrol.apiserver.k8s.io/v1
  kind: FlowSchema
  metadata:
    annotations:
      apf.kubernetes.io/autoupdate-spec: "true"
    creationTimestamp: "2026-03-04T05:06:07Z"
    generation: 1
    managedFields:
    - apiVersion: flowcontrol.apiserver.k8s.io/v1
      fieldsType: FieldsV1
      fieldsV1:
        f:status:
          f:conditions:
            k:{"type":"Dangling"}:
              .: {}
              f:lastTransitionTime: {}
      manager: api-priority-and-fairness-config-consumer-v1
      operation: Apply
      subresource: status
      time: "2026-03-04T05:06:07Z"
    name: exempt
    resourceVersion: "56"
    uid: 0e5b4a32-65c7-4a26-a9a5-6d2ff3c8a7c1
  spec:
    matchingPrecedence: 1
    priorityLevelConfiguration:
      name: exempt
    rules:
    - nonResourceRules:
      - nonResourceURLs:
        - '*'
        verbs:
        - '*'
      resourceRules:
      - apiGroups:
        - '*'
        clusterScope: true
        namespaces:
        - '*'
        resources:
        - '*'
        verbs:
        - '*'
      subjects:
      - group:
          name: system:masters
        kind: Group
  status:
    conditions:
    - lastTransitionTime: "2026-03-04T05:06:07Z"
      message: This FlowSchema references the PriorityLevelConfiguration object named "exempt" and it exists
      reason: Found
      status: "False"
      type: Dangling
kind: List
metadata:
  resourceVersion: ""
"#;
    let objects = read(&[("printed.yaml", printed)]).expect("good");
    assert_eq!(objects.warnings, []);
    assert_eq!(objects.schemas.len(), 11);
    assert_eq!(schema(&objects, EXEMPT).metadata.uid, "0e5b4a32-65c7-4a26-a9a5-6d2ff3c8a7c1");
}

#[test]
fn an_object_takes_the_place_of_the_built_in_one() {
    let edited = LEVEL.replace("name: my-level", "name: workload-low");
    let objects = read(&[("a.yaml", &edited)]).expect("good");
    assert_eq!(objects.levels.len(), 8);
    assert_eq!(level(&objects, "workload-low").metadata.uid, "6d0c2f0e-0000-4000-8000-000000000002");

    let lends = "\
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: exempt}
spec: {type: Exempt, exempt: {nominalConcurrencyShares: 10, lendablePercent: 50}}
";
    let objects = read(&[("exempt.yaml", lends)]).expect("good");
    let exempt = level(&objects, EXEMPT).spec.exempt.clone().expect("exempt");
    assert_eq!((exempt.nominal_concurrency_shares, exempt.lendable_percent), (Some(10), Some(50)));
}

/// parity: C18
#[test]
fn an_exempt_level_without_its_struct_gets_one() {
    let bare = "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, \
                metadata: {name: exempt, uid: u}, spec: {type: Exempt}}";
    let objects = read(&[("exempt.yaml", bare)]).expect("good");
    assert_eq!(level(&objects, EXEMPT).spec, bootstrap::mandatory_levels()[1].spec);
    assert_eq!(level(&objects, EXEMPT).metadata.uid, "u");
}

#[test]
fn oddities_are_warnings() {
    let warnings = |files: &[(&str, &str)]| -> Vec<String> {
        read(files).expect("good").warnings.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        warnings(&[("a.yaml", SCHEMA)]),
        [
            "a.yaml, document 1, FlowSchema \"mine\": spec.priorityLevelConfiguration.name: Dangling: there is no \
          PriorityLevelConfiguration \"my-level\", so this schema matches nothing; add that level, or refer to \
          another"
        ]
    );
    let misspelt = LEVEL.replace("queuing: {}", "queuing: {handsize: 4}, typ: 1");
    let fields: Vec<Option<String>> =
        read(&[("a.yaml", &misspelt)]).expect("good").warnings.into_iter().map(|one| one.field).collect();
    assert_eq!(
        fields,
        [
            Some("spec.limited.limitResponse.queuing.handsize".into()),
            Some("spec.limited.limitResponse.typ".into())
        ]
    );
    let kept = "annotations: {apf.kubernetes.io/autoupdate-spec: 'true'}, name:";
    let retired = LEVEL.replace("name:", kept);
    assert!(warnings(&[("a.yaml", &retired)])[0].contains("would delete it"));
    let edited = retired.replace("my-level", "system");
    assert!(warnings(&[("a.yaml", &edited)])[0].contains("would restore its built-in spec"));
    let dangling = "there is no PriorityLevelConfiguration \"workload-low\"";
    let schema = SCHEMA.replace("my-level", "workload-low");
    assert_eq!(warnings(&[("a.yaml", &schema)]), Vec::<String>::new());
    let folder = folder(&[("a.yaml", &schema)]);
    let few = Source { folder: Some(folder.path().into()), suggested: false }.read().expect("good");
    assert!(few.warnings[0].problem.contains(dangling), "{:?}", few.warnings);
}

#[test]
fn duplicates_name_both_places() {
    let twice = format!("{LEVEL}---\n{LEVEL}");
    assert_eq!(
        refused(&[("a.yaml", &twice), ("b.yaml", SCHEMA), ("c.yaml", SCHEMA)]),
        [
            "a.yaml, document 2, PriorityLevelConfiguration \"my-level\": metadata.name: Duplicate value: is also \
             in a.yaml, document 1; rename one of the two, or take it away",
            "c.yaml, document 1, FlowSchema \"mine\": metadata.name: Duplicate value: is also in b.yaml, document 1; \
             rename one of the two, or take it away",
        ]
    );
}

#[test]
fn other_files_are_left_alone() {
    let folder = folder(&[
        (".hidden.yaml", "nonsense: ["),
        ("README.md", "# not an object"),
        ("backup.yaml~", "nonsense: ["),
        ("a.yaml", SCHEMA),
    ]);
    fs::create_dir(folder.path().join("sub.yaml")).expect("a sub-folder");
    let objects = Source { folder: Some(folder.path().into()), suggested: true }.read().expect("good");
    assert_eq!(objects.schemas.len(), 12);
}

#[test]
fn what_cannot_be_read_says_so() {
    let missing = Source { folder: Some("/nonexistent/folder".into()), suggested: true }.read();
    assert!(missing.is_err_and(|refusal| refusal.unreadable
        && refusal.to_string().starts_with("/nonexistent/folder: the folder cannot be read")));

    let folder = folder(&[]);
    std::os::unix::fs::symlink("nowhere", folder.path().join("gone.yaml")).expect("a symlink");
    let _socket =
        std::os::unix::net::UnixListener::bind(folder.path().join("socket.json")).expect("a socket");
    let refusal = Source { folder: Some(folder.path().into()), suggested: true }.read().expect_err("refused");
    assert!(refusal.unreadable);
    let files: Vec<_> = refusal.findings.iter().map(|finding| finding.file.as_deref()).collect();
    assert_eq!(files, [Some("gone.yaml"), Some("socket.json")]);
}

#[test]
fn a_pipe_does_not_block() {
    let folder = folder(&[]);
    let pipe = folder.path().join("pipe.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let refusal = Source { folder: Some(folder.path().into()), suggested: true }.read().expect_err("refused");
    assert!(refusal.to_string().contains("is not a regular file"), "{refusal}");
}
