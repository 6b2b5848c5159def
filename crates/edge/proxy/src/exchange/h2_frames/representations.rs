//! Parses and writes the integers and strings of header blocks (RFC 7541 §5), and counts their fields (§6).

/// Returns the number of fields in a header block, up to a malformed field: hyper's decoder stops there.
pub(super) fn count_block_fields(mut block: &[u8]) -> usize {
    let mut fields = 0;
    while let Some(&first) = block.first() {
        let rest = match first {
            0x80.. => parse_integer(block, 7).map(|(_, rest)| rest),
            0x20..0x40 => {
                // An update of the dynamic table's size is not a field.
                match parse_integer(block, 5) {
                    Some((_, rest)) => block = rest,
                    None => return fields,
                }
                continue;
            }
            0x40..0x80 => parse_integer(block, 6).and_then(skip_literal),
            _ => parse_integer(block, 4).and_then(skip_literal),
        };
        fields += 1;
        match rest {
            Some(rest) => block = rest,
            None => return fields,
        }
    }
    fields
}

/// Skips the strings of a literal field: its name, unless the name is in a table, and its value.
fn skip_literal((name, rest): (usize, &[u8])) -> Option<&[u8]> {
    let rest = if name == 0 { skip_string(rest)? } else { rest };
    skip_string(rest)
}

pub(super) fn skip_string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = parse_integer(bytes, 7)?;
    rest.get(length..)
}

/// Parses an integer (RFC 7541 §5.1). Returns its value and the bytes after the integer.
pub(super) fn parse_integer(bytes: &[u8], prefix_bits: u32) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mask = (1usize << prefix_bits) - 1;
    let mut value = usize::from(first) & mask;
    if value < mask {
        return Some((value, rest));
    }
    for shift in (0..usize::BITS - 8).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        value = value.checked_add(usize::from(byte & 0x7f) << shift)?;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Appends a string (RFC 7541 §5.2) of `length` equal bytes.
pub(super) fn push_text(out: &mut Vec<u8>, byte: u8, length: usize) {
    push_integer(out, 0, 7, length);
    out.resize(out.len() + length, byte);
}

/// Appends an integer (RFC 7541 §5.1). `pattern` has the bits before the prefix.
pub(super) fn push_integer(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    let low_bits = |value: usize| u8::try_from(value & 0x7f).expect("seven bits");
    if value < mask {
        return out.push(pattern | low_bits(value));
    }
    out.push(pattern | low_bits(mask));
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(0x80 | low_bits(rest));
        rest >>= 7;
    }
    out.push(low_bits(rest));
}
