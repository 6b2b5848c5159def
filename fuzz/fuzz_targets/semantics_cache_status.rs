//! `Cache-Status` from anyone: no line panics, and what reads writes back the same.
#![no_main]

use edgeward_semantics::CacheStatus;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let Some(status) = CacheStatus::parse(line, "edgeward") else {
        return;
    };
    // A ttl may have more digits than a structured field allows and is cut when written;
    // all else is as it was read.
    let mut first = String::new();
    status.write("edgeward", &mut first);
    let reread = CacheStatus::parse(first.as_bytes(), "edgeward").expect("what we write reads");
    let mut second = String::new();
    reread.write("edgeward", &mut second);
    assert_eq!(first, second);
    assert_eq!(status.outcome, reread.outcome);
});
