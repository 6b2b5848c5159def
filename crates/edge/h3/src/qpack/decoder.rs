//! Reads field sections without a dynamic table, within limits.

use super::encoder::{INDEXED_STATIC, LITERAL, NAME_STATIC};
use super::huffman;
use super::integer::read_integer;
use super::static_table::FIELDS;
use crate::error::{ConnectionError, Error, ErrorCode, StreamError};

/// Limits of a field section after decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionLimits {
    /// Bytes of names and values, and 32 more for each field (RFC 9114 §4.2.2). The server states this number in its
    /// settings. The default is 64 KiB, as for heads of other protocols: cookies of 16 KiB occur.
    pub bytes_max: usize,
    /// The number of field lines. The default is 100, as for heads of other protocols.
    pub fields_max: usize,
}

impl Default for SectionLimits {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 10,
            fields_max: 100,
        }
    }
}

/// A field line. Its text is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLine<'s> {
    /// The name. It may have capitals, and bytes that no name has.
    pub name: &'s [u8],
    /// The value. It may have bytes that no value has.
    pub value: &'s [u8],
    /// True if no intermediary may store the value in a table (the bit N, RFC 9204 §4.5.4).
    pub is_sensitive: bool,
}

/// The field lines of an encoded section that are not read yet.
#[derive(Debug)]
pub struct FieldSection<'a> {
    rest: &'a [u8],
    limits: SectionLimits,
    bytes: usize,
    fields: usize,
    /// The decoded strings of the current line: its name, if that is a literal, and its value.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> FieldSection<'a> {
    /// Reads the prefix of a section (RFC 9204 §4.5.1). Any reference to a dynamic table is an error of the connection,
    /// because the capacity of the table is 0.
    pub fn new(section: &'a [u8], limits: SectionLimits) -> Result<Self, ConnectionError> {
        let (insert_count, rest) = read_integer(section, 8).ok_or(INVALID)?;
        if insert_count != 0 {
            return Err(DYNAMIC);
        }
        // With a required insert count of 0, a negative delta makes the base negative. Other bases are not used.
        let is_negative = rest.first().ok_or(INVALID)? & 0x80 != 0;
        let (_, rest) = read_integer(rest, 7).ok_or(INVALID)?;
        if is_negative {
            return Err(INVALID);
        }
        Ok(Self {
            rest,
            limits,
            bytes: 0,
            fields: 0,
            name: Vec::new(),
            value: Vec::new(),
        })
    }

    /// Reads the next line; `None` at the end. A section that exceeds a limit is an error of the stream. The following
    /// lines are then not decoded.
    pub fn next_line(&mut self) -> Result<Option<FieldLine<'_>>, Error> {
        let Some(&first) = self.rest.first() else {
            return Ok(None);
        };
        let (mut static_name, mut static_value) = (None, None);
        let is_sensitive;
        if first & INDEXED_STATIC == INDEXED_STATIC {
            let (name, value) = self.static_field(6)?;
            (static_name, static_value) = (Some(name), Some(value));
            is_sensitive = false;
        } else if first & 0xd0 == NAME_STATIC {
            static_name = Some(self.static_field(4)?.0);
            is_sensitive = first & 0x20 != 0;
        } else if first & 0xe0 == LITERAL {
            self.rest = read_string(self.rest, 3, &mut self.name)?;
            is_sensitive = first & 0x10 != 0;
        } else {
            // Indices of a dynamic table, before or after the base (§4.5.2 to §4.5.5).
            return Err(DYNAMIC.into());
        }
        if static_value.is_none() {
            self.rest = read_string(self.rest, 7, &mut self.value)?;
        }
        let line = FieldLine {
            name: static_name.map_or(&self.name, str::as_bytes),
            value: static_value.map_or(&self.value, str::as_bytes),
            is_sensitive,
        };
        self.bytes += line.name.len() + line.value.len() + FIELD_OVERHEAD_BYTES;
        self.fields += 1;
        if self.bytes > self.limits.bytes_max {
            return Err(StreamError::too_large("a field section has too many bytes").into());
        }
        if self.fields > self.limits.fields_max {
            return Err(StreamError::too_large("a field section has too many fields").into());
        }
        Ok(Some(line))
    }

    /// Reads the index of a field of the static table.
    fn static_field(&mut self, prefix_bits: u32) -> Result<(&'static str, &'static str), Error> {
        let (index, rest) = read_integer(self.rest, prefix_bits).ok_or(INVALID)?;
        self.rest = rest;
        let field = usize::try_from(index)
            .ok()
            .and_then(|index| FIELDS.get(index));
        Ok(*field.ok_or(INVALID)?)
    }
}

/// Reads a string (§4.1.2) into `text`. Returns the bytes after it.
fn read_string<'a>(
    bytes: &'a [u8],
    prefix_bits: u32,
    text: &mut Vec<u8>,
) -> Result<&'a [u8], ConnectionError> {
    let is_encoded = bytes.first().ok_or(INVALID)? & (1 << prefix_bits) != 0;
    let (length, rest) = read_integer(bytes, prefix_bits).ok_or(INVALID)?;
    let length = usize::try_from(length).map_err(|_| INVALID)?;
    let (string, rest) = rest.split_at_checked(length).ok_or(INVALID)?;
    text.clear();
    if is_encoded {
        huffman::decode(string, text).ok_or(INVALID)?;
    } else {
        text.extend_from_slice(string);
    }
    Ok(rest)
}

/// The size of a field besides its text, in the limit of a section (RFC 9114 §4.2.2).
pub const FIELD_OVERHEAD_BYTES: usize = 32;

