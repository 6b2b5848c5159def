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
    is_abortable: Cell<bool>,
    /// The handle that was requested during this poll.
    requested: Cell<Option<Rc<AbortHandle>>>,
}

/// Ends a task from outside.
#[derive(Debug, Default)]
pub(crate) struct AbortHandle {
    is_aborted: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl AbortHandle {
    pub(crate) fn abort(&self) {
        self.is_aborted.set(true);
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
    pub(crate) fn abort_handle(&self) -> Option<Rc<AbortHandle>> {
        if !self.0.is_abortable.get() {
            return None;
        }
        let abort_handle = self.0.requested.take().unwrap_or_default();
        self.0.requested.set(Some(Rc::clone(&abort_handle)));
        Some(abort_handle)
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

/// Keeps one task counted in its set until dropped.
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
        self.0.spawn(|member| MemberTask {
            future: Box::pin(future),
            member,
            abort_handle: None,
        });
    }
}

/// A future of hyper's as a member of a set.
struct MemberTask<F> {
    future: Pin<Box<F>>,
    member: Member,
    abort_handle: Option<Rc<AbortHandle>>,
}

impl<F: Future<Output = ()>> Future for MemberTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this
            .abort_handle
            .as_ref()
            .is_some_and(|abort_handle| abort_handle.is_aborted.get())
        {
            // Dropped before its end, a stream is reset.
            return Poll::Ready(());
        }
        let set = &this.member.0;
        set.is_abortable.set(true);
        let polled = this.future.as_mut().poll(cx);
        set.is_abortable.set(false);
        if let Some(abort_handle) = set.requested.take() {
            abort_handle.task.replace(Some(cx.waker().clone()));
            this.abort_handle = Some(abort_handle);
        }
        polled
    }
}
