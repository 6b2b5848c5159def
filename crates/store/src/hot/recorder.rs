//! How a worker tells the tuner of its requests: into a bounded ring of its own, never waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_types::KeyHash;

use super::tuning::Inline;

/// One request as the tuner sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) key: KeyHash,
    pub(super) size_bytes: u64,
    pub(super) hit: bool,
}

/// One worker's line to the tuner. The paper's per-thread ring (section 4.2).
#[derive(Debug)]
pub struct Recorder(Line);

#[derive(Debug)]
enum Line {
    Off,
    Ring {
        ring: rtrb::Producer<Request>,
        dropped: Arc<AtomicU64>,
    },
    Inline(Arc<dyn Inline>),
}

impl Recorder {
    /// A request for the object under `key`, charged or to be charged with `size_bytes`.
    ///
    /// Never blocks: what a full ring cannot take is counted and forgotten, since the tuner needs
    /// a fair sample and not every request. (A tuner set to run inline does its work here.)
    #[inline]
    pub fn record(&mut self, key: KeyHash, size_bytes: u64, hit: bool) {
        let request = Request {
            key,
            size_bytes,
            hit,
        };
        match &mut self.0 {
            Line::Off => {}
            Line::Ring { ring, dropped } => {
                if ring.push(request).is_err() {
                    dropped.fetch_add(1, Relaxed);
                }
            }
            Line::Inline(tuning) => tuning.record(request),
        }
    }

    pub(super) fn off() -> Self {
        Self(Line::Off)
    }

    pub(super) fn ring(ring: rtrb::Producer<Request>, dropped: Arc<AtomicU64>) -> Self {
        Self(Line::Ring { ring, dropped })
    }

    pub(super) fn inline(tuning: Arc<dyn Inline>) -> Self {
        Self(Line::Inline(tuning))
    }
}

/// Requests a ring holds. At 200 000 requests a second and a drain every 20 ms, 4000 are waiting;
/// four times that rides out a tuner busy with a step for 80 ms, at 24 bytes each 384 KiB a worker.
pub(super) const RING_REQUESTS: usize = 16_384;
