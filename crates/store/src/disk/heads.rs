//! Metas of records that were read lately, checked and parsed.
//!
//! A body that is lent from the page cache is not read at all, so what a small hit costs beside sending it is its meta: a read
//! of 4 KiB, a checksum, a header parsed twice. That is a tenth of the hit, and the same every time.
//!
//! A table of a fixed size, one place for each record, the later takes the earlier's. A meta counts as long as its segment
//! is in the same opening, which is what the header's epoch proves when it is read; so nothing has to be cleared when a
//! segment is overwritten, and an object that was purged is not asked for, since no index leads there.

use super::reader::Record;
use crate::sync::Mutex;

/// The metas of one device.
#[derive(Debug)]
pub(crate) struct Heads {
    places: Box<[Mutex<Option<Record>>]>,
    seed: u64,
}

/// Larger ones are read each time: heads of a kilobyte and more, and bodies of eight mebibytes in one record.
const META_BYTES_MAX: usize = 2048;

/// As many as a device can well serve in some seconds: 4 MiB at most, 1 MiB as heads are.
const PLACES: usize = 2048;

impl Heads {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            places: (0..PLACES).map(|_| Mutex::default()).collect(),
            seed,
        }
    }

    /// What lay there when the segment was opened as it is now.
    pub(in crate::disk) fn find(&self, at: u64, epoch: u64) -> Option<Record> {
        let place = self.place(at).lock();
        place
            .as_ref()
            .filter(|record| record.at == at && record.header.epoch == epoch)
            .cloned()
    }

    /// Remembers a record that was checked.
    pub(in crate::disk) fn note(&self, record: &Record) {
        if record.header.meta_bytes() <= META_BYTES_MAX {
            let meta = record.meta_alone();
            *self.place(record.at).lock() = Some(meta);
        }
    }

    /// The most it can take.
    pub(crate) fn bytes(&self) -> u64 {
        let place = size_of::<Mutex<Option<Record>>>() + META_BYTES_MAX;
        (self.places.len() * place) as u64
    }

    fn place(&self, at: u64) -> &Mutex<Option<Record>> {
        // Records begin at units of 512 B and more, so the low bits say nothing: the high ones of a product do.
        let mixed = (at ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let chosen = (u128::from(mixed) * self.places.len() as u128) >> 64;
        &self.places[usize::try_from(chosen).expect("less than the places")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::format::{ChecksumSeed, Kind, RecordHeader};

    fn record(at: u64, epoch: u64, head_bytes: u32) -> Record {
        let header = RecordHeader {
            kind: Kind::Object,
            key_bytes: 3,
            head_bytes,
            items: 0,
            hash: at,
            object: 1,
            epoch,
            body_bytes: 0,
            body_offset: 0,
            written_secs: 0,
        };
        let mut bytes = vec![7; header.meta_bytes() + 100];
        header.seal(&mut bytes[..header.meta_bytes()], ChecksumSeed(1));
        Record::of(header, at, bytes.into())
    }

    #[test]
    fn a_meta_is_found_at_its_place_while_the_segment_is_in_the_same_opening() {
        let heads = Heads::new(3);
        heads.note(&record(8192, 5, 10));
        let found = heads.find(8192, 5).expect("it was noted");
        assert_eq!(
            (found.key(), &found.head()[..]),
            (&[7; 3][..], &[7; 10][..])
        );
        assert!(heads.find(8192, 6).is_none());
        assert!(heads.find(8704, 5).is_none());
    }

    #[test]
    fn the_meta_alone_is_kept_and_a_large_one_is_not() {
        let heads = Heads::new(3);
        heads.note(&record(512, 5, 10));
        assert!(heads.find(512, 5).expect("it was noted").body().is_empty());
        heads.note(&record(1024, 5, 3000));
        assert!(heads.find(1024, 5).is_none());
    }

    #[test]
    fn many_records_take_each_others_places_and_none_is_taken_for_another() {
        let heads = Heads::new(9);
        for at in 0..10_000 {
            heads.note(&record(at * 512, at, 1));
        }
        let found = (0..10_000_u64).filter_map(|at| Some((at, heads.find(at * 512, at)?)));
        let mut count = 0;
        for (at, record) in found {
            assert_eq!(record.header.hash, at * 512);
            count += 1;
        }
        assert!((PLACES / 2..=PLACES).contains(&count), "{count}");
    }
}
