//! The schemas of a controller, each with the counts of its requests at its level.
//!
//! A schema that points to another level than before is another schema here: what is under way goes on
//! counting where it began.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{LevelId, SchemaId};
use crate::meters::SchemaMeters;

/// Schemas that are configured no more but whose counts are kept. Who renames schemas all the time shall
/// not fill the memory. parity: kube-apiserver keeps the counts of all, and of levels, until it restarts.
const FORMER_MAX: usize = 256;

/// The schemas, by [`SchemaId`].
#[derive(Debug, Default)]
pub(super) struct Schemas {
    slots: Vec<Schema>,
    /// By index in the plan.
    of_plan: Vec<SchemaId>,
}

/// A schema at a level.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) uid: Arc<str>,
    pub(super) level: LevelId,
    /// Configuration that brought it, or the slot its present owner.
    pub(super) since: u64,
    pub(super) meters: SchemaMeters,
    configured: bool,
}

// === impl Schemas ===

impl Schemas {
    /// The schema at an index of the plan in force.
    pub(super) fn of_plan(&self, index: usize) -> SchemaId {
        self.of_plan[index]
    }

    pub(super) fn get(&self, id: SchemaId) -> &Schema {
        &self.slots[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: SchemaId) -> &mut Schema {
        &mut self.slots[id.0 as usize]
    }

    pub(super) fn find(&self, id: SchemaId) -> Option<&Schema> {
        self.slots.get(id.0 as usize)
    }

    pub(super) fn find_mut(&mut self, id: SchemaId) -> Option<&mut Schema> {
        self.slots.get_mut(id.0 as usize)
    }

    /// Those that ever had a request, sorted by level, then schema. A level that was gone in between counts on.
    pub(super) fn met(&self) -> Vec<SchemaMeters> {
        let mut met = BTreeMap::<_, SchemaMeters>::new();
        for meters in self.slots.iter().map(|schema| &schema.meters).filter(|meters| meters.was_met()) {
            let sum = met.entry((&meters.level, &meters.schema));
            sum.and_modify(|sum| sum.add(meters)).or_insert_with(|| meters.clone());
        }
        met.into_values().collect()
    }

    /// From now on exactly these are configured, in the order of the plan: name, UID, level, its name.
    pub(super) fn configure<'a>(
        &mut self,
        generation: u64,
        schemas: impl Iterator<Item = (&'a str, &'a str, LevelId, Arc<str>)>,
    ) {
        self.slots.iter_mut().for_each(|schema| schema.configured = false);
        self.of_plan.clear();
        for (name, uid, level, level_name) in schemas {
            let id = self.slot(generation, name, level, level_name);
            let schema = self.get_mut(id);
            schema.uid = uid.into();
            schema.configured = true;
            self.of_plan.push(id);
        }
    }

    /// The slot of a schema at a level: its own, a former one's that is not needed any more, or a new one.
    fn slot(&mut self, generation: u64, name: &str, level: LevelId, level_name: Arc<str>) -> SchemaId {
        let own = |schema: &Schema| {
            *schema.meters.schema == *name && schema.meters.level == level_name && schema.level == level
        };
        let place = self.slots.iter().position(own).unwrap_or_else(|| {
            let schema = Schema {
                uid: "".into(),
                level,
                since: generation,
                meters: SchemaMeters::new(level_name, name.into()),
                configured: true,
            };
            let former = |schema: &Schema| !schema.configured && schema.meters.is_idle();
            let many = self.slots.iter().filter(|schema| former(schema)).count() > FORMER_MAX;
            match self.slots.iter().position(former).filter(|_| many) {
                Some(place) => {
                    self.slots[place] = schema;
                    place
                }
                None => {
                    self.slots.push(schema);
                    self.slots.len() - 1
                }
            }
        });
        SchemaId(u32::try_from(place).expect("memory ends before four billion schemas"))
    }
}
