//! Validators of a representation (RFC 9110 §8.8) and their comparison.

use edgeward_types::Timestamp;
use http::header::{DATE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED};

use crate::date::{date_field, parse_http_date};

/// The validators of a response, parsed from its head when the response is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The `ETag`, if it is valid.
    pub etag: Option<EntityTag>,
    /// `Last-Modified` with the bytes that the origin sent, because origins compare it as text.
    pub last_modified: Option<HeaderValue>,
    /// The time of `last_modified`, or `None` if it is not a valid date.
    pub last_modified_time: Option<Timestamp>,
    /// The time of `Date`. If `Last-Modified` is missing, `If-Modified-Since` is compared with it (RFC 9111 §4.3.2).
    pub date: Option<Timestamp>,
}

impl Validators {
    /// Parses the validators of a response.
    pub fn from_headers(response: &HeaderMap) -> Self {
        let last_modified = response.get(LAST_MODIFIED).cloned();
        Self {
            etag: response.get(ETAG).and_then(EntityTag::new),
            last_modified_time: last_modified
                .as_ref()
                .and_then(|value| parse_http_date(value.as_bytes())),
            last_modified,
            date: date_field(response, &DATE),
        }
    }

    /// Returns true if the response can be validated: it has an entity tag or a valid `Last-Modified`.
    pub fn can_validate(&self) -> bool {
        self.etag.is_some() || self.last_modified_time.is_some()
    }

    /// Returns true if `Last-Modified` is a strong validator, that is, at least one second older than `Date`
    /// (§8.8.2.2). A representation that changes twice in one second has the same `Last-Modified` after both
    /// changes.
    pub fn last_modified_is_strong(&self) -> bool {
        match (self.last_modified_time, self.date) {
            (Some(modified), Some(date)) => modified.as_secs() < date.as_secs(),
            _ => false,
        }
    }
}

/// An entity tag (RFC 9110 §8.8.3), cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityTag {
    /// The field value as received: `"…"` or `W/"…"`.
    value: HeaderValue,
}

impl EntityTag {
    /// Parses an `ETag` value. Returns `None` if the value does not match the grammar.
    pub fn new(value: &HeaderValue) -> Option<Self> {
        let (tag, rest) = TagRef::parse(value.as_bytes())?;
        (rest.is_empty() && !tag.opaque.is_empty()).then(|| Self {
            value: value.clone(),
        })
    }

    /// Returns the field value as received.
    pub fn value(&self) -> &HeaderValue {
        &self.value
    }

    /// Returns true if the tag starts with `W/`.
    pub fn is_weak(&self) -> bool {
        self.as_ref().weak
    }

    /// Returns true if the tags are equal and neither is weak (§8.8.3.2).
    pub fn strong_eq(&self, other: &Self) -> bool {
        self.as_ref().strong_eq(other.as_ref())
    }

    /// Returns true if the tags are equal, weak or not (§8.8.3.2).
    pub fn weak_eq(&self, other: &Self) -> bool {
        self.as_ref().weak_eq(other.as_ref())
    }

    pub(crate) fn as_ref(&self) -> TagRef<'_> {
        match TagRef::parse(self.value.as_bytes()) {
            Some((tag, _)) => tag,
            None => unreachable!("only values that parse become entity tags"),
        }
    }
}

/// An entity tag within a header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagRef<'a> {
    pub(crate) weak: bool,
    /// The opaque tag with its quotes, never empty.
    pub(crate) opaque: &'a [u8],
}

impl<'a> TagRef<'a> {
    /// Parses the tag at the start of `bytes` and returns the remaining bytes too.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        // §8.8.3: `W/` is case-sensitive.
        let (weak, quoted) = match bytes.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, bytes),
        };
        let inside = quoted.strip_prefix(b"\"")?;
        let close = inside.iter().position(|&byte| !is_etag_byte(byte))?;
        if inside[close] != b'"' {
            return None;
        }
        let (opaque, rest) = quoted.split_at(close + 2);
        Some((Self { weak, opaque }, rest))
    }

    pub(crate) fn strong_eq(self, other: TagRef<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    pub(crate) fn weak_eq(self, other: TagRef<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// Returns true for `etagc` of §8.8.3. A backslash is an ordinary byte. Space is not in the grammar, but
/// origins use it, and it is harmless between quotes.
const fn is_etag_byte(byte: u8) -> bool {
    matches!(byte, b' ' | 0x21 | 0x23..=0x7e | 0x80..=0xff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn tag(text: &'static str) -> EntityTag {
        EntityTag::new(&HeaderValue::from_static(text)).expect(text)
    }

    /// The rows are the table of RFC 9110 §8.8.3.2.
    #[test]
    fn strong_and_weak_comparison_differ_as_in_the_rfc() {
        for (left, right, strong, weak) in [
            (r#"W/"1""#, r#"W/"1""#, false, true),
            (r#"W/"1""#, r#"W/"2""#, false, false),
            (r#"W/"1""#, r#""1""#, false, true),
            (r#""1""#, r#""1""#, true, true),
        ] {
            assert_eq!(tag(left).strong_eq(&tag(right)), strong, "{left} {right}");
            assert_eq!(tag(left).weak_eq(&tag(right)), weak, "{left} {right}");
            assert_eq!(tag(right).strong_eq(&tag(left)), strong, "{right} {left}");
        }
    }

    #[test]
    fn text_outside_the_grammar_is_not_a_tag() {
        for text in [
            "", "a", "\"", "\"a", "a\"", "w/\"a\"", "W/a", "W/ \"a\"", "\"a\"b", "\"a\" ", "*",
        ] {
            assert_eq!(
                EntityTag::new(&HeaderValue::from_static(text)),
                None,
                "{text}"
            );
        }
        assert!(!tag("\"\"").is_weak());
        assert!(tag("W/\"\\\"").is_weak());
    }

    #[test]
    fn last_modified_is_strong_only_if_a_second_older_than_date() {
        let strong = |modified: &str, date: &str| {
            let lines = format!("last-modified: {modified}\ndate: {date}");
            Validators::from_headers(&headers(&lines)).last_modified_is_strong()
        };
        let (second_37, second_38) = (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:38 GMT",
        );
        assert!(strong(second_37, second_38));
        assert!(!strong(second_37, second_37));
        assert!(!strong(second_38, second_37));
        assert!(!strong(second_37, "never"));
    }

    #[test]
    fn an_invalid_last_modified_cannot_validate() {
        assert!(!Validators::from_headers(&headers("last-modified: yesterday")).can_validate());
        assert!(!Validators::from_headers(&headers("etag: unquoted")).can_validate());
        assert!(Validators::from_headers(&headers("etag: \"a\"")).can_validate());
        assert!(
            Validators::from_headers(&headers("last-modified: Sun, 06 Nov 1994 08:49:37 GMT"))
                .can_validate()
        );
    }
}
