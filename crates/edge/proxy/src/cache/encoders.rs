//! The encoders: threads that compress bodies, so that workers do not wait for them.
//!
//! Requests for one encoding share a job. The memory of all jobs is bounded, and so is therefore the time for which a
//! request may wait in the queue. The encoders only compress. No input of a client or origin is decompressed here, so
//! a decompression bomb stays as small as the origin sent it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use edgeward_semantics::content_coding::Coding;
use edgeward_semantics::dictionary::DictionaryHash;
use edgeward_store::disk::DiskObject;
use edgeward_types::KeyHash;
use tokio::sync::{oneshot, watch};

use super::delta::encode_delta;
use super::dictionaries::Dictionary;
use super::disk::readers::Readers;
use super::encode::{Levels, encode};
use crate::config::CompressionConfig;
use crate::rt::budget::{MemoryBudget, MemoryShare};
use crate::rt::panics::lock;

/// The threads, the bound of their memory, and the jobs under way.
#[derive(Debug)]
pub(crate) struct Encoders {
    threads: Readers,
    budget: Arc<MemoryBudget>,
    under_way: Mutex<HashMap<KeyHash, watch::Receiver<Option<Encoding>>>>,
    /// The processor time of all jobs, in microseconds.
    busy_micros: Arc<AtomicU64>,
}

/// The body that a job encodes.
#[derive(Clone, Debug)]
pub(crate) enum PlainBody {
    Memory(Bytes),
    /// The thread reads the body from disk first.
    Disk(DiskObject),
}

/// A copy of a body, and its hash.
#[derive(Debug)]
pub(crate) struct Digested {
    pub(crate) hash: DictionaryHash,
    pub(crate) body: Bytes,
    pub(crate) share: MemoryShare,
}

/// The way in which a body is encoded.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) coding: Coding,
    pub(crate) levels: Levels,
    /// Present if the coding [needs a dictionary](Coding::needs_dictionary).
    pub(crate) dictionary: Option<Arc<Dictionary>>,
}

/// The result of a job, for all requests that wait for it.
#[derive(Clone, Debug)]
pub(crate) enum Encoding {
    /// The encoded body.
    Body(Bytes),
    /// The coding saves too little.
    NoGain,
    /// The body could not be read from disk.
    Failed,
}

/// The part of a request in a job.
pub(crate) enum JobRole {
    /// The caller awaits the job, stores its result, and passes it on by [`Job::publish`].
    Leader(Job, PendingJob),
    Follower(watch::Receiver<Option<Encoding>>),
    /// The memory of all jobs is exhausted, or the edge is stopping.
    Busy,
}

/// A job that a thread carries out.
pub(crate) type PendingJob = oneshot::Receiver<(Output, MemoryShare)>;

/// The result of a job for its leader.
#[derive(Debug)]
pub(crate) enum Output {
    Body(Vec<u8>),
    NoGain,
    Failed,
}

/// Publishes the result of a job. If it is dropped before, the requests that wait get no result.
pub(crate) struct Job {
    encoders: Arc<Encoders>,
    hash: KeyHash,
    sender: watch::Sender<Option<Encoding>>,
}

