//! The reader: compression off, format settled, records out in batches.

use std::io::Read;

use crate::compression::Decoder;
use crate::{Compression, Format, Record};

use super::access_log::AccessLogParser;
use super::buffer::Buffer;
use super::csv::CsvParser;
use super::detect::detect;
use super::error::{Place, Problem, ReadError};
use super::lines::{LineParser, is_void};
use super::options::{OnError, ReadOptions};
use super::oracle;
use super::text::{LrbParser, TextParser};

/// Opens an input: recognises its compression, and its format unless that is given.
///
/// # Errors
///
/// If the input is empty, compressed in a way that is not read, of no known format, or a CSV
/// whose header lacks a column. With the format given, an empty input holds no records.
pub fn open<'a>(
    input: impl Read + Send + 'a,
    options: ReadOptions,
) -> Result<Reader<'a>, ReadError> {
    Reader::open(Box::new(input), options)
}

/// Records out of an input: an iterator, or a batch at a time.
///
/// After an error there is nothing more; all records before the place of the error were
/// handed out before it.
pub struct Reader<'a> {
    options: ReadOptions,
    compression: Compression,
    format: Format,
    input: Decoder<'a>,
    buffer: Buffer,
    parser: Parser,
    lines: Lines,
    batch: Vec<Record>,
    /// How many of `batch` the iterator has given away.
    given: usize,
    /// The error that follows `batch`.
    failure: Option<ReadError>,
    /// No more batches, whether from an end or an error.
    finished: bool,
    records: u64,
}

/// Lines left out because they were malformed.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// How many.
    pub lines: u64,
    /// The first few, each as it would have been reported.
    pub examples: Vec<String>,
}

enum Parser {
    Text(TextParser),
    Csv(CsvParser),
    Oracle,
    Lrb(LrbParser),
    AccessLog(AccessLogParser),
}

