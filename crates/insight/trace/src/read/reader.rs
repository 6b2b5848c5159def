//! The reader: decompresses, recognises the format and returns records in batches.

use std::io::Read;

use crate::compression::Decoder;
use crate::{Compression, Format, Record};

use super::access_log::AccessLogParser;
use super::buffer::Buffer;
use super::csv::CsvParser;
use super::detect::detect;
use super::error::{Position, Problem, ReadError};
use super::json_log::JsonLogParser;
use super::lcs::{self, LcsRecords};
use super::lines::{LineParser, is_blank_or_comment};
use super::options::{OnError, ReadOptions};
use super::oracle;
use super::text::{LrbParser, TextParser};

/// Opens an input. Recognises its compression, and its format unless the options state it.
///
/// # Errors
///
/// Fails if the input is empty, its compression or format is not supported, or a column is missing in the
/// header of a CSV file. An empty input is no error if the options state a format other than CSV.
pub fn open<'a>(
    input: impl Read + Send + 'a,
    options: ReadOptions,
) -> Result<Reader<'a>, ReadError> {
    Reader::open(Box::new(input), options)
}

/// Reads records one by one, as an iterator, or in batches.
///
/// An error ends the reading. The reader returns all records before the position of the error first.
pub struct Reader<'a> {
    options: ReadOptions,
    compression: Compression,
    format: Format,
    input: Decoder<'a>,
    buffer: Buffer,
    parser: Parser,
    lines: Lines,
    batch: Vec<Record>,
    /// The number of records of `batch` that were returned.
    returned: usize,
    /// The error to return after the records of `batch`.
    failure: Option<ReadError>,
    /// True after the end of the input or an error.
    finished: bool,
    /// The number of records read so far, including those of `batch`.
    records: u64,
}

/// Records with the lifetimes of their objects.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'b> {
    /// The records, at least one.
    pub records: &'b [Record],
    /// For each record the lifetime of its object in seconds; [`NO_TTL`](crate::NO_TTL) if the object does not expire.
    /// Empty if the options name no column of lifetimes.
    pub ttls: &'b [u32],
}

/// Malformed lines that were skipped.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// The number of skipped lines.
    pub lines: u64,
    /// The error messages of the first skipped lines, at most five.
    pub examples: Vec<String>,
}

enum Parser {
    Text(TextParser),
    Csv(CsvParser),
    Oracle,
    Lcs(LcsRecords),
    Lrb(LrbParser),
    AccessLog(AccessLogParser),
    JsonLog(JsonLogParser),
}

impl<'a> Reader<'a> {
    fn open(input: Box<dyn Read + Send + 'a>, options: ReadOptions) -> Result<Self, ReadError> {
        let error = |problem| ReadError::new(&options.label, Position::Whole, problem);
        let mut input = Decoder::open(input, options.limits.zstd_window_log_max).map_err(error)?;
        let compression = input.compression();
        let mut buffer = Buffer::new();
        while !buffer.ended() && buffer.filled().len() < SAMPLE_BYTES {
            buffer.fill(&mut input);
        }
        if buffer.filled().is_empty()
            && let Some(failure) = buffer.take_failure()
        {
            return Err(ReadError::new(
                &options.label,
                Position::Byte(0),
                input.problem_of(failure),
            ));
        }
        if buffer.filled().starts_with(UTF8_BOM) {
            buffer.consume(UTF8_BOM.len());
        }
        let format = match options.format {
            Some(format) => format,
            None => detect(buffer.filled(), buffer.ended(), &options).map_err(error)?,
        };
        let mut reader = Self {
            compression,
            format,
            input,
            buffer,
            // Replaced below, because the parser of CSV needs a reader.
            parser: Parser::Oracle,
            lines: Lines::new(),
            batch: Vec::with_capacity(BATCH_RECORDS),
            returned: 0,
            failure: None,
            finished: false,
            records: 0,
            options,
        };
        reader.parser = match format {
            Format::Text => Parser::Text(TextParser {
                time_unit: reader.options.time_unit,
            }),
            Format::Lrb => Parser::Lrb(LrbParser {
                time_unit: reader.options.time_unit,
            }),
            Format::Ncsa => {
                Parser::AccessLog(AccessLogParser::new(reader.options.access_log.clone()))
            }
            Format::Json => Parser::JsonLog(JsonLogParser::new(reader.options.access_log.clone())),
            Format::OracleGeneral => Parser::Oracle,
            Format::Lcs => Parser::Lcs(reader.read_lcs_header()?),
            Format::Csv => Parser::Csv(reader.learn_columns()?),
        };
        Ok(reader)
    }

