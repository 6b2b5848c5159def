//! `Cache-Status` (RFC 9211): the response field that says how a cache handled the request.
//!
//! The server writes the field and the load generator parses it. Both functions are here, and tests check that
//! they agree.

use std::borrow::Cow;
use std::fmt;

use http::header::{CACHE_STATUS, HeaderMap, HeaderValue};

use crate::list::{self, Members};

/// The member of the field that this cache writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Says that the request was a hit, or why it was forwarded.
    pub outcome: Outcome,
    /// The status of the origin's response, if the request was forwarded (§2.3).
    pub fwd_status: Option<u16>,
    /// The remaining freshness lifetime in seconds, negative if the response is stale (§2.4).
    pub ttl: Option<i64>,
    /// True if the response was stored (§2.5).
    pub stored: bool,
    /// True if the request shared another request's fetch (§2.6).
    pub collapsed: bool,
    /// Additional information (§2.8), for example the reason why the response was not stored.
    pub detail: Option<Cow<'static, str>>,
}

/// Either `hit` (§2.1) or `fwd` (§2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The cache answered without contacting the origin.
    Hit,
    /// The request was forwarded to the origin for this reason.
    Forward(Forward),
}

/// Why a request was forwarded to the origin (§2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The configuration excludes the request from caching.
    Bypass,
    /// The semantics of the method require forwarding, for example POST.
    Method,
    /// No response is stored for the URI.
    UriMiss,
    /// Responses are stored for the URI, but not for these request fields.
    VaryMiss,
    /// No usable response is stored; URI miss and Vary miss are not distinguished.
    Miss,
    /// A fresh response is stored, but the request does not allow its use.
    Request,
    /// The stored response is stale.
    Stale,
    /// Only a part of the response is stored.
    Partial,
}

impl Forward {
    /// Every reason. Each has one metric series.
    pub const ALL: [Self; 8] = [
        Self::Bypass,
        Self::Method,
        Self::UriMiss,
        Self::VaryMiss,
        Self::Miss,
        Self::Request,
        Self::Stale,
        Self::Partial,
    ];

    /// Returns the token of §2.2 for this reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }

    fn from_token(token: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str().as_bytes() == token)
    }
}

impl CacheStatus {
    /// Returns the status of a hit with the given remaining lifetime.
    pub const fn hit(ttl_secs: i64) -> Self {
        let mut status = Self::with_outcome(Outcome::Hit);
        status.ttl = Some(ttl_secs);
        status
    }

    /// Returns the status of a request that was forwarded to the origin.
    pub const fn forward(reason: Forward) -> Self {
        Self::with_outcome(Outcome::Forward(reason))
    }

