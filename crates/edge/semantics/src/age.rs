//! The age of a response on arrival (RFC 9111 §4.2.3).

use edgeward_types::Timestamp;
use http::header::{AGE, DATE, HeaderMap};

use crate::cache_control::delta_seconds;
use crate::date::date_field;

/// The times of one fetch. Ages and lifetimes come from a clock that is never set, and the dates of HTTP from the wall
/// clock, which may be set forward or back between any two fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The time just before the request head was sent, by the clock that is never set.
    pub request_time: Timestamp,
    /// The time at which the response head had arrived completely, by the same clock.
    pub response_time: Timestamp,
    /// The wall time at which the response head had arrived. `Date` and `Expires` are compared with it.
    pub response_date: Timestamp,
}

impl Exchange {
    /// Returns an exchange without delay, for which both clocks show `time`.
    pub const fn at(time: Timestamp) -> Self {
        Self {
            request_time: time,
            response_time: time,
            response_date: time,
        }
    }
}

/// Returns `corrected_initial_age` in milliseconds.
///
/// The result is the larger of two values: the age by `Date`, and the sum of the `Age` field and the duration
/// of the exchange.
pub(crate) fn corrected_initial_age_ms(response: &HeaderMap, exchange: Exchange) -> u64 {
    // `Date` has whole seconds, so the clock is truncated to whole seconds too. Otherwise a response made in
    // this second would seem up to 999 ms old.
    let apparent_age_ms = date_field(response, &DATE).map_or(0, |date| {
        exchange
            .response_date
            .as_secs()
            .saturating_sub(date.as_secs())
            .saturating_mul(1000)
    });
    let response_delay_ms = exchange
        .response_time
        .as_millis()
        .saturating_sub(exchange.request_time.as_millis());
    let corrected_age_value_ms = age_value_secs(response)
        .saturating_mul(1000)
        .saturating_add(response_delay_ms);
    apparent_age_ms.max(corrected_age_value_ms)
}

/// Returns the value of `Age` in seconds (§5.1). The first member of a list counts. An invalid number is
/// treated as an absent field.
fn age_value_secs(response: &HeaderMap) -> u64 {
    let Some(line) = response.get(AGE) else {
        return 0;
    };
    let first = line
        .as_bytes()
        .split(|&byte| byte == b',')
        .next()
        .unwrap_or_default();
    delta_seconds(crate::list::trim(first)).map_or(0, u64::from)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::date::format_http_date;

    fn age_ms(age: Option<&str>, date_secs: Option<u64>, request_ms: u64, response_ms: u64) -> u64 {
        let mut headers = HeaderMap::new();
        if let Some(age) = age {
            headers.insert(AGE, HeaderValue::try_from(age).expect("ASCII"));
        }
        if let Some(secs) = date_secs {
            headers.insert(DATE, format_http_date(Timestamp::from_secs(secs)));
        }
        corrected_initial_age_ms(
            &headers,
            Exchange {
                request_time: Timestamp::from_millis(request_ms),
                response_time: Timestamp::from_millis(response_ms),
                response_date: Timestamp::from_millis(response_ms),
            },
        )
    }

    /// Each row: `Age` and `Date` in seconds, then in ms the request time, the response time and the age by §4.2.3.
    #[test]
    fn the_larger_of_apparent_and_corrected_age_counts() {
        let table = [
            (None, None, 100_000, 100_000, 0, "no Age, no Date"),
            (
                None,
                None,
                100_000,
                101_500,
                1_500,
                "the exchange took time",
            ),
            (
                Some("10"),
                None,
                100_000,
                101_500,
                11_500,
                "the response was stored in an upstream cache",
            ),
            (
                None,
                Some(100),
                100_000,
                100_999,
                999,
                "same second: Date adds nothing",
            ),
            (None, Some(90), 100_000, 100_000, 10_000, "an old Date"),
            (
                Some("30"),
                Some(90),
                100_000,
                100_000,
                30_000,
                "Age is larger",
            ),
            (
                Some("5"),
                Some(90),
                100_000,
                100_000,
                10_000,
                "Date is larger",
            ),
            (
                None,
                Some(200),
                100_000,
                100_000,
                0,
                "a Date in the future is not a negative age",
            ),
            (
                None,
                None,
                101_000,
                100_000,
                0,
                "a clock stepped back is not a negative delay",
            ),
        ];
        for (age, date, request, response, expected, why) in table {
            assert_eq!(age_ms(age, date, request, response), expected, "{why}");
        }
    }

    #[test]
    fn an_invalid_age_is_ignored_and_the_first_member_of_a_list_counts() {
        // §5.1: the first member of a list counts; an invalid value is treated as absent.
        for (value, secs) in [
            ("7", 7),
            (" 7 ", 7),
            ("7, 9", 7),
            ("7,x", 7),
            ("x, 7", 0),
            ("-1", 0),
            ("1.5", 0),
            ("\"7\"", 0),
            ("99999999999999999999", 1 << 31),
        ] {
            assert_eq!(age_ms(Some(value), None, 0, 0), secs * 1000, "{value}");
        }
    }
}
