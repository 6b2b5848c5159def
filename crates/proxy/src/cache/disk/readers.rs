//! Threads that wait for disks, so that workers do not.
//!
//! What is asked for without need (a head that may well be fetched from the origin) is refused when too many
//! wait already: then the disk is slower than the origin would be. What a client has begun to receive is always taken; of
//! that there is at most one read a connection.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// The threads and the queue before them.
#[derive(Debug)]
pub(crate) struct Readers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    waiting_max: usize,
}

/// Too many reads wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("waiting", &self.lock().waiting.len())
            .finish_non_exhaustive()
    }
}

impl Readers {
    pub(crate) fn start(threads: NonZeroUsize, waiting_max: usize) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let mut readers = Self {
            queue: Arc::clone(&queue),
            threads: Vec::with_capacity(threads.get()),
            waiting_max,
        };
        for number in 0..threads.get() {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new()
                .name(format!("disk-reader-{number}"))
                .spawn(move || queue.work())?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Has `work` done unless too many wait.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Busy> {
        self.push(work, self.waiting_max)
    }

    /// Has `work` done, however many wait.
    pub(crate) fn insist<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Busy> {
        self.push(work, usize::MAX)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    fn push<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        waiting_max: usize,
    ) -> Result<oneshot::Receiver<T>, Busy> {
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move || {
            // Whoever asked may have left.
            if !sender.is_closed() {
                _ = sender.send(work());
            }
        });
        {
            let mut jobs = self.queue.lock();
            if jobs.closed || jobs.waiting.len() >= waiting_max {
                return Err(Busy);
            }
            jobs.waiting.push_back(job);
        }
        self.queue.arrived.notify_one();
        Ok(receiver)
    }

    /// Takes no more. What waits is dropped, which whoever waits for it notices; what is being read is not waited for,
    /// since a disk that hangs would hang the shutdown.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut jobs = self.queue.lock();
            jobs.closed = true;
            std::mem::take(&mut jobs.waiting)
        };
        drop(dropped);
        self.queue.arrived.notify_all();
    }

    /// Threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // Nothing panics while it is held.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let job = {
                let mut jobs = self.lock();
                loop {
                    if let Some(job) = jobs.waiting.pop_front() {
                        break job;
                    }
                    if jobs.closed {
                        return;
                    }
                    jobs = self
                        .arrived
                        .wait(jobs)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Method: one thread held up, then one more than may wait, then one that insists.
    #[test]
    fn what_can_be_done_without_is_refused_when_too_much_waits() {
        let one = NonZeroUsize::new(1).expect("one");
        let readers = Readers::start(one, 1).expect("a thread");
        let (release, held) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let first = readers.ask(move || {
            _ = began.send(());
            _ = held.recv();
            1
        });
        begun.recv().expect("the thread has begun");
        let second = readers.ask(|| 2);
        assert_eq!(readers.ask(|| 3).err(), Some(Busy));
        let fourth = readers.insist(|| 4);
        drop(release);
        for (asked, answer) in [(first, 1), (second, 2), (fourth, 4)] {
            assert_eq!(asked.expect("taken").blocking_recv(), Ok(answer));
        }
    }

    #[test]
    fn a_close_lets_nobody_wait() {
        let one = NonZeroUsize::new(1).expect("one");
        let readers = Readers::start(one, 8).expect("a thread");
        let (release, held) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let _first = readers.ask(move || {
            _ = began.send(());
            _ = held.recv();
        });
        begun.recv().expect("the thread has begun");
        let second = readers.ask(|| 2).expect("it may wait");
        readers.close();
        assert!(second.blocking_recv().is_err());
        assert_eq!(readers.insist(|| 3).err(), Some(Busy));
        drop(release);
    }
}
