//! Parses numbers and dates from bytes, without conversion to strings.

use edgeward_types::Timestamp;

use crate::read::TimeUnit;

/// Parses a whole number. Returns `None` if the field is empty, has a byte that is not a digit, or exceeds 64 bits.
#[inline]
pub fn whole(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    // 19 digits always fit into 64 bits; longer fields are checked for overflow.
    if field.len() <= 19 {
        let mut value = 0u64;
        for &byte in field {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u64::from(digit);
        }
        return Some(value);
    }
    field.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Returns the key of a text. If the text is a number without leading zeros, the key is this number, otherwise
/// a hash of the text.
///
/// `7` and `007` are therefore different keys.
#[inline]
pub fn key(field: &[u8]) -> u64 {
    match whole(field) {
        Some(id) if field[0] != b'0' || field.len() == 1 => id,
        _ => crate::hash_key(field),
    }
}

/// Parses a time in `unit`s: a whole number or a decimal fraction. Digits below a millisecond are dropped.
#[inline]
pub(crate) fn time(field: &[u8], unit: TimeUnit) -> Option<Timestamp> {
    if let Some(count) = whole(field) {
        return unit.whole(count);
    }
    let point = field.iter().position(|&byte| byte == b'.')?;
    let (integer, fraction) = (&field[..point], &field[point + 1..]);
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let base = unit.whole(whole(integer)?)?;
    if unit != TimeUnit::Seconds {
        return Some(base);
    }
    let millis = (0..3).fold(0, |millis, place| {
        millis * 10
            + fraction
                .get(place)
                .map_or(0, |digit| u64::from(digit - b'0'))
    });
    base.as_millis()
        .checked_add(millis)
        .map(Timestamp::from_millis)
}

/// Parses a status code of three digits. Returns 0 if the status is unknown: for an empty field, `-`, `000`, `-1` and
/// other numbers below 100, which servers write if a request had no response. A fraction of zeros (`200.0`) is ignored.
/// Returns `None` if the field is not a number or too large.
#[inline]
pub fn status(field: &[u8]) -> Option<u16> {
    if let &[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = field {
        return Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'));
    }
    match optional_whole(field)? {
        Some(status) if status >= 1000 => None,
        Some(status @ 100..) => u16::try_from(status).ok(),
        _ => Some(0),
    }
}

/// Parses a whole number that may be unknown. Returns `Some(None)` for an empty field, `-` and negative numbers, and
/// `None` if the field is not a number. A fraction of zeros (`512.0`) is ignored.
#[inline]
pub fn optional_whole(field: &[u8]) -> Option<Option<u64>> {
    if let Some(number) = whole(field) {
        return Some(Some(number));
    }
    let (negative, digits) = match field {
        b"" | b"-" => return Some(None),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let digits = match memchr::memchr(b'.', digits) {
        Some(point) if digits[point + 1..].iter().all(|digit| *digit == b'0') => &digits[..point],
        _ => digits,
    };
    let number = whole(digits)?;
    Some((!negative).then_some(number))
}

/// Parses a date and time of ISO 8601 or RFC 3339: `2026-11-21T04:52:46.5+01:00`, with `T` or a space between date and
/// time, and with `-` or `/` within the date. Without a zone the time is UTC. Returns `None` for times before 1970.
pub fn iso8601(field: &[u8]) -> Option<Timestamp> {
    let (date, rest) = field.split_at_checked(10)?;
    let [y1, y2, y3, y4, b'-' | b'/', m1, m2, b'-' | b'/', d1, d2] = *date else {
        return None;
    };
    let (&[b'T' | b't' | b' '], rest) = rest.split_at_checked(1)? else {
        return None;
    };
    let (clock, rest) = rest.split_at_checked(8)?;
    let days = days_from_civil(
        whole(&[y1, y2, y3, y4])?,
        whole(&[m1, m2])?,
        whole(&[d1, d2])?,
    )?;
    let secs = clock_secs(clock)?;
    let (millis, east_secs) = fraction_and_zone(rest)?;
    at(days, secs, east_secs, millis)
}

/// Parses the milliseconds and the zone after a clock time: `.123 +0100`, `,5+01:00`, `Z`. Both may be absent.
fn fraction_and_zone(text: &[u8]) -> Option<(u64, i64)> {
    let (millis, zone) = match text {
        [b'.' | b',', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            let digit = |place: usize| {
                rest[..digits]
                    .get(place)
                    .map_or(0, |digit| u64::from(digit - b'0'))
            };
            (digit(0) * 100 + digit(1) * 10 + digit(2), &rest[digits..])
        }
        zone => (0, zone),
    };
    let east_secs = match zone.strip_prefix(b" ").unwrap_or(zone) {
        [] | b"Z" | b"z" | b"UTC" | b"GMT" => 0,
        [sign, h1, h2, b':', m1, m2] | [sign, h1, h2, m1, m2] => {
            zone_secs(*sign, [*h1, *h2], [*m1, *m2])?
        }
        _ => return None,
    };
    (zone != b" ").then_some((millis, east_secs))
}

/// Parses a date of RFC 9110 or RFC 5322: `Wed, 03 Jan 2024 10:39:10 GMT`.
pub fn internet_date(field: &[u8]) -> Option<Timestamp> {
    let (_, date) = field
        .split_at_checked(5)
        .filter(|(day, _)| day.ends_with(b", "))?;
    let (date, rest) = date.split_at_checked(12)?;
    let [d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' '] = *date else {
        return None;
    };
    let (clock, rest) = rest.split_at_checked(8)?;
    let (millis, east_secs) = fraction_and_zone(rest)?;
    let days = named_date([d1, d2], [m1, m2, m3], [y1, y2, y3, y4])?;
    at(days, clock_secs(clock)?, east_secs, millis)
}

/// Returns the days since 1970 of a date with the name of its month.
fn named_date(day: [u8; 2], month: [u8; 3], year: [u8; 4]) -> Option<i64> {
    let month = MONTHS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(&month))?;
    days_from_civil(whole(&year)?, month as u64 + 1, whole(&day)?)
}

/// Parses the time of an access log: `17/May/2015:10:05:03 +0000`. HAProxy and some formats of nginx add a fraction of
/// the second (`10:05:03.123`). Without a zone the time is UTC.
pub fn access_log_time(field: &[u8]) -> Option<Timestamp> {
    let (date, rest) = field.split_first_chunk::<12>()?;
    let [d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':'] = *date else {
        return None;
    };
    let (clock, rest) = rest.split_at_checked(8)?;
    let (millis, east_secs) = fraction_and_zone(rest)?;
    let days = named_date([d1, d2], [m1, m2, m3], [y1, y2, y3, y4])?;
    at(days, clock_secs(clock)?, east_secs, millis)
}

/// Returns the time of a date and clock time in a zone: `days` since 1970, `secs` of the day and `millis`, in a
/// zone that is `east_secs` ahead of UTC.
fn at(days: i64, secs: i64, east_secs: i64, millis: u64) -> Option<Timestamp> {
    let secs = u64::try_from(days * 86_400 + secs - east_secs).ok()?;
    secs.checked_mul(1000)?
        .checked_add(millis)
        .map(Timestamp::from_millis)
}

/// Parses `HH:MM:SS`. A leap second counts as the second after it.
fn clock_secs(clock: &[u8]) -> Option<i64> {
    let &[h1, h2, b':', m1, m2, b':', s1, s2] = clock else {
        return None;
    };
    let (hours, minutes, secs) = (whole(&[h1, h2])?, whole(&[m1, m2])?, whole(&[s1, s2])?);
    (hours < 24 && minutes < 60 && secs <= 60)
        .then_some((hours * 3600 + minutes * 60 + secs) as i64)
}

fn zone_secs(sign: u8, hours: [u8; 2], minutes: [u8; 2]) -> Option<i64> {
    let (hours, minutes) = (whole(&hours)?, whole(&minutes)?);
    let secs = (hours * 3600 + minutes * 60) as i64;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        b'+' => Some(secs),
        b'-' => Some(-secs),
        _ => None,
    }
}

/// Returns the days since 1970-01-01 in the Gregorian calendar, or `None` for an invalid date.
///
/// The function counts years from March, so that the leap day is the last day of the year. Month `m` after
/// March then starts on day `(153 m + 2) / 5` of its year.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<i64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_in_month = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(leap),
        _ => return None,
    };
    if day == 0 || day > days_in_month || year == 0 || year > 9999 {
        return None;
    }
    let from_march = (month + 9) % 12;
    let year = year - u64::from(month < 3);
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    // There are 719,468 days between 0000-03-01 and 1970-01-01.
    Some(days as i64 - 719_468)
}

