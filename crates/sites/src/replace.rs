//! Replaces literal strings in bodies, for example absolute links to another host.
//!
//! A [`Replacer`] gets a body in pieces of any lengths. It holds back only the end of a piece that may be the beginning
//! of a string, so that its memory is bounded by the longest string.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::RequestView;
use crate::template::Template;

/// A string that is replaced.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The string in the body of the origin.
    pub from: Box<str>,
    /// The string that replaces it.
    pub to: Template,
}

/// Strings that are replaced in bodies.
#[derive(Clone, Debug)]
pub struct Replacements {
    list: Box<[Replacement]>,
    matcher: AhoCorasick,
}

/// The reason why strings cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplacementError {
    /// There are more than [`REPLACEMENTS_MAX`] strings.
    #[error("has more than {REPLACEMENTS_MAX} strings")]
    TooMany,
    /// `from` is empty or longer than [`REPLACED_BYTES_MAX`].
    #[error("has a `from` with {0} bytes; it needs 1 to {REPLACED_BYTES_MAX}")]
    Length(usize),
    /// `to` depends on more than the URL's scheme and host.
    #[error(
        "has the variable of one request in `{0}`; use only ${{scheme}} and ${{host}}, because all clients of the host \
         get the stored body"
    )]
    OfRequest(Box<str>),
}

/// The most strings of one list. The time for each byte hardly depends on their number, but a list that is longer is
/// probably a mistake.
pub const REPLACEMENTS_MAX: usize = 32;

/// The longest string that is replaced. A replacer holds back less than this number of bytes.
pub const REPLACED_BYTES_MAX: usize = 1024;

impl Replacements {
    /// Checks a list. An empty list replaces nothing.
    pub fn new(list: Vec<Replacement>) -> Result<Self, ReplacementError> {
        if list.len() > REPLACEMENTS_MAX {
            return Err(ReplacementError::TooMany);
        }
        for Replacement { from, to } in &list {
            if from.is_empty() || from.len() > REPLACED_BYTES_MAX {
                return Err(ReplacementError::Length(from.len()));
            }
            if !to.is_of_site() {
                return Err(ReplacementError::OfRequest(to.to_string().into()));
            }
        }
        let matcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .build(list.iter().map(|replacement| &*replacement.from))
            .expect("at most 32 KiB of strings fit into an automaton");
        Ok(Self {
            list: list.into(),
            matcher,
        })
    }

    /// Returns true if nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the strings in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Replacement> {
        self.list.iter()
    }

    /// Returns a replacer for the response to a request.
    pub fn replacer(&self, request: &RequestView<'_>) -> Replacer {
        let pairs = self.list.iter().map(|Replacement { from, to }| {
            let from = from.as_bytes().into();
            (from, to.field_value(request).into())
        });
        Replacer {
            pairs: pairs.collect(),
            matcher: self.matcher.clone(),
            held: Vec::new(),
        }
    }
}

/// Replaces strings in one body.
///
/// The law: the body is read from its start to its end. Where strings begin, the first one of the list is replaced, and
/// reading continues after it. With one string, the result is that of [`str::replace`].
#[derive(Clone, Debug)]
pub struct Replacer {
    /// The strings, and what replaces them.
    pairs: Box<[Pair]>,
    matcher: AhoCorasick,
    /// The end of the bytes so far that may be the beginning of a string.
    held: Vec<u8>,
}

/// A string, and what replaces it.
type Pair = (Box<[u8]>, Box<[u8]>);

