//! Tests with fixtures that were not written by this crate. The files `eight.*` have the same eight requests in
//! different formats.

use std::path::Path;

use edgeward_trace::{
    Batch, Compression, Format, NO_TTL, OnError, OutputFormat, QueryRule, ReadOptions, Record,
    WriteOptions, Writer, hash_key, open,
};
use edgeward_types::Timestamp;

#[test]
fn every_format_and_compression_yields_the_same_eight_requests() {
    for (file, format, compression) in [
        ("eight.txt", Format::Text, Compression::None),
        // The next file has two gzip members, and the file after it has two zstd frames.
        ("eight.txt.gz", Format::Text, Compression::Gzip),
        ("eight.txt.zst", Format::Text, Compression::Zstd),
        ("eight.csv", Format::Csv, Compression::None),
        ("eight.lrb", Format::Lrb, Compression::None),
        (
            "eight.oracleGeneral",
            Format::OracleGeneral,
            Compression::None,
        ),
    ] {
        let bytes = fixture(file);
        let mut reader = open(&bytes[..], ReadOptions::named(file)).expect(file);
        assert_eq!(
            (reader.format(), reader.compression()),
            (format, compression),
            "{file}"
        );
        let records: Vec<Record> = reader.by_ref().map(|r| r.expect(file)).collect();
        assert_eq!(records, eight(), "{file}");
        assert_eq!((reader.records(), reader.skipped().lines), (8, 0), "{file}");
    }
}

/// Method: write the eight requests, and compare the output with the fixtures byte for byte. The format oracleGeneral
/// has in each record the number of the next request for the object, so the writer must compute these numbers.
#[test]
fn the_output_of_the_writer_equals_the_fixtures() {
    for (file, format) in [
        ("eight.txt", OutputFormat::Text),
        ("eight.oracleGeneral", OutputFormat::OracleGeneral),
    ] {
        let mut writer = Writer::new(Vec::new(), WriteOptions::new(format)).expect(file);
        for record in eight() {
            writer.write(&record).expect(file);
        }
        assert_eq!(writer.finish().expect(file), fixture(file), "{file}");
    }
}

#[test]
fn an_access_log_yields_its_successful_get_requests() {
    let bytes = fixture("access.log");
    let read = |query| {
        let mut options = ReadOptions::named("access.log");
        options.access_log.query = query;
        let mut reader = open(&bytes[..], options).expect("the file is an access log");
        assert_eq!(reader.format(), Format::Ncsa);
        let records: Vec<Record> = reader
            .by_ref()
            .map(|r| r.expect("the input is valid"))
            .collect();
        assert_eq!(reader.ignored_lines(), 2, "a POST and a 304");
        records
    };
    let at = |secs: u64| Timestamp::from_secs(1_431_857_100 + secs);
    let record = |secs, url: &str, size| Record {
        time: at(secs),
        key: hash_key(url.as_bytes()),
        size,
    };
    assert_eq!(
        read(QueryRule::Keep),
        [
            record(0, "/a.css", 512),
            record(1, "/b.js?v=2", 7454),
            record(1, "/a.css", 512),
            record(3, "/c.png", 40773),
        ]
    );
    assert_eq!(read(QueryRule::Cut)[1].key, hash_key(b"/b.js"));
}

