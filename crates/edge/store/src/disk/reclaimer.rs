//! Reclaims the oldest segment: each of its objects is reinserted or evicted.
//!
//! The decision is made per object, not per record. An object in a single record is written again without
//! changes. For an object in pieces, the pieces in this segment are written again, and then its commit record,
//! which lists the locations of all pieces. An object that is not reinserted is evicted, even if some of its
//! pieces are in other segments.
//!
//! The reclaimer begins when the write buffer is empty. Each flush of the buffer updates the index. The index
//! therefore has the newest written object of each key, and no replaced object is reinserted.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_policy::log::{ReclaimCandidate, SegmentId};
use edgeward_types::KeyHash;

use super::format::{Entry, Extent, RecordKind};
use super::location::Location;
use super::reader::record::Record;
use super::volume::Volume;
use super::writer::draft::{AppendError, RecordDraft, Relocation, table_of};
use super::writer::state::Writer;

/// An object with at least one record in the segment to reclaim.
#[derive(Debug)]
struct Resident {
    hash: KeyHash,
    object_id: u64,
    /// The location in the index: the object's only record or its commit record.
    at: Location,
    /// The hits on the object's record at `at`, at most 3.
    hits: u8,
    /// The bytes that a reinsertion of the object writes.
    bytes: u64,
    parts: ResidentParts,
}

#[derive(Debug)]
enum ResidentParts {
    /// The object has one record, which is in the segment to reclaim.
    Single(Entry),
    /// The object is in pieces. The commit record may be in any segment; `pieces` lists only the pieces in the
    /// segment to reclaim.
    Pieces { commit: Record, pieces: Vec<Entry> },
}

impl Writer {
    /// Reclaims `victim`, the oldest segment.
    pub(super) fn reclaim(&mut self, victim: SegmentId) -> Result<(), AppendError> {
        let volume = Arc::clone(&self.volume);
        let residents = residents_of(&volume, victim);
        let candidates: Vec<ReclaimCandidate> = residents
            .iter()
            .map(|&Resident { bytes, hits, .. }| ReclaimCandidate { bytes, hits })
            .collect();
        let mut selected = Vec::new();
        let reinsertion = volume.settings.reinsertion;
        reinsertion.choose(&candidates, volume.shape.segment_bytes, &mut selected);
        let mut reinserted = vec![false; residents.len()];
        for number in selected {
            reinserted[number] = self.reinsert(&residents[number], victim)?;
            if reinserted[number] {
                // Decisions are recorded by ordinals, which count objects from the opening of the device on.
                let ordinal = volume.ordinal_of(residents[number].object_id);
                self.record_decision(|digest| digest.reinserted(ordinal));
            }
        }
        for (resident, reinserted) in residents.iter().zip(reinserted) {
            if !reinserted && volume.index.remove(resident.hash, resident.at) {
                volume.counters.evicted_objects.increment();
                let ordinal = volume.ordinal_of(resident.object_id);
                self.record_decision(|digest| digest.evicted(ordinal));
            }
        }
        self.flush_records()?;
        self.log.reclaimed(victim);
        volume.counters.reclaimed_segments.increment();
        Ok(())
    }

    /// Writes an object again. Returns false if the object could not be read, or the log has no space for it.
    fn reinsert(&mut self, resident: &Resident, victim: SegmentId) -> Result<bool, AppendError> {
        let written = match &resident.parts {
            ResidentParts::Single(entry) => self.copy(entry, resident.at)?,
            ResidentParts::Pieces { commit, pieces } => self.copy_pieces(commit, pieces, victim)?,
        };
        let Some(extent) = written else {
            return Ok(false);
        };
        self.moves_pending.push(Relocation {
            hash: resident.hash,
            from: resident.at,
            to: Location::from_offset(extent.offset),
        });
        Ok(true)
    }