    /// The format of the input.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The compression of the input.
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns false if the trace has no times. The time of a record is then its number.
    pub const fn has_times(&self) -> bool {
        match &self.parser {
            Parser::Csv(parser) => parser.has_times(),
            _ => true,
        }
    }

    /// The number of records read so far, including up to 1023 that the iterator has not returned yet.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// The number of lines that are not requests: blank lines, comments, and lines that the options
    /// exclude.
    pub const fn ignored_lines(&self) -> u64 {
        self.lines.ignored
    }

    /// Returns the malformed lines skipped so far.
    pub const fn skipped(&self) -> &Skipped {
        &self.lines.skipped
    }

    /// Returns the next records, at least one, or `None` at the end of the input. This function is faster than
    /// the iterator; calls of both may be mixed.
    ///
    /// # Errors
    ///
    /// Fails at the first malformed line if the options have [`OnError::Fail`], and at the position at which
    /// the input is truncated or corrupt.
    pub fn next_batch(&mut self) -> Result<Option<&[Record]>, ReadError> {
        let batch = self.next_batch_with_ttls()?;
        Ok(batch.map(|batch| batch.records))
    }

    /// Returns the next records as [`next_batch`](Self::next_batch), with the lifetimes of their objects.
    ///
    /// # Errors
    ///
    /// Fails like `next_batch`.
    pub fn next_batch_with_ttls(&mut self) -> Result<Option<Batch<'_>>, ReadError> {
        if self.returned == self.batch.len() {
            self.refill();
        }
        let rest = self.returned;
        self.returned = self.batch.len();
        if rest < self.batch.len() {
            let ttls: &[u32] = match &self.parser {
                Parser::Csv(parser) => parser.ttls.get(rest..).unwrap_or_default(),
                _ => &[],
            };
            let records = &self.batch[rest..];
            return Ok(Some(Batch { records, ttls }));
        }
        self.failure.take().map_or(Ok(None), Err)
    }

    fn refill(&mut self) {
        self.batch.clear();
        if let Parser::Csv(parser) = &mut self.parser {
            parser.ttls.clear();
        }
        self.returned = 0;
        while self.batch.is_empty() && !self.finished {
            if let Err(error) = self.take() {
                self.finished = true;
                self.failure = Some(error);
            } else if self.batch.is_empty() {
                self.advance();
            }
        }
        self.records += self.batch.len() as u64;
    }

    /// Moves the complete lines or records of the buffer into the batch.
    fn take(&mut self) -> Result<(), ReadError> {
        let Self {
            options,
            buffer,
            parser,
            lines,
            batch,
            ..
        } = self;
        match parser {
            Parser::Text(parser) => lines.take_records(parser, buffer, batch, options),
            Parser::Csv(parser) => lines.take_records(parser, buffer, batch, options),
            Parser::Lrb(parser) => lines.take_records(parser, buffer, batch, options),
            Parser::AccessLog(parser) => lines.take_records(parser, buffer, batch, options),
            Parser::JsonLog(parser) => lines.take_records(parser, buffer, batch, options),
            Parser::Oracle => {
                take_oracle(buffer, batch);
                Ok(())
            }
            Parser::Lcs(records) => {
                let chunks = buffer
                    .filled()
                    .chunks_exact(records.record_bytes)
                    .take(BATCH_RECORDS);
                batch.extend(chunks.map(|bytes| records.decode(bytes)));
                buffer.consume(batch.len() * records.record_bytes);
                Ok(())
            }
        }
    }

    /// Reads more bytes, or finishes at the end of the input. The caller has consumed all complete lines or records.
    fn advance(&mut self) {
        if !self.buffer.ended() {
            if self.record_bytes().is_none()
                && let Err(error) = self.lines.bound_line(&mut self.buffer, &self.options)
            {
                self.finished = true;
                self.failure = Some(error);
                return;
            }
            self.buffer.fill(&mut self.input);
            return;
        }
        self.finished = true;
        let at = self.buffer.offset();
        let bytes_left = self.buffer.filled().len();
        // If the input failed, this failure is the cause of an incomplete last record, and is reported instead.
        if let Some(failure) = self.buffer.take_failure() {
            let position = Position::Byte(at + bytes_left as u64);
            self.failure = Some(ReadError::new(
                &self.options.label,
                position,
                self.input.problem_of(failure),
            ));
        } else if bytes_left > 0
            && let Some(record_bytes) = self.record_bytes()
        {
            self.failure = Some(ReadError::new(
                &self.options.label,
                Position::Byte(at),
                Problem::RecordTruncated {
                    present_bytes: bytes_left,
                    record_bytes,
                },
            ));
        }
    }

    /// The length of a record of a binary format.
    const fn record_bytes(&self) -> Option<usize> {
        match &self.parser {
            Parser::Oracle => Some(oracle::RECORD_BYTES),
            Parser::Lcs(records) => Some(records.record_bytes),
            _ => None,
        }
    }

    /// Reads the header of an LCS trace. The buffer has it, unless the input is shorter.
    fn read_lcs_header(&mut self) -> Result<LcsRecords, ReadError> {
        let filled = self.buffer.filled();
        let records = LcsRecords::from_header(filled).map_err(|reason| {
            let problem = Problem::Unrecognised {
                beginning: format!("it is not LCS because {reason}"),
            };
            ReadError::new(&self.options.label, Position::Whole, problem)
        })?;
        self.buffer.consume(lcs::HEADER_BYTES);
        Ok(records)
    }

    /// Reads the columns of a CSV file from the first line that is not blank or a comment.
    fn learn_columns(&mut self) -> Result<CsvParser, ReadError> {
        let Self {
            options,
            input,
            buffer,
            lines,
            ..
        } = self;
        loop {
            let last_is_whole = buffer.ended() && !buffer.failed();
            let filled = buffer.filled();
            let end = memchr::memchr(b'\n', filled)
                .or_else(|| (last_is_whole && !filled.is_empty()).then_some(filled.len()));
            let Some(end) = end else {
                // Until the columns are known, a line that is too long is an error even if malformed lines are skipped.
                lines.bound_line(
                    buffer,
                    &ReadOptions {
                        on_error: OnError::Fail,
                        ..options.clone()
                    },
                )?;
                if buffer.ended() {
                    let problem = buffer
                        .take_failure()
                        .map_or(Problem::Empty, |failure| input.problem_of(failure));
                    return Err(ReadError::new(&options.label, Position::Whole, problem));
                }
                buffer.fill(input);
                continue;
            };
            let first = &filled[..end];
            let line_bytes = (end + 1).min(filled.len());
            if is_blank_or_comment(first) {
                lines.ignored += 1;
            } else {
                let position = lines.position(buffer.offset());
                let (parser, is_header) =
                    CsvParser::new(first, &options.columns, options.time_unit)
                        .map_err(|problem| ReadError::new(&options.label, position, problem))?;
                if is_header {
                    buffer.consume(line_bytes);
                    lines.number += 1;
                }
                return Ok(parser);
            }
            buffer.consume(line_bytes);
            lines.number += 1;
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Record, ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.returned == self.batch.len() {
            self.refill();
        }
        if let Some(record) = self.batch.get(self.returned) {
            self.returned += 1;
            return Some(Ok(*record));
        }
        self.failure.take().map(Err)
    }
}

