//! Values of response fields that a worker writes often: they are kept, because consecutive ones are usually equal.

use std::cell::RefCell;

use edgeward_semantics::{CacheStatus, format_http_date};
use edgeward_types::Timestamp;
use http::HeaderValue;

/// The last values of `Cache-Status` and `Date`, and a buffer for the next ones.
#[derive(Debug)]
pub(crate) struct ResponseTexts {
    /// A buffer that is reused to write values of `Cache-Status`.
    pub(crate) cache_status_line: RefCell<String>,
    /// The last `Cache-Status` of a response from the origin.
    last_cache_status: RefCell<Option<(CacheStatus, HeaderValue)>>,
    /// The last value of `Date`, and the second for which it was written.
    date: RefCell<(u64, HeaderValue)>,
}

impl Default for ResponseTexts {
    fn default() -> Self {
        Self {
            cache_status_line: RefCell::default(),
            last_cache_status: RefCell::default(),
            date: RefCell::new((0, HeaderValue::from_static(""))),
        }
    }
}

impl ResponseTexts {
    /// Returns a wall time as the value of `Date` (RFC 9110 §5.6.7). The value is formatted at most once a second.
    pub(super) fn http_date(&self, now: Timestamp) -> HeaderValue {
        let secs = now.as_secs();
        let mut date = self.date.borrow_mut();
        if date.0 != secs || date.1.is_empty() {
            *date = (secs, format_http_date(now));
        }
        date.1.clone()
    }

    /// Returns the value of `Cache-Status` for a response from the origin. `name` is the name of this edge.
    pub(super) fn cache_status(&self, status: &CacheStatus, name: &str) -> HeaderValue {
        let mut last = self.last_cache_status.borrow_mut();
        match &*last {
            Some((same, value)) if same == status => value.clone(),
            _ => {
                let value = status.to_header_value(name);
                *last = Some((status.clone(), value.clone()));
                value
            }
        }
    }
}
