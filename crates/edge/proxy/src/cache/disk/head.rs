//! The format of the head that each object on disk has: status, freshness and header fields of a response, with the
//! slices of a sliced response; the request fields by which the responses of a target vary; or the rule for the query
//! of a path.
//!
//! docs/reference/disk-format.md describes the bytes. The store's checksum protects the head, so normally only a head
//! of another format version fails to parse. An object with such a head is a miss. All values are checked
//! nevertheless, because other code relies on them.

use std::num::NonZeroU64;

use bytes::{BufMut as _, Bytes};
use edgeward_purge::Stamp;
use edgeward_semantics::slices::Slicing;
use edgeward_semantics::{NoVarySearch, StoredPolicy, VaryFields};
use edgeward_types::Timestamp;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use crate::cache::stored::{
    StoredBody, StoredResponse, fields_bytes, length_bytes, push_fields, push_length,
};

/// A parsed head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskHead {
    /// The head of a response. The body follows it.
    Response {
        /// The response's status.
        status: StatusCode,
        /// The times until which the response is fresh, and the uses that are allowed when it is stale.
        policy: StoredPolicy,
        /// The newest purge that does not cover the response. Heads of version 1 have [`Stamp::NONE`].
        stamp: Stamp,
        /// `name: value\r\n` for each header field except `Content-Length`.
        fields: Bytes,
        /// For the entry of a sliced response: its slices. The entry has no body.
        slices: Option<SlicesOnDisk>,
        /// For a response that the edge may encode: a part of the keys of its encodings.
        generation: Option<NonZeroU64>,
    },
    /// A marker: the responses of the target vary by request fields. A marker has no body.
    Varies {
        /// The request fields by which the responses vary.
        fields: VaryFields,
        /// The number of the marker, which is a part of the key of each variant.
        generation: u64,
    },
    /// A marker: the responses of a path depend on a part of the query only. It has no body.
    PathRule {
        /// The parameters of the query on which the responses depend.
        rule: NoVarySearch,
        /// The number of the marker, which is a part of the key of each response under the rule.
        generation: u64,
    },
}

/// The slices of a sliced response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicesOnDisk {
    /// The length of the representation and the size of its slices.
    pub slicing: Slicing,
    /// The number of the entry, which is a part of the key of each slice.
    pub generation: u64,
}

/// The reason why bytes are not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskHeadError {
    /// The head is shorter than its fixed part.
    #[error("it is too short")]
    Short,
    /// The version is unknown.
    #[error("its version is {0}, and only 1 and 2 are known")]
    Version(u8),
    /// The kind is unknown.
    #[error("its kind is {0}")]
    Kind(u8),
    /// The status is invalid or informational.
    #[error("its status is {0}")]
    Status(u16),
    /// A reserved bit or byte is not zero.
    #[error("a reserved bit or byte is not zero")]
    Reserved,
    /// The generation of an encodable response is zero.
    #[error("its generation is zero")]
    Generation,
    /// The size of the slices is zero.
    #[error("the size of its slices is zero")]
    Slices,
    /// A line is not a header field.
    #[error("a line is not a header field")]
    Field,
    /// The list of names is empty or malformed.
    #[error("the list of names is empty or malformed")]
    Names,
}

/// Returns the head of a response for the disk. The head has no `Content-Length`, because the length may be unknown
/// until the body has arrived. The store knows the length of each stored body.
pub fn write_response(
    status: StatusCode,
    policy: &StoredPolicy,
    stamp: Stamp,
    head: &HeaderMap,
    generation: Option<NonZeroU64>,
) -> Bytes {
    let mut bytes = Vec::with_capacity(ENCODABLE_FIXED_BYTES + fields_bytes(head));
    push_whole_fixed(status, policy, stamp, generation, &mut bytes);
    push_fields(head, &mut bytes);
    Bytes::from(bytes)
}

