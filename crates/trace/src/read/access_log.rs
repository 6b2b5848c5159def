//! Parses NCSA access logs, common and combined, with or without Apache's `vhost:port` at the start.
//!
//! ```text
//! 192.0.2.7 - alice [17/May/2015:10:05:03 +0000] "GET /a.png HTTP/1.1" 200 2326 "ref" "agent"
//! ```
//!
//! The key is the hash of host, path and query. The host is the host of an absolute URL, or else the virtual host
//! of the line. A line without both has an empty host. The size is the number of body bytes sent, so an aborted
//! transfer has a smaller size. If no bytes were sent (`-` or 0), the size is unknown and the line is ignored.

use crate::number;
use crate::{Record, hash_key};

use super::error::Problem;
use super::lines::{LineParser, bad_field, is_blank, is_blank_or_comment, missing_field};
use super::options::{AccessLogRules, QueryRule};

pub(super) struct AccessLogParser {
    rules: AccessLogRules,
    /// Host, path and query of the current line. This is a field so that its allocation is reused.
    key: Vec<u8>,
}

impl AccessLogParser {
    pub(super) const fn new(rules: AccessLogRules) -> Self {
        Self {
            rules,
            key: Vec::new(),
        }
    }
}

impl LineParser for AccessLogParser {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, Problem> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let parts = AccessLogLine::split(line).map_err(|field| missing_field(field, line))?;
        let time = number::access_log_time(parts.time)
            .ok_or_else(|| bad_field("time", parts.time, "like 17/May/2015:10:05:03 +0000"))?;
        let status = number::whole(parts.status)
            .and_then(|status| u16::try_from(status).ok())
            .filter(|status| (100..1000).contains(status))
            .ok_or_else(|| bad_field("status", parts.status, "a status code of three digits"))?;
        let size = match parts.bytes {
            b"-" => 0,
            digits => number::whole(digits)
                .ok_or_else(|| bad_field("bytes", digits, "a whole number of bytes or `-`"))?,
        };
        let mut words = parts.request.split(|byte| *byte == b' ');
        let method = words.next().unwrap_or_default();
        let wanted = self.rules.statuses.contains(&status)
            && self.rules.methods.iter().any(|m| m.as_bytes() == method)
            && size > 0;
        if !wanted {
            return Ok(None);
        }
        let url = words.next().unwrap_or_default();
        if url.is_empty() {
            return Err(bad_field("request", parts.request, "a method and a URL"));
        }
        self.build_key(parts.host, url);
        Ok(Some(Record {
            time,
            key: hash_key(&self.key),
            size,
        }))
    }
}

impl AccessLogParser {
    fn build_key(&mut self, vhost: &[u8], url: &[u8]) {
        let (host, mut path) = split_absolute(url).unwrap_or((vhost, url));
        if self.rules.query == QueryRule::Cut
            && let Some(at) = memchr::memchr(b'?', path)
        {
            path = &path[..at];
        }
        self.key.clear();
        // Hosts are case-insensitive, paths are case-sensitive (RFC 9110, section 4.2.3).
        self.key.extend(host.iter().map(u8::to_ascii_lowercase));
        self.key.extend_from_slice(path);
    }
}

/// Splits an absolute URL such as `http://host/path` into host and path. Returns `None` for other URLs.
pub fn split_absolute(url: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = url
        .strip_prefix(b"http://")
        .or_else(|| url.strip_prefix(b"https://"))?;
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// The unparsed fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLogLine<'l> {
    /// The virtual host without its port; empty if the log has no virtual hosts.
    pub host: &'l [u8],
    /// The text between the brackets.
    pub time: &'l [u8],
    /// The text between the first quotes, with its escapes.
    pub request: &'l [u8],
    /// The text of the status.
    pub status: &'l [u8],
    /// The text of the number of body bytes, or `-`.
    pub bytes: &'l [u8],
}