const INVALID: ConnectionError = ConnectionError::new(
    ErrorCode::QPACK_DECOMPRESSION_FAILED,
    "a field section is not valid QPACK",
);

const DYNAMIC: ConnectionError = ConnectionError::new(
    ErrorCode::QPACK_DECOMPRESSION_FAILED,
    "a field section refers to the dynamic table, whose capacity is 0",
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::encoder::{begin_section, push_field};
    use super::*;

    type Fields = Vec<(Vec<u8>, Vec<u8>, bool)>;

    fn decoded(section: &[u8], limits: SectionLimits) -> Result<Fields, Error> {
        let mut section = FieldSection::new(section, limits)?;
        let mut fields = Vec::new();
        while let Some(line) = section.next_line()? {
            fields.push((line.name.to_vec(), line.value.to_vec(), line.is_sensitive));
        }
        Ok(fields)
    }

    fn field(name: &str, value: &str) -> (Vec<u8>, Vec<u8>, bool) {
        (name.into(), value.into(), false)
    }

    /// RFC 9204, appendix B.1: the example that uses the static table alone.
    #[test]
    fn the_static_example_of_the_standard_is_decoded() {
        let section = *b"\x00\x00\x51\x0b/index.html";
        let fields = decoded(&section, SectionLimits::default());
        assert_eq!(fields, Ok(vec![field(":path", "/index.html")]));
    }

    /// The sections of RFC 9204, appendix B.2 to B.5, and each representation with a dynamic index.
    #[test]
    fn a_reference_to_the_dynamic_table_is_an_error_of_the_connection() {
        for section in [
            &[0x03, 0x81, 0x10, 0x11][..],
            &[0x05, 0x00, 0x80, 0xc1, 0x81],
            &[0x00, 0x00, 0x80],
            &[0x00, 0x00, 0x10],
            &[0x00, 0x00, 0x40, 0x00],
            &[0x00, 0x00, 0x00, 0x00],
        ] {
            assert_eq!(
                decoded(section, SectionLimits::default()),
                Err(DYNAMIC.into()),
                "{section:x?}"
            );
        }
    }

    #[test]
    fn an_invalid_section_is_an_error_of_the_connection() {
        for section in [
            &[][..],
            &[0x00],
            &[0x00, 0x80],                   // a negative base
            &[0x00, 0x00, 0xff, 99 - 63],    // an index beyond the static table
            &[0x00, 0x00, 0x5f, 99 - 15, 0], // a name beyond it
            &[0x00, 0x00, 0xff],             // an integer without its end
            &[0x00, 0x00, 0x51],             // no value
            &[0x00, 0x00, 0x51, 0x02, b'/'], // a value without its end
            &[0x00, 0x00, 0x51, 0x81, 0x1e], // padding that is no prefix of EOS
            &[0x00, 0x00, 0x21],             // no name
        ] {
            assert_eq!(
                decoded(section, SectionLimits::default()),
                Err(INVALID.into()),
                "{section:x?}"
            );
        }
        assert_eq!(
            decoded(&[0x00, 0x7f, 0x01], SectionLimits::default()),
            Ok(vec![])
        );
    }

    /// RFC 9114 §4.2.2. Method: sections on both sides of each limit.
    #[test]
    fn limits_count_names_values_and_32_bytes_for_each_field() {
        let mut section = Vec::new();
        begin_section(&mut section);
        push_field(&mut section, b":method", b"GET", false); // 7 + 3 + 32
        push_field(&mut section, b"x-y", b"value", false); // 3 + 5 + 32
        let limits = |bytes_max, fields_max| SectionLimits {
            bytes_max,
            fields_max,
        };
        assert_eq!(
            decoded(&section, limits(82, 2)).map(|fields| fields.len()),
            Ok(2)
        );
        for limits in [limits(81, 2), limits(82, 1)] {
            let error = decoded(&section, limits).expect_err("a limit is exceeded");
            let Error::Stream(error) = error else {
                panic!("{error} ends the connection");
            };
            assert_eq!(error.status.map(|status| status.as_u16()), Some(431));
        }
    }

    proptest! {
        /// Method: fields of any bytes, half of the names and values from the static table.
        #[test]
        fn an_encoded_section_is_decoded_to_its_fields(fields in prop::collection::vec(any_field(), 0..20)) {
            let mut section = Vec::new();
            begin_section(&mut section);
            for (name, value, is_sensitive) in &fields {
                push_field(&mut section, name, value, *is_sensitive);
            }
            prop_assert_eq!(decoded(&section, SectionLimits::default()), Ok(fields));
        }

        #[test]
        fn bytes_are_decoded_or_refused(section in prop::collection::vec(any::<u8>(), 0..60)) {
            let limits = SectionLimits { bytes_max: 200, fields_max: 4 };
            if let Ok(fields) = decoded(&section, limits) {
                prop_assert!(fields.len() <= 4);
            }
        }
    }

    fn any_field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, bool)> {
        let text = || prop::collection::vec(any::<u8>(), 0..20);
        let indices = (0..FIELDS.len(), 0..FIELDS.len());
        let known = indices.prop_map(|(a, b)| (FIELDS[a].0.into(), FIELDS[b].1.into()));
        let indexed = (0..FIELDS.len()).prop_map(|index| FIELDS[index]);
        let indexed = indexed.prop_map(|(name, value)| (name.into(), value.into()));
        (prop_oneof![(text(), text()), known, indexed], any::<bool>())
            .prop_map(|((name, value), is_sensitive)| (name, value, is_sensitive))
    }
}
