//! Passes under every answer.

use super::*;

/// Runs a pass over a store that answers as told and takes the writes that succeed.
fn run(
    schemas: &mut Vec<FlowSchema>,
    levels: &mut Vec<PriorityLevelConfiguration>,
    answer: impl Fn(&Write) -> Answer,
) -> (Vec<(Verb, String)>, bool) {
    let mut pass = Pass::default();
    let mut writes = Vec::new();
    while let Some(write) = pass.next(schemas, levels) {
        assert!(writes.len() < 100, "a pass ends");
        writes.push((write.verb, write.object.metadata().name.clone()));
        let answer = answer(&write);
        pass.answered(answer);
        if answer == Answer::Done {
            match write.object {
                Object::Schema(schema) => store(schemas, write.verb, schema),
                Object::Level(level) => store(levels, write.verb, level),
            }
        }
    }
    (writes, pass.failed())
}

fn store<T: Maintained>(all: &mut Vec<T>, verb: Verb, object: T) {
    all.retain(|one| one.metadata().name != object.metadata().name);
    if verb != Verb::Delete {
        all.push(object);
    }
}

#[test]
fn a_second_pass_finds_nothing_to_do() {
    let (mut schemas, mut levels) = (Vec::new(), Vec::new());
    let (writes, failed) = run(&mut schemas, &mut levels, |_| Answer::Done);
    assert_eq!((writes.len(), failed), (19, false));
    assert_eq!(run(&mut schemas, &mut levels, |_| Answer::Done), (Vec::new(), false));
}

#[test]
fn objects_that_are_built_in_no_more_go_in_the_order_of_names() {
    let (mut schemas, mut levels) = (Vec::new(), Vec::new());
    run(&mut schemas, &mut levels, |_| Answer::Done);
    for name in ["zebra", "ant"] {
        let mut schema = schemas[0].clone();
        schema.metadata.name = name.into();
        schemas.push(schema);
        let mut level = levels[0].clone();
        level.metadata.name = name.into();
        levels.push(level);
    }
    let (writes, failed) = run(&mut schemas, &mut levels, |_| Answer::NotFound);
    let names: Vec<&str> = writes.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!((names, failed), (["ant", "zebra", "ant", "zebra"].into(), false));
}

#[test]
fn every_refusal_but_the_expected_ones_ends_the_pass() {
    for answer in [Answer::Conflict, Answer::NotFound, Answer::Failed] {
        let (writes, failed) = run(&mut Vec::new(), &mut Vec::new(), |_| answer);
        assert_eq!((writes.len(), failed), (1, true), "create, {answer:?}");
    }
    let conflicting = |answer| {
        let mut levels = bootstrap::suggested_levels();
        levels[0].spec.kind = "Exempt".into();
        let mut pass = Pass::default();
        let write = pass.next(&[], &levels);
        assert_eq!(write.map(|write| write.verb), Some(Verb::Update));
        pass.answered(answer);
        pass.failed()
    };
    assert!(!conflicting(Answer::Conflict));
    assert!(conflicting(Answer::NotFound));
}

#[test]
fn an_object_that_appears_meanwhile_is_looked_at_again() {
    let mut pass = Pass::default();
    assert!(pass.next(&[], &[]).is_some());
    pass.answered(Answer::AlreadyExists);
    let mut level = bootstrap::suggested_levels().swap_remove(0);
    level.metadata.annotations.clear();
    let write = pass.next(&[], &[level.clone()]).map(|write| (write.verb, write.object));
    level.metadata.annotations.insert(AUTO_UPDATE.into(), "false".into());
    assert_eq!(write, Some((Verb::Update, Object::Level(level))));
}
