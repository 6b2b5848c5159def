//! A disk tier for the simulator, without the bytes of the objects. Its objects lie in a [`SegmentLog`].
//!
//! The tier performs the same operations as the server's store, in the same order, with sizes instead of bytes.
//! A long body is split into pieces, and a last record completes the object. A reclaim evicts every object that
//! has a record in the segment, or writes its records again.

use edgeward_types::KeyHash;
use hashbrown::HashTable;

use super::reinsertion::{HITS_MAX, ReclaimCandidate, Reinsertion};
use super::segments::{RecordLocation, SegmentId, SegmentLog};
use super::shape::LogShape;
use crate::digest::Digest;

/// The settings of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTierConfig {
    /// The sizes of the record format.
    pub shape: LogShape,
    /// The number of segments: the capacity divided by `segment_bytes`.
    pub segments: u32,
    /// Segments that are kept free.
    pub reserve: u32,
    /// The reinsertion rule.
    pub reinsertion: Reinsertion,
    /// The assumed bytes of key and head of each object. Traces do not contain them.
    pub key_and_head_bytes: u64,
    /// Records are combined into writes of at least this size. The server also writes fewer bytes after a timeout.
    /// This is not simulated, because the only time of a simulation is that of the trace.
    pub write_bytes: u64,
    /// Writes end at multiples of this number of bytes.
    pub write_align_bytes: u64,
}

impl LogTierConfig {
    /// Returns the settings for a disk of `capacity_bytes` with the default segment size and 512 bytes of key
    /// and head.
    pub fn new(capacity_bytes: u64, reinsertion: Reinsertion) -> Self {
        let segment_bytes = LogShape::segment_bytes_for(capacity_bytes);
        let reserve = 2;
        let segments = u32::try_from(capacity_bytes / segment_bytes).unwrap_or(u32::MAX);
        Self {
            shape: LogShape::new(segment_bytes),
            segments: segments.max(SegmentLog::segments_min(reserve)),
            reserve,
            reinsertion,
            key_and_head_bytes: 512,
            write_bytes: 1 << 20,
            write_align_bytes: 4096,
        }
    }
}

/// The counters of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Inserted objects.
    pub inserted_objects: u64,
    /// Bytes of the inserted bodies.
    pub inserted_body_bytes: u64,
    /// Objects that were rejected because they are too large.
    pub refused_objects: u64,
    /// Objects with records that were written again.
    pub reinserted_objects: u64,
    /// Bytes of records that were written again.
    pub reinserted_bytes: u64,
    /// Objects evicted because their segment was reclaimed.
    pub evicted_objects: u64,
    /// Bytes of the evicted bodies.
    pub evicted_body_bytes: u64,
    /// Reclaimed segments.
    pub reclaimed_segments: u64,
    /// Bytes of all written records, including reinsertions, record headers and alignment. The headers and footers of
    /// segments are not included.
    pub written_bytes: u64,
    /// Written records.
    pub written_records: u64,
}

impl LogCounters {
    /// Returns the bytes written per byte of inserted bodies.
    pub fn write_amplification(&self) -> f64 {
        if self.inserted_body_bytes == 0 {
            return 1.0;
        }
        self.written_bytes as f64 / self.inserted_body_bytes as f64
    }
}

/// The objects and segments of a disk tier, without bytes.
#[derive(Clone, Debug)]
pub struct LogTier {
    config: LogTierConfig,
    log: SegmentLog,
    objects: HashTable<Resident>,
    /// The records of each segment, in order.
    records: Vec<Vec<Record>>,
    id_next: u64,
    body_bytes: u64,
    /// The start and the current end of the pending write, as offsets in the open segment.
    pending_start: u64,
    pending_end: u64,
    counters: LogCounters,
    digest: Digest,
}

#[derive(Clone, Debug)]
struct Resident {
    key: KeyHash,
    /// Distinguishes this object from earlier objects with the same key.
    id: u64,
    body_bytes: u64,
    /// The number of hits since the object was last written, at most [`HITS_MAX`].
    hits: u8,
    /// The number of pieces of a long body. 0 if one record has the whole object.
    pieces: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: KeyHash,
    id: u64,
    bytes: u64,
    completes_object: bool,
}

impl LogTier {
    /// Makes an empty tier.
    ///
    /// # Panics
    ///
    /// Panics like [`SegmentLog::new`].
    pub fn new(config: LogTierConfig) -> Self {
        Self {
            config,
            log: SegmentLog::new(config.shape, config.segments, config.reserve),
            objects: HashTable::new(),
            records: vec![Vec::new(); config.segments as usize],
            id_next: 0,
            body_bytes: 0,
            pending_start: 0,
            pending_end: 0,
            counters: LogCounters::default(),
            digest: Digest::default(),
        }
    }

