//! `No-Vary-Search`: the query parameters on which a response does not depend
//! (draft-ietf-httpbis-no-vary-search-06).
//!
//! A response with this field answers requests for other URLs of its path, if their queries differ only in parameters
//! that its [`NoVarySearch`] ignores, or only in the order of parameters. A cache compares two queries by the bytes of
//! [`NoVarySearch::write_query`], which are equal exactly if the draft calls the URLs equivalent.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::header::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, InnerList, ListEntry, Parser, Version};

/// The field `No-Vary-Search`.
pub static NO_VARY_SEARCH: HeaderName = HeaderName::from_static("no-vary-search");

/// The rule of one response: a URL variation config (§4) that is not the default one. Under the default one, a response
/// answers only requests for its own URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoVarySearch {
    /// The decoded names of parameters, sorted and without duplicates.
    names: Box<[Box<str>]>,
    /// True if the response depends on the parameters in `names` only (`except`), and false if it depends on all
    /// parameters but those (`params`).
    lists_significant: bool,
    /// True if the order of parameters with different names does not matter (`key-order`).
    ignores_order: bool,
}

impl NoVarySearch {
    /// Parses the field (§5). Returns `None` without the field, for an invalid field, and for a field that changes
    /// nothing.
    ///
    /// In one case the steps of §5.1 contradict the rest of the draft: they ignore a field with neither `params` nor
    /// `except`. The introduction, the examples of §6 and browsers use `key-order` alone, and so does this function.
    pub fn from_headers(response: &HeaderMap) -> Option<Self> {
        let mut lines = response.get_all(&NO_VARY_SEARCH).into_iter();
        let mut text = lines.next()?.as_bytes().to_vec();
        for line in lines {
            text.extend_from_slice(b", ");
            text.extend_from_slice(line.as_bytes());
        }
        let parser = Parser::new(&text).with_version(Version::Rfc9651);
        Self::from_dictionary(&parser.parse().ok()?)
    }

    /// Unknown members are ignored (§3). A known member with a value of the wrong type makes the field invalid.
    fn from_dictionary(dictionary: &Dictionary) -> Option<Self> {
        let ignores_order = match dictionary.get("key-order") {
            None => false,
            Some(ListEntry::Item(item)) => match item.bare_item {
                BareItem::Boolean(ignores) => ignores,
                _ => return None,
            },
            Some(ListEntry::InnerList(_)) => return None,
        };
        let (names, lists_significant) = match (dictionary.get("params"), dictionary.get("except"))
        {
            (Some(ListEntry::InnerList(list)), None) => (strings(list)?, false),
            (None, Some(ListEntry::InnerList(list))) => (strings(list)?, true),
            (None, None) => (Vec::new(), false),
            _ => return None,
        };
        let names = names.iter().map(|name| decode(name.as_bytes())).collect();
        Self::from_names(names, lists_significant, ignores_order)
    }

    /// Returns the rule with these decoded names. Returns `None` if it would change nothing or has more than 256 names.
    pub fn from_names(
        mut names: Vec<String>,
        lists_significant: bool,
        ignores_order: bool,
    ) -> Option<Self> {
        let is_default = names.is_empty() && !lists_significant && !ignores_order;
        if is_default || names.len() > NAMES_MAX {
            return None;
        }
        names.sort_unstable();
        names.dedup();
        Some(Self {
            names: names.into_iter().map(String::into_boxed_str).collect(),
            lists_significant,
            ignores_order,
        })
    }

    /// Returns the decoded names, sorted and without duplicates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Returns true if the response depends on the parameters of [`names`](Self::names) only; false if it depends on
    /// all other parameters.
    pub fn lists_significant(&self) -> bool {
        self.lists_significant
    }

    /// Returns true if the order of parameters with different names does not matter.
    pub fn ignores_order(&self) -> bool {
        self.ignores_order
    }

