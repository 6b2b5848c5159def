//! Plain requests that miss the memory tier. A plain request is a GET or HEAD over HTTP/1.1 without conditions, ranges,
//! directives or credentials. The fast path serves these requests and fetches the responses without hyper.
//!
//! `Answer::garbage` sends bytes as they are: here a complete response, which a test writes out.

use crate::support::{TIMEOUT, TestBed, pattern};
use edgeward_proxy::config::{AccessLogConfig, LogDestination, LogFormat};
use edgeward_testkit::{Answer, Gate};

#[test]
fn pipelined_misses_are_answered_in_order() {
    let bed = TestBed::start();
    for path in ["/a", "/b", "/c"] {
        let answer = Answer::ok(path.as_bytes().to_vec()).header("cache-control", "no-store");
        bed.origin.on(path, answer);
    }
    let mut client = bed.connect();
    let all: String = ["/a", "/b", "/c"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n\r\n"))
        .concat();
    client.send(all.as_bytes());
    for path in ["/a", "/b", "/c"] {
        assert_eq!(client.answer("GET").text(), path);
    }
}

#[test]
fn any_request_may_follow_a_plain_request_on_its_connection() {
    let bed = TestBed::start();
    bed.origin.on(
        "/private",
        Answer::ok("mine").header("cache-control", "private"),
    );
    bed.origin.on(
        "/kept",
        Answer::ok("ours").header("cache-control", "max-age=60"),
    );
    bed.origin.on("/upload", Answer::ok("thanks"));
    let mut client = bed.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/private", &[]).text(), "mine");
        assert_eq!(client.get("/kept", &[]).text(), "ours");
        assert_eq!(client.get("/kept", &[("range", "bytes=0-1")]).text(), "ou");
        let sent = client.request("POST", "/upload", &[("content-length", "2")], b"hi");
        assert_eq!(sent.text(), "thanks");
        assert_eq!(client.request("HEAD", "/private", &[], b"").status, 200);
    }
}

#[test]
fn a_body_of_unknown_length_is_sent_in_chunks_completely() {
    let bed = TestBed::start();
    for (path, answer) in [
        ("/chunked", Answer::pattern(300_000).chunked(7_001)),
        (
            "/trailed",
            Answer::pattern(10_000).chunked(999).trailer("x-sum", "1"),
        ),
        ("/closed", Answer::pattern(300_000).until_close()),
        ("/empty", Answer::pattern(0).chunked(1)),
    ] {
        bed.origin
            .on(path, answer.header("cache-control", "no-store"));
    }
    let mut client = bed.connect();
    for (path, length) in [
        ("/chunked", 300_000),
        ("/trailed", 10_000),
        ("/closed", 300_000),
        ("/empty", 0),
        ("/chunked", 300_000),
    ] {
        let answer = client.get(path, &[]);
        assert_eq!(
            answer.header("transfer-encoding"),
            Some("chunked"),
            "{path}"
        );
        assert!(answer.complete, "{path}");
        assert!(answer.body == pattern(0..length), "{path}");
    }
    assert_eq!(
        bed.origin.accepted_connections(),
        2,
        "the connection is reused after chunks and trailers, but not after `close`"
    );
}

#[test]
fn a_connection_with_bytes_after_its_response_is_not_reused() {
    let bed = TestBed::start();
    let smuggled = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    bed.origin.on("/first", Answer::garbage(smuggled));
    bed.origin.on("/second", Answer::ok("good"));
    let mut client = bed.connect();
    assert_eq!(client.get("/first", &[]).text(), "ok");
    assert_eq!(client.get("/second", &[]).text(), "good");
}

#[test]
fn an_interim_response_is_not_the_final_one() {
    let bed = TestBed::start();
    let hinted = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    bed.origin.on("/hinted", Answer::garbage(hinted));
    let answer = bed.get("/hinted");
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    assert_eq!(answer.header("link"), None);
}

