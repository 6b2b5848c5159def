//! The interface of id filters, and the rules that map paths to filters.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Decides which ids exist. Many threads call the filter concurrently at each miss, so it must not block.
pub trait IdFilter: Send + Sync + fmt::Debug {
    /// Returns the filter's answer about `id`, the percent-decoded text from the path.
    fn judge(&self, id: &[u8]) -> Judgement;

    /// Returns the filter's state, for metrics and status.
    fn facts(&self) -> FilterFacts;
}

/// The answer of a filter about an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The id does not exist.
    Absent,
    /// The id may exist.
    Maybe,
    /// The text does not have the form of an id, so the filter cannot answer. The request goes to the origin.
    NotAnId,
    /// No filter is loaded, or the loaded filter may be outdated.
    Unknown,
}

/// The state of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterFacts {
    /// True while the filter is recent enough to answer.
    pub fresh: bool,
    /// The epoch (sequence number) of the snapshot in use.
    pub epoch: u64,
    /// Ids in the snapshot.
    pub ids: u64,
    /// Ids added since the snapshot.
    pub overlay_ids: u64,
    /// Memory of the filter in bytes.
    pub bytes: u64,
    /// The number of files, manifests and proofs of freshness that the filter client has refused.
    pub refused: u64,
}

/// A pattern of paths, and the filter for the ids in these paths.
#[derive(Clone, Debug)]
pub struct NegativeRule {
    /// The name by which rules of sites select the filter.
    pub name: Option<Box<str>>,
    /// The paths, and the position of the id in them.
    pub pattern: PathPattern,
    /// The filter that decides which ids exist.
    pub filter: Arc<dyn IdFilter>,
}

/// A path with one `{id}`, such as `/resource/{id}` or `/img/{id}.jpg`. The id is not empty and contains no slash.
/// The query is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    before: String,
    after: String,
}

impl PathPattern {
    /// Returns the percent-decoded id if the path matches the pattern.
    pub fn id<'a>(&self, path: &'a str) -> Option<Cow<'a, [u8]>> {
        let id = path
            .strip_prefix(self.before.as_str())?
            .strip_suffix(self.after.as_str())?;
        (!id.is_empty() && !id.contains('/')).then(|| percent_decoded(id))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{id}}{}", self.before, self.after)
    }
}

impl FromStr for PathPattern {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParsePatternError {
            text: text.to_owned(),
        };
        let (before, after) = text.split_once("{id}").ok_or_else(error)?;
        let is_plain = |part: &str| {
            let is_plain_byte = |byte: u8| byte.is_ascii_graphic() && !b"{}*?#".contains(&byte);
            part.bytes().all(is_plain_byte)
        };
        if !before.starts_with('/') || !is_plain(before) || !is_plain(after) {
            return Err(error());
        }
        Ok(Self {
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }
}

/// The text is not a [`PathPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a path with one {{id}} in it; write /resource/{{id}} or /img/{{id}}.jpg")]
pub struct ParsePatternError {
    /// The text.
    pub text: String,
}

/// Decodes the percent-encoding of RFC 3986 §2.1. An invalid escape is copied.
fn percent_decoded(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high << 4 | low).expect("two hex digits"));
                at += 3;
            }
            (byte, ..) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(pattern: &str, path: &str) -> Option<String> {
        let pattern: PathPattern = pattern.parse().expect("a pattern");
        let id = pattern.id(path)?;
        Some(String::from_utf8_lossy(&id).into_owned())
    }

    #[test]
    fn an_id_is_one_part_of_the_path() {
        for (pattern, path, expected) in [
            ("/r/{id}", "/r/42", Some("42")),
            ("/r/{id}", "/r/", None),
            ("/r/{id}", "/r/42/", None),
            ("/r/{id}", "/r/42/more", None),
            ("/r/{id}", "/s/42", None),
            ("/r/{id}", "/r/a%2Fb%20c", Some("a/b c")),
            ("/r/{id}", "/r/100%", Some("100%")),
            ("/r/{id}", "/r/%zz", Some("%zz")),
            ("/i/{id}.jpg", "/i/7.jpg", Some("7")),
            ("/i/{id}.jpg", "/i/.jpg", None),
            ("/u/{id}/photo", "/u/7/photo", Some("7")),
        ] {
            assert_eq!(id(pattern, path).as_deref(), expected, "{pattern} {path}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Oracle: try every start and end of an id in the path, and decode by splitting at percent signs.
        #[test]
        fn the_id_is_the_text_between_the_two_parts_of_the_pattern(
            before in "/[a%.]{0,3}", after in "[/a%.]{0,3}", path in "/[a%41./]{0,9}",
        ) {
            let text = format!("{before}{{id}}{after}");
            let pattern: PathPattern = text.parse().expect("a pattern");
            prop_assert_eq!(pattern.to_string(), text);
            let ranges = (0..=path.len()).flat_map(|from| (from..=path.len()).map(move |to| (from, to)));
            let found = ranges
                .filter(|&(from, to)| path[..from] == before && path[to..] == after)
                .map(|(from, to)| &path[from..to])
                .find(|id| !id.is_empty() && !id.contains('/'));
            let expected = found.map(|id| {
                let mut parts = id.split('%');
                let mut decoded = parts.next().unwrap_or_default().as_bytes().to_vec();
                for part in parts {
                    let byte = part.get(..2).filter(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()));
                    match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                        Some(byte) => decoded.push(byte),
                        None => decoded.extend_from_slice(&[b"%", &part.as_bytes()[..part.len().min(2)]].concat()),
                    }
                    decoded.extend_from_slice(part.get(2..).unwrap_or_default().as_bytes());
                }
                decoded
            });
            prop_assert_eq!(pattern.id(&path).map(Cow::into_owned), expected);
        }
    }

    #[test]
    fn an_invalid_pattern_is_refused() {
        for text in [
            "",
            "/r",
            "r/{id}",
            "/r/{id}/{id}",
            "/r/{name}",
            "/r/{id}?a=b",
            "/*/{id}",
            "/r {id}",
        ] {
            assert!(text.parse::<PathPattern>().is_err(), "{text}");
        }
    }
}
