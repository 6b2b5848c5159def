//! Tests of the disk admission rules.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;

fn object(key: u64, size_bytes: u64) -> Object {
    Object {
        key: KeyHash(key),
        size_bytes,
    }
}

/// Configures a memory of requests with a very low error rate.
fn low_error_memory(keys: u64) -> RotatingBloomConfig {
    RotatingBloomConfig::new(NonZeroU64::new(keys).expect("the number is not zero"), 1e-6)
}

/// Counts a request for an object. Returns true if the rule writes the object at this request.
fn writes(admission: &AnyDiskAdmission, key: u64, size_bytes: u64) -> bool {
    admission.request(&object(key, size_bytes)) == DiskVerdict::Write
}

/// Returns the number of the request at which an object of this size is written.
fn written_at(spec: &str, size_bytes: u64) -> usize {
    let admission = AnyDiskAdmission::new(
        spec.parse().expect("the rule is valid"),
        low_error_memory(1000),
    );
    let at = (1..=20).find(|_| writes(&admission, 1, size_bytes));
    assert!(
        writes(&admission, 1, size_bytes),
        "a later request writes the object, too"
    );
    at.expect("written at some time")
}

#[test]
fn each_rule_writes_an_object_at_the_stated_request() {
    for (spec, size_kib, request) in [
        ("always", 64, 1),
        ("second-hit", 64, 2),
        ("nth-hit:2", 64, 2),
        ("nth-hit:3", 64, 3),
        ("nth-hit:8", 64, 8),
        ("size-density:100KiB", 100, 1),
        ("size-density:100KiB", 101, 2),
        ("size-density:100KiB", 200, 2),
        ("size-density:100KiB", 300, 3),
        ("size-density:100KiB", 1 << 30, 8),
    ] {
        assert_eq!(
            written_at(spec, size_kib * KIB),
            request,
            "{spec}, {size_kib} KiB"
        );
    }
}

#[test]
fn a_rejection_states_the_counts_of_seen_and_of_needed_requests() {
    let admission = AnyDiskAdmission::new(DiskAdmissionSpec::NthHit(3), low_error_memory(100));
    let refused = |seen| DiskVerdict::Reject(DiskRejectReason::TooFewRequests { seen, needed: 3 });
    assert_eq!(admission.request(&object(1, 1)), refused(1));
    assert_eq!(admission.requests_seen(KeyHash(1)), 1);
    admission.record(KeyHash(1));
    assert_eq!(admission.request(&object(1, 1)), DiskVerdict::Write);
}

#[test]
fn counting_more_requests_takes_less_than_twice_the_memory_of_second_hit() {
    let bytes = |spec: DiskAdmissionSpec| {
        AnyDiskAdmission::new(spec, low_error_memory(1_000_000)).memory_bytes() as f64
    };
    let second = bytes(DiskAdmissionSpec::SecondHit);
    assert_eq!(bytes(DiskAdmissionSpec::Always), 0.0);
    assert!(bytes(DiskAdmissionSpec::NthHit(REQUESTS_MAX)) < 2.0 * second);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// As long as no key is forgotten, every rule counts exactly.
    #[test]
    fn without_forgetting_a_rule_counts_requests(
        requests in prop::collection::vec((0u64..40, 1u64..10), 0..400), which in 0usize..5,
    ) {
        let rules = ["second-hit", "nth-hit:4", "always", "size-density:2000", "never"];
        let spec: DiskAdmissionSpec = rules[which].parse().expect("the rule is valid");
        let admission = AnyDiskAdmission::new(spec, low_error_memory(20_000));
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for (key, size_kb) in requests {
            let needed = match spec {
                DiskAdmissionSpec::SecondHit => 2,
                DiskAdmissionSpec::NthHit(n) => u64::from(n),
                DiskAdmissionSpec::Always => 1,
                DiskAdmissionSpec::Never => u64::MAX,
                DiskAdmissionSpec::SizeDensity(_) => size_kb.div_ceil(2),
                DiskAdmissionSpec::MeasuredDensity => unreachable!("no rule of the test has this form"),
            };
            let seen = counts.entry(key).or_default();
            // A rule does not count an object that it writes at the first request.
            *seen += u64::from(needed > 1);
            prop_assert_eq!(writes(&admission, key, 1000 * size_kb), needed == 1 || *seen >= needed);
        }
    }

    /// A rule that is saved and restored makes the same decisions. `tag` identifies the hash function of the keys: a
    /// state with another tag is refused.
    #[test]
    fn a_restored_rule_decides_as_the_saved_one(
        keys in prop::collection::vec(0u64..60, 0..200), which in 0usize..6, tag in any::<u64>(),
    ) {
        let spec = DiskAdmissionSpec::examples()[which];
        let memory = low_error_memory(5000);
        let admission = AnyDiskAdmission::new(spec, memory);
        let size = 5 << 20;
        for &key in &keys {
            writes(&admission, key, size);
        }
        let mut saved = Vec::new();
        admission.write_to(tag, &mut saved).expect("writing to a vector cannot fail");
        let restored = AnyDiskAdmission::read_from(spec, memory, tag, &mut &saved[..]).expect("the state is complete");
        for key in 0..60 {
            prop_assert_eq!(writes(&restored, key, size), writes(&admission, key, size));
        }
        if !matches!(spec, DiskAdmissionSpec::Always | DiskAdmissionSpec::Never) {
            let other = AnyDiskAdmission::read_from(spec, memory, !tag, &mut &saved[..]);
            let other_hash = matches!(other, Err(StateError::OtherHash { .. }));
            prop_assert!(other_hash);
            let cut = AnyDiskAdmission::read_from(spec, memory, tag, &mut &saved[..saved.len() - 1]);
            prop_assert!(matches!(cut, Err(StateError::TooShort)));
        }
    }
}
