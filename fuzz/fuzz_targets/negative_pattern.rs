//! The path pattern of a negative rule (`[[negative]]` in the configuration) is printed as it was written, and selects
//! one non-empty part of a path: the id.
//!
//! The input is a pattern and a path, separated by a line feed.
//! Run: `cargo +nightly fuzz run negative_pattern`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_proxy::negative::PathPattern;

fuzz_target!(|text: &str| {
    let Some((text, path)) = text.split_once('\n') else {
        return;
    };
    let Ok(pattern) = text.parse::<PathPattern>() else {
        return;
    };
    assert_eq!(pattern.to_string(), text);
    let (before, after) = text.split_once("{id}").expect("it was accepted");
    let Some(id) = pattern.id(path) else {
        return;
    };
    assert!(!id.is_empty());
    let raw = &path[before.len()..path.len() - after.len()];
    assert_eq!(format!("{before}{raw}{after}"), path);
    assert!(!raw.contains('/'));
    if raw.contains('%') {
        assert!(id.len() <= raw.len());
    } else {
        assert_eq!(*id, *raw.as_bytes());
    }
    // A path with the percent-encoded form of the id has the same id.
    let escaped: String = id.iter().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(pattern.id(&format!("{before}{escaped}{after}")), Some(id));
});
