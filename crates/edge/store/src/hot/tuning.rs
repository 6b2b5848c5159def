//! Runs the tuner of an admission rule on a separate thread, or on the threads of requests if runs must be repeatable.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use edgeward_policy::adaptsize;
use edgeward_policy::admission::{self, AdmissionTuner};

use super::shared::Shared;
use super::sink::{Inline, RING_REQUESTS, Request, Sink};
use crate::sync::Mutex;

/// Selects the thread that runs the tuner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunerMode {
    /// A separate thread. Requests never wait for the tuner. The tuner divides the requests into windows. After
    /// each window it computes a new value of AdaptSize's parameter `c`, which takes about 100 ms, and sets it. Other
    /// tuners take less time.
    #[default]
    Thread,
    /// The thread of the request that completes a window. That request waits until the tuner has set the new
    /// `c`. This mode is for runs with one worker that must be exactly repeatable: the server then makes the same
    /// decisions as the simulator, and a digest (a hash of all decisions in order) is equal for both.
    Inline,
}

/// The state of the tuner for operators.
#[derive(Clone, Debug, Default)]
pub struct TuningStatus {
    /// The outcome of AdaptSize's last step, the choice of `c` at the end of a window. `None` before the first window
    /// is full, and for tuners without a model.
    pub last: Option<adaptsize::Tuning>,
    /// The current size parameter in bytes: `c` of AdaptSize, or the largest size that a tuned threshold admits.
    pub c: f64,
    /// The number of windows evaluated.
    pub steps: u64,
    /// The number of requests that the tuner did not see, because the ring buffer of their worker was full.
    pub requests_dropped: u64,
}

/// The tuner of the current policy, if this policy has one. A change of policy replaces it.
#[derive(Debug, Default)]
pub(super) struct TuningSwitch {
    tuning: Mutex<Option<Tuning>>,
    /// The number of replacements so far. Recorders compare it with their own number at each request.
    number: AtomicU64,
}

impl TuningSwitch {
    /// Stops the current tuner and waits for its thread. Then sets another tuner.
    pub(super) fn replace(&self, tuning: Option<Tuning>) {
        let before = std::mem::replace(&mut *self.tuning.lock(), tuning);
        // A recorder that still reads the old number uses the ring of the old tuner, and its request is lost.
        self.number.fetch_add(1, Relaxed);
        drop(before);
    }

    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// Returns the number of the current tuner and a sink for requests.
    pub(super) fn connect(&self) -> (u64, Sink) {
        // The number is read first: if the tuner is replaced after that, the recorder connects again.
        let number = self.number();
        let tuning = self.tuning.lock();
        (number, tuning.as_ref().map_or(Sink::Off, Tuning::sink))
    }

    pub(super) fn status(&self) -> Option<TuningStatus> {
        self.tuning.lock().as_ref().map(Tuning::status)
    }
}

/// A running tuner.
pub(super) struct Tuning {
    status: Arc<Mutex<TuningStatus>>,
    dropped: Arc<AtomicU64>,
    runner: TunerRunner,
}

/// The thread that runs the tuner, see [`TunerMode`].
enum TunerRunner {
    Inline(Arc<dyn Inline>),
    Thread {
        rings: Arc<Mutex<Vec<rtrb::Consumer<Request>>>>,
        stop: Arc<AtomicBool>,
        handle: Option<JoinHandle<()>>,
    },
}

