//! The canonical form of ids, and the hash of the canonical form, which every filter uses.
//!
//! The same id has several spellings. A UUID is 16 bytes in the database, 36 lower-case characters in a log and
//! upper-case in a URL. An integer has a column type in the database and digits in a URL. A filter that hashed
//! spellings would answer "absent" for an existing id. The filter therefore hashes the **canonical text** of an
//! id:
//!
//! | id | canonical form |
//! |---|---|
//! | text, bytes | the bytes as they are; no Unicode normalisation, no case folding |
//! | integer | decimal digits, `-` before a negative one, no leading zeros: `42`, `-7`, `0` |
//! | UUID | 36 characters, lower-case, hyphens at 8-4-4-4-12 (RFC 9562, section 4) |
//!
//! An id in a path such as `/resource/{id}` usually is in canonical form already. The filter stores its [`IdForm`],
//! so that a lookup can convert other spellings (upper case, `urn:uuid:…`, `007`) to the canonical form.
//!
//! **A lookup answers "absent" only for text that every origin reads as the same id.** Two kinds of text get no
//! decision ([`IdHasher::hash_query`] fails), and the caller sends the request:
//!
//! - Text that is not an id of the form: ` 7` and `7.0` are not integers, `(550e8400-…)` is not a UUID. An origin may
//!   still find the id in it: PostgreSQL converts ` 7` to 7.
//! - Text from which an origin may remove a part before it looks the id up. This applies to the form `text`, where all
//!   bytes are ids. The text is empty, has a control byte (0 to 31 or 127) or one of `;`, `?`, `#` and `%`, begins or
//!   ends with a space or a slash, or begins with a byte order mark. Examples: `k2;jsessionid=1` is `k2` for a servlet
//!   container, and `k2 ` is `k2` for a column of the type `char(10)`.
//!
//! The hash is XXH3-64 of the canonical form with the filter's seed. The probability that 100 million ids contain
//! two with the same hash is 1 in 3700. A collision can cause the answer "maybe" for an absent id, but
//! never the answer "absent" for an existing one.

use std::fmt;
use std::str::FromStr;

use edgeward_types::xxh3::xxh3_64_with_seed;

/// The hash of an id, which every filter uses: XXH3-64 of its canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdHash(pub u64);

/// The form of the ids of a set, which determines how spellings are converted to the canonical form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IdForm {
    /// Text or bytes: different spellings are different ids.
    #[default]
    Text = 0,
    /// UUIDs in any usual spelling.
    Uuid = 1,
    /// Integers of up to 128 bits.
    Integer = 2,
}

impl IdForm {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Text, Self::Uuid, Self::Integer];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Uuid => "uuid",
            Self::Integer => "integer",
        }
    }

    /// Converts a spelling to the canonical form.
    ///
    /// Fails if the text is not an id of this form. A source that contains other text was probably read from the
    /// wrong column, so the build should fail.
    pub fn canonical<'a>(
        self,
        spelling: &'a [u8],
        buffer: &'a mut IdText,
    ) -> Result<&'a [u8], IdError> {
        let error = || IdError::new(self, spelling);
        match self {
            Self::Text => Ok(spelling),
            Self::Uuid => parse_uuid(spelling)
                .map(|uuid| buffer.uuid(uuid))
                .ok_or_else(error),
            Self::Integer => parse_integer(spelling)
                .map(|number| buffer.integer(number))
                .ok_or_else(error),
        }
    }
}

impl fmt::Display for IdForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IdForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|form| form.name() == text);
        named.ok_or_else(|| format!("`{text}` is not a form of ids; use text, uuid or integer"))
    }
}

/// The hash function of one filter: the form of its ids and a seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdHasher {
    /// The form of the ids.
    pub form: IdForm,
    /// The seed of XXH3. 0 unless the operator wants hashes that outsiders cannot predict.
    pub seed: u64,
}

impl IdHasher {
    /// Returns the hash of an id in its canonical form.
    #[inline]
    pub fn hash_canonical(&self, canonical: &[u8]) -> IdHash {
        IdHash(xxh3_64_with_seed(canonical, self.seed))
    }

    /// Returns the hash of an id in any spelling. Fails if the text is not an id of this form.
    pub fn hash_spelling(&self, spelling: &[u8]) -> Result<IdHash, IdError> {
        let mut buffer = IdText::default();
        Ok(self.hash_canonical(self.form.canonical(spelling, &mut buffer)?))
    }

    /// Returns the hash for a lookup. Fails if the text is not an id that every origin reads alike (see the module
    /// documentation): the lookup must not answer "absent".
    pub fn hash_query(&self, spelling: &[u8]) -> Result<IdHash, IdError> {
        if self.form == IdForm::Text && !is_read_alike(spelling) {
            return Err(IdError::new(self.form, spelling));
        }
        self.hash_spelling(spelling)
    }

