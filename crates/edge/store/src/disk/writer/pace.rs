//! Decides if the writes of a device should bypass the page cache, because its write rate is high.

use std::time::Instant;

/// The write rate, in bytes per second, above which writes bypass the page cache.
///
/// At a lower rate, the write-back by the kernel takes only a hundredth of a core, and new objects are in the
/// page cache when they are requested next. At a higher rate, the write-back delays requests (measured in
/// docs/explanation/disk-cache.md), and the writes evict pages that requests read.
const HIGH_RATE: f64 = (32 << 20) as f64;

/// A leaky bucket: writes fill it, and it drains at [`HIGH_RATE`].
#[derive(Debug, Default)]
pub(super) struct WriteRate {
    bytes: f64,
    last_write: Option<Instant>,
}

impl WriteRate {
    /// Adds the bytes of a write to the bucket. Returns true if the bucket then has more bytes than one second
    /// at [`HIGH_RATE`] drains. The bucket has space for the bytes of two seconds.
    pub(super) fn add_write(&mut self, bytes: u64, now: Instant) -> bool {
        let before = self.last_write.replace(now).unwrap_or(now);
        let drained = HIGH_RATE * now.saturating_duration_since(before).as_secs_f64();
        self.bytes = ((self.bytes - drained).max(0.0) + bytes as f64).min(2.0 * HIGH_RATE);
        self.bytes > HIGH_RATE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Simulates writes of 1 MiB, at `per_second` writes per second. Returns the result of `add_write` for each
    /// write.
    fn run(rate: &mut WriteRate, start: Instant, per_second: u32, seconds: u32) -> Vec<bool> {
        let gap = Duration::from_secs(1) / per_second;
        let times = (0..per_second * seconds).map(|write| start + gap * write);
        times.map(|now| rate.add_write(1 << 20, now)).collect()
    }

    #[test]
    fn a_device_that_is_written_slowly_never_counts_as_fast() {
        let fast = run(&mut WriteRate::default(), Instant::now(), 30, 100);
        assert!(fast.iter().all(|&fast| !fast));
    }

    #[test]
    fn a_device_that_is_written_fast_counts_as_fast_within_a_second() {
        let fast = run(&mut WriteRate::default(), Instant::now(), 100, 10);
        let first_fast = fast
            .iter()
            .position(|&fast| fast)
            .expect("the rate counts as fast");
        assert!(first_fast < 100, "after {first_fast} writes");
        assert!(fast[first_fast..].iter().all(|&fast| fast));
    }

    #[test]
    fn a_device_is_slow_again_two_seconds_after_the_last_write() {
        let start = Instant::now();
        let mut rate = WriteRate::default();
        run(&mut rate, start, 1000, 60);
        let second = Duration::from_secs(1);
        assert!(rate.add_write(4096, start + 60 * second));
        assert!(!rate.add_write(4096, start + 62 * second));
    }
}
