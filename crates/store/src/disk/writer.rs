//! The one thread that writes a device.
//!
//! It takes objects from the queue, turns them into records, gathers records into large writes, and
//! makes what it wrote durable by the settings. An object becomes visible when the write that holds
//! its last record has returned. Syncs and segments follow an order that recovery relies on:
//!
//! 1. a segment's header is durable before anything else of its epoch is written;
//! 2. a segment's records are durable before its footer is written;
//! 3. a segment is overwritten only after what was reinserted from it is durable, since the segment
//!    that received it was synced before the next one was opened, or is the open one and is synced then.
//!
//! When the device refuses a write, everything since the last flush is dropped, the open segment is
//! left as it is, and the device is left alone for a while. Purges that are not durable yet are kept
//! and written first when it works again.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use edgeward_policy::log::{Place, SegmentLog};
use edgeward_types::KeyHash;

use super::checkpoint;
use super::counters::DeviceState;
use super::device::WRITE_ALIGN;
use super::error::{Dropped, SyncError};
use super::format::{
    BLOCK_BYTES, ENTRY_BYTES, Entry, Extent, Kind, RecordHeader, SegmentHeader, TRAILER_BYTES,
    Trailer, blocks_of,
};
use super::location::Location;
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
    /// Whoever sent it waits until everything before is durable.
    Sync {
        done: SyncSender<Result<(), SyncError>>,
    },
    /// The same, and nothing follows.
    Close {
        done: SyncSender<Result<(), SyncError>>,
    },
}

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) volume: Arc<Volume>,
    pub(super) log: SegmentLog,
    /// Records since the last flush, with what aligns them.
    buffer: Vec<u8>,
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
    /// When the oldest byte of the buffer, or of what is not durable, was written.
    buffered_since: Option<Instant>,
    unsynced_since: Option<Instant>,
    /// After a failure: when to try again.
    retry_at: Option<Instant>,
    checkpoint_at: Option<Instant>,
    /// Writes a checkpoint.
    checkpoint: Option<JoinHandle<()>>,
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

impl Writer {
    pub(crate) fn new(volume: Arc<Volume>, log: SegmentLog) -> Self {
        let interval = volume.settings.checkpoint_interval;
        Self {
            buffer: Vec::new(),
            flushed: 0,
            entries: Vec::new(),
            pending: Vec::new(),
            pieces_pending: Vec::new(),
            moves_pending: Vec::new(),
            tombstones: Vec::new(),
            tombstones_unsynced: Vec::new(),
            unsynced_bytes: 0,
            buffered_since: None,
            unsynced_since: None,
            retry_at: None,
            checkpoint: None,
            checkpoint_at: (!interval.is_zero()).then(|| Instant::now() + interval),
            volume,
            log,
        }
    }

    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
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
            Message::Tombstone { hash } => {
                if self.tombstones.len() < TOMBSTONES_KEPT_MAX {
                    self.tombstones.push(hash.0);
                    self.buffered_since.get_or_insert_with(Instant::now);
                } else {
                    volume.counters.purges_not_durable.one();
                }
            }
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

    fn write_object(&mut self, write: &Arc<WriteState>, body: &[Bytes], body_bytes: u64) {
        let draft = Draft {
            kind: Kind::Object,
            hash: write.hash,
            object: write.id,
            key: &write.key,
            head: &write.head,
            table: &[],
            items: block_count(body_bytes),
            body_bytes,
            body_offset: 0,
        };
        self.write_last(write, &draft, body);
    }

    fn write_piece(&mut self, write: &Arc<WriteState>, body: &[Bytes], body_bytes: u64) {
        if write.dropped().is_some() {
            return;
        }
        if self.is_resting() {
            write.drop_as(Dropped::NotWritable);
            return;
        }
        let body_offset = {
            let extents = write.extents.lock();
            extents
                .iter()
                .map(|extent| u64::from(extent.body_bytes))
                .sum()
        };
        let draft = Draft {
            kind: Kind::Piece,
            hash: write.hash,
            object: write.id,
            key: &[],
            head: &[],
            table: &[],
            items: block_count(body_bytes),
            body_bytes,
            body_offset,
        };
        match self.append(&draft, body) {
            Ok(extent) => {
                write.extents.lock().push(extent);
                self.pieces_pending.push(Arc::clone(write));
                let result = self.flush_if_full();
                self.settle(result);
            }
            Err(failure) => {
                write.drop_as(Dropped::NotWritable);
                self.settle(Err(failure));
            }
        }
    }

    fn write_commit(&mut self, write: &Arc<WriteState>) {
        let extents = write.extents.lock().clone();
        self.write_commit_of(write, write.id, &extents);
    }

