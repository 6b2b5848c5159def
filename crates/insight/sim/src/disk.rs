//! The disk tier below memory: the server's rules and the server's log, with sizes instead of bytes.
//!
//! [`Hierarchy`] and [`LogTier`] decide what is stored and evicted. This module counts the results.

use edgeward_policy::log::{LogCounters, LogTier, LogTierConfig, Reinsertion};
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_policy::{
    AnyDiskAdmission, DiskAdmissionSpec, DiskVerdict, Evicted, Hierarchy, HierarchyRules, Object,
    Placement,
};
use edgeward_types::KeyHash;
use serde::Serialize;

use crate::facts::ratio;
use crate::run::{Counts, ServedFrom};

/// The settings of a simulated disk tier.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Bytes of disk, including headers and free segments.
    pub capacity_bytes: u64,
    /// The disk admission rule.
    pub admission: DiskAdmissionSpec,
    /// The number of keys that the admission rule remembers, and the false-positive rate of its filter.
    pub memory: RotatingBloomConfig,
    /// The reinsertion rule.
    pub eviction: Reinsertion,
    /// The rules between memory and disk.
    pub rules: HierarchyRules,
}

/// A simulated disk tier.
#[derive(Debug)]
pub(crate) struct Disk {
    config: DiskConfig,
    log_config: LogTierConfig,
    hierarchy: Hierarchy,
    log: LogTier,
    reads: Reads,
    /// Bytes of bodies that were written when memory evicted them.
    from_ram_bytes: u64,
    refused: u64,
    /// Records of objects that were inserted. All further written records are reinsertions.
    inserted_records: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    bytes: u64,
    operations: u64,
}

impl Disk {
    pub(crate) fn new(config: DiskConfig) -> Self {
        let log_config = LogTierConfig::new(config.capacity_bytes, config.eviction);
        let admission = AnyDiskAdmission::new(config.admission, config.memory);
        Self {
            hierarchy: Hierarchy::new(admission, config.rules),
            log: LogTier::new(log_config),
            log_config,
            config,
            reads: Reads::default(),
            from_ram_bytes: 0,
            refused: 0,
            inserted_records: 0,
        }
    }

    /// Processes a request that memory could not answer. Returns where the object was found and where to store
    /// it.
    pub(crate) fn request(&mut self, object: &Object) -> (ServedFrom, Placement) {
        if !self.log.lookup(log_key(object.key)) {
            return (ServedFrom::Origin, self.hierarchy.miss(object));
        }
        self.reads.bytes += object.size_bytes + self.log_config.key_and_head_bytes;
        // An object in pieces: one read for the record that lists the pieces, and one per piece.
        self.reads.operations += match self.pieces(object.size_bytes) {
            0 => 1,
            pieces => 1 + pieces,
        };
        (ServedFrom::Disk, self.hierarchy.disk_hit(object))
    }

    /// Writes or rejects an object that was fetched from the origin.
    pub(crate) fn store(&mut self, object: &Object, verdict: DiskVerdict) {
        match verdict {
            DiskVerdict::Write => self.write(object),
            DiskVerdict::Reject(_) => self.refused += 1,
        }
    }

    /// Offers an object that memory evicted.
    pub(crate) fn evicted_from_ram(&mut self, evicted: &Evicted) {
        let Evicted { object, .. } = evicted;
        let on_disk = || self.log.holds(log_key(object.key));
        let verdict = self
            .hierarchy
            .evicted_from_ram(evicted, object.size_bytes, on_disk);
        if verdict == DiskVerdict::Write {
            self.from_ram_bytes += object.size_bytes;
            self.write(object);
        }
    }

    /// Returns the totals so far.
    pub(crate) fn totals(&self) -> DiskTotals {
        let LogCounters {
            inserted_objects,
            inserted_body_bytes,
            reinserted_objects,
            reinserted_bytes,
            evicted_objects,
            written_bytes,
            written_records,
            ..
        } = *self.log.counters();
        DiskTotals {
            written_objects: inserted_objects,
            written_body_bytes: inserted_body_bytes,
            written_bytes,
            write_operations: written_records,
            // Reinserted bytes are read first.
            read_bytes: self.reads.bytes + reinserted_bytes,
            read_operations: self.reads.operations
                + written_records.saturating_sub(self.inserted_records),
            from_ram_bytes: self.from_ram_bytes,
            refused_requests: self.refused,
            reinserted_objects,
            reinserted_bytes,
            evicted_objects,
        }
    }

