//! The form in which rules of sites compare paths has no dot segments and no repeated slashes, and is one of the
//! readings of a path. Any text is a pattern or refused without a panic, and a glob without wildcard matches exactly
//! its own text.
//!
//! The input is a pattern and a path, separated by a line feed.
//! Run: `cargo +nightly fuzz run site_path`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_sites::{PathPattern, PathReadings, matching_path};

fuzz_target!(|text: &str| {
    let Some((pattern, path)) = text.split_once('\n') else {
        return;
    };
    let form = matching_path(path);
    if *form != *b"*" {
        let mut segments = form.split(|byte| *byte == b'/');
        assert_eq!(segments.next(), Some(&b""[..]), "the form begins with a slash");
        let segments: Vec<&[u8]> = segments.collect();
        let (_, inner) = segments.split_last().expect("split returns a segment");
        assert!(inner.iter().all(|segment| !segment.is_empty()));
        assert!(!segments.contains(&&b"."[..]) && !segments.contains(&&b".."[..]));
    }
    let readings = PathReadings::of(path);
    assert_eq!(readings.form(), &*form);
    let found = readings.matches(|path| path.len() % 2 == 0);
    assert!(found.any || !found.form);
    assert!(found.form || !found.all);
    if let Ok(glob) = PathPattern::glob(pattern) {
        assert_eq!(glob.to_string(), pattern);
        if !pattern.contains('*') {
            assert_eq!(glob.matches(&form), *form == *pattern.as_bytes());
        }
    }
    if let Ok(regex) = PathPattern::regex(pattern) {
        assert_eq!(regex.to_string(), pattern);
        let _ = regex.matches(&form);
    }
});
