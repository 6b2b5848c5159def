//! Builds message heads from arbitrary bytes.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Returns the bytes before the first empty line, and the bytes after it.
pub fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.windows(2).position(|pair| pair == b"\n\n") {
        Some(at) => (&bytes[..at], &bytes[at + 2..]),
        None => (bytes, b""),
    }
}

/// Returns the header fields in the first 64 lines. Lines that are not valid as `name:value` are skipped.
pub fn head(lines: &[u8]) -> HeaderMap {
    let mut head = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n').take(64) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(&line[colon + 1..]),
        ) {
            head.append(name, value);
        }
    }
    head
}
