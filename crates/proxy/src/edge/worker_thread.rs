//! The thread of one worker: its runtime, its listeners, and its end.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::LocalOptions;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::bind::BoundListener;
use super::status;
use crate::base::access_log::LogQueue;
use crate::base::counters::Counters;
use crate::base::health::Activity;
use crate::base::panics;
use crate::base::spans::Sampler;
use crate::client::listener;
use crate::origin::{OriginGroup, watch_servers};
use crate::path;
use crate::path::worker::{Shared, Worker};

/// The values that a worker's thread starts with.
pub(super) struct WorkerStart {
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Arc<Counters>,
    /// The number of the worker. The first one watches the servers of the origins.
    pub(super) number: usize,
    pub(super) listeners: watch::Receiver<Listeners>,
    pub(super) log: Option<LogQueue>,
    pub(super) sampler: Option<Sampler>,
    pub(super) stopping: watch::Receiver<Option<Stop>>,
}

/// The listeners of an edge. A reload replaces them.
pub(super) type Listeners = Arc<Vec<Arc<BoundListener>>>;

/// How a worker ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    /// The longest time for requests under way.
    pub(super) drain: Duration,
    /// The time for which idle connections of HTTP/1.1 wait for a last request. Zero: they are closed at once.
    pub(super) last_request: Duration,
}

/// The tasks of one worker that accept the connections of a listener.
struct Accepting {
    listener: u64,
    closing: Vec<Rc<Notify>>,
    tasks: Vec<JoinHandle<()>>,
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
        let config = &self.shared.config;
        let origins = config.origins.iter().zip(&self.shared.origins);
        let origins = origins.map(|(origin, servers)| {
            Rc::new(OriginGroup::new(
                Arc::clone(servers),
                origin.clone(),
                config.limits.clone(),
                config.workers,
                Arc::clone(&self.counters),
                Arc::clone(&self.shared.clock),
                Arc::clone(&self.shared.upload_budget),
            ))
        });
        let origins = origins.collect();
        let worker = Worker::new(
            self.shared,
            self.counters,
            self.number,
            origins,
            self.log,
            self.sampler,
        );
        let mut watching = JoinSet::new();
        if self.number == 0 {
            let limits = Rc::new(worker.config().limits.clone());
            let origins = worker.config().origins.iter().zip(&worker.shared.origins);
            for (origin, servers) in origins {
                let (servers, limits) = (Arc::clone(servers), Rc::clone(&limits));
                watching.spawn_local(watch_servers(servers, Rc::new(origin.clone()), limits));
            }
        }
        let mut accepting = Vec::new();
        let stop = loop {
            let listeners = Arc::clone(&self.listeners.borrow_and_update());
            follow_listeners(&worker, self.number, &listeners, &mut accepting);
            drop(listeners);
            tokio::select! {
                stop = self.stopping.wait_for(Option::is_some) => {
                    break stop.ok().and_then(|stop| *stop).unwrap_or(Stop::NOW);
                }
                Ok(()) = self.listeners.changed() => {}
                never = sweep(&worker) => match never {},
                never = worker.shared.health.beat(self.number) => match never {},
            }
        };
        drop(watching);
        for task in accepting.into_iter().flat_map(|accepting| accepting.tasks) {
            task.abort();
            _ = task.await;
        }
        let Stop {
            drain,
            last_request,
        } = stop;
        let deadline = tokio::time::Instant::now() + drain;
        if !last_request.is_zero() {
            for conn in worker.connections.borrow().iter() {
                conn.leave();
            }
            let idle = worker.connection_tasks.idle();
            _ = tokio::time::timeout(last_request.min(drain), idle).await;
        }
        for conn in worker.connections.borrow().iter() {
            conn.drain();
        }
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
    }
}

impl Stop {
    /// The end of an edge that does not wait for requests.
    const NOW: Self = Self {
        drain: Duration::ZERO,
        last_request: Duration::ZERO,
    };
}

/// Accepts connections of new listeners, and no more of those that were removed.
fn follow_listeners(
    worker: &Rc<Worker>,
    number: usize,
    listeners: &[Arc<BoundListener>],
    accepting: &mut Vec<Accepting>,
) {
    accepting.retain(|accepting| {
        let stays = listeners
            .iter()
            .any(|listener| listener.id == accepting.listener);
        if !stays {
            accepting
                .closing
                .iter()
                .for_each(|closing| closing.notify_one());
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
            let (worker, tls) = (Rc::clone(worker), listener.tls.clone());
            let accept = listener::accept(worker, socket, tls, Rc::clone(&closing));
            new.tasks.push(tokio::task::spawn_local(accept));
            new.closing.push(closing);
        }
        accepting.push(new);
    }
}

/// At each interval, ends the worker's connections, streams and uploads that exceed a limit. Never returns.
async fn sweep(worker: &Worker) -> std::convert::Infallible {
    let mut interval = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        interval.tick().await;
        worker.heart().set_activity(Activity::Sweep);
        panics::survive(&worker.counters.panics_sweep, || path::sweep::sweep(worker));
        let shared = &worker.shared;
        let totals = || status::totals(&shared.counters);
        shared.recent.sample(Instant::now(), totals);
    }
}

/// The interval of the sweep. A connection may exceed its timeout by up to this time before it is closed.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
