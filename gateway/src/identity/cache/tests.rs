//! What is remembered, for how long, and who may push out whom.

use super::*;

fn user(name: &str) -> Option<Arc<Identity>> {
    Some(Arc::new(Identity { name: name.into(), ..Identity::default() }))
}

/// Fingerprints of one set, as many as asked for.
fn rivals(number: usize) -> Vec<Fingerprint> {
    (0..number)
        .map(|index| {
            let mut bytes = [0; 32];
            bytes[31] = u8::try_from(index).expect("a few");
            Fingerprint(bytes)
        })
        .collect()
}

#[test]
fn remembers_until_the_token_ends_or_its_time_is_over() {
    let cache = Cache::new();
    let [short, long, refused] = rivals(3)[..] else { panic!("three") };
    cache.put(short, user("short"), 1010, 1, 1000);
    cache.put(long, user("long"), i64::MAX, 1, 1000);
    cache.put(refused, None, i64::MAX, 1, 1000);
    let seen = |token, now| cache.get(token, 1, now);
    assert_eq!((seen(short, 1009), seen(short, 1010)), (Some(user("short")), None));
    assert_eq!(
        (seen(long, 1000 + VERIFIED_KEPT - 1), seen(long, 1000 + VERIFIED_KEPT)),
        (Some(user("long")), None)
    );
    assert_eq!(
        (seen(refused, 1000 + REFUSED_KEPT - 1), seen(refused, 1000 + REFUSED_KEPT)),
        (Some(None), None)
    );
    assert_eq!(cache.get(long, 2, 1000), None, "other keys: nothing is known");
}

#[test]
fn strangers_cannot_empty_the_table() {
    let cache = Cache::new();
    let tokens = rivals(WAYS + 20);
    let (good, bad) = tokens.split_at(WAYS);
    for token in good {
        cache.put(*token, user("good"), i64::MAX, 1, 1000);
    }
    for token in bad {
        cache.put(*token, None, i64::MAX, 1, 1000);
    }
    assert!(good.iter().all(|token| cache.get(*token, 1, 1000).is_some()));
    assert!(bad.iter().all(|token| cache.get(*token, 1, 1000).is_none()));
}

#[test]
fn a_full_set_gives_up_the_refused_then_the_oldest() {
    let cache = Cache::new();
    let tokens = rivals(WAYS + 2);
    for (token, now) in tokens.iter().zip(1000..).take(WAYS - 1) {
        cache.put(*token, user("good"), i64::MAX, 1, now);
    }
    cache.put(tokens[WAYS - 1], None, i64::MAX, 1, 1003);
    cache.put(tokens[WAYS], user("new"), i64::MAX, 1, 1004);
    assert_eq!(cache.get(tokens[WAYS - 1], 1, 1004), None, "the refused one is gone");
    assert!(cache.get(tokens[0], 1, 1004).is_some());
    cache.put(tokens[WAYS + 1], user("newer"), i64::MAX, 1, 1005);
    assert_eq!(cache.get(tokens[0], 1, 1005), None, "then the oldest");
    assert!(cache.get(tokens[WAYS], 1, 1005).is_some());
}

#[test]
fn a_token_is_in_the_table_once() {
    let cache = Cache::new();
    let token = Fingerprint::of("t");
    cache.put(token, None, i64::MAX, 1, 1000);
    cache.put(token, user("now known"), i64::MAX, 1, 1000);
    assert_eq!(cache.get(token, 1, 1000), Some(user("now known")));
    let used = cache.slots.iter().filter(|slot| slot.load().is_some()).count();
    assert_eq!(used, 1);
    assert_eq!(cache.slots.len(), SLOTS);
}
