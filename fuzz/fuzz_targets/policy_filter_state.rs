//! Any bytes are either restored as a saved second-hit filter or rejected. A restored filter finds the keys that are
//! added.
//!
//! The low seven bits of the first byte select the number of keys per period. If its high bit is 0, the remaining bytes
//! are a whole state. If the bit is 1, they are the body of a state. The target then adds a valid header and checksum,
//! so that the fuzzer reaches the code behind the checks.
//!
//! Run: `cargo +nightly fuzz run policy_filter_state`.
#![no_main]

use std::num::NonZeroU64;

use libfuzzer_sys::fuzz_target;

use edgeward_policy::sketch::{RotatingBloom, RotatingBloomConfig, KeyStatus};
use edgeward_types::KeyHash;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, rest)) = bytes.split_first() else {
        return;
    };
    let keys = NonZeroU64::new(1 + u64::from(choice & 0x7f) * 16).expect("above zero");
    let config = RotatingBloomConfig::new(keys, 0.01);
    let mut state = rest.to_vec();
    if choice & 0x80 != 0 {
        state = RotatingBloom::new(config).to_bytes(TAG);
        // Epoch and bits from the fuzzer, then the matching checksum.
        let body = 48..state.len() - 8;
        for (to, from) in state[body.clone()].iter_mut().zip(rest) {
            *to = *from;
        }
        let checksum = edgeward_types::xxh3::xxh3_64(&state[..body.end]);
        state[body.end..].copy_from_slice(&checksum.to_le_bytes());
    }
    let Ok(filter) = RotatingBloom::from_bytes(config, TAG, &state) else {
        assert!(choice & 0x80 == 0, "a state with a valid header and checksum is accepted");
        return;
    };
    assert_eq!(filter.to_bytes(TAG), state, "writing a restored filter gives the same bytes");
    for n in 0..64 {
        filter.check_and_add(KeyHash(n));
        assert_eq!(filter.check_and_add(KeyHash(n)), KeyStatus::Seen);
    }
    let stats = filter.stats();
    assert!((0.0..=1.0).contains(&stats.false_positive_rate) && stats.primary_fill <= 1.0);
});

/// The number by which a state identifies the hash function of its keys.
const TAG: u64 = 7;
