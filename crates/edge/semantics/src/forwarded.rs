//! The address and the scheme of a client behind proxies, from `X-Forwarded-For` and `X-Forwarded-Proto`, or from
//! `Forwarded` (RFC 7239).
//!
//! Each proxy appends the address of its own client to the list, so the last member is the most reliable one. A member
//! is used if all proxies to its right are trusted: the client is the rightmost member that is not a trusted proxy. All
//! members to its left may be invented. The scheme is that of the same member.

use core::net::{IpAddr, SocketAddr};

/// The client, as the members that were added so far state it.
///
/// Members are added from left to right. The result is the same as that of a search from the right, but needs no list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedClient {
    address: Option<IpAddr>,
    scheme: Option<&'static str>,
    /// The trusted proxies to the right of the client.
    proxies: usize,
}

impl ForwardedClient {
    /// Adds the members of a line of `X-Forwarded-For`.
    pub fn add_x_forwarded_for(&mut self, line: &[u8], is_trusted: impl Fn(IpAddr) -> bool) {
        for member in line.split(|byte| *byte == b',') {
            self.add(node(member.trim_ascii()), None, &is_trusted);
        }
    }

    /// Adds the elements of a line of `Forwarded`. An element without `for` states no address.
    pub fn add_forwarded(&mut self, line: &[u8], is_trusted: impl Fn(IpAddr) -> bool) {
        for element in split_outside_quotes(line, b',') {
            let address = parameter(element, b"for").and_then(node);
            let scheme = parameter(element, b"proto").and_then(scheme);
            self.add(address, scheme, &is_trusted);
        }
    }

    /// Returns the address, or `None` if the last proxy has stated none. Then the peer of the connection counts.
    pub const fn address(self) -> Option<IpAddr> {
        self.address
    }

    /// Returns the scheme that the client's element of `Forwarded` states.
    pub const fn scheme(self) -> Option<&'static str> {
        self.scheme
    }

    /// Returns the scheme in the lines of `X-Forwarded-Proto`. If the proxies append to this field as they do to
    /// `X-Forwarded-For`, the client's member is that with as many members to its right. If they replace the field, its
    /// only member counts.
    pub fn scheme_in<'a>(
        self,
        lines: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Option<&'static str> {
        let members = || {
            lines
                .clone()
                .flat_map(|line| line.split(|byte| *byte == b','))
        };
        let last = members().count().checked_sub(1)?;
        scheme(members().nth(last - self.proxies.min(last))?.trim_ascii())
    }

    fn add(
        &mut self,
        address: Option<IpAddr>,
        scheme: Option<&'static str>,
        is_trusted: impl Fn(IpAddr) -> bool,
    ) {
        match (address, self.address) {
            (Some(address), Some(_)) if is_trusted(address) => self.proxies += 1,
            // Members to the left of one without an address are not used.
            _ => {
                *self = Self {
                    address,
                    scheme,
                    proxies: 0,
                }
            }
        }
    }
}

/// Returns the scheme that a proxy names.
fn scheme(text: &[u8]) -> Option<&'static str> {
    let schemes = ["https", "http"].into_iter();
    let mut named = schemes.filter(|scheme| scheme.as_bytes().eq_ignore_ascii_case(text));
    named.next()
}

/// Returns the unquoted value of a parameter of an element, if the element has exactly one of this name.
fn parameter<'a>(element: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut found = None;
    for parameter in split_outside_quotes(element, b';') {
        let parameter = parameter.trim_ascii();
        let Some(equals) = parameter.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
        if name.eq_ignore_ascii_case(wanted) {
            if found.is_some() {
                return None;
            }
            let unquoted = value
                .strip_prefix(b"\"")
                .and_then(|v| v.strip_suffix(b"\""));
            found = Some(unquoted.unwrap_or(value));
        }
    }
    found
}

/// Parses an address with or without a port. IPv6 addresses may have brackets.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address = text.parse().ok().or_else(bracketed);
    let address = address.or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// Splits at a separator that is not in a quoted string (RFC 9110 §5.6.4).