/// Like [`write_response`], but takes the response as the memory tier stores it.
pub(crate) fn write_block(response: &StoredResponse, stamp: Stamp) -> Bytes {
    let block = &response.head;
    let mut bytes = Vec::with_capacity(SLICED_FIXED_BYTES + block.len());
    let (status, policy) = (response.status, &response.policy);
    if let StoredBody::Slices(slices) = &response.body {
        push_response_fixed(KIND_SLICED, status, policy, stamp, &mut bytes);
        bytes.put_u64_le(slices.slicing.complete_length);
        bytes.put_u64_le(slices.slicing.slice_bytes);
        bytes.put_u64_le(slices.generation);
    } else {
        push_whole_fixed(status, policy, stamp, response.generation, &mut bytes);
    }
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', block) {
        let line = &block[start..=end];
        let name = CONTENT_LENGTH.as_str().as_bytes();
        if !(line.starts_with(name) && line.get(name.len()) == Some(&b':')) {
            bytes.put_slice(line);
        }
        start = end + 1;
    }
    Bytes::from(bytes)
}

/// Returns true if both heads of version 2 differ at most in their stamps. A lookup may have advanced one of them.
pub(crate) fn is_same_response(one: &[u8], two: &[u8]) -> bool {
    one.len() >= RESPONSE_FIXED_BYTES
        && one.len() == two.len()
        && one[..STAMP_AT] == two[..STAMP_AT]
        && one[RESPONSE_FIXED_BYTES..] == two[RESPONSE_FIXED_BYTES..]
}

/// Appends the fixed part of the head of a response that is one object.
fn push_whole_fixed(
    status: StatusCode,
    policy: &StoredPolicy,
    stamp: Stamp,
    generation: Option<NonZeroU64>,
    bytes: &mut Vec<u8>,
) {
    match generation {
        Some(generation) => {
            push_response_fixed(KIND_ENCODABLE, status, policy, stamp, bytes);
            bytes.put_u64_le(generation.get());
        }
        None => push_response_fixed(KIND_RESPONSE, status, policy, stamp, bytes),
    }
}

fn push_response_fixed(
    kind: u8,
    status: StatusCode,
    policy: &StoredPolicy,
    stamp: Stamp,
    bytes: &mut Vec<u8>,
) {
    bytes.put_u8(VERSION);
    bytes.put_u8(kind);
    bytes.put_u16_le(status.as_u16());
    let mut flags = 0;
    for (set, flag) in [
        (policy.no_cache, NO_CACHE),
        (policy.forbids_stale, FORBIDS_STALE),
        (policy.has_validator, HAS_VALIDATOR),
        (
            policy.stale_if_error_of_operator,
            STALE_IF_ERROR_OF_OPERATOR,
        ),
    ] {
        if set {
            flags |= flag;
        }
    }
    bytes.put_u8(flags);
    bytes.put_bytes(0, 3);
    for number in [
        policy.response_time.as_millis(),
        policy.initial_age_ms,
        policy.lifetime_ms,
        policy.fresh_until.as_millis(),
        policy.stale_while_revalidate_until.as_millis(),
        policy.stale_if_error_until.as_millis(),
        stamp.0,
    ] {
        bytes.put_u64_le(number);
    }
}

/// Returns the head of a marker.
pub fn write_varies(fields: &VaryFields, generation: u64) -> Bytes {
    let mut bytes = vec![VERSION, KIND_VARIES, 0, 0, 0, 0, 0, 0];
    bytes.put_u64_le(generation);
    for name in fields.names() {
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_u8(b'\n');
    }
    Bytes::from(bytes)
}

/// Returns the head of a marker of a path.
pub fn write_path_rule(rule: &NoVarySearch, generation: u64) -> Bytes {
    let mut flags = 0;
    for (set, flag) in [
        (rule.lists_significant(), LISTS_SIGNIFICANT),
        (rule.ignores_order(), IGNORES_ORDER),
    ] {
        if set {
            flags |= flag;
        }
    }
    let mut bytes = vec![VERSION, KIND_PATH_RULE, flags, 0, 0, 0, 0, 0];
    bytes.put_u64_le(generation);
    for name in rule.names() {
        bytes.put_u32_le(u32::try_from(name.len()).expect("a name is a part of a header field"));
        bytes.put_slice(name.as_bytes());
    }
    Bytes::from(bytes)
}

/// Parses a head.
///
/// # Errors
///
/// Returns the reason if the bytes are not a head of a known version.
pub fn parse(bytes: &Bytes) -> Result<DiskHead, DiskHeadError> {
    let fixed = bytes.get(..8).ok_or(DiskHeadError::Short)?;
    if !matches!(fixed[0], 1 | VERSION) {
        return Err(DiskHeadError::Version(fixed[0]));
    }
    match fixed[1] {
        KIND_RESPONSE => parse_response(bytes),
        // Heads of version 1 are older than slices and encodings.
        KIND_SLICED | KIND_ENCODABLE if fixed[0] == VERSION => parse_response(bytes),
        KIND_VARIES => parse_varies(bytes),
        KIND_PATH_RULE => parse_path_rule(bytes),
        kind => Err(DiskHeadError::Kind(kind)),
    }
}

