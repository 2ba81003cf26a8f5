//! Places: what the driver keeps for operations in flight, and the numbers by which completions name it.

use std::rc::Rc;

use super::listener::Listening;
use super::naming::Naming;
use super::sending::ZeroCopy;
use super::socket::Socket;

/// What an operation is about.
#[derive(Clone)]
pub(super) enum Place {
    Socket(Rc<Socket>),
    Listening(Rc<Listening>),
    ZeroCopy(Rc<ZeroCopy>),
    Naming(Rc<Naming>),
}

/// All places.
#[derive(Default)]
pub(super) struct Table {
    places: Vec<(u32, Option<Place>)>,
    vacant: Vec<u32>,
}

/// Names a place as long as it has the same tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

/// What kind of operation completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Nobody cares.
    Ignored,
    Receive,
    /// A send that completes.
    Send,
    /// A send that completes only if it did not take everything.
    SilentSend,
    ZeroCopy,
    Connect,
    Hangup,
    Shutdown,
    Accept,
    /// Who has connected.
    Naming,
    /// Another thread woke this one.
    Bell,
    /// Another ring could not be woken.
    Message,
}

/// An operation's `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) key: Key,
}

/// Generations are counted modulo 2^24: that many tenants of one place later, a completion could be mistaken.
const GENERATIONS: u32 = 1 << 24;

// === impl Table ===

impl Table {
    /// A place, once its tenant knows its key.
    pub(super) fn insert(&mut self, tenant: impl FnOnce(Key) -> Place) -> Key {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).expect("fewer places than descriptors")
        });
        let (generation, place) = &mut self.places[index as usize];
        let key = Key { index, generation: *generation };
        *place = Some(tenant(key));
        key
    }

    pub(super) fn get(&self, key: Key) -> Option<Place> {
        let (generation, place) = self.places.get(key.index())?;
        place.clone().filter(|_| *generation == key.generation)
    }

    /// The place is free for another tenant.
    pub(super) fn remove(&mut self, key: Key) -> Option<Place> {
        let (generation, place) = self.places.get_mut(key.index())?;
        if *generation != key.generation {
            return None;
        }
        *generation = (*generation + 1) % GENERATIONS;
        self.vacant.push(key.index);
        place.take()
    }

    /// Tenants.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }
}

// === impl Key ===

impl Key {
    /// Nobody's.
    pub(super) const NONE: Self = Self { index: u32::MAX, generation: 0 };

    /// The number of a message.
    pub(super) fn numbered(index: usize) -> Self {
        Self { index: u32::try_from(index).unwrap_or(u32::MAX), generation: 0 }
    }

    pub(super) fn index(self) -> usize {
        self.index as usize
    }
}

// === impl Kind ===

impl Kind {
    const ALL: [Self; 12] = [
        Self::Ignored,
        Self::Receive,
        Self::Send,
        Self::SilentSend,
        Self::ZeroCopy,
        Self::Connect,
        Self::Hangup,
        Self::Shutdown,
        Self::Accept,
        Self::Naming,
        Self::Bell,
        Self::Message,
    ];

    /// Whether each operation of this kind has a last completion.
    pub(super) fn completes(self) -> bool {
        !matches!(self, Self::Ignored | Self::SilentSend | Self::Message)
    }
}

// === impl Token ===

impl Token {
    pub(super) const IGNORED: Self = Self::new(Kind::Ignored, Key::NONE);

    pub(super) const fn new(kind: Kind, key: Key) -> Self {
        Self { kind, key }
    }

    pub(super) fn read(user_data: u64) -> Option<Self> {
        let kind = *Kind::ALL.get((user_data >> 56) as usize)?;
        let generation = (user_data >> 32) as u32 % GENERATIONS;
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is the index")]
        let index = user_data as u32;
        Some(Self { kind, key: Key { index, generation } })
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        (token.kind as u64) << 56 | u64::from(token.key.generation) << 32 | u64::from(token.key.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_kernel() {
        for kind in Kind::ALL {
            let token = Token::new(kind, Key { index: 0xdead_beef, generation: GENERATIONS - 1 });
            assert_eq!(Token::read(token.into()), Some(token));
        }
        assert_eq!(Token::read(u64::MAX), None);
    }
}
