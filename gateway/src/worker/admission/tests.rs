use std::panic::AssertUnwindSafe;

use usher_flowcontrol::controller::User;
use usher_flowcontrol::request_info::RequestInfo;

use super::*;

/// One level with one seat and no queues.
fn admission() -> Rc<Admission> {
    Rc::new(Admission::new(Seats(1)))
}

fn arrive(admission: &Rc<Admission>) -> Entry {
    let info = RequestInfo::parse("GET", "/api/v1/pods/p").unwrap();
    let user = User { name: "u", groups: &[] };
    let class = admission.controller.borrow().classify(user, &info);
    let user = Arc::new(Identity::default());
    let described = Described { user, method: Method::GET, target: Uri::default() };
    admission.arrive(&class, Work::seats(1), described, Measured::begin(None, ring::now()))
}

fn seats_in_use(admission: &Admission) -> u64 {
    let snapshot = admission.controller.borrow_mut().snapshot(ring::now());
    snapshot.levels.iter().map(|level| level.seats_in_use.0).sum()
}

#[test]
fn a_seat_comes_back_when_dropped() {
    let admission = admission();
    let Entry::Seated(seat) = arrive(&admission) else { panic!("a free seat") };
    assert_eq!((seats_in_use(&admission), admission.described().len()), (1, 1));
    let Entry::TurnedAway(Reason::ConcurrencyLimit) = arrive(&admission) else { panic!("no seat") };
    drop(seat);
    assert_eq!((seats_in_use(&admission), admission.described().len()), (0, 0));
}

#[test]
fn a_seat_comes_back_from_a_panic() {
    let admission = admission();
    let Entry::Seated(seat) = arrive(&admission) else { panic!("a free seat") };
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _held = seat;
        panic!("in the middle of a request");
    }));
    assert!(panicked.is_err());
    assert_eq!(seats_in_use(&admission), 0);
}

#[test]
fn a_tag_is_not_mistaken_for_an_earlier_one() {
    let mut book = Book::default();
    let user = Arc::new(Identity::default());
    let described = Described { user, method: Method::GET, target: Uri::default() };
    let first = book.enter(described.clone());
    book.leave(first);
    let second = book.enter(described);
    assert_ne!(first, second, "the same line, another generation");
    book.leave(first);
    assert!(book.line(second).is_some());
}
