//! Property tests: a written trace is read back, the text parser agrees with a simple reference parser, and a
//! reader does not panic on any input.

use std::collections::HashMap;
use std::io::{self, Read};

use edgeward_trace::{
    Compression, Format, OnError, OutputFormat, ReadOptions, Record, Summary, WriteOptions, Writer,
    hash_key, open,
};
use edgeward_types::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_records_are_read_back(
        records in vec(any_record(), 0..300),
        compression in prop_oneof![
            Just(Compression::None), Just(Compression::Gzip), Just(Compression::Zstd), Just(Compression::Bzip2)
        ],
    ) {
        for format in OutputFormat::ALL {
            let records: Vec<Record> = records.iter().map(|r| representable(*r, format)).collect();
            let bytes = write(&records, format, compression);
            let read = read_all(&bytes[..], Some(format.format()));
            prop_assert_eq!(read, records, "{:?}", format);
        }
    }

    /// The next access is the number, counted from 1, of the next request for the same object, or -1.
    #[test]
    fn the_written_next_access_is_the_number_of_the_next_request(records in vec(any_record(), 0..200)) {
        let records: Vec<Record> = records
            .into_iter()
            .map(|r| Record { key: r.key % 20, ..representable(r, OutputFormat::OracleGeneral) })
            .collect();
        let bytes = write(&records, OutputFormat::OracleGeneral, Compression::None);
        for (at, bytes) in bytes.as_chunks::<24>().0.iter().enumerate() {
            let next = records[at + 1..].iter().position(|r| r.key == records[at].key);
            let expected = next.map_or(-1, |distance| (at + 1 + distance + 1) as i64);
            let (_, field) = bytes.split_last_chunk().expect("24 bytes are more than 8");
            prop_assert_eq!(i64::from_le_bytes(*field), expected);
        }
    }

    /// Method: generate blank lines, comments, all kinds of white space, fractions, and numeric and textual keys.
    #[test]
    fn the_text_parser_agrees_with_splitting_at_white_space(
        lines in vec(any_text_line(), 1..200),
        crlf in any::<bool>(),
        read_bytes_max in 1usize..700,
    ) {
        let text: String = lines
            .iter()
            .map(|line| format!("{line}{}", if crlf { "\r\n" } else { "\n" }))
            .collect();
        let expected: Vec<Record> = text.lines().filter_map(plain_text_record).collect();
        let input = ShortReads { bytes: text.as_bytes(), read_bytes_max };
        prop_assert_eq!(read_all(input, Some(Format::Text)), expected);
    }

    #[test]
    fn a_summary_equals_a_simple_count(records in vec(any_record(), 1..300)) {
        // There are few keys, so that objects are requested repeatedly. A summary stores sizes of at most 63 bits.
        let records: Vec<Record> = records
            .into_iter()
            .map(|r| Record { key: r.key % 40, size: r.size >> 1, ..r })
            .collect();
        let mut summary = Summary::default();
        let mut objects: HashMap<u64, Vec<u64>> = HashMap::new();
        for record in &records {
            summary.add(record);
            objects.entry(record.key).or_default().push(record.size);
        }
        let got = summary.finish();
        // A size of 0 is unknown.
        let last_known = |sizes: &Vec<u64>| sizes.iter().rfind(|size| **size > 0).copied();
        let mut last: Vec<u64> = objects.values().map(|s| last_known(s).unwrap_or(0)).collect();
        last.sort_unstable();
        prop_assert_eq!(got.objects, objects.len() as u64);
        let sized = records.iter().filter(|record| record.size > 0).count() as u64;
        prop_assert_eq!(got.sized_requests, sized);
        prop_assert_eq!(got.footprint_bytes, last.iter().map(|s| u128::from(*s)).sum::<u128>());
        prop_assert_eq!(
            got.one_hit_objects,
            objects.values().filter(|sizes| sizes.len() == 1).count() as u64
        );
        let sizes = got.sizes.expect("the trace has at least one object");
        prop_assert_eq!((sizes.min, sizes.max), (last[0], last[last.len() - 1]));
        prop_assert_eq!(sizes.p50, last[last.len() / 2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The reader also terminates on any input, and returns no record after its first error.
    #[test]
    fn no_input_makes_a_reader_panic(bytes in any_bytes(), skip in any::<bool>()) {
        for format in Format::ALL.into_iter().map(Some).chain([None]) {
            let mut options = ReadOptions::named("noise");
            options.format = format;
            options.limits.line_bytes_max = 64;
            options.on_error = if skip { OnError::Skip } else { OnError::Fail };
            if let Ok(mut reader) = open(&bytes[..], options) {
                while let Some(record) = reader.next() {
                    if record.is_err() {
                        prop_assert!(reader.next().is_none());
                    }
                }
            }
        }
    }
}

/// Generates bytes that pass the first checks of a reader more often than random bytes.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let magic = prop_oneof![
        4 => Just(&b""[..]),
        1 => Just(&b"\x1f\x8b\x08\0"[..]),
        1 => Just(&b"\x28\xb5\x2f\xfd"[..]),
        1 => Just(&b"time,key,size\n"[..]),
        1 => Just(&b"h - - [17/May/2015:10:05:03 +0000] \"GET /a\" 200 5\n"[..]),
    ];
    let tail = prop_oneof![
        vec(any::<u8>(), 0..300),
        vec(
            proptest::sample::select(&b"0123456789 .,\"[]/:+-\n\\GET\t\r#"[..]),
            0..300
        ),
    ];
    (magic, tail).prop_map(|(magic, tail)| [magic, &tail].concat())
}

