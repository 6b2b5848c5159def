//! Makes header maps from text, for the tests of this crate.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Parses `name: value` lines.
pub(crate) fn headers(lines: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').expect("name: value");
        headers.append(
            HeaderName::from_bytes(name.trim().as_bytes()).expect("the field name is valid"),
            HeaderValue::from_str(value.trim()).expect("the field value is valid"),
        );
    }
    headers
}
