//! Encodings: stored responses in a coding that the edge has applied.
//!
//! A response that the edge may encode has a generation, and each of its encodings is an object of its own: its key is
//! the key of the response, the generation and the name of the coding. A response that was replaced, purged or
//! invalidated takes its encodings along: a new response has another generation, so no lookup finds the older
//! encodings. A response that the origin validates keeps its body, its generation and its encodings.
//!
//! An encoding without a body states that the coding saves too little.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_semantics::content_coding::{Coding, encoded_tag, is_changed_by_coding};
use edgeward_sites::DiskPlacement;
use edgeward_store::hot::Offer;
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderName, HeaderValue};

use super::disk::fill::DiskFill;
use super::disk::head::write_block;
use super::key::CacheKey;
use super::stored::{DiskPlan, Stored, StoredBody, StoredResponse, charge_bytes};
use super::tiers::WorkerCache;
use crate::exchange::field_bytes::push_field;
use crate::exchange::request_settings::Placement;
use crate::rt::budget::{MemoryShare, charged};

/// Returns the response of `plain` in a coding, with the current fields and freshness of `plain`. `key` is the key of
/// the encoding, and `body` has the encoded bytes.
pub(crate) fn encoded(
    plain: &Arc<Stored>,
    key: &[u8],
    coding: Coding,
    body: StoredBody,
) -> Arc<Stored> {
    let response = plain.response();
    let response = StoredResponse {
        policy: response.policy,
        status: response.status,
        head: encoded_lines(&response.head, coding, body.len()),
        body,
        generation: None,
        disk_plan: match response.disk_plan {
            // A delta is useful for as long as clients have one older version.
            _ if coding.needs_dictionary() => DiskPlan::Never,
            plan @ (DiskPlan::Never | DiskPlan::Copy { .. }) => plan,
            DiskPlan::Decide | DiskPlan::Queued => DiskPlan::Decide,
        },
    };
    Stored::encoded(key, response, plain)
}

/// An encoding to store.
#[derive(Debug)]
pub(crate) struct NewEncoding<'a> {
    /// The response without a coding.
    pub(crate) plain: &'a Arc<Stored>,
    pub(crate) key: &'a CacheKey,
    pub(crate) coding: Coding,
    /// The version of the key before the body was encoded.
    pub(crate) version: Version,
    pub(crate) placement: Placement,
}

impl WorkerCache {
    /// Returns the encoding with this hash and key if memory has it, with the head and the freshness of `plain`.
    pub(crate) fn encoding_in_memory(
        &self,
        hash: KeyHash,
        key: &[u8],
        coding: Coding,
        plain: &Arc<Stored>,
    ) -> Option<Arc<Stored>> {
        let stored = self.hot.lookup(hash)?;
        if !stored.has_key(key) {
            self.counters.key_collisions.increment();
            return None;
        }
        if stored.is_encoded_from(plain) {
            return Some(stored);
        }
        let body = stored.response().body.clone();
        let renewed = encoded(plain, key, coding, body);
        if !plain.is_on_disk() {
            self.hot.swap(hash, &stored, Arc::clone(&renewed));
        }
        Some(renewed)
    }

    /// Stores an encoding in each tier that admits it. Returns the body; if memory does not store it, `share` is its
    /// charge.
    pub(crate) fn store_encoding(
        &self,
        encoding: &NewEncoding<'_>,
        body: Vec<u8>,
        share: MemoryShare,
    ) -> Bytes {
        let &NewEncoding {
            plain,
            key,
            coding,
            version,
            placement,
        } = encoding;
        let length = body.len() as u64;
        let lines = encoded_lines(&plain.response().head, coding, length);
        let charge = charge_bytes(key.bytes.len(), lines.len(), length);
        let offer = placement
            .memory
            .then(|| self.offer_to_ram(key.hash, charge, None, &self.counters));
        let (body, reservation) = match offer {
            Some(Offer::Admit(mut reservation)) => {
                let charge = reservation.take_charge();
                (charged(body.into_boxed_slice(), charge), Some(reservation))
            }
            Some(Offer::Refuse(_) | Offer::Pinned) | None => (share.charge(body), None),
        };
        let stored = encoded(plain, &key.bytes, coding, StoredBody::Memory(body.clone()));
        let disk_placement = match plain.is_copy() {
            true => DiskPlacement::Never,
            false => placement.disk,
        };
        let disk = self.begin_encoding_on_disk(&stored, key, &body, disk_placement);
        let ram = reservation.map(|reservation| (reservation, stored));
        self.insert(version, &key.bytes, ram, disk);
        body
    }

    /// Begins to write an encoding to disk if the disk admits it.
    fn begin_encoding_on_disk(
        &self,
        stored: &Stored,
        key: &CacheKey,
        body: &Bytes,
        placement: DiskPlacement,
    ) -> Option<DiskFill> {
        let tier = self.disk()?;
        let (hash, key) = (key.hash, &key.bytes);
        let length = Some(body.len() as u64);
        if !tier.admits(placement, hash, key, length, &self.counters) {
            return None;
        }
        let head = write_block(stored.response(), stored.stamp());
        let mut fill = DiskFill::begin(tier, &self.counters, hash, key, head, length).ok()?;
        for start in (0..body.len()).step_by(tier.piece_bytes()) {
            let end = body.len().min(start + tier.piece_bytes());
            fill.push(&body.slice(start..end));
        }
        Some(fill)
    }
}

