//! Follows the stream of a fleet's purges in NATS JetStream, and publishes purges to it.
//!
//! A thread has the connection to NATS and carries out the decisions of `edgeward_fleet`: which messages the cache
//! applies, when a subscription begins again, and when a purge is acknowledged. The thread creates the stream if it
//! does not exist. All queues are bounded.
#![forbid(unsafe_code)]

mod connection;
mod driver;
mod faults;
mod publishing;
mod settings;

pub use driver::{FleetClient, StartError};
pub use settings::{NatsCredentials, NatsSettings, NatsTls};
