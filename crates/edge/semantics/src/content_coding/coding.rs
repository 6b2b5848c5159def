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
}

impl Coding {
    /// All codings, in the order of preference among codings of equal weight: on text, the first is the smallest.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Returns the name in the registry of content codings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
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
