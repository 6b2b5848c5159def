//! What ends a server: SIGTERM and SIGINT.

use std::future::Future;

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals, listened to from now on.
pub(crate) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("the runtime for signals cannot be started")?;
        let inside = runtime.enter();
        let listen = |kind| signal(kind).context("signals cannot be listened to");
        let terminate = listen(SignalKind::terminate())?;
        let interrupt = listen(SignalKind::interrupt())?;
        drop(inside);
        Ok(Self {
            runtime,
            terminate,
            interrupt,
        })
    }

    /// Waits for the next one. Its name.
    pub(crate) fn next(&mut self) -> &'static str {
        self.next_before(std::future::pending::<()>())
            .expect("nothing else ends the wait")
    }

    /// Waits for `end`, or for a signal: then its name.
    pub(crate) fn next_before<T>(&mut self, end: impl Future<Output = T>) -> Option<&'static str> {
        self.runtime.block_on(async {
            tokio::select! {
                _ = end => None,
                _ = self.terminate.recv() => Some("SIGTERM"),
                _ = self.interrupt.recv() => Some("SIGINT"),
            }
        })
    }
}
