//! JSON lines of edgeward, Caddy, Envoy, Fastly, and of other programs with common or configured field names.
//!
//! A line is parsed once, and its values are borrowed; only strings with escapes are copied. The name of a
//! nested field is its path (`request.uri`). If a field has a list, its first value counts
//! (`resp_headers.Content-Type`).

use std::fmt;
use std::ops::Range;

use crate::clock::Clock;
use crate::{Entry, MalformedLine};

use super::fields::{Field, LineFields};
use super::is_blank_or_comment;

/// The names of the fields, the preferred name of each field first.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldNames(Vec<(Field, Box<[u8]>)>);

/// Prints the text that checkpoints of an analysis contain. The text must not change, so it has `Names`, the former
/// name of the type.
impl fmt::Debug for FieldNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Names").field(&self.0).finish()
    }
}

impl Default for FieldNames {
    fn default() -> Self {
        Self::with_custom([])
    }
}

impl FieldNames {
    /// Returns names that take precedence over the default names, followed by the default names.
    pub fn with_custom(custom: impl IntoIterator<Item = (Field, String)>) -> Self {
        let custom = custom
            .into_iter()
            .map(|(field, name)| (field, name.into_bytes().into()));
        let common = COMMON_NAMES.iter().flat_map(|(field, names)| {
            names
                .split(' ')
                .map(|name| (*field, name.as_bytes().into()))
        });
        Self(custom.chain(common).collect())
    }
}

#[derive(Clone, Debug)]
pub(super) struct JsonParser {
    names: FieldNames,
    clock: Clock,
    state: State,
    /// A buffer for a URL that is made of path and query.
    joined: Vec<u8>,
}

/// The values found in a line.
#[derive(Clone, Debug, Default)]
struct State {
    /// The path of the current value.
    path: Vec<u8>,
    /// Strings with escapes, unescaped.
    unescaped: Vec<u8>,
    /// For each field that was found: the index of its name in [`FieldNames`], called rank, and the location of its
    /// value. A name of lower rank is preferred.
    locations: Vec<(Field, usize, ValueLocation)>,
}

/// The range of a value in the line or in [`State::unescaped`].
#[derive(Clone, Debug)]
enum ValueLocation {
    Line(Range<usize>),
    Unescaped(Range<usize>),
}

impl JsonParser {
    pub(super) fn new(names: FieldNames) -> Self {
        Self {
            names,
            clock: Clock::default(),
            state: State::default(),
            joined: Vec::new(),
        }
    }

    pub(super) fn parse<'a>(
        &'a mut self,
        line: &'a [u8],
    ) -> Result<Option<Entry<'a>>, MalformedLine> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let no_object = MalformedLine::not("line", "a JSON object");
        // In a log that Fastly sends by syslog, a syslog header precedes the object.
        let begin = memchr::memchr(b'{', &line[..line.len().min(HEADER_BYTES_MAX)]);
        let line = &line[begin.ok_or(no_object)?..];
        self.state.path.clear();
        self.state.unescaped.clear();
        self.state.locations.clear();
        let mut walker = JsonWalker {
            line,
            at: 0,
            names: &self.names,
            state: &mut self.state,
        };
        walker.value(0).ok_or(no_object)?;
        walker.skip_blanks();
        if walker.at != line.len() {
            return Err(no_object);
        }
        let mut fields = LineFields::default();
        for (field, _, location) in &self.state.locations {
            fields.set(
                *field,
                match location {
                    ValueLocation::Line(range) => &line[range.clone()],
                    ValueLocation::Unescaped(range) => &self.state.unescaped[range.clone()],
                },
            );
        }
        fields.entry(&mut self.clock, &mut self.joined)
    }
}

/// Parses one line. A method that returns `Option` returns `None` if the line is not valid JSON or if its values are
/// nested too deeply.
struct JsonWalker<'w> {
    line: &'w [u8],
    at: usize,
    names: &'w FieldNames,
    state: &'w mut State,
}

