//! The Huffman code of HPACK and QPACK (RFC 7541 §5.2 and appendix B).
//!
//! The code is canonical: the codes of one length are consecutive numbers, in the order of their symbols, and follow
//! the codes of the next shorter length. The lengths of the codes therefore define the code, and all tables below are
//! made from them at compile time.

/// Returns the number of bytes of the encoded text.
pub(crate) fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text
        .iter()
        .map(|&byte| usize::from(CODE_LENGTHS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Appends the encoded text, which has [`encoded_bytes`] bytes.
pub(crate) fn encode(text: &[u8], out: &mut Vec<u8>) {
    // The low `pending` bits of `bits` are not written yet: fewer than 8 before each code, so 38 at most.
    let (mut bits, mut pending) = (0u64, 0u32);
    for &byte in text {
        let length = u32::from(CODE_LENGTHS[usize::from(byte)]);
        bits = bits << length | u64::from(TABLES.codes[usize::from(byte)]);
        pending += length;
        while pending >= 8 {
            pending -= 8;
            out.push((bits >> pending & 0xff) as u8);
        }
    }
    if pending > 0 {
        // The padding is a prefix of EOS, which consists of ones.
        out.push((bits << (8 - pending) & 0xff) as u8 | (0xff >> pending));
    }
}

/// Appends the decoded text of a string of HPACK or QPACK to `text`. Returns `None` if `encoded` is invalid: it has the
/// symbol EOS, or padding that is longer than 7 bits or not a prefix of EOS.
pub fn decode(encoded: &[u8], text: &mut Vec<u8>) -> Option<()> {
    text.reserve(8 * encoded.len() / LENGTH_MIN);
    // The high `available` bits of `bits` are not decoded yet. The others are zeros.
    let (mut bits, mut available) = (0u64, 0u32);
    let (words, rest) = encoded.as_chunks::<4>();
    for word in words {
        // Fewer than 30 bits are left over.
        bits |= u64::from(u32::from_be_bytes(*word)) << (32 - available);
        available += 32;
        while available >= LENGTH_MAX {
            let (symbol, length) = TABLES.symbol(bits);
            text.push(u8::try_from(symbol).ok()?);
            bits <<= length;
            available -= length;
        }
    }
    for &byte in rest {
        bits |= u64::from(byte) << (56 - available);
        available += 8;
    }
    loop {
        // Ones follow the last bits, as padding does.
        let (symbol, length) = TABLES.symbol(bits | u64::MAX >> available);
        if length > available {
            // Fewer bits remain than the next code has: they must be padding.
            return (available < 8 && bits.leading_ones() == available).then_some(());
        }
        text.push(u8::try_from(symbol).ok()?);
        bits <<= length;
        available -= length;
    }
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    length: u32,
    /// The first window of [`LENGTH_MAX`] bits that begins with a longer code.
    end: u64,
    /// The position of the first symbol in [`Tables::symbols`], less the first code.
    offset: i64,
}

struct Tables {
    /// The code of each byte.
    codes: [u32; BYTES],
    /// The codes by length, the shortest first.
    lengths: [Codes; LENGTHS],
    /// All symbols, in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// The symbol and the length of the code that begins with these eight bits. The length is 0 for longer codes.
    short: [(u8, u8); 256],
}

impl Tables {
    const fn new() -> Self {
        let none = Codes {
            length: 0,
            end: 0,
            offset: 0,
        };
        let (mut codes, mut lengths, mut symbols) = ([0; BYTES], [none; LENGTHS], [0; SYMBOLS]);
        let mut short = [(0, 0); 256];
        let (mut rows, mut sorted) = (0, 0);
        let mut code = 0u64; // the next code, of the current length
        let mut length = 1;
        while length <= LENGTH_MAX {
            let (first, first_code) = (sorted, code);
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if CODE_LENGTHS[symbol] as u32 == length {
                    symbols[sorted] = symbol as u16;
                    if symbol < BYTES {
                        codes[symbol] = code as u32;
                    }
                    if length <= SHORT_BITS {
                        let mut row = (code << (SHORT_BITS - length)) as usize;
                        let end = ((code + 1) << (SHORT_BITS - length)) as usize;
                        while row < end {
                            short[row] = (symbol as u8, length as u8);
                            row += 1;
                        }
                    }
                    sorted += 1;
                    code += 1;
                }
                symbol += 1;
            }
            if sorted > first {
                lengths[rows] = Codes {
                    length,
                    end: code << (LENGTH_MAX - length),
                    offset: first as i64 - first_code as i64,
                };
                rows += 1;
            }
            code <<= 1;
            length += 1;
        }
        assert!(rows == LENGTHS && sorted == SYMBOLS);
        assert!(code == 2 << LENGTH_MAX, "each window begins with a code");
        Self {
            codes,
            lengths,
            symbols,
            short,
        }
    }

    /// Returns the symbol whose code begins these bits, and the length of the code.
    #[inline]
    fn symbol(&self, bits: u64) -> (u16, u32) {
        let (symbol, length) = self.short[(bits >> (u64::BITS - SHORT_BITS)) as usize];
        match length {
            0 => self.long_symbol(bits >> (u64::BITS - LENGTH_MAX)),
            _ => (u16::from(symbol), u32::from(length)),
        }
    }

    /// Like [`symbol`](Self::symbol), for codes of any length.
    fn long_symbol(&self, window: u64) -> (u16, u32) {
        let codes = self.lengths.iter().find(|codes| window < codes.end);
        let codes = codes.expect("each window begins with a code");
        let code = (window >> (LENGTH_MAX - codes.length)).cast_signed();
        let nth = usize::try_from(code + codes.offset).expect("the code is one of this length");
        (self.symbols[nth], codes.length)
    }
}

static TABLES: Tables = Tables::new();

/// The bytes, which are the first symbols.
const BYTES: usize = 256;

/// The symbols: all bytes, and EOS.
const SYMBOLS: usize = BYTES + 1;

/// The lengths of the shortest and the longest code in bits.
const LENGTH_MIN: usize = 5;
const LENGTH_MAX: u32 = 30;

/// The bits that select a row of [`Tables::short`]. Codes of text have 5 to 8 bits.
const SHORT_BITS: u32 = 8;

/// The number of different lengths of codes.
const LENGTHS: usize = 21;

/// The length of each symbol's code in bits. The last symbol is EOS.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_bytes(text));
        out
    }

    fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(encoded, &mut text).map(|()| text)
    }

    /// The examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_standard_are_encoded_and_decoded() {
        for (code, text) in [
            (
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
                &b"www.example.com"[..],
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], b"no-cache"),
            (
                &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f],
                b"custom-key",
            ),
            (
                &[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf],
                b"custom-value",
            ),
            (&[0x64, 0x02], b"302"),
            (&[0x64, 0x0e, 0xff], b"307"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], b"private"),
            (&[0x9b, 0xd9, 0xab], b"gzip"),
            (
                &[
                    0x9d, 0x29, 0xad, 0x17, 0x18, 0x63, 0xc7, 0x8f, 0x0b, 0x97, 0xc8, 0xe9, 0xae,
                    0x82, 0xae, 0x43, 0xd3,
                ],
                b"https://www.example.com",
            ),
            (&[], b""),
        ] {
            assert_eq!(encoded(text), code);
            assert_eq!(decoded(code).as_deref(), Some(text));
        }
    }

    #[test]
    fn every_byte_is_encoded_and_decoded() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)), Some(all.clone()));
        for byte in all {
            assert_eq!(
                decoded(&encoded(&[byte, b'a', byte])),
                Some(vec![byte, b'a', byte])
            );
        }
    }

    #[test]
    fn padding_is_a_prefix_of_eos_below_eight_bits() {
        assert_eq!(decoded(&[0x1f]), Some(b"a".to_vec())); // 00011 and three ones
        assert_eq!(decoded(&[0x1e]), None);
        assert_eq!(decoded(&[0x1f, 0xff]), None);
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None); // EOS
    }

    proptest! {
        #[test]
        fn each_text_has_one_code(text in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decoded(&encoded(&text)), Some(text));
        }

        #[test]
        fn decoded_bytes_are_encoded_to_the_same_bytes(code in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Some(text) = decoded(&code) {
                prop_assert_eq!(encoded(&text), code);
            }
        }
    }
}
