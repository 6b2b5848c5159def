//! The edge: an HTTP reverse proxy cache on hyper, one runtime a core.
//!
//! [`Edge::start`] takes an [`EdgeConfig`] and returns when connections are taken. Each worker is a
//! thread with a runtime, listening sockets, connections to the origin, counters and a log ring of
//! its own; what workers share is the cache in memory (`edgeward_store::hot`), the table of
//! fetches under way and a clock. What HTTP allows is decided by `edgeward_semantics`,
//! what is worth keeping by `edgeward_policy`; here the bytes are moved.
//!
//! ```no_run
//! use edgeward_proxy::{Edge, EdgeConfig};
//!
//! let listen = "127.0.0.1:8080".parse()?;
//! let origin = "http://127.0.0.1:9000".parse()?;
//! let edge = Edge::start(EdgeConfig::new(listen, origin, "256MiB".parse()?))?;
//! println!("listening on {:?}", edge.addrs());
//! edge.shutdown(std::time::Duration::from_secs(30));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod access_log;
mod admin;
mod body;
mod client_io;
mod client_stream;
mod clock;
mod collapse;
pub mod config;
mod connection;
mod counters;
mod delivery;
mod descriptors;
mod disk;
mod edge;
mod fill;
pub mod h2_frames;
mod h2_io;
mod heads;
#[doc(hidden)]
pub mod hostile;
mod key_map;
mod lane;
mod listener;
mod metrics;
pub mod negative;
mod origin;
mod pace;
mod pinned;
mod request;
mod sparse_log;
mod status;
mod stored;
mod tasks;
mod tls;
mod worker;

pub use access_log::{AccessLogError, LogReopener};
pub use config::EdgeConfig;
pub use disk::{DiskError, head as disk_head};
pub use edge::{Edge, RunningEdge, StartError};
pub use origin::{ConnectorError, Dial, DialedStream};
pub use tls::TlsError;
