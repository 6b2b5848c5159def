//! What a direction begins with, as far as it decides whether looking at its bytes is of use.

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Speech {
    /// Bytes that may repeat.
    Plain,
    /// TLS: every byte differs each time.
    Tls,
    /// SSH, likewise.
    Ssh,
}

/// Tells from the first bytes of one direction. Five decide; fewer are plain until there are more.
pub fn recognise(beginning: &[u8]) -> Speech {
    match beginning {
        // A handshake record (22) or, in a connection taken up, any other (20 to 23), of SSL 3 to TLS 1.3, with a length that a
        // record can have (RFC 8446, section 5.1: 2^14 and what encryption adds).
        [20..=23, 3, 0..=4, high, _, ..] if *high <= 0x41 => Speech::Tls,
        [b'S', b'S', b'H', b'-', ..] => Speech::Ssh,
        _ => Speech::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encrypted_is_told_by_its_beginning() {
        for (beginning, speech) in [
            (&b"\x16\x03\x01\x02\x00\x01"[..], Speech::Tls),
            (b"\x17\x03\x03\x41\x00", Speech::Tls),
            (b"\x16\x03\x01\xff\x00", Speech::Plain),
            (b"\x16\x03\x01", Speech::Plain),
            (b"SSH-2.0-OpenSSH_9.2", Speech::Ssh),
            (b"GET / HTTP/1.1", Speech::Plain),
            (b"", Speech::Plain),
        ] {
            assert_eq!(recognise(beginning), speech, "{beginning:?}");
        }
    }
}
