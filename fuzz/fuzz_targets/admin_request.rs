//! A request to the admin server: target, `Authorization` and body. Any bytes are refused or allowed without a panic,
//! and no request gets an action beyond the roles of its token.
//!
//! Run: `cargo +nightly fuzz run admin_request`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::admin_request(input));
