//! The Huffman code of HPACK (RFC 7541 §5.2 and appendix B).
//!
//! The code is canonical: the codes of one length are consecutive numbers, in the order of their symbols, and follow
//! the codes of the next shorter length. The lengths of the codes therefore define the code.

/// Appends the decoded text to `text`. Returns `None` if `encoded` is invalid: it has the symbol EOS, or padding that
/// is longer than 7 bits or not a prefix of EOS.
pub(super) fn decode(encoded: &[u8], text: &mut Vec<u8>) -> Option<()> {
    // The low `available` bits of `bits` are not decoded yet.
    let (mut bits, mut available) = (0u64, 0u32);
    let mut bytes = encoded.iter();
    loop {
        while available <= u64::BITS - u8::BITS
            && let Some(&byte) = bytes.next()
        {
            bits = bits << u8::BITS | u64::from(byte);
            available += u8::BITS;
        }
        // The next bits, filled with ones at the end of the text as padding is.
        let window = match available.checked_sub(LENGTH_MAX) {
            Some(surplus) => bits >> surplus,
            None => bits << (LENGTH_MAX - available) | ((1 << (LENGTH_MAX - available)) - 1),
        } & WINDOW_MASK;
        let (symbol, length) = DECODER.symbol(window);
        if length > available {
            // Fewer bits remain than the next code has.
            let padding = bits & ((1 << available) - 1);
            return (available < u8::BITS && padding == (1 << available) - 1).then_some(());
        }
        text.push(u8::try_from(symbol).ok()?);
        available -= length;
    }
}

/// The codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    length: u32,
    /// The first window of [`LENGTH_MAX`] bits that begins with a longer code.
    end: u64,
    /// The position of the first symbol in [`Decoder::symbols`], less the first code.
    offset: i64,
}

struct Decoder {
    /// The codes by length, the shortest first.
    codes: [Codes; LENGTHS],
    /// All symbols, in the order of their codes.
    symbols: [u16; SYMBOLS],
}

impl Decoder {
    const fn new() -> Self {
        let none = Codes {
            length: 0,
            end: 0,
            offset: 0,
        };
        let (mut codes, mut symbols) = ([none; LENGTHS], [0; SYMBOLS]);
        let (mut rows, mut sorted) = (0, 0);
        let mut code = 0u64; // the next code, of the current length
        let mut length = 1;
        while length <= LENGTH_MAX {
            let (first, first_code) = (sorted, code);
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if CODE_LENGTHS[symbol] as u32 == length {
                    symbols[sorted] = symbol as u16;
                    sorted += 1;
                    code += 1;
                }
                symbol += 1;
            }
            if sorted > first {
                codes[rows] = Codes {
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
        Self { codes, symbols }
    }

    /// Returns the symbol whose code begins the window, and the length of the code.
    fn symbol(&self, window: u64) -> (u16, u32) {
        let codes = self.codes.iter().find(|codes| window < codes.end);
        let codes = codes.expect("each window begins with a code");
        let code = (window >> (LENGTH_MAX - codes.length)).cast_signed();
        let nth = usize::try_from(code + codes.offset).expect("the code is one of this length");
        (self.symbols[nth], codes.length)
    }
}

static DECODER: Decoder = Decoder::new();

/// The symbols: all bytes, and EOS.
const SYMBOLS: usize = 257;

/// The length of the longest code in bits.
const LENGTH_MAX: u32 = 30;

const WINDOW_MASK: u64 = (1 << LENGTH_MAX) - 1;

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
    use super::*;

    fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(encoded, &mut text).map(|()| text)
    }

    /// Method: encode each byte by the numbers of the code, followed by the padding.
    fn encoded(text: &[u8]) -> Vec<u8> {
        let (mut bits, mut bytes) = (String::new(), Vec::new());
        for &byte in text {
            let nth = DECODER
                .symbols
                .iter()
                .position(|&symbol| symbol == u16::from(byte));
            let nth = i64::try_from(nth.expect("each byte has a code")).expect("a small number");
            let length = u32::from(CODE_LENGTHS[usize::from(byte)]);
            let codes = DECODER.codes.iter().find(|codes| codes.length == length);
            let code = nth - codes.expect("a row of this length").offset;
            bits.push_str(&format!("{code:0width$b}", width = length as usize));
        }
        while bits.len() % 8 != 0 {
            bits.push('1');
        }
        for byte in bits.as_bytes().chunks(8) {
            let byte = std::str::from_utf8(byte).expect("digits");
            bytes.push(u8::from_str_radix(byte, 2).expect("eight digits"));
        }
        bytes
    }

    /// The examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        for (encoded, text) in [
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
            (&[0x64, 0x02], b"302"),
            (
                &[
                    0x9d, 0x29, 0xad, 0x17, 0x18, 0x63, 0xc7, 0x8f, 0x0b, 0x97, 0xc8, 0xe9, 0xae,
                    0x82, 0xae, 0x43, 0xd3,
                ],
                b"https://www.example.com",
            ),
            (&[], b""),
        ] {
            assert_eq!(decoded(encoded).as_deref(), Some(text));
        }
    }

    #[test]
    fn every_byte_is_decoded() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)), Some(all.clone()));
        for byte in all {
            assert_eq!(decoded(&encoded(&[byte])), Some(vec![byte]));
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
}