    fn write_commit_of(&mut self, write: &Arc<WriteState>, object: u64, extents: &[Extent]) {
        if !self.all_live(extents) {
            // What came first is gone already: the log is small for such an object.
            write.drop_as(Dropped::Gone);
        }
        let table = table_of(extents);
        let draft = Draft {
            kind: Kind::Commit,
            hash: write.hash,
            object,
            key: &write.key,
            head: &write.head,
            table: &table,
            items: u32::try_from(extents.len()).unwrap_or(u32::MAX),
            body_bytes: write.body_bytes(),
            body_offset: 0,
        };
        self.write_last(write, &draft, &[]);
    }

    /// Whether every piece is in a segment that still counts.
    pub(super) fn all_live(&self, extents: &[Extent]) -> bool {
        let tail_epoch = self.log.tail_epoch();
        extents
            .iter()
            .all(|extent| extent.epoch >= tail_epoch && self.volume.holds(extent))
    }

    /// The body stays where it is if it is in pieces; one in a single record is copied.
    fn write_rewritten(&mut self, write: &Arc<WriteState>, from: Location) {
        let old = self.volume.index.hits(write.hash, from).and_then(|_| {
            let first = self.volume.settings.first_read_bytes.bytes();
            let old = self.volume.load_record(from, first).ok()?;
            (old.key() == &*write.key).then_some(old)
        });
        let Some(old) = old else {
            write.drop_as(Dropped::Gone);
            self.end_dropped(write);
            return;
        };
        write.set_body_bytes(old.header.body_bytes);
        match old.header.kind {
            Kind::Commit => {
                let extents: Vec<_> = Extent::parse_all(&old.table()).collect();
                // The pieces carry the old object's number.
                self.write_commit_of(write, old.header.object, &extents);
            }
            _ => {
                let body = old.body();
                let body_bytes = body.len() as u64;
                self.write_object(write, &[body], body_bytes);
            }
        }
    }

    fn write_last(&mut self, write: &Arc<WriteState>, draft: &Draft<'_>, body: &[Bytes]) {
        if self.is_resting() {
            write.drop_as(Dropped::NotWritable);
        }
        if write.dropped().is_some() {
            self.end_dropped(write);
            return;
        }
        match self.append(draft, body) {
            Ok(extent) => {
                let location = Location::from_offset(extent.at);
                self.pending.push((Arc::clone(write), location));
                let result = self.flush_if_full();
                self.settle(result);
            }
            Err(failure) => {
                write.drop_as(Dropped::NotWritable);
                self.end_dropped(write);
                self.settle(Err(failure));
            }
        }
    }

    fn end_dropped(&self, write: &WriteState) {
        self.volume.unregister(write);
        if let Some(cause) = write.dropped() {
            self.volume.count_dropped(cause);
        }
    }

    fn is_resting(&self) -> bool {
        self.retry_at.is_some_and(|at| Instant::now() < at)
    }

    /// Puts a record into the buffer, reclaiming what must make room.
    fn append(&mut self, draft: &Draft<'_>, body: &[Bytes]) -> Result<Extent, WriteFailure> {
        if !self.tombstones.is_empty() {
            self.write_tombstones()?;
        }
        self.append_in_order(draft, body)
    }

    fn append_in_order(
        &mut self,
        draft: &Draft<'_>,
        body: &[Bytes],
    ) -> Result<Extent, WriteFailure> {
        let entries = draft.entries();
        loop {
            if let Some(place) = self.log.place(draft.record_bytes(), entries) {
                return Ok(self.put(place, draft, body));
            }
            self.open_segment()?;
        }
    }

    /// Opens the next segment, and reclaims so that the one after it is free when it is wanted.
    fn open_segment(&mut self) -> Result<(), WriteFailure> {
        if self.log.free_segments() == 0 {
            // Reclaiming was cut short by a device that refused. Nothing can be written again here.
            self.flush_records()?;
            let oldest = self.log.oldest();
            self.reclaim(oldest.expect("what is not free or open is sealed"))?;
        }
        self.next_segment()?;
        while let Some(victim) = self.log.victim() {
            self.reclaim(victim)?;
        }
        Ok(())
    }

    /// As [`append`](Self::append) for what is written again: takes a free segment, but reclaims none.
    pub(super) fn append_again(
        &mut self,
        draft: &Draft<'_>,
        body: &[Bytes],
    ) -> Result<Extent, WriteFailure> {
        if let Some(place) = self.log.place(draft.record_bytes(), draft.entries()) {
            return Ok(self.put(place, draft, body));
        }
        if self.log.free_segments() == 0 {
            return Err(WriteFailure::NoRoom);
        }
        self.next_segment()?;
        let place = self.log.place(draft.record_bytes(), draft.entries());
        let place = place.ok_or(WriteFailure::NoRoom)?;
        Ok(self.put(place, draft, body))
    }

