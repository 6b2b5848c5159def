//! The fields that all formats share, and the conversion of a line's fields to an entry.

use core::net::Ipv6Addr;
use core::time::Duration;

use edgeward_trace::raw::{self, is_host, request_line};
use edgeward_types::Timestamp;

use crate::clock::Clock;
use crate::{Entry, MalformedLine, Outcome, UnknownOutcome};

use super::{bytes, host_and_path, status};

/// The meaning of a log field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The time, in the form of access logs or of ISO 8601, or as a number of seconds or smaller units since 1970.
    /// If the line has a [`Date`](Self::Date), this is the time of day in the form of ISO 8601.
    Time,
    /// The date in the form of ISO 8601, if the time is a separate field.
    Date,
    /// The method.
    Method,
    /// The requested host.
    Host,
    /// The URL as the client sent it: path and query, or an absolute URL.
    Url,
    /// A path or URL that may lack its query, or that the server may have rewritten.
    Path,
    /// The query alone, without its question mark.
    Query,
    /// Method, URL and protocol in one field.
    Request,
    /// The status.
    Status,
    /// Bytes sent.
    Bytes,
    /// The media type of the response.
    MediaType,
    /// The way in which the cache handled the request.
    Outcome,
    /// The machine that wrote the line.
    Machine,
    /// The time from the request to the end of the response, in seconds.
    Duration,
    /// The same time in microseconds.
    DurationMicros,
}

impl Field {
    /// Every field with its name on the command line.
    pub const ALL: [(&'static str, Self); COUNT] = [
        ("time", Self::Time),
        ("date", Self::Date),
        ("method", Self::Method),
        ("host", Self::Host),
        ("url", Self::Url),
        ("path", Self::Path),
        ("query", Self::Query),
        ("request", Self::Request),
        ("status", Self::Status),
        ("bytes", Self::Bytes),
        ("type", Self::MediaType),
        ("cache", Self::Outcome),
        ("machine", Self::Machine),
        ("duration", Self::Duration),
        ("duration_us", Self::DurationMicros),
    ];

    /// Returns the field with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|(known, _)| *known == name);
        row.map(|(_, field)| *field)
    }
}

const COUNT: usize = 15;

/// The fields of one line. A field that the line does not have is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineFields<'l>([&'l [u8]; COUNT]);

impl<'l> LineFields<'l> {
    #[inline]
    pub(super) fn set(&mut self, field: Field, value: &'l [u8]) {
        self.0[field as usize] = value;
    }

