//! Untrusted `No-Vary-Search` fields and queries: two queries have the same canonical form exactly if the steps of the
//! draft (§6), carried out literally, call the URLs equivalent. A literal parser of structured fields reads the field.
//!
//! The input is three lines: the value of the field, and two queries.
#![no_main]

#[path = "support/structured.rs"]
mod structured;

use edgeward_semantics::{IgnoredParameters, NO_VARY_SEARCH, NoVarySearch};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

use structured::Value;

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(3, |&byte| byte == b'\n');
    let [field, one, other] = std::array::from_fn(|_| lines.next().unwrap_or_default());
    let Ok(value) = HeaderValue::from_bytes(field) else {
        return;
    };
    let mut response = HeaderMap::new();
    response.insert(&NO_VARY_SEARCH, value);
    let rule = NoVarySearch::from_headers(&response);
    // The oracle does not parse byte sequences.
    if !field.contains(&b':') {
        let dictionary = structured::dictionary(field, true);
        assert_eq!(rule, dictionary.and_then(|members| expected(&members)));
    }
    let Some(rule) = rule else { return };
    let canonical = |query: &[u8]| {
        let mut out = Vec::new();
        rule.write_query(query, &mut out);
        out
    };
    let (form, other_form) = (canonical(one), canonical(other));
    assert_eq!(
        form == other_form,
        significant(&rule, one) == significant(&rule, other)
    );
    assert!(form.is_ascii() && !form.contains(&b'#') && !form.contains(&b'\n'));
    if let Some(query) = form.strip_prefix(b"?") {
        assert_eq!(canonical(query), form);
    }
    // A list of parameters is the rule that ignores these parameters, if their order matters.
    if let (Ok(target), Ok(ignored)) = (
        std::str::from_utf8(one),
        rule.names()
            .collect::<Vec<_>>()
            .join(",")
            .parse::<IgnoredParameters>(),
    ) {
        let stripped = ignored.strip(target);
        assert_eq!(ignored.strip(&stripped), stripped);
    }
});

/// Returns the rule of a valid dictionary (§5.1). A field that changes nothing makes no rule.
fn expected(members: &[(String, Value)]) -> Option<NoVarySearch> {
    let value = |name: &str| {
        let member = members.iter().find(|(other, _)| other == name);
        member.map(|(_, value)| value)
    };
    let ignores_order = match value("key-order") {
        None => false,
        Some(Value::Boolean(ignores)) => *ignores,
        Some(_) => return None,
    };
    let (list, lists_significant) = match (value("params"), value("except")) {
        (Some(Value::InnerList(list)), None) => (&list[..], false),
        (None, Some(Value::InnerList(list))) => (&list[..], true),
        (None, None) => (&[][..], false),
        _ => return None,
    };
    let name = |item: &Value| match item {
        Value::String(text) => Some(decode(text.as_bytes())),
        _ => None,
    };
    let names = list.iter().map(name).collect::<Option<_>>()?;
    NoVarySearch::from_names(names, lists_significant, ignores_order)
}

/// Returns the parameters that §6 compares.
fn significant(rule: &NoVarySearch, query: &[u8]) -> Vec<(String, String)> {
    let sequences = query
        .split(|&byte| byte == b'&')
        .filter(|part| !part.is_empty());
    let mut pairs: Vec<_> = sequences
        .map(|part| {
            let equals = part.iter().position(|&byte| byte == b'=');
            let (name, value) = part.split_at(equals.unwrap_or(part.len()));
            (decode(name), decode(value.get(1..).unwrap_or_default()))
        })
        .collect();
    pairs.retain(|(name, _)| rule.names().any(|listed| listed == name) == rule.lists_significant());
    if rule.ignores_order() {
        pairs.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
    }
    pairs
}

fn decode(bytes: &[u8]) -> String {
    let mut output = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = |offset: usize| {
            let byte = *bytes.get(at + offset)?;
            char::from(byte).to_digit(16)
        };
        match (bytes[at], hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                output.push(u8::try_from(high * 16 + low).expect("two digits"));
                at += 2;
            }
            (b'+', ..) => output.push(b' '),
            (byte, ..) => output.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&output).into_owned()
}
