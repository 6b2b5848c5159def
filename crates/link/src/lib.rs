//! The link between edge and gateway: connections, streams, the gateway, and ways in.
//!
//! A [`Client`] keeps a few TCP connections to a [`Gateway`] and begins conversations over them: each a
//! [`LinkStream`], to be read and written like a socket, with a [`Target`] on the gateway's network. What
//! travels is decided by `edgeward_dedup`; here it is driven. All connections to one peer work on one pair of
//! its machines, behind one lock (`core`); a connection (`line`) is a task that reads, lets the machines work,
//! and writes.
//!
//! Frames and labels are in `docs/reference/link-protocol.md`, how to set a link up in `docs/explanation/link.md`.
//!
//! ```no_run
//! # async fn example(folder: &std::path::Path, store: edgeward_chunk_store::Chunks) -> Result<(), Box<dyn std::error::Error>> {
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

mod address;
mod admin;
mod alarm;
mod allow;
mod aside;
mod backoff;
mod cipher;
mod client;
mod config;
mod core;
mod deny;
mod entry;
mod gateway;
mod handshake;
mod hold;
mod ids;
mod inbox;
mod keys;
mod label;
mod line;
mod local;
mod metrics;
mod origin;
mod outbox;
mod peer;
mod probe;
mod pump;
mod recall;
mod shelf;
pub mod socks;
mod status;
mod stream;
mod tally;
mod turn;

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use edgeward_dedup::chunker::ChunkerError;

pub use admin::{Admin, Report};
pub use allow::{Allow, NotARule, Rule};
pub use client::{Client, OpenError, State};
pub use config::{Encryption, LinkConfig, Times};
pub use deny::{DenyError, DenyList};
pub use entry::{Entry, Way};
pub use gateway::{Gateway, GatewayConfig, GatewayCounters};
pub use handshake::HandshakeError;
pub use ids::Ids;
pub use keys::{Keys, KeysError, fingerprint_of, generate, load_store_key};
pub use label::{HostPort, Label, NotHostPort, Target, refusal};
pub use line::LineError;
pub use pump::pump;
pub use status::{EndStatus, GatewayStatus, PeerStatus};
pub use stream::{LinkStream, Refused};
pub use tally::Tally;

/// Why an end does not begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Chunks cannot be cut like this.
    #[error("the size of chunks is not possible")]
    Chunks(#[from] ChunkerError),
    /// There is no randomness.
    #[error("the system has no randomness")]
    Random(#[source] io::Error),
    /// The address cannot be had.
    #[error("cannot listen on {addr}")]
    Listen {
        /// Which.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// An error with all its causes, for a log.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