    /// Returns the value of a field. The value `-` counts as empty.
    #[inline]
    fn value(&self, field: Field) -> &'l [u8] {
        match self.0[field as usize] {
            b"-" => b"",
            value => value,
        }
    }

    /// Returns an entry with the values of the fields. Returns `None` if the line has no URL, or an invalid request
    /// line that the server answered with an error status. `joined` is the buffer for a URL that is made of path
    /// and query.
    ///
    /// The URL is the one that the client asked for: [`Field::Url`], otherwise that of the request line, otherwise path
    /// and query. A value that is not of its field makes the line malformed, because all other values may then belong
    /// to other fields, too.
    pub(super) fn entry<'a>(
        &self,
        clock: &mut Clock,
        joined: &'a mut Vec<u8>,
    ) -> Result<Option<Entry<'a>>, MalformedLine>
    where
        'l: 'a,
    {
        let parts = self.parts(clock, joined)?;
        Ok(parts.map(|parts| parts.entry(joined)))
    }

    /// Returns the parts of an entry. If the URL is made of several values, it is stored in `joined`.
    pub(super) fn parts(
        &self,
        clock: &mut Clock,
        joined: &mut Vec<u8>,
    ) -> Result<Option<EntryParts<'l>>, MalformedLine> {
        let status = status(self.value(Field::Status))?;
        let mut method = self.value(Field::Method);
        let mut url = self.value(Field::Url);
        let request = self.value(Field::Request);
        let path = self.value(Field::Path);
        if !request.is_empty() {
            match request_line(request) {
                Some((word, rest)) => {
                    method = if method.is_empty() { word } else { method };
                    url = if url.is_empty() { rest } else { url };
                }
                None if !url.is_empty() || !path.is_empty() => {}
                None if status >= 400 || status == 0 => return Ok(None),
                None => return Err(MalformedLine::not("request", "a method and a URL")),
            }
        }
        let may_lack_query = url.is_empty();
        let url = if may_lack_query { path } else { url };
        // Squid writes `error:invalid-request` in place of the URL of a request that it could not parse.
        if url.is_empty() || url.starts_with(b"error:") {
            return Ok(None);
        }
        let (mut host, url) = host_and_path(self.value(Field::Host), url);
        if !host.is_empty() && !is_host(host) {
            // Some servers log the client's or their own address in place of the host.
            let is_address =
                std::str::from_utf8(host).is_ok_and(|host| host.parse::<Ipv6Addr>().is_ok());
            if !is_address {
                return Err(MalformedLine::not("host", "the name or address of a host"));
            }
            host = b"";
        }
        let is_joined = may_lack_query && self.join(url, !host.is_empty(), joined);
        let outcome_text = self.value(Field::Outcome);
        let outcome = match outcome_text {
            b"" => None,
            text => Outcome::from_text(text)
                .map_err(|UnknownOutcome| MalformedLine::not("cache", "the word of a cache"))?,
        };
        let entry = Entry {
            time: self.time(clock)?,
            method,
            host,
            url,
            status,
            bytes: bytes(self.value(Field::Bytes))?,
            media_type: self.value(Field::MediaType),
            outcome,
            outcome_text,
            machine: self.value(Field::Machine),
            duration: duration(self.value(Field::Duration), 1_000_000)
                .or_else(|| duration(self.value(Field::DurationMicros), 1)),
        };
        Ok(Some(EntryParts { entry, is_joined }))
    }

    /// Stores a path with its query in `joined` and returns true. A path that has a query keeps it. If the host is
    /// known, a path without its first slash gets it. Returns false if the path is complete.
    fn join(&self, path: &[u8], has_host: bool, joined: &mut Vec<u8>) -> bool {
        let query = self.value(Field::Query);
        let query = query.strip_prefix(b"?").unwrap_or(query);
        let add_query = !query.is_empty() && !path.contains(&b'?');
        let add_slash = has_host && !matches!(path.first(), Some(b'/' | b'*' | b'?'));
        if add_query || add_slash {
            joined.clear();
            joined.extend(add_slash.then_some(b'/'));
            joined.extend_from_slice(path);
        }
        if add_query {
            joined.push(b'?');
            joined.extend_from_slice(query);
        }
        add_query || add_slash
    }

    fn time(&self, clock: &mut Clock) -> Result<Option<Timestamp>, MalformedLine> {
        let (date, time) = (self.value(Field::Date), self.value(Field::Time));
        if time.is_empty() {
            return Ok(None);
        }
        let read = if date.is_empty() {
            any_time(clock, time)
        } else {
            let mut both = [0; 40];
            let length = date.len() + 1 + time.len();
            both.get_mut(..length).and_then(|both| {
                both[..date.len()].copy_from_slice(date);
                both[date.len()] = b' ';
                both[date.len() + 1..].copy_from_slice(time);
                raw::iso8601(both)
            })
        };
        read.map(Some).ok_or_else(|| {
            MalformedLine::not(
                "time",
                "a time of an access log, of ISO 8601, of HTTP, or since 1970",
            )
        })
    }
}

/// Parses a duration, whose unit has `unit_micros` microseconds. A malformed duration counts as unknown, because logs
/// have several times with the same form.
fn duration(text: &[u8], unit_micros: u64) -> Option<Duration> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b""[..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut micros = raw::whole(whole)?.checked_mul(unit_micros)?;
    let mut unit = unit_micros;
    for digit in fraction {
        unit /= 10;
        micros = micros.checked_add(unit * u64::from(digit - b'0'))?;
    }
    Some(Duration::from_micros(micros))
}

/// An entry whose URL may be in another buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryParts<'l> {
    entry: Entry<'l>,
    /// True if the URL is made of several values and lies in the buffer.
    is_joined: bool,
}

