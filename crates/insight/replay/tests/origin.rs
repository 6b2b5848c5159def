//! Tests of the synthetic origin over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use edgeward_replay::Pattern;
use edgeward_replay::origin::{OriginConfig, RunningOrigin, SyntheticOrigin};
use edgeward_testkit::client::exchange;

fn start(config: OriginConfig) -> RunningOrigin {
    SyntheticOrigin::start(config).expect("a loopback port is free")
}

/// Sends a request with `Connection: close` and returns the head and the body of the response.
fn ask(addr: SocketAddr, method: &str, target: &str, headers: &str) -> (String, Vec<u8>) {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: o\r\nConnection: close\r\n{headers}\r\n");
    let mut response = exchange(addr, request);
    let end = response
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("the response has a complete head");
    let body = response.split_off(end + 4);
    (
        String::from_utf8(response).expect("the head is ASCII"),
        body,
    )
}

fn get(addr: SocketAddr, target: &str, headers: &str) -> (String, Vec<u8>) {
    ask(addr, "GET", target, headers)
}

#[test]
fn an_object_has_the_requested_size_and_the_bytes_of_its_pattern() {
    let origin = start(OriginConfig::default());
    for size in [0, 1, 7, 8, 9, 1023, 131_071, 131_072, 131_073, 3_000_000] {
        let (head, body) = get(origin.addr(), &format!("/o/17?size={size}"), "");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("cache-control: max-age=86400\r\n"), "{head}");
        assert!(
            head.contains(&format!("content-length: {size}\r\n")),
            "{head}"
        );
        assert_eq!(body.len(), size);
        assert_eq!(Pattern::for_id("17").first_wrong(0, &body), None);
    }
    let counts = origin.stats().counts();
    assert_eq!(counts.requests, 10);
    assert_eq!(
        counts.body_bytes,
        1 + 7 + 8 + 9 + 1023 + 3 * 131_072 + 3_000_000
    );
}

#[test]
fn a_range_at_the_end_of_a_tebibyte_object_has_the_bytes_of_its_offset() {
    let origin = start(OriginConfig::default());
    let target = "/o/big?size=1099511627776";
    let range = "Range: bytes=1099511627003-\r\n";
    let (head, body) = get(origin.addr(), target, range);
    assert!(
        head.starts_with("HTTP/1.1 206 Partial Content\r\n"),
        "{head}"
    );
    assert!(
        head.contains("content-range: bytes 1099511627003-1099511627775/1099511627776\r\n"),
        "{head}"
    );
    assert_eq!(body.len(), 773);
    let pattern = Pattern::for_id("big");
    assert_eq!(pattern.first_wrong(1_099_511_627_003, &body), None);
    let (head, body) = get(origin.addr(), "/o/1?size=5", "Range: bytes=5-\r\n");
    assert!(head.starts_with("HTTP/1.1 416 "), "{head}");
    assert!(body.is_empty());
}

#[test]
fn the_response_to_head_has_a_length_and_no_body() {
    let origin = start(OriginConfig::default());
    let (head, body) = ask(origin.addr(), "HEAD", "/o/1?size=1099511627776", "");
    assert!(head.contains("content-length: 1099511627776\r\n"), "{head}");
    assert!(body.is_empty());
    assert_eq!(origin.stats().counts().body_bytes, 0);
}

#[test]
fn a_matching_entity_tag_is_answered_with_304() {
    let origin = start(OriginConfig {
        etag: true,
        ..OriginConfig::default()
    });
    let (head, _) = get(origin.addr(), "/o/1?size=100", "");
    let etag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .expect("the response has an entity tag");
    let condition = format!("If-None-Match: {etag}\r\n");
    let (head, body) = get(origin.addr(), "/o/1?size=100", &condition);
    assert!(head.starts_with("HTTP/1.1 304 Not Modified\r\n"), "{head}");
    assert!(head.contains(etag), "{head}");
    assert!(!head.contains("content-length"), "{head}");
    assert!(body.is_empty());
    let (head, _) = get(origin.addr(), "/o/2?size=100", &condition);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert_eq!(origin.stats().counts().not_modified, 1);
}

/// The head of a 200 has 104 bytes plus the digits of the size, see docs/how-to/replay.md. The test reads the head from
/// the socket, because hyper adds `date` and the framing headers.
#[test]
fn heads_on_a_socket_have_the_documented_length() {
    let origin = start(OriginConfig::default());
    for (size, digits) in [(5, 1), (50_000, 5)] {
        let mut stream = TcpStream::connect(origin.addr()).expect("the origin listens");
        write!(stream, "GET /o/1?size={size} HTTP/1.1\r\nHost: o\r\n\r\n")
            .expect("the request is sent");
        let mut response = vec![0; 104 + digits + size];
        stream
            .read_exact(&mut response)
            .expect("head and body are read");
        let body = &response[104 + digits..];
        assert!(response[..104 + digits].ends_with(b"\r\n\r\n"));
        assert_eq!(Pattern::for_id("1").first_wrong(0, body), None);
    }
}

#[test]
fn a_body_without_a_length_is_sent_in_chunks() {
    let origin = start(OriginConfig::default());
    let (head, body) = get(origin.addr(), "/o/1?size=5&chunked=1&cc=no-store", "");
    assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
    assert!(head.contains("cache-control: no-store\r\n"), "{head}");
    assert!(body.starts_with(b"5\r\n") && body.ends_with(b"\r\n0\r\n\r\n"));
}

