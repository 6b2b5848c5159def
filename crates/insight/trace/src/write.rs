//! Writes records in the formats of other tools.

use std::io::{self, Write};

use crate::compression::Encoder;
use crate::key_map::KeyMap;
use crate::write_log::LogLines;
use crate::{Compression, Format, Record};

/// The formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputFormat {
    /// `time key size`, separated by spaces; times have milliseconds.
    Text,
    /// `time,key,size` after a header line with these names.
    Csv,
    /// libCacheSim's oracleGeneral with the next access (the number of the next request for the object); whole
    /// seconds, sizes of 32 bits.
    OracleGeneral,
    /// `time id size` in whole numbers, without the optional features of the format; whole seconds.
    Lrb,
    /// The NCSA combined log format; whole seconds. The clients' addresses are invented. The key becomes a part of
    /// the URL, so a reader returns another key: the hash of the URL.
    Combined,
}

impl OutputFormat {
    /// Every format that preserves the keys of records.
    pub const ALL: [Self; 4] = [Self::Text, Self::Csv, Self::OracleGeneral, Self::Lrb];

    /// The format as which a reader reads the output.
    pub const fn format(self) -> Format {
        match self {
            Self::Text => Format::Text,
            Self::Csv => Format::Csv,
            Self::OracleGeneral => Format::OracleGeneral,
            Self::Lrb => Format::Lrb,
            Self::Combined => Format::Ncsa,
        }
    }
}

/// Options of a writer.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// The format of the records.
    pub format: OutputFormat,
    /// The compression.
    pub compression: Compression,
    /// The maximum number of records of an oracleGeneral trace. The next access of a record is known only
    /// later, so the writer keeps all records in memory: 24 bytes per record, and about 32 bytes per object.
    pub oracle_records_max: u64,
}

impl WriteOptions {
    /// Options for an uncompressed trace, with the default limit.
    pub const fn new(format: OutputFormat) -> Self {
        Self {
            format,
            compression: Compression::None,
            // The records take 6 GiB.
            oracle_records_max: 1 << 28,
        }
    }

    /// Options for a file with this name. The last extension selects the compression: `.zst`, `.zstd`, `.gz`, `.bz2`,
    /// otherwise none. The extension before it selects the format: `.csv`, `.lrb`, `.log` (the combined log format),
    /// `.oracleGeneral`, otherwise text.
    pub fn for_file_name(name: &str) -> Self {
        let (name, compression) = match name.rsplit_once('.') {
            Some((rest, "zst" | "zstd")) => (rest, Compression::Zstd),
            Some((rest, "gz")) => (rest, Compression::Gzip),
            Some((rest, "bz2")) => (rest, Compression::Bzip2),
            _ => (name, Compression::None),
        };
        let format = match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("csv") => OutputFormat::Csv,
            Some("lrb") => OutputFormat::Lrb,
            Some("log") => OutputFormat::Combined,
            Some("oracleGeneral") => OutputFormat::OracleGeneral,
            _ => OutputFormat::Text,
        };
        Self {
            compression,
            ..Self::new(format)
        }
    }
}

/// Writes records. The output is incomplete until [`Writer::finish`] returns.
pub struct Writer<W: Write> {
    sink: Encoder<W>,
    format: OutputFormat,
    /// Lines that are not written yet.
    buffer: Vec<u8>,
    log_lines: LogLines,
    records: u64,
    oracle: OracleTable,
    oracle_records_max: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a trace. For CSV, writes the header.
    ///
    /// # Errors
    ///
    /// Fails if writing fails.
    pub fn new(output: W, options: WriteOptions) -> Result<Self, WriteError> {
        let mut writer = Self {
            sink: Encoder::new(output, options.compression)?,
            format: options.format,
            buffer: Vec::with_capacity(BLOCK_BYTES + LINE_BYTES_MAX),
            log_lines: LogLines::default(),
            records: 0,
            oracle: OracleTable::default(),
            oracle_records_max: options.oracle_records_max,
        };
        if options.format == OutputFormat::Csv {
            writer.buffer.extend_from_slice(b"time,key,size\n");
        }
        Ok(writer)
    }

