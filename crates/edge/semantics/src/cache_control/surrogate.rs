//! Fields for the caches of a site's operator that are older than RFC 9213: `Surrogate-Control` (Edge Architecture
//! Specification, W3C note of 2001; Fastly, Akamai, Varnish setups) and `X-Accel-Expires` (nginx).
//!
//! Applications that were written for these caches send `Cache-Control: no-store` or `private` for browsers, and a
//! lifetime for the cache in one of these fields. As a targeted field, they replace `Cache-Control` and `Expires`.

use edgeward_types::Timestamp;
use http::header::{DATE, HeaderMap, HeaderName};

use super::directives::{
    Argument, DELTA_SECONDS_MAX, FieldScope, ResponseDirectives, delta_seconds, directives,
    restrict,
};
use crate::date::date_field;

pub(super) static SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");
pub(super) static X_ACCEL_EXPIRES: HeaderName = HeaderName::from_static("x-accel-expires");

/// Returns the directives of `Surrogate-Control`, or `None` if it states neither a lifetime nor `no-store`.
///
/// Many applications send it only to announce `content="ESI/1.0"`. A member with a parameter is for the caches that the
/// parameter names, and no cache of this kind is known here, so the member is ignored.
pub(super) fn surrogate_control(headers: &HeaderMap) -> Option<ResponseDirectives> {
    let mut found = ResponseDirectives {
        is_targeted: true,
        ..ResponseDirectives::default()
    };
    for line in headers.get_all(&SURROGATE_CONTROL) {
        for (name, argument) in directives(line.as_bytes()) {
            match (name.as_str(), argument) {
                ("max-age", Argument::Malformed) => {}
                ("max-age", argument) => found.add_surrogate_max_age(argument),
                (name, argument) => found.add(name, argument),
            }
        }
    }
    let states_use = found.max_age.is_some() || found.s_maxage.is_some();
    let forbids_use = found.no_store || found.private != FieldScope::Absent;
    (states_use || forbids_use).then_some(found)
}

impl ResponseDirectives {
    /// Adds `max-age=LIFETIME+STALE`. The second number is optional: how long the response may be used stale.
    fn add_surrogate_max_age(&mut self, argument: Argument<'_>) {
        let value = argument.value().unwrap_or_default();
        let (lifetime, stale) = match value.iter().position(|&byte| byte == b'+') {
            Some(at) => (&value[..at], delta_seconds(&value[at + 1..])),
            None => (value, None),
        };
        restrict(&mut self.max_age, delta_seconds(lifetime).unwrap_or(0));
        if let Some(stale) = stale {
            restrict(&mut self.stale_while_revalidate, stale);
            restrict(&mut self.stale_if_error, stale);
        }
    }
}

/// Returns the directives that `X-Accel-Expires` stands for, or `None` if its value is not one that nginx obeys:
/// seconds, 0 for a response that is not stored, or `@` and a time in seconds since 1970.
pub(super) fn x_accel_expires(headers: &HeaderMap) -> Option<ResponseDirectives> {
    let mut lines = headers.get_all(&X_ACCEL_EXPIRES).into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let mut found = ResponseDirectives {
        is_targeted: true,
        ..ResponseDirectives::default()
    };
    match line.as_bytes() {
        [b'@', digits @ ..] => {
            let until = Timestamp::from_secs(u64::from(delta_seconds(digits)?));
            // Without a `Date` the lifetime is unknown, so the response is stale.
            let date = date_field(headers, &DATE);
            let secs = date.map_or(0, |date| until.as_secs().saturating_sub(date.as_secs()));
            found.max_age = Some(u32::try_from(secs).unwrap_or(DELTA_SECONDS_MAX));
        }
        digits => match delta_seconds(digits)? {
            0 => found.no_store = true,
            secs => found.max_age = Some(secs),
        },
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    const NOT_FOR_BROWSERS: &str = "cache-control: no-store, private";

    fn from(lines: &str) -> ResponseDirectives {
        ResponseDirectives::from_headers(&headers(&format!("{NOT_FOR_BROWSERS}\n{lines}")))
    }

    /// Method: a field of each kind beside `Cache-Control: no-store`; the row says if the field counts, and its
    /// lifetime.
    #[test]
    fn a_field_for_the_operators_cache_replaces_cache_control_if_it_states_a_use() {
        for (lines, max_age) in [
            ("surrogate-control: max-age=180", Some(180)),
            (
                "surrogate-control: max-age=180, content=\"ESI/1.0\"",
                Some(180),
            ),
            ("surrogate-control: Max-Age=180+30", Some(180)),
            (
                "surrogate-control: max-age=60\nsurrogate-control: max-age=30",
                Some(30),
            ),
            ("surrogate-control: max-age=x", Some(0)),
            ("x-accel-expires: 180", Some(180)),
            // The order of precedence: targeted fields, then Surrogate-Control, then X-Accel-Expires.
            ("x-accel-expires: 5\nsurrogate-control: max-age=6", Some(6)),
            (
                "surrogate-control: max-age=6\ncdn-cache-control: max-age=7",
                Some(7),
            ),
            (
                "x-accel-expires: @784111837\ndate: Sun, 06 Nov 1994 08:49:37 GMT",
                Some(60),
            ),
            ("x-accel-expires: @5", Some(0)),
        ] {
            let directives = from(lines);
            assert_eq!(directives.max_age, max_age, "{lines}");
            assert!(directives.is_targeted && !directives.no_store, "{lines}");
        }
        for lines in [
            "surrogate-control: no-store",
            "surrogate-control: max-age=60, no-store",
            "surrogate-control: private",
            "x-accel-expires: 0",
        ] {
            let directives = from(lines);
            assert!(directives.is_targeted, "{lines}");
            let is_refused = directives.no_store || directives.private == FieldScope::Whole;
            assert!(is_refused, "{lines}");
        }
        for lines in [
            "surrogate-control:",
            "surrogate-control: content=\"ESI/1.0\"",
            "surrogate-control: max-age=180;other-cache",
            "x-accel-expires:",
            "x-accel-expires: off",
            "x-accel-expires: -1",
            "x-accel-expires: 1.5",
            "x-accel-expires: @x",
            "x-accel-expires: 5\nx-accel-expires: 6",
        ] {
            let directives = from(lines);
            assert!(!directives.is_targeted && directives.no_store, "{lines}");
        }
        let stale = from("surrogate-control: max-age=180+30");
        let times = (stale.stale_while_revalidate, stale.stale_if_error);
        assert_eq!(times, (Some(30), Some(30)));
    }
}
