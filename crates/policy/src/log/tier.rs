//! A disk tier without bytes: objects in a [`SegmentLog`], for the simulator.
//!
//! It does what the server's store does, in the same order, with sizes in place of bytes: a long
//! body is cut into pieces and made an object by a last record; reclaiming a segment forgets every
//! object that has a record there, or writes again what of it lies there.

use edgeward_types::KeyHash;
use hashbrown::HashTable;

use super::reinsertion::HITS_MAX;
use super::{Aged, LogShape, Place, Reinsertion, SegmentId, SegmentLog};
use crate::digest::Digest;

/// A tier's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogTierConfig {
    /// Sizes of the format.
    pub shape: LogShape,
    /// Segments in all: the capacity over the shape's `segment_bytes`.
    pub segments: u32,
    /// Segments kept free.
    pub reserve: u32,
    /// What is written again.
    pub reinsertion: Reinsertion,
    /// Bytes of key and head of an object, on average: traces do not tell them.
    pub named_bytes: u64,
    /// Records are gathered to writes of at least this. That what came is written after some time all the same is left out:
    /// a simulation knows no time but the trace's.
    pub write_bytes: u64,
    /// Writes end at multiples of this.
    pub write_align_bytes: u64,
}

impl LogTierConfig {
    /// A disk of `capacity_bytes` with segments of the usual size; heads and keys of 512 bytes.
    pub fn new(capacity_bytes: u64, reinsertion: Reinsertion) -> Self {
        let segment_bytes = LogShape::segment_bytes_for(capacity_bytes);
        let reserve = 2;
        let segments = u32::try_from(capacity_bytes / segment_bytes).unwrap_or(u32::MAX);
        Self {
            shape: LogShape::new(segment_bytes),
            segments: segments.max(SegmentLog::segments_min(reserve)),
            reserve,
            reinsertion,
            named_bytes: 512,
            write_bytes: 1 << 20,
            write_align_bytes: 4096,
        }
    }
}

/// What a tier has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Objects put in.
    pub inserted_objects: u64,
    /// Bytes of their bodies.
    pub inserted_body_bytes: u64,
    /// Objects that were too large, or found no place.
    pub refused_objects: u64,
    /// Objects of which something was written again.
    pub reinserted_objects: u64,
    /// Bytes of records written again.
    pub reinserted_bytes: u64,
    /// Objects that left because their segment did.
    pub evicted_objects: u64,
    /// Bytes of their bodies.
    pub evicted_body_bytes: u64,
    /// Segments whose room was taken back.
    pub reclaimed_segments: u64,
    /// Bytes of all records written, reinserted ones included, with headers and what aligns them.
    pub written_bytes: u64,
    /// Records written.
    pub written_records: u64,
}

impl LogCounters {
    /// Bytes written for each byte of body that came in.
    pub fn write_amplification(&self) -> f64 {
        if self.inserted_body_bytes == 0 {
            return 1.0;
        }
        self.written_bytes as f64 / self.inserted_body_bytes as f64
    }
}

/// A disk tier's objects and places, without bytes.
#[derive(Clone, Debug)]
pub struct LogTier {
    config: LogTierConfig,
    log: SegmentLog,
    objects: HashTable<Resident>,
    /// What was written to each segment, in order.
    records: Vec<Vec<Record>>,
    id_next: u64,
    body_bytes: u64,
    /// Where in the open segment the write begins that is gathered, and where it ends so far.
    flushed: u64,
    gathered: u64,
    counters: LogCounters,
    digest: Digest,
}

#[derive(Clone, Debug)]
struct Resident {
    key: KeyHash,
    /// Tells this object from an earlier one under the same key.
    id: u64,
    body_bytes: u64,
    hits: u8,
    pieces: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: KeyHash,
    id: u64,
    bytes: u64,
    commits: bool,
}

impl LogTier {
    /// An empty tier.
    ///
    /// # Panics
    ///
    /// As [`SegmentLog::new`].
    pub fn new(config: LogTierConfig) -> Self {
        Self {
            config,
            log: SegmentLog::new(config.shape, config.segments, config.reserve),
            objects: HashTable::new(),
            records: vec![Vec::new(); config.segments as usize],
            id_next: 0,
            body_bytes: 0,
            flushed: 0,
            gathered: 0,
            counters: LogCounters::default(),
            digest: Digest::default(),
        }
    }

    /// Whether the key's object is here; if so it counts as hit.
    pub fn lookup(&mut self, key: KeyHash) -> bool {
        let found = self.objects.find_mut(key.0, |object| object.key == key);
        if let Some(object) = found {
            object.hits = (object.hits + 1).min(HITS_MAX);
            return true;
        }
        false
    }

    /// Whether the key's object is here, without a trace of having looked.
    pub fn holds(&self, key: KeyHash) -> bool {
        self.objects
            .find(key.0, |object| object.key == key)
            .is_some()
    }

