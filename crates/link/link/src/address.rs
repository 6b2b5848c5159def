//! Addresses that a permitted host name must not resolve to.
//!
//! A user of the gateway chooses the host name of a target, and the owner of the name's DNS zone chooses the
//! addresses. A rule that permits a name therefore permits only addresses of the internet. Addresses of this host, of
//! the local network and of a cloud's metadata service must be permitted by a rule for the address itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address must be permitted by a rule for the address itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpecialAddress {
    /// `127.0.0.0/8` and `::1`: the gateway's host.
    Loopback,
    /// `0.0.0.0/8` and `::`. On Linux, a connection to these addresses reaches the gateway's host.
    Unspecified,
    /// `169.254.0.0/16` and `fe80::/10`: the local network segment. Most clouds have their metadata service in this
    /// range.
    LinkLocal,
    /// The private networks of RFC 1918 and RFC 4193, and the shared address space of carriers (RFC 6598).
    Private,
    /// The metadata service of a cloud, at an address of a public range.
    Metadata,
    /// A multicast address: a group of hosts.
    Multicast,
    /// An address that is not assigned to hosts of the internet (RFC 6890), or is translated to the address of
    /// another host.
    Reserved,
}

impl SpecialAddress {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Unspecified => "unspecified",
            Self::LinkLocal => "link-local",
            Self::Private => "private",
            Self::Metadata => "a metadata service",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        }
    }

    /// Returns why a rule for `address` itself is required, or `None` for an address of the internet.
    pub(crate) fn of(address: IpAddr) -> Option<Self> {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        Some(match address.octets() {
            [0, ..] => Self::Unspecified,
            [127, ..] => Self::Loopback,
            [169, 254, ..] => Self::LinkLocal,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Self::Private,
            // Azure's metadata service; those of other clouds are in link-local, private or reserved ranges.
            [168, 63, 129, 16] => Self::Metadata,
            [224..=239, ..] => Self::Multicast,
            [240..=255, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _] => Self::Reserved,
            _ => return None,
        })
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        let embedded = |high: u16, low: u16| {
            let bits = u32::from(high) << 16 | u32::from(low);
            Self::of_v4(Ipv4Addr::from_bits(bits))
        };
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0] => Some(Self::Unspecified),
            [0, 0, 0, 0, 0, 0, 0, 1] => Some(Self::Loopback),
            // A router translates these addresses to the IPv4 address in the last 32 bits (RFC 6052).
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
            // 6to4 (RFC 3056): packets are sent to the IPv4 address that follows the prefix.
            [0x2002, high, low, ..] => embedded(high, low),
            [0xff00..=0xffff, ..] => Some(Self::Multicast),
            [0xfe80..=0xfebf, ..] => Some(Self::LinkLocal),
            // Private networks (RFC 4193), which include the metadata address fd00:ec2::254, and the former
            // site-local range (RFC 3879).
            [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(Self::Private),
            // Reserved parts of the global range 2000::/3: benchmarking, ORCHID and Teredo in 2001::/23, and
            // addresses for documentation.
            [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => {
                Some(Self::Reserved)
            }
            [0x2000..=0x3fff, ..] => None,
            _ => Some(Self::Reserved),
        }
    }
}

/// A network: all addresses whose first `prefix_bits` bits equal those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// Parses an address, or an address with `/` and the number of prefix bits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix_bits) = match text.split_once('/') {
            Some((address, prefix_bits)) => (address, Some(prefix_bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        // Rust's integer parser would accept a sign, such as `/+8`.
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix_bits {
            Some(digits) if is_number(digits) => digits.parse().ok()?,
            Some(_) => return None,
            None => bits_max,
        };
        (prefix_bits <= bits_max).then_some(Self {
            address,
            prefix_bits,
        })
    }

    pub(crate) fn is_ipv6(self) -> bool {
        self.address.is_ipv6()
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let has_prefix = |one: u128, other: u128, address_bits: u32| {
            let differing_bits = one ^ other;
            differing_bits
                .checked_shr(address_bits - u32::from(self.prefix_bits))
                .unwrap_or(0)
                == 0
        };
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                has_prefix(network.to_bits().into(), address.to_bits().into(), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                has_prefix(network.to_bits(), address.to_bits(), 128)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_the_internet_are_special() {
        for (text, special) in [
            ("127.0.0.1", Some(SpecialAddress::Loopback)),
            ("127.255.255.255", Some(SpecialAddress::Loopback)),
            ("0.0.0.0", Some(SpecialAddress::Unspecified)),
            ("0.1.2.3", Some(SpecialAddress::Unspecified)),
            ("10.0.0.1", Some(SpecialAddress::Private)),
            ("172.15.255.255", None),
            ("172.16.0.0", Some(SpecialAddress::Private)),
            ("172.31.255.255", Some(SpecialAddress::Private)),
            ("172.32.0.0", None),
            ("192.168.1.1", Some(SpecialAddress::Private)),
            ("100.63.255.255", None),
            ("100.64.0.0", Some(SpecialAddress::Private)),
            ("100.100.100.200", Some(SpecialAddress::Private)),
            ("100.128.0.0", None),
            ("169.254.169.254", Some(SpecialAddress::LinkLocal)),
            ("168.63.129.16", Some(SpecialAddress::Metadata)),
            ("192.0.0.192", Some(SpecialAddress::Reserved)),
            ("198.18.0.1", Some(SpecialAddress::Reserved)),
            ("224.0.0.1", Some(SpecialAddress::Multicast)),
            ("255.255.255.255", Some(SpecialAddress::Reserved)),
            ("93.184.216.34", None),
            ("::", Some(SpecialAddress::Unspecified)),
            ("::1", Some(SpecialAddress::Loopback)),
            ("::ffff:127.0.0.1", Some(SpecialAddress::Loopback)),
            ("::ffff:169.254.169.254", Some(SpecialAddress::LinkLocal)),
            ("::ffff:93.184.216.34", None),
            ("::127.0.0.1", Some(SpecialAddress::Reserved)),
            ("64:ff9b::a9fe:a9fe", Some(SpecialAddress::LinkLocal)),
            ("64:ff9b::5db8:d822", None),
            ("64:ff9b:1::1", Some(SpecialAddress::Reserved)),
            ("2002:7f00:1::1", Some(SpecialAddress::Loopback)),
            ("2002:5db8:d822::1", None),
            ("2001::1", Some(SpecialAddress::Reserved)),
            ("2001:db8::1", Some(SpecialAddress::Reserved)),
            ("2606:2800:220:1::1", None),
            ("fc00::1", Some(SpecialAddress::Private)),
            ("fd00:ec2::254", Some(SpecialAddress::Private)),
            ("fe80::1", Some(SpecialAddress::LinkLocal)),
            ("fec0::1", Some(SpecialAddress::Private)),
            ("ff02::1", Some(SpecialAddress::Multicast)),
            ("100::1", Some(SpecialAddress::Reserved)),
        ] {
            let address = text.parse().expect("the address is valid");
            assert_eq!(SpecialAddress::of(address), special, "{text}");
        }
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        for (network, address, contains) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.2", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "fd00::1", true),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::1", "::1", true),
        ] {
            let parsed = Network::parse(network).expect("the network is valid");
            let address = address.parse().expect("the address is valid");
            assert_eq!(parsed.contains(address), contains, "{network} {address}");
        }
        for wrong in [
            "",
            "10",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "::/129",
            "db",
            "db/8",
        ] {
            assert!(Network::parse(wrong).is_none(), "{wrong}");
        }
    }
}
