//! The finished requests that the finder follows.

use edgeward_types::Timestamp;

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The time of the end of the request.
    pub at: Timestamp,
    /// The number of requests that this one stands for.
    pub weight: u32,
    /// The index of the site, if sites are known.
    pub site: Option<usize>,
    /// The host.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The status of the response.
    pub status: u16,
    /// True if the method is GET.
    pub is_get: bool,
    /// True if the request has a cookie or `Authorization`.
    pub has_credentials: bool,
    /// True if the request is for a range.
    pub has_range: bool,
    /// True if the client accepts a coding of the edge.
    pub accepts_coding: bool,
    /// The source of the response.
    pub source: ResponseSource,
    /// Why the response was not stored, in the words of `Cache-Status`. Empty if it was stored.
    pub not_stored: &'a str,
    /// The number of body bytes that were sent.
    pub body_bytes: u64,
    /// The hash of the whole body, if it is known.
    pub body: Option<u64>,
    /// The object that the response is or could be.
    pub object: Option<ObjectFacts>,
    /// The head of the response, if it is known.
    pub head: Option<ResponseFacts<'a>>,
}

/// The source of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseSource {
    /// The cache answered.
    Cache,
    /// The origin confirmed the stored response.
    Confirmed,
    /// The origin sent the response for the cache.
    Origin,
    /// The request passed by the cache.
    Passed,
}

/// An object, as the cache knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// The hash of its key.
    pub key: u64,
    /// The time for which it is fresh when it arrives, in milliseconds.
    pub lifetime_ms: u64,
    /// True if the origin can confirm it without its body.
    pub has_validator: bool,
}

/// The fields of a response that matter to a cache. Values of [`FIELD_BYTES_MAX`](super::FIELD_BYTES_MAX) bytes or more
/// may be cut.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseFacts<'a> {
    /// `Cache-Control`.
    pub cache_control: &'a [u8],
    /// `Content-Type`.
    pub content_type: &'a str,
    /// `Content-Encoding`.
    pub content_encoding: &'a str,
    /// `Vary`.
    pub vary: &'a [u8],
    /// True if the response has `Expires`.
    pub has_expires: bool,
    /// True if the response has `Set-Cookie`.
    pub sets_cookie: bool,
}
