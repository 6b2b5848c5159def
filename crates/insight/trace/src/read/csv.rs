//! Parses CSV (RFC 4180) with a header line, or with columns given by number.
//!
//! The first line determines the delimiter: a comma if the line contains one, otherwise a semicolon, otherwise a tab. A
//! field may be quoted, with `""` for a quote. Line feeds in quotes are not supported: keys, times and sizes have no
//! line feeds, and after an unclosed quote the rest of the file would be one field.
//!
//! The crate `csv-core` is not used, because it reads a line feed in quotes as data. It is also slower: it
//! takes 25 ns to split a record of three columns, and [`Fields`] takes 17 ns. With [`Fields`], reading a record takes
//! 54 ns in total (a million records, best of nine runs).

use std::str::FromStr;

use edgeward_types::Timestamp;

use crate::number;
use crate::{NO_TTL, Record, hash_key};

use super::error::{Problem, printable_excerpt};
use super::lines::{LineParser, SIZE_EXPECTED, bad_field, is_blank_or_comment, missing_field};
use super::options::TimeUnit;

/// The columns of a request. If the columns of time, key or size are not given, they are found by their usual names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The column of times.
    pub time: Option<Column>,
    /// The column of keys.
    pub key: Option<Column>,
    /// The column of sizes.
    pub size: Option<Column>,
    /// The column of lifetimes in seconds. `None` means that objects do not expire.
    pub ttl: Option<Column>,
    /// The column of the number of requests that a line stands for.
    pub count: Option<Column>,
}

/// A column by its name in the header or by its number from 1, or the statement that the trace has no such column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// The name, case-insensitive.
    Name(String),
    /// The number, from 1.
    Number(usize),
    /// The trace has no times.
    Absent,
}

impl FromStr for Columns {
    type Err = ParseColumnsError;

    /// Parses a list such as `time=ts,key=url,size=3`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut columns = Self::default();
        for part in text.split(',') {
            let error = |reason| ParseColumnsError {
                part: part.to_owned(),
                reason,
            };
            let (field, column) = part
                .split_once('=')
                .ok_or_else(|| error("has no `=`; write key=url"))?;
            let slot = match field.trim() {
                "time" => &mut columns.time,
                "key" => &mut columns.key,
                "size" => &mut columns.size,
                "ttl" => &mut columns.ttl,
                "count" => &mut columns.count,
                _ => return Err(error("names neither time, key, size, ttl nor count")),
            };
            let column = column.trim();
            let parsed = match column.parse() {
                Ok(0) => return Err(error("counts from 0; the first column is 1")),
                Ok(number) => Column::Number(number),
                Err(_) if column == "none" && field.trim() == "time" => Column::Absent,
                Err(_) if column.is_empty() => return Err(error("names no column")),
                Err(_) => Column::Name(column.to_owned()),
            };
            if slot.replace(parsed).is_some() {
                return Err(error("is given twice"));
            }
        }
        Ok(columns)
    }
}

/// The text is not a valid list of columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{part}` {reason}")]
pub struct ParseColumnsError {
    part: String,
    reason: &'static str,
}

/// Parses CSV lines. The column numbers of the fields are counted from 0.
pub(super) struct CsvParser {
    delimiter: u8,
    time_unit: TimeUnit,
    /// `None` if the trace has no times. The time of a request is then its number, in milliseconds.
    time: Option<usize>,
    key: usize,
    size: usize,
    ttl: Option<usize>,
    count: Option<usize>,
    /// The number of requests that the last line stands for.
    requests: u64,
    /// The number of lines with a record, for traces without times.
    lines: u64,
    /// The lifetimes of the records that were parsed since this list was last cleared; empty without a column of
    /// lifetimes.
    pub(super) ttls: Vec<u32>,
    /// The lifetime of the last record.
    last_ttl: u32,
}

