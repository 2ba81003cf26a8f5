//! Flags by other means: the environment and the file.
//!
//! Both are turned into the arguments that the operator could have written, so that there is one reader for
//! every value. Each value is tried by itself first, to tell where a bad one was written.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::{OptionsError, nearest};

/// Largest options file that is read: no real one comes near, and a device or a log given by mistake does.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A flag and the values that a source gives it.
#[derive(Debug)]
pub(super) struct Given {
    flag: String,
    values: Vec<String>,
}

/// What the environment says: `USHER_` and the flag in upper snake case. Lists are split at commas.
///
/// Other variables that begin with `USHER_` are left alone: Kubernetes sets such ones for a Service
/// called `usher`.
pub(super) fn environment(
    flags: &Command,
    variables: &[(OsString, OsString)],
) -> Result<Vec<Given>, OptionsError> {
    let mut all = Vec::new();
    for arg in flags.get_arguments().filter(|arg| takes_value(arg)) {
        let Some(flag) = arg.get_long() else { continue };
        let variable = variable(flag);
        let Some((_, text)) = variables.iter().find(|(name, _)| *name == *variable) else { continue };
        let Some(text) = text.to_str() else {
            return Err(OptionsError::Value { place: variable, problem: "it is not UTF-8".into() });
        };
        let values = if repeats(arg) {
            text.split(',').map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned).collect()
        } else {
            vec![text.to_owned()]
        };
        try_values(arg, &values, || variable.clone())?;
        all.push(Given { flag: flag.to_owned(), values });
    }
    Ok(all)
}

/// What the file says.
pub(super) fn file(flags: &Command, path: &Path) -> Result<Vec<Given>, OptionsError> {
    let fault = |problem: String| OptionsError::File { path: path.to_owned(), problem };
    let size = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(fault(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    let entries = if text.trim().is_empty() {
        Vec::new()
    } else {
        let entries: Entries =
            serde_saphyr::from_str(&text).map_err(|error| fault(error.without_snippet().to_string()))?;
        entries.0
    };
    let mut all = Vec::new();
    for Entry { key, line, values } in entries {
        let place = format!("{}:{line}", path.display());
        let arg = find(flags, &key).ok_or_else(|| unknown(flags, &place, &key))?;
        if values.len() > 1 && !repeats(arg) {
            let problem = "wanted one value, not a list".into();
            return Err(OptionsError::Value { place: format!("{place}: {key}"), problem });
        }
        try_values(arg, &values, || format!("{place}: {key}"))?;
        all.push(Given { flag: key, values });
    }
    Ok(all)
}

/// The arguments that stand for what a source gives and nobody before it (`earlier`) has given.
pub(super) fn arguments(source: &[Given], earlier: &[&ArgMatches]) -> Vec<OsString> {
    let silent = |flag: &str| {
        let id = flag.replace('-', "_");
        earlier.iter().all(|matches| matches.value_source(&id) != Some(ValueSource::CommandLine))
    };
    source
        .iter()
        .filter(|given| silent(&given.flag))
        .flat_map(|given| given.values.iter().map(|value| format!("--{}={value}", given.flag).into()))
        .collect()
}

/// `request-timeout` → `USHER_REQUEST_TIMEOUT`.
pub(super) fn variable(flag: &str) -> String {
    format!("USHER_{}", flag.replace('-', "_").to_uppercase())
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn repeats(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// A flag that the file may set: all but the one that names the file.
fn find<'a>(flags: &'a Command, key: &str) -> Option<&'a Arg> {
    flags.get_arguments().find(|arg| arg.get_long() == Some(key) && takes_value(arg) && key != "config")
}

fn unknown(flags: &Command, place: &str, key: &str) -> OptionsError {
    let known = flags.get_arguments().filter_map(Arg::get_long).filter(|name| *name != "config");
    let hint = match nearest(key, known) {
        Some(name) => format!("; did you mean {name}?"),
        None => "; usher serve --help lists all".to_owned(),
    };
    OptionsError::UnknownKey { place: place.to_owned(), key: key.to_owned(), hint }
}

/// Has the flag itself judge the values.
fn try_values(arg: &Arg, values: &[String], place: impl Fn() -> String) -> Result<(), OptionsError> {
    let Some(flag) = arg.get_long() else { return Ok(()) };
    let judge = Command::new("usher").no_binary_name(true).disable_help_flag(true).arg(arg.clone());
    let arguments = values.iter().map(|value| format!("--{flag}={value}"));
    judge.try_get_matches_from(arguments).map(drop).map_err(|error| {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let problem = text.split("\n\nFor more").next().unwrap_or(text).trim().to_owned();
        OptionsError::Value { place: place(), problem }
    })
}

/// The file's mapping, in its order.
struct Entries(Vec<Entry>);

struct Entry {
    key: String,
    line: u64,
    values: Vec<String>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Entries;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("flags and their values, one `flag: value` a line")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    let line = key.referenced.line();
                    entries.push(Entry { key: key.value, line, values: map.next_value::<Values>()?.0 });
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_map(Reader)
    }
}

/// A scalar, or a list of scalars, as text. `null` is an empty list: the default holds.
struct Values(Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Values;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a value or a list of values")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Values, E> {
                Ok(Values(vec![value.to_string()]))
            }
            fn visit_str<E>(self, value: &str) -> Result<Values, E> {
                Ok(Values(vec![value.to_owned()]))
            }
            fn visit_unit<E>(self) -> Result<Values, E> {
                Ok(Values(Vec::new()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Values, A::Error> {
                let mut all = Vec::new();
                while let Some(Values(values)) = list.next_element()? {
                    all.extend(values);
                }
                Ok(Values(all))
            }
        }
        from.deserialize_any(Reader)
    }
}
