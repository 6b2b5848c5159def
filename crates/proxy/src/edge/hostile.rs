//! The parsers of bytes that come from outside, for the fuzz targets. Not part of the interface.
//!
//! Each function panics if a parser breaks what it promises. None returns what was parsed.

use bytes::BytesMut;

/// Reads a request's head as the fast path does, and looks for the request's end.
pub fn request_head(bytes: &[u8]) {
    crate::client::h1::check_request(bytes);
}

/// Reads a response's head as it comes from the origin.
pub fn response_head(bytes: &[u8]) {
    crate::origin::check_response_head(bytes);
}

/// Reads a chunked body as it comes from the origin: the result must not depend on how its bytes are cut.
pub fn chunked_body(bytes: &[u8]) {
    let whole = crate::origin::read_chunked(&mut BytesMut::from(bytes), bytes.len());
    for piece in [1, 7] {
        let cut = crate::origin::read_chunked(&mut BytesMut::from(bytes), piece);
        assert_eq!(cut, whole, "pieces of {piece}");
    }
}
