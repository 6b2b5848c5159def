//! Parses untrusted `Cache-Status` lines: no line panics, and a parsed member is written back unchanged.
#![no_main]

use edgeward_semantics::CacheStatus;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let Some(status) = CacheStatus::parse(line, "edgeward") else {
        return;
    };
    // A ttl may have more digits than a structured field allows and is limited when it is written. All other
    // values must be unchanged.
    let mut first = String::new();
    status.write("edgeward", &mut first);
    let reread = CacheStatus::parse(first.as_bytes(), "edgeward").expect("a written member can be parsed");
    let mut second = String::new();
    reread.write("edgeward", &mut second);
    assert_eq!(first, second);
    assert_eq!(status.outcome, reread.outcome);
});
