//! Untrusted `Range` values for short bodies, compared with a literal reading of RFC 9110 §14.1.2, which checks each
//! byte of the body.
//!
//! The input is the length of the body (one byte) and the value.
#![no_main]

use edgeward_semantics::Validators;
use edgeward_semantics::range::{self, RANGES_MAX, RangeAnswer};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use libfuzzer_sys::fuzz_target;

/// The numbers of a range: `first-last`, `first-` or `-suffix`.
type Spec = (Option<u64>, Option<u64>);

fuzz_target!(|input: &[u8]| {
    let Some((&length, value)) = input.split_first() else {
        return;
    };
    let length = u64::from(length);
    let Ok(value) = HeaderValue::from_bytes(value) else {
        return;
    };
    let specs = value.to_str().ok().and_then(specs);
    let request: HeaderMap = [(http::header::RANGE, value)].into_iter().collect();
    let stored = Validators::default();
    let answer = range::decide(&Method::GET, &request, StatusCode::OK, &stored, length);
    // §14.2: an invalid field is ignored. A positive suffix of an empty body is the whole body.
    let Some(specs) = specs.filter(|specs| length > 0 || !specs.iter().any(is_positive_suffix))
    else {
        assert_eq!(answer, RangeAnswer::Full);
        return;
    };
    let parts = match answer {
        RangeAnswer::Full => panic!("the field is valid"),
        RangeAnswer::Unsatisfiable => vec![],
        RangeAnswer::Partial(part) => vec![part],
        RangeAnswer::Several(parts) => parts,
    };
    let selects = |spec: &Spec, at: u64| match *spec {
        (Some(first), last) => at >= first && last.is_none_or(|last| at <= last),
        (None, suffix) => length - at <= suffix.unwrap_or(0),
    };
    let expected: Vec<u64> = (0..length)
        .filter(|&at| specs.iter().any(|spec| selects(spec, at)))
        .collect();
    let mut bytes: Vec<u64> = parts
        .iter()
        .flat_map(|part| part.first..=part.last)
        .collect();
    bytes.sort_unstable();
    assert_eq!(bytes, expected, "each selected byte once");
    let first_spec = |part: &range::ByteRange| {
        specs
            .iter()
            .position(|spec| (part.first..=part.last).any(|at| selects(spec, at)))
    };
    assert!(
        parts.iter().map(first_spec).is_sorted(),
        "the order of the request"
    );
});

fn is_positive_suffix(spec: &Spec) -> bool {
    matches!(spec, (None, Some(1..)))
}

/// Parses `bytes=` and a list of ranges. `None` if the value is invalid or has too many ranges.
fn specs(value: &str) -> Option<Vec<Spec>> {
    let (unit, list) = value.split_once('=')?;
    unit.trim_matches([' ', '\t'])
        .eq_ignore_ascii_case("bytes")
        .then_some(())?;
    let members = list
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members = members.filter(|member| !member.is_empty());
    let specs = members.map(spec).collect::<Option<Vec<_>>>()?;
    (1..=RANGES_MAX).contains(&specs.len()).then_some(specs)
}

fn spec(member: &str) -> Option<Spec> {
    let (first, last) = member.split_once('-')?;
    // A number that does not fit is larger than any body.
    let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true if digits.is_empty() => Some(None),
        true => Some(Some(digits.parse().unwrap_or(u64::MAX))),
        false => None,
    };
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        spec => Some(spec),
    }
}
