//! Values of an id column, and the conversion to the canonical text of an id.
//!
//! The filter hashes the canonical text, which depends on the form of the ids (`edgeward_filter::IdForm`). With the
//! form `uuid`, a UUID column, a text column with UUIDs and blobs of 16 bytes give the same ids. An id in a URL is
//! converted to this text too.

use edgeward_filter::{IdForm, IdText};

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// An integer of up to 64 bits.
    Integer(i64),
    /// The 16 bytes of a UUID.
    Uuid([u8; 16]),
    /// Text in UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A value of a type that is not supported for ids: the name of the type.
    Other(&'static str),
}

impl<'a> Value<'a> {
    /// Returns the canonical text, or the reason why the value is not an id of this form. `buffer` may hold the text.
    pub fn canonical(self, form: IdForm, buffer: &'a mut IdText) -> Result<&'a [u8], String> {
        let canonical = match (self, form) {
            (Self::Null, _) => return Err("NULL is not an id".to_owned()),
            (Self::Other(type_name), _) => return Err(format!("a {type_name} is not an id")),
            (Self::Text([]) | Self::Bytes([]), _) => {
                return Err("an empty value is not an id".to_owned());
            }
            (Self::Integer(number), IdForm::Uuid) => return Err(format!("{number} is not a uuid")),
            (Self::Integer(number), IdForm::Integer | IdForm::Text) => {
                buffer.integer(number.into())
            }
            (Self::Uuid(_), IdForm::Integer) => return Err("a UUID is not an integer".to_owned()),
            (Self::Uuid(uuid), IdForm::Uuid | IdForm::Text) => buffer.uuid(uuid),
            (Self::Bytes(bytes), IdForm::Uuid) if bytes.len() == 16 => {
                let uuid = bytes.try_into().expect("the slice has 16 bytes");
                buffer.uuid(uuid)
            }
            (Self::Text(spelling) | Self::Bytes(spelling), form) => {
                let canonical = form.canonical(spelling, buffer);
                canonical.map_err(|error| error.to_string())?
            }
        };
        if canonical.len() > ID_BYTES_MAX {
            let bytes = canonical.len();
            return Err(format!("{bytes} bytes are too long for an id"));
        }
        Ok(canonical)
    }
}

/// The largest length of an id in bytes. A [`Batch`](crate::batch::Batch) has space for at least 16 ids of this length.
pub(crate) const ID_BYTES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(value: Value<'_>, form: IdForm) -> Result<String, String> {
        let mut buffer = IdText::default();
        let bytes = value.canonical(form, &mut buffer)?;
        Ok(String::from_utf8(bytes.to_vec()).expect("the id is text"))
    }

    #[test]
    fn a_uuid_is_the_same_id_in_every_column_type() {
        let bytes = *b"\x55\x0e\x84\x00\xe2\x9b\x41\xd4\xa7\x16\x44\x66\x55\x44\x00\x00";
        let expected = Ok("550e8400-e29b-41d4-a716-446655440000".to_owned());
        for value in [
            Value::Uuid(bytes),
            Value::Bytes(&bytes),
            Value::Text(b"550E8400-E29B-41D4-A716-446655440000"),
            Value::Bytes(b"550e8400e29b41d4a716446655440000"),
        ] {
            assert_eq!(canonical(value, IdForm::Uuid), expected, "{value:?}");
        }
        assert_eq!(canonical(Value::Uuid(bytes), IdForm::Text), expected);
    }

    #[test]
    fn an_invalid_value_is_refused_with_a_reason() {
        let long = vec![b'a'; ID_BYTES_MAX + 1];
        for (value, form, why) in [
            (Value::Null, IdForm::Text, "NULL is not an id"),
            (
                Value::Text(b""),
                IdForm::Text,
                "an empty value is not an id",
            ),
            (Value::Integer(7), IdForm::Uuid, "7 is not a uuid"),
            (
                Value::Uuid([0; 16]),
                IdForm::Integer,
                "a UUID is not an integer",
            ),
            (Value::Bytes(&[0; 15]), IdForm::Uuid, "is not a valid uuid"),
            (
                Value::Text(b"x"),
                IdForm::Integer,
                "`x` is not a valid integer",
            ),
            (Value::Text(&long), IdForm::Text, "65537 bytes are too long"),
        ] {
            let error = canonical(value, form).expect_err("the id is invalid");
            assert!(error.contains(why), "{error}");
        }
        assert!(canonical(Value::Text(&long[1..]), IdForm::Text).is_ok());
    }

    proptest! {
        /// An integer column and a text column with the same digits give the same id.
        #[test]
        fn integers_and_their_digits_are_the_same_id(number: i64) {
            let digits = number.to_string();
            for form in [IdForm::Integer, IdForm::Text] {
                prop_assert_eq!(canonical(Value::Integer(number), form), Ok(digits.clone()));
                prop_assert_eq!(canonical(Value::Text(digits.as_bytes()), form), Ok(digits.clone()));
            }
        }
    }
}
