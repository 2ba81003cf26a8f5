//! The files of the folder, as bytes, within limits.
//!
//! Taken are the files whose names end in `.yaml`, `.yml` or `.json` and do not begin with a dot, in the order of
//! their names; other names and sub-folders are left alone. Symlinks are followed, so a folder mounted from a
//! ConfigMap (`flow.yaml -> ..data/flow.yaml -> ..2026_…/flow.yaml`) is read as it appears.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::{Finding, Findings, Refusal};

/// Largest file: a thousand objects with their managed fields take 5 MB.
pub(super) const FILE_SIZE_MAX: u64 = 8 << 20;
/// Most files: one for each object of a cluster far bigger than any known.
pub(super) const FILES_MAX: usize = 1000;
/// Most bytes in all: they are held in memory while they are parsed.
pub(super) const FOLDER_SIZE_MAX: usize = 32 << 20;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Its name in the folder.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Reads the folder.
pub(super) fn read(folder: &Path) -> Result<Vec<File>, Refusal> {
    let refuse = |problem: String, remedy: &str| Refusal {
        unreadable: true,
        findings: vec![Finding {
            file: Some(folder.display().to_string()),
            problem,
            remedy: remedy.into(),
            ..Finding::default()
        }],
        unlisted: 0,
    };
    let names = names(folder).map_err(|error| {
        refuse(format!("the folder cannot be read: {error}"), "give a folder that usher may list and read")
    })?;
    if names.len() > FILES_MAX {
        return Err(refuse(format!("more than {FILES_MAX} files"), "put several objects into one file"));
    }
    let (mut files, mut findings, mut size) = (Vec::new(), Findings::default(), 0_usize);
    for name in names {
        match read_file(&folder.join(&name)) {
            Ok(Some(bytes)) => {
                size += bytes.len();
                if size > FOLDER_SIZE_MAX {
                    let problem = format!("more than {FOLDER_SIZE_MAX} bytes in all");
                    return Err(refuse(problem, "leave the managed fields out (kubectl does by default)"));
                }
                files.push(File { name: name.to_string_lossy().into_owned(), bytes });
            }
            Ok(None) => {}
            Err((problem, remedy)) => findings.push(Finding {
                file: Some(name.to_string_lossy().into_owned()),
                problem,
                remedy: remedy.into(),
                ..Finding::default()
            }),
        }
    }
    findings.refuse(true)?;
    Ok(files)
}

/// The names that count, sorted.
fn names(folder: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let ending = Path::new(&name).extension().and_then(|ending| ending.to_str());
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && matches!(ending, Some("yaml" | "yml" | "json")) {
            names.push(name);
        }
        // One more than allowed is enough to refuse.
        if names.len() > FILES_MAX {
            break;
        }
    }
    names.sort();
    Ok(names)
}

/// The bytes of a regular file; nothing for a folder.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, (String, &'static str)> {
    let failed = |error: std::io::Error| (format!("cannot be read: {error}"), "make it readable for usher");
    // Opening a pipe must not wait for its other end.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?;
    if kind.is_dir() {
        return Ok(None);
    }
    if !kind.is_file() {
        return Err(("is not a regular file".into(), "give it another name, or take it away"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_SIZE_MAX {
        return Err((format!("is larger than {FILE_SIZE_MAX} bytes"), "split it"));
    }
    Ok(Some(bytes))
}
