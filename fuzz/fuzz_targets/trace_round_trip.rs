//! Records read from any input are unchanged after they are written as text and read again.
//!
//! Run: `cargo +nightly fuzz run trace_round_trip`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_trace::{
    Format, OnError, OutputFormat, ReadOptions, Record, WriteOptions, Writer, open,
};

fuzz_target!(|input: &[u8]| {
    let mut options = ReadOptions::named("fuzz");
    options.format = Some(Format::Text);
    options.on_error = OnError::Skip;
    // Limits the window of a zstd frame to 2^20 bytes.
    options.limits.zstd_window_log_max = 20;
    let Ok(reader) = open(input, options) else {
        return;
    };
    let records: Vec<Record> = reader.map_while(Result::ok).take(100_000).collect();
    let text = WriteOptions::new(OutputFormat::Text);
    let mut writer = Writer::new(Vec::new(), text).expect("writing to memory succeeds");
    for record in &records {
        writer.write(record).expect("every record can be written as text");
    }
    let bytes = writer.finish().expect("writing to memory succeeds");
    let mut options = ReadOptions::named("written");
    options.format = Some(Format::Text);
    let again: Vec<Record> = open(&bytes[..], options)
        .expect("the written trace can be opened")
        .map(|record| record.expect("a written record is well-formed"))
        .collect();
    assert_eq!(again, records);
});
