//! Targeted fields of responses (RFC 9213): `CDN-Cache-Control` for the caches of all content delivery networks, and
//! `Edgeward-Cache-Control` for edgeward alone.
//!
//! A targeted field is a dictionary (RFC 8941 §3.2). The crate `sfv` parses it strictly: one error makes the whole
//! field invalid, and the next field is used (§2.1). Within a valid field, a directive with a value of the wrong type
//! gets the most restrictive meaning, as in `Cache-Control`.

use http::header::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser, Version};

use super::directives::{Argument, DELTA_SECONDS_MAX, ResponseDirectives};
use super::surrogate::{SURROGATE_CONTROL, X_ACCEL_EXPIRES, surrogate_control, x_accel_expires};

/// The targeted fields that this cache obeys, the preferred field first (RFC 9213 §2.2: the target list).
pub static TARGETED_FIELDS: [HeaderName; 2] = [
    HeaderName::from_static("edgeward-cache-control"),
    HeaderName::from_static("cdn-cache-control"),
];

/// Returns the directives of the first targeted field that is valid and not empty.
pub(super) fn directives(headers: &HeaderMap) -> Option<ResponseDirectives> {
    first_valid(headers).map(|(_, dictionary)| from_dictionary(&dictionary))
}

/// Returns the field that replaces `Cache-Control` and `Expires` of a response, if there is one: a targeted field,
/// `Surrogate-Control` or `X-Accel-Expires`.
pub fn targeted_field(headers: &HeaderMap) -> Option<&'static HeaderName> {
    let targeted = first_valid(headers).map(|(name, _)| name);
    let older = || surrogate_control(headers).map(|_| &SURROGATE_CONTROL);
    let oldest = || x_accel_expires(headers).map(|_| &X_ACCEL_EXPIRES);
    targeted.or_else(older).or_else(oldest)
}

fn first_valid(headers: &HeaderMap) -> Option<(&'static HeaderName, Dictionary)> {
    TARGETED_FIELDS
        .iter()
        .find_map(|name| Some((name, dictionary(headers, name)?)))
}

/// Parses all lines of a field as one dictionary (RFC 8941 §4.2). Returns `None` for an invalid or empty field.
fn dictionary(headers: &HeaderMap, name: &HeaderName) -> Option<Dictionary> {
    let mut lines = headers.get_all(name).into_iter();
    let first = lines.next()?;
    let mut text = first.as_bytes().to_vec();
    for line in lines {
        text.extend_from_slice(b", ");
        text.extend_from_slice(line.as_bytes());
    }
    // RFC 9213 refers to RFC 8941, which has no dates and no display strings.
    let parser = Parser::new(&text).with_version(Version::Rfc8941);
    let dictionary: Dictionary = parser.parse().ok()?;
    (!dictionary.is_empty()).then_some(dictionary)
}

