//! Tests of invalid input: every kind of invalid input has its own error, with a position and a hint.

use std::io::{self, Read};

use edgeward_trace::{
    Compression, Format, OnError, OutputFormat, Position, Problem, ReadError, ReadOptions, Record,
    WriteError, WriteOptions, Writer, open,
};
use edgeward_types::Timestamp;

#[test]
fn a_malformed_field_is_named_with_its_line_and_byte() {
    for (format, text, line, byte, message_part) in [
        (Format::Text, "1 2 3\n1 2 x\n", 2, 6, "size is `x`"),
        (Format::Text, "# c\n\n1 2\n", 3, 5, "no size"),
        (Format::Text, "1\n", 1, 0, "no key"),
        (Format::Text, "1 2 3 4\n", 1, 0, "has text after"),
        (Format::Text, "-1 2 3\n", 1, 0, "time is `-1`"),
        (Format::Text, "1 2 -3\n", 1, 0, "size is `-3`"),
        (Format::Text, "1 2 18446744073709551616\n", 1, 0, "size is"),
        (
            Format::Text,
            "1 2 \u{1}\u{7}\n",
            1,
            0,
            "size is `\\u{1}\\u{7}`",
        ),
        (Format::Lrb, "1 2 3\n1 /a 3\n", 2, 6, "id is `/a`"),
        (Format::Lrb, "1 2\n", 1, 0, "no size"),
        (Format::Csv, "time,key,size\n1,2\n", 2, 14, "no size"),
        (
            Format::Csv,
            "time,key,size\nnow,2,3\n",
            2,
            14,
            "time is `now`",
        ),
        (
            Format::Csv,
            "time,size,key\n1,3,\"2\n",
            2,
            14,
            "closed by a quote",
        ),
        (Format::Ncsa, "hello\n", 1, 0, "time in brackets"),
    ] {
        let (records, error) = read(text.as_bytes(), Some(format));
        let error = error.unwrap_or_else(|| panic!("{text:?} was read"));
        assert_eq!(
            error.position(),
            Position::Line { number: line, byte },
            "{text:?}"
        );
        let message = error.to_string();
        assert!(message.contains(message_part), "{text:?}: {message}");
        assert!(
            message.starts_with(&format!("input, line {line} ")),
            "{message}"
        );
        assert!(error.hint().is_some(), "{message}");
        let good_lines = text.lines().take(line as usize - 1);
        let good = good_lines.filter(|l| l.starts_with('1')).count();
        assert_eq!(records.len(), good, "records before the bad line: {text:?}");
    }
}

#[test]
fn skipped_malformed_lines_are_counted_and_the_first_are_kept_as_examples() {
    let mut text = "1 2 3\n".to_owned();
    for n in 0..20 {
        text += &format!("bad{n}\n{n} 5 5\n");
    }
    let mut options = ReadOptions::named("input");
    options.on_error = OnError::Skip;
    let mut reader = open(text.as_bytes(), options).expect("the bytes are text");
    let records = reader.by_ref().inspect(|r| assert!(r.is_ok())).count();
    assert_eq!((records, reader.skipped().lines), (21, 20));
    let examples = &reader.skipped().examples;
    assert_eq!(examples.len(), 5);
    assert!(
        examples[0].contains("`bad0`") && examples[0].contains("line 2"),
        "{examples:?}"
    );
}

/// Method: truncate a compressed trace at every byte. The records before this byte must be read, and the
/// truncation must be an error.
#[test]
fn a_truncated_compressed_trace_is_an_error_after_its_records() {
    let lines: String = (0..500).map(|n| format!("{n} {} 100\n", n % 7)).collect();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Bzip2] {
        let whole = compressed(lines.as_bytes(), compression);
        let (records, error) = read(&whole, None);
        assert_eq!((records.len(), error.is_none()), (500, true));
        // The first six bytes are enough to recognise each compression.
        for cut in 6..whole.len() {
            let (records, error) = read(&whole[..cut], Some(Format::Text));
            let error = error.unwrap_or_else(|| panic!("{compression} cut at {cut} was read"));
            assert!(
                matches!(error.problem(), Problem::Truncated { .. }),
                "{compression} cut at {cut}: {error}"
            );
            assert!(
                records
                    .iter()
                    .enumerate()
                    .all(|(n, r)| r.time.as_secs() == n as u64)
            );
        }
        let (records, _) = read(&whole[..whole.len() - 1], None);
        assert_eq!(
            records.len(),
            500,
            "all records are complete, only the trailer is truncated"
        );
    }
}

