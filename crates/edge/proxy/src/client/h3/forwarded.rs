//! Datagrams of QUIC on their way to another endpoint of the edge, as messages.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | bits 0 and 1: ECN; bit 2: the source has IPv6; bit 3: the destination is known; bit 4: it has IPv6; others 0 |
//! | 1 to 2 | the port of the source |
//! | 3 to 18 | the address of the source; IPv4 takes the first four bytes |
//! | 19 to 34 | the address of the destination |
//! | 35 to 38 | the scope of the source (IPv6) |
//! | 39 and more | the datagram |
//!
//! Numbers are little-endian. Both processes run on one machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use quinn::udp::{EcnCodepoint, RecvMeta};

use super::connection_id::{ID_BYTES, Id};
use super::steering::LONG_HEADER;

pub(crate) const HEAD_BYTES: usize = 39;

/// The addresses of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramHead {
    pub(crate) source: SocketAddr,
    pub(crate) destination: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
}

impl DatagramHead {
    pub(super) fn of(meta: &RecvMeta) -> Self {
        Self {
            source: meta.addr,
            destination: meta.dst_ip,
            ecn: meta.ecn,
        }
    }

    /// Returns the description of a datagram of `len` bytes, as the system makes it.
    pub(super) fn meta(self, len: usize) -> RecvMeta {
        RecvMeta {
            addr: self.source,
            len,
            stride: len,
            ecn: self.ecn,
            dst_ip: self.destination,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.ecn.map_or(0, |ecn| ecn as u8);
        bytes[1..3].copy_from_slice(&self.source.port().to_le_bytes());
        if write_ip(&mut bytes[3..19], self.source.ip()) {
            bytes[0] |= SOURCE_V6;
        }
        if let Some(destination) = self.destination {
            bytes[0] |= DESTINATION;
            if write_ip(&mut bytes[19..35], destination) {
                bytes[0] |= DESTINATION_V6;
            }
        }
        if let SocketAddr::V6(source) = self.source {
            bytes[35..].copy_from_slice(&source.scope_id().to_le_bytes());
        }
        bytes
    }

    /// Returns `None` if the bytes are no head.
    pub(crate) fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let flags = bytes[0];
        let port = u16::from_le_bytes([bytes[1], bytes[2]]);
        let scope = u32::from_le_bytes([bytes[35], bytes[36], bytes[37], bytes[38]]);
        let source = match read_ip(&bytes[3..19], flags & SOURCE_V6 != 0) {
            IpAddr::V4(ip) => SocketAddrV4::new(ip, port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
        };
        let destination = read_ip(&bytes[19..35], flags & DESTINATION_V6 != 0);
        let head = Self {
            source,
            destination: (flags & DESTINATION != 0).then_some(destination),
            ecn: EcnCodepoint::from_bits(flags),
        };
        // Each head has one form.
        (head.to_bytes() == *bytes).then_some(head)
    }
}

/// Writes an address. Returns true if it has IPv6.
fn write_ip(bytes: &mut [u8], ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.copy_from_slice(&ip.octets()),
    }
    ip.is_ipv6()
}

fn read_ip(bytes: &[u8], is_v6: bool) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    match is_v6 {
        true => Ipv6Addr::from(octets).into(),
        false => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
    }
}

/// The destination of a datagram as its first packet states it (RFC 8999).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// A connection id of a short header, which the edge has issued.
    Issued(Id),
    /// A connection id of a long header. The client chooses the one of its first packets.
    Long(Id),
    /// The datagram has no connection id of the length of ours.
    Other,
}

impl Destination {
    pub(super) fn of(datagram: &[u8]) -> Self {
        match datagram {
            [first, rest @ ..] if first & LONG_HEADER == 0 => match rest.first_chunk() {
                Some(id) => Self::Issued(*id),
                None => Self::Other,
            },
            [_, _, _, _, _, len, rest @ ..] if usize::from(*len) == ID_BYTES => {
                rest.first_chunk().map_or(Self::Other, |id| Self::Long(*id))
            }
            _ => Self::Other,
        }
    }
}

const SOURCE_V6: u8 = 1 << 2;
const DESTINATION: u8 = 1 << 3;
const DESTINATION_V6: u8 = 1 << 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ecn() -> impl Strategy<Value = Option<EcnCodepoint>> {
        (0u8..4).prop_map(EcnCodepoint::from_bits)
    }

    fn source() -> impl Strategy<Value = SocketAddr> {
        let v4 = any::<SocketAddrV4>().prop_map(SocketAddr::V4);
        let v6 = any::<(Ipv6Addr, u16, u32)>()
            .prop_map(|(ip, port, scope)| SocketAddrV6::new(ip, port, 0, scope).into());
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn a_head_is_read_as_it_was_written(source in source(), destination: Option<IpAddr>, ecn in ecn()) {
            let head = DatagramHead { source, destination, ecn };
            prop_assert_eq!(DatagramHead::from_bytes(&head.to_bytes()), Some(head));
        }
    }

    #[test]
    fn a_head_with_an_unknown_bit_is_refused() {
        let source = "192.0.2.1:443".parse().expect("an address");
        let head = DatagramHead {
            source,
            destination: None,
            ecn: None,
        };
        for at in 0..HEAD_BYTES {
            let mut bytes = head.to_bytes();
            bytes[at] ^= 1 << 7;
            let is_of_source = (1..7).contains(&at);
            assert_eq!(
                DatagramHead::from_bytes(&bytes).is_some(),
                is_of_source,
                "byte {at}"
            );
        }
    }

    #[test]
    fn the_destination_is_where_all_versions_of_quic_have_it() {
        let cases: [(&[u8], Destination); 8] = [
            (b"", Destination::Other),
            (b"\x40ABCDEFG", Destination::Other),
            (b"\x40ABCDEFGH", Destination::Issued(*b"ABCDEFGH")),
            (b"\x40ABCDEFGHI", Destination::Issued(*b"ABCDEFGH")),
            (b"\xc0\0\0\0\x01", Destination::Other),
            (b"\xc0\0\0\0\x01\x08ABCDEFG", Destination::Other),
            (
                b"\xc0\0\0\0\x01\x08ABCDEFGH",
                Destination::Long(*b"ABCDEFGH"),
            ),
            (b"\xc0\0\0\0\x01\x09ABCDEFGHI", Destination::Other),
        ];
        for (datagram, expected) in cases {
            assert_eq!(Destination::of(datagram), expected, "{datagram:?}");
        }
    }
}
