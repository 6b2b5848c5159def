//! Untrusted fields of compression dictionaries (RFC 9842). A literal parser of structured fields reads
//! `Use-As-Dictionary`, and a naive matcher compares its pattern with a path. The pattern that the edge makes for a
//! path matches this path.
//!
//! The input is four lines: the values of `Use-As-Dictionary`, `Available-Dictionary` and `Dictionary-ID`, and a path.
#![no_main]

#[path = "support/structured.rs"]
mod structured;

use edgeward_semantics::dictionary::{
    AVAILABLE_DICTIONARY, DICTIONARY_ID, DictionaryOffer, DictionaryTerms, MatchPattern,
    USE_AS_DICTIONARY, automatic_pattern, terms_value,
};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

use structured::Value;

const ORIGIN: &str = "https://a.example";

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(4, |&byte| byte == b'\n');
    let [terms, hash, id, path] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    let Ok(path) = std::str::from_utf8(path) else {
        return;
    };
    let mut response = HeaderMap::new();
    let Ok(value) = HeaderValue::from_bytes(terms) else {
        return;
    };
    response.insert(&USE_AS_DICTIONARY, value);
    let parsed = DictionaryTerms::from_headers(&response, ORIGIN, path);
    // The oracle parses neither byte sequences nor tokens.
    if !terms.contains(&b':') {
        let members = structured::dictionary(terms, true);
        let find = |name: &str| {
            let members = members.iter().flatten();
            members
                .filter(|(key, _)| key == name)
                .map(|(_, value)| value)
                .last()
        };
        if let Some(parsed) = &parsed {
            let Some(Value::String(pattern)) = find("match") else {
                panic!("terms without a pattern");
            };
            assert_eq!(
                MatchPattern::parse(pattern, ORIGIN, path).as_ref(),
                Some(&parsed.pattern)
            );
            match find("id") {
                None => assert_eq!(&*parsed.id, ""),
                Some(value) => assert_eq!(*value, Value::String((&*parsed.id).to_owned())),
            }
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/*.-_".contains(&byte);
            if pattern.starts_with('/')
                && pattern.bytes().all(is_plain)
                && path.len() < 40
                && pattern.len() < 20
            {
                let (own, _) = path.split_once('?').unwrap_or((path, ""));
                assert_eq!(
                    parsed.pattern.matches(path),
                    naive(pattern.as_bytes(), own.as_bytes())
                );
            }
        }
    }
    let mut request = HeaderMap::new();
    for (name, value) in [(&AVAILABLE_DICTIONARY, hash), (&DICTIONARY_ID, id)] {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            request.insert(name, value);
        }
    }
    if let Some(Ok(offer)) = DictionaryOffer::from_headers(&request)
        && let Some(parsed) = &parsed
        && offer.check(parsed, path, &response).is_ok()
    {
        assert!(parsed.pattern.matches(path));
    }
    if let Some(pattern) = automatic_pattern(path) {
        assert!(terms_value(&pattern).is_some());
        if let Some(pattern) = MatchPattern::parse(&pattern, ORIGIN, path) {
            assert!(pattern.matches(path));
        }
    }
});

/// Compares a path with a pattern, by trying each length for each wildcard.
fn naive(pattern: &[u8], path: &[u8]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((b'*', rest)) => (0..=path.len()).any(|at| naive(rest, &path[at..])),
        Some((byte, rest)) => path
            .split_first()
            .is_some_and(|(first, others)| first == byte && naive(rest, others)),
    }
}
