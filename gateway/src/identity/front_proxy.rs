//! Identity in headers: read from a trusted front proxy, written towards the apiserver, stripped from strangers.
//!
//! `X-Remote-User`, `-Uid`, `-Group` (one line a group) and `-Extra-KEY` (key percent-encoded, in lower case).
//! Reading follows kube-apiserver's `--requestheader-*` flags; writing always uses the names above, which are
//! kubeadm's.

use std::path::PathBuf;

use http::HeaderMap;
use http::header::{Entry, HeaderName, HeaderValue};

use super::Identity;

/// Who may speak for others, and in which headers. Flags have kube-apiserver's names.
#[derive(Clone, Debug)]
pub struct FrontProxyOptions {
    /// `--requestheader-client-ca-file`: who vouches for front proxies. `None`: there are none.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`: their common names. Empty: any that the authority vouches for.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`: the first with a value counts.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`: the first with a value counts.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`: all values of all of them, in this order.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_headers_prefixes: Vec<String>,
}

impl Default for FrontProxyOptions {
    /// No front proxies; the usual names of the headers.
    fn default() -> FrontProxyOptions {
        FrontProxyOptions {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["X-Remote-User".into()],
            uid_headers: vec!["X-Remote-Uid".into()],
            group_headers: vec!["X-Remote-Group".into()],
            extra_headers_prefixes: vec!["X-Remote-Extra-".into()],
        }
    }
}

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// The names of the headers, parsed.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    username: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    group: Vec<HeaderName>,
    /// Prefixes in lower case.
    extra: Vec<String>,
}

/// One header line.
pub(super) type Line = (HeaderName, HeaderValue);

/// A header's value is not UTF-8. kube-apiserver would take the bytes; no user of Kubernetes has such a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotText;

impl Headers {
    /// The first name that cannot be a header's, if any.
    pub(super) fn parse(options: &FrontProxyOptions) -> Result<Headers, String> {
        let name = |text: &String| HeaderName::try_from(text.trim()).map_err(|_| text.clone());
        let names = |texts: &[String]| texts.iter().map(name).collect::<Result<Vec<_>, _>>();
        Ok(Headers {
            username: names(&options.username_headers)?,
            uid: names(&options.uid_headers)?,
            group: names(&options.group_headers)?,
            extra: names(&options.extra_headers_prefixes)?
                .iter()
                .map(|name| name.as_str().to_owned())
                .collect(),
        })
    }

    /// Who the front proxy says is asking; `None` if it names nobody.
    pub(super) fn read(&self, headers: &HeaderMap) -> Result<Option<Identity>, NotText> {
        let name = first(headers, &self.username)?;
        if name.is_empty() {
            return Ok(None);
        }
        let mut groups = Vec::new();
        for value in self.group.iter().flat_map(|group| headers.get_all(group)) {
            if !value.is_empty() {
                groups.push(text(value)?.to_owned());
            }
        }
        let extra = self.read_extra(headers)?;
        Ok(Some(Identity {
            name: name.to_owned(),
            uid: first(headers, &self.uid)?.to_owned(),
            groups,
            extra,
        }))
    }

    fn read_extra(&self, headers: &HeaderMap) -> Result<Vec<(String, Vec<String>)>, NotText> {
        let mut extra: Vec<(String, Vec<String>)> = Vec::new();
        for prefix in &self.extra {
            for name in headers.keys() {
                let Some(encoded) = name.as_str().strip_prefix(prefix.as_str()) else { continue };
                let key = unescape(encoded)?;
                let values = headers.get_all(name).iter().map(|value| text(value).map(str::to_owned));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                match extra.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, known)) => known.extend(values),
                    None => extra.push((key, values)),
                }
            }
        }
        Ok(extra)
    }

    /// Removes every header that could speak for somebody, the usual ones and the configured ones. Returns how
    /// many lines there were.
    pub(super) fn strip(&self, headers: &mut HeaderMap) -> usize {
        let exact = |name: &HeaderName| {
            [&USER, &UID, &GROUP].contains(&name)
                || [&self.username, &self.uid, &self.group].iter().any(|names| names.contains(name))
        };
        let prefixed = |name: &HeaderName| {
            let name = name.as_str();
            name.starts_with(EXTRA) || self.extra.iter().any(|prefix| name.starts_with(prefix.as_str()))
        };
        let doomed: Vec<_> = headers.keys().filter(|name| exact(name) || prefixed(name)).cloned().collect();
        let mut lines = 0;
        for name in doomed {
            if let Entry::Occupied(entry) = headers.entry(name) {
                lines += entry.remove_entry_mult().1.count();
            }
        }
        lines
    }
}

/// The headers that make the apiserver see `identity`, in order. `None` if it cannot be said in headers: a
/// control character cannot be sent, and blanks at the ends are lost on the way, which would make somebody else of
/// ` admin`. Empty groups say nothing and are left out, as kube-apiserver does.
pub(super) fn write(identity: &Identity) -> Option<Vec<Line>> {
    let mut lines = vec![(USER, value(&identity.name)?)];
    if !identity.uid.is_empty() {
        lines.push((UID, value(&identity.uid)?));
    }
    for group in identity.groups.iter().filter(|group| !group.is_empty()) {
        lines.push((GROUP, value(group)?));
    }
    for (key, values) in &identity.extra {
        let name = HeaderName::try_from(format!("{EXTRA}{}", escape(key))).ok()?;
        for each in values {
            lines.push((name.clone(), value(each)?));
        }
    }
    Some(lines)
}

fn value(text: &str) -> Option<HeaderValue> {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b' ' | b'\t'));
    let bytes = text.as_bytes();
    if blank(bytes.first()) || blank(bytes.last()) {
        return None;
    }
    HeaderValue::from_bytes(bytes).ok()
}

fn first<'a>(headers: &'a HeaderMap, names: &[HeaderName]) -> Result<&'a str, NotText> {
    let found = names.iter().filter_map(|name| headers.get(name)).find(|value| !value.is_empty());
    found.map_or(Ok(""), text)
}

fn text(value: &HeaderValue) -> Result<&str, NotText> {
    str::from_utf8(value.as_bytes()).map_err(|_| NotText)
}

/// Percent-encodes all but lower-case letters, digits and `-._~`: upper case would be lost in a header's name.
fn escape(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02x}")),
        }
    }
    escaped
}

/// Percent-decodes; what is not decodable is taken as it stands, as kube-apiserver does.
pub(super) fn unescape(encoded: &str) -> Result<String, NotText> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digit = |at: usize| tail.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = &tail[2..];
            }
            (b'%', ..) => return Ok(encoded.to_owned()),
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| NotText)
}

#[cfg(test)]
mod tests;
