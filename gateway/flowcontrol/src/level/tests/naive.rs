//! The same rules without any cleverness: all queues in a row, every sum added up when it is needed,
//! every choice made by looking at everything. Its requests are named by their tags.

use super::*;
use crate::queueset::requests::SERVICE_TIME_GUESS;
use alloc::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct NaiveQueue {
    pub(super) next_dispatch_r: u64,
    pub(super) waiting: Vec<u64>,
    pub(super) executing: Vec<u64>,
    pub(super) lingering: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct NaiveRequest {
    queue: Option<u32>,
    work: Work,
    arrival_r: u64,
    total_work: u64,
    started: Nanos,
}

#[derive(Debug)]
pub(super) struct Naive {
    mode: Mode,
    limit: u64,
    now: Nanos,
    pub(super) r: u64,
    pub(super) robin: u32,
    choices: u64,
    pub(super) queues: BTreeMap<u32, NaiveQueue>,
    queueless: Vec<u64>,
    queueless_lingering: Vec<u64>,
    requests: BTreeMap<u64, NaiveRequest>,
    pub(super) rejected: u64,
    pub(super) dispatched: Vec<u64>,
}

fn work_of(seats: Seats, span: Nanos) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let seats = seats.0 as f64;
    SeatSeconds::of(seats, span).raw()
}

impl NaiveQueue {
    fn is_active(&self) -> bool {
        !self.waiting.is_empty() || !self.executing.is_empty()
    }
}

impl Naive {
    pub(super) fn new(mode: Mode, limit: u64) -> Self {
        let mut naive = Self {
            mode,
            limit,
            now: Nanos::ZERO,
            r: 0,
            robin: 0,
            choices: 0,
            queues: BTreeMap::new(),
            queueless: Vec::new(),
            queueless_lingering: Vec::new(),
            requests: BTreeMap::new(),
            rejected: 0,
            dispatched: Vec::new(),
        };
        naive.reshape();
        naive
    }

    pub(super) fn arrive(&mut self, now: Nanos, flow: FlowHash, work: Work, tag: u64) -> bool {
        self.sync(now);
        let initial = work_of(work.initial_seats, SERVICE_TIME_GUESS);
        let total_work = initial.wrapping_add(work_of(work.final_seats, work.additional_latency));
        let mut request =
            NaiveRequest { queue: None, work, arrival_r: self.r, total_work, started: self.now };
        let Mode::Queue { queues, hand_size, queue_length_limit } = self.mode else {
            if !self.fits(work.max_seats().0) {
                self.rejected += 1;
                return false;
            }
            self.queueless.push(tag);
            self.requests.insert(tag, request);
            self.dispatched.push(tag);
            return true;
        };
        let hand = Dealer::clamped(queues, hand_size).deal(flow);
        let mut best = None;
        for step in 0..hand.cards().len() {
            let offset = usize::try_from(self.choices).expect("few") + step;
            let card = hand.cards()[offset % hand.cards().len()];
            let waiting: u64 =
                self.queues[&card].waiting.iter().map(|tag| self.requests[tag].total_work).sum();
            if best.is_none_or(|(_, least)| waiting < least) {
                best = Some((card, waiting));
            }
        }
        self.choices += 1;
        let (index, _) = best.expect("a hand has cards");
        let queue = self.queues.get_mut(&index).expect("every configured queue exists");
        let length = u32::try_from(queue.waiting.len()).expect("few");
        if length >= queue_length_limit && self.seats_in_use() >= self.limit {
            self.rejected += 1;
            self.dispatch();
            return false;
        }
        let queue = self.queues.get_mut(&index).expect("every configured queue exists");
        if !queue.is_active() {
            queue.next_dispatch_r = self.r;
        }
        request.queue = Some(index);
        queue.waiting.push(tag);
        self.requests.insert(tag, request);
        self.bound(index);
        self.dispatch();
        true
    }

    pub(super) fn cancel(&mut self, now: Nanos, tag: u64) -> bool {
        let waits = |queue: &NaiveQueue| queue.waiting.contains(&tag);
        let Some(index) = self.queues.iter().find(|(_, queue)| waits(queue)).map(|(&index, _)| index) else {
            return false;
        };
        self.sync(now);
        self.queues.get_mut(&index).expect("found").waiting.retain(|&other| other != tag);
        self.requests.remove(&tag);
        self.rejected += 1;
        self.bound(index);
        self.reshape();
        self.dispatch();
        true
    }

    /// When its lingering ends, if it lingers.
    pub(super) fn finish(&mut self, now: Nanos, tag: u64) -> Option<Nanos> {
        let request = *self.requests.get(&tag).filter(|_| self.executes(tag))?;
        self.sync(now);
        let lingers = request.work.additional_latency > Nanos::ZERO;
        if let Some(index) = request.queue {
            let queue = self.queues.get_mut(&index).expect("it holds a request");
            queue.executing.retain(|&other| other != tag);
            queue.lingering.push(tag);
            let spent = self.now - request.started;
            let refund = work_of(request.work.initial_seats, SERVICE_TIME_GUESS - spent);
            queue.next_dispatch_r = queue.next_dispatch_r.wrapping_sub(refund);
            self.bound(index);
        } else {
            self.queueless.retain(|&other| other != tag);
            self.queueless_lingering.push(tag);
        }
        if !lingers {
            self.release(tag);
        }
        self.dispatch();
        lingers.then_some(self.now + request.work.additional_latency)
    }