impl Encoders {
    /// Starts the threads. A site or a reload may enable the compression later, so they also start while it is
    /// disabled; a thread without work costs a few KiB.
    pub(crate) fn start(config: &CompressionConfig) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            threads: Readers::start("encoder", config.threads, usize::MAX)?,
            budget: MemoryBudget::new(config.pending_bytes_max.bytes(), None),
            under_way: Mutex::default(),
            busy_micros: Arc::default(),
        }))
    }

    /// Joins the job for the encoding with this hash, or begins it. The body has `length` bytes. `stored` looks the
    /// encoding up: a job may have ended since the caller did.
    pub(crate) fn join(
        self: &Arc<Self>,
        hash: KeyHash,
        recipe: Recipe,
        body: PlainBody,
        length: u64,
        stored: impl FnOnce() -> Option<Encoding>,
    ) -> JobRole {
        let mut under_way = lock(&self.under_way);
        if let Some(receiver) = under_way.get(&hash) {
            return JobRole::Follower(receiver.clone());
        }
        if let Some(encoding) = stored() {
            return JobRole::Follower(watch::channel(Some(encoding)).1);
        }
        // The encoded body is shorter than the plain one, and a body on disk is read into memory first.
        let copies = match body {
            PlainBody::Memory(_) => 1,
            PlainBody::Disk(_) => 2,
        };
        let dictionary = recipe.dictionary.as_ref();
        let dictionary_bytes = dictionary.map_or(0, |dictionary| dictionary.body.len() as u64);
        let bytes = length
            .saturating_mul(copies)
            .saturating_add(dictionary_bytes);
        // No request waits for a delta.
        let share = match dictionary {
            Some(_) => self.budget.reserve_of_half(bytes),
            None => self.budget.reserve(bytes),
        };
        let Some(share) = share else {
            return JobRole::Busy;
        };
        let busy_micros = Arc::clone(&self.busy_micros);
        let work = move || {
            let before = thread_time();
            let output = run(&recipe, body);
            let spent = thread_time().saturating_sub(before);
            let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
            busy_micros.fetch_add(micros, Ordering::Relaxed);
            (output, share)
        };
        let Ok(pending) = self.threads.queue_required(work) else {
            return JobRole::Busy;
        };
        let (sender, receiver) = watch::channel(None);
        under_way.insert(hash, receiver);
        let job = Job {
            encoders: Arc::clone(self),
            hash,
            sender,
        };
        JobRole::Leader(job, pending)
    }

    /// Copies a body of `length` bytes and computes its SHA-256, for a dictionary. Returns `None` if half of the memory
    /// of all jobs is used, or the edge is stopping. The result is `None` if the body could not be read from disk.
    pub(crate) fn digest(
        &self,
        body: PlainBody,
        length: u64,
    ) -> Option<oneshot::Receiver<Option<Digested>>> {
        let share = self.budget.reserve_of_half(length)?;
        let work = move || {
            let body = match body {
                PlainBody::Memory(body) => body.to_vec(),
                PlainBody::Disk(object) => read_all(&object)?,
            };
            let digest = digest::digest(&digest::SHA256, &body);
            let hash = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
            let body = Bytes::from(body);
            Some(Digested { hash, body, share })
        };
        self.threads.queue_required(work).ok()
    }

    /// Reserves memory for a body that is read to be encoded. Returns `None` if the memory of all jobs is exhausted.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<MemoryShare> {
        self.budget.reserve(bytes)
    }

    /// Returns the processor time of all jobs in seconds.
    pub(crate) fn busy_seconds(&self) -> f64 {
        Duration::from_micros(self.busy_micros.load(Ordering::Relaxed)).as_secs_f64()
    }

    /// Returns the memory of all jobs, and of results that are sent without being stored.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.budget.used_bytes()
    }

    /// Returns the jobs that wait for a thread.
    pub(crate) fn waiting(&self) -> usize {
        self.threads.waiting()
    }

    /// Drops the jobs that wait, and refuses further ones.
    pub(crate) fn close(&self) {
        self.threads.close();
    }
}

impl Job {
    /// Returns a receiver of the result.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Encoding>> {
        self.sender.subscribe()
    }

    /// Gives the result to all requests that wait for it.
    pub(crate) fn publish(self, encoding: Encoding) {
        self.sender.send_replace(Some(encoding));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        lock(&self.encoders.under_way).remove(&self.hash);
    }
}

fn run(recipe: &Recipe, body: PlainBody) -> Output {
    let body = match body {
        PlainBody::Memory(body) => body,
        PlainBody::Disk(object) => match read_all(&object) {
            Some(body) => Bytes::from(body),
            None => return Output::Failed,
        },
    };
    let encoded = match &recipe.dictionary {
        Some(dictionary) => {
            let (hash, bytes) = (&dictionary.hash, &dictionary.body);
            encode_delta(recipe.coding, recipe.levels, hash, bytes, &body)
        }
        None => encode(recipe.coding, recipe.levels, &body),
    };
    encoded.map_or(Output::NoGain, Output::Body)
}

