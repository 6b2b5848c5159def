//! A question to the admin server about a URL: any bytes are rejected or become a canonical request without a panic.
//!
//! Run: `cargo +nightly fuzz run inspect_request`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::inspect_request(input));
