//! The checked configuration of an endpoint. [`LinkConfig::new`] sets the defaults.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use edgeward_chunk_store::Chunks;
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::chunker::{ChunkerError, ChunkerParams};
use edgeward_dedup::codec::Methods;
use edgeward_dedup::endpoint::EndpointConfig;
use edgeward_dedup::fingerprint::FingerprintKey;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::receiver::{ReceiverConfig, Sharing};
use edgeward_dedup::sender::SenderConfig;

use crate::buffers::Buffers;
use crate::identity::Identity;
use crate::keys::Keys;
use crate::rate_limit::RateLimiter;

/// The encryption of connections.
#[derive(Clone, Debug)]
pub enum Encryption {
    /// TLS 1.3. Both endpoints have certificates of one private CA.
    Tls(Arc<Keys>),
    /// No encryption, for links inside a VPN. An attacker on the network can read the traffic. The first frame
    /// contains a hash that shows that the edge has the store key. An attacker who reads this hash can connect to the
    /// gateway.
    Off,
}

impl Encryption {
    /// Returns the identity of this endpoint, or `None` without encryption.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match self {
            Self::Tls(keys) => Some(keys.identity()),
            Self::Off => None,
        }
    }
}

/// The settings of an endpoint: encryption, store, compression, limits.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// The encryption of connections.
    pub encryption: Encryption,
    /// The key of chunk hashes. Both endpoints must have the same key.
    pub store_key: IdKey,
    /// The chunk store.
    pub store: Chunks,
    /// The average chunk size in bytes, 4 to 64 KiB. An edge uses the chunk size of its gateway.
    pub chunk_bytes: u32,
    /// True if bodies are cut into chunks and the chunks are looked up in the store. Otherwise bodies are only
    /// compressed.
    pub dedup: bool,
    /// True if a new chunk is compressed with a dictionary. The dictionary is stored chunks: those that lie in the
    /// store after the last known chunk of the body.
    pub delta: bool,
    /// The compression methods. zstd falls back to LZ4 or to no compression if it is slower than the network.
    pub methods: Methods,
    /// True if bodies that begin like encrypted or compressed data bypass deduplication.
    pub probe: bool,
    /// The number of TCP connections to a peer, 1 to 16. If there are several, the first one carries short frames.
    pub connections: usize,
    /// The highest number of open streams of a peer.
    pub streams_max: usize,
    /// The highest number of bytes received from a peer that the streams' readers have not read yet.
    pub receive_bytes_max: u64,
    /// The highest number of bytes sent to a peer that the peer has not acknowledged.
    pub unacked_bytes_max: usize,
    /// The highest number of requests to the store for whose answers from the disk frames wait. Meanwhile,
    /// later frames are handled. At this limit, a connection handles no further frame until a read has ended.
    pub slow_requests_max: usize,
    /// The limit of the bytes that all connections together send, with its state. `None` for no limit.
    pub rate_limiter: Option<Arc<RateLimiter>>,
    /// The folder of the files that record which chunks each peer has, so that these chunks are not sent again after
    /// a restart. `None` keeps this knowledge in memory only.
    pub knowledge: Option<PathBuf>,
    /// The highest number of bytes in memory for the record of the chunks that all peers have. Equal parts of the
    /// records of several peers count once. At the limit, peers forget the chunks in old containers.
    pub knowledge_bytes_max: usize,
    /// Timeouts and intervals.
    pub times: Times,
    /// The buffers of bodies, shared by all peers.
    pub pool: Pool,
}

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// An idle connection sends a keep-alive at this interval. A connection that receives no bytes for three
    /// intervals is closed.
    pub keep_alive: Duration,
    /// The timeout from the beginning of a connection until the peer's HELLO frame is received.
    pub handshake: Duration,
    /// The timeout from the acceptance of a connection until its first byte is received.
    pub first_byte: Duration,
    /// The delay after the first failed attempt to connect.
    pub backoff_min: Duration,
    /// The longest delay between attempts.
    pub backoff_max: Duration,
    /// Streams survive an outage of the link that is shorter than this.
    pub outage_max: Duration,
    /// The timeout of an attempt of the gateway to connect to a target.
    pub connect: Duration,
    /// The interval at which the knowledge about the peers' chunks is persisted.
    pub knowledge: Duration,
}

impl Default for Times {
    /// The keep-alive interval of 15 s is shorter than the idle timeouts of most middleboxes. Most changes of a
    /// network route take less than the `outage_max` of 15 s, and most users wait that long.
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(15),
            handshake: Duration::from_secs(10),
            // An edge sends its first bytes as soon as it has connected. Within 3 s, TCP can retransmit a lost packet
            // twice.
            first_byte: Duration::from_secs(3),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(15),
            outage_max: Duration::from_secs(15),
            connect: Duration::from_secs(10),
            // Persisting includes a sync of the store, so it must not be frequent. After a crash, the chunks that
            // were exchanged since the last time are sent again.
            knowledge: Duration::from_secs(300),
        }
    }
}