    /// Returns the report. `counts` has the requests after the warm-up, and `totals` has the work of the disk
    /// since the end of the warm-up.
    pub(crate) fn report(&self, counts: &Counts, totals: DiskTotals) -> DiskReport {
        let Counts {
            requests,
            bytes,
            disk_hits,
            disk_hit_bytes,
            hits,
            hit_bytes,
        } = *counts;
        let filter = self.hierarchy.admission().filters().first().copied();
        DiskReport {
            capacity_bytes: self.config.capacity_bytes,
            admission: self.config.admission.to_string(),
            eviction: self.config.eviction.to_string(),
            ram_hits: hits - disk_hits,
            ram_object_hit_ratio: ratio(hits - disk_hits, requests),
            ram_byte_hit_ratio: ratio(hit_bytes - disk_hit_bytes, bytes),
            disk_hits,
            disk_object_hit_ratio: ratio(disk_hits, requests),
            disk_byte_hit_ratio: ratio(disk_hit_bytes, bytes),
            origin_bytes: bytes - hit_bytes,
            write_amplification: if totals.written_body_bytes == 0 {
                1.0
            } else {
                totals.written_bytes as f64 / totals.written_body_bytes as f64
            },
            written_bytes_per_hit_byte: ratio(totals.written_bytes, disk_hit_bytes),
            done: totals,
            residents: self.log.residents() as u64,
            used_bytes: self.log.body_bytes(),
            digest: format!("{:016x}", self.log.digest()),
            admission_memory_bytes: self.hierarchy.admission().memory_bytes(),
            admission_rotations: filter.map_or(0, |filter| filter.rotations),
            admission_false_seen: filter.map_or(0.0, |filter| filter.false_positive_rate),
            admission_lost_seen: filter.map_or(0.0, |filter| filter.forgotten_share),
        }
    }

    fn write(&mut self, object: &Object) {
        if self.log.insert(log_key(object.key), object.size_bytes) {
            self.inserted_records += 1 + self.pieces(object.size_bytes);
        }
    }

    /// Returns the number of pieces of a body, 0 if it is not split.
    fn pieces(&self, body_bytes: u64) -> u64 {
        let shape = &self.log_config.shape;
        if shape.is_cut(body_bytes) {
            body_bytes.div_ceil(shape.piece_bytes)
        } else {
            0
        }
    }
}

/// Returns the key of an object in the log's table. The table expects hashes, but keys of a trace may be dense
/// ids. The constant is odd, so the mapping is one-to-one.
fn log_key(key: KeyHash) -> KeyHash {
    KeyHash(key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The work of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskTotals {
    /// Written objects, including those from memory.
    pub written_objects: u64,
    /// Bytes of their bodies.
    pub written_body_bytes: u64,
    /// Bytes written: bodies, headers, alignment and reinsertions.
    pub written_bytes: u64,
    /// Written records. The store combines them into larger writes.
    pub write_operations: u64,
    /// Bytes read, for clients and for reinsertions.
    pub read_bytes: u64,
    /// Records read.
    pub read_operations: u64,
    /// Bytes of bodies that were written when memory evicted them.
    pub from_ram_bytes: u64,
    /// Requests whose response was not written.
    pub refused_requests: u64,
    /// Objects that were written again when their segment was reclaimed.
    pub reinserted_objects: u64,
    /// Bytes of these reinsertions.
    pub reinserted_bytes: u64,
    /// Objects that were evicted with their segment.
    pub evicted_objects: u64,
}

impl DiskTotals {
    /// Returns the work since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            written_objects: self.written_objects - earlier.written_objects,
            written_body_bytes: self.written_body_bytes - earlier.written_body_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            write_operations: self.write_operations - earlier.write_operations,
            read_bytes: self.read_bytes - earlier.read_bytes,
            read_operations: self.read_operations - earlier.read_operations,
            from_ram_bytes: self.from_ram_bytes - earlier.from_ram_bytes,
            refused_requests: self.refused_requests - earlier.refused_requests,
            reinserted_objects: self.reinserted_objects - earlier.reinserted_objects,
            reinserted_bytes: self.reinserted_bytes - earlier.reinserted_bytes,
            evicted_objects: self.evicted_objects - earlier.evicted_objects,
        }
    }
}

/// The disk's part of a report. All ratios refer to all requests, so that those of both tiers can be added.
#[derive(Clone, Debug, Serialize)]
pub struct DiskReport {
    /// Bytes of disk.
    pub capacity_bytes: u64,
    /// The disk admission rule.
    pub admission: String,
    /// The reinsertion rule.
    pub eviction: String,
    /// Hits in memory.
    pub ram_hits: u64,
    /// Hits in memory per request.
    pub ram_object_hit_ratio: f64,
    /// Bytes hit in memory per byte requested.
    pub ram_byte_hit_ratio: f64,
    /// Hits on disk.
    pub disk_hits: u64,
    /// Hits on disk per request.
    pub disk_object_hit_ratio: f64,
    /// Bytes hit on disk per byte requested.
    pub disk_byte_hit_ratio: f64,
    /// Bytes fetched from the origin.
    pub origin_bytes: u64,
    /// Bytes written per byte of stored bodies.
    pub write_amplification: f64,
    /// Bytes written per byte served from disk.
    pub written_bytes_per_hit_byte: f64,
    /// The work of the disk.
    #[serde(flatten)]
    pub done: DiskTotals,
    /// Objects on disk at the end.
    pub residents: u64,
    /// Bytes of their bodies.
    pub used_bytes: u64,
    /// A digest of all writes, reinsertions and evictions, 16 hexadecimal digits.
    pub digest: String,
    /// Bytes of memory that the admission rule uses.
    pub admission_memory_bytes: u64,
    /// How often the filter of the admission rule forgot the older of its two periods and began a new period. If
    /// the rule has several filters, this is the first.
    pub admission_rotations: u64,
    /// The share of first requests that are taken for repeated ones at the end of the run. Estimated from the
    /// share of set bits in the filter.
    pub admission_false_seen: f64,
    /// The share of supposed first requests whose object had been requested before, but was forgotten when the
    /// rule's filter rotated. Estimated from a sample.
    pub admission_lost_seen: f64,
}
