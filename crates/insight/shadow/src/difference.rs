//! The kinds of differences between two caches.

use serde::Serialize;

/// The cause of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The statuses differ.
    Status,
    /// One answer is a redirect and the other one is not, or the redirects have different targets.
    Redirect,
    /// The edge answered with the body that belongs to other fields of the request.
    Variant,
    /// The fields `Vary` differ.
    Vary,
    /// The content codings differ.
    Encoding,
    /// The bodies differ, though neither changed between two requests.
    Body,
    /// The body of the log has another length.
    Length,
    /// Another field of the response differs.
    Field,
    /// One answer sets a cookie that the other one does not set.
    SetCookie,
    /// One cache serves a request with a cookie from the cache, and the other one passes it.
    Cookie,
    /// One cache serves the request from the cache, and the other one passes it.
    Pass,
    /// The freshness lifetimes differ.
    Lifetime,
    /// The incumbent stores a response that the edge does not store.
    NotStored,
}

impl Cause {
    /// All causes, in the order of the report.
    pub const ALL: [Self; 13] = [
        Self::Status,
        Self::Redirect,
        Self::Variant,
        Self::Vary,
        Self::Encoding,
        Self::Body,
        Self::Length,
        Self::Field,
        Self::SetCookie,
        Self::Cookie,
        Self::Pass,
        Self::Lifetime,
        Self::NotStored,
    ];

    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Redirect => "redirect",
            Self::Variant => "variant",
            Self::Vary => "vary",
            Self::Encoding => "encoding",
            Self::Body => "body",
            Self::Length => "length",
            Self::Field => "field",
            Self::SetCookie => "set_cookie",
            Self::Cookie => "cookie",
            Self::Pass => "pass",
            Self::Lifetime => "lifetime",
            Self::NotStored => "not_stored",
        }
    }
}

/// One difference between the answers to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The cause.
    pub cause: Cause,
    /// The group within the cause, for example the name of a field. Differences with one cause and detail are counted
    /// together.
    pub detail: String,
    /// The value of the incumbent.
    pub incumbent: String,
    /// The value of the edge.
    pub edge: String,
}

impl Difference {
    pub(crate) fn new(
        cause: Cause,
        detail: impl Into<String>,
        incumbent: impl Into<String>,
        edge: impl Into<String>,
    ) -> Self {
        let short = |text: String| shortened(&text, VALUE_CHARS_MAX);
        Self {
            cause,
            detail: short(detail.into()),
            incumbent: short(incumbent.into()),
            edge: short(edge.into()),
        }
    }
}

/// Returns a text of at most `chars_max` characters. A cut is marked by an ellipsis.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => {
            let mut short: String = text.chars().take(chars_max - 1).collect();
            short.push('…');
            short
        }
    }
}

/// The length of a value in the report.
const VALUE_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_a_short_one_is_not() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "ab…");
    }

    #[test]
    fn every_cause_is_listed_once_with_the_name_of_its_json() {
        let mut sorted = Cause::ALL;
        sorted.sort();
        assert_eq!(sorted, Cause::ALL);
    }
}