impl CsvParser {
    /// Determines the columns from the first line that is not blank or a comment. Also returns true if this
    /// line is a header. The line is not a header if all columns are given by number and its size column is a
    /// number.
    pub(super) fn new(
        first: &[u8],
        columns: &Columns,
        time_unit: TimeUnit,
    ) -> Result<(Self, bool), Problem> {
        let delimiter = delimiter_of(first).unwrap_or(b',');
        let names: Vec<String> = Fields::new(first, delimiter)
            .map(|field| String::from_utf8_lossy(field.bytes.trim_ascii()).to_ascii_lowercase())
            .collect();
        let named = |name: &str| names.iter().position(|have| have == name);
        let find = |given: &Option<Column>, usual: &[&str]| match given {
            Some(Column::Number(number)) => Some(number - 1),
            Some(Column::Name(name)) => named(&name.to_ascii_lowercase()),
            Some(Column::Absent) => None,
            None => usual.iter().find_map(|name| named(name)),
        };
        let missing = |field| Problem::NoColumn {
            field,
            header: printable_excerpt(first.trim_ascii()),
        };
        let required = |field, given: &Option<Column>, usual: &[&str]| {
            find(given, usual).ok_or_else(|| missing(field))
        };
        let optional = |field, given: &Option<Column>, usual: &[&str]| match given {
            Some(Column::Name(_)) => required(field, given, usual).map(Some),
            _ => Ok(find(given, usual)),
        };
        let parser = Self {
            delimiter,
            time_unit,
            time: optional("time", &columns.time, &TIME_NAMES)?,
            key: required("key", &columns.key, &KEY_NAMES)?,
            size: required("size", &columns.size, &SIZE_NAMES)?,
            ttl: optional("ttl", &columns.ttl, &[])?,
            count: optional("count", &columns.count, &COUNT_NAMES)?,
            requests: 1,
            lines: 0,
            ttls: Vec::new(),
            last_ttl: NO_TTL,
        };
        let by_number = [&columns.time, &columns.key, &columns.size]
            .into_iter()
            .all(|column| matches!(column, Some(Column::Number(_) | Column::Absent)));
        let size_is_number = names
            .get(parser.size)
            .is_some_and(|field| number::whole(field.as_bytes()).is_some());
        Ok((parser, !(by_number && size_is_number)))
    }

    /// Returns true if the trace has a column of times.
    pub(super) const fn has_times(&self) -> bool {
        self.time.is_some()
    }
}

impl LineParser for CsvParser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, Problem> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (mut time, mut key, mut size, mut ttl, mut count) = (None, None, None, None, None);
        let optional = [self.time, self.ttl, self.count].into_iter().flatten();
        let last = optional.fold(self.key.max(self.size), usize::max);
        for (index, field) in Fields::new(line, self.delimiter).enumerate().take(last + 1) {
            // One column may be used for two fields, so all are compared.
            if Some(index) == self.time {
                time = Some(field);
            }
            if index == self.key {
                key = Some(field);
            }
            if index == self.size {
                size = Some(field);
            }
            if Some(index) == self.ttl {
                ttl = Some(field);
            }
            if Some(index) == self.count {
                count = Some(field);
            }
        }
        let key = key.ok_or_else(|| missing_field("key", line))?;
        let size = size.ok_or_else(|| missing_field("size", line))?.bytes;
        if key.unclosed {
            return Err(bad_field("key", key.bytes, "closed by a quote on its line"));
        }
        let size = size.trim_ascii();
        self.requests = match self.count {
            Some(_) => {
                let field = count.ok_or_else(|| missing_field("count", line))?;
                let field = field.bytes.trim_ascii();
                number::whole(field)
                    .filter(|count| *count <= COUNT_MAX)
                    .ok_or_else(|| bad_field("count", field, "a number of requests below 2^32"))?
            }
            None => 1,
        };
        let time = match self.time {
            Some(_) => {
                let field = time.ok_or_else(|| missing_field("time", line))?;
                let field = field.bytes.trim_ascii();
                number::time(field, self.time_unit)
                    .or_else(|| number::iso8601(field))
                    .ok_or_else(|| {
                        bad_field("time", field, "a number or an ISO 8601 date and time")
                    })?
            }
            None => Timestamp::from_millis(self.lines),
        };
        let ttl = match self.ttl {
            Some(_) => {
                let field = ttl.ok_or_else(|| missing_field("ttl", line))?;
                Some(lifetime(field.bytes.trim_ascii())?)
            }
            None => None,
        };
        let record = Record {
            time,
            key: if key.escaped {
                hash_key(&unescape(key.bytes))
            } else {
                number::key(key.bytes)
            },
            size: number::whole(size).ok_or_else(|| bad_field("size", size, SIZE_EXPECTED))?,
        };
        if self.requests == 0 {
            return Ok(None);
        }
        self.lines += 1;
        self.last_ttl = ttl.unwrap_or(NO_TTL);
        self.ttls.extend(ttl);
        Ok(Some(record))
    }

    fn requests(&self) -> u64 {
        self.requests
    }

    fn repeat(&mut self, count: usize) {
        if self.ttl.is_some() {
            let ttl = self.last_ttl;
            self.ttls.extend(std::iter::repeat_n(ttl, count));
        }
    }
}