    pub(super) fn linger_end(&mut self, now: Nanos, tag: u64) {
        let lingers = self.queueless_lingering.contains(&tag)
            || self.queues.values().any(|queue| queue.lingering.contains(&tag));
        if lingers {
            self.sync(now);
            self.release(tag);
            self.dispatch();
        }
    }

    pub(super) fn reconfigure(&mut self, now: Nanos, mode: Mode, limit: u64) {
        self.sync(now);
        (self.mode, self.limit) = (mode, limit);
        self.reshape();
        self.dispatch();
    }

    pub(super) fn executes(&self, tag: u64) -> bool {
        self.queueless.contains(&tag) || self.queues.values().any(|queue| queue.executing.contains(&tag))
    }

    pub(super) fn executing(&self) -> usize {
        self.queueless.len() + self.queues.values().map(|queue| queue.executing.len()).sum::<usize>()
    }

    pub(super) fn seats_in_use(&self) -> u64 {
        let queueless =
            self.queueless.iter().chain(&self.queueless_lingering).map(|tag| self.seats(*tag)).sum::<u64>();
        queueless + self.queues.values().map(|queue| self.queue_seats(queue)).sum::<u64>()
    }

    pub(super) fn queue_seats(&self, queue: &NaiveQueue) -> u64 {
        queue.executing.iter().chain(&queue.lingering).map(|tag| self.seats(*tag)).sum()
    }

    pub(super) fn waiting_seats(&self, queue: &NaiveQueue) -> u64 {
        queue.waiting.iter().map(|tag| self.seats(*tag)).sum()
    }

    fn seats(&self, tag: u64) -> u64 {
        self.requests[&tag].work.max_seats().0
    }

    fn sync(&mut self, now: Nanos) {
        let now = now.max(self.now);
        let span = now - self.now;
        self.now = now;
        let active = self.queues.values().filter(|queue| queue.is_active()).count();
        let shared: u64 =
            self.queues.values().map(|queue| self.queue_seats(queue) + self.waiting_seats(queue)).sum();
        if active > 0 {
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let rate = shared.min(self.limit) as f64 / active as f64;
            self.r += SeatSeconds::of(rate, span).raw();
        }
    }

    fn bound(&mut self, index: u32) {
        let queue = self.queues.get_mut(&index).expect("it is in use");
        if let Some(oldest) = queue.waiting.first() {
            queue.next_dispatch_r = queue.next_dispatch_r.max(self.requests[oldest].arrival_r);
        }
    }

    fn fits(&self, seats: u64) -> bool {
        match self.mode {
            Mode::Exempt => true,
            _ if seats > self.limit => self.executing() == 0,
            _ => self.seats_in_use() + seats <= self.limit,
        }
    }

    fn dispatch(&mut self) {
        while self.seats_in_use() < self.limit {
            let end = self.queues.keys().next_back().map_or(0, |last| last + 1).max(self.robin + 1);
            let (mut chosen, mut least) = (None, u64::MAX);
            for step in 1..=end {
                let index = (self.robin + step) % end;
                let Some(queue) = self.queues.get(&index) else { continue };
                let Some(head) = queue.waiting.first() else { continue };
                let finish = queue.next_dispatch_r.wrapping_add(self.requests[head].total_work);
                if finish < least {
                    (chosen, least) = (Some((index, *head)), finish);
                }
            }
            let Some((index, head)) = chosen.filter(|&(_, head)| self.fits(self.seats(head))) else { return };
            let request = self.requests.get_mut(&head).expect("it waits");
            let total_work = request.total_work;
            if request.work.final_seats.0 > self.limit {
                let final_work = total_work - work_of(request.work.initial_seats, SERVICE_TIME_GUESS);
                request.work.final_seats = Seats(self.limit);
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let latency = SeatSeconds::from_raw(final_work).per_seat(self.limit as f64);
                request.work.additional_latency = latency;
            }
            request.started = self.now;
            let queue = self.queues.get_mut(&index).expect("chosen");
            queue.waiting.remove(0);
            queue.executing.push(head);
            queue.next_dispatch_r = queue.next_dispatch_r.wrapping_add(total_work);
            self.robin = index;
            self.dispatched.push(head);
            self.bound(index);
        }
    }

    fn release(&mut self, tag: u64) {
        self.queueless_lingering.retain(|&other| other != tag);
        for queue in self.queues.values_mut() {
            queue.lingering.retain(|&other| other != tag);
        }
        self.requests.remove(&tag);
        self.reshape();
    }

    /// Configured queues exist; others only while something refers to them.
    fn reshape(&mut self) {
        let desired = match self.mode {
            Mode::Queue { queues, .. } => queues,
            Mode::Exempt | Mode::Reject => 0,
        };
        for index in 0..desired {
            self.queues.entry(index).or_default();
        }
        self.queues
            .retain(|&index, queue| index < desired || queue.is_active() || !queue.lingering.is_empty());
    }
}