impl LinkConfig {
    /// Returns the defaults: chunks of 8 KiB, all features enabled, two connections, 256 MiB of received and unread
    /// bytes, and 128 MiB of unacknowledged bytes per peer. 128 MiB are enough for 10 Gb/s and a round-trip time of
    /// 100 ms.
    pub fn new(encryption: Encryption, store_key: IdKey, store: Chunks) -> Self {
        Self {
            encryption,
            store_key,
            store,
            chunk_bytes: 8 << 10,
            dedup: true,
            delta: true,
            methods: Methods::ALL,
            probe: true,
            connections: 2,
            streams_max: 1024,
            receive_bytes_max: 256 << 20,
            unacked_bytes_max: 128 << 20,
            // A hard disk can reorder 16 concurrent reads well, and flash devices have about 16 channels. Frames
            // have at most 0.5 MiB, so waiting frames take at most 8 MiB per connection.
            slow_requests_max: 16,
            rate_limiter: None,
            knowledge: None,
            // A full record of a store of 1 TB takes 22 MB, and the equal records of 2,000 peers take as much. If the
            // records of 2,000 peers have nothing in common, each keeps at least 256 KiB, which is enough for 12 GB of
            // chunks.
            knowledge_bytes_max: 1 << 30,
            times: Times::default(),
            pool: Buffers::pool(),
        }
    }

    /// Returns the number of containers whose chunks an endpoint records for a peer.
    pub(crate) fn containers_max(&self) -> usize {
        CONTAINERS_MAX.min(self.store.containers() as usize)
    }

    /// Returns the configuration of the sender and the receiver for one peer. `sharing` states which chunks the peer
    /// may reference. With `keep_sent`, the peer may also reference chunks that this endpoint has sent to it. `session`
    /// is a random number, by which the peer detects a restart of this endpoint.
    pub(crate) fn endpoint(
        &self,
        sharing: Sharing,
        keep_sent: bool,
        session: u64,
    ) -> Result<EndpointConfig, ChunkerError> {
        // With a public seed, an attacker could cut a guessed body into chunks and recognise it by the lengths of the
        // encrypted frames.
        let seed = self.store_key.id(b"edgeward link: seed of the chunker").0;
        let seed = u64::from_le_bytes(*seed.first_chunk().expect("the array has sixteen bytes"));
        let chunker = ChunkerParams::new(self.chunk_bytes, seed)?;
        // Half of the receive budget is divided evenly among `streams_max` streams as their initial credit, which is
        // from 16 to 256 KiB. The other half is granted to fast streams later.
        let streams_max = self.streams_max.max(1);
        let credit = self.receive_bytes_max / 2 / streams_max as u64;
        let credit = credit.clamp(16 << 10, 256 << 10);
        Ok(EndpointConfig {
            id_key: with_fingerprints(&self.store_key),
            sender: SenderConfig {
                delta: self.delta,
                keep_sent,
                streams_max,
                unacked_max: self.unacked_bytes_max,
                stream_unacked_max: self.unacked_bytes_max.min(32 << 20),
                // The peer announces the initial credit in its HELLO frame.
                credit: 0,
                ..SenderConfig::new(chunker, self.methods)
            },
            receiver: ReceiverConfig {
                streams_max,
                credit,
                window_max: 16 << 20,
                budget: self.receive_bytes_max.max(credit * streams_max as u64),
                sharing,
            },
            containers_max: self.containers_max(),
            session,
            pool: self.pool.clone(),
        })
    }
}

/// Returns this key with fingerprints, by which the sender recognises repeated chunks faster than by their hashes.
fn with_fingerprints(key: &IdKey) -> IdKey {
    match &*FINGERPRINT_KEY {
        Some(fingerprints) => key.clone().with_fingerprints(Arc::clone(fingerprints)),
        None => key.clone(),
    }
}

/// The fingerprint key of all peers. The peers share the chunk store, which caches the fingerprints of chunks,
/// so they need the same key. `None` if the random number generator fails; the endpoint then uses no
/// fingerprints.
static FINGERPRINT_KEY: LazyLock<Option<Arc<FingerprintKey>>> = LazyLock::new(|| {
    let random = crate::random::<32>().ok()?;
    Some(Arc::new(FingerprintKey::new(&random)))
});

/// The highest number of containers for which an endpoint records which of their chunks a peer has. The record has
/// one bit per chunk; this limit corresponds to a store of about 1 TB.
const CONTAINERS_MAX: usize = 1 << 20;