    /// Returns true if the object is present, and counts a hit.
    pub fn lookup(&mut self, key: KeyHash) -> bool {
        let found = self.objects.find_mut(key.0, |object| object.key == key);
        if let Some(object) = found {
            object.hits = (object.hits + 1).min(HITS_MAX);
            return true;
        }
        false
    }

    /// Returns true if the object is present, without counting a hit.
    pub fn holds(&self, key: KeyHash) -> bool {
        self.objects
            .find(key.0, |object| object.key == key)
            .is_some()
    }

    /// Writes an object and replaces the earlier object with its key. Returns false if the object is too large.
    pub fn insert(&mut self, key: KeyHash, body_bytes: u64) -> bool {
        let shape = self.config.shape;
        let key_and_head_bytes = self.config.key_and_head_bytes;
        let pieces = if shape.is_cut(body_bytes) {
            body_bytes.div_ceil(shape.piece_bytes)
        } else {
            0
        };
        let largest = if pieces == 0 {
            shape.record_bytes(key_and_head_bytes, body_bytes)
        } else {
            shape
                .commit_bytes(key_and_head_bytes, pieces)
                .max(shape.record_bytes(0, shape.piece_bytes))
        };
        if largest > shape.record_bytes_max() || body_bytes > self.log.object_bytes_max() {
            self.counters.refused_objects += 1;
            return false;
        }
        let id = self.id_next;
        self.id_next += 1;
        let mut left = body_bytes;
        for _ in 0..pieces {
            let piece = left.min(shape.piece_bytes);
            left -= piece;
            self.append(key, id, shape.record_bytes(0, piece), false);
        }
        let last = if pieces == 0 {
            shape.record_bytes(key_and_head_bytes, body_bytes)
        } else {
            shape.commit_bytes(key_and_head_bytes, pieces)
        };
        self.append(key, id, last, true);
        self.digest.admitted(body_bytes);
        self.remove(key);
        let resident = Resident {
            key,
            id,
            body_bytes,
            hits: 0,
            pieces,
        };
        self.objects
            .insert_unique(key.0, resident, |object| object.key.0);
        self.body_bytes += body_bytes;
        self.counters.inserted_objects += 1;
        self.counters.inserted_body_bytes += body_bytes;
        true
    }

    /// Removes an object. Returns false if it is not present.
    pub fn remove(&mut self, key: KeyHash) -> bool {
        self.take(key, None).is_some()
    }

    /// The number of objects.
    pub fn residents(&self) -> usize {
        self.objects.len()
    }

    /// The bytes of all bodies.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The counters.
    pub fn counters(&self) -> &LogCounters {
        &self.counters
    }

