//! A chunked body from the origin: no panic, and the same body however its bytes are cut.
//!
//! Run: `cargo +nightly fuzz run http_chunked_body`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::chunked_body(input));
