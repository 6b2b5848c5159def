//! Untrusted ranges of requests, and untrusted responses to requests for slices.
//!
//! The input is the fields of a request and of a response, as lines `name:value`, separated by an empty line.
#![no_main]

#[path = "support/heads.rs"]
mod heads;

use edgeward_semantics::slices::{
    FirstAnswer, FirstPart, Slicing, StrongValidator, first_answer, slice_answer,
};
use edgeward_semantics::{ContentRange, Validators};
use http::StatusCode;
use libfuzzer_sys::fuzz_target;

use heads::{halves, head};

const SLICE_BYTES: u64 = 100;

fuzz_target!(|input: &[u8]| {
    let (first, second) = halves(input);
    let (request, response) = (head(first), head(second));
    for slice_bytes in [SLICE_BYTES, 1 << 20] {
        let first = FirstPart::of_first_request(&request, slice_bytes);
        let part = FirstPart::of_request(&request, slice_bytes);
        assert_eq!(first.is_some(), part.is_some());
        for part in first.into_iter().chain(part) {
            let _ = (part.range_value(slice_bytes), part.is_range_of(&request));
        }
    }
    let Some(content) = ContentRange::from_headers(&response) else {
        assert!(matches!(
            first_answer(&response, None, SLICE_BYTES),
            FirstAnswer::Unusable(_)
        ));
        return;
    };
    let part = content.part;
    assert!(part.first <= part.last && part.last < content.complete_length);
    let field = part.content_range(content.complete_length);
    assert_eq!(ContentRange::parse(field.as_bytes()), Some(content));
    let body_length = Some(part.length());
    let answer = first_answer(&response, body_length, SLICE_BYTES);
    let Some(validator) = StrongValidator::of(&Validators::from_headers(&response)) else {
        assert!(matches!(
            answer,
            FirstAnswer::Complete | FirstAnswer::Unusable(_)
        ));
        return;
    };
    let slicing = Slicing {
        complete_length: content.complete_length,
        slice_bytes: SLICE_BYTES,
    };
    let index = slicing.index_of(part.first);
    let status = StatusCode::PARTIAL_CONTENT;
    if let Ok(accepted) = slice_answer(slicing, index, &validator, status, &response, body_length) {
        let bytes = slicing.bytes_of(index);
        assert!(accepted == part && bytes.contains(&part.first) && bytes.contains(&part.last));
    }
});
