//! Hands dealt, shapes refused, entropy needed; and how often hands collide.

use crate::numbers::{count, decimal, each_case, integer, list, required, text};
use crate::{File, Outcome};
use serde_json::Value;
use usher_flowcontrol::shuffle::{Dealer, InvalidHand, collision_probability, required_entropy_bits};
use usher_flowcontrol::units::FlowHash;

pub(crate) fn run(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let (deck, hand) = (integer(case, "deckSize")?, integer(case, "handSize")?);
        match text(case, "kind")? {
            "deal" => deal(case, deck, hand),
            "validate" => validate(case, deck, hand),
            "entropy" => entropy(case, deck, hand),
            kind => Err(format!("no kind {kind}")),
        }
    })
}

/// `collision_probability.json`.
pub(crate) fn run_collisions(file: &File) -> Vec<(String, Outcome)> {
    each_case(file, |case| {
        let found = collision_probability(
            count(case, "queues")?,
            count(case, "hand_size")?,
            count(case, "elephants")?,
        );
        let expected = required(case, "probability")?;
        if (found - expected).abs() <= 1e-9 * expected.abs() {
            Ok(())
        } else {
            Err(format!("{found:e} is not {expected:e}"))
        }
    })
}

fn deal(case: &Value, deck: i64, hand: i64) -> Result<(), String> {
    let dealer = Dealer::new(deck, hand).map_err(|error| error.to_string())?;
    let dealt = dealer.deal(FlowHash(decimal(case, "hash")?));
    let found: Vec<Value> = dealt.cards().iter().map(|&card| Value::from(card)).collect();
    let expected = list(case, "cards")?;
    if found == expected { Ok(()) } else { Err(format!("{found:?} is not {expected:?}")) }
}

fn validate(case: &Value, deck: i64, hand: i64) -> Result<(), String> {
    let (found, message) = match Dealer::new(deck, hand) {
        Ok(_) => (Value::Null, Value::Null),
        Err(error) => {
            let name = match error {
                InvalidHand::NotPositive { .. } => "not_positive",
                InvalidHand::HandGreaterThanDeck { .. } => "hand_greater_than_deck",
                InvalidHand::DeckTooLarge { .. } => "deck_too_large",
                InvalidHand::TooMuchEntropy { .. } => "too_much_entropy",
            };
            (Value::from(name), Value::from(error.to_string()))
        }
    };
    if case["ok"] == Value::Bool(found.is_null()) && case["error"] == found && case["message"] == message {
        Ok(())
    } else {
        Err(format!("{found}: {message}"))
    }
}

fn entropy(case: &Value, deck: i64, hand: i64) -> Result<(), String> {
    let small = |number: i64| u32::try_from(number).map_err(|error| error.to_string());
    let found = i64::from(required_entropy_bits(small(deck)?, small(hand)?));
    let expected = integer(case, "bits")?;
    if found == expected { Ok(()) } else { Err(format!("{found} is not {expected}")) }
}
