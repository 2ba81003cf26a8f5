//! Shuffle sharding: deals a flow a hand of queues out of a deck.
//!
//! KEP-1040, "Assignment to a Queue" and "Probability of Collisions". A mouse shares some queues of its
//! hand with an elephant but hardly ever all of them ([`collision_probability`]), and its request goes to
//! the emptiest. The cards come out of the flow's hash by repeated division, so equal hashes give equal
//! hands, without tables.

use core::fmt;

use crate::units::FlowHash;

/// Bits of the flow hash that dealing may consume; the rest keeps the last card close to uniform.
pub const ENTROPY_BITS_MAX: u32 = 60;

/// A hand of 15 from 15 needs 59 bits, of 16 from 16 it would need 64: no legal hand is larger.
pub const HAND_SIZE_MAX: usize = 15;

/// Decks beyond 2²⁶ queues are a slip of the pen.
pub const DECK_SIZE_MAX: i64 = 1 << 26;

/// Deals hands of one size from one deck. Invariant: 1 ≤ `hand` ≤ `deck`, `hand` ≤ [`HAND_SIZE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    deck: u32,
    hand: u8,
}

/// The cards dealt to a flow, in dealing order.
#[derive(Clone, Copy, Debug)]
pub struct Hand {
    cards: [u32; HAND_SIZE_MAX],
    size: u8,
}

/// Why a deck and a hand do not go together. The texts are kube-apiserver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidHand {
    /// Deck or hand is zero or less.
    NotPositive {
        /// As given.
        deck: i64,
        /// As given.
        hand: i64,
    },
    /// More cards in the hand than in the deck.
    HandGreaterThanDeck {
        /// As given.
        deck: i64,
        /// As given.
        hand: i64,
    },
    /// More queues than [`DECK_SIZE_MAX`].
    DeckTooLarge {
        /// As given.
        deck: i64,
    },
    /// Dealing would need more bits than [`ENTROPY_BITS_MAX`].
    TooMuchEntropy {
        /// As given.
        deck: i64,
        /// As given.
        hand: i64,
    },
}

/// Bits of entropy that a hand needs: ⌈log₂(`deck`) · `hand`⌉.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 26 bits times 2^26 cards; rounded up before"
)]
pub fn required_entropy_bits(deck: u32, hand: u32) -> u32 {
    libm::ceil(libm::log2(f64::from(deck)) * f64::from(hand)) as u32
}

/// The probability that a flow's hand holds only queues that one of `elephants` other hands holds too:
/// that it is crowded out wherever it goes. Hands are uniform and independent.
///
/// Follows the number of queues the elephants cover, hand by hand: a new hand meets `k` covered queues
/// with hypergeometric probability. Sums of positive terms only, so that tiny results keep their digits.
#[must_use]
pub fn collision_probability(queues: u32, hand: u8, elephants: u32) -> f64 {
    let Ok(dealer) = Dealer::new(i64::from(queues), i64::from(hand)) else { return f64::NAN };
    collision::probability(dealer.deck, u32::from(dealer.hand), elephants)
}

// === impl Dealer ===

impl Dealer {
    /// Checks deck and hand, in kube-apiserver's order; the first failure counts.
    pub fn new(deck: i64, hand: i64) -> Result<Self, InvalidHand> {
        if deck <= 0 || hand <= 0 {
            return Err(InvalidHand::NotPositive { deck, hand });
        }
        if hand > deck {
            return Err(InvalidHand::HandGreaterThanDeck { deck, hand });
        }
        let (Ok(cards), Ok(held), true) = (u32::try_from(deck), u32::try_from(hand), deck <= DECK_SIZE_MAX)
        else {
            return Err(InvalidHand::DeckTooLarge { deck });
        };
        match u8::try_from(held) {
            Ok(hand) if required_entropy_bits(cards, held) <= ENTROPY_BITS_MAX => {
                Ok(Self { deck: cards, hand })
            }
            _ => Err(InvalidHand::TooMuchEntropy { deck, hand }),
        }
    }

    /// For values that were checked long ago: whatever is out of range is drawn back into it.
    #[must_use]
    pub fn clamped(deck: u32, hand: u8) -> Self {
        let deck = deck.max(1);
        let most = usize::try_from(deck).unwrap_or(HAND_SIZE_MAX).min(HAND_SIZE_MAX);
        Self { deck, hand: u8::try_from(most).unwrap_or(1).min(hand).max(1) }
    }

    /// Number of queues.
    #[must_use]
    pub fn deck_size(&self) -> u32 {
        self.deck
    }

    /// Number of cards in a hand.
    #[must_use]
    pub fn hand_size(&self) -> u8 {
        self.hand
    }

    /// The hand of a flow.
    #[must_use]
    pub fn deal(&self, flow: FlowHash) -> Hand {
        let remainders = self.remainders(flow, self.hand);
        let mut cards = [0; HAND_SIZE_MAX];
        for (position, card) in cards.iter_mut().enumerate().take(usize::from(self.hand)) {
            *card = card_at(&remainders, position);
        }
        Hand { cards, size: self.hand }
    }

    /// The card at one position of the hand of a flow, without dealing those after it.
    #[must_use]
    pub fn card(&self, flow: FlowHash, position: u8) -> u32 {
        debug_assert!(position < self.hand, "position {position} in a hand of {}", self.hand);
        card_at(&self.remainders(flow, position + 1), usize::from(position))
    }

    /// For each of the first `count` cards, its place among the cards then left in the deck.
    fn remainders(&self, flow: FlowHash, count: u8) -> [u32; HAND_SIZE_MAX] {
        let mut remainders = [0; HAND_SIZE_MAX];
        let mut hash = flow.0;
        for (left, remainder) in (1..=self.deck).rev().zip(&mut remainders).take(usize::from(count)) {
            let left = u64::from(left);
            #[expect(clippy::cast_possible_truncation, reason = "less than `left`, which came from a u32")]
            let place = (hash % left) as u32;
            *remainder = place;
            hash /= left;
        }
        remainders
    }
}

/// Turns a place among the cards left into a card. Each earlier remainder is compared, not each earlier
/// card: going backwards, a step undoes one removal from the deck.
fn card_at(remainders: &[u32; HAND_SIZE_MAX], position: usize) -> u32 {
    remainders[..position]
        .iter()
        .rev()
        .fold(remainders[position], |card, &earlier| if card >= earlier { card + 1 } else { card })
}

// === impl Hand ===

impl Hand {
    /// The cards, in dealing order.
    #[must_use]
    pub fn cards(&self) -> &[u32] {
        &self.cards[..usize::from(self.size)]
    }
}

// === impl InvalidHand ===

impl fmt::Display for InvalidHand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotPositive { deck, hand } => {
                write!(formatter, "deckSize {deck} or handSize {hand} is not positive")
            }
            Self::HandGreaterThanDeck { deck, hand } => {
                write!(formatter, "handSize {hand} is greater than deckSize {deck}")
            }
            Self::DeckTooLarge { deck } => write!(formatter, "deckSize {deck} is impractically large"),
            Self::TooMuchEntropy { deck, hand } => write!(
                formatter,
                "required entropy bits of deckSize {deck} and handSize {hand} is greater than {ENTROPY_BITS_MAX}"
            ),
        }
    }
}

impl core::error::Error for InvalidHand {}

mod collision;

#[cfg(test)]
mod tests;
