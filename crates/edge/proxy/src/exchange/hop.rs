//! The fields of requests and responses between the nodes of a fleet.
//!
//! A request has [`HOP`]: the node that sends it, its group, scheme and address of the client, and the digest of the
//! rules of the site, signed with the key of the fleet. The signature covers method, host and target, so a hop cannot
//! be used for another request. A response has [`OBJECT`]: the properties of its object that no other field states.
//! Neither field leaves the fleet.

use std::net::IpAddr;

use aws_lc_rs::hmac;
use edgeward_balance::NodeGroup;
use edgeward_purge::Stamp;
use edgeward_types::to_hex;
use http::{HeaderName, HeaderValue};

use crate::config::FleetKey;

/// The field of a request between nodes.
pub(crate) const HOP: HeaderName = HeaderName::from_static("edgeward-hop");

/// The field of a response between nodes.
pub(crate) const OBJECT: HeaderName = HeaderName::from_static("edgeward-object");

/// The method by which a node invalidates an object at another.
pub(crate) const INVALIDATE: &str = "PURGE";

/// The statement of a node about a request that it sends to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The name of the sender, a token.
    pub(crate) node: Box<str>,
    /// The group of the sender.
    pub(crate) group: NodeGroup,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// The address of the client.
    pub(crate) client: IpAddr,
    /// The digest of the rules of the site at the sender.
    pub(crate) digest: u64,
}

/// The parts of a request that the signature covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) target: &'a str,
}

impl Hop {
    /// Returns the signed value of [`HOP`].
    pub(crate) fn sign(&self, key: &FleetKey, request: Signed<'_>) -> HeaderValue {
        let text = self.text();
        let tag = hmac::sign(key.hmac(), &message(&text, request));
        let value = format!("{text} {}", to_hex(tag.as_ref()));
        HeaderValue::try_from(value).expect("names are tokens")
    }

    /// Returns the statement of a value, whose signature is not verified yet.
    pub(crate) fn read(value: &HeaderValue) -> Option<Self> {
        let mut words = value.to_str().ok()?.split(' ');
        let mut next = || words.next();
        (next()? == VERSION).then_some(())?;
        Some(Self {
            node: next()?.into(),
            group: match next()? {
                "edge" => NodeGroup::Edge,
                "shield" => NodeGroup::Shield,
                _ => return None,
            },
            scheme: match next()? {
                "http" => "http",
                "https" => "https",
                _ => return None,
            },
            client: next()?.parse().ok()?,
            digest: u64::from_str_radix(next()?, 16).ok()?,
        })
    }

    /// Returns true if the signature of `value` is that of this statement about the request.
    pub(crate) fn is_signed(
        &self,
        value: &HeaderValue,
        key: &FleetKey,
        request: Signed<'_>,
    ) -> bool {
        let text = self.text();
        let tag = value.to_str().ok().and_then(|value| {
            let tag = value.strip_prefix(&*text)?.strip_prefix(' ')?;
            from_hex(tag)
        });
        let is_valid = |tag: Vec<u8>| {
            let message = message(&text, request);
            hmac::verify(key.hmac(), &message, &tag).is_ok()
        };
        tag.is_some_and(is_valid)
    }

    fn text(&self) -> String {
        let Self {
            node,
            group,
            scheme,
            client,
            digest,
        } = self;
        let group = group_word(*group);
        format!("{VERSION} {node} {group} {scheme} {client} {digest:016x}")
    }
}

/// Returns the word for a group in fields, settings and reports.
pub(crate) const fn group_word(group: NodeGroup) -> &'static str {
    match group {
        NodeGroup::Edge => "edge",
        NodeGroup::Shield => "shield",
    }
}

/// The statement of a node about the object of a response that it sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectNote {
    /// True if the cache of the sender had the object.
    pub(crate) is_hit: bool,
    /// True if the object was stale when it was sent.
    pub(crate) is_stale: bool,
    /// The newest purge when the object was fetched from the origin. `None` if the response is no object of the sender,
    /// or if the purge is unknown. Only a hit is always an object.
    pub(crate) stamp: Option<Stamp>,
    /// The digest of the rules of the site at the sender.
    pub(crate) digest: u64,
    /// The requests for the object at the sender before this one, per million seconds. 0 if the sender does not measure
    /// them.
    pub(crate) rate: u64,
}

impl ObjectNote {
    /// Returns the value of [`OBJECT`].
    pub(crate) fn value(self) -> HeaderValue {
        let outcome = if self.is_hit { "hit" } else { "miss" };
        let age = if self.is_stale { "stale" } else { "fresh" };
        let (stamp, digest) = (self.stamp.unwrap_or(Stamp::NONE).0, self.digest);
        let rate = self.rate;
        let text = format!("{VERSION} {outcome} {age} {stamp:016x} {digest:016x} {rate}");
        HeaderValue::try_from(text).expect("words and digits are a value")
    }

