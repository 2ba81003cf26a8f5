//! The choice, tried on a model of its maps.

use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::{
    ARRIVALS_ALL, Arrival, Arrivals, CROWD_LEAST, Choice, ERA_SHIFT, Kind, NOBODY, Record, View, choose,
    moves,
};
use crate::steer::{ABSENT, CLIENTS_MAX, Client, DRAINING, Load, Path, Rules, SERVING, SLOTS};

mod scenarios;

/// The maps, as the kernel keeps them; the map of clients forgets the one that was not touched for longest.
pub(super) struct Model {
    pub(super) rules: Rules,
    pub(super) loads: Vec<Load>,
    arrivals: Vec<Arrivals>,
    records: HashMap<Client, (u64, Record)>,
    touches: u64,
    room: usize,
}

impl Model {
    pub(super) fn new(workers: usize) -> Self {
        let serving = Load { state: SERVING, ..Load::default() };
        Self {
            rules: Rules { slots: u32::try_from(workers).unwrap(), ..Rules::default() },
            loads: vec![serving; workers],
            arrivals: vec![Arrivals::default(); SLOTS as usize + 1],
            records: HashMap::new(),
            touches: 0,
            room: CLIENTS_MAX as usize,
        }
    }

    fn ask(&mut self, client: Client, kind: Kind, hash: u32, now: u64) -> Choice {
        choose(self, &Arrival { client, hash, kind, now })
    }
}

impl View for Model {
    fn rules(&self) -> Rules {
        self.rules
    }
    fn load(&self, slot: u32) -> Load {
        assert!(slot < SLOTS);
        self.loads.get(slot as usize).copied().unwrap_or_default()
    }
    fn arrivals(&self, slot: u32) -> Arrivals {
        self.arrivals[slot as usize]
    }
    fn set_arrivals(&mut self, slot: u32, arrivals: Arrivals) {
        self.arrivals[slot as usize] = arrivals;
    }
    fn record(&self, client: &Client) -> Record {
        self.records.get(client).map(|(_, record)| *record).unwrap_or_default()
    }
    fn set_record(&mut self, client: &Client, record: &Record) {
        self.touches += 1;
        if self.records.len() == self.room && !self.records.contains_key(client) {
            let (oldest, _) = self.records.iter().min_by_key(|(_, (touched, _))| *touched).unwrap();
            let oldest = *oldest;
            self.records.remove(&oldest);
        }
        self.records.insert(*client, (self.touches, *record));
    }
}

/// Client number `n` of many.
pub(super) fn client(n: usize) -> Client {
    let [.., c, d] = n.to_be_bytes();
    Client::from_v4([10, 7, c, d])
}

const SECOND: u64 = 1_000_000_000;

fn state() -> impl Strategy<Value = u32> {
    prop_oneof![Just(ABSENT), Just(SERVING), Just(DRAINING), Just(77)]
}

fn load() -> impl Strategy<Value = Load> {
    (state(), any::<u32>(), any::<u32>()).prop_map(|(state, connections, busy)| Load {
        state,
        connections,
        busy,
        ..Load::default()
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::New), Just(Kind::Later), Just(Kind::Migrating)]
}

fn record() -> impl Strategy<Value = Record> {
    (any::<u64>(), any::<u32>(), 0..9_u32, any::<u32>(), 0..2_u32).prop_map(
        |(whole_at, count, era, home, crowd)| Record {
            whole_at,
            arrivals: Arrivals { count, era },
            home,
            crowd,
        },
    )
}

proptest! {
    /// Whatever the maps hold: a worker that serves while there is one, the second another one that serves, and nobody
    /// is refused without a budget.
    #[test]
    fn only_workers_that_serve_are_chosen(
        loads in prop::collection::vec(load(), 0..12), slots in 0..20_u32, kind in kind(), record in record(),
        hash in any::<u32>(), now in 0..1_u64 << 60, address in any::<[u8; 16]>(), counts in any::<[(u32, u32); 3]>(),
    ) {
        let mut model = Model::new(0);
        model.rules.slots = slots;
        model.loads = loads;
        for (slot, (count, era)) in [0, 1, ARRIVALS_ALL as usize].into_iter().zip(counts) {
            model.arrivals[slot] = Arrivals { count, era };
        }
        model.set_record(&Client(address), &record);
        let choice = model.ask(Client(address), kind, hash, now);
        let serving = |slot: u32| slot < slots && model.load(slot).state == SERVING;
        if (0..slots).any(serving) {
            prop_assert!(serving(choice.slot), "{choice:?}");
            prop_assert!(choice.path != Path::Kernel && choice.path != Path::Refused);
        } else {
            prop_assert_eq!(choice, Choice { path: Path::Kernel, slot: NOBODY, second: NOBODY });
        }
        prop_assert!(choice.second == NOBODY || (serving(choice.second) && choice.second != choice.slot));
        // The second best is known wherever there is one and the hash found a worker.
        if (0..slots).filter(|slot| serving(*slot)).count() > 1 && choice.path == Path::Affinity {
            prop_assert!(choice.second != NOBODY);
        }
    }

    /// Who is told the same and finds the same goes to the same worker, and only a new connection leaves a trace of its client.
    #[test]
    fn only_new_connections_are_remembered(workers in 1..9_usize, n in 0..5000_usize, hash in any::<u32>()) {
        let mut model = Model::new(workers);
        let first = model.ask(client(n), Kind::Later, hash, SECOND);
        prop_assert_eq!(model.record(&client(n)), Record::default());
        let second = model.ask(client(n), Kind::New, hash, SECOND);
        prop_assert_eq!(first.slot, second.slot);
        prop_assert_eq!(model.record(&client(n)).home, second.slot + 1);
        let third = model.ask(client(n), Kind::Migrating, hash, SECOND);
        prop_assert_eq!((third.slot, third.path), (second.slot, Path::Migrated));
        prop_assert_eq!(model.record(&client(n)).arrivals.count, 1);
    }

    /// A client that moves does not come back at once: with it, its new worker is still the less loaded one.
    #[test]
    fn moving_there_and_back_is_impossible(here in 0..1_u64 << 40, there in 0..1_u64 << 40, weight in 0..1_u64 << 32) {
        let (left, joined) = (here.saturating_sub(weight), there + weight);
        prop_assert!(!(moves(here, there, weight) && moves(joined, left, weight)));
    }

    /// Within any stretch of time, a source gets what its budget gives in it, and one burst; with patience it gets all of that.
    #[test]
    fn a_budget_is_kept_and_given(budget in 1..200_u32, burst in 0..50_u32, gaps in prop::collection::vec(0..40_000_000_u64, 1..300)) {
        let mut model = Model::new(2);
        model.rules = Rules { budget, burst, ..model.rules };
        let (mut now, mut passed) = (SECOND, Vec::new());
        let each = SECOND / u64::from(budget);
        for gap in gaps {
            now += gap;
            if model.ask(client(1), Kind::New, 0, now).path != Path::Refused {
                passed.push(now);
            }
        }
        let burst = u64::from(burst.max(1));
        for (index, from) in passed.iter().enumerate() {
            for (further, to) in passed.iter().enumerate().skip(index) {
                let allowed = burst + (to - from) / each + 1;
                prop_assert!(((further - index) as u64) < allowed, "{} in {} ns", further - index + 1, to - from);
            }
        }
        prop_assert!(model.ask(client(1), Kind::New, 0, now + each).path != Path::Refused, "waited for its turn");
        prop_assert!(model.ask(client(2), Kind::New, 0, now).path != Path::Refused, "another source");
    }
}

