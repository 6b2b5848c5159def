//! Parsing and formatting of HTTP dates (RFC 9110 §5.6.7) as [`Timestamp`]s since the Unix epoch.

use std::time::{Duration, SystemTime};

use edgeward_types::Timestamp;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Parses IMF-fixdate and the two obsolete formats. Returns `None` for any other text.
///
/// Letters may have any case (RFC 9111 §4.2: SHOULD). The weekday must be a weekday, but not that of the date: it adds
/// no information, and origins that compute it wrongly still mean the date. A time zone other than GMT is invalid
/// (§4.2: SHOULD).
///
/// Returns `None` for dates before 1970 too. Its callers treat such an `Expires` as past, ignore such an
/// `If-Modified-Since`, and answer such an `If-Range` with the whole response.
pub fn parse_http_date(bytes: &[u8]) -> Option<Timestamp> {
    let mut text = Text(crate::list::trim(bytes));
    let weekday = text.letters()?;
    let [year, month, day, time] = if text.skip(b", ") {
        if WEEKDAYS.iter().any(|name| is_short(name, weekday)) {
            // IMF-fixdate: Sun, 06 Nov 1994 08:49:37 GMT
            let day = text.digits(2)?;
            let month = text.skip(b" ").then(|| text.month())??;
            let year = text.skip(b" ").then(|| text.digits(4))??;
            let time = text.skip(b" ").then(|| text.time())??;
            text.zone()?;
            [year, month, day, time]
        } else {
            // RFC 850: Sunday, 06-Nov-94 08:49:37 GMT
            WEEKDAYS
                .iter()
                .find(|name| name.eq_ignore_ascii_case(weekday))?;
            let day = text.digits(2)?;
            let month = text.skip(b"-").then(|| text.month())??;
            let year = text.skip(b"-").then(|| text.digits(2))??;
            let time = text.skip(b" ").then(|| text.time())??;
            text.zone()?;
            let century = if year < 70 { 2000 } else { 1900 };
            [century + year, month, day, time]
        }
    } else {
        // asctime: Sun Nov  6 08:49:37 1994
        WEEKDAYS.iter().find(|name| is_short(name, weekday))?;
        let month = text.skip(b" ").then(|| text.month())??;
        let day_digits = if text.skip(b"  ") { 1 } else { 2 };
        let day = (day_digits == 1 || text.skip(b" ")).then(|| text.digits(day_digits))??;
        let time = text.skip(b" ").then(|| text.time())??;
        let year = text.skip(b" ").then(|| text.digits(4))??;
        [year, month, day, time]
    };
    if !text.0.is_empty() || day == 0 || day > days_in(year, month) {
        return None;
    }
    let days = days_since_1970(year, month, day)?;
    Some(Timestamp::from_secs(days * 86_400 + time))
}

/// The text that is not parsed yet.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn skip(&mut self, prefix: &[u8]) -> bool {
        let rest = self.0.strip_prefix(prefix);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes the letters up to the next other byte.
    fn letters(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| !byte.is_ascii_alphabetic())?;
        let (letters, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(letters)
    }

    /// Takes a number of exactly `count` digits.
    fn digits(&mut self, count: usize) -> Option<u64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, byte| {
            byte.is_ascii_digit()
                .then(|| number * 10 + u64::from(byte - b'0'))
        })
    }

    /// Takes the name of a month, and returns its number from 1 to 12.
    fn month(&mut self) -> Option<u64> {
        let name = self.letters()?;
        let index = MONTHS
            .iter()
            .position(|month| month.eq_ignore_ascii_case(name))?;
        u64::try_from(index + 1).ok()
    }

    /// Takes `08:49:37`, and returns the seconds since midnight. A leap second counts as the second before it.
    fn time(&mut self) -> Option<u64> {
        let hour = self.digits(2)?;
        let minute = self.skip(b":").then(|| self.digits(2))??;
        let second = self.skip(b":").then(|| self.digits(2))??;
        (hour < 24 && minute < 60 && second <= 60)
            .then(|| hour * 3600 + minute * 60 + second.min(59))
    }

    fn zone(&mut self) -> Option<()> {
        let is_gmt = self.skip(b" ") && self.0.eq_ignore_ascii_case(b"GMT");
        self.0 = &[];
        is_gmt.then_some(())
    }
}

/// Returns true if `text` is the first three letters of a weekday, in any case.
fn is_short(weekday: &[u8], text: &[u8]) -> bool {
    weekday[..3].eq_ignore_ascii_case(text)
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

const fn is_leap(year: u64) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar. `None` for an earlier date.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    // The number of leap days before the year.
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let last = year.checked_sub(1)?;
    let before_year = (year * 365 + leap_days(last)).checked_sub(1970 * 365 + leap_days(1969))?;
    let before_month: u64 = (1..month).map(|month| days_in(year, month)).sum();
    Some(before_year + before_month + day - 1)
}