impl Tuning {
    pub(super) fn start<V: Send + Sync + 'static>(
        tuner: Box<dyn AdmissionTuner>,
        mode: TunerMode,
        shared: Arc<Shared<V>>,
    ) -> Self {
        let c = shared.tier.lock().current().admission().c();
        let status = Arc::new(Mutex::new(TuningStatus {
            c: c.unwrap_or(f64::INFINITY),
            ..TuningStatus::default()
        }));
        let step = TunerStep {
            tuner,
            shared,
            status: Arc::clone(&status),
        };
        let runner = match mode {
            TunerMode::Inline => TunerRunner::Inline(Arc::new(Mutex::new(step))),
            TunerMode::Thread => TunerRunner::spawn(step),
        };
        Self {
            status,
            dropped: Arc::default(),
            runner,
        }
    }

    /// Returns a sink, through which one worker reports its requests.
    fn sink(&self) -> Sink {
        match &self.runner {
            TunerRunner::Inline(inline) => Sink::Inline(Arc::clone(inline)),
            TunerRunner::Thread { rings, .. } => {
                let (ring, consumer) = rtrb::RingBuffer::new(RING_REQUESTS);
                rings.lock().push(consumer);
                Sink::Ring {
                    ring,
                    dropped: Arc::clone(&self.dropped),
                }
            }
        }
    }

    pub(super) fn status(&self) -> TuningStatus {
        let mut status = self.status.lock().clone();
        status.requests_dropped = self.dropped.load(Relaxed);
        status
    }
}

impl TunerRunner {
    fn spawn<V: Send + Sync + 'static>(mut step: TunerStep<V>) -> Self {
        let rings = Arc::new(Mutex::new(Vec::<rtrb::Consumer<Request>>::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_rings, thread_stop) = (Arc::clone(&rings), Arc::clone(&stop));
        let handle = thread::Builder::new()
            .name("edgeward-tuner".to_owned())
            .spawn(move || {
                while !thread_stop.load(Relaxed) {
                    drain(&mut thread_rings.lock(), &mut step);
                    thread::park_timeout(DRAIN_INTERVAL);
                }
            })
            .expect("the operating system can start a thread");
        Self::Thread {
            rings,
            stop,
            handle: Some(handle),
        }
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        if let TunerRunner::Thread { stop, handle, .. } = &mut self.runner {
            stop.store(true, Relaxed);
            if let Some(handle) = handle.take() {
                handle.thread().unpark();
                // If the tuner panicked, the panic hook has reported it. The cache continues without a tuner.
                drop(handle.join());
            }
        }
    }
}

impl fmt::Debug for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuning").finish_non_exhaustive()
    }
}

impl<V: Send + Sync + 'static> Inline for Mutex<TunerStep<V>> {
    fn record(&self, request: Request) {
        self.lock().record(request);
    }
}

/// The tuner, and the cache that it tunes.
struct TunerStep<V> {
    tuner: Box<dyn AdmissionTuner>,
    shared: Arc<Shared<V>>,
    status: Arc<Mutex<TuningStatus>>,
}

impl<V> TunerStep<V> {
    fn record(&mut self, request: Request) {
        let Request {
            key,
            size_bytes,
            hit,
        } = request;
        if !self.tuner.record(key, size_bytes, hit) {
            return;
        }
        let index = &self.shared.index;
        let admission::TunerStep { c, tuning } = self.tuner.step(&|key| index.contains(key));
        // Some tuners step often. The requests' threads need the tier's lock, so it is taken only for a change.
        if self.status.lock().c != c {
            self.shared.tier.lock().set_c(c);
        }
        let mut status = self.status.lock();
        status.c = c;
        status.steps += 1;
        status.last = tuning;
    }
}

impl<V> fmt::Debug for TunerStep<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunerStep").finish_non_exhaustive()
    }
}

/// Reports the requests in all rings to the tuner. Drops a ring when its worker has ended and the ring is empty.
fn drain<V>(rings: &mut Vec<rtrb::Consumer<Request>>, step: &mut TunerStep<V>) {
    for ring in rings.iter_mut() {
        // Takes only the requests that are in the ring now: a busy worker must not delay the other rings.
        for _ in 0..ring.slots() {
            let Ok(request) = ring.pop() else { break };
            step.record(request);
        }
    }
    rings.retain(|ring| !(ring.is_abandoned() && ring.is_empty()));
}

/// The interval at which the tuner's thread empties the rings. [`RING_REQUESTS`] explains the value.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
