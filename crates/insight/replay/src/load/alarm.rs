//! A precise timer.
//!
//! tokio's timers have a resolution of one millisecond. This is many times the duration of a hit, and the delay would
//! be counted as the target's latency. A timer of the kernel is late by some tens of microseconds and costs three
//! system calls. Each connection of an open loop has one kernel timer.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(super) struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe because a type may change its descriptor; an OwnedFd \
                      never does this"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer })
    }

    /// Waits until `when`. Returns at once if that time has passed.
    pub(super) async fn wait_until(&self, when: Instant) -> io::Result<()> {
        loop {
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let spec = Itimerspec {
                it_interval: timespec(Duration::ZERO),
                it_value: timespec(left),
            };
            timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
            if let Ok(read) = read {
                read?;
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        // A longer duration is cut off at 292 billion years, which never pass.
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_is_never_early_and_can_be_used_again() {
        let alarm = Alarm::new().expect("the timer is created");
        for micros in [0, 50, 3000] {
            let when = Instant::now() + Duration::from_micros(micros);
            alarm.wait_until(when).await.expect("the timer expires");
            assert!(Instant::now() >= when);
        }
    }
}
