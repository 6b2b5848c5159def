//! One request as a line of the access log.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use edgeward_semantics::format_http_date;
use edgeward_types::Timestamp;
use edgeward_types::hidden::visible_json;
use http::header::{HeaderName, REFERER, USER_AGENT};
use http::{HeaderValue, Version};

use super::request_text::{Fields, RequestFacts, RequestText};
use crate::config::log_template::{Piece, Variable};
use crate::config::{LogFormat, LogTemplate};
use crate::observe::labels::Label as _;
use crate::observe::outcome::RequestOutcome;
use crate::observe::site_counters::OutcomeClass;

/// A request whose response has ended. `docs/reference/access-log.md` describes the fields.
#[derive(Debug)]
pub(crate) struct LogLine {
    pub(crate) request: RequestText,
    pub(crate) status: u16,
    /// The number of body bytes that the connection got.
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    /// The outcome that `edgeward_requests_total` has counted.
    pub(crate) outcome: RequestOutcome,
    pub(crate) class: OutcomeClass,
    pub(crate) collapsed: bool,
    /// True if the response was not sent completely.
    pub(crate) aborted: bool,
    pub(crate) detail: Option<Cow<'static, str>>,
}

/// Returns the request fields whose values a line of this format has, in the order of [`RequestText`].
pub(crate) fn fields_of(format: &LogFormat) -> Vec<HeaderName> {
    match format {
        LogFormat::Template(template) => template.fields.clone(),
        LogFormat::Json | LogFormat::Combined | LogFormat::CombinedCache => {
            vec![REFERER, USER_AGENT]
        }
    }
}

/// Writes lines in one format.
#[derive(Debug)]
pub(super) struct Formatter {
    format: LogFormat,
    /// The texts of the last line's second, because consecutive lines usually have the same second.
    second: Option<SecondTexts>,
}

#[derive(Debug)]
struct SecondTexts {
    seconds: u64,
    /// `1994-11-06T08:49:37.`
    rfc3339: String,
    /// `06/Nov/1994:08:49:37 +0000`
    clf: String,
}

/// The facts that variables of a format name.
struct LineFacts<'a> {
    line: &'a LogLine,
    request: &'a RequestFacts<'a>,
    fields: &'a Fields<'a>,
}

impl Formatter {
    pub(super) const fn new(format: LogFormat) -> Self {
        Self {
            format,
            second: None,
        }
    }

    /// Appends a line, without a line feed.
    pub(super) fn write(&mut self, line: &LogLine, out: &mut Vec<u8>) {
        // The format is taken out, because the methods below change the formatter.
        let format = std::mem::take(&mut self.format);
        match &format {
            LogFormat::Json => self.write_json(line, out),
            LogFormat::Combined => self.write_combined(line, out, false),
            LogFormat::CombinedCache => self.write_combined(line, out, true),
            LogFormat::Template(template) => self.write_template(template, line, out),
        }
        self.format = format;
    }

