//! Docker's `json-file` logs: each line is a JSON object, and the field `log` has the line that the container wrote.

use edgeward_trace::raw::{JsonLine, JsonValue};

use crate::{Entry, MalformedLine};

use super::json::object_of;
use super::{Format, Parser, is_blank_or_comment};

#[derive(Clone, Debug)]
pub(super) struct DockerParser {
    json: JsonLine,
    /// The line that the container wrote.
    text: Vec<u8>,
    inner: Parser,
}

impl DockerParser {
    /// `format` is the format of the container's lines.
    pub(super) fn new(format: &Format) -> Self {
        Self {
            json: JsonLine::default(),
            text: Vec::new(),
            inner: Parser::new(format),
        }
    }

    pub(super) fn parse<'a>(
        &'a mut self,
        line: &'a [u8],
    ) -> Result<Option<Entry<'a>>, MalformedLine> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let Self { json, text, inner } = self;
        let stream = unwrap(json, line, text).ok_or(MalformedLine::not(
            "line",
            "a JSON object with the field `log`",
        ))?;
        match inner.parse(text) {
            // Servers in containers write their error log to this stream.
            Err(_) if stream == Stream::Stderr => Ok(None),
            parsed => parsed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

/// Returns the line that a container wrote, or `None` if the line is not of Docker.
pub(super) fn logged_text(line: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    unwrap(&mut JsonLine::default(), line, &mut text)?;
    Some(text)
}

/// Stores the field `log` in `text`, without its line feed, and returns the stream.
fn unwrap(json: &mut JsonLine, line: &[u8], text: &mut Vec<u8>) -> Option<Stream> {
    let object = object_of(line)?;
    let (mut log, mut stream) = (None, None);
    json.walk(object, |path, value| match path {
        b"log" => _ = log.get_or_insert(value),
        b"stream" => _ = stream.get_or_insert(value),
        _ => {}
    })?;
    let log = log.filter(|value| !matches!(value, JsonValue::Bool(_)))?;
    let log = json.bytes(object, &log);
    text.clear();
    text.extend_from_slice(log.strip_suffix(b"\n").unwrap_or(log));
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    let stream = stream.map(|value| json.bytes(object, &value));
    Some(match stream {
        Some(b"stderr") => Stream::Stderr,
        _ => Stream::Stdout,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_the_other_stream_are_not_malformed() {
        let mut parser = DockerParser::new(&Format::Ncsa);
        let line = |log: &str, stream: &str| format!(r#"{{"log":"{log}\n","stream":"{stream}"}}"#);
        let error = line("2024/01/03 10:39:01 [notice] 1#1: start", "stderr");
        assert_eq!(parser.parse(error.as_bytes()), Ok(None));
        let text = line("hello", "stdout");
        assert!(parser.parse(text.as_bytes()).is_err());
        assert!(parser.parse(br#"{"message":"hello"}"#).is_err());
    }
}
