use std::collections::{HashMap, HashSet, VecDeque};

use edgeward_types::KeyHash;
use proptest::prelude::*;

use super::*;

fn small_shape() -> LogShape {
    LogShape {
        segment_bytes: 4096,
        segment_header_bytes: 64,
        footer_bytes: 16,
        footer_entry_bytes: 8,
        footer_align_bytes: 64,
        record_align_bytes: 16,
        record_header_bytes: 24,
        block_bytes: 128,
        checksum_bytes: 8,
        piece_bytes: 512,
        extent_bytes: 16, // for each piece of an object, in its commit record
    }
}

fn small_tier(segments: u32, reinsertion: Reinsertion) -> LogTier {
    LogTier::new(LogTierConfig {
        shape: small_shape(),
        segments,
        reserve: 2,
        reinsertion,
        key_and_head_bytes: 20,
        write_bytes: 300,
        write_align_bytes: 64,
    })
}

#[test]
fn records_follow_each_other_and_leave_space_for_the_footer() {
    let shape = small_shape();
    let mut log = SegmentLog::new(shape, 4, 2);
    // The arguments are the record's bytes and the number of its footer entries.
    assert_eq!(log.allocate(10, 1), None, "no segment is open");
    let opened = log.open_next(|_| false).expect("all segments are free");
    let mut end = shape.segment_header_bytes;
    let mut entries = 0;
    while let Some(location) = log.allocate(100, 1) {
        assert_eq!(location.segment, opened.segment);
        assert_eq!(location.offset, end.next_multiple_of(16));
        end = location.offset + 100;
        entries += 1;
    }
    let footer = (16 + 8 * entries as u64).next_multiple_of(64);
    assert!(end + footer <= shape.segment_bytes, "the footer fits");
    let one_more =
        end.next_multiple_of(16) + 100 + (16 + 8 * (entries + 1) as u64).next_multiple_of(64);
    assert!(
        one_more > shape.segment_bytes,
        "another record would not fit"
    );
}

#[test]
fn the_largest_record_fits_an_empty_segment_and_a_larger_record_does_not() {
    // A segment of 1 MiB, whose records are aligned to 512 bytes.
    let shape = LogShape::new(1 << 20);
    let mut log = SegmentLog::new(shape, 4, 2);
    log.open_next(|_| false);
    assert_eq!(
        log.clone().allocate(shape.record_bytes_max() + 512, 1),
        None
    );
    assert!(log.allocate(shape.record_bytes_max(), 1).is_some());
}

/// Segments are reclaimed in the order in which they were opened, and epochs increase.
///
/// Method: use all segments several times and remember the openings.
#[test]
fn segments_are_reclaimed_in_the_order_of_opening() {
    let mut log = SegmentLog::new(small_shape(), 6, 2);
    let mut openings = VecDeque::new();
    let mut epoch = 0;
    for _ in 0..50 {
        let opened = log.open_next(|_| false).expect("the reserve is free");
        assert!(opened.epoch > epoch);
        epoch = opened.epoch;
        openings.push_back(opened);
        while let Some(victim) = log.victim() {
            let oldest = openings.pop_front().expect("a segment was opened");
            assert_eq!(victim, oldest.segment);
            log.reclaimed(victim);
            assert_eq!(log.tail_epoch(), oldest.epoch + 1);
        }
        assert_eq!(log.segments(), 6);
        assert!(log.free_segments() >= 2);
    }
}

#[test]
fn a_segment_that_is_being_read_is_opened_last() {
    let mut log = SegmentLog::new(small_shape(), 5, 2);
    let opened = log.open_next(|id| id.0 < 3).expect("a segment is free");
    assert_eq!(opened.segment, SegmentId(3));
    let opened = log
        .open_next(|_| true)
        .expect("a segment is opened although all are being read");
    assert_eq!(opened.segment, SegmentId(0));
}

#[test]
fn a_restored_log_continues_after_the_newest_epoch() {
    let found = [
        (0, Some(7)),
        (1, None),
        (2, Some(5)),
        (3, None),
        (4, Some(6)),
    ];
    let found = found.map(|(n, epoch)| (SegmentId(n), epoch));
    let mut log = SegmentLog::restored(small_shape(), 3, found);
    assert_eq!(
        log.victim(),
        Some(SegmentId(2)),
        "the oldest segment is reclaimed first"
    );
    assert_eq!(log.tail_epoch(), 5);
    assert_eq!(log.open_next(|_| false).map(|open| open.epoch), Some(8));
}