#[test]
fn a_corrupt_stream_and_a_truncated_stream_have_different_errors() {
    let lines: String = (0..2000)
        .map(|n| format!("{n} {} 100\n", n * 77 % 1000))
        .collect();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Bzip2] {
        let mut bytes = compressed(lines.as_bytes(), compression);
        // The third byte from the end is part of a checksum or a length. The last byte may not be: in bzip2 it may have
        // padding bits.
        let at = bytes.len() - 3;
        bytes[at] ^= 0x55;
        let (_, error) = read(&bytes, None);
        let error = error.expect("the checksum is wrong");
        assert!(
            matches!(error.problem(), Problem::Undecodable { .. }),
            "{compression}: {error}"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn a_truncated_binary_record_is_an_error_after_the_complete_records() {
    let bytes = oracle_general(10);
    let (records, error) = read(&bytes[..24 * 9 + 11], None);
    let error = error.expect("the record is truncated");
    assert_eq!(records.len(), 9);
    assert_eq!(error.position(), Position::Byte(24 * 9));
    assert!(
        matches!(
            error.problem(),
            Problem::RecordTruncated {
                present_bytes: 11,
                record_bytes: 24
            }
        ),
        "{error}"
    );
}

#[test]
fn the_error_of_an_unknown_format_describes_the_input() {
    for (bytes, message_part) in [
        (&b""[..], "empty"),
        (b"\n\n# nothing\n", "blank lines and comments only"),
        (b"hello world\n", "`hello world`"),
        (b"a,b,c\n1,2,3\n", "no column names"),
        (b"PAR1\x15\x04\x15\x10\x15\x14L\x15", "50 41 52 31"),
        (&[0x00, 0xff].repeat(24), "not oracleGeneral"),
        (b"\xfd7zXZ\0\0\x04", "xz"),
        (b"\x04\x22\x4d\x18abc", "lz4"),
    ] {
        let (_, error) = read(bytes, None);
        let error = error.expect("the input is not a trace");
        let message = error.to_string();
        assert!(message.contains(message_part), "{bytes:?}: {message}");
        assert!(error.hint().is_some(), "{message}");
    }
}

#[test]
fn an_empty_input_of_a_given_format_has_no_records() {
    for format in [
        Format::Text,
        Format::Lrb,
        Format::Ncsa,
        Format::OracleGeneral,
    ] {
        let (records, error) = read(b"", Some(format));
        assert!(records.is_empty() && error.is_none(), "{format}");
    }
    let (_, error) = read(b"", Some(Format::Csv));
    assert!(matches!(
        error.expect("the file has no header").problem(),
        Problem::Empty
    ));
}

#[test]
fn the_error_of_a_missing_csv_column_names_the_column_and_the_option() {
    let (_, error) = read(b"time,key,weight\n1,2,3\n", Some(Format::Csv));
    let error = error.expect("the line has no size");
    assert!(
        error.to_string().contains("no column for the size"),
        "{error}"
    );
    let hint = error.hint().expect("the error has a hint");
    assert!(hint.contains("--columns size=NAME"), "{hint}");
}

/// Method: read lines with lengths on both sides of the limit, and a line far longer than the buffer.
#[test]
fn a_line_above_the_length_limit_is_malformed() {
    let bound = ReadOptions::default().limits.line_bytes_max;
    // Four bytes of the line do not belong to the key: `1`, two spaces and `3`.
    for (key_bytes, fits) in [(bound - 4, true), (bound - 3, false), (5 * bound, false)] {
        for end in ["", "\n", "\n7 8 9\n"] {
            let text = format!("1 {} 3{end}", "k".repeat(key_bytes));
            let (records, error) = read(text.as_bytes(), Some(Format::Text));
            let too_long =
                error.is_some_and(|e| matches!(e.problem(), Problem::LineTooLong { .. }));
            assert_eq!(too_long, !fits, "{key_bytes} {end:?}");
            let after = usize::from(fits && end.len() > 1);
            assert_eq!(
                records.len(),
                usize::from(fits) + after,
                "{key_bytes} {end:?}"
            );

            let mut options = ReadOptions::named("input");
            options.format = Some(Format::Text);
            options.on_error = OnError::Skip;
            let mut reader = open(text.as_bytes(), options).expect("the bytes are text");
            let records = reader.by_ref().inspect(|r| assert!(r.is_ok())).count();
            assert_eq!(records, usize::from(fits) + usize::from(end.len() > 1));
            assert_eq!(reader.skipped().lines, u64::from(!fits));
        }
    }
}

#[test]
fn a_zstd_window_above_the_limit_is_refused() {
    let mut encoder =
        zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder can be created");
    encoder.window_log(24).expect("the window is set");
    io::Write::write_all(&mut encoder, &b"1 2 3\n".repeat(100)).expect("memory can be written");
    let bytes = encoder.finish().expect("memory can be written");
    let mut options = ReadOptions::named("input");
    assert!(open(&bytes[..], options.clone()).is_ok());
    options.limits.zstd_window_log_max = 20;
    let error = open(&bytes[..], options)
        .err()
        .expect("the window of 16 MiB is too large");
    assert!(
        matches!(error.problem(), Problem::Undecodable { .. }),
        "{error}"
    );
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("zstd-window-log"))
    );
}