/// Parses a lifetime in seconds. An empty field is [`NO_TTL`]. A lifetime of 136 years and more is the longest one.
fn lifetime(field: &[u8]) -> Result<u32, Problem> {
    if field.is_empty() {
        return Ok(NO_TTL);
    }
    let seconds = number::whole(field)
        .ok_or_else(|| bad_field("ttl", field, "a whole number of seconds, or empty"))?;
    Ok(u32::try_from(seconds).map_or(NO_TTL - 1, |seconds| seconds.min(NO_TTL - 1)))
}

/// Returns the delimiter of a line, if it has one.
pub(super) fn delimiter_of(line: &[u8]) -> Option<u8> {
    [b',', b';', b'\t']
        .into_iter()
        .find(|delimiter| line.contains(delimiter))
}

#[derive(Clone, Copy)]
struct Field<'l> {
    /// The text of the field without enclosing quotes.
    bytes: &'l [u8],
    /// True if the text contains `""`, which stands for one quote.
    escaped: bool,
    /// True if the closing quote is missing.
    unclosed: bool,
}

struct Fields<'l> {
    rest: Option<&'l [u8]>,
    delimiter: u8,
}

impl<'l> Fields<'l> {
    const fn new(line: &'l [u8], delimiter: u8) -> Self {
        Self {
            rest: Some(line),
            delimiter,
        }
    }
}

impl<'l> Iterator for Fields<'l> {
    type Item = Field<'l>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest?;
        let (bytes, after, escaped, unclosed) = match rest {
            [b'"', quoted @ ..] => {
                let (end, escaped) = closing_quote(quoted);
                let after = quoted.get(end + 1..).unwrap_or_default();
                (&quoted[..end], after, escaped, end == quoted.len())
            }
            _ => (&rest[..0], rest, false, false),
        };
        // A delimiter should follow a closing quote. Other text up to the delimiter is dropped.
        let end = memchr::memchr(self.delimiter, after);
        self.rest = end.map(|end| &after[end + 1..]);
        let bytes = if rest.first() == Some(&b'"') {
            bytes
        } else {
            &after[..end.unwrap_or(after.len())]
        };
        Some(Field {
            bytes,
            escaped,
            unclosed,
        })
    }
}

/// Returns the position of the closing quote (or the end of the text if it is missing), and true if the field
/// contains `""`.
fn closing_quote(quoted: &[u8]) -> (usize, bool) {
    let (mut at, mut escaped) = (0, false);
    while let Some(found) = memchr::memchr(b'"', &quoted[at..]) {
        at += found;
        if quoted.get(at + 1) != Some(&b'"') {
            return (at, escaped);
        }
        escaped = true;
        at += 2;
    }
    (quoted.len(), escaped)
}

fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut bytes = bytes.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(byte);
        if byte == b'"' {
            bytes.next();
        }
    }
    plain
}

/// Usual names of the columns, the most specific first.
const TIME_NAMES: [&str; 11] = [
    "time",
    "timestamp",
    "ts",
    "clock_time",
    "real_time",
    "datetime",
    "date",
    "@timestamp",
    "start_time",
    "op_time",
    "relative_unix",
];
const KEY_NAMES: [&str; 15] = [
    "key",
    "id",
    "obj_id",
    "object_id",
    "objid",
    "object",
    "cache_key",
    "url",
    "uri",
    "request_uri",
    "path",
    "obj",
    "cachekey",
    "hashed_path_query",
    "hashed_host_path_query",
];
/// The number of requests that a line stands for.
const COUNT_NAMES: [&str; 1] = ["op_count"];

/// The highest number of requests of a line. A trace with more would be read for hours.
const COUNT_MAX: u64 = u32::MAX as u64;

