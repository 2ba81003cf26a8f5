//! Timers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use usher_flowcontrol::units::Nanos;

use super::clock;

pin_project! {
    /// Done at an instant.
    #[derive(Debug)]
    pub struct Sleep { #[pin] inner: tokio::time::Sleep }
}

/// Sleeps until a time told by [`super::now`].
pub fn sleep_until(at: Nanos) -> Sleep {
    Sleep { inner: tokio::time::sleep_until(clock::instant(at).into()) }
}

/// What `future` gives, or `None` if it takes longer than `limit`.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

/// hyper's way to sleep.
#[derive(Clone, Copy, Debug)]
pub struct Timer;

// === impl Sleep ===

impl Sleep {
    /// Sleeps until another time instead.
    pub fn reset(self: Pin<&mut Self>, at: Nanos) {
        self.project().inner.reset(clock::instant(at).into());
    }
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().inner.poll(cx)
    }
}

impl hyper::rt::Sleep for Sleep {}

// === impl Timer ===

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep { inner: tokio::time::sleep(duration) })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep { inner: tokio::time::sleep_until(deadline.into()) })
    }
}
