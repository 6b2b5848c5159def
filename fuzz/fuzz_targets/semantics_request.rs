//! Untrusted requests for untrusted stored responses: conditions, ranges, invalidation and forwarded fields.
//!
//! The input is the fields of a request and of a stored response, as lines `name:value`, separated by an empty line.
#![no_main]

#[path = "support/heads.rs"]
mod heads;

use edgeward_semantics::range::RangeAnswer;
use edgeward_semantics::multipart::{self, Boundary};
use edgeward_semantics::{
    RequestDirectives, Target, Validators, Vary, conditional, hop_by_hop, invalidation, range,
    route,
};
use http::{Method, StatusCode, Version};
use libfuzzer_sys::fuzz_target;

use heads::{halves, head};

fuzz_target!(|input: &[u8]| {
    let (first, second) = halves(input);
    let (mut request, stored) = (head(first), head(second));
    let validators = Validators::from_headers(&stored);

    let _ = route(&Method::GET, &request);
    let _ = RequestDirectives::from_headers(&request);
    let _ = conditional::evaluate(&Method::GET, &request, StatusCode::OK, &validators);
    for length in [0, 1, 1000, u64::MAX] {
        let answer = range::decide(&Method::GET, &request, StatusCode::OK, &validators, length);
        let parts = match answer {
            RangeAnswer::Full | RangeAnswer::Unsatisfiable => vec![],
            RangeAnswer::Partial(part) => vec![part],
            RangeAnswer::Several(parts) => {
                assert!((2..=range::RANGES_MAX).contains(&parts.len()));
                parts
            }
        };
        let mut bytes = 0;
        for part in parts {
            assert!(part.first <= part.last && part.last < length);
            let head = multipart::part_head(Boundary(0), true, None, part, length);
            assert!(head.ends_with(b"\r\n\r\n"));
            bytes += part.length();
        }
        assert!(bytes <= length, "parts overlap");
    }
    if let Vary::Fields(fields) = Vary::from_headers(&stored) {
        assert!(fields.selects_same(&request, &request.clone()));
    }
    if let Some(authority) = request.get("host").and_then(|host| host.to_str().ok())
        && let Ok(target) = Target::new("http", authority, "/a")
    {
        let prefix_length = target.key().len() - "a".len();
        let prefix = target.key()[..prefix_length].to_vec();
        for key in invalidation::targets(&Method::POST, StatusCode::OK, &target, &stored) {
            assert!(key.starts_with(&prefix), "the key belongs to another origin");
        }
    }
    let _ = hop_by_hop::is_loop(&request, "edgeward");
    hop_by_hop::append_via(&mut request, Version::HTTP_11, "edgeward");
    hop_by_hop::strip_request(&mut request, |_| false);
    assert!(!request.contains_key("connection") && !request.contains_key("transfer-encoding"));
    conditional::revalidation_request(&mut request, &validators);
    assert!(!request.contains_key("range"));
});
