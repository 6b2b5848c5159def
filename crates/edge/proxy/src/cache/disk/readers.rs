//! Threads that read from disks, so that workers do not wait for a disk. Other threads
//! [compress](crate::cache::encoders).
//!
//! A read is optional if the origin can answer instead. It is refused if too many reads wait. A read for a body whose
//! head was sent is required and is refused only after `close`. Each connection has at most one required read.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::rt::panics::lock;

#[derive(Debug)]
pub(crate) struct Readers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    /// If this many reads wait, further optional reads are refused.
    waiting_max: usize,
}

/// The error of a read that was refused, because too many reads wait or because the threads are stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    job_queued: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    is_closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("waiting", &lock(&self.jobs).waiting.len())
            .finish_non_exhaustive()
    }
}

impl Readers {
    /// Starts threads with this name and a number.
    pub(crate) fn start(name: &str, threads: NonZeroUsize, waiting_max: usize) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let mut readers = Self {
            queue: Arc::clone(&queue),
            threads: Vec::with_capacity(threads.get()),
            waiting_max,
        };
        for number in 0..threads.get() {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || queue.work())?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Queues an optional read. Refuses the read if too many reads wait.
    pub(crate) fn queue_optional<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Busy> {
        self.push(work, self.waiting_max)
    }

    /// Queues a required read, even if many reads wait.
    pub(crate) fn queue_required<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Busy> {
        self.push(work, usize::MAX)
    }

    /// Returns the number of reads that wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.queue.jobs).waiting.len()
    }

    fn push<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        waiting_max: usize,
    ) -> Result<oneshot::Receiver<T>, Busy> {
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move || {
            // The caller may have dropped the receiver.
            if !sender.is_closed() {
                _ = sender.send(work());
            }
        });
        {
            let mut jobs = lock(&self.queue.jobs);
            if jobs.is_closed || jobs.waiting.len() >= waiting_max {
                return Err(Busy);
            }
            jobs.waiting.push_back(job);
        }
        self.queue.job_queued.notify_one();
        Ok(receiver)
    }

    /// Refuses further reads and drops the waiting reads, so that their receivers are closed. Does not wait for reads
    /// under way, because a disk that hangs would block the shutdown.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut jobs = lock(&self.queue.jobs);
            jobs.is_closed = true;
            std::mem::take(&mut jobs.waiting)
        };
        drop(dropped);
        self.queue.job_queued.notify_all();
    }

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
    fn work(&self) {
        loop {
            let job = {
                let mut jobs = lock(&self.jobs);
                loop {
                    if let Some(job) = jobs.waiting.pop_front() {
                        break job;
                    }
                    if jobs.is_closed {
                        return;
                    }
                    jobs = self
                        .job_queued
                        .wait(jobs)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            // A job that panics drops its sender, so its caller gets no result. The thread must survive it.
            _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_job_that_panics_gives_no_result_and_its_thread_does_the_next_one() {
        let readers =
            Readers::start("disk-reader", NonZeroUsize::MIN, 10).expect("the thread starts");
        let broken = readers.queue_required(|| panic!("a defect in a job"));
        let next = readers.queue_required(|| 2).expect("the readers are open");
        let broken: Result<(), _> = broken.expect("the readers are open").blocking_recv();
        assert!(broken.is_err());
        assert_eq!(next.blocking_recv(), Ok(2));
    }

    /// Starts one thread and blocks the thread with a read. The read returns 1 when the returned sender is dropped.
    fn blocked(waiting_max: usize) -> (Readers, mpsc::Sender<()>, oneshot::Receiver<i32>) {
        let readers = Readers::start("disk-reader", NonZeroUsize::MIN, waiting_max)
            .expect("the thread starts");
        let (release, held) = mpsc::channel();
        let (send_started, started) = mpsc::channel();
        let first = readers.queue_required(move || {
            _ = send_started.send(());
            _ = held.recv();
            1
        });
        started.recv().expect("the thread has started");
        (readers, release, first.expect("the queue is empty"))
    }

    /// Method: block the only thread, fill the queue, then submit one optional and one required read.
    #[test]
    fn optional_reads_are_refused_when_too_many_wait() {
        let (readers, release, first) = blocked(1);
        let second = readers.queue_optional(|| 2);
        assert_eq!(readers.queue_optional(|| 3).err(), Some(Busy));
        let fourth = readers.queue_required(|| 4);
        drop(release);
        for (read, result) in [(Ok(first), 1), (second, 2), (fourth, 4)] {
            assert_eq!(read.expect("queued").blocking_recv(), Ok(result));
        }
    }

    #[test]
    fn a_close_drops_the_reads_that_wait() {
        let (readers, release, _first) = blocked(8);
        let second = readers.queue_optional(|| 2).expect("the queue has space");
        readers.close();
        assert!(second.blocking_recv().is_err());
        assert_eq!(readers.queue_required(|| 3).err(), Some(Busy));
        drop(release);
    }
}
