//! Builds a plain request from the bytes of its head.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Uri, Version};

use super::head::PlainHead;
use crate::exchange::canonical::RawHead;

/// The positions of a plain request's parts in its head. The request consists of slices of the head.
pub(super) struct HeadParts {
    pub(super) head_only: bool,
    pub(super) closes: bool,
    host_is_canonical: bool,
    target: Span,
    /// The names and values of the fields.
    pub(super) fields: Vec<(Span, Span)>,
}

/// The offset and the length of a part.
type Span = (usize, usize);

impl HeadParts {
    /// Returns the positions in a parsed head.
    pub(super) fn of(plain: &PlainHead<'_, '_>, host_is_canonical: bool) -> Self {
        let base = plain.bytes.as_ptr().addr();
        let span = |part: &[u8]| (part.as_ptr().addr() - base, part.len());
        let field = |field: &httparse::Header<'_>| (span(field.name.as_bytes()), span(field.value));
        Self {
            head_only: plain.head_only,
            closes: plain.closes,
            host_is_canonical,
            target: span(plain.target.as_bytes()),
            fields: plain.fields.iter().map(field).collect(),
        }
    }

    /// Returns the request in `head`, or `None` if `http` rejects one of its parts.
    pub(super) fn read(&self, head: &Bytes) -> Option<RawHead> {
        let part = |(start, bytes): Span| head.slice(start..start + bytes);
        let mut uri = http::uri::Parts::default();
        uri.path_and_query = Some(PathAndQuery::from_maybe_shared(part(self.target)).ok()?);
        let mut headers = HeaderMap::with_capacity(self.fields.len());
        for &(name, value) in &self.fields {
            let name = HeaderName::from_bytes(&head[name.0..name.0 + name.1]).ok()?;
            let value = HeaderValue::from_maybe_shared(part(value)).ok()?;
            headers.append(name, value);
        }
        Some(RawHead {
            method: if self.head_only {
                Method::HEAD
            } else {
                Method::GET
            },
            uri: Uri::from_parts(uri).ok()?,
            version: Version::HTTP_11,
            headers,
            plain: true,
            host_is_canonical: self.host_is_canonical,
            charge: None,
            interims: None,
        })
    }
}
