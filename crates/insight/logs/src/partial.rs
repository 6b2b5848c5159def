//! Partial results: the statistics of one machine's logs in a file that can be merged with others.
//!
//! ```text
//!  header │ blocks: URLs in order, 256 partitions │ figures │ about │ index │ footer
//! ```
//!
//! A URL is identified by a fingerprint of 128 bits, and URLs are sorted by fingerprint. Any number of partial
//! results can therefore be merged in one pass, with one block of each file in memory. The figures are the
//! tally (the counts of all lines) and the sample (all requests for a share of the URLs). The section *about* has the
//! options of the analysis and the reports of its logs. Checksums cover every byte.
//! `docs/reference/partial-format.md` describes the format.

mod merge;
mod read;
mod write;

use std::io;
use std::path::PathBuf;

use edgeward_analysis::QueryRule;
use edgeward_analysis::wire::{DecodeError, Reader, Writer};

use crate::analyze::Depth;
use crate::report::{FileReport, flag, string};

pub(crate) use merge::PartialMerge;
pub use merge::{merge, merge_to_partial};
pub(crate) use read::Part;
pub use read::check;
pub(crate) use write::{PartialFile, write};
pub use write::{PartialSummary, analyze_to_partial};

/// Why a partial result cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartialError {
    /// The file cannot be written.
    #[error("{} cannot be written", .path.display())]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a partial result.
    #[error("{} is not a partial result", .path.display())]
    NotPartialResult {
        /// The path of the file.
        path: PathBuf,
    },
    /// Another version of the program wrote the file.
    #[error("{} is a partial result of format {found}; this program reads format {VERSION}", .path.display())]
    Version {
        /// The path of the file.
        path: PathBuf,
        /// The version of the file.
        found: u32,
    },
    /// The end of the file is missing.
    #[error("{} ends in the middle: it is an incomplete copy of a partial result", .path.display())]
    Truncated {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is corrupt.
    #[error("{} is corrupt: {what}", .path.display())]
    Corrupt {
        /// The path of the file.
        path: PathBuf,
        /// The part of the file that is corrupt.
        what: String,
    },
    /// Two files were made with different options.
    #[error("{} and {} do not fit together: {what}", .path.display(), .other.display())]
    OptionsDiffer {
        /// The path of one file.
        path: PathBuf,
        /// The path of the other file.
        other: PathBuf,
        /// The option that differs.
        what: &'static str,
    },
    /// Two files are copies of one partial result, which would be counted twice.
    #[error("{} and {} are the same partial result", .path.display(), .other.display())]
    Duplicate {
        /// The path of one file.
        path: PathBuf,
        /// The path of the other file.
        other: PathBuf,
    },
}

/// The options and the logs of a partial result.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) depth: Depth,
    pub(crate) query: QueryRule,
    /// The options that affect parsing, except `depth` and `query`, as text. A checkpoint is a partial result: an
    /// analysis can continue from it only if the options of the analysis equal this text.
    pub(crate) options: String,
    pub(crate) files: Vec<FileReport>,
}

impl Description {
    fn write_to(&self, out: &mut Writer) {
        out.byte(u8::from(self.depth == Depth::Full));
        out.byte(u8::from(self.query == QueryRule::Cut));
        out.text(self.options.as_bytes());
        out.number(self.files.len() as u64);
        for file in &self.files {
            file.write_to(out);
        }
    }

    fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let depth = if flag(from)? {
            Depth::Full
        } else {
            Depth::Counts
        };
        let query = if flag(from)? {
            QueryRule::Cut
        } else {
            QueryRule::Keep
        };
        let options = string(from)?;
        let mut files = Vec::new();
        for _ in 0..from.count(FILE_BYTES_MIN)? {
            files.push(FileReport::read_from(from)?);
        }
        Ok(Self {
            depth,
            query,
            options,
            files,
        })
    }
}

/// The index entry of a block: its partition, its offset in the file (`at`), its length in bytes, the number of its
/// URLs (`keys`), and the XXH3-64 of its bytes.
#[derive(Clone, Copy, Debug)]
struct Block {
    partition: u8,
    at: u64,
    bytes: u32,
    keys: u32,
    checksum: u64,
}

const MAGIC: &[u8; 8] = b"edgwpart";
const VERSION: u32 = 1;

/// The length of the header: the magic number, the version, and four zero bytes.
const HEADER_BYTES: usize = 16;

/// The length of the footer: the lengths and checksums of the sections figures, about and index; the checksum
/// of header and footer; the magic number.
const FOOTER_BYTES: usize = 6 * 8 + 8 + 8;

/// The maximum number of URLs per block. A merge has one block of each partial result in memory, at most 200 KB
/// each.
const KEYS_PER_BLOCK: usize = 4096;

/// The length of a key in a block. The first byte of the full key is the partition number, which the block does
/// not repeat.
const KEY_BYTES: usize = 15;

/// The maximum length of a URL's entry: the key, the request count and, in a full analysis, the bytes of all
/// responses and the size of the object.
const KEY_ROW_BYTES_MAX: usize = KEY_BYTES + 3 * 10;

/// The minimum length of an encoded file report.
const FILE_BYTES_MIN: usize = 14;
