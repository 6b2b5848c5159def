//! Computes the due time of a request (when it should be sent), and its latency. The module is pure: it does no I/O and
//! reads no clock.

use std::time::Duration;

use edgeward_types::Timestamp;

use super::plan::Pacing;

/// Assigns a due time to each request, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    pacing: Pacing,
    /// The trace time of the first request.
    first: Option<Timestamp>,
    /// The latest due time so far, since the start of the run.
    last_due: Duration,
}

/// The times of one request, each since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// The due time, if the request has one.
    pub due: Option<Duration>,
    /// The time when the request was passed to the connection.
    pub sent: Duration,
    /// The time when the head of the response was complete. The HTTP client does not report an earlier time.
    pub first_byte: Duration,
    /// The time when the last byte of the body arrived.
    pub end: Duration,
}

/// The durations of a request. The first two begin at the due time, or at the send time in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDurations {
    /// The time until the head of the response was complete, as in [`RequestTimes::first_byte`].
    pub first_byte: Duration,
    /// The time until the end of the body.
    pub total: Duration,
    /// The time from the due time to the send time, while no connection was free or the generator was late. The other
    /// two durations include it.
    pub send_delay: Duration,
}

impl Schedule {
    /// Returns a schedule at the start of a trace.
    pub fn new(pacing: Pacing) -> Self {
        Self {
            pacing,
            first: None,
            last_due: Duration::ZERO,
        }
    }

    /// Returns the due time of request `n`, whose time in the trace is `time`; `None` in a closed loop.
    ///
    /// A request whose trace time is earlier than that of a previous request is due together with the previous
    /// one, so the order of the trace is kept.
    pub fn due(&mut self, n: u64, time: Timestamp) -> Option<Duration> {
        let due = match self.pacing {
            Pacing::Closed => return None,
            Pacing::Rate(rate) => seconds(n as f64 / rate),
            Pacing::TraceTime { speedup } => {
                let first = *self.first.get_or_insert(time);
                seconds(time.since(first).as_secs_f64() / speedup)
            }
        };
        self.last_due = self.last_due.max(due);
        Some(self.last_due)
    }
}

impl RequestTimes {
    /// Computes the durations, from the due time if the request has one. The wait for a free connection is thus
    /// part of the latency, because a user would notice it.
    pub fn durations(self) -> RequestDurations {
        let from = self.due.unwrap_or(self.sent);
        RequestDurations {
            first_byte: self.first_byte.saturating_sub(from),
            total: self.end.saturating_sub(from),
            send_delay: self.sent.saturating_sub(from),
        }
    }
}

/// Converts seconds to a duration of at most a century, because a very low rate would exceed the range of `Duration`.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds)
        .unwrap_or(NEVER)
        .min(NEVER)
}

/// A century.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(pacing: Pacing, times_ms: &[u64]) -> Vec<Option<u64>> {
        let mut schedule = Schedule::new(pacing);
        (0..)
            .zip(times_ms)
            .map(|(n, &ms)| schedule.due(n, Timestamp::from_millis(ms)))
            .map(|due| due.map(|due| u64::try_from(due.as_micros()).expect("the number fits")))
            .collect()
    }

    #[test]
    fn a_closed_loop_has_no_due_times() {
        assert_eq!(dues(Pacing::Closed, &[5, 6]), [None, None]);
    }

    #[test]
    fn a_rate_ignores_the_times_of_the_trace() {
        let due = dues(Pacing::Rate(400.0), &[9, 1, 7]);
        assert_eq!(due, [Some(0), Some(2500), Some(5000)]);
    }

    #[test]
    fn trace_times_are_divided_by_the_speedup_and_never_decrease() {
        let pacing = Pacing::TraceTime { speedup: 4.0 };
        let due = dues(pacing, &[1000, 1008, 1004, 900, 1009]);
        let expected = [0, 2000, 2000, 2000, 2250];
        assert_eq!(due, expected.map(Some));
    }

    #[test]
    fn a_very_low_rate_does_not_panic() {
        let mut schedule = Schedule::new(Pacing::Rate(1e-300));
        schedule.due(0, Timestamp::ZERO);
        assert_eq!(schedule.due(1, Timestamp::ZERO), Some(NEVER));
    }

    /// The latency of every request that was due during a stall includes its wait.
    ///
    /// The target answers in 100 µs and stalls once for one second. 1000 requests per second are due on one
    /// connection. The requests due during the stall wait half a second on average. If latency were measured from the
    /// send time, only one request would be slow.
    ///
    /// Method: simulate the connection in virtual time.
    #[test]
    fn the_latency_of_each_request_includes_its_wait_during_a_stall() {
        let (service, stall) = (Duration::from_micros(100), Duration::from_secs(1));
        let mut schedule = Schedule::new(Pacing::Rate(1000.0));
        let mut now = Duration::ZERO;
        let mut durations = Vec::new();
        for n in 0..4000 {
            let due = schedule
                .due(n, Timestamp::ZERO)
                .expect("a rate has due times");
            let sent = now.max(due);
            let end = sent + if n == 1000 { stall } else { service };
            now = end;
            let times = RequestTimes {
                due: Some(due),
                sent,
                first_byte: end,
                end,
            };
            durations.push(times.durations());
        }
        let slow = |span: &&RequestDurations| span.total > Duration::from_millis(2);
        let waited = durations.iter().filter(slow).count();
        // The backlog of 1000 shrinks by 0.9 per request served, so about 1110 requests wait.
        assert!((1100..1120).contains(&waited), "{waited}");
        let total: Duration = durations.iter().filter(slow).map(|span| span.total).sum();
        let mean = total / u32::try_from(waited).expect("the number fits");
        assert!((480..520).contains(&mean.as_millis()), "{mean:?}");
        let from_sending = |span: &&RequestDurations| span.total - span.send_delay > service;
        assert_eq!(durations.iter().filter(from_sending).count(), 1);
    }

    #[test]
    fn without_a_due_time_latency_is_measured_from_the_send_time() {
        let ms = Duration::from_millis;
        let times = RequestTimes {
            due: None,
            sent: ms(5),
            first_byte: ms(7),
            end: ms(11),
        };
        let expected = RequestDurations {
            first_byte: ms(2),
            total: ms(6),
            send_delay: ms(0),
        };
        assert_eq!(times.durations(), expected);
    }
}
