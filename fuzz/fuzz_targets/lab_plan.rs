//! Any text gives a valid plan, or problems with valid line numbers.
//!
//! Run: `cargo +nightly fuzz run lab_plan`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_lab::{Benchmark, Plan};

fuzz_target!(|text: &str| {
    // A problem at the end of a text that ends with a line feed is on the line after it.
    let lines = text.lines().count() + 1;
    match Benchmark::parse(text, &[]) {
        Ok(plan) => assert!(!plan.loads.is_empty()),
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|p| (1..=lines).contains(&p.line)));
        }
    }
    match Plan::parse(text) {
        Ok(plan) => {
            assert!(!plan.contenders.is_empty());
            for contender in &plan.contenders {
                // A size may be a share of the total size of all objects, here `u64::MAX` bytes.
                for size in [contender.memory, contender.disk].into_iter().flatten() {
                    assert!(size.of(u64::MAX) > 0);
                }
            }
            assert!(plan.load.warmup.of(plan.trace.requests) <= plan.trace.requests);
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|p| (1..=lines).contains(&p.line)));
        }
    }
});