impl Replacer {
    /// Adds a piece of the body. Returns the bytes that are decided.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.held);
        input.extend_from_slice(piece);
        let mut out = Vec::with_capacity(input.len());
        let mut at = 0;
        let mut open = self.open_start(&input, at);
        while let Some(found) = self.matcher.find(&input[at..]) {
            let (start, end) = (at + found.start(), at + found.end());
            if start >= open {
                // A string that begins earlier or that is longer may follow.
                break;
            }
            out.extend_from_slice(&input[at..start]);
            out.extend_from_slice(&self.pairs[found.pattern().as_usize()].1);
            at = end;
            if at > open {
                open = self.open_start(&input, at);
            }
        }
        out.extend_from_slice(&input[at..open]);
        input.drain(..open);
        self.held = input;
        out
    }

    /// Ends the body. Returns its last bytes.
    pub fn finish(self) -> Vec<u8> {
        self.replace_all(&self.held)
    }

    /// Returns a complete text with the strings replaced.
    pub fn replace_all(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        for found in self.matcher.find_iter(text) {
            out.extend_from_slice(&text[at..found.start()]);
            out.extend_from_slice(&self.pairs[found.pattern().as_usize()].1);
            at = found.end();
        }
        out.extend_from_slice(&text[at..]);
        out
    }

    /// Returns the number of bytes that are held back.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Returns the first position from `at` on at which the input ends within a string, or the end of the input.
    fn open_start(&self, input: &[u8], at: usize) -> usize {
        let longest = self.pairs.iter().map(|(from, _)| from.len()).max();
        let first = input.len().saturating_sub(longest.unwrap_or(1) - 1).max(at);
        let is_open = |start: &usize| {
            let rest = &input[*start..];
            let mut strings = self.pairs.iter();
            strings.any(|(from, _)| from.len() > rest.len() && from.starts_with(rest))
        };
        (first..input.len()).find(is_open).unwrap_or(input.len())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::Method;
    use http::header::HeaderMap;
    use proptest::prelude::*;

    use super::*;

    fn replacements(pairs: &[(String, String)]) -> Result<Replacements, ReplacementError> {
        let list = pairs.iter().map(|(from, to)| Replacement {
            from: from.as_str().into(),
            to: Template::new(to, None).expect("a template"),
        });
        Replacements::new(list.collect())
    }

    fn replacer(pairs: &[(String, String)]) -> Replacer {
        let fields = HeaderMap::new();
        let view = RequestView {
            method: &Method::GET,
            scheme: "https",
            host: "edge.example:8443",
            path: b"/",
            sent_path: "/",
            query: "",
            fields: &fields,
            client: IpAddr::from([192, 0, 2, 1]),
        };
        replacements(pairs).expect("few strings").replacer(&view)
    }

    /// Feeds a text in pieces with these lengths, again and again, and checks the bound of the held bytes.
    fn in_pieces(mut replacer: Replacer, text: &str, lengths: &[usize]) -> String {
        let longest = replacer.pairs.iter().map(|(from, _)| from.len()).max();
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at((*length).min(rest.len()));
            out.extend(replacer.push(piece));
            assert!(replacer.held_bytes() < longest.unwrap_or(1));
            rest = later;
        }
        out.extend(replacer.finish());
        String::from_utf8(out).expect("UTF-8")
    }

    /// The oracle: reads from the start, and takes the first string of the list that begins at a position.
    fn by_loop(pairs: &[(String, String)], text: &str) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(first) = rest.chars().next() {
            let found = pairs.iter().find(|(from, _)| rest.starts_with(&**from));
            match found {
                Some((from, to)) => {
                    out.push_str(to);
                    rest = &rest[from.len()..];
                }
                None => {
                    out.push(first);
                    rest = &rest[first.len_utf8()..];
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn one_string_in_pieces_is_replaced_as_by_str_replace(
            from in "[ab]{1,4}",
            to in "[abc]{0,4}",
            text in "[ab]{0,40}",
            lengths in proptest::collection::vec(1usize..7, 1..5),
        ) {
            let expected = text.replace(&*from, &to);
            let replacer = replacer(&[(from, to)]);
            prop_assert_eq!(in_pieces(replacer, &text, &lengths), expected);
        }

        #[test]
        fn several_strings_in_pieces_are_replaced_as_by_a_loop(
            pairs in proptest::collection::vec(("[ab]{1,5}", "[abc]{0,3}"), 0..5),
            text in "[abü]{0,40}",
            lengths in proptest::collection::vec(1usize..7, 1..5),
        ) {
            let expected = by_loop(&pairs, &text);
            let replacer = replacer(&pairs);
            prop_assert_eq!(replacer.replace_all(text.as_bytes()), expected.as_bytes());
            prop_assert_eq!(in_pieces(replacer, &text, &lengths), expected);
        }
    }

    /// Only the possible beginning of a string is held back, so that the other bytes of a stream arrive at once.
    #[test]
    fn bytes_that_begin_no_string_are_not_held_back() {
        let mut replacer = replacer(&[(
            "https://files.example".to_owned(),
            "${scheme}://${host}/files".to_owned(),
        )]);
        assert_eq!(replacer.push(b"href=\"http"), b"href=\"");
        assert_eq!(replacer.held_bytes(), 4);
        assert_eq!(
            replacer.push(b"s://files.example/a"),
            b"https://edge.example:8443/files/a"
        );
        assert_eq!(replacer.push(b"https://fi"), b"");
        assert_eq!(replacer.push(b"nd"), b"https://find");
        assert_eq!(replacer.finish(), b"");
    }

    #[test]
    fn a_list_has_bounds_and_no_variables_of_one_request() {
        let pair = |from: String, to: &str| (from, to.to_owned());
        let many = |count| vec![pair("a".to_owned(), "b"); count];
        assert!(replacements(&many(REPLACEMENTS_MAX)).is_ok());
        assert_eq!(
            replacements(&many(REPLACEMENTS_MAX + 1)).expect_err("too many"),
            ReplacementError::TooMany
        );
        let of_length = |length| replacements(&[pair("a".repeat(length), "b")]).err();
        assert_eq!(of_length(REPLACED_BYTES_MAX), None);
        for length in [0, REPLACED_BYTES_MAX + 1] {
            assert_eq!(of_length(length), Some(ReplacementError::Length(length)));
        }
        for to in ["${client}", "${header.x-a}", "a${uri}", "${device}"] {
            let error = replacements(&[pair("a".to_owned(), to)]).expect_err(to);
            assert_eq!(error, ReplacementError::OfRequest(to.into()));
        }
    }
}
