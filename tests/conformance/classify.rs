//! classify.json and flow_schema_order.json: which schema, which level, which flow, which hand.
//!
//! The objects are taken as they are, without what the gateway adds to them (C18, C19 of the
//! departures): [`Plan::compile_as_given`].

use std::collections::BTreeMap;

use serde_json::{Value, json};
use usher_flowcontrol::classify::User;
use usher_flowcontrol::flow::flow_hash;
use usher_flowcontrol::level::Mode;
use usher_flowcontrol::objects::{CATCH_ALL, EXEMPT, FlowSchema, PriorityLevelConfiguration};
use usher_flowcontrol::plan::Plan;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::shuffle::Dealer;
use usher_flowcontrol::units::FlowHash;

use crate::compare::compare;
use crate::numbers::{each_case, list, text};
use crate::{File, Outcome};

/// Runs every case of classify.json.
pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    let configs = file.document["configs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let plans: BTreeMap<&str, Result<Plan, String>> =
        configs.iter().map(|config| (config["name"].as_str().unwrap_or_default(), plan(config))).collect();
    each_case(file, |case| match plans.get(text(case, "config")?) {
        Some(plan) => classify(case, plan.as_ref().map_err(Clone::clone)?),
        None => Err("no such configuration".to_owned()),
    })
}

/// Runs every case of flow_schema_order.json.
pub(crate) fn run_order(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let schemas: Result<Vec<FlowSchema>, String> = list(case, "schemas")?.iter().map(schema).collect();
        let schemas = schemas?;
        let plan = Plan::compile(&schemas, &[]);
        let evaluation: Vec<&str> = plan.schemas().iter().map(|schema| schema.name.as_str()).collect();
        compare("evaluation", &json!(evaluation), &case["evaluation"])?;
        let is_given = |name: &&&str| schemas.iter().any(|schema| schema.metadata.name == ***name);
        let sorted: Vec<&&str> = evaluation.iter().filter(is_given).collect();
        compare("sorted", &json!(sorted), &case["sorted"])
    })
}

/// A schema of which only the place matters.
fn schema(given: &Value) -> Result<FlowSchema, String> {
    let mut schema = FlowSchema::default();
    schema.metadata.name = text(given, "name")?.to_owned();
    let precedence =
        given["matchingPrecedence"].as_i64().and_then(|precedence| i32::try_from(precedence).ok());
    schema.spec.matching_precedence = precedence.ok_or("matchingPrecedence is no 32-bit integer")?;
    let level = if schema.metadata.name == EXEMPT { EXEMPT } else { CATCH_ALL };
    schema.spec.priority_level_configuration.name = level.to_owned();
    Ok(schema)
}

fn plan(config: &Value) -> Result<Plan, String> {
    let schemas: Vec<FlowSchema> = objects(config, "flowSchemas")?;
    let levels: Vec<PriorityLevelConfiguration> = objects(config, "priorityLevelConfigurations")?;
    Ok(Plan::compile_as_given(&schemas, &levels))
}

fn objects<T: serde::de::DeserializeOwned>(config: &Value, member: &str) -> Result<Vec<T>, String> {
    let read = |object: &Value| serde_json::from_value(object.clone()).map_err(|error| error.to_string());
    list(config, member)?.iter().map(read).collect()
}

fn classify(case: &Value, plan: &Plan) -> Result<(), String> {
    let info =
        RequestInfo::parse(text(case, "method")?, text(case, "url")?).map_err(|error| error.to_string())?;
    let groups: Vec<String> =
        list(case, "groups")?.iter().filter_map(|group| group.as_str().map(str::to_owned)).collect();
    let user = User { name: text(case, "user")?, groups: &groups };
    let found = plan.classify(user, &info);
    let schema = &plan.schemas()[found.schema];
    let level = &plan.levels()[schema.level];
    let distinguisher = plan.distinguisher(found.schema, user, &info);
    let hash = distinguisher.map_or(FlowHash(0), |distinguisher| flow_hash(&schema.name, distinguisher));
    let hand = match level.mode {
        Mode::Queue { queues, hand_size, .. } => {
            let dealer = Dealer::new(queues.into(), hand_size.into()).map_err(|error| error.to_string())?;
            json!(dealer.deal(hash).cards())
        }
        Mode::Reject | Mode::Exempt => Value::Null,
    };
    let found = json!({
        "flowSchema": schema.name,
        "priorityLevel": level.name,
        "distinguisher": String::from_utf8_lossy(distinguisher.unwrap_or_default()),
        "hash": hash.0.to_string(),
        "hand": hand,
        "matched": found.matched,
    });
    compare("bypassed", &json!(info.bypasses_flow_control()), &case["bypassed"])?;
    compare("expect", &found, &case["expect"])
}
