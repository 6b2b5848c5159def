//! The configuration of an endpoint, checked, with every default filled in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edgeward_chunk_store::Chunks;
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::chunker::{ChunkerError, ChunkerParams};
use edgeward_dedup::codec::Methods;
use edgeward_dedup::endpoint::EndpointConfig;
use edgeward_dedup::id::IdKey;
use edgeward_dedup::receiver::{ReceiverConfig, Sharing};
use edgeward_dedup::sender::SenderConfig;

use crate::buffers::Buffers;
use crate::ids::IdScheme;
use crate::keys::Keys;

/// The encryption of connections.
#[derive(Clone, Debug)]
pub enum Encryption {
    /// TLS 1.3. Both endpoints have certificates of one private CA.
    Tls(Arc<Keys>),
    /// No encryption, for links inside a VPN. An attacker on the network can read the traffic. The key check
    /// crosses the network in clear text, and with it an attacker can also use the gateway.
    Off,
}

/// The settings of an endpoint: encryption, store, compression, limits.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// The encryption of connections.
    pub encryption: Encryption,
    /// The key of chunk hashes; the same at both endpoints.
    pub store_key: IdKey,
    /// The chunk store.
    pub store: Chunks,
    /// The average chunk size in bytes, 4 to 64 KiB. The gateway's setting is used.
    pub chunk_bytes: u32,
    /// True if bodies are cut into chunks and looked up. Otherwise they are only compressed.
    pub dedup: bool,
    /// True if new chunks are compressed with the chunks that followed the last known one as a dictionary.
    pub delta: bool,
    /// The compression methods. zstd falls back to LZ4 or to no compression if it is slower than the network.
    pub methods: Methods,
    /// True if bodies that begin like encrypted or compressed data bypass deduplication.
    pub probe: bool,
    /// The number of TCP connections to a peer, 1 to 16. If there are several, the first one carries short frames.
    pub connections: usize,
    /// The limit of streams of a peer at the same time.
    pub streams_max: usize,
    /// The limit of received bytes of a peer that are not read yet.
    pub receive_bytes_max: u64,
    /// The limit of sent bytes that a peer has not acknowledged.
    pub unacked_bytes_max: usize,
    /// The limit of frames of a connection that wait for the disk while other frames are handled. When it is
    /// reached, the connection waits.
    pub late_frames_max: usize,
    /// The folder that persists which chunks each peer has, so that they are not sent again after a restart. `None`
    /// keeps the knowledge in memory only.
    pub knowledge: Option<PathBuf>,
    /// Timeouts and intervals.
    pub times: Times,
    /// The buffers of bodies, shared by all peers.
    pub pool: Pool,
    /// The hash function of chunk ids.
    pub ids: IdScheme,
}

/// Timeouts and intervals.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// An idle connection sends a keep-alive at this interval. A connection that receives no bytes for three
    /// intervals is closed.
    pub keep_alive: Duration,
    /// From the beginning of a connection until HELLO is received.
    pub handshake: Duration,
    /// From accepting a connection until its first byte.
    pub first_byte: Duration,
    /// The delay after the first failed attempt to connect.
    pub backoff_min: Duration,
    /// The longest delay between attempts.
    pub backoff_max: Duration,
    /// Streams survive an outage of the link that is shorter than this.
    pub outage_max: Duration,
    /// The timeout of the gateway's connections to targets.
    pub connect: Duration,
    /// The interval at which the knowledge of peers is persisted.
    pub knowledge: Duration,
}

impl Default for Times {
    /// A keep-alive of 15 s is more frequent than the timeouts of most middleboxes. An outage of up to 15 s covers
    /// most changes of a network route, and is shorter than users wait.
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(15),
            handshake: Duration::from_secs(10),
            // An edge sends at once; two of its packets may be lost on the way.
            first_byte: Duration::from_secs(3),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(15),
            outage_max: Duration::from_secs(15),
            connect: Duration::from_secs(10),
            // Persisting includes a sync of the store. Chunks exchanged later are sent again after a crash.
            knowledge: Duration::from_secs(300),
        }
    }
}

impl LinkConfig {
    /// Returns the defaults: chunks of 8 KiB, all features enabled, two connections, 256 MiB of received and 128
    /// MiB of sent bytes per peer. 128 MiB are 100 ms of 10 Gb/s.
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
            // A disk orders this many concurrent reads well, and flash has about as many channels. With 0.5 MiB for
            // each frame they take 8 MiB.
            late_frames_max: 16,
            knowledge: None,
            times: Times::default(),
            pool: Buffers::pool(),
            ids: IdScheme::Blake3,
        }
    }

    /// Returns the configuration of the state machines. `sharing` says which chunks the peer may reference;
    /// `keep_sent` also lets it reference chunks that were sent to it.
    pub(crate) fn endpoint(
        &self,
        sharing: Sharing,
        keep_sent: bool,
        session: u64,
    ) -> Result<EndpointConfig, ChunkerError> {
        // If the cuts were the same for everyone, chunk lengths could reveal the content of an encrypted body.
        let seed = self.store_key.id(b"edgeward link: seed of the chunker").0;
        let seed = u64::from_le_bytes(*seed.first_chunk().expect("sixteen bytes"));
        let chunker = ChunkerParams::new(self.chunk_bytes, seed)?;
        // Each stream starts with its share of half the budget. The other half is for fast streams.
        let streams_max = self.streams_max.max(1);
        let credit = self.receive_bytes_max / 2 / streams_max as u64;
        let credit = credit.clamp(16 << 10, 256 << 10);
        Ok(EndpointConfig {
            ids: self.ids.of(&self.store_key),
            sender: SenderConfig {
                delta: self.delta,
                keep_sent,
                streams_max,
                unacked_max: self.unacked_bytes_max,
                stream_unacked_max: self.unacked_bytes_max.min(32 << 20),
                // No credit until the peer announces it.
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
            containers_max: CONTAINERS_MAX,
            session,
            pool: self.pool.clone(),
        })
    }
}

/// The limit of containers for which a peer's chunks are recorded: one bit for each chunk of a terabyte.
pub(crate) const CONTAINERS_MAX: usize = 1 << 20;
