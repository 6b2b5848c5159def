//! The settings of the connection to NATS.

use std::path::PathBuf;
use std::time::Duration;

/// The settings of a node that follows a stream.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// The URLs of the servers, such as `nats://127.0.0.1:4222`. A connection needs one of them.
    pub servers: Vec<String>,
    /// The name of the node, for the lists of connections of NATS and for the logs of other nodes.
    pub node: String,
    /// How the node authenticates itself, besides its certificate.
    pub credentials: NatsCredentials,
    /// The certificates. `None`: the roots of the system, for URLs with `tls://`.
    pub tls: Option<NatsTls>,
    /// The name of the stream. Its subject is `STREAM.purges`.
    pub stream: String,
    /// The number of copies of the stream, if this node creates it.
    pub replicas: u32,
    /// The age after which the stream drops messages, if this node creates it.
    pub age_max: Duration,
    /// The size at which the stream drops its oldest messages, if this node creates it.
    pub bytes_max: u64,
    /// The most bytes of messages that the stream has delivered and that the cache has not applied, and as many of
    /// messages that wait for the stream. A message has at most 512 KiB, and may exceed the first bound.
    pub buffer_bytes_max: usize,
    /// The lag above which the node is cut off.
    pub lag_max: Duration,
}

/// How a node authenticates itself.
#[derive(Clone, Default)]
pub enum NatsCredentials {
    /// By no secret.
    #[default]
    None,
    /// By a token.
    Token(String),
    /// By a user and a password.
    User {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
}

/// Shows no secret.
impl std::fmt::Debug for NatsCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Token(_) => f.write_str("Token"),
            Self::User { user, .. } => write!(f, "User({user})"),
        }
    }
}

/// PEM files of the connection to NATS.
#[derive(Clone, Debug, Default)]
pub struct NatsTls {
    /// The certificates of the authorities that the server's certificate chains to. `None`: the roots of the system.
    pub authorities: Option<PathBuf>,
    /// The certificate of the node, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The settings of a node that announces itself to its fleet.
#[derive(Clone, Copy, Debug)]
pub struct MemberSettings {
    /// The time for which a heartbeat lasts. The node sends four in this time.
    pub lasts: Duration,
    /// The time within which the weight of a node grows that has started. Zero: it has its whole weight at once.
    pub slow_start: Duration,
}
