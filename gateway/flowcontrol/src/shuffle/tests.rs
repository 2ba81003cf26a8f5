//! Dealing against a real deck of cards, probabilities against counting.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;

fn deal(deck: i64, hand: i64, hash: u64) -> Vec<u32> {
    Dealer::new(deck, hand).expect("a legal hand").deal(FlowHash(hash)).cards().to_vec()
}

/// Deals by removing cards from a real deck.
fn deal_slowly(deck: u32, hand: u8, mut hash: u64) -> Vec<u32> {
    let mut cards: Vec<u32> = (0..deck).collect();
    (0..hand)
        .map(|_| {
            let left = cards.len() as u64;
            let card = cards.remove(usize::try_from(hash % left).expect("small"));
            hash /= left;
            card
        })
        .collect()
}

#[test]
fn hands_are_kube_apiservers() {
    assert_eq!(deal(128, 6, u64::MAX), [127, 1, 7, 56, 91, 6]);
    assert_eq!(deal(12, 12, u64::MAX), [3, 1, 0, 9, 2, 8, 10, 4, 7, 11, 5, 6]);
    assert_eq!(deal(9, 3, 2_002_002_002), [8, 2, 1]);
}

#[test]
fn refusals_say_what_is_wrong() {
    let check = |deck, hand, text: &str| {
        assert_eq!(Dealer::new(deck, hand).expect_err("refused").to_string(), text);
    };
    check(0, 0, "deckSize 0 or handSize 0 is not positive");
    check(8, 9, "handSize 9 is greater than deckSize 8");
    check(67_108_865, 1, "deckSize 67108865 is impractically large");
    check(i64::MAX, i64::MAX, "deckSize 9223372036854775807 is impractically large");
    check(16, 16, "required entropy bits of deckSize 16 and handSize 16 is greater than 60");
    check(
        1 << 26,
        1 << 26,
        "required entropy bits of deckSize 67108864 and handSize 67108864 is greater than 60",
    );
    assert!(Dealer::new(1024, 6).is_ok(), "exactly 60 bits");
    assert!(Dealer::new(15, 15).is_ok(), "the largest legal hand");
    assert!(Dealer::new(10_000_000, 2).is_ok(), "ten million queues");
}

/// In whole numbers, `deck` to the power of `hand` is how many hands there are; logarithms must not round
/// a hand in or out.
#[test]
fn entropy_by_logarithms_is_entropy_in_whole_numbers() {
    for deck in (1..2000).chain([1 << 15, 1 << 20, (1 << 20) + 1, 1 << 26, 1 << 30, u32::MAX]) {
        for hand in 1..=deck.min(64) {
            let enough =
                u128::from(deck).checked_pow(hand).is_some_and(|hands| hands <= 1 << ENTROPY_BITS_MAX);
            assert_eq!(required_entropy_bits(deck, hand) <= ENTROPY_BITS_MAX, enough, "{hand} of {deck}");
        }
    }
    assert!(required_entropy_bits(u32::MAX, u32::MAX) > ENTROPY_BITS_MAX);
}

#[test]
fn clamping_never_yields_an_impossible_hand() {
    for (deck, hand) in [(0, 0), (1, 9), (3, 200), (u32::MAX, 255)] {
        let dealer = Dealer::clamped(deck, hand);
        let cards = dealer.deal(FlowHash(u64::MAX));
        assert!(cards.cards().iter().all(|&card| card < dealer.deck_size()));
    }
}

#[test]
fn documented_collision_probabilities() {
    let check = |hand, queues, elephants, expected: f64| {
        let found = collision_probability(queues, hand, elephants);
        assert!((found - expected).abs() <= 1e-9 * expected, "{found} is not {expected}");
    };
    check(12, 32, 1, 4.428_838_398_950_118e-09);
    check(1, 16, 16, 0.643_925_869_548_207_2);
    assert_eq!(collision_probability(16, 4, 0), 0.0, "no elephant crowds nobody");
}

/// Enumerates every hand of a small deck.
#[test]
fn collisions_by_counting() {
    let hands: Vec<u32> = (0_u32..1 << 6).filter(|cards| cards.count_ones() == 3).collect();
    let crowded = hands
        .iter()
        .flat_map(|first| hands.iter().map(move |second| first | second))
        .flat_map(|covered| hands.iter().map(move |mouse| mouse & !covered == 0))
        .filter(|within| *within)
        .count();
    #[expect(clippy::cast_precision_loss, reason = "20 cubed is small")]
    let share = crowded as f64 / (hands.len() as f64).powi(3);
    assert!((collision_probability(6, 3, 2) - share).abs() < 1e-12);
}

proptest! {
    #[test]
    fn dealing_is_removal_from_a_deck(deck in 1_u32..200, hand in 1_u8..=15, hash: u64) {
        let dealer = Dealer::clamped(deck, hand);
        let hand = dealer.deal(FlowHash(hash));
        prop_assert_eq!(hand.cards(), deal_slowly(deck, dealer.hand_size(), hash));
        for (position, &card) in (0..).zip(hand.cards()) {
            prop_assert_eq!(dealer.card(FlowHash(hash), position), card);
        }
    }
}
