//! The responses that a cache may encode.

use std::fmt;

use http::StatusCode;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, COOKIE, HeaderMap,
    SET_COOKIE,
};

use crate::list;
use crate::vary::Vary;

/// The rules by which responses are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionRules {
    /// The media types that are encoded.
    pub types: CompressibleTypes,
    /// The shortest body that is encoded.
    pub length_min: u64,
    /// The longest body that is encoded.
    pub length_max: u64,
    /// True if responses that may be for one user are encoded, too. See [`NotEncodedReason::Personal`].
    pub personal: bool,
}

/// Why a response is not encoded, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotEncodedReason {
    /// The status is not 200.
    Status,
    /// The origin has already applied a coding.
    Encoded,
    /// The response is a part of a representation.
    Range,
    /// The response has `no-transform` (RFC 9110 §7.7, RFC 9111 §5.2.2.6).
    NoTransform,
    /// The media type is not listed, or missing.
    Type,
    /// The response may be for one user: it sets a cookie, varies by `Cookie` or `Authorization`, or answers a request
    /// with `Authorization`.
    ///
    /// The length of a compressed response shows if text that an attacker chose, for example in the query, occurs
    /// elsewhere in it (BREACH). This only matters if the response contains a secret, such as a token against forged
    /// requests. A stored response for all users contains none.
    Personal,
    /// The body is shorter than [`CompressionRules::length_min`].
    Short,
    /// The body is longer than [`CompressionRules::length_max`].
    Long,
}

impl NotEncodedReason {
    /// Returns the reason as a text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status => "the status is not 200",
            Self::Encoded => "the origin has applied a coding",
            Self::Range => "it is a part of a representation",
            Self::NoTransform => "it has no-transform",
            Self::Type => "compression.types does not list its media type",
            Self::Personal => "it may be for one user, and compression.personal is off",
            Self::Short => "it is shorter than compression.length_min",
            Self::Long => "it is longer than compression.length_max",
        }
    }
}

/// Decides if a storable response may be encoded. `vary` is the parsed `Vary` of the origin. `length` is the length of
/// the body, if it is known.
///
/// `Vary: Accept-Encoding` of the origin does not matter: a body without a coding under it is the origin's answer to
/// these values of `Accept-Encoding`, for example because nginx does not compress for proxies (`gzip_proxied`).
///
/// # Errors
///
/// Returns the first reason against it.
pub fn may_encode(
    rules: &CompressionRules,
    request: &HeaderMap,
    status: StatusCode,
    response: &HeaderMap,
    vary: &Vary,
    length: Option<u64>,
) -> Result<(), NotEncodedReason> {
    let selects_by_user = matches!(vary, Vary::Fields(fields)
        if fields.names().iter().any(|name| *name == COOKIE || *name == AUTHORIZATION));
    let is_personal =
        selects_by_user || response.contains_key(SET_COOKIE) || request.contains_key(AUTHORIZATION);
    let has_type = response
        .get(CONTENT_TYPE)
        .is_some_and(|value| rules.types.contain(value.as_bytes()));
    let checks = [
        (status != StatusCode::OK, NotEncodedReason::Status),
        (
            response.contains_key(CONTENT_ENCODING),
            NotEncodedReason::Encoded,
        ),
        (
            response.contains_key(CONTENT_RANGE),
            NotEncodedReason::Range,
        ),
        (
            list::has_token(response, &CACHE_CONTROL, "no-transform"),
            NotEncodedReason::NoTransform,
        ),
        (!has_type, NotEncodedReason::Type),
        (is_personal && !rules.personal, NotEncodedReason::Personal),
        (
            length.is_some_and(|length| length < rules.length_min),
            NotEncodedReason::Short,
        ),
        (
            length.is_some_and(|length| length > rules.length_max),
            NotEncodedReason::Long,
        ),
    ];
    match checks.into_iter().find(|(applies, _)| *applies) {
        Some((_, reason)) => Err(reason),
        None => Ok(()),
    }
}

