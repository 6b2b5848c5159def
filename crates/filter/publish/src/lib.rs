//! The publisher of id filters: scans ids, journals changes, signs manifests and proofs, and serves files to clients
//! and CDNs.
//!
//! [`Publisher::start`] takes a [`PublishConfig`] and an [`IdSource`], and starts three threads:
//!
//! - the **builder** scans the source on a schedule and builds a snapshot of the ids in the source;
//! - the **writer** owns the journal. Clients post ids between two scans, and a [`Feed`] sends changes of the
//!   database. The writer gives each batch of ids a number, syncs the batch to the device and publishes it as a
//!   delta before it acknowledges the ids;
//! - the **server** serves current manifests and proofs. It serves snapshots and deltas under their SHA-256. The
//!   content of a snapshot or delta never changes, so any cache may keep it.
//!
//! The published state is one immutable value behind a watch channel. A request uses the newest value and never
//! waits for a build. `docs/reference/filter-protocol.md` lists paths, fields and status codes.
//! `edgeward_filter::client` decides how long a client may rely on its filter.
//!
//! **Coverage.** A proof states that all ids committed up to a time are published, so the publisher must know
//! all sources of ids: see [`Coverage`]. A snapshot contains the ids that the scan read, and the ids that were
//! journaled during the scan and shortly before. An id that is committed during the scan is therefore among the
//! read ids or among the journaled ids.
#![forbid(unsafe_code)]

mod admin; // metrics, status and health
mod build; // the builder
mod config;
mod content; // responses and their compressed forms
mod counters;
mod feed;
mod guava; // the same ids as a filter in Guava's format
mod origins; // web pages that may read responses (CORS)
mod position; // where a feed continues after a restart
mod publisher;
mod routes; // paths and status codes
mod state; // the state that survives a restart
mod workspace; // memory that builds use again
mod writer;

pub use admin::metric_definitions;
pub use build::{IdSource, ScanError};
pub use config::{Coverage, PublishConfig, PublishLimits};
pub use edgeward_httpd::{Token, TokenError};
pub use feed::{Changes, Feed, FeedError};
pub use origins::{AllowedOrigins, OriginError, PageOrigin};
#[doc(hidden)]
pub use position::StoredPosition;
pub use publisher::{PublishError, Publisher, RunningPublisher};
pub use state::StateError;
#[doc(hidden)]
pub use state::read_log;
pub use workspace::build_workspace;
