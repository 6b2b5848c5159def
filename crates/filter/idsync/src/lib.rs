//! Reads ids from databases, for id filters.
//!
//! - A [`Source`] is a database with a query that returns one column. [`open`] creates a source from an
//!   address: `postgres://`, `sqlite://` or `cassandra://`, each behind a cargo feature.
//! - A [`Scan`] reads all ids in [`Batch`]es of canonical ids, and continues after an outage of the database.
//!   Its [`Ledger`] records which parts of the source were already read.
//! - A [`Checkpoint`] stores the ledger and the hashes of the ids in a file. After a crash, the next run of the
//!   program continues the scan from this file.
//! - [`ChangesPoller`] polls the database for the ids that were added after the scan began.
//!
//! All functions block the calling thread. A running scan also has a thread that reads the database, while the caller
//! processes the batches.
#![forbid(unsafe_code)]

mod address;
mod batch;
#[cfg(feature = "cassandra")]
mod cassandra;
mod changes;
mod checkpoint;
mod error;
mod ledger;
#[cfg(feature = "postgres")]
mod postgres;
mod scan;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "cassandra", feature = "postgres"))]
mod tls;
mod value;

pub use address::{Options, is_database, open};
pub use batch::{Batch, BatchBuilder, SpanProgress};
pub use changes::{
    ChangesConfig, ChangesConnection, ChangesPoller, MalformedRow, MalformedRows, PollResult, Rows,
    Stopper, Unit,
};
pub use checkpoint::{Checkpoint, CheckpointError, Identity, Resumed};
pub use error::{Cause, SourceError};
pub use ledger::{Ledger, Span};
pub use scan::{
    Attempt, Progress, Retry, Scan, ScanConfig, ScanHandle, Sink, Source, SourceFuture, SourceInfo,
};
pub use value::Value;