/// A list of patterns for media types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressibleTypes {
    patterns: Vec<TypePattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TypePattern {
    /// One type, such as `application/json`.
    Exact(String),
    /// All subtypes: `text/*` is stored as `text/`.
    Prefix(String),
    /// All types with a structured syntax (RFC 6838 §4.2.8): `*+json` is stored as `+json`.
    Suffix(String),
}

/// The reason why a text is not a pattern for media types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTypePattern(String);

impl fmt::Display for InvalidTypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a pattern for media types; write for example text/*, application/json or *+xml",
            self.0
        )
    }
}

impl std::error::Error for InvalidTypePattern {}

impl CompressibleTypes {
    /// Parses patterns: `text/*`, `application/json` or `*+json`. Letter case does not matter.
    ///
    /// # Errors
    ///
    /// Returns the first text that is not a pattern.
    pub fn parse<S: AsRef<str>>(
        patterns: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidTypePattern> {
        let parse = |text: S| {
            let lower = text.as_ref().to_ascii_lowercase();
            TypePattern::parse(&lower).ok_or_else(|| InvalidTypePattern(text.as_ref().to_owned()))
        };
        let patterns = patterns.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Returns true if a value of `Content-Type` has one of the types.
    ///
    /// `text/event-stream` never has: a stream of events has no end after which it could be encoded.
    pub fn contain(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|&byte| byte == b';');
        let media_type = list::trim(&content_type[..end.unwrap_or(content_type.len())]);
        let media_type = media_type.to_ascii_lowercase();
        media_type != b"text/event-stream"
            && self.patterns.iter().any(|pattern| match pattern {
                TypePattern::Exact(name) => media_type == name.as_bytes(),
                TypePattern::Prefix(prefix) => media_type.starts_with(prefix.as_bytes()),
                TypePattern::Suffix(suffix) => media_type.ends_with(suffix.as_bytes()),
            })
    }
}

/// Writes the patterns, separated by commas.
impl fmt::Display for CompressibleTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pattern) in self.patterns.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match pattern {
                TypePattern::Exact(name) => write!(f, "{comma}{name}")?,
                TypePattern::Prefix(prefix) => write!(f, "{comma}{prefix}*")?,
                TypePattern::Suffix(suffix) => write!(f, "{comma}*{suffix}")?,
            }
        }
        Ok(())
    }
}

impl Default for CompressibleTypes {
    fn default() -> Self {
        Self::parse(DEFAULT_TYPES).expect("the default patterns are valid")
    }
}

impl TypePattern {
    fn parse(text: &str) -> Option<Self> {
        if let Some(suffix) = text.strip_prefix("*+") {
            return list::is_token(suffix.as_bytes()).then(|| Self::Suffix(format!("+{suffix}")));
        }
        let (kind, subtype) = text.split_once('/')?;
        if !list::is_token(kind.as_bytes()) || kind.contains('*') {
            return None;
        }
        match subtype {
            "*" => Some(Self::Prefix(format!("{kind}/"))),
            _ if list::is_token(subtype.as_bytes()) && !subtype.contains('*') => {
                Some(Self::Exact(text.to_owned()))
            }
            _ => None,
        }
    }
}

/// The types of text and of other data without a compression of its own. Not listed: woff and woff2, images, audio and
/// video with a codec, archives and PDF.
pub const DEFAULT_TYPES: [&str; 15] = [
    "text/*",
    "*+json",
    "*+xml",
    "application/javascript",
    "application/x-javascript",
    "application/json",
    "application/x-ndjson",
    "application/xml",
    "application/wasm",
    "application/vnd.ms-fontobject",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn rules() -> CompressionRules {
        CompressionRules {
            types: CompressibleTypes::default(),
            length_min: 256,
            length_max: 1000,
            personal: false,
        }
    }

    /// Each row: the status, the request, the response, its length, and the reason against a coding.
    #[test]
    fn a_response_is_encoded_unless_a_reason_is_against_it() {
        use NotEncodedReason::{Encoded, Long, NoTransform, Personal, Range, Short, Status, Type};
        let html = "content-type: text/html; charset=utf-8";
        let with = |line: &str| format!("{html}\n{line}");
        for (status, request, response, length, expected) in [
            (200, "", html.to_owned(), Some(256), Ok(())),
            (200, "", html.to_owned(), Some(1000), Ok(())),
            (200, "", html.to_owned(), None, Ok(())),
            (200, "cookie: a=1", html.to_owned(), None, Ok(())),
            (200, "", with("vary: accept-encoding"), None, Ok(())),
            (
                200,
                "",
                with("cache-control: max-age=5, public"),
                None,
                Ok(()),
            ),
            (404, "", html.to_owned(), Some(500), Err(Status)),
            (206, "", html.to_owned(), Some(500), Err(Status)),
            (200, "", with("content-encoding: gzip"), None, Err(Encoded)),
            (
                200,
                "",
                with("content-range: bytes 0-1/2"),
                None,
                Err(Range),
            ),
            (
                200,
                "",
                with("cache-control: a, No-Transform"),
                None,
                Err(NoTransform),
            ),
            (200, "", String::new(), None, Err(Type)),
            (
                200,
                "",
                "content-type: image/png".to_owned(),
                None,
                Err(Type),
            ),
            (200, "", with("set-cookie: a=1"), None, Err(Personal)),
            (200, "", with("vary: cookie"), None, Err(Personal)),
            (
                200,
                "",
                with("vary: accept, authorization"),
                None,
                Err(Personal),
            ),
            (
                200,
                "authorization: x",
                html.to_owned(),
                None,
                Err(Personal),
            ),
            (200, "", html.to_owned(), Some(255), Err(Short)),
            (200, "", html.to_owned(), Some(1001), Err(Long)),
        ] {
            let head = headers(&response);
            let status = StatusCode::from_u16(status).expect("a status");
            let decide = |rules: &CompressionRules| {
                let vary = Vary::from_headers(&head);
                may_encode(rules, &headers(request), status, &head, &vary, length)
            };
            assert_eq!(decide(&rules()), expected, "{status} {request} {response}");
            let personal = CompressionRules {
                personal: true,
                ..rules()
            };
            let expected = if expected == Err(Personal) {
                Ok(())
            } else {
                expected
            };
            assert_eq!(decide(&personal), expected, "{status} {request} {response}");
        }
    }

    #[test]
    fn types_match_by_name_kind_or_syntax() {
        let types =
            CompressibleTypes::parse(["TEXT/*", "application/json", "*+xml"]).expect("patterns");
        for (content_type, expected) in [
            ("text/html", true),
            ("Text/CSS ; charset=x", true),
            ("application/json", true),
            ("application/json5", false),
            ("image/svg+xml", true),
            ("image/svg+xml;x=y", true),
            ("application/xml", false),
            ("text", false),
            ("text/event-stream", false),
            ("text/event-stream; charset=utf-8", false),
            ("", false),
        ] {
            assert_eq!(
                types.contain(content_type.as_bytes()),
                expected,
                "{content_type}"
            );
        }
    }

    #[test]
    fn other_texts_are_not_patterns() {
        for text in [
            "", "text", "*", "*/*", "text/", "/html", "te xt/a", "text/h*", "*+", "*/json",
        ] {
            assert!(CompressibleTypes::parse([text]).is_err(), "{text}");
        }
    }

    #[test]
    fn the_default_has_text_and_no_type_with_a_compression_of_its_own() {
        let types = CompressibleTypes::default();
        for name in [
            "text/plain",
            "image/svg+xml",
            "application/ld+json",
            "application/wasm",
            "font/ttf",
        ] {
            assert!(types.contain(name.as_bytes()), "{name}");
        }
        for name in [
            "font/woff2",
            "font/woff",
            "image/png",
            "image/webp",
            "video/mp4",
            "application/zip",
        ] {
            assert!(!types.contain(name.as_bytes()), "{name}");
        }
    }
}
