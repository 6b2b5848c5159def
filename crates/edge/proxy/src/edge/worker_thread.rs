//! The thread of one worker: its runtime, its listeners, and its end.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::Endpoint;
use quinn::crypto::rustls::QuicServerConfig;
use tokio::runtime::LocalOptions;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::bind::BoundListener;
use super::status;
use crate::client::h3::endpoint;
use crate::client::h3::socket::EndpointParts;
use crate::client::listener;
use crate::observe::access_log::LogQueue;
use crate::observe::counters::Counters;
use crate::observe::metric_labels::WorkerTally;
use crate::observe::spans::Sampler;
use crate::observe::watch::WatchQueue;
use crate::origin::{GroupParts, OriginGroup, Servers, watch_servers};
use crate::path;
use crate::path::worker::{CurrentWorker, Shared, Worker, WorkerParts};
use crate::rt::health::Activity;
use crate::rt::panics;

/// The values that a worker's thread starts with.
pub(super) struct WorkerStart {
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Arc<Counters>,
    /// The number of the worker. The first one watches the servers of the origins.
    pub(super) number: usize,
    /// Gets the generations of reloads.
    pub(super) switches: mpsc::UnboundedReceiver<Switch>,
    pub(super) listeners: watch::Receiver<Listeners>,
    pub(super) log: Option<LogQueue>,
    pub(super) sampler: Option<Sampler>,
    pub(super) watch: Option<WatchQueue>,
    pub(super) stopping: watch::Receiver<Option<Stop>>,
}

/// The listeners of an edge. A reload replaces them.
pub(super) type Listeners = Arc<Vec<Arc<BoundListener>>>;

/// A new generation for a worker.
pub(super) struct Switch {
    pub(super) shared: Arc<Shared>,
    /// `Some` if the access log has changed.
    pub(super) log: Option<Option<LogQueue>>,
    /// `Some` if the export of traces has changed.
    pub(super) sampler: Option<Option<Sampler>>,
    /// True if an origin with the same servers keeps its connections.
    pub(super) keeps_connections: bool,
    /// Notified when the worker uses the generation.
    pub(super) done: std::sync::mpsc::Sender<()>,
}

/// How a worker ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    /// The longest time for requests under way.
    pub(super) drain: Duration,
    /// `Some` if another process takes the sockets over: the time for which idle connections of HTTP/1.1 wait for a
    /// last request. Otherwise they are closed at once.
    pub(super) last_request: Option<Duration>,
}

/// The tasks of one worker that accept the connections of a listener.
struct Accepting {
    listener: u64,
    closing: Vec<Rc<Notify>>,
    tasks: Vec<JoinHandle<()>>,
    /// The endpoints of HTTP/3, which remain until their connections have ended.
    endpoints: Vec<Endpoint>,
}