impl<'l> EntryParts<'l> {
    /// Returns the entry. `joined` is the buffer that [`LineFields::parts`] has filled.
    pub(super) fn entry<'a>(self, joined: &'a [u8]) -> Entry<'a>
    where
        'l: 'a,
    {
        let mut entry: Entry<'a> = self.entry;
        if self.is_joined {
            entry.url = joined;
        }
        entry
    }
}

/// Parses a time in any of the forms that servers write.
fn any_time(clock: &mut Clock, text: &[u8]) -> Option<Timestamp> {
    let text = text.strip_prefix(b"[").unwrap_or(text);
    let text = text.strip_suffix(b"]").unwrap_or(text);
    match (text.get(2), text.get(3), text.get(4)) {
        (Some(b'/'), ..) => clock.read(text),
        (_, _, Some(b'-' | b'/')) => raw::iso8601(text),
        (_, Some(b','), _) => raw::internet_date(text),
        _ => since_1970(text),
    }
}

/// Parses the seconds, milliseconds, microseconds or nanoseconds since 1970. The size of the number determines the
/// unit: a number below [`SECONDS_MAX`] is in seconds, a number below 1000 times `SECONDS_MAX` in milliseconds, and
/// so on.
fn since_1970(text: &[u8]) -> Option<Timestamp> {
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let whole = raw::whole(&text[..point])?;
    let fraction = text.get(point + 1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let millis = if whole < SECONDS_MAX {
        let digit = |at: usize| fraction.get(at).map_or(0, |digit| u64::from(digit - b'0'));
        whole * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2)
    } else if whole < SECONDS_MAX * 1000 {
        whole
    } else if whole < SECONDS_MAX * 1_000_000 {
        whole / 1000
    } else {
        whole / 1_000_000
    };
    Some(Timestamp::from_millis(millis))
}

