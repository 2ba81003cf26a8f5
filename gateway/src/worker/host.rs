//! The task that a request runs in, and how to end it from outside.
//!
//! A client that does not read its answer stops the task that writes it: nobody polls the answer any more, so
//! nothing inside can notice that the request's time is up. The task's wrapper can. It drops everything: over
//! HTTP/1.1 the connection is closed, over HTTP/2 the stream is reset, and seats and upstream connections are
//! given back by their owners' destructors. kube-apiserver does the same to an answer that overruns
//! (and see kubernetes#115409).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;
use usher_flowcontrol::units::Nanos;

use crate::ring;

/// What a task and the request in it tell each other.
#[derive(Debug, Default)]
pub(super) struct Host {
    deadline: Cell<Option<Nanos>>,
    cut: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

pin_project! {
    /// A task with a deadline that can be set from inside.
    pub(super) struct Hosted<F, O> {
        #[pin] inner: F,
        host: Rc<Host>,
        alarm: Option<(Nanos, Pin<Box<ring::Sleep>>)>,
        overrun: O,
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Host>>> = const { RefCell::new(None) };
}

impl Host {
    /// The task that is being polled.
    pub(super) fn current() -> Rc<Self> {
        CURRENT.with_borrow(Option::clone).unwrap_or_default()
    }

    /// From `deadline` on the task is ended; `None`: never.
    pub(super) fn end_at(self: &Rc<Self>, deadline: Option<Nanos>) {
        if self.deadline.replace(deadline) != deadline
            && deadline.is_some()
            && !self.is_being_polled() // or it looks when that is over
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }
}

impl Host {
    fn is_being_polled(self: &Rc<Self>) -> bool {
        CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| Rc::ptr_eq(current, self)))
    }

    /// The task is ended now, and nobody is told: whoever cuts knows why.
    pub(super) fn cut(&self) {
        self.cut.set(true);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

impl<F, O: Fn()> Hosted<F, O> {
    /// Wraps a task; `overrun` is told when it is ended for being too long.
    pub(super) fn new(inner: F, overrun: O) -> Self {
        Self { inner, host: Rc::default(), alarm: None, overrun }
    }
}

impl<F: Future, O: Fn()> Future for Hosted<F, O> {
    /// What the task gave, unless it was ended.
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.host.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
        if this.host.cut.get() {
            return Poll::Ready(None);
        }
        let outer = Current::enter(this.host);
        let done = this.inner.poll(cx);
        drop(outer);
        if let Poll::Ready(output) = done {
            return Poll::Ready(Some(output));
        }
        let Some(deadline) = this.host.deadline.get() else { return Poll::Pending };
        let (armed, alarm) =
            this.alarm.get_or_insert_with(|| (deadline, Box::pin(ring::sleep_until(deadline))));
        if *armed != deadline {
            *armed = deadline;
            alarm.as_mut().reset(deadline);
        }
        if alarm.as_mut().poll(cx).is_ready() {
            *this.alarm = None;
            (this.overrun)();
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

/// Puts the task before back, on panics too.
struct Current(Option<Rc<Host>>);

impl Current {
    fn enter(host: &Rc<Host>) -> Self {
        Self(CURRENT.replace(Some(Rc::clone(host))))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
