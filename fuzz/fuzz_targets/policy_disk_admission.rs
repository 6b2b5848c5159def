//! A disk admission rule that is printed and parsed again is the same rule. Any saved state is rejected, or restored
//! so that saving it again gives the same bytes.
//!
//! The input is a line with a rule, followed by a saved state. Run: `cargo +nightly fuzz run
//! policy_disk_admission`.
#![no_main]

use std::num::NonZeroU64;

use libfuzzer_sys::fuzz_target;

use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_policy::{AnyDiskAdmission, DiskAdmissionSpec};

fuzz_target!(|bytes: &[u8]| {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or(bytes);
    let Ok(spec) = std::str::from_utf8(line).map_or(Err(()), |text| {
        text.parse::<DiskAdmissionSpec>().map_err(|_| ())
    }) else {
        return;
    };
    assert_eq!(spec.to_string().parse(), Ok(spec), "{spec}");
    let requests = spec.requests_needed_max();
    assert!((1..=8).contains(&requests) || spec == DiskAdmissionSpec::Never);
    let state = bytes.get(line.len() + 1..).unwrap_or_default();
    let memory = RotatingBloomConfig::new(NonZeroU64::new(100).expect("above zero"), 0.01);
    if let Ok(admission) = AnyDiskAdmission::read_from(spec, memory, 7, &mut &state[..]) {
        let mut saved = Vec::new();
        admission.write_to(7, &mut saved).expect("writing to memory succeeds");
        assert!(state.starts_with(&saved), "writing a restored state gives the same bytes");
    }
});
