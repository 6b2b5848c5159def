//! Starts and stops a publisher.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use edgeward_httpd::{AdminRoutes, Server, ServerConfig};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::admin::Admin;
use crate::build::{Builder, IdSource, WakeReason};
use crate::config::{Coverage, PublishConfig, is_set_name};
use crate::counters::Counters;
use crate::feed::Feed;
use crate::routes::Routes;
use crate::state::{StateError, StateFolder};
use crate::writer::{Command, PublishedState, Writer};

/// Why a publisher did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The name of the set is not valid in paths and fields.
    #[error(
        "`{name}` is not a valid name of a set: use 1 to 64 letters, digits, `-`, `_` and `.`, not `.` first"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The state folder cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The publisher cannot listen on an address.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A thread or the runtime cannot be created.
    #[error("cannot start {what}")]
    Thread {
        /// The name of the thread or runtime.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Starts publishers: see [`Publisher::start`].
#[derive(Debug)]
pub struct Publisher;

impl Publisher {
    /// Listens, opens the state folder, serves the stored state and begins the first scan. `source` reads the ids of
    /// each scan.
    pub fn start(
        config: PublishConfig,
        source: Box<dyn IdSource>,
    ) -> Result<RunningPublisher, PublishError> {
        if !is_set_name(&config.set) {
            return Err(PublishError::Name { name: config.set });
        }
        let listener = bind(config.listen)?;
        let admin_listener = config.admin.map(bind).transpose()?;
        let listening_addr = |listener: &StdListener, addr| {
            let local_addr = listener.local_addr();
            local_addr.map_err(|source| PublishError::Listen { addr, source })
        };
        let addr = listening_addr(&listener, config.listen)?;
        let admin_addr = match (&admin_listener, config.admin) {
            (Some(listener), Some(addr)) => Some(listening_addr(listener, addr)?),
            _ => None,
        };
        let wall_ms = (config.clock)().wall.as_millis();
        let restored = StateFolder::open(
            &config.state,
            &config.set,
            config.hasher,
            config.coverage,
            wall_ms,
        )?;
        if restored.damaged {
            tracing::warn!("state damaged; no completeness is stated until a scan is complete");
        }
        if restored.copied {
            tracing::warn!(
                state = %config.state.display(),
                "state folder is a copy, perhaps restored from a backup"
            );
        }
        if restored.may_miss_acknowledged_ids && config.coverage == Coverage::Posts {
            tracing::warn!(
                seconds = config.commit_within.as_secs(),
                "acknowledged posts may be missing; completeness is stated only after a scan that begins at least this many \
                 seconds from now"
            );
        }
        let config = Arc::new(config);
        let counters = Arc::new(Counters::default());
        // The queue has space for every posted list of ids that may wait, and for the commands of builder and feed.
        let (commands, receiver) = mpsc::channel(config.limits.posts_max + 16);
        let (wake, wakes) = std_mpsc::sync_channel(4);
        let request_scan = {
            let wake = wake.clone();
            // If the queue is full, a request is already pending.
            Arc::new(move || _ = wake.try_send(WakeReason::ScanNow))
        };
        let (writer, published) = Writer::new(
            Arc::clone(&config),
            restored,
            Arc::clone(&counters),
            request_scan,
        );
        let (stop, stopping) = watch::channel(false);
        let (guava, guava_published) = watch::channel(None);
        let stop_scan = Arc::new(AtomicBool::new(false));
        let mut running = RunningPublisher {
            addr,
            admin_addr,
            published: published.clone(),
            commands: Some(commands.clone()),
            wake,
            stop,
            stop_scan: Arc::clone(&stop_scan),
            threads: Vec::new(),
            counters: Arc::clone(&counters),
        };
        let builder = Builder {
            config: Arc::clone(&config),
            source,
            commands: commands.clone(),
            counters: Arc::clone(&counters),
            stop: stop_scan,
            ids_before: published.borrow().snapshot_ids,
            guava,
        };
        let routes = Server {
            handler: Routes {
                config: Arc::clone(&config),
                published: published.clone(),
                guava: guava_published,
                commands,
                post_permits: Arc::new(Semaphore::new(config.limits.posts_max)),
                counters: Arc::clone(&counters),
                stopping: stopping.clone(),
            },
            config: config.limits.server(),
            counters: Arc::clone(&counters.connections),
            stopping: stopping.clone(),
            tls: None,
        };
        let admin = Server {
            handler: AdminRoutes(Admin {
                config: Arc::clone(&config),
                published,
                counters: Arc::clone(&counters),
            }),
            config: ServerConfig::ADMIN,
            counters: Arc::clone(&counters.connections),
            stopping,
            tls: None,
        };
        running.spawn("edgeward-journal", move || writer.run(receiver))?;
        running.spawn("edgeward-builder", move || builder.run(&wakes))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| PublishError::Thread {
                what: "the server's runtime",
                source,
            })?;
        running.spawn("edgeward-publish", move || {
            runtime.block_on(async {
                let admin = async {
                    if let Some(listener) = admin_listener {
                        admin.run(listener).await;
                    }
                };
                tokio::join!(routes.run(listener), admin);
            });
        })?;
        Ok(running)
    }
}