    /// Returns a digest of all writes, reinsertions and evictions.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    fn take(&mut self, key: KeyHash, id: Option<u64>) -> Option<Resident> {
        let matches = |object: &Resident| object.key == key && id.is_none_or(|id| object.id == id);
        let (object, _) = self.objects.find_entry(key.0, matches).ok()?.remove();
        self.body_bytes -= object.body_bytes;
        Some(object)
    }

    /// Writes a record and reclaims segments if necessary. As in the server, reclaims follow the opening of a
    /// segment, so that the next segment is free when it is needed.
    fn append(&mut self, key: KeyHash, id: u64, bytes: u64, completes_object: bool) {
        while !self.write(key, id, bytes, completes_object) {
            assert!(self.open_next(), "each reclaim frees a segment");
            while let Some(victim) = self.log.victim() {
                self.reclaim(victim);
            }
        }
        if self.pending_end - self.pending_start >= self.config.write_bytes {
            self.flush();
        }
    }

    fn open_next(&mut self) -> bool {
        self.flush();
        // No segment is being read, so any free segment may be opened.
        let opened = self.log.open_next(|_| false).is_some();
        if opened {
            self.pending_start = self.config.shape.segment_header_bytes;
            self.pending_end = self.pending_start;
        }
        opened
    }

    /// Completes the pending write.
    fn flush(&mut self) {
        if self.pending_end > self.pending_start {
            let end = self
                .pending_end
                .next_multiple_of(self.config.write_align_bytes);
            self.counters.written_bytes += end
                - self
                    .pending_end
                    .next_multiple_of(self.config.shape.record_align_bytes);
            self.log.align_to(self.config.write_align_bytes);
            self.pending_start = end;
            self.pending_end = end;
        }
    }

    fn write(&mut self, key: KeyHash, id: u64, bytes: u64, completes_object: bool) -> bool {
        // One record needs one entry in the footer of its segment.
        let Some(RecordLocation { segment, offset }) = self.log.allocate(bytes, 1) else {
            return false;
        };
        self.pending_end = offset + bytes;
        self.records[segment.0 as usize].push(Record {
            key,
            id,
            bytes,
            completes_object,
        });
        self.counters.written_records += 1;
        self.counters.written_bytes += bytes.next_multiple_of(self.config.shape.record_align_bytes);
        true
    }

    fn reclaim(&mut self, victim: SegmentId) {
        let records = std::mem::take(&mut self.records[victim.0 as usize]);
        let shape = self.config.shape;
        // The live objects with a record in the victim, without duplicates, in the order of the log.
        let mut candidates: Vec<(KeyHash, u64, ReclaimCandidate)> = Vec::new();
        let mut positions = HashTable::new();
        for record in &records {
            let live = self.objects.find(record.key.0, |object| {
                object.key == record.key && object.id == record.id
            });
            let Some(object) = live else { continue };
            let position =
                positions.find(record.key.0, |&at: &usize| candidates[at].0 == record.key);
            let at = position.copied().unwrap_or(candidates.len());
            if at == candidates.len() {
                let bytes = if object.pieces == 0 {
                    0
                } else {
                    // If a piece moves, a new last record must state its location.
                    shape.commit_bytes(self.config.key_and_head_bytes, object.pieces)
                };
                let hits = object.hits;
                candidates.push((object.key, object.id, ReclaimCandidate { bytes, hits }));
                positions.insert_unique(record.key.0, at, |&at| candidates[at].0.0);
            }
            if object.pieces == 0 || !record.completes_object {
                candidates[at].2.bytes += record.bytes;
            }
        }
        let sizes_and_hits: Vec<ReclaimCandidate> = candidates
            .iter()
            .map(|&(.., candidate)| candidate)
            .collect();
        let mut chosen = Vec::new();
        let reinsertion = self.config.reinsertion;
        reinsertion.choose(&sizes_and_hits, shape.segment_bytes, &mut chosen);
        let mut reinserted = vec![false; candidates.len()];
        for at in chosen {
            reinserted[at] = self.reinsert(candidates[at].0, candidates[at].1, &records);
            if reinserted[at] {
                self.digest.reinserted(candidates[at].1);
            }
        }
        for (&(key, id, _), reinserted) in candidates.iter().zip(reinserted) {
            if !reinserted && let Some(object) = self.take(key, Some(id)) {
                self.counters.evicted_objects += 1;
                self.counters.evicted_body_bytes += object.body_bytes;
                self.digest.evicted(id);
            }
        }
        self.flush();
        self.log.reclaimed(victim);
        self.counters.reclaimed_segments += 1;
    }

    /// Reinserts an object: appends copies of its records in `reclaimed`, the records of a segment. If these are
    /// pieces, also appends a new last record. Returns false if no space is left.
    fn reinsert(&mut self, key: KeyHash, id: u64, reclaimed: &[Record]) -> bool {
        let shape = self.config.shape;
        let key_and_head_bytes = self.config.key_and_head_bytes;
        let Some(object) = self.objects.find(key.0, |object| object.key == key) else {
            return false;
        };
        let pieces = object.pieces;
        let belongs_to_object = |record: &&Record| record.key == key && record.id == id;
        for record in reclaimed.iter().filter(belongs_to_object) {
            let bytes = record.bytes;
            if pieces > 0 && record.completes_object {
                continue;
            }
            if !self.rewrite(key, id, bytes, pieces == 0) {
                return false;
            }
        }
        if pieces > 0
            && !self.rewrite(
                key,
                id,
                shape.commit_bytes(key_and_head_bytes, pieces),
                true,
            )
        {
            return false;
        }
        if let Some(object) = self.objects.find_mut(key.0, |object| object.key == key) {
            object.hits = 0;
        }
        self.counters.reinserted_objects += 1;
        true
    }

    fn rewrite(&mut self, key: KeyHash, id: u64, bytes: u64, completes_object: bool) -> bool {
        let written = self.write(key, id, bytes, completes_object)
            || (self.open_next() && self.write(key, id, bytes, completes_object));
        if written {
            self.counters.reinserted_bytes += bytes;
        }
        written
    }
}