#[test]
fn columns_are_found_by_name_by_number_and_without_a_header() {
    let read = |text: &str, columns: &str| {
        let mut options = ReadOptions::named("csv");
        if !columns.is_empty() {
            options.columns = columns.parse().expect(columns);
        }
        let reader = open(text.as_bytes(), options).expect(text);
        reader
            .map(|r| r.map(|r| (r.time.as_millis(), r.key, r.size)))
            .collect::<Result<Vec<_>, _>>()
            .expect(text)
    };
    let one = vec![(1500, 7, 20)];
    assert_eq!(read("ts,id,bytes\n1.5,7,20\n", ""), one);
    assert_eq!(read("\u{feff}Size;Key;Time\r\n20;7;1.5\r\n", ""), one);
    assert_eq!(read("size\tobj_id\ttimestamp\n20\t7\t1.5", ""), one);
    assert_eq!(
        read("a,b,c,ts\n7,9,20,1.5\n", "key=A,size=c"),
        one,
        "the time by its usual name"
    );
    assert_eq!(read("1.5,7,20\n", "time=1,key=2,size=3"), one, "no header");
    assert_eq!(
        read("t,k,s\n1.5,7,20\n", "time=1,key=2,size=3"),
        one,
        "numbers and a header"
    );
    let hashed = hash_key(br#"/a,"b""#);
    assert_eq!(
        read(
            "time,url,size\n1970-01-01T00:00:02Z,\"/a,\"\"b\"\"\",20\n",
            ""
        ),
        [(2000, hashed, 20)]
    );
}

/// Lifetimes are returned beside their records, in batches of any length and also after malformed lines.
#[test]
fn lifetimes_are_read_beside_their_records() {
    let mut text = "ts,id,bytes,max_age\n".to_owned();
    for key in 0..3000 {
        let ttl = if key % 3 == 0 {
            String::new()
        } else {
            (key * 7).to_string()
        };
        text += &format!("{key},{key},10,{ttl}\n5,5,5,soon\n6,6\n");
    }
    let mut options = ReadOptions::named("t.csv");
    options.columns = "ttl=MAX_AGE".parse().expect("the columns are valid");
    options.on_error = OnError::Skip;
    let mut reader = open(text.as_bytes(), options).expect("the trace is readable");
    let first = reader
        .next()
        .expect("a record")
        .expect("the record is valid");
    assert_eq!(first.key, 0);
    let mut keys = 1;
    while let Some(Batch { records, ttls }) =
        reader.next_batch_with_ttls().expect("the trace is valid")
    {
        assert_eq!(records.len(), ttls.len());
        for (record, &ttl) in records.iter().zip(ttls) {
            let expected = if record.key.is_multiple_of(3) {
                NO_TTL
            } else {
                record.key as u32 * 7
            };
            assert_eq!((record.key, ttl), (keys, expected));
            keys += 1;
        }
    }
    assert_eq!((keys, reader.skipped().lines), (3000, 6000));

    // Without a named column, a column with the name `ttl` has no effect.
    let text = "ts,id,bytes,ttl\n1,2,3,soon\n";
    let mut reader = open(text.as_bytes(), ReadOptions::named("t.csv"));
    let reader = reader.as_mut().expect("the trace is readable");
    let batch = reader.next_batch_with_ttls().expect("the trace is valid");
    assert_eq!(
        batch.map(|batch| (batch.records.len(), batch.ttls.len())),
        Some((1, 0))
    );
}

/// A lifetime is a whole number of seconds. Lifetimes above the largest one are shortened to it.
#[test]
fn a_lifetime_is_a_whole_number_of_seconds() {
    let read = |field: &str| {
        let text = format!("ts,id,bytes,ttl\n1,2,3,{field}\n");
        let mut options = ReadOptions::named("t.csv");
        options.columns = "ttl=4".parse().expect("the columns are valid");
        let mut reader = open(text.as_bytes(), options).expect("a header");
        let batch = reader.next_batch_with_ttls();
        batch
            .map(|batch| batch.map(|batch| batch.ttls[0]))
            .map_err(|error| error.to_string())
    };
    for (field, ttl) in [
        ("0", 0),
        (" 60 ", 60),
        ("4294967294", u32::MAX - 1),
        ("4294967295", u32::MAX - 1),
        ("99999999999", u32::MAX - 1),
        ("", NO_TTL),
    ] {
        assert_eq!(read(field), Ok(Some(ttl)), "{field}");
    }
    for field in ["-1", "1.5", "1h"] {
        let message = read(field).expect_err(field);
        assert!(message.contains("whole number of seconds"), "{message}");
    }
}

fn eight() -> Vec<Record> {
    [
        (0, 10, 512),
        (1, 11, 7454),
        (1, 10, 512),
        (3, 12, 40773),
        (60, 10, 512),
        (61, 1 << 32, (1 << 32) - 1),
        (3600, 13, 1),
        (3600, 11, 7454),
    ]
    .map(|(secs, key, size)| Record {
        time: Timestamp::from_secs(secs),
        key,
        size,
    })
    .to_vec()
}

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
