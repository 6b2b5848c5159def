//! The canonical form of request fields, used both in `Vary` keys and in forwarded requests.
//!
//! If the key had the normalised value but the origin got the raw value, a client could poison the cache. For example,
//! if spaces were removed only in the key, the response to `Accept-Language: d e` would be stored for `de`.
//! [`write_value`] therefore makes the value for the key and for the origin. It makes only changes that have no meaning
//! according to RFC 9110. A member with unknown syntax keeps its bytes.

use http::header::{
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, HeaderMap, HeaderName,
};

use crate::list;

/// Returns true if [`write_value`] may change this field. The lines of such a field are forwarded as one line.
pub fn has_canonical_form(name: &HeaderName) -> bool {
    *name == ACCEPT_ENCODING
        || *name == ACCEPT
        || *name == ACCEPT_LANGUAGE
        || *name == ACCEPT_CHARSET
}

/// Appends the value of a request field as it is used in the key and forwarded.
///
/// The lines of a field without a canonical form are separated by a carriage return, which no value contains.
/// They are forwarded as separate lines, because an origin may treat them differently from a list in one line.
///
/// The function writes directly into the key, without a temporary value, because it runs on every hit with
/// `Vary: Accept-Encoding`.
pub fn write_value(name: &HeaderName, request: &HeaderMap, out: &mut Vec<u8>) {
    if *name == ACCEPT_ENCODING {
        write_accept_encoding(request, out);
    } else if has_canonical_form(name) {
        // In lists with weights, white space between parts has no meaning (RFC 9110 §12.5). The order is
        // retained, because some origins prefer the first member.
        for (n, member) in list::members(request, name).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write_member(member, *name == ACCEPT, out);
        }
    } else {
        for (n, line) in request.get_all(name).into_iter().enumerate() {
            if n > 0 {
                out.push(b'\r');
            }
            out.extend_from_slice(list::trim(line.as_bytes()));
        }
    }
}

/// Writes the sorted codings with their weights, each once, since order has no meaning (RFC 9110 §12.5.3).
/// `gzip, br` and `br;q=1.0,gzip` become equal. Browsers write this field in several ways. Without this
/// normalisation, the cache would store a copy of every compressed object for each way.
fn write_accept_encoding(request: &HeaderMap, out: &mut Vec<u8>) {
    let start = out.len();
    // The positions in `out` at which the codings end. With them, the codings are sorted without copying them
    // first.
    let mut ends = [start; CODINGS_MAX + 1];
    let mut count = 0;
    for member in list::members(request, &ACCEPT_ENCODING) {
        if count == CODINGS_MAX {
            // No browser sends so many codings, so they are written in the received order.
            out.truncate(start);
            return write_codings_in_order(request, out);
        }
        write_coding(member, out);
        count += 1;
        ends[count] = out.len();
    }
    let unsorted_end = out.len();
    let mut codings: [(usize, usize); CODINGS_MAX] =
        std::array::from_fn(|n| (ends[n], ends[n + 1]));
    let codings = &mut codings[..count];
    codings.sort_unstable_by(|left, right| out[left.0..left.1].cmp(&out[right.0..right.1]));
    let mut written: Option<(usize, usize)> = None;
    for &coding in codings.iter() {
        if written.is_some_and(|last| out[last.0..last.1] == out[coding.0..coding.1]) {
            continue;
        }
        if written.is_some() {
            out.push(b',');
        }
        out.extend_from_within(coding.0..coding.1);
        written = Some(coding);
    }
    // Removes the unsorted codings.
    out.drain(start..unsorted_end);
}

fn write_codings_in_order(request: &HeaderMap, out: &mut Vec<u8>) {
    for (n, member) in list::members(request, &ACCEPT_ENCODING).enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_coding(member, out);
    }
}

/// Writes one coding with the shortest form of its weight.
fn write_coding(member: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    if !write_member(member, false, out) {
        return;
    }
    // RFC 9110 §8.4.1.3: `x-gzip` is equivalent to `gzip`.
    if out[start..].starts_with(b"x-gzip") && matches!(out.get(start + 6), None | Some(b';')) {
        out.drain(start..start + 2);
    }
    let Some(at) = out[start..].windows(3).position(|part| part == b";q=") else {
        return;
    };
    let (at, weight) = (start + at, start + at + 3);
    let is_decimal = out[weight..].contains(&b'.')
        && out[weight..]
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.');
    if is_decimal {
        // RFC 9110 §12.4.2: trailing zeros have no meaning.
        while out.ends_with(b"0") {
            out.pop();
        }
        if out.ends_with(b".") {
            out.pop();
        }
    }
    // RFC 9110 §12.4.2: a weight of 1 is the default.
    if &out[weight..] == b"1" {
        out.truncate(at);
    }
}

