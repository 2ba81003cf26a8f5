//! Whose an apiserver's port is, and which way its connections went.

use usher_ebpf::takeover::Path;
use usher_flowcontrol::meters::{Child, Description, Family, Kind, Value};

use super::own::describe;
use crate::takeover::Look;

static HELD: Description = describe(
    "usher_takeover_held",
    Kind::Gauge,
    &["mode"],
    "Whether the apiserver's port is usher's now (--takeover).",
);
static SINCE: Description =
    describe("usher_takeover_changed_timestamp_seconds", Kind::Gauge, &[], "Since when it is so, or is not.");
static CONNECTIONS: Description = describe(
    "usher_takeover_connections_total",
    Kind::Counter,
    &["path"],
    "Connections to the apiserver's port by where the kernel's program let them: taken (to usher), own (usher's, to the \
     apiserver), open (usher's sockets were gone: to the apiserver), dropped (the same in fail-closed: refused).",
);
static OWN: Description = describe(
    "usher_takeover_own_connections",
    Kind::Gauge,
    &[],
    "Usher's own connections that pass to the apiserver, now.",
);
static OWN_REFUSED: Description = describe(
    "usher_takeover_own_refused_total",
    Kind::Counter,
    &[],
    "Connections to the apiserver that did not come about because too many pass already.",
);
static RELAYS: Description = describe(
    "usher_takeover_relays_open",
    Kind::Gauge,
    &[],
    "Connections of the apiserver's own client that are relayed to it, now.",
);
static RELAYED: Description = describe(
    "usher_takeover_relayed_total",
    Kind::Counter,
    &["result"],
    "Connections of the apiserver's own client: relayed to it, or not because it took none (failed); and those that had to end \
     because others needed their places (displaced).",
);

/// How it stands, as metrics.
pub(in crate::observe) fn families(look: &Look) -> Vec<Family<'static>> {
    let one = |description, value| family(description, vec![(Vec::new(), value)]);
    let held = if look.held { 1.0 } else { 0.0 };
    let mut families = vec![
        family(&HELD, vec![(vec![look.mode.name()], Value::Number(held))]),
        one(&SINCE, Value::Number(look.since.as_secs_f64())),
        one(&OWN, number(look.own.0)),
        one(&OWN_REFUSED, Value::Count(look.own.1)),
        one(&RELAYS, number(look.relayed.open)),
        family(
            &RELAYED,
            [
                ("displaced", look.relayed.displaced),
                ("failed", look.relayed.failed),
                ("relayed", look.relayed.relayed),
            ]
            .map(|(result, count)| (vec![result], Value::Count(count)))
            .into(),
        ),
    ];
    if let Some(paths) = look.paths {
        let counts = Path::ALL.iter().zip(paths);
        let children = counts.map(|(path, count)| (vec![path.name()], Value::Count(count)));
        families.push(family(&CONNECTIONS, children.collect()));
    }
    families
}

fn family(description: &'static Description, children: Vec<(Vec<&'static str>, Value)>) -> Family<'static> {
    let children = children.into_iter().map(|(labels, value)| Child { labels, value }).collect();
    Family { description, children }
}

#[expect(clippy::cast_precision_loss, reason = "connections of one host")]
fn number(count: u64) -> Value {
    Value::Number(count as f64)
}
