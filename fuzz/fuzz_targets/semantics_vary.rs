//! Untrusted `Vary` values and the requests that they compare (RFC 9111 §4.1).
//!
//! The input is the value, a line break, and the fields of two requests, separated by an empty line.
#![no_main]

#[path = "support/heads.rs"]
mod heads;

use edgeward_semantics::negotiation::{Representation, answers};
use edgeward_semantics::{Vary, request_fields};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let end = input
        .iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(input.len());
    let Ok(value) = HeaderValue::from_bytes(&input[..end]) else {
        return;
    };
    let vary = Vary::from_headers(&[(http::header::VARY, value.clone())].into_iter().collect());
    // Each byte becomes a character, and each member a name.
    let list: String = value
        .as_bytes()
        .iter()
        .map(|&byte| char::from(byte))
        .collect();
    let members = list
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    let names: Option<Vec<HeaderName>> = members
        .iter()
        .map(|member| {
            HeaderName::try_from(*member)
                .ok()
                .filter(|name| name != "*")
        })
        .collect();
    // §4.1: `*` never matches. Invalid names and more than 32 names are treated like it.
    let Some(mut names) = names.filter(|names| names.len() <= 32) else {
        return assert_eq!(vary, Vary::Any);
    };
    names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    let Vary::Fields(fields) = vary else {
        return assert!(vary == Vary::None && names.is_empty());
    };
    assert_eq!(fields.names(), names);

    let (one, other) = heads::halves(input.get(end + 1..).unwrap_or_default());
    let (one, other) = (heads::head(one), heads::head(other));
    // A shared variant has a coding that the client accepts by name.
    let gzip = [(CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
    let gzip = Representation::from_response(StatusCode::OK, &gzip.into_iter().collect());
    let accepted = meaning(&other, &ACCEPT_ENCODING);
    if names.contains(&ACCEPT_ENCODING)
        && accepted != meaning(&one, &ACCEPT_ENCODING)
        && answers(gzip.expect("a known coding"), &fields.key(&one), &fields.key(&other))
    {
        let accepts = |member: &String| match member.strip_prefix("gzip") {
            Some("") => true,
            Some(weight) => weight.starts_with(";q=") && weight.contains(|c| ('1'..='9').contains(&c)),
            None => false,
        };
        assert!(accepted.iter().any(accepts), "{accepted:?}");
    }
    let selects_same = fields.selects_same(&one, &other);
    assert_eq!(selects_same, fields.selects_same(&other, &one));
    if names
        .iter()
        .all(|name| lines(&one, name) == lines(&other, name))
    {
        assert!(selects_same, "all selecting fields are equal");
    }
    for name in names.iter().filter(|_| selects_same) {
        // §4.1: an absent field matches only an absent field.
        assert_eq!(one.contains_key(name), other.contains_key(name), "{name}");
        match request_fields::has_canonical_form(name) {
            true => assert_eq!(meaning(&one, name), meaning(&other, name), "{name}"),
            false => assert_eq!(lines(&one, name), lines(&other, name), "{name}"),
        }
    }
});

fn lines<'a>(head: &'a HeaderMap, name: &HeaderName) -> Vec<&'a [u8]> {
    head.get_all(name).iter().map(trimmed).collect()
}

fn trimmed(value: &HeaderValue) -> &[u8] {
    let mut bytes = value.as_bytes();
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns a form that is equal for all values of a negotiating field that may select the same response, and perhaps
/// for more: members without white space, in lower case, without a weight of 1 and without order.
fn meaning(head: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let text: Vec<String> = head
        .get_all(name)
        .iter()
        .map(|value| {
            value
                .as_bytes()
                .iter()
                .map(|&byte| char::from(byte))
                .collect()
        })
        .collect();
    let text = text.join(",").replace([' ', '\t'], "").to_ascii_lowercase();
    let mut members: Vec<String> = text
        .split(',')
        .filter(|member| !member.is_empty())
        .map(|member| {
            let member = match member.strip_prefix("x-gzip") {
                Some(rest) if rest.is_empty() || rest.starts_with(';') => &member[2..],
                _ => member,
            };
            let Some((coding, weight)) = member.split_once(";q=") else {
                return member.to_owned();
            };
            let weight = match weight.contains('.') {
                true => weight.trim_end_matches('0').trim_end_matches('.'),
                false => weight,
            };
            match weight {
                "1" => coding.to_owned(),
                _ => format!("{coding};q={weight}"),
            }
        })
        .collect();
    members.sort();
    members.dedup();
    members
}