/// Converts each member of the dictionary to a directive. Parameters of members are ignored (§2.1).
fn from_dictionary(dictionary: &Dictionary) -> ResponseDirectives {
    let mut directives = ResponseDirectives {
        is_targeted: true,
        ..ResponseDirectives::default()
    };
    for (name, entry) in dictionary {
        let value = match entry {
            ListEntry::Item(Item { bare_item, .. }) => Some(bare_item),
            ListEntry::InnerList(_) => None,
        };
        let lists_fields = matches!(name.as_str(), "no-cache" | "private");
        let digits;
        let argument = match value {
            Some(BareItem::Boolean(true)) => Argument::Absent,
            Some(BareItem::String(text)) if lists_fields => {
                Argument::Value(text.as_str().as_bytes())
            }
            Some(BareItem::Integer(number)) if !lists_fields => match u64::try_from(*number) {
                Ok(seconds) => {
                    digits = seconds.min(u64::from(DELTA_SECONDS_MAX)).to_string();
                    Argument::Value(digits.as_bytes())
                }
                Err(_) => Argument::Malformed,
            },
            _ => Argument::Malformed,
        };
        directives.add(name.as_str(), argument);
    }
    directives
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, SET_COOKIE};
    use proptest::prelude::*;

    use super::*;
    use crate::cache_control::FieldScope;
    use crate::testing::headers;

    fn from(lines: &str) -> ResponseDirectives {
        ResponseDirectives::from_headers(&headers(lines))
    }

    /// §2.2: the first valid field of the list counts, and `Cache-Control` counts only without such a field.
    #[test]
    fn the_first_valid_targeted_field_replaces_cache_control() {
        let table = [
            ("cdn-cache-control: max-age=2", Some(2), true),
            (
                "edgeward-cache-control: max-age=3\ncdn-cache-control: max-age=2",
                Some(3),
                true,
            ),
            (
                "cdn-cache-control: max-age=2\nedgeward-cache-control: max-age=3",
                Some(3),
                true,
            ),
            (
                "edgeward-cache-control: &\ncdn-cache-control: max-age=2",
                Some(2),
                true,
            ),
            (
                "edgeward-cache-control:\ncdn-cache-control: max-age=2",
                Some(2),
                true,
            ),
            ("cdn-cache-control: public", None, true),
            ("cdn-cache-control:", Some(1), false),
            ("surrogate-cache-control: max-age=2", Some(1), false),
        ];
        for (lines, max_age, is_targeted) in table {
            let directives = from(&format!("cache-control: max-age=1, no-transform\n{lines}"));
            assert_eq!(
                (
                    directives.max_age,
                    directives.is_targeted,
                    directives.no_transform
                ),
                (max_age, is_targeted, !is_targeted),
                "{lines}"
            );
        }
    }

    /// §2.1: a field with an error is ignored as a whole.
    #[test]
    fn a_field_that_is_no_dictionary_is_ignored() {
        for value in [
            "max-age =2",
            "max-age= 2",
            "Max-Age=2",
            "max-age=2,",
            "max-age=2, &&&",
            "max-age=2; no-store",
            "max-age=2 no-store",
            "max-age='2'",
            "max-age=@2",
            "no-cache=\"a",
            "max-age=9999999999999999",
        ] {
            let directives = from(&format!(
                "cdn-cache-control: {value}\ncache-control: max-age=1"
            ));
            let is_valid = value == "max-age=2; no-store"; // a parameter
            assert_eq!(directives.is_targeted, is_valid, "{value}");
        }
    }

    /// RFC 8941 §4.2: several lines are one dictionary, and the last of several values counts.
    #[test]
    fn all_lines_are_one_dictionary_and_the_last_value_counts() {
        let two = from("cdn-cache-control: max-age=2, no-transform\ncdn-cache-control: max-age=3");
        assert_eq!((two.max_age, two.no_transform), (Some(3), true));
        let broken = from("cdn-cache-control: max-age=2\ncdn-cache-control: &");
        assert!(!broken.is_targeted);
    }

    /// §2.1: seconds are integers, flags are true, and lists of fields are strings. Parameters are ignored.
    #[test]
    fn a_value_of_the_wrong_type_gets_the_most_restrictive_reading() {
        for (value, seconds) in [
            ("max-age=60", 60),
            ("max-age=060", 60),
            ("max-age=60;a=1", 60),
            ("max-age=0", 0),
            ("max-age=-1", 0),
            ("max-age=60.5", 0),
            ("max-age=\"60\"", 0),
            ("max-age", 0),
            ("max-age=?0", 0),
            ("max-age=(60)", 0),
            ("max-age=2147483648", DELTA_SECONDS_MAX),
            ("max-age=99999999999", DELTA_SECONDS_MAX),
        ] {
            assert_eq!(
                from(&format!("cdn-cache-control: {value}")).max_age,
                Some(seconds),
                "{value}"
            );
        }
        for value in ["?1", "?0", "1", "x", "()"] {
            let directives = from(&format!(
                "cdn-cache-control: no-store={value}, private={value}, no-cache={value}, public={value}"
            ));
            assert!(directives.no_store, "{value}");
            assert_eq!(directives.private, FieldScope::Whole, "{value}");
            assert_eq!(directives.no_cache, FieldScope::Whole, "{value}");
            assert_eq!(directives.public, value == "?1", "{value}");
        }
        let lists = from("cdn-cache-control: no-cache=\"set-cookie\", private=\"content-type\"");
        assert_eq!(lists.no_cache, FieldScope::Fields(vec![SET_COOKIE]));
        assert_eq!(lists.private, FieldScope::Fields(vec![CONTENT_TYPE]));
    }

    proptest! {
        /// A valid targeted field has the same meaning as `Cache-Control` with the same text.
        #[test]
        fn a_valid_targeted_field_means_what_the_same_cache_control_means(
            members in proptest::sample::subsequence(
                vec![
                    "max-age=5", "s-maxage=6", "no-store", "no-cache", "private", "public", "must-revalidate",
                    "proxy-revalidate", "must-understand", "no-transform", "stale-while-revalidate=7",
                    "stale-if-error=8", "foo=bar", "immutable", "private=\"a, b\"",
                ],
                1..8,
            ).prop_shuffle(),
        ) {
            // In a dictionary, the last of two values counts; in `Cache-Control`, the more restrictive value counts.
            prop_assume!(!(members.contains(&"private") && members.contains(&"private=\"a, b\"")));
            let line = members.join(", ");
            let targeted = from(&format!("cdn-cache-control: {line}\ncache-control: no-store"));
            let mut expected = from(&format!("cache-control: {line}"));
            expected.is_targeted = true;
            prop_assert_eq!(targeted, expected);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(0x20_u8..=0xff, 0..64)) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = http::HeaderValue::from_bytes(&bytes) {
                headers.insert(&TARGETED_FIELDS[0], value);
            }
            let _ = ResponseDirectives::from_headers(&headers);
        }
    }
}
