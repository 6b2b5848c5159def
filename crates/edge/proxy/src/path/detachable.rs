//! Exchanges with the origin that may continue after their client has disconnected.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A future that the task of a client's request polls. If this value is dropped before the future has ended, `detach`
/// gets the future and may run it as a task.
pub(super) struct Detachable<F: Future, D: FnOnce(Pin<Box<F>>)>(Option<(Pin<Box<F>>, D)>);

impl<F: Future, D: FnOnce(Pin<Box<F>>)> Detachable<F, D> {
    pub(super) fn new(future: Pin<Box<F>>, detach: D) -> Self {
        Self(Some((future, detach)))
    }

    /// Polls the future. Must not be called again after it has returned the output.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        let (future, _) = self.0.as_mut().expect("the future has not ended");
        let output = ready!(future.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<F: Future, D: FnOnce(Pin<Box<F>>)> Drop for Detachable<F, D> {
    fn drop(&mut self) {
        // A future that has panicked cannot be continued.
        if let Some((future, detach)) = self.0.take()
            && !std::thread::panicking()
        {
            detach(future);
        }
    }
}
