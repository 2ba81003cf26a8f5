//! Counting against a list that is searched each time.
use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

fn target() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        [
            "/api/v1/pods?watch=1",
            "/api/v1/namespaces/a/pods?watch=1",
            "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name=x",
            "/api/v1/pods?watch=1&fieldSelector=metadata.name=x",
            "/api/v1/pods?watch=1&fieldSelector=spec.nodeName=n",
            "/api/v1/namespaces/b/pods?watch=1&fieldSelector=spec.nodeName=",
            "/apis/g/v1/namespaces/a/pods?watch=1",
            "/api/v1/namespaces/a/pods/x",
            "/api/v1/pods",
        ]
        .as_slice(),
    )
}

fn info(method: &'static str, target: &'static str) -> RequestInfo<'static> {
    RequestInfo::parse(method, target).expect("valid")
}

/// Whether a watch is interested in a write.
fn is_interested(watch: &RequestInfo<'_>, write: &RequestInfo<'_>) -> bool {
    let same = (watch.api_group(), watch.resource()) == (write.api_group(), write.resource());
    let scope = (watch.namespace(), watch.name());
    let (namespace, name) = (write.namespace(), write.name());
    let of_all = scope == (b"", b"");
    let of_namespace = !namespace.is_empty() && scope == (namespace, b"");
    let of_object = !name.is_empty() && scope == (namespace, name);
    same && (of_all || of_namespace || of_object)
}

proptest! {
    #[test]
    fn counts_are_those_of_a_search(
        steps in prop::collection::vec((target(), any::<prop::sample::Index>(), any::<bool>()), 0..40),
        written in target(),
    ) {
        let mut watches = Watches::default();
        let mut running: Vec<(Watch, &'static str)> = Vec::new();
        for (target, index, ends) in steps {
            if ends && !running.is_empty() {
                let (watch, _) = running.swap_remove(index.index(running.len()));
                watches.forget(watch);
            } else if let Some(watch) = watches.register(&info("GET", target)) {
                running.push((watch, target));
            }
        }
        let write = info("PUT", written);
        let counted = running.iter().filter(|(_, target)| !target.ends_with("spec.nodeName=n"));
        let expected = counted.filter(|(_, target)| is_interested(&info("GET", target), &write)).count();
        prop_assert_eq!(watches.interested(&write), u64::try_from(expected).expect("few"));
        prop_assert_eq!(watches.interested(&info("GET", written)), 0);
        for (watch, _) in running {
            watches.forget(watch);
        }
        prop_assert!(watches.counts.is_empty(), "what nobody watches takes no room");
    }
}
