//! What an end of a link is told, checked and with every default filled in.

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

use crate::ids::Ids;
use crate::keys::Keys;
use crate::shelf::Buffers;

/// Whether connections are encrypted.
#[derive(Clone, Debug)]
pub enum Encryption {
    /// TLS 1.3, both ends with certificates of one private CA.
    Tls(Arc<Keys>),
    /// Not at all: inside a VPN. Whoever reaches the port can then read, and talk to the gateway if they have the store's
    /// key check, which crosses the line in the clear.
    Off,
}

/// What bodies are compressed with, deduplicated by and bounded by: the same for both ends.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// How connections are protected.
    pub encryption: Encryption,
    /// Names chunks; the same at both ends.
    pub store_key: IdKey,
    /// Where chunks are kept.
    pub store: Chunks,
    /// Bytes of a chunk on average, 4 to 64 KiB. What the gateway says counts.
    pub chunk_bytes: u32,
    /// Whether bodies are cut into chunks and looked up; without it they are only compressed.
    pub dedup: bool,
    /// Whether new chunks are compressed against the ones that followed the last known one.
    pub delta: bool,
    /// What bodies are compressed with. zstd gives way to LZ4 and to nothing where the line is faster.
    pub methods: Methods,
    /// Whether bodies that begin like something encrypted or compressed are left alone.
    pub probe: bool,
    /// TCP connections to a peer: of several, the first is for short frames. One to sixteen.
    pub connections: usize,
    /// Streams of a peer at the same time.
    pub streams_max: usize,
    /// Bytes of a peer's bodies that are here and not taken.
    pub receive_bytes_max: u64,
    /// Bytes of bodies that a peer did not acknowledge.
    pub unacked_bytes_max: usize,
    /// Frames of a connection that wait for the disk while others go on; one beyond them has the connection wait.
    pub late_frames_max: usize,
    /// A folder in which it is written down what peers have, so that an end that starts again need not send it again; none, and
    /// it forgets.
    pub knowledge: Option<PathBuf>,
    /// Times.
    pub times: Times,
    /// Memory for bodies, shared by all peers.
    pub pool: Pool,
    /// How chunks are named.
    pub ids: Ids,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// An idle connection says something this often; one that is silent for three times as long is given up.
    pub keep_alive: Duration,
    /// From the beginning of a connection to HELLO.
    pub handshake: Duration,
    /// From the beginning of a connection that the gateway accepted to its first byte.
    pub first_byte: Duration,
    /// The first wait after an attempt to connect that failed.
    pub backoff_min: Duration,
    /// The longest.
    pub backoff_max: Duration,
    /// Conversations survive a line that is down for so long.
    pub patience: Duration,
    /// The gateway connects to a target within this.
    pub connect: Duration,
    /// How often it is written down what peers have.
    pub knowledge: Duration,
}

impl Default for Times {
    /// 15 s keep most middleboxes from forgetting a connection. 15 s of patience are longer than a route takes to change and shorter than
    /// people wait.
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_secs(15),
            handshake: Duration::from_secs(10),
            // An edge sends at once; two of its packets may be lost on the way.
            first_byte: Duration::from_secs(3),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(15),
            patience: Duration::from_secs(15),
            connect: Duration::from_secs(10),
            // It costs a sync of the store. What is exchanged after it is sent once more after a crash.
            knowledge: Duration::from_secs(300),
        }
    }
}

impl LinkConfig {
    /// The defaults: chunks of 8 KiB, everything on, two connections, 256 MiB for what a peer sends and 128 MiB for what it is
    /// sent: 100 ms of 10 Gb/s.
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
            // As many reads at once as a disk orders well and one in flash has channels, and 8 MiB where each brings half a one.
            late_frames_max: 16,
            knowledge: None,
            times: Times::default(),
            pool: Buffers::pool(),
            ids: Ids::Blake3,
        }
    }

    /// What the machines are made of. `sharing`: which chunks the peer may name; `keep_sent`: whether it may name what it was sent, too.
    pub(crate) fn endpoint(
        &self,
        sharing: Sharing,
        keep_sent: bool,
        session: u64,
    ) -> Result<EndpointConfig, ChunkerError> {
        // Sizes of chunks would tell what an encrypted body is, if others could cut alike.
        let seed = self.store_key.id(b"edgeward link: seed of the chunker").0;
        let seed = u64::from_le_bytes(*seed.first_chunk().expect("sixteen bytes"));
        let chunker = ChunkerParams::new(self.chunk_bytes, seed)?;
        // Each stream begins with its share of half the budget, the rest is for those that are fast.
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
                // Until the peer says how much.
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

/// Containers of the store of which it is known what a peer has: a bit a chunk, of a terabyte.
pub(crate) const CONTAINERS_MAX: usize = 1 << 20;
