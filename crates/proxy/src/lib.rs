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

mod base;
mod cache;
mod client;
mod edge;
mod exchange;
mod origin;
mod path;

pub use base::access_log::{AccessLogError, LogReopener};
pub use base::config::id_filter as negative;
pub use base::config::{self, EdgeConfig};
pub use base::dial::{Dial, DialedStream};
pub use base::tls::TlsError;
pub use cache::disk::{DiskError, head as disk_head};
pub use client::h2_frames;
#[doc(hidden)]
pub use edge::hostile;
pub use edge::{Edge, RunningEdge, StartError, metric_definitions};
pub use origin::ConnectorError;