    /// Like [`Self::hash_query`], for an id that is given as bytes. With the form `text`, all bytes are the id, and no
    /// origin removes a part of them.
    pub fn hash_query_bytes(&self, id: &[u8]) -> Result<IdHash, IdError> {
        match self.form {
            IdForm::Text => Ok(self.hash_canonical(id)),
            _ => self.hash_query(id),
        }
    }

    /// Returns the hash of an id, or of the bytes as they are if they are not an id of this form.
    pub fn hash_verbatim(&self, spelling: &[u8]) -> IdHash {
        self.hash_spelling(spelling)
            .unwrap_or_else(|_| self.hash_canonical(spelling))
    }

    /// Returns the hash of a UUID given as 16 bytes.
    pub fn hash_uuid(&self, uuid: [u8; 16]) -> IdHash {
        self.hash_canonical(IdText::default().uuid(uuid))
    }

    /// Returns the hash of an integer.
    pub fn hash_integer(&self, number: i128) -> IdHash {
        self.hash_canonical(IdText::default().integer(number))
    }
}

/// A buffer for a canonical form.
#[derive(Clone, Debug)]
pub struct IdText([u8; 40]);

impl Default for IdText {
    fn default() -> Self {
        // i128::MIN has 40 characters, a UUID 36.
        Self([0; 40])
    }
}

