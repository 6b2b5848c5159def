//! A cache of the metadata of records that were read recently: the header of the record, the key, the head of the
//! response, and the table of checksums. Cached metadata is verified and parsed.
//!
//! This process does not read a body that the kernel sends from the page cache, but it needs the metadata.
//! Without this cache, each hit would read 4 KiB, verify the checksum of the metadata and parse the header. For
//! a small object this is a tenth of the CPU time of a hit.
//!
//! The table has a fixed number of slots. The hash of a record's location selects its slot, and a newer record
//! replaces the older one in the slot. An entry is valid while its segment has the epoch of the record's
//! header. Entries therefore need not be removed when a segment is overwritten. They also need not be removed
//! when an object is purged: the index then has no entry for the object, so its record is not looked up.

use super::reader::record::Record;
use crate::sync::Mutex;

/// The cached metadata of one device.
#[derive(Debug)]
pub(crate) struct MetadataCache {
    slots: Box<[Mutex<Option<Record>>]>,
    seed: u64,
}

/// The size of the largest metadata in the cache, in bytes. Larger metadata is read at each hit. Metadata is
/// larger if the head has nearly two kilobytes, or the body is large: the table has eight bytes of checksum for
/// each 64 KiB of the body, which is 2 KiB for a body of 16 MiB.
const META_BYTES_MAX: usize = 2048;

/// The number of slots, about the number of records that a device serves in some seconds. The metadata takes at most
/// 4 MiB in addition to the slots; with typical heads it takes 1 MiB.
const SLOTS: usize = 2048;

impl MetadataCache {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Mutex::default()).collect(),
            seed,
        }
    }

    /// Returns the metadata of the record at an offset of the device, if it is cached and the record was written
    /// in this epoch of its segment.
    pub(in crate::disk) fn find(&self, at: u64, epoch: u64) -> Option<Record> {
        let slot = self.slot(at).lock();
        slot.as_ref()
            .filter(|record| record.offset == at && record.header.epoch == epoch)
            .cloned()
    }

    /// Stores the metadata of a verified record.
    pub(in crate::disk) fn insert(&self, record: &Record) {
        if record.header.meta_bytes() <= META_BYTES_MAX {
            let meta = record.without_body();
            *self.slot(record.offset).lock() = Some(meta);
        }
    }

    /// The largest number of bytes that the table can take.
    pub(crate) fn bytes(&self) -> u64 {
        let slot_bytes = size_of::<Mutex<Option<Record>>>() + META_BYTES_MAX;
        (self.slots.len() * slot_bytes) as u64
    }

    fn slot(&self, at: u64) -> &Mutex<Option<Record>> {
        // Records begin at multiples of 512 B or more, so the low bits of an offset do not vary. The slot is
        // therefore selected by the high bits of a product, which do vary.
        let mixed = (at ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (u128::from(mixed) * self.slots.len() as u128) >> 64;
        &self.slots[usize::try_from(slot).expect("the result is less than the number of slots")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::format::{ChecksumSeed, RecordHeader, RecordKind};

    fn record(at: u64, epoch: u64, head_bytes: u32) -> Record {
        let header = RecordHeader {
            kind: RecordKind::Object,
            key_bytes: 3,
            head_bytes,
            item_count: 0,
            hash: at,
            object_id: 1,
            epoch,
            body_bytes: 0,
            body_offset: 0,
            written_unix_secs: 0,
        };
        let mut bytes = vec![7; header.meta_bytes() + 100];
        header.seal(&mut bytes[..header.meta_bytes()], ChecksumSeed(1));
        Record::new(header, at, bytes.into())
    }

    #[test]
    fn metadata_is_found_while_its_segment_has_the_same_epoch() {
        let cache = MetadataCache::new(3);
        cache.insert(&record(8192, 5, 10));
        let found = cache.find(8192, 5).expect("the record was inserted");
        assert_eq!(
            (found.key(), &found.head()[..]),
            (&[7; 3][..], &[7; 10][..])
        );
        assert!(cache.find(8192, 6).is_none());
        assert!(cache.find(8704, 5).is_none());
    }

    #[test]
    fn only_the_metadata_is_stored_and_only_if_it_is_small() {
        let cache = MetadataCache::new(3);
        cache.insert(&record(512, 5, 10));
        assert!(
            cache
                .find(512, 5)
                .expect("the record was inserted")
                .body()
                .is_empty()
        );
        cache.insert(&record(1024, 5, 3000));
        assert!(cache.find(1024, 5).is_none());
    }

    #[test]
    fn a_record_that_replaced_another_is_not_mistaken_for_it() {
        let cache = MetadataCache::new(9);
        for at in 0..10_000 {
            cache.insert(&record(at * 512, at, 1));
        }
        let found = (0..10_000_u64).filter_map(|at| Some((at, cache.find(at * 512, at)?)));
        let mut count = 0;
        for (at, record) in found {
            assert_eq!(record.header.hash, at * 512);
            count += 1;
        }
        assert!((SLOTS / 2..=SLOTS).contains(&count), "{count}");
    }
}
