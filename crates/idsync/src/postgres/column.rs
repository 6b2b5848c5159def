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
    coded: Coded,
}

/// The encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coded {
    Int2,
    Int4,
    Int8,
    Uuid,
    Text,
    Bytes,
    /// Microseconds since 2000.
    Time,
    /// Microseconds since 2000 in an unknown time zone.
    LocalTime,
}

impl Coded {
    fn is_time(self) -> bool {
        matches!(self, Self::Time | Self::LocalTime)
    }
}

/// Seconds from 1970 to 2000, the zero of PostgreSQL's times.
const YEAR_2000: i64 = 946_684_800;

/// No time zone is further ahead of UTC.
const ZONE_MAX: Duration = Duration::from_secs(14 * 3600);

impl Column {
    /// Returns a column of ids.
    pub(super) fn new(name: &str, of: &Type) -> Result<Self, SourceError> {
        Self::of(name, of, |coded| !coded.is_time())
    }

    /// Returns a column of numbers or times that order changes.
    pub(super) fn number(name: &str, of: &Type) -> Result<Self, SourceError> {
        Self::of(name, of, |coded| {
            coded.is_time() || matches!(coded, Coded::Int2 | Coded::Int4 | Coded::Int8)
        })
    }

    /// The unit of the column's numbers.
    pub(super) fn unit(&self) -> Unit {
        let ahead = match self.coded {
            Coded::Time => Duration::ZERO,
            Coded::LocalTime => ZONE_MAX,
            _ => return Unit::Number,
        };
        Unit::Time {
            per_second: 1_000_000,
            zero: YEAR_2000,
            ahead,
        }
    }

    fn of(name: &str, of: &Type, allowed: impl Fn(Coded) -> bool) -> Result<Self, SourceError> {
        let name = name.to_owned();
        match coded(of).filter(|coded| allowed(*coded)) {
            Some(coded) => Ok(Self { name, coded }),
            None => Err(SourceError::ColumnType {
                column: name,
                type_name: of.name().to_owned(),
            }),
        }
    }

    /// The form of the column's ids.
    pub(super) fn form(&self) -> IdForm {
        match self.coded {
            Coded::Int2 | Coded::Int4 | Coded::Int8 | Coded::Time | Coded::LocalTime => {
                IdForm::Integer
            }
            Coded::Uuid => IdForm::Uuid,
            Coded::Text | Coded::Bytes => IdForm::Text,
        }
    }

