//! Parsing of access log times, optimised for lines of the same minute.
//!
//! Successive lines of a log usually have the same minute. In this case only the seconds are parsed.

use edgeward_trace::raw::access_log_time;
use edgeward_types::Timestamp;

/// Parses times such as `17/May/2015:10:05:03 +0000`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// The text before the seconds of the last completely parsed field: date, hour and minute.
    prefix: [u8; 18],
    /// The text after the seconds of that field: the time zone.
    suffix: [u8; 6],
    /// The start of that field's minute, in milliseconds since 1970. `None` before the first field, or if the minute
    /// begins before 1970.
    minute: Option<u64>,
}

impl Clock {
    /// Parses the time of a field.
    #[inline(always)]
    pub(crate) fn read(&mut self, field: &[u8]) -> Option<Timestamp> {
        if let Some(minute) = self.minute
            && let Some((prefix, rest)) = field.split_first_chunk::<18>()
            && let [s1 @ b'0'..=b'5', s2 @ b'0'..=b'9', suffix @ ..] = rest
            && *prefix == self.prefix
            && *suffix == self.suffix
        {
            let secs = u64::from(s1 - b'0') * 10 + u64::from(s2 - b'0');
            return Some(Timestamp::from_millis(minute + secs * 1000));
        }
        self.read_in_full(field)
    }

    fn read_in_full(&mut self, field: &[u8]) -> Option<Timestamp> {
        let time = access_log_time(field)?;
        // `access_log_time` has checked the form: 18 bytes, two digits, six bytes.
        if let Some((prefix, rest)) = field.split_first_chunk::<18>()
            && let [s1, s2, rest @ ..] = rest
            && let Ok(suffix) = <[u8; 6]>::try_from(rest)
        {
            let secs = u64::from(s1 - b'0') * 10 + u64::from(s2 - b'0');
            self.prefix = *prefix;
            self.suffix = suffix;
            self.minute = time.as_millis().checked_sub(secs * 1000);
        }
        Some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: for each pair of times, a clock parses the first and then the second. Its second result must be the
    /// result of [`access_log_time`], which has no state.
    #[test]
    fn a_time_does_not_depend_on_the_previous_time() {
        let times = [
            "17/May/2015:10:05:03 +0000",
            "17/May/2015:10:05:59 +0000",
            "17/May/2015:10:05:60 +0000",
            "17/May/2015:10:05:6x +0000",
            "17/May/2015:10:05:07 +0100",
            "17/May/2015:10:06:00 +0000",
            "17/May/2015:10:05:03 +000",
            "17/May/2015:10:05:03 +0000 ",
            "01/Jan/1970:00:00:05 +0000",
            "01/Jan/1970:00:00:05 +0001",
            "",
        ];
        for first in times {
            for second in times {
                let mut clock = Clock::default();
                _ = clock.read(first.as_bytes());
                assert_eq!(
                    clock.read(second.as_bytes()),
                    access_log_time(second.as_bytes()),
                    "`{second}` after `{first}`"
                );
            }
        }
    }
}