/// Formats a time as in RFC 3339, in UTC and whole seconds: `2015-05-17T10:05:03Z`.
pub fn rfc3339(time: Timestamp) -> String {
    let (days, in_day) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    // The inverse of `days_from_civil`: 400 years have 146,097 days, counted from a March 1st.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

const MONTHS: [[u8; 3]; 12] = [
    *b"Jan", *b"Feb", *b"Mar", *b"Apr", *b"May", *b"Jun", *b"Jul", *b"Aug", *b"Sep", *b"Oct",
    *b"Nov", *b"Dec",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_digits_that_fit_64_bits_and_nothing_else() {
        assert_eq!(whole(b"0"), Some(0));
        assert_eq!(whole(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(whole(b"00000000000000000000000007"), Some(7));
        for bad in [
            "",
            "-1",
            "+1",
            "1.0",
            "1e3",
            " 1",
            "18446744073709551616",
            "/",
            ":",
        ] {
            assert_eq!(whole(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn different_key_texts_are_different_keys() {
        assert_eq!(key(b"7"), 7);
        assert_eq!(key(b"0"), 0);
        let texts: [&[u8]; 6] = [
            b"7",
            b"07",
            b"007",
            b"7.0",
            b"/a?x=1",
            b"18446744073709551616",
        ];
        let mut keys = texts.map(key).to_vec();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), texts.len());
        // A hashed key must be the same on every machine and in every version.
        assert_eq!(key(b"/index.html"), 0xaa8f_18ab_73b5_f828);
    }

    #[test]
    fn a_time_keeps_milliseconds_and_drops_finer_digits() {
        let millis = |text: &str, unit| time(text.as_bytes(), unit).map(Timestamp::as_millis);
        for (text, expected) in [
            ("0", Some(0)),
            ("12", Some(12_000)),
            ("12.5", Some(12_500)),
            ("12.0459", Some(12_045)),
            ("1431856800.001", Some(1_431_856_800_001)),
            ("12.", None),
            (".5", None),
            ("-1", None),
            ("1.2.3", None),
            ("nan", None),
            ("18446744073709551615", None),
        ] {
            assert_eq!(millis(text, TimeUnit::Seconds), expected, "{text}");
        }
        assert_eq!(millis("1500", TimeUnit::Millis), Some(1500));
        assert_eq!(millis("1500.9", TimeUnit::Micros), Some(1));
        assert_eq!(millis("2500000", TimeUnit::Nanos), Some(2));
    }

    #[test]
    fn a_date_is_converted_to_seconds_since_1970_in_utc() {
        for (text, secs) in [
            ("17/May/2015:10:05:03 +0000", 1_431_857_103),
            ("17/May/2015:12:05:03 +0200", 1_431_857_103),
            ("17/May/2015:05:35:03 -0430", 1_431_857_103),
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("29/Feb/2000:23:59:59 +0000", 951_868_799),
            ("17/May/2015:10:05:03", 1_431_857_103),
            ("17/May/2015:12:05:03 +02:00", 1_431_857_103),
        ] {
            let time = access_log_time(text.as_bytes()).expect(text);
            assert_eq!(time.as_millis(), secs * 1000, "{text}");
        }
        for bad in [
            "",
            "17/May/2015:10:05:03 ",
            "17/May/2015:10:05:03.",
            "29/Feb/2015:00:00:00 +0000",
            "32/May/2015:10:05:03 +0000",
            "17/Mai/2015:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "31/Dec/1969:23:59:59 +0000",
            "17/May/2015:10:05:03 +0060",
        ] {
            assert_eq!(access_log_time(bad.as_bytes()), None, "{bad}");
        }
        for (text, millis) in [
            ("2015-05-17T10:05:03Z", 1_431_857_103_000),
            ("2015-05-17 10:05:03", 1_431_857_103_000),
            ("2015-05-17T10:05:03.25+00:00", 1_431_857_103_250),
            ("2015-05-17T12:05:03+0200", 1_431_857_103_000),
            ("2015/05/17 10:05:03,123456", 1_431_857_103_123),
        ] {
            assert_eq!(
                iso8601(text.as_bytes()).map(Timestamp::as_millis),
                Some(millis),
                "{text}"
            );
        }
        for bad in [
            "2015-05-17",
            "2015-13-17T10:05:03Z",
            "2015-05-17T10:05:03.Z",
            "x",
        ] {
            assert_eq!(iso8601(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_time_with_a_fraction_keeps_its_milliseconds() {
        for (text, millis) in [
            ("17/May/2015:10:05:03.25 +0000", 1_431_857_103_250),
            ("17/May/2015:10:05:03.123456", 1_431_857_103_123),
        ] {
            let time = access_log_time(text.as_bytes()).map(Timestamp::as_millis);
            assert_eq!(time, Some(millis), "{text}");
        }
    }

    #[test]
    fn a_date_of_http_is_parsed() {
        let millis = |text: &str| internet_date(text.as_bytes()).map(Timestamp::as_millis);
        let expected = Some(1_431_857_103_000);
        assert_eq!(millis("Sun, 17 May 2015 10:05:03 GMT"), expected);
        assert_eq!(millis("Sun, 17 May 2015 12:05:03 +0200"), expected);
        for bad in [
            "Sun, 17 May 2015",
            "Sun 17 May 2015 10:05:03 GMT",
            "17 May 2015 10:05:03 GMT",
        ] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }

    /// A server that has no response to log writes one of many numbers for it.
    #[test]
    fn an_unknown_status_or_size_is_not_malformed() {
        for (text, expected) in [
            ("200", Some(200)),
            ("999", Some(999)),
            ("200.0", Some(200)),
            ("", Some(0)),
            ("-", Some(0)),
            ("-1", Some(0)),
            ("0", Some(0)),
            ("000", Some(0)),
            ("009", Some(0)),
            ("99", Some(0)),
            ("1000", None),
            ("2x0", None),
            ("200.5", None),
            ("--1", None),
        ] {
            assert_eq!(status(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(optional_whole(b"512.0"), Some(Some(512)));
        assert_eq!(optional_whole(b"-1"), Some(None));
        assert_eq!(optional_whole(b"-"), Some(None));
        assert_eq!(optional_whole(b"x"), None);
    }

    #[test]
    fn a_formatted_time_is_parsed_back() {
        assert_eq!(
            rfc3339(Timestamp::from_secs(1_431_857_103)),
            "2015-05-17T10:05:03Z"
        );
        // One time of each day from 1970 to 2400, at varying seconds.
        for secs in (0..157_000u64).map(|day| day * 86_400 + day % 86_400) {
            let text = rfc3339(Timestamp::from_secs(secs));
            let time = iso8601(text.as_bytes()).map(Timestamp::as_secs);
            assert_eq!(time, Some(secs), "{text}");
        }
    }

    /// In four centuries, the number of each day is one more than that of the day before.
    #[test]
    fn days_are_consecutive_over_a_whole_gregorian_cycle() {
        let mut expected = days_from_civil(1970, 1, 1).expect("the date is valid");
        assert_eq!(expected, 0);
        for year in 1970..2370 {
            for month in 1..=12 {
                for day in 1..=31 {
                    if let Some(days) = days_from_civil(year, month, day) {
                        assert_eq!(days, expected, "{year}-{month}-{day}");
                        expected += 1;
                    }
                }
            }
        }
        assert_eq!(expected, 146_097, "400 Gregorian years");
    }
}
