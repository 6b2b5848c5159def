//! What ends a process in good order, SIGTERM and SIGINT, and what a server does about SIGHUP, SIGUSR1 and SIGUSR2.

use std::future::Future;

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, listened to from now on, for code that is not asynchronous.
pub(crate) struct Signals {
    runtime: Runtime,
    signals: AsyncSignals,
}

impl Signals {
    /// For tools: any other signal does what the system does about it.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Self::with(AsyncSignals::listen)
    }

    /// For servers: see [`AsyncSignals::of_server`].
    pub(crate) fn of_server() -> anyhow::Result<Self> {
        Self::with(AsyncSignals::of_server)
    }

    fn with(listen: impl FnOnce() -> anyhow::Result<AsyncSignals>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("the runtime for signals cannot be started")?;
        let inside = runtime.enter();
        let signals = listen()?;
        drop(inside);
        Ok(Self { runtime, signals })
    }

    /// Has SIGHUP and SIGUSR1 call `reopen` from now on.
    pub(crate) fn on_reopen(&mut self, reopen: impl Fn() + Send + 'static) {
        self.signals.reopen = Some(Box::new(reopen));
    }

    /// Waits for the next signal that ends the process. Returns its name.
    pub(crate) fn next(&mut self) -> &'static str {
        self.runtime.block_on(self.signals.ended())
    }

    /// Waits for `end`, or for a signal that ends the process: then returns its name.
    pub(crate) fn next_before<T>(&mut self, end: impl Future<Output = T>) -> Option<&'static str> {
        self.runtime.block_on(async {
            tokio::select! {
                _ = end => None,
                name = self.signals.ended() => Some(name),
            }
        })
    }
}

/// The same for code that runs in a runtime.
pub(crate) struct AsyncSignals {
    terminate: Signal,
    interrupt: Signal,
    others: Option<Others>,
    reopen: Option<Box<dyn Fn() + Send>>,
}

/// Signals that would end a server that does not listen to them.
struct Others {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

impl AsyncSignals {
    /// SIGTERM and SIGINT.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            others: None,
            reopen: None,
        })
    }

    /// The same, and SIGHUP and SIGUSR1, which reopen log files, and SIGUSR2, which is logged and ignored.
    pub(crate) fn of_server() -> anyhow::Result<Self> {
        Ok(Self {
            others: Some(Others {
                hangup: listen(SignalKind::hangup())?,
                user1: listen(SignalKind::user_defined1())?,
                user2: listen(SignalKind::user_defined2())?,
            }),
            ..Self::listen()?
        })
    }

    /// Waits for the next signal that ends the process, and meanwhile acts on the others. Returns its name.
    pub(crate) async fn ended(&mut self) -> &'static str {
        loop {
            let name = self.next().await;
            match (name, &self.reopen) {
                ("SIGTERM" | "SIGINT", _) => return name,
                ("SIGUSR2", _) => tracing::warn!(signal = name, "the signal is ignored"),
                (_, Some(reopen)) => {
                    tracing::info!(signal = name, "log files are reopened");
                    reopen();
                }
                (_, None) => {
                    tracing::info!(signal = name, "the signal is ignored: no log file is open");
                }
            }
        }
    }

    async fn next(&mut self) -> &'static str {
        let Self {
            terminate,
            interrupt,
            others,
            ..
        } = self;
        let other = async {
            match others {
                None => std::future::pending().await,
                Some(Others {
                    hangup,
                    user1,
                    user2,
                }) => tokio::select! {
                    _ = hangup.recv() => "SIGHUP",
                    _ = user1.recv() => "SIGUSR1",
                    _ = user2.recv() => "SIGUSR2",
                },
            }
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            name = other => name,
        }
    }
}

fn listen(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("signals cannot be listened to")
}
