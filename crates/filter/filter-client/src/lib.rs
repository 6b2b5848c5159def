//! The client of a published id filter: keeps the filter fresh in the background and answers lookups.
//!
//! ```no_run
//! use std::time::Duration;
//! use edgeward_filter_client::{Answer, FilterClient, FilterConfig, Trust};
//!
//! let url = "https://ids.example/sets/resource".parse()?;
//! let key = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29".parse()?;
//! let config = FilterConfig::new(url, Trust::Keys(vec![key]), Duration::from_secs(10));
//! let filter = FilterClient::start(config)?;
//!
//! match filter.answer("550e8400-e29b-41d4-a716-446655440000") {
//!     Answer::Absent => println!("no such resource: no request is needed"),
//!     Answer::Maybe | Answer::Ask(_) => println!("ask the service"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`FilterClient::start`] returns at once and starts a thread. The thread follows the publisher with long polls, and
//! fetches snapshots and deltas by their SHA-256. It refuses manifests without a valid signature (unless [`Trust`]
//! accepts all), and files that are incomplete, too large or older than those in use. Until the client has a filter and
//! can show that it is fresh, the answer is [`Answer::Ask`]. If the publisher is down, the service gets more queries,
//! but no answer is wrong. `edgeward_filter::client` decides whether the filter is fresh; this crate does the I/O.
//!
//! [`FileFilter`] answers lookups from a file that another program updates.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod counters;
mod fetch;
mod file;
mod refresh;
mod shared;
mod stored_snapshot;
mod tls;

pub use clock::system_clock;
pub use config::{FilterConfig, ParseUrlError, PublisherUrl};
pub use counters::Counts;
pub use edgeward_filter::client::ClockFn;
pub use edgeward_filter::client::{Answer, Reason};
pub use edgeward_filter::{FilterInfo, IdError, IdForm, IdHasher, PublicKey, Trust};
pub use file::{FileError, FileFilter};
pub use shared::{FilterClient, StartError, Status};
pub use tls::{TlsError, client_config};
