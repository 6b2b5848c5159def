//! The directives of responses and requests, and the parser of their lines.

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, PRAGMA};

use crate::list::{self, Members};

/// Larger numbers of seconds are read as this value: 2^31, about 68 years (§1.2.2).
pub const DELTA_SECONDS_MAX: u32 = 1 << 31;

/// The directives of a response (§5.2.2), from a targeted field (RFC 9213) or from all `Cache-Control` lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `max-age` (§5.2.2.1) in seconds. An invalid number is read as 0.
    pub max_age: Option<u32>,
    /// `s-maxage` (§5.2.2.10) in seconds. An invalid number is read as 0.
    pub s_maxage: Option<u32>,
    /// `stale-while-revalidate` (RFC 5861 §3) in seconds. An invalid number is read as 0.
    pub stale_while_revalidate: Option<u32>,
    /// `stale-if-error` (RFC 5861 §4) in seconds. An invalid number is read as 0.
    pub stale_if_error: Option<u32>,
    /// `no-cache` (§5.2.2.4).
    pub no_cache: FieldScope,
    /// `private` (§5.2.2.7).
    pub private: FieldScope,
    /// `no-store` (§5.2.2.5).
    pub no_store: bool,
    /// `public` (§5.2.2.9).
    pub public: bool,
    /// `must-revalidate` (§5.2.2.2).
    pub must_revalidate: bool,
    /// `proxy-revalidate` (§5.2.2.8).
    pub proxy_revalidate: bool,
    /// `must-understand` (§5.2.2.3).
    pub must_understand: bool,
    /// `no-transform` (§5.2.2.6).
    pub no_transform: bool,
    /// `immutable` (RFC 8246). It concerns reloads in private caches. The edge does not use it.
    pub immutable: bool,
    /// True if a targeted field, `Surrogate-Control` or `X-Accel-Expires` gave the directives. `Expires` is then
    /// ignored (RFC 9213 §2.2).
    pub is_targeted: bool,
}

impl ResponseDirectives {
    /// Parses one more line of `Cache-Control`.
    pub fn add_line(&mut self, line: &[u8]) {
        for (name, argument) in directives(line) {
            self.add(name.as_str(), argument);
        }
    }

    /// Adds a directive, whose name is in lower case. A restrictive directive counts with any argument. A permissive
    /// directive counts only in the form that the RFC defines.
    pub(super) fn add(&mut self, name: &str, argument: Argument<'_>) {
        let seconds = || argument.seconds().unwrap_or(0);
        match name {
            "max-age" => restrict(&mut self.max_age, seconds()),
            "s-maxage" => restrict(&mut self.s_maxage, seconds()),
            "no-store" => self.no_store = true,
            "no-cache" => self.no_cache.restrict(argument),
            "private" => self.private.restrict(argument),
            "must-revalidate" => self.must_revalidate = true,
            "proxy-revalidate" => self.proxy_revalidate = true,
            "no-transform" => self.no_transform = true,
            "public" => self.public |= argument.is_absent(),
            "must-understand" => self.must_understand |= argument.is_absent(),
            "immutable" => self.immutable |= argument.is_absent(),
            "stale-while-revalidate" => restrict(&mut self.stale_while_revalidate, seconds()),
            "stale-if-error" => restrict(&mut self.stale_if_error, seconds()),
            _ => {}
        }
    }

    /// Returns true if a stale response must not be used without a successful validation.
    ///
    /// For a shared cache `s-maxage` implies `proxy-revalidate` (§5.2.2.10). `no-cache` is stricter than both.
    pub fn forbids_stale(&self) -> bool {
        self.must_revalidate
            || self.proxy_revalidate
            || self.s_maxage.is_some()
            || self.no_cache == FieldScope::Whole
    }
}

/// The fields of a response to which `no-cache` or `private` applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldScope {
    /// The directive is absent.
    #[default]
    Absent,
    /// The directive lists header fields (the qualified form) and applies only to them.
    Fields(Vec<HeaderName>),
    /// The directive applies to the whole response.
    Whole,
}

