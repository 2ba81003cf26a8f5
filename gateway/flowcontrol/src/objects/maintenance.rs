//! What to write so that the mandatory and suggested objects exist as they should.
//!
//! [`decide`] looks at one object, [`Pass`] goes through all of them in the maintenance loop's order:
//! suggested levels, suggested schemas, mandatory levels, mandatory schemas, then what is to be removed,
//! schemas before levels. Nothing is written here: a pass hands out one [`Write`] at a time and is told
//! how the API answered. KEP-1040, "Default Behavior"; apf-behaviour §1.36.
//!
//! An object is kept as built in while its annotation [`AUTO_UPDATE`] says so. Without one, a suggested
//! object that nobody has edited (generation 1) is kept, an edited one is left alone; mandatory objects are
//! always kept. An object that carries the annotation and is built in no more is removed.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{AUTO_UPDATE, EXEMPT, FlowSchema, ObjectMeta, PriorityLevelConfiguration, bootstrap};

/// The field manager of all these writes.
pub const FIELD_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";

/// How firmly an object is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It always exists as it is.
    Mandatory,
    /// It exists; operators may edit it.
    Suggested,
}

/// Where the spec of an updated object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecFrom {
    /// It is the built-in one.
    BuiltIn,
    /// It stays as it was.
    Existing,
}

/// What to do about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<T> {
    /// Nothing.
    Leave,
    /// Write this new object.
    Create(T),
    /// Write this in place of the existing one; it carries that one's resource version.
    Update(T, SpecFrom),
    /// Remove the existing one.
    Delete,
}

/// Either kind of object.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A flow schema.
    Schema(FlowSchema),
    /// A priority level.
    Level(PriorityLevelConfiguration),
}

/// One write to the API; all of them as [`FIELD_MANAGER`], deletions without a precondition.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// What to do.
    pub verb: Verb,
    /// With, or to, which object.
    pub object: Object,
}

/// The ways of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Create it.
    Create,
    /// Replace it.
    Update,
    /// Delete it.
    Delete,
}

/// How the API answered a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Written.
    Done,
    /// Somebody else wrote it in the meantime.
    Conflict,
    /// There is no such object.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// Anything else.
    Failed,
}

/// A kind with built-in objects.
pub trait Maintained: Clone {
    /// Its mandatory and its suggested objects.
    fn built_in(class: Class) -> Vec<Self>;
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// Its metadata.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
    /// Whether the spec is the built-in one, but for what operators may edit in it.
    fn has_spec_of(&self, built_in: &Self) -> bool;
    /// Takes over the spec.
    fn take_spec_of(&mut self, built_in: &Self);
}

/// What to do about the object of that name, given the one that exists.
pub fn decide<T: Maintained>(name: &str, existing: Option<&T>) -> Action<T> {
    for class in [Class::Mandatory, Class::Suggested] {
        if let Some(built_in) = T::built_in(class).into_iter().find(|one| one.metadata().name == name) {
            return keep(class, built_in, existing);
        }
    }
    match existing {
        Some(existing) if auto_update(existing.metadata()) == Some(true) => Action::Delete,
        _ => Action::Leave,
    }
}

/// What to do about a built-in object.
fn keep<T: Maintained>(class: Class, built_in: T, existing: Option<&T>) -> Action<T> {
    let Some(existing) = existing else { return Action::Create(built_in) };
    let annotated = auto_update(existing.metadata());
    let keep = match class {
        Class::Mandatory => true,
        Class::Suggested => annotated.unwrap_or(existing.metadata().generation == 1),
    };
    let spec_from =
        if keep && !existing.has_spec_of(&built_in) { SpecFrom::BuiltIn } else { SpecFrom::Existing };
    if annotated == Some(keep) && spec_from == SpecFrom::Existing {
        return Action::Leave;
    }
    let mut updated = existing.clone();
    if annotated != Some(keep) {
        updated.metadata_mut().annotations.insert(AUTO_UPDATE.to_string(), keep.to_string());
    }
    if spec_from == SpecFrom::BuiltIn {
        updated.take_spec_of(&built_in);
    }
    Action::Update(updated, spec_from)
}