/// Formats a time as IMF-fixdate. Times after the year 9999 are written as its last second.
pub fn format_http_date(time: Timestamp) -> HeaderValue {
    let secs = time.as_secs().min(LAST_SECOND_OF_9999);
    let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
    HeaderValue::try_from(text).expect("an HTTP date is ASCII")
}

/// Parses the first line of a date field.
pub(crate) fn date_field(headers: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    parse_http_date(headers.get(name)?.as_bytes())
}

const WEEKDAYS: [&[u8]; 7] = [
    b"Monday",
    b"Tuesday",
    b"Wednesday",
    b"Thursday",
    b"Friday",
    b"Saturday",
    b"Sunday",
];

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// 9999-12-31T23:59:59Z, the last second that an IMF-fixdate can express.
const LAST_SECOND_OF_9999: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_three_formats_denote_the_same_second() {
        // The example of RFC 9110 §5.6.7.
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(
                parse_http_date(form.as_bytes()),
                Some(Timestamp::from_secs(784_111_777)),
                "{form}"
            );
        }
    }

    /// RFC 9111 §4.2: a cache matches dates case-insensitively. The weekday is not compared with the date.
    #[test]
    fn letters_of_any_case_and_a_wrong_weekday_are_accepted() {
        for form in [
            "SUN, 06 NOV 1994 08:49:37 gMT",
            "sunday, 06-nov-94 08:49:37 gmt",
            "sUN nOV  6 08:49:37 1994",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Friday, 06-Nov-94 08:49:37 GMT",
            "Sat Nov 06 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT\t",
        ] {
            assert_eq!(
                parse_http_date(form.as_bytes()),
                Some(Timestamp::from_secs(784_111_777)),
                "{form}"
            );
        }
    }

    #[test]
    fn an_invalid_date_is_rejected() {
        for text in [
            "",
            "0",
            "-1",
            "now",
            "Sun, 06 Nov 1994 08:49:37 EST",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT+1",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1960 08:49:37 GMT",
            "Sun, 31 Dec 1969 23:59:59 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1994 08:49:37 GMT",
            "Sun, 29 Feb 2100 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 November 1994 08:49:37 GMT",
            "Day, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday Nov  6 08:49:37 1994",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_http_date(b"\xff\xfe"), None);
    }

    #[test]
    fn a_leap_day_and_a_leap_second_are_dates() {
        let secs = |text: &str| parse_http_date(text.as_bytes()).map(Timestamp::as_secs);
        assert_eq!(secs("Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
        assert_eq!(secs("Sat, 31 Dec 2016 23:59:60 GMT"), Some(1_483_228_799));
        assert_eq!(secs("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    }

    #[test]
    fn times_after_the_year_9999_are_written_as_its_last_second() {
        assert_eq!(
            format_http_date(Timestamp::from_millis(u64::MAX)),
            "Fri, 31 Dec 9999 23:59:59 GMT"
        );
    }

    proptest! {
        #[test]
        fn a_written_date_reads_back(secs in 0..=LAST_SECOND_OF_9999) {
            let time = Timestamp::from_secs(secs);
            prop_assert_eq!(parse_http_date(format_http_date(time).as_bytes()), Some(time));
        }

        /// Method: rearrange an IMF-fixdate to the obsolete forms, with another weekday and letters of another case.
        #[test]
        fn a_date_in_any_form_and_any_case_has_the_same_second(
            secs in 0..=LAST_SECOND_OF_9999,
            weekday in proptest::sample::select(&WEEKDAYS[..]),
            case in proptest::sample::select(vec![str::to_ascii_uppercase, str::to_ascii_lowercase]),
        ) {
            let imf = format_http_date(Timestamp::from_secs(secs));
            let imf = imf.to_str().expect("ASCII");
            let (day, month, year, time) = (&imf[5..7], &imf[8..11], &imf[12..16], &imf[17..25]);
            let weekday = std::str::from_utf8(weekday).expect("ASCII");
            let short = &weekday[..3];
            let padded = day.strip_prefix('0').map_or_else(|| day.to_owned(), |digit| format!(" {digit}"));
            let mut forms = vec![
                format!("{short}, {day} {month} {year} {time} GMT"),
                format!("{short} {month} {padded} {time} {year}"),
            ];
            if ("1970".."2070").contains(&year) {
                forms.push(format!("{weekday}, {day}-{month}-{} {time} GMT", &year[2..]));
            }
            for form in forms {
                let form = case(&form);
                prop_assert_eq!(parse_http_date(form.as_bytes()), Some(Timestamp::from_secs(secs)), "{}", form);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_http_date(&bytes);
        }
    }
}
