//! Parsers of log lines, one per format.

mod fields;
mod json;
mod ncsa;
mod template;
mod w3c;

use edgeward_trace::raw;

use crate::{Entry, MalformedLine};

pub use fields::Field;
pub use json::FieldNames;
pub use template::{Template, TemplateError};

/// The format of a log's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// NCSA common or combined, with or without a virtual host at the start of the line, with absolute URLs or paths.
    Ncsa,
    /// One JSON object per line.
    Json(FieldNames),
    /// W3C extended: columns listed in a `#Fields:` line.
    W3c,
    /// The format that a format string describes.
    Template(Template),
}

impl Format {
    /// All values of [`Self::name`].
    pub const NAMES: [&str; 4] = ["ncsa", "json", "w3c", "format-string"];

    /// The name of the format.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ncsa => "ncsa",
            Self::Json(_) => "json",
            Self::W3c => "w3c",
            Self::Template(_) => "format-string",
        }
    }
}

/// Parses the lines of one log, one at a time.
#[derive(Clone, Debug)]
pub struct Parser(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Ncsa(ncsa::NcsaParser),
    Json(json::JsonParser),
    W3c(w3c::W3cParser),
    Template(template::TemplateParser),
}

impl Parser {
    /// Returns a parser for a log. The first line passed to [`Self::parse`] must be the first line of the log.
    pub fn new(format: &Format) -> Self {
        Self(match format {
            Format::Ncsa => Kind::Ncsa(ncsa::NcsaParser::default()),
            Format::Json(names) => Kind::Json(json::JsonParser::new(names.clone())),
            Format::W3c => Kind::W3c(w3c::W3cParser::default()),
            Format::Template(template) => {
                Kind::Template(template::TemplateParser::new(template.clone()))
            }
        })
    }

    /// Parses a line of the most common form, if the format has a fast path for this form. The entry is the same as
    /// that of [`Self::parse`]. Returns `None` if the line or the format has no fast path; the caller then calls
    /// [`Self::parse`]. This function is small enough to be inlined into the caller's loop.
    #[inline(always)]
    pub fn parse_common<'l>(&mut self, line: &'l [u8]) -> Option<Entry<'l>> {
        match &mut self.0 {
            Kind::Ncsa(parser) => parser.parse_common(line),
            _ => None,
        }
    }

    /// Parses a line without its line feed. Returns `None` if the line has no request for a URL, because it is
    /// empty, a comment, or about a connection that ended before a request.
    ///
    /// # Errors
    ///
    /// Fails if a field is missing or invalid.
    pub fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, MalformedLine> {
        match &mut self.0 {
            Kind::Ncsa(parser) => parser.parse(line),
            Kind::Json(parser) => parser.parse(line),
            Kind::W3c(parser) => parser.parse(line),
            Kind::Template(parser) => parser.parse(line),
        }
    }
}

/// Detects the format by the first line that can be parsed. Format strings cannot be detected. JSON fields are
/// searched under `names`.
///
/// # Errors
///
/// Fails if no format matches any of the first lines.
pub fn detect_format(beginning: &[u8], names: &FieldNames) -> Result<Format, UnrecognisedFormat> {
    let lines = || {
        beginning
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .take(LINES_TRIED)
    };
    let formats = [Format::Ncsa, Format::W3c, Format::Json(names.clone())];
    let mut parsers = formats.each_ref().map(Parser::new);
    for line in lines() {
        for (format, parser) in formats.iter().zip(&mut parsers) {
            if matches!(parser.parse(line), Ok(Some(_))) {
                return Ok(format.clone());
            }
        }
    }
    // A log without requests may still have its header.
    if lines().any(|line| line.starts_with(b"#Fields:")) {
        return Ok(Format::W3c);
    }
    let first = lines()
        .find(|line| !is_blank_or_comment(line))
        .unwrap_or_default();
    Err(UnrecognisedFormat {
        binary: first
            .iter()
            .take(BYTES_TRIED)
            .any(|byte| *byte < 0x20 && !matches!(byte, b'\t' | b'\r' | 0x0c | 0x1b)),
        first_line: first[..first.len().min(BYTES_TRIED)].to_vec(),
    })
}

/// The start of a log that matches no format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecognisedFormat {
    /// True if the start is not text.
    pub binary: bool,
    /// The first line that is neither blank nor a comment, at most its first 512 bytes.
    pub first_line: Vec<u8>,
}

