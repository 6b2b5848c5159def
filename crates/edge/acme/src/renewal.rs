//! When a certificate is renewed.

use std::time::Duration;

use edgeward_types::mix64;
use serde::{Deserialize, Serialize};

/// The time for which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// `notBefore` of the certificate.
    pub not_before_at: u64,
    /// `notAfter` of the certificate.
    pub not_after_at: u64,
}

impl Validity {
    /// Returns the lifetime in seconds. Zero if the certificate ends before it begins.
    pub const fn lifetime_seconds(&self) -> u64 {
        self.not_after_at.saturating_sub(self.not_before_at)
    }

    /// Returns true once four fifths of the lifetime are over.
    pub(crate) const fn is_ending(&self, now: u64) -> bool {
        now >= self
            .not_after_at
            .saturating_sub(self.lifetime_seconds() / 5)
    }

    /// Returns the least time between the issuance of a certificate and its renewal, whatever the issuer suggests: a
    /// twentieth of its lifetime, and at least an hour.
    pub(crate) fn renewal_interval_seconds_min(&self) -> u64 {
        (self.lifetime_seconds() / 20).max(3600)
    }
}

/// The window in which an issuer wants a certificate to be renewed (RFC 9773 §4.2), in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestedWindow {
    /// The start of the window.
    pub start_at: u64,
    /// The end of the window. A window that does not end after its start counts as none.
    pub end_at: u64,
}

/// Returns when a certificate is renewed: at a point of the suggested window, or after two thirds of its lifetime (one
/// half if it is at most ten days). `seed` selects the point, so the same seed returns the same point at each call.
pub fn renewal_at(validity: Validity, window: Option<SuggestedWindow>, seed: u64) -> u64 {
    let lifetime = validity.lifetime_seconds();
    match window.filter(|window| window.start_at < window.end_at) {
        Some(window) => {
            // RFC 9773 §4.2: a uniformly random time within the window. A window in the past means at once.
            let offset = mix64(seed) % (window.end_at - window.start_at);
            let latest = validity.not_after_at.saturating_sub(lifetime / 10);
            (window.start_at + offset).min(latest)
        }
        None => {
            let share = match lifetime <= SHORT_LIFETIME.as_secs() {
                true => lifetime / 2,
                false => lifetime / 3 * 2,
            };
            // Names that were ordered together are renewed apart.
            let jitter = mix64(seed) % (lifetime / 50 + 1);
            validity
                .not_before_at
                .saturating_add(share - jitter.min(share))
        }
    }
}

/// Returns the time until the next query of the window. `retry_after` is the wish of the issuer (RFC 9773 §4.3.2).
pub(crate) fn window_query_delay(retry_after: Option<Duration>) -> u64 {
    let wish = retry_after.unwrap_or(WINDOW_QUERY_DEFAULT);
    wish.clamp(WINDOW_QUERY_MIN, WINDOW_QUERY_MAX).as_secs()
}

/// Certificates of up to this lifetime are renewed after half of it, because two thirds would leave less than four days
/// for repairs.
const SHORT_LIFETIME: Duration = Duration::from_secs(10 * 86_400);

/// RFC 9773 §4.3.2 recommends six hours, and limits such as these.
const WINDOW_QUERY_DEFAULT: Duration = Duration::from_secs(6 * 3600);
const WINDOW_QUERY_MIN: Duration = Duration::from_secs(600);
const WINDOW_QUERY_MAX: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    const DAY: u64 = 86_400;

    const fn validity(days: u64) -> Validity {
        Validity {
            not_before_at: 1000 * DAY,
            not_after_at: (1000 + days) * DAY,
        }
    }

    #[test]
    fn without_a_window_a_certificate_is_renewed_after_two_thirds_or_one_half() {
        for (days, after) in [(90, 60), (45, 30), (12, 8), (10, 5), (6, 3)] {
            for seed in 0..100 {
                let at = renewal_at(validity(days), None, seed);
                let due = (1000 + after) * DAY;
                assert!((due - days * DAY / 50..=due).contains(&at), "{days} {at}");
            }
        }
    }

    /// Windows now, past, future, of no length and of negative length.
    #[test]
    fn a_window_decides_unless_it_is_empty_or_too_late() {
        let at = |start_at, end_at| {
            renewal_at(validity(90), Some(SuggestedWindow { start_at, end_at }), 3)
        };
        assert!((1010 * DAY..1012 * DAY).contains(&at(1010 * DAY, 1012 * DAY)));
        assert!(at(900 * DAY, 901 * DAY) < 901 * DAY);
        assert_eq!(at(2000 * DAY, 2001 * DAY), 1081 * DAY);
        let without = renewal_at(validity(90), None, 3);
        assert_eq!(at(1010 * DAY, 1010 * DAY), without);
        assert_eq!(at(1012 * DAY, 1010 * DAY), without);
    }

    #[test]
    fn the_delay_of_window_queries_is_bounded() {
        let delay = |seconds| window_query_delay(Some(Duration::from_secs(seconds)));
        assert_eq!(window_query_delay(None), 6 * 3600);
        assert_eq!((delay(0), delay(601), delay(1 << 40)), (600, 601, DAY));
    }

    proptest! {
        /// No validity and no window makes the arithmetic overflow, or postpones a renewal beyond the end.
        #[test]
        fn a_renewal_is_never_after_the_end(
            not_before_at: u64, not_after_at: u64, start_at: u64, end_at: u64, has_window: bool, seed: u64,
        ) {
            let validity = Validity { not_before_at, not_after_at };
            let window = has_window.then_some(SuggestedWindow { start_at, end_at });
            let at = renewal_at(validity, window, seed);
            prop_assert!(at <= not_after_at || not_after_at < not_before_at);
        }
    }
}
