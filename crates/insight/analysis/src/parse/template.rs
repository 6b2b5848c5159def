//! Logs with a format string: nginx's `log_format`, Apache's `LogFormat`, varnishncsa's `-F`.
//!
//! A format string is compiled once into fields and the literal texts between them. A line is then split at
//! these texts. A value extends to the next text, so the format string needs a text between two values. Within
//! quotes, an escaped quote does not end the value.
//!
//! Some programs pad a value with spaces, and log collectors write their own text before each line. If a line does not
//! fit the format string or has an invalid value, it is therefore parsed again: first with runs of spaces in place of
//! single spaces, and then without the text of the log collector.

use std::fmt;

use edgeward_trace::raw::without_line_prefix;

use crate::clock::Clock;
use crate::{Entry, MalformedLine};

use super::fields::{Field, LineFields};
use super::is_blank_or_comment;

/// A compiled format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    /// The text before the first value.
    front: Vec<u8>,
    /// The fields of the values, each with the text that follows the value. The field is `None` if the parser ignores
    /// the value. The last text may be empty.
    values: Vec<(Option<Field>, Vec<u8>)>,
    /// True if no value outside of quotes has a quote in it.
    strict: bool,
    /// True if the values are padded with spaces.
    padded: bool,
}

/// The reason why a format string is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    problem: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Compiles a format string with nginx's variables (`$status`, `${status}`), or with Apache's and Varnish's
    /// directives (`%>s`, `%{Host}i`).
    ///
    /// # Errors
    ///
    /// Fails if the string has neither variables nor directives, if no text separates two values, or if no
    /// value has the URL.
    pub fn compile(text: &str) -> Result<Self, TemplateError> {
        let error = |problem: String| TemplateError { problem };
        let pieces = if text.contains('$') {
            nginx(text)
        } else if text.contains('%') {
            apache(text)
        } else {
            return Err(error(format!(
                "`{text}` has neither variables like $status nor directives like %>s"
            )));
        };
        let mut template = Self {
            text: text.to_owned(),
            front: Vec::new(),
            values: Vec::new(),
            strict: false,
            padded: false,
        };
        let mut last_name = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => match template.values.last_mut() {
                    Some((_, end)) => end.extend_from_slice(&text),
                    None => template.front.extend_from_slice(&text),
                },
                Piece::Value(name, field) => {
                    if template
                        .values
                        .last()
                        .is_some_and(|(_, end)| end.is_empty())
                    {
                        return Err(error(format!(
                            "no text separates {last_name} and {name}, so a parser cannot tell \
                             where the first ends"
                        )));
                    }
                    template.values.push((field, Vec::new()));
                    last_name = name;
                }
            }
        }
        let has = |wanted: Field| {
            template
                .values
                .iter()
                .any(|(field, _)| *field == Some(wanted))
        };
        if !(has(Field::Url) || has(Field::Request) || has(Field::Path)) {
            return Err(error(
                "no value has the URL: add $request, $request_uri or $uri; %r or %U".to_owned(),
            ));
        }
        Ok(template)
    }

    /// The format string.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the template of a preset, in which no value outside of quotes has a quote in it.
    pub(super) fn into_strict(self, padded: bool) -> Self {
        Self {
            strict: true,
            padded,
            ..self
        }
    }

    /// Splits a line into its fields. If `padded` is true, spaces before a value that follows a space do not belong to
    /// the value.
    fn split<'l>(&self, line: &'l [u8], padded: bool) -> Option<LineFields<'l>> {
        let mut rest = line.strip_prefix(&self.front[..])?;
        let mut quoted = self.front.last() == Some(&b'"');
        let mut fields = LineFields::default();
        let mut after_space = true;
        for (at, (field, end)) in self.values.iter().enumerate() {
            if padded && after_space {
                rest = rest.trim_ascii_start();
            }
            let length = if end.is_empty() {
                rest.len()
            } else if quoted && end[0] == b'"' {
                end_of_quoted(rest, end)?
            } else if at + 1 == self.values.len() {
                // The last text ends the line, so it may also occur within the value.
                rest.strip_suffix(&end[..])?.len()
            } else {
                find(rest, end)?
            };
            if self.strict && !quoted && memchr::memchr(b'"', &rest[..length]).is_some() {
                return None;
            }
            if let Some(field) = field {
                fields.set(*field, &rest[..length]);
            }
            rest = &rest[length + end.len()..];
            quoted = end.last() == Some(&b'"');
            after_space = end.last() == Some(&b' ');
        }
        // If the last value is quoted, the line may continue after it, because an updated server may add fields at
        // the end of its lines. The rest of the line is ignored.
        Some(fields)
    }
}

