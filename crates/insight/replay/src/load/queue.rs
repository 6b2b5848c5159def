//! A bounded queue of requests, from the trace to all connections, in trace order.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};

use edgeward_trace::Record;

use super::plan::ReplayPlan;
use super::schedule::Schedule;

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Job {
    /// The position of the request among all sent requests, from 0.
    pub(super) number: u64,
    /// The number of the object in the trace.
    pub(super) key: u64,
    /// The size of the object in bytes, which becomes a part of the URL.
    pub(super) size: u64,
    /// The due time since the start of the run; `None` in a closed loop.
    pub(super) due: Option<Duration>,
}

/// The counts of the feeder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedCounts {
    /// Requests skipped because their object is larger than `size_bytes_max` of the plan.
    pub(crate) skipped: u64,
    /// Requests whose size was replaced by the first size of the object.
    pub(crate) resized: u64,
}

pub(super) fn new(plan: &ReplayPlan) -> (Feeder, Queue) {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
    let feeder = Feeder {
        sender,
        schedule: Schedule::new(plan.pacing),
        requests_max: plan.requests_max.map_or(u64::MAX, u64::from),
        size_bytes_max: plan.size_bytes_max.unwrap_or(u64::MAX),
        first_sizes: plan.settle_sizes.then(HashMap::new),
        batch: Vec::with_capacity(BATCH_JOBS),
        number: 0,
        feed_counts: FeedCounts::default(),
    };
    let queue = Queue {
        reader: Mutex::new(BatchReader {
            batch: Vec::new().into_iter(),
            receiver,
        }),
    };
    (feeder, queue)
}

/// The sending side of the queue. A separate thread pushes the requests of the trace.
pub struct Feeder {
    sender: mpsc::Sender<Vec<Job>>,
    schedule: Schedule,
    requests_max: u64,
    size_bytes_max: u64,
    /// The first size of each object in the trace, by the number of the object; `None` if the plan keeps
    /// the sizes of the trace.
    first_sizes: Option<HashMap<u64, u64>>,
    /// The requests that are not in the queue yet.
    batch: Vec<Job>,
    /// The number of requests pushed so far, without skipped ones.
    number: u64,
    feed_counts: FeedCounts,
}

impl Feeder {
    /// Adds a request to the queue, and waits while the queue is full. Returns `Break` when the plan's number
    /// of requests is reached or the workers have stopped.
    pub fn push(&mut self, record: Record) -> ControlFlow<()> {
        if self.number >= self.requests_max {
            return ControlFlow::Break(());
        }
        let Record {
            time,
            key,
            mut size,
        } = record;
        if let Some(first_sizes) = &mut self.first_sizes {
            let first = *first_sizes.entry(key).or_insert(size);
            self.feed_counts.resized += u64::from(first != size);
            size = first;
        }
        if size > self.size_bytes_max {
            self.feed_counts.skipped += 1;
            return ControlFlow::Continue(());
        }
        self.batch.push(Job {
            number: self.number,
            key,
            size,
            due: self.schedule.due(self.number, time),
        });
        self.number += 1;
        // The first request is a batch of its own, because reading further requests from stdin may be slow.
        if self.batch.len() >= BATCH_JOBS || self.number == 1 {
            return self.send();
        }
        ControlFlow::Continue(())
    }

    /// Returns the number of requests pushed so far, without skipped ones.
    pub fn requests(&self) -> u64 {
        self.number
    }

    pub(super) fn finish(mut self) -> FeedCounts {
        // The workers may have stopped early.
        _ = self.send();
        self.feed_counts
    }

    fn send(&mut self) -> ControlFlow<()> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_JOBS));
        match self.sender.blocking_send(batch) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

impl fmt::Debug for Feeder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feeder")
            .field("requests", &self.number)
            .finish_non_exhaustive()
    }
}

/// The receiving side of the queue, used by the connections.
pub(super) struct Queue {
    // A tokio mutex, because a connection holds the lock while it waits for the next batch.
    reader: Mutex<BatchReader>,
}

struct BatchReader {
    batch: std::vec::IntoIter<Job>,
    receiver: mpsc::Receiver<Vec<Job>>,
}

