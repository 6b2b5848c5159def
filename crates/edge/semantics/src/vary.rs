//! `Vary` and the secondary key (RFC 9111 §4.1).

use http::header::{HeaderMap, HeaderName, VARY};

use crate::{list, request_fields};

/// The request fields on which a response depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vary {
    /// The response depends on the URI alone.
    #[default]
    None,
    /// The response depends on these request fields.
    Fields(VaryFields),
    /// The response has `Vary: *`: it depends on more than the request fields, so it is never reused (§4.1).
    Any,
}

impl Vary {
    /// Parses every `Vary` line. An invalid field name is treated as `*`. More than 32 names (with duplicates)
    /// are treated as `*`, too.
    pub fn from_headers(response: &HeaderMap) -> Self {
        let mut names = Vec::new();
        for member in list::members(response, &VARY) {
            match HeaderName::from_bytes(member) {
                // `*` is a valid token, so `HeaderName` accepts it as a field name.
                Ok(name) if name.as_str() != "*" => names.push(name),
                _ => return Self::Any,
            }
            if names.len() > VARY_FIELDS_MAX {
                return Self::Any;
            }
        }
        VaryFields::from_names(names).map_or(Self::None, Self::Fields)
    }
}

/// The request fields that select a response of one URI, in canonical order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VaryFields {
    /// The field names, sorted and without duplicates. There is at least one.
    names: Vec<HeaderName>,
}

impl VaryFields {
    /// Returns the fields in canonical order. Returns `None` if the list is empty, has more than 32 names, or
    /// contains `*`.
    pub fn from_names(mut names: Vec<HeaderName>) -> Option<Self> {
        if names.is_empty()
            || names.len() > VARY_FIELDS_MAX
            || names.iter().any(|name| name.as_str() == "*")
        {
            return None;
        }
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        Some(Self { names })
    }

    /// Returns the field names, sorted and without duplicates.
    pub fn names(&self) -> &[HeaderName] {
        &self.names
    }

    /// Appends the secondary key of a request.
    ///
    /// The key has one line per field: `name:value`, or only the name if the request does not have the field
    /// (§4.1: an absent field matches only an absent field). A value contains no newline and a name no colon,
    /// so different requests have different keys.
    ///
    /// [`request_fields::write_value`] makes the value both for the key and for the forwarded request. In the
    /// key, several lines of a field without a canonical form are separated by a carriage return.
    pub fn write_key(&self, request: &HeaderMap, key: &mut Vec<u8>) {
        for name in &self.names {
            key.extend_from_slice(name.as_str().as_bytes());
            if request.contains_key(name) {
                key.push(b':');
                request_fields::write_value(name, request, key);
            }
            key.push(b'\n');
        }
    }

    /// Returns the secondary key of a request.
    pub fn key(&self, request: &HeaderMap) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.names.len() * 32);
        self.write_key(request, &mut key);
        key
    }

    /// Returns true if two requests select the same response.
    pub fn selects_same(&self, one: &HeaderMap, other: &HeaderMap) -> bool {
        self.key(one) == self.key(other)
    }
}

