//! Reads request logs with all cores in bounded memory, and computes statistics.
//!
//! ```text
//!  files ──> one thread per file: decode, split, parse ──> 256 partitions by the top byte of the URL's fingerprint
//!                                  │                        │ full buffers, to one temporary file
//!                                  └──> tally               v
//!                                                  one thread per partition: count ──> objects
//! ```
//!
//! The tally has the counts of all lines, for example by hour and by status. All requests for a URL are in one
//! partition, so partitions are counted separately and their results are added. In a partition, a request takes 8
//! bytes with [`Depth::Counts`] and 16 bytes with [`Depth::Full`]. A fingerprint of 128 bits adds 8 bytes to both.
//! Memory holds the buffers of the partitions and one table per thread. The size of a table is limited: if a partition
//! has more URLs, its thread reads the partition in several passes. The temporary file has no name, so the system
//! always frees its space when the process ends.
//!
//! The tally and the counts of all URLs can be saved: as a partial result, which can be merged with those of other
//! machines, or as a checkpoint, from which an interrupted analysis continues.
//!
//! A problem in one file (truncated, corrupt, unreadable, not a log) affects only the rest of this file. The
//! file's [`FileReport`] states the problem, and the other files are read.
#![forbid(unsafe_code)]

mod ahead; // decompression in separate threads
mod analyze; // the complete analysis
mod checkpoint; // saved results, from which an interrupted analysis continues
mod count; // sums for each URL of a partition
mod each; // the requests of logs, one after the other
mod find; // the logs in files, folders and patterns
mod follow; // a log that grows, across rotation
mod lines; // the lines of a log
mod mark; // hashes of parts of a file
#[cfg(feature = "parquet")]
mod parquet;
mod partial; // statistics of one machine, to be merged with others
mod report; // what was read from each log, and its problems
mod rotation; // the names of rotated logs
mod row; // the data of one request in a partition
mod rows; // the requests that one thread has read
mod scan; // the threads that read logs
mod spill; // partitions in memory and in the temporary file

pub use analyze::{Analysis, AnalyzeError, Checkpoint, Depth, FingerprintBits, Settings, analyze};
pub use checkpoint::CheckpointError;
pub use each::for_each_request;
pub use find::{FindError, Source, find};
pub use follow::{FollowCounts, FollowError, FollowState, Follower, LogPosition, Start};
#[cfg(feature = "parquet")]
pub use parquet::{ParquetSummary, ToParquetError, to_parquet};
pub use partial::{
    PartialError, PartialSummary, analyze_to_partial, check, merge, merge_to_partial,
};
pub use report::{Backwards, FileProblem, FileReport, FileState, MalformedLines, ResumePoint};
pub use spill::SpillError;
