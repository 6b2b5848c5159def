//! Functions for the fuzz targets. They call the parsers of bytes from the network. Not part of the public interface.
//!
//! Each function panics if a parser violates its contract.

use bytes::BytesMut;

pub use super::admin_request::check_admin_request as admin_request;
pub use crate::client::h1::check_request as request_head;
pub use crate::origin::check_response_head as response_head;
pub use crate::path::inspect::check_body as inspect_request;

/// Decodes a chunked body from the origin. The result must not depend on how the bytes are split.
pub fn chunked_body(bytes: &[u8]) {
    let whole = crate::origin::read_chunked(&mut BytesMut::from(bytes), bytes.len());
    for piece in [1, 7] {
        let cut = crate::origin::read_chunked(&mut BytesMut::from(bytes), piece);
        assert_eq!(cut, whole, "pieces of {piece}");
    }
}
