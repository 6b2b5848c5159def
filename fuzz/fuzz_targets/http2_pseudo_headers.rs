//! The pseudo-headers and fields of an HTTP/2 request, as the HTTP/2 library passes them on.
//!
//! The input is `:method`, `:authority` and `:path`, one line each, followed by the lines of the fields. The canonical
//! form of an accepted request does not change if it is made canonical again.
//!
//! Run: `cargo +nightly fuzz run http2_pseudo_headers`.
#![no_main]

#[path = "support/heads.rs"]
#[expect(dead_code, reason = "this target does not split its input")]
mod heads;

use edgeward_semantics::{Authority, RequestTarget, Target, hop_by_hop, request_fields};
use http::uri::{self, PathAndQuery};
use http::{HeaderValue, Method};
use libfuzzer_sys::fuzz_target;

use heads::head;

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(4, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (method, authority, path) = (line(), line(), line());
    fields(line());
    let (Ok(method), Ok(authority), Ok(path)) = (
        Method::from_bytes(method),
        uri::Authority::try_from(authority),
        PathAndQuery::try_from(path),
    ) else {
        return;
    };
    let target = |path_and_query: &str, is_pseudo_header: bool| {
        let target = RequestTarget {
            method: &method,
            scheme: is_pseudo_header.then_some("http"),
            has_authority: true,
            is_pseudo_header,
            path_and_query,
        };
        target.canonical().map(|canonical| canonical.into_owned())
    };
    let (Ok(path), Ok(authority)) = (
        target(path.as_str(), true),
        Authority::parse("http", authority.as_str()),
    ) else {
        return;
    };
    assert!(path.starts_with('/') || path == "*" && method == Method::OPTIONS);
    // The canonical path is accepted without a change as a target that was not received as `:path`.
    assert_eq!(target(&path, false).as_ref(), Ok(&path));
    let canonical = authority.canonical().into_owned();
    assert!(!canonical.contains('@'));
    let again = Authority::parse("http", &canonical).expect("a canonical authority");
    assert_eq!(again.canonical(), canonical);
    let key = |authority| Target::new("http", authority, &path).expect("it was parsed").key();
    assert_eq!(key(&canonical), format!("http://{canonical}{}", rooted(&path)).into_bytes());
});

/// Returns the path as it is in a cache key: with `/` before the `*` of an OPTIONS request.
fn rooted(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Checks the fields of a request.
fn fields(lines: &[u8]) {
    let mut request = head(lines);
    hop_by_hop::strip_request(&mut request, |_| false);
    assert!(!request.contains_key("connection"));
    let names: Vec<_> = request.keys().cloned().collect();
    for name in names.into_iter().filter(request_fields::has_canonical_form) {
        let mut value = Vec::new();
        request_fields::write_value(&name, &request, &mut value);
        let line = HeaderValue::from_bytes(&value).expect("made of the bytes of values");
        request.insert(&name, line);
        let mut again = Vec::new();
        request_fields::write_value(&name, &request, &mut again);
        assert_eq!(again, value, "{name}");
    }
}
