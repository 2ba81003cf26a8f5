//! From bytes to documents: YAML with several of them a file, or JSON.
//!
//! YAML becomes the JSON it stands for, as in kubectl, and everything after this file sees JSON only. Hostile
//! YAML is stopped by a budget while it is parsed: depth, nodes, aliases. parity: where YAML's versions differ
//! (`yes`, `0755`, `1_000`) the word is taken as text, so that another sort of field refuses it instead of
//! guessing.

use serde_json::Value;

use super::folder::{FILE_SIZE_MAX, File};
use super::{Finding, Findings};

/// How deep documents may nest: an object is 8 deep, its managed fields 12.
const DEPTH_MAX: usize = 64;
/// Nodes in a file: 8 MB of short words.
const NODES_MAX: usize = 1_000_000;
/// Documents in a file.
const DOCUMENTS_MAX: usize = 5000;
/// Anchors and aliases in a file: kubectl writes none, people a few.
const ALIASES_MAX: usize = 1000;
/// What all aliases together may stand for: the classic attack writes a little and means a lot.
const ALIASED_NODES_MAX: usize = 100_000;
/// Bytes of text in a file, what aliases repeat included.
#[expect(clippy::cast_possible_truncation, reason = "8 MB fit")]
const TEXT_SIZE_MAX: usize = 2 * FILE_SIZE_MAX as usize;

/// A document and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// File name in the folder.
    pub file: String,
    /// Which of the file's documents, from 1.
    pub number: usize,
    /// What it holds.
    pub value: Value,
}

/// All documents of all files; what cannot be parsed becomes a finding.
pub(super) fn of(files: &[File], findings: &mut Findings) -> Vec<Document> {
    let mut documents = Vec::new();
    for file in files {
        match parse(file) {
            Ok(values) => documents.extend(values.into_iter().enumerate().map(|(index, value)| Document {
                file: file.name.clone(),
                number: index + 1,
                value,
            })),
            Err(problem) => findings.push(Finding {
                file: Some(file.name.clone()),
                problem,
                remedy: "write objects as kubectl get -o yaml (or -o json) prints them".into(),
                ..Finding::default()
            }),
        }
    }
    documents
}

fn parse(file: &File) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(&file.bytes).map_err(|error| format!("is not UTF-8 text: {error}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if file.name.ends_with(".json") {
        let documents = serde_json::Deserializer::from_str(text).into_iter().take(DOCUMENTS_MAX + 1);
        let documents: Vec<Value> =
            documents.collect::<Result<_, _>>().map_err(|error| format!("is not JSON: {error}"))?;
        if documents.len() > DOCUMENTS_MAX {
            return Err(format!("has more than {DOCUMENTS_MAX} documents"));
        }
        return Ok(documents.into_iter().filter(|document| !document.is_null()).collect());
    }
    serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|error| format!("is not YAML that usher takes: {}", one_line(&error.to_string())))
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_events: 2 * NODES_MAX,
            max_documents: DOCUMENTS_MAX,
            max_total_scalar_bytes: TEXT_SIZE_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_recorded_anchor_events: ALIASED_NODES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIASED_NODES_MAX,
        },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    }
}

/// Parsers like to explain over several lines; a finding is one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
