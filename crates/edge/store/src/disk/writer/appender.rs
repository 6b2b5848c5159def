//! Appends records to the buffer, and writes the buffer to the device, one segment after another.
//!
//! A tombstone is the hash of a purged key; records of their own contain the tombstones. An [`Extent`] is the location
//! of a record on the device, with the lengths of its metadata and body.
//!
//! This module ensures the order of writes and syncs on which recovery relies (see the documentation of the
//! parent module).

use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use edgeward_policy::log::{RecordLocation, SegmentId};
use edgeward_types::{KeyHash, Timestamp};

use super::draft::{AppendError, RecordDraft, Relocation};
use super::state::Writer;
use crate::disk::device::WRITE_ALIGN;
use crate::disk::format::{
    BLOCK_BYTES, ENTRY_BYTES, Entry, Extent, RECORD_HEADER_BYTES, RecordHeader, RecordKind,
    SegmentHeader, TRAILER_BYTES, Trailer,
};
use crate::disk::settings::DirectWrites;

impl Writer {
    /// Appends pending tombstones and then a record to the buffer. If the open segment has no space, opens the next
    /// one. Returns the extent of the record.
    pub(super) fn append(
        &mut self,
        draft: &RecordDraft<'_>,
        body: &[Bytes],
    ) -> Result<Extent, AppendError> {
        if !self.tombstones.is_empty() {
            self.write_tombstones()?;
        }
        self.append_without_tombstones(draft, body)
    }

    /// Appends a record to the buffer, without pending tombstones.
    pub(super) fn append_without_tombstones(
        &mut self,
        draft: &RecordDraft<'_>,
        body: &[Bytes],
    ) -> Result<Extent, AppendError> {
        let entries = draft.entries();
        loop {
            if let Some(position) = self.log.allocate(draft.record_bytes(), entries) {
                return Ok(self.add_record(position, draft, body));
            }
            self.open_segment()?;
        }
    }

    /// Opens the next segment. Then reclaims segments, so that another segment is free when this one is full.
    pub(super) fn open_segment(&mut self) -> Result<(), AppendError> {
        if self.log.free_segments() == 0 {
            // The last reclaim was interrupted by a failed write. No segment is free, so this reclaim cannot
            // reinsert objects.
            self.flush_records()?;
            let oldest = self.log.oldest();
            self.reclaim(oldest.expect("a segment is free, open or sealed"))?;
        }
        self.next_segment()?;
        while let Some(victim) = self.log.victim() {
            self.reclaim(victim)?;
        }
        Ok(())
    }

    /// Like [`append`](Self::append), but for reinserted records. This function may open a free segment, but
    /// does not reclaim one.
    pub(in crate::disk) fn append_reinserted(
        &mut self,
        draft: &RecordDraft<'_>,
        body: &[Bytes],
    ) -> Result<Extent, AppendError> {
        if let Some(position) = self.log.allocate(draft.record_bytes(), draft.entries()) {
            return Ok(self.add_record(position, draft, body));
        }
        if self.log.free_segments() == 0 {
            return Err(AppendError::NoRoom);
        }
        self.next_segment()?;
        let position = self.log.allocate(draft.record_bytes(), draft.entries());
        let position = position.ok_or(AppendError::NoRoom)?;
        Ok(self.add_record(position, draft, body))
    }