    /// Sets the detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    const fn with_outcome(outcome: Outcome) -> Self {
        Self {
            outcome,
            fwd_status: None,
            ttl: None,
            stored: false,
            collapsed: false,
            detail: None,
        }
    }

    /// Appends this node's member: `edgeward; hit; ttl=42`. `node` must be a token. The code that reads the
    /// configuration checks this.
    pub fn write(&self, node: &str, line: &mut String) {
        self.write_to(node, line)
            .expect("writing to a String does not fail");
    }

    /// Returns the member as a field value. For a hit, the only allocation is the returned value.
    pub fn to_header_value(&self, node: &str) -> HeaderValue {
        let mut line = ShortLine {
            bytes: [0; SHORT_LINE_BYTES],
            length: 0,
        };
        let value = match self.write_to(node, &mut line) {
            Ok(()) => HeaderValue::from_bytes(&line.bytes[..line.length]),
            Err(_) => {
                let mut line = String::with_capacity(2 * SHORT_LINE_BYTES);
                self.write(node, &mut line);
                HeaderValue::from_bytes(line.as_bytes())
            }
        };
        // This default is used only if `node` is invalid.
        value.unwrap_or_else(|_| HeaderValue::from_static("edgeward"))
    }

    fn write_to(&self, node: &str, line: &mut impl fmt::Write) -> fmt::Result {
        line.write_str(node)?;
        match self.outcome {
            Outcome::Hit => line.write_str("; hit")?,
            Outcome::Forward(reason) => {
                line.write_str("; fwd=")?;
                line.write_str(reason.as_str())?;
            }
        }
        if let Some(status) = self.fwd_status {
            line.write_str("; fwd-status=")?;
            write_status(status, line)?;
        }
        if let Some(ttl) = self.ttl {
            // RFC 8941 §3.3.1: an integer has at most fifteen digits.
            write!(line, "; ttl={}", ttl.clamp(-SF_INTEGER_MAX, SF_INTEGER_MAX))?;
        }
        if self.stored {
            line.write_str("; stored")?;
        }
        if self.collapsed {
            line.write_str("; collapsed")?;
        }
        if let Some(detail) = &self.detail {
            line.write_str("; detail=")?;
            write_token_or_string(detail, line)?;
        }
        Ok(())
    }

    /// Appends the member to the field. Members of caches that are nearer to the origin come first (§2).
    pub fn append_to(&self, response: &mut HeaderMap, node: &str) {
        response.append(CACHE_STATUS, self.to_header_value(node));
    }

    /// Parses the last member that `node` wrote. If two nodes have this name, this is the member of the node
    /// that is nearer to the client. Members with neither `hit` nor a known reason in `fwd` are ignored. Returns `None`
    /// if no member is left.
    pub fn from_headers(response: &HeaderMap, node: &str) -> Option<Self> {
        list::members(response, &CACHE_STATUS)
            .filter_map(|member| Self::parse_member(member, node))
            .last()
    }

    /// Like [`from_headers`](Self::from_headers), for one line of the field.
    pub fn parse(line: &[u8], node: &str) -> Option<Self> {
        Members::new(line)
            .filter_map(|member| Self::parse_member(member, node))
            .last()
    }

    fn parse_member(member: &[u8], node: &str) -> Option<Self> {
        let mut parts = Parameters { rest: Some(member) };
        let name = parts.next()?;
        // §2: the cache's name is a String or a Token.
        let matches = match parse_string(name) {
            Some(name) => name == node,
            None => name == node.as_bytes(),
        };
        if !matches {
            return None;
        }
        let mut outcome = None;
        // The outcome in `status` is replaced at the end.
        let mut status = Self::with_outcome(Outcome::Hit);
        for part in parts {
            let (key, value) = match part.iter().position(|&byte| byte == b'=') {
                Some(at) => (&part[..at], Some(&part[at + 1..])),
                None => (part, None),
            };
            match (key, value) {
                (b"hit", None | Some(b"?1")) => outcome = Some(Outcome::Hit),
                (b"fwd", Some(token)) => {
                    outcome = Forward::from_token(token).map(Outcome::Forward).or(outcome);
                }
                (b"fwd-status", Some(digits)) => status.fwd_status = parse_number(digits),
                (b"ttl", Some(digits)) => status.ttl = parse_number(digits),
                (b"stored", None | Some(b"?1")) => status.stored = true,
                (b"collapsed", None | Some(b"?1")) => status.collapsed = true,
                (b"detail", Some(value)) => {
                    status.detail = parse_string(value)
                        .or_else(|| parse_token(value).map(str::to_owned))
                        .map(Cow::Owned);
                }
                _ => {}
            }
        }
        outcome.map(|outcome| Self { outcome, ..status })
    }
}

/// Writes the status code of `fwd-status`. Most responses that are not hits have this parameter, so this function
/// avoids `write!`, which is slower.
fn write_status(status: u16, line: &mut impl fmt::Write) -> fmt::Result {
    if !(100..1000).contains(&status) {
        return write!(line, "{status}");
    }
    for divisor in [100, 10, 1] {
        let digit = u32::from(status / divisor % 10);
        line.write_char(char::from_digit(digit, 10).unwrap_or('0'))?;
    }
    Ok(())
}

