//! A trace reader terminates on any input, returns no record after an error, and keeps at most five examples of
//! skipped lines.
//!
//! The first byte selects the format and the handling of malformed lines; the remaining bytes are the input.
//! Run: `cargo +nightly fuzz run trace_read`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_trace::{Format, OnError, ReadOptions, open};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, input)) = bytes.split_first() else {
        return;
    };
    let mut options = ReadOptions::named("fuzz");
    // One value beyond the formats selects automatic detection.
    options.format = Format::ALL.get(usize::from(choice % 8)).copied();
    options.on_error = if choice & 0x80 == 0 {
        OnError::Fail
    } else {
        OnError::Skip
    };
    options.limits.line_bytes_max = 256;
    // A frame of a few bytes may require any window size. A limit of 1 MiB keeps the fuzzer fast.
    options.limits.zstd_window_log_max = 20;
    let Ok(mut reader) = open(input, options) else {
        return;
    };
    let mut records = 0u64;
    // A gzip stream of a kilobyte can decompress to a megabyte, so the number of records is limited.
    while let Some(record) = reader.next().filter(|_| records < 100_000) {
        if record.is_err() {
            assert!(reader.next().is_none(), "a record after an error");
            return;
        }
        records += 1;
    }
    assert!(reader.skipped().examples.len() <= 5);
});
