//! SHA-256 digests, by which manifests refer to files, and hexadecimal text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use edgeward_types::to_hex;

/// The SHA-256 of a file, written as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the SHA-256 of `bytes`.
    pub fn compute(bytes: &[u8]) -> Self {
        let mut digest = [0; 32];
        digest.copy_from_slice(&Sha256::digest(bytes));
        Self(digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl FromStr for Digest {
    type Err = HexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        from_hex(text).map(Self)
    }
}

impl TryFrom<String> for Digest {
    type Error = HexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Parses exactly `N` bytes in hex digits.
pub fn from_hex<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return Err(HexError { digits: 2 * N });
    }
    let value = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .ok_or(HexError { digits: 2 * N })
    };
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Ok(bytes)
}

/// Parses any number of bytes in hex digits. Returns `None` if the text is not hexadecimal or has an odd
/// length.
pub fn from_hex_any(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((value(*high)? << 4 | value(*low)?) as u8);
    pairs.iter().map(byte).collect()
}

/// The text is not hexadecimal or has the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {digits} hex digits")]
pub struct HexError {
    /// The expected number of digits.
    pub digits: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_survives_formatting_and_parsing() {
        // FIPS 180-4, the example "abc".
        let digest = Digest::compute(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert!(text[1..].parse::<Digest>().is_err());
        assert!(text.replace('b', "g").parse::<Digest>().is_err());
    }
}
