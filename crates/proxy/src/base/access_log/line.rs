//! One request as a line of the access log.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use edgeward_semantics::{CacheStatus, Outcome, format_http_date};
use edgeward_types::Timestamp;
use http::{HeaderValue, Method, Version};
use serde::{Serialize, Serializer};

/// The line of a request whose response has ended. `docs/reference/access-log.md` describes the fields.
#[derive(Debug, Serialize)]
pub(crate) struct LogLine {
    #[serde(serialize_with = "serialize_time")]
    pub(crate) time: Timestamp,
    #[serde(rename = "client")]
    pub(crate) peer: IpAddr,
    /// `None` if the request's head could not be parsed.
    #[serde(serialize_with = "serialize_method")]
    pub(crate) method: Option<Method>,
    pub(crate) scheme: &'static str,
    pub(crate) host: Box<str>,
    pub(crate) target: Box<str>,
    #[serde(rename = "protocol", serialize_with = "serialize_version")]
    pub(crate) version: Version,
    pub(crate) status: u16,
    /// The number of body bytes that were handed to the connection.
    pub(crate) bytes: u64,
    #[serde(rename = "duration_us", serialize_with = "serialize_micros")]
    pub(crate) duration: Duration,
    pub(crate) cache: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) collapsed: bool,
    /// True if the response was not sent completely.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) aborted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) referer: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_agent: Option<Box<str>>,
}

impl LogLine {
    /// Records the outcome of the request, as the field `Cache-Status` of its response has it.
    pub(crate) fn set_cache_status(&mut self, cache_status: &CacheStatus) {
        self.cache = match cache_status.outcome {
            Outcome::Hit => "hit",
            Outcome::Forward(reason) => reason.as_str(),
        };
        self.collapsed = cache_status.collapsed;
        self.detail = cache_status.detail.as_deref().map(Into::into);
    }

    /// Returns a line with the time, the client's address and the scheme. All other fields have default values.
    pub(crate) fn without_request(peer: IpAddr, scheme: &'static str, now: Timestamp) -> Self {
        Self {
            time: now,
            peer: peer.to_canonical(),
            method: None,
            scheme,
            host: Box::default(),
            target: Box::default(),
            version: Version::HTTP_11,
            status: 0,
            bytes: 0,
            duration: Duration::ZERO,
            cache: "none",
            detail: None,
            collapsed: false,
            aborted: false,
            referer: None,
            user_agent: None,
        }
    }

    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// Writes `host ident user [time] "request" status bytes "referer" "agent"`, and the cache's outcome if
    /// `with_cache`.
    pub(super) fn write_combined(&self, out: &mut impl Write, with_cache: bool) -> io::Result<()> {
        write!(out, "{} - - [{}] \"", self.peer, clf_time(self.time))?;
        match &self.method {
            Some(method) => {
                write!(out, "{method} ")?;
                write_quoted(out, &self.target)?;
                write!(out, " {}", protocol(self.version))?;
            }
            None => out.write_all(b"-")?,
        }
        write!(out, "\" {} {} \"", self.status, self.bytes)?;
        write_quoted(out, self.referer.as_deref().unwrap_or("-"))?;
        out.write_all(b"\" \"")?;
        write_quoted(out, self.user_agent.as_deref().unwrap_or("-"))?;
        out.write_all(b"\"")?;
        if with_cache {
            write!(out, " {}", self.cache)?;
        }
        out.write_all(b"\n")
    }
}

fn serialize_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time))
}

fn serialize_method<S: Serializer>(
    method: &Option<Method>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.as_ref().map_or("-", Method::as_str))
}

fn serialize_version<S: Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(protocol(*version))
}

fn serialize_micros<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Escapes `"`, `\` and control characters as Apache httpd does, so that a client cannot end the quotes or the line.
fn write_quoted(out: &mut impl Write, text: &str) -> io::Result<()> {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.write_all(&[b'\\', byte])?,
            0..0x20 | 0x7f => write!(out, "\\x{byte:02x}")?,
            _ => out.write_all(&[byte])?,
        }
    }
    Ok(())
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Formats a time with milliseconds, such as `1994-11-06T08:49:37.123Z`.
fn rfc3339(time: Timestamp) -> String {
    let date = format_http_date(time);
    let [day, month, year, clock] = date_parts(&date);
    let month = MONTHS.iter().position(|name| *name == month);
    let month = month.map_or(0, |index| index + 1);
    let millis = time.as_millis() % 1000;
    format!("{year}-{month:02}-{day}T{clock}.{millis:03}Z")
}

/// Formats a time as the common log format does: `06/Nov/1994:08:49:37 +0000`.
fn clf_time(time: Timestamp) -> String {
    let date = format_http_date(time);
    let [day, month, year, clock] = date_parts(&date);
    format!("{day}/{month}/{year}:{clock} +0000")
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
mod tests {
    use super::*;

    fn sample() -> LogLine {
        LogLine {
            method: Some(Method::GET),
            host: "example.com".into(),
            target: "/a?b=\"c\"".into(),
            status: 200,
            bytes: 1234,
            duration: Duration::from_micros(56),
            cache: "hit",
            user_agent: Some("curl \\ \n\u{7f}".into()),
            ..LogLine::without_request(
                [192, 0, 2, 7].into(),
                "http",
                Timestamp::from_millis(951_827_696_789),
            )
        }
    }

    #[test]
    fn a_combined_line_has_the_format_of_apache_and_escapes_quotes() {
        let mut out = Vec::new();
        sample()
            .write_combined(&mut out, true)
            .expect("memory is writable");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "192.0.2.7 - - [29/Feb/2000:12:34:56 +0000] \"GET /a?b=\\\"c\\\" HTTP/1.1\" 200 1234 \
             \"-\" \"curl \\\\ \\x0a\\x7f\" hit\n"
        );
    }

    #[test]
    fn a_json_line_has_every_field_that_is_known() {
        let mut out = Vec::new();
        sample().write_json(&mut out).expect("memory is writable");
        let parsed: serde_json::Value = serde_json::from_slice(&out).expect("one JSON object");
        assert_eq!(parsed["time"], "2000-02-29T12:34:56.789Z");
        assert_eq!(parsed["cache"], "hit");
        assert_eq!(parsed["bytes"], 1234);
        assert_eq!(parsed["target"], "/a?b=\"c\"");
        assert!(parsed.get("referer").is_none());
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
    }

    #[test]
    fn days_around_leap_years_and_centuries_are_right() {
        for (secs, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_secs(secs)), expected);
        }
    }
}
