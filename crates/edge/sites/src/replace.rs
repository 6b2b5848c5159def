//! Replaces literal strings in bodies, for example absolute links to another host.
//!
//! A [`Replacer`] gets a body in pieces of any lengths, and returns its output in pieces of a bounded length. It holds
//! back only the end of a piece that may be the beginning of a string, so that its memory is bounded by one piece and
//! the longest string, however long the replacements are.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::condition::RequestView;
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
            input: Vec::new(),
            done: 0,
            partial: None,
            has_ended: false,
        }
    }
}

/// Replaces strings in one body.
///
/// The law: the body is read from its start to its end. Where strings begin, the first one of the list is replaced, and
/// reading continues after it. With one string, the result is that of [`str::replace`].
///
/// A piece may become longer by the ratio of a string's length to that of its replacement. The caller therefore takes
/// the output in pieces of a bounded length ([`pull`](Self::pull)) before it adds the next piece of the body.
#[derive(Clone, Debug)]
pub struct Replacer {
    /// The strings, and what replaces them.
    pairs: Box<[Pair]>,
    matcher: AhoCorasick,
    /// The last piece of the body, and the end of the bytes before it that may be the beginning of a string.
    input: Vec<u8>,
    /// The number of bytes of `input` whose output was returned.
    done: usize,
    /// The index of the replacement that was returned in part, and the number of its bytes that were returned.
    partial: Option<(usize, usize)>,
    has_ended: bool,
}

/// A string, and what replaces it.
type Pair = (Box<[u8]>, Box<[u8]>);

impl Replacer {
    /// Adds a piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        self.input.drain(..self.done);
        self.done = 0;
        self.input.extend_from_slice(piece);
    }

    /// Ends the body, so that its last bytes are decided.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns up to `bytes_max` bytes that are decided. Returns no byte after all of them.
    pub fn pull(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.held_bytes().min(bytes_max));
        let mut open = self.open_start();
        while out.len() < bytes_max {
            let space = bytes_max - out.len();
            if let Some((index, returned)) = self.partial {
                let rest = &self.pairs[index].1[returned..];
                let taken = rest.len().min(space);
                out.extend_from_slice(&rest[..taken]);
                self.partial = (taken < rest.len()).then_some((index, returned + taken));
                continue;
            }
            let found = self.matcher.find(&self.input[self.done..]);
            // From `open` on, a string that begins earlier or that is longer may follow.
            let found = found.filter(|found| self.done + found.start() < open);
            let end = found.map_or(open, |found| self.done + found.start());
            let taken = (end - self.done).min(space);
            out.extend_from_slice(&self.input[self.done..self.done + taken]);
            let next = found.filter(|_| self.done + taken == end);
            let Some(found) = next else {
                self.done += taken;
                break;
            };
            self.done += found.end();
            self.partial = Some((found.pattern().as_usize(), 0));
            if self.done > open {
                open = self.open_start();
            }
        }
        if out.capacity() > out.len() + out.len() / 4 {
            out.shrink_to_fit();
        }
        out
    }

    /// Returns a complete text with the strings replaced, or `None` if the result has more than `bytes_max` bytes.
    pub fn replace_all(&self, text: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(text.len().min(bytes_max));
        let mut at = 0;
        for found in self.matcher.find_iter(text) {
            out.extend_from_slice(&text[at..found.start()]);
            let to = &self.pairs[found.pattern().as_usize()].1;
            if out.len() + to.len() > bytes_max {
                return None;
            }
            out.extend_from_slice(to);
            at = found.end();
        }
        out.extend_from_slice(&text[at..]);
        (out.len() <= bytes_max).then_some(out)
    }

    /// Returns true after [`end`](Self::end).
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the number of bytes of the body whose output was not returned.
    pub fn held_bytes(&self) -> usize {
        self.input.len() - self.done
    }

    /// Returns the first position from `done` on at which the input ends within a string, or the end of the input.
    fn open_start(&self) -> usize {
        let (input, done) = (&*self.input, self.done);
        if self.has_ended {
            return input.len();
        }
        let longest = self.pairs.iter().map(|(from, _)| from.len()).max();
        let first = input.len().saturating_sub(longest.unwrap_or(1) - 1);
        let is_open = |start: &usize| {
            let rest = &input[*start..];
            let mut strings = self.pairs.iter();
            strings.any(|(from, _)| from.len() > rest.len() && from.starts_with(rest))
        };
        (first.max(done)..input.len())
            .find(is_open)
            .unwrap_or(input.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::condition::RequestParts;

    fn replacements(pairs: &[(String, String)]) -> Result<Replacements, ReplacementError> {
        let list = pairs.iter().map(|(from, to)| Replacement {
            from: from.as_str().into(),
            to: Template::new(to, None).expect("a template"),
        });
        Replacements::new(list.collect())
    }

    fn replacer(pairs: &[(String, String)]) -> Replacer {
        let replacements = replacements(pairs).expect("few strings");
        RequestParts::of_url("https", "edge.example:8443", "/")
            .view(|view| replacements.replacer(view))
    }

    /// Takes the whole output in pieces of at most `bytes_max`.
    fn pull_all(replacer: &mut Replacer, bytes_max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let piece = replacer.pull(bytes_max);
            assert!(piece.len() <= bytes_max);
            if piece.is_empty() {
                return out;
            }
            out.extend(piece);
        }
    }

    /// Feeds a text in pieces with these lengths, again and again, and checks the bounds of the held bytes and of the
    /// output. The first length is the bound of the output.
    fn in_pieces(mut replacer: Replacer, text: &str, lengths: &[usize]) -> String {
        let longest = replacer.pairs.iter().map(|(from, _)| from.len()).max();
        let bytes_max = lengths[0];
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at((*length).min(rest.len()));
            replacer.push(piece);
            out.extend(pull_all(&mut replacer, bytes_max));
            assert!(replacer.held_bytes() < longest.unwrap_or(1));
            rest = later;
        }
        replacer.end();
        out.extend(pull_all(&mut replacer, bytes_max));
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
            let whole = |max| replacer.replace_all(text.as_bytes(), max);
            prop_assert_eq!(whole(expected.len()), Some(expected.clone().into_bytes()));
            prop_assert!(expected.is_empty() || whole(expected.len() - 1).is_none());
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
        let mut output = |piece: &[u8]| {
            replacer.push(piece);
            let out = pull_all(&mut replacer, 1000);
            (
                String::from_utf8(out).expect("ASCII"),
                replacer.held_bytes(),
            )
        };
        let mut expect = |piece: &str, out: &str, held| {
            assert_eq!(output(piece.as_bytes()), (out.to_owned(), held), "{piece}");
        };
        expect("href=\"http", "href=\"", 4);
        expect(
            "s://files.example/a",
            "https://edge.example:8443/files/a",
            0,
        );
        expect("https://fi", "", 10);
        expect("nd", "https://find", 0);
        replacer.end();
        assert_eq!(replacer.pull(1000), b"");
    }

    /// The output of each call is bounded, although one byte becomes many, and the input waits meanwhile.
    #[test]
    fn the_output_of_a_long_replacement_is_returned_in_parts() {
        let mut replacer = replacer(&[("a".to_owned(), "b".repeat(1000))]);
        replacer.push(b"aac");
        for (bytes, held) in [(700, 2), (700, 1), (601, 0), (0, 0)] {
            assert_eq!(replacer.pull(700).len(), bytes);
            assert_eq!(replacer.held_bytes(), held);
        }
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
