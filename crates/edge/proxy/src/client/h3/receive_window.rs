//! The receive window of a connection: the bytes that a client may send before requests read them.
//!
//! The edge must be able to keep the whole window in memory, also if the client leaves out its first byte. The window
//! is therefore charged to the connection while a request is incomplete, and its growth until the connection ends. It
//! begins small, which is enough for forms and API calls, and doubles only if an upload uses it up in about a round
//! trip, so that the window limits the upload.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct ReceiveWindow {
    bytes: u64,
    /// The bytes that requests have read since `begun`.
    read: u64,
    begun: Instant,
}

impl ReceiveWindow {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            bytes: WINDOW_BYTES_MIN,
            read: 0,
            begun: now,
        }
    }

    /// Returns the bytes to charge. A client may use its window on streams without a request too: only the first window
    /// is free while no request is incomplete, or an idle connection would cost three times as much.
    pub(super) fn charge(&self, has_incomplete_request: bool) -> u64 {
        match has_incomplete_request {
            true => self.bytes,
            false => self.bytes - WINDOW_BYTES_MIN,
        }
    }

    /// Records bytes that requests have read. Returns the new window if it has grown. `now` returns the time and the
    /// round-trip time; it is called once for each window of bytes.
    pub(super) fn record_read(
        &mut self,
        bytes: u64,
        now: impl FnOnce() -> (Instant, Duration),
    ) -> Option<u64> {
        self.read += bytes;
        if self.read < self.bytes {
            return None;
        }
        let (now, round_trip) = now();
        let took = now.saturating_duration_since(self.begun);
        self.read = 0;
        self.begun = now;
        if took > 2 * round_trip || self.bytes >= WINDOW_BYTES_MAX {
            return None;
        }
        self.bytes = (2 * self.bytes).min(WINDOW_BYTES_MAX);
        Some(self.bytes)
    }
}

/// The first window: forms and API calls are smaller.
pub(super) const WINDOW_BYTES_MIN: u64 = 64 << 10;

/// The largest window, that of HTTP/2: 80 Mbit/s at a round trip of 100 ms.
pub(super) const WINDOW_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// Reads `windows` windows, each in `took`. Returns the last window.
    fn window_after(windows: u32, took: Duration) -> u64 {
        let start = Instant::now();
        let mut window = ReceiveWindow::new(start);
        for n in 1..=windows {
            let bytes = window.bytes;
            let now = || unreachable!("the window is not used up");
            assert_eq!(window.record_read(bytes - 1, now), None);
            let before = window.bytes;
            let grown = window.record_read(1, || (start + took * n, ROUND_TRIP));
            assert_eq!(grown.unwrap_or(before), window.bytes);
        }
        window.bytes
    }

    #[test]
    fn the_growth_of_the_window_is_charged_without_a_request_too() {
        let start = Instant::now();
        let mut window = ReceiveWindow::new(start);
        let charges = |window: &ReceiveWindow| [false, true].map(|is| window.charge(is));
        assert_eq!(charges(&window), [0, WINDOW_BYTES_MIN]);
        window.record_read(WINDOW_BYTES_MIN, || (start, ROUND_TRIP));
        assert_eq!(charges(&window), [WINDOW_BYTES_MIN, 2 * WINDOW_BYTES_MIN]);
    }

    #[test]
    fn an_upload_that_the_window_limits_doubles_it_up_to_the_largest() {
        assert_eq!(window_after(1, 2 * ROUND_TRIP), 2 * WINDOW_BYTES_MIN);
        assert_eq!(window_after(3, ROUND_TRIP), 8 * WINDOW_BYTES_MIN);
        assert_eq!(window_after(9, ROUND_TRIP), WINDOW_BYTES_MAX);
    }

    #[test]
    fn a_slow_upload_keeps_the_small_window() {
        assert_eq!(
            window_after(9, 2 * ROUND_TRIP + Duration::from_millis(1)),
            WINDOW_BYTES_MIN
        );
    }
}