impl FieldScope {
    /// Returns the fields of the qualified form, or an empty slice for the other two forms.
    pub fn fields(&self) -> &[HeaderName] {
        match self {
            Self::Fields(fields) => fields,
            Self::Absent | Self::Whole => &[],
        }
    }

    /// Adds an occurrence of the directive. Without a list of fields it applies to the whole response. The same holds
    /// for an empty list, too many fields, or a member that is not a field name: the sender intended to protect
    /// something that this cache cannot identify.
    fn restrict(&mut self, argument: Argument<'_>) {
        if *self == Self::Whole {
            return;
        }
        let Some(list) = argument.value() else {
            *self = Self::Whole;
            return;
        };
        let mut fields = match std::mem::take(self) {
            Self::Fields(fields) => fields,
            Self::Absent | Self::Whole => Vec::new(),
        };
        for member in Members::new(list) {
            match HeaderName::from_bytes(member) {
                Ok(name) if fields.len() < QUALIFIED_FIELDS_MAX => {
                    if !fields.contains(&name) {
                        fields.push(name);
                    }
                }
                _ => {
                    *self = Self::Whole;
                    return;
                }
            }
        }
        *self = if fields.is_empty() {
            Self::Whole
        } else {
            Self::Fields(fields)
        };
    }
}

/// The `Cache-Control` directives of a request (§5.2.1), or its `Pragma` (§5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `max-age` (§5.2.1.1): the maximum age of the response in seconds.
    pub max_age: Option<u32>,
    /// `max-stale` (§5.2.1.2): the client accepts a stale response.
    pub max_stale: Option<MaxStale>,
    /// `min-fresh` (§5.2.1.3): the response must stay fresh for at least this many seconds.
    pub min_fresh: Option<u32>,
    /// `stale-if-error` (RFC 5861 §4) in seconds.
    pub stale_if_error: Option<u32>,
    /// `no-cache` (§5.2.1.4), or `Pragma: no-cache` without any `Cache-Control`.
    pub no_cache: bool,
    /// `no-store` (§5.2.1.5).
    pub no_store: bool,
    /// `no-transform` (§5.2.1.6).
    pub no_transform: bool,
    /// `only-if-cached` (§5.2.1.7).
    pub only_if_cached: bool,
}

/// The staleness that a client accepts (§5.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxStale {
    /// `max-stale` without an argument.
    Any,
    /// At most this many seconds past the freshness lifetime.
    Seconds(u32),
}

impl RequestDirectives {
    /// Parses every `Cache-Control` line of a request, or `Pragma` if the request has no `Cache-Control`.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let mut requested = Self::default();
        if headers.contains_key(CACHE_CONTROL) {
            for line in headers.get_all(CACHE_CONTROL) {
                requested.add_line(line.as_bytes());
            }
        } else {
            // §5.4: `Pragma` counts only without `Cache-Control`.
            requested.no_cache = list::has_token(headers, &PRAGMA, "no-cache");
        }
        requested
    }

    /// Returns true if the request has no directive. The stored response alone then decides if it may be reused.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add_line(&mut self, line: &[u8]) {
        for (name, argument) in directives(line) {
            match name.as_str() {
                "max-age" => restrict(&mut self.max_age, argument.seconds().unwrap_or(0)),
                "min-fresh" => {
                    let secs = argument.seconds().unwrap_or(DELTA_SECONDS_MAX);
                    self.min_fresh = Some(self.min_fresh.map_or(secs, |other| other.max(secs)));
                }
                "max-stale" => {
                    let requested = match argument {
                        Argument::Absent => MaxStale::Any,
                        _ => MaxStale::Seconds(argument.seconds().unwrap_or(0)),
                    };
                    self.max_stale = Some(match (self.max_stale, requested) {
                        (Some(MaxStale::Seconds(a)), MaxStale::Seconds(b)) => {
                            MaxStale::Seconds(a.min(b))
                        }
                        (Some(MaxStale::Seconds(a)), MaxStale::Any) => MaxStale::Seconds(a),
                        (Some(MaxStale::Any) | None, requested) => requested,
                    });
                }
                "stale-if-error" => {
                    restrict(&mut self.stale_if_error, argument.seconds().unwrap_or(0));
                }
                "no-cache" => self.no_cache = true,
                "no-store" => self.no_store = true,
                "no-transform" => self.no_transform = true,
                "only-if-cached" => self.only_if_cached = true,
                _ => {}
            }
        }
    }
}