    /// Writes a record.
    ///
    /// # Errors
    ///
    /// Fails if the format cannot represent the record, or if writing fails.
    pub fn write(&mut self, record: &Record) -> Result<(), WriteError> {
        match self.format {
            OutputFormat::Text => self.push_line(record, b' ', true),
            OutputFormat::Csv => self.push_line(record, b',', true),
            OutputFormat::Lrb => self.push_line(record, b' ', false),
            OutputFormat::Combined => self.log_lines.push(record, &mut self.buffer),
            OutputFormat::OracleGeneral => {
                if self.records >= self.oracle_records_max {
                    return Err(WriteError::TooManyRecords {
                        records_max: self.oracle_records_max,
                    });
                }
                self.oracle.push(record, self.records)?;
            }
        }
        self.records += 1;
        if self.buffer.len() >= BLOCK_BYTES {
            self.sink.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes buffered records, ends the compressed stream and returns the output.
    ///
    /// # Errors
    ///
    /// Fails if writing fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.sink.write_all(&self.buffer)?;
        for block in self.oracle.records.chunks(BLOCK_BYTES / ORACLE_BYTES) {
            self.sink.write_all(block.as_flattened())?;
        }
        Ok(self.sink.finish()?)
    }

    /// The number of records written so far.
    pub const fn records(&self) -> u64 {
        self.records
    }

    fn push_line(&mut self, record: &Record, separator: u8, with_millis: bool) {
        let mut digits = itoa::Buffer::new();
        let line = &mut self.buffer;
        line.extend_from_slice(digits.format(record.time.as_secs()).as_bytes());
        let millis = (record.time.as_millis() % 1000) as u32;
        if with_millis && millis != 0 {
            let digit = |unit: u32| b'0' + (millis / unit % 10) as u8;
            line.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
        }
        line.push(separator);
        line.extend_from_slice(digits.format(record.key).as_bytes());
        line.push(separator);
        line.extend_from_slice(digits.format(record.size).as_bytes());
        line.push(b'\n');
    }
}

/// The reason why writing a trace failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Writing to the output failed.
    #[error("writing the output failed")]
    Io(#[from] io::Error),
    /// A size does not fit the format.
    #[error(
        "record {record} has {size} bytes; oracleGeneral supports sizes below 2^32; \
         write text or csv"
    )]
    SizeTooLarge {
        /// The record, counted from 1.
        record: u64,
        /// The size of the record's object in bytes.
        size: u64,
    },
    /// A time does not fit the format.
    #[error(
        "record {record} is at {secs} s; oracleGeneral supports times below 2^32 s; if the \
         times of the trace are milliseconds or finer, read it with --time-unit"
    )]
    TimeTooLate {
        /// The record, counted from 1.
        record: u64,
        /// The time of the record in seconds.
        secs: u64,
    },
    /// The trace has more records than the limit.
    #[error(
        "the trace has more than {records_max} records; a writer of oracleGeneral keeps all \
         records in memory; write text or csv"
    )]
    TooManyRecords {
        /// The limit.
        records_max: u64,
    },
}

/// Records of oracleGeneral. The next access of a record is filled in at the next request for its object.
#[derive(Default)]
struct OracleTable {
    records: Vec<[u8; ORACLE_BYTES]>,
    /// The index of the last request for each object.
    latest: KeyMap<u64>,
}

impl OracleTable {
    fn push(&mut self, record: &Record, index: u64) -> Result<(), WriteError> {
        let number = index + 1;
        let secs = record.time.as_secs();
        let time = u32::try_from(secs).map_err(|_| WriteError::TimeTooLate {
            record: number,
            secs,
        })?;
        let size = u32::try_from(record.size).map_err(|_| WriteError::SizeTooLarge {
            record: number,
            size: record.size,
        })?;
        let mut bytes = [0; ORACLE_BYTES];
        bytes[..4].copy_from_slice(&time.to_le_bytes());
        bytes[4..12].copy_from_slice(&record.key.to_le_bytes());
        bytes[12..16].copy_from_slice(&size.to_le_bytes());
        bytes[16..].copy_from_slice(&(-1i64).to_le_bytes());
        self.records.push(bytes);
        if let Some(before) = self.latest.insert(record.key, index) {
            // libCacheSim counts requests from 1.
            let next = i64::try_from(number).expect("records that fit in memory fit 63 bits");
            self.records[before as usize][16..].copy_from_slice(&next.to_le_bytes());
        }
        Ok(())
    }
}

const ORACLE_BYTES: usize = 24;

/// The number of buffered bytes per write.
const BLOCK_BYTES: usize = 64 << 10;

/// The maximum length of a line. The longest lines are those of logs: three numbers of 20 digits and 250 bytes of text.
const LINE_BYTES_MAX: usize = 320;

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: names with no, one and both extensions, and a name that is only the extension of a compression.
    #[test]
    fn the_file_name_selects_format_and_compression() {
        for (name, format, compression) in [
            ("trace", OutputFormat::Text, Compression::None),
            ("a.txt.gz", OutputFormat::Text, Compression::Gzip),
            ("a.csv", OutputFormat::Csv, Compression::None),
            ("a.b.csv.zst", OutputFormat::Csv, Compression::Zstd),
            ("access.log.bz2", OutputFormat::Combined, Compression::Bzip2),
            (
                "t.oracleGeneral",
                OutputFormat::OracleGeneral,
                Compression::None,
            ),
            ("t.lrb.zstd", OutputFormat::Lrb, Compression::Zstd),
            (".gz", OutputFormat::Text, Compression::Gzip),
        ] {
            let options = WriteOptions::for_file_name(name);
            assert_eq!(
                (options.format, options.compression),
                (format, compression),
                "{name}"
            );
        }
    }
}