    /// Adds a record to the buffer, at a position that the log has allocated. Fills in the header and, for a record
    /// with a body, the checksums of the blocks.
    pub(super) fn add_record(
        &mut self,
        position: RecordLocation,
        draft: &RecordDraft<'_>,
        body: &[Bytes],
    ) -> Extent {
        let seed = self.volume.superblock.checksum_seed;
        let epoch = self
            .log
            .open()
            .expect("a position is in the open segment")
            .epoch;
        let header = RecordHeader {
            kind: draft.kind,
            key_bytes: u16::try_from(draft.key.len())
                .expect("the length was checked when the write began"),
            head_bytes: u32::try_from(draft.head.len())
                .expect("the length was checked when the write began"),
            item_count: draft.item_count,
            hash: draft.hash.0,
            object_id: draft.object_id,
            epoch,
            body_bytes: draft.body_bytes,
            body_offset: draft.body_offset,
            written_unix_secs: unix_secs(),
        };
        let start = usize::try_from(position.offset - self.flushed)
            .expect("the record is within the buffer");
        self.buffer.resize_with_zeros(start + RECORD_HEADER_BYTES);
        self.buffer.extend_from_slice(draft.key);
        self.buffer.extend_from_slice(draft.head);
        self.buffer.extend_from_slice(draft.table);
        let meta_bytes = header.meta_bytes();
        self.buffer.resize_with_zeros(start + meta_bytes);
        for chunk in body {
            self.buffer.extend_from_slice(chunk);
        }
        let (meta, body) = self.buffer[start..].split_at_mut(meta_bytes);
        if matches!(draft.kind, RecordKind::Object | RecordKind::Piece) {
            debug_assert_eq!(body.len() as u64, draft.body_bytes);
            let table = &mut meta[header.table_range()];
            for (item, block) in table
                .chunks_exact_mut(8)
                .zip(body.chunks(BLOCK_BYTES as usize))
            {
                item.copy_from_slice(&seed.checksum(block).to_le_bytes());
            }
        }
        header.seal(meta, seed);
        let record_bytes =
            u32::try_from(header.record_bytes()).expect("the length is less than a segment");
        let offset = u32::try_from(position.offset).expect("the length is less than a segment");
        let entry = |hash| Entry {
            hash,
            object_id: draft.object_id,
            offset,
            record_bytes,
            kind: draft.kind,
        };
        if draft.kind == RecordKind::Tombstones {
            let hashes = draft.table.chunks_exact(8);
            let hashes = hashes.map(|hash| {
                u64::from_le_bytes(hash.try_into().expect("the slice has eight bytes"))
            });
            self.entries.extend(hashes.map(entry));
        } else {
            self.entries.push(entry(draft.hash.0));
        }
        self.start_timers();
        Extent {
            offset: self.volume.segments.start(position.segment) + position.offset,
            epoch,
            // A commit record states the length of the whole object, which may exceed this field.
            body_bytes: u32::try_from(draft.body_bytes).unwrap_or(u32::MAX),
            meta_bytes: u32::try_from(meta_bytes).expect("the length is less than a segment"),
        }
    }

    /// Appends pending tombstones to the buffer, in records of their own.
    pub(super) fn write_tombstones(&mut self) -> Result<(), AppendError> {
        while !self.tombstones.is_empty() {
            let count = self.tombstones.len().min(TOMBSTONES_PER_RECORD);
            let hashes = self.tombstones[..count].iter();
            let table: Vec<u8> = hashes.flat_map(|hash| hash.to_le_bytes()).collect();
            let draft = RecordDraft {
                kind: RecordKind::Tombstones,
                hash: KeyHash(0),
                object_id: 0,
                key: &[],
                head: &[],
                table: &table,
                item_count: u32::try_from(count).expect("the count was limited before"),
                body_bytes: 0,
                body_offset: 0,
            };
            self.append_without_tombstones(&draft, &[])?;
            self.tombstones_unsynced
                .extend(self.tombstones.drain(..count));
        }
        Ok(())
    }

    /// Writes the buffer if it has at least `write_bytes` bytes, and syncs the device if at least `sync_bytes` bytes
    /// are not synced.
    pub(super) fn flush_if_full(&mut self) -> Result<(), AppendError> {
        if self.buffer.len() as u64 >= self.volume.settings.write_bytes.bytes() {
            self.flush()?;
        }
        if self.unsynced_bytes >= self.volume.settings.sync_bytes.bytes() {
            self.sync()?;
        }
        Ok(())
    }