    fn write_template(&mut self, template: &LogTemplate, line: &LogLine, out: &mut Vec<u8>) {
        let (request, fields) = line.request.read();
        let facts = LineFacts {
            line,
            request: &request,
            fields: &fields,
        };
        for piece in &template.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Value {
                    variable,
                    is_quoted,
                } => {
                    let start = out.len();
                    let escape = |text: &[u8], out: &mut Vec<u8>| {
                        push_nginx(text, *is_quoted, out);
                    };
                    self.write_variable(*variable, &facts, escape, out);
                    if out.len() == start {
                        out.push(b'-');
                    }
                }
            }
        }
    }

    /// Appends the value of a variable, or nothing if the value is absent. `escape` appends a text that a client chose.
    fn write_variable(
        &mut self,
        variable: Variable,
        facts: &LineFacts<'_>,
        escape: impl Fn(&[u8], &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let LineFacts {
            line,
            request,
            fields,
        } = *facts;
        match variable {
            Variable::RemoteAddr => push_address(request.peer, out),
            Variable::RemoteUser => {} // the edge authenticates no client
            Variable::TimeLocal => self.push_clf(request.time, out),
            Variable::TimeIso8601 => {
                let second = self.second(request.time).rfc3339.as_bytes();
                out.extend_from_slice(&second[..second.len() - 1]);
                out.extend_from_slice(b"+00:00");
            }
            Variable::Msec => push_seconds(request.time.as_millis(), out),
            Variable::Request => {
                let Some(method) = request.method else {
                    return;
                };
                escape(method, out);
                out.push(b' ');
                escape(request.target, out);
                out.push(b' ');
                out.extend_from_slice(protocol(request.version));
            }
            Variable::RequestMethod => escape(request.method.unwrap_or_default(), out),
            Variable::RequestUri => escape(request.target, out),
            Variable::SslCurve => {
                let name = request
                    .key_exchange
                    .map_or("", |key_exchange| key_exchange.as_str());
                out.extend_from_slice(name.as_bytes());
            }
            Variable::Scheme => out.extend_from_slice(scheme(request)),
            Variable::Host => escape(request.host, out),
            Variable::ServerProtocol => out.extend_from_slice(protocol(request.version)),
            Variable::Status => push_number(line.status.into(), out),
            Variable::BodyBytesSent => push_number(line.bytes, out),
            Variable::RequestTime => push_seconds(micros(line.duration) / 1000, out),
            Variable::RequestTimeUs => push_number(micros(line.duration), out),
            Variable::UpstreamCacheStatus => {
                out.extend_from_slice(nginx_cache_status(line.class).as_bytes());
            }
            Variable::Cache => out.extend_from_slice(line.cache_word()),
            Variable::CacheDetail => {
                escape(line.detail.as_deref().unwrap_or_default().as_bytes(), out);
            }
            Variable::Collapsed => out.extend_from_slice(flag(line.collapsed)),
            Variable::Aborted => out.extend_from_slice(flag(line.aborted)),
            Variable::RequestField(index) => {
                let value = fields.clone().nth(index).flatten();
                escape(value.unwrap_or_default(), out);
            }
        }
    }

    fn write_json(&mut self, line: &LogLine, out: &mut Vec<u8>) {
        let (request, mut fields) = line.request.read();
        out.extend_from_slice(b"{\"time\":\"");
        self.push_rfc3339(request.time, out);
        out.extend_from_slice(b"\",\"client\":\"");
        push_address(request.peer, out);
        out.extend_from_slice(b"\",\"method\":");
        push_json(request.method.unwrap_or(b"-"), out);
        out.extend_from_slice(b",\"scheme\":\"");
        out.extend_from_slice(scheme(&request));
        out.extend_from_slice(b"\",\"host\":");
        push_json(request.host, out);
        out.extend_from_slice(b",\"target\":");
        push_json(request.target, out);
        out.extend_from_slice(b",\"protocol\":\"");
        out.extend_from_slice(protocol(request.version));
        out.extend_from_slice(b"\",\"status\":");
        push_number(line.status.into(), out);
        out.extend_from_slice(b",\"bytes\":");
        push_number(line.bytes, out);
        out.extend_from_slice(b",\"duration_us\":");
        push_number(micros(line.duration), out);
        out.extend_from_slice(b",\"cache\":\"");
        out.extend_from_slice(line.cache_word());
        out.push(b'"');
        if line.collapsed {
            out.extend_from_slice(b",\"collapsed\":true");
        }
        if line.aborted {
            out.extend_from_slice(b",\"aborted\":true");
        }
        let mut push_optional = |name: &[u8], value: Option<&[u8]>| {
            if let Some(value) = value {
                out.extend_from_slice(name);
                push_json(value, out);
            }
        };
        push_optional(b",\"detail\":", line.detail.as_deref().map(str::as_bytes));
        push_optional(b",\"referer\":", fields.next().flatten());
        push_optional(b",\"user_agent\":", fields.next().flatten());
        out.push(b'}');
    }

    /// Writes `host ident user [time] "request" status bytes "referer" "agent"`, and the cache's outcome if
    /// `with_cache`.
    fn write_combined(&mut self, line: &LogLine, out: &mut Vec<u8>, with_cache: bool) {
        let (request, mut fields) = line.request.read();
        push_address(request.peer, out);
        out.extend_from_slice(b" - - [");
        self.push_clf(request.time, out);
        out.extend_from_slice(b"] \"");
        push_request_line(&request, out);
        out.extend_from_slice(b"\" ");
        push_number(line.status.into(), out);
        out.push(b' ');
        push_number(line.bytes, out);
        for _ in [REFERER, USER_AGENT] {
            out.extend_from_slice(b" \"");
            push_quoted(fields.next().flatten().unwrap_or(b"-"), out);
            out.push(b'"');
        }
        if with_cache {
            out.push(b' ');
            out.extend_from_slice(line.cache_word());
        }
    }

    /// Appends a time with milliseconds, such as `1994-11-06T08:49:37.123Z`.
    pub(super) fn push_rfc3339(&mut self, time: Timestamp, out: &mut Vec<u8>) {
        out.extend_from_slice(self.second(time).rfc3339.as_bytes());
        push_millis(time.as_millis(), out);
        out.push(b'Z');
    }

    /// Appends a time as the common log format has it: `06/Nov/1994:08:49:37 +0000`.
    fn push_clf(&mut self, time: Timestamp, out: &mut Vec<u8>) {
        out.extend_from_slice(self.second(time).clf.as_bytes());
    }

    fn second(&mut self, time: Timestamp) -> &SecondTexts {
        let seconds = time.as_secs();
        if self
            .second
            .as_ref()
            .is_none_or(|last| last.seconds != seconds)
        {
            self.second = Some(SecondTexts::new(time));
        }
        self.second.as_ref().expect("just written")
    }
}

