//! Log lines: every parser parses or rejects any bytes without a panic. A parsed line has a URL. Except in
//! W3C logs, a new parser makes the same entry of the line as a parser that has parsed earlier lines. Any text is a
//! format string or is rejected.
//!
//! Run: `cargo +nightly fuzz run analysis_lines`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_analysis::{FieldNames, Format, PRESETS, Parser, Template, detect_format, preset};

fuzz_target!(|input: &[u8]| {
    // The first line is a format string; a log follows.
    let (first, log) = match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (&input[..0], input),
    };
    let mut formats = vec![Format::Ncsa, Format::W3c, Format::Json(FieldNames::default())];
    formats.extend(PRESETS.iter().filter_map(|row| preset(row.name, &[])));
    formats.push(Format::Docker(Box::new(Format::Ncsa)));
    formats.extend(detect_format(log, &FieldNames::default()));
    if let Ok(text) = std::str::from_utf8(first) {
        formats.extend(Template::compile(text).map(Format::Template));
    }
    for format in formats {
        let mut parser = Parser::new(&format);
        for line in log.split(|byte| *byte == b'\n') {
            let Ok(Some(entry)) = parser.parse(line) else {
                continue;
            };
            assert!(!entry.url.is_empty(), "{format:?}");
            assert!(entry.status < 1000, "{format:?}");
            // The columns of W3C logs are in earlier lines.
            if format != Format::W3c {
                let mut fresh = Parser::new(&format);
                assert_eq!(fresh.parse(line), Ok(Some(entry)), "{format:?}");
            }
        }
    }
});