fn parse_response(bytes: &Bytes) -> Result<DiskHead, DiskHeadError> {
    let kind = bytes[1];
    let fixed_bytes = match (bytes[0], kind) {
        (VERSION, KIND_SLICED) => SLICED_FIXED_BYTES,
        (VERSION, KIND_ENCODABLE) => ENCODABLE_FIXED_BYTES,
        (VERSION, _) => RESPONSE_FIXED_BYTES,
        _ => STAMP_AT,
    };
    if bytes.len() < fixed_bytes {
        return Err(DiskHeadError::Short);
    }
    let number = u16::from_le_bytes([bytes[2], bytes[3]]);
    let status = StatusCode::from_u16(number)
        .ok()
        .filter(|status| !status.is_informational())
        .ok_or(DiskHeadError::Status(number))?;
    let flags = bytes[4];
    if flags & !POLICY_FLAGS != 0 || bytes[5..8] != [0; 3] {
        return Err(DiskHeadError::Reserved);
    }
    let policy = StoredPolicy {
        response_time: Timestamp::from_millis(u64_at(bytes, 8)),
        initial_age_ms: u64_at(bytes, 16),
        lifetime_ms: u64_at(bytes, 24),
        fresh_until: Timestamp::from_millis(u64_at(bytes, 32)),
        stale_while_revalidate_until: Timestamp::from_millis(u64_at(bytes, 40)),
        stale_if_error_until: Timestamp::from_millis(u64_at(bytes, 48)),
        no_cache: flags & NO_CACHE != 0,
        forbids_stale: flags & FORBIDS_STALE != 0,
        has_validator: flags & HAS_VALIDATOR != 0,
        stale_if_error_of_operator: flags & STALE_IF_ERROR_OF_OPERATOR != 0,
    };
    let stamp = match bytes[0] {
        VERSION => Stamp(u64_at(bytes, STAMP_AT)),
        _ => Stamp::NONE,
    };
    let generation = match kind {
        KIND_ENCODABLE => {
            let number = NonZeroU64::new(u64_at(bytes, RESPONSE_FIXED_BYTES));
            Some(number.ok_or(DiskHeadError::Generation)?)
        }
        _ => None,
    };
    let slices = (kind == KIND_SLICED).then(|| SlicesOnDisk {
        slicing: Slicing {
            complete_length: u64_at(bytes, RESPONSE_FIXED_BYTES),
            slice_bytes: u64_at(bytes, RESPONSE_FIXED_BYTES + 8),
        },
        generation: u64_at(bytes, RESPONSE_FIXED_BYTES + 16),
    });
    if slices.is_some_and(|slices| slices.slicing.slice_bytes == 0) {
        return Err(DiskHeadError::Slices);
    }
    let fields = bytes.slice(fixed_bytes..);
    check_fields(&fields)?;
    Ok(DiskHead::Response {
        status,
        policy,
        stamp,
        fields,
        slices,
        generation,
    })
}

/// Checks the lines as [`StoredResponse::headers`](crate::cache::stored::StoredResponse::headers) requires.
fn check_fields(fields: &[u8]) -> Result<(), DiskHeadError> {
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', fields) {
        let line = fields[start..end]
            .strip_suffix(b"\r")
            .ok_or(DiskHeadError::Field)?;
        let colon = memchr::memchr(b':', line).ok_or(DiskHeadError::Field)?;
        let value = line[colon + 1..]
            .strip_prefix(b" ")
            .ok_or(DiskHeadError::Field)?;
        let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| DiskHeadError::Field)?;
        if name == CONTENT_LENGTH || HeaderValue::from_bytes(value).is_err() {
            return Err(DiskHeadError::Field);
        }
        start = end + 1;
    }
    if start == fields.len() {
        Ok(())
    } else {
        Err(DiskHeadError::Field)
    }
}

