//! The publisher of id filters: scans, journals, signs, and serves what clients and CDNs fetch.
//!
//! [`Publisher::start`] takes a [`PublishConfig`] and an [`IdSource`]. From then on three threads work:
//!
//! - the **builder** scans the source on a schedule and makes a snapshot of what it found;
//! - the **writer** owns the journal. Ids that are posted or fed between two scans get a number, lie on
//!   disk before anybody is told so, and are published as deltas a moment later;
//! - the **server** answers: manifests and proofs fresh, snapshots and deltas under the name of their
//!   SHA-256, unchangeable and therefore for any cache to keep.
//!
//! What is published is one immutable value behind a watch channel; a request takes the newest and
//! never waits for a build. The paths, fields and codes are in `docs/explanation/id-filter.md`; what a client may
//! conclude is decided by `edgeward_filter::client`.
//!
//! **Coverage.** A proof says "all ids committed up to then are in here", so the publisher has to know
//! where ids come from: see [`Coverage`]. The journal begins before the scan, and a snapshot unites
//! what the scan saw with what was journaled meanwhile and shortly before, so that an id that is
//! committed while a scan passes by is in one of the two.
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

pub use build::{IdSource, ScanError};
pub use config::{Coverage, PublishConfig, PublishLimits};
pub use feed::{Changes, Feed, FeedError};
pub use origins::{AllowedOrigins, OriginError, PageOrigin};
#[doc(hidden)]
pub use position::Position;
pub use publisher::{PublishError, Publisher, RunningPublisher};
pub use state::StateError;
#[doc(hidden)]
pub use state::read_log;
pub use tables::tables;
pub use token::{Token, TokenError};