impl WorkerStart {
    pub(super) fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => runtime.block_on(self.serve()),
            Err(error) => tracing::error!(%error, "a worker's runtime cannot be started"),
        }
    }

    async fn serve(mut self) {
        let origins = groups(&self.shared, &self.counters, self.number, None);
        let (log, sampler) = (self.log.map(Rc::new), self.sampler.map(Rc::new));
        let parts = WorkerParts {
            shared: self.shared,
            counters: self.counters,
            number: self.number,
            origins,
            log,
            sampler,
            watch: self.watch.map(Rc::new),
        };
        let first = Worker::new(parts, None);
        let workers = CurrentWorker::new(first);
        let mut retired: Vec<Weak<Worker>> = Vec::new();
        let mut watching = Watching::default();
        if self.number == 0 {
            watching.follow(&workers.get());
        }
        let mut accepting = Vec::new();
        let mut endpoints: Vec<Endpoint> = Vec::new();
        let stop = loop {
            let listeners = Arc::clone(&self.listeners.borrow_and_update());
            endpoints.retain(|endpoint| endpoint.open_connections() > 0);
            endpoints.extend(follow_listeners(
                &workers,
                self.number,
                &listeners,
                &mut accepting,
            ));
            drop(listeners);
            retired.retain(|worker| worker.strong_count() > 0);
            let worker = workers.get();
            tokio::select! {
                stop = self.stopping.wait_for(Option::is_some) => {
                    break stop.ok().and_then(|stop| *stop).unwrap_or(Stop::NOW);
                }
                Ok(()) = self.listeners.changed() => {}
                Some(switch) = self.switches.recv() => {
                    let new = next_generation(&worker, switch);
                    if self.number == 0 {
                        watching.follow(&new.worker);
                    }
                    retired.push(Rc::downgrade(&workers.replace(new.worker)));
                    // The reload may have ended its wait.
                    _ = new.done.send(());
                }
                // Endpoints without connections are then closed.
                () = tokio::time::sleep(ENDPOINT_INTERVAL), if !endpoints.is_empty() => {}
                never = sweep(&worker, &retired) => match never {},
                never = worker.shared.health.beat(self.number) => match never {},
            }
        };
        let worker = workers.get();
        drop(watching);
        for accepting in accepting {
            for task in accepting.tasks {
                task.abort();
                _ = task.await;
            }
            endpoints.extend(accepting.endpoints);
        }
        let Stop {
            drain,
            last_request,
        } = stop;
        let deadline = tokio::time::Instant::now() + drain;
        if let Some(last_request) = last_request {
            worker.connections.borrow_mut().leave();
            let idle = worker.connection_tasks.idle();
            _ = tokio::time::timeout(last_request.min(drain), idle).await;
        }
        worker.connections.borrow_mut().drain();
        let left = || deadline.saturating_duration_since(tokio::time::Instant::now());
        let finished = tokio::time::timeout(left(), worker.connection_tasks.idle()).await;
        if finished.is_err() {
            tracing::warn!(
                connections = worker.connections.borrow().len(),
                "connections with requests under way were closed because the drain timeout expired"
            );
        }
        _ = tokio::time::timeout(left(), worker.fetch_tasks.idle()).await;
        for origin in &worker.origins {
            origin.shut_down(left()).await;
        }
        for endpoint in &endpoints {
            endpoint::close(endpoint).await;
        }
    }
}

impl Stop {
    /// The end of an edge that does not wait for requests.
    const NOW: Self = Self {
        drain: Duration::ZERO,
        last_request: None,
    };
}

/// Returns the worker's connections to the origins of a generation. Origins that `before` has too keep theirs.
fn groups(
    shared: &Arc<Shared>,
    counters: &Arc<Counters>,
    number: usize,
    before: Option<&Worker>,
) -> Vec<Rc<OriginGroup>> {
    let config = &shared.config;
    let origins = config.origins.iter().zip(&shared.origins);
    let origins = origins.zip(&shared.origin_counters);
    let groups = origins.map(|((origin, servers), tally)| {
        let tally = WorkerTally::new(tally, number);
        let mut known = before.iter().flat_map(|before| &before.origins);
        if let Some(known) = known.find(|group| group.has_servers(servers)) {
            known.set_tally(tally);
            return Rc::clone(known);
        }
        Rc::new(OriginGroup::new(GroupParts {
            servers: Arc::clone(servers),
            config: origin.clone(),
            limits: config.limits.clone(),
            workers: config.workers,
            counters: Arc::clone(counters),
            tally,
            clock: Arc::clone(&shared.clock),
            upload_budget: Arc::clone(&shared.budgets.uploads),
        }))
    });
    groups.collect()
}

/// A generation that a worker has built.
struct NextGeneration {
    worker: Rc<Worker>,
    done: std::sync::mpsc::Sender<()>,
}

fn next_generation(before: &Worker, switch: Switch) -> NextGeneration {
    let Switch {
        shared,
        log,
        sampler,
        keeps_connections,
        done,
    } = switch;
    let kept = keeps_connections.then_some(before);
    let origins = groups(&shared, &before.counters, before.number(), kept);
    let (old_log, old_sampler) = before.observers();
    let log = log.map_or(old_log, |log| log.map(Rc::new));
    let sampler = sampler.map_or(old_sampler, |sampler| sampler.map(Rc::new));
    let parts = WorkerParts {
        shared,
        counters: Arc::clone(&before.counters),
        number: before.number(),
        origins,
        log,
        sampler,
        watch: before.watch.clone(),
    };
    NextGeneration {
        worker: Worker::new(parts, Some(before)),
        done,
    }
}

/// The tasks that watch the servers of the origins: one for each origin.
#[derive(Default)]
struct Watching(Vec<(Arc<Servers>, JoinHandle<()>)>);

