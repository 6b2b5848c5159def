//! Distributes batches of requests to jobs on several threads.
//!
//! Each job processes all batches in order. A free thread takes the job that has processed the fewest batches, so slow
//! jobs have priority. The thread that reads the trace adds batches. While too many batches wait, it also
//! processes jobs.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use edgeward_sim::Request;

/// Calls `read`, which adds batches to the schedule, and passes each batch to every job. Returns the jobs in their
/// order and the result of `read`.
///
/// `threads` is the number of threads, including the calling thread.
pub(super) fn feed_all<J: Send, R>(
    jobs: Vec<J>,
    threads: NonZeroUsize,
    process: fn(&mut J, &[Request]),
    read: impl FnOnce(&Schedule<J>) -> R,
) -> (Vec<J>, R) {
    let helpers = threads.get().min(jobs.len()).saturating_sub(1);
    let schedule = Schedule {
        state: Mutex::new(State {
            jobs: jobs.into_iter().map(Job::new).collect(),
            batches: VecDeque::new(),
            first_batch: 0,
            spare: Vec::new(),
            ended: false,
            panicked: false,
        }),
        changed: Condvar::new(),
        // Without other threads, each batch is processed at once, while it is in the processor's cache.
        batches_max: if helpers == 0 { 0 } else { BATCHES_MAX },
        process,
    };
    let result = thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|| schedule.work_until(|state| state.ended && state.batches.is_empty()));
        }
        // If `read` panics, the other threads end too.
        let end = End(&schedule);
        let result = read(&schedule);
        drop(end);
        schedule.work_until(|state| state.batches.is_empty());
        result
    });
    let state = schedule.state.into_inner();
    let jobs = state.unwrap_or_else(PoisonError::into_inner).jobs;
    (
        jobs.into_iter().filter_map(|job| job.work).collect(),
        result,
    )
}

/// The jobs and the batches that they have not processed.
pub(super) struct Schedule<J> {
    state: Mutex<State<J>>,
    /// Notified when a batch was added or processed, when reading has ended, and when a job has panicked.
    changed: Condvar,
    /// The maximum number of batches that wait after [`push`](Self::push) has returned.
    batches_max: usize,
    process: fn(&mut J, &[Request]),
}

struct State<J> {
    jobs: Vec<Job<J>>,
    /// The batches that at least one job has not processed.
    batches: VecDeque<Arc<Vec<Request>>>,
    /// The number of the first batch in `batches`. All batches of the trace are numbered from 0.
    first_batch: usize,
    /// Empty batches, kept for their allocations.
    spare: Vec<Vec<Request>>,
    /// True if no further batch will be added.
    ended: bool,
    /// True if a job panicked.
    panicked: bool,
}

struct Job<J> {
    /// `None` while a thread processes the job.
    work: Option<J>,
    /// The number of the job's next batch.
    next_batch: usize,
}

impl<J> Schedule<J> {
    /// Adds a batch for every job, and replaces `batch` with an empty one. Then processes jobs while too many batches
    /// wait.
    ///
    /// # Panics
    ///
    /// Panics if a job panicked.
    pub(super) fn push(&self, batch: &mut Vec<Request>) {
        let mut state = self.lock();
        if state.jobs.is_empty() {
            batch.clear();
            return;
        }
        let empty = state.spare.pop().unwrap_or_default();
        let full = std::mem::replace(batch, empty);
        state.batches.push_back(Arc::new(full));
        drop(state);
        self.changed.notify_all();
        self.work_until(|state| state.batches.len() <= self.batches_max);
        assert!(!self.lock().panicked, "a job of the simulation panicked");
    }

