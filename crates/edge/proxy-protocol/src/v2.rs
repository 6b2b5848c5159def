//! Version 2: a binary header (section 2.2).
//!
//! | bytes | content |
//! |---|---|
//! | 0–11 | signature |
//! | 12 | version 2 in the high half; command: 0 LOCAL, 1 PROXY |
//! | 13 | family in the high half: 0 UNSPEC, 1 IPv4, 2 IPv6, 3 Unix; transport: 0 UNSPEC, 1 stream, 2 datagram |
//! | 14–15 | length of the rest, big-endian |
//! | 16– | addresses, ports, then extensions (TLVs) |

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::header::{Addresses, Header, HeaderError, Progress, has_signature};

/// Reads a header that begins with CR.
pub(crate) fn read(bytes: &[u8], len_max: usize) -> Result<Progress, HeaderError> {
    if !has_signature(bytes, SIGNATURE) {
        return Err(HeaderError::Missing);
    }
    // An invalid byte is refused when it arrives, so that the result does not depend on how bytes are split.
    let command = match bytes.get(12) {
        None => return Ok(Progress::Incomplete),
        Some(0x20) => Command::Local,
        Some(0x21) => Command::Proxy,
        Some(_) => return Err(HeaderError::Malformed),
    };
    let family = match bytes.get(13) {
        None => return Ok(Progress::Incomplete),
        Some(family) => *family,
    };
    // LOCAL: the family is ignored. Section 2.2: other values of PROXY must be rejected.
    let addresses_len = match command {
        Command::Local => 0,
        Command::Proxy => addresses_len(family).ok_or(HeaderError::Malformed)?,
    };
    let Some(&[high, low]) = bytes.get(14..FIXED_LEN) else {
        return Ok(Progress::Incomplete);
    };
    let rest_len = usize::from(u16::from_be_bytes([high, low]));
    if rest_len < addresses_len {
        return Err(HeaderError::Malformed);
    }
    let len = FIXED_LEN + rest_len;
    if len > len_max {
        return Err(HeaderError::TooLong);
    }
    if bytes.len() < len {
        return Ok(Progress::Incomplete);
    }
    let rest = &bytes[FIXED_LEN..len];
    let header = match (command, family) {
        (Command::Proxy, 0x11) => {
            let octets = |at: usize| Ipv4Addr::from(bytes_at::<4>(rest, at));
            proxied(rest, octets(0).into(), octets(4).into(), 8)
        }
        (Command::Proxy, 0x21) => {
            let octets = |at: usize| Ipv6Addr::from(bytes_at::<16>(rest, at));
            proxied(rest, octets(0).into(), octets(16).into(), 32)
        }
        _ => Header::Local,
    };
    Ok(Progress::Complete { header, len })
}

/// Returns the length of the addresses of a family.
const fn addresses_len(family: u8) -> Option<usize> {
    match family {
        0x00 => Some(0),
        0x11 | 0x12 => Some(IPV4_LEN),
        0x21 | 0x22 => Some(IPV6_LEN),
        0x31 | 0x32 => Some(UNIX_LEN),
        _ => None,
    }
}

/// Returns true if the extensions of a complete header have `PP2_TYPE_SSL` with the bit `PP2_CLIENT_SSL`.
pub(crate) fn client_uses_tls(header: &[u8]) -> bool {
    let [.., 0x21, family, _, _] = header.get(..FIXED_LEN).unwrap_or_default() else {
        return false;
    };
    let extensions = addresses_len(*family).and_then(|len| header.get(FIXED_LEN + len..));
    let mut rest = extensions.unwrap_or_default();
    while let [kind, high, low, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((value, after)) = after.split_at_checked(len) else {
            return false;
        };
        if *kind == TYPE_SSL {
            return value.first().is_some_and(|client| client & CLIENT_SSL != 0);
        }
        rest = after;
    }
    false
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Local,
    Proxy,
}

fn proxied(rest: &[u8], source: IpAddr, destination: IpAddr, ports_at: usize) -> Header {
    let port = |at| u16::from_be_bytes(bytes_at(rest, at));
    Header::Proxied(Addresses {
        source: SocketAddr::new(source, port(ports_at)),
        destination: SocketAddr::new(destination, port(ports_at + 2)),
    })
}

fn bytes_at<const N: usize>(rest: &[u8], at: usize) -> [u8; N] {
    let bytes = rest[at..at + N].try_into();
    bytes.expect("the length of the addresses was checked")
}

pub(crate) fn write(header: Header, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    let Header::Proxied(Addresses {
        source,
        destination,
    }) = header
    else {
        out.extend_from_slice(&[0x20, 0x00, 0, 0]);
        return;
    };
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[0x21, 0x11, 0, IPV4_LEN as u8]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        (from, to) => {
            out.extend_from_slice(&[0x21, 0x21, 0, IPV6_LEN as u8]);
            out.extend_from_slice(&v6(from).octets());
            out.extend_from_slice(&v6(to).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The extension about TLS, and the bit of its first byte that says that the client has used it.
const TYPE_SSL: u8 = 0x20;
const CLIENT_SSL: u8 = 0x01;

/// The bytes before the addresses.
pub(crate) const FIXED_LEN: usize = 16;

/// The bytes of two addresses with two ports.
const IPV4_LEN: usize = 2 * 4 + 2 * 2;
const IPV6_LEN: usize = 2 * 16 + 2 * 2;

/// The bytes of two paths of Unix sockets.
pub(crate) const UNIX_LEN: usize = 2 * 108;