#[test]
fn invalid_requests_are_rejected_with_a_hint() {
    let origin = start(OriginConfig {
        size_bytes_max: 1000,
        ..OriginConfig::default()
    });
    let (head, body) = get(origin.addr(), "/index.html", "");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    assert!(String::from_utf8_lossy(&body).contains("/o/<id>?size=<bytes>"));
    let (head, body) = get(origin.addr(), "/o/1?size=1001", "");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(String::from_utf8_lossy(&body).contains("0 to 1000"));
    let (head, _) = ask(origin.addr(), "BREW", "/o/1?size=1", "");
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    let (head, _) = ask(origin.addr(), "PUT", "/o/1?size=1", "Content-Length: 0\r\n");
    assert!(head.starts_with("HTTP/1.1 204 "), "{head}");
    // `refused` counts the 404 and the 400, but not the 405.
    assert_eq!(origin.stats().counts().refused, 2);
}

/// Two runs with the same seed fail the same requests of a sequence.
#[test]
fn the_seed_decides_which_requests_fail() {
    let failed = || -> Vec<bool> {
        let origin = start(OriginConfig {
            error_rate: 0.3,
            ..OriginConfig::default()
        });
        (0..40)
            .map(|_| {
                get(origin.addr(), "/o/1?size=1", "")
                    .0
                    .starts_with("HTTP/1.1 503")
            })
            .collect()
    };
    let first = failed();
    assert_eq!(first, failed());
    let count = first.iter().filter(|&&failed| failed).count();
    assert!((1..40).contains(&count), "{count}");
}

#[test]
fn a_response_is_delayed_by_the_configured_latency() {
    let origin = start(OriginConfig {
        latency: Duration::from_millis(30),
        ..OriginConfig::default()
    });
    let started = Instant::now();
    get(origin.addr(), "/o/1?size=1", "");
    assert!(started.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_response_is_delayed_by_the_delay_of_its_request() {
    let origin = start(OriginConfig::default());
    let target = "/o/1?size=4&delay=300";
    for (method, headers, status) in [
        ("GET", "", "200"),
        ("HEAD", "", "200"),
        ("POST", "Content-Length: 0\r\n", "204"),
    ] {
        let begun = Instant::now();
        let (head, _) = ask(origin.addr(), method, target, headers);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{method}: {head}"
        );
        assert!(begun.elapsed() >= Duration::from_millis(300), "{method}");
    }
}

/// The delay begins when the whole request body has arrived, as for an origin that needs the whole upload.
#[test]
fn an_upload_is_answered_after_its_whole_body_has_arrived() {
    let origin = start(OriginConfig::default());
    let mut upload = TcpStream::connect(origin.addr()).expect("the origin listens");
    let head = "POST /o/1?size=4&delay=1 HTTP/1.1\r\nHost: o\r\nContent-Length: 2\r\n\r\n";
    upload.write_all(head.as_bytes()).expect("the head is sent");
    upload.write_all(b"a").expect("half of the body is sent");
    // If the origin did not wait for the body, it would have responded before this request ends.
    let (other, _) = get(origin.addr(), "/o/2?size=4&delay=300", "");
    assert!(other.starts_with("HTTP/1.1 200 "), "{other}");
    upload
        .set_nonblocking(true)
        .expect("the socket changes its mode");
    let early = upload.read(&mut [0; 64]).map_err(|error| error.kind());
    assert_eq!(early.err(), Some(std::io::ErrorKind::WouldBlock));
    upload
        .set_nonblocking(false)
        .expect("the socket changes its mode");
    upload
        .write_all(b"b")
        .expect("the rest of the body is sent");
    let mut response = [0; 12];
    upload
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    upload
        .read_exact(&mut response)
        .expect("the response is read");
    assert_eq!(&response, b"HTTP/1.1 204");
}

#[test]
fn workers_share_one_port_but_a_second_origin_cannot_use_it() {
    let origin = start(OriginConfig {
        workers: NonZeroUsize::new(3).expect("the number is not zero"),
        ..OriginConfig::default()
    });
    for _ in 0..12 {
        let (head, _) = get(origin.addr(), "/o/1?size=1", "");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    }
    assert_eq!(origin.stats().counts().requests, 12);
    let second = SyntheticOrigin::start(OriginConfig {
        listen: origin.addr(),
        ..OriginConfig::default()
    });
    let error = second.expect_err("the port is taken").to_string();
    assert_eq!(error, format!("cannot listen on {}", origin.addr()));
    let addr = origin.addr();
    let stats = origin.stats();
    origin.shutdown();
    assert!(TcpStream::connect(addr).is_err());
    assert_eq!(stats.counts().open_connections, 0);
}

#[test]
fn connections_beyond_the_limit_wait() {
    let origin = start(OriginConfig {
        connections_max: NonZeroUsize::MIN,
        ..OriginConfig::default()
    });
    let mut first = TcpStream::connect(origin.addr()).expect("the origin listens");
    let request = b"GET /o/1?size=1 HTTP/1.1\r\nHost: o\r\n\r\n";
    first.write_all(request).expect("the request is sent");
    let mut answer = [0; 15];
    first.read_exact(&mut answer).expect("the response is read");
    let mut second = TcpStream::connect(origin.addr()).expect("the backlog accepts the connection");
    second.write_all(request).expect("the request is sent");
    second
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a timeout can be set");
    assert!(second.read_exact(&mut answer).is_err());
    drop(first);
    second
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout can be set");
    second
        .read_exact(&mut answer)
        .expect("the response is read");
    assert_eq!(origin.stats().counts().connections, 2);
}

#[test]
fn the_status_page_has_the_counters() {
    let origin = start(OriginConfig::default());
    get(origin.addr(), "/o/1?size=1000", "");
    let (_, body) = get(origin.addr(), "/status", "");
    let body = String::from_utf8(body).expect("the page is UTF-8");
    assert!(body.contains("\"body_bytes\":1000"), "{body}");
}
