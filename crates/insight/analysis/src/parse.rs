//! Parsers of log lines, one per format.

mod docker;
mod fields;
mod json;
mod ncsa;
mod preset;
mod template;
mod w3c;

use edgeward_trace::raw;

use crate::{Entry, MalformedLine};

pub use fields::Field;
pub use json::FieldNames;
pub use preset::{PRESETS, Preset, preset};
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
    /// A format of the table [`PRESETS`].
    Preset {
        /// The name of the preset.
        name: &'static str,
        /// Its format string or JSON names.
        format: Box<Self>,
    },
    /// Docker's `json-file`: JSON objects whose field `log` has the lines of another format.
    Docker(Box<Self>),
}

impl Format {
    /// Returns all values of [`Self::name`].
    pub fn names() -> Vec<&'static str> {
        let others = ["ncsa", "json", "w3c", "format-string", "docker"];
        others
            .into_iter()
            .chain(PRESETS.iter().map(|preset| preset.name))
            .collect()
    }

    /// Adds `names` to a preset of JSON, so that the user's names take precedence over those of the preset.
    fn with_names(self, names: &FieldNames) -> Self {
        match self {
            Self::Preset { name, format } => match *format {
                Self::Json(of_preset) => Self::Preset {
                    name,
                    format: Box::new(Self::Json(of_preset.preceded_by(names.custom()))),
                },
                other => Self::Preset {
                    name,
                    format: Box::new(other),
                },
            },
            other => other,
        }
    }

    /// The name of the format.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ncsa => "ncsa",
            Self::Json(_) => "json",
            Self::W3c => "w3c",
            Self::Template(_) => "format-string",
            Self::Preset { name, .. } => name,
            Self::Docker(_) => "docker",
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
    Docker(Box<docker::DockerParser>),
}

