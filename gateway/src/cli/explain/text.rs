//! The explanation for people: what, who, why not these, where.

use std::fmt::Write as _;

use super::explanation::{Explanation, Named, Place, Request};

/// Column in which the answers stand.
const INDENT: usize = 10;

/// Some lines of text.
pub(super) fn render(explanation: &Explanation) -> String {
    let mut lines = Lines::default();
    let request = &explanation.request;
    lines.say("request", &format!("{} {}", request.method, request.target));
    lines.say("", &about(request));
    lines.say("user", &explanation.user.name);
    lines.say("groups", &explanation.user.groups.join(", "));
    if !explanation.managed {
        lines.say("", "It runs long and is no watch: flow control lets it pass without a seat.");
        return lines.text;
    }
    let widest = explanation.refusals.iter().map(|refusal| refusal.schema.chars().count()).max().unwrap_or(0);
    for (index, refusal) in explanation.refusals.iter().enumerate() {
        let label = if index == 0 { "not" } else { "" };
        lines.say(
            label,
            &format!("{:widest$}  {:>5}  {}", refusal.schema, refusal.precedence, refusal.message),
        );
    }
    if let Some(place) = &explanation.place {
        describe(place, &mut lines);
    }
    lines.text
}

fn describe(place: &Place, lines: &mut Lines) {
    let matched = if place.matched { "" } else { ", for want of another that matches" };
    lines.say("schema", &format!("{}, precedence {}{matched}", named(&place.schema), place.precedence));
    lines.say("level", &named(&place.level));
    let seats = &place.seats;
    match (place.response, &place.queues) {
        ("exempt", _) => lines.say("", "exempt: everything runs at once"),
        (_, None) => lines.say("", "without queues: what does not fit is turned away"),
        (_, Some(queues)) => lines.say(
            "",
            &format!(
                "{} queues, {} requests wait in each, a flow uses {}",
                queues.count, queues.length_limit, queues.hand_size
            ),
        ),
    }
    lines.say(
        "",
        &format!(
            "{} seats nominally, {} to {}",
            seats.level_nominal, seats.level_minimum, seats.level_maximum
        ),
    );
    let flow = &place.flow;
    let told_apart = match (flow.method, &flow.distinguisher) {
        (Some(method), Some(name)) => format!("{method} {name:?}"),
        _ => "one flow for all of the schema".into(),
    };
    lines.say("flow", &format!("{told_apart}, hash {}", flow.hash));
    if !flow.hand.is_empty() {
        let hand: Vec<String> = flow.hand.iter().map(u32::to_string).collect();
        lines.say("hand", &format!("queues {}", hand.join(", ")));
    }
    let mut width = seats.initial.to_string();
    if seats.afterwards > 0 {
        let _ = write!(width, ", then {} for {} s", seats.afterwards, seats.lingers_seconds);
    }
    if seats.max > 0 {
        let _ = write!(width, " (at this level {} at most)", seats.max);
    }
    lines.say("seats", &width);
    if let Some(limit) = place.wait_limit_seconds {
        lines.say("wait", &format!("{limit} s at most"));
    }
}

/// The request in the field's terms.
fn about(request: &Request) -> String {
    if !request.is_resource_request {
        return format!("{} of a path, about no resource", request.verb);
    }
    let verb = if request.verb.is_empty() { "(no verb)" } else { &request.verb };
    let group = if request.api_group.is_empty() { "core" } else { &request.api_group };
    let mut text = format!("{verb} {}", request.resource_and_subresource());
    if !request.name.is_empty() {
        let _ = write!(text, " {:?}", request.name);
    }
    let _ = write!(text, ", {group}/{}", request.api_version);
    match request.namespace.as_str() {
        "" => text.push_str(", no namespace"),
        namespace => _ = write!(text, ", namespace {namespace}"),
    }
    if request.long_running {
        text.push_str(", long-running");
    }
    text
}

fn named(object: &Named) -> String {
    match object.uid.as_str() {
        "" => format!("{} (no UID)", object.name),
        uid => format!("{} ({uid})", object.name),
    }
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    /// One line; control characters of names are shown, not obeyed.
    fn say(&mut self, label: &str, answer: &str) {
        let answer: String = answer.chars().flat_map(shown).collect();
        let _ = writeln!(self.text, "{label:INDENT$}{answer}");
    }
}

fn shown(character: char) -> impl Iterator<Item = char> {
    let (escaped, plain) = if character.is_control() {
        (Some(character.escape_default()), None)
    } else {
        (None, Some(character))
    };
    escaped.into_iter().flatten().chain(plain)
}
