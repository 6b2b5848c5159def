//! Patterns of hosts that have their own rule of admission to disk.

use std::fmt;
use std::str::FromStr;

use edgeward_policy::disk_admission::DiskAdmissionSpec;

/// A host, `www.example.com`, or all hosts below a domain, `*.example.com`. The port of a request is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// The whole host, or the domain with a leading dot.
    pub(crate) suffix: Box<str>,
}

/// The text is not a [`HostPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a host name")]
pub struct ParseHostPatternError;

/// The rule of admission to disk for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAdmission {
    /// The hosts to which the rule applies.
    pub host: HostPattern,
    /// The rule that decides which responses are written.
    pub admission: DiskAdmissionSpec,
}

impl FromStr for HostPattern {
    type Err = ParseHostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, suffix) = match text.strip_prefix("*.") {
            Some(domain) => (domain, &text[1..]),
            None => (text, text),
        };
        let is_bracketed = name.starts_with('[') && name.ends_with(']') && name == suffix;
        let is_host_byte = |b: u8| match b {
            b':' | b'[' | b']' => is_bracketed,
            _ => b.is_ascii_alphanumeric() || b"-._".contains(&b),
        };
        let is_name = !name.is_empty() && !name.starts_with('.') && name.len() <= HOST_BYTES_MAX;
        if !is_name || !name.bytes().all(is_host_byte) {
            return Err(ParseHostPatternError);
        }
        Ok(Self {
            suffix: suffix.to_ascii_lowercase().into(),
        })
    }
}

/// The length limit of domain names (RFC 1035 §2.3.4). An IPv6 address is shorter.
const HOST_BYTES_MAX: usize = 255;

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wildcard = if self.suffix.starts_with('.') {
            "*"
        } else {
            ""
        };
        write!(f, "{wildcard}{}", self.suffix)
    }
}
