//! The link between an edge and a gateway: connections, streams, the two endpoints, and local listeners.
//!
//! A [`Client`] keeps a few TCP connections to a [`Gateway`] and opens streams over them. Each [`LinkStream`] is
//! read and written like a socket, on any thread, and leads to a [`Target`] on the gateway's network. The crate
//! `edgeward_dedup` decides which frames are sent; this crate does the input and output. All connections to one peer
//! share one sender and one receiver of `edgeward_dedup`, which are state machines (`core`). One task for each peer
//! (`driver`) reads frames from the connections, passes them to these state machines, writes the frames that they
//! produce, and moves the bytes of the streams.
//!
//! `docs/reference/link-protocol.md` specifies the frames, and the labels with which streams name their
//! targets. `docs/how-to/link.md` describes how to set up a link.
//!
//! ```no_run
//! # async fn example(
//! #     folder: &std::path::Path,
//! #     store: edgeward_chunk_store::Chunks,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use edgeward_link::{Client, Encryption, Keys, LinkConfig, Target};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let (keys, store_key) = Keys::load(folder)?;
//! let config = LinkConfig::new(Encryption::Tls(keys.into()), store_key, store);
//! let client = Client::start(config, "gateway.example:7443")?;
//! let mut stream = client.open(Target::Tcp("db:3306".parse()?))?;
//! stream.write_all(b"a question").await?;
//! stream.shutdown().await?;
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer).await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod address; // addresses that a permitted host name must not resolve to
mod admin;
mod allow;
mod backoff;
mod budget;
mod buffers;
mod certificate_problem;
mod client;
mod config;
mod connection;
mod core; // the state of a peer
mod deny;
mod driver; // the task of a peer
mod gateway;
mod handshake;
mod identity;
mod inbox; // the receive buffers of a connection
mod keys;
mod knowledge_files; // stores on disk which chunks each peer has
mod knowledge_pages; // the memory of the records of the peers' chunks
mod label;
mod lent_buffers; // buffers that idle connections return
mod listener;
mod local; // opens TCP sockets
mod metrics;
mod origin;
mod origin_tls;
mod outbox; // encoded frames that wait to be written
mod peer;
mod pipe; // a bounded queue between the user of a stream and the link
mod probe; // detects encrypted and compressed bodies
mod rate_limit;
mod ready; // wakes the task of a peer
mod send_delay;
pub mod socks;
mod status;
mod stream;
mod timer;
mod traffic;
mod transparent; // connections that a firewall diverts
mod user; // moves bytes between a stream and its user

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use edgeward_dedup::chunker::ChunkerError;

pub use admin::{Admin, StatusReport};
pub use allow::{Allow, ParseRuleError, Rule};
pub use certificate_problem::{CertificateHolder, CertificateProblem, RefusedCertificate};
pub use client::{Client, LinkState, OpenError};
pub use config::{Encryption, LinkConfig, Times};
pub use connection::ConnectionError;
pub use deny::{DenyError, DenyList};
pub use gateway::{Gateway, GatewayConfig, GatewayCounters, IdentityLimits, IdentityStatus};
pub use handshake::HandshakeError;
pub use identity::{EndpointName, Identity, ParseNameError};
pub use keys::{
    Certificate, KeyFolder, KeyFolderError, Keys, KeysError, certificate_fingerprint,
    generate_keys, load_store_key,
};
pub use label::{HostPort, Label, ParseHostPortError, Target, refusal_reason};
pub use listener::{ListenerTarget, LocalListener};
pub use metrics::metric_definitions;
pub use origin_tls::{OriginTls, OriginTlsError};
pub use probe::opaque_type;
pub use rate_limit::{ParseRateLimitError, RateLimit, RateLimiter};
pub use status::{EndpointStatus, GatewayStatus, PeerStatus, RateLimitStatus};
pub use stream::{LinkStream, StreamError};
pub use traffic::{BodyCounters, DirectionCounters};

/// Why an endpoint cannot be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The configured chunk size is not supported.
    #[error("the chunk size is not supported")]
    Chunks(#[from] ChunkerError),
    /// The system's random number generator failed.
    #[error("cannot read the system's random number generator")]
    Random(#[source] io::Error),
    /// The endpoint cannot listen on the address, for example because another process uses the port.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The configured address.
        addr: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// A listening socket of another process cannot be used.
    #[error("cannot use the listening socket of the earlier process")]
    Socket(#[source] io::Error),
}

/// Returns `N` bytes from the system's random number generator.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}
