//! NCSA access logs, common and combined, with or without Apache's `vhost:port` in front.
//!
//! ```text
//! 192.0.2.7 - alice [17/May/2015:10:05:03 +0000] "GET /a.png HTTP/1.1" 200 2326 "ref" "agent"
//! ```
//!
//! The key is the hash of host and URL, the host being the virtual host where the log tells
//! it or the one of an absolute URL, and empty otherwise. The size is the bytes of the body
//! sent, so a size changes when a transfer was broken off; where nothing was sent (`-` or 0)
//! the size is not known, and the line is passed over.

use crate::number;
use crate::{Record, hash_key};

use super::error::Problem;
use super::lines::{LineParser, bad_field, is_blank, is_void, missing_field};
use super::options::{AccessLogRules, QueryRule};

pub(super) struct AccessLogParser {
    rules: AccessLogRules,
    /// Host and URL of the line at hand, kept for its allocation.
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
        if is_void(line) {
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
        // Hosts are compared without regard to case (RFC 9110, section 4.2.3), paths with.
        self.key.extend(host.iter().map(u8::to_ascii_lowercase));
        self.key.extend_from_slice(path);
    }
}

/// Host and path of `http://host/path`.
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

/// A line's fields as they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLogLine<'l> {
    /// The virtual host in front, without its port; empty where the log has none.
    pub host: &'l [u8],
    /// What stands between the brackets.
    pub time: &'l [u8],
    /// What stands between the first quotes, escapes included.
    pub request: &'l [u8],
    /// The status, not looked at yet.
    pub status: &'l [u8],
    /// The bytes of the body, or `-`; not looked at yet.
    pub bytes: &'l [u8],
}

impl<'l> AccessLogLine<'l> {
    /// Finds the fields.
    ///
    /// # Errors
    ///
    /// The name of the first field that is not there.
    #[inline]
    pub fn split(line: &'l [u8]) -> Result<Self, &'static str> {
        Self::split_usual(line).map_or_else(|| Self::split_any(line), Ok)
    }

    /// A line as nearly all are: nothing escaped at the end of the request, single spaces behind
    /// it. Finds what [`Self::split_any`] would, in three searches.
    #[inline]
    fn split_usual(line: &'l [u8]) -> Option<Self> {
        let open = memchr::memchr(b'[', line)?;
        let (before, after) = line.split_at(open);
        let (front, after) = after.split_at_checked(TIME_AND_QUOTE.len())?;
        let shaped = front[3] == b'/' && front[7] == b'/' && front[27..] == TIME_AND_QUOTE[27..];
        let end = memchr::memchr(b'"', after)?;
        let escaped = end > 0 && after[end - 1] == b'\\';
        let [b' ', s1, s2, s3, b' ', bytes @ ..] = &after[end + 1..] else {
            return None;
        };
        let bytes_end = bytes
            .iter()
            .position(|byte| is_blank(*byte))
            .unwrap_or(bytes.len());
        let plain = [s1, s2, s3].iter().all(|digit| digit.is_ascii_digit()) && bytes_end > 0;
        (shaped && !escaped && plain).then(|| Self {
            host: virtual_host(before),
            time: &front[1..27],
            request: &after[..end],
            status: &after[end + 2..end + 5],
            bytes: &bytes[..bytes_end],
        })
    }

    fn split_any(line: &'l [u8]) -> Result<Self, &'static str> {
        // The user name may hold anything, brackets included, so the time is sought by both
        // its ends: the bracket that a date follows.
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

/// What the usual line has between its client and its request; digits and letters vary.
const TIME_AND_QUOTE: &[u8; 30] = b"[17/May/2015:10:05:03 +0000] \"";

/// The quote that ends a field: servers write one inside as `\"`, a backslash as `\\`.
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

/// The host of a `vhost:port` in front of the three fields every access log has.
fn virtual_host(before: &[u8]) -> &[u8] {
    // Most logs have none, and most clients no colon.
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
        // With three words the first is the client, and its colons are those of IPv6.
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
        parse(line).expect(line).expect("a request").key
    }

    #[test]
    fn a_request_is_known_by_host_and_url() {
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

    /// Method: lines of every kind, and each with a byte changed or cut off at each place.
    #[test]
    fn the_quick_way_finds_what_the_thorough_way_does() {
        let lines = [
            r#"192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "x""#,
            r#"a.example:80 ::1 - b [17/May/2015:10:05:03 +0000] "GET /\"a\\" 404 -"#,
            r#"h - [x] [17/May/2015:10:05:03 +0000] "" 304 0"#,
        ];
        let check = |line: &[u8]| {
            if let Some(quick) = AccessLogLine::split_usual(line) {
                let thorough = AccessLogLine::split_any(line);
                // A bracket within the time is the one difference, and no time either way.
                let odd_time = memchr::memchr(b']', quick.time).is_some();
                assert!(odd_time || Ok(quick) == thorough, "{}", line.escape_ascii());
            }
        };
        assert!(AccessLogLine::split_usual(lines[0].as_bytes()).is_some());
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
    fn the_query_is_cut_when_asked() {
        let mut parser = AccessLogParser::new(AccessLogRules {
            query: QueryRule::Cut,
            ..AccessLogRules::default()
        });
        let line = br#"- - - [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.0" 200 5"#;
        let record = parser.parse(line).expect("well formed").expect("a request");
        assert_eq!(record.key, hash_key(b"/a"));
    }

    #[test]
    fn other_methods_and_statuses_and_empty_answers_are_passed_over() {
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
    fn odd_but_lawful_lines_are_read() {
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
    fn a_damaged_line_says_which_field_is_wrong() {
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
