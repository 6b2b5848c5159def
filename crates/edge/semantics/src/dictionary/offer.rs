//! The dictionary that a client offers in a request (RFC 9842 §2.2, §2.3), and when the edge may use it.

use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, HeaderMap, HeaderName, ORIGIN};
use sfv::{BareItem, Item, Parser, Version};

use super::fields::{AVAILABLE_DICTIONARY, DICTIONARY_ID, DictionaryHash};
use super::terms::{DictionaryTerms, ID_BYTES_MAX};

/// A dictionary that a client offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DictionaryOffer {
    /// The SHA-256 that the client states.
    pub hash: DictionaryHash,
    /// The value of `Dictionary-ID`.
    id: Option<Box<str>>,
    /// The value of `Sec-Fetch-Dest`.
    destination: Option<Box<str>>,
    reader: Reader,
}

/// The page that can read a response, according to the fetch metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reader {
    /// A page of the same origin, a navigation, or a client without fetch metadata.
    SameOrigin,
    /// A page of this other origin, if the response allows it by CORS.
    Cors(Box<[u8]>),
    /// A page that must not read the response.
    Opaque,
}

/// The error of a request whose offer is not valid. Such a request is answered as if it had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedOffer;

/// Why the dictionary of an offer must not be used for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DictionaryMismatch {
    /// The page is of another origin, and the response does not allow it to read the body (§9.3.3).
    CrossOrigin,
    /// The pattern of the dictionary does not match the URL.
    Pattern,
    /// The dictionary is for other destinations.
    Destination,
    /// The client states the id of another dictionary.
    Id,
}

impl DictionaryOffer {
    /// Parses the fields of a request. Returns `None` without `Available-Dictionary`.
    ///
    /// A field that occurs twice makes the offer invalid, because a cache and a server might read different values.
    pub fn from_headers(request: &HeaderMap) -> Option<Result<Self, MalformedOffer>> {
        request
            .contains_key(&AVAILABLE_DICTIONARY)
            .then(|| Self::parse(request).ok_or(MalformedOffer))
    }

    fn parse(request: &HeaderMap) -> Option<Self> {
        let hash = match parse_item(single(request, &AVAILABLE_DICTIONARY)??)? {
            BareItem::ByteSequence(bytes) => DictionaryHash::try_from(bytes).ok()?,
            _ => return None,
        };
        let id = match single(request, &DICTIONARY_ID)? {
            None => None,
            Some(value) => match parse_item(value)? {
                BareItem::String(id) if id.as_str().len() <= ID_BYTES_MAX => {
                    Some(id.as_str().into())
                }
                _ => return None,
            },
        };
        let text = |name| match single(request, &name)? {
            None => Some(None),
            Some(value) => Some(Some(std::str::from_utf8(value).ok()?)),
        };
        let site = text(SEC_FETCH_SITE)?;
        let mode = text(SEC_FETCH_MODE)?;
        let origin = single(request, &ORIGIN)?;
        Some(Self {
            hash,
            id,
            destination: text(SEC_FETCH_DEST)?.map(Into::into),
            reader: Reader::of(site, mode, origin),
        })
    }

    /// Decides if the dictionary may be used for a response. `terms` are those of the dictionary, whose URL is of the
    /// same origin; `target` is the path and query of the request, and `response` the head of the response.
    ///
    /// # Errors
    ///
    /// Returns the first reason against it.
    pub fn check(
        &self,
        terms: &DictionaryTerms,
        target: &str,
        response: &HeaderMap,
    ) -> Result<(), DictionaryMismatch> {
        if !self.reader.may_read(response) {
            return Err(DictionaryMismatch::CrossOrigin);
        }
        if !terms.pattern.matches(target) {
            return Err(DictionaryMismatch::Pattern);
        }
        if let Some(destination) = &self.destination
            && !terms.destinations.is_empty()
            && !terms.destinations.contains(destination)
        {
            return Err(DictionaryMismatch::Destination);
        }
        match &self.id {
            Some(id) if *id != terms.id => Err(DictionaryMismatch::Id),
            _ => Ok(()),
        }
    }
}

impl Reader {
    /// The steps of §9.3.3.
    fn of(site: Option<&str>, mode: Option<&str>, origin: Option<&[u8]>) -> Self {
        match (site, mode) {
            (None | Some("same-origin"), _) | (_, None | Some("navigate" | "same-origin")) => {
                Self::SameOrigin
            }
            (_, Some("cors")) => origin.map_or(Self::Opaque, |origin| Self::Cors(origin.into())),
            _ => Self::Opaque,
        }
    }

    fn may_read(&self, response: &HeaderMap) -> bool {
        let origin = match self {
            Self::SameOrigin => return true,
            Self::Opaque => return false,
            Self::Cors(origin) => &**origin,
        };
        let mut lines = response.get_all(ACCESS_CONTROL_ALLOW_ORIGIN).iter();
        let (Some(allowed), None) = (lines.next(), lines.next()) else {
            return false;
        };
        allowed == "*" || allowed.as_bytes() == origin
    }
}

/// Returns the value of a field, and `None` if it has several lines.
fn single<'a>(request: &'a HeaderMap, name: &HeaderName) -> Option<Option<&'a [u8]>> {
    let mut lines = request.get_all(name).iter();
    let first = lines.next();
    lines
        .next()
        .is_none()
        .then(|| first.map(|line| line.as_bytes()))
}

