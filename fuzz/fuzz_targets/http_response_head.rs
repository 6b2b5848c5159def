//! The head of a response from the origin. The fast parser, which keeps the head as lines, and the parser with
//! a header map find the same end of the head.
//!
//! Run: `cargo +nightly fuzz run http_response_head`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edgeward_proxy::hostile::response_head(input));
