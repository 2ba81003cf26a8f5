//! The one thing that reaches a worker from another thread.

use tokio::sync::mpsc;

/// Messages that may wait for a worker. A few control threads send at most some a second; a worker that is this
/// far behind is stuck, and whoever asks should hear so instead of filling memory.
const MAILBOX_MAX: usize = 256;

/// A pair: any number of senders in any thread, one receiver in the worker's.
#[must_use]
pub fn mailbox<T>() -> (Post<T>, Mailbox<T>) {
    let (sender, receiver) = mpsc::channel(MAILBOX_MAX);
    (Post(sender), Mailbox(receiver))
}

/// Sends to a worker and wakes it. Clone it freely.
#[derive(Debug)]
pub struct Post<T>(mpsc::Sender<T>);

/// Where a worker gets its messages.
#[derive(Debug)]
pub struct Mailbox<T>(mpsc::Receiver<T>);

/// The message could not be left: the worker has ended, or does not empty its mailbox. Holds the message.
#[derive(Debug)]
pub struct Full<T>(pub T);

impl<T> Post<T> {
    /// Leaves a message and wakes the worker; never blocks.
    ///
    /// # Errors
    /// [`Full`], with the message.
    pub fn send(&self, message: T) -> Result<(), Full<T>> {
        self.0.try_send(message).map_err(|error| Full(error.into_inner()))
    }

    /// Whether there is nobody any more to take messages.
    #[must_use]
    pub fn is_for_nobody(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Mailbox<T> {
    /// The next message; `None` once all senders are gone.
    pub async fn next(&mut self) -> Option<T> {
        self.0.recv().await
    }
}