#[test]
fn a_reinsertion_rule_parses_its_own_text() {
    for text in [
        "fifo",
        "fifo-reinsertion",
        "fifo-reinsertion:3",
        "hits-per-byte",
    ] {
        let read: Reinsertion = text.parse().expect(text);
        assert_eq!(read.to_string(), text);
    }
    for text in [
        "",
        "lru",
        "fifo-reinsertion:0",
        "fifo-reinsertion:4",
        "fifo:1",
    ] {
        let error = text.parse::<Reinsertion>().expect_err(text).to_string();
        assert!(error.contains("hits-per-byte"), "{error}");
    }
}

#[test]
fn selected_objects_were_hit_and_fit_into_half_a_segment() {
    let candidates = [(600, 3), (100, 0), (300, 1), (100, 2), (100, 1)];
    let candidates = candidates.map(|(bytes, hits)| ReclaimCandidate { bytes, hits });
    let chosen = |reinsertion: Reinsertion| {
        let mut chosen = Vec::new();
        reinsertion.choose(&candidates, 1000, &mut chosen);
        chosen
    };
    assert_eq!(chosen(Reinsertion::Never), [0; 0]);
    // The first object has 600 bytes and does not fit into 500, half of the segment. The objects behind it fit.
    assert_eq!(chosen(Reinsertion::Hit { hits_min: 1 }), [2, 3, 4]);
    assert_eq!(chosen(Reinsertion::Hit { hits_min: 2 }), [3]);
    // In descending order, the hits per byte are 2/100, 1/100, 3/600 and 1/300. The object of 600 bytes does not fit.
    assert_eq!(chosen(Reinsertion::HitsPerByte), [3, 4, 2]);
}

#[test]
fn without_reinsertion_the_oldest_object_is_evicted_first() {
    let mut tier = small_tier(8, Reinsertion::Never);
    (0..1000).for_each(|key| assert!(tier.insert(KeyHash(key), 200)));
    let oldest = (0..1000).find(|&key| tier.holds(KeyHash(key)));
    let oldest = oldest.expect("the last object is present");
    assert!((oldest..1000).all(|key| tier.holds(KeyHash(key))));
    assert_eq!(tier.counters().reinserted_objects, 0);
    assert_eq!(tier.counters().evicted_objects, oldest);
}

#[test]
fn an_object_with_many_hits_stays() {
    for reinsertion in [Reinsertion::Hit { hits_min: 1 }, Reinsertion::HitsPerByte] {
        // One object with a single record, and one with several pieces.
        for body_bytes in [200, 1700] {
            let mut tier = small_tier(8, reinsertion);
            tier.insert(KeyHash(0), body_bytes);
            for key in 1..1000 {
                tier.insert(KeyHash(key), 200);
                assert!(tier.lookup(KeyHash(0)), "{reinsertion}, {body_bytes}");
            }
            assert!(tier.counters().reinserted_objects > 5);
        }
    }
}

#[test]
fn an_object_too_large_for_the_log_is_rejected() {
    let mut tier = small_tier(4, Reinsertion::Never);
    assert!(!tier.insert(KeyHash(1), 1 << 20));
    assert_eq!(tier.counters().refused_objects, 1);
    assert_eq!(tier.residents(), 0);
    assert!(tier.insert(KeyHash(1), 1500));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any sequence of operations, the counters of residents and of their bytes equal the oracle's.
    ///
    /// Oracle: a map from key to the last inserted size, reduced to the keys that `holds` finds.
    #[test]
    fn the_counters_agree_with_the_residents(
        steps in prop::collection::vec((0_u64..40, 0_u64..2500, 0_u8..10), 1..400),
        kind in 0_u8..4,
    ) {
        let reinsertion = match kind {
            0 => Reinsertion::Never,
            1 => Reinsertion::HitsPerByte,
            hits_min => Reinsertion::Hit { hits_min },
        };
        let mut tier = small_tier(8, reinsertion);
        let mut inserted = HashMap::new();
        let mut removed = 0;
        for (key, size, step) in steps {
            let key = KeyHash(key);
            match step {
                0 => removed += u64::from(tier.remove(key)),
                1..4 => assert_eq!(tier.holds(key), tier.lookup(key)),
                _ => {
                    removed += u64::from(tier.holds(key));
                    prop_assert!(tier.insert(key, size));
                    inserted.insert(key, size);
                }
            }
            let present: HashSet<_> = inserted.keys().filter(|&&key| tier.holds(key)).collect();
            prop_assert_eq!(present.len(), tier.residents());
            let bytes: u64 = present.iter().map(|key| inserted[key]).sum();
            prop_assert_eq!(bytes, tier.body_bytes());
            // The tier has eight segments, and two of them are the reserve.
            prop_assert!(tier.body_bytes() <= 6 * 4096, "never more than the segments hold");
        }
        let counters = tier.counters();
        prop_assert!(counters.inserted_objects <= removed + counters.evicted_objects + tier.residents() as u64);
        prop_assert!(counters.written_bytes >= counters.reinserted_bytes);
    }
}