impl IdText {
    /// Writes and returns the canonical form of a UUID given as 16 bytes.
    pub fn uuid(&mut self, uuid: [u8; 16]) -> &[u8] {
        let mut at = 0;
        for (n, byte) in uuid.into_iter().enumerate() {
            if matches!(n, 4 | 6 | 8 | 10) {
                self.0[at] = b'-';
                at += 1;
            }
            self.0[at] = HEX[usize::from(byte >> 4)];
            self.0[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        &self.0[..at]
    }

    /// Writes and returns the canonical form of an integer.
    pub fn integer(&mut self, number: i128) -> &[u8] {
        let mut at = self.0.len();
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            self.0[at] = HEX[(rest % 10) as usize];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            self.0[at] = b'-';
        }
        &self.0[at..]
    }
}

/// Parses 32 hex digits, with all four hyphens or none, optionally in braces or after `urn:uuid:`.
fn parse_uuid(spelling: &[u8]) -> Option<[u8; 16]> {
    let mut text = spelling;
    if let Some((head, rest)) = text.split_at_checked(9)
        && head.eq_ignore_ascii_case(b"urn:uuid:")
    {
        text = rest;
    } else if let [b'{', inner @ .., b'}'] = text {
        text = inner;
    }
    let hyphens: &[usize] = match text.len() {
        32 => &[],
        36 => &[8, 13, 18, 23],
        _ => return None,
    };
    let (mut uuid, mut digits) = ([0u8; 16], 0);
    for (at, &byte) in text.iter().enumerate() {
        if hyphens.contains(&at) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = char::from(byte).to_digit(16)? as u8;
        uuid[digits / 2] = uuid[digits / 2] << 4 | digit;
        digits += 1;
    }
    Some(uuid)
}

fn parse_integer(spelling: &[u8]) -> Option<i128> {
    std::str::from_utf8(spelling).ok()?.parse().ok()
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The text is not an id of the form that the set has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{spelling}` is not a valid {form}")]
pub struct IdError {
    /// The expected form.
    pub form: IdForm,
    /// The first 80 bytes of the text.
    pub spelling: String,
}

impl IdError {
    fn new(form: IdForm, spelling: &[u8]) -> Self {
        let spelling = &spelling[..spelling.len().min(80)];
        Self {
            form,
            spelling: String::from_utf8_lossy(spelling).into_owned(),
        }
    }
}

/// Returns false if an origin may remove a part of the text before it looks up the id.
fn is_read_alike(text: &[u8]) -> bool {
    let is_trimmed = |byte: Option<&u8>| matches!(byte, None | Some(b' ' | b'/'));
    !is_trimmed(text.first())
        && !is_trimmed(text.last())
        && !text.starts_with("\u{feff}".as_bytes())
        && !text
            .iter()
            .any(|byte| byte.is_ascii_control() || b";?#%".contains(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: IdHasher = IdHasher {
        form: IdForm::Uuid,
        seed: 0,
    };
    const INTEGER: IdHasher = IdHasher {
        form: IdForm::Integer,
        seed: 0,
    };
    const TEXT: IdHasher = IdHasher {
        form: IdForm::Text,
        seed: 0,
    };

    #[test]
    fn all_spellings_of_a_uuid_have_the_same_hash() {
        let canonical = "550e8400-e29b-41d4-a716-446655440000";
        let expected = TEXT.hash_canonical(canonical.as_bytes());
        for spelling in [
            canonical,
            "550E8400-E29B-41D4-A716-446655440000",
            "550e8400e29b41d4a716446655440000",
            "{550e8400-e29b-41d4-a716-446655440000}",
            "urn:uuid:550E8400-e29b-41d4-a716-446655440000",
        ] {
            assert_eq!(
                UUID.hash_spelling(spelling.as_bytes()),
                Ok(expected),
                "{spelling}"
            );
        }
        let bytes = *b"\x55\x0e\x84\x00\xe2\x9b\x41\xd4\xa7\x16\x44\x66\x55\x44\x00\x00";
        assert_eq!(UUID.hash_uuid(bytes), expected);
    }

    #[test]
    fn text_that_is_not_a_uuid_is_refused_in_builds_and_lookups() {
        for spelling in [
            "",
            "(550e8400-e29b-41d4-a716-446655440000)",
            " 550e8400-e29b-41d4-a716-446655440000",
            "550e8400-e29b-41d4-a716-446655440000;v=1",
            "550e8400-e29b-41d4-a716-44665544000",
            "550e8400-e29b-41d4-a716-4466554400000",
            "550e8400_e29b_41d4_a716_446655440000",
            "550e8400-e29b-41d4-a716-44665544000g",
            "5-0e8400e29b41d4a71644665544000000",
        ] {
            assert!(
                UUID.hash_spelling(spelling.as_bytes()).is_err(),
                "{spelling}"
            );
            assert!(UUID.hash_query(spelling.as_bytes()).is_err(), "{spelling}");
            assert_eq!(
                UUID.hash_verbatim(spelling.as_bytes()),
                TEXT.hash_canonical(spelling.as_bytes())
            );
        }
    }

    /// A lookup is decided only for text from which no origin removes a part. A build takes every text.
    #[test]
    fn a_lookup_of_text_is_decided_only_if_every_origin_reads_it_alike() {
        for (spelling, decided) in [
            ("k2", true),
            ("New York", true),
            ("a/b", true),
            ("r\u{e9}sum\u{e9}", true),
            ("a+b=c&d,e:f@g.h~i", true),
            ("a\u{feff}", true),
            ("", false),
            (" k2", false),
            ("k2 ", false),
            ("k2/", false),
            ("/k2", false),
            ("k2;jsessionid=1", false),
            ("k2?x", false),
            ("k2#x", false),
            ("k%32", false),
            ("k2\t", false),
            ("k\0", false),
            ("k\u{1f}2", false),
            ("k\u{7f}2", false),
            ("\u{feff}k2", false),
        ] {
            let hash = TEXT.hash_query(spelling.as_bytes());
            assert_eq!(hash.is_ok(), decided, "{spelling:?}");
            assert!(TEXT.hash_spelling(spelling.as_bytes()).is_ok());
        }
        assert_eq!(
            TEXT.hash_query_bytes(b"k2 "),
            Ok(TEXT.hash_canonical(b"k2 "))
        );
        assert!(INTEGER.hash_query_bytes(b"7 ").is_err());
        for (spelling, decided) in [("7", true), ("+007", true), (" 7", false), ("7 ", false)] {
            let hash = INTEGER.hash_query(spelling.as_bytes());
            assert_eq!(hash.is_ok(), decided, "{spelling:?}");
        }
    }

    #[test]
    fn integers_lose_their_leading_zeros() {
        for (spelling, canonical) in [("007", "7"), ("+7", "7"), ("-0", "0"), ("-12", "-12")] {
            let expected = TEXT.hash_canonical(canonical.as_bytes());
            assert_eq!(INTEGER.hash_spelling(spelling.as_bytes()), Ok(expected));
        }
        assert!(INTEGER.hash_spelling(b"1.0").is_err());
        assert!(INTEGER.hash_spelling(b"").is_err());
    }

    proptest! {
        /// The canonical form of an integer equals the text that the standard library formats.
        #[test]
        fn integers_are_written_in_decimal(number: i128) {
            let text = number.to_string();
            let mut buffer = IdText::default();
            prop_assert_eq!(buffer.integer(number), text.as_bytes());
            prop_assert_eq!(parse_integer(text.as_bytes()), Some(number));
        }

        #[test]
        fn a_uuid_survives_formatting_and_parsing(uuid: [u8; 16]) {
            let mut buffer = IdText::default();
            prop_assert_eq!(parse_uuid(buffer.uuid(uuid)), Some(uuid));
        }
    }

    #[test]
    fn the_longest_integer_fits_the_buffer() {
        assert_eq!(
            IdText::default().integer(i128::MIN),
            i128::MIN.to_string().as_bytes()
        );
    }
}