impl<'l> AccessLogLine<'l> {
    /// Splits a line into its fields.
    ///
    /// # Errors
    ///
    /// Returns the name of the first missing field.
    #[inline]
    pub fn split(line: &'l [u8]) -> Result<Self, &'static str> {
        Self::split_common(line).map_or_else(|| Self::split_any(line), Ok)
    }

    /// Splits a line of the most common form, or returns `None`. In this form the request does not end with an escape,
    /// and one space is before and after the status. The fields are those of [`Self::split_any`], with fewer searches.
    #[inline]
    fn split_common(line: &'l [u8]) -> Option<Self> {
        let open = memchr::memchr(b'[', line)?;
        let (before, after) = line.split_at(open);
        let (front, after) = after.split_at_checked(TIME_AND_QUOTE.len())?;
        let has_time_form =
            front[3] == b'/' && front[7] == b'/' && front[27..] == TIME_AND_QUOTE[27..];
        let end = memchr::memchr(b'"', after)?;
        let escaped = end > 0 && after[end - 1] == b'\\';
        let [b' ', s1, s2, s3, b' ', bytes @ ..] = &after[end + 1..] else {
            return None;
        };
        let bytes_end = bytes
            .iter()
            .position(|byte| is_blank(*byte))
            .unwrap_or(bytes.len());
        let is_valid = [s1, s2, s3].iter().all(|digit| digit.is_ascii_digit()) && bytes_end > 0;
        (has_time_form && !escaped && is_valid).then(|| Self {
            host: virtual_host(before),
            time: &front[1..27],
            request: &after[..end],
            status: &after[end + 2..end + 5],
            bytes: &bytes[..bytes_end],
        })
    }

    fn split_any(line: &'l [u8]) -> Result<Self, &'static str> {
        // The user name may have any characters, including brackets. The time starts at a bracket that a
        // date follows.
        let open = memchr::memchr_iter(b'[', line)
            .find(|at| line.get(at + 3) == Some(&b'/') && line.get(at + 7) == Some(&b'/'))
            .or_else(|| memchr::memchr(b'[', line))
            .ok_or("time in brackets")?;
        let (before, after) = (&line[..open], &line[open + 1..]);
        let close = memchr::memchr(b']', after).ok_or("time in brackets")?;
        let (time, after) = (&after[..close], &after[close + 1..]);
        let quote = memchr::memchr(b'"', after).ok_or("request in quotes")?;
        let after = &after[quote + 1..];
        let end = closing_quote(after).ok_or("request in quotes")?;
        let (request, after) = (&after[..end], &after[end + 1..]);
        let mut fields = after
            .split(|byte| is_blank(*byte))
            .filter(|field| !field.is_empty());
        Ok(Self {
            host: virtual_host(before),
            time,
            request,
            status: fields.next().ok_or("status")?,
            bytes: fields.next().ok_or("bytes")?,
        })
    }
}

/// An example of the time and of the quote that begins the request. A line must have the same slashes in the date and
/// the same last three bytes; the other bytes differ between lines.
const TIME_AND_QUOTE: &[u8; 30] = b"[17/May/2015:10:05:03 +0000] \"";

/// Returns the position of the quote that ends a field. In a field, `\"` is a quote and `\\` a backslash.
fn closing_quote(field: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', &field[at..])?;
        if field[at] == b'"' {
            return Some(at);
        }
        at += 2;
        if at >= field.len() {
            return None;
        }
    }
}

/// Returns the host if `vhost:port` precedes the three fields client, identity and user. Otherwise returns an empty
/// host. `before` is the text before the time.
fn virtual_host(before: &[u8]) -> &[u8] {
    // Most lines have no virtual host and no colon.
    if memchr::memchr(b':', before).is_none() {
        return &[];
    }
    let words = || {
        before
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
    };
    let Some(first) = words().next() else {
        return &[];
    };
    let colon = first.iter().rposition(|byte| *byte == b':');
    match colon {
        // If the line has only three words here, the first word is the client, and its colons belong to an IPv6
        // address.
        Some(at) if words().count() > 3 && number::whole(&first[at + 1..]).is_some() => {
            &first[..at]
        }
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Record>, Problem> {
        AccessLogParser::new(AccessLogRules::default()).parse(line.as_bytes())
    }

    fn key(line: &str) -> u64 {
        parse(line).expect(line).expect("the line is a request").key
    }

    #[test]
    fn the_key_of_a_request_is_host_and_url() {
        let tail = r#"- - [17/May/2015:10:05:03 +0000] "GET URL HTTP/1.1" 200 5"#;
        let line = |front: &str, url: &str| format!("{front} {}", tail.replace("URL", url));
        assert_eq!(key(&line("192.0.2.1", "/a?x=1")), hash_key(b"/a?x=1"));
        assert_eq!(key(&line("::1", "/a")), hash_key(b"/a"));
        assert_eq!(key(&line("2001:db8::1:80", "/a")), hash_key(b"/a"));
        assert_eq!(
            key(&line("Example.org:80 192.0.2.1", "/a")),
            hash_key(b"example.org/a")
        );
        assert_eq!(
            key(&line("192.0.2.1", "http://Example.org/A")),
            hash_key(b"example.org/A")
        );
    }

    /// Method: parse lines of every form with both parsers. Truncate each line, and change or insert a byte, at
    /// each position.
    #[test]
    fn both_parsers_find_the_same_fields() {
        let lines = [
            r#"192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "x""#,
            r#"a.example:80 ::1 - b [17/May/2015:10:05:03 +0000] "GET /\"a\\" 404 -"#,
            r#"h - [x] [17/May/2015:10:05:03 +0000] "" 304 0"#,
        ];
        let check = |line: &[u8]| {
            if let Some(quick) = AccessLogLine::split_common(line) {
                let thorough = AccessLogLine::split_any(line);
                // The parsers differ only if the time has a bracket. Such a time is invalid.
                let odd_time = memchr::memchr(b']', quick.time).is_some();
                assert!(odd_time || Ok(quick) == thorough, "{}", line.escape_ascii());
            }
        };
        assert!(AccessLogLine::split_common(lines[0].as_bytes()).is_some());
        for line in lines.map(str::as_bytes) {
            for at in 0..line.len() {
                check(&line[..at]);
                for byte in *b" \"[]\\:-7\t" {
                    let mut changed = line.to_vec();
                    changed[at] = byte;
                    check(&changed);
                    changed[at] = line[at];
                    changed.insert(at, byte);
                    check(&changed);
                }
            }
        }
    }

    #[test]
    fn the_query_is_removed_if_configured() {
        let mut parser = AccessLogParser::new(AccessLogRules {
            query: QueryRule::Cut,
            ..AccessLogRules::default()
        });
        let line = br#"- - - [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.0" 200 5"#;
        let record = parser
            .parse(line)
            .expect("the input is valid")
            .expect("the line is a request");
        assert_eq!(record.key, hash_key(b"/a"));
    }

    #[test]
    fn other_methods_and_statuses_and_empty_responses_are_ignored() {
        for (request, status, bytes) in [
            ("POST /a HTTP/1.1", 200, "5"),
            ("GET /a HTTP/1.1", 304, "5"),
            ("GET /a HTTP/1.1", 200, "-"),
            ("GET /a HTTP/1.1", 200, "0"),
            ("-", 408, "-"),
        ] {
            let line =
                format!(r#"h - - [17/May/2015:10:05:03 +0000] "{request}" {status} {bytes}"#);
            assert!(matches!(parse(&line), Ok(None)), "{line}");
        }
    }

    #[test]
    fn unusual_valid_lines_are_parsed() {
        for line in [
            r#"h - a [b] c [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 7"#,
            r#"h - - [17/May/2015:10:05:03 +0000] "GET /a" 200 7"#,
            r#"h - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 7 "-" "say \"x\" \\""#,
            "h - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 7\r",
        ] {
            let record = parse(line).expect(line).expect(line);
            assert_eq!((record.key, record.size), (hash_key(b"/a"), 7), "{line}");
        }
        let quoted = r#"h - - [17/May/2015:10:05:03 +0000] "GET /a\"b HTTP/1.1" 200 9"#;
        assert_eq!(key(quoted), hash_key(br#"/a\"b"#));
    }

    #[test]
    fn the_error_of_a_malformed_line_names_the_field() {
        for (line, field) in [
            ("h - -", "time"),
            ("h - - [17/May/2015:10:05:03 +0000", "time"),
            (r#"h - - [yesterday] "GET /a HTTP/1.1" 200 7"#, "time"),
            ("h - - [17/May/2015:10:05:03 +0000]", "request"),
            (r#"h - - [17/May/2015:10:05:03 +0000] "GET /a \"#, "request"),
            (
                r#"h - - [17/May/2015:10:05:03 +0000] "GET" 200 7"#,
                "request",
            ),
            (r#"h - - [17/May/2015:10:05:03 +0000] "GET /a""#, "status"),
            (
                r#"h - - [17/May/2015:10:05:03 +0000] "GET /a" 20 7"#,
                "status",
            ),
            (
                r#"h - - [17/May/2015:10:05:03 +0000] "GET /a" 200"#,
                "bytes",
            ),
            (
                r#"h - - [17/May/2015:10:05:03 +0000] "GET /a" 200 x"#,
                "bytes",
            ),
        ] {
            let message = parse(line).expect_err(line).to_string();
            assert!(message.contains(field), "{line}: {message}");
        }
    }
}