    fn put(&mut self, place: Place, draft: &Draft<'_>, body: &[Bytes]) -> Extent {
        let seed = self.volume.superblock.checksum_seed;
        let epoch = self
            .log
            .open()
            .expect("a place is in the open segment")
            .epoch;
        let header = RecordHeader {
            kind: draft.kind,
            key_bytes: u16::try_from(draft.key.len()).expect("checked when the write began"),
            head_bytes: u32::try_from(draft.head.len()).expect("checked when the write began"),
            items: draft.items,
            hash: draft.hash.0,
            object: draft.object,
            epoch,
            body_bytes: draft.body_bytes,
            body_offset: draft.body_offset,
            written_secs: unix_secs(),
        };
        let start = usize::try_from(place.offset - self.flushed).expect("within the buffer");
        self.buffer
            .resize(start + super::format::RECORD_HEADER_BYTES, 0);
        self.buffer.extend_from_slice(draft.key);
        self.buffer.extend_from_slice(draft.head);
        self.buffer.extend_from_slice(draft.table);
        let meta_bytes = header.meta_bytes();
        self.buffer.resize(start + meta_bytes, 0);
        for chunk in body {
            self.buffer.extend_from_slice(chunk);
        }
        let (meta, body) = self.buffer[start..].split_at_mut(meta_bytes);
        if matches!(draft.kind, Kind::Object | Kind::Piece) {
            debug_assert_eq!(body.len() as u64, draft.body_bytes);
            let table = &mut meta[header.table_range()];
            for (item, block) in table
                .chunks_exact_mut(8)
                .zip(body.chunks(BLOCK_BYTES as usize))
            {
                item.copy_from_slice(&seed.of(block).to_le_bytes());
            }
        }
        header.seal(meta, seed);
        let record_bytes = u32::try_from(header.record_bytes()).expect("less than a segment");
        let offset = u32::try_from(place.offset).expect("less than a segment");
        let entry = |hash| Entry {
            hash,
            object: draft.object,
            offset,
            record_bytes,
            kind: draft.kind,
        };
        if draft.kind == Kind::Tombstones {
            let hashes = draft.table.chunks_exact(8);
            let hashes = hashes.map(|hash| u64::from_le_bytes(hash.try_into().expect("eight")));
            self.entries.extend(hashes.map(entry));
        } else {
            self.entries.push(entry(draft.hash.0));
        }
        self.buffered_since.get_or_insert_with(Instant::now);
        Extent {
            at: self.volume.segments.start(place.segment) + place.offset,
            epoch,
            body_bytes: u32::try_from(draft.body_bytes).unwrap_or(u32::MAX),
            meta_bytes: u32::try_from(meta_bytes).expect("less than a segment"),
        }
    }

    fn write_tombstones(&mut self) -> Result<(), WriteFailure> {
        while !self.tombstones.is_empty() {
            let count = self.tombstones.len().min(TOMBSTONES_A_RECORD);
            let hashes = self.tombstones[..count].iter();
            let table: Vec<u8> = hashes.flat_map(|hash| hash.to_le_bytes()).collect();
            let draft = Draft {
                kind: Kind::Tombstones,
                hash: KeyHash(0),
                object: 0,
                key: &[],
                head: &[],
                table: &table,
                items: u32::try_from(count).expect("bounded above"),
                body_bytes: 0,
                body_offset: 0,
            };
            self.append_in_order(&draft, &[])?;
            self.tombstones_unsynced
                .extend(self.tombstones.drain(..count));
        }
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), WriteFailure> {
        if self.buffer.len() as u64 >= self.volume.settings.write_bytes.bytes() {
            self.flush()?;
        }
        if self.unsynced_bytes >= self.volume.settings.sync_bytes.bytes() {
            self.sync()?;
        }
        Ok(())
    }

    /// Writes the buffer and makes visible what it holds.
    fn flush(&mut self) -> Result<(), WriteFailure> {
        if !self.tombstones.is_empty() {
            self.write_tombstones()?;
        }
        self.flush_records()
    }

    pub(super) fn flush_records(&mut self) -> Result<(), WriteFailure> {
        if self.buffer.is_empty() {
            if self.tombstones.is_empty() {
                self.buffered_since = None;
            }
            return Ok(());
        }
        let open = self.log.open().expect("the buffer is of the open segment");
        let aligned = self.buffer.len().next_multiple_of(WRITE_ALIGN as usize);
        self.buffer.resize(aligned, 0);
        let at = self.volume.segments.start(open.segment) + self.flushed;
        self.write_at(at)?;
        self.flushed += aligned as u64;
        self.log.align_to(WRITE_ALIGN);
        self.buffer.clear();
        self.buffered_since = None;
        self.pieces_pending.clear();
        self.volume.publish(&mut self.pending);
        for Move { hash, from, to } in self.moves_pending.drain(..) {
            if self.volume.index.relocate(hash, from, to) {
                self.volume.counters.reinserted_objects.one();
            }
        }
        Ok(())
    }

