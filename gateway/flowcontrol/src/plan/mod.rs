//! Objects compiled into what workers see: schemas in the order in which they are tried, usable levels.
//!
//! A plan is made whole from FlowSchemas and PriorityLevelConfigurations and never changed. Equal objects
//! make equal plans, in whatever order they come: levels are sorted by name, schemas by precedence and
//! name. Nothing here looks at an older plan; who applies a plan compares.
//!
//! KEP-1040, "Request Categorization" and "Default Behavior"; apf-behaviour 1.5 and 1.20. Objects are
//! validated before they get here; what kube-apiserver would not use is not used here either, and said so.

mod levels;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

pub use levels::{Level, Unusable};

use crate::classify::{Digest, Mismatch, Rules, User};
use crate::flow::{self, Method};
use crate::objects::bootstrap::{mandatory_levels, mandatory_schemas};
use crate::objects::{CATCH_ALL, EXEMPT, FlowSchema, PriorityLevelConfiguration};
use crate::request_info::RequestInfo;

/// What a configuration means.
#[derive(Clone, Debug)]
pub struct Plan {
    schemas: Vec<Schema>,
    levels: Vec<Level>,
    dangling: Vec<Dangling>,
    unusable: Vec<(String, Unusable)>,
    /// Index of the schema `catch-all`.
    catch_all: usize,
}

/// A schema that takes part in matching.
#[derive(Clone, Debug)]
pub struct Schema {
    /// Name of the object.
    pub name: String,
    /// UID of the object; empty for one that is built in.
    pub uid: String,
    /// Lower ones are tried first; the built-in ones stand first and last whatever theirs is.
    pub precedence: i32,
    /// Index of its level in [`Plan::levels`].
    pub level: usize,
    /// What tells its flows apart.
    pub distinguisher: Option<Method>,
    rules: Rules,
}

/// A schema whose level is absent or unusable: requests are matched as if it did not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dangling {
    /// The schema.
    pub schema: String,
    /// What it points to.
    pub level: String,
}

/// Where matching ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of the schema in [`Plan::schemas`].
    pub schema: usize,
    /// `false` if none matched; then the schema is the one named `catch-all`.
    pub matched: bool,
}

// === impl Plan ===

impl Plan {
    /// Compiles objects. Of several with the same name the first in sorted order counts.
    ///
    /// parity: what is mandatory is there before references are looked at (C19), and `exempt` may lack
    /// the member that only says what it lends (C18). kube-apiserver lets schemas that point to
    /// `exempt` or `catch-all` dangle while there is no such object, although it has the levels.
    #[must_use]
    pub fn compile(schemas: &[FlowSchema], levels: &[PriorityLevelConfiguration]) -> Self {
        let levels: Vec<_> = levels.iter().map(levels::with_exempt_member).collect();
        let (given, unusable) = levels::compile(&levels);
        let levels = levels::with_mandatory(given);
        Self::build(schemas, levels.clone(), levels, unusable)
    }

    /// Compiles objects exactly as kube-apiserver does when these are all there ever were.
    #[must_use]
    pub fn compile_as_given(schemas: &[FlowSchema], levels: &[PriorityLevelConfiguration]) -> Self {
        let (given, unusable) = levels::compile(levels);
        Self::build(schemas, levels::with_mandatory(given.clone()), given, unusable)
    }

    /// Schemas that point to none of `good` dangle.
    fn build(
        schemas: &[FlowSchema],
        levels: Vec<Level>,
        good: Vec<Level>,
        unusable: Vec<(String, Unusable)>,
    ) -> Self {
        let is_good = |schema: &&FlowSchema| levels::find(&good, target(schema)).is_some();
        let (mut accepted, dangling): (Vec<_>, Vec<_>) = schemas.iter().partition(is_good);
        accepted.sort_by_key(|schema| order(schema));
        let mut names = BTreeSet::new();
        accepted.retain(|schema| names.insert(schema.metadata.name.as_str()));
        let built_in = mandatory_schemas();
        let missing = |name: &str| {
            let built_in = built_in.iter().find(|schema| schema.metadata.name == name);
            built_in.filter(|_| !names.contains(name))
        };
        let (first, last) = (missing(EXEMPT), missing(CATCH_ALL));
        let in_order = first.into_iter().chain(accepted.iter().copied()).chain(last);
        let schemas: Vec<Schema> = in_order.filter_map(|schema| Schema::compile(schema, &levels)).collect();
        let catch_all = schemas.iter().position(|schema| schema.name == CATCH_ALL).unwrap_or_default();
        let mut dangling: Vec<Dangling> = dangling.into_iter().map(Dangling::of).collect();
        dangling.sort_by(|one, other| one.schema.cmp(&other.schema));
        Self { schemas, levels, dangling, unusable, catch_all }
    }

