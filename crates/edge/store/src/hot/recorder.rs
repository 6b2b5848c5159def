//! Reports a worker's requests to the tuner of AdaptSize. Each worker has a bounded ring buffer, so that the worker
//! never waits for the tuner's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use edgeward_types::KeyHash;

use super::sink::{Request, Sink};
use super::tuning::TuningSwitch;

/// Reports one worker's requests to the tuner: the per-thread ring of the AdaptSize paper (NSDI 2017, section 4.2).
#[derive(Debug)]
pub struct Recorder {
    sink: Sink,
    /// The number of the tuner that receives the requests.
    tuner: u64,
    tuning: Arc<TuningSwitch>,
}

impl Recorder {
    /// Records a request for the object under `key`, whose charge is `size_bytes`.
    ///
    /// Never blocks in the mode [`TunerMode::Thread`](super::TunerMode::Thread). If the ring is full, the request is
    /// dropped and counted as dropped: the tuner needs a fair sample and not every request. In the mode
    /// [`TunerMode::Inline`](super::TunerMode::Inline), this call runs the tuner.
    #[inline]
    pub fn record(&mut self, key: KeyHash, size_bytes: u64, hit: bool) {
        let request = Request {
            key,
            size_bytes,
            hit,
        };
        if self.tuner != self.tuning.number() {
            self.connect();
        }
        match &mut self.sink {
            Sink::Off => {}
            Sink::Ring { ring, dropped } => {
                if ring.push(request).is_err() {
                    dropped.fetch_add(1, Relaxed);
                }
            }
            Sink::Inline(tuning) => tuning.record(request),
        }
    }

    pub(super) fn new(tuning: Arc<TuningSwitch>) -> Self {
        let (tuner, sink) = tuning.connect();
        Self {
            sink,
            tuner,
            tuning,
        }
    }

    /// Connects to the tuner that a change of policy has started.
    #[cold]
    fn connect(&mut self) {
        (self.tuner, self.sink) = self.tuning.connect();
    }
}
