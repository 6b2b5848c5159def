//! A timer of microsecond resolution. The timers of Tokio have a resolution of one millisecond, but a link holds
//! bytes that were written to a stream for only 200 µs, to send them together with later bytes.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timer of the kernel. It expires some tens of microseconds after the set time.
pub(crate) struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    /// The time at which the timer expires. `None` if it is not set.
    expires_at: Option<Instant>,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "the replacement is an unsafe fn, because some types may change their descriptor; an \
                      OwnedFd keeps its descriptor, so the safe function is sound here"
        )]
        let descriptor = AsyncFd::new(timer)?;
        Ok(Self {
            descriptor,
            expires_at: None,
        })
    }

    /// Sets the timer. `None` does not change the timer. If it is already set to an earlier time, it is not changed
    /// either, because an early wake-up costs only one poll.
    pub(crate) fn set(&mut self, at: Option<Instant>) -> io::Result<()> {
        let Some(at) = at else { return Ok(()) };
        if self.expires_at.is_some_and(|current| current <= at) {
            return Ok(());
        }
        // A duration of zero would disarm the timer.
        let remaining = at.saturating_duration_since(Instant::now());
        let remaining = remaining.max(Duration::from_nanos(1));
        let spec = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(remaining),
        };
        timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
        self.expires_at = Some(at);
        Ok(())
    }

    /// Returns `Ready` once after the timer has expired.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.expires_at.is_none() {
            return Poll::Pending;
        }
        loop {
            let mut ready = std::task::ready!(self.descriptor.poll_read_ready(cx))?;
            let mut expirations = [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?)) {
                Ok(read) => {
                    read?;
                    self.expires_at = None;
                    // The timer expires only once, so the descriptor is not readable again until the timer is set.
                    ready.clear_ready();
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_expires_once_at_the_earliest_time() {
        let mut timer = Timer::new().expect("the timer can be created");
        for micros in [3000, 0, 50] {
            let at = Instant::now() + Duration::from_micros(micros);
            timer.set(Some(at)).expect("the timer can be set");
            timer
                .set(Some(at + Duration::from_secs(60)))
                .expect("the timer can be set");
            std::future::poll_fn(|cx| timer.poll(cx))
                .await
                .expect("the timer expires");
            assert!(Instant::now() >= at);
        }
    }
}
