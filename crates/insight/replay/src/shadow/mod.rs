//! The shadow of a cache: sends the requests of its clients to an edge under test, and compares the answers.
//!
//! [`Shadow::run`] sends until its sources end or the plan's [`Stop`] is requested. Requests come from a
//! [`ShadowFeeder`], which another thread feeds with the lines of a log, or from a listener for mirrored requests. No
//! answer reaches a client. The decisions, the grouping of differences and the limits of tables are in the crate
//! `shadow`; this module has the connections.
//!
//! All requests for a URL use one connection, so that both caches get them in the order of the source. A connection
//! sends one request at a time, to the edge and, if the plan says so, to the incumbent at the same time.
//!
//! **The budget of the origin.** The edge states in `Cache-Status` if it asked the origin. Each request takes a place
//! in the budget before it is sent; a fresh hit gives the place back. If no place is free, the connection waits. The
//! edge therefore never asks the origin for more requests per second than the budget allows. A log is then read later;
//! requests that cannot wait, because they were mirrored, are dropped and counted.

mod body_hash;
mod connection;
mod mirror;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use edgeward_shadow::{
    Answer, Budget, BudgetReport, Comparison, Limits, LineMark, Request, Settings, ShadowReport,
    Skip, is_sampled,
};

use crate::load::{Stop, Target};

/// The choices of a user.
#[derive(Clone, Debug)]
pub struct ShadowPlan {
    /// The edge under test.
    pub edge: Target,
    /// The TLS configuration for an edge with https.
    pub edge_tls: Option<Arc<rustls::ClientConfig>>,
    /// The incumbent, if it is asked, too.
    pub incumbent: Option<Target>,
    /// The TLS configuration for an incumbent with https.
    pub incumbent_tls: Option<Arc<rustls::ClientConfig>>,
    /// The maximum of requests per second to the incumbent.
    pub incumbent_per_second: Option<f64>,
    /// Connections to each cache.
    pub connections: NonZeroUsize,
    /// Requests that wait for a connection.
    pub queue_max: NonZeroUsize,
    /// The maximum of requests per second of the edge to the origin.
    pub origin_per_second: Option<f64>,
    /// The maximum of bytes per second of the edge from the origin.
    pub origin_bytes_per_second: Option<f64>,
    /// The share of URLs whose requests are sent.
    pub sample: f64,
    /// True if cookies and `Authorization` are sent.
    pub has_credentials: bool,
    /// A request fails if no byte arrives for this long.
    pub timeout: Duration,
    /// The choices for the comparison.
    pub settings: Settings,
    /// Ends the run.
    pub stop: Stop,
}

/// Why a shadow could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShadowError {
    /// A runtime or its thread could not be created.
    #[error("cannot start the runtime")]
    Runtime {
        /// The cause.
        source: io::Error,
    },
    /// The address for mirrored requests cannot be used.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// A shadow that is ready to run.
#[derive(Debug)]
pub struct Shadow {
    shared: Arc<Shared>,
    queues: Vec<mpsc::Receiver<Job>>,
    senders: Senders,
}

/// The state that all tasks and the feeder share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: ShadowPlan,
    comparison: Mutex<Comparison>,
    budget: Mutex<Budget>,
    /// The budget of requests to the incumbent.
    incumbent_budget: Mutex<Budget>,
    started: Instant,
}

/// A request to send, with the answer that the log states.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) logged: Option<Answer>,
}

/// The queues of all connections.
#[derive(Clone, Debug)]
pub(crate) struct Senders(Vec<mpsc::Sender<Job>>);

impl Senders {
    /// Returns the queue of a URL.
    pub(crate) fn of(&self, url_key: u64) -> &mpsc::Sender<Job> {
        let count = self.0.len() as u64;
        &self.0[usize::try_from(url_key % count).expect("the remainder is a small number")]
    }
}

/// Passes the requests of a log to the connections. When it is dropped, and no mirror is open, the run ends after the
/// last request.
#[derive(Debug)]
pub struct ShadowFeeder {
    shared: Arc<Shared>,
    senders: Senders,
    mode: FeederMode,
}

/// The use of the lines of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeederMode {
    /// Their requests are sent. If the queue is full, the feeder waits.
    Wait,
    /// Their requests are sent. If the queue is full, they are dropped: the writer of the lines must not wait.
    Drop,
    /// Their requests arrive as mirrored requests, too. The lines show the hits and lifetimes of the incumbent.
    Observe,
}

/// A view of a running shadow.
#[derive(Clone, Debug)]
pub struct ShadowProgress(Arc<Shared>);

impl Shadow {
    /// Makes a shadow with empty tables.
    pub fn new(plan: ShadowPlan) -> Self {
        let connections = plan.connections.get();
        let queue = plan.queue_max.get().div_ceil(connections);
        let (senders, queues) = (0..connections).map(|_| mpsc::channel(queue)).unzip();
        let budget = Budget::new(plan.origin_per_second, plan.origin_bytes_per_second);
        let incumbent_budget = Budget::new(plan.incumbent_per_second, None);
        let comparison = Comparison::new(plan.settings.clone(), Limits::default());
        Self {
            shared: Arc::new(Shared {
                plan,
                comparison: Mutex::new(comparison),
                budget: Mutex::new(budget),
                incumbent_budget: Mutex::new(incumbent_budget),
                started: Instant::now(),
            }),
            queues,
            senders: Senders(senders),
        }
    }

