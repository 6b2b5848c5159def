//! A small disk tier that follows the sample of objects with one capacity and admission rule.
//!
//! The disk of the server is a log of segments, and the server reclaims the oldest segment. Here the objects form a
//! queue, and a segment is a run of objects with the scaled size of a segment. The rules are those of the server:
//! [`Hierarchy`] decides which objects are written, and [`Reinsertion`] which ones are written again.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use edgeward_policy::disk_admission::{DiskAdmissionSpec, memory_for_disk};
use edgeward_policy::log::{HITS_MAX, LogTierConfig, ReclaimCandidate, Reinsertion};
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_policy::{
    AnyDiskAdmission, DiskVerdict, Evicted, Hierarchy, HierarchyRules, KeySample, Object,
};
use edgeward_types::{KeyHash, Timestamp};
use hashbrown::HashMap;

/// A small disk tier.
#[derive(Debug)]
pub(crate) struct MiniDisk {
    log: LogTierConfig,
    hierarchy: Hierarchy,
    sample: KeySample,
    residents: HashMap<u64, Resident>,
    /// The objects in the order in which they were written, with the numbers of their writes.
    queue: VecDeque<(u64, u32)>,
    used_bytes: u64,
    writes: u32,
    /// True if a segment was reclaimed.
    has_filled: bool,
    /// Bytes of records that were written, of the scaled sizes.
    written_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    /// The number of the write. An entry of the queue with another number is old.
    write: u32,
    hits: u8,
    /// The scaled bytes of the record.
    bytes: u64,
    charge_bytes: u64,
    length: u64,
    stale_at: Timestamp,
}

impl MiniDisk {
    pub(crate) fn new(
        capacity_bytes: u64,
        admission: DiskAdmissionSpec,
        reinsertion: Reinsertion,
        sample: &KeySample,
    ) -> Self {
        Self {
            log: LogTierConfig::new(capacity_bytes, reinsertion),
            hierarchy: hierarchy(capacity_bytes, admission, sample),
            sample: *sample,
            residents: HashMap::new(),
            queue: VecDeque::new(),
            used_bytes: 0,
            writes: 0,
            has_filled: false,
            written_bytes: 0,
        }
    }

    /// Counts a hit, and returns the time from which the object is stale. `None` if the disk does not have the object.
    pub(crate) fn hit(&mut self, key: KeyHash) -> Option<Timestamp> {
        let resident = self.residents.get_mut(&key.0)?;
        resident.hits = (resident.hits + 1).min(HITS_MAX);
        Some(resident.stale_at)
    }

    /// Records that the origin has sent or confirmed an object.
    pub(crate) fn freshen(&mut self, key: KeyHash, stale_at: Timestamp) {
        if let Some(resident) = self.residents.get_mut(&key.0) {
            resident.stale_at = stale_at;
        }
    }

    /// Decides about an object that neither tier had. Returns the scaled bytes that were written.
    pub(crate) fn miss(&mut self, object: &DiskObject) -> u64 {
        let decided = Object {
            key: object.key,
            size_bytes: object.length,
        };
        match self.hierarchy.miss(&decided).disk {
            DiskVerdict::Write => self.write(object),
            DiskVerdict::Reject(_) => 0,
        }
    }

    /// Decides about an object that memory evicted. Returns the scaled bytes that were written.
    pub(crate) fn evicted_from_memory(&mut self, evicted: &Evicted, object: &DiskObject) -> u64 {
        let on_disk = || self.residents.contains_key(&object.key.0);
        let verdict = self
            .hierarchy
            .evicted_from_ram(evicted, object.length, on_disk);
        match verdict {
            DiskVerdict::Write => self.write(object),
            DiskVerdict::Reject(_) => 0,
        }
    }

    /// Follows a smaller sample. Its objects stay. The admission rule keeps its keys, and remembers them for longer.
    pub(crate) fn shrink(&mut self, sample: &KeySample) {
        self.sample = *sample;
        self.residents
            .retain(|key, resident| sample.takes(KeyHash(*key), resident.charge_bytes));
        self.residents.shrink_to_fit();
        let residents = &self.residents;
        self.queue.retain(|(key, write)| {
            residents
                .get(key)
                .is_some_and(|resident| resident.write == *write)
        });
        self.queue.shrink_to_fit();
        let mut residents = std::mem::take(&mut self.residents);
        for resident in residents.values_mut() {
            resident.bytes = self.record_bytes(resident.charge_bytes, resident.length);
        }
        self.used_bytes = residents.values().map(|resident| resident.bytes).sum();
        self.residents = residents;
    }

    /// Returns true if the disk has been full.
    pub(crate) fn has_filled(&self) -> bool {
        self.has_filled
    }

