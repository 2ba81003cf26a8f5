//! The control socket: how a running usher is asked and told, by the same user or root, on the same machine.
//!
//! `DIR/control.sock` (`--runtime-dir`). Whoever connects writes one [`Request`] on a line of JSON, and is answered by one
//! line: `{"ok": …}` or `{"error": "a sentence"}`. Descriptors travel beside the line (`SCM_RIGHTS`). A hand-over
//! ([`crate::handover`]) is the one conversation of several lines.
//!
//! What can be asked is put together in a [`Desk`]: rooms register their verbs, and what they have to say of themselves in
//! a [`Section`]. Nothing here is on the way of a request.

mod line;
mod section;
mod server;
mod socket;

pub use line::{Broken, Letter, Line};
pub use section::Section;
pub use server::{Open, start};
pub use socket::{Nobody, Socket, connect};

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long either side waits for a line. The slowest answer is a worker's that is stuck, which is known after half of it.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// `status`, `release` …
    pub verb: String,
    /// What else the verb wants to know.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub with: Value,
}

/// What `drain` wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Which worker, counted from 0.
    pub worker: usize,
    /// What its requests have to finish; `None`: as long as when the whole process drains.
    pub grace: Option<Duration>,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// It is done, or this is what was asked for.
    Ok(Value),
    /// It is not, and why.
    Error(String),
}

/// A verb that is asked once and answers once. It may take up to [`ANSWER_TIMEOUT`], in a thread of its own.
type Answers = Box<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;
/// A verb that goes on talking.
type Converses = Box<dyn Fn(&Value, Line) + Send + Sync>;

enum Verb {
    Answers(Answers),
    Converses(Converses),
}

/// What can be asked.
#[derive(Default)]
pub struct Desk {
    verbs: BTreeMap<&'static str, Verb>,
}

impl Desk {
    /// Whoever asks for `verb` gets what `answer` says.
    pub fn on(
        &mut self,
        verb: &'static str,
        answer: impl Fn(&Value) -> Result<Value, String> + Send + Sync + 'static,
    ) {
        self.verbs.insert(verb, Verb::Answers(Box::new(answer)));
    }

    /// Whoever asks for `verb` talks with `converse`, which writes the first line.
    pub fn talk(&mut self, verb: &'static str, converse: impl Fn(&Value, Line) + Send + Sync + 'static) {
        self.verbs.insert(verb, Verb::Converses(Box::new(converse)));
    }

    /// Answers what comes on `line`.
    fn serve(&self, mut line: Line) {
        let request = match line.receive(ANSWER_TIMEOUT) {
            Ok(Some(letter)) => letter.read::<Request>(),
            Ok(None) => return, // somebody looked whether anybody is here
            Err(broken) => Err(broken),
        };
        let reply = match request {
            Err(broken) => Reply::Error(broken.to_string()),
            Ok(Request { verb, with }) => match self.verbs.get(verb.as_str()) {
                Some(Verb::Converses(converse)) => return converse(&with, line),
                Some(Verb::Answers(answer)) => answer(&with).map_or_else(Reply::Error, Reply::Ok),
                None => Reply::Error(self.unknown(&verb)),
            },
        };
        if let Err(error) = line.send(&reply, &[]) {
            tracing::debug!(%error, "who asked at the control socket did not wait for the answer");
        }
    }

    fn unknown(&self, verb: &str) -> String {
        let known: Vec<&str> = self.verbs.keys().copied().collect();
        format!("this usher knows no {verb:?}: {} is what it does here", known.join(", "))
    }
}

/// Asks for `verb` and waits for the answer.
///
/// # Errors
/// A sentence: theirs, or what broke.
pub fn ask(line: &mut Line, verb: &str, with: Value) -> Result<Value, String> {
    let request = Request { verb: verb.to_owned(), with };
    line.send(&request, &[]).map_err(|broken| broken.to_string())?;
    match line.receive(ANSWER_TIMEOUT).map_err(|broken| broken.to_string())? {
        None => Err("it hung up".into()),
        Some(letter) => letter.reply(),
    }
}

impl Letter {
    /// As the answer to a [`Request`].
    ///
    /// # Errors
    /// Their sentence; or it is no answer.
    pub fn reply(self) -> Result<Value, String> {
        match self.read::<Reply>() {
            Ok(Reply::Ok(value)) => Ok(value),
            Ok(Reply::Error(why)) => Err(why),
            Err(broken) => Err(broken.to_string()),
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.verbs.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
