//! Compression dictionaries (RFC 9842): a client that stores one response gets another one as a delta.
//!
//! A response with [`USE_AS_DICTIONARY`] is a dictionary for the URLs that its [`DictionaryTerms`] match. A later
//! request for such a URL states the SHA-256 of the dictionary, which is a [`DictionaryOffer`]. A cache that knows the
//! dictionary checks the two with [`DictionaryOffer::check`], and may then answer in the coding `dcb` or `dcz`.
//! [`automatic_pattern`] makes the pattern for a response whose origin states none.

mod automatic;
mod fields;
mod offer;
mod pattern;
mod terms;

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue, VARY};

use crate::list;
pub use automatic::automatic_pattern;
pub use fields::{AVAILABLE_DICTIONARY, DICTIONARY_ID, DictionaryHash, USE_AS_DICTIONARY};
pub use offer::{DictionaryMismatch, DictionaryOffer, MalformedOffer};
pub use pattern::MatchPattern;
pub use terms::{DictionaryTerms, terms_value};

/// The longest dictionary: the window of zstd that every client supports (§5). All bytes of such a dictionary are
/// within the window when the first byte is decoded.
pub const DICTIONARY_BYTES_MAX: u64 = 8 << 20;

/// Adds the fields to `Vary` by which a response in a dictionary's coding is selected. All representations of the
/// response have them. The fetch metadata belong to them, because [`DictionaryOffer::check`] reads these.
pub fn add_vary(head: &mut HeaderMap) {
    if list::has_token(head, &VARY, "*") {
        return;
    }
    let names = [
        ACCEPT_ENCODING.as_str(),
        AVAILABLE_DICTIONARY.as_str(),
        "sec-fetch-site",
        "sec-fetch-mode",
    ];
    let missing: Vec<_> = names
        .into_iter()
        .filter(|name| !list::has_token(head, &VARY, name))
        .collect();
    if !missing.is_empty() {
        let value = HeaderValue::try_from(missing.join(", "));
        head.append(VARY, value.expect("names of fields"));
    }
}

/// Returns true if caches distinguish the representations of a response by the dictionaries of clients.
pub fn varies_by_dictionary(head: &HeaderMap) -> bool {
    let has = |name| list::has_token(head, &VARY, name);
    has("*") || has(AVAILABLE_DICTIONARY.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    #[test]
    fn a_head_varies_by_dictionary_with_the_field_or_with_any() {
        for (vary, expected) in [
            ("vary: accept-encoding", false),
            ("vary: accept-encoding, Available-Dictionary", true),
            ("vary: *", true),
            ("x: y", false),
        ] {
            assert_eq!(varies_by_dictionary(&headers(vary)), expected, "{vary}");
        }
    }

    #[test]
    fn all_representations_vary_by_the_fields_that_select_them() {
        let all = "vary: accept-encoding, available-dictionary, sec-fetch-site, sec-fetch-mode";
        for (head, expected) in [
            ("", all.to_owned()),
            ("vary: *", "vary: *".to_owned()),
            (
                "vary: Cookie, Accept-Encoding",
                "vary: Cookie, Accept-Encoding\nvary: available-dictionary, sec-fetch-site, sec-fetch-mode".to_owned(),
            ),
        ] {
            let mut head = headers(head);
            add_vary(&mut head);
            assert_eq!(head, headers(&expected));
            add_vary(&mut head);
            assert_eq!(head, headers(&expected), "the fields are added once");
        }
    }
}
