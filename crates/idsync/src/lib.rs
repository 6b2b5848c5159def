//! Ids out of databases, for id filters.
//!
//! - A [`Source`] is a database with a query that gives one column. [`open`] makes one from an
//!   address: `postgres://`, `sqlite://`, `cassandra://`, each behind a cargo feature.
//! - A [`Scan`] reads all of it in [`Batch`]es of canonical ids, and goes on when the database was
//!   gone for a while. What of it is done stands in its [`Ledger`].
//! - A [`Checkpoint`] keeps the ledger and the ids' hashes in a file, so that the next run of a
//!   program goes on where a crash ended the last.
//! - [`Changes`] asks again and again for what was added since.
//!
//! Everything here blocks the thread that asks; the clients' tasks run on threads of their own.
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
pub use batch::{Batch, Gather, Reached};
pub use changes::{
    Changes, ChangesConfig, Feed, MalformedRow, MalformedRows, Polled, Rows, Stopper, Unit,
};
pub use checkpoint::{Checkpoint, CheckpointError, Identity, Resumed};
pub use error::{Cause, SourceError};
pub use ledger::{Ledger, Span};
pub use scan::{Begun, Found, Progress, Reading, Retry, Scan, ScanConfig, Sink, Source, Watch};
pub use value::Value;
