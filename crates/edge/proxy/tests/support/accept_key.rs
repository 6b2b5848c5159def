//! The server's side of the handshake of WebSocket.

/// Returns the `Sec-WebSocket-Accept` for a key (RFC 6455 §4.2.2).
pub(crate) fn accept_of(key: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        text.as_bytes(),
    );
    // The digest has 160 bits, so the last of its 27 digits of 6 bits has two bits that are zero.
    let bit = |n: usize| {
        digest
            .as_ref()
            .get(n / 8)
            .is_some_and(|byte| byte >> (7 - n % 8) & 1 == 1)
    };
    let digit = |n: usize| (0..6).fold(0, |value, b| value << 1 | usize::from(bit(n * 6 + b)));
    let digits = (0..27).map(|n| char::from(DIGITS[digit(n)]));
    digits.chain(['=']).collect()
}