fn bind(addr: SocketAddr) -> Result<StdListener, PublishError> {
    let bound = StdListener::bind(addr).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|source| PublishError::Listen { addr, source })
}

/// A running publisher. It stops when this value is dropped.
pub struct RunningPublisher {
    addr: SocketAddr,
    admin_addr: Option<SocketAddr>,
    published: watch::Receiver<Arc<PublishedState>>,
    /// The queue of the thread that writes the journal.
    commands: Option<mpsc::Sender<Command>>,
    /// The queue of the builder, the thread that scans the ids and builds snapshots.
    wake: std_mpsc::SyncSender<WakeReason>,
    /// True stops the servers.
    stop: watch::Sender<bool>,
    /// True ends the scan in progress.
    stop_scan: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl RunningPublisher {
    /// Returns the address for clients, with the port on which the publisher listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the address for metrics and status, or `None` if they are not served.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// Returns the epoch and the number of ids of the newest snapshot, or `None` before the first snapshot.
    pub fn published(&self) -> Option<(u64, u64)> {
        let published = self.published.borrow();
        let has_snapshot = published.manifest.is_some();
        has_snapshot.then_some((published.epoch, published.snapshot_ids))
    }

    /// Returns the number of failed scans since the start.
    pub fn scans_failed(&self) -> u64 {
        self.counters.scans_failed.value()
    }

    /// Waits until a snapshot newer than `epoch` is published. Returns false if this takes longer than
    /// `time_max`. Must not be called within an async runtime.
    pub fn wait_published(&self, epoch: u64, time_max: Duration) -> bool {
        let mut published = self.published.clone();
        let newer = |published: &Arc<PublishedState>| {
            published.manifest.is_some() && published.epoch > epoch
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.is_ok_and(|runtime| {
            let wait = async {
                tokio::time::timeout(time_max, published.wait_for(newer))
                    .await
                    .is_ok()
            };
            runtime.block_on(wait)
        })
    }

    /// Requests an early scan.
    pub fn rebuild(&self) {
        // If the queue is full, a request is already pending.
        _ = self.wake.try_send(WakeReason::ScanNow);
    }

    /// Returns a feed for changes of the database. `name` identifies the database and the query that the feed reads.
    /// Must not be called within an async runtime.
    pub fn feed(&self, name: &str) -> Feed {
        let commands = self.commands.as_ref();
        let commands = commands.expect("commands are dropped only with the publisher");
        let (counters, wake) = (Arc::clone(&self.counters), self.wake.clone());
        Feed::new(commands, name, counters, wake)
    }

    /// Stops the publisher within a few seconds and joins all threads.
    pub fn shutdown(self) {}

    fn spawn(
        &mut self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), PublishError> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work);
        let thread = thread.map_err(|source| PublishError::Thread { what: name, source })?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for RunningPublisher {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.stop_scan.store(true, Ordering::Relaxed);
        // A builder that is scanning does not receive this message. The flag above stops the scan.
        _ = self.wake.try_send(WakeReason::Stop);
        drop(self.commands.take());
        let (unused, _) = std_mpsc::sync_channel(1);
        // The builder stops waiting when the last sender is dropped.
        drop(std::mem::replace(&mut self.wake, unused));
        for thread in self.threads.drain(..).rev() {
            if thread.join().is_err() {
                tracing::error!("a thread of the publisher panicked");
            }
        }
    }
}

impl std::fmt::Debug for RunningPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningPublisher")
            .field("addr", &self.addr)
            .field("published", &self.published())
            .finish_non_exhaustive()
    }
}
