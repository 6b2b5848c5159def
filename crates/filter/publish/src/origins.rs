//! The web pages that may read responses of the publisher (CORS, defined in the Fetch standard). An origin in this
//! module is that of a web page: its scheme, host and port.
//!
//! A browser lets a page of another origin read a response only if the response allows it. The browser sends a
//! preflight request first, because `Edgeward-Challenge` and `Cache-Control` are not among the header fields
//! that every page may send. Only reading is allowed: a page cannot post ids or send credentials. By default no
//! origin is allowed.

use std::fmt;
use std::str::FromStr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};

/// The origins whose pages may read responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// No page may read responses. Responses have no CORS fields.
    #[default]
    None,
    /// Every page.
    Any,
    /// Pages of these origins.
    List(Vec<PageOrigin>),
}

/// The origin of a page as in the `Origin` field: `https://shop.example`, with a port unless it is the scheme's
/// default.
#[derive(Clone, PartialEq, Eq)]
pub struct PageOrigin(HeaderValue);

/// Why a text is not an origin.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{text}` is not a valid origin: {why}")]
pub struct OriginError {
    text: String,
    why: &'static str,
}

impl FromStr for PageOrigin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let wrong = |why| OriginError {
            text: text.to_owned(),
            why,
        };
        let form = "write scheme and host, like https://shop.example or http://localhost:3000";
        let (scheme, host) = text.split_once("://").ok_or_else(|| wrong(form))?;
        if !matches!(scheme, "http" | "https") || host.is_empty() {
            return Err(wrong(form));
        }
        if host.contains(['/', '?', '#', '@', ',', '*']) || host.contains(char::is_whitespace) {
            return Err(wrong(
                "an origin ends with the host or its port and contains no `@`, `,`, `*` or space",
            ));
        }
        // Browsers send origins in this form, and the comparison is byte by byte.
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(wrong("browsers send origins in lower case"));
        }
        let default_port = match scheme {
            "http" => ":80",
            _ => ":443",
        };
        if host.ends_with(default_port) {
            return Err(wrong("browsers omit the scheme's default port"));
        }
        let value = HeaderValue::try_from(text);
        let value = value.map_err(|_| wrong("an origin contains no control characters"))?;
        Ok(Self(value))
    }
}

impl fmt::Debug for PageOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AllowedOrigins {
    /// Adds the CORS fields to a response. `origin_field` is the `Origin` field of the request.
    pub(crate) fn add_headers(&self, origin_field: Option<&HeaderValue>, response: &mut HeaderMap) {
        let allowed = match self {
            Self::None => return,
            Self::Any => HeaderValue::from_static("*"),
            Self::List(list) => {
                // The response depends on the origin, so a cache must not serve it to pages of another origin.
                response.append(VARY, HeaderValue::from_static("origin"));
                match list.iter().find(|origin| Some(&origin.0) == origin_field) {
                    Some(origin) => origin.0.clone(),
                    None => return,
                }
            }
        };
        response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, RESPONSE_FIELDS);
    }

    /// Returns true if an OPTIONS request with these header fields is a preflight; always false with [`Self::None`].
    pub(crate) fn is_preflight(&self, request: &HeaderMap) -> bool {
        *self != Self::None
            && request.contains_key(ORIGIN)
            && request.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Adds the fields of a response to a preflight, in addition to those of [`Self::add_headers`].
    pub(crate) fn add_preflight_headers(response: &mut HeaderMap) {
        response.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        response.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_FIELDS);
        response.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    }
}

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");
/// Request fields that clients send and that pages may not send by default. `Range` is allowed by default only
/// in its simple form.
const REQUEST_FIELDS: HeaderValue =
    HeaderValue::from_static("edgeward-challenge, cache-control, if-none-match, if-range, range");
/// Response fields that clients read and that pages may not read by default.
const RESPONSE_FIELDS: HeaderValue = HeaderValue::from_static(
    "edgeward-proof, etag, date, age, content-range, accept-ranges, retry-after",
);

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> PageOrigin {
        text.parse().expect("the origin is valid")
    }

    #[test]
    fn text_that_no_browser_sends_is_not_an_origin() {
        for text in [
            "https://shop.example",
            "http://localhost:3000",
            "http://[::1]:8080",
        ] {
            assert_eq!(origin(text).0, text);
        }
        for (text, why) in [
            ("shop.example", "scheme and host"),
            ("ftp://shop.example", "scheme and host"),
            ("https://", "scheme and host"),
            ("https://shop.example/", "ends with the host"),
            ("https://*.shop.example", "ends with the host"),
            ("https://Shop.example", "lower case"),
            ("https://shop.example:443", "default port"),
            ("http://shop.example:80", "default port"),
        ] {
            let error = text.parse::<PageOrigin>().expect_err(text);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn only_pages_of_allowed_origins_may_read() {
        let list_of_two =
            AllowedOrigins::List(vec![origin("https://a.example"), origin("http://b")]);
        for (allowed, origin_field, expected, varies) in [
            (AllowedOrigins::None, Some("http://b"), None, false),
            (AllowedOrigins::Any, Some("http://b"), Some("*"), false),
            (AllowedOrigins::Any, None, Some("*"), false),
            (
                list_of_two.clone(),
                Some("http://b"),
                Some("http://b"),
                true,
            ),
            (list_of_two.clone(), Some("http://c"), None, true),
            (list_of_two, None, None, true),
        ] {
            let mut response = HeaderMap::new();
            let sent = origin_field.map(HeaderValue::from_static);
            allowed.add_headers(sent.as_ref(), &mut response);
            let field = response.get(ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(
                field.map(HeaderValue::as_bytes),
                expected.map(str::as_bytes)
            );
            assert_eq!(
                response.contains_key(VARY),
                varies,
                "{allowed:?} {origin_field:?}"
            );
        }
    }
}
