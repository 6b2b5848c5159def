//! Sets of a worker's tasks. The owner of a set can wait until all tasks of the set have ended.
//!
//! A set only counts its tasks. A set of join handles would have to be cleaned of handles whose tasks have ended, and
//! the tasks return no values. Tasks that still run when the owner stops waiting end with the runtime.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::task::JoinHandle;

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
    /// True while a task that can be aborted is being polled.
    is_abortable: Cell<bool>,
    /// Called for each task of the set that has panicked.
    on_panic: Option<Box<dyn Fn()>>,
    /// The handle that the polled task got from [`TaskSet::abort_handle`], until its `MemberTask` takes it.
    requested: Cell<Option<Rc<AbortHandle>>>,
}

/// Aborts a task that serves a stream of HTTP/2 or HTTP/3.
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
    /// Returns an empty set that calls `on_panic` when one of its tasks has panicked. The runtime catches the panic.
    pub(crate) fn new(on_panic: impl Fn() + 'static) -> Self {
        Self(Rc::new(Inner {
            on_panic: Some(Box::new(on_panic)),
            ..Inner::default()
        }))
    }

    /// Spawns a future on this thread's runtime. The task is in the set until the future drops its [`Member`].
    ///
    /// `future` gets the member as an argument. An `async` block around the future and its member would store the
    /// future twice, and the future of a connection has several kilobytes.
    pub(crate) fn spawn<F>(&self, future: impl FnOnce(Member) -> F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + 'static,
    {
        self.0.running.set(self.running() + 1);
        tokio::task::spawn_local(future(Member(Rc::clone(&self.0))))
    }

    /// Spawns the future of a stream as a task of the set that [`abort_handle`](Self::abort_handle) can abort.
    pub(crate) fn spawn_abortable<F>(&self, future: F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.spawn(|member| MemberTask {
            future: Box::pin(future),
            member,
            abort_handle: None,
        });
    }

    /// Returns the handle of the task that serves the current stream, or `None` outside of such a task.
    pub(crate) fn abort_handle(&self) -> Option<Rc<AbortHandle>> {
        if !self.0.is_abortable.get() {
            return None;
        }
        let handle = self.0.requested.take().unwrap_or_default();
        self.0.requested.set(Some(Rc::clone(&handle)));
        Some(handle)
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.get()
    }

    /// Resolves when no task of the set runs. Only one task at a time may poll this future.
    pub(crate) fn idle(&self) -> impl Future<Output = ()> {
        poll_fn(|cx| {
            if self.running() == 0 {
                return Poll::Ready(());
            }
            *self.0.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// Keeps one task counted in its set until dropped.
pub(crate) struct Member(Rc<Inner>);

impl Drop for Member {
    fn drop(&mut self) {
        // The future of a task that panics is dropped while its stack unwinds.
        if std::thread::panicking()
            && let Some(on_panic) = &self.0.on_panic
        {
            on_panic();
        }
        let running = self.0.running.get() - 1;
        self.0.running.set(running);
        if running == 0
            && let Some(waker) = self.0.waiting.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

/// Spawns hyper's tasks as members of a set.
#[derive(Clone, Debug)]
pub(crate) struct LocalExecutor(pub(crate) TaskSet);

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn_abortable(future);
    }
}

/// The future of a stream as a member of a set.
struct MemberTask<F> {
    future: Pin<Box<F>>,
    member: Member,
    abort_handle: Option<Rc<AbortHandle>>,
}

impl<F: Future<Output = ()>> Future for MemberTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let is_aborted = |handle: &Rc<AbortHandle>| handle.is_aborted.get();
        if this.abort_handle.as_ref().is_some_and(is_aborted) {
            // The stream is reset when its future is dropped.
            return Poll::Ready(());
        }
        let set = &this.member.0;
        let abortable = Abortable::begin(set);
        let polled = this.future.as_mut().poll(cx);
        drop(abortable);
        if let Some(handle) = set.requested.take() {
            handle.task.replace(Some(cx.waker().clone()));
            this.abort_handle = Some(handle);
        }
        polled
    }
}

/// Marks the polled task as abortable until dropped, also if the task panics.
struct Abortable<'a>(&'a Inner);

impl<'a> Abortable<'a> {
    fn begin(set: &'a Inner) -> Self {
        set.is_abortable.set(true);
        Self(set)
    }
}

impl Drop for Abortable<'_> {
    fn drop(&mut self) {
        self.0.is_abortable.set(false);
        if std::thread::panicking() {
            self.0.requested.take(); // the handle of the task that has panicked
        }
    }
}
