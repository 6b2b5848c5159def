//! Threads that run one function at regular intervals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::Duration;

/// A thread that runs its function, waits for `interval`, and repeats. Unparking the thread ends the wait. Dropping
/// this value runs the function one last time, then joins the thread.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                // The flag is read before the work, so that the last run includes everything queued before the stop.
                let is_last = stopped.load(Ordering::Acquire);
                work();
                if is_last {
                    return;
                }
                std::thread::park_timeout(interval);
            }
        })?;
        let thread = Some(thread);
        Ok(Self { stop, thread })
    }

    pub(crate) fn thread(&self) -> Option<Thread> {
        self.thread.as_ref().map(|thread| thread.thread().clone())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}
