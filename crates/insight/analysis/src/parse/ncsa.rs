//! NCSA common and combined logs, as written by Apache httpd, nginx, Varnish and edgeward.
//!
//! ```text
//! 192.0.2.7 - alice [17/May/2015:10:05:03 +0000] "GET /a.png HTTP/1.1" 200 2326 "ref" "agent"
//! ```
//!
//! A trace may be a log of this format too, so the crate `trace` has the function that splits a line into fields. A
//! trace reader ignores lines without a size, but this parser counts every request.

use edgeward_trace::raw::{AccessLogLine, is_host, iso8601, request_line, whole};

use crate::clock::Clock;
use crate::{Entry, MalformedLine, Outcome, UnknownOutcome};

use super::{bytes, host_and_path, is_blank_or_comment, status};

#[derive(Clone, Debug, Default)]
pub(super) struct NcsaParser {
    clock: Clock,
}

impl NcsaParser {
    pub(super) fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Option<Entry<'l>>, MalformedLine> {
        match self.parse_common(line) {
            Some(entry) => Ok(Some(entry)),
            None => self.parse_any(line),
        }
    }

    /// Parses a line of the most common form: a GET request with a version like `HTTP/1.1`, without escapes and
    /// without virtual host. Returns `None` for other lines. Takes two thirds of the time of [`Self::parse_any`].
    #[inline(always)]
    pub(super) fn parse_common<'l>(&mut self, line: &'l [u8]) -> Option<Entry<'l>> {
        let (_, rest) = line.split_at_checked(first_bracket_or_colon(line)?)?;
        let (front, rest) = rest.split_first_chunk::<{ TIME_AND_METHOD.len() }>()?;
        if front[0] != b'[' || front[27..] != TIME_AND_METHOD[27..] || line[0] == b'#' {
            return None;
        }
        let (url, rest) = rest.split_at(memchr::memchr2(b' ', b'"', rest)?);
        let (tail, rest) = rest.split_first_chunk::<15>()?;
        let [
            b' ',
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'0'..=b'9',
            b'.',
            b'0'..=b'9',
            b'"',
            b' ',
            status @ ..,
            b' ',
        ] = tail
        else {
            return None;
        };
        let digits = digits(rest);
        let ends = rest
            .get(digits)
            .is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        if url.first() != Some(&b'/') || !ends {
            return None;
        }
        let (outcome, outcome_text) = outcome(line);
        Some(Entry {
            time: Some(self.clock.read(&front[1..27])?),
            method: b"GET",
            url,
            status: super::status(status).ok()?,
            bytes: Some(number(&rest[..digits])?),
            outcome,
            outcome_text,
            ..Entry::default()
        })
    }

    fn parse_any<'l>(&mut self, line: &'l [u8]) -> Result<Option<Entry<'l>>, MalformedLine> {
        if is_blank_or_comment(line) {
            return Ok(None);
        }
        let fields = AccessLogLine::split(line).map_err(MalformedLine::missing)?;
        let time = self
            .clock
            .read(fields.time)
            .or_else(|| iso8601(fields.time));
        let time = time.ok_or(MalformedLine::not(
            "time",
            "like 17/May/2015:10:05:03 +0000",
        ))?;
        let status = status(fields.status)?;
        let bytes = bytes(fields.bytes)?;
        let Some((method, url)) = request_line(fields.request) else {
            // The line has no URL if the client closed the connection (408) or sent TLS to a plain-text port (400).
            return if status >= 400 || status == 0 {
                Ok(None)
            } else {
                Err(MalformedLine::not("request", "a method and a URL"))
            };
        };
        let (host, url) = host_and_path(fields.host, url);
        if !host.is_empty() && !is_host(host) {
            return Err(MalformedLine::not("host", "the name or address of a host"));
        }
        let (outcome, outcome_text) = outcome(line);
        Ok(Some(Entry {
            time: Some(time),
            method,
            host,
            url,
            status,
            bytes,
            outcome,
            outcome_text,
            ..Entry::default()
        }))
    }
}

/// Returns how the cache handled the request and the word that states it, if a word follows the last quote, as in
/// edgeward's `combined-cache` and many nginx logs.
#[inline]
fn outcome(line: &[u8]) -> (Option<Outcome>, &[u8]) {
    // Most lines end with the quote of the user agent, or with a number.
    let Some(word) = last_word(line) else {
        return (None, b"");
    };
    // The word is a guess: the log may have another field after the user agent.
    match Outcome::from_text(word) {
        Ok(Some(outcome)) => (Some(outcome), word),
        Ok(None) | Err(UnknownOutcome) => (None, b""),
    }
}

#[inline]
fn last_word(line: &[u8]) -> Option<&[u8]> {
    if !line.last()?.is_ascii_alphabetic() {
        return None;
    }
    let quote = memchr::memrchr(b'"', line)?;
    let (blank, word) = line[quote + 1..].split_first()?;
    let is_word = *blank == b' '
        && word
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    is_word.then_some(word)
}

