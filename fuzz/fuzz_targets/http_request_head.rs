//! The head of a request from a client, and the request's end: no panic, and the end does not depend on how the bytes are cut.
//!
//! Run: `cargo +nightly fuzz run http_request_head`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::request_head(input));
