//! The fair queues of one priority level: whose turn it is.
//!
//! KEP-1040, "Fair Queuing for Server Requests". Every queue has a reading of the progress meter at
//! which its next request would start in a virtual world that serves all queues at once; the request
//! that would finish first there is dispatched first here. Dispatch charges a guessed service time,
//! finishing corrects the guess.
//!
//! What is not here: whether there is a seat ([`crate::level`] knows), and what became of requests that
//! never had a queue. No cost grows with the configured number of queues: those with waiting requests
//! are kept in order of virtual finish, the sums that drive the meter are kept up to date.

mod meter;
mod order;
mod queues;
pub(crate) mod requests;

pub use requests::Phase;

use meter::{ProgressMeter, Reading, wind_back};
use order::{Entry, FinishOrder};
pub(crate) use queues::Queue;
use queues::Queues;
pub(crate) use requests::SERVICE_TIME_GUESS;
use requests::{Request, Requests};

use crate::shuffle::Dealer;
use crate::units::{FlowHash, Nanos, SeatSeconds, Seats};

/// The queues, the meter, and the order in which heads finish.
#[derive(Debug)]
pub(crate) struct QueueSet {
    meter: ProgressMeter,
    queues: Queues,
    /// Invariant: exactly the queues in which a request waits, keyed by the finish of their heads.
    order: FinishOrder,
    /// Index of the queue last dispatched from.
    robin: u32,
    /// Queues chosen so far; turns the hand, so that a flow's requests spread over its queues.
    choices: u64,
    /// Number of queues that take new requests.
    desired: u32,
    /// Invariant: sum over the queues.
    waiting: usize,
    /// Invariant: queues in which something waits or executes.
    active: u32,
    /// Invariant: queues at or above `desired`, in use still.
    surplus: u32,
    /// Invariant: sum of the waiting requests' seats.
    seats_waiting: Seats,
    /// Invariant: sum over the queues.
    seats_in_use: Seats,
    epochs: Epochs,
    last_dispatch: Option<LastDispatch>,
}

/// How often the progress meter was wound back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// With every reading.
    pub complete: u64,
    /// While some reading was older than the whole epoch, and became the oldest there is.
    pub clipped: u64,
}

impl Epochs {
    /// Adds what was counted elsewhere of the same level.
    pub fn add(&mut self, other: Self) {
        self.complete += other.complete;
        self.clipped += other.clipped;
    }
}

/// Readings at the latest dispatch from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDispatch {
    /// The progress meter.
    pub r: SeatSeconds,
    /// Virtual start of the dispatched request.
    pub virtual_start: SeatSeconds,
}

impl QueueSet {
    pub(crate) fn new(now: Nanos, desired: u32) -> Self {
        Self {
            meter: ProgressMeter::new(now),
            queues: Queues::new(),
            order: FinishOrder::new(),
            robin: 0,
            choices: 0,
            desired,
            waiting: 0,
            active: 0,
            surplus: 0,
            seats_waiting: Seats(0),
            seats_in_use: Seats(0),
            epochs: Epochs::default(),
            last_dispatch: None,
        }
    }

    // === events ===

    /// Brings the meter up to `now`, at the rate of the state until now; returns the time to go by,
    /// which never runs backwards.
    pub(crate) fn sync(&mut self, requests: &mut Requests, now: Nanos, limit: Seats) -> Nanos {
        let shared = (self.seats_in_use + self.seats_waiting).min(limit);
        if self.meter.read(now, shared, self.active) == Reading::NewEpoch {
            self.begin_epoch(requests);
        }
        self.meter.read_at()
    }

