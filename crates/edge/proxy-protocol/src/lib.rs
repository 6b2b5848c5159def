//! The PROXY protocol, versions 1 and 2: the header by which a proxy states the address of its client.
//!
//! A proxy writes one header at the start of a connection, before all other bytes. [`read`] parses a header from the
//! bytes that have arrived so far, and asks for more if it is incomplete. [`write()`] makes a header. Extensions (TLVs)
//! of version 2 are skipped within a limit; [`client_uses_tls`] reads one of them.
//!
//! Specification: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. The sections in comments are its own.
#![forbid(unsafe_code)]

mod header;
mod v1;
mod v2;

use core::net::{IpAddr, SocketAddr};

pub use header::{Addresses, Header, HeaderError, Progress, Version};

/// Reads a header from the first bytes of a connection. A header that is longer than `len_max` bytes is an error; the
/// shortest limit that accepts all addresses is [`LEN_WITHOUT_EXTENSIONS_MAX`].
pub fn read(bytes: &[u8], len_max: usize) -> Result<Progress, HeaderError> {
    // The signatures differ in their first byte.
    match bytes.first() {
        None => Ok(Progress::Incomplete),
        Some(b'P') => v1::read(bytes, len_max),
        Some(b'\r') => v2::read(bytes, len_max),
        Some(_) => Err(HeaderError::Missing),
    }
}

/// Returns true if a complete header states that the client has connected to the proxy over TLS (section 2.2.6). Only
/// version 2 can state it.
pub fn client_uses_tls(header: &[u8]) -> bool {
    v2::client_uses_tls(header)
}

/// Appends a header to `out`. If the addresses are of different families, both are written as IPv6 addresses.
pub fn write(version: Version, header: Header, out: &mut Vec<u8>) {
    let header = match header {
        Header::Local => Header::Local,
        Header::Proxied(addresses) => Header::Proxied(of_one_family(addresses)),
    };
    match version {
        Version::V1 => v1::write(header, out),
        Version::V2 => v2::write(header, out),
    }
}

/// Converts IPv4-mapped addresses to IPv4, or both addresses to IPv6 if only one of them is an IPv4 address.
fn of_one_family(addresses: Addresses) -> Addresses {
    let canonical = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
    let mapped = |addr: SocketAddr| match addr.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
        IpAddr::V6(ip) => SocketAddr::new(ip.into(), addr.port()),
    };
    let source = canonical(addresses.source);
    let destination = canonical(addresses.destination);
    if source.is_ipv4() == destination.is_ipv4() {
        return Addresses {
            source,
            destination,
        };
    }
    Addresses {
        source: mapped(source),
        destination: mapped(destination),
    }
}

/// The longest header without extensions: version 2 with the paths of two Unix sockets (16 + 2 · 108 bytes).
pub const LEN_WITHOUT_EXTENSIONS_MAX: usize = v2::FIXED_LEN + v2::UNIX_LEN;
