//! The one thread that writes a device.
//!
//! It takes objects from the queue, turns them into records, gathers records into large writes, and
//! makes what it wrote durable by the settings. An object in one record is found from the moment it has its
//! place ([`unwritten`](super::unwritten)), one in pieces when the write that holds its last record has returned. Syncs and segments follow an order that recovery relies on:
//!
//! 1. a segment's header is durable before anything else of its epoch is written;
//! 2. a segment's records are durable before its footer is written;
//! 3. a segment is overwritten only after what was reinserted from it is durable, since the segment
//!    that received it was synced before the next one was opened, or is the open one and is synced then.
//!
//! When the device refuses a write, everything since the last flush is dropped, the open segment is
//! left as it is, and the device is left alone for a while. Purges that are not durable yet are kept
//! and written first when it works again.

mod appender;
mod buffer;
mod objects;
mod pace;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use edgeward_policy::digest::Digest;
use edgeward_policy::log::SegmentLog;
use edgeward_types::{KeyHash, Timestamp};

use self::buffer::PageBuffer;
use self::pace::Pace;
use super::checkpoint;
use super::counters::DeviceState;
use super::error::{Dropped, SyncError};
use super::format::{Entry, Extent, Kind, blocks_of};
use super::location::Location;
use super::settings::DirectWrites;
use super::volume::Volume;
use super::write::WriteState;

/// What comes to the writer.
#[derive(Debug)]
pub(crate) enum Message {
    /// An object with its whole body.
    Object {
        write: Arc<WriteState>,
        body: Vec<Bytes>,
        body_bytes: u64,
    },
    /// A part of one.
    Piece {
        write: Arc<WriteState>,
        body: Vec<Bytes>,
        body_bytes: u64,
    },
    /// The end of one in pieces.
    Commit { write: Arc<WriteState> },
    /// A new head for the object at a place, whose body stays as it is.
    Rewrite {
        write: Arc<WriteState>,
        from: Location,
    },
    /// A purge.
    Tombstone { hash: KeyHash },
    /// A purge that somebody waits for.
    Purge { hash: KeyHash, done: Done },
    /// Whoever sent it waits until everything before is durable.
    Sync {
        done: SyncSender<Result<(), SyncError>>,
    },
    /// The same, and nothing follows.
    Close {
        done: SyncSender<Result<(), SyncError>>,
    },
}

/// What is to be called when a purge is durable. Dropped without a call if the writer ends first.
pub(crate) struct Done(Box<dyn FnOnce(Result<(), SyncError>) + Send>);

impl Done {
    pub(crate) fn new(done: impl FnOnce(Result<(), SyncError>) + Send + 'static) -> Self {
        Self(Box::new(done))
    }
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Done")
    }
}

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) volume: Arc<Volume>,
    pub(super) log: SegmentLog,
    /// Records since the last flush, with what aligns them.
    buffer: PageBuffer,
    /// Where in the open segment the buffer begins.
    flushed: u64,
    /// The open segment's footer so far.
    entries: Vec<Entry>,
    /// Objects whose last record is in the buffer.
    pending: Vec<(Arc<WriteState>, Location)>,
    /// Objects of which a piece is in the buffer.
    pieces_pending: Vec<Arc<WriteState>>,
    /// Entries that move when the buffer is written.
    pub(super) moves_pending: Vec<Move>,
    /// Purges that are not yet in a record.
    tombstones: Vec<u64>,
    /// Purges in records that are not yet durable.
    tombstones_unsynced: Vec<u64>,
    unsynced_bytes: u64,
    pace: Pace,
    /// When the oldest byte of the buffer, or of what is not durable, came.
    buffered_since: Option<Instant>,
    unsynced_since: Option<Instant>,
    /// After a failure: when to try again.
    retry_at: Option<Instant>,
    checkpoint_at: Option<Instant>,
    /// Writes a checkpoint.
    checkpoint: Option<JoinHandle<()>>,
    digest: Digest,
}

/// An object that was written again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) hash: KeyHash,
    pub(super) from: Location,
    pub(super) to: Location,
}

/// What a record says beside its body and what the writer knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft<'a> {
    pub(super) kind: Kind,
    pub(super) hash: KeyHash,
    pub(super) object: u64,
    pub(super) key: &'a [u8],
    pub(super) head: &'a [u8],
    /// Empty for an object or a piece: the checksums are computed.
    pub(super) table: &'a [u8],
    pub(super) items: u32,
    pub(super) body_bytes: u64,
    pub(super) body_offset: u64,
}

/// Why nothing was written.
#[derive(Debug)]
pub(super) enum WriteFailure {
    Device(io::Error),
    /// Reinsertion alone: there is no room for it without reclaiming more.
    NoRoom,
}

impl From<io::Error> for WriteFailure {
    fn from(error: io::Error) -> Self {
        Self::Device(error)
    }
}

/// What is kept of purges while the device refuses writes: 8 MiB.
const TOMBSTONES_KEPT_MAX: usize = 1 << 20;

/// Purges in one record.
const TOMBSTONES_A_RECORD: usize = 4096;