fn any_record() -> impl Strategy<Value = Record> {
    let number = || {
        prop_oneof![
            0u64..100,
            any::<u64>(),
            any::<u32>().prop_map(u64::from),
            Just(u64::MAX)
        ]
    };
    (0u64..(1 << 45), number(), number()).prop_map(|(millis, key, size)| Record {
        time: Timestamp::from_millis(millis),
        key,
        size,
    })
}

/// Returns a record with the values that remain after writing and reading it in a format.
fn representable(record: Record, format: OutputFormat) -> Record {
    let whole_secs = Timestamp::from_secs(record.time.as_secs());
    match format {
        OutputFormat::Text | OutputFormat::Csv => record,
        OutputFormat::Combined => {
            unreachable!(
                "a reader returns other keys for this format, so `OutputFormat::ALL` does not contain it"
            )
        }
        OutputFormat::Lrb => Record {
            time: whole_secs,
            ..record
        },
        OutputFormat::OracleGeneral => Record {
            time: Timestamp::from_secs(record.time.as_secs() & 0xffff_ffff),
            size: record.size & 0xffff_ffff,
            ..record
        },
    }
}

fn any_text_line() -> impl Strategy<Value = String> {
    let blank = || "[ \t]{1,3}";
    let time = prop_oneof!["[0-9]{1,12}", "[0-9]{1,9}\\.[0-9]{1,6}"];
    let key = prop_oneof!["[0-9]{1,22}", "/[a-z0-9?=&%]{0,30}", "[^ \t\r\n]{1,8}"];
    let size = "[0-9]{1,18}";
    prop_oneof![
        20 => (time, blank(), key, blank(), size, "[ \t]{0,2}")
            .prop_map(|(t, b, k, c, s, e)| format!("{t}{b}{k}{c}{s}{e}")),
        1 => Just(String::new()),
        1 => "#[ -~]{0,20}",
    ]
    // The reference parser splits at all Unicode white space, but the trace reader does not.
    .prop_filter("no white space but spaces and tabs", |line| {
        !line
            .chars()
            .any(|c| c.is_whitespace() && !matches!(c, ' ' | '\t'))
    })
}

/// The reference parser: returns the record of a line, or `None` for a blank line or a comment.
fn plain_text_record(line: &str) -> Option<Record> {
    if line.trim().is_empty() || line.starts_with('#') {
        return None;
    }
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [time, key, size] = fields[..] else {
        panic!("three fields: {line:?}");
    };
    let (secs, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let millis: u64 = format!("{fraction:0<3}")[..3]
        .parse()
        .expect("the text has only digits");
    let secs: u64 = secs.parse().expect("the text has only digits");
    Some(Record {
        time: Timestamp::from_millis(secs * 1000 + millis),
        key: match key.parse::<u64>() {
            Ok(id) if id.to_string() == key => id,
            _ => hash_key(key.as_bytes()),
        },
        size: size.parse().expect("the text has only digits"),
    })
}

fn write(records: &[Record], format: OutputFormat, compression: Compression) -> Vec<u8> {
    let mut options = WriteOptions::new(format);
    options.compression = compression;
    let mut writer = Writer::new(Vec::new(), options).expect("memory can be written");
    for record in records {
        writer.write(record).expect("memory can be written");
    }
    writer.finish().expect("memory can be written")
}

fn read_all(input: impl Read + Send, format: Option<Format>) -> Vec<Record> {
    let mut options = ReadOptions::named("input");
    options.format = format;
    let reader = open(input, options).expect("the input is valid");
    reader
        .map(|record| record.expect("the input is valid"))
        .collect()
}

/// An input with short reads, as from a pipe.
struct ShortReads<'a> {
    bytes: &'a [u8],
    read_bytes_max: usize,
}

impl Read for ShortReads<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.read_bytes_max.min(out.len());
        self.bytes.read(&mut out[..count])
    }
}