/// Reads a body from disk. Returns `None` if the store has lost it.
fn read_all(object: &DiskObject) -> Option<Vec<u8>> {
    let length = object.length();
    let mut body = Vec::with_capacity(usize::try_from(length).ok()?);
    while (body.len() as u64) < length {
        let piece = object.read(body.len() as u64..length).ok()?;
        if piece.is_empty() {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    Some(body)
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use edgeward_types::ByteSize;

    use super::*;

    fn recipe(coding: Coding) -> Recipe {
        Recipe {
            coding,
            levels: Levels::of(&CompressionConfig::default()),
            dictionary: None,
        }
    }

    fn encoders(pending: ByteSize) -> Arc<Encoders> {
        let config = CompressionConfig {
            threads: NonZeroUsize::MIN,
            pending_bytes_max: pending,
            ..CompressionConfig::default()
        };
        Encoders::start(&config).expect("the threads start")
    }

    /// Method: one job takes the whole budget. Another one is refused until its result was dropped.
    #[test]
    fn jobs_beyond_the_memory_are_refused_and_equal_jobs_are_shared() {
        let encoders = encoders(ByteSize(1000));
        let join = |hash, length: usize| {
            let body = PlainBody::Memory(vec![b'a'; length].into());
            let length = length as u64;
            encoders.join(KeyHash(hash), recipe(Coding::Gzip), body, length, || None)
        };
        assert!(matches!(join(1, 1001), JobRole::Busy));
        let JobRole::Leader(job, pending) = join(1, 1000) else {
            panic!("the budget has space");
        };
        assert!(matches!(join(2, 1), JobRole::Busy));
        let JobRole::Follower(follower) = join(1, 1000) else {
            panic!("the job is under way");
        };
        let (output, share) = pending.blocking_recv().expect("a result");
        let Output::Body(bytes) = output else {
            panic!("{output:?}");
        };
        job.publish(Encoding::Body(share.charge(bytes)));
        let result = follower.borrow().clone();
        assert!(matches!(&result, Some(Encoding::Body(bytes)) if bytes.starts_with(&[0x1f, 0x8b])));
        assert!(
            matches!(join(2, 1), JobRole::Busy),
            "the result is still in use"
        );
        drop((follower, result));
        assert!(matches!(join(2, 1000), JobRole::Leader(..)));
    }

    /// A worker looks an encoding up, another one stores it and ends its job, and only then does the first one join.
    #[test]
    fn an_encoding_that_was_stored_in_the_meantime_is_not_made_again() {
        let encoders = encoders(ByteSize(1000));
        let body = PlainBody::Memory(Bytes::from_static(b"a"));
        let stored = || Some(Encoding::Body(Bytes::from_static(b"encoded")));
        let JobRole::Follower(follower) =
            encoders.join(KeyHash(1), recipe(Coding::Zstd), body, 1, stored)
        else {
            panic!("nothing is to be made");
        };
        let result = follower.borrow().clone();
        assert!(matches!(result, Some(Encoding::Body(bytes)) if bytes == "encoded"));
        assert_eq!((encoders.waiting(), encoders.pending_bytes()), (0, 0));
    }

    #[test]
    fn a_job_whose_leader_ends_gives_no_result() {
        let encoders = encoders(ByteSize(1000));
        let body = || PlainBody::Memory(Bytes::from_static(b"a"));
        let join = || encoders.join(KeyHash(1), recipe(Coding::Zstd), body(), 1, || None);
        let JobRole::Leader(job, _) = join() else {
            panic!("the budget has space");
        };
        let JobRole::Follower(follower) = join() else {
            panic!("the job is under way");
        };
        drop(job);
        assert!(follower.has_changed().is_err());
        assert!(matches!(join(), JobRole::Leader(..)));
    }
}
