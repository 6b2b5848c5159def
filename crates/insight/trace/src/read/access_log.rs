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
use super::line_prefix::without_line_prefix;
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
            .or_else(|| number::iso8601(parts.time))
            .ok_or_else(|| bad_field("time", parts.time, "like 17/May/2015:10:05:03 +0000"))?;
        let status = number::status(parts.status)
            .ok_or_else(|| bad_field("status", parts.status, "a status code of three digits"))?;
        let size = number::optional_whole(parts.bytes)
            .ok_or_else(|| bad_field("bytes", parts.bytes, "a whole number of bytes or `-`"))?
            .unwrap_or(0);
        let (method, url) = match request_line(parts.request) {
            Some(request) => request,
            None => (
                parts
                    .request
                    .split(|byte| *byte == b' ')
                    .next()
                    .unwrap_or_default(),
                &[][..],
            ),
        };
        if !self.rules.accept(method, status, size) {
            return Ok(None);
        }
        if url.is_empty() {
            return Err(bad_field("request", parts.request, "a method and a URL"));
        }
        Ok(Some(Record {
            time,
            key: self.rules.key(parts.host, url, &mut self.key),
            size,
        }))
    }
}

impl AccessLogRules {
    /// Returns true if a line with these fields counts as a request. A size of 0 is unknown.
    pub(super) fn accept(&self, method: &[u8], status: u16, size: u64) -> bool {
        self.statuses.contains(&status)
            && self.methods.iter().any(|m| m.as_bytes() == method)
            && size > 0
    }

    /// Returns the key of a URL. `buffer` gets the host, path and query that are hashed.
    pub(super) fn key(&self, vhost: &[u8], url: &[u8], buffer: &mut Vec<u8>) -> u64 {
        let (host, mut path) = split_absolute(url).unwrap_or((vhost, url));
        if self.query == QueryRule::Cut
            && let Some(at) = memchr::memchr(b'?', path)
        {
            path = &path[..at];
        }
        buffer.clear();
        // Hosts are case-insensitive, paths are case-sensitive (RFC 9110, section 4.2.3).
        buffer.extend(host.iter().map(u8::to_ascii_lowercase));
        buffer.extend_from_slice(path);
        hash_key(buffer)
    }
}

/// Returns method and URL of a request line, or `None` without a URL. The URL ends at the protocol that ends the line
/// (`HTTP/1.1`) and not at its first space, because clients send URLs with spaces and servers log them unchanged.
#[inline]
pub fn request_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (method, rest) = line.split_at(memchr::memchr(b' ', line)?);
    let rest = &rest[1..];
    let url = match memchr::memrchr(b' ', rest) {
        Some(at) if is_protocol(&rest[at + 1..]) => &rest[..at],
        None if is_protocol(rest) => &[],
        _ => rest,
    };
    let begin = url.iter().take_while(|byte| **byte == b' ').count();
    let end = url.iter().rev().take_while(|byte| **byte == b' ').count();
    let url = url.get(begin..url.len() - end).unwrap_or_default();
    (!method.is_empty() && !url.is_empty()).then_some((method, url))
}

