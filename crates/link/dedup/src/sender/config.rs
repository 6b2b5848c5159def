//! The settings of a sender.

use crate::chunker::ChunkerParams;
use crate::codec::Methods;

/// How bodies are sent.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// How bodies are cut, as agreed in the handshake.
    pub chunker: ChunkerParams,
    /// The compression methods that the peer can decompress, as agreed in the handshake.
    pub methods: Methods,
    /// True if new chunks are compressed against the stored chunks that followed the last known chunk of the body.
    pub delta: bool,
    /// True if the bytes of all new chunks are stored here too, for a peer that may send them back. Otherwise only
    /// bytes that deltas may need are stored.
    pub keep_sent: bool,
    /// The number of bytes at the start of each body that are neither looked up nor stored.
    pub bypass_bytes: u64,
    /// The number of bytes of new chunks that are compressed together in one frame. If chunks are not
    /// compressed, a frame has at most 256 KiB.
    pub batch_bytes: usize,
    /// The number of open streams that the peer accepts.
    pub streams_max: usize,
    /// The initial credit of each stream, as set by the peer: the number of bytes that may be written before the peer
    /// raises the limit with CREDIT.
    pub credit: u64,
    /// The maximum number of bytes of one body that are kept until the peer acknowledges them.
    pub stream_unacked_max: usize,
    /// The maximum number of bytes of all bodies together that are kept until the peer acknowledges them.
    pub unacked_max: usize,
}

impl SenderConfig {
    /// Returns the defaults for an agreed chunker and methods.
    ///
    /// The first 4 KiB bypass deduplication: a request or a small response. 448 KiB are compressed together. Shorter
    /// blocks save fewer bytes with zstd: a quarter fewer with blocks of 8 KiB, and a tenth fewer with 256 KiB.
    /// Also, zstd takes less time if earlier bytes of the block resemble the next ones. 16 MiB of
    /// unacknowledged bytes of a body allow 1.6 Gb/s at a round-trip time of 80 ms.
    pub fn new(chunker: ChunkerParams, methods: Methods) -> Self {
        Self {
            chunker,
            methods,
            delta: true,
            keep_sent: true,
            bypass_bytes: 4 << 10,
            batch_bytes: 448 << 10,
            streams_max: 1024,
            credit: 256 << 10,
            stream_unacked_max: 16 << 20,
            unacked_max: 64 << 20,
        }
    }
}
