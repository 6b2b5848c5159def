//! Names for which certificates are ordered: DNS names, wildcards and IP addresses.

use core::net::IpAddr;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name for which a certificate is ordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Name {
    /// A DNS name in lower case, without a final dot.
    Dns(Box<str>),
    /// All names with exactly one label more than this DNS name.
    Wildcard(Box<str>),
    /// An IP address (RFC 8738).
    Ip(IpAddr),
}

/// The reason why a text is no [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text has a character that a host name must not have.
    #[error(
        "has a character other than letters, digits, `-` and `.`; write international names in Punycode"
    )]
    Character,
    /// A label is empty, longer than 63 bytes, or begins or ends with `-`.
    #[error("has a label that is empty, longer than 63 bytes, or begins or ends with `-`")]
    Label,
    /// The name is longer than 253 bytes.
    #[error("is longer than 253 bytes")]
    Length,
    /// The name has one label only. No authority issues certificates for it.
    #[error("has only one label")]
    OneLabel,
}

impl Name {
    /// Returns the value of the identifier in an order: a wildcard without its first label.
    pub fn identifier(&self) -> String {
        match self {
            Self::Dns(name) | Self::Wildcard(name) => name.to_string(),
            Self::Ip(address) => address.to_string(),
        }
    }

    /// Returns true if only DNS-01 can validate the name (RFC 8555 §7.1.3).
    pub const fn needs_dns(&self) -> bool {
        matches!(self, Self::Wildcard(_))
    }

    /// Returns true for an IP address.
    pub const fn is_address(&self) -> bool {
        matches!(self, Self::Ip(_))
    }

    /// Returns true for a DNS name whose last label is not a number, so that no part of an address is taken for a name.
    pub(crate) fn is_public_host(&self) -> bool {
        let Self::Dns(name) = self else {
            return false;
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        !last.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Returns the name in SNI when TLS-ALPN-01 validates this name: of an address, its name for reverse lookups
    /// (RFC 8738 §6).
    pub fn validation_name(&self) -> String {
        match self {
            Self::Dns(name) | Self::Wildcard(name) => name.to_string(),
            Self::Ip(IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Self::Ip(IpAddr::V6(address)) => {
                let mut name = String::with_capacity(72);
                for byte in address.octets().iter().rev() {
                    _ = write!(name, "{:x}.{:x}.", byte & 15, byte >> 4);
                }
                name + "ip6.arpa"
            }
        }
    }

    /// Returns a name for files of this name: no separator of paths, no wildcard character, no colon.
    pub fn file_stem(&self) -> String {
        match self {
            Self::Dns(name) => name.to_string(),
            Self::Wildcard(name) => format!("_.{name}"),
            Self::Ip(address) => address.to_string().replace(':', "-"),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Wildcard(name) => write!(f, "*.{name}"),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse() {
            return Ok(Self::Ip(address));
        }
        match text.strip_prefix("*.") {
            Some(rest) => host(rest).map(Self::Wildcard),
            None => host(text).map(Self::Dns),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.to_string()
    }
}

/// Checks a host name (RFC 1123 §2.1) and returns it in lower case.
fn host(text: &str) -> Result<Box<str>, NameError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if !text.bytes().all(is_allowed) {
        return Err(NameError::Character);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::Length);
    }
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !text.split('.').all(is_label) {
        return Err(NameError::Label);
    }
    if !text.contains('.') {
        return Err(NameError::OneLabel);
    }
    Ok(text.to_ascii_lowercase().into())
}

/// The longest name in DNS without its final dot (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;

const LABEL_BYTES_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_as_it_is_read() {
        for text in ["a.example", "*.a.example", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(
                text.parse::<Name>().map(|name| name.to_string()),
                Ok(text.into())
            );
        }
        assert_eq!("A.Example".parse(), Ok(Name::Dns("a.example".into())));
        assert_eq!("[::1]".parse::<Name>(), "::1".parse());
    }

    #[test]
    fn a_text_that_is_no_host_name_is_refused() {
        let label = "a".repeat(LABEL_BYTES_MAX + 1);
        let long = ["a".repeat(LABEL_BYTES_MAX).as_str(); 4].join(".");
        for (text, error) in [
            ("a_b.example", NameError::Character),
            ("a.*.example", NameError::Character),
            ("ä.example", NameError::Character),
            ("a/../b.example", NameError::Character),
            ("a..example", NameError::Label),
            ("a.example.", NameError::Label),
            ("-a.example", NameError::Label),
            ("a-.example", NameError::Label),
            (&*format!("{label}.example"), NameError::Label),
            ("", NameError::Label),
            ("*.", NameError::Label),
            (&*long, NameError::Length),
            ("localhost", NameError::OneLabel),
            ("*.example", NameError::OneLabel),
        ] {
            assert_eq!(text.parse::<Name>(), Err(error), "{text}");
        }
    }

    /// The second example is the one of RFC 8738 §6.
    #[test]
    fn an_address_is_validated_by_its_name_for_reverse_lookups() {
        let of = |text: &str| text.parse::<Name>().map(|name| name.validation_name());
        assert_eq!(of("192.0.2.7"), Ok("7.2.0.192.in-addr.arpa".into()));
        let expected = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(of("2001:db8::1"), Ok(expected.into()));
    }

    #[test]
    fn the_files_of_two_names_differ() {
        let names = ["a.example", "*.a.example", "192.0.2.1", "2001:db8::1", "::"];
        let stems: std::collections::BTreeSet<_> = names
            .iter()
            .map(|text| text.parse::<Name>().expect("the name is valid").file_stem())
            .collect();
        assert_eq!(stems.len(), names.len());
        assert!(
            stems
                .iter()
                .all(|stem| !stem.contains(['/', '*', ':']) && !stem.starts_with('.'))
        );
    }
}
