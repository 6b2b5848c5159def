//! Parses the head of a client's request and finds the end of the request. No input causes a panic. The end does not
//! depend on the parts in which the bytes arrive.
//!
//! Run: `cargo +nightly fuzz run http_request_head`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::request_head(input));
