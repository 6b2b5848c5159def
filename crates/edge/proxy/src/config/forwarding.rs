//! The settings of the header fields that tell the origin about the client, and the addresses of trusted proxies.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use edgeward_semantics::upgrade::Upgrades;
use edgeward_sites::{Network, ParseNetworkError, PathForms};
use http::HeaderName;

/// The header fields that tell the origin about the client, and the fields that are removed from requests.
#[derive(Clone, Debug)]
pub struct ForwardingConfig {
    /// Sets `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`. Default true: web frameworks read them.
    pub x_forwarded: bool,
    /// Sets `Forwarded` (RFC 7239). Default false: few origins read it, and it may contradict `X-Forwarded-*`.
    pub forwarded: bool,
    /// Clients whose `Forwarded`, `X-Forwarded-*`, `X-Real-IP` and similar fields are forwarded; the edge appends the
    /// client's address to lists in these fields. The fields of all other clients are removed. Default none: the cache
    /// key does not contain the fields, so a client could use them to store a wrong response for all clients.
    pub trusted_proxies: Networks,
    /// The field in which trusted proxies state their clients. Default `X-Forwarded-For`, which most proxies append to.
    /// A proxy that does not append to the field would forward a value that its client has invented.
    pub client_field: ClientField,
    /// Fields that are removed from requests that the cache may answer. Default: fields by which frameworks
    /// let a request name another path, host or method than its request line. The cache key does not contain them.
    pub removed_fields: FieldNames,
    /// Forms of paths that get 400. Default none: origins use some of them, and rules compare all
    /// [readings](edgeward_sites::PathReadings) of a path.
    pub refused_path_forms: PathForms,
    /// The authority of an HTTP/1.0 request without `Host`. Default none: the authority of the origin's URL.
    pub default_authority: Option<String>,
    /// Forwards TRACE. Default false: the response shows all fields that the edge added (RFC 9110 §9.3.8).
    pub trace: bool,
    /// The protocols for which requests with `Upgrade`, and extended CONNECT over HTTP/2, are forwarded. Default
    /// `websocket`: sites with WebSockets expect them to pass, and the edge verifies that the origin has understood the
    /// handshake. For other protocols the edge could not verify this.
    pub upgrades: Upgrades,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        Self {
            x_forwarded: true,
            forwarded: false,
            trusted_proxies: Networks::default(),
            client_field: ClientField::XForwardedFor,
            removed_fields: FieldNames(
                OVERRIDE_FIELDS
                    .iter()
                    .map(|name| HeaderName::from_static(name))
                    .collect(),
            ),
            refused_path_forms: PathForms::default(),
            default_authority: None,
            trace: false,
            upgrades: Upgrades::websocket(),
        }
    }
}

/// The field from which the address of a client behind trusted proxies is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientField {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// The proxy itself counts as the client.
    None,
}

/// Fields that override the path, host or method of the request line.
const OVERRIDE_FIELDS: [&str; 8] = [
    // IIS URL Rewrite and ASP.NET, Symfony and Zend.
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
    // Rails, Express, Spring, ASP.NET.
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    // Apache and application servers behind a proxy, which prefer these fields to `Host`.
    "x-host",
    "x-http-host-override",
];

/// Field names, parsed from a list that is separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldNames(pub Vec<HeaderName>);

/// Networks in CIDR notation, parsed from a list that is separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(pub Vec<Network>);

/// The reason why a text is not a list of field names or networks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseListError(String);

impl Networks {
    /// Returns true if one of the networks contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the first network of `self` that has an address in common with one of `other`.
    pub fn first_overlap(&self, other: &Self) -> Option<&Network> {
        let mut own = self.0.iter();
        own.find(|network| other.0.iter().any(|other| network.overlaps(other)))
    }
}

impl FromStr for Networks {
    type Err = ParseListError;

    fn from_str(text: &str) -> Result<Self, ParseListError> {
        members(text)
            .map(|member| {
                let network: Result<_, ParseNetworkError> = member.parse();
                network.map_err(|error| ParseListError(error.to_string()))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl FromStr for FieldNames {
    type Err = ParseListError;

    fn from_str(text: &str) -> Result<Self, ParseListError> {
        let name = |member: &str| {
            HeaderName::try_from(member).map_err(|_| {
                let hint = "write names such as x-original-url with commas between";
                ParseListError(format!("`{member}` is not a field name; {hint}"))
            })
        };
        members(text).map(name).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_members(f, &self.0)
    }
}

impl fmt::Display for FieldNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_members(f, &self.0)
    }
}

fn members(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|member| !member.is_empty())
}

fn write_members<T: fmt::Display>(f: &mut fmt::Formatter<'_>, members: &[T]) -> fmt::Result {
    for (n, member) in members.iter().enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        write!(f, "{comma}{member}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_parse_back_from_their_text() {
        let text = "10.0.0.0/8, 2001:db8::/32, 192.0.2.7/32";
        assert_eq!(
            text.parse::<Networks>().expect("networks").to_string(),
            text
        );
        let names = ForwardingConfig::default().removed_fields;
        assert_eq!(names.to_string().parse(), Ok(names));
        assert_eq!("".parse(), Ok(Networks::default()));
        assert!("10.0.0.0/8, host".parse::<Networks>().is_err());
        assert!("a b".parse::<FieldNames>().is_err());
    }
}