    /// Writes the buffer and adds its objects to the index.
    pub(super) fn flush(&mut self) -> Result<(), AppendError> {
        if !self.tombstones.is_empty() {
            self.write_tombstones()?;
        }
        self.flush_records()
    }

    /// Writes the buffer without pending tombstones, adds its objects to the index, and moves the index entries of
    /// reinserted objects.
    pub(in crate::disk) fn flush_records(&mut self) -> Result<(), AppendError> {
        if self.buffer.is_empty() {
            if self.tombstones.is_empty() {
                self.buffered_since = None;
            }
            return Ok(());
        }
        let open = self
            .log
            .open()
            .expect("a segment is open while the buffer has records");
        let aligned = self.buffer.len().next_multiple_of(WRITE_ALIGN as usize);
        self.buffer.resize_with_zeros(aligned);
        let at = self.volume.segments.start(open.segment) + self.flushed;
        self.write_at(at)?;
        self.flushed += aligned as u64;
        self.log.align_to(WRITE_ALIGN);
        self.buffer.clear();
        self.buffered_since = None;
        self.pieces_pending.clear();
        self.volume.publish(&mut self.records_pending);
        for Relocation { hash, from, to } in self.moves_pending.drain(..) {
            if self.volume.index.relocate(hash, from, to) {
                self.volume.counters.reinserted_objects.increment();
            }
        }
        Ok(())
    }

    /// Writes the buffer at an offset of the device, with or without the page cache.
    pub(super) fn write_at(&mut self, at: u64) -> io::Result<()> {
        let bytes = self.buffer.len() as u64;
        let direct = match self.volume.settings.direct_writes {
            DirectWrites::Never => false,
            DirectWrites::Auto => self.write_rate.add_write(bytes, Instant::now()),
            DirectWrites::Always => true,
        };
        let device = &self.volume.device;
        match direct {
            true => device.write_past_cache_at(&self.buffer, at)?,
            false => device.write_at(&self.buffer, at)?,
        }
        self.count_write(bytes);
        Ok(())
    }

    pub(super) fn count_write(&mut self, bytes: u64) {
        self.volume.counters.written_bytes.add(bytes);
        self.volume.counters.write_ops.increment();
        self.unsynced_bytes += bytes;
        self.unsynced_since.get_or_insert_with(Instant::now);
    }

    /// Makes all appended records durable.
    pub(super) fn sync(&mut self) -> Result<(), AppendError> {
        self.flush()?;
        self.sync_written()
    }

    /// Makes all written records durable, without those in the buffer.
    pub(super) fn sync_written(&mut self) -> Result<(), AppendError> {
        if self.unsynced_since.is_none() {
            return Ok(());
        }
        self.volume.device.sync()?;
        self.volume.counters.syncs.increment();
        self.unsynced_bytes = 0;
        self.unsynced_since = None;
        for _ in self.tombstones_unsynced.drain(..) {
            self.volume.count_purge_ended();
        }
        Ok(())
    }

    /// Seals the open segment: makes its records durable, then writes its footer.
    pub(super) fn seal(&mut self) -> Result<(), AppendError> {
        // Tombstones are written first, because they may need a new segment.
        if !self.tombstones.is_empty() {
            self.write_tombstones()?;
        }
        self.seal_without_tombstones()?;
        self.sync_written()
    }

