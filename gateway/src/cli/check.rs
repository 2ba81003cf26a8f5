//! `usher check DIR`: what `usher serve --flow-control-dir DIR` would make of a folder.
//!
//! Exit codes: 0 the objects are good (there may be warnings), 1 they are not, 2 something cannot be read.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::config::objects::{Objects, Refusal, Source};

/// The objects are not valid.
const INVALID: u8 = 1;
/// The folder, or a file in it, cannot be read.
const UNREADABLE: u8 = 2;

/// What is checked, and how the answer is printed.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Folder of FlowSchemas and PriorityLevelConfigurations, YAML or JSON
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Have kube-apiserver's suggested objects where the folder does not name them
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, default_value_t = true,
        default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    pub flow_control_suggested: bool,
    /// How to print the answer
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub output: Format,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: one finding a line
    Text,
    /// For programs: one JSON object
    Json,
}

/// Checks the folder, prints what was found, and says how it ended.
pub fn run(args: &CheckArgs) -> ExitCode {
    let (answer, code) = answer(args);
    match io::stdout().lock().write_all(answer.as_bytes()) {
        Ok(()) => ExitCode::from(code),
        // Whoever reads the answer has gone away: nobody is left to tell.
        Err(_) => ExitCode::from(UNREADABLE),
    }
}

/// What to print, and the exit code.
fn answer(args: &CheckArgs) -> (String, u8) {
    let source = Source { folder: Some(args.folder.clone()), suggested: args.flow_control_suggested };
    let result = source.read();
    let code = match &result {
        Ok(_) => 0,
        Err(refusal) if refusal.unreadable => UNREADABLE,
        Err(_) => INVALID,
    };
    let answer = match args.output {
        Format::Text => for_people(&result),
        Format::Json => for_programs(&result),
    };
    (answer, code)
}

fn for_people(result: &Result<Objects, Refusal>) -> String {
    match result {
        Ok(objects) => {
            let warnings: String =
                objects.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
            let (schemas, levels) = (objects.schemas.len(), objects.levels.len());
            format!(
                "{warnings}good: {schemas} flow schemas and {levels} priority levels, built-in ones included\n"
            )
        }
        Err(refusal) => {
            let errors: String = refusal.to_string().lines().map(|line| format!("error: {line}\n")).collect();
            let count = refusal.findings.len() + refusal.unlisted;
            format!("{errors}bad: {count} {}\n", if count == 1 { "error" } else { "errors" })
        }
    }
}

fn for_programs(result: &Result<Objects, Refusal>) -> String {
    let document = match result {
        Ok(objects) => {
            let schemas: Vec<&str> =
                objects.schemas.iter().map(|schema| schema.metadata.name.as_str()).collect();
            let levels: Vec<&str> = objects.levels.iter().map(|level| level.metadata.name.as_str()).collect();
            json!({
                "valid": true,
                "errors": [],
                "warnings": objects.warnings,
                "flowSchemas": schemas,
                "priorityLevelConfigurations": levels,
            })
        }
        Err(refusal) => json!({
            "valid": false,
            "errors": refusal.findings,
            "unlistedErrors": refusal.unlisted,
            "warnings": [],
        }),
    };
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests;
