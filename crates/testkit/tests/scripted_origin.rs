//! Tests that a [`ScriptedOrigin`] sends the responses that a test has set. The tests read them from a plain socket.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use edgeward_testkit::{Answer, Gate, ScriptedOrigin, Step, pattern_byte};

fn connect(origin: &ScriptedOrigin) -> TcpStream {
    let stream = TcpStream::connect(origin.addr()).expect("the origin listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    stream
}

fn send_request(stream: &mut TcpStream, request: &str) {
    stream
        .write_all(request.as_bytes())
        .expect("the request can be sent");
}

/// Reads as many bytes as `text` has, and asserts that they are equal to it.
fn expect(stream: &mut TcpStream, text: &str) {
    let mut received = vec![0; text.len()];
    stream
        .read_exact(&mut received)
        .expect("the stream has at least this many bytes");
    assert_eq!(String::from_utf8_lossy(&received), text);
}

fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    stream
        .read_to_end(&mut received)
        .expect("the connection closes without a reset");
    received
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: test\r\n\r\n";

#[test]
fn queued_answers_are_sent_before_the_standing_answer_on_one_connection() {
    let origin = ScriptedOrigin::start();
    origin.on("/a", Answer::ok("standing").header("X-One", "1"));
    origin.once("/a", Answer::status(503));
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    expect(
        &mut stream,
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    );
    send_request(&mut stream, GET);
    expect(
        &mut stream,
        "HTTP/1.1 200 OK\r\nX-One: 1\r\nContent-Length: 8\r\n\r\nstanding",
    );
    assert_eq!(origin.requests("/a"), 2);
    assert_eq!(origin.accepted_connections(), 1);
    assert_eq!(origin.recorded()[0].header("HOST"), Some("test"));
    send_request(&mut stream, "GET /b HTTP/1.1\r\n\r\n");
    expect(&mut stream, "HTTP/1.1 404 Not Found\r\n");
}

#[test]
fn a_body_waits_at_its_gate() {
    let origin = ScriptedOrigin::start();
    let (head, middle) = (Gate::new(), Gate::new());
    let answer = Answer::ok("abcdef")
        .wait_before_head(&head)
        .wait_at(3, &middle);
    origin.on("/a", answer);
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    head.wait_reached(1);
    assert_eq!(origin.bytes_written(), 0);
    head.open();
    expect(
        &mut stream,
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc",
    );
    middle.wait_reached(1);
    middle.open();
    expect(&mut stream, "def");
}

#[tokio::test]
async fn an_async_test_can_wait_for_a_gate() {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    origin.on("/a", Answer::ok("x").wait_before_head(&gate));
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    gate.reached_by(1).await;
    gate.open();
    expect(&mut stream, "HTTP/1.1 200 OK\r\n");
    drop(stream);
    origin
        .until("the connection closes", |origin| {
            origin.open_connections() == 0
        })
        .await;
}

#[test]
fn chunks_are_framed_and_end_with_trailers() {
    let origin = ScriptedOrigin::start();
    origin.on("/a", Answer::ok("abcde").chunked(3).trailer("X-Sum", "5"));
    origin.once("/a", Answer::ok("abcde").chunked(3).close_at(4));
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(
        String::from_utf8_lossy(&read_to_close(&mut stream)),
        format!("{head}3\r\nabc\r\n1\r\nd\r\n")
    );
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    expect(&mut stream, head);
    expect(&mut stream, "3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n");
}

#[test]
fn a_condition_that_matches_gets_304_and_one_that_does_not_gets_the_body() {
    let origin = ScriptedOrigin::start();
    let answer = Answer::ok("abc").header("ETag", "\"v1\"").revalidates();
    origin.on("/a", answer);
    let mut stream = connect(&origin);
    send_request(
        &mut stream,
        "GET /a HTTP/1.1\r\nIf-None-Match: \"v0\", W/\"v1\"\r\n\r\n",
    );
    expect(
        &mut stream,
        "HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n\r\n",
    );
    send_request(
        &mut stream,
        "GET /a HTTP/1.1\r\nIf-None-Match: \"v2\"\r\n\r\n",
    );
    expect(&mut stream, "HTTP/1.1 200 OK\r\n");
}

#[test]
fn a_reset_within_a_body_is_received_as_a_reset() {
    let origin = ScriptedOrigin::start();
    origin.on("/a", Answer::pattern(1 << 20).reset_at(10));
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    let error = stream
        .read_to_end(&mut Vec::new())
        .expect_err("the connection is reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// If the claimed length exceeds the length of the body, the connection is closed after the body. If the
/// claimed length is smaller, the origin sends more bytes than claimed.
#[test]
fn a_claimed_length_may_be_too_large_or_too_small() {
    let origin = ScriptedOrigin::start();
    origin.once("/a", Answer::ok("abc").claiming_length(9));
    origin.once("/a", Answer::ok("abcdef").claiming_length(2));
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    let received = read_to_close(&mut stream);
    assert!(received.ends_with(b"Content-Length: 9\r\n\r\nabc"));
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    expect(
        &mut stream,
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcdef",
    );
}

#[test]
fn a_head_has_the_requested_length() {
    let origin = ScriptedOrigin::start();
    origin.once("/a", Answer::endless_headers(10_000));
    origin.once("/a", Answer::endless_header_line(10_000));
    for _ in 0..2 {
        let mut stream = connect(&origin);
        send_request(&mut stream, "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
        let received = read_to_close(&mut stream);
        assert!(
            received.len() > 10_000 && received.len() < 10_300,
            "{}",
            received.len()
        );
        assert!(received.ends_with(b"\r\nContent-Length: 0\r\n\r\n"));
    }
}

#[test]
fn a_connection_without_response_stays_open_until_the_peer_closes_it() {
    let origin = ScriptedOrigin::start();
    origin.on("/a", Answer::never());
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    origin.wait_until("the origin gets the request", |origin| {
        origin.requests("/a") == 1
    });
    assert_eq!(origin.open_connections(), 1);
    drop(stream);
    origin.wait_until("the connection closes", |origin| {
        origin.open_connections() == 0
    });
    assert_eq!(origin.bytes_written(), 0);
}

#[test]
fn garbage_is_sent_unchanged() {
    let origin = ScriptedOrigin::start();
    origin.once("/a", Answer::garbage(&b"\0\x01 not HTTP"[..]));
    let steps = vec![
        Step::Send("HTTP/1.1 103 Early Hints\r\n\r\n".into()),
        Step::Close,
    ];
    origin.once("/a", Answer::script(steps));
    for expected in [&b"\0\x01 not HTTP"[..], b"HTTP/1.1 103 Early Hints\r\n\r\n"] {
        let mut stream = connect(&origin);
        send_request(&mut stream, GET);
        assert_eq!(read_to_close(&mut stream), expected);
    }
}

#[test]
fn idle_connections_are_closed_on_demand_and_busy_ones_after_their_response() {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    origin.on("/a", Answer::ok("idle"));
    origin.on("/slow", Answer::ok("busy").wait_at(0, &gate));
    let (mut idle, mut busy) = (connect(&origin), connect(&origin));
    send_request(&mut idle, GET);
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
    expect(&mut idle, ok);
    expect(&mut idle, "idle");
    send_request(&mut busy, "GET /slow HTTP/1.1\r\n\r\n");
    expect(&mut busy, ok);
    gate.wait_reached(1);
    origin.close_idle_connections();
    assert_eq!(read_to_close(&mut idle), b"");
    gate.open();
    assert_eq!(read_to_close(&mut busy), b"busy");
    let mut fresh = connect(&origin);
    send_request(&mut fresh, GET);
    expect(&mut fresh, ok);
}

/// The origin reads bodies with a length and chunked bodies. It counts all bytes and records the first MiB.
#[test]
fn bodies_of_requests_are_recorded() {
    let origin = ScriptedOrigin::start();
    origin.on("/a", Answer::status(204));
    let mut stream = connect(&origin);
    send_request(
        &mut stream,
        "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    );
    expect(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n");
    send_request(&mut stream, "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
    expect(&mut stream, "HTTP/1.1 204 No Content\r\n\r\n");
    let request = origin.last("/a").expect("the origin got a request");
    assert_eq!(request.body(), b"abcde");
    assert!(request.is_complete());

    let long = vec![b'x'; (1 << 20) + 5];
    send_request(
        &mut stream,
        &format!("PUT /a HTTP/1.1\r\nContent-Length: {}\r\n\r\n", long.len()),
    );
    stream.write_all(&long).expect("the body can be sent");
    expect(&mut stream, "HTTP/1.1 204 No Content\r\n\r\n");
    let request = origin.last("/a").expect("the origin got a request");
    assert_eq!(request.body().len(), 1 << 20);
    assert_eq!(request.body_len(), (1 << 20) + 5);
}

#[test]
fn the_pattern_continues_across_gates_and_writes() {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    gate.open();
    let answer = Answer::pattern(200_000).wait_at(777, &gate).then_close();
    origin.on("/a", answer);
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    expect(
        &mut stream,
        "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n",
    );
    let body = read_to_close(&mut stream);
    assert_eq!(body.len(), 200_000);
    let wrong = (0..)
        .zip(&body)
        .find(|&(offset, &byte)| byte != pattern_byte(offset));
    assert_eq!(wrong, None);
}

#[test]
fn dropping_the_origin_joins_its_thread_although_an_answer_waits_at_a_gate() {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    origin.on("/a", Answer::ok("x").wait_before_head(&gate));
    let mut stream = connect(&origin);
    send_request(&mut stream, GET);
    gate.wait_reached(1);
    let addr = origin.addr();
    drop(origin);
    assert_eq!(read_to_close(&mut stream), b"");
    assert!(TcpStream::connect(addr).is_err());
}
