//! Untrusted targeted fields (RFC 9213), compared with a literal parser of structured fields.
//!
//! The input is lines of `CDN-Cache-Control` and of `Edgeward-Cache-Control`, in turn.
#![no_main]

#[path = "support/structured.rs"]
mod structured;

use edgeward_semantics::{DELTA_SECONDS_MAX, FieldScope, ResponseDirectives};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

use structured::Value;

fuzz_target!(|input: &[u8]| {
    // The oracle does not parse byte sequences.
    if input.contains(&b':') {
        return;
    }
    let lines = || input.split(|&byte| byte == b'\n').take(64);
    let (cdn, own) = (lines().step_by(2), lines().skip(1).step_by(2));
    let mut response = HeaderMap::new();
    response.insert("cache-control", HeaderValue::from_static("max-age=7"));
    let own = dictionary("edgeward-cache-control", own, &mut response);
    let cdn = dictionary("cdn-cache-control", cdn, &mut response);
    let actual = ResponseDirectives::from_headers(&response);
    // §2.2: the first field that is valid and not empty counts; otherwise `Cache-Control`.
    let expected = match own.or(cdn) {
        Some(members) => directives(&members),
        None => ResponseDirectives {
            max_age: Some(7),
            ..ResponseDirectives::default()
        },
    };
    assert_eq!(actual, expected);
});

/// Adds a field to the response, and returns its members. `None` if the field is invalid or empty.
fn dictionary<'a>(
    name: &'static str,
    lines: impl Iterator<Item = &'a [u8]>,
    response: &mut HeaderMap,
) -> Option<Vec<(String, Value)>> {
    let values: Vec<_> = lines.flat_map(HeaderValue::from_bytes).collect();
    for value in &values {
        response.append(name, value.clone());
    }
    let lines: Vec<_> = values.iter().map(HeaderValue::as_bytes).collect();
    structured::dictionary(&lines.join(&b", "[..]), false).filter(|members| !members.is_empty())
}

/// Returns the meaning of each member. A value of a wrong type has the most restrictive meaning.
fn directives(members: &[(String, Value)]) -> ResponseDirectives {
    let mut directives = ResponseDirectives {
        is_targeted: true,
        ..ResponseDirectives::default()
    };
    for (name, value) in members {
        let seconds = match value {
            Value::Integer(number) => (*number).clamp(0, DELTA_SECONDS_MAX.into()),
            _ => 0,
        };
        let seconds = Some(u32::try_from(seconds).expect("at most 2^31"));
        let is_true = *value == Value::Boolean(true);
        match name.as_str() {
            "max-age" => directives.max_age = seconds,
            "s-maxage" => directives.s_maxage = seconds,
            "stale-while-revalidate" => directives.stale_while_revalidate = seconds,
            "stale-if-error" => directives.stale_if_error = seconds,
            "no-store" => directives.no_store = true,
            "no-cache" => directives.no_cache = scope(value),
            "private" => directives.private = scope(value),
            "must-revalidate" => directives.must_revalidate = true,
            "proxy-revalidate" => directives.proxy_revalidate = true,
            "no-transform" => directives.no_transform = true,
            "public" => directives.public = is_true,
            "must-understand" => directives.must_understand = is_true,
            "immutable" => directives.immutable = is_true,
            _ => {}
        }
    }
    directives
}

/// A string lists field names. If one of them is invalid, or with more than 32, the directive has no list.
fn scope(value: &Value) -> FieldScope {
    let Value::String(list) = value else {
        return FieldScope::Whole;
    };
    let members = list
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members = members.filter(|member| !member.is_empty());
    let names: Result<Vec<_>, _> = members
        .map(|name| HeaderName::from_bytes(name.as_bytes()))
        .collect();
    let mut fields: Vec<HeaderName> = Vec::new();
    for name in names.unwrap_or_default() {
        if fields.len() == 32 {
            return FieldScope::Whole;
        }
        if !fields.contains(&name) {
            fields.push(name);
        }
    }
    match fields.is_empty() {
        true => FieldScope::Whole,
        false => FieldScope::Fields(fields),
    }
}