/// Returns the end of a value with escaped quotes. `end` starts with a quote.
fn end_of_quoted(value: &[u8], end: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', value.get(at..)?)?;
        if value[at] == b'\\' {
            at += 2;
        } else if value[at..].starts_with(end) {
            return Some(at);
        } else {
            at += 1;
        }
    }
}

fn find(value: &[u8], end: &[u8]) -> Option<usize> {
    if let [byte] = end {
        return memchr::memchr(*byte, value);
    }
    memchr::memmem::find(value, end)
}

#[derive(Clone, Debug)]
pub(super) struct TemplateParser {
    template: Template,
    clock: Clock,
    /// The buffer for a URL that is made of a path and a query.
    joined: Vec<u8>,
}

impl TemplateParser {
    pub(super) fn new(template: Template) -> Self {
        Self {
            template,
            clock: Clock::default(),
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
        let Self {
            template,
            clock,
            joined,
        } = self;
        let stripped = without_line_prefix(line);
        let has_prefix = stripped.len() < line.len();
        let attempts = [
            (line, template.padded),
            (line, true),
            (stripped, template.padded),
            (stripped, true),
        ];
        let mut first_error = None;
        for (at, (line, padded)) in attempts.into_iter().enumerate() {
            if (at >= 2 && !has_prefix) || (at % 2 == 1 && template.padded) {
                continue;
            }
            let fields = template.split(line, padded);
            let parts = fields
                .ok_or(MalformedLine::not("line", "laid out as the format says"))
                .and_then(|fields| fields.parts(clock, joined));
            match parts {
                Ok(parts) => return Ok(parts.map(|parts| parts.entry(joined))),
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        Err(first_error.expect("every attempt that failed has an error"))
    }
}

enum Piece {
    Text(Vec<u8>),
    /// The name of a value in the string, and its field.
    Value(String, Option<Field>),
}

/// Splits a format string with nginx's variables into literal texts and values.
fn nginx(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        pieces.push(Piece::Text(before.into()));
        let after = &after[1..];
        let braced = after
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        let (name, behind) = braced.unwrap_or_else(|| {
            let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            after.split_at(end.unwrap_or(after.len()))
        });
        pieces.push(Piece::Value(format!("${name}"), nginx_field(name)));
        rest = behind;
    }
    pieces.push(Piece::Text(rest.into()));
    pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
    pieces
}

fn nginx_field(name: &str) -> Option<Field> {
    Some(match name {
        "time_local" | "time_iso8601" | "msec" => Field::Time,
        "request_method" => Field::Method,
        "host" | "http_host" => Field::Host,
        "request_uri" => Field::Url,
        "uri" | "document_uri" => Field::Path,
        "args" | "query_string" => Field::Query,
        "request" => Field::Request,
        "status" => Field::Status,
        "body_bytes_sent" | "bytes_sent" => Field::Bytes,
        "sent_http_content_type" | "upstream_http_content_type" => Field::MediaType,
        "upstream_cache_status"
        | "sent_http_x_cache"
        | "upstream_http_x_cache"
        | "sent_http_cache_status"
        | "upstream_http_cache_status" => Field::Outcome,
        "hostname" => Field::Machine,
        "request_time" => Field::Duration,
        // The names of `--fields`.
        name => return Field::from_name(name),
    })
}

/// Splits a format string with the directives of Apache and Varnish into literal texts and values.
fn apache(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            // Escapes are those of httpd.conf and of shells: `\"` is a quote, and `\t` a tab.
            '\\' => {
                let Some(escaped) = rest.chars().next() else {
                    literal.push(b'\\');
                    break;
                };
                rest = &rest[escaped.len_utf8()..];
                let unescaped = match escaped {
                    't' => '\t',
                    'n' => '\n',
                    other => other,
                };
                literal.extend_from_slice(unescaped.encode_utf8(&mut [0; 4]).as_bytes());
            }
            '%' if rest.starts_with('%') => {
                literal.push(b'%');
                rest = &rest[1..];
            }
            '%' => {
                let (name, field, behind) = directive(rest);
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Value(format!("%{name}"), field));
                rest = behind;
            }
            other => literal.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    pieces
}

/// Parses the directive at the start of `text`, whose `%` is removed. Returns the directive without `%`, its field,
/// and the text after the directive.
fn directive(text: &str) -> (&str, Option<Field>, &str) {
    // A directive may begin with status codes, and with `<` (the original request) or `>` (the request after
    // internal redirects): `%!200,304>s`.
    let start = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '!' | ',' | '<' | '>')))
        .unwrap_or(text.len());
    let (argument, letter_at) = match text[start..].strip_prefix('{') {
        Some(inner) => match inner.find('}') {
            Some(end) => (&inner[..end], start + end + 2),
            None => ("", text.len()),
        },
        None => ("", start),
    };
    let letter = text[letter_at..].chars().next();
    let end = letter_at + letter.map_or(0, char::len_utf8);
    let named = |name: &str| argument.eq_ignore_ascii_case(name);
    let field = match letter {
        Some('t') => Some(Field::Time),
        Some('r') => Some(Field::Request),
        Some('m') => Some(Field::Method),
        Some('U') => Some(Field::Path),
        Some('q') => Some(Field::Query),
        Some('s') => Some(Field::Status),
        Some('b' | 'B' | 'O') => Some(Field::Bytes),
        Some('V') if !argument.is_empty() => vcl_field(argument),
        Some('v' | 'V') => Some(Field::Host),
        Some('D') => Some(Field::DurationMicros),
        Some('T') if argument.is_empty() || named("s") => Some(Field::Duration),
        Some('T') if named("us") => Some(Field::DurationMicros),
        Some('i') if named("Host") => Some(Field::Host),
        Some('o') if named("Content-Type") => Some(Field::MediaType),
        Some('o') if named("X-Cache") || named("Cache-Status") => Some(Field::Outcome),
        Some('x') if named("Varnish:hitmiss") || named("Varnish:handling") => Some(Field::Outcome),
        _ => None,
    };
    (&text[..end], field, &text[end..])
}

