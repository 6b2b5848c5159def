//! The publisher of id filters: scans ids, journals changes, signs statements, and serves files to clients and
//! CDNs.
//!
//! [`Publisher::start`] takes a [`PublishConfig`] and an [`IdSource`], and starts three threads:
//!
//! - the **builder** scans the source on a schedule and builds a snapshot of its ids;
//! - the **writer** owns the journal. Ids that are posted or fed between two scans get a number. The writer syncs
//!   the ids to the device and publishes them as deltas before it acknowledges them;
//! - the **server** serves fresh manifests and proofs. It serves snapshots and deltas under their SHA-256. These
//!   files never change, so any cache may keep them.
//!
//! The published state is one immutable value behind a watch channel. A request uses the newest value and never
//! waits for a build. `docs/explanation/id-filter.md` lists paths, fields and status codes.
//! `edgeward_filter::client` decides how long a client may rely on its filter.
//!
//! **Coverage.** A proof states that all ids committed up to a time are published, so the publisher must know
//! all sources of ids: see [`Coverage`]. A snapshot contains the ids that the scan read, and the ids that were
//! journaled during the scan and shortly before. An id that is committed during the scan is therefore among the
//! read ids or among the journaled ids.
#![forbid(unsafe_code)]

mod admin;
mod build;
mod config;
mod content;
mod counters;
mod feed;
mod guava;
mod origins;
mod position;
mod publisher;
mod routes;
mod state;
mod tables;
mod token;
mod writer;

pub use admin::metric_definitions;
pub use build::{IdSource, ScanError};
pub use config::{Coverage, PublishConfig, PublishLimits};
pub use feed::{Changes, Feed, FeedError};
pub use origins::{AllowedOrigins, OriginError, PageOrigin};
#[doc(hidden)]
pub use position::StoredPosition;
pub use publisher::{PublishError, Publisher, RunningPublisher};
pub use state::StateError;
#[doc(hidden)]
pub use state::read_log;
pub use tables::tables;
pub use token::{Token, TokenError};
