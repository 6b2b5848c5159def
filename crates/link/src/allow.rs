//! Where the gateway connects to: nowhere but where it was told.

use std::str::FromStr;

use thiserror::Error;

use crate::label::{HostPort, NotHostPort};

/// Rules, of which one has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow(Vec<Rule>);

/// `HOST:PORT`, `*.DOMAIN:PORT`, `HOST:*`, `*:PORT`, `*:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    host: HostRule,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostRule {
    Any,
    Within(String),
    Is(String),
}

/// Why text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is neither HOST:PORT nor one with `*` for the host, its first part, or the port")]
pub struct NotARule(pub String);

impl FromStr for Rule {
    type Err = NotARule;

    fn from_str(text: &str) -> Result<Self, NotARule> {
        let wrong = || NotARule(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_any_port = port == "*";
        // With a port that exists, what is left is a place like any other.
        let port_text = if is_any_port { "1" } else { port };
        let within = host.strip_prefix("*.");
        let name = if host == "*" {
            "any"
        } else {
            within.unwrap_or(host)
        };
        let place: HostPort = format!("{name}:{port_text}")
            .parse()
            .map_err(|NotHostPort(_)| wrong())?;
        Ok(Self {
            host: match (host, within) {
                ("*", _) => HostRule::Any,
                (_, Some(_)) => HostRule::Within(format!(".{}", place.host)),
                _ => HostRule::Is(place.host),
            },
            port: (!is_any_port).then_some(place.port),
        })
    }
}

impl Allow {
    /// One more rule.
    #[must_use]
    pub fn and(mut self, rule: Rule) -> Self {
        self.0.push(rule);
        self
    }

    /// Whether any rule fits.
    pub fn permits(&self, place: &HostPort) -> bool {
        self.0.iter().any(|rule| {
            let host = match &rule.host {
                HostRule::Any => true,
                HostRule::Within(domain) => place.host.ends_with(domain),
                HostRule::Is(host) => place.host == *host,
            };
            host && rule.port.is_none_or(|port| port == place.port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_rule_names_is_permitted() {
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
        ];
        for (rule, place, permitted) in cases {
            let allow = Allow::default().and(rule.parse().expect("a rule"));
            let place = place.parse().expect("a place");
            assert_eq!(allow.permits(&place), permitted, "{rule} {place}");
            assert!(!Allow::default().permits(&place), "nothing is the default");
        }
        for wrong in ["", "db", "db:0", "*.:1", "a*:1", "db:**", "*.a.*:1"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
    }
}
