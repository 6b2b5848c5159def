//! `Use-As-Dictionary` (RFC 9842 §2.1).

use http::header::{HeaderMap, HeaderValue};
use sfv::{BareItem, Dictionary, ListEntry, Parser, Version};

use super::fields::USE_AS_DICTIONARY;
use super::pattern::MatchPattern;

/// The terms under which a response is a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictionaryTerms {
    /// The URLs for which the dictionary may be used.
    pub pattern: MatchPattern,
    /// The request destinations for which it may be used, such as `script`. Empty for all.
    pub destinations: Box<[Box<str>]>,
    /// The id that the client returns. Empty if the response has none.
    pub id: Box<str>,
}

impl DictionaryTerms {
    /// Parses the field of a response. `origin` and `target` are of its URL, as for [`MatchPattern::parse`].
    ///
    /// Returns `None` without the field, for an invalid field, for another type than `raw`, and for a pattern that the
    /// edge does not understand. Such a response is no dictionary for the edge.
    pub fn from_headers(response: &HeaderMap, origin: &str, target: &str) -> Option<Self> {
        let mut lines = response.get_all(&USE_AS_DICTIONARY).into_iter();
        let mut text = lines.next()?.as_bytes().to_vec();
        for line in lines {
            text.extend_from_slice(b", ");
            text.extend_from_slice(line.as_bytes());
        }
        let parser = Parser::new(&text).with_version(Version::Rfc9651);
        let dictionary: Dictionary = parser.parse().ok()?;
        let item = |key: &str| match dictionary.get(key) {
            None => Some(None),
            Some(ListEntry::Item(item)) => Some(Some(&item.bare_item)),
            Some(ListEntry::InnerList(_)) => None,
        };
        let Some(BareItem::String(pattern)) = item("match")? else {
            return None;
        };
        if pattern.as_str().len() > PATTERN_BYTES_MAX {
            return None;
        }
        let id = match item("id")? {
            None => "",
            Some(BareItem::String(id)) if id.as_str().len() <= ID_BYTES_MAX => id.as_str(),
            Some(_) => return None,
        };
        match item("type")? {
            None => {}
            Some(BareItem::Token(kind)) if kind.as_str() == "raw" => {}
            Some(_) => return None,
        }
        let destinations = match dictionary.get("match-dest") {
            None => Box::default(),
            Some(ListEntry::InnerList(list)) if list.items.len() > DESTINATIONS_MAX => return None,
            Some(ListEntry::InnerList(list)) => list
                .items
                .iter()
                .map(|item| match &item.bare_item {
                    BareItem::String(name) => Some(name.as_str().into()),
                    _ => None,
                })
                .collect::<Option<_>>()?,
            Some(ListEntry::Item(_)) => return None,
        };
        Some(Self {
            pattern: MatchPattern::parse(pattern.as_str(), origin, target)?,
            destinations,
            id: id.into(),
        })
    }
}

/// Returns the value of the field for a pattern. `None` if it has other characters than those of an sf-string.
pub fn terms_value(pattern: &str) -> Option<HeaderValue> {
    let is_text = pattern.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let escaped = pattern.replace('\\', "\\\\").replace('"', "\\\"");
    is_text.then(|| HeaderValue::try_from(format!("match=\"{escaped}\"")).ok())?
}

/// The longest pattern. Each offer is matched with it.
const PATTERN_BYTES_MAX: usize = 1024;

/// The most destinations: Fetch has 22.
const DESTINATIONS_MAX: usize = 32;

/// The longest id (§2.1.3).
pub(super) const ID_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn parse(line: &str) -> Option<DictionaryTerms> {
        let response = headers(&format!("use-as-dictionary: {line}"));
        DictionaryTerms::from_headers(&response, "https://a.example", "/js/app.1.js")
    }

    #[test]
    fn the_terms_have_the_members_of_the_field() {
        let terms = parse(
            "match=\"/js/*\", match-dest=(\"script\" \"style\"), id=\"v1\", type=raw, other=1",
        );
        let terms = terms.expect("a valid field");
        assert!(terms.pattern.matches("/js/a") && !terms.pattern.matches("/a"));
        assert_eq!(*terms.destinations, ["script".into(), "style".into()]);
        assert_eq!(&*terms.id, "v1");
        let terms = parse("match=\"app.*.js\"").expect("a valid field");
        assert_eq!(terms.pattern.to_string(), "/js/app.*.js");
        assert!(terms.destinations.is_empty() && terms.id.is_empty());
    }

    #[test]
    fn an_invalid_field_makes_no_dictionary() {
        let long = format!("match=\"/\", id=\"{}\"", "a".repeat(1025));
        let long_pattern = format!("match=\"/{}\"", "*".repeat(1024));
        let many = format!("match=\"/\", match-dest=({})", "\"\" ".repeat(33));
        for line in [
            "",
            "/js/*",
            "match",
            "match=/js/*",
            "match=(\"/js/*\")",
            "match=\"/js/*\", type=zstd",
            "match=\"/js/*\", type=\"raw\"",
            "match=\"/js/*\", id=7",
            "match=\"/js/*\", match-dest=\"script\"",
            "match=\"/js/*\", match-dest=(script)",
            "match=\"https://b.example/*\"",
            "match=\"/:name\"",
            &long,
            &long_pattern,
            &many,
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
        assert!(parse(&long.replace("\"aa", "\"a")).is_some(), "1024 bytes");
    }

    #[test]
    fn the_edge_parses_the_field_that_it_writes() {
        for pattern in ["/js/app.*.js", "/a\\:b", "/a\"b"] {
            let mut response = HeaderMap::new();
            response.insert(&USE_AS_DICTIONARY, terms_value(pattern).expect("a value"));
            let terms = DictionaryTerms::from_headers(&response, "https://a", "/");
            let expected = MatchPattern::parse(pattern, "https://a", "/");
            assert_eq!(terms.map(|terms| terms.pattern), expected);
        }
        assert_eq!(terms_value("/\n"), None);
    }
}