    /// The schemas that are tried, in order.
    #[must_use]
    pub fn schemas(&self) -> &[Schema] {
        &self.schemas
    }

    /// The levels, sorted by name; the mandatory ones are among them.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The schemas that are not tried, sorted by name.
    #[must_use]
    pub fn dangling(&self) -> &[Dangling] {
        &self.dangling
    }

    /// The level objects that count as absent, sorted by name, and why.
    #[must_use]
    pub fn unusable(&self) -> &[(String, Unusable)] {
        &self.unusable
    }

    /// The first schema that matches, else `catch-all`.
    #[must_use]
    pub fn classify(&self, user: User<'_>, info: &RequestInfo<'_>) -> Match {
        self.classify_among(0..self.schemas.len(), user, info)
    }

    /// The same, if no other schema concerns the user: some of [`Self::schemas`], in order.
    pub(crate) fn classify_among(
        &self,
        mut among: impl Iterator<Item = usize>,
        user: User<'_>,
        info: &RequestInfo<'_>,
    ) -> Match {
        let digest = Digest::of(info);
        let found = among.find(|&index| self.schemas[index].rules.check(user, &digest).is_ok());
        Match { schema: found.unwrap_or(self.catch_all), matched: found.is_some() }
    }

    /// The schemas that concern a user, whatever it asks for, in order.
    pub(crate) fn concerning(&self, user: User<'_>) -> impl Iterator<Item = usize> {
        let concerns = move |(index, schema): (usize, &Schema)| schema.rules.concern(user).then_some(index);
        self.schemas.iter().enumerate().filter_map(concerns)
    }

    /// Why schemas did not match, in order, up to the one that did.
    pub fn mismatches(
        &self,
        user: User<'_>,
        info: &RequestInfo<'_>,
    ) -> impl Iterator<Item = (&Schema, Mismatch)> {
        let digest = Digest::of(info);
        let check = move |schema: &Schema| schema.rules.check(user, &digest).err();
        self.schemas.iter().map_while(move |schema| Some((schema, check(schema)?)))
    }

    /// What tells the flow of a request from others of its schema; `None` where flows are not told
    /// apart, because the level has no more than one queue: there the flow hash is 0. As long as schema
    /// and distinguisher stay the same, so does the hash.
    #[must_use]
    pub fn distinguisher<'a>(
        &self,
        schema: usize,
        user: User<'a>,
        info: &'a RequestInfo<'_>,
    ) -> Option<&'a [u8]> {
        let schema = &self.schemas[schema];
        self.levels[schema.level]
            .tells_flows_apart
            .then(|| flow::distinguisher(schema.distinguisher, user.name, info.namespace()))
    }
}

fn target(schema: &FlowSchema) -> &str {
    &schema.spec.priority_level_configuration.name
}

/// By precedence, then by name in byte order.
fn order(schema: &FlowSchema) -> (i32, &str) {
    (schema.spec.matching_precedence, &schema.metadata.name)
}

// === impl Schema ===

impl Schema {
    /// `None` if its level is not among these.
    fn compile(schema: &FlowSchema, levels: &[Level]) -> Option<Self> {
        let method = schema.spec.distinguisher_method.as_ref();
        Some(Self {
            name: schema.metadata.name.clone(),
            uid: schema.metadata.uid.clone(),
            precedence: schema.spec.matching_precedence,
            level: levels::find(levels, target(schema))?,
            distinguisher: method.and_then(|method| Method::parse(&method.kind)),
            rules: Rules::compile(&schema.spec.rules),
        })
    }
}

impl Dangling {
    fn of(schema: &FlowSchema) -> Self {
        Self { schema: schema.metadata.name.clone(), level: target(schema).into() }
    }
}

#[cfg(test)]
mod tests;