impl Queue {
    /// Returns the next request of the trace, or `None` at its end. All connections take from one queue.
    pub(super) async fn next(&self) -> Option<Job> {
        let mut reader = self.reader.lock().await;
        loop {
            if let Some(job) = reader.batch.next() {
                return Some(job);
            }
            reader.batch = reader.receiver.recv().await?.into_iter();
        }
    }

    /// Closes the queue, so that the feeder's next batch is not accepted and the feeder ends.
    pub(super) fn close(&self) {
        // This is called after all workers have ended, so the lock is free.
        if let Ok(mut reader) = self.reader.try_lock() {
            reader.receiver.close();
        }
    }
}

/// The number of requests in a batch.
const BATCH_JOBS: usize = 512;
/// The maximum number of batches in the queue.
const BATCHES_AHEAD: usize = 32;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use edgeward_types::Timestamp;

    use super::*;

    fn plan() -> ReplayPlan {
        ReplayPlan::new(
            "t",
            "http://127.0.0.1:1".parse().expect("the target is valid"),
        )
    }

    fn record(key: u64, size: u64) -> Record {
        Record {
            time: Timestamp::ZERO,
            key,
            size,
        }
    }

    /// Returns the received requests and the counts of the feeder.
    fn feed_and_receive(
        plan: &ReplayPlan,
        sizes: &[(u64, u64)],
    ) -> (Vec<(u64, u64, u64)>, FeedCounts) {
        let (mut feeder, queue) = new(plan);
        let sizes = sizes.to_vec();
        let feeding = std::thread::spawn(move || {
            let mut records = sizes.iter().map(|&(key, size)| record(key, size));
            _ = records.try_for_each(|record| feeder.push(record));
            feeder.finish()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let jobs = runtime.expect("the runtime starts").block_on(async {
            let mut jobs = Vec::new();
            while let Some(job) = queue.next().await {
                jobs.push((job.number, job.key, job.size));
            }
            jobs
        });
        let feed_counts = feeding.join().expect("the feeder does not panic");
        (jobs, feed_counts)
    }

    #[test]
    fn requests_are_received_in_trace_order_over_many_batches() {
        let sizes: Vec<(u64, u64)> = (0..5000).map(|n| (n * 7, n)).collect();
        let (jobs, _) = feed_and_receive(&plan(), &sizes);
        let expected: Vec<_> = (0..5000).map(|n| (n, n * 7, n)).collect();
        assert_eq!(jobs, expected);
    }

    #[test]
    fn an_object_keeps_its_first_size_unless_the_plan_disables_this() {
        let sizes = [(1, 10), (2, 7), (1, 99), (1, 10)];
        let (jobs, feed_counts) = feed_and_receive(&plan(), &sizes);
        assert_eq!(jobs, [(0, 1, 10), (1, 2, 7), (2, 1, 10), (3, 1, 10)]);
        assert_eq!(feed_counts.resized, 1);
        let as_recorded = ReplayPlan {
            settle_sizes: false,
            ..plan()
        };
        let (jobs, feed_counts) = feed_and_receive(&as_recorded, &sizes);
        assert_eq!(jobs[2], (2, 1, 99));
        assert_eq!(feed_counts.resized, 0);
    }

    #[test]
    fn requests_for_too_large_objects_are_skipped_and_do_not_count_towards_the_limit() {
        let plan = ReplayPlan {
            size_bytes_max: Some(10),
            requests_max: NonZeroU64::new(2),
            ..plan()
        };
        let (jobs, feed_counts) = feed_and_receive(&plan, &[(1, 10), (2, 11), (3, 9), (4, 1)]);
        assert_eq!(jobs, [(0, 1, 10), (1, 3, 9)]);
        assert_eq!(feed_counts.skipped, 1);
    }

    #[test]
    fn closing_the_queue_ends_a_feeder_that_waits_for_space() {
        let (mut feeder, queue) = new(&plan());
        let feeding = std::thread::spawn(move || {
            let mut endless = (0..).map(|key| record(key, 1));
            endless.try_for_each(|record| feeder.push(record))
        });
        queue.close();
        let ended = feeding.join().expect("the feeder does not panic");
        assert_eq!(ended, ControlFlow::Break(()));
    }
}
