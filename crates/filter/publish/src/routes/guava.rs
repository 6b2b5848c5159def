//! Serves the filter in the format of Guava's `BloomFilter`. Each complete scan replaces the served file.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;

use super::{ContentHeaders, OCTETS, Routes, content_response, refuse};

impl Routes {
    pub(super) fn guava(&self, method: &Method, headers: &HeaderMap) -> Response<Full<Bytes>> {
        if self.config.guava.is_none() {
            let text = "this publisher builds no filter in Guava's format; `filter serve --guava utf8` does, \
                        and FilterClient reads edgeward's own format on the JVM";
            return refuse(StatusCode::NOT_FOUND, text);
        }
        let file = self.guava.borrow().clone();
        let Some(file) = file else {
            let text = "the filter in Guava's format is not built yet; a scan is in progress";
            return refuse(StatusCode::SERVICE_UNAVAILABLE, text);
        };
        self.counters.guava.increment();
        let secs = self.config.manifest_max_age.as_secs();
        let content_headers = ContentHeaders {
            media_type: OCTETS,
            cache_control: HeaderValue::try_from(format!("public, max-age={secs}"))
                .expect("digits are a valid field"),
            modified: Some(file.modified.clone()),
        };
        content_response(&file.content, method, headers, content_headers)
    }
}
