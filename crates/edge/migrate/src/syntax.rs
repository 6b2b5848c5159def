//! Why a text is not a configuration, and the limits of all readers.

use crate::source::Position;

/// The reason why a file is not a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct ParseError {
    /// The line.
    pub at: Position,
    /// The reason.
    pub reason: ParseErrorReason,
}

/// The reason of a [`ParseError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorReason {
    /// The file is too large.
    #[error("the file exceeds 8 MiB")]
    FileSize,
    /// Blocks are nested too deeply.
    #[error("blocks or expressions are nested more than {NESTING_MAX} deep")]
    Nesting,
    /// The configuration has too many directives.
    #[error("the configuration has more than {DIRECTIVES_MAX} directives")]
    Directives,
    /// Files include each other, or too many files are included.
    #[error(
        "files are included more than {INCLUDES_NESTING_MAX} deep; does a file include itself?"
    )]
    Includes,
    /// Imports repeat too much text.
    #[error("the imported files and the arguments of imports exceed 64 MiB together")]
    ImportedBytes,
    /// A block without its end.
    #[error("the block that begins here has no `}}`")]
    UnclosedBlock,
    /// A quote without its end.
    #[error("the quote that begins here has no end")]
    UnclosedQuote,
    /// A directive at the end of a file without `;`.
    #[error("the directive has no `;`")]
    NoEnd,
    /// A character at which a directive was expected.
    #[error("unexpected `{0}`")]
    Unexpected(char),
    /// A comment without its end.
    #[error("the comment that begins here has no end")]
    UnclosedComment,
    /// Code in C, which only Varnish can compile.
    #[error("inline C cannot be translated; remove it, and look for a setting with its effect")]
    InlineC,
    /// Another part of the grammar was expected.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// The part.
        expected: &'static str,
        /// The text in its place.
        found: String,
    },
    /// Text directly behind a closing quote.
    #[error("a word follows its quote without a space")]
    AfterQuote,
}

/// The largest file. The configuration of a thousand sites has less than a megabyte.
pub const FILE_BYTES_MAX: usize = 8 << 20;

/// The most bytes of all files together, with the words that imports repeat.
pub(crate) const IMPORTED_BYTES_MAX: usize = 64 << 20;

/// The deepest nesting of blocks. nginx itself needs four levels: http, server, location, if.
pub(crate) const NESTING_MAX: usize = 64;

/// The most directives of all files together.
pub(crate) const DIRECTIVES_MAX: usize = 200_000;

/// The deepest nesting of included files.
pub(crate) const INCLUDES_NESTING_MAX: usize = 16;
