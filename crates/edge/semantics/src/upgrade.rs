//! `Upgrade` (RFC 9110 §7.8): the protocols to which a request may switch its connection, and the check of the origin's
//! answer.

use std::fmt;
use std::str::FromStr;

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};

use crate::list;

/// The protocols for which a request with `Upgrade` is forwarded. Parsed from `none`, `any`, or names with commas
/// between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrades {
    /// No protocol.
    None,
    /// Every protocol except h2c.
    Any,
    /// The protocols of this list, in lower case. A name without a version stands for all versions.
    Listed(Vec<Box<str>>),
}

/// The error of a text that is not a list of protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidUpgrades;

impl Upgrades {
    /// Returns the list that allows WebSocket alone.
    pub fn websocket() -> Self {
        Self::Listed(vec![WEBSOCKET.into()])
    }

    /// Returns true if the protocol, in lower case, is allowed.
    pub fn allows(&self, protocol: &str) -> bool {
        let name = protocol.split_once('/').map_or(protocol, |(name, _)| name);
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Listed(allowed) => allowed.iter().any(|a| **a == *protocol || **a == *name),
        }
    }

    /// Returns the allowed protocols among those that a request offers, as the value of `Upgrade` that is forwarded.
    /// `None` if none is allowed. The request is then handled as if it had no `Upgrade`, which §7.8 allows.
    ///
    /// An offer of h2c is always ignored: such clients also accept HTTP/1.1, and requests inside of an h2c connection
    /// would bypass all rules of the edge.
    pub fn allowed_of(&self, offered: &HeaderValue) -> Option<HeaderValue> {
        let is_allowed = |protocol: &String| protocol != H2C && self.allows(protocol);
        let allowed: Vec<String> = protocols(offered).filter(is_allowed).collect();
        let value = HeaderValue::try_from(allowed.join(", ")).ok()?;
        (!value.is_empty()).then_some(value)
    }
}

/// Returns the value of `Upgrade` of a 101 if the response switches to protocols that the request offered.
pub fn switched(offered: &HeaderValue, response: &HeaderMap) -> Option<HeaderValue> {
    if !list::has_token(response, &CONNECTION, "upgrade") {
        return None;
    }
    // §7.8: a 101 has exactly one `Upgrade`. Several protocols are layers of one connection.
    let mut lines = response.get_all(UPGRADE).into_iter();
    let (Some(chosen), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let mut chosen_protocols = protocols(chosen).peekable();
    chosen_protocols.peek()?;
    chosen_protocols
        .all(|chosen| protocols(offered).any(|offered| offered == chosen))
        .then(|| chosen.clone())
}

/// Yields the protocols of a value of `Upgrade` in lower case. A member that is not a protocol is skipped.
fn protocols(value: &HeaderValue) -> impl Iterator<Item = String> {
    list::Members::new(value.as_bytes()).filter_map(|member| {
        let protocol = std::str::from_utf8(member).ok()?;
        is_protocol(protocol).then(|| protocol.to_ascii_lowercase())
    })
}

/// Returns true for `name` and `name/version` (§7.8).
fn is_protocol(text: &str) -> bool {
    let (name, version) = match text.split_once('/') {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    };
    list::is_token(name.as_bytes())
        && version.is_none_or(|version| list::is_token(version.as_bytes()))
}

impl FromStr for Upgrades {
    type Err = InvalidUpgrades;

    fn from_str(text: &str) -> Result<Self, InvalidUpgrades> {
        match text {
            "none" => return Ok(Self::None),
            "any" => return Ok(Self::Any),
            _ => {}
        }
        let name = |member: &str| {
            let member = member.trim();
            let is_name = is_protocol(member) && !member.eq_ignore_ascii_case(H2C);
            is_name.then(|| member.to_ascii_lowercase().into())
        };
        let names: Option<Vec<Box<str>>> = text.split(',').map(name).collect();
        names.map(Self::Listed).ok_or(InvalidUpgrades)
    }
}

impl fmt::Display for Upgrades {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Any => f.write_str("any"),
            Self::Listed(names) => f.write_str(&names.join(", ")),
        }
    }
}

impl fmt::Display for InvalidUpgrades {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write none, any, or protocols such as websocket with commas between; h2c is not allowed")
    }
}

impl std::error::Error for InvalidUpgrades {}

/// The name of the WebSocket protocol (RFC 6455 §4.1).
const WEBSOCKET: &str = "websocket";

/// HTTP/2 without TLS by an upgrade, which RFC 9113 has removed.
const H2C: &str = "h2c";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).expect("the text is a field value")
    }

    #[test]
    fn a_request_is_forwarded_with_its_allowed_protocols() {
        let forward = |text| Some(value(text));
        for (allowed, offered, expected) in [
            ("websocket", "websocket", forward("websocket")),
            ("websocket", "WebSocket", forward("websocket")),
            ("websocket", "foo, websocket , h2c", forward("websocket")),
            ("websocket", "foo", None),
            ("websocket", "h2c", None),
            ("websocket", "H2C, ,", None),
            ("websocket", "", None),
            ("websocket", "a b", None),
            ("websocket", "h2c, foo/1", None),
            ("any", "h2c, foo/1, bar", forward("foo/1, bar")),
            ("any", "h2c", None),
            ("none", "websocket", None),
            ("none", "h2c", None),
            ("tcp, SPDY/3.1", "spdy/3.1", forward("spdy/3.1")),
            ("tcp, SPDY/3.1", "spdy/3", None),
            ("foo", "foo/1, foo/2", forward("foo/1, foo/2")),
        ] {
            let rules: Upgrades = allowed.parse().expect("a list of protocols");
            assert_eq!(
                rules.allowed_of(&value(offered)),
                expected,
                "{allowed}: {offered}"
            );
        }
    }

    #[test]
    fn a_101_switches_only_to_protocols_that_were_offered() {
        let ask = value("websocket, foo/1");
        for (response, is_switched) in [
            ("connection: Upgrade\nupgrade: websocket", true),
            ("connection: upgrade\nupgrade: WebSocket", true),
            ("connection: keep-alive, upgrade\nupgrade: foo/1", true),
            ("connection: upgrade\nupgrade: foo/1, websocket", true),
            ("connection: upgrade\nupgrade: foo/2", false),
            ("connection: upgrade\nupgrade: websocket, h2c", false),
            (
                "connection: upgrade\nupgrade: websocket\nupgrade: websocket",
                false,
            ),
            ("connection: upgrade\nupgrade: ,", false),
            ("connection: upgrade", false),
            ("upgrade: websocket", false),
        ] {
            let switched = switched(&ask, &headers(response));
            assert_eq!(switched.is_some(), is_switched, "{response}");
        }
    }

    #[test]
    fn a_list_of_protocols_parses_back_from_its_text() {
        for text in ["none", "any", "websocket", "tcp, spdy/3.1"] {
            let rules: Upgrades = text.parse().expect("a list of protocols");
            assert_eq!(rules.to_string(), text);
        }
        for text in ["", "h2c", "websocket,", "a b", "a/b/c"] {
            assert_eq!(text.parse::<Upgrades>(), Err(InvalidUpgrades), "{text}");
        }
    }
}
