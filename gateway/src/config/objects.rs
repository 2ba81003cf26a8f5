//! The flow-control objects that an operator wrote: a folder of YAML or JSON, read, checked, and followed.
//!
//! The folder holds FlowSchemas and PriorityLevelConfigurations as kubectl prints them (`kubectl get
//! flowschemas,prioritylevelconfigurations -o yaml`): one object a document or lists of them, UIDs and managed
//! fields included. They pass through steps, each with its own file: `folder` (bytes within limits), `documents`
//! (YAML and JSON), `decode` (one object each), `check` (filled in, validated, completed by the built-in
//! objects). What comes out, [`Objects`], is good as a whole; otherwise there is a [`Refusal`] that lists all that
//! is wrong, each with its place, its field and what to do. [`Followed`] does it again when the folder changes.
//!
//! As in kube-apiserver the mandatory objects always exist, the suggested ones unless they are switched off,
//! and an object in the folder takes the place of the built-in one of its name.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde::Serialize;
use usher_flowcontrol::objects::{FlowSchema, PriorityLevelConfiguration};

mod check;
mod decode;
mod documents;
mod folder;
mod follow;

pub use follow::{FOLDER_POLL, Followed, watch};

/// Findings listed of each sort; a file that a program wrote wrongly repeats one mistake many times.
const FINDINGS_MAX: usize = 100;
/// Characters of each text in a finding: it may quote the file, and must still be read by someone.
const TEXT_MAX: usize = 1000;

/// Where the objects come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The folder (`--flow-control-dir`); without one there are the built-in objects only.
    pub folder: Option<PathBuf>,
    /// Whether the suggested objects exist (`--flow-control-suggested`).
    pub suggested: bool,
}

/// A whole set of objects: valid, filled in, the mandatory ones among them, each list sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// The flow schemas.
    pub schemas: Vec<FlowSchema>,
    /// The priority levels.
    pub levels: Vec<PriorityLevelConfiguration>,
    /// What an operator should look at all the same.
    pub warnings: Vec<Finding>,
}

/// Why a folder was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whether something could not even be read.
    pub unreadable: bool,
    /// What is wrong, in the order of files and documents; at least one.
    pub findings: Vec<Finding>,
    /// How many more there are than are listed.
    pub unlisted: usize,
}

/// One thing that is wrong, or odd: where, what, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// File name in the folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Which of the file's documents, from 1; empty ones are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<usize>,
    /// Which item, from 1, if the document is a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<usize>,
    /// Kind and name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Path of the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl Source {
    /// Reads and checks everything. Blocks on file I/O: not for workers.
    ///
    /// # Errors
    /// All that is wrong with the folder, if anything is.
    pub fn read(&self) -> Result<Objects, Refusal> {
        let files = match &self.folder {
            Some(folder) => folder::read(folder)?,
            None => Vec::new(),
        };
        self.check(&files)
    }

    /// Checks files that have been read.
    fn check(&self, files: &[folder::File]) -> Result<Objects, Refusal> {
        let mut findings = Findings::default();
        let mut found = Vec::new();
        for document in documents::of(files, &mut findings) {
            found.extend(decode::objects(document, &mut findings));
        }
        check::complete(found, self.suggested, findings)
    }
}

/// Findings as they come: the first [`FINDINGS_MAX`], each cut to a bounded length; the rest is counted.
#[derive(Debug, Default)]
struct Findings {
    listed: Vec<Finding>,
    unlisted: usize,
}

impl Findings {
    fn push(&mut self, finding: Finding) {
        if self.listed.len() < FINDINGS_MAX {
            self.listed.push(finding.cut());
        } else {
            self.unlisted += 1;
        }
    }

    fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }

    /// Refuses if there is anything.
    fn refuse(self, unreadable: bool) -> Result<(), Refusal> {
        let Self { listed: findings, unlisted } = self;
        if findings.is_empty() { Ok(()) } else { Err(Refusal { unreadable, findings, unlisted }) }
    }
}

impl Finding {
    fn cut(self) -> Self {
        Self {
            file: self.file.map(cut),
            object: self.object.map(cut),
            field: self.field.map(cut),
            problem: cut(self.problem),
            ..self
        }
    }
}

/// The text, or its beginning and an ellipsis.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(to, "{separator}{finding}")?;
        }
        if self.unlisted > 0 {
            write!(to, "\nand {} more", self.unlisted)?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    /// One line; control characters, which names in a file may hold, are escaped.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbered = |what: &str, number: Option<usize>| number.map(|number| format!("{what} {number}"));
        let place = [
            self.file.clone(),
            numbered("document", self.document),
            numbered("item", self.item),
            self.object.clone(),
        ];
        let place: Vec<String> = place.into_iter().flatten().collect();
        let place = Some(place.join(", ")).filter(|place| !place.is_empty());
        let what = format!("{}; {}", self.problem, self.remedy);
        let line: Vec<String> = [place, self.field.clone(), Some(what)].into_iter().flatten().collect();
        for letter in line.join(": ").chars() {
            if letter.is_control() {
                write!(to, "{}", letter.escape_default())?;
            } else {
                to.write_char(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