fn parse_varies(bytes: &Bytes) -> Result<DiskHead, DiskHeadError> {
    if bytes.len() < VARIES_FIXED_BYTES {
        return Err(DiskHeadError::Short);
    }
    if bytes[2..8] != [0; 6] {
        return Err(DiskHeadError::Reserved);
    }
    let names = bytes[VARIES_FIXED_BYTES..]
        .strip_suffix(b"\n")
        .ok_or(DiskHeadError::Names)?;
    let names: Result<Vec<_>, _> = names
        .split(|&byte| byte == b'\n')
        .map(HeaderName::from_bytes)
        .collect();
    let fields = names
        .ok()
        .and_then(VaryFields::from_names)
        .ok_or(DiskHeadError::Names)?;
    Ok(DiskHead::Varies {
        fields,
        generation: u64_at(bytes, 8),
    })
}

fn parse_path_rule(bytes: &Bytes) -> Result<DiskHead, DiskHeadError> {
    if bytes.len() < VARIES_FIXED_BYTES {
        return Err(DiskHeadError::Short);
    }
    let flags = bytes[2];
    if flags & !(LISTS_SIGNIFICANT | IGNORES_ORDER) != 0 || bytes[3..8] != [0; 5] {
        return Err(DiskHeadError::Reserved);
    }
    let mut names = Vec::new();
    let mut rest = &bytes[VARIES_FIXED_BYTES..];
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().ok_or(DiskHeadError::Names)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (name, after) = after.split_at_checked(length).ok_or(DiskHeadError::Names)?;
        let name = std::str::from_utf8(name).map_err(|_| DiskHeadError::Names)?;
        names.push(name.to_owned());
        rest = after;
    }
    let lists_significant = flags & LISTS_SIGNIFICANT != 0;
    let rule = NoVarySearch::from_names(names, lists_significant, flags & IGNORES_ORDER != 0);
    Ok(DiskHead::PathRule {
        rule: rule.ok_or(DiskHeadError::Names)?,
        generation: u64_at(bytes, 8),
    })
}

/// Returns the number of bytes that [`block`] returns.
pub(crate) fn block_bytes(status: StatusCode, fields: &[u8], body_bytes: u64) -> usize {
    fields.len() + length_bytes(status, body_bytes)
}

/// Returns the header block for the memory tier, with `Content-Length` if the status allows this field.
pub(crate) fn block(status: StatusCode, fields: &Bytes, body_bytes: u64) -> Bytes {
    let mut block = Vec::with_capacity(block_bytes(status, fields, body_bytes));
    block.extend_from_slice(fields);
    push_length(status, body_bytes, &mut block);
    Bytes::from(block)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Heads of version 1 have no stamp.
const VERSION: u8 = 2;

const KIND_RESPONSE: u8 = 1;
const KIND_VARIES: u8 = 2;
const KIND_SLICED: u8 = 3;
const KIND_PATH_RULE: u8 = 4;
const KIND_ENCODABLE: u8 = 5;

const LISTS_SIGNIFICANT: u8 = 1;
const IGNORES_ORDER: u8 = 2;

const NO_CACHE: u8 = 1;
const FORBIDS_STALE: u8 = 2;
const HAS_VALIDATOR: u8 = 4;
const STALE_IF_ERROR_OF_OPERATOR: u8 = 8;
const POLICY_FLAGS: u8 = NO_CACHE | FORBIDS_STALE | HAS_VALIDATOR | STALE_IF_ERROR_OF_OPERATOR;

/// The fixed part of a response's head: version, kind, status, flags, three bytes of zero, six numbers, the stamp.
const RESPONSE_FIXED_BYTES: usize = STAMP_AT + 8;

/// The fixed part of a sliced response's head: that of a response, the complete length, the size of a slice, the
/// generation.
const SLICED_FIXED_BYTES: usize = RESPONSE_FIXED_BYTES + 3 * 8;

/// The fixed part of an encodable response's head: that of a response, and the generation.
const ENCODABLE_FIXED_BYTES: usize = RESPONSE_FIXED_BYTES + 8;

/// The offset of the stamp, and the fixed part of a head of version 1.
const STAMP_AT: usize = 1 + 1 + 2 + 1 + 3 + 6 * 8;

/// The fixed part of a marker's head: version, kind, flags (0 for a Vary marker), five bytes of zero, the generation.
const VARIES_FIXED_BYTES: usize = 1 + 1 + 6 + 8;

#[cfg(test)]
mod tests;