    /// Writes the pieces in the reclaimed segment again, then a commit record with their new locations. Returns the
    /// extent of the commit record, or `None` if a piece is lost or unreadable, or the log has no space.
    fn copy_pieces(
        &mut self,
        commit: &Record,
        pieces: &[Entry],
        victim: SegmentId,
    ) -> Result<Option<Extent>, AppendError> {
        let mut extents: Vec<_> = Extent::parse_all(&commit.table()).collect();
        if !self.all_live(&extents) {
            return Ok(None);
        }
        for entry in pieces {
            let from = self
                .volume
                .segments
                .location(victim, u64::from(entry.offset));
            // If no extent refers to the piece, it is an old copy of a piece that was reinserted earlier.
            let Some(extent) = extents
                .iter_mut()
                .find(|extent| extent.offset == from.offset())
            else {
                continue;
            };
            match self.copy(entry, from)? {
                Some(copy) => *extent = copy,
                None => return Ok(None),
            }
        }
        let head = commit.head();
        let table = table_of(&extents);
        let draft = RecordDraft {
            table: &table,
            ..draft_of(commit, &head)
        };
        self.reinsert_record(&draft, &[])
    }

    /// Writes a record of the reclaimed segment again. Returns its new extent, or `None` if the record could not be
    /// read, or the log has no space for it.
    fn copy(&mut self, entry: &Entry, from: Location) -> Result<Option<Extent>, AppendError> {
        let Ok(record) = self.volume.load_record(from, u64::from(entry.record_bytes)) else {
            return Ok(None);
        };
        let head = record.head();
        let draft = draft_of(&record, &head);
        self.reinsert_record(&draft, &[record.body()])
    }

    fn reinsert_record(
        &mut self,
        draft: &RecordDraft<'_>,
        body: &[Bytes],
    ) -> Result<Option<Extent>, AppendError> {
        match self.append_reinserted(draft, body) {
            Ok(extent) => {
                let bytes = draft.record_bytes();
                self.volume.counters.reinserted_bytes.add(bytes);
                Ok(Some(extent))
            }
            Err(AppendError::NoRoom) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

fn draft_of<'a>(record: &'a Record, head: &'a [u8]) -> RecordDraft<'a> {
    let header = &record.header;
    RecordDraft {
        kind: header.kind,
        hash: KeyHash(header.hash),
        object_id: header.object_id,
        key: record.key(),
        head,
        table: &[],
        item_count: header.item_count,
        body_bytes: header.body_bytes,
        body_offset: header.body_offset,
    }
}

/// Returns the live objects with a record in the reclaimed segment, in the order of the log.
fn residents_of(volume: &Volume, victim: SegmentId) -> Vec<Resident> {
    let mut residents: Vec<Resident> = Vec::new();
    // Maps the id of an object in pieces to its index in `residents`, or to `None` if the object is not live.
    let mut index_by_id: HashMap<u64, Option<usize>> = HashMap::new();
    for entry in volume.entries_of(victim) {
        let number = match entry.kind {
            RecordKind::Tombstones => continue,
            RecordKind::Object => {
                let at = volume.segments.location(victim, u64::from(entry.offset));
                let hash = KeyHash(entry.hash);
                if let Some(hits) = volume.index.hits(hash, at) {
                    residents.push(Resident {
                        hash,
                        object_id: entry.object_id,
                        at,
                        hits,
                        bytes: u64::from(entry.record_bytes),
                        parts: ResidentParts::Single(entry),
                    });
                }
                continue;
            }
            RecordKind::Piece | RecordKind::Commit => {
                *index_by_id.entry(entry.object_id).or_insert_with(|| {
                    let resident = resident_in_pieces(volume, &entry)?;
                    residents.push(resident);
                    Some(residents.len() - 1)
                })
            }
        };
        if let (Some(number), RecordKind::Piece) = (number, entry.kind) {
            let resident = &mut residents[number];
            resident.bytes += u64::from(entry.record_bytes);
            if let ResidentParts::Pieces { pieces, .. } = &mut resident.parts {
                pieces.push(entry);
            }
        }
    }
    residents
}

/// Returns the object of a piece or a commit record, if the index still has it.
fn resident_in_pieces(volume: &Volume, entry: &Entry) -> Option<Resident> {
    let hash = KeyHash(entry.hash);
    let at = volume.index.find(hash)?;
    let first = volume.settings.first_read_bytes.bytes();
    let commit = volume.load_record(at, first).ok()?;
    let is_same_object = commit.header.kind == RecordKind::Commit
        && commit.header.hash == entry.hash
        && commit.header.object_id == entry.object_id;
    if !is_same_object {
        return None;
    }
    Some(Resident {
        hash,
        object_id: entry.object_id,
        at,
        hits: volume.index.hits(hash, at)?,
        bytes: commit.header.record_bytes(),
        parts: ResidentParts::Pieces {
            commit,
            pieces: Vec::new(),
        },
    })
}
