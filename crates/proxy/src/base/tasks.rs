//! Tasks of one worker, so that every one of them has an owner that waits for it.
//!
//! A set only counts: a connection's task has nothing to return, and a set that kept handles would
//! have to be swept. What is still running when the owner stops waiting ends with its runtime.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Clone, Default)]
pub(crate) struct TaskSet(Rc<Inner>);

impl std::fmt::Debug for TaskSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskSet({} running)", self.running())
    }
}

#[derive(Default)]
struct Inner {
    running: Cell<usize>,
    waiting: RefCell<Option<Waker>>,
    /// A task of hyper's is being polled that could be ended.
    can_end: Cell<bool>,
    /// The ender that was asked for in this poll.
    asked: Cell<Option<Rc<Ender>>>,
}

/// Ends a task from outside.
#[derive(Debug, Default)]
pub(crate) struct Ender {
    is_ended: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Ender {
    pub(crate) fn end(&self) {
        self.is_ended.set(true);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
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

    /// What ends the task of hyper's that is being polled, which serves one HTTP/2 stream. `None` outside of such a task.
    pub(crate) fn ender(&self) -> Option<Rc<Ender>> {
        if !self.0.can_end.get() {
            return None;
        }
        let ender = self.0.asked.take().unwrap_or_default();
        self.0.asked.set(Some(Rc::clone(&ender)));
        Some(ender)
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
            member,
            ender: None,
        });
    }
}

/// A future of hyper's as a member of a set.
struct Counted<F> {
    future: Pin<Box<F>>,
    member: Member,
    ender: Option<Rc<Ender>>,
}

impl<F: Future<Output = ()>> Future for Counted<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this
            .ender
            .as_ref()
            .is_some_and(|ender| ender.is_ended.get())
        {
            // Dropped before its end, a stream is reset.
            return Poll::Ready(());
        }
        let set = &this.member.0;
        set.can_end.set(true);
        let polled = this.future.as_mut().poll(cx);
        set.can_end.set(false);
        if let Some(ender) = set.asked.take() {
            ender.task.replace(Some(cx.waker().clone()));
            this.ender = Some(ender);
        }
        polled
    }
}