    /// Writes an object; what was under its key before is no more. False if it finds no place.
    pub fn insert(&mut self, key: KeyHash, body_bytes: u64) -> bool {
        let shape = self.config.shape;
        let named = self.config.named_bytes;
        let pieces = if shape.is_cut(body_bytes) {
            body_bytes.div_ceil(shape.piece_bytes)
        } else {
            0
        };
        let largest = if pieces == 0 {
            shape.record_bytes(named, body_bytes)
        } else {
            shape
                .commit_bytes(named, pieces)
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
            shape.record_bytes(named, body_bytes)
        } else {
            shape.commit_bytes(named, pieces)
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

    /// Forgets an object. False if there is none.
    pub fn remove(&mut self, key: KeyHash) -> bool {
        self.take(key, None).is_some()
    }

    /// Objects here.
    pub fn residents(&self) -> usize {
        self.objects.len()
    }

    /// Bytes of their bodies.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// What it has done.
    pub fn counters(&self) -> &LogCounters {
        &self.counters
    }

    /// A fingerprint of all that was written, written again and evicted.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    fn take(&mut self, key: KeyHash, id: Option<u64>) -> Option<Resident> {
        let wanted = |object: &Resident| object.key == key && id.is_none_or(|id| object.id == id);
        let (object, _) = self.objects.find_entry(key.0, wanted).ok()?.remove();
        self.body_bytes -= object.body_bytes;
        Some(object)
    }

    /// Writes a record, making room first where needed. As in the server, a new segment is followed by
    /// reclaiming, so that the next one is free when it is wanted.
    fn append(&mut self, key: KeyHash, id: u64, bytes: u64, commits: bool) {
        while !self.write(key, id, bytes, commits) {
            assert!(self.open_next(), "reclaiming leaves a segment free");
            while let Some(victim) = self.log.victim() {
                self.reclaim(victim);
            }
        }
        if self.gathered - self.flushed >= self.config.write_bytes {
            self.flush();
        }
    }

    fn open_next(&mut self) -> bool {
        self.flush();
        let opened = self.log.open_next(|_| false).is_some();
        if opened {
            self.flushed = self.config.shape.segment_header_bytes;
            self.gathered = self.flushed;
        }
        opened
    }

    /// Ends the write that is gathered.
    fn flush(&mut self) {
        if self.gathered > self.flushed {
            let end = self
                .gathered
                .next_multiple_of(self.config.write_align_bytes);
            self.counters.written_bytes += end
                - self
                    .gathered
                    .next_multiple_of(self.config.shape.record_align_bytes);
            self.log.align_to(self.config.write_align_bytes);
            self.flushed = end;
            self.gathered = end;
        }
    }

    fn write(&mut self, key: KeyHash, id: u64, bytes: u64, commits: bool) -> bool {
        let Some(Place { segment, offset }) = self.log.place(bytes, 1) else {
            return false;
        };
        self.gathered = offset + bytes;
        self.records[segment.0 as usize].push(Record {
            key,
            id,
            bytes,
            commits,
        });
        self.counters.written_records += 1;
        self.counters.written_bytes += bytes.next_multiple_of(self.config.shape.record_align_bytes);
        true
    }

    fn reclaim(&mut self, victim: SegmentId) {
        let records = std::mem::take(&mut self.records[victim.0 as usize]);
        let shape = self.config.shape;
        // The live objects with a record here, each once, in the log's order.
        let mut aged: Vec<(KeyHash, u64, Aged)> = Vec::new();
        let mut seen = HashTable::new();
        for record in &records {
            let live = self.objects.find(record.key.0, |object| {
                object.key == record.key && object.id == record.id
            });
            let Some(object) = live else { continue };
            let known = seen.find(record.key.0, |&at: &usize| aged[at].0 == record.key);
            let at = known.copied().unwrap_or(aged.len());
            if at == aged.len() {
                let bytes = if object.pieces == 0 {
                    0
                } else {
                    // A piece that moves needs a new last record to say where it is.
                    shape.commit_bytes(self.config.named_bytes, object.pieces)
                };
                let hits = object.hits;
                aged.push((object.key, object.id, Aged { bytes, hits }));
                seen.insert_unique(record.key.0, at, |&at| aged[at].0.0);
            }
            if object.pieces == 0 || !record.commits {
                aged[at].2.bytes += record.bytes;
            }
        }
        let sizes: Vec<Aged> = aged.iter().map(|&(.., aged)| aged).collect();
        let mut chosen = Vec::new();
        let reinsertion = self.config.reinsertion;
        reinsertion.choose(&sizes, shape.segment_bytes, &mut chosen);
        let mut again = vec![false; aged.len()];
        for at in chosen {
            again[at] = self.reinsert(aged[at].0, aged[at].1, &records);
            if again[at] {
                self.digest.reinserted(aged[at].1);
            }
        }
        for (&(key, id, _), again) in aged.iter().zip(again) {
            if !again && let Some(object) = self.take(key, Some(id)) {
                self.counters.evicted_objects += 1;
                self.counters.evicted_body_bytes += object.body_bytes;
                self.digest.evicted(id);
            }
        }
        self.flush();
        self.log.reclaimed(victim);
        self.counters.reclaimed_segments += 1;
    }

    /// Writes again what of an object lay in the victim. False if there was no room for all of it.
    fn reinsert(&mut self, key: KeyHash, id: u64, victim: &[Record]) -> bool {
        let shape = self.config.shape;
        let named = self.config.named_bytes;
        let Some(object) = self.objects.find(key.0, |object| object.key == key) else {
            return false;
        };
        let pieces = object.pieces;
        let of_it = |record: &&Record| record.key == key && record.id == id;
        for record in victim.iter().filter(of_it) {
            let bytes = record.bytes;
            if pieces > 0 && record.commits {
                continue;
            }
            if !self.write_again(key, id, bytes, pieces == 0) {
                return false;
            }
        }
        if pieces > 0 && !self.write_again(key, id, shape.commit_bytes(named, pieces), true) {
            return false;
        }
        if let Some(object) = self.objects.find_mut(key.0, |object| object.key == key) {
            object.hits = 0;
        }
        self.counters.reinserted_objects += 1;
        true
    }

    fn write_again(&mut self, key: KeyHash, id: u64, bytes: u64, commits: bool) -> bool {
        let written = self.write(key, id, bytes, commits)
            || (self.open_next() && self.write(key, id, bytes, commits));
        if written {
            self.counters.reinserted_bytes += bytes;
        }
        written
    }
}
