//! The edge: an HTTP reverse proxy cache on hyper, with one runtime per core.
//!
//! [`Edge::start`] takes an [`EdgeConfig`], and returns when the edge accepts connections. Each worker is a thread
//! with its own runtime, listening sockets, connections to the origin and counters. The workers share the
//! cache (`edgeward_store::hot` in memory), the table of fetches under way and a clock. `edgeward_semantics` decides
//! what HTTP allows, and `edgeward_policy` decides which responses are stored. This crate moves the bytes.
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

mod cache; // memory, disk, fetches that requests share
mod client; // listeners, client connections, codecs
pub mod config;
mod edge; // start, stop, metrics, status
mod exchange; // the state of connections and requests
mod net; // names, TLS, descriptors
mod observe; // counters, access log, spans
mod origin; // connections and requests to the origin
mod path; // the request path, from the lookup to the response
mod rt; // clock, tasks, budgets, health

pub use cache::disk::{DiskError, head as disk_head};
pub use cache::successor::{ForwardedChange, Receipt};
pub use config::interfaces::{Dial, DialedStream, Resolve, Resolved, Target, UrlName};
pub use config::{EdgeConfig, id_filter as negative, watch};
#[doc(hidden)]
pub use edge::hostile;
pub use edge::{
    CacheIdentity, DiskTakeOver, Edge, EdgeHealth, Inheritance, InheritedSockets, LogReopener,
    QuicIdentity, REPLACED, ReloadError, Reloader, RunningEdge, SettingKey, StartError,
    UpgradeSource, after_reload, check_start, metric_definitions, rehearse,
};
pub use exchange::h2_frames;
pub use net::staple::StapleError;
pub use net::tls::TlsError;
pub use observe::access_log::AccessLogError;
pub use origin::ConnectorError;
pub use rt::panics::log_panics;
