//! Readings of the clocks, and jumps of the wall clock.

use serde::{Deserialize, Serialize};

/// The clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The wall clock: seconds since 1970. It may jump in both directions.
    pub wall_at: u64,
    /// Seconds since the machine started, including times of suspension. It never jumps.
    pub since_boot_seconds: u64,
    /// A number that identifies the start of the machine.
    pub boot: u64,
}

impl Reading {
    /// Returns by how many seconds the wall clock has jumped since `earlier`: what it has gone too far. `None` if the
    /// machine has started again since, so that nothing measures the time between.
    pub(crate) fn jump_since(&self, earlier: &Self) -> Option<i64> {
        if self.boot != earlier.boot || self.since_boot_seconds < earlier.since_boot_seconds {
            return None;
        }
        let elapsed = self.since_boot_seconds - earlier.since_boot_seconds;
        let expected = earlier.wall_at.saturating_add(elapsed);
        Some(signed(self.wall_at).saturating_sub(signed(expected)))
    }
}

fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// Differences below this are rounding or slow adjustments of the clock. They are corrected when they add up to more.
pub(crate) const JUMP_SECONDS_MIN: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const fn reading(wall_at: u64, since_boot_seconds: u64, boot: u64) -> Reading {
        Reading {
            wall_at,
            since_boot_seconds,
            boot,
        }
    }

    #[test]
    fn a_jump_is_the_difference_of_the_elapsed_times() {
        let start = reading(1000, 50, 7);
        assert_eq!(reading(1010, 60, 7).jump_since(&start), Some(0));
        assert_eq!(reading(5010, 60, 7).jump_since(&start), Some(4000));
        assert_eq!(reading(10, 60, 7).jump_since(&start), Some(-1000));
        assert_eq!(reading(1010, 60, 8).jump_since(&start), None);
        assert_eq!(reading(1010, 40, 7).jump_since(&start), None);
    }
}
