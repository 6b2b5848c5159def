//! Parses the TCP segment of a packet: skips the link-layer header and VLAN tags, then parses IPv4 or IPv6.

// The types are imported from `core`, which has addresses but no sockets: this crate must not use the network.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::file::{LinkType, Packet};

/// The sender and the receiver of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoints {
    /// The address of the sender.
    pub from: SocketAddr,
    /// The address of the receiver.
    pub to: SocketAddr,
}

/// A TCP segment. The end of its payload may be missing from the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'b> {
    /// The sender and the receiver of the segment.
    pub endpoints: Endpoints,
    /// The sequence number of the first byte, or of the SYN flag if it is set.
    pub sequence: u32,
    /// True if the SYN flag is set: the stream from this sender to this receiver begins.
    pub syn: bool,
    /// True if the FIN flag is set: the stream from this sender to this receiver ends.
    pub fin: bool,
    /// True if the RST flag is set: the connection ends.
    pub rst: bool,
    /// The captured bytes of the payload.
    pub payload: &'b [u8],
    /// The length of the payload as sent, in bytes. It is greater than `payload.len()` if the capture truncated
    /// the packet.
    pub length: u32,
}

/// Why a packet has no usable TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The link type is not supported.
    LinkType,
    /// The packet is not an IP packet, for example ARP.
    NotIp,
    /// The packet is an IP packet, but not TCP.
    NotTcp,
    /// The packet is a fragment of an IP packet. TCP avoids fragmentation, so fragments are rare.
    Fragment,
    /// A header is incomplete or invalid.
    Malformed,
}

/// Parses the TCP segment of a packet.
///
/// # Errors
///
/// Returns an error if the packet has no usable segment.
pub fn segment<'b>(packet: &Packet<'b>) -> Result<Segment<'b>, SkipReason> {
    let (network, version) = skip_link_header(packet.link, packet.bytes)?;
    match version {
        4 => ipv4_segment(network),
        6 => ipv6_segment(network),
        _ => Err(SkipReason::NotIp),
    }
}

/// Returns the bytes after the link-layer header, and the version of IP.
fn skip_link_header(link: LinkType, bytes: &[u8]) -> Result<(&[u8], u8), SkipReason> {
    let (rest, ether_type) = match link.0 {
        // Ethernet
        1 => skip_vlan_tags(after(bytes, 12)?)?,
        // Linux cooked, versions 1 and 2
        113 => skip_vlan_tags(after(bytes, 14)?)?,
        276 => (after(bytes, 20)?, read_u16(bytes, 0)?),
        // BSD loopback: a protocol family in the byte order of the capturing machine.
        0 | 108 => (after(bytes, 4)?, 0),
        // Raw IP
        12 | 101 | 228 | 229 => (bytes, 0),
        _ => return Err(SkipReason::LinkType),
    };
    match ether_type {
        0x0800 => Ok((rest, 4)),
        0x86dd => Ok((rest, 6)),
        // 0 is not an EtherType: it stands for a link header without one. The first four bits of an IP packet are
        // its version.
        0 => rest
            .first()
            .map(|byte| (rest, byte >> 4))
            .ok_or(SkipReason::Malformed),
        _ => Err(SkipReason::NotIp),
    }
}

/// Skips VLAN tags (802.1Q, 802.1ad). Returns the bytes after the EtherType, and the EtherType.
fn skip_vlan_tags(mut bytes: &[u8]) -> Result<(&[u8], u16), SkipReason> {
    for _ in 0..=TAGS_MAX {
        let ether_type = read_u16(bytes, 0)?;
        bytes = after(bytes, 2)?;
        match ether_type {
            0x8100 | 0x88a8 | 0x9100 => bytes = after(bytes, 2)?,
            0 => return Err(SkipReason::NotIp),
            other => return Ok((bytes, other)),
        }
    }
    Err(SkipReason::Malformed)
}

