//! What a request costs before it meets its level: attributes, schema, estimate.
//!
//! With the default objects (11 schemas). The aim: to scan them all in 100 ns. `last` matches the last
//! but one, `none` is compared with every one of them.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

use usher_flowcontrol::classify::User;
use usher_flowcontrol::estimate::{self, Facts, Stats};
use usher_flowcontrol::objects::bootstrap;
use usher_flowcontrol::plan::Plan;
use usher_flowcontrol::request_info::RequestInfo;
use usher_flowcontrol::units::Seats;

/// A name and a request.
const REQUESTS: [(&str, &str, &str); 4] = [
    ("get", "GET", "/api/v1/namespaces/team-a/pods/web-0"),
    ("lease", "PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1"),
    ("list", "GET", "/api/v1/pods?limit=500&resourceVersion=0&labelSelector=app%3Dweb,tier+in+(a,b)"),
    ("healthz", "GET", "/healthz"),
];

/// A name, a user and its groups.
const USERS: [(&str, &str, &[&str]); 4] = [
    ("first", "admin", &["system:masters", "system:authenticated"]),
    ("node", "system:node:node-1", &["system:nodes", "system:authenticated"]),
    ("last", "alice", &["dev", "ops", "system:authenticated"]),
    ("none", "alice", &[]),
];

fn parse(criterion: &mut Criterion) {
    for (name, method, target) in REQUESTS {
        criterion.bench_function(&format!("parse/{name}"), |bencher| {
            bencher.iter(|| RequestInfo::parse(black_box(method), black_box(target)).is_ok());
        });
    }
}

fn classify(criterion: &mut Criterion) {
    let mut schemas = bootstrap::mandatory_schemas();
    schemas.extend(bootstrap::suggested_schemas());
    let mut levels = bootstrap::mandatory_levels();
    levels.extend(bootstrap::suggested_levels());
    let plan = Plan::compile(&schemas, &levels);
    assert_eq!(plan.schemas().len(), 11, "every default object is usable");
    for (name, user, groups) in USERS {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let user = User { name: user, groups: &groups };
        for (request, method, target) in REQUESTS {
            let info = RequestInfo::parse(method, target).expect("a valid request");
            criterion.bench_function(&format!("classify/{name}/{request}"), |bencher| {
                bencher.iter(|| plan.classify(black_box(user), black_box(&info)));
            });
        }
    }
}

fn width(criterion: &mut Criterion) {
    let statistics = Stats::Fresh { count: 5_000, average_size: 4_000 };
    let facts = Facts { statistics, watches: 120, max_seats: Seats(37), consistent_reads: true };
    for (name, method, target) in REQUESTS {
        let info = RequestInfo::parse(method, target).expect("a valid request");
        criterion.bench_function(&format!("estimate/{name}"), |bencher| {
            bencher.iter(|| estimate::work(black_box(&info), black_box(&facts)));
        });
    }
}

criterion_group!(benches, parse, classify, width);
criterion_main!(benches);