/// Returns true if a line is blank or a comment (it begins with `#`). Every format allows these lines.
#[inline]
pub(crate) fn is_blank_or_comment(line: &[u8]) -> bool {
    match line.first() {
        None | Some(b'#') => true,
        Some(b' ' | b'\t' | b'\r') => line.trim_ascii().is_empty(),
        Some(_) => false,
    }
}

/// Parses a status: three digits, and the first digit is not 0.
#[inline(always)]
pub(crate) fn status(field: &[u8]) -> Result<u16, MalformedLine> {
    if let &[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = field {
        return Ok(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'));
    }
    Err(MalformedLine::not(
        "status",
        "a status code of three digits",
    ))
}

/// Parses a number of bytes. Returns `None` for `-`.
#[inline]
pub(crate) fn bytes(field: &[u8]) -> Result<Option<u64>, MalformedLine> {
    if field == b"-" {
        return Ok(None);
    }
    raw::whole(field)
        .map(Some)
        .ok_or(MalformedLine::not("bytes", "a whole number or `-`"))
}

/// Returns method and URL of a request line, or `None` without a URL.
#[inline]
pub(crate) fn request_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (method, rest) = line.split_at(memchr::memchr(b' ', line)?);
    let rest = &rest[1..];
    let url = memchr::memchr(b' ', rest).map_or(rest, |end| &rest[..end]);
    (!method.is_empty() && !url.is_empty()).then_some((method, url))
}

/// Splits an absolute URL into host and path. For other URLs returns `host` and the URL.
#[inline]
pub(crate) fn host_and_path<'l>(host: &'l [u8], url: &'l [u8]) -> (&'l [u8], &'l [u8]) {
    if url.first() == Some(&b'/') {
        return (host, url);
    }
    match raw::split_absolute(url) {
        Some((host, b"")) => (host, b"/"),
        Some(split) => split,
        None => (host, url),
    }
}

/// The number of lines from which the format is detected. It is enough for a log that starts with comments or
/// corrupt lines.
const LINES_TRIED: usize = 64;

/// The maximum number of bytes of the first line that an error shows and that are checked for control characters.
const BYTES_TRIED: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn recognised(beginning: &[u8]) -> Result<&'static str, UnrecognisedFormat> {
        detect_format(beginning, &FieldNames::default()).map(|format| format.name())
    }

    #[test]
    fn a_format_is_recognised_by_its_first_line_that_fits() {
        let ncsa = b"\n???\nh - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 5\n";
        assert_eq!(recognised(ncsa), Ok("ncsa"));
        let w3c = b"#Version: 1.0\r\n#Fields: cs-uri-stem sc-status\r\n/a 200\r\n";
        assert_eq!(recognised(w3c), Ok("w3c"));
        assert_eq!(recognised(b"#Fields: date time cs-uri-stem\n"), Ok("w3c"));
        let json = b"{\"level\":\"info\"}\n{\"uri\":\"/a\",\"status\":200}";
        assert_eq!(recognised(json), Ok("json"));
    }

    #[test]
    fn an_unrecognised_file_is_reported_as_text_or_binary() {
        let text = recognised(b"hello world\n").expect_err("the text is not a log");
        assert!(!text.binary && text.first_line == b"hello world");
        assert!(
            recognised(b"\x7fELF\x02\x01\x01\0")
                .expect_err("the text is not a log")
                .binary
        );
        assert!(
            recognised(b"{\"a\":1}\n").is_err(),
            "JSON without a request"
        );
    }

    #[test]
    fn a_status_is_three_digits() {
        assert_eq!(status(b"200"), Ok(200));
        assert_eq!(status(b"999"), Ok(999));
        for bad in ["", "20", "2000", "099", "2x0", "-"] {
            assert!(status(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_line_without_a_url_is_rejected() {
        assert_eq!(
            request_line(b"GET /a HTTP/1.1"),
            Some((&b"GET"[..], &b"/a"[..]))
        );
        assert_eq!(request_line(b"GET /a"), Some((&b"GET"[..], &b"/a"[..])));
        for none in ["", "-", "GET", "GET ", " /a", "GET  HTTP/1.1"] {
            assert_eq!(request_line(none.as_bytes()), None, "{none}");
        }
    }
}
