//! Networks of IP addresses in CIDR notation.

use core::net::IpAddr;
use std::fmt;
use std::str::FromStr;

/// The IP addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// The text is not a [`Network`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network; write 10.0.0.0/8 or 2001:db8::/32, or one address")]
pub struct ParseNetworkError(Box<str>);

impl Network {
    /// Returns true if the network contains the address. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (ours, theirs, bits) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                (ours.to_bits().into(), theirs.to_bits().into(), 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
            _ => return false,
        };
        let different_bits: u128 = ours ^ theirs;
        different_bits
            .checked_shr(bits - u32::from(self.prefix_bits))
            .unwrap_or(0)
            == 0
    }

    /// Returns true if both networks have an address in common. Then one of them contains the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseNetworkError(text.into());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| error())?,
            None => bits_max,
        };
        if prefix_bits > bits_max {
            return Err(error());
        }
        Ok(Self {
            address,
            prefix_bits,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_that_share_its_prefix() {
        for (network, address, contained) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("::/0", "::1", true),
        ] {
            let network: Network = network.parse().expect("a network");
            let address = address.parse().expect("an address");
            assert_eq!(network.contains(address), contained, "{network} {address}");
        }
    }

    #[test]
    fn a_network_parses_back_from_its_text() {
        for text in ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"] {
            let network: Network = text.parse().expect(text);
            assert_eq!(network.to_string(), text);
        }
        for text in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "host",
            "10.0.0.0/-1",
            "",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