impl Watching {
    /// Watches the servers of a generation, and no others any more.
    fn follow(&mut self, worker: &Worker) {
        let limits = Rc::new(worker.config().limits.clone());
        let origins = worker.config().origins.iter().zip(&worker.shared.origins);
        let mut before = std::mem::take(&mut self.0);
        for (origin, servers) in origins {
            let known = before
                .iter()
                .position(|(known, _)| Arc::ptr_eq(known, servers));
            self.0.push(match known {
                Some(at) => before.swap_remove(at),
                None => {
                    let config = Rc::new(origin.clone());
                    let clock = Arc::clone(&worker.shared.clock);
                    let watch =
                        watch_servers(Arc::clone(servers), config, Rc::clone(&limits), clock);
                    (Arc::clone(servers), tokio::task::spawn_local(watch))
                }
            });
        }
        drop(Self(before));
    }

    fn end(&mut self) {
        self.0.iter().for_each(|(_, task)| task.abort());
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end();
    }
}

/// Accepts connections of new listeners, and no more of those that were removed. Returns the endpoints of the latter:
/// their connections end later.
fn follow_listeners(
    workers: &Rc<CurrentWorker>,
    number: usize,
    listeners: &[Arc<BoundListener>],
    accepting: &mut Vec<Accepting>,
) -> Vec<Endpoint> {
    let mut removed = Vec::new();
    accepting.retain_mut(|accepting| {
        let stays = listeners
            .iter()
            .any(|listener| listener.id == accepting.listener);
        if !stays {
            accepting
                .closing
                .iter()
                .for_each(|closing| closing.notify_one());
            removed.append(&mut accepting.endpoints);
        }
        stays
    });
    for listener in listeners {
        if accepting.iter().any(|known| known.listener == listener.id) {
            continue;
        }
        let mut new = Accepting {
            listener: listener.id,
            closing: Vec::new(),
            tasks: Vec::new(),
            endpoints: Vec::new(),
        };
        for socket in &listener.sockets[number] {
            let socket = match socket.try_clone() {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::error!(%error, addr = %listener.addr, "a worker does not accept on a listener");
                    continue;
                }
            };
            let closing = Rc::new(Notify::new());
            let (workers, transport) = (Rc::clone(workers), listener.transport.clone());
            let accept = listener::accept(workers, socket, transport, Rc::clone(&closing));
            new.tasks.push(tokio::task::spawn_local(accept));
            new.closing.push(closing);
        }
        if let Some(http3) = &listener.http3 {
            for parts in &http3.endpoints[number] {
                new.accept_http3(workers, parts, &http3.crypto);
            }
        }
        accepting.push(new);
    }
    removed
}

impl Accepting {
    /// Accepts connections of HTTP/3.
    fn accept_http3(
        &mut self,
        workers: &Rc<CurrentWorker>,
        parts: &EndpointParts,
        crypto: &Arc<QuicServerConfig>,
    ) {
        let endpoint = match endpoint::open(&workers.get(), parts, crypto) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                tracing::error!(%error, "a worker does not accept connections of HTTP/3");
                return;
            }
        };
        let closing = Rc::new(Notify::new());
        let (workers, crypto) = (Rc::clone(workers), Arc::clone(crypto));
        let inbox = Arc::clone(&parts.inbox);
        let accepted = endpoint.clone();
        let accept = endpoint::accept(workers, accepted, crypto, inbox, Rc::clone(&closing));
        self.tasks.push(tokio::task::spawn_local(accept));
        self.closing.push(closing);
        self.endpoints.push(endpoint);
    }
}

/// At each interval, ends the worker's connections, streams and uploads that exceed a limit. Never returns.
async fn sweep(worker: &Worker, retired: &[Weak<Worker>]) -> std::convert::Infallible {
    let mut interval = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        interval.tick().await;
        worker.heart().set_activity(Activity::Sweep);
        let on_panic = || worker.counters.panics_sweep.increment();
        panics::survive(|| path::sweep::sweep(worker), on_panic);
        for retired in retired.iter().filter_map(Weak::upgrade) {
            panics::survive(|| path::sweep::sweep_retired(&retired), on_panic);
        }
        let shared = &worker.shared;
        let totals = || status::totals(shared);
        shared.recent.sample(Instant::now(), totals);
    }
}

/// The interval of the sweep. A connection may exceed its timeout by up to this time before it is closed.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// How long the endpoint of a removed listener keeps its socket after its last connection.
const ENDPOINT_INTERVAL: Duration = Duration::from_secs(1);
