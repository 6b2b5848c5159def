//! PostgreSQL's binary encodings of ids and numbers.

use std::error::Error;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use edgeward_filter::{IdForm, IdText};
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::changes::Unit;
use crate::error::SourceError;
use crate::value::Value;

/// A column of a supported type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    encoding: Encoding,
}

/// The encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Int2,
    Int4,
    Int8,
    Uuid,
    Text,
    /// `char(n)`: the server pads a value with spaces, and ignores them when it compares values.
    PaddedText,
    /// `citext`: the server ignores case when it compares values.
    TextWithoutCase,
    Bytes,
    /// Microseconds since 2000.
    Time,
    /// Microseconds since 2000 in an unknown time zone.
    LocalTime,
}

impl Encoding {
    fn is_time(self) -> bool {
        matches!(self, Self::Time | Self::LocalTime)
    }
}

/// The start of the year 2000 in seconds after 1970. PostgreSQL counts times from it.
const YEAR_2000: i64 = 946_684_800;

/// The largest offset of a time zone that is ahead of UTC.
const ZONE_MAX: Duration = Duration::from_secs(14 * 3600);

impl Column {
    /// Returns a column of ids.
    pub(super) fn new(name: &str, column_type: &Type) -> Result<Self, SourceError> {
        Self::with_type(name, column_type, |encoding| !encoding.is_time())
    }

    /// Returns a column whose numbers or times determine the order of changes.
    pub(super) fn number(name: &str, column_type: &Type) -> Result<Self, SourceError> {
        Self::with_type(name, column_type, |encoding| {
            encoding.is_time()
                || matches!(encoding, Encoding::Int2 | Encoding::Int4 | Encoding::Int8)
        })
    }

    /// Returns the unit of the column's numbers.
    pub(super) fn unit(&self) -> Unit {
        let ahead = match self.encoding {
            Encoding::Time => Duration::ZERO,
            Encoding::LocalTime => ZONE_MAX,
            _ => return Unit::Number,
        };
        Unit::Time {
            per_second: 1_000_000,
            zero: YEAR_2000,
            ahead,
        }
    }

    fn with_type(
        name: &str,
        column_type: &Type,
        allowed: impl Fn(Encoding) -> bool,
    ) -> Result<Self, SourceError> {
        let name = name.to_owned();
        match encoding(column_type).filter(|encoding| allowed(*encoding)) {
            Some(encoding) => Ok(Self { name, encoding }),
            None => Err(SourceError::ColumnType {
                column: name,
                type_name: column_type.name().to_owned(),
            }),
        }
    }

    /// Returns the form of the column's ids.
    pub(super) fn form(&self) -> IdForm {
        match self.encoding {
            Encoding::Int2
            | Encoding::Int4
            | Encoding::Int8
            | Encoding::Time
            | Encoding::LocalTime => IdForm::Integer,
            Encoding::Uuid => IdForm::Uuid,
            Encoding::Text | Encoding::PaddedText | Encoding::TextWithoutCase | Encoding::Bytes => {
                IdForm::Text
            }
        }
    }

    /// Returns true if the server equates ids that differ in case.
    pub(super) fn ignores_case(&self) -> bool {
        self.encoding == Encoding::TextWithoutCase
    }

    /// Decodes an id.
    pub(super) fn value<'a>(&self, raw: Option<&'a [u8]>) -> Result<Value<'a>, SourceError> {
        let Some(raw) = raw else {
            return Ok(Value::Null);
        };
        Ok(match self.encoding {
            Encoding::Text | Encoding::TextWithoutCase => Value::Text(raw),
            Encoding::PaddedText => {
                let padding = raw.iter().rev().take_while(|byte| **byte == b' ').count();
                Value::Text(&raw[..raw.len() - padding])
            }
            Encoding::Bytes => Value::Bytes(raw),
            Encoding::Uuid => Value::Uuid(raw.try_into().map_err(|_| self.invalid(raw))?),
            Encoding::Int2
            | Encoding::Int4
            | Encoding::Int8
            | Encoding::Time
            | Encoding::LocalTime => Value::Integer(self.as_number(Some(raw))?),
        })
    }

    /// Decodes a number or a time. NULL is an error.
    pub(super) fn as_number(&self, raw: Option<&[u8]>) -> Result<i64, SourceError> {
        let raw = raw.unwrap_or_default();
        let number = match self.encoding {
            Encoding::Int2 => raw
                .try_into()
                .ok()
                .map(|raw| i16::from_be_bytes(raw).into()),
            Encoding::Int4 => raw
                .try_into()
                .ok()
                .map(|raw| i32::from_be_bytes(raw).into()),
            _ => raw.try_into().ok().map(i64::from_be_bytes),
        };
        number.ok_or_else(|| self.invalid(raw))
    }

    /// Returns the value as the text of an SQL literal without quotes, or `None` for NULL. If a scan in the
    /// order of the ids is resumed, it begins at this value.
    pub(super) fn position(&self, raw: Option<&[u8]>) -> Result<Option<Vec<u8>>, SourceError> {
        let mut buffer = IdText::default();
        Ok(match self.value(raw)? {
            Value::Null | Value::Other(_) => None,
            Value::Integer(number) => Some(number.to_string().into_bytes()),
            Value::Uuid(uuid) => Some(buffer.uuid(uuid).to_vec()),
            Value::Text(text) => Some(text.to_vec()),
            Value::Bytes(bytes) => {
                let mut literal = b"\\x".to_vec();
                for byte in bytes {
                    literal.push(HEX[usize::from(byte >> 4)]);
                    literal.push(HEX[usize::from(byte & 15)]);
                }
                Some(literal)
            }
        })
    }

    fn invalid(&self, raw: &[u8]) -> SourceError {
        SourceError::NotAnId {
            row: "a row".to_owned(),
            column: self.name.clone(),
            what: match raw.len() {
                0 => "NULL is not a number".to_owned(),
                bytes => format!("{bytes} bytes are not a valid {:?}", self.encoding),
            },
        }
    }
}

