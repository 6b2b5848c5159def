//! What streams are called: the words with which the two drivers begin a body, byte by byte in
//! `docs/reference/link-protocol.md`.
//!
//! A conversation has two streams, one each way. Whoever begins it says what with; the other end answers with a
//! stream of its own that names the first, or stops the first with a [`refusal`].

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use edgeward_dedup::wire::StreamId;

/// What a conversation is to be with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The origin that the gateway was given: HTTP/1.1.
    Origin,
    /// Whoever listens there: whatever they speak.
    Tcp(HostPort),
}

/// A place on the gateway's network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// A name or an address, in lower case, without brackets.
    pub host: String,
    /// Not zero.
    pub port: u16,
}

/// Why text is no place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not HOST:PORT")]
pub struct NotHostPort(pub String);

impl FromStr for HostPort {
    type Err = NotHostPort;

    fn from_str(text: &str) -> Result<Self, NotHostPort> {
        let wrong = || NotHostPort(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        // Rust takes a sign for part of a number.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| *port > 0 && digits);
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let fits = match bracketed {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(named),
        };
        match port {
            Some(port) if fits => Ok(Self {
                host: host.to_ascii_lowercase(),
                port,
            }),
            _ => Err(wrong()),
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
            Self::Tcp(place) => place.fmt(f),
        }
    }
}

/// How a stream is introduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// A conversation begins.
    Begin(Target),
    /// The other half of the conversation that the peer began with this stream.
    Answer(StreamId),
}

impl Label {
    /// The bytes of an OPEN's label.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Begin(Target::Tcp(place)) => [&[TCP], place.to_string().as_bytes()].concat(),
            Self::Begin(Target::Origin) => vec![ORIGIN],
            Self::Answer(stream) => [&[ANSWER][..], &stream.0.to_le_bytes()].concat(),
        }
    }

    /// `None` for what is not understood here.
    pub fn decode(label: &[u8]) -> Option<Self> {
        let (kind, rest) = label.split_first()?;
        match *kind {
            TCP => {
                let place = std::str::from_utf8(rest).ok()?.parse().ok()?;
                Some(Self::Begin(Target::Tcp(place)))
            }
            ORIGIN if rest.is_empty() => Some(Self::Begin(Target::Origin)),
            ANSWER => {
                let stream = u32::from_le_bytes(rest.try_into().ok()?);
                Some(Self::Answer(StreamId(stream)))
            }
            _ => None,
        }
    }
}

const TCP: u8 = 1;
const ANSWER: u8 = 2;
const ORIGIN: u8 = 3;

/// RFC 1035 §2.3.4 has 255 bytes for a name on the wire, which are 253 in text.
const HOST_BYTES_MAX: usize = 253;

/// Why a conversation was refused or broken off: numbers of RESET and STOP beside those of
/// [`edgeward_dedup::reason`].
pub mod refusal {
    /// The gateway does not connect there.
    pub const NOT_ALLOWED: u32 = 16;
    /// Nobody takes connections there.
    pub const UNREACHABLE: u32 = 17;
    /// The name has no address.
    pub const NO_SUCH_HOST: u32 = 18;
    /// The label means nothing here.
    pub const NOT_UNDERSTOOD: u32 = 19;
    /// It took too long.
    pub const TIMEOUT: u32 = 20;
    /// The link was down for too long.
    pub const LINK_DOWN: u32 = 21;

    /// In words.
    pub fn describe(reason: u32) -> &'static str {
        match reason {
            edgeward_dedup::reason::GIVEN_UP => "the other end gave it up",
            edgeward_dedup::reason::DIGEST => "the body is not as it was sent",
            edgeward_dedup::reason::TOO_MANY => "the other end takes no more streams",
            edgeward_dedup::reason::LENGTH => "the body is longer than was said",
            edgeward_dedup::reason::RESTARTED => "the other end restarted",
            edgeward_dedup::reason::LOST => "neither end has what was sent before any more",
            NOT_ALLOWED => "the gateway does not allow this target",
            UNREACHABLE => "the gateway cannot connect to the target",
            NO_SUCH_HOST => "the target's name has no address at the gateway",
            NOT_UNDERSTOOD => "the other end did not understand what was asked",
            TIMEOUT => "the gateway could not connect to the target in time",
            LINK_DOWN => "the link was down for too long",
            _ => "the other end refused for a reason unknown here",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_names_or_addresses_with_a_port() {
        for (text, shown) in [
            ("db:3306", "db:3306"),
            ("DB.Example.com:1", "db.example.com:1"),
            ("127.0.0.1:65535", "127.0.0.1:65535"),
            ("[::1]:443", "[::1]:443"),
        ] {
            let place: HostPort = text.parse().expect("a place");
            assert_eq!(place.to_string(), shown);
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
    fn labels_come_back_and_others_are_refused() {
        let tcp = Target::Tcp("[::1]:443".parse().expect("a place"));
        for label in [
            Label::Begin(tcp),
            Label::Begin(Target::Origin),
            Label::Answer(StreamId(0x0102_0304)),
        ] {
            assert_eq!(Label::decode(&label.encode()), Some(label));
        }
        for wrong in [
            &b""[..],
            b"\x01",
            b"\x01db",
            b"\x01\xff:1",
            b"\x02\0\0\0",
            b"\x03x",
            b"\x04",
        ] {
            assert_eq!(Label::decode(wrong), None, "{wrong:?}");
        }
    }
}
