//! Counting in shards, by many threads, against the one table.
use proptest::prelude::*;

use usher_flowcontrol::watches::Watches;

use super::*;

const NAMED: [&str; 6] = [
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/a/pods/x",
    "/api/v1/namespaces/b/pods",
    "/apis/g/v1/namespaces/a/pods/x",
    "/api/v1/namespaces/a/secrets/x",
];

const WATCHED: [&str; 8] = [
    "/api/v1/pods?watch=1",
    "/api/v1/namespaces/a/pods?watch=1",
    "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name=x",
    "/api/v1/pods?watch=1&fieldSelector=spec.nodeName=n",
    "/api/v1/namespaces/b/pods?watch=1&fieldSelector=spec.nodeName=",
    "/apis/g/v1/namespaces/a/pods?watch=1",
    "/api/v1/namespaces/a/secrets?watch=1&fieldSelector=metadata.name=x",
    "/api/v1/pods",
];

fn info(method: &'static str, target: &'static str) -> RequestInfo<'static> {
    RequestInfo::parse(method, target).expect("valid")
}

fn is_empty(audience: &Audience) -> bool {
    audience.shards.iter().all(|shard| shard.load().is_empty())
}

proptest! {
    #[test]
    fn shards_count_what_one_table_counts(
        steps in prop::collection::vec(
            (prop::sample::select(&WATCHED[..]), any::<prop::sample::Index>(), any::<bool>()), 0..60),
    ) {
        let (audience, mut whole) = (Audience::default(), Watches::default());
        let mut running: Vec<(Watch, Watch)> = Vec::new();
        for (target, index, ends) in steps {
            if ends && !running.is_empty() {
                let (in_shards, in_one) = running.swap_remove(index.index(running.len()));
                audience.leave(&in_shards);
                whole.forget(in_one);
            } else {
                let request = info("GET", target);
                let joined = audience.join(&request);
                let registered = whole.register(&request);
                prop_assert_eq!(joined.is_some(), registered.is_some());
                running.extend(joined.zip(registered));
            }
            for target in NAMED {
                for method in ["PUT", "POST", "DELETE", "GET"] {
                    let request = info(method, target);
                    prop_assert_eq!(audience.interested(&request), whole.interested(&request));
                }
            }
        }
        running.iter().for_each(|(watch, _)| audience.leave(watch));
        prop_assert!(is_empty(&audience), "what nobody watches takes no room");
    }
}

#[test]
fn nobody_is_lost_whoever_counts_at_the_same_time() {
    let audience = Arc::<Audience>::default();
    let write = info("PUT", "/api/v1/namespaces/a/pods/x");
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let audience = Arc::clone(&audience);
            std::thread::spawn(move || {
                let watch = |target| audience.join(&info("GET", target)).expect("a watch");
                let stays = WATCHED[..3].iter().map(|target| watch(target)).collect::<Vec<_>>();
                for _ in 0..1000 {
                    let goes = WATCHED[..3].iter().map(|target| watch(target)).collect::<Vec<_>>();
                    let seen = audience.interested(&info("PUT", "/api/v1/namespaces/a/pods/x"));
                    assert!((6..=24).contains(&seen), "{seen}: at least its own, at the most all");
                    goes.iter().for_each(|watch| audience.leave(watch));
                }
                stays
            })
        })
        .collect();
    let stay: Vec<Watch> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(audience.interested(&write), 12);
    stay.iter().for_each(|watch| audience.leave(watch));
    assert!(is_empty(&audience));
}
