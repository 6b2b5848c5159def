//! `Expect: 100-continue` (RFC 9110 §10.1.1): the origin decides if the client sends its body.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::codecs::{H2Request, send_h2};
use crate::support::{TIMEOUT, TestBed};
use edgeward_testkit::{Answer, Gate};

const PUT_HEADERS: &str = "Host: shop.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

/// The origin rejects the request after it has read the head. The client has sent no byte of the body, and gets
/// the final response without `100 Continue`.
#[test]
fn an_origin_may_refuse_a_body_before_it_is_sent() {
    let bed = TestBed::start();
    let refusal = Answer::status(417).before_reading_body();
    bed.origin.on("/refused", refusal);
    let mut wire = bed.connect();
    wire.send(format!("PUT /refused HTTP/1.1\r\n{PUT_HEADERS}"));
    let head = wire.read_until("\r\n\r\n").to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 417 "), "{head}");
    // The client may or may not send the body after this response. The edge cannot know where a next request
    // would begin, so it closes the connection.
    assert!(head.contains("connection: close\r\n"), "{head}");
    wire.read_to_end();
    let forwarded = bed
        .origin
        .last("/refused")
        .expect("the origin got a request");
    assert_eq!(forwarded.header("expect"), Some("100-continue"));
    assert_eq!(forwarded.body(), b"");
    bed.origin.wait_until("the connection closes", |origin| {
        origin.open_connections() == 0
    });
}

/// An error response with content arrives completely, also over HTTP/2 and from an origin that closes the
/// connection.
#[test]
fn a_refusal_arrives_completely() {
    let bed = TestBed::start();
    let text = "x".repeat(300_000);
    let refusal = Answer::ok(text.clone())
        .with_status(413)
        .before_reading_body();
    bed.origin.on("/kept", refusal.clone());
    bed.origin.on("/closed", refusal.then_close());
    for path in ["/kept", "/closed"] {
        let mut wire = bed.connect();
        wire.send(format!("PUT {path} HTTP/1.1\r\n{PUT_HEADERS}"));
        let all = wire.read_to_end();
        assert!(all.starts_with("HTTP/1.1 413 "), "{path}");
        assert!(all.ends_with(&text), "{path}: {} bytes", all.len());
        let request = H2Request {
            method: "PUT",
            path,
            headers: &[("expect", "100-continue")],
            body: b"hello",
            ..H2Request::default()
        };
        let answer = send_h2(bed.addr(), &request).expect("a response arrives");
        assert_eq!((answer.status, answer.body.len()), (413, text.len()));
        let forwarded = bed.origin.last(path).expect("the origin got a request");
        assert_eq!(forwarded.body(), b"", "{path}");
    }
}

#[test]
fn a_client_gets_100_continue_after_the_origin_has_sent_it() {
    let bed = TestBed::with_config(|config| config.origins[0].expect_timeout = TIMEOUT);
    let gate = Gate::new();
    bed.origin
        .on("/wanted", Answer::ok("thanks").read_body_after(&gate));
    let mut wire = bed.connect();
    wire.send(format!("PUT /wanted HTTP/1.1\r\n{PUT_HEADERS}"));
    bed.origin.wait_until("the origin gets the head", |origin| {
        origin.requests("/wanted") == 1
    });
    // The origin has sent no `100 Continue`, so the edge must not have sent one either.
    assert!(wire.is_silent());
    gate.open();
    assert_eq!(wire.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    wire.send("hello");
    let head = wire.read_until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(wire.read_until("thanks"), "thanks");
    let forwarded = bed
        .origin
        .last("/wanted")
        .expect("the origin got a request");
    assert_eq!(forwarded.body(), b"hello");
    // The connection stays open for another request.
    wire.send(format!("PUT /wanted HTTP/1.1\r\n{PUT_HEADERS}hello"));
    assert_eq!(wire.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    wire.read_until("thanks");
}

/// hyper's HTTP/2 server does not send `100 Continue` to the client. The edge forwards the body after the
/// origin has sent `100 Continue`.
#[test]
fn a_body_over_http2_is_sent_after_the_origins_100_continue() {
    let bed = TestBed::with_config(|config| config.origins[0].expect_timeout = TIMEOUT);
    bed.origin.on("/wanted", Answer::ok("thanks"));
    let request = H2Request {
        method: "PUT",
        path: "/wanted",
        headers: &[("expect", "100-continue")],
        body: b"hello",
        ..H2Request::default()
    };
    let began = Instant::now();
    let answer = send_h2(bed.addr(), &request).expect("a response arrives");
    assert_eq!((answer.status, answer.text()), (200, "thanks"));
    assert!(
        began.elapsed() < TIMEOUT,
        "the body was sent after the timeout"
    );
    let forwarded = bed
        .origin
        .last("/wanted")
        .expect("the origin got a request");
    assert_eq!(forwarded.header("expect"), Some("100-continue"));
    assert_eq!(forwarded.body(), b"hello");
}

/// RFC 9110 §10.1.1: a client must not wait indefinitely for `100 Continue`. The edge, as a client of the
/// origin, waits for `expect_timeout`.
#[test]
fn an_origin_that_ignores_expectations_gets_the_body_after_a_timeout() {
    let bed =
        TestBed::with_config(|config| config.origins[0].expect_timeout = Duration::from_millis(50));
    let answer = Answer::ok("thanks").ignores_expectation();
    bed.origin.on("/ignoring", answer);
    let mut wire = bed.connect();
    wire.send(format!("PUT /ignoring HTTP/1.1\r\n{PUT_HEADERS}"));
    assert_eq!(wire.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    wire.send("hello");
    wire.read_until("thanks");
    let forwarded = bed
        .origin
        .last("/ignoring")
        .expect("the origin got a request");
    assert_eq!(forwarded.body(), b"hello");
    bed.wait_for_metric("edgeward_expectations_total{end=\"timeout\"}", 1.0);
}

/// A client that sends no body after `100 Continue` is treated like any other slow upload: after the rate window it
/// gets a 408, and the edge closes the connection to the origin.
#[test]
fn a_client_that_sends_no_body_after_100_continue_gets_a_408() {
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.limits.rate_window = Duration::from_millis(800);
    });
    bed.origin.on("/wanted", Answer::ok("thanks"));
    let mut wire = bed.connect();
    wire.send(format!("PUT /wanted HTTP/1.1\r\n{PUT_HEADERS}"));
    assert_eq!(wire.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    let head = wire.read_until("\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    bed.origin.wait_until("the connection closes", |origin| {
        origin.open_connections() == 0
    });
}

/// RFC 9110 §10.1.1: a server ignores the expectation of an HTTP/1.0 request.
#[test]
fn an_expectation_of_an_http10_client_is_not_forwarded() {
    let bed = TestBed::start();
    bed.origin.on("/old", Answer::ok("thanks"));
    let mut wire = bed.connect();
    wire.send(format!("PUT /old HTTP/1.0\r\n{PUT_HEADERS}hello"));
    assert!(wire.read_to_end().ends_with("thanks"));
    let forwarded = bed.origin.last("/old").expect("the origin got a request");
    assert_eq!(forwarded.header("expect"), None);
}
