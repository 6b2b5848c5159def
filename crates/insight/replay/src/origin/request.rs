//! Parses a request to the origin: the object and the requested properties of the response.
//!
//! The form is `/o/<id>?size=N`. Further parameters, in any order: `cc=` (another `Cache-Control`, empty for none),
//! `ct=` (`Content-Type`), `vary=`, `h=Name:value` (another header, repeatable), `status=`, `chunked=1` (no
//! `Content-Length`) and `delay=` (milliseconds before the response). `ct`, `vary` and `h` set at most sixteen headers
//! together, and no framing headers. Values are percent-encoded. Other parameters are ignored: they only make the URL
//! different for a cache.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{CONTENT_TYPE, VARY};
use http::{HeaderName, HeaderValue, StatusCode};

/// A parsed request for an object.
#[derive(Debug, PartialEq)]
pub(super) struct OriginRequest<'a> {
    pub(super) id: &'a str,
    pub(super) size: u64,
    /// `None` uses the configured value; `Some(None)` sends no header.
    pub(super) cache_control: Option<Option<HeaderValue>>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) status: StatusCode,
    pub(super) chunked: bool,
    /// The time between the end of the request and its response.
    pub(super) delay: Duration,
}

/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginRequestError {
    /// The path is not `/o/<id>`.
    #[error("this is not an object: request /o/<id>?size=<bytes>")]
    NoObject,
    /// The parameter `size` is missing.
    #[error("the size of the object is missing: add ?size=<bytes>")]
    NoSize,
    /// The size is not a number, or too large.
    #[error("size={text} is not a number from 0 to {max}")]
    BadSize {
        /// The value.
        text: String,
        /// The largest allowed size.
        max: u64,
    },
    /// A parameter has an invalid value.
    #[error("{name}={value} cannot be sent: {hint}")]
    BadParameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// How to fix it.
        hint: &'static str,
    },
}

impl<'a> OriginRequest<'a> {
    pub(super) fn read(
        path: &'a str,
        query: Option<&str>,
        size_bytes_max: u64,
    ) -> Result<Self, OriginRequestError> {
        let id = path
            .strip_prefix("/o/")
            .filter(|id| !id.is_empty())
            .ok_or(OriginRequestError::NoObject)?;
        let mut size = None;
        let mut request = Self {
            id,
            size: 0,
            cache_control: None,
            headers: Vec::new(),
            status: StatusCode::OK,
            chunked: false,
            delay: Duration::ZERO,
        };
        let parameters = query.unwrap_or_default().split('&');
        for (name, value) in parameters.filter_map(|parameter| parameter.split_once('=')) {
            match name {
                "size" => {
                    let in_bounds = |&size: &u64| size <= size_bytes_max;
                    let number = value.parse().ok().filter(in_bounds);
                    size = Some(number.ok_or_else(|| OriginRequestError::BadSize {
                        text: value.to_owned(),
                        max: size_bytes_max,
                    })?);
                }
                "cc" if value.is_empty() => request.cache_control = Some(None),
                "cc" => request.cache_control = Some(Some(header_value("cc", value)?)),
                "ct" => request.push("ct", CONTENT_TYPE, value)?,
                "vary" => request.push("vary", VARY, value)?,
                "h" => {
                    let line = decode(value);
                    let (name, value) = line
                        .split_once(':')
                        .ok_or_else(|| bad("h", &line, "write h=Name:value"))?;
                    let name = name
                        .parse()
                        .map_err(|_| bad("h", &line, "this is not the name of a header"))?;
                    request.push("h", name, value.trim())?;
                }
                "status" => {
                    // 1xx responses are not final, and 304 answers only a conditional request.
                    request.status = value
                        .parse()
                        .ok()
                        .filter(|status: &StatusCode| (200..600).contains(&status.as_u16()))
                        .filter(|&status| status != StatusCode::NOT_MODIFIED)
                        .ok_or_else(|| bad("status", value, "use 200 to 599, but not 304"))?;
                }
                "chunked" => request.chunked = value == "1",
                "delay" => {
                    let milliseconds = value.parse().ok().map(Duration::from_millis);
                    request.delay = milliseconds
                        .filter(|&delay| delay <= DELAY_MAX)
                        .ok_or_else(|| bad("delay", value, "use 0 to 600000 milliseconds"))?;
                }
                _ => {}
            }
        }
        request.size = size.ok_or(OriginRequestError::NoSize)?;
        Ok(request)
    }

    fn push(
        &mut self,
        from: &'static str,
        name: HeaderName,
        value: &str,
    ) -> Result<(), OriginRequestError> {
        if self.headers.len() >= HEADERS_MAX {
            return Err(bad(from, value, "at most sixteen headers"));
        }
        // hyper adds the framing headers. A second framing header would make the message invalid.
        if FRAMING.contains(&name.as_str()) {
            return Err(bad(
                from,
                name.as_str(),
                "the origin itself sets the framing headers",
            ));
        }
        self.headers.push((name, header_value(from, value)?));
        Ok(())
    }
}