impl Parser {
    /// Returns a parser for a log. The first line passed to [`Self::parse`] must be the first line of the log.
    pub fn new(format: &Format) -> Self {
        Self(match format {
            Format::Ncsa => Kind::Ncsa(ncsa::NcsaParser::default()),
            Format::Json(names) => Kind::Json(json::JsonParser::new(names)),
            Format::W3c => Kind::W3c(w3c::W3cParser::default()),
            Format::Template(template) => {
                Kind::Template(template::TemplateParser::new(template.clone()))
            }
            Format::Preset { format, .. } => return Self::new(format),
            Format::Docker(format) => Kind::Docker(Box::new(docker::DockerParser::new(format))),
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
            Kind::Docker(parser) => parser.parse(line),
        }
    }
}

/// Detects the format by the first line that can be parsed. User-defined format strings cannot be detected. JSON fields
/// are searched under `names`, unless they have the names of a preset.
///
/// # Errors
///
/// Fails if no format matches any of the first lines.
pub fn detect_format(beginning: &[u8], names: &FieldNames) -> Result<Format, UnrecognisedFormat> {
    let lines = || first_lines(beginning);
    // A format with more fields precedes one that would accept its lines and take a value for another field.
    let presets = PRESETS.iter().map(|preset| preset.format(&[]));
    let formats: Vec<Format> = std::iter::once(Format::W3c)
        .chain(presets)
        .chain([Format::Ncsa, Format::Json(names.clone())])
        .collect();
    let mut parsers: Vec<Parser> = formats.iter().map(Parser::new).collect();
    for line in lines() {
        // The columns of a W3C log are in a line before, which the container may have written long ago.
        if let Some(text) = docker::logged_text(line)
            && let Ok(format) = detect_format(&text, names)
            && !matches!(format, Format::W3c | Format::Docker(_))
        {
            return Ok(Format::Docker(Box::new(format)));
        }
        for (format, parser) in formats.iter().zip(&mut parsers) {
            if matches!(parser.parse(line), Ok(Some(_))) {
                return Ok(format.clone().with_names(names));
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
    let is_json = first.first() == Some(&b'{') && json::object_of(first).is_some();
    Err(UnrecognisedFormat {
        kind: if first.iter().take(BYTES_TRIED).any(is_control) {
            UnrecognisedKind::Binary
        } else if lines().any(is_error_log_line) {
            UnrecognisedKind::ErrorLog
        } else if is_json {
            UnrecognisedKind::Json
        } else {
            UnrecognisedKind::Text
        },
        first_line: first[..first.len().min(BYTES_TRIED)].to_vec(),
    })
}

fn first_lines(beginning: &[u8]) -> impl Iterator<Item = &[u8]> {
    beginning
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .take(LINES_TRIED)
}

const fn is_control(byte: &u8) -> bool {
    *byte < 0x20 && !matches!(byte, b'\t' | b'\r' | 0x0c | 0x1b)
}

/// Returns true for a line of the error log of nginx (`2024/01/03 10:39:01 [error] 7#7: `) or Apache httpd
/// (`[Wed Jan 03 10:39:01.1 2024] [core:error] [pid 7] `).
fn is_error_log_line(line: &[u8]) -> bool {
    let text = match line.strip_prefix(b"[") {
        Some(rest) => match memchr::memmem::find(rest, b"] [") {
            Some(end) if end <= ERROR_TIME_BYTES_MAX => &rest[end + 3..],
            _ => return false,
        },
        None => match line.split_at_checked(ERROR_TIME_BYTES) {
            Some((time, rest)) if raw::iso8601(time).is_some() => match rest.strip_prefix(b" [") {
                Some(rest) => rest,
                None => return false,
            },
            _ => return false,
        },
    };
    let Some(end) = memchr::memchr(b']', &text[..text.len().min(LEVEL_BYTES_MAX)]) else {
        return false;
    };
    let level = text[..end]
        .rsplit(|byte| *byte == b':')
        .next()
        .unwrap_or_default();
    ERROR_LEVELS.iter().any(|known| known.as_bytes() == level)
}

/// The start of a log that matches no format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecognisedFormat {
    /// A guess at the content.
    pub kind: UnrecognisedKind,
    /// The first line that is neither blank nor a comment, at most its first 512 bytes.
    pub first_line: Vec<u8>,
}

/// The content of a file that matches no format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnrecognisedKind {
    /// No text.
    Binary,
    /// The error log of a web server, which has no requests.
    ErrorLog,
    /// JSON objects without a URL under the known names.
    Json,
    /// Other text.
    Text,
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

/// Parses a status. Returns 0 if the status is unknown, as in `000`, `-1` and `-`.
#[inline(always)]
pub(crate) fn status(field: &[u8]) -> Result<u16, MalformedLine> {
    raw::status(field).ok_or(MalformedLine::not(
        "status",
        "a status code of three digits",
    ))
}

/// Parses a number of bytes. Returns `None` if it is unknown, as in `-` and `-1`.
#[inline]
pub(crate) fn bytes(field: &[u8]) -> Result<Option<u64>, MalformedLine> {
    raw::optional_whole(field).ok_or(MalformedLine::not("bytes", "a whole number or `-`"))
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

/// The length of `2024/01/03 10:39:01`.
const ERROR_TIME_BYTES: usize = 19;

/// The maximum length of the time in an error log of Apache httpd.
const ERROR_TIME_BYTES_MAX: usize = 40;

/// The maximum length of the module and the level in an error log.
const LEVEL_BYTES_MAX: usize = 40;

/// The levels of nginx and of Apache httpd.
const ERROR_LEVELS: [&str; 10] = [
    "emerg", "alert", "crit", "error", "warn", "notice", "info", "debug", "trace1", "trace2",
];

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
    fn a_log_within_a_log_of_docker_has_no_state() {
        for text in [
            "#Fields: cs-uri-stem sc-status",
            r#"{\"log\":\"{\\\"uri\\\":1}\"}"#,
        ] {
            let line = format!(r#"{{"log":"{text}\n","stream":"stdout"}}"#);
            assert_ne!(recognised(line.as_bytes()), Ok("docker"), "{line}");
        }
        let json = br#"{"log":"{\"uri\":\"/a\"}\n","stream":"stdout"}"#;
        assert_eq!(recognised(json), Ok("docker"));
    }

    #[test]
    fn the_error_log_of_a_server_is_recognised() {
        for line in [
            "2024/01/03 10:39:01 [error] 1#1: *1 open() failed, request: \"GET /x HTTP/1.1\"",
            "[Wed Jan 03 10:39:01.123456 2024] [core:error] [pid 7] AH00037",
            "[Wed Jan 03 10:39:01 2024] [notice] ready",
        ] {
            let error = recognised(line.as_bytes()).expect_err(line);
            assert_eq!(error.kind, UnrecognisedKind::ErrorLog, "{line}");
        }
        let json = recognised(b"{\"a\":1}").expect_err("the object has no URL");
        assert_eq!(json.kind, UnrecognisedKind::Json);
    }

    #[test]
    fn an_unrecognised_file_is_reported_as_text_or_binary() {
        let text = recognised(b"hello world\n").expect_err("the text is not a log");
        assert_eq!(text.kind, UnrecognisedKind::Text);
        assert_eq!(text.first_line, b"hello world");
        let elf = recognised(b"\x7fELF\x02\x01\x01\0").expect_err("the file is not a log");
        assert_eq!(elf.kind, UnrecognisedKind::Binary);
        assert!(
            recognised(b"{\"a\":1}\n").is_err(),
            "JSON without a request"
        );
    }
}