    /// The slot of the queue for a request: of the flow's hand, starting at a card that moves on with
    /// every request, the first with the least waiting work.
    pub(crate) fn choose(&mut self, dealer: &Dealer, flow: FlowHash) -> u32 {
        let size = dealer.hand_size();
        #[expect(clippy::cast_possible_truncation, reason = "less than the hand's size")]
        let offset = (self.choices % u64::from(size)) as u8;
        self.choices += 1;
        if self.waiting == 0 {
            return self.queues.open(dealer.card(flow, offset));
        }
        let hand = dealer.deal(flow);
        let (before, from) = hand.cards().split_at(usize::from(offset));
        let work = |card: u32| self.queues.find(card).map_or(SeatSeconds::ZERO, |queue| queue.total_work_sum);
        let best = from.iter().chain(before).copied().min_by_key(|&card| work(card));
        self.queues.open(best.unwrap_or_default())
    }

    /// Appends a request of the table to the queue in `slot`.
    pub(crate) fn enqueue(&mut self, requests: &mut Requests, slot: u32, id: u32) {
        self.enter(slot);
        let queue = self.queues.get_mut(slot);
        let request = requests.get_mut(id);
        request.queue = slot;
        request.phase = Phase::Waiting;
        let seats = request.work.max_seats();
        queue.initial_seats_sum += request.work.initial_seats;
        queue.max_seats_sum += seats;
        queue.total_work_sum = queue.total_work_sum.plus(request.total_work);
        queue.waiting.push(requests, id);
        self.waiting += 1;
        self.seats_waiting += seats;
        if self.queues.get(slot).waiting.len() == 1 {
            self.put_in_order(requests, slot);
        }
    }

    /// The request whose turn it is.
    pub(crate) fn earliest(&self) -> Option<u32> {
        let slot = self.order.earliest(self.robin)?;
        self.queues.get(slot).waiting.first()
    }

    /// Takes a waiting request out of its queue, wherever it stands: its wait is over.
    pub(crate) fn withdraw(&mut self, requests: &mut Requests, id: u32) {
        let slot = self.unlink(requests, id);
        self.leave(slot);
    }

    /// Starts the request whose turn it is and charges its queue with the work expected of it. A request
    /// wider than `limit` holds the limit's seats for so much longer after its execution.
    pub(crate) fn start(&mut self, requests: &mut Requests, id: u32, limit: Seats) {
        let virtual_start = self.charge(requests, id);
        // parity: C1. The waiting sums lose what they were given; only then is the request cut.
        self.unlink(requests, id);
        self.begin(requests, id, virtual_start, limit);
    }

    /// Starts a request of the table from the queue in `slot` while nothing waits anywhere: what
    /// [`QueueSet::enqueue`] and [`QueueSet::start`] would do, without the way through the queue.
    pub(crate) fn start_at_once(&mut self, requests: &mut Requests, slot: u32, id: u32, limit: Seats) {
        debug_assert_eq!(self.waiting, 0, "nobody is overtaken");
        self.enter(slot);
        let queue = self.queues.get_mut(slot);
        queue.next_dispatch_r = queue.next_dispatch_r.max(self.meter.r());
        requests.get_mut(id).queue = slot;
        let virtual_start = self.charge(requests, id);
        self.begin(requests, id, virtual_start, limit);
    }

    /// The work of an executing request is done: its queue is charged with the time it really took. Its
    /// seats stay in use until [`QueueSet::release`].
    pub(crate) fn finish(&mut self, requests: &mut Requests, id: u32) {
        let request = requests.get(id);
        let spent = self.meter.read_at() - request.started;
        #[expect(clippy::cast_precision_loss, reason = "the reference computes in f64; widths are small")]
        let correction = SeatSeconds::of(request.work.initial_seats.0 as f64, SERVICE_TIME_GUESS - spent);
        let reading = self.queues.get(request.queue).next_dispatch_r;
        let corrected = if spent <= SERVICE_TIME_GUESS {
            reading.minus_or_zero(correction)
        } else {
            reading.minus(correction)
        };
        self.end(requests, id, corrected);
    }

    /// An executing request has not executed after all: its queue is not charged. Its seats stay in use
    /// until [`QueueSet::release`].
    pub(crate) fn retract(&mut self, requests: &mut Requests, id: u32) {
        let request = requests.get(id);
        let reading = self.queues.get(request.queue).next_dispatch_r;
        self.end(requests, id, reading.minus_or_zero(request.total_work));
    }