/// Returns the position of the first bracket or colon. A colon before the bracket belongs to a virtual host or
/// an IPv6 client, so the line does not have the most common form.
#[inline(always)]
fn first_bracket_or_colon(line: &[u8]) -> Option<usize> {
    // The fast path for `10.1.2.3 - - [` and other IPv4 clients without a user name.
    if let Some(beginning) = line.first_chunk::<24>() {
        let [first, second, third] = words(beginning);
        let found = |word| equal(word, b'[') | equal(word, b':');
        let later_matches = u128::from(found(second)) | u128::from(found(third)) << 64;
        if found(first) == 0 && later_matches != 0 {
            return Some(8 + later_matches.trailing_zeros() as usize / 8);
        }
    }
    memchr::memchr2(b'[', b':', line)
}

/// Returns the number of leading digits.
#[inline(always)]
fn digits(text: &[u8]) -> usize {
    if let Some(beginning) = text.first_chunk::<8>() {
        // The exclusive or maps the digits to 0 to 9. Adding 0x76 to a byte from 0x0a to 0x89 sets its top bit;
        // larger bytes have this bit already. The addition may carry, so bytes after the first non-digit may be
        // classified wrongly.
        let word = u64::from_le_bytes(*beginning) ^ (ONES * u64::from(b'0'));
        let others = (word | word.wrapping_add(ONES * 0x76)) & (ONES * 0x80);
        if others != 0 {
            return others.trailing_zeros() as usize / 8;
        }
    }
    let other = text.iter().position(|byte| !byte.is_ascii_digit());
    other.unwrap_or(text.len())
}

/// Parses digits; `None` if there are no digits or the number exceeds 64 bits.
#[inline(always)]
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return whole(digits);
    }
    // 19 digits fit in 64 bits, so no digit needs a check for overflow. Without checks, the compiler removes the
    // computation if the caller does not use the number.
    let value = |value, digit: &u8| value * 10 + u64::from(digit - b'0');
    Some(digits.iter().fold(0, value))
}

/// Returns a word with the top bit set in each byte in which `word` equals `byte`. The bytes after the first
/// match may be wrong.
#[inline(always)]
const fn equal(word: u64, byte: u8) -> u64 {
    let zero = word ^ (ONES * byte as u64);
    zero.wrapping_sub(ONES) & !zero & (ONES * 0x80)
}

#[inline(always)]
fn words(bytes: &[u8; 24]) -> [u64; 3] {
    let (words, _) = bytes.as_chunks::<8>();
    [words[0], words[1], words[2]].map(u64::from_le_bytes)
}

/// A word whose bytes are all 1.
const ONES: u64 = u64::MAX / 255;

