//! A chunked body from the origin. No input causes a panic, and the body does not depend on how the bytes are split.
//!
//! Run: `cargo +nightly fuzz run http_chunked_body`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::chunked_body(input));