    /// Appends the canonical form of a URL's query: `?` and the significant parameters, or nothing without significant
    /// parameters. `query` is the part after the `?`, and empty for a URL without `?`.
    ///
    /// Two queries have the same canonical form exactly if the URLs are equivalent (§6). The canonical form is itself a
    /// query that is equivalent to both.
    pub fn write_query(&self, query: &[u8], out: &mut Vec<u8>) {
        let mut pairs: Vec<(Cow<'_, str>, &[u8])> = parameters(query)
            .map(|(name, value)| (decode_part(name), value))
            .filter(|(name, _)| self.is_significant(name))
            .collect();
        if self.ignores_order {
            // The sort is stable: values of one name keep their order.
            pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        for (n, (name, value)) in pairs.iter().enumerate() {
            out.push(if n == 0 { b'?' } else { b'&' });
            encode(name, out);
            out.push(b'=');
            encode(&decode_part(value), out);
        }
    }

    fn is_significant(&self, name: &str) -> bool {
        let is_listed = self
            .names
            .binary_search_by(|listed| (**listed).cmp(name))
            .is_ok();
        is_listed == self.lists_significant
    }

    /// Returns the bytes of memory that the rule takes besides its own size.
    pub fn heap_bytes(&self) -> usize {
        let names = size_of_val(&*self.names);
        names + self.names.iter().map(|name| name.len()).sum::<usize>()
    }
}

/// The value of a field that has this rule.
impl fmt::Display for NoVarySearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ignores_order {
            f.write_str("key-order")?;
        }
        let member = match self.lists_significant {
            true => "except",
            false if self.names.is_empty() => return Ok(()),
            false => "params",
        };
        let separator = if self.ignores_order { ", " } else { "" };
        let names = self.names.iter().map(|name| {
            let mut encoded = Vec::new();
            encode(name, &mut encoded);
            format!("\"{}\"", String::from_utf8_lossy(&encoded))
        });
        let names: Vec<_> = names.collect();
        write!(f, "{separator}{member}=({})", names.join(" "))
    }
}

/// Names of query parameters that an operator lets the cache ignore, for origins that do not send `No-Vary-Search`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredParameters {
    names: Box<[Box<str>]>,
}

/// The reason why a text is not the name of a query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidParameterName(pub String);

impl fmt::Display for InvalidParameterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not the name of a query parameter; write its decoded name, such as utm_source, or a start of names, \
             such as utm_*",
            self.0
        )
    }
}

impl std::error::Error for InvalidParameterName {}

/// Parses decoded names, separated by commas. A `*` at the end of a name stands for any text.
impl FromStr for IgnoredParameters {
    type Err = InvalidParameterName;

    fn from_str(text: &str) -> Result<Self, InvalidParameterName> {
        let names = text.split(',').map(str::trim).map(|name| {
            let fixed = name.strip_suffix('*').unwrap_or(name);
            match fixed.is_empty() || fixed.contains(['*', '&', '=', '%', '+']) {
                true => Err(InvalidParameterName(name.to_owned())),
                false => Ok(name.into()),
            }
        });
        Ok(Self {
            names: names.collect::<Result<_, _>>()?,
        })
    }
}

impl fmt::Display for IgnoredParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))
    }
}

impl IgnoredParameters {
    /// Returns true if no parameter is ignored.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns path and query without the ignored parameters. The other parameters keep their bytes and their order.
    pub fn strip<'t>(&self, path_and_query: &'t str) -> Cow<'t, str> {
        if self.names.is_empty() {
            return Cow::Borrowed(path_and_query);
        }
        let Some((path, query)) = path_and_query.split_once('?') else {
            return Cow::Borrowed(path_and_query);
        };
        let is_ignored = |part: &str| {
            let name = part.split('=').next().unwrap_or_default();
            !part.is_empty() && self.contains(&decode_part(name.as_bytes()))
        };
        if !query.split('&').any(is_ignored) {
            return Cow::Borrowed(path_and_query);
        }
        let mut target = path.to_owned();
        for (n, part) in query
            .split('&')
            .filter(|part| !is_ignored(part))
            .enumerate()
        {
            target.push(if n == 0 { '?' } else { '&' });
            target.push_str(part);
        }
        Cow::Owned(target)
    }

    fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|own| match own.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => **own == *name,
        })
    }
}