/// Returns the field of a VCL variable: Fastly's directive `%{now}V` is the value of the variable `now`.
fn vcl_field(name: &str) -> Option<Field> {
    Some(match &name.to_ascii_lowercase()[..] {
        "now" | "time.start.sec" => Field::Time,
        "req.method" | "req.request" => Field::Method,
        "req.http.host" => Field::Host,
        "req.url" => Field::Url,
        "resp.status" => Field::Status,
        "resp.bytes_written" | "resp.body_bytes_written" => Field::Bytes,
        "resp.http.content-type" => Field::MediaType,
        "fastly_info.state" | "resp.http.x-cache" => Field::Outcome,
        "server.identity" | "server.datacenter" => Field::Machine,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use crate::Outcome;

    use super::*;

    const NGINX: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
        \"$http_referer\" \"$http_user_agent\" ${upstream_cache_status} $host";

    fn parser(text: &str) -> TemplateParser {
        TemplateParser::new(Template::compile(text).expect(text))
    }

    #[test]
    fn the_duration_of_a_request_is_in_seconds_or_microseconds() {
        for (format, line) in [
            (
                "\"$request\" $request_time",
                &b"\"GET /a HTTP/1.1\" 0.250"[..],
            ),
            ("\"%r\" %D", b"\"GET /a HTTP/1.1\" 250000"),
            ("\"%r\" %{us}T", b"\"GET /a HTTP/1.1\" 250000"),
        ] {
            let mut parser = parser(format);
            let entry = parser.parse(line).expect("the line fits the format");
            let duration = entry.and_then(|entry| entry.duration);
            let expected = std::time::Duration::from_millis(250);
            assert_eq!(duration, Some(expected), "{format}");
        }
    }

    #[test]
    fn an_nginx_log_format_is_parsed() {
        let line =
            b"192.0.2.7 - a b [17/May/2015:10:05:03 +0000] \"GET /a?b HTTP/1.1\" 200 512 \"-\" \
            \"say \\\"x\\\" y\" HIT example.org";
        let mut parser = parser(NGINX);
        let entry = parser
            .parse(line)
            .expect("the line has the form of the format")
            .expect("the line is a request");
        let expected = Entry {
            time: Some(Timestamp::from_secs(1_431_857_103)),
            method: b"GET",
            host: b"example.org",
            url: b"/a?b",
            status: 200,
            bytes: Some(512),
            outcome: Some(Outcome::Hit),
            outcome_text: b"HIT",
            ..Entry::default()
        };
        assert_eq!(entry, expected);
    }

    #[test]
    fn a_varnishncsa_format_is_parsed() {
        let text = r#"%h %l %u %t \"%r\" %>s %b %{Varnish:hitmiss}x %{Content-Type}o"#;
        let line =
            b"::1 - - [17/May/2015:10:05:03 +0000] \"GET http://h/a\\\"b HTTP/1.1\" 404 - miss \
            text/html; charset=utf-8";
        let mut parser = parser(text);
        let entry = parser
            .parse(line)
            .expect("the line has the form of the format")
            .expect("the line is a request");
        assert_eq!((entry.host, entry.url), (&b"h"[..], &br#"/a\"b"#[..]));
        assert_eq!((entry.status, entry.bytes), (404, None));
        assert_eq!(entry.outcome, Some(Outcome::Miss));
        assert_eq!(entry.media_type, b"text/html; charset=utf-8");
    }

    #[test]
    fn a_separate_path_and_query_are_joined_to_a_url() {
        let mut parser = parser("%m|%U|%q|%!200>s|%{sec}t|100%%");
        let line = b"GET|/a|x=1|200|1431857103|100%";
        let entry = parser
            .parse(line)
            .expect("the line has the form of the format")
            .expect("the line is a request");
        assert_eq!(entry.url, b"/a?x=1");
        assert_eq!(entry.time, Some(Timestamp::from_secs(1_431_857_103)));
    }

    #[test]
    fn padding_and_the_text_of_a_log_collector_are_skipped() {
        let mut squid =
            parser("$msec $x $remote_addr $upstream_cache_status/$status $bytes_sent $request_uri");
        for line in [
            "1431857103.250 120355 192.0.2.7 TCP_HIT/200 5 http://h/a",
            "1431857103.250      7 192.0.2.7 TCP_HIT/200 5 http://h/a",
            "2015-05-17T10:05:03+02:00 web1 squid: 1431857103.250      7 192.0.2.7 TCP_HIT/200 5 http://h/a",
        ] {
            let entry = squid
                .parse(line.as_bytes())
                .expect(line)
                .expect("the line is a request");
            assert_eq!((entry.host, entry.url), (&b"h"[..], &b"/a"[..]), "{line}");
            assert_eq!(
                (entry.status, entry.outcome),
                (200, Some(Outcome::Hit)),
                "{line}"
            );
        }
        let mut hosts =
            parser("$host $remote_addr [$time_local] \"$request\" $status $body_bytes_sent");
        let line = b"2015-05-17T10:05:03+02:00 web1 nginx: h 192.0.2.7 [17/May/2015:10:05:03 +0000] \"GET /a\" 200 5";
        let entry = hosts
            .parse(line)
            .expect("the line has the form of the format")
            .expect("the line is a request");
        assert_eq!(entry.host, b"h");
    }

    #[test]
    fn a_variable_of_vcl_is_not_the_host() {
        let mut parser = parser(r#"%h "%{now}V" %l "%r" %H %>s %b %{req.http.host}V"#);
        let line =
            br#"192.0.2.7 "Sun, 17 May 2015 10:05:03 GMT" - "GET /a" HTTP/1.1 200 5 example.org"#;
        let entry = parser
            .parse(line)
            .expect("the line has the form of the format")
            .expect("the line is a request");
        assert_eq!(entry.time, Some(Timestamp::from_secs(1_431_857_103)));
        assert_eq!((entry.host, entry.url), (&b"example.org"[..], &b"/a"[..]));
    }

    #[test]
    fn a_line_that_does_not_fit_is_malformed() {
        let mut parser = parser(NGINX);
        for line in [&b"x"[..], b"GET /a", b"- - - [] \"GET /a\" 200 5"] {
            assert!(parser.parse(line).is_err(), "{}", line.escape_ascii());
        }
        assert_eq!(parser.parse(b""), Ok(None));
    }

    #[test]
    fn an_invalid_format_string_is_rejected() {
        for (text, message) in [
            ("combined", "neither variables"),
            ("$status $host", "no value has the URL"),
            ("%h%r", "no text separates %h and %r"),
            ("$request$status", "no text separates $request and $status"),
        ] {
            let error = Template::compile(text).expect_err(text).to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
