//! A clock that combines the monotonic and the wall clock of a machine, either of which may be wrong.

use std::sync::Arc;
use std::time::Duration;

use edgeward_types::Timestamp;

/// Reads a machine's clocks.
pub type ClockFn = Arc<dyn Fn() -> Now + Send + Sync>;

/// The time shown by both clocks of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time since a fixed moment; never decreases. Preferably a clock that runs while the machine sleeps.
    pub monotonic: Duration,
    /// Time since 1970; may be stepped in both directions.
    pub wall: Timestamp,
}

/// A moment of the combined clock in milliseconds: the wall time since 1970 at the first observation, plus the time
/// that has elapsed since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(i128);

/// A clock that starts at an anchor, a pair of readings of both clocks. The time that elapsed since the anchor is
/// the larger of the times that passed on the monotonic clock and on the wall clock.
///
/// If the two times differ by more than [`JITTER_MS`], the anchor moves to the current readings. If the anchor
/// stayed after the wall clock was stepped back, the time on the wall clock would be too short by the step. A
/// later sleep that is shorter than the step would then not be noticed. Smaller differences do not move the
/// anchor: each move keeps the larger of the two times, so rounding errors would add up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    anchor: Option<(Now, Moment)>,
}

impl Clock {
    /// Returns the current moment. Moves the anchor if one of the clocks was stepped or stopped.
    pub(super) fn observe(&mut self, now: Now) -> Moment {
        let moment = self.moment(now);
        let must_move_anchor = self.anchor.is_none_or(|(anchor, _)| {
            let (monotonic, wall) = elapsed_ms(anchor, now);
            (wall - monotonic).abs() > JITTER_MS
        });
        if must_move_anchor {
            self.anchor = Some((now, moment));
        }
        moment
    }

    /// Returns the current moment.
    pub(super) fn moment(&self, now: Now) -> Moment {
        let Some((anchor, moment)) = self.anchor else {
            return Moment(i128::from(now.wall.as_millis()));
        };
        let (monotonic, wall) = elapsed_ms(anchor, now);
        Moment(moment.0 + monotonic.max(wall))
    }

    /// Returns the moment `left` after `from`, minus 2 × [`JITTER_MS`]. While the anchor stays, the difference
    /// between the two clocks may change from [`JITTER_MS`] in one direction to [`JITTER_MS`] in the other. The
    /// combined clock may then be late by the sum.
    pub(super) fn deadline(&self, from: Moment, left: Duration) -> Moment {
        Moment(from.0 + left.as_millis() as i128 - 2 * JITTER_MS)
    }

    /// Returns the time left until a deadline.
    pub(super) fn time_until(&self, now: Now, deadline: Moment) -> Duration {
        let ms = deadline.0 - self.moment(now).0;
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }

    /// Returns the largest possible age of a statement dated `dated_ms` by the publisher, if the wall clocks of
    /// the publisher and of this machine differ by at most `error`. Returns `None` if the date is further in
    /// the future than the error allows.
    pub(super) fn age_at_most(&self, now: Now, dated_ms: u64, error: Duration) -> Option<Duration> {
        let age = self.moment(now).0 - i128::from(dated_ms) + error.as_millis() as i128;
        u64::try_from(age).ok().map(Duration::from_millis)
    }
}

/// Returns the elapsed milliseconds of the monotonic and of the wall clock.
fn elapsed_ms(from: Now, to: Now) -> (i128, i128) {
    let monotonic = to.monotonic.as_millis() as i128 - from.monotonic.as_millis() as i128;
    let wall = i128::from(to.wall.as_millis()) - i128::from(from.wall.as_millis());
    (monotonic, wall)
}

/// The largest difference between the clocks that counts as rounding or slewing. A larger difference is a step
/// or a sleep. A deadline is reduced by twice this value.
const JITTER_MS: i128 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn now(monotonic_secs: u64, wall_secs: u64) -> Now {
        Now {
            monotonic: Duration::from_secs(monotonic_secs),
            wall: Timestamp::from_secs(wall_secs),
        }
    }

    /// Rounding errors of consecutive observations do not add up.
    #[test]
    fn ten_observations_per_second_for_an_hour_add_no_error() {
        let mut clock = Clock::default();
        let at = |n: u64, jitter: u64| Now {
            monotonic: Duration::from_millis(n * 100),
            wall: Timestamp::from_millis(1_000_000 + n * 100 + jitter),
        };
        let start = clock.observe(at(0, 0));
        (1..36_000).for_each(|n| _ = clock.observe(at(n, n % 7)));
        assert!(clock.observe(at(36_000, 0)).0 - start.0 <= 3_600_007);
    }

    /// A step back of the wall clock removes no elapsed time. A step ahead and a sleep add elapsed time. After
    /// each of these events, time passes at its usual rate.
    #[test]
    fn elapsed_time_is_the_larger_of_both_clocks() {
        let mut clock = Clock::default();
        let start = clock.observe(now(100, 5000));
        let passed = |moment: Moment| (moment.0 - start.0) / 1000;
        assert_eq!(passed(clock.observe(now(101, 5001))), 1);
        assert_eq!(passed(clock.observe(now(102, 1402))), 2, "stepped back");
        assert_eq!(passed(clock.observe(now(103, 1493))), 93, "slept");
        assert_eq!(passed(clock.observe(now(104, 2))), 94, "stepped back");
        assert_eq!(passed(clock.observe(now(105, 3))), 95);
        assert_eq!(passed(clock.observe(now(106, 1004))), 1096, "stepped ahead");
    }

    #[test]
    fn a_date_beyond_the_clock_error_is_refused() {
        let mut clock = Clock::default();
        clock.observe(now(100, 5000));
        let age = |dated_ms| clock.age_at_most(now(100, 5000), dated_ms, Duration::from_secs(1));
        assert_eq!(age(4_990_000), Some(Duration::from_secs(11)));
        assert_eq!(age(5_001_000), Some(Duration::ZERO));
        assert_eq!(age(5_001_001), None);
    }
}