fn header_value(name: &'static str, value: &str) -> Result<HeaderValue, OriginRequestError> {
    HeaderValue::from_bytes(decode(value).as_bytes())
        .map_err(|_| bad(name, value, "header values have visible characters only"))
}

fn bad(name: &'static str, value: &str, hint: &'static str) -> OriginRequestError {
    OriginRequestError::BadParameter {
        name,
        value: value.to_owned(),
        hint,
    }
}

/// Decodes percent-encoding, and `+` as a space. Malformed sequences stay unchanged.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let hex = |digit: u8| char::from(digit).to_digit(16);
        let encoded = match tail {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        bytes.push(match (first, encoded) {
            (_, Some((high, low))) => {
                rest = &tail[2..];
                u8::try_from(high * 16 + low).expect("two hex digits are below 256")
            }
            (b'+', None) => b' ',
            (&byte, None) => byte,
        });
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

const HEADERS_MAX: usize = 16;

/// The maximum delay: ten times the default timeout of an edge for the first byte of a response.
const DELAY_MAX: Duration = Duration::from_secs(600);

const FRAMING: [&str; 5] = [
    "connection",
    "content-length",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str) -> Result<OriginRequest<'_>, OriginRequestError> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        OriginRequest::read(path, query, 1 << 40)
    }

    #[test]
    fn a_request_has_the_id_and_size_of_an_object() {
        let request = read("/o/17?size=5").expect("the request is valid");
        assert_eq!((request.id, request.size), ("17", 5));
        let request = read("/o/a/b.html?x=1&size=1099511627776&y").expect("the request is valid");
        assert_eq!((request.id, request.size), ("a/b.html", 1 << 40));
    }

    #[test]
    fn the_query_sets_properties_of_the_response() {
        let target =
            "/o/1?size=1&cc=max-age%3D5%2c+private&vary=Accept&h=X-A:%20b&status=404&chunked=1";
        let request = read(target).expect("the request is valid");
        let cache_control = Some(Some(HeaderValue::from_static("max-age=5, private")));
        assert_eq!(request.cache_control, cache_control);
        let shown: Vec<String> = request
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("the value is text")))
            .collect();
        assert_eq!(shown, ["vary: Accept", "x-a: b"]);
        assert_eq!(request.status, StatusCode::NOT_FOUND);
        assert!(request.chunked);
        assert_eq!(request.delay, Duration::ZERO);
        let late = read("/o/1?size=1&delay=600000").expect("the request is valid");
        assert_eq!(late.delay, Duration::from_secs(600));
        let silent = read("/o/1?size=1&cc=").expect("the request is valid");
        assert_eq!(silent.cache_control, Some(None));
    }

    #[test]
    fn invalid_requests_are_rejected_with_a_hint() {
        for (target, hint) in [
            ("/", "/o/<id>?size=<bytes>"),
            ("/o/", "/o/<id>?size=<bytes>"),
            ("/o/1", "add ?size="),
            ("/o/1?size=", "not a number from 0 to"),
            ("/o/1?size=-1", "not a number from 0 to"),
            ("/o/1?size=1099511627777", "to 1099511627776"),
            ("/o/1?size=1&h=x", "h=Name:value"),
            ("/o/1?size=1&h=a%20b:c", "not the name"),
            ("/o/1?size=1&h=Content-Length:4", "framing"),
            ("/o/1?size=1&cc=%0a", "visible"),
            ("/o/1?size=1&status=304", "not 304"),
            ("/o/1?size=1&status=99", "200 to 599"),
            ("/o/1?size=1&status=600", "200 to 599"),
            ("/o/1?size=1&delay=", "0 to 600000"),
            ("/o/1?size=1&delay=1s", "0 to 600000"),
            ("/o/1?size=1&delay=600001", "0 to 600000"),
        ] {
            let error = read(target).expect_err(target).to_string();
            assert!(error.contains(hint), "{target}: {error}");
        }
        // Seventeen headers are too many. Without the last one, there are sixteen.
        let many = format!("/o/1?size=1{}", "&h=a:b".repeat(17));
        assert!(read(&many).is_err());
        assert!(read(&many[..many.len() - 6]).is_ok());
    }

    #[test]
    fn malformed_percent_encoding_stays_unchanged() {
        for (encoded, plain) in [("%", "%"), ("%4", "%4"), ("%zz1", "%zz1"), ("a%41+", "aA ")] {
            assert_eq!(decode(encoded), plain);
        }
    }
}