fn encoding(column_type: &Type) -> Option<Encoding> {
    Some(match *column_type {
        Type::INT2 => Encoding::Int2,
        Type::INT4 => Encoding::Int4,
        Type::INT8 => Encoding::Int8,
        Type::UUID => Encoding::Uuid,
        Type::TEXT | Type::VARCHAR | Type::NAME => Encoding::Text,
        Type::BPCHAR => Encoding::PaddedText,
        Type::BYTEA => Encoding::Bytes,
        Type::TIMESTAMPTZ => Encoding::Time,
        Type::TIMESTAMP => Encoding::LocalTime,
        _ => match column_type.kind() {
            Kind::Domain(base) => return encoding(base),
            Kind::Enum(_) => Encoding::Text,
            // The type number of `citext` varies, because an extension defines the type.
            Kind::Simple if column_type.name() == "citext" => Encoding::TextWithoutCase,
            _ => return None,
        },
    })
}

/// The undecoded bytes of a value of any type.
#[derive(Debug)]
pub(super) struct RawValue<'a>(pub(super) Option<&'a [u8]>);

impl<'a> FromSql<'a> for RawValue<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The parameter of a changes query: a number, encoded with the width of the parameter's type.
#[derive(Debug)]
pub(super) struct AfterParameter<'a> {
    /// Has the encoding of the parameter.
    pub(super) parameter: &'a Column,
    /// The query returns only rows with a larger number or time.
    pub(super) number: i64,
}

impl ToSql for AfterParameter<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // A number outside the range of the type becomes the smallest or the largest number of the type.
        match self.parameter.encoding {
            Encoding::Int2 => {
                let number = self.number.clamp(i16::MIN.into(), i16::MAX.into());
                out.put_i16(i16::try_from(number)?);
            }
            Encoding::Int4 => {
                let number = self.number.clamp(i32::MIN.into(), i32::MAX.into());
                out.put_i32(i32::try_from(number)?);
            }
            // If the parameter is a time, PostgreSQL reads `i64::MIN` as `-infinity`.
            _ => out.put_i64(self.number),
        }
        Ok(IsNull::No)
    }

    fn accepts(column_type: &Type) -> bool {
        encoding(column_type).is_some()
    }

    to_sql_checked!();
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_from_their_binary_form() {
        let column = |column_type| Column::new("id", &column_type).expect("the column has ids");
        let value = |column_type, raw| {
            column(column_type)
                .value(Some(raw))
                .expect("the value has the type of the column")
        };
        assert_eq!(value(Type::INT2, &[0xff, 0xfe]), Value::Integer(-2));
        assert_eq!(value(Type::INT4, &[0, 0, 1, 0]), Value::Integer(256));
        let minimum = i64::MIN.to_be_bytes();
        assert_eq!(value(Type::INT8, &minimum), Value::Integer(i64::MIN));
        assert_eq!(value(Type::UUID, &[7; 16]), Value::Uuid([7; 16]));
        assert_eq!(value(Type::VARCHAR, b"a"), Value::Text(b"a"));
        assert_eq!(value(Type::VARCHAR, b"a "), Value::Text(b"a "));
        assert_eq!(value(Type::BPCHAR, b" a b  "), Value::Text(b" a b"));
        assert_eq!(value(Type::BYTEA, b"a"), Value::Bytes(b"a"));
        assert_eq!(
            column(Type::TEXT).value(None).expect("the value is NULL"),
            Value::Null
        );
        assert!(column(Type::INT4).value(Some(&[0; 3])).is_err());
        assert!(column(Type::UUID).value(Some(&[0; 15])).is_err());
    }

    #[test]
    fn an_unsupported_type_is_named_in_the_error() {
        for column_type in [Type::FLOAT8, Type::JSONB, Type::NUMERIC, Type::TIMESTAMPTZ] {
            let error = Column::new("price", &column_type).expect_err("the value is not an id");
            assert!(error.to_string().contains(column_type.name()), "{error}");
        }
        assert!(Column::number("at", &Type::TIMESTAMPTZ).is_ok());
        assert!(Column::number("at", &Type::TEXT).is_err());
    }

    #[test]
    fn a_position_is_the_literal_of_a_value() {
        let literal = |column_type, raw: &[u8]| {
            let column = Column::new("id", &column_type).expect("the column has ids");
            let position = column
                .position(Some(raw))
                .expect("the value has the type of the column");
            String::from_utf8(position.expect("the value is not NULL")).expect("the id is text")
        };
        assert_eq!(literal(Type::INT4, &(-7i32).to_be_bytes()), "-7");
        assert_eq!(literal(Type::BYTEA, &[0, 0xab]), "\\x00ab");
        assert_eq!(literal(Type::TEXT, b"it's"), "it's");
        assert_eq!(
            literal(Type::UUID, &[0x11; 16]),
            "11111111-1111-1111-1111-111111111111"
        );
    }
}
