//! Handles the messages that write objects: makes records for whole objects, pieces, commit records and new heads. A
//! commit record lists the locations (extents) of an object's pieces and makes the object valid.

use std::sync::Arc;

use bytes::Bytes;

use super::draft::{RecordDraft, block_count, table_of};
use super::state::Writer;
use crate::disk::error::WriteError;
use crate::disk::format::{Extent, RecordKind};
use crate::disk::location::Location;
use crate::disk::write_state::WriteState;

impl Writer {
    pub(super) fn write_object(
        &mut self,
        write: &Arc<WriteState>,
        body: &[Bytes],
        body_bytes: u64,
    ) {
        let draft = RecordDraft {
            kind: RecordKind::Object,
            hash: write.hash,
            object_id: write.id,
            key: &write.key,
            head: &write.head,
            table: &[],
            item_count: block_count(body_bytes),
            body_bytes,
            body_offset: 0,
        };
        self.write_final_record(write, &draft, body);
    }

    pub(super) fn write_piece(&mut self, write: &Arc<WriteState>, body: &[Bytes], body_bytes: u64) {
        if write.dropped().is_some() {
            return;
        }
        if self.is_paused() {
            write.drop_as(WriteError::NotWritable);
            return;
        }
        let body_offset = {
            let extents = write.extents.lock();
            extents
                .iter()
                .map(|extent| u64::from(extent.body_bytes))
                .sum()
        };
        let draft = RecordDraft {
            kind: RecordKind::Piece,
            hash: write.hash,
            object_id: write.id,
            key: &[],
            head: &[],
            table: &[],
            item_count: block_count(body_bytes),
            body_bytes,
            body_offset,
        };
        match self.append(&draft, body) {
            Ok(extent) => {
                write.extents.lock().push(extent);
                self.pieces_pending.push(Arc::clone(write));
                let result = self.flush_if_full();
                self.record_outcome(result);
            }
            Err(failure) => {
                write.drop_as(WriteError::NotWritable);
                self.record_outcome(Err(failure));
            }
        }
    }

    pub(super) fn write_commit(&mut self, write: &Arc<WriteState>) {
        let extents = write.extents.lock().clone();
        self.write_commit_of(write, write.id, &extents);
    }

    /// Writes the commit record of the pieces in `extents`, whose records have the id `object_id`.
    pub(super) fn write_commit_of(
        &mut self,
        write: &Arc<WriteState>,
        object_id: u64,
        extents: &[Extent],
    ) {
        if !self.all_live(extents) {
            // The segments of the first pieces were reclaimed already, because the log is too small for an
            // object of this size.
            write.drop_as(WriteError::Gone);
        }
        let table = table_of(extents);
        let draft = RecordDraft {
            kind: RecordKind::Commit,
            hash: write.hash,
            object_id,
            key: &write.key,
            head: &write.head,
            table: &table,
            item_count: u32::try_from(extents.len()).unwrap_or(u32::MAX),
            body_bytes: write.body_bytes(),
            body_offset: 0,
        };
        self.write_final_record(write, &draft, &[]);
    }

    /// Returns true if the segment of every extent is still in use and has not been overwritten.
    pub(in crate::disk) fn all_live(&self, extents: &[Extent]) -> bool {
        let tail_epoch = self.log.tail_epoch();
        extents
            .iter()
            .all(|extent| extent.epoch >= tail_epoch && self.volume.has_extent(extent))
    }

    /// Writes a new head. A body in pieces is not written again; a body in a single record is copied.
    pub(super) fn write_new_head(&mut self, write: &Arc<WriteState>, from: Location) {
        if self
            .records_pending
            .iter()
            .any(|(other, at)| *at == from || other.hash == write.hash)
        {
            // The buffer is flushed for two reasons. If the old record is in the buffer, it must be written
            // before it can be copied. If a newer object of the key is in the buffer, the index has the
            // location of the newer object after the flush, and the check below then finds that the old object
            // was replaced.
            let result = self.flush();
            self.record_outcome(result);
        }
        // `hits` returns `None` if the index has another location for the key.
        let old = self.volume.index.hits(write.hash, from).and_then(|_| {
            let first = self.volume.settings.first_read_bytes.bytes();
            let old = self.volume.load_record(from, first).ok()?;
            (old.key() == &*write.key).then_some(old)
        });
        let Some(old) = old else {
            write.drop_as(WriteError::Gone);
            self.end_dropped(write);
            return;
        };
        write.set_body_bytes(old.header.body_bytes);
        match old.header.kind {
            RecordKind::Commit => {
                let extents: Vec<_> = Extent::parse_all(&old.table()).collect();
                // The records of the pieces contain the id of the old object.
                self.write_commit_of(write, old.header.object_id, &extents);
            }
            _ => {
                let body = old.body();
                let body_bytes = body.len() as u64;
                self.write_object(write, &[body], body_bytes);
            }
        }
    }

    /// Appends the record that makes an object valid: an object record, or the commit record of its pieces.
    pub(super) fn write_final_record(
        &mut self,
        write: &Arc<WriteState>,
        draft: &RecordDraft<'_>,
        body: &[Bytes],
    ) {
        if self.is_paused() {
            write.drop_as(WriteError::NotWritable);
        }
        if write.dropped().is_some() {
            self.end_dropped(write);
            return;
        }
        match self.append(draft, body) {
            Ok(extent) => {
                let location = Location::from_offset(extent.offset);
                if draft.kind == RecordKind::Object {
                    self.volume.unwritten.insert(write, location, body);
                }
                self.records_pending.push((Arc::clone(write), location));
                self.record_decision(|digest| digest.admitted(write.body_bytes()));
                let result = self.flush_if_full();
                self.record_outcome(result);
            }
            Err(failure) => {
                write.drop_as(WriteError::NotWritable);
                self.end_dropped(write);
                self.record_outcome(Err(failure));
            }
        }
    }

    /// Ends a dropped write and counts the cause.
    pub(super) fn end_dropped(&self, write: &WriteState) {
        self.volume.unregister(write);
        if let Some(cause) = write.dropped() {
            self.volume.count_dropped(cause);
        }
    }
}
