//! The CPU time of the attackers, which are threads of this process or another process. They run on the same core as
//! the measuring client.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// The sum of the CPU time of several threads.
#[derive(Debug, Default)]
pub(super) struct CpuTime {
    nanoseconds: AtomicU64,
}

/// The part of the calling thread's CPU time that is already in the sum.
#[derive(Debug, Default)]
pub(super) struct ThreadTime {
    added_nanoseconds: u64,
}

impl CpuTime {
    /// Adds the CPU time that the calling thread has used since its previous call of this function.
    pub(super) fn add(&self, thread: &mut ThreadTime) {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now = u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0);
        let more = now.saturating_sub(thread.added_nanoseconds);
        thread.added_nanoseconds = now;
        self.nanoseconds.fetch_add(more, Ordering::Relaxed);
    }

    /// Replaces the sum by the CPU time of a process.
    pub(super) fn set_seconds(&self, seconds: f64) {
        let nanoseconds = (seconds * 1e9) as u64;
        self.nanoseconds.store(nanoseconds, Ordering::Relaxed);
    }

    pub(super) fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }
}
