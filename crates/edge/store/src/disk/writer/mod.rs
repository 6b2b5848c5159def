//! The single thread that writes a device.
//!
//! The thread takes objects from the queue, makes records of them, collects records into large writes, and
//! syncs the device as configured. An object in one record is visible as soon as the record is in the buffer
//! ([`unwritten`](super::unwritten)), an object in pieces when its commit record is written. Recovery relies on
//! the following order of writes and syncs:
//!
//! 1. A segment's header is durable before any record of its epoch is written.
//! 2. A segment's records are durable before its footer is written.
//! 3. A segment is overwritten only after the objects reinserted from it are durable. The segment to which they
//!    were written is synced when it is full, or before the overwrite if it is still open.
//!
//! When a write fails, all data since the last flush is dropped, the open segment is closed without a footer, and
//! the device is not written during the retry interval. Purges that are not durable yet are kept. They are written
//! first when the device can be written again.

mod appender;
mod buffer;
pub(super) mod draft;
mod objects;
mod pace;
pub(super) mod state;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use edgeward_policy::digest::Digest;
use edgeward_types::KeyHash;

use self::appender::TOMBSTONES_PER_RECORD;
use self::draft::AppendError;
use self::state::Writer;
use super::checkpoint;
use super::counters::DeviceState;
use super::error::{SyncError, WriteError};
use super::message::{Message, PurgeCallback};
use super::settings::DirectWrites;
use super::write_state::WriteState;

/// The largest number of purges that are kept while writes fail. They take 8 MiB.
const TOMBSTONES_PENDING_MAX: usize = 1 << 20;

/// The nice value of a writer that bypasses the page cache. If other threads use the whole processor, this thread
/// gets a tenth of it.
const LOW_PRIORITY: i32 = 10;

