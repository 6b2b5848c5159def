//! The threads of a store, which perform the requests that need its device.
//!
//! A thread is started when a request arrives and all others work, and ends after it was idle for a while. The queue
//! is bounded: the callers bound the requests for which a stream waits, and chunks that would be stored are skipped
//! while those in the queue take [`STORED_BYTES_MAX`]. They are sent again at their next transfer.
//!
//! A request that stores a chunk may wait for the write of a container. Some threads are kept for the other requests,
//! so that a device whose writes are slow does not delay reads.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::store::{Answer, Request};

use crate::Chunks;
use crate::access::Wait;

/// The thread that performed a request has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePanicked;

impl Chunks {
    /// Lets a thread of the store perform a request, and then calls `on_answer` with the answer, which is `None` if the
    /// request has none. `on_answer` must not block. If too many bytes wait to be stored, [`Request::Store`] is
    /// answered at once: the chunk is not stored.
    pub fn submit(
        &self,
        request: Request,
        id_key: &IdKey,
        pool: &Pool,
        on_answer: impl FnOnce(Result<Option<Answer>, StorePanicked>) + Send + 'static,
    ) {
        let (request, lane, stored_bytes) = match request {
            // The chunk is a part of a buffer that may be much longer than it.
            Request::Store { id, chunk } => {
                let chunk = Bytes::copy_from_slice(&chunk);
                let bytes = chunk.len() + JOB_BYTES;
                (Request::Store { id, chunk }, Lane::Store, bytes)
            }
            find @ Request::Find { .. } => (find, Lane::AwaitedStore, 0),
            request => (request, Lane::Read, 0),
        };
        let (shared, id_key, pool) = (Arc::clone(&self.0.shared), id_key.clone(), pool.clone());
        let perform = move |is_skipped| {
            if is_skipped {
                return on_answer(Ok(Some(Answer::Stored(None))));
            }
            let answer = || shared.answer(&request, &id_key, &pool, Wait::Device);
            let answer = catch_unwind(AssertUnwindSafe(answer));
            // A request that may wait never fails with `WouldBlock`.
            on_answer(
                answer
                    .map(Result::unwrap_or_default)
                    .map_err(|_| StorePanicked),
            );
        };
        self.0.threads.push(Job {
            perform: Box::new(perform),
            lane,
            stored_bytes,
        });
    }
}

/// The threads and their queue.
pub(crate) struct StoreThreads(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    has_jobs: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// The jobs of each [`Lane`].
    lanes: [VecDeque<Job>; 3],
    /// The bytes that the jobs of [`Lane::Store`] take.
    stored_bytes: usize,
    skipped: u64,
    threads: Vec<JoinHandle<()>>,
    /// The threads that have not left [`Queue::work`].
    running: usize,
    idle: usize,
    /// The threads whose job may write, at most [`STORING_THREADS_MAX`].
    storing: usize,
    is_stopped: bool,
}

struct Job {
    /// Performs the request, or answers it without an effect if the argument is true.
    perform: Box<dyn FnOnce(bool) + Send>,
    lane: Lane,
    /// The memory that the job takes if it stores a chunk for which no stream waits, else 0.
    stored_bytes: usize,
}

/// The kinds of jobs, in the order in which they are performed while [`STORING_THREADS_MIN`] threads may write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// A stream waits for the answer, and nothing is stored.
    Read,
    /// A stream waits for the answer, and a chunk may be stored.
    AwaitedStore,
    /// A chunk is stored, and no stream waits.
    Store,
}

impl QueueState {
    /// Returns the number of jobs in the queue that may begin.
    fn runnable(&self) -> usize {
        let [reads, awaited, stores] = &self.lanes;
        let free = STORING_THREADS_MAX - self.storing;
        reads.len() + (awaited.len() + stores.len()).min(free)
    }

    fn push(&mut self, job: Job) {
        self.stored_bytes += job.stored_bytes;
        self.lanes[job.lane as usize].push_back(job);
    }

    /// Takes the next job that may begin.
    fn pop(&mut self) -> Option<Job> {
        let order: &[Lane] = match self.storing {
            ..STORING_THREADS_MIN => &[Lane::AwaitedStore, Lane::Read, Lane::Store],
            STORING_THREADS_MIN..STORING_THREADS_MAX => {
                &[Lane::Read, Lane::AwaitedStore, Lane::Store]
            }
            STORING_THREADS_MAX.. => &[Lane::Read],
        };
        let mut queues = order.iter();
        let job = queues.find_map(|lane| self.lanes[*lane as usize].pop_front())?;
        self.stored_bytes -= job.stored_bytes;
        self.storing += usize::from(job.lane != Lane::Read);
        Some(job)
    }
}

