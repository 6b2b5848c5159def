//! The head of a client's request and the end of the request. No input causes a panic, and the end does not depend on
//! how the bytes are split.
//!
//! Run: `cargo +nightly fuzz run http_request_head`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::request_head(input));
