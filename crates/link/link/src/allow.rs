//! The targets that the gateway may connect to. Without a rule no target is permitted.

use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::address::{Network, SpecialAddress};
use crate::label::{HostPort, ParseHostPortError};

/// A list of rules. A target is permitted if one rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow(Vec<Rule>);

/// A rule: `HOST:PORT`, `*.DOMAIN:PORT` or `NETWORK/BITS:PORT`. `*` matches any host or any port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    host: HostRule,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostRule {
    AnyHost,
    /// Host names that end with this text, which begins with a dot.
    Subdomains(String),
    ExactName(String),
    /// Targets that are given as an address of this network.
    Network(Network),
}

/// Returned if a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a rule: use HOST:PORT, *.DOMAIN:PORT or NETWORK/BITS:PORT, with `*` for any host or port"
)]
pub struct ParseRuleError(pub String);

impl FromStr for Rule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<Self, ParseRuleError> {
        let wrong = || ParseRuleError(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_any_port = port == "*";
        // `*` is replaced by a valid port, so that the rest can be parsed as a target.
        let port_text = if is_any_port { "1" } else { port };
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let network = Network::parse(bracketed.unwrap_or(host));
        // An IPv6 network must be in brackets, an IPv4 network must not.
        if let Some(network) = network.filter(|network| network.is_ipv6() == bracketed.is_some()) {
            let target: HostPort = format!("any:{port_text}").parse().map_err(|_| wrong())?;
            return Ok(Self {
                host: HostRule::Network(network),
                port: (!is_any_port).then_some(target.port),
            });
        }
        let domain = host.strip_prefix("*.");
        let name = if host == "*" {
            "any"
        } else {
            domain.unwrap_or(host)
        };
        let target: HostPort = format!("{name}:{port_text}")
            .parse()
            .map_err(|ParseHostPortError(_)| wrong())?;
        Ok(Self {
            host: match (host, domain) {
                ("*", _) => HostRule::AnyHost,
                (_, Some(_)) => HostRule::Subdomains(format!(".{}", target.host)),
                _ => HostRule::ExactName(target.host),
            },
            port: (!is_any_port).then_some(target.port),
        })
    }
}

impl Allow {
    /// Adds a rule.
    #[must_use]
    pub fn and(mut self, rule: Rule) -> Self {
        self.0.push(rule);
        self
    }

    /// Returns true if a rule matches the host and port of the request. If the host is a name, the gateway also
    /// requires that `special_address` returns `None` for the address that it connects to.
    pub fn permits(&self, target: &HostPort) -> bool {
        let address = target
            .host
            .parse::<IpAddr>()
            .ok()
            .map(|address| address.to_canonical());
        self.0.iter().any(|rule| {
            let host_matches = match &rule.host {
                HostRule::AnyHost => true,
                HostRule::Subdomains(domain) => target.host.ends_with(domain),
                HostRule::ExactName(host) => target.host == *host,
                HostRule::Network(network) => {
                    address.is_some_and(|address| network.contains(address))
                }
            };
            host_matches && rule.port.is_none_or(|port| port == target.port)
        })
    }
}

impl Allow {
    /// Checks an address of a permitted host name. Returns `None` if the gateway may connect to the address,
    /// otherwise the reason why a rule for the address itself is required.
    pub(crate) fn special_address(&self, address: IpAddr, port: u16) -> Option<SpecialAddress> {
        let address = address.to_canonical();
        let permits_address = |rule: &Rule| match &rule.host {
            HostRule::Network(network) => {
                network.contains(address) && rule.port.is_none_or(|allowed| allowed == port)
            }
            _ => false,
        };
        SpecialAddress::of(address).filter(|_| !self.0.iter().any(permits_address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_targets_that_match_a_rule_are_permitted() {
        let cases = [
            ("db:3306", "db:3306", true),
            ("DB:3306", "db:3306", true),
            ("db:3306", "db:3307", false),
            ("db:3306", "xdb:3306", false),
            ("db:*", "db:1", true),
            ("*:80", "anything:80", true),
            ("*:80", "anything:81", false),
            ("*.example.com:443", "a.b.example.com:443", true),
            ("*.example.com:443", "example.com:443", false),
            ("*.example.com:443", "badexample.com:443", false),
            ("[::1]:1", "[::1]:1", true),
            ("*:*", "[::1]:1", true),
            ("10.0.0.0/8:80", "10.1.2.3:80", true),
            ("10.0.0.0/8:80", "10.1.2.3:81", false),
            ("10.0.0.0/8:80", "db:80", false),
            ("10.0.0.0/8:80", "[::ffff:10.1.2.3]:80", true),
            ("[fd00::/8]:*", "[fd12::1]:1", true),
        ];
        for (rule, target, permitted) in cases {
            let allow = Allow::default().and(rule.parse().expect("the rule is valid"));
            let target = target.parse().expect("the target is valid");
            assert_eq!(allow.permits(&target), permitted, "{rule} {target}");
            assert!(
                !Allow::default().permits(&target),
                "without rules, no target is permitted"
            );
        }
        for wrong in [
            "",
            "db",
            "db:0",
            "*.:1",
            "a*:1",
            "db:**",
            "*.a.*:1",
            "10.0.0.0/33:1",
            "db/8:1",
            "[10.0.0.0/8]:1",
            "fd00::/8:1",
            "10.0.0.0/8:0",
        ] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }

    /// A rule for a name or for any host does not permit a special address; a rule for an address or a network
    /// does.
    #[test]
    fn a_special_address_needs_a_rule_of_its_own() {
        for (rules, address, special) in [
            (&["db:80"][..], "10.0.0.1", Some(SpecialAddress::Private)),
            (&["*:*"], "169.254.169.254", Some(SpecialAddress::LinkLocal)),
            (&["*:*"], "::ffff:127.0.0.1", Some(SpecialAddress::Loopback)),
            (&["*:*"], "93.184.216.34", None),
            (&["db:80", "10.0.0.0/8:80"], "10.0.0.1", None),
            (&["db:80", "10.0.0.0/8:80"], "::ffff:10.0.0.1", None),
            (
                &["db:80", "10.0.0.0/8:81"],
                "10.0.0.1",
                Some(SpecialAddress::Private),
            ),
            (&["[fd00:ec2::254]:80"], "fd00:ec2::254", None),
        ] {
            let allow = rules.iter().fold(Allow::default(), |allow, rule| {
                allow.and(rule.parse().expect("the rule is valid"))
            });
            let address = address.parse().expect("the address is valid");
            assert_eq!(
                allow.special_address(address, 80),
                special,
                "{rules:?} {address}"
            );
        }
    }
}
