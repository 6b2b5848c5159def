//! Partial results: what one machine's logs say, in a file that merges with others.
//!
//! ```text
//!  header │ blocks: URLs in order, 256 partitions │ figures │ about │ index │ footer
//! ```
//!
//! URLs are known by 128 bits and lie in the order of these, so that any number of partial results
//! merges in one walk, with a block of each in memory. The figures are what is counted line by line,
//! and the sample. Every byte is covered by a checksum: `docs/reference/partial-format.md`.

mod merge;
mod read;
mod write;

use std::io;
use std::path::PathBuf;

use edgeward_analysis::QueryRule;
use edgeward_analysis::wire::{Garbled, Reader, Writer};

use crate::analyze::Depth;
use crate::report::{FileReport, flag, string};

pub(crate) use merge::Merged;
pub use merge::{merge, merge_to_partial};
pub(crate) use read::Part;
pub use read::check;
pub(crate) use write::{PartialFile, write};
pub use write::{Written, analyze_to_partial};

/// What is wrong with a partial result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartialError {
    /// It cannot be written.
    #[error("{} cannot be written", .path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It cannot be read.
    #[error("{} cannot be read", .path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no partial result", .path.display())]
    NotOne {
        /// Where.
        path: PathBuf,
    },
    /// It was written by a version of the program that this one does not know.
    #[error("{} is a partial result of format {found}, and only {VERSION} is known", .path.display())]
    Version {
        /// Where.
        path: PathBuf,
        /// What it says.
        found: u32,
    },
    /// Its end is missing.
    #[error("{} ends in the middle: it is a partial result that was not copied whole", .path.display())]
    CutShort {
        /// Where.
        path: PathBuf,
    },
    /// Its bytes are not those that were written.
    #[error("{} is damaged: {what}", .path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is.
        what: String,
    },
    /// Two answer different questions.
    #[error("{} and {} do not fit together: {what}", .path.display(), .other.display())]
    Differs {
        /// One.
        path: PathBuf,
        /// The other.
        other: PathBuf,
        /// In what.
        what: &'static str,
    },
    /// The same one is given twice, and would count twice.
    #[error("{} and {} are the same partial result", .path.display(), .other.display())]
    Twice {
        /// One.
        path: PathBuf,
        /// The other.
        other: PathBuf,
    },
}

/// What was asked, and of which logs.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) depth: Depth,
    pub(crate) query: QueryRule,
    /// The rest of what was asked, as text: an analysis that goes on must ask the same.
    pub(crate) asked: String,
    pub(crate) files: Vec<FileReport>,
}

impl About {
    fn write_to(&self, out: &mut Writer) {
        out.byte(u8::from(self.depth == Depth::Full));
        out.byte(u8::from(self.query == QueryRule::Cut));
        out.text(self.asked.as_bytes());
        out.number(self.files.len() as u64);
        for file in &self.files {
            file.write_to(out);
        }
    }

    fn read_from(from: &mut Reader<'_>) -> Result<Self, Garbled> {
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
        let asked = string(from)?;
        let mut files = Vec::new();
        for _ in 0..from.count(FILE_BYTES_MIN)? {
            files.push(FileReport::read_from(from)?);
        }
        Ok(Self {
            depth,
            query,
            asked,
            files,
        })
    }
}

/// Where a block lies and what it holds.
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

/// The magic number, the version, and four zeros.
const HEADER_BYTES: usize = 16;

/// Lengths and checksums of figures, about and index; the checksum of header and footer; the magic
/// number.
const FOOTER_BYTES: usize = 6 * 8 + 8 + 8;

/// URLs in a block. A merge has one of each partial result in memory, 200 KB.
const KEYS_A_BLOCK: usize = 4096;

/// Of a URL's key; the byte in front is the partition's number.
const KEY_BYTES: usize = 15;

/// The key, the count, and of objects with sizes their bytes and size.
const KEY_ROW_BYTES_MAX: usize = KEY_BYTES + 3 * 10;

/// A report of a file takes more.
const FILE_BYTES_MIN: usize = 14;
