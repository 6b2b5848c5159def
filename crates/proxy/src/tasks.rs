//! Tasks of one worker, so that every one of them has an owner that waits for it.
//!
//! A set only counts: a connection's task has nothing to return, and a set that kept handles would
//! have to be swept. What is still running when the owner stops waiting ends with its runtime.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Clone, Debug, Default)]
pub(crate) struct TaskSet(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    running: Cell<usize>,
    waiting: RefCell<Option<Waker>>,
}

impl TaskSet {
    /// Runs a future on this thread's runtime as a member of the set, for as long as the future
    /// holds on to its membership.
    ///
    /// Passed in rather than wrapped around: a future awaited by another is held twice over, and
    /// a connection's is several kilobytes.
    pub(crate) fn spawn<F>(&self, future: impl FnOnce(Member) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        tokio::task::spawn_local(future(Member::of(self)));
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.get()
    }

    /// Resolves when no member runs. One waiter at a time.
    pub(crate) fn idle(&self) -> Idle<'_> {
        Idle(self)
    }
}

pub(crate) struct Idle<'a>(&'a TaskSet);

impl Future for Idle<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.running() == 0 {
            return Poll::Ready(());
        }
        *self.0.0.waiting.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Counted from creation to drop, whichever way the task ends.
pub(crate) struct Member(Rc<Inner>);

impl Member {
    fn of(set: &TaskSet) -> Self {
        set.0.running.set(set.0.running.get() + 1);
        Self(Rc::clone(&set.0))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let running = self.0.running.get() - 1;
        self.0.running.set(running);
        if running == 0
            && let Some(waker) = self.0.waiting.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

/// Lets hyper start its HTTP/2 streams as members of a set.
#[derive(Clone, Debug)]
pub(crate) struct LocalExecutor(pub(crate) TaskSet);

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(|member| Counted {
            future: Box::pin(future),
            _member: member,
        });
    }
}

/// A future of hyper's as a member of a set.
struct Counted<F> {
    future: Pin<Box<F>>,
    _member: Member,
}

impl<F: Future<Output = ()>> Future for Counted<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(cx)
    }
}