/// Returns the strings of an inner list, or `None` if a member is not a string.
fn strings(list: &InnerList) -> Option<Vec<String>> {
    list.items
        .iter()
        .map(|item| match &item.bare_item {
            BareItem::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        })
        .collect()
}

/// Splits a query into names and values that are still encoded (URL Standard, `application/x-www-form-urlencoded`
/// parser).
fn parameters(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query
        .split(|&byte| byte == b'&')
        .filter(|part| !part.is_empty())
        .map(|part| match part.iter().position(|&byte| byte == b'=') {
            Some(at) => (&part[..at], &part[at + 1..]),
            None => (part, &[][..]),
        })
}

/// Like [`decode`], without an allocation for text that is not encoded.
fn decode_part(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(['+', '%']) => Cow::Borrowed(text),
        _ => Cow::Owned(decode(bytes)),
    }
}

/// Decodes `+` and percent-encoding (draft §5.3; URL Standard). Bytes that are not UTF-8 become U+FFFD.
fn decode(bytes: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [byte, after @ ..] = rest {
        rest = after;
        decoded.push(match (byte, after) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => b'%',
            },
            _ => *byte,
        });
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// Encodes a name or a value, so that its bytes contain no separator of a query.
fn encode(text: &str, out: &mut Vec<u8>) {
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'*') {
            out.push(byte);
        } else {
            let digits = b"0123456789ABCDEF";
            let digit = |value: u8| digits[usize::from(value)];
            out.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// The maximum number of names in a rule. With more, a lookup would take longer than it saves. The limit includes
/// duplicates.
const NAMES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::headers;

    fn rule(value: &str) -> Option<NoVarySearch> {
        NoVarySearch::from_headers(&headers(&format!("no-vary-search: {value}")))
    }

    fn canonical(rule: &NoVarySearch, query: &str) -> String {
        let mut out = Vec::new();
        rule.write_query(query.as_bytes(), &mut out);
        String::from_utf8(out).expect("the canonical form is ASCII")
    }

    fn expected(names: &[&str], lists_significant: bool, order: bool) -> Option<NoVarySearch> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        NoVarySearch::from_names(names, lists_significant, order)
    }

    #[test]
    fn a_displayed_rule_is_a_field_with_the_same_rule() {
        let names: [&[&str]; 3] = [&[], &["a"], &["é 気", "a\"b", "c&d=e"]];
        for names in names {
            for (lists_significant, order) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let shown = expected(names, lists_significant, order);
                assert_eq!(
                    shown.as_ref().and_then(|shown| rule(&shown.to_string())),
                    shown
                );
            }
        }
    }

    /// §5.2 and §5.3.
    #[test]
    fn valid_fields_make_rules() {
        let table = [
            ("key-order", expected(&[], false, true)),
            ("key-order=?1", expected(&[], false, true)),
            ("params=(\"a\")", expected(&["a"], false, false)),
            (
                "params=(\"b\" \"a\" \"a\")",
                expected(&["a", "b"], false, false),
            ),
            ("except=(\"x\")", expected(&["x"], true, false)),
            ("except=()", expected(&[], true, false)),
            ("except=(\"x\"), key-order", expected(&["x"], true, true)),
            (
                "params=(\"a\";p=1);q, other=5",
                expected(&["a"], false, false),
            ),
            (
                "params=(\"%C3%A9+%E6%B0%97\")",
                expected(&["é 気"], false, false),
            ),
            (
                "params=(\"%zz%f6%\")",
                expected(&["%zz\u{fffd}%"], false, false),
            ),
            (
                "key-order\nno-vary-search: params=(\"a\")",
                expected(&["a"], false, true),
            ),
        ];
        for (value, expected) in table {
            assert!(expected.is_some(), "{value}");
            assert_eq!(rule(value), expected, "{value}");
        }
    }

    /// §5.2: a field that is invalid, or that changes nothing, makes no rule.
    #[test]
    fn an_invalid_field_makes_no_rule() {
        for value in [
            "",
            "params=()",
            "key-order=?0",
            "unknown",
            "key-order=\"not a boolean\"",
            "key-order=()",
            "key-order=1, params=(\"a\")",
            "params=\"not an inner list\"",
            "params=(not-a-string)",
            "params=?0",
            "params",
            "params, except=(\"x\")",
            "params=(\"a\"), except=(\"x\")",
            "params=(), except=()",
            "except=\"x\"",
            "except=(x)",
            "except",
            "params=(\"a\"",
            "params=(\"a\"),",
            "params=(\"é\")",
        ] {
            assert_eq!(rule(value), None, "{value}");
        }
        assert_eq!(NoVarySearch::from_headers(&headers("")), None);
    }

    #[test]
    fn a_rule_with_too_many_names_is_ignored() {
        let field = |count: usize| {
            let names: Vec<String> = (0..count).map(|n| format!("\"n{n}\"")).collect();
            format!("params=({})", names.join(" "))
        };
        assert!(rule(&field(NAMES_MAX)).is_some());
        assert_eq!(rule(&field(NAMES_MAX + 1)), None);
    }

    /// §6, with the table of §6.1. Each row: the field, two queries, and true if they are equivalent.
    #[test]
    fn queries_are_equivalent_as_in_the_draft() {
        let table = [
            ("key-order", "a=x", "%61=%78", true),
            ("key-order", "a=é", "a=%C3%A9", true),
            ("key-order", "a=%f6", "a=%ef%bf%bd", true),
            ("key-order", "a=x&&&&", "a=x", true),
            ("key-order", "a=", "a", true),
            ("key-order", "a=%20", "a= &", true),
            ("key-order", "a=+", "a= &", true),
            ("key-order", "", "&", true),
            ("key-order", "a=1&b=2", "b=2&a=1", true),
            ("key-order", "a=1&a=2", "a=2&a=1", false),
            ("key-order", "a=1&b=3&a=2", "b=3&a=1&a=2", true),
            ("key-order", "a=1", "a=2", false),
            ("key-order", "a=1%26b=2", "a=1&b=2", false),
            ("key-order", "=1", "1", false),
            ("params=(\"u\")", "u=1&a=2", "a=2&u=9&u", true),
            ("params=(\"u\")", "a=1&b=2", "b=2&a=1", false),
            ("params=(\"u\")", "U=1", "", false),
            ("params=(\"a b\")", "a+b=1", "a%20b=2", true),
            ("params=(\"\")", "=1&a", "a", true),
            ("except=(\"a\")", "a=1&x=2", "y=3&a=1", true),
            ("except=(\"a\")", "a=1", "a=2", false),
            ("except=(\"a\")", "a=1", "", false),
            ("except=()", "a=1", "", true),
        ];
        for (field, one, other, same) in table {
            let rule = rule(field).expect(field);
            assert_eq!(
                canonical(&rule, one) == canonical(&rule, other),
                same,
                "{field}: {one} {other}"
            );
        }
    }

    #[test]
    fn the_canonical_form_of_a_query_is_a_query() {
        let all = rule("key-order").expect("the field is valid");
        assert_eq!(canonical(&all, "b=1%262&a=é"), "?a=%C3%A9&b=1%262");
        assert_eq!(canonical(&all, "&"), "");
    }

    #[test]
    fn an_operator_ignores_parameters_by_name_and_by_start() {
        let ignored: IgnoredParameters = "utm_*,gclid".parse().expect("the names are valid");
        assert_eq!(ignored.to_string(), "utm_*, gclid");
        let table = [
            ("/a", "/a"),
            ("/a?", "/a?"),
            ("/a?x=1", "/a?x=1"),
            ("/a?gclid=1", "/a"),
            ("/a?gclid", "/a"),
            ("/a?gclid2=1", "/a?gclid2=1"),
            ("/a?x=%41&utm_source=1&&y", "/a?x=%41&&y"),
            ("/a?utm%5Fsource=1&b=2&utm_=3", "/a?b=2"),
            ("/a?b=gclid", "/a?b=gclid"),
        ];
        for (target, expected) in table {
            assert_eq!(ignored.strip(target), expected, "{target}");
        }
        assert_eq!(IgnoredParameters::default().strip("/a?gclid"), "/a?gclid");
        for name in ["", "*", "a*b", "a&b", "a=b", "a%41", "a,", "a+b"] {
            assert!(name.parse::<IgnoredParameters>().is_err(), "{name}");
        }
    }

    /// Returns true if two queries are equivalent. Follows the steps of §6 literally, with the parser of the URL
    /// Standard.
    fn is_equivalent(rule: &NoVarySearch, one: &str, other: &str) -> bool {
        let parse = |query: &str| {
            let mut pairs: Vec<(String, String)> = Vec::new();
            for sequence in query.split('&') {
                if sequence.is_empty() {
                    continue;
                }
                let (name, value) = sequence.split_once('=').unwrap_or((sequence, ""));
                let text = |part: &str| {
                    let bytes = part.replace('+', " ").into_bytes();
                    let mut output = Vec::new();
                    let mut at = 0;
                    while at < bytes.len() {
                        let digits = bytes.get(at + 1..at + 3);
                        let digits = digits.filter(|two| two.iter().all(u8::is_ascii_hexdigit));
                        if let Some(two) = digits.filter(|_| bytes[at] == b'%') {
                            let two = std::str::from_utf8(two).expect("the digits are ASCII");
                            output.push(u8::from_str_radix(two, 16).expect("two digits"));
                            at += 3;
                        } else {
                            output.push(bytes[at]);
                            at += 1;
                        }
                    }
                    String::from_utf8_lossy(&output).into_owned()
                };
                pairs.push((text(name), text(value)));
            }
            pairs.retain(|(name, _)| match rule.lists_significant() {
                true => rule.names().any(|listed| listed == name),
                false => !rule.names().any(|listed| listed == name),
            });
            if rule.ignores_order() {
                pairs.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            }
            pairs
        };
        parse(one) == parse(other)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Two queries have the same canonical form exactly if the steps of the draft call them equivalent.
        #[test]
        fn canonical_forms_are_equal_exactly_for_equivalent_queries(
            names in proptest::collection::vec("[ab+é]{0,2}", 0..4),
            lists_significant: bool,
            ignores_order: bool,
            one in "([ab]|%61|%6|\\+| |é|%c3%a9|%ff|=|&|&){0,10}",
            other in "([ab]|%61|%6|\\+| |é|%c3%a9|%ff|=|&|&){0,10}",
            rotation in 0_usize..4,
        ) {
            let rule = NoVarySearch::from_names(names, lists_significant, ignores_order);
            let Some(rule) = rule else { return Ok(()) };
            let mut rotated: Vec<&str> = one.split('&').collect();
            let by = rotation % rotated.len();
            rotated.rotate_left(by);
            for other in [other, rotated.join("&"), canonical(&rule, &one).trim_start_matches('?').to_owned()] {
                prop_assert_eq!(
                    canonical(&rule, &one) == canonical(&rule, &other),
                    is_equivalent(&rule, &one, &other),
                    "{:?} {} {}", rule, one, other
                );
            }
        }

        /// The canonical form of a canonical form is the same form.
        #[test]
        fn a_canonical_query_is_a_fixed_point(
            field in "key-order|params=\\(\"a\"\\)|except=\\(\"a\" \"b\"\\)",
            query in "[ -~]{0,20}",
        ) {
            let rule = rule(&field).expect("the field is valid");
            let form = canonical(&rule, &query);
            prop_assert_eq!(canonical(&rule, form.trim_start_matches('?')), form);
        }
    }
}
