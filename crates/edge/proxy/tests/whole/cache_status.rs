//! `Cache-Status` of every kind of response (RFC 9211): hits, misses, passes, errors, refusals and purges.

use crate::support::TestBed;
use edgeward_proxy::EdgeConfig;
use edgeward_semantics::ClientDirectives;
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;

/// A case: what happens, the request, its fields, and the status and `Cache-Status` of the response. `N` stands for
/// digits.
type Case = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    u16,
    &'static str,
);

fn page() -> Answer {
    Answer::ok("page")
        .header("cache-control", "max-age=600")
        .header("etag", "\"a\"")
}

fn config(config: &mut EdgeConfig) {
    config.caching.rules.client_directives = ClientDirectives::Honour;
    config.limits.object_bytes_max = ByteSize(100_000);
    config.limits.request_body_bytes_max = Some(ByteSize(1000));
    config.ranges.slice_bytes = ByteSize::kib(64);
    config.purge.allow = "127.0.0.0/8".parse().expect("a network");
}

/// Returns an edge whose origin answers by path.
fn bed() -> TestBed {
    let bed = TestBed::with_config(config);
    bed.origin.otherwise(|request| match request.path() {
        "/vary" => page().header("vary", "accept-language"),
        "/stale" => Answer::ok("page")
            .header("cache-control", "max-age=0")
            .header("etag", "\"a\"")
            .revalidates(),
        "/swr" => page().header("cache-control", "max-age=0, stale-while-revalidate=600"),
        "/private" => page().header("cache-control", "private"),
        "/cookie" => page().header("set-cookie", "a=b"),
        "/large" => Answer::pattern(200_000).header("cache-control", "max-age=600"),
        "/chunked" => Answer::pattern(2000)
            .header("cache-control", "max-age=600")
            .chunked(500),
        "/404" => Answer::status(404),
        "/broken" => Answer::garbage("x\r\n\r\n").then_close(),
        "/slices" => match request
            .header("range")
            .and_then(|range| range.strip_prefix("bytes="))
        {
            Some(range) => {
                let (first, last) = range.split_once('-').expect("a range has a dash");
                let first: u64 = first.parse().expect("a number");
                let last = last.parse().unwrap_or(u64::MAX).min(199_999);
                Answer::ok(crate::support::pattern(first..last + 1))
                    .with_status(206)
                    .header("content-range", &format!("bytes {first}-{last}/200000"))
                    .header("cache-control", "max-age=600")
                    .header("etag", "\"a\"")
            }
            None => Answer::pattern(200_000).header("etag", "\"a\""),
        },
        _ => page(),
    });
    bed
}

const CASES: &[Case] = &[
    (
        "a miss",
        "GET /a",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; stored",
    ),
    ("a hit", "GET /a", &[], 200, "hit; ttl=N"),
    ("a hit for HEAD", "HEAD /a", &[], 200, "hit; ttl=N"),
    (
        "a 304 from the cache",
        "GET /a",
        &[("if-none-match", "\"a\"")],
        304,
        "hit; ttl=N",
    ),
    (
        "a 206 from the cache",
        "GET /a",
        &[("range", "bytes=1-2")],
        206,
        "hit; ttl=N",
    ),
    (
        "a 416 from the cache",
        "GET /a",
        &[("range", "bytes=9-")],
        416,
        "hit; ttl=N",
    ),
    (
        "no-cache of the client",
        "GET /a",
        &[("cache-control", "no-cache")],
        200,
        "fwd=request; fwd-status=200; stored",
    ),
    (
        "a miss of a URL that varies",
        "GET /vary",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; stored",
    ),
    (
        "another variant",
        "GET /vary",
        &[("accept-language", "de")],
        200,
        "fwd=vary-miss; fwd-status=200; stored",
    ),
    (
        "a response to validate",
        "GET /stale",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; stored",
    ),
    (
        "a validation",
        "GET /stale",
        &[],
        200,
        "fwd=stale; fwd-status=304; ttl=N",
    ),
    (
        "a HEAD for a stale response",
        "HEAD /stale",
        &[],
        200,
        "fwd=stale; fwd-status=200; ttl=N",
    ),
    (
        "a response that may be used stale",
        "GET /swr",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; stored",
    ),
    ("a stale hit", "GET /swr", &[], 200, "hit; ttl=N"),
    (
        "a response that may not be stored",
        "GET /private",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; detail=private",
    ),
    (
        "a cookie",
        "GET /cookie",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; detail=set-cookie",
    ),
    (
        "an error of the origin",
        "GET /404",
        &[],
        404,
        "fwd=uri-miss; fwd-status=404; detail=never-reusable",
    ),
    (
        "an object above the limit",
        "GET /large",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; detail=not-admitted",
    ),
    (
        "a body of unknown length",
        "GET /chunked",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; detail=unknown-length",
    ),
    ("its hit", "GET /chunked", &[], 200, "hit; ttl=N"),
    (
        "a first slice",
        "GET /slices",
        &[("range", "bytes=0-9")],
        206,
        "fwd=uri-miss; fwd-status=206; stored",
    ),
    (
        "a stored slice",
        "GET /slices",
        &[("range", "bytes=5-9")],
        206,
        "hit; ttl=N",
    ),
    (
        "a further slice",
        "GET /slices",
        &[("range", "bytes=70000-70009")],
        206,
        "fwd=partial; detail=slices",
    ),
    (
        "several ranges without a stored response",
        "GET /new",
        &[("range", "bytes=0-0,2-2")],
        200,
        "fwd=uri-miss; fwd-status=200; detail=range",
    ),
    (
        "HEAD without a stored response",
        "HEAD /new",
        &[],
        200,
        "fwd=uri-miss; fwd-status=200; detail=head",
    ),
    (
        "POST",
        "POST /a",
        &[],
        200,
        "fwd=method; fwd-status=200; detail=method",
    ),
    (
        "OPTIONS",
        "OPTIONS /a",
        &[],
        200,
        "fwd=method; fwd-status=200; detail=method",
    ),
    (
        "a GET with content",
        "GET /new",
        &[("content-length", "3")],
        200,
        "fwd=bypass; fwd-status=200; detail=content",
    ),
    (
        "If-Match",
        "GET /new",
        &[("if-match", "\"a\"")],
        200,
        "fwd=bypass; fwd-status=200; detail=precondition",
    ),
    (
        "only-if-cached",
        "GET /new",
        &[("cache-control", "only-if-cached")],
        504,
        "fwd=miss; detail=only-if-cached",
    ),
    (
        "an origin that breaks HTTP",
        "GET /broken",
        &[],
        502,
        "fwd=uri-miss; detail=http_protocol_error",
    ),
    (
        "a pass to it",
        "PUT /broken",
        &[],
        502,
        "fwd=method; detail=http_protocol_error",
    ),
    ("PURGE", "PURGE /a", &[], 200, "detail=purge"),
    (
        "a malformed BAN",
        "BAN /a",
        &[("host", "")],
        400,
        "detail=invalid-request",
    ),
    (
        "OPTIONS for this edge",
        "OPTIONS *",
        &[("max-forwards", "0")],
        200,
        "detail=max-forwards",
    ),
    ("TRACE", "TRACE /a", &[], 405, "detail=trace"),
    (
        "user information",
        "GET /a",
        &[("host", "x@h")],
        400,
        "detail=invalid-request",
    ),
    (
        "an unknown transfer coding",
        "POST /a",
        &[("transfer-encoding", "x, chunked")],
        501,
        "detail=not-implemented",
    ),
    (
        "an upgrade",
        "GET /a",
        &[("connection", "upgrade"), ("upgrade", "websocket")],
        200,
        "fwd=bypass; fwd-status=200; detail=upgrade",
    ),
    (
        "a body above the limit",
        "POST /a",
        &[("content-length", "2000")],
        413,
        "detail=content-too-large",
    ),
];