    fn write_at(&mut self, at: u64) -> io::Result<()> {
        self.volume.device.write_at(&self.buffer, at)?;
        self.wrote(self.buffer.len() as u64);
        Ok(())
    }

    fn wrote(&mut self, bytes: u64) {
        self.volume.counters.written_bytes.add(bytes);
        self.volume.counters.write_ops.one();
        self.unsynced_bytes += bytes;
        self.unsynced_since.get_or_insert_with(Instant::now);
    }

    /// Makes durable what was appended so far.
    fn sync(&mut self) -> Result<(), WriteFailure> {
        self.flush()?;
        self.sync_written()
    }

    fn sync_written(&mut self) -> Result<(), WriteFailure> {
        if self.unsynced_since.is_none() {
            return Ok(());
        }
        self.volume.device.sync()?;
        self.volume.counters.syncs.one();
        self.unsynced_bytes = 0;
        self.unsynced_since = None;
        self.tombstones_unsynced.clear();
        Ok(())
    }

    /// Ends the open segment: its records durable, then its footer.
    fn seal(&mut self) -> Result<(), WriteFailure> {
        // Purges go first, for they may need a segment of their own.
        if !self.tombstones.is_empty() {
            self.write_tombstones()?;
        }
        self.seal_in_order()?;
        self.sync_written()
    }

    fn seal_in_order(&mut self) -> Result<(), WriteFailure> {
        self.flush_records()?;
        let Some(open) = self.log.open() else {
            return Ok(());
        };
        self.sync_written()?;
        let seed = self.volume.superblock.checksum_seed;
        let lines: Vec<u8> = self
            .entries
            .iter()
            .flat_map(|entry| entry.to_bytes())
            .collect();
        let trailer = Trailer {
            entries: u32::try_from(lines.len() / ENTRY_BYTES)
                .expect("fewer than a segment's units"),
            epoch: open.epoch,
            records_end: self.flushed,
            entries_checksum: seed.of(&lines),
        };
        let footer = lines.len() + TRAILER_BYTES;
        let aligned = footer.next_multiple_of(WRITE_ALIGN as usize);
        self.buffer.resize(aligned - footer, 0);
        self.buffer.extend_from_slice(&lines);
        self.buffer.extend_from_slice(&trailer.to_bytes(seed));
        let at = self.volume.segments.end(open.segment) - aligned as u64;
        let written = self.write_at(at);
        self.buffer.clear();
        written?;
        self.log.seal();
        Ok(())
    }

    /// Ends the open segment and takes a free one into use.
    fn next_segment(&mut self) -> Result<(), WriteFailure> {
        self.seal_in_order()?;
        let volume = Arc::clone(&self.volume);
        let opened = self.log.open_next(|id| volume.segments.is_pinned(id));
        let opened = opened.expect("reclaiming keeps a segment free");
        self.entries.clear();
        self.flushed = self.log.shape().segment_header_bytes;
        // Readers of the old content are told before it goes.
        volume.segments.set_epoch(opened.segment, opened.epoch);
        let header = SegmentHeader {
            segment: opened.segment.0,
            epoch: opened.epoch,
            tail_epoch: self.log.tail_epoch(),
            opened_secs: unix_secs(),
            segments: volume.segments.count(),
        };
        let header = header.to_bytes(volume.superblock.checksum_seed);
        let at = volume.segments.start(opened.segment);
        self.unsynced_since.get_or_insert_with(Instant::now);
        let written = volume
            .device
            .write_at(&header, at)
            .map_err(WriteFailure::from);
        let written = written.and_then(|()| {
            self.wrote(header.len() as u64);
            self.sync_written()
        });
        if written.is_err() {
            self.log.close_unused();
        }
        written
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

impl Draft<'_> {
    pub(super) fn record_bytes(&self) -> u64 {
        let table = if self.table.is_empty() {
            u64::from(self.items) * 8
        } else {
            self.table.len() as u64
        };
        let body = match self.kind {
            Kind::Object | Kind::Piece => self.body_bytes,
            Kind::Commit | Kind::Tombstones => 0,
        };
        let names = (self.key.len() + self.head.len()) as u64;
        super::format::RECORD_HEADER_BYTES as u64 + names + table + body
    }

    /// Lines of the footer.
    fn entries(&self) -> u64 {
        if self.kind == Kind::Tombstones {
            u64::from(self.items)
        } else {
            1
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
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// How long an idle writer sleeps; a message wakes it.
const IDLE_PATIENCE: Duration = Duration::from_secs(3600);