impl LogLine {
    fn cache_word(&self) -> &'static [u8] {
        self.outcome.as_str().as_bytes()
    }
}

impl SecondTexts {
    fn new(time: Timestamp) -> Self {
        let date = format_http_date(time);
        let [day, month, year, clock] = date_parts(&date);
        let number = MONTHS.iter().position(|name| *name == month);
        let number = number.map_or(0, |index| index + 1);
        Self {
            seconds: time.as_secs(),
            rfc3339: format!("{year}-{number:02}-{day}T{clock}."),
            clf: format!("{day}/{month}/{year}:{clock} +0000"),
        }
    }
}

/// Calls `visit` with the values of a line that have a field of their own in the journal, and their names.
pub(super) fn for_each_value(line: &LogLine, visit: &mut dyn FnMut(&'static str, &[u8])) {
    let (request, _) = line.request.read();
    let mut text = Vec::new();
    push_address(request.peer, &mut text);
    visit("EDGEWARD_CLIENT", &text);
    visit("EDGEWARD_METHOD", request.method.unwrap_or(b"-"));
    visit("EDGEWARD_SCHEME", scheme(&request));
    visit("EDGEWARD_HOST", request.host);
    visit("EDGEWARD_TARGET", request.target);
    visit("EDGEWARD_CACHE", line.cache_word());
    for (name, number) in [
        ("EDGEWARD_STATUS", line.status.into()),
        ("EDGEWARD_BYTES", line.bytes),
        ("EDGEWARD_DURATION_US", micros(line.duration)),
    ] {
        visit(name, itoa::Buffer::new().format(number).as_bytes());
    }
    if line.aborted {
        visit("EDGEWARD_ABORTED", b"true");
    }
    if let Some(detail) = &line.detail {
        visit("EDGEWARD_DETAIL", detail.as_bytes());
    }
}

/// The words of nginx for the outcomes of a cache.
const fn nginx_cache_status(class: OutcomeClass) -> &'static str {
    match class {
        OutcomeClass::Hit => "HIT",
        OutcomeClass::HitStale => "STALE",
        OutcomeClass::Miss => "MISS",
        OutcomeClass::Revalidated => "REVALIDATED",
        OutcomeClass::Pass => "BYPASS",
        OutcomeClass::Refused | OutcomeClass::None => "",
    }
}

const fn flag(is_set: bool) -> &'static [u8] {
    if is_set { b"true" } else { b"" }
}