#[test]
fn a_migrating_connection_and_the_end_of_a_handshake_are_never_refused() {
    let mut model = Model::new(2);
    model.rules = Rules { budget: 1, burst: 1, ..model.rules };
    assert_ne!(model.ask(client(1), Kind::New, 0, SECOND).path, Path::Refused);
    assert_eq!(model.ask(client(1), Kind::New, 0, SECOND).path, Path::Refused);
    assert_eq!(model.ask(client(1), Kind::Migrating, 0, SECOND).path, Path::Migrated);
    assert_eq!(model.ask(client(1), Kind::Later, 0, SECOND).path, Path::Later);
}

#[test]
fn a_budget_that_becomes_tighter_or_looser_holds_from_then_on() {
    let mut model = Model::new(2);
    model.rules = Rules { budget: 1, burst: 1000, ..model.rules };
    for _ in 0..1000 {
        assert_ne!(model.ask(client(1), Kind::New, 0, SECOND).path, Path::Refused);
    }
    assert_eq!(model.ask(client(1), Kind::New, 0, SECOND).path, Path::Refused);
    // A thousand seconds of debt are no more than an empty bucket of the new size.
    model.rules = Rules { budget: 10, burst: 5, ..model.rules };
    assert_eq!(model.ask(client(1), Kind::New, 0, SECOND).path, Path::Refused);
    assert_ne!(model.ask(client(1), Kind::New, 0, SECOND + SECOND / 10).path, Path::Refused);
}

#[test]
fn counts_halve_with_each_era_and_bear_clocks_that_differ() {
    let arrivals = Arrivals { count: 1000, era: 7 };
    assert_eq!([6, 7, 8, 9, 17, 70].map(|era| arrivals.in_era(era)), [1000, 1000, 500, 250, 0, 0]);
    assert_eq!(Arrivals { count: u32::MAX, era: 7 }.and_one(7).count, u32::MAX);
}

#[test]
fn an_address_is_a_crowd_while_it_has_about_a_share() {
    let mut model = Model::new(4);
    let paths: Vec<Path> = (0..200).map(|hash| model.ask(client(1), Kind::New, hash, 0).path).collect();
    assert!(paths[..CROWD_LEAST as usize - 1].iter().all(|path| *path != Path::Spread));
    assert!(paths[CROWD_LEAST as usize..].iter().all(|path| *path == Path::Spread));
    // Others come, sixteen for each of its own: less than half of a quarter.
    for n in 0..4000 {
        model.ask(client(2 + n), Kind::New, 0, 0);
        if n % 16 == 0 {
            model.ask(client(1), Kind::New, 0, 0);
        }
    }
    assert_ne!(model.ask(client(1), Kind::New, 0, 0).path, Path::Spread);
}

#[test]
fn one_worker_gets_everybody() {
    let mut model = Model::new(1);
    for n in 0..1000 {
        let choice = model.ask(client(n % 7), Kind::New, 0, 0);
        assert_eq!(choice, Choice { path: Path::Affinity, slot: 0, second: NOBODY });
    }
}

#[test]
fn a_worker_that_is_replaced_gets_its_clients_back() {
    let mut model = Model::new(8);
    let homes: Vec<u32> = (0..500).map(|n| model.ask(client(n), Kind::New, 0, 0).slot).collect();
    model.loads[3].state = ABSENT;
    for (n, home) in homes.iter().enumerate() {
        let choice = model.ask(client(n), Kind::Later, 0, 0);
        // Others stay where they are.
        assert!(if *home == 3 { choice.slot != 3 } else { choice.slot == *home });
    }
    model.loads[3].state = SERVING;
    assert!((0..500).all(|n| model.ask(client(n), Kind::Later, 0, 0).slot == homes[n]));
}

#[test]
fn an_era_is_seventeen_seconds() {
    assert_eq!((1_u64 << ERA_SHIFT) / SECOND, 17);
}