/// Writes a list member in lower case and without white space around its `;`.
///
/// A member with a quoted string or inner white space keeps its bytes, because strings are case-sensitive and
/// inner white space is not in the grammar. Returns false for these members. If `keeps_values` is true, the
/// values of parameters keep their case, except weights.
fn write_member(member: &[u8], keeps_values: bool, out: &mut Vec<u8>) -> bool {
    let parts = || member.split(|&byte| byte == b';').map(list::trim);
    let has_inner_space = |part: &[u8]| part.iter().any(|byte| matches!(byte, b' ' | b'\t'));
    if member.contains(&b'"') || parts().any(has_inner_space) {
        out.extend_from_slice(member);
        return false;
    }
    for (n, part) in parts().enumerate() {
        if n > 0 {
            out.push(b';');
        }
        let lower_bytes = match part.iter().position(|&byte| byte == b'=') {
            Some(at) if n > 0 && keeps_values && !part[..at].eq_ignore_ascii_case(b"q") => at,
            _ => part.len(),
        };
        out.extend(part[..lower_bytes].iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(&part[lower_bytes..]);
    }
    true
}

/// The maximum number of codings that are sorted. Browsers send up to five.
const CODINGS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn value(name: &HeaderName, request: &HeaderMap) -> Vec<u8> {
        let mut out = b"before".to_vec();
        write_value(name, request, &mut out);
        out.split_off(b"before".len())
    }

    /// If there are more codings than the limit, their order matters, and no coding is lost.
    #[test]
    fn more_codings_than_the_limit_keep_their_order() {
        let canonical = |names: &[String]| {
            let line = format!("accept-encoding: {}", names.join(", "));
            value(&ACCEPT_ENCODING, &headers(&line))
        };
        for (count, same) in [(CODINGS_MAX, true), (CODINGS_MAX + 2, false)] {
            let mut names: Vec<String> = (0..count).map(|n| format!("c{n}")).collect();
            let forward = canonical(&names);
            names.reverse();
            assert_eq!(canonical(&names) == forward, same, "{count}");
            assert_ne!(canonical(&names), canonical(&names[1..]), "{count}");
            assert_eq!(canonical(&names).split(|&byte| byte == b',').count(), count);
        }
    }

    fn values() -> impl Strategy<Value = Vec<String>> {
        let member = "[ ;]{0,1}(x-gzip|GZIP|br|De-de|t/P|\\*|a b|\"A,b\")( ?; ?([qQ]=(1|0\\.50|0|1\\.000)|V=B))?";
        proptest::collection::vec(
            proptest::collection::vec(member, 0..4).prop_map(|members| members.join(", ")),
            1..3,
        )
    }

    proptest! {
        /// The canonical form is a fixed point: the next cache that normalises the value gets the same value.
        #[test]
        fn a_canonical_value_is_a_fixed_point(
            lines in values(),
            name in proptest::sample::select(vec![ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, ACCEPT_CHARSET]),
        ) {
            let mut request = HeaderMap::new();
            for line in &lines {
                request.append(&name, HeaderValue::try_from(line.trim()).expect("visible ASCII"));
            }
            let canonical = value(&name, &request);
            request.insert(&name, HeaderValue::from_bytes(&canonical).expect("the value has no line break"));
            prop_assert_eq!(value(&name, &request), canonical);
        }

        /// The canonical form of any bytes is a valid field value.
        #[test]
        fn the_canonical_form_of_any_value_is_a_valid_value(line in proptest::collection::vec(0x20_u8..=0xff, 0..40)) {
            let Ok(line) = HeaderValue::from_bytes(&line) else { return Ok(()) };
            for name in [ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE] {
                let mut request = HeaderMap::new();
                request.insert(&name, line.clone());
                prop_assert!(HeaderValue::from_bytes(&value(&name, &request)).is_ok());
            }
        }
    }
}