    /// Like [`seal`](Self::seal), without pending tombstones and without a sync of the footer.
    pub(super) fn seal_without_tombstones(&mut self) -> Result<(), AppendError> {
        self.flush_records()?;
        let Some(open) = self.log.open() else {
            return Ok(());
        };
        self.sync_written()?;
        let seed = self.volume.superblock.checksum_seed;
        let entries: Vec<u8> = self
            .entries
            .iter()
            .flat_map(|entry| entry.to_bytes())
            .collect();
        let trailer = Trailer {
            entries: u32::try_from(entries.len() / ENTRY_BYTES)
                .expect("the entries are fewer than the units of a segment"),
            epoch: open.epoch,
            records_end: self.flushed,
            entries_checksum: seed.checksum(&entries),
        };
        let footer = entries.len() + TRAILER_BYTES;
        let aligned = footer.next_multiple_of(WRITE_ALIGN as usize);
        self.buffer.resize_with_zeros(aligned - footer);
        self.buffer.extend_from_slice(&entries);
        self.buffer.extend_from_slice(&trailer.to_bytes(seed));
        let at = self.volume.segments.end(open.segment) - aligned as u64;
        let written = self.write_at(at);
        self.buffer.clear();
        written?;
        self.log.seal();
        Ok(())
    }

    /// Replaces the page-cache pages of a segment if some of them may be in socket buffers. If such a page were
    /// overwritten instead, a response that is being sent would contain the new content.
    fn replace_pages_in_sockets(&self, segment: SegmentId) -> Result<(), AppendError> {
        let volume = &self.volume;
        if !volume.segments.take_pages_in_sockets(segment) {
            return Ok(());
        }
        let (start, end) = (volume.segments.start(segment), volume.segments.end(segment));
        volume
            .device
            .replace_pages(start, end - start)
            .map_err(|error| {
                // The next try must replace the pages.
                volume.segments.set_pages_in_sockets(segment);
                error.into()
            })
    }

    /// Seals the open segment and opens a free one.
    pub(super) fn next_segment(&mut self) -> Result<(), AppendError> {
        self.seal_without_tombstones()?;
        let volume = Arc::clone(&self.volume);
        let opened = self.log.open_next(|id| volume.segments.is_pinned(id));
        let opened = opened.expect("reclaiming keeps a segment free");
        self.entries.clear();
        self.flushed = self.log.shape().segment_header_bytes;
        // The epoch changes before the old content is overwritten, so that readers notice the overwrite.
        volume.segments.set_epoch(opened.segment, opened.epoch);
        volume.segments.wait_for_guards(opened.segment);
        let header = SegmentHeader {
            segment: opened.segment.0,
            epoch: opened.epoch,
            oldest_used_epoch: self.log.tail_epoch(),
            opened_unix_secs: unix_secs(),
            segments: volume.segments.count(),
        };
        let header = header.to_bytes(volume.superblock.checksum_seed);
        let at = volume.segments.start(opened.segment);
        self.unsynced_since.get_or_insert_with(Instant::now);
        let written = self
            .replace_pages_in_sockets(opened.segment)
            .and_then(|()| Ok(volume.device.write_at(&header, at)?));
        let written = written.and_then(|()| {
            self.count_write(header.len() as u64);
            self.sync_written()
        });
        if written.is_err() {
            self.log.close_unused();
        }
        written
    }
}

impl RecordDraft<'_> {
    /// The length of the record. If the table is empty, the writer fills it with a checksum of 8 bytes for each block
    /// of the body; `item_count` is then the number of blocks.
    pub(in crate::disk) fn record_bytes(&self) -> u64 {
        let table = if self.table.is_empty() {
            u64::from(self.item_count) * 8
        } else {
            self.table.len() as u64
        };
        let body = match self.kind {
            RecordKind::Object | RecordKind::Piece => self.body_bytes,
            RecordKind::Commit | RecordKind::Tombstones => 0,
        };
        let key_and_head = (self.key.len() + self.head.len()) as u64;
        RECORD_HEADER_BYTES as u64 + key_and_head + table + body
    }

    /// The number of footer entries of this record.
    fn entries(&self) -> u64 {
        if self.kind == RecordKind::Tombstones {
            u64::from(self.item_count)
        } else {
            1
        }
    }
}

fn unix_secs() -> u64 {
    Timestamp::from(SystemTime::now()).as_secs()
}

/// The largest number of tombstones in one record.
pub(super) const TOMBSTONES_PER_RECORD: usize = 4096;
