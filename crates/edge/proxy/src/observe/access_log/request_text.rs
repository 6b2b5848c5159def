//! The part of a line of the access log that is known when the request begins, in one allocation.

use std::net::IpAddr;

use edgeward_types::Timestamp;
use http::Version;

use crate::observe::causes::KeyExchange;

/// The facts about a request and its client that the access log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestFacts<'a> {
    /// The time at which the head was complete.
    pub(crate) time: Timestamp,
    pub(crate) peer: IpAddr,
    pub(crate) is_tls: bool,
    /// `None` if the edge does not speak TLS on the connection.
    pub(crate) key_exchange: Option<KeyExchange>,
    /// `None` if the request's head could not be parsed.
    pub(crate) method: Option<&'a [u8]>,
    pub(crate) host: &'a [u8],
    /// Path and query.
    pub(crate) target: &'a [u8],
    pub(crate) version: Version,
}

/// [`RequestFacts`], and the values of the request fields that the format of the log needs.
///
/// Each request with a log line allocates this value, and the thread of the log frees it. One allocation instead of one
/// for each text keeps a logged hit cheap.
#[derive(Debug)]
pub(crate) struct RequestText(Box<[u8]>);

impl RequestText {
    /// Encodes the facts and the values. `scratch` is a buffer that is used again.
    pub(crate) fn new<'f>(
        scratch: &mut Vec<u8>,
        facts: &RequestFacts<'_>,
        fields: impl Iterator<Item = Option<&'f [u8]>>,
    ) -> Self {
        scratch.clear();
        scratch.extend_from_slice(&facts.time.as_millis().to_le_bytes());
        // An IPv4 client of an IPv6 listener has a mapped address (RFC 4291 §2.5.5.2).
        let (is_v4, address) = match facts.peer.to_canonical() {
            IpAddr::V4(address) => (true, address.to_ipv6_mapped()),
            IpAddr::V6(address) => (false, address),
        };
        scratch.extend_from_slice(&address.octets());
        scratch.push(u8::from(is_v4) | u8::from(facts.is_tls) << 1);
        scratch.push(position(&VERSIONS, &facts.version));
        scratch.push(position(&KEY_EXCHANGES, &facts.key_exchange));
        push_text(scratch, facts.method);
        push_text(scratch, Some(facts.host));
        push_text(scratch, Some(facts.target));
        for field in fields {
            push_text(scratch, field);
        }
        Self(scratch.as_slice().into())
    }

    /// Returns the facts, and the values of the fields in the order in which they were given.
    pub(crate) fn read(&self) -> (RequestFacts<'_>, Fields<'_>) {
        let mut rest = Fields(&self.0);
        let time = u64::from_le_bytes(rest.array());
        let address = std::net::Ipv6Addr::from(rest.array::<16>());
        let [flags, version, key_exchange] = rest.array();
        let peer = match address.to_ipv4_mapped() {
            Some(address) if flags & 1 != 0 => IpAddr::V4(address),
            _ => IpAddr::V6(address),
        };
        let mut text = || rest.next().flatten();
        let facts = RequestFacts {
            time: Timestamp::from_millis(time),
            peer,
            is_tls: flags & 2 != 0,
            key_exchange: KEY_EXCHANGES[usize::from(key_exchange)],
            method: text(),
            host: text().unwrap_or_default(),
            target: text().unwrap_or_default(),
            version: VERSIONS[usize::from(version)],
        };
        (facts, rest)
    }
}

/// The values of request fields that are not read yet. An item is `None` if the request has no such field.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_first_chunk().expect("`new` has written it");
        self.0 = rest;
        *front
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        if self.0.is_empty() {
            return None;
        }
        let length = u32::from_le_bytes(self.array());
        if length == ABSENT {
            return Some(None);
        }
        let (text, rest) = self.0.split_at(length as usize);
        self.0 = rest;
        Some(Some(text))
    }
}

fn push_text(buffer: &mut Vec<u8>, text: Option<&[u8]>) {
    // Texts are parts of a head, whose limit is far below 4 GiB.
    let length = text.map_or(ABSENT, |text| {
        u32::try_from(text.len()).expect("shorter than 4 GiB")
    });
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.extend_from_slice(text.unwrap_or_default());
}

/// Returns the position of a value, or 0.
fn position<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|other| other == value).unwrap_or(0) as u8
}

/// The length of an absent text.
const ABSENT: u32 = u32::MAX;

const VERSIONS: [Version; 5] = [
    Version::HTTP_11,
    Version::HTTP_2,
    Version::HTTP_10,
    Version::HTTP_09,
    Version::HTTP_3,
];

const KEY_EXCHANGES: [Option<KeyExchange>; 7] = [
    None,
    Some(KeyExchange::X25519MlKem768),
    Some(KeyExchange::X25519),
    Some(KeyExchange::Secp256r1),
    Some(KeyExchange::Secp384r1),
    Some(KeyExchange::Resumed),
    Some(KeyExchange::Other),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was_written(
            millis in any::<u64>(),
            peer in any::<IpAddr>(),
            is_tls in any::<bool>(),
            key_exchange in prop::sample::select(&KEY_EXCHANGES[..]),
            method in prop::option::of(text()),
            host in text(),
            target in text(),
            version in prop::sample::select(&VERSIONS[..]),
            fields in prop::collection::vec(prop::option::of(text()), 0..4),
        ) {
            let facts = RequestFacts {
                time: Timestamp::from_millis(millis),
                peer: peer.to_canonical(),
                is_tls,
                key_exchange,
                method: method.as_deref(),
                host: &host,
                target: &target,
                version,
            };
            let given = fields.iter().map(|field| field.as_deref());
            let text = RequestText::new(&mut vec![1, 2, 3], &facts, given.clone());
            let (read, read_fields) = text.read();
            prop_assert_eq!(read, facts);
            prop_assert!(read_fields.eq(given));
        }
    }
}