/// What the annotation says; nothing if it is absent or no truth value in any of Go's spellings.
fn auto_update(metadata: &ObjectMeta) -> Option<bool> {
    match metadata.annotations.get(AUTO_UPDATE)?.as_str() {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// One pass of the maintenance loop.
///
/// Ask [`Pass::next`] for a write, do it, tell [`Pass::answered`], and so on until there is none.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What remains of the pass, last first.
    to_do: Vec<Step>,
    /// The write that has not been answered yet.
    asked: Option<Verb>,
    /// Whether an answer ended the pass early.
    failed: bool,
}

/// One step of a pass.
#[derive(Clone, Debug)]
enum Step {
    KeepLevel(String),
    KeepSchema(String),
    /// Remove the first that is unwanted with a name after this one.
    RemoveSchemas(String),
    RemoveLevels(String),
}

impl Default for Pass {
    fn default() -> Self {
        let mut to_do = Vec::new();
        for class in [Class::Suggested, Class::Mandatory] {
            let levels = PriorityLevelConfiguration::built_in(class);
            to_do.extend(levels.into_iter().map(|level| Step::KeepLevel(level.metadata.name)));
            let schemas = FlowSchema::built_in(class);
            to_do.extend(schemas.into_iter().map(|schema| Step::KeepSchema(schema.metadata.name)));
        }
        to_do.extend([Step::RemoveSchemas(String::new()), Step::RemoveLevels(String::new())]);
        to_do.reverse();
        Self { to_do, asked: None, failed: false }
    }
}

impl Pass {
    /// The next write, given what exists as far as the caller can see; none when the pass is over.
    ///
    /// After [`Answer::AlreadyExists`] the same object is looked at again: let the view catch up first.
    pub fn next(&mut self, schemas: &[FlowSchema], levels: &[PriorityLevelConfiguration]) -> Option<Write> {
        while !self.failed {
            let write = match self.to_do.last()? {
                Step::KeepLevel(name) => Write::of(decide(name, find(levels, name)), Object::Level),
                Step::KeepSchema(name) => Write::of(decide(name, find(schemas, name)), Object::Schema),
                Step::RemoveSchemas(after) => first_unwanted(schemas, after)
                    .map(|schema| Write { verb: Verb::Delete, object: Object::Schema(schema.clone()) }),
                Step::RemoveLevels(after) => first_unwanted(levels, after)
                    .map(|level| Write { verb: Verb::Delete, object: Object::Level(level.clone()) }),
            };
            let Some(write) = write else {
                self.to_do.pop();
                continue;
            };
            if let Some(Step::RemoveSchemas(after) | Step::RemoveLevels(after)) = self.to_do.last_mut() {
                after.clone_from(&write.object.metadata().name);
            }
            self.asked = Some(write.verb);
            return Some(write);
        }
        None
    }

    /// How the API answered the last write.
    pub fn answered(&mut self, answer: Answer) {
        match (self.asked.take(), answer) {
            // It exists after all: the step stays. A removal's step always stays, it knows where it is.
            (None, _) | (Some(Verb::Create), Answer::AlreadyExists) => {}
            (Some(Verb::Delete), Answer::Done | Answer::NotFound) => {}
            // Whoever won the conflict will be looked at in the next pass.
            (Some(_), Answer::Done) | (Some(Verb::Update), Answer::Conflict) => _ = self.to_do.pop(),
            (Some(_), _) => self.failed = true,
        }
    }

    /// Whether an answer ended the pass before its end; the next one starts from the beginning.
    pub fn failed(&self) -> bool {
        self.failed
    }
}

fn find<'a, T: Maintained>(all: &'a [T], name: &str) -> Option<&'a T> {
    all.iter().find(|one| one.metadata().name == name)
}

/// In the order of names, the first after that name which is built in no more.
fn first_unwanted<'a, T: Maintained>(all: &'a [T], after: &str) -> Option<&'a T> {
    all.iter()
        .filter(|one| one.metadata().name.as_str() > after)
        .filter(|one| matches!(decide(&one.metadata().name, Some(*one)), Action::Delete))
        .min_by(|one, other| one.metadata().name.cmp(&other.metadata().name))
}

impl Write {
    fn of<T>(action: Action<T>, wrap: fn(T) -> Object) -> Option<Self> {
        match action {
            Action::Create(object) => Some(Self { verb: Verb::Create, object: wrap(object) }),
            Action::Update(object, _) => Some(Self { verb: Verb::Update, object: wrap(object) }),
            Action::Leave | Action::Delete => None,
        }
    }
}

impl Object {
    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Schema(schema) => &schema.metadata,
            Self::Level(level) => &level.metadata,
        }
    }
}

impl Maintained for FlowSchema {
    fn built_in(class: Class) -> Vec<Self> {
        match class {
            Class::Mandatory => bootstrap::mandatory_schemas(),
            Class::Suggested => bootstrap::suggested_schemas(),
        }
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn has_spec_of(&self, built_in: &Self) -> bool {
        self.spec == built_in.spec
    }

    fn take_spec_of(&mut self, built_in: &Self) {
        self.spec.clone_from(&built_in.spec);
    }
}

impl Maintained for PriorityLevelConfiguration {
    fn built_in(class: Class) -> Vec<Self> {
        match class {
            Class::Mandatory => bootstrap::mandatory_levels(),
            Class::Suggested => bootstrap::suggested_levels(),
        }
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    /// What `exempt` lends, and its shares, are the operator's.
    fn has_spec_of(&self, built_in: &Self) -> bool {
        let mut expected = built_in.spec.clone();
        if built_in.metadata.name == EXEMPT && self.spec.exempt.is_some() {
            expected.exempt.clone_from(&self.spec.exempt);
        }
        self.spec == expected
    }

    fn take_spec_of(&mut self, built_in: &Self) {
        self.spec.clone_from(&built_in.spec);
    }
}

#[cfg(test)]
mod tests;