/// The nice value of a writer that writes past the page cache: a tenth of the processor where all want it.
const GIVES_WAY: i32 = 10;

impl Writer {
    pub(crate) fn new(volume: Arc<Volume>, log: SegmentLog) -> Self {
        let interval = volume.settings.checkpoint_interval;
        Self {
            buffer: PageBuffer::default(),
            flushed: 0,
            entries: Vec::new(),
            pending: Vec::new(),
            pieces_pending: Vec::new(),
            moves_pending: Vec::new(),
            tombstones: Vec::new(),
            tombstones_unsynced: Vec::new(),
            unsynced_bytes: 0,
            pace: Pace::default(),
            buffered_since: None,
            unsynced_since: None,
            retry_at: None,
            checkpoint: None,
            digest: Digest::default(),
            checkpoint_at: (!interval.is_zero()).then(|| Instant::now() + interval),
            volume,
            log,
        }
    }

    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        if self.volume.settings.direct_writes != DirectWrites::Never {
            // Of this thread alone (setpriority(2), "C library/kernel differences"). Nearly all of what it does is copying
            // and checksums then, which can wait; written through the page cache the kernel's work cannot.
            // Where it is not allowed nothing is lost.
            _ = rustix::process::setpriority_process(None, GIVES_WAY);
        }
        loop {
            let message = self.volume.queue.pop(self.patience());
            if let Some(message) = message {
                if self.handle(message) {
                    return;
                }
            } else if self.volume.queue.is_closed() {
                // Nobody holds the cache any more, and nobody waits for an answer.
                _ = self.close();
                return;
            }
            self.keep_time();
        }
    }

    /// How long to wait for a message.
    fn patience(&self) -> Duration {
        let settings = &self.volume.settings;
        let now = Instant::now();
        let due = [
            self.buffered_since.map(|at| at + settings.flush_interval),
            self.unsynced_since.map(|at| at + settings.sync_interval),
            self.checkpoint_at,
        ];
        let next = self.retry_at.or_else(|| due.into_iter().flatten().min());
        next.map_or(IDLE_PATIENCE, |at| at.saturating_duration_since(now))
            .clamp(Duration::from_millis(1), IDLE_PATIENCE)
    }

    /// Does what is due.
    fn keep_time(&mut self) {
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
            self.probe()
        } else if sync_due {
            self.sync()
        } else if flush_due {
            self.flush()
        } else {
            Ok(())
        };
        self.settle(result);
        if self.retry_at.is_none() && self.checkpoint_at.is_some_and(|at| now >= at) {
            self.checkpoint_at = Some(now + checkpoint_interval);
            self.begin_checkpoint();
        }
    }

    /// Whether the device takes writes again: tries what a new segment takes, and what purges wait for.
    fn probe(&mut self) -> Result<(), WriteFailure> {
        if self.log.open().is_none() {
            self.open_segment()?;
        }
        self.sync()
    }

    /// True if nothing follows.
    fn handle(&mut self, message: Message) -> bool {
        let volume = Arc::clone(&self.volume);
        let names = |write: &WriteState| (write.key.len() + write.head.len()) as u64;
        match message {
            Message::Object {
                write,
                body,
                body_bytes,
            } => {
                self.write_object(&write, &body, body_bytes);
                volume.queue.give_room(body_bytes + names(&write));
            }
            Message::Piece {
                write,
                body,
                body_bytes,
            } => {
                self.write_piece(&write, &body, body_bytes);
                volume.queue.give_room(body_bytes);
            }
            Message::Commit { write } => {
                self.write_commit(&write);
                volume.queue.give_room(names(&write));
            }
            Message::Rewrite { write, from } => {
                self.write_rewritten(&write, from);
                volume.queue.give_room(names(&write));
            }
            Message::Tombstone { hash } => _ = self.take_purge(hash),
            Message::Purge { hash, done } => self.purge_durably(hash, done),
            Message::Sync { done } => {
                // The other side may have given up waiting.
                _ = done.send(self.sync_now());
            }
            Message::Close { done } => {
                _ = done.send(self.close());
                return true;
            }
        }
        false
    }

    /// Keeps a purge for the next record. False if too many are kept.
    fn take_purge(&mut self, hash: KeyHash) -> bool {
        if self.tombstones.len() >= TOMBSTONES_KEPT_MAX {
            self.volume.purge_ended();
            self.volume.counters.purges_not_durable.one();
            return false;
        }
        self.tombstones.push(hash.0);
        self.note_buffered();
        true
    }

    /// Makes a purge durable, and with it those that came while the device was busy: one sync for all of them.
    fn purge_durably(&mut self, hash: KeyHash, done: Done) {
        let volume = Arc::clone(&self.volume);
        let mut waiting = Vec::new();
        let mut next = Some((hash, done));
        while let Some((hash, done)) = next {
            match self.take_purge(hash) {
                true => waiting.push(done),
                false => (done.0)(Err(SyncError::NotWritable)),
            }
            if waiting.len() >= TOMBSTONES_A_RECORD {
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
        // A device that has just refused is left alone for a while, whoever waits.
        let result = match self.is_resting() {
            true => Err(SyncError::NotWritable),
            false => self.sync_now(),
        };
        for done in waiting {
            (done.0)(result);
        }
    }

    fn sync_now(&mut self) -> Result<(), SyncError> {
        self.retry_at = None;
        // With nothing to write a sync would succeed on a device that takes nothing.
        let result = if self.volume.health.state() == DeviceState::ReadOnly {
            self.probe()
        } else {
            self.sync()
        };
        self.settle(result)
            .then_some(())
            .ok_or(SyncError::NotWritable)
    }

    fn close(&mut self) -> Result<(), SyncError> {
        self.retry_at = None;
        let sealed = if self.volume.health.state() == DeviceState::ReadOnly {
            self.probe().and_then(|()| self.seal())
        } else {
            self.seal()
        };
        let closed = self.settle(sealed);
        self.end_checkpoint();
        if closed {
            // After a clean end the checkpoint knows everything.
            self.begin_checkpoint();
            self.end_checkpoint();
        }
        closed.then_some(()).ok_or(SyncError::NotWritable)
    }

    /// Something waits to be written. It is to be durable in time, however long it is gathered.
    fn note_buffered(&mut self) {
        let now = Instant::now();
        self.buffered_since.get_or_insert(now);
        self.unsynced_since.get_or_insert(now);
    }

    /// Notes a decision of the log.
    pub(super) fn decided(&mut self, decision: impl FnOnce(&mut Digest)) {
        decision(&mut self.digest);
        let value = self.digest.value();
        self.volume.digest.store(value, Ordering::Relaxed);
    }

    fn is_resting(&self) -> bool {
        self.retry_at.is_some_and(|at| Instant::now() < at)
    }

    /// Takes note of how a step went. True if it went well.
    fn settle(&mut self, result: Result<(), WriteFailure>) -> bool {
        match result {
            Ok(()) => {
                if self.retry_at.is_none() && self.unsynced_since.is_none() {
                    self.volume.write_succeeded();
                }
                true
            }
            Err(WriteFailure::NoRoom) => true,
            Err(WriteFailure::Device(error)) => {
                self.fail(&error);
                false
            }
        }
    }

    /// The device refused: forgets what it did not take, and leaves it alone for a while.
    fn fail(&mut self, error: &io::Error) {
        let volume = Arc::clone(&self.volume);
        volume.write_failed(error);
        for write in self.pieces_pending.drain(..) {
            write.drop_as(Dropped::NotWritable);
        }
        for (write, _) in std::mem::take(&mut self.pending) {
            write.drop_as(Dropped::NotWritable);
            self.end_dropped(&write);
        }
        volume.unwritten.clear();
        self.moves_pending.clear();
        self.buffer.clear();
        self.entries.clear();
        // What the open segment holds so far is good; it has no footer and will be searched.
        self.log.seal();
        self.buffered_since = None;
        // What was written and not synced still has to be: until that succeeds nothing is settled.
        let room = TOMBSTONES_KEPT_MAX.saturating_sub(self.tombstones.len());
        let kept = self.tombstones_unsynced.len().min(room);
        let lost = self.tombstones_unsynced.len() - kept;
        volume.counters.purges_not_durable.add(lost as u64);
        (0..lost).for_each(|_| volume.purge_ended());
        self.tombstones
            .extend(self.tombstones_unsynced.drain(..).take(kept));
        self.retry_at = Some(Instant::now() + volume.settings.retry_interval);
    }

    /// Writes the index down on a thread of its own, unless one still does.
    fn begin_checkpoint(&mut self) {
        if self
            .checkpoint
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            return;
        }
        self.end_checkpoint();
        // What lies in older segments is in the index by now; what is written from now on may not be.
        let epoch = self
            .log
            .open()
            .map_or_else(|| self.log.epoch_next(), |open| open.epoch);
        let volume = Arc::clone(&self.volume);
        let thread = thread::Builder::new().name("disk-checkpoint".to_owned());
        let thread = thread.spawn(move || {
            if let Err(error) = checkpoint::write(&volume, epoch)
                // Full: the device has grown since it was divided, and footers have to do.
                && error.kind() != io::ErrorKind::StorageFull
            {
                volume.counters.write_errors.one();
            }
        });
        // Without a thread there is no checkpoint, and the next start reads footers.
        self.checkpoint = thread.ok();
    }

    fn end_checkpoint(&mut self) {
        if let Some(thread) = self.checkpoint.take() {
            // Had it panicked the old checkpoint would stand.
            _ = thread.join();
        }
    }
}

pub(super) fn table_of(extents: &[Extent]) -> Vec<u8> {
    extents
        .iter()
        .flat_map(|extent| extent.to_bytes())
        .collect()
}

fn block_count(body_bytes: u64) -> u32 {
    u32::try_from(blocks_of(body_bytes)).expect("a body in a record is less than a segment")
}

pub(super) fn unix_secs() -> u64 {
    Timestamp::from(SystemTime::now()).as_secs()
}

/// How long an idle writer sleeps; a message wakes it.
const IDLE_PATIENCE: Duration = Duration::from_secs(3600);
