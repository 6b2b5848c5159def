//! Panics: a defect in one task must not end the others.
//!
//! The runtime catches a panic of a task and drops the task, so its connection ends and the others go on. Locks ignore
//! poisoning ([`lock`]). [`log_panics`] logs each panic with its place, and a [`TaskSet`](super::tasks::TaskSet)
//! reports the panics of its tasks.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Logs each panic of this process with its thread, file and line, in place of the default message to stderr. With
/// `RUST_BACKTRACE=1` the log has the backtrace too.
pub fn log_panics() {
    static SET: Once = Once::new();
    SET.call_once(|| std::panic::set_hook(Box::new(log)));
}

fn log(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is no text");
    let location = info.location();
    let thread = std::thread::current();
    let backtrace = std::backtrace::Backtrace::capture();
    let captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
    tracing::error!(
        file = location.map_or("unknown", |at| at.file()),
        line = location.map_or(0, |at| at.line()),
        thread = thread.name().unwrap_or("unnamed"),
        backtrace = captured.then(|| backtrace.to_string()),
        "panic: {message}"
    );
}

/// Calls a function that other work of the thread must survive. If it panics, calls `on_panic`.
pub(crate) fn survive(work: impl FnOnce(), on_panic: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        on_panic();
    }
}

/// Locks a mutex, even if a thread has panicked while it held the lock. In this crate, every statement that changes the
/// data of a mutex leaves the data valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