impl JsonWalker<'_> {
    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip_blanks();
        match *self.line.get(self.at)? {
            b'{' if depth < DEPTH_MAX => self.object(depth),
            b'[' if depth < DEPTH_MAX => self.list(depth),
            b'"' => {
                let location = self.string()?;
                self.store_value(location);
                Some(())
            }
            _ => {
                let begin = self.at;
                while let Some(byte) = self.line.get(self.at)
                    && (byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'))
                {
                    self.at += 1;
                }
                let word = &self.line[begin..self.at];
                match word {
                    b"" => return None,
                    b"null" | b"true" | b"false" => {}
                    _ if !(word[0].is_ascii_digit() || word[0] == b'-') => return None,
                    _ => self.store_value(ValueLocation::Line(begin..self.at)),
                }
                Some(())
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.skip_blanks();
        if self.skip_byte(b'}') {
            return Some(());
        }
        loop {
            self.skip_blanks();
            if self.line.get(self.at) != Some(&b'"') {
                return None;
            }
            let name = self.string()?;
            let outer = self.state.path.len();
            if outer > 0 {
                self.state.path.push(b'.');
            }
            match name {
                ValueLocation::Line(range) => self.state.path.extend_from_slice(&self.line[range]),
                ValueLocation::Unescaped(range) => {
                    let State {
                        path, unescaped, ..
                    } = self.state;
                    path.extend_from_slice(&unescaped[range]);
                }
            }
            self.skip_blanks();
            if !self.skip_byte(b':') {
                return None;
            }
            self.value(depth + 1)?;
            self.state.path.truncate(outer);
            self.skip_blanks();
            if self.skip_byte(b'}') {
                return Some(());
            }
            if !self.skip_byte(b',') {
                return None;
            }
        }
    }

    /// Parses a list. The first value counts: later values have names of the same rank, so they do not replace
    /// the first value.
    fn list(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.skip_blanks();
        if self.skip_byte(b']') {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            self.skip_blanks();
            if self.skip_byte(b']') {
                return Some(());
            }
            if !self.skip_byte(b',') {
                return None;
            }
        }
    }

    /// Parses a string from its opening quote.
    fn string(&mut self) -> Option<ValueLocation> {
        let begin = self.at + 1;
        let end = begin + memchr::memchr2(b'"', b'\\', &self.line[begin..])?;
        if self.line[end] == b'"' {
            self.at = end + 1;
            return Some(ValueLocation::Line(begin..end));
        }
        let start = self.state.unescaped.len();
        self.state
            .unescaped
            .extend_from_slice(&self.line[begin..end]);
        self.at = end;
        loop {
            let rest = &self.line[self.at..];
            let plain = memchr::memchr2(b'"', b'\\', rest)?;
            self.state.unescaped.extend_from_slice(&rest[..plain]);
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Some(ValueLocation::Unescaped(start..self.state.unescaped.len()));
            }
            let escaped = *self.line.get(self.at)?;
            self.at += 1;
            let byte = match escaped {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 8,
                b'f' => 12,
                b'"' | b'\\' | b'/' => escaped,
                b'u' => {
                    let c = self.unicode()?;
                    let mut utf8 = [0; 4];
                    let utf8 = c.encode_utf8(&mut utf8);
                    self.state.unescaped.extend_from_slice(utf8.as_bytes());
                    continue;
                }
                _ => return None,
            };
            self.state.unescaped.push(byte);
        }
    }

    /// Parses the four hexadecimal digits after `\u`. If they are the first half of a surrogate pair, also parses the
    /// second half, which is `\u` and four digits again (RFC 8259, section 7).
    fn unicode(&mut self) -> Option<char> {
        let first = self.hex()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if !self.line[self.at..].starts_with(b"\\u") {
            return Some(char::REPLACEMENT_CHARACTER);
        }
        self.at += 2;
        let second = self.hex()?;
        let pair = 0x10000 + ((first - 0xd800) << 10) + second.wrapping_sub(0xdc00) % 0x400;
        Some(char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.line.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |value, digit| {
            Some(value * 16 + char::from(*digit).to_digit(16)?)
        })
    }

    /// Stores the location of the value at the current path, if the path is the name of a field and no value
    /// with a preferred name was found.
    fn store_value(&mut self, location: ValueLocation) {
        let path = &self.state.path[..];
        let rank = self.names.0.iter().position(|(_, name)| **name == *path);
        let Some(rank) = rank else {
            return;
        };
        let field = self.names.0[rank].0;
        let stored = self
            .state
            .locations
            .iter_mut()
            .find(|(other, ..)| *other == field);
        match stored {
            Some((_, best_rank, best_location)) if rank < *best_rank => {
                (*best_rank, *best_location) = (rank, location);
            }
            Some(_) => {}
            None => self.state.locations.push((field, rank, location)),
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.line.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn skip_byte(&mut self, byte: u8) -> bool {
        let matches = self.line.get(self.at) == Some(&byte);
        self.at += usize::from(matches);
        matches
    }
}

/// Common names: those of edgeward, Caddy, Envoy (as its documentation suggests), Fastly, and nginx variables
/// logged as JSON.
const COMMON_NAMES: [(Field, &str); 11] = [
    (
        Field::Time,
        "time ts start_time timestamp @timestamp time_iso8601 time_local msec datetime",
    ),
    (
        Field::Method,
        "method request_method request.method req_method",
    ),
    (
        Field::Host,
        "host authority request.host request_host http_host vhost :authority server_name",
    ),
    (
        Field::Url,
        "target uri url request_uri request.uri request_url x_envoy_original_path path",
    ),
    (Field::Query, "query query_string args"),
    (Field::Request, "request request_line"),
    (
        Field::Status,
        "status response_code response_status status_code response.status http_status",
    ),
    (
        Field::Bytes,
        "bytes size bytes_sent body_bytes_sent response_body_size resp_body_size response_size",
    ),
    (
        Field::MediaType,
        "content_type resp_headers.Content-Type response_content_type sent_http_content_type mime_type",
    ),
    (
        Field::Outcome,
        "cache cache_status upstream_cache_status fastly_info.state fastly_info_state cache_result x_cache",
    ),
    (Field::Machine, "machine hostname server pop datacenter"),
];

/// The JSON object must begin within this number of bytes from the start of the line. A syslog header before the object
/// is shorter, even with names of maximum length.
const HEADER_BYTES_MAX: usize = 1024;

/// The maximum depth of nested values. Logs are flat: the headers of a request in a log line have depth three.
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use crate::Outcome;

    use super::*;

    fn check(line: &str, expected: Entry<'_>) {
        let mut parser = JsonParser::new(FieldNames::default());
        let entry = parser.parse(line.as_bytes()).expect(line).expect(line);
        assert_eq!(entry, expected, "{line}");
    }

    const TIME: Option<Timestamp> = Some(Timestamp::from_millis(1_431_857_103_250));

    #[test]
    fn lines_of_edgeward_are_parsed() {
        check(
            r#"{"time":"2015-05-17T10:05:03.250Z","client":"192.0.2.7","method":"GET","scheme":"http","host":"example.org","target":"/a?b=\"c\"","protocol":"HTTP/1.1","status":200,"bytes":1234,"duration_us":56,"cache":"uri-miss","user_agent":"x\\"}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"example.org",
                url: b"/a?b=\"c\"",
                status: 200,
                bytes: Some(1234),
                outcome: Some(Outcome::Miss),
                ..Entry::default()
            },
        );
    }

    #[test]
    fn lines_of_caddy_are_parsed() {
        check(
            r#"{"level":"info","ts":1431857103.2509,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"]},"tls":{"resumed":false}},"bytes_read":0,"user_id":"","duration":0.0009,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html; charset=utf-8","x"]}}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"localhost",
                url: b"/a",
                status: 200,
                bytes: Some(10_900),
                media_type: b"text/html; charset=utf-8",
                ..Entry::default()
            },
        );
    }

    #[test]
    fn lines_of_envoy_are_parsed() {
        check(
            r#"{"start_time":"2015-05-17T10:05:03.250Z", "method":"GET", "path":"/a", "protocol":"HTTP/1.1", "response_code":404, "response_flags":"-", "bytes_received":0, "bytes_sent":7, "authority":"h", "upstream_host":null}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"h",
                url: b"/a",
                status: 404,
                bytes: Some(7),
                ..Entry::default()
            },
        );
    }

    #[test]
    fn lines_of_fastly_are_parsed_after_a_syslog_header() {
        check(
            r#"<134>2015-05-17T10:05:03Z cache-fra19122 LogTest[62959]: {"timestamp":"2015-05-17T10:05:03.25+0000","host":"h","url":"/a\u00e9\/\ud83d\ude00","request_method":"GET","response_status":200,"response_body_size":5,"fastly_info":{"state":"HIT-CLUSTER"},"pop":"FRA"}"#,
            Entry {
                time: TIME,
                method: b"GET",
                host: b"h",
                url: "/aé/😀".as_bytes(),
                status: 200,
                bytes: Some(5),
                outcome: Some(Outcome::Hit),
                machine: b"FRA",
                ..Entry::default()
            },
        );
    }

    #[test]
    fn configured_names_take_precedence() {
        let custom = [(Field::Url, "req.the_url".to_owned())];
        let mut parser = JsonParser::new(FieldNames::with_custom(custom));
        let line = br#"{"url":"/no","req":{"the_url":"/yes"},"uri":"/neither"}"#;
        let entry = parser
            .parse(line)
            .expect("the line is JSON")
            .expect("the line is a request");
        assert_eq!(entry.url, b"/yes");
    }

    #[test]
    fn a_json_line_without_a_url_is_not_a_request() {
        let mut parser = JsonParser::new(FieldNames::default());
        assert_eq!(
            parser.parse(br#"{"level":"info","msg":"started"}"#),
            Ok(None)
        );
        assert_eq!(parser.parse(b"{}"), Ok(None));
    }

    #[test]
    fn invalid_json_is_malformed() {
        let mut parser = JsonParser::new(FieldNames::default());
        let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        for line in [
            "hello",
            "{",
            "{\"url\"",
            "{\"url\":}",
            "{\"url\":\"/a\"",
            "{\"url\":\"/a\"}x",
            "{\"url\":\"/a\",}",
            "{\"url\":\"\\x\"}",
            "{\"url\":\"\\u12\"}",
            "{\"a\":[1,]}",
            "{\"a\":nul}",
            "{a:1}",
            &deep,
        ] {
            let error = parser.parse(line.as_bytes()).expect_err(line);
            assert_eq!(error.field, "line", "{line}");
        }
    }
}
