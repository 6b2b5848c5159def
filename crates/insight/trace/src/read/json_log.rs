//! Parses the JSON lines of edgeward's own access log.
//!
//! ```text
//! {"time":"2015-05-17T10:05:03.250Z","method":"GET","host":"example.org","target":"/a?b","status":200,"bytes":1234}
//! ```
//!
//! Further fields and the header of a syslog message before the object are ignored. The key, the size and the lines
//! that count as requests are those of an NCSA access log.

use crate::Record;
use crate::number;

use super::error::{Problem, printable_excerpt};
use super::json_line::{JsonLine, JsonValue};
use super::lines::{LineParser, bad_field, is_blank_or_comment, missing_field};
use super::options::AccessLogRules;

pub(super) struct JsonLogParser {
    rules: AccessLogRules,
    json: JsonLine,
    /// Host, path and query of the current line.
    key: Vec<u8>,
}

impl JsonLogParser {
    pub(super) fn new(rules: AccessLogRules) -> Self {
        Self {
            rules,
            json: JsonLine::default(),
            key: Vec::new(),
        }
    }
}

impl LineParser for JsonLogParser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, Problem> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let not_json = || Problem::Field {
            field: "line",
            found: printable_excerpt(line),
            expected: "a JSON object",
        };
        let header = &line[..line.len().min(HEADER_BYTES_MAX)];
        let begin = memchr::memchr(b'{', header).ok_or_else(not_json)?;
        let object = &line[begin..];
        let mut values: [Option<JsonValue>; NAMES.len()] = Default::default();
        self.json
            .walk(object, |path, value| {
                if let Some(at) = NAMES.iter().position(|name| name.as_bytes() == path) {
                    values[at].get_or_insert(value);
                }
            })
            .ok_or_else(not_json)?;
        let value = |at: usize| {
            let value = values[at].as_ref();
            value.map(|value| self.json.bytes(object, value))
        };
        // A line about another event than a request has no target.
        let Some(target) = value(TARGET) else {
            return Ok(None);
        };
        let required = |at: usize| value(at).ok_or_else(|| missing_field(NAMES[at], object));
        let time = required(TIME)?;
        let time = number::iso8601(time)
            .ok_or_else(|| bad_field("time", time, "like 2015-05-17T10:05:03.250Z"))?;
        let status = required(STATUS)?;
        let status = number::status(status)
            .ok_or_else(|| bad_field("status", status, "a status code of three digits"))?;
        let bytes = required(BYTES)?;
        let size = number::optional_whole(bytes)
            .ok_or_else(|| bad_field("bytes", bytes, "a whole number of bytes"))?
            .unwrap_or(0);
        let host = value(HOST).unwrap_or_default();
        if !self
            .rules
            .accept(value(METHOD).unwrap_or_default(), status, size)
            || target.is_empty()
        {
            return Ok(None);
        }
        Ok(Some(Record {
            time,
            key: self.rules.key(host, target, &mut self.key),
            size,
        }))
    }
}

/// Returns true if a line is a JSON object with the fields of a request.
pub(super) fn is_json_log(line: &[u8]) -> bool {
    let header = &line[..line.len().min(HEADER_BYTES_MAX)];
    let Some(begin) = memchr::memchr(b'{', header) else {
        return false;
    };
    let mut found = [false; NAMES.len()];
    let walked = JsonLine::default().walk(&line[begin..], |path, _| {
        if let Some(at) = NAMES.iter().position(|name| name.as_bytes() == path) {
            found[at] = true;
        }
    });
    walked.is_some() && found.iter().all(|found| *found)
}

/// The names of the fields. `docs/reference/access-log.md` lists all fields of a line.
const NAMES: [&str; 6] = ["time", "method", "host", "target", "status", "bytes"];
const TIME: usize = 0;
const METHOD: usize = 1;
const HOST: usize = 2;
const TARGET: usize = 3;
const STATUS: usize = 4;
const BYTES: usize = 5;

/// The object must begin within this number of bytes from the start of the line.
const HEADER_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use crate::hash_key;

    use super::*;

    const LINE: &str = concat!(
        r#"{"time":"2015-05-17T10:05:03.250Z","client":"192.0.2.7","method":"GET","scheme":"http","#,
        r#""host":"Example.org","target":"/a?b","protocol":"HTTP/1.1","status":200,"bytes":1234,"#,
        r#""duration_us":56,"cache":"uri-miss"}"#,
    );

    fn parse(line: &str) -> Result<Option<Record>, Problem> {
        JsonLogParser::new(AccessLogRules::default()).parse(line.as_bytes())
    }

    #[test]
    fn a_line_of_the_access_log_in_json_is_a_request() {
        let expected = Record {
            time: Timestamp::from_millis(1_431_857_103_250),
            key: hash_key(b"example.org/a?b"),
            size: 1234,
        };
        for prefix in [
            "",
            "<190>1 2015-05-17T10:05:03.250Z edge-1 edgeward 7 access - ",
        ] {
            let line = format!("{prefix}{LINE}");
            assert!(is_json_log(line.as_bytes()), "{line}");
            assert_eq!(parse(&line).expect(&line), Some(expected), "{line}");
        }
    }

    #[test]
    fn the_rules_of_access_logs_apply_to_json() {
        for (from, to) in [
            ("\"GET\"", "\"POST\""),
            (":200", ":304"),
            (":1234", ":0"),
            (":1234", ":\"-\""),
            ("\"target\"", "\"message\""),
        ] {
            let line = LINE.replacen(from, to, 1);
            assert!(matches!(parse(&line), Ok(None)), "{line}");
        }
        for (from, to, field) in [
            (":200", ":\"x\"", "status"),
            ("\"status\"", "\"s\"", "status"),
            ("2015-", "x", "time"),
            ("}", "", "JSON"),
        ] {
            let line = LINE.replacen(from, to, 1);
            let message = parse(&line).expect_err(&line).to_string();
            assert!(message.contains(field), "{line}: {message}");
        }
        assert!(!is_json_log(br#"{"time":"x","msg":"started"}"#));
    }
}
