//! Signals: SIGTERM and SIGINT shut a process down; servers also handle SIGQUIT, SIGHUP, SIGUSR1 and SIGUSR2.

use std::future::Future;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// The signals of a process whose main thread is not asynchronous.
pub(crate) struct Signals {
    runtime: Runtime,
    signals: AsyncSignals,
}

impl Signals {
    /// Handles SIGTERM and SIGINT, for a tool. Other signals keep the default action of the system.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Self::with(AsyncSignals::listen)
    }

    /// Handles the signals of a server: see [`AsyncSignals::of_server`].
    pub(crate) fn of_server() -> anyhow::Result<Self> {
        Self::with(AsyncSignals::of_server)
    }

    fn with(listen: impl FnOnce() -> anyhow::Result<AsyncSignals>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("cannot start the runtime for signals")?;
        let entered = runtime.enter();
        let signals = listen()?;
        drop(entered);
        Ok(Self { runtime, signals })
    }

    /// Sets the function that is called on each SIGHUP and SIGUSR1 from now on. It returns false if no log is open.
    pub(crate) fn on_reopen(&mut self, reopen: impl Fn() -> bool + Send + 'static) {
        self.signals.reopen = Some(Box::new(reopen));
    }

    /// Sets the function that is called on each SIGHUP, before the log files are reopened.
    pub(crate) fn on_reload(&mut self, reload: impl Fn() + Send + 'static) {
        self.signals.reload = Some(Box::new(reload));
    }

    /// Returns a function that ends the wait of [`next`](Self::next): another process has replaced this one.
    pub(crate) fn replaced(&self) -> impl Fn() + Send + Sync + 'static {
        let replaced = Arc::clone(&self.signals.replaced);
        move || replaced.notify_one()
    }

    /// Sets the function that is called on each SIGUSR2. It must not block.
    pub(crate) fn on_upgrade(&mut self, upgrade: impl Fn() + Send + 'static) {
        self.signals.upgrade = Some(Box::new(upgrade));
    }

    /// Waits for SIGTERM, SIGINT or SIGQUIT and returns its name.
    pub(crate) fn next(&mut self) -> &'static str {
        self.runtime.block_on(self.signals.wait_for_stop())
    }

    /// Waits until `end` completes or until a signal of [`next`](Self::next) arrives. Returns the signal's name, or
    /// `None` if `end` completed first.
    pub(crate) fn next_before<T>(&mut self, end: impl Future<Output = T>) -> Option<&'static str> {
        self.runtime.block_on(async {
            tokio::select! {
                _ = end => None,
                name = self.signals.wait_for_stop() => Some(name),
            }
        })
    }
}

/// The signals of a process, for asynchronous code.
pub(crate) struct AsyncSignals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` in a tool, which keeps the default actions of these signals.
    server_signals: Option<ServerSignals>,
    /// Reloads the configuration.
    reload: Option<Box<dyn Fn() + Send>>,
    /// Reopens the log files.
    reopen: Option<Box<dyn Fn() -> bool + Send>>,
    /// Starts the process that replaces this one.
    upgrade: Option<Box<dyn Fn() + Send>>,
    /// Notified when a process has replaced this one.
    replaced: Arc<Notify>,
}

/// Signals whose default action would kill a server.
struct ServerSignals {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    quit: Signal,
}

impl AsyncSignals {
    /// Handles SIGTERM and SIGINT.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            server_signals: None,
            reload: None,
            reopen: None,
            upgrade: None,
            replaced: Arc::default(),
        })
    }

    /// Handles the signals of a server: SIGTERM, SIGINT and SIGQUIT stop it, SIGHUP reloads its configuration if it
    /// has one, SIGHUP and SIGUSR1 reopen its log files, and SIGUSR2 upgrades it if it can be upgraded.
    pub(crate) fn of_server() -> anyhow::Result<Self> {
        Ok(Self {
            server_signals: Some(ServerSignals {
                hangup: listen(SignalKind::hangup())?,
                user1: listen(SignalKind::user_defined1())?,
                user2: listen(SignalKind::user_defined2())?,
                quit: listen(SignalKind::quit())?,
            }),
            ..Self::listen()?
        })
    }

    /// Waits for SIGTERM, SIGINT or, in a server, SIGQUIT and returns its name. Handles the other signals meanwhile.
    pub(crate) async fn wait_for_stop(&mut self) -> &'static str {
        loop {
            let name = self.next().await;
            if let ("SIGHUP", Some(reload)) = (name, &self.reload) {
                reload();
            }
            match (name, &self.reopen) {
                ("SIGTERM" | "SIGINT" | "SIGQUIT" | UPGRADED, _) => return name,
                ("SIGUSR2", _) => match &self.upgrade {
                    Some(upgrade) => upgrade(),
                    None => tracing::warn!(signal = name, "the signal is ignored"),
                },
                (_, Some(reopen)) if reopen() => {
                    tracing::info!(signal = name, "reopening log files");
                }
                ("SIGHUP", _) if self.reload.is_some() => {}
                (_, _) => {
                    tracing::info!(signal = name, "the signal is ignored: no log file is open");
                }
            }
        }
    }

    async fn next(&mut self) -> &'static str {
        let Self {
            terminate,
            interrupt,
            server_signals,
            replaced,
            ..
        } = self;
        let other = async {
            match server_signals {
                None => std::future::pending().await,
                Some(ServerSignals {
                    hangup,
                    user1,
                    user2,
                    quit,
                }) => tokio::select! {
                    _ = hangup.recv() => "SIGHUP",
                    _ = user1.recv() => "SIGUSR1",
                    _ = user2.recv() => "SIGUSR2",
                    _ = quit.recv() => "SIGQUIT",
                },
            }
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            name = other => name,
            () = replaced.notified() => UPGRADED,
        }
    }
}

/// The name of the event that another process has replaced this one.
const UPGRADED: &str = "upgrade";

fn listen(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot handle signals")
}