/// Does the same for the lines of a head as
/// [`encode_head`](edgeward_semantics::content_coding::encode_head) for a map.
fn encoded_lines(lines: &[u8], coding: Coding, length: u64) -> Bytes {
    let mut out = Vec::with_capacity(lines.len() + ADDED_BYTES);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', lines) {
        let line = &lines[start..=end];
        start = end + 1;
        let name = &line[..memchr::memchr(b':', line).unwrap_or(0)];
        if name == ETAG.as_str().as_bytes() {
            let value = line.get(name.len() + 2..line.len() - 2);
            let tag = value.and_then(|value| HeaderValue::from_bytes(value).ok());
            if let Some(tag) = tag.and_then(|tag| encoded_tag(&tag, coding)) {
                push_field(&mut out, &ETAG, tag.as_bytes());
            }
        } else if !may_be_changed(name)
            || !HeaderName::from_bytes(name).is_ok_and(|name| is_changed_by_coding(&name))
        {
            out.extend_from_slice(line);
        }
    }
    push_field(&mut out, &CONTENT_ENCODING, coding.name().as_bytes());
    let mut digits = itoa::Buffer::new();
    push_field(&mut out, &CONTENT_LENGTH, digits.format(length).as_bytes());
    Bytes::from(out)
}

/// Returns true for the first letters of the names that [`is_changed_by_coding`] knows.
fn may_be_changed(name: &[u8]) -> bool {
    matches!(name.first(), Some(b'a' | b'c' | b'd' | b'r'))
}

/// More bytes than the fields and the suffix of the tag that a coding adds.
const ADDED_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use edgeward_semantics::content_coding::encode_head;
    use http::HeaderMap;
    use proptest::prelude::*;

    use crate::cache::slices::write_slice_key;
    use crate::cache::stored::push_fields;
    use std::num::NonZeroU64;

    use super::*;
    use crate::cache::key_parts::{coding_of_key, write_encoding_key};

    #[test]
    fn the_key_of_an_encoding_names_its_coding_and_no_other_key_does() {
        let generation = NonZeroU64::new(0x0a0a_0a0a_0a0a_0a0a).expect("not zero");
        for plain in [
            &b"http://host/path"[..],
            b"http://host/path\n\x0a\x0a\x0a\x0a\x0a\x0a\x0a\x0a\naccept-language:br\n",
        ] {
            assert_eq!(coding_of_key(plain), None);
            let mut keys = vec![plain.to_vec()];
            for coding in Coding::ALL {
                let mut key = plain.to_vec();
                write_encoding_key(generation, coding, &mut key);
                assert_eq!(coding_of_key(&key), Some(coding));
                assert!(!keys.contains(&key));
                keys.push(key);
            }
            let mut slice = plain.to_vec();
            write_slice_key(7, 0, &mut slice);
            assert_eq!(coding_of_key(&slice), None);
        }
        for key in [&b"br"[..], b"\nbr", b"http://a/\nbr"] {
            assert_eq!(coding_of_key(key), None);
        }
    }

    const NAMES: &[&str] = &[
        "accept-ranges",
        "age",
        "cache-control",
        "content-digest",
        "content-encoding",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "digest",
        "etag",
        "expires",
        "repr-digest",
        "vary",
        "x-a",
    ];

    proptest! {
        /// Method: encode the same head as lines and as a map.
        #[test]
        fn the_lines_of_an_encoded_head_are_those_of_the_map(
            fields in prop::collection::vec((prop::sample::select(NAMES), "[ -~]{0,12}|(W/)?\"[a-z~]{0,5}\""), 0..10),
            coding in prop::sample::select(Coding::ALL.to_vec()),
            length in 0_u64..100_000,
        ) {
            let mut head = HeaderMap::new();
            for (name, value) in fields {
                let value = HeaderValue::try_from(value.trim()).expect("visible ASCII");
                let name = HeaderName::from_static(name);
                if name == ETAG { head.insert(name, value); } else { head.append(name, value); }
            }
            let mut lines = Vec::new();
            push_fields(&head, &mut lines);
            encode_head(&mut head, coding, length);
            let empty = StoredBody::Memory(Bytes::new());
            let response = StoredResponse {
                head: encoded_lines(&lines, coding, length),
                ..StoredResponse::new(http::StatusCode::OK, &HeaderMap::new(), policy(), empty)
            };
            prop_assert_eq!(response.headers(), head);
        }
    }

    fn policy() -> edgeward_semantics::StoredPolicy {
        let zero = edgeward_types::Timestamp::from_millis(0);
        edgeward_semantics::StoredPolicy {
            response_time: zero,
            initial_age_ms: 0,
            lifetime_ms: 0,
            fresh_until: zero,
            stale_while_revalidate_until: zero,
            stale_if_error_until: zero,
            no_cache: false,
            forbids_stale: false,
            has_validator: false,
            stale_if_error_of_operator: false,
        }
    }
}