/// The maximum number of fields by which a response may vary. With more fields, hardly any two requests would
/// select the same response.
const VARY_FIELDS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{ACCEPT_ENCODING, COOKIE, USER_AGENT};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn fields(line: &str) -> VaryFields {
        match Vary::from_headers(&headers(line)) {
            Vary::Fields(fields) => fields,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn field_names_are_collected_sorted_and_once() {
        let vary = fields("vary: User-Agent, accept-encoding,,\nvary: USER-AGENT, Cookie");
        assert_eq!(vary.names(), [ACCEPT_ENCODING, COOKIE, USER_AGENT]);
        assert_eq!(Vary::from_headers(&headers("")), Vary::None);
        assert_eq!(Vary::from_headers(&headers("vary: ")), Vary::None);
        assert_eq!(Vary::from_headers(&headers("vary: ,")), Vary::None);
    }

    /// §4.1: `*` never matches, at any position. An invalid name is treated as `*`.
    #[test]
    fn a_star_at_any_position_matches_no_request() {
        for line in [
            "vary: *",
            "vary: accept, *",
            "vary: *, accept",
            "vary: accept\nvary: *",
            "vary: a b",
            "vary: \"a\"",
        ] {
            assert_eq!(Vary::from_headers(&headers(line)), Vary::Any, "{line}");
        }
    }

    #[test]
    fn a_vary_with_too_many_fields_matches_no_request() {
        let line = |count: usize| {
            let names: Vec<String> = (0..count).map(|n| format!("x-{n}")).collect();
            headers(&format!("vary: {}", names.join(", ")))
        };
        assert!(matches!(
            Vary::from_headers(&line(VARY_FIELDS_MAX)),
            Vary::Fields(_)
        ));
        assert_eq!(Vary::from_headers(&line(VARY_FIELDS_MAX + 1)), Vary::Any);
    }

    /// §4.1. Each row: the Vary field, two requests, and true if they select the same response.
    #[test]
    fn requests_select_the_same_response_only_if_their_fields_are_equivalent() {
        let table = [
            ("x", "", "", true, "absent from both"),
            ("x", "", "x: ", false, "absent is not empty"),
            ("x", "x: 1", "x: 2", false, "another value"),
            (
                "x",
                "x: 1",
                "x: 1\ny: 2",
                true,
                "other fields do not matter",
            ),
            (
                "x",
                "x: a\nx: b",
                "x: a, b",
                false,
                "lines are forwarded separately, and an origin may read only the first",
            ),
            (
                "accept-language",
                "accept-language: d e",
                "accept-language: de",
                false,
                "white space within a member separates",
            ),
            (
                "accept-encoding",
                "accept-encoding: g zip",
                "accept-encoding: gzip",
                false,
                "white space within a coding separates",
            ),
            (
                "accept",
                "accept: a/b;v=B",
                "accept: a/b;v=b",
                false,
                "values of parameters may be case-sensitive",
            ),
            (
                "accept",
                "accept: A/b;V=1;Q=0.5",
                "accept: a/b; v=1 ; q=0.5",
                true,
                "types and parameter names are not case-sensitive",
            ),
            (
                "x",
                "x: a, b",
                "x: a,b",
                false,
                "white space matters if the syntax is not known",
            ),
            (
                "x",
                "x: A",
                "x: a",
                false,
                "case matters if the syntax is not known",
            ),
            (
                "x, y",
                "x: 1",
                "y: 1",
                false,
                "the name of the field matters",
            ),
            (
                "accept-language",
                "accept-language: de, en;q=0.5",
                "accept-language: DE,en; q=0.5",
                true,
                "language ranges",
            ),
            (
                "accept-language",
                "accept-language: de, en",
                "accept-language: en, de",
                false,
                "the order may state a preference",
            ),
            (
                "accept",
                "accept: a/b;x=\"C d\"",
                "accept: a/b;x=\"c d\"",
                false,
                "quoted parameters keep their bytes",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip, br",
                "accept-encoding: br,gzip",
                true,
                "the order has no meaning",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip;q=1.0",
                "accept-encoding: GZIP",
                true,
                "a weight of 1 is the default",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip;q=0.50",
                "accept-encoding: gzip; q=0.5",
                true,
                "trailing zeros",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip;q=0.000",
                "accept-encoding: gzip;q=0",
                true,
                "two forms of a weight of 0",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip;q=0",
                "accept-encoding: gzip",
                false,
                "a weight of 0 differs from 1",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip;q=0.1",
                "accept-encoding: gzip;q=0.01",
                false,
                "another weight",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip;q=10",
                "accept-encoding: gzip",
                false,
                "a weight of 10 is not 1",
            ),
            (
                "accept-encoding",
                "accept-encoding: x-gzip",
                "accept-encoding: gzip",
                true,
                "RFC 9110 §8.4.1.3",
            ),
            (
                "accept-encoding",
                "accept-encoding: x-gzipped",
                "accept-encoding: gzipped",
                false,
                "another name",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip",
                "",
                false,
                "absent from one",
            ),
            (
                "accept-encoding",
                "accept-encoding: gzip, gzip",
                "accept-encoding: gzip",
                true,
                "a repeated coding",
            ),
        ];
        for (vary, one, other, same, why) in table {
            let fields = fields(&format!("vary: {vary}"));
            assert_eq!(
                fields.selects_same(&headers(one), &headers(other)),
                same,
                "{why}"
            );
        }
    }

    #[test]
    fn the_key_has_one_readable_line_per_field() {
        let request = headers("accept-encoding: gzip, br;q=0.9\nx-b: 1\nx-b: 2");
        let key = fields("vary: x-b, accept-encoding, x-a").key(&request);
        assert_eq!(
            String::from_utf8_lossy(&key),
            "accept-encoding:br;q=0.9,gzip\nx-a\nx-b:1\r2\n"
        );
    }

    proptest! {
        /// Two requests that differ in a field without normalisation have different keys.
        #[test]
        fn different_values_make_different_keys(
            one in proptest::collection::vec(proptest::option::of("[ -~]{0,6}"), 3),
            other in proptest::collection::vec(proptest::option::of("[ -~]{0,6}"), 3),
        ) {
            let request = |values: &[Option<String>]| {
                let mut request = HeaderMap::new();
                for (n, value) in values.iter().enumerate() {
                    if let Some(value) = value {
                        let name = HeaderName::try_from(format!("x-{n}")).expect("the field name is valid");
                        request.insert(name, HeaderValue::try_from(value.trim()).expect("visible ASCII"));
                    }
                }
                request
            };
            let (one, other) = (request(&one), request(&other));
            let fields = fields("vary: x-0, x-1, x-2");
            prop_assert_eq!(fields.selects_same(&one, &other), one == other);
        }

        /// The order of the codings does not change the key.
        #[test]
        fn the_order_of_codings_does_not_matter(
            codings in proptest::collection::vec(("(gzip|br|zstd|identity|\\*)", 0_u32..=1000), 0..6),
            rotation in 0_usize..6,
        ) {
            let line = |codings: &[(String, u32)]| {
                let members: Vec<String> = codings
                    .iter()
                    .map(|(name, weight)| format!("{name};q={}.{:03}", weight / 1000, weight % 1000))
                    .collect();
                headers(&format!("accept-encoding: {}", members.join(", ")))
            };
            let mut rotated = codings.clone();
            if !rotated.is_empty() {
                let by = rotation % rotated.len();
                rotated.rotate_left(by);
            }
            prop_assert!(fields("vary: accept-encoding").selects_same(&line(&codings), &line(&rotated)));
        }
    }
}
