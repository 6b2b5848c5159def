//! The path of requests from a worker to the tuner: a ring for the tuner's thread, or the tuner itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use edgeward_types::KeyHash;

/// The data of a request that the tuner needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) key: KeyHash,
    pub(super) size_bytes: u64,
    pub(super) hit: bool,
}

/// The receiver of the requests.
#[derive(Debug)]
pub(super) enum Sink {
    Off,
    Ring {
        ring: rtrb::Producer<Request>,
        dropped: Arc<AtomicU64>,
    },
    Inline(Arc<dyn Inline>),
}

/// A tuner that runs on the thread that records requests.
pub(super) trait Inline: Send + Sync + fmt::Debug {
    fn record(&self, request: Request);
}

/// The capacity of a ring in requests. A worker with 200 000 requests a second fills a ring in 80 ms. The tuner's
/// thread empties the rings every 20 ms, but not while it computes. A request has 24 bytes, so a ring takes 384 KiB
/// per worker.
pub(super) const RING_REQUESTS: usize = 16_384;
