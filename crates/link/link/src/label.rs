//! The labels in the OPEN frames of streams, specified in `docs/reference/link-protocol.md`.
//!
//! A link stream consists of two one-way streams of the protocol, one per direction. The label of the first one-way
//! stream contains the target. The peer then opens the second one-way stream with a label that contains the number of
//! the first. If it refuses the target, it stops the first stream with a reason from [`refusal_reason`].

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use edgeward_dedup::wire::StreamId;

/// The target of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The HTTP/1.1 origin that the gateway's configuration names.
    Origin,
    /// A TCP address, for any protocol.
    Tcp(HostPort),
}

/// A host and a port. The gateway resolves the host name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// A host name or an address, in lower case, without brackets.
    pub host: String,
    /// The TCP port, 1 to 65535.
    pub port: u16,
}

/// Returned if a text is not `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not HOST:PORT")]
pub struct ParseHostPortError(pub String);

impl FromStr for HostPort {
    type Err = ParseHostPortError;

    fn from_str(text: &str) -> Result<Self, ParseHostPortError> {
        let error = || ParseHostPortError(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        // Rust's integer parser accepts a sign.
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| *port > 0 && is_number);
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_valid_host = match bracketed {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(is_name_byte)
            }
        };
        match port {
            Some(port) if is_valid_host => Ok(Self {
                host: host.to_ascii_lowercase(),
                port,
            }),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Origin => f.write_str("origin"),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// The label of a one-way stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// Opens a link stream to a target.
    Open(Target),
    /// Opens the opposite direction of a link stream. The number is that of the one-way stream that the peer opened.
    Answer(StreamId),
}

impl Label {
    /// Returns the bytes of the label in an OPEN frame.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Open(Target::Tcp(address)) => [&[TCP], address.to_string().as_bytes()].concat(),
            Self::Open(Target::Origin) => vec![ORIGIN],
            Self::Answer(stream) => [&[ANSWER][..], &stream.0.to_le_bytes()].concat(),
        }
    }

    /// Decodes the label of an OPEN frame. Returns `None` if the label is not valid.
    pub fn decode(label: &[u8]) -> Option<Self> {
        let (kind, rest) = label.split_first()?;
        match *kind {
            TCP => {
                let address = std::str::from_utf8(rest).ok()?.parse().ok()?;
                Some(Self::Open(Target::Tcp(address)))
            }
            ORIGIN if rest.is_empty() => Some(Self::Open(Target::Origin)),
            ANSWER => {
                let stream = u64::from_le_bytes(rest.try_into().ok()?);
                Some(Self::Answer(StreamId(stream)))
            }
            _ => None,
        }
    }
}

// The first byte of a label is one of these kinds.
const TCP: u8 = 1;
const ANSWER: u8 = 2;
const ORIGIN: u8 = 3;

/// The longest host name. RFC 1035, section 2.3.4, limits a name to 255 bytes in DNS messages, which correspond to
/// 253 bytes of text.
const HOST_BYTES_MAX: usize = 253;

/// Reasons in RESET and STOP frames why a stream was refused or aborted, in addition to those of
/// [`edgeward_dedup::reason`].
pub mod refusal_reason {
    /// The gateway does not permit the target.
    pub const NOT_ALLOWED: u32 = 16;
    /// The target does not accept connections.
    pub const UNREACHABLE: u32 = 17;
    /// The name has no address.
    pub const NO_SUCH_HOST: u32 = 18;
    /// The label is not valid.
    pub const NOT_UNDERSTOOD: u32 = 19;
    /// The connection to the target timed out.
    pub const TIMEOUT: u32 = 20;
    /// The link was down for too long.
    pub const LINK_DOWN: u32 = 21;

    /// Returns a message for the reason.
    pub fn describe(reason: u32) -> &'static str {
        match reason {
            edgeward_dedup::reason::CANCELLED => "the peer gave up the stream",
            edgeward_dedup::reason::DIGEST => "the body is corrupt: its digest is wrong",
            edgeward_dedup::reason::TOO_MANY => "the peer has reached its limit of streams",
            edgeward_dedup::reason::LENGTH => "the body is longer or shorter than announced",
            edgeward_dedup::reason::RESTARTED => "the peer restarted",
            edgeward_dedup::reason::LOST => "both peers have lost a chunk of the body",
            NOT_ALLOWED => "the gateway does not allow this target",
            UNREACHABLE => "the gateway cannot connect to the target",
            NO_SUCH_HOST => "the gateway cannot resolve the target's name",
            NOT_UNDERSTOOD => "the peer did not understand the request",
            TIMEOUT => "the gateway could not connect to the target in time",
            LINK_DOWN => "the link was down for too long",
            _ => "the peer refused for an unknown reason",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_names_or_addresses_with_a_port() {
        for (text, shown) in [
            ("db:3306", "db:3306"),
            ("DB.Example.com:1", "db.example.com:1"),
            ("127.0.0.1:65535", "127.0.0.1:65535"),
            ("[::1]:443", "[::1]:443"),
        ] {
            let address: HostPort = text.parse().expect("the text is a host and a port");
            assert_eq!(address.to_string(), shown);
        }
        let long = format!("{}:1", "a".repeat(254));
        for text in [
            "", "db", ":1", "db:", "db:0", "db:+80", "db:65536", "::1:443", "[db]:1", "d b:1",
            "d\n:1", &long,
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn labels_are_decoded_as_encoded_and_others_are_refused() {
        let tcp = Target::Tcp("[::1]:443".parse().expect("the text is a host and a port"));
        for label in [
            Label::Open(tcp),
            Label::Open(Target::Origin),
            Label::Answer(StreamId(0x0102_0304)),
        ] {
            assert_eq!(Label::decode(&label.encode()), Some(label));
        }
        for wrong in [
            &b""[..],
            b"\x01",
            b"\x01db",
            b"\x01\xff:1",
            b"\x02\0\0\0\0\0\0\0",
            b"\x03x",
            b"\x04",
        ] {
            assert_eq!(Label::decode(wrong), None, "{wrong:?}");
        }
    }
}
