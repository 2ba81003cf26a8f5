//! `--token-auth-file`: a CSV of `token,user,uid[,"group,group"]`, read as kube-apiserver reads it (RFC 4180 with
//! Go's rules: blank lines are skipped, blanks belong to the field, `""` is a quote inside quotes).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::Identity;
use crate::reload::FileFault;

/// The users of a token file by their tokens.
#[derive(Default)]
pub(super) struct TokenFile(HashMap<String, Arc<Identity>>);

impl TokenFile {
    /// Later lines win over earlier ones with the same token; lines without a token are skipped. Both are warned
    /// about, by line number: the token itself is never logged.
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<TokenFile, FileFault> {
        let refuse = |problem: String| {
            FileFault::new(path, problem, "write lines of token,user,uid or token,user,uid,\"group1,group2\"")
        };
        let text = str::from_utf8(bytes).map_err(|error| refuse(format!("not UTF-8 ({error})")))?;
        let mut users = HashMap::new();
        for (line, record) in records(text).map_err(refuse)? {
            let [token, name, uid, rest @ ..] = record.as_slice() else {
                let columns = record.len();
                return Err(refuse(format!("line {line}: at least 3 columns are needed, found {columns}")));
            };
            if token.is_empty() {
                tracing::warn!(file = %path.display(), line, "no token in this line: skipped");
                continue;
            }
            let groups = rest.first().map(|groups| groups.split(',').map(str::to_owned).collect());
            let user = Identity {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.unwrap_or_default(),
                extra: Vec::new(),
            };
            if users.insert(token.clone(), Arc::new(user.authenticated())).is_some() {
                tracing::warn!(file = %path.display(), line, "token of an earlier line: this line wins");
            }
        }
        Ok(TokenFile(users))
    }

    pub(super) fn user(&self, token: &str) -> Option<Arc<Identity>> {
        self.0.get(token).cloned()
    }
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile").field("users", &self.0.len()).finish() // tokens are secrets
    }
}

type Records = Vec<(usize, Vec<String>)>;

/// All records with the number of their first line, or what is wrong where.
fn records(text: &str) -> Result<Records, String> {
    let text = text.strip_suffix('\r').unwrap_or(text);
    let mut reader = Reader { rest: text, line: 1 };
    let mut records = Vec::new();
    while !reader.rest.is_empty() {
        let line = reader.line;
        if !reader.end_of_line() {
            records.push((line, reader.record()?));
        }
    }
    Ok(records)
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    /// Passes a line's end, if here is one.
    fn end_of_line(&mut self) -> bool {
        match self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n')) {
            Some(tail) => {
                (self.rest, self.line) = (tail, self.line + 1);
                true
            }
            None => false,
        }
    }

    /// At least one field, and the line's end behind the last.
    fn record(&mut self) -> Result<Vec<String>, String> {
        let mut fields = Vec::new();
        loop {
            fields.push(match self.rest.strip_prefix('"') {
                Some(quoted) => {
                    self.rest = quoted;
                    self.quoted()?
                }
                None => self.bare()?,
            });
            match self.rest.strip_prefix(',') {
                Some(tail) => self.rest = tail,
                None => break,
            }
        }
        self.end_of_line();
        Ok(fields)
    }

    fn bare(&mut self) -> Result<String, String> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let mut field = &self.rest[..end];
        if self.rest[end..].starts_with('\n') {
            field = field.strip_suffix('\r').unwrap_or(field);
        }
        if field.contains('"') {
            return Err(format!("line {}: a quote inside a field that is not quoted", self.line));
        }
        self.rest = &self.rest[field.len()..];
        Ok(field.to_owned())
    }

    /// After the opening quote.
    fn quoted(&mut self) -> Result<String, String> {
        let opened = self.line;
        let mut field = String::new();
        loop {
            let Some((part, tail)) = self.rest.split_once('"') else {
                return Err(format!("line {opened}: a quoted field that does not end"));
            };
            self.line += part.matches('\n').count();
            field.push_str(&part.replace("\r\n", "\n"));
            self.rest = tail;
            if let Some(tail) = tail.strip_prefix('"') {
                field.push('"');
                self.rest = tail;
            } else if tail.is_empty() || [",", "\n", "\r\n"].iter().any(|end| tail.starts_with(end)) {
                return Ok(field);
            } else {
                return Err(format!("line {}: text after a closing quote", self.line));
            }
        }
    }
}

#[cfg(test)]
mod tests;
