//! Parses untrusted request heads, for the fuzz target.

use super::head::{ParsedHead, no_fields, parse};

/// Parses a request's head as the fast path does, and scans for the end of the request.
pub fn check_request(bytes: &[u8]) {
    match parse(bytes, &mut no_fields()) {
        ParsedHead::Plain(plain) => {
            assert!(plain.target.starts_with('/') && !plain.target.contains('#'));
            assert!(bytes[..plain.bytes.len()].ends_with(b"\n"));
        }
        ParsedHead::Bounded { head_bytes, end } => {
            assert!(bytes[..head_bytes].ends_with(b"\n"));
            // The end does not depend on how the bytes are split.
            let mut by_one = end;
            let mut one_by_one = || {
                let mut taken = 0;
                for byte in bytes.chunks(1) {
                    taken += by_one.take(byte)?;
                }
                Ok((taken, by_one))
            };
            let mut at_once = end;
            let all = at_once.take(bytes).map(|taken| (taken, at_once));
            assert_eq!(one_by_one(), all);
        }
        ParsedHead::Fragment(_) | ParsedHead::Partial | ParsedHead::Other => {}
    }
}
