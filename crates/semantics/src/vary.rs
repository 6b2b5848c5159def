//! `Vary` and the secondary key it makes (RFC 9111 §4.1).

use http::header::{
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, HeaderMap, HeaderName, VARY,
};

use crate::list;

/// What a response says it depends on besides its URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vary {
    /// Nothing: one response per URI.
    #[default]
    None,
    /// These request fields.
    Fields(VaryFields),
    /// `*`: on something no cache can see. Never reused (§4.1).
    Any,
}

impl Vary {
    /// Reads every `Vary` line. A member that is no field name is read as `*`.
    pub fn of(response: &HeaderMap) -> Self {
        let mut names = Vec::new();
        for member in list::members(response, &VARY) {
            match HeaderName::from_bytes(member) {
                // `*` is a token too, and so a field name to the parser.
                Ok(name) if name.as_str() != "*" => names.push(name),
                _ => return Self::Any,
            }
            if names.len() > VARY_FIELDS_MAX {
                return Self::Any;
            }
        }
        if names.is_empty() {
            return Self::None;
        }
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        Self::Fields(VaryFields { names })
    }
}

/// The request fields that choose between the responses of one URI, in canonical order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VaryFields {
    /// Sorted, each once, never empty.
    names: Vec<HeaderName>,
}

impl VaryFields {
    /// The field names, sorted, each once.
    pub fn names(&self) -> &[HeaderName] {
        &self.names
    }

    /// Appends the secondary key of a request.
    ///
    /// One line per field: `name:value` or, where the request lacks it, the bare name
    /// (§4.1: absent matches only absent). A field value holds neither a newline nor can a
    /// name hold a colon, so different requests never make the same bytes by accident.
    pub fn write_key(&self, request: &HeaderMap, key: &mut Vec<u8>) {
        for name in &self.names {
            key.extend_from_slice(name.as_str().as_bytes());
            if request.contains_key(name) {
                key.push(b':');
                write_normalised(name, request, key);
            }
            key.push(b'\n');
        }
    }

    /// The secondary key of a request as bytes of its own.
    pub fn key(&self, request: &HeaderMap) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.names.len() * 32);
        self.write_key(request, &mut key);
        key
    }

    /// Whether two requests select the same response.
    pub fn selects_same(&self, one: &HeaderMap, other: &HeaderMap) -> bool {
        self.key(one) == self.key(other)
    }
}

/// Normalises only where §4.1 allows: white space where the field's syntax does, several
/// lines into one, and order where order means nothing.
fn write_normalised(name: &HeaderName, request: &HeaderMap, key: &mut Vec<u8>) {
    if name == ACCEPT_ENCODING {
        write_accept_encoding(request, key);
    } else if *name == ACCEPT || name == ACCEPT_LANGUAGE || name == ACCEPT_CHARSET {
        // Lists of ranges with weights: case and white space carry nothing (RFC 9110
        // §12.5). Order stays: some origins prefer what comes first.
        write_joined(list::members(request, name).map(compact_lower), key);
    } else {
        let lines = request.get_all(name).into_iter();
        write_joined(lines.map(|line| list::trim(line.as_bytes()).to_vec()), key);
    }
}

/// Sorted codings with their weight, each once: `gzip, br` and `br;q=1.0,gzip` are one
/// request (RFC 9110 §12.5.3 gives order no meaning). Browsers write this field in a
/// handful of ways, and each is otherwise a copy of every compressed object.
fn write_accept_encoding(request: &HeaderMap, key: &mut Vec<u8>) {
    let mut codings: Vec<Vec<u8>> = list::members(request, &ACCEPT_ENCODING)
        .map(canonical_coding)
        .collect();
    codings.sort_unstable();
    codings.dedup();
    write_joined(codings.into_iter(), key);
}

/// One coding with the shortest form of its weight.
fn canonical_coding(member: &[u8]) -> Vec<u8> {
    let mut coding = compact_lower(member);
    if let Some(at) = coding.windows(3).position(|part| part == b";q=") {
        let weight = &coding[at + 3..];
        if weight.contains(&b'.')
            && weight
                .iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'.')
        {
            // RFC 9110 §12.4.2: trailing zeros carry nothing.
            while coding.ends_with(b"0") {
                coding.pop();
            }
            if coding.ends_with(b".") {
                coding.pop();
            }
        }
        // §12.4.2: a weight of 1 is what silence says.
        if &coding[at + 3..] == b"1" {
            coding.truncate(at);
        }
    }
    // §8.4.1.3: `x-gzip` is the same as `gzip`.
    if coding.starts_with(b"x-gzip") && matches!(coding.get(6), None | Some(b';')) {
        coding.drain(..2);
    }
    coding
}

fn write_joined(parts: impl Iterator<Item = Vec<u8>>, key: &mut Vec<u8>) {
    for (n, part) in parts.enumerate() {
        if n > 0 {
            key.push(b',');
        }
        key.extend_from_slice(&part);
    }
}

/// Lower case and without white space. Quoted strings may occur as parameters of `Accept`;
/// a member with one keeps its bytes.
fn compact_lower(member: &[u8]) -> Vec<u8> {
    if member.contains(&b'"') {
        return member.to_vec();
    }
    member
        .iter()
        .filter(|byte| !matches!(byte, b' ' | b'\t'))
        .map(u8::to_ascii_lowercase)
        .collect()
}

/// Fields one response may vary by; beyond it no two requests agree anyway.
const VARY_FIELDS_MAX: usize = 32;