    /// Processes jobs until `done` is true or a job has panicked. Waits while no job can be processed.
    fn work_until(&self, done: impl Fn(&State<J>) -> bool) {
        let mut state = self.lock();
        while !done(&state) && !state.panicked {
            let Some((at, mut work, batch)) = state.take() else {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let panic_guard = PanicGuard(self);
            (self.process)(&mut work, &batch);
            drop(panic_guard);
            drop(batch);
            state = self.lock();
            state.put_back(at, work);
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // No code panics while it has the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Job<J> {
    const fn new(work: J) -> Self {
        Self {
            work: Some(work),
            next_batch: 0,
        }
    }
}

impl<J> State<J> {
    /// Takes the job that has processed the fewest batches, with its next batch. Returns `None` if each job is taken or
    /// has processed all batches.
    fn take(&mut self) -> Option<(usize, J, Arc<Vec<Request>>)> {
        let end = self.first_batch + self.batches.len();
        let (at, job) = self
            .jobs
            .iter_mut()
            .enumerate()
            .filter(|(_, job)| job.work.is_some() && job.next_batch < end)
            .min_by_key(|(_, job)| job.next_batch)?;
        let batch = Arc::clone(&self.batches[job.next_batch - self.first_batch]);
        Some((at, job.work.take()?, batch))
    }

    /// Puts back a job that has processed its batch, and removes the batches that all jobs have processed.
    fn put_back(&mut self, at: usize, work: J) {
        self.jobs[at].work = Some(work);
        self.jobs[at].next_batch += 1;
        let next_batches = self.jobs.iter().map(|job| job.next_batch);
        let first_batch = next_batches.min().unwrap_or(self.first_batch);
        while self.first_batch < first_batch {
            self.first_batch += 1;
            if let Some(mut batch) = self.batches.pop_front().and_then(Arc::into_inner) {
                batch.clear();
                self.spare.push(batch);
            }
        }
    }
}

/// When dropped, informs all threads that no further batch will be added.
struct End<'a, J>(&'a Schedule<J>);

impl<J> Drop for End<'_, J> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// When dropped during a panic of a job, makes all threads end.
struct PanicGuard<'a, J>(&'a Schedule<J>);

impl<J> Drop for PanicGuard<'_, J> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().panicked = true;
            self.0.changed.notify_all();
        }
    }
}

/// The maximum number of batches that wait while other threads process jobs. The fastest job is at most
/// `BATCHES_MAX + 1` batches ahead of the slowest.
const BATCHES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use edgeward_sim::Traffic;
    use edgeward_trace::Record;
    use edgeward_types::Timestamp;

    use super::*;

    fn threads(threads: usize) -> NonZeroUsize {
        NonZeroUsize::new(threads).expect("the number is not 0")
    }

    fn read(schedule: &Schedule<Vec<u64>>, batches: u64) {
        let mut traffic = Traffic::default();
        let mut batch = Vec::new();
        for key in 0..batches * 3 {
            batch.push(traffic.count(&Record {
                time: Timestamp::ZERO,
                key,
                size: 1,
            }));
            if batch.len() == 3 {
                schedule.push(&mut batch);
                assert!(batch.is_empty());
            }
        }
    }

    /// Every job gets every request in order, for any number of threads, jobs and batches.
    #[test]
    fn every_job_gets_every_request_in_order() {
        let append = |keys: &mut Vec<u64>, batch: &[Request]| {
            keys.extend(batch.iter().map(|request| request.key));
        };
        for thread_count in [1, 2, 5] {
            for jobs in [0, 1, 2, 7] {
                for batches in [0, 1, 2, 50] {
                    let (jobs_after, ()) =
                        feed_all(vec![Vec::new(); jobs], threads(thread_count), append, |s| {
                            read(s, batches);
                        });
                    let expected: Vec<u64> = (0..batches * 3).collect();
                    assert_eq!(jobs_after, vec![expected; jobs], "{thread_count} threads");
                }
            }
        }
    }

    /// A panic in a job ends all threads, and the caller panics too.
    #[test]
    fn a_panic_of_a_job_reaches_the_caller() {
        let fail = |_: &mut Vec<u64>, batch: &[Request]| assert!(batch[0].key < 30, "key 30");
        for thread_count in [1, 2, 5] {
            let outcome = std::panic::catch_unwind(|| {
                feed_all(vec![Vec::new(); 4], threads(thread_count), fail, |s| {
                    read(s, 100);
                })
            });
            assert!(outcome.is_err(), "{thread_count} threads");
        }
    }
}
