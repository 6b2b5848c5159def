//! Detects encrypted protocols. Encrypted bytes never repeat, so they cannot be deduplicated.

/// The protocol of a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StreamProtocol {
    /// Any other protocol, whose bytes may repeat.
    Other,
    /// TLS, whose bytes never repeat.
    Tls,
    /// SSH, whose bytes never repeat.
    Ssh,
}

/// Detects the protocol of a stream by the first five bytes of one direction. With fewer bytes, TLS is not detected.
pub fn detect_protocol(first: &[u8]) -> StreamProtocol {
    match first {
        // A record of SSL 3 to TLS 1.3: a handshake (22), or another type (20 to 23) if a capture began within the
        // connection. A record of TLS 1.3 has at most 2^14 + 256 bytes (RFC 8446, section 5.2), so the upper byte of
        // its length is at most 0x41.
        [20..=23, 3, 0..=4, high, _, ..] if *high <= 0x41 => StreamProtocol::Tls,
        [b'S', b'S', b'H', b'-', ..] => StreamProtocol::Ssh,
        _ => StreamProtocol::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_ssh_are_recognised_by_their_first_five_bytes() {
        for (first, protocol) in [
            (&b"\x16\x03\x01\x02\x00\x01"[..], StreamProtocol::Tls),
            (b"\x17\x03\x03\x41\x00", StreamProtocol::Tls),
            (b"\x16\x03\x01\xff\x00", StreamProtocol::Other),
            (b"\x16\x03\x01", StreamProtocol::Other),
            (b"SSH-2.0-OpenSSH_9.2", StreamProtocol::Ssh),
            (b"GET / HTTP/1.1", StreamProtocol::Other),
            (b"", StreamProtocol::Other),
        ] {
            assert_eq!(detect_protocol(first), protocol, "{first:?}");
        }
    }
}
