//! The codings that the cache can apply.

/// A coding that the cache can apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
    /// `gzip` (RFC 1952).
    Gzip,
    /// `dcz`: `zstd` with a dictionary that the client has (RFC 9842 §5).
    DictionaryZstd,
    /// `dcb`: `br` with a dictionary that the client has (RFC 9842 §4).
    DictionaryBrotli,
}

impl Coding {
    /// All codings.
    pub const ALL: [Self; 5] = [
        Self::Brotli,
        Self::Zstd,
        Self::Gzip,
        Self::DictionaryZstd,
        Self::DictionaryBrotli,
    ];

    /// The codings that need no dictionary, in the order of preference among codings of equal weight: on text, the
    /// first is the smallest.
    pub const GENERAL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// The codings with a dictionary, in the order of preference among codings of equal weight.
    pub const WITH_DICTIONARY: [Self; 2] = [Self::DictionaryZstd, Self::DictionaryBrotli];

    /// Returns the name in the registry of content codings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::DictionaryZstd => "dcz",
            Self::DictionaryBrotli => "dcb",
        }
    }

    /// Returns the coding that compresses in the same way without a dictionary.
    pub const fn without_dictionary(self) -> Self {
        match self {
            Self::DictionaryZstd => Self::Zstd,
            Self::DictionaryBrotli => Self::Brotli,
            Self::Brotli | Self::Zstd | Self::Gzip => self,
        }
    }

    /// Returns true if a decoder of the coding needs a dictionary.
    pub const fn needs_dictionary(self) -> bool {
        matches!(self, Self::DictionaryZstd | Self::DictionaryBrotli)
    }

    /// Returns the coding with a name. Names are case-insensitive, and `x-gzip` is `gzip` (§8.4.1).
    pub fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        let is = |coding: &Self| name.eq_ignore_ascii_case(coding.name().as_bytes());
        Self::ALL.into_iter().find(is)
    }
}