    /// Decodes an id.
    pub(super) fn value<'a>(&self, raw: Option<&'a [u8]>) -> Result<Value<'a>, SourceError> {
        let Some(raw) = raw else {
            return Ok(Value::Null);
        };
        Ok(match self.coded {
            Coded::Text => Value::Text(raw),
            Coded::Bytes => Value::Bytes(raw),
            Coded::Uuid => Value::Uuid(raw.try_into().map_err(|_| self.odd(raw))?),
            Coded::Int2 | Coded::Int4 | Coded::Int8 | Coded::Time | Coded::LocalTime => {
                Value::Integer(self.as_number(Some(raw))?)
            }
        })
    }

    /// Decodes a number.
    pub(super) fn as_number(&self, raw: Option<&[u8]>) -> Result<i64, SourceError> {
        let raw = raw.unwrap_or_default();
        let number = match self.coded {
            Coded::Int2 => raw
                .try_into()
                .ok()
                .map(|raw| i16::from_be_bytes(raw).into()),
            Coded::Int4 => raw
                .try_into()
                .ok()
                .map(|raw| i32::from_be_bytes(raw).into()),
            _ => raw.try_into().ok().map(i64::from_be_bytes),
        };
        number.ok_or_else(|| self.odd(raw))
    }

    /// Returns the value as a literal without quotes; `None` for NULL.
    pub(super) fn position(&self, raw: Option<&[u8]>) -> Result<Option<Vec<u8>>, SourceError> {
        let mut room = IdText::default();
        Ok(match self.value(raw)? {
            Value::Null | Value::Other(_) => None,
            Value::Integer(number) => Some(number.to_string().into_bytes()),
            Value::Uuid(uuid) => Some(room.uuid(uuid).to_vec()),
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

    fn odd(&self, raw: &[u8]) -> SourceError {
        SourceError::NotAnId {
            place: "a row".to_owned(),
            column: self.name.clone(),
            what: match raw.len() {
                0 => "NULL is not a number".to_owned(),
                bytes => format!("{bytes} bytes are not a valid {:?}", self.coded),
            },
        }
    }
}

fn coded(of: &Type) -> Option<Coded> {
    Some(match *of {
        Type::INT2 => Coded::Int2,
        Type::INT4 => Coded::Int4,
        Type::INT8 => Coded::Int8,
        Type::UUID => Coded::Uuid,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => Coded::Text,
        Type::BYTEA => Coded::Bytes,
        Type::TIMESTAMPTZ => Coded::Time,
        Type::TIMESTAMP => Coded::LocalTime,
        _ => match of.kind() {
            Kind::Domain(of) => return coded(of),
            Kind::Enum(_) => Coded::Text,
            // An extension type, which has no constant type number: text that ignores case.
            Kind::Simple if of.name() == "citext" => Coded::Text,
            _ => return None,
        },
    })
}

/// The undecoded bytes of a value of any type.
#[derive(Debug)]
pub(super) struct Raw<'a>(pub(super) Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
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
pub(super) struct After<'a> {
    pub(super) column: &'a Column,
    pub(super) number: i64,
}

impl ToSql for After<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.column.coded {
            Coded::Int2 => {
                let number = self.number.clamp(i16::MIN.into(), i16::MAX.into());
                out.put_i16(i16::try_from(number)?);
            }
            Coded::Int4 => {
                let number = self.number.clamp(i32::MIN.into(), i32::MAX.into());
                out.put_i32(i32::try_from(number)?);
            }
            // As a time, the smallest number is `-infinity`.
            _ => out.put_i64(self.number),
        }
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        coded(of).is_some()
    }

    to_sql_checked!();
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_from_their_binary_form() {
        let column = |of| Column::new("id", &of).expect("an id");
        let value = |of, raw| column(of).value(Some(raw)).expect("of its type");
        assert_eq!(value(Type::INT2, &[0xff, 0xfe]), Value::Integer(-2));
        assert_eq!(value(Type::INT4, &[0, 0, 1, 0]), Value::Integer(256));
        let minimum = i64::MIN.to_be_bytes();
        assert_eq!(value(Type::INT8, &minimum), Value::Integer(i64::MIN));
        assert_eq!(value(Type::UUID, &[7; 16]), Value::Uuid([7; 16]));
        assert_eq!(value(Type::VARCHAR, b"a"), Value::Text(b"a"));
        assert_eq!(value(Type::BYTEA, b"a"), Value::Bytes(b"a"));
        assert_eq!(column(Type::TEXT).value(None).expect("NULL"), Value::Null);
        assert!(column(Type::INT4).value(Some(&[0; 3])).is_err());
        assert!(column(Type::UUID).value(Some(&[0; 15])).is_err());
    }

    #[test]
    fn an_unsupported_type_is_named_in_the_error() {
        for of in [Type::FLOAT8, Type::JSONB, Type::NUMERIC, Type::TIMESTAMPTZ] {
            let error = Column::new("price", &of).expect_err("no id");
            assert!(error.to_string().contains(of.name()), "{error}");
        }
        assert!(Column::number("at", &Type::TIMESTAMPTZ).is_ok());
        assert!(Column::number("at", &Type::TEXT).is_err());
    }

    #[test]
    fn a_position_is_the_literal_of_a_value() {
        let literal = |of, raw: &[u8]| {
            let column = Column::new("id", &of).expect("an id");
            let position = column.position(Some(raw)).expect("of its type");
            String::from_utf8(position.expect("not NULL")).expect("text")
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