fn ipv4_segment(bytes: &[u8]) -> Result<Segment<'_>, SkipReason> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(SkipReason::Malformed)?;
    let header_bytes = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || header_bytes < 20 {
        return Err(SkipReason::Malformed);
    }
    // The packet is a fragment if the flag "more fragments" is set or the fragment offset is not zero.
    if read_u16(header, 6)? & 0x3fff != 0 {
        return Err(SkipReason::Fragment);
    }
    if header[9] != TCP {
        return Err(SkipReason::NotTcp);
    }
    // The total length is zero if the network card does the segmentation.
    let total = match usize::from(read_u16(header, 2)?) {
        0 => bytes.len(),
        total => total,
    };
    let length = total
        .checked_sub(header_bytes)
        .ok_or(SkipReason::Malformed)?;
    let address = |offset: usize| {
        let octets: [u8; 4] = *header[offset..].first_chunk().expect("within twenty bytes");
        IpAddr::V4(Ipv4Addr::from(octets))
    };
    tcp_segment(
        after(bytes, header_bytes)?,
        length,
        address(12),
        address(16),
    )
}

fn ipv6_segment(bytes: &[u8]) -> Result<Segment<'_>, SkipReason> {
    let header: &[u8; 40] = bytes.first_chunk().ok_or(SkipReason::Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(SkipReason::Malformed);
    }
    let address = |offset: usize| {
        let octets: [u8; 16] = *header[offset..].first_chunk().expect("within forty bytes");
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let mut rest = &bytes[40..];
    // As in IPv4, a length of zero stands for all captured bytes.
    let mut length = match usize::from(read_u16(header, 4)?) {
        0 => rest.len(),
        length => length,
    };
    let mut next = header[6];
    // 0, 43 and 60 are the extension headers for hop-by-hop options, routing and destination options (RFC 8200,
    // section 4).
    for _ in 0..=EXTENSIONS_MAX {
        match next {
            TCP => return tcp_segment(rest, length, address(8), address(24)),
            0 | 43 | 60 => {
                let [following, length_units, ..] = rest else {
                    return Err(SkipReason::Malformed);
                };
                let extension = (usize::from(*length_units) + 1) * 8;
                next = *following;
                rest = after(rest, extension)?;
                length = length.checked_sub(extension).ok_or(SkipReason::Malformed)?;
            }
            44 => return Err(SkipReason::Fragment),
            _ => return Err(SkipReason::NotTcp),
        }
    }
    Err(SkipReason::Malformed)
}

/// Parses a TCP segment. `length` is the length of header and payload as sent. `bytes` may be shorter, if the capture
/// truncated the packet, or longer, if the link padded it.
fn tcp_segment(
    bytes: &[u8],
    length: usize,
    from: IpAddr,
    to: IpAddr,
) -> Result<Segment<'_>, SkipReason> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(SkipReason::Malformed)?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    let length = length
        .checked_sub(header_bytes)
        .ok_or(SkipReason::Malformed)?;
    if header_bytes < 20 {
        return Err(SkipReason::Malformed);
    }
    let payload = after(bytes, header_bytes)?;
    let flag = |bit: u8| header[13] & bit != 0;
    let port = |offset: usize| read_u16(header, offset);
    Ok(Segment {
        endpoints: Endpoints {
            from: SocketAddr::new(from, port(0)?),
            to: SocketAddr::new(to, port(2)?),
        },
        sequence: u32::from_be_bytes(*header[4..].first_chunk().expect("within twenty bytes")),
        syn: flag(2),
        fin: flag(1),
        rst: flag(4),
        payload: &payload[..payload.len().min(length)],
        length: u32::try_from(length).map_err(|_| SkipReason::Malformed)?,
    })
}

fn after(bytes: &[u8], skip: usize) -> Result<&[u8], SkipReason> {
    bytes.get(skip..).ok_or(SkipReason::Malformed)
}

fn read_u16(bytes: &[u8], offset: usize) -> Result<u16, SkipReason> {
    let bytes = bytes.get(offset..).and_then(<[u8]>::first_chunk);
    bytes
        .map(|bytes| u16::from_be_bytes(*bytes))
        .ok_or(SkipReason::Malformed)
}

/// The protocol number of TCP.
const TCP: u8 = 6;
/// The maximum number of VLAN tags.
const TAGS_MAX: usize = 4;
/// The maximum number of IPv6 extension headers.
const EXTENSIONS_MAX: usize = 8;