/// Yields the parts of a member, trimmed. Semicolons outside strings separate the parts.
struct Parameters<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Parameters<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let bytes = self.rest?;
        let mut end = 0;
        while let Some(&byte) = bytes.get(end) {
            match byte {
                b';' => break,
                // An unclosed string extends to the end of the member.
                b'"' => {
                    end = list::closing_quote(bytes, end).map_or(bytes.len(), |close| close + 1);
                }
                _ => end += 1,
            }
        }
        self.rest = bytes.get(end + 1..);
        Some(list::trim(&bytes[..end]))
    }
}

/// Returns the content of an sf-string (RFC 8941 §3.3.3), or `None` for other bytes.
fn parse_string(bytes: &[u8]) -> Option<String> {
    if bytes.first() != Some(&b'"') || list::closing_quote(bytes, 0)? != bytes.len() - 1 {
        return None;
    }
    let mut text = String::with_capacity(bytes.len());
    let mut content = bytes[1..bytes.len() - 1].iter();
    while let Some(&byte) = content.next() {
        let byte = if byte == b'\\' {
            *content.next()?
        } else {
            byte
        };
        if !matches!(byte, b' '..=b'~') {
            return None;
        }
        text.push(char::from(byte));
    }
    Some(text)
}

fn parse_number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the bytes as an sf-token (RFC 8941 §3.3.4), or `None` if they are not a token.
fn parse_token(bytes: &[u8]) -> Option<&str> {
    // A token starts with a letter or `*`. `:` and `/` may follow.
    let has_valid_start = bytes
        .first()
        .is_some_and(|&first| first.is_ascii_alphabetic() || first == b'*');
    let is_token = has_valid_start
        && bytes
            .iter()
            .all(|&byte| list::is_token_byte(byte) || matches!(byte, b':' | b'/'));
    is_token.then(|| std::str::from_utf8(bytes).ok()).flatten()
}

/// Writes the text as a token if it is a valid token, otherwise as a string. A string may contain only visible
/// ASCII and spaces (RFC 8941 §3.3.3), so other bytes are omitted.
fn write_token_or_string(text: &str, line: &mut impl fmt::Write) -> fmt::Result {
    if let Some(token) = parse_token(text.as_bytes()) {
        return line.write_str(token);
    }
    line.write_char('"')?;
    for byte in text.bytes().filter(|byte| matches!(byte, b' '..=b'~')) {
        if matches!(byte, b'"' | b'\\') {
            line.write_char('\\')?;
        }
        line.write_char(char::from(byte))?;
    }
    line.write_char('"')
}

/// A text of limited length on the stack. Writing fails if the text does not fit.
struct ShortLine {
    bytes: [u8; SHORT_LINE_BYTES],
    length: usize,
}

impl fmt::Write for ShortLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let target = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        target.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The length of a [`ShortLine`] in bytes: enough for `edgeward; fwd=vary-miss; fwd-status=200; ttl=…; stored;
/// collapsed` and a short detail.
const SHORT_LINE_BYTES: usize = 128;