fn parse_item(value: &[u8]) -> Option<BareItem> {
    let parser = Parser::new(value).with_version(Version::Rfc9651);
    Some(parser.parse::<Item>().ok()?.bare_item)
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dictionary::MatchPattern;
    use crate::testing::headers;

    /// The SHA-256 of an empty text, in base64.
    const HASH: &str = ":47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";

    fn offer(fields: &str) -> Option<Result<DictionaryOffer, MalformedOffer>> {
        DictionaryOffer::from_headers(&headers(fields))
    }

    fn terms(destinations: &[&str], id: &str) -> DictionaryTerms {
        DictionaryTerms {
            pattern: MatchPattern::parse("/js/*", "https://a", "/").expect("a pattern"),
            destinations: destinations.iter().map(|&name| name.into()).collect(),
            id: id.into(),
        }
    }

    #[test]
    fn an_offer_is_one_hash_of_32_bytes() {
        assert_eq!(offer("accept-encoding: dcz"), None);
        let valid = offer(&format!(
            "available-dictionary: {HASH}\ndictionary-id: \"v1\""
        ));
        let valid = valid.expect("the field is present").expect("it is valid");
        assert_eq!(valid.hash[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        let two = format!("available-dictionary: {HASH}\navailable-dictionary: {HASH}");
        let id_twice =
            format!("available-dictionary: {HASH}\ndictionary-id: \"a\"\ndictionary-id: \"a\"");
        let site_twice = format!(
            "available-dictionary: {HASH}\nsec-fetch-site: same-origin\nsec-fetch-site: cross-site"
        );
        for fields in [
            "available-dictionary: ".to_owned(),
            "available-dictionary: abc".to_owned(),
            "available-dictionary: \"abc\"".to_owned(),
            "available-dictionary: :AAAA:".to_owned(),
            "available-dictionary: :!:".to_owned(),
            format!("available-dictionary: {HASH}, {HASH}"),
            format!("available-dictionary: {HASH}\ndictionary-id: v1"),
            format!(
                "available-dictionary: {HASH}\ndictionary-id: \"{}\"",
                "a".repeat(1025)
            ),
            two,
            id_twice,
            site_twice,
        ] {
            assert_eq!(offer(&fields), Some(Err(MalformedOffer)), "{fields}");
        }
    }

    #[test]
    fn a_dictionary_is_used_under_its_terms_only() {
        use DictionaryMismatch::{Destination, Id, Pattern};
        for (fields, terms, target, expected) in [
            ("", terms(&[], ""), "/js/a", Ok(())),
            ("", terms(&[], ""), "/css/a", Err(Pattern)),
            (
                "sec-fetch-dest: script",
                terms(&["script"], ""),
                "/js/a",
                Ok(()),
            ),
            (
                "sec-fetch-dest: style",
                terms(&["script"], ""),
                "/js/a",
                Err(Destination),
            ),
            ("sec-fetch-dest: style", terms(&[], ""), "/js/a", Ok(())),
            ("", terms(&["script"], ""), "/js/a", Ok(())),
            ("dictionary-id: \"v1\"", terms(&[], "v1"), "/js/a", Ok(())),
            ("dictionary-id: \"v2\"", terms(&[], "v1"), "/js/a", Err(Id)),
            ("dictionary-id: \"v2\"", terms(&[], ""), "/js/a", Err(Id)),
        ] {
            let fields = format!("available-dictionary: {HASH}\n{fields}");
            let offer = offer(&fields).expect("present").expect("valid");
            assert_eq!(
                offer.check(&terms, target, &headers("")),
                expected,
                "{fields} {target}"
            );
        }
    }

    /// The decision of §9.3.3, step by step.
    fn oracle(site: &str, mode: &str, origin: &str, allowed: &str) -> bool {
        if site.is_empty() || site == "same-origin" {
            return true;
        }
        if mode.is_empty() || mode == "navigate" || mode == "same-origin" {
            return true;
        }
        if mode == "cors" {
            return !allowed.is_empty()
                && !origin.is_empty()
                && (allowed == "*" || allowed == origin);
        }
        false
    }

    /// Method: all combinations of the fields that matter, compared with the steps of the RFC.
    #[test]
    fn a_page_that_must_not_read_a_response_gets_no_delta() {
        let line = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!("\n{name}: {value}"),
        };
        for site in ["", "same-origin", "same-site", "cross-site", "none"] {
            for mode in [
                "",
                "navigate",
                "same-origin",
                "cors",
                "no-cors",
                "websocket",
            ] {
                for origin in ["", "https://b", "null"] {
                    for allowed in ["", "*", "https://b", "https://c"] {
                        let fields = format!("available-dictionary: {HASH}")
                            + &line("sec-fetch-site", site)
                            + &line("sec-fetch-mode", mode)
                            + &line("origin", origin);
                        let offer = offer(&fields).expect("present").expect("valid");
                        let response = match allowed {
                            "" => HeaderMap::new(),
                            value => headers(&format!("access-control-allow-origin: {value}")),
                        };
                        let checked = offer.check(&terms(&[], ""), "/js/a", &response);
                        let expected = match oracle(site, mode, origin, allowed) {
                            true => Ok(()),
                            false => Err(DictionaryMismatch::CrossOrigin),
                        };
                        assert_eq!(checked, expected, "{fields} {allowed}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(value) = http::HeaderValue::from_bytes(&value) {
                let mut request = HeaderMap::new();
                request.insert(&AVAILABLE_DICTIONARY, value);
                let _ = DictionaryOffer::from_headers(&request);
            }
        }
    }
}