/// Each response of the edge has exactly one member, with `hit`, `fwd`, or the detail of a response that the edge has
/// made itself. A forwarded request that is neither stored nor validated has a detail as well.
#[test]
fn every_response_says_how_the_cache_handled_the_request() {
    let bed = bed();
    for &(what, request, fields, status, expected) in CASES {
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let body: &[u8] = match fields.contains(&("content-length", "3")) {
            true => b"abc",
            false => b"",
        };
        let answer = bed.connect().request(method, path, fields, body);
        expect(what, &answer, status, expected);
        bed.wait_until("all fetches end", |status| {
            status["fills"]["under_way"] == 0
        });
    }
}

#[track_caller]
fn expect(what: &str, answer: &crate::support::Answer, status: u16, expected: &str) {
    let named = |field: &&(String, String)| field.0.eq_ignore_ascii_case("cache-status");
    assert_eq!(
        answer.headers.iter().filter(named).count(),
        1,
        "{what}: {answer:?}"
    );
    let parts: Vec<&str> = answer
        .cache_status()
        .split("; ")
        .map(without_digits)
        .collect();
    let shown = parts[1..].join("; ");
    assert_eq!(
        (answer.status, parts[0], shown.as_str()),
        (status, "edgeward", expected),
        "{what}: {answer:?}"
    );
    let is_complete = ["hit", "stored", "detail=", "fwd-status=304", "ttl="];
    assert!(
        is_complete.iter().any(|part| shown.contains(part)),
        "{what}: {shown}"
    );
}

/// Replaces the number of `ttl`.
fn without_digits(part: &str) -> &str {
    if part.starts_with("ttl=") {
        "ttl=N"
    } else {
        part
    }
}

#[test]
fn followers_and_failures_say_so_as_well() {
    let bed = bed();
    let gate = Gate::new();
    bed.origin.once("/shared", page().wait_before_head(&gate));
    let mut leader = bed.connect();
    leader.send_head("GET", "/shared", &[]);
    gate.wait_reached(1);
    let mut follower = bed.connect();
    follower.send_head("GET", "/shared", &[]);
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 2.0);
    gate.open();
    expect(
        "the leader",
        &leader.answer("GET"),
        200,
        "fwd=uri-miss; fwd-status=200; stored",
    );
    expect(
        "a follower",
        &follower.answer("GET"),
        200,
        "fwd=uri-miss; stored; collapsed",
    );

    let stale = || page().header("cache-control", "max-age=0, stale-if-error=600");
    bed.origin.once("/error", stale());
    bed.get("/error");
    bed.origin.once("/error", Answer::status(503));
    expect(
        "an error of the origin",
        &bed.get("/error"),
        200,
        "fwd=stale; fwd-status=503; ttl=N",
    );
    expect(
        "a back-off",
        &bed.get("/error"),
        200,
        "hit; ttl=N; detail=backoff",
    );
    bed.origin.once("/gone", stale());
    bed.get("/gone");
    bed.origin
        .once("/gone", Answer::garbage("x\r\n\r\n").then_close());
    let disconnected = bed.get("/gone");
    assert!(
        disconnected.cache_status().contains("detail="),
        "{disconnected:?}"
    );
}
