//! Runs work on another thread and without the interpreter's lock, so that Ctrl-C can end the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A flag that is set if work must end early.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Returns true if the caller no longer waits for the result.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread and waits for its result, without the interpreter's lock. If a Python signal handler raises
/// an exception, for example `KeyboardInterrupt`, the function sets the flag that `work` checks, and returns the
/// exception at once.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&StopFlag) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = StopFlag::default();
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let flag = stop.clone();
    thread::Builder::new()
        .name("edgeward-sim".to_owned())
        .spawn(move || {
            // Sending fails if the caller has returned with an exception.
            _ = sender.send(work(&flag));
        })?;
    loop {
        match wait(py, &mut receiver) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(exception) = py.check_signals() {
                    stop.set();
                    return Err(exception);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "a thread of edgeward-sim panicked; its message is on stderr",
                ));
            }
        }
    }
}

/// Waits for the result, for at most [`SIGNAL_INTERVAL`], without the interpreter's lock.
fn wait<T: Send>(py: Python<'_>, receiver: &mut Receiver<T>) -> Result<T, RecvTimeoutError> {
    py.detach(move || receiver.recv_timeout(SIGNAL_INTERVAL))
}

/// The time between two checks for signals. A user does not notice this delay after Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
