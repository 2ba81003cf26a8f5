//! What both sides are given: objects, requests, how many clients.

use serde_json::{Value, json};
use usher_flowcontrol::objects::{
    FlowSchema, PriorityLevelConfiguration, Queuing, Status, bootstrap, status,
};
use usher_flowcontrol::units::Seats;

use super::cells::{Cell, Load, Shape};

/// Objects, requests and clients of a cell.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) server_limit: Seats,
    pub(super) schemas: Vec<FlowSchema>,
    pub(super) levels: Vec<PriorityLevelConfiguration>,
    /// They are dealt to the clients.
    pub(super) users: Vec<String>,
    pub(super) groups: Vec<String>,
    /// Method and target; they follow one another.
    pub(super) lines: Vec<(&'static str, &'static str)>,
    /// Each has one request at a time.
    pub(super) clients: usize,
    pub(super) threads: usize,
}

/// Where service accounts belong.
pub(super) const LEVEL: &str = "workload-low";

/// Seats of the server of which that level's part is 245, 8 and 64.
const MANY_SEATS: Seats = Seats(600);
const EIGHT_SEATS: Seats = Seats(18);
const SOME_SEATS: Seats = Seats(156);

/// Requests that wait where a level is saturated.
const WAITING: usize = 400;

/// Users of a cell that does not say.
const USERS: usize = 1000;

const GET: (&str, &str) = ("GET", "/api/v1/namespaces/default/pods/web-5d8f7c9b4-x7x2k");
/// With what [`super::crowd`] knows of pods: 1, 2, 5 and 10 seats.
const LISTS: [(&str, &str); 4] = [
    ("GET", "/api/v1/namespaces/default/pods?limit=5"),
    ("GET", "/api/v1/namespaces/default/pods?limit=10"),
    ("GET", "/api/v1/namespaces/default/pods?limit=25"),
    ("GET", "/api/v1/namespaces/default/pods?limit=500"),
];

impl Plan {
    pub(super) fn of(cell: Cell) -> Self {
        let mut plan = Self::unsaturated();
        match cell {
            Cell::Clock | Cell::RequestLine => {}
            Cell::KnownFlow => plan.users = users(1),
            Cell::Unsaturated(shape) => plan.shape(shape),
            Cell::Saturated(shape) => {
                plan.saturate();
                plan.shape(shape);
            }
            Cell::Widths => {
                (plan.server_limit, plan.clients) = (SOME_SEATS, WAITING + 16);
                plan.lines = [GET].into_iter().chain(LISTS).collect();
            }
            Cell::Threads(Load::Unsaturated, threads) => (plan.clients, plan.threads) = (threads, threads),
            Cell::Threads(Load::Saturated, threads) => {
                plan.saturate();
                plan.threads = threads;
            }
        }
        plan
    }

    /// The suggested objects, but for this: the level neither lends nor borrows, so that its limit is known.
    fn unsaturated() -> Self {
        let mut levels = bootstrap::mandatory_levels();
        levels.extend(bootstrap::suggested_levels());
        let mut schemas = bootstrap::mandatory_schemas();
        schemas.extend(bootstrap::suggested_schemas());
        for schema in &mut schemas {
            // As kube-apiserver would write it: there is nothing to be written while requests run.
            schema.status = Status { conditions: [status::wanted(schema, false)].into() };
        }
        let mut plan = Self {
            server_limit: MANY_SEATS,
            schemas,
            levels,
            users: users(USERS),
            groups: ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
                .map(str::to_owned)
                .into(),
            lines: [GET].into(),
            clients: 1,
            threads: 1,
        };
        if let Some(limited) = plan.level().spec.limited.as_mut() {
            (limited.lendable_percent, limited.borrowing_limit_percent) = (Some(0), Some(0));
        }
        plan
    }

    fn saturate(&mut self) {
        (self.server_limit, self.clients) = (EIGHT_SEATS, WAITING + 8);
    }

    fn shape(&mut self, shape: Shape) {
        match shape {
            Shape::Suggested => {}
            Shape::Flows(flows) => self.users = users(flows),
            Shape::Queues(queues) => {
                if let Some(limited) = self.level().spec.limited.as_mut() {
                    limited.limit_response.queuing =
                        Some(Queuing { queues, hand_size: 4, queue_length_limit: 50 });
                }
            }
        }
    }

    fn level(&mut self) -> &mut PriorityLevelConfiguration {
        let named = |level: &&mut PriorityLevelConfiguration| level.metadata.name == LEVEL;
        self.levels.iter_mut().find(named).expect("a suggested level")
    }

    /// Whether there are more clients than can run.
    pub(super) fn waits(&self) -> bool {
        self.clients > self.threads
    }

    /// For the peer, with the width of each line.
    pub(super) fn document(&self, widths: &[Seats], millis: u32) -> Value {
        let line = |(&(method, target), seats): (&(&str, &str), &Seats)| json!({"method": method, "target": target, "seats": seats.0});
        json!({
            "server_limit": self.server_limit.0,
            "schemas": self.schemas,
            "levels": self.levels,
            "level": LEVEL,
            "users": self.users,
            "groups": self.groups,
            "lines": self.lines.iter().zip(widths).map(line).collect::<Vec<_>>(),
            "clients": self.clients,
            "threads": self.threads,
            "seconds": f64::from(millis) / 1000.0,
        })
    }
}

fn users(count: usize) -> Vec<String> {
    (0..count).map(|user| format!("system:serviceaccount:default:robot-{user}")).collect()
}