fn split_outside_quotes(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    line.split(move |byte| {
        if is_escaped {
            is_escaped = false;
        } else if is_quoted && *byte == b'\\' {
            is_escaped = true;
        } else if *byte == b'"' {
            is_quoted = !is_quoted;
        }
        *byte == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_trusted(address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(ip) if ip.octets()[0] == 10)
    }

    fn x_forwarded_for(lines: &[&str]) -> Option<IpAddr> {
        let mut client = ForwardedClient::default();
        for line in lines {
            client.add_x_forwarded_for(line.as_bytes(), is_trusted);
        }
        client.address()
    }

    fn forwarded(line: &str) -> Option<IpAddr> {
        let mut client = ForwardedClient::default();
        client.add_forwarded(line.as_bytes(), is_trusted);
        client.address()
    }

    /// The definition: a search from the right.
    fn oracle(members: &[Option<IpAddr>]) -> Option<IpAddr> {
        let mut client = None;
        for member in members.iter().rev() {
            let Some(address) = member else { return client };
            client = Some(*address);
            if !is_trusted(*address) {
                break;
            }
        }
        client
    }

    fn members() -> impl Strategy<Value = Vec<Option<IpAddr>>> {
        let address = prop_oneof![
            Just(None),
            any::<u8>().prop_map(|n| Some(IpAddr::from([10, 0, 0, n]))),
            any::<u8>().prop_map(|n| Some(IpAddr::from([192, 0, 2, n]))),
            any::<u16>().prop_map(|n| Some(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]))),
        ];
        prop::collection::vec(address, 0..8)
    }

    proptest! {
        #[test]
        fn the_client_is_the_rightmost_member_that_is_not_trusted(members in members(), split in 0_usize..8) {
            let text = |member: &Option<IpAddr>| match member {
                Some(address) => address.to_string(),
                None => "unknown".to_owned(),
            };
            let split = split.min(members.len());
            let lines = [&members[..split], &members[split..]].map(|line| {
                line.iter().map(text).collect::<Vec<_>>().join(", ")
            });
            let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|l| !l.is_empty()).collect();
            prop_assert_eq!(x_forwarded_for(&lines), oracle(&members));
            let elements = members.iter().map(|member| match member {
                Some(IpAddr::V6(ip)) => format!("by=\"a,b\";for=\"[{ip}]:80\""),
                other => format!("For={};proto=http", text(other)),
            });
            let line = elements.collect::<Vec<_>>().join(", ");
            if !line.is_empty() {
                prop_assert_eq!(forwarded(&line), oracle(&members));
            }
        }

        #[test]
        fn bytes_of_any_kind_are_accepted(line in any::<Vec<u8>>()) {
            let mut client = ForwardedClient::default();
            client.add_x_forwarded_for(&line, is_trusted);
            client.add_forwarded(&line, is_trusted);
        }
    }

    #[test]
    fn addresses_may_have_ports_brackets_and_quotes() {
        let v4 = Some(IpAddr::from([192, 0, 2, 1]));
        let v6 = Some("2001:db8::1".parse().expect("an address"));
        assert_eq!(x_forwarded_for(&["192.0.2.1:5000"]), v4);
        assert_eq!(x_forwarded_for(&["::ffff:192.0.2.1"]), v4);
        assert_eq!(x_forwarded_for(&["[2001:db8::1]"]), v6);
        assert_eq!(x_forwarded_for(&["[2001:db8::1]:80 "]), v6);
        assert_eq!(x_forwarded_for(&["192.0.2.1,"]), None);
        assert_eq!(forwarded("for=192.0.2.1"), v4);
        assert_eq!(forwarded("proto=https; FOR=\"192.0.2.1:80\""), v4);
        assert_eq!(forwarded("for=_hidden"), None);
        assert_eq!(forwarded("for=192.0.2.1, by=10.0.0.1"), None);
        // Two values, or a separator in a quoted string, must not add a member of the client's choice.
        assert_eq!(forwarded("for=192.0.2.1;for=192.0.2.1"), None);
        assert_eq!(forwarded("for=\"x, for=192.0.2.1"), None);
        assert_eq!(forwarded("by=\"\\\", for=192.0.2.9\";for=192.0.2.1"), v4);
    }

    /// Method: the client connects over TLS to the first of two proxies, and the proxies to each other without.
    #[test]
    fn the_scheme_is_that_of_the_client_s_member() {
        let of = |addresses: &str, lines: &[&str]| {
            let mut client = ForwardedClient::default();
            client.add_x_forwarded_for(addresses.as_bytes(), is_trusted);
            client.scheme_in(lines.iter().map(|line| line.as_bytes()))
        };
        for (addresses, lines, scheme) in [
            ("192.0.2.1", &["https"][..], Some("https")),
            ("192.0.2.1", &["HTTPS "], Some("https")),
            ("192.0.2.1", &["http"], Some("http")),
            ("192.0.2.1", &[], None),
            ("192.0.2.1", &["wss"], None),
            ("192.0.2.1", &[""], None),
            // A client invents a member, to which its only proxy appends.
            ("192.0.2.1", &["https, http"], Some("http")),
            ("192.0.2.1, 10.0.0.1", &["https, http"], Some("https")),
            ("192.0.2.1, 10.0.0.1", &["https", "http"], Some("https")),
            ("192.0.2.1, 10.0.0.1", &["http,https,http"], Some("https")),
            ("192.0.2.1, 10.0.0.1", &["https"], Some("https")),
            ("", &["http, https"], Some("https")),
        ] {
            assert_eq!(of(addresses, lines), scheme, "{addresses} {lines:?}");
        }
        for (line, scheme) in [
            ("for=192.0.2.1;proto=https", Some("https")),
            (
                "for=192.0.2.1;PROTO=\"https\", for=10.0.0.1;proto=http",
                Some("https"),
            ),
            (
                "for=192.0.2.9;proto=https, for=192.0.2.1;proto=http",
                Some("http"),
            ),
            ("for=192.0.2.1", None),
            ("for=192.0.2.1;proto=https;proto=https", None),
            ("proto=https", Some("https")),
        ] {
            let mut client = ForwardedClient::default();
            client.add_forwarded(line.as_bytes(), is_trusted);
            assert_eq!(client.scheme(), scheme, "{line}");
        }
    }
}
