//! The media type of a response (RFC 9110 §8.3.1).

use http::header::{CONTENT_TYPE, HeaderMap};

/// Returns the media type of a response without its parameters, or `None` without `Content-Type`.
pub(crate) fn media_type(response: &HeaderMap) -> Option<&[u8]> {
    let value = response.get(CONTENT_TYPE)?.as_bytes();
    let end = value.iter().position(|&byte| byte == b';');
    Some(value[..end.unwrap_or(value.len())].trim_ascii())
}