#[test]
fn a_length_that_is_not_a_single_number_is_a_502_and_counted() {
    let bed = TestBed::start();
    let ambiguous = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 20\r\n\r\nok";
    bed.origin.on("/doubtful", Answer::garbage(ambiguous));
    let answer = bed.get("/doubtful");
    assert_eq!(answer.status, 502);
    assert!(answer.cache_status().contains("http_protocol_error"));
    bed.wait_for_metric("edgeward_origin_errors_total{cause=\"head-invalid\"}", 1.0);
}

#[test]
fn a_response_to_head_has_a_length_and_no_body() {
    let bed = TestBed::start();
    bed.origin.on(
        "/page",
        Answer::pattern(1234).header("cache-control", "no-store"),
    );
    let mut client = bed.connect();
    for _ in 0..2 {
        let answer = client.request("HEAD", "/page", &[], b"");
        assert_eq!(answer.header("content-length"), Some("1234"));
        // If the HEAD response had a body, the client would read its bytes as the beginning of the next
        // response.
        assert_eq!(client.get("/page", &[]).body.len(), 1234);
    }
}

#[test]
fn a_response_that_is_not_stored_keeps_its_fields_and_gets_the_fields_of_the_edge() {
    let bed = TestBed::start();
    bed.origin.on(
        "/cart",
        Answer::garbage(
            "HTTP/1.1 404 Gone Fishing\r\nContent-Length: 2\r\nCache-Control: no-store\r\nSet-Cookie: a=1\r\n\
             Connection: keep-alive\r\nX-Mixed: Case  \r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nok",
        ),
    );
    let answer = bed.get("/cart");
    assert_eq!((answer.status, answer.text()), (404, "ok"));
    for (name, value) in [
        ("content-length", "2"),
        ("cache-control", "no-store"),
        ("set-cookie", "a=1"),
        ("x-mixed", "Case"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert_eq!(answer.header("connection"), None);
    let cache_status = answer
        .header("cache-status")
        .expect("the response has Cache-Status");
    assert!(
        cache_status.contains("; fwd=uri-miss; fwd-status=404; detail=no-store"),
        "{cache_status}"
    );
}

#[test]
fn every_response_has_a_date() {
    let bed = TestBed::start();
    bed.origin.on(
        "/undated",
        Answer::garbage(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: no-store\r\n\r\nok",
        ),
    );
    let date = bed.get("/undated");
    let date = date.header("date").expect("the response has a date");
    assert!(date.ends_with(" GMT"), "{date}");
}

#[test]
fn a_client_that_disconnects_leaves_no_connection_open() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.on(
        "/slow",
        Answer::ok("late")
            .header("cache-control", "no-store")
            .wait_before_head(&gate),
    );
    let mut client = bed.connect();
    client.send_head("GET", "/slow", &[]);
    gate.wait_reached(1);
    drop(client);
    // Before the edge writes, it cannot distinguish a client that disconnected from a client that has only shut
    // down its writing side.
    gate.open();
    bed.wait_until("the connection closes", |status| {
        // This number does not include connections to the admin listener.
        status["connections"]["clients"] == 0
    });
}

#[test]
fn hits_and_misses_of_plain_requests_are_logged() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let path = folder.path().join("access.log");
    let bed = TestBed::with_config(|config| {
        let destination = LogDestination::File(path.clone());
        config.access_log = Some(AccessLogConfig::new(destination, LogFormat::Json));
    });
    bed.origin.on(
        "/kept",
        Answer::ok("ours").header("cache-control", "max-age=60"),
    );
    let mut client = bed.connect();
    client.get("/kept", &[]);
    client.get("/kept", &[]);
    drop(client);
    bed.edge.shutdown(TIMEOUT);
    let log = std::fs::read_to_string(&path).expect("the log can be read");
    assert_eq!(log.lines().count(), 2, "{log}");
}