impl Writer {
    /// Runs until a [`Message::Close`], or until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        if self.volume.settings.direct_writes != DirectWrites::Never {
            // The priority applies to this thread only (setpriority(2), "C library/kernel differences"). If the call
            // fails, the thread delays requests a little more.
            _ = rustix::process::setpriority_process(None, LOW_PRIORITY);
        }
        loop {
            let used = self.log.segments() - self.log.free_segments();
            self.volume
                .used_segments
                .store(used as u64, Ordering::Relaxed);
            let message = self.volume.queue.pop(self.timeout());
            if let Some(message) = message {
                if self.handle_message(message) {
                    return;
                }
            } else if self.volume.queue.is_closed() {
                // The cache has been dropped, so no caller waits for the result.
                _ = self.close();
                return;
            }
            self.run_timers();
        }
    }

    /// Returns the time until the next timer is due. The thread waits for a message for this time.
    fn timeout(&self) -> Duration {
        let settings = &self.volume.settings;
        let now = Instant::now();
        let due = [
            self.buffered_since.map(|at| at + settings.flush_interval),
            self.unsynced_since.map(|at| at + settings.sync_interval),
            self.checkpoint_at,
        ];
        let next = self.retry_at.or_else(|| due.into_iter().flatten().min());
        next.map_or(IDLE_TIMEOUT, |at| at.saturating_duration_since(now))
            .clamp(Duration::from_millis(1), IDLE_TIMEOUT)
    }

    /// Executes flushes, syncs, retries and checkpoints that are due.
    fn run_timers(&mut self) {
        let settings = &self.volume.settings;
        let (flush_interval, sync_interval) = (settings.flush_interval, settings.sync_interval);
        let checkpoint_interval = settings.checkpoint_interval;
        let sync_bytes = settings.sync_bytes.bytes();
        let now = Instant::now();
        let due = |since: Option<Instant>, interval| since.is_some_and(|at| now >= at + interval);
        if let Some(retry_at) = self.retry_at {
            if now < retry_at {
                return;
            }
            self.retry_at = None;
        }
        let flush_due = due(self.buffered_since, flush_interval);
        let sync_due = due(self.unsynced_since, sync_interval) || self.unsynced_bytes >= sync_bytes;
        let result = if self.volume.health.state() == DeviceState::ReadOnly {
            self.try_write()
        } else if sync_due {
            self.sync()
        } else if flush_due {
            self.flush()
        } else {
            Ok(())
        };
        self.record_outcome(result);
        if self.retry_at.is_none() && self.checkpoint_at.is_some_and(|at| now >= at) {
            self.checkpoint_at = Some(now + checkpoint_interval);
            self.begin_checkpoint();
        }
    }

    /// Tests if the device can be written again: opens a segment if necessary, and writes pending purges.
    fn try_write(&mut self) -> Result<(), AppendError> {
        if self.log.open().is_none() {
            self.open_segment()?;
        }
        self.sync()
    }

    /// Handles one message. Returns true if it was the last message.
    fn handle_message(&mut self, message: Message) -> bool {
        let volume = Arc::clone(&self.volume);
        let key_and_head_bytes = |write: &WriteState| (write.key.len() + write.head.len()) as u64;
        match message {
            Message::Object {
                write,
                body,
                body_bytes,
            } => {
                self.write_object(&write, &body, body_bytes);
                volume
                    .queue
                    .release_bytes(body_bytes + key_and_head_bytes(&write));
            }
            Message::Piece {
                write,
                body,
                body_bytes,
            } => {
                self.write_piece(&write, &body, body_bytes);
                volume.queue.release_bytes(body_bytes);
            }
            Message::Commit { write } => {
                self.write_commit(&write);
                volume.queue.release_bytes(key_and_head_bytes(&write));
            }
            Message::Rewrite { write, from } => {
                self.write_new_head(&write, from);
                volume.queue.release_bytes(key_and_head_bytes(&write));
            }
            Message::Tombstone { hash } => _ = self.add_tombstone(hash),
            Message::Purge { hash, done } => self.purge_durably(hash, done),
            Message::Sync { done } => {
                // The caller may have stopped waiting.
                _ = done.send(self.sync_or_report());
            }
            Message::Close { done } => {
                _ = done.send(self.close());
                return true;
            }
        }
        false
    }

    /// Stores a purge for the next tombstone record. Returns false if too many purges are stored already.
    fn add_tombstone(&mut self, hash: KeyHash) -> bool {
        if self.tombstones.len() >= TOMBSTONES_PENDING_MAX {
            self.volume.count_purge_ended();
            self.volume.counters.purges_not_durable.increment();
            return false;
        }
        self.tombstones.push(hash.0);
        self.start_timers();
        true
    }

    /// Makes a purge durable with one sync, together with all purges that arrived while the device was busy.
    fn purge_durably(&mut self, hash: KeyHash, done: PurgeCallback) {
        let volume = Arc::clone(&self.volume);
        let mut waiting = Vec::new();
        let mut next = Some((hash, done));
        while let Some((hash, done)) = next {
            match self.add_tombstone(hash) {
                true => waiting.push(done),
                false => done.call(Err(SyncError::NotWritable)),
            }
            if waiting.len() >= TOMBSTONES_PER_RECORD {
                break;
            }
            let message = volume
                .queue
                .pop_if(|message| matches!(message, Message::Purge { .. }));
            next = match message {
                Some(Message::Purge { hash, done }) => Some((hash, done)),
                _ => None,
            };
        }
        // A device whose last write failed is not written during the retry interval, even if callers wait.
        let result = match self.is_paused() {
            true => Err(SyncError::NotWritable),
            false => self.sync_or_report(),
        };
        for done in waiting {
            done.call(result);
        }
    }

    fn sync_or_report(&mut self) -> Result<(), SyncError> {
        self.retry_at = None;
        // If no data is to be written, a sync would succeed even on a device that is not writable. A write is
        // therefore tried first.
        let result = if self.volume.health.state() == DeviceState::ReadOnly {
            self.try_write()
        } else {
            self.sync()
        };
        self.record_outcome(result)
            .then_some(())
            .ok_or(SyncError::NotWritable)
    }

    fn close(&mut self) -> Result<(), SyncError> {
        self.retry_at = None;
        let sealed = if self.volume.health.state() == DeviceState::ReadOnly {
            self.try_write().and_then(|()| self.seal())
        } else {
            self.seal()
        };
        let closed = self.record_outcome(sealed);
        self.end_checkpoint();
        if closed {
            // After a clean shutdown the checkpoint covers everything.
            self.begin_checkpoint();
            self.end_checkpoint();
        }
        closed.then_some(()).ok_or(SyncError::NotWritable)
    }

    /// Starts the flush timer and the sync timer for data that waits to be written, unless they run already. The
    /// sync timer does not start at the flush, because `sync_interval` includes the time in the buffer.
    fn start_timers(&mut self) {
        let now = Instant::now();
        self.buffered_since.get_or_insert(now);
        self.unsynced_since.get_or_insert(now);
    }

    /// Adds the writing, reinsertion or eviction of an object to the fingerprint.
    pub(super) fn record_decision(&mut self, decision: impl FnOnce(&mut Digest)) {
        decision(&mut self.digest);
        let value = self.digest.value();
        self.volume.digest.store(value, Ordering::Relaxed);
    }

    fn is_paused(&self) -> bool {
        self.retry_at.is_some_and(|at| Instant::now() < at)
    }

    /// Records the outcome of a step. Returns false if the device failed.
    fn record_outcome(&mut self, result: Result<(), AppendError>) -> bool {
        match result {
            Ok(()) => {
                if self.retry_at.is_none() && self.unsynced_since.is_none() {
                    self.volume.record_write_success();
                }
                true
            }
            Err(AppendError::NoRoom) => true,
            Err(AppendError::Device(error)) => {
                self.handle_failure(&error);
                false
            }
        }
    }

    /// Handles a failed write: drops the data that was not written, and pauses writing.
    fn handle_failure(&mut self, error: &io::Error) {
        let volume = Arc::clone(&self.volume);
        volume.record_write_failure(error);
        for write in self.pieces_pending.drain(..) {
            write.drop_as(WriteError::NotWritable);
        }
        for (write, _) in std::mem::take(&mut self.records_pending) {
            write.drop_as(WriteError::NotWritable);
            self.end_dropped(&write);
        }
        volume.unwritten.clear();
        self.moves_pending.clear();
        self.buffer.clear();
        self.entries.clear();
        // The written records of the open segment are valid. Recovery searches a segment without a footer.
        self.log.seal();
        self.buffered_since = None;
        // Data that was written but not synced stays pending (`unsynced_since`). The device is not in service
        // before a sync succeeds. The tombstones among this data are written again.
        let space = TOMBSTONES_PENDING_MAX.saturating_sub(self.tombstones.len());
        let carried = self.tombstones_unsynced.len().min(space);
        let lost = self.tombstones_unsynced.len() - carried;
        volume.counters.purges_not_durable.add(lost as u64);
        (0..lost).for_each(|_| volume.count_purge_ended());
        self.tombstones
            .extend(self.tombstones_unsynced.drain(..).take(carried));
        self.retry_at = Some(Instant::now() + volume.settings.retry_interval);
    }

    /// Starts a thread that writes a checkpoint, unless a checkpoint is being written.
    fn begin_checkpoint(&mut self) {
        if self
            .checkpoint
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            return;
        }
        self.end_checkpoint();
        // The checkpoint covers all segments before this epoch. Recovery reads this segment and later ones, because
        // records may be added to them while the checkpoint is written.
        let epoch = self
            .log
            .open()
            .map_or_else(|| self.log.epoch_next(), |open| open.epoch);
        let volume = Arc::clone(&self.volume);
        let thread = thread::Builder::new().name("disk-checkpoint".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = checkpoint::write(&volume, epoch)
                // The checkpoint area is full, because the device has grown since it was formatted. This is not an
                // error: recovery uses the footers.
                && error.kind() != io::ErrorKind::StorageFull
            {
                volume.counters.write_errors.increment();
            }
        });
        // If the thread cannot be started, the next start reads the footers.
        self.checkpoint = thread.ok();
    }

    fn end_checkpoint(&mut self) {
        if let Some(thread) = self.checkpoint.take() {
            // If the thread panicked, the old checkpoint remains valid.
            _ = thread.join();
        }
    }
}

/// The longest time that the writer waits for a message. A message ends the wait at once.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