    /// Returns a feeder for the lines of a log.
    pub fn feeder(&self, mode: FeederMode) -> ShadowFeeder {
        ShadowFeeder {
            shared: Arc::clone(&self.shared),
            senders: self.senders.clone(),
            mode,
        }
    }

    /// Returns a view of the progress and of the result.
    pub fn progress(&self) -> ShadowProgress {
        ShadowProgress(Arc::clone(&self.shared))
    }

    /// Sends the requests until all sources have ended or the stop is requested. `mirror` is the listener for mirrored
    /// requests. Call this once, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Fails if the runtime or the listener cannot be used.
    pub fn run(self, mirror: Option<TcpListener>) -> Result<(), ShadowError> {
        let Self {
            shared,
            queues,
            senders,
        } = self;
        let runtime = runtime()?;
        // The listener has a thread of its own, so that its answers never wait for the work of the connections.
        let (stop_mirror, stopping) = watch::channel(false);
        let mirror = match mirror {
            None => {
                drop(senders);
                None
            }
            Some(listener) => {
                let server = mirror::server(Arc::clone(&shared), senders, stopping);
                let of_mirror = self::runtime()?;
                let serving = move || of_mirror.block_on(server.run(listener));
                let name = "shadow-mirror".to_owned();
                let thread = thread::Builder::new().name(name).spawn(serving);
                Some(thread.map_err(|source| ShadowError::Runtime { source })?)
            }
        };
        runtime.block_on(async move {
            let mut tasks = JoinSet::new();
            for queue in queues {
                tasks.spawn(worker::run(Arc::clone(&shared), queue));
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            }
        });
        _ = stop_mirror.send(true);
        if let Some(mirror) = mirror {
            mirror
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(())
    }
}

fn runtime() -> Result<Runtime, ShadowError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let built = builder.enable_all().build();
    built.map_err(|source| ShadowError::Runtime { source })
}

/// Opens the listener for mirrored requests.
///
/// # Errors
///
/// Fails if the address cannot be used.
pub fn listen(addr: SocketAddr) -> Result<TcpListener, ShadowError> {
    let open = || {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|source| ShadowError::Listen { addr, source })
}

impl ShadowFeeder {
    /// Passes on the request of a line of the log. Waits if the queue is full, unless the feeder drops. Returns `Break`
    /// after the end of the run.
    pub fn push(&self, request: Request, logged: Answer, mark: LineMark) -> ControlFlow<()> {
        let url_key = request.url_key();
        {
            let mut comparison = self.shared.comparison();
            // The incumbent gets a mirrored request with the user agent of its client.
            let mark = match (self.mode, mark) {
                (FeederMode::Observe, LineMark::Client) => LineMark::Unknown,
                (_, mark) => mark,
            };
            if comparison.observe_line(url_key, &logged, mark) {
                comparison.count_skipped(Skip::Own);
                return ControlFlow::Continue(());
            }
            let is_sampled = is_sampled(url_key, self.shared.plan.sample);
            if self.mode == FeederMode::Observe {
                if is_sampled {
                    comparison.count_line(&request, &logged, self.shared.now());
                }
                return ControlFlow::Continue(());
            }
            comparison.count_request(false);
            if !is_sampled {
                comparison.count_skipped(Skip::Sample);
                return ControlFlow::Continue(());
            }
        }
        let job = Job {
            request,
            logged: Some(logged),
        };
        let queue = self.senders.of(url_key);
        let sent = match self.mode {
            FeederMode::Wait => queue.blocking_send(job).is_ok(),
            FeederMode::Drop | FeederMode::Observe => match queue.try_send(job) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    self.shared.comparison().count_skipped(Skip::QueueFull);
                    true
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            },
        };
        match sent {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    /// Counts a line whose request is not sent.
    pub fn skip(&self, skip: Skip) {
        if self.mode == FeederMode::Observe {
            return;
        }
        let mut comparison = self.shared.comparison();
        comparison.count_request(false);
        comparison.count_skipped(skip);
    }
}

impl ShadowProgress {
    /// Returns the numbers of answered requests, of differences and of failed requests.
    pub fn counts(&self) -> (u64, u64, u64) {
        let comparison = self.0.comparison();
        (
            comparison.answered(),
            comparison.differences(),
            comparison.errors(),
        )
    }

    /// Returns the hit ratios of incumbent and edge, if they are known.
    pub fn hit_ratios(&self) -> (Option<f64>, Option<f64>) {
        let hits = self.0.comparison().hits();
        (hits.incumbent_ratio, hits.edge_ratio)
    }

    /// Returns the result so far.
    pub fn report(&self) -> ShadowReport {
        let plan = &self.0.plan;
        let mut report = self.0.comparison().report(self.0.now());
        report.budget = BudgetReport {
            requests_per_second: plan.origin_per_second,
            bytes_per_second: plan.origin_bytes_per_second,
            ..report.budget
        };
        report
    }
}

impl Shared {
    // No lock is held while a task waits, so they are nearly always free.
    pub(crate) fn comparison(&self) -> MutexGuard<'_, Comparison> {
        lock(&self.comparison)
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.budget)
    }

    fn incumbent_budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.incumbent_budget)
    }

    /// Returns the time since the start.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
