//! Builds the [`RawHead`] of a plain request (see [`PlainHead`]) for the code that handles all kinds of requests.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Version};

use super::head::PlainHead;
use crate::exchange::canonical::RawHead;
use crate::exchange::field_bytes::{FieldSpans, Span, span};

/// The values of a [`PlainHead`] that a request needs, with positions in the head instead of references to it.
pub(super) struct HeadParts {
    pub(super) head_only: bool,
    pub(super) closes: bool,
    host_is_canonical: bool, // see `RawHead::host_is_canonical`
    target: Span,
    pub(super) fields: FieldSpans,
}

impl HeadParts {
    /// Returns the positions in a parsed head.
    pub(super) fn of(plain: &PlainHead<'_, '_>, host_is_canonical: bool) -> Self {
        Self {
            head_only: plain.head_only,
            closes: plain.closes,
            host_is_canonical,
            target: span(plain.bytes, plain.target.as_bytes()),
            fields: FieldSpans::of(plain.bytes, plain.fields),
        }
    }

    /// Builds the request, which shares the memory of `head`, the parsed bytes. `None` if the crate `http` rejects it.
    pub(super) fn read(&self, head: &Bytes) -> Option<RawHead> {
        let (start, bytes) = self.target;
        let target = PathAndQuery::from_maybe_shared(head.slice(start..start + bytes)).ok()?;
        let headers = self.fields.read(head, 0).ok()?;
        let method = if self.head_only {
            Method::HEAD
        } else {
            Method::GET
        };
        Some(RawHead {
            plain: true,
            host_is_canonical: self.host_is_canonical,
            ..RawHead::new(method, target.into(), Version::HTTP_11, headers)
        })
    }
}