/// Appends milliseconds as seconds with three decimals.
fn push_seconds(millis: u64, out: &mut Vec<u8>) {
    push_number(millis / 1000, out);
    out.push(b'.');
    push_millis(millis, out);
}

/// Appends the last three digits of a number of milliseconds.
fn push_millis(millis: u64, out: &mut Vec<u8>) {
    let millis = (millis % 1000) as u16;
    let digits = [millis / 100, millis / 10 % 10, millis % 10];
    out.extend(digits.map(|digit| b'0' + digit as u8));
}

/// Appends a text with the escapes of nginx's `log_format`: `"`, `\` and all bytes but printable ASCII become `\xXX`.
/// Outside of quotes, a space does too, because a client could forge further values of the line.
fn push_nginx(text: &[u8], is_quoted: bool, out: &mut Vec<u8>) {
    let is_plain = |byte| {
        matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\' && (is_quoted || byte != b' ')
    };
    push_escaped(text, out, is_plain, |byte, out| {
        out.extend_from_slice(b"\\x");
        out.extend_from_slice(&hex_digits(byte).map(|digit| digit.to_ascii_uppercase()));
    });
}

/// Appends `GET /path HTTP/1.1`, or `-` if the head could not be parsed.
fn push_request_line(request: &RequestFacts<'_>, out: &mut Vec<u8>) {
    let Some(method) = request.method else {
        out.push(b'-');
        return;
    };
    push_quoted(method, out);
    out.push(b' ');
    push_quoted(request.target, out);
    out.push(b' ');
    out.extend_from_slice(protocol(request.version));
}

fn push_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn push_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            push_number(a.into(), out);
            for part in [b, c, d] {
                out.push(b'.');
                push_number(part.into(), out);
            }
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}

/// Appends a text as a JSON string. Bytes that are not UTF-8 become U+FFFD. Hidden characters are escaped, so that the
/// log cannot control a terminal that shows it.
fn push_json(text: &[u8], out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(text);
    let start = out.len();
    out.push(b'"');
    push_escaped(
        text.as_bytes(),
        out,
        is_plain_in_json,
        |byte, out| match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&hex_digits(byte));
            }
        },
    );
    out.push(b'"');
    if !text.is_ascii() || text.contains('\u{7f}') {
        let visible = match visible_json(&String::from_utf8_lossy(&out[start..])) {
            Cow::Owned(visible) => visible,
            Cow::Borrowed(_) => return,
        };
        out.truncate(start);
        out.extend_from_slice(visible.as_bytes());
    }
}

/// Appends a text in which `"`, `\` and all bytes but printable ASCII are escaped as Apache httpd does, so that a
/// client can neither end the quotes nor the line, nor control a terminal that shows the log.
fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    push_escaped(text, out, is_plain_in_quotes, |byte, out| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        _ => {
            out.extend_from_slice(b"\\x");
            out.extend_from_slice(&hex_digits(byte));
        }
    });
}

const fn is_plain_in_json(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

const fn is_plain_in_quotes(byte: u8) -> bool {
    is_plain_in_json(byte) && byte < 0x7f
}

/// Appends the runs of bytes for which `is_plain` holds as they are, and the other bytes by `escape`.
fn push_escaped(
    text: &[u8],
    out: &mut Vec<u8>,
    is_plain: impl Fn(u8) -> bool,
    escape: impl Fn(u8, &mut Vec<u8>),
) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| !is_plain(*byte)) {
        out.extend_from_slice(&rest[..at]);
        escape(rest[at], out);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn hex_digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

const fn scheme(request: &RequestFacts<'_>) -> &'static [u8] {
    if request.is_tls { b"https" } else { b"http" }
}

const fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_09 => b"HTTP/0.9",
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2.0",
        Version::HTTP_3 => b"HTTP/3.0",
        _ => b"HTTP/1.1",
    }
}

/// Returns day, month, year and time of day of a date such as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
fn date_parts(date: &HeaderValue) -> [&str; 4] {
    let text = date.to_str().expect("a date is ASCII");
    [&text[5..7], &text[8..11], &text[12..16], &text[17..25]]
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests;
