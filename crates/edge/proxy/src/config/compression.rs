//! The settings of compression by the edge.

use std::num::NonZeroUsize;

use edgeward_semantics::content_coding::{Coding, CompressibleTypes, CompressionRules};
use edgeward_types::ByteSize;

/// Compression of stored responses that the origin sends without a coding.
#[derive(Clone, Debug)]
pub struct CompressionConfig {
    /// Default true: behind an edge that does not compress, a site of text becomes 3 to 4 times larger, because nginx
    /// compresses no response for a request with `Via` (`gzip_proxied off`).
    pub enabled: bool,
    /// The codings that the edge applies, the preferred one first, for clients that want several equally. Default `br`,
    /// `zstd`, `gzip`: with the default levels, the order of their sizes on text.
    pub codings: Vec<Coding>,
    /// The responses that are compressed. Default: types of text, 256 B to 8 MiB. Below 256 B a coding saves less than
    /// the second object costs the cache (about 400 B). 8 MiB of text take 0.4 s of one core.
    pub rules: CompressionRules,
    /// The level of gzip, 1 to 9. Default 7: zlib-rs makes 0.1 % more bytes at level 6 than zlib, as nginx has it, and
    /// 0.6 % fewer at level 7. Level 9 saves 0.5 % and takes 1.6 times the time (`bench/runs/2026-11-25-compression`,
    /// also for the other levels).
    pub gzip_level: u32,
    /// The level of Brotli, 0 to 11. Default 6, as fast as 5: 20 MB/s. It saves 8 % more than level 4 in 1.2 times the
    /// time. Level 7 takes twice the time for 1 %, level 9 14 times for 3 %, and level 11 40 times for 14 %.
    pub brotli_level: u32,
    /// The level of zstd, 1 to 19. Default 9: level 12 saves 2 % and takes twice the time.
    pub zstd_level: i32,
    /// The threads that compress. Default: half of the cores, because workers need the others.
    pub threads: NonZeroUsize,
    /// The memory of compressed bodies that are being made, or sent without being stored. If it is exhausted, responses
    /// are sent without a coding. Default 32 MiB: one core compresses this in 1.6 s.
    pub pending_bytes_max: ByteSize,
    /// The longest body for whose compression a request waits. Default 8 MiB, like the longest body that is compressed:
    /// it takes 0.4 s, and on a connection of 100 Mbit/s, sending the saved bytes would take longer. Requests for
    /// longer bodies get them without a coding until the compressed body is stored.
    pub wait_bytes_max: ByteSize,
    /// The memory of dictionaries (RFC 9842): copies of the bodies that clients may have. The least recently used one
    /// is dropped. Default 64 MiB: a hundred bundles of 500 KiB in their last versions. Sites have no dictionaries
    /// unless they set `dictionary`.
    pub dictionary_bytes_max: ByteSize,
    /// The `Accept-Encoding` of requests to the origin. Default: that of the client, so that an origin that compresses
    /// better than the edge keeps doing so.
    pub origin_accepts: OriginAccepts,
}

/// The `Accept-Encoding` of requests to the origin whose responses may be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OriginAccepts {
    /// The field of the client's request. If the origin compresses, the cache stores one response per value.
    #[default]
    Forward,
    /// `identity`. The cache stores one response, from which the edge makes all codings.
    Identity,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            enabled: true,
            codings: Coding::GENERAL.to_vec(),
            rules: CompressionRules {
                types: CompressibleTypes::default(),
                length_min: 256,
                length_max: ByteSize::mib(8).bytes(),
                personal: false,
            },
            gzip_level: 7,
            brotli_level: 6,
            zstd_level: 9,
            threads: NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN),
            pending_bytes_max: ByteSize::mib(32),
            wait_bytes_max: ByteSize::mib(8),
            dictionary_bytes_max: ByteSize::mib(64),
            origin_accepts: OriginAccepts::default(),
        }
    }
}
