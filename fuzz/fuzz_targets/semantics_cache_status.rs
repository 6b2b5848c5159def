//! Parses untrusted `Cache-Status` lines. No line causes a panic. If a parsed member is written and parsed again, it
//! has the same outcome, and it is written in the same way.
#![no_main]

use edgeward_semantics::CacheStatus;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    // `edgeward` is the name of the cache whose member is parsed.
    let Some(status) = CacheStatus::parse(line, "edgeward") else {
        return;
    };
    // `first` may differ from `line`. For example, a ttl may have more digits than a structured field allows, and is
    // limited when it is written.
    let mut first = String::new();
    status.write("edgeward", &mut first);
    let reread = CacheStatus::parse(first.as_bytes(), "edgeward").expect("a written member can be parsed");
    let mut second = String::new();
    reread.write("edgeward", &mut second);
    assert_eq!(first, second);
    assert_eq!(status.outcome, reread.outcome);
});