const SIZE_NAMES: [&str; 11] = [
    "size",
    "obj_size",
    "object_size",
    "size_bytes",
    "objectsize",
    "bytes",
    "response_size",
    "bytes_sent",
    "body_bytes_sent",
    "content_length",
    "length",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Vec<String> {
        Fields::new(line.as_bytes(), b',')
            .map(|field| String::from_utf8(unescape(field.bytes)).expect("the text is ASCII"))
            .collect()
    }

    #[test]
    fn fields_are_split_as_in_rfc_4180() {
        assert_eq!(fields("a,b,c"), ["a", "b", "c"]);
        assert_eq!(fields(""), [""]);
        assert_eq!(fields(",,"), ["", "", ""]);
        assert_eq!(fields(r#""a,b",c"#), ["a,b", "c"]);
        assert_eq!(fields(r#""say ""hi""",2"#), [r#"say "hi""#, "2"]);
        assert_eq!(fields("\","), [","]);
    }

    fn records(text: &str, columns: &str) -> Vec<(u64, u64)> {
        let mut options = crate::ReadOptions::named("text");
        options.columns = columns.parse().unwrap_or_default();
        let reader = crate::open(text.as_bytes(), options).expect("the text is CSV");
        reader
            .map(|record| record.expect("the lines are well-formed"))
            .map(|record| (record.time.as_millis(), record.size))
            .collect()
    }

    #[test]
    fn a_line_stands_for_the_number_of_requests_in_its_column() {
        let text = "op_time,key,op,op_count,size\n5,a,GET,3,10\n6,b,SET,0,20\n7,c,GET,1,30\n";
        assert_eq!(
            records(text, ""),
            [(5000, 10), (5000, 10), (5000, 10), (7000, 30)]
        );
        let many = records("time,key,size,op_count\n1,a,2,5000\n2,b,3,1\n", "");
        assert_eq!(
            (many.len(), many[4999], many[5000]),
            (5001, (1000, 2), (2000, 3))
        );
        let named = records("1,a,2,2\n", "time=1,key=2,size=3,count=4");
        assert_eq!(named, [(1000, 2), (1000, 2)]);
        for bad in ["x", "-1", "4294967296", ""] {
            let text = format!("time,key,size,op_count\n1,a,2,{bad}\n");
            let mut reader = crate::open(text.as_bytes(), crate::ReadOptions::named("text"))
                .expect("the header is valid");
            assert!(reader.next().is_some_and(|record| record.is_err()), "{bad}");
        }
    }

    #[test]
    fn the_time_of_a_request_without_a_time_is_its_number() {
        for (text, columns) in [
            ("key,size\na,5\nb,6\na,5\n", ""),
            ("key,size,when\na,5,x\nb,6,y\na,5,z\n", ""),
            ("key,size,time\na,5,x\nb,6,y\na,5,z\n", "time=none"),
            ("a,5\nb,6\na,5\n", "time=none,key=1,size=2"),
        ] {
            assert_eq!(records(text, columns), [(0, 5), (1, 6), (2, 5)], "{text}");
        }
    }

    #[test]
    fn a_repeated_request_has_its_lifetime_each_time() {
        let mut options = crate::ReadOptions::named("text");
        options.columns = "ttl=ttl".parse().expect("the columns are valid");
        let text = "time,key,size,op_count,ttl\n1,a,2,1500,60\n2,b,3,2,\n";
        let mut reader = crate::open(text.as_bytes(), options).expect("the header is valid");
        let (mut requests, mut lifetimes) = (0, Vec::new());
        while let Some(batch) = reader
            .next_batch_with_ttls()
            .expect("the lines are well-formed")
        {
            assert_eq!(batch.records.len(), batch.ttls.len());
            requests += batch.records.len();
            lifetimes.extend_from_slice(batch.ttls);
        }
        assert_eq!(requests, 1502);
        assert_eq!(
            (lifetimes[0], lifetimes[1499], lifetimes[1501]),
            (60, 60, NO_TTL)
        );
    }

    #[test]
    fn column_options_are_parsed() {
        let columns: Columns = "time=ts, key=url,size=3"
            .parse()
            .expect("the input is valid");
        assert_eq!(columns.time, Some(Column::Name("ts".to_owned())));
        assert_eq!(columns.key, Some(Column::Name("url".to_owned())));
        assert_eq!((columns.size, columns.ttl), (Some(Column::Number(3)), None));
        let with_ttl: Columns = "ttl=max_age".parse().expect("the input is valid");
        assert_eq!(with_ttl.ttl, Some(Column::Name("max_age".to_owned())));
        for (bad, reason) in [
            ("", "no `=`"),
            ("key", "no `=`"),
            ("colour=red", "neither time, key, size, ttl nor count"),
            ("key=0", "from 0"),
            ("key=", "no column"),
            ("key=a,key=b", "twice"),
        ] {
            let message = bad.parse::<Columns>().expect_err(bad).to_string();
            assert!(message.contains(reason), "{bad}: {message}");
        }
    }
}