/// The current line number, and counts of the lines without a record.
struct Lines {
    /// The number of the next line, counted from 1.
    number: u64,
    /// True while the rest of a line above the length limit is skipped.
    inside_long_line: bool,
    ignored: u64,
    skipped: Skipped,
    /// The record of the last line, and how many further times it is returned.
    pending: Option<(Record, u64)>,
}

impl Lines {
    const fn new() -> Self {
        Self {
            number: 1,
            inside_long_line: false,
            ignored: 0,
            skipped: Skipped {
                lines: 0,
                examples: Vec::new(),
            },
            pending: None,
        }
    }

    const fn position(&self, byte: u64) -> Position {
        Position::Line {
            number: self.number,
            byte,
        }
    }

    /// Parses the complete lines in the buffer and appends their records to `batch`, until the batch is full.
    fn take_records<P: LineParser>(
        &mut self,
        parser: &mut P,
        buffer: &mut Buffer,
        batch: &mut Vec<Record>,
        options: &ReadOptions,
    ) -> Result<(), ReadError> {
        self.repeat_pending(parser, batch);
        let filled = buffer.filled();
        // The last line may end without a line feed, unless an error truncated the input.
        let last_is_whole = buffer.ended() && !buffer.failed();
        let mut at = 0;
        let mut outcome = Ok(());
        while batch.len() < BATCH_RECORDS && at < filled.len() {
            let rest = &filled[at..];
            let (line, next) = match memchr::memchr(b'\n', rest) {
                Some(end) => (&rest[..end], at + end + 1),
                None if last_is_whole => (rest, filled.len()),
                None => break,
            };
            if self.inside_long_line {
                self.inside_long_line = false;
                self.number += 1;
                at = next;
                continue;
            }
            let parsed = if line.len() > options.limits.line_bytes_max {
                Err(Problem::LineTooLong {
                    line_bytes_max: options.limits.line_bytes_max,
                })
            } else {
                parser.parse(line)
            };
            match parsed {
                Ok(Some(record)) => {
                    batch.push(record);
                    let requests = parser.requests();
                    if requests > 1 {
                        self.pending = Some((record, requests - 1));
                        self.repeat_pending(parser, batch);
                    }
                }
                Ok(None) => self.ignored += 1,
                Err(problem) => {
                    let position = self.position(buffer.offset() + at as u64);
                    outcome =
                        self.malformed(ReadError::new(&options.label, position, problem), options);
                    if outcome.is_err() {
                        break;
                    }
                }
            }
            self.number += 1;
            at = next;
        }
        buffer.consume(at);
        outcome
    }

