//! The fields that all formats share, and the conversion of a line's fields to an entry.

use edgeward_trace::raw;
use edgeward_types::Timestamp;

use crate::clock::Clock;
use crate::{Entry, MalformedLine, Outcome};

use super::{bytes, host_and_path, request_line, status};

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
    /// Path and query, or an absolute URL.
    Url,
    /// The path alone.
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
    ];

    /// Returns the field with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|(known, _)| *known == name);
        row.map(|(_, field)| *field)
    }
}

const COUNT: usize = 13;

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
    pub(super) fn entry<'a>(
        &self,
        clock: &mut Clock,
        joined: &'a mut Vec<u8>,
    ) -> Result<Option<Entry<'a>>, MalformedLine>
    where
        'l: 'a,
    {
        let status = match self.value(Field::Status) {
            // CloudFront writes 000 if the client left before the status was known.
            b"" | b"000" | b"0" => 0,
            digits => status(digits)?,
        };
        let mut method = self.value(Field::Method);
        let mut url: &'a [u8] = self.value(Field::Url);
        let request = self.value(Field::Request);
        if url.is_empty() && !request.is_empty() {
            match request_line(request) {
                Some((word, rest)) => (method, url) = (word, rest),
                None if status >= 400 => return Ok(None),
                None => return Err(MalformedLine::not("request", "a method and a URL")),
            }
        }
        if url.is_empty() {
            url = self.value(Field::Path);
            let query = self.value(Field::Query);
            if !url.is_empty() && !query.is_empty() {
                joined.clear();
                joined.extend_from_slice(url);
                joined.push(b'?');
                joined.extend_from_slice(query);
                url = joined;
            }
        }
        if url.is_empty() {
            return Ok(None);
        }
        let (host, url) = host_and_path(self.value(Field::Host), url);
        let bytes = match self.value(Field::Bytes) {
            b"" => None,
            digits => bytes(digits)?,
        };
        Ok(Some(Entry {
            time: self.time(clock)?,
            method,
            host,
            url,
            status,
            bytes,
            media_type: self.value(Field::MediaType),
            outcome: Outcome::from_word(self.value(Field::Outcome)),
            machine: self.value(Field::Machine),
        }))
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
                "a time of an access log, of ISO 8601, or since 1970",
            )
        })
    }
}

/// Parses a time in any of the forms that servers write.
fn any_time(clock: &mut Clock, text: &[u8]) -> Option<Timestamp> {
    let text = text.strip_prefix(b"[").unwrap_or(text);
    let text = text.strip_suffix(b"]").unwrap_or(text);
    match (text.get(2), text.get(4)) {
        (Some(b'/'), _) => clock.read(text),
        (_, Some(b'-')) => raw::iso8601(text),
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
        assert_eq!(
            url(&[(Path, "/a"), (Query, "b=c")]).as_deref(),
            Some("/a?b=c")
        );
        assert_eq!(url(&[(Path, "/a"), (Query, "-")]).as_deref(), Some("/a"));
        assert_eq!(
            url(&[(Host, "h"), (Request, "GET /a x")]).as_deref(),
            Some("h/a")
        );
        assert_eq!(
            url(&[(Host, "h"), (Url, "http://g/a")]).as_deref(),
            Some("g/a")
        );
        assert_eq!(url(&[(Host, "h")]), None);
        assert_eq!(url(&[(Request, "-"), (Status, "408")]), None);
    }
}
