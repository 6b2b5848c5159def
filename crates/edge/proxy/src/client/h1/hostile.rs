//! Checks the parser of request heads with arbitrary bytes, for the fuzz target `http_request_head`.

use edgeward_semantics::encode_delimiters;

use super::head::{ParsedHead, no_fields, parse};
use super::request_end::EndUncertain;

/// Parses a request head as the fast path does. The fast path serves `Plain` requests, hyper serves `Bounded` ones.
pub fn check_request(bytes: &[u8]) {
    match parse(bytes, &mut no_fields()) {
        ParsedHead::Plain(plain) => {
            assert!(plain.target.starts_with('/') && !plain.target.contains('#'));
            assert!(bytes[..plain.bytes.len()].ends_with(b"\n"));
        }
        ParsedHead::Bounded { head_bytes, scan } => {
            assert!(bytes[..head_bytes].ends_with(b"\n"));
            // The scan finds the same end of the request byte by byte and in all bytes at once.
            let mut bytewise = scan;
            let mut scan_bytewise = || {
                let mut taken = 0;
                for byte in bytes.chunks(1) {
                    match bytewise.advance(byte) {
                        Ok(more) => taken += more,
                        Err(_) => return Err(EndUncertain { valid_bytes: taken }),
                    }
                }
                Ok((taken, bytewise))
            };
            let mut whole = scan;
            let all = whole.advance(bytes).map(|taken| (taken, whole));
            assert_eq!(scan_bytewise(), all);
        }
        ParsedHead::Delimiters((start, length)) => {
            let target = str::from_utf8(&bytes[start..][..length]).expect("httparse checks it");
            assert_ne!(target, encode_delimiters(target));
        }
        ParsedHead::Fragment(_) | ParsedHead::Partial | ParsedHead::Other => {}
    }
}
