use std::panic::AssertUnwindSafe;

use usher_flowcontrol::controller::User;
use usher_flowcontrol::request_info::RequestInfo;

use super::*;
use crate::config::objects::Source;
use crate::coordinator;
use crate::steering;

/// One level with one seat and no queues.
fn admission() -> Rc<Admission> {
    Rc::new(Admission::new(Seats(1), 0, None, steering::Line::default()))
}

fn arrive(admission: &Rc<Admission>) -> Entry {
    arrive_as(admission, &[])
}

fn arrive_as(admission: &Rc<Admission>, groups: &[String]) -> Entry {
    let info = RequestInfo::parse("GET", "/api/v1/pods/p").unwrap();
    let user = User { name: "u", groups };
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

/// Two workers of the suggested objects with one seat for each level, and who watches over them.
struct Pair {
    seats: coordinator::Seats,
    told: Arc<Objects>,
    workers: Vec<Rc<Admission>>,
    groups: Vec<String>,
}

impl Pair {
    fn new() -> Self {
        let seats = coordinator::Seats::new(Seats(1), 2, false);
        let mut objects = Source { folder: None, suggested: true }.read().unwrap();
        let level = objects.levels.iter_mut().find(|level| level.metadata.name == "global-default").unwrap();
        level.spec.limited.as_mut().unwrap().lendable_percent = Some(0);
        let told = seats.configure(&objects);
        let groups = vec!["system:authenticated".to_owned()];
        let mut pair = Self { seats, told, workers: Vec::new(), groups };
        pair.workers = vec![pair.worker(0), pair.worker(1)];
        pair
    }

    fn worker(&self, worker: usize) -> Rc<Admission> {
        let admission =
            Rc::new(Admission::new(Seats(1), worker, Some(self.seats.together()), steering::Line::default()));
        admission.configure(&self.told);
        admission
    }

    fn arrive(&self, worker: usize) -> Entry {
        arrive_as(&self.workers[worker], &self.groups)
    }

    fn hear(&self) {
        self.workers.iter().for_each(|worker| worker.act(|controller| controller.poll(ring::now())));
    }

    /// Requests that hold or want seats.
    fn busy(&self) -> (u64, usize) {
        let snapshot = self.seats.snapshot();
        let level = snapshot.levels.iter().find(|level| &*level.name == "global-default").unwrap();
        (level.seats_in_use.0, level.waiting)
    }
}

fn ready(waiting: &mut Waiting) -> Option<Result<Box<Seat>, Reason>> {
    match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[test]
fn a_seat_goes_from_one_worker_to_another() {
    let pair = Pair::new();
    let Entry::Seated(seat) = pair.arrive(0) else { panic!("a free seat") };
    let Entry::Waits(mut waiting) = pair.arrive(1) else { panic!("the seat is taken") };
    assert_eq!(pair.busy(), (1, 1));
    assert!(ready(&mut waiting).is_none());
    drop(seat);
    assert!(ready(&mut waiting).is_none(), "it has not heard yet");
    pair.hear();
    let Some(Ok(seat)) = ready(&mut waiting) else { panic!("it has its seat") };
    assert_eq!(pair.busy(), (1, 0));
    drop(seat);
    assert_eq!(pair.busy(), (0, 0));
}

#[test]
fn a_seat_granted_to_one_that_has_left_comes_back() {
    let pair = Pair::new();
    let refuse = |waiting: Waiting| waiting.refuse(Reason::QueueFull, Outcome::TooManyWaiting);
    for leave in [drop::<Waiting> as fn(Waiting), refuse] {
        let Entry::Seated(seat) = pair.arrive(0) else { panic!("a free seat") };
        let Entry::Waits(waiting) = pair.arrive(1) else { panic!("the seat is taken") };
        drop(seat);
        leave(waiting);
        assert_eq!(pair.busy(), (1, 0), "granted, and nobody has heard");
        pair.hear();
        assert_eq!(
            (pair.busy(), pair.workers[1].described().len(), pair.workers[1].waiting()),
            ((0, 0), 0, 0)
        );
    }
}

#[test]
fn whose_time_is_over_as_the_seat_comes_gets_it() {
    let pair = Pair::new();
    let Entry::Seated(seat) = pair.arrive(0) else { panic!("a free seat") };
    let Entry::Waits(waiting) = pair.arrive(1) else { panic!("the seat is taken") };
    drop(seat);
    let mut waiting = waiting.time_out().expect("decided elsewhere in this moment");
    pair.hear();
    assert!(matches!(ready(&mut waiting), Some(Ok(_))));

    let Entry::Seated(_seat) = pair.arrive(0) else { panic!("a free seat") };
    let Entry::Waits(waiting) = pair.arrive(1) else { panic!("the seat is taken") };
    assert!(waiting.time_out().is_none(), "nobody decides about it");
    assert_eq!(pair.busy(), (1, 0));
}

#[test]
fn a_worker_takes_the_place_of_one_that_died() {
    let mut pair = Pair::new();
    let successor = Controller::empty(ring::now(), Seats(1));
    drop(std::mem::replace(&mut *pair.workers[0].controller.borrow_mut(), successor));
    assert!(pair.seats.bury(0));
    pair.workers[0] = pair.worker(0);
    let Entry::Seated(seat) = pair.arrive(0) else { panic!("a free seat") };
    drop(seat);
    assert_eq!(pair.busy(), (0, 0));
}
