//! Integers with a prefix, as HPACK and QPACK have them (RFC 7541 §5.1, RFC 9204 §4.1.1).

/// Reads the integer whose first byte has a prefix of `prefix_bits` bits. Returns its value and the bytes after it;
/// `None` if bytes are missing, or if the value has more than 62 bits.
pub(crate) fn read_integer(bytes: &[u8], prefix_bits: u32) -> Option<(u64, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mask = (1u64 << prefix_bits) - 1;
    let mut value = u64::from(first) & mask;
    if value < mask {
        return Some((value, rest));
    }
    // Nine bytes of seven bits each: 63 bits. A value with more leading zeros is not accepted.
    for shift in (0..63).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        value += u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (value < 1 << 62).then_some((value, rest));
        }
    }
    None
}

/// Appends an integer. `pattern` has the bits before the prefix of at most 8 bits.
pub(crate) fn push_integer(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        return out.push(pattern | value as u8);
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 7541, appendix C.1.
    #[test]
    fn the_examples_of_the_standard_are_read_and_written() {
        for (pattern, prefix_bits, value, bytes) in [
            (0xe0, 5, 10, &[0xea][..]),
            (0xe0, 5, 1337, &[0xff, 0x9a, 0x0a]),
            (0x00, 8, 42, &[0x2a]),
        ] {
            assert_eq!(
                read_integer(bytes, prefix_bits),
                Some((value as u64, &[][..]))
            );
            let mut out = Vec::new();
            push_integer(&mut out, pattern, prefix_bits, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn a_value_above_62_bits_is_refused() {
        let mut bytes = vec![0x7f];
        bytes.extend([0xff; 8]);
        bytes.push(0x3f);
        assert_eq!(read_integer(&bytes, 7), None);
        // 2^62 - 1 is the prefix and 2^62 - 128, whose lowest seven bits are zero.
        bytes[1] = 0x80;
        assert_eq!(read_integer(&bytes, 7), Some(((1 << 62) - 1, &[][..])));
        assert_eq!(
            read_integer(
                &[
                    0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0
                ],
                7
            ),
            None
        );
    }

    proptest! {
        #[test]
        fn a_written_integer_is_read_again(
            value in 0usize..1 << 62,
            shift in 0u32..62,
            prefix_bits in 3u32..9,
        ) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            push_integer(&mut bytes, 0, prefix_bits, value);
            prop_assert_eq!(read_integer(&bytes, prefix_bits), Some((value as u64, &[][..])));
            prop_assert_eq!(read_integer(&bytes[..bytes.len() - 1], prefix_bits), None);
        }
    }
}