impl StoreThreads {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Returns the number of chunks that were not stored because too many bytes waited.
    pub(crate) fn skipped(&self) -> u64 {
        self.0.state().skipped
    }

    fn push(&self, job: Job) {
        let mut state = self.0.state();
        if job.stored_bytes > 0 && state.stored_bytes + job.stored_bytes > STORED_BYTES_MAX {
            state.skipped += 1;
            drop(state);
            return (job.perform)(true);
        }
        state.push(job);
        if state.runnable() <= state.idle {
            self.0.has_jobs.notify_one();
            return;
        }
        if state.running == THREADS_MAX {
            return;
        }
        state.threads.retain(|thread| !thread.is_finished());
        let queue = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("chunk-store".to_owned());
        match thread.spawn(move || queue.work()) {
            Ok(thread) => {
                state.threads.push(thread);
                state.running += 1;
            }
            // The other threads perform the request later.
            Err(_) if state.running > 0 => {}
            Err(_) => {
                while let Some(job) = state.pop() {
                    state = self.0.perform(job, state);
                }
            }
        }
    }

    /// Ends the threads after their current requests.
    pub(crate) fn stop(&self) {
        let mut state = self.0.state();
        state.is_stopped = true;
        state.lanes.iter_mut().for_each(VecDeque::clear);
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.0.has_jobs.notify_all();
        threads.into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs a job without the lock.
    fn perform<'a>(
        &'a self,
        job: Job,
        state: MutexGuard<'a, QueueState>,
    ) -> MutexGuard<'a, QueueState> {
        drop(state);
        let is_store = job.lane != Lane::Read;
        (job.perform)(false);
        let mut state = self.state();
        if is_store {
            state.storing -= 1;
            // This thread may take a read next, and an idle one the store that may begin now.
            self.has_jobs.notify_one();
        }
        state
    }

    /// Performs jobs until there was none for [`IDLE_MAX`].
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.pop() {
                state = self.perform(job, state);
                continue;
            }
            if state.is_stopped {
                break;
            }
            state.idle += 1;
            let waited = self.has_jobs.wait_timeout(state, IDLE_MAX);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.runnable() == 0 {
                break;
            }
        }
        state.running -= 1;
    }
}

impl fmt::Debug for StoreThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreThreads")
    }
}

/// The highest number of threads. A peer has 16 reads at once, and flash devices have about as many channels, so the
/// reads of four peers proceed together.
const THREADS_MAX: usize = 64;

/// While fewer threads have a job that may write, [`Lane::AwaitedStore`] is first, so that reads that follow each other
/// without a pause do not keep a stream waiting.
const STORING_THREADS_MIN: usize = 16;

/// The highest number of threads whose jobs may write. The others read: as many as a peer has reads at once.
const STORING_THREADS_MAX: usize = THREADS_MAX - 16;

/// The bytes that chunks in the queue may take, each with 512 for its job.
pub const STORED_BYTES_MAX: usize = 16 << 20;

/// The bytes of a job beside its chunk, at most.
const JOB_BYTES: usize = 512;

/// The time after which an idle thread ends.
const IDLE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads that follow each other without a pause leave 16 threads to stores for which streams wait, and stores leave
    /// 16 threads to reads.
    #[test]
    fn neither_reads_nor_stores_keep_the_others_waiting() {
        let mut queue = QueueState::default();
        let job = |lane| Job {
            perform: Box::new(|_| ()),
            lane,
            stored_bytes: 0,
        };
        for _ in 0..100 {
            queue.push(job(Lane::Read));
            queue.push(job(Lane::AwaitedStore));
            queue.push(job(Lane::Store));
        }
        let mut begun = |jobs: usize, lane: Lane| {
            let popped = (0..jobs).map_while(|_| queue.pop());
            popped.filter(|job| job.lane == lane).count()
        };
        assert_eq!(begun(16, Lane::AwaitedStore), 16);
        assert_eq!(begun(100, Lane::Read), 100);
        assert_eq!(begun(32, Lane::AwaitedStore), 32);
        // 48 threads may write now.
        assert!(queue.pop().is_none());
        queue.push(job(Lane::Read));
        assert!(queue.pop().is_some());
    }
}