/// The argument of a directive: the text after its `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument<'a> {
    Absent,
    /// A token or the content of a quoted string. §5.2 requires recipients to accept both.
    Value(&'a [u8]),
    Malformed,
}

impl<'a> Argument<'a> {
    fn is_absent(self) -> bool {
        self == Self::Absent
    }

    pub(super) fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Malformed => None,
        }
    }

    /// Parses delta-seconds (§1.2.2), limited to [`DELTA_SECONDS_MAX`].
    fn seconds(self) -> Option<u32> {
        self.value().and_then(delta_seconds)
    }
}

/// Parses delta-seconds (§1.2.2). Returns `None` if the text contains anything but digits.
pub(crate) fn delta_seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u32, |secs, &byte| {
        byte.is_ascii_digit().then(|| {
            secs.saturating_mul(10)
                .saturating_add(u32::from(byte - b'0'))
                .min(DELTA_SECONDS_MAX)
        })
    })
}

/// Sets the limit to the smaller of its current value and `secs`.
pub(super) fn restrict(limit: &mut Option<u32>, secs: u32) {
    *limit = Some(limit.map_or(secs, |other| other.min(secs)));
}

/// A directive name in lower case, stored without allocation. Names that are longer than all known names are
/// truncated and remain unknown names.
#[derive(Clone, Copy)]
pub(super) struct DirectiveName {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl DirectiveName {
    fn new(name: &[u8]) -> Self {
        let mut bytes = [0; NAME_BYTES_MAX];
        let length = name.len().min(NAME_BYTES_MAX);
        bytes[..length].copy_from_slice(&name[..length]);
        bytes.make_ascii_lowercase();
        Self { bytes, length }
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

/// Yields the directives of one line in order, with names in lower case.
pub(super) fn directives(line: &[u8]) -> impl Iterator<Item = (DirectiveName, Argument<'_>)> {
    Members::new(line).map(|member| {
        let equals = member.iter().position(|&byte| byte == b'=');
        let (name, argument) = match equals {
            None => (member, Argument::Absent),
            Some(at) => (&member[..at], argument(&member[at + 1..])),
        };
        // The grammar allows no space around `=`. With a space, the argument is invalid, but the directive
        // still counts: `private = "x"` makes the whole response private.
        let trimmed = list::trim(name);
        let argument = if trimmed.len() == name.len() {
            argument
        } else {
            Argument::Malformed
        };
        (DirectiveName::new(trimmed), argument)
    })
}

fn argument(bytes: &[u8]) -> Argument<'_> {
    match bytes {
        [b'"', .., b'"'] if list::closing_quote(bytes, 0) == Some(bytes.len() - 1) => {
            Argument::Value(&bytes[1..bytes.len() - 1])
        }
        _ if list::is_token(bytes) => Argument::Value(bytes),
        _ => Argument::Malformed,
    }
}

/// One byte more than the longest known name, `stale-while-revalidate`.
const NAME_BYTES_MAX: usize = 23;
const _: () = assert!("stale-while-revalidate".len() < NAME_BYTES_MAX);

/// The maximum number of fields in a qualified directive. If there are more, the directive applies to the whole
/// response.
pub(super) const QUALIFIED_FIELDS_MAX: usize = 32;
