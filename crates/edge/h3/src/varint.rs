//! Integers of variable length (RFC 9000 §16): the two high bits of the first byte state the length.

use bytes::{Buf as _, Bytes};

/// The largest value, 62 bits.
pub(crate) const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads the integer at the start of `bytes`. Returns the value and its length; `None` if bytes are missing.
pub(crate) fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = encoded_length(*bytes.first()?);
    let mut value = u64::from(bytes[0] & 0x3f);
    for &byte in bytes.get(1..length)? {
        value = value << 8 | u64::from(byte);
    }
    Some((value, length))
}

/// Appends the shortest form of a value.
///
/// # Panics
///
/// If the value is above [`VARINT_MAX`].
pub(crate) fn push_varint(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let (length, tag) = match value {
        0..0x40 => (1, 0x00),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    assert!(value <= VARINT_MAX, "{value} has more than 62 bits");
    let start = out.len();
    out.extend_from_slice(&bytes[8 - length..]);
    out[start] |= tag;
}

/// Reads an integer whose bytes arrive in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VarintReader {
    bytes: [u8; 8],
    length: usize,
}

impl VarintReader {
    /// Takes bytes from `input`. Returns the value when the last byte arrives, and can then read the next integer.
    pub(crate) fn read(&mut self, input: &mut Bytes) -> Option<u64> {
        while let Some(&byte) = input.first() {
            input.advance(1);
            self.bytes[self.length] = byte;
            self.length += 1;
            if self.length == encoded_length(self.bytes[0]) {
                let value = read_varint(&self.bytes[..self.length]);
                self.length = 0;
                return value.map(|(value, _)| value);
            }
        }
        None
    }

    /// Returns true if no byte of an incomplete integer was read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Returns the length of the integer with this first byte.
const fn encoded_length(first: u8) -> usize {
    1 << (first >> 6)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9000, appendix A.1.
    #[test]
    fn the_examples_of_the_standard_are_read() {
        for (bytes, value) in [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(read_varint(bytes), Some((value, bytes.len())));
            for length in 0..bytes.len() {
                assert_eq!(read_varint(&bytes[..length]), None);
            }
        }
    }

    #[test]
    fn the_shortest_form_is_written_on_both_sides_of_each_boundary() {
        for (value, length) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 4),
            ((1 << 30) - 1, 4),
            (1 << 30, 8),
            (VARINT_MAX, 8),
        ] {
            let mut out = vec![0xff];
            push_varint(&mut out, value);
            assert_eq!(out.len(), 1 + length, "{value}");
            assert_eq!(read_varint(&out[1..]), Some((value, length)));
        }
    }

    #[test]
    #[should_panic(expected = "more than 62 bits")]
    fn a_value_of_63_bits_is_refused() {
        push_varint(&mut Vec::new(), VARINT_MAX + 1);
    }

    proptest! {
        #[test]
        fn integers_in_pieces_equal_integers_at_once(
            values in prop::collection::vec((0..=VARINT_MAX, 0u32..62), 1..8),
            piece in 1usize..5,
        ) {
            let values: Vec<u64> = values.iter().map(|(value, shift)| value >> shift).collect();
            let mut bytes = Vec::new();
            values.iter().for_each(|&value| push_varint(&mut bytes, value));
            let (mut reader, mut read) = (VarintReader::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                let mut piece = Bytes::copy_from_slice(piece);
                while let Some(value) = reader.read(&mut piece) {
                    read.push(value);
                }
            }
            prop_assert!(reader.is_empty());
            prop_assert_eq!(read, values);
        }
    }
}