/// An example of the text between client and URL in a line of the most common form. Other lines have other times.
const TIME_AND_METHOD: &[u8; 34] = b"[17/May/2015:10:05:03 +0000] \"GET ";

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> Result<Option<Entry<'_>>, MalformedLine> {
        NcsaParser::default().parse(line.as_bytes())
    }

    #[test]
    fn a_word_after_the_user_agent_is_the_outcome() {
        let line = |method: &str, tail: &str| {
            format!(
                r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "{method} /a HTTP/1.1" 200 9 "-" "x"{tail}"#
            )
        };
        for method in ["GET", "POST"] {
            for (tail, outcome) in [
                (" hit", Some(Outcome::Hit)),
                (" uri-miss", Some(Outcome::Miss)),
                (" HIT", Some(Outcome::Hit)),
                ("", None),
                (" 0.003", None),
                (" nonsense", None),
                ("hit", None),
            ] {
                let line = line(method, tail);
                let entry = parse(&line).expect(&line).expect("the entry exists");
                assert_eq!(entry.outcome, outcome, "{line}");
            }
        }
    }

    #[test]
    fn a_combined_line_is_parsed() {
        let line = r#"Example.org:443 192.0.2.7 - bob [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/2.0" 206 99 "-" "x""#;
        assert_eq!(
            parse(line),
            Ok(Some(Entry {
                time: Some(Timestamp::from_secs(1_431_857_103)),
                method: b"GET",
                host: b"Example.org",
                url: b"/a?b",
                status: 206,
                bytes: Some(99),
                ..Entry::default()
            }))
        );
    }

    /// Method: take a common line and two unusual lines. At every position, change a byte, insert a byte, or cut the
    /// line off.
    #[test]
    fn the_fast_path_has_the_result_of_the_full_parser() {
        let lines = [
            r#"192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "x""#,
            r#"a.example:80 ::1 - b [17/May/2015:10:05:03 +0000] "GET /\"a\\ HTTP/1.1" 404 7"#,
            r#"h - [17/May/2015:10:05:0] [17/May/2015:10:05:03 +0000] "GET / HTTP/2.0" 304 0"#,
        ];
        let mut quick = 0;
        let mut check = |line: &[u8]| {
            if let Some(entry) = NcsaParser::default().parse_common(line) {
                let thorough = NcsaParser::default().parse_any(line);
                assert_eq!(thorough, Ok(Some(entry)), "{}", line.escape_ascii());
                quick += 1;
            }
        };
        for line in lines.map(str::as_bytes) {
            for at in 0..line.len() {
                check(&line[..at]);
                for byte in *b" \"[]\\:-/#7G\t\r" {
                    let mut changed = line.to_vec();
                    changed[at] = byte;
                    check(&changed);
                    changed[at] = line[at];
                    changed.insert(at, byte);
                    check(&changed);
                }
            }
        }
        assert!(quick > 500, "{quick} lines took the fast path");
    }

    proptest! {
        /// Method: compare `first_bracket_or_colon` and `digits` with a search byte by byte, in random text with many
        /// matching bytes.
        #[test]
        fn the_search_by_words_equals_a_search_by_bytes(
            text in prop::collection::vec(prop::sample::select(b"0379/:;[Z\x00\x7f\x80\x89\x8a\xff".to_vec()), 0..40),
            digits_before in 0usize..12,
        ) {
            let first = text.iter().position(|byte| matches!(byte, b'[' | b':'));
            prop_assert_eq!(first_bracket_or_colon(&text), first);
            let mut number = vec![b'9'; digits_before];
            number.extend_from_slice(&text);
            let other = number.iter().position(|byte| !byte.is_ascii_digit());
            prop_assert_eq!(digits(&number), other.unwrap_or(number.len()));
        }
    }

    /// The host in an absolute URL is the host of the entry.
    #[test]
    fn the_host_of_an_absolute_url_is_the_host() {
        let line = r#"h - - [17/May/2015:10:05:03 +0000] "GET http://a.example HTTP/1.1" 200 -"#;
        let entry = parse(line)
            .expect("the input is valid")
            .expect("the line is a request");
        assert_eq!((entry.host, entry.url), (&b"a.example"[..], &b"/"[..]));
        assert_eq!(entry.bytes, None);
    }

    /// Method: lines as servers write them for requests without a response, with one field each that is unknown.
    #[test]
    fn an_unknown_status_or_size_costs_the_field_and_not_the_line() {
        for (tail, status, bytes) in [
            ("000 0", 0, Some(0)),
            ("009 12", 0, Some(12)),
            ("- 5", 0, Some(5)),
            ("-1 5", 0, Some(5)),
            ("200 -", 200, None),
            ("200 -1", 200, None),
        ] {
            let line = format!(r#"h - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" {tail}"#);
            let entry = parse(&line).expect(&line).expect("the line is a request");
            assert_eq!((entry.status, entry.bytes), (status, bytes), "{line}");
        }
    }

    #[test]
    fn times_with_a_fraction_or_of_iso_8601_are_parsed() {
        for time in [
            "17/May/2015:10:05:03.250 +0000",
            "17/May/2015:10:05:03.25",
            "17/May/2015:12:05:03.250 +02:00",
            "2015-05-17T10:05:03.250Z",
            "2015-05-17 12:05:03.250+0200",
        ] {
            let line = format!(r#"web[1]: h - - [{time}] "GET /a b HTTP/1.1" 200 5"#);
            let entry = parse(&line).expect(&line).expect("the line is a request");
            assert_eq!(
                entry.time,
                Some(Timestamp::from_millis(1_431_857_103_250)),
                "{line}"
            );
            assert_eq!(entry.url, b"/a b");
        }
    }

    #[test]
    fn rejected_requests_without_a_url_are_skipped() {
        let line = |request: &str, status: u16| {
            format!(r#"h - - [17/May/2015:10:05:03 +0000] "{request}" {status} 0"#)
        };
        for request in ["-", "", r"\x16\x03\x01"] {
            assert_eq!(parse(&line(request, 400)), Ok(None), "{request}");
            assert_eq!(parse(&line(request, 0)), Ok(None), "{request}");
            let error = parse(&line(request, 200)).expect_err("the line has no URL");
            assert_eq!(error.field, "request");
        }
    }

    #[test]
    fn a_malformed_line_names_the_invalid_field() {
        for (line, field) in [
            ("h - -", "time in brackets"),
            (r#"h - - [yesterday] "GET /a HTTP/1.1" 200 7"#, "time"),
            ("h - - [17/May/2015:10:05:03 +0000]", "request in quotes"),
            (
                r#"h - - [17/May/2015:10:05:03 +0000] "GET /a" x 7"#,
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
            assert_eq!(parse(line).expect_err(line).field, field, "{line}");
        }
    }
}