#[test]
fn an_input_error_is_returned_after_the_records_before_it() {
    struct Failing(io::Cursor<Vec<u8>>);
    impl Read for Failing {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            match self.0.read(out)? {
                0 => Err(io::Error::other("cable pulled")),
                count => Ok(count),
            }
        }
    }
    let input = Failing(io::Cursor::new(b"1 2 3\n4 5 6\n7 8".to_vec()));
    let mut reader = open(input, ReadOptions::named("input")).expect("the format is recognised");
    assert_eq!(
        reader.by_ref().filter_map(Result::ok).count(),
        2,
        "the reader returns both complete lines and not the half line"
    );
    let input = Failing(io::Cursor::new(b"1 2 3\n4 5 6\n7 8".to_vec()));
    let mut reader = open(input, ReadOptions::named("input")).expect("the format is recognised");
    let error = reader.find_map(Result::err).expect("the input fails");
    assert!(matches!(error.problem(), Problem::Io(_)), "{error}");
    assert!(
        reader.next().is_none(),
        "the reader returns no record after an error"
    );
}

#[test]
fn oracle_general_refuses_times_sizes_and_counts_above_its_limits() {
    let write = |secs, size, records_max| {
        let mut options = WriteOptions::new(OutputFormat::OracleGeneral);
        options.oracle_records_max = records_max;
        let mut writer = Writer::new(Vec::new(), options).expect("memory can be written");
        writer.write(&Record {
            time: Timestamp::from_secs(secs),
            key: 1,
            size,
        })
    };
    let most = u64::from(u32::MAX);
    assert!(write(most, most, 1).is_ok());
    assert!(matches!(
        write(most + 1, 1, 1),
        Err(WriteError::TimeTooLate { .. })
    ));
    assert!(matches!(
        write(1, most + 1, 1),
        Err(WriteError::SizeTooLarge { .. })
    ));
    assert!(matches!(
        write(1, 1, 0),
        Err(WriteError::TooManyRecords { .. })
    ));
}

fn read(bytes: &[u8], format: Option<Format>) -> (Vec<Record>, Option<ReadError>) {
    let mut options = ReadOptions::named("input");
    options.format = format;
    let reader = match open(bytes, options) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut records = Vec::new();
    for record in reader {
        match record {
            Ok(record) => records.push(record),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

fn compressed(text: &[u8], compression: Compression) -> Vec<u8> {
    let mut options = WriteOptions::new(OutputFormat::Text);
    options.compression = compression;
    let mut writer = Writer::new(Vec::new(), options).expect("memory can be written");
    for record in open(text, ReadOptions::named("text")).expect("the bytes are text") {
        writer
            .write(&record.expect("the bytes are text"))
            .expect("memory can be written");
    }
    writer.finish().expect("memory can be written")
}

fn oracle_general(records: u64) -> Vec<u8> {
    let options = WriteOptions::new(OutputFormat::OracleGeneral);
    let mut writer = Writer::new(Vec::new(), options).expect("memory can be written");
    for n in 0..records {
        let record = Record {
            time: Timestamp::from_secs(n),
            key: n % 3,
            size: 10,
        };
        writer.write(&record).expect("memory can be written");
    }
    writer.finish().expect("memory can be written")
}