    /// Returns the part of its capacity that the disk uses.
    pub(crate) fn fill(&self) -> f64 {
        self.used_bytes as f64 / self.scaled_capacity().max(1) as f64
    }

    /// Returns the bytes of memory that the tier takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let table = self.residents.capacity() * (size_of::<(u64, Resident)>() + 1) * 8 / 7;
        let queue = self.queue.capacity() * size_of::<(u64, u32)>();
        (table + queue) as u64 + self.hierarchy.admission().memory_bytes()
    }

    /// Writes an object, and reclaims segments until it has room. Returns the scaled bytes that were written.
    fn write(&mut self, object: &DiskObject) -> u64 {
        let bytes = self.record_bytes(object.charge_bytes, object.length);
        let capacity_bytes = self.scaled_capacity();
        if bytes > capacity_bytes / 2 {
            return 0;
        }
        let before = self.written_bytes;
        let resident = Resident {
            write: 0,
            hits: 0,
            bytes,
            charge_bytes: object.charge_bytes,
            length: object.length,
            stale_at: object.stale_at,
        };
        self.append(object.key.0, resident);
        while self.used_bytes > capacity_bytes {
            self.has_filled = true;
            self.reclaim();
        }
        self.written_bytes - before
    }

    /// Returns the scaled bytes of a record.
    fn record_bytes(&self, charge_bytes: u64, length: u64) -> u64 {
        let shape = &self.log.shape;
        let record = shape.record_bytes(self.log.key_and_head_bytes, length);
        let scale = self.sample.share() / self.sample.probability(charge_bytes);
        scaled(record.next_multiple_of(shape.record_align_bytes), scale)
    }

    fn append(&mut self, key: u64, resident: Resident) {
        self.writes = self.writes.wrapping_add(1);
        let resident = Resident {
            write: self.writes,
            hits: 0,
            ..resident
        };
        if let Some(old) = self.residents.insert(key, resident) {
            self.used_bytes -= old.bytes;
        }
        self.queue.push_back((key, self.writes));
        self.used_bytes += resident.bytes;
        self.written_bytes += resident.bytes;
    }

    /// Reclaims the oldest segment: evicts its objects, or writes them again.
    fn reclaim(&mut self) {
        let segment_bytes = scaled(self.log.shape.segment_bytes, self.sample.share());
        let (mut objects, mut candidates, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bytes < segment_bytes
            && let Some((key, write)) = self.queue.pop_front()
        {
            let Some(resident) = self.residents.get(&key).filter(|it| it.write == write) else {
                continue;
            };
            bytes += resident.bytes;
            candidates.push(ReclaimCandidate {
                bytes: resident.bytes,
                hits: resident.hits,
            });
            objects.push(key);
        }
        let mut chosen = Vec::new();
        let rule = self.log.reinsertion;
        rule.choose(&candidates, bytes, &mut chosen);
        let mut removed: Vec<Option<Resident>> = Vec::with_capacity(objects.len());
        for key in &objects {
            let resident = self.residents.remove(key);
            self.used_bytes -= resident.map_or(0, |resident| resident.bytes);
            removed.push(resident);
        }
        for at in chosen {
            if let Some(resident) = removed[at] {
                self.append(objects[at], resident);
            }
        }
    }

    /// Returns the scaled capacity for records: without the free segments.
    fn scaled_capacity(&self) -> u64 {
        let segments = u64::from(self.log.segments.saturating_sub(self.log.reserve)).max(1);
        scaled(segments * self.log.shape.segment_bytes, self.sample.share())
    }
}

/// An object that could be written to the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskObject {
    pub(crate) key: KeyHash,
    /// The bytes that memory charges for the object.
    pub(crate) charge_bytes: u64,
    pub(crate) length: u64,
    pub(crate) stale_at: Timestamp,
}

/// Returns the rules of a disk. The admission rule remembers the part of the keys that the sample has.
fn hierarchy(capacity_bytes: u64, admission: DiskAdmissionSpec, sample: &KeySample) -> Hierarchy {
    let memory = memory_for_disk(capacity_bytes);
    let keys = scaled(memory.expected_keys.get(), sample.share()).max(KEYS_MIN);
    let memory = RotatingBloomConfig {
        expected_keys: NonZeroU64::new(keys).unwrap_or(NonZeroU64::MIN),
        ..memory
    };
    let admission = AnyDiskAdmission::new(admission, memory);
    Hierarchy::new(admission, HierarchyRules::default())
}

fn scaled(bytes: u64, scale: f64) -> u64 {
    ((bytes as f64 * scale) as u64).max(1)
}

/// The least number of keys that an admission rule remembers.
const KEYS_MIN: u64 = 64;
