//! Targets with [delimiters](edgeward_semantics::encode_delimiters), such as quotes, on their way through the libraries.
//!
//! No URI of the crate `http` has them, so the codecs give hyper another target and add a field with the one that the
//! client has sent. [`take`] removes the field. The key and the rules then use the encoded target, and the origin gets
//! the bytes of the client if it can: over HTTP/1.1, without a body, unsigned, and not rewritten.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use edgeward_semantics::encode_delimiters;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Uri};

/// The name of the field. It is random, so that no client can send the field itself.
pub(super) static FIELD: LazyLock<HeaderName> = LazyLock::new(|| {
    let random = RandomState::new().hash_one("target");
    HeaderName::try_from(format!("edgeward-target-{random:016x}")).expect("a name of a field")
});

/// Encodes the target at `length` bytes from `start` on in a head of HTTP/1.1, and adds the field.
pub(crate) fn encode_in_head(bytes: &mut BytesMut, (start, length): (usize, usize)) {
    let mut rest = bytes.split_off(start);
    let after = rest.split_off(length);
    let sent = str::from_utf8(&rest).expect("the parser has checked the target");
    let line_end = memchr::memchr(b'\n', &after).map_or(after.len(), |at| at + 1);
    let field = FIELD.as_str();
    for part in [
        encode_delimiters(sent).as_bytes(),
        &after[..line_end],
        field.as_bytes(),
        b": ",
        sent.as_bytes(),
        b"\r\n",
        &after[line_end..],
    ] {
        bytes.extend_from_slice(part);
    }
}

/// Removes the field, and returns path and query as the client has sent them. Sets the encoded path over HTTP/2.
pub(super) fn take(uri: &mut Uri, headers: &mut HeaderMap) -> Option<Box<str>> {
    let target = uri.path_and_query()?.as_str();
    // Most requests are not searched for the field.
    if !target.starts_with("//") && !target.contains('%') {
        return None;
    }
    let value = headers.remove(&*FIELD)?;
    let sent = str::from_utf8(value.as_bytes()).ok()?;
    let path = match sent.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => &rest[rest.find('/')?..],
        _ => sent,
    };
    let encoded = encode_delimiters(path);
    if encoded != target {
        let mut parts = std::mem::take(uri).into_parts();
        let encoded = Bytes::from(encoded.into_owned());
        parts.path_and_query = Some(PathAndQuery::from_maybe_shared(encoded).ok()?);
        *uri = Uri::from_parts(parts).ok()?;
    }
    Some(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_has_the_target_of_the_client() {
        for (line, target) in [
            ("GET /a?q=\"b\" HTTP/1.1\r\n", "/a?q=\"b\""),
            ("GET http://x/<a> HTTP/1.1\n", "/<a>"),
        ] {
            let sent = line.split(' ').nth(1).expect("a target");
            let mut head = BytesMut::from(&*[line, "Host: x\r\n\r\nnext"].concat());
            encode_in_head(&mut head, (4, sent.len()));
            let mut fields = [httparse::EMPTY_HEADER; 3];
            let mut request = httparse::Request::new(&mut fields);
            assert!(request.parse(&head).expect("a valid head").is_complete());
            assert_eq!(request.path, Some(&*encode_delimiters(sent)));
            let mut uri = request.path.expect("a target").parse().expect("valid");
            let mut headers: HeaderMap = request
                .headers
                .iter()
                .map(|field| {
                    (
                        field.name.parse().expect("a name"),
                        field.value.try_into().expect("a value"),
                    )
                })
                .collect::<Vec<(HeaderName, http::HeaderValue)>>()
                .into_iter()
                .collect();
            assert_eq!(take(&mut uri, &mut headers).as_deref(), Some(target));
            assert_eq!(headers.len(), 1);
            assert!(head.ends_with(b"Host: x\r\n\r\nnext"));
        }
    }

    #[test]
    fn a_path_of_slashes_becomes_the_encoded_path() {
        let mut uri = "https://x////".parse().expect("valid");
        let mut headers = HeaderMap::from_iter([(FIELD.clone(), "/<b>".parse().expect("valid"))]);
        assert_eq!(take(&mut uri, &mut headers).as_deref(), Some("/<b>"));
        assert_eq!(uri, "https://x/%3Cb%3E");
        assert!(headers.is_empty());
        assert_eq!(take(&mut uri, &mut headers), None);
    }
}