    /// Appends the record of the last line again, until the batch is full.
    fn repeat_pending<P: LineParser>(&mut self, parser: &mut P, batch: &mut Vec<Record>) {
        let Some((record, remaining)) = self.pending.take() else {
            return;
        };
        let space = BATCH_RECORDS.saturating_sub(batch.len());
        let count = usize::try_from(remaining).map_or(space, |remaining| remaining.min(space));
        batch.extend(std::iter::repeat_n(record, count));
        parser.repeat(count);
        let remaining = remaining - count as u64;
        self.pending = (remaining > 0).then_some((record, remaining));
    }

    /// Refuses a line above the length limit, and skips the part of the line that is in the buffer. Called when
    /// the buffer has the beginning of a line but not its end.
    fn bound_line(&mut self, buffer: &mut Buffer, options: &ReadOptions) -> Result<(), ReadError> {
        let bytes_left = buffer.filled().len();
        let line_bytes_max = options.limits.line_bytes_max;
        if bytes_left <= line_bytes_max {
            return Ok(());
        }
        if !self.inside_long_line {
            let position = self.position(buffer.offset());
            let problem = Problem::LineTooLong { line_bytes_max };
            self.malformed(ReadError::new(&options.label, position, problem), options)?;
            self.inside_long_line = true;
        }
        buffer.consume(bytes_left);
        Ok(())
    }

    #[cold]
    fn malformed(&mut self, error: ReadError, options: &ReadOptions) -> Result<(), ReadError> {
        match options.on_error {
            OnError::Fail => Err(error),
            OnError::Skip => {
                self.skipped.lines += 1;
                if self.skipped.examples.len() < SKIPPED_EXAMPLES_MAX {
                    self.skipped.examples.push(error.to_string());
                }
                Ok(())
            }
        }
    }
}

fn take_oracle(buffer: &mut Buffer, batch: &mut Vec<Record>) {
    let (records, _) = buffer.filled().as_chunks::<{ oracle::RECORD_BYTES }>();
    let count = records.len().min(BATCH_RECORDS);
    batch.extend(records[..count].iter().map(oracle::decode));
    buffer.consume(count * oracle::RECORD_BYTES);
}

/// The number of bytes that are read to recognise a format. They have a few hundred lines, or one very long line.
const SAMPLE_BYTES: usize = 64 << 10;

/// The number of records in a batch, which takes 24 KiB. A batch is large enough to amortise the time of a
/// refill, and small enough for the first-level cache of the processor.
const BATCH_RECORDS: usize = 1024;

const SKIPPED_EXAMPLES_MAX: usize = 5;

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";
