//! Reads request logs with all cores and a bounded memory, and counts what is in them.
//!
//! ```text
//!  files ──> a thread a file: decode, split, parse ──> 256 partitions by the fingerprint's top byte
//!                                  │                        │ full buffers, to one temporary file
//!                                  └──> tally               v
//!                                                  a thread a partition: count ──> objects
//! ```
//!
//! All requests for a URL fall into one partition, so partitions are counted apart and their
//! results add up. What is kept of a request is 8 bytes, or 16 where sizes are wanted; memory
//! holds the partitions' buffers and one table a thread, whatever the number of URLs. The
//! temporary file has no name: whatever becomes of the process, the system takes its space back.
//!
//! Counted sums can also be kept: as a partial result that merges with those of other machines, or
//! as a checkpoint from which an interrupted analysis goes on.
//!
//! What is wrong with one file (cut, damaged, unreadable, no log at all) costs that file's rest.
//! It is told in the file's [`FileReport`] and counted, and the others are read.
#![forbid(unsafe_code)]

mod ahead;
mod analyze;
mod checkpoint;
mod count;
mod find;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod partial;
mod report;
mod row;
mod rows;
mod scan;
mod spill;

pub use analyze::{Analysis, AnalyzeError, Checkpoint, Depth, FingerprintBits, Settings, analyze};
pub use checkpoint::CheckpointError;
pub use find::{FindError, Source, find};
#[cfg(feature = "parquet")]
pub use parquet::{ParquetWritten, ToParquetError, to_parquet};
pub use partial::{PartialError, Written, analyze_to_partial, check, merge, merge_to_partial};
pub use report::{Backwards, FileProblem, FileReport, Found, MalformedLines, Rest};
pub use spill::SpillError;