    /// Returns the statement of a value. Later versions may add words at the end.
    pub(crate) fn read(value: &HeaderValue) -> Option<Self> {
        let mut words = value.to_str().ok()?.split(' ');
        let mut next = || words.next();
        (next()? == VERSION).then_some(())?;
        Some(Self {
            is_hit: match next()? {
                "hit" => true,
                "miss" => false,
                _ => return None,
            },
            is_stale: match next()? {
                "stale" => true,
                "fresh" => false,
                _ => return None,
            },
            stamp: Some(Stamp(u64::from_str_radix(next()?, 16).ok()?))
                .filter(|stamp| *stamp != Stamp::NONE),
            digest: u64::from_str_radix(next()?, 16).ok()?,
            // An earlier version states none.
            rate: next().map_or(Some(0), |rate| rate.parse().ok())?,
        })
    }
}

/// Returns the seed of the placement of keys, which is the same at all nodes with this key.
pub(crate) fn placement_seed(key: &FleetKey) -> u64 {
    let tag = hmac::sign(key.hmac(), b"edgeward placement");
    let first = tag.as_ref().first_chunk().expect("a tag has 32 bytes");
    u64::from_le_bytes(*first)
}

/// Returns the bytes that the signature covers. No part contains a line break.
fn message(text: &str, request: Signed<'_>) -> Vec<u8> {
    let Signed {
        method,
        host,
        target,
    } = request;
    format!("{HOP}\n{text}\n{method}\n{host}\n{target}").into_bytes()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    bytes.collect()
}

/// The version of both fields. A node does not use fields of another version.
const VERSION: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> FleetKey {
        FleetKey::new(&[byte; 32]).expect("the key is long enough")
    }

    fn hop() -> Hop {
        Hop {
            node: "edge-1".into(),
            group: NodeGroup::Edge,
            scheme: "https",
            client: "2001:db8::1".parse().expect("an address"),
            digest: 0x0123_4567_89ab_cdef,
        }
    }

    const REQUEST: Signed<'_> = Signed {
        method: "GET",
        host: "a.example",
        target: "/a?b",
    };

    #[test]
    fn a_hop_is_read_as_it_was_signed() {
        let value = hop().sign(&key(1), REQUEST);
        let read = Hop::read(&value).expect("a hop");
        assert_eq!(read, hop());
        assert!(read.is_signed(&value, &key(1), REQUEST));
    }

    /// Method: each part of the request, the key, and each byte of the value are changed alone.
    #[test]
    fn a_signature_holds_for_one_key_and_one_request() {
        let value = hop().sign(&key(1), REQUEST);
        let is_accepted = |value: &HeaderValue, key: &FleetKey, request| {
            Hop::read(value).is_some_and(|hop| hop.is_signed(value, key, request))
        };
        assert!(!is_accepted(&value, &key(2), REQUEST));
        for request in [
            Signed {
                method: "HEAD",
                ..REQUEST
            },
            Signed {
                host: "b.example",
                ..REQUEST
            },
            Signed {
                target: "/a?c",
                ..REQUEST
            },
        ] {
            assert!(!is_accepted(&value, &key(1), request), "{request:?}");
        }
        for at in 0..value.len() {
            let mut bytes = value.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let changed = HeaderValue::from_bytes(&bytes).expect("a value");
            assert!(!is_accepted(&changed, &key(1), REQUEST), "byte {at}");
            let cut = HeaderValue::from_bytes(&value.as_bytes()[..at]).expect("a value");
            assert!(!is_accepted(&cut, &key(1), REQUEST), "{at} bytes");
        }
    }

    #[test]
    fn the_note_of_an_object_is_read_as_it_was_written() {
        for bits in 0..4 {
            let note = ObjectNote {
                is_hit: bits & 1 == 1,
                is_stale: bits & 2 == 2,
                stamp: (bits & 1 == 1).then_some(Stamp(u64::MAX - 1)),
                digest: 7,
                rate: u64::MAX * (bits & 1),
            };
            assert_eq!(ObjectNote::read(&note.value()), Some(note));
        }
        let read = |text: &str| ObjectNote::read(&HeaderValue::try_from(text).expect("a value"));
        let earlier = read("1 hit fresh 0 7").expect("the note of an earlier version");
        assert_eq!((earlier.rate, earlier.digest), (0, 7));
        assert!(read("1 hit fresh 0 7 250 later").is_some_and(|note| note.rate == 250));
        for text in [
            "",
            "2 hit fresh 0 0",
            "1 hit",
            "1 hit new 0 0",
            "1 hit fresh x 0",
            "1 hit fresh 0 0 -1",
        ] {
            let value = HeaderValue::try_from(text).expect("a value");
            assert_eq!(ObjectNote::read(&value), None, "{text}");
        }
    }
}