impl<'a> Reader<'a> {
    fn open(input: Box<dyn Read + Send + 'a>, options: ReadOptions) -> Result<Self, ReadError> {
        let error = |problem| ReadError::new(&options.label, Place::Whole, problem);
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
                Place::Byte(0),
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
            parser: Parser::Oracle,
            lines: Lines::new(),
            batch: Vec::with_capacity(BATCH_RECORDS),
            given: 0,
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
            Format::OracleGeneral => Parser::Oracle,
            Format::Csv => Parser::Csv(reader.learn_columns()?),
        };
        Ok(reader)
    }

    /// The format being read.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The compression found around it.
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Records read so far.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Lines that are no requests: blank, comments, or ruled out by the options.
    pub const fn passed_over(&self) -> u64 {
        self.lines.passed_over
    }

    /// Malformed lines left out so far.
    pub const fn skipped(&self) -> &Skipped {
        &self.lines.skipped
    }

    /// The next records, at least one, or nothing at the end. Faster than the iterator when
    /// every nanosecond counts; the two may be mixed.
    ///
    /// # Errors
    ///
    /// At the first malformed line under [`OnError::Fail`], and where the input breaks off.
    pub fn next_batch(&mut self) -> Result<Option<&[Record]>, ReadError> {
        if self.given == self.batch.len() {
            self.refill();
        }
        let rest = self.given;
        self.given = self.batch.len();
        if rest < self.batch.len() {
            return Ok(Some(&self.batch[rest..]));
        }
        self.failure.take().map_or(Ok(None), Err)
    }

    fn refill(&mut self) {
        self.batch.clear();
        self.given = 0;
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

    /// Moves what whole lines or records the buffer holds into the batch.
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
            Parser::Text(parser) => lines.take(parser, buffer, batch, options),
            Parser::Csv(parser) => lines.take(parser, buffer, batch, options),
            Parser::Lrb(parser) => lines.take(parser, buffer, batch, options),
            Parser::AccessLog(parser) => lines.take(parser, buffer, batch, options),
            Parser::Oracle => {
                take_oracle(buffer, batch);
                Ok(())
            }
        }
    }

    /// Reads on, or comes to the end. Called when no whole line or record is left.
    fn advance(&mut self) {
        if !self.buffer.ended() {
            if self.format != Format::OracleGeneral
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
        let left = self.buffer.filled().len();
        // The first thing wrong is the stream breaking off; that it broke off within a
        // record follows from it.
        if let Some(failure) = self.buffer.take_failure() {
            let place = Place::Byte(at + left as u64);
            self.failure = Some(ReadError::new(
                &self.options.label,
                place,
                self.input.problem_of(failure),
            ));
        } else if left > 0 && self.format == Format::OracleGeneral {
            self.failure = Some(ReadError::new(
                &self.options.label,
                Place::Byte(at),
                Problem::RecordCutShort {
                    have: left,
                    need: oracle::RECORD_BYTES,
                },
            ));
        }
    }

    /// Lets the first line that is not void say where a CSV's fields are.
    fn learn_columns(&mut self) -> Result<CsvParser, ReadError> {
        let Self {
            options,
            input,
            buffer,
            lines,
            ..
        } = self;
        loop {
            let whole = buffer.ended() && !buffer.failed();
            let filled = buffer.filled();
            let end = memchr::memchr(b'\n', filled)
                .or_else(|| (whole && !filled.is_empty()).then_some(filled.len()));
            let Some(end) = end else {
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
                    return Err(ReadError::new(&options.label, Place::Whole, problem));
                }
                buffer.fill(input);
                continue;
            };
            let first = &filled[..end];
            let line_bytes = (end + 1).min(filled.len());
            if is_void(first) {
                lines.passed_over += 1;
            } else {
                let place = lines.place(buffer.offset());
                let (parser, is_header) =
                    CsvParser::new(first, &options.columns, options.time_unit)
                        .map_err(|problem| ReadError::new(&options.label, place, problem))?;
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
        if self.given == self.batch.len() {
            self.refill();
        }
        if let Some(record) = self.batch.get(self.given) {
            self.given += 1;
            return Some(Ok(*record));
        }
        self.failure.take().map(Err)
    }
}

/// Where in the lines of the input we are, and what became of those that gave no record.
struct Lines {
    /// The line about to be parsed, counted from 1.
    number: u64,
    /// What comes is the rest of an overlong line that is being left out.
    inside_long_line: bool,
    passed_over: u64,
    skipped: Skipped,
}

impl Lines {
    const fn new() -> Self {
        Self {
            number: 1,
            inside_long_line: false,
            passed_over: 0,
            skipped: Skipped {
                lines: 0,
                examples: Vec::new(),
            },
        }
    }

    const fn place(&self, byte: u64) -> Place {
        Place::Line {
            number: self.number,
            byte,
        }
    }

    fn take<P: LineParser>(
        &mut self,
        parser: &mut P,
        buffer: &mut Buffer,
        batch: &mut Vec<Record>,
        options: &ReadOptions,
    ) -> Result<(), ReadError> {
        let filled = buffer.filled();
        // The last line needs no line feed, unless it was cut by a failure.
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
                Ok(Some(record)) => batch.push(record),
                Ok(None) => self.passed_over += 1,
                Err(problem) => {
                    let place = self.place(buffer.offset() + at as u64);
                    outcome =
                        self.malformed(ReadError::new(&options.label, place, problem), options);
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

    /// Called when the buffer holds the beginning of a line and not its end: refuses to let
    /// that grow past the bound.
    fn bound_line(&mut self, buffer: &mut Buffer, options: &ReadOptions) -> Result<(), ReadError> {
        let left = buffer.filled().len();
        let line_bytes_max = options.limits.line_bytes_max;
        if left <= line_bytes_max {
            return Ok(());
        }
        if !self.inside_long_line {
            let place = self.place(buffer.offset());
            let problem = Problem::LineTooLong { line_bytes_max };
            self.malformed(ReadError::new(&options.label, place, problem), options)?;
            self.inside_long_line = true;
        }
        buffer.consume(left);
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

/// What is looked at to recognise a format: a few hundred lines, or one very long one.
const SAMPLE_BYTES: usize = 64 << 10;

/// 24 KiB of records: large enough to spread the cost of a refill, small enough for the
/// first-level cache.
const BATCH_RECORDS: usize = 1024;

const SKIPPED_EXAMPLES_MAX: usize = 5;

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";
