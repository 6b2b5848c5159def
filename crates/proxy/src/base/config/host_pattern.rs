//! Hosts with a rule of admission to disk of their own.

use std::fmt;
use std::str::FromStr;

use edgeward_policy::disk_admission::DiskAdmissionSpec;

/// A host, `www.example.com`, or all hosts below a domain, `*.example.com`. Ports are not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// As a host ends: of a domain with the dot before it.
    pub(crate) suffix: Box<str>,
}

/// Why a text is no [`HostPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no host")]
pub struct ParseHostPatternError;

/// A host with a rule of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAdmission {
    /// Which.
    pub host: HostPattern,
    /// What of it is written.
    pub admission: DiskAdmissionSpec,
}

impl FromStr for HostPattern {
    type Err = ParseHostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, suffix) = match text.strip_prefix("*.") {
            Some(domain) => (domain, &text[1..]),
            None => (text, text),
        };
        let bracketed = name.starts_with('[') && name.ends_with(']') && name == suffix;
        let sound = |b: u8| match b {
            b':' | b'[' | b']' => bracketed,
            _ => b.is_ascii_alphanumeric() || b"-._".contains(&b),
        };
        let named = !name.is_empty() && !name.starts_with('.') && name.len() <= HOST_BYTES_MAX;
        if !named || !name.bytes().all(sound) {
            return Err(ParseHostPatternError);
        }
        Ok(Self {
            suffix: suffix.to_ascii_lowercase().into(),
        })
    }
}

/// RFC 1035 §2.3.4, and an IPv6 address is shorter.
const HOST_BYTES_MAX: usize = 255;

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = if self.suffix.starts_with('.') {
            "*"
        } else {
            ""
        };
        write!(f, "{any}{}", self.suffix)
    }
}