    /// A finished request gives its seats back.
    pub(crate) fn release(&mut self, requests: &Requests, id: u32) {
        let request = requests.get(id);
        let seats = request.work.max_seats();
        let queue = self.queues.get_mut(request.queue);
        queue.lingering -= 1;
        queue.seats_in_use -= seats;
        self.seats_in_use -= seats;
        self.settle(request.queue);
    }

    /// From now on that many queues take new requests.
    ///
    /// parity: C2, C3. Queues above drain where they are, keep their index, and vanish when empty.
    pub(crate) fn reshape(&mut self, desired: u32) {
        self.desired = desired;
        self.queues.forget_idle_from(desired);
        let surplus = self.queues.iter().filter(|(_, queue)| queue.index >= desired && !queue.is_idle());
        self.surplus = u32::try_from(surplus.count()).unwrap_or(u32::MAX);
    }

    // === what can be seen ===

    pub(crate) fn r(&self) -> SeatSeconds {
        self.meter.r()
    }

    pub(crate) fn read_at(&self) -> Nanos {
        self.meter.read_at()
    }

    pub(crate) fn robin(&self) -> u32 {
        self.robin
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn seats_waiting(&self) -> Seats {
        self.seats_waiting
    }

    pub(crate) fn seats_in_use(&self) -> Seats {
        self.seats_in_use
    }

    pub(crate) fn epochs(&self) -> Epochs {
        self.epochs
    }

    pub(crate) fn last_dispatch(&self) -> Option<LastDispatch> {
        self.last_dispatch
    }

    /// Queues that take requests, and surplus ones that drain.
    pub(crate) fn queue_count(&self) -> u32 {
        self.desired.saturating_add(self.surplus)
    }

    pub(crate) fn queue(&self, slot: u32) -> &Queue {
        self.queues.get(slot)
    }

    pub(crate) fn find(&self, index: u32) -> Option<&Queue> {
        self.queues.find(index)
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().map(|(_, queue)| queue)
    }

    // === steps ===

    /// A request comes to a queue: one without waiting or executing requests starts at the present.
    fn enter(&mut self, slot: u32) {
        let queue = self.queues.get_mut(slot);
        if queue.is_active() {
            return;
        }
        queue.next_dispatch_r = self.meter.r();
        let was_idle = queue.is_idle();
        self.active += 1;
        if was_idle {
            self.queues.wake(slot);
        }
    }

    /// Adds the work expected of a request to the reading of its queue; what that was before.
    fn charge(&mut self, requests: &Requests, id: u32) -> SeatSeconds {
        let request = requests.get(id);
        let queue = self.queues.get_mut(request.queue);
        let virtual_start = queue.next_dispatch_r;
        queue.next_dispatch_r = virtual_start.plus(request.total_work);
        virtual_start
    }

    /// A request that is charged and waits no more takes its seats.
    fn begin(&mut self, requests: &mut Requests, id: u32, virtual_start: SeatSeconds, limit: Seats) {
        let request = requests.get_mut(id);
        cut_final_seats(request, limit);
        request.phase = Phase::Executing;
        request.started = self.meter.read_at();
        let (slot, seats) = (request.queue, request.work.max_seats());
        let queue = self.queues.get_mut(slot);
        queue.executing.push(requests, id);
        queue.seats_in_use += seats;
        self.seats_in_use += seats;
        self.robin = queue.index;
        self.last_dispatch = Some(LastDispatch { r: self.meter.r(), virtual_start });
    }

    /// An executing request does so no more; its queue stands at `reading` now.
    fn end(&mut self, requests: &mut Requests, id: u32, reading: SeatSeconds) {
        let request = requests.get_mut(id);
        request.phase = Phase::Lingering;
        let slot = request.queue;
        let queue = self.queues.get_mut(slot);
        queue.executing.remove(requests, id);
        queue.lingering += 1;
        queue.next_dispatch_r = reading;
        if !queue.is_active() {
            self.active -= 1;
        }
        self.reorder(requests, slot);
    }

    /// A waiting request has left a queue without executing.
    fn leave(&mut self, slot: u32) {
        if !self.queues.get(slot).is_active() {
            self.active -= 1;
            self.settle(slot);
        }
    }

    /// Lets a queue rest that nothing refers to; a surplus one is gone.
    fn settle(&mut self, slot: u32) {
        let queue = self.queues.get(slot);
        if !queue.is_idle() {
            return;
        }
        debug_assert_eq!(queue.seats_in_use, Seats(0), "no requests, no seats");
        if queue.index < self.desired {
            self.queues.rest(slot);
        } else {
            self.surplus -= 1;
            self.queues.forget(slot);
        }
    }

    /// Takes a request off its FIFO and off the sums; returns its queue's slot.
    fn unlink(&mut self, requests: &mut Requests, id: u32) -> u32 {
        let Request { queue: slot, work, total_work, .. } = *requests.get(id);
        let queue = self.queues.get_mut(slot);
        let was_head = queue.waiting.first() == Some(id);
        queue.waiting.remove(requests, id);
        queue.initial_seats_sum -= work.initial_seats;
        queue.max_seats_sum -= work.max_seats();
        queue.total_work_sum = queue.total_work_sum.minus(total_work);
        self.waiting -= 1;
        self.seats_waiting -= work.max_seats();
        if queue.waiting.is_empty() {
            debug_assert_eq!((queue.max_seats_sum, queue.total_work_sum), (Seats(0), SeatSeconds::ZERO));
            self.order.remove(queue.place);
        } else if was_head {
            self.reorder(requests, slot);
        }
        slot
    }

    /// Gives the queue in `slot` its new place, after its head or its reading changed.
    fn reorder(&mut self, requests: &Requests, slot: u32) {
        let queue = self.queues.get(slot);
        if !queue.waiting.is_empty() {
            self.order.remove(queue.place);
            self.put_in_order(requests, slot);
        }
    }

    /// Puts the queue in `slot`, in which a request waits, into its place by virtual finish.
    ///
    /// The virtual start is never before the arrival of the oldest request, which keeps a flow from
    /// saving up service while it asks for none.
    fn put_in_order(&mut self, requests: &Requests, slot: u32) {
        let queue = self.queues.get_mut(slot);
        let Some(head) = queue.waiting.first() else { return };
        let head = requests.get(head);
        queue.next_dispatch_r = queue.next_dispatch_r.max(head.arrival_r);
        let finish = queue.next_dispatch_r.plus(head.total_work);
        queue.place = Entry::new(finish, queue.index, slot);
        self.order.insert(queue.place);
    }

    /// Winds every reading back by an epoch. Once in years, so it may look at everything.
    fn begin_epoch(&mut self, requests: &mut Requests) {
        let mut clipped = false;
        let mut wind = |reading: &mut SeatSeconds| {
            let (wound, old) = wind_back(*reading);
            *reading = wound;
            clipped |= old;
        };
        self.order.clear();
        for slot in self.queues.slots() {
            let queue = self.queues.get_mut(slot);
            if !queue.is_active() {
                queue.next_dispatch_r = SeatSeconds::ZERO;
                continue;
            }
            wind(&mut queue.next_dispatch_r);
            let mut next = queue.waiting.first();
            while let Some(id) = next {
                wind(&mut requests.get_mut(id).arrival_r);
                next = requests.after(id);
            }
        }
        for slot in self.queues.slots() {
            self.put_in_order(requests, slot);
        }
        if clipped {
            self.epochs.clipped += 1;
        } else {
            self.epochs.complete += 1;
        }
    }
}

/// Final seats beyond the limit become the limit, for so much longer that the work is the same.
fn cut_final_seats(request: &mut Request, limit: Seats) {
    if request.work.final_seats <= limit {
        return;
    }
    let final_work = request.total_work.minus(request.initial_work);
    request.work.final_seats = limit;
    #[expect(clippy::cast_precision_loss, reason = "the reference computes in f64; limits are small")]
    let seats = limit.0 as f64;
    request.work.additional_latency = final_work.per_seat(seats);
}
