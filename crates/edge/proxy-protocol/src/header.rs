//! The content of a header, and the results of reading one.

use core::net::SocketAddr;

/// The version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The endpoints of a connection between a client and a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The address of the client.
    pub source: SocketAddr,
    /// The address that the client has connected to.
    pub destination: SocketAddr,
}

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The header states no usable address: LOCAL, UNKNOWN, UNSPEC, a Unix socket or datagrams. The addresses of the
    /// connection itself apply. Health checks of proxies send such headers.
    Local,
    /// The proxy forwards the connection of a client.
    Proxied(Addresses),
}

/// The result of reading the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The bytes are the beginning of a header.
    Incomplete,
    /// The header is complete. It takes the first `len` bytes.
    Complete {
        /// The content.
        header: Header,
        /// The length in bytes, with extensions.
        len: usize,
    },
}

/// The reason why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The bytes begin with neither signature, for example with a request of HTTP.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// The bytes begin with a signature, but their content is invalid.
    #[error("the PROXY header is malformed")]
    Malformed,
    /// The header is longer than the limit.
    #[error("the PROXY header is too long")]
    TooLong,
}

/// Returns true if `bytes` begin with all of `signature`, or are a part of it.
pub(crate) fn has_signature(bytes: &[u8], signature: &[u8]) -> bool {
    let compared = bytes.len().min(signature.len());
    bytes[..compared] == signature[..compared]
}
