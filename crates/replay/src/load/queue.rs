//! One queue from the trace to all connections, in trace order and bounded.

use std::collections::HashMap;
use std::error;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};

use edgeward_trace::Record;

use super::plan::ReplayPlan;
use super::schedule::Schedule;

/// A request to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Job {
    /// Its place among all that are sent, from 0.
    pub(super) number: u64,
    pub(super) key: u64,
    pub(super) size: u64,
    pub(super) due: Option<Duration>,
}

/// What the feeder did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fed {
    /// Requests left out because their object was too large.
    pub(crate) skipped: u64,
    /// Requests whose size was set back to the object's first.
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
    };
    let queue = Queue {
        taker: Mutex::new(Taker {
            batch: Vec::new().into_iter(),
            receiver,
        }),
    };
    (feeder, queue)
}

/// The end that reads the trace, on a thread of its own.
pub(super) struct Feeder {
    sender: mpsc::Sender<Vec<Job>>,
    schedule: Schedule,
    requests_max: u64,
    size_bytes_max: u64,
    first_sizes: Option<HashMap<u64, u64>>,
}

impl Feeder {
    /// Feeds until the trace or the queue ends. An error comes with the number of
    /// requests before it.
    pub(super) fn feed<E>(
        mut self,
        requests: impl Iterator<Item = Result<Record, E>>,
    ) -> Result<Fed, (u64, Box<dyn error::Error + Send + Sync>)>
    where
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let mut fed = Fed::default();
        let mut batch = Vec::with_capacity(BATCH_JOBS);
        let mut number = 0;
        for record in requests {
            if number >= self.requests_max {
                break;
            }
            let Record {
                time,
                key,
                mut size,
            } = record.map_err(|error| (number, error.into()))?;
            if let Some(first_sizes) = &mut self.first_sizes {
                let first = *first_sizes.entry(key).or_insert(size);
                fed.resized += u64::from(first != size);
                size = first;
            }
            if size > self.size_bytes_max {
                fed.skipped += 1;
                continue;
            }
            let due = self.schedule.due(number, time);
            batch.push(Job {
                number,
                key,
                size,
                due,
            });
            number += 1;
            // The first request does not wait for a batch to fill: stdin may be slow.
            if batch.len() >= BATCH_JOBS || number == 1 {
                let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_JOBS));
                if self.sender.blocking_send(full).is_err() {
                    return Ok(fed);
                }
            }
        }
        // Whoever would take it may have stopped early.
        _ = self.sender.blocking_send(batch);
        Ok(fed)
    }
}

/// The end the connections take from.
pub(super) struct Queue {
    // A tokio lock, for it is held while the next batch is awaited.
    taker: Mutex<Taker>,
}

struct Taker {
    batch: std::vec::IntoIter<Job>,
    receiver: mpsc::Receiver<Vec<Job>>,
}

impl Queue {
    /// The next request, in trace order over all who ask.
    pub(super) async fn next(&self) -> Option<Job> {
        let mut taker = self.taker.lock().await;
        loop {
            if let Some(job) = taker.batch.next() {
                return Some(job);
            }
            taker.batch = taker.receiver.recv().await?.into_iter();
        }
    }

    /// No more requests: the feeder ends as soon as it notices.
    pub(super) fn close(&self) {
        // Taken only after all workers are gone, so the lock is free.
        if let Ok(mut taker) = self.taker.try_lock() {
            taker.receiver.close();
        }
    }
}

const BATCH_JOBS: usize = 512;
const BATCHES_AHEAD: usize = 32;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroU64;

    use edgeward_types::Timestamp;

    use super::*;

    fn plan() -> ReplayPlan {
        ReplayPlan::new("t", "http://127.0.0.1:1".parse().expect("a target"))
    }

    fn records(sizes: &[(u64, u64)]) -> Vec<Result<Record, Infallible>> {
        let time = Timestamp::ZERO;
        let records = sizes.iter().map(|&(key, size)| Record { time, key, size });
        records.map(Ok).collect()
    }

    /// What comes out at the other end, and what the feeder says about it.
    fn through(plan: &ReplayPlan, sizes: &[(u64, u64)]) -> (Vec<(u64, u64, u64)>, Fed) {
        let (feeder, queue) = new(plan);
        let records = records(sizes);
        let feeding = std::thread::spawn(move || feeder.feed(records.into_iter()));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let jobs = runtime.expect("a runtime").block_on(async {
            let mut jobs = Vec::new();
            while let Some(job) = queue.next().await {
                jobs.push((job.number, job.key, job.size));
            }
            jobs
        });
        let fed = feeding.join().expect("no panic").expect("no error");
        (jobs, fed)
    }

    #[test]
    fn requests_come_out_in_trace_order_over_many_batches() {
        let sizes: Vec<(u64, u64)> = (0..5000).map(|n| (n * 7, n)).collect();
        let (jobs, _) = through(&plan(), &sizes);
        let expected: Vec<_> = (0..5000).map(|n| (n, n * 7, n)).collect();
        assert_eq!(jobs, expected);
    }

    #[test]
    fn an_object_keeps_its_first_size_unless_told_otherwise() {
        let sizes = [(1, 10), (2, 7), (1, 99), (1, 10)];
        let (jobs, fed) = through(&plan(), &sizes);
        assert_eq!(jobs, [(0, 1, 10), (1, 2, 7), (2, 1, 10), (3, 1, 10)]);
        assert_eq!(fed.resized, 1);
        let as_recorded = ReplayPlan {
            settle_sizes: false,
            ..plan()
        };
        let (jobs, fed) = through(&as_recorded, &sizes);
        assert_eq!(jobs[2], (2, 1, 99));
        assert_eq!(fed.resized, 0);
    }

    #[test]
    fn objects_too_large_are_left_out_and_do_not_count_to_the_limit() {
        let plan = ReplayPlan {
            size_bytes_max: Some(10),
            requests_max: NonZeroU64::new(2),
            ..plan()
        };
        let (jobs, fed) = through(&plan, &[(1, 10), (2, 11), (3, 9), (4, 1)]);
        assert_eq!(jobs, [(0, 1, 10), (1, 3, 9)]);
        assert_eq!(fed.skipped, 1);
    }

    #[test]
    fn a_broken_trace_tells_how_far_it_went() {
        let (feeder, _queue) = new(&plan());
        let mut records: Vec<Result<Record, String>> = Vec::new();
        let good = records_of(&[(1, 1), (2, 2)]);
        records.extend(good.into_iter().map(Ok));
        records.push(Err("line 3 is torn".to_owned()));
        let (requests, error) = feeder.feed(records.into_iter()).expect_err("an error");
        assert_eq!((requests, error.to_string()), (2, "line 3 is torn".into()));
    }

    fn records_of(sizes: &[(u64, u64)]) -> Vec<Record> {
        let infallible = |record: Result<Record, Infallible>| match record {
            Ok(record) => record,
        };
        records(sizes).into_iter().map(infallible).collect()
    }

    #[test]
    fn a_closed_queue_releases_a_feeder_that_waits_for_room() {
        let (feeder, queue) = new(&plan());
        let endless = (0..).map(|key| {
            Ok::<_, Infallible>(Record {
                time: Timestamp::ZERO,
                key,
                size: 1,
            })
        });
        let feeding = std::thread::spawn(move || feeder.feed(endless));
        queue.close();
        let fed = feeding.join().expect("no panic");
        assert!(fed.is_ok());
    }
}