/// The largest sf-integer (RFC 8941 §3.3.1).
const SF_INTEGER_MAX: i64 = 999_999_999_999_999;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn line(status: &CacheStatus) -> String {
        let mut line = String::new();
        status.write("edgeward", &mut line);
        line
    }

    #[test]
    fn a_member_has_the_format_of_the_rfc() {
        assert_eq!(line(&CacheStatus::hit(376)), "edgeward; hit; ttl=376");
        assert_eq!(line(&CacheStatus::hit(-412)), "edgeward; hit; ttl=-412");
        let miss = CacheStatus {
            fwd_status: Some(200),
            ttl: Some(60),
            stored: true,
            collapsed: true,
            ..CacheStatus::forward(Forward::UriMiss)
        };
        assert_eq!(
            line(&miss),
            "edgeward; fwd=uri-miss; fwd-status=200; ttl=60; stored; collapsed"
        );
        let pass = CacheStatus::forward(Forward::Method).with_detail("no-store");
        assert_eq!(line(&pass), "edgeward; fwd=method; detail=no-store");
        let odd = CacheStatus::forward(Forward::Bypass).with_detail("say \"a\\b\"\n");
        assert_eq!(line(&odd), r#"edgeward; fwd=bypass; detail="say \"a\\b\"""#);
    }

    /// Method: write details with lengths just below and above the size of the stack buffer.
    #[test]
    fn a_field_value_equals_the_written_line_at_any_length() {
        for length in [0, 1, 100, 101, 102, 103, 104, 105, 1000] {
            let status = CacheStatus::forward(Forward::Miss).with_detail("x".repeat(length));
            assert_eq!(
                status.to_header_value("edgeward"),
                line(&status).as_str(),
                "{length}"
            );
        }
        assert_eq!(CacheStatus::hit(1).to_header_value("no\ntoken"), "edgeward");
    }

    #[test]
    fn ttl_stays_a_structured_integer() {
        assert_eq!(
            line(&CacheStatus::hit(i64::MAX)),
            "edgeward; hit; ttl=999999999999999"
        );
        assert_eq!(
            line(&CacheStatus::hit(i64::MIN)),
            "edgeward; hit; ttl=-999999999999999"
        );
    }

    /// §2: members are in the order from the origin to the client, so the member of this cache is the last one
    /// with its name.
    #[test]
    fn the_member_of_this_cache_is_found_among_others() {
        let table = [
            ("edgeward; hit", Some(Outcome::Hit)),
            (
                "origin-cache; hit, edgeward; fwd=stale; fwd-status=304",
                Some(Outcome::Forward(Forward::Stale)),
            ),
            (
                "edgeward; fwd=miss, other; hit",
                Some(Outcome::Forward(Forward::Miss)),
            ),
            (
                "edgeward; hit, edgeward; fwd=uri-miss",
                Some(Outcome::Forward(Forward::UriMiss)),
            ),
            ("\"edgeward\";hit", Some(Outcome::Hit)),
            ("edgeward;ttl=5;hit=?1", Some(Outcome::Hit)),
            (
                "edgeward; detail=\"; fwd=miss, edgeward; hit\"; fwd=stale",
                Some(Outcome::Forward(Forward::Stale)),
            ),
            ("edgeward", None),
            ("edgeward; hit=?0", None),
            ("edgeward; fwd=unheard-of", None),
            ("Edgeward; hit", None),
            ("other; hit", None),
            ("", None),
        ];
        for (line, expected) in table {
            let parsed = CacheStatus::parse(line.as_bytes(), "edgeward");
            assert_eq!(parsed.map(|status| status.outcome), expected, "{line}");
        }
        let mut response = headers("cache-status: edgeward; fwd=miss\ncache-status: x; hit");
        CacheStatus::hit(1).append_to(&mut response, "edgeward");
        assert_eq!(
            CacheStatus::from_headers(&response, "edgeward"),
            Some(CacheStatus::hit(1))
        );
    }

    proptest! {
        /// A member in the middle of a list is parsed to the status that was written.
        #[test]
        fn a_written_member_is_parsed_back(
            reason in proptest::option::of(0_usize..8),
            fwd_status in proptest::option::of(100_u16..1000),
            ttl in proptest::option::of(-SF_INTEGER_MAX..=SF_INTEGER_MAX),
            stored in any::<bool>(), collapsed in any::<bool>(),
            detail in proptest::option::of("[ -~]{0,12}"),
        ) {
            let status = CacheStatus {
                outcome: reason.map_or(Outcome::Hit, |n| Outcome::Forward(Forward::ALL[n])),
                fwd_status, ttl, stored, collapsed,
                detail: detail.map(Cow::Owned),
            };
            let mut text = "other; hit, ".to_owned();
            status.write("edgeward", &mut text);
            text.push_str(", last; fwd=bypass");
            prop_assert_eq!(CacheStatus::parse(text.as_bytes(), "edgeward"), Some(status));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = CacheStatus::parse(&bytes, "edgeward");
            let mut line = b"edgeward;".to_vec();
            line.extend_from_slice(&bytes);
            let _ = CacheStatus::parse(&line, "edgeward");
        }
    }
}
