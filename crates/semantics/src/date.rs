//! Parsing and formatting of HTTP dates (RFC 9110 §5.6.7) as [`Timestamp`]s since the Unix epoch.

use std::time::{Duration, SystemTime};

use edgeward_types::Timestamp;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Parses IMF-fixdate and the two obsolete formats. Returns `None` for any other text.
///
/// Returns `None` for dates before 1970 too. Its callers treat such an `Expires` as past, ignore such an
/// `If-Modified-Since`, and answer such an `If-Range` with the whole response.
pub fn parse_http_date(bytes: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(bytes).ok()?;
    let time = httpdate::parse_http_date(text.trim_matches([' ', '\t'])).ok()?;
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_secs(since_epoch.as_secs()))
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

    #[test]
    fn an_invalid_date_is_rejected() {
        for text in [
            "",
            "0",
            "-1",
            "now",
            "Sun, 06 Nov 1994 08:49:37 EST",
            "Sun, 06 Nov 1960 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_http_date(b"\xff\xfe"), None);
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

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse_http_date(&bytes);
        }
    }
}
