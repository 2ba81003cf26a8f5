//! A bell for each worker that shares levels with others: rung when there is something for it to look at.

use std::sync::Arc;

use tokio::sync::Notify;

/// The bells. Clones are the same. Ringing wakes the worker's thread as any waker of its tasks does: from one ring to
/// another by a message (`IORING_OP_MSG_RING`), on epoll by an eventfd.
#[derive(Clone, Debug)]
pub struct Bells(Arc<[Notify]>);

impl Bells {
    /// For so many workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Notify::new()).collect())
    }

    /// There is something for that worker. Heard also if it is busy now; rung twice before that, heard once.
    pub fn ring(&self, worker: usize) {
        if let Some(bell) = self.0.get(worker) {
            bell.notify_one();
        }
    }

    /// Waits until that worker's bell is rung.
    pub async fn rung(&self, worker: usize) {
        match self.0.get(worker) {
            Some(bell) => bell.notified().await,
            None => std::future::pending().await,
        }
    }
}