/// Smaller numbers are seconds since 1970. In seconds, this number is a time in the year 5138; in milliseconds, a
/// time in 1973. A time between these years is therefore below the limit in seconds, and above it in milliseconds.
const SECONDS_MAX: u64 = 100_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_its_own_index() {
        for (at, (name, field)) in Field::ALL.iter().enumerate() {
            assert_eq!(
                (*field as usize, Field::from_name(name)),
                (at, Some(*field))
            );
        }
    }

    #[test]
    fn times_are_parsed_in_all_forms_that_servers_write() {
        for text in [
            "17/May/2015:10:05:03 +0000",
            "[17/May/2015:12:05:03 +0200]",
            "2015-05-17T10:05:03Z",
            "2015-05-17 10:05:03",
            "2015/05/17 10:05:03",
            "17/May/2015:10:05:03",
            "Sun, 17 May 2015 10:05:03 GMT",
            "1431857103",
            "1431857103.000",
            "1431857103.0004",
            "1431857103000",
            "1431857103000000",
            "1431857103000000000",
        ] {
            let time = any_time(&mut Clock::default(), text.as_bytes());
            assert_eq!(
                time.map(Timestamp::as_millis),
                Some(1_431_857_103_000),
                "{text}"
            );
        }
        for bad in ["", "now", "1.x", "-5", "2015-05-17"] {
            assert_eq!(
                any_time(&mut Clock::default(), bad.as_bytes()),
                None,
                "{bad}"
            );
        }
    }

    #[test]
    fn durations_are_parsed_in_seconds_and_microseconds() {
        for (text, unit, micros) in [
            ("0.012", 1_000_000, Some(12_000)),
            ("3", 1_000_000, Some(3_000_000)),
            ("0.0000019", 1_000_000, Some(1)),
            ("1250", 1, Some(1250)),
            ("12.7", 1, Some(12)),
            ("", 1, None),
            ("0.1, 0.2", 1_000_000, None),
            ("99999999999999999999", 1, None),
        ] {
            let expected = micros.map(Duration::from_micros);
            assert_eq!(duration(text.as_bytes(), unit), expected, "{text}");
        }
    }

    #[test]
    fn a_url_is_one_field_or_made_of_several() {
        let url = |fields: &[(Field, &'static str)]| {
            let mut found = LineFields::default();
            for (field, value) in fields {
                found.set(*field, value.as_bytes());
            }
            let mut joined = Vec::new();
            let entry = found.entry(&mut Clock::default(), &mut joined);
            let entry = entry.expect("the input is valid")?;
            let text = [entry.host, entry.url].concat();
            Some(String::from_utf8(text).expect("the bytes are text"))
        };
        use Field::{Host, Path, Query, Request, Status, Url};
        for (fields, expected) in [
            (&[(Path, "/a"), (Query, "b=c")][..], Some("/a?b=c")),
            (&[(Path, "/a"), (Query, "?b=c")], Some("/a?b=c")),
            (&[(Path, "/a?b=c"), (Query, "b=c")], Some("/a?b=c")),
            (&[(Path, "/a"), (Query, "-")], Some("/a")),
            (&[(Host, "h"), (Path, "a/b")], Some("h/a/b")),
            (&[(Path, "a/b")], Some("a/b")),
            (
                &[(Host, "h"), (Path, "http://g/a"), (Query, "b")],
                Some("g/a?b"),
            ),
            (
                &[(Host, "h"), (Request, "GET /a x HTTP/1.1")],
                Some("h/a x"),
            ),
            (&[(Host, "h"), (Url, "http://g/a")], Some("g/a")),
            (&[(Host, "h")], None),
            (&[(Request, "-"), (Status, "408")], None),
            (&[(Request, "<BADREQ>"), (Status, "-1")], None),
            (&[(Url, "error:invalid-request"), (Status, "400")], None),
            // The client asked for `/a`; the server rewrote it.
            (&[(Url, "/a"), (Path, "/index"), (Query, "p=a")], Some("/a")),
            (
                &[
                    (Request, "GET /a HTTP/1.1"),
                    (Path, "/index"),
                    (Query, "p=a"),
                ],
                Some("/a"),
            ),
            (&[(Request, "7f3a"), (Path, "/a")], Some("/a")),
        ] {
            assert_eq!(url(fields).as_deref(), expected, "{fields:?}");
        }
    }

    fn entry_of(
        fields: &[(Field, &'static str)],
    ) -> Result<(String, Option<Outcome>, u16), MalformedLine> {
        let mut found = LineFields::default();
        found.set(Field::Url, b"/a");
        for (field, value) in fields {
            found.set(*field, value.as_bytes());
        }
        let mut joined = Vec::new();
        let entry = found.entry(&mut Clock::default(), &mut joined)?;
        let entry = entry.expect("the line has a URL");
        let host = String::from_utf8_lossy(entry.host).into_owned();
        Ok((host, entry.outcome, entry.status))
    }

    #[test]
    fn a_value_of_another_field_makes_the_line_malformed() {
        use Field::{Bytes, Host, Outcome, Status, Time};
        for (field, values) in [
            (
                Host,
                &[
                    "a b",
                    "\"h\"",
                    "2015-05-17T10:05:03+00:00",
                    "10:05:03",
                    "/a",
                ][..],
            ),
            (Outcome, &["nonsense", "200", "10.0.0.1 TCP_MISS"]),
            (Status, &["x", "2000"]),
            (Bytes, &["x", "5 x"]),
            (Time, &["now"]),
        ] {
            for value in values {
                assert!(entry_of(&[(field, value)]).is_err(), "{field:?} {value}");
            }
        }
    }

    #[test]
    fn an_unknown_value_costs_the_field_and_not_the_line() {
        use Field::{Bytes, Host, Outcome, Status};
        for (field, value) in [
            (Host, "-"),
            (Host, "2001:db8::1"),
            (Outcome, "-"),
            (Outcome, "none"),
            (Status, "000"),
            (Status, "-1"),
            (Status, "-"),
            (Bytes, "-"),
            (Bytes, "-1"),
        ] {
            let entry = entry_of(&[(field, value)]);
            assert_eq!(entry, Ok((String::new(), None, 0)), "{field:?} {value}");
        }
    }
}