/// Returns true for a protocol with its version, such as `HTTP/1.1` or `HTTP/2`.
fn is_protocol(word: &[u8]) -> bool {
    let Some(slash) = memchr::memchr(b'/', word) else {
        return false;
    };
    let (name, version) = (&word[..slash], &word[slash + 1..]);
    !name.is_empty()
        && name.iter().all(u8::is_ascii_alphabetic)
        && version.first().is_some_and(u8::is_ascii_digit)
        && version
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

/// Returns true if a text can be the host of a request, with or without a port: a name, an IPv4 address, or an IPv6
/// address in brackets (RFC 3986, section 3.2.2). A time and a bare IPv6 address have more than one colon, so they
/// cannot; neither can texts with blanks, quotes or slashes.
pub fn is_host(text: &[u8]) -> bool {
    let (name, port) = match text {
        [b'[', rest @ ..] => match memchr::memchr(b']', rest) {
            Some(end) => (&[][..], &rest[end + 1..]),
            None => return false,
        },
        _ => text.split_at(memchr::memchr(b':', text).unwrap_or(text.len())),
    };
    let is_name_byte = |byte: &u8| match byte {
        b'.' | b'-' | b'_' | b'~' | b'*' | b'%' => true,
        byte => byte.is_ascii_alphanumeric() || *byte >= 0x80,
    };
    let port_is_valid = match port {
        b"" => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let bracketed = text.first() == Some(&b'[');
    port_is_valid && (bracketed || !name.is_empty()) && name.iter().all(is_name_byte)
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
        // The user name and the text of a log collector may have brackets. The time starts at a bracket that a date
        // follows.
        let is_date = |at: &usize| {
            let byte = |offset: usize| line.get(at + offset).copied();
            (byte(3) == Some(b'/') && byte(7) == Some(b'/'))
                || (byte(5) == Some(b'-') && byte(8) == Some(b'-'))
        };
        let open = memchr::memchr_iter(b'[', line)
            .find(is_date)
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
/// host. `before` is the text before the time. A time of a log collector and an IPv6 client are not hosts, though they
/// end with a colon and digits.
fn virtual_host(before: &[u8]) -> &[u8] {
    // Most lines have no virtual host and no colon.
    if memchr::memchr(b':', before).is_none() {
        return &[];
    }
    let words = || {
        without_line_prefix(before)
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
    };
    let Some(first) = words().next() else {
        return &[];
    };
    let colon = first.iter().rposition(|byte| *byte == b':');
    match colon {
        // If the line has only three words here, the first word is the client.
        Some(at) if at + 1 < first.len() && is_host(first) && words().count() > 3 => &first[..at],
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

    /// Texts before the time that end a word with a colon and digits.
    #[test]
    fn a_time_or_an_ipv6_address_is_not_a_virtual_host() {
        let host = |before: &str| {
            let line =
                format!(r#"{before} - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5"#);
            let parts = AccessLogLine::split(line.as_bytes()).expect("the line has all fields");
            String::from_utf8_lossy(parts.host).into_owned()
        };
        for before in [
            "2015-05-17T10:05:03.250+02:00 web1 nginx: 192.0.2.1",
            "2015-05-17T10:05:03 web1 nginx: 192.0.2.1",
            "May 17 10:05:03 web1 nginx[22]: 192.0.2.1",
            "10:05:03 192.0.2.1",
            "2001:db8:7::6062 example.org",
            "2001:db8:7::6062 - Jane",
            "::1:80 x",
            "example.org:x 192.0.2.1",
            "example.org: 192.0.2.1",
        ] {
            assert_eq!(host(before), "", "{before}");
        }
        for (before, expected) in [
            ("example.org:80 192.0.2.1", "example.org"),
            ("example.org:443 2001:db8::1", "example.org"),
            ("[2001:db8::1]:443 192.0.2.1", "[2001:db8::1]"),
            (
                "2015-05-17T10:05:03.2+02:00 web1 nginx: example.org:80 192.0.2.1",
                "example.org",
            ),
            (
                "May  7 10:05:03 web1 nginx: example.org:80 192.0.2.1",
                "example.org",
            ),
        ] {
            assert_eq!(host(before), expected, "{before}");
        }
    }

    #[test]
    fn a_host_has_no_blanks_quotes_or_bare_colons() {
        for host in [
            "a",
            "a.example",
            "A-b_c.example:8080",
            "192.0.2.1",
            "[::1]",
            "[2001:db8::1]:80",
            "x:",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for other in [
            "",
            ":80",
            "a b",
            "a\"",
            "a/b",
            "::1",
            "2001:db8::80",
            "10:05:03",
            "2015-05-17T10:05:03",
            "a:x",
            "[::1",
            "[::1]x",
            "a@b",
        ] {
            assert!(!is_host(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_space_does_not_end_a_url() {
        for (line, url) in [
            ("GET /a HTTP/1.1", "/a"),
            ("GET /a b.pdf HTTP/1.1", "/a b.pdf"),
            ("GET /a b HTTP/2", "/a b"),
            ("GET /a HTTP/1.1 HTTP/1.1", "/a HTTP/1.1"),
            ("GET /a b", "/a b"),
            ("GET /a", "/a"),
            ("GET  /a  HTTP/1.1", "/a"),
        ] {
            assert_eq!(
                request_line(line.as_bytes()),
                Some((&b"GET"[..], url.as_bytes())),
                "{line}"
            );
        }
        for none in [
            "",
            "-",
            "GET",
            "GET ",
            " /a",
            "GET  HTTP/1.1",
            "GET HTTP/1.1",
        ] {
            assert_eq!(request_line(none.as_bytes()), None, "{none}");
        }
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
            ("GET /a HTTP/1.1", 200, "-1"),
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
                r#"h - - [17/May/2015:10:05:03 +0000] "GET /a" 2x 7"#,
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
