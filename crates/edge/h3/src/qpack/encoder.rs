//! Writes field sections that every client can decode.
//!
//! A section without references to a dynamic table is the same for all connections, and its field lines are independent
//! of each other. The section of a stored response can therefore be stored with the response. A field that differs
//! between requests, such as `age`, is appended to a stored section by [`push_field`].

use super::huffman;
use super::integer::push_integer;
use super::static_table::{StaticIndex, find};

/// Begins a field section: a required insert count of 0 and a base of 0 (RFC 9204 §4.5.1).
pub fn begin_section(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends a field line. Names are in lower case. The bytes depend on the arguments alone.
///
/// `is_sensitive` forbids intermediaries to store the value in a table (the bit N, §4.5.4 and §7.1).
pub fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], is_sensitive: bool) {
    let never_indexed = |bit: u8| if is_sensitive { bit } else { 0 };
    match find(name, value) {
        Some(StaticIndex::Field(index)) if !is_sensitive => {
            return push_integer(out, INDEXED_STATIC, 6, index);
        }
        Some(StaticIndex::Field(index) | StaticIndex::Name(index)) => {
            push_integer(
                out,
                NAME_STATIC | never_indexed(NAME_NEVER_INDEXED),
                4,
                index,
            );
        }
        None => push_string(out, LITERAL | never_indexed(LITERAL_NEVER_INDEXED), 3, name),
    }
    push_string(out, 0, 7, value);
}

/// Appends a string (§4.1.2), in the Huffman code if that is shorter. The bit before the prefix is its flag.
fn push_string(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, text: &[u8]) {
    let encoded_bytes = huffman::encoded_bytes(text);
    if encoded_bytes < text.len() {
        push_integer(out, pattern | 1 << prefix_bits, prefix_bits, encoded_bytes);
        huffman::encode(text, out);
    } else {
        push_integer(out, pattern, prefix_bits, text.len());
        out.extend_from_slice(text);
    }
}

/// An indexed field line with a reference to the static table (§4.5.2).
pub(crate) const INDEXED_STATIC: u8 = 0xc0;

/// A literal field line whose name refers to the static table (§4.5.4), and its bit N.
pub(crate) const NAME_STATIC: u8 = 0x50;
const NAME_NEVER_INDEXED: u8 = 0x20;

/// A literal field line with a literal name (§4.5.6), and its bit N.
pub(crate) const LITERAL: u8 = 0x20;
const LITERAL_NEVER_INDEXED: u8 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, value: &str, is_sensitive: bool) -> Vec<u8> {
        let mut out = Vec::new();
        push_field(&mut out, name.as_bytes(), value.as_bytes(), is_sensitive);
        out
    }

    #[test]
    fn a_field_of_the_static_table_is_an_index() {
        assert_eq!(line(":status", "200", false), [0xc0 | 25]);
        assert_eq!(
            line("x-frame-options", "sameorigin", false),
            [0xff, 98 - 63]
        );
    }

    /// RFC 9204, appendix B.1, has this line without the Huffman code.
    #[test]
    fn a_name_of_the_static_table_is_an_index_before_the_value() {
        assert_eq!(line(":path", "/~", false), [0x51, 2, b'/', b'~']);
        assert_eq!(line(":path", "/index", false)[..2], [0x51, 0x80 | 5]);
        assert_eq!(line("server", "~", false), [0x5f, 92 - 15, 1, b'~']);
    }

    #[test]
    fn another_field_is_a_literal_in_the_shorter_form() {
        assert_eq!(line("~", "\u{1}", false), [0x21, b'~', 1, 1]);
        assert_eq!(line("aaa", "", false), [0x28 | 2, 0x18, 0xc7, 0]);
    }

    #[test]
    fn a_sensitive_field_has_the_bit_n_and_no_index_of_its_value() {
        assert_eq!(line(":status", "200", true)[0], 0x70 | 15);
        assert_eq!(line("~", "", true), [0x31, b'~', 0]);
    }
}
