//! RFC 9113 §8.1.1: a malformed message is an error of its stream. The other streams of the connection, which may be
//! those of other clients of a proxy, do not notice it.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::mpsc;

use edgeward_proxy::Edge;
use edgeward_proxy::config::OriginProtocol;
use edgeward_testkit::{Answer, Gate};

use super::frames::*;
use crate::support::{TIMEOUT, TestBed, config_for};

const PROTOCOL_ERROR: u32 = 1;

/// Blocks of GET requests that the crate h2 would answer with GOAWAY.
fn malformed_requests() -> Vec<Vec<u8>> {
    let with_field = |name, value| request("GET", "/x", &[(name, value)]);
    let mut blocks = vec![
        with_field("x", "a\x01b"),
        with_field("x", "a\0b"),
        with_field("x", "a\r\nb: c"),
        with_field("x", "a\x7f"),
        with_field("X-Upper", "a"),
        with_field("x y", "a"),
        with_field("", "a"),
        with_field("x\u{e9}", "a"),
        with_field(":x", "a"),
        with_field(":status", "2000"),
        request("G T", "/x", &[]),
        request("", "/x", &[]),
    ];
    // A path that is not UTF-8.
    let mut block = request("GET", "/?", &[]);
    let at = block
        .iter()
        .position(|&byte| byte == b'?')
        .expect("the path");
    block[at] = 0xff;
    blocks.push(block);
    blocks
}

#[test]
fn a_malformed_request_resets_its_own_stream_only() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin
        .on("/slow", Answer::ok("slow").wait_before_head(&gate));
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    client.get(1, "/slow", &[]);
    gate.wait_reached(1);
    let mut stream = 3;
    for block in malformed_requests() {
        // In one frame, and in two: the second one is CONTINUATION.
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &block));
        assert_eq!(client.reset_code(stream), PROTOCOL_ERROR, "{block:?}");
        let (first, second) = block.split_at(block.len() - 1);
        client.send(&frame(HEADERS, END_STREAM, stream + 2, first));
        client.send(&frame(CONTINUATION, END_HEADERS, stream + 2, second));
        assert_eq!(client.reset_code(stream + 2), PROTOCOL_ERROR, "{block:?}");
        stream += 4;
    }
    gate.open();
    assert_eq!(client.status(1), 200);
    assert_eq!(bed.origin.requests_total(), 1);
}

#[test]
fn a_malformed_request_does_not_change_the_fields_of_later_requests() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    let headers = |stream, block: &[u8]| frame(HEADERS, END_STREAM | END_HEADERS, stream, block);
    let mut block = request("GET", "/1", &[]);
    indexed_field(&mut block, "before", "1");
    indexed_field(&mut block, "Upper", "2");
    indexed_field(&mut block, "bad", "a\x01b");
    indexed_field(&mut block, "after", "3");
    client.send(&headers(1, &block));
    assert_eq!(client.reset_code(1), PROTOCOL_ERROR);
    // The fields that the malformed request has added, the newest first: after, bad, Upper, before.
    let mut block = request("GET", "/3", &[]);
    block.extend([LAST_INDEXED, LAST_INDEXED + 3]);
    client.send(&headers(3, &block));
    assert_eq!(client.status(3), 200);
    let forwarded = bed.origin.last("/3").expect("a request");
    assert_eq!(forwarded.header("after"), Some("3"));
    assert_eq!(forwarded.header("before"), Some("1"));
    for (stream, field) in [(5, LAST_INDEXED + 1), (7, LAST_INDEXED + 2)] {
        let mut block = request("GET", "/x", &[]);
        block.push(field);
        client.send(&headers(stream, &block));
        assert_eq!(client.reset_code(stream), PROTOCOL_ERROR);
    }
}

/// The block adds more to the table than fits, and its replacement has several frames, too.
#[test]
fn a_long_malformed_request_resets_its_own_stream_only() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    let mut block = request("GET", "/1", &[]);
    indexed_field(&mut block, "connection", "close");
    for nth in 0..200 {
        indexed_field(&mut block, &format!("a{nth}"), &"v".repeat(100));
    }
    indexed_field(&mut block, "bad", "a\x01b");
    let (first, second) = block.split_at(16_000);
    client.send(&frame(HEADERS, END_STREAM, 1, first));
    client.send(&frame(CONTINUATION, END_HEADERS, 1, second));
    assert_eq!(client.reset_code(1), PROTOCOL_ERROR);
    let mut block = request("GET", "/3", &[]);
    block.push(LAST_INDEXED + 1);
    client.send(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &block));
    assert_eq!(client.status(3), 200);
    let forwarded = bed.origin.last("/3").expect("a request");
    assert_eq!(forwarded.header("a199"), Some(&*"v".repeat(100)));
}

/// The crate h2 allows 1024 errors in the lifetime of a connection.
#[test]
fn a_connection_survives_thousands_of_malformed_requests() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    let block = request("GET", "/x", &[("x", "a\x01b")]);
    for stream in (1..6001).step_by(2) {
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &block));
        assert_eq!(client.reset_code(stream), PROTOCOL_ERROR);
    }
    client.get(6001, "/good", &[]);
    assert_eq!(client.status(6001), 200);
}

#[test]
fn malformed_trailers_reset_their_own_stream_only() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    let mut field = vec![0];
    for text in [&b"x"[..], b"a\x01b"] {
        field.push(u8::try_from(text.len()).expect("short"));
        field.extend_from_slice(text);
    }
    for (stream, trailers) in [(1, &field), (3, &field)] {
        let block = request("POST", "/x", &[]);
        client.send(&frame(HEADERS, END_HEADERS, stream, &block));
        client.send(&frame(DATA, 0, stream, b"data"));
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, trailers));
        assert_eq!(client.reset_code(stream), PROTOCOL_ERROR);
    }
    client.get(5, "/good", &[]);
    assert_eq!(client.status(5), 200);
}

/// The crate h2 closes a connection after 100 DATA frames without data.
#[test]
fn padding_alone_does_not_end_a_connection() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    let padding = [&[255u8][..], &[0; 255]].concat();
    for stream in [1, 3] {
        let block = request("POST", &format!("/{stream}"), &[("content-length", "5")]);
        client.send(&frame(HEADERS, END_HEADERS, stream, &block));
        for _ in 0..300 {
            client.send(&frame(DATA, PADDED, stream, &padding));
            client.send(&frame(DATA, 0, stream, &[]));
        }
        client.send(&frame(DATA, END_STREAM, stream, b"abcde"));
        assert_eq!(client.status(stream), 200);
        let forwarded = bed.origin.last(&format!("/{stream}")).expect("a request");
        assert_eq!(forwarded.body(), b"abcde");
    }
}

/// Method: an origin by HTTP/2 answers the second request of a connection with a malformed head, and then the first.
#[test]
fn a_malformed_response_fails_its_own_request_only() {
    let field = |name: &str, value: &str| {
        let mut block = vec![0x88]; // `:status: 200`
        indexed_field(&mut block, name, value);
        block
    };
    for malformed in [
        field("x", "a\x01b"),
        field("X-Upper", "a"),
        field("x y", "a"),
        field(":x", "a"),
        field("connection", "close"),
        vec![0x88, 0x88],
        vec![0x48, 4, b'2', b'0', b'0', b'0'], // `:status: 2000`
    ] {
        let (reached, first_reached) = mpsc::channel();
        let mut config = config_for(origin_with_a_malformed_response(malformed.clone(), reached));
        config.origins[0].protocol = OriginProtocol::Http2;
        config.workers = NonZeroUsize::MIN; // so that both requests use one connection
        let edge = Edge::start(config).expect("the edge starts on a free port");
        let mut client = H2Client::connect(edge.addrs()[0]);
        client.get(1, "/first", &[]);
        first_reached.recv_timeout(TIMEOUT).expect("a request");
        client.get(3, "/second", &[]);
        assert_eq!(client.status(3), 502, "{malformed:?}");
        assert_eq!(client.status(1), 200, "{malformed:?}");
        drop(client);
        edge.shutdown(TIMEOUT);
    }
}

/// Method: send paths with quotes and angle brackets as curl does, as a literal, and as Go does, in the dynamic table.
/// The table has its fields for later blocks, too.
#[test]
fn a_path_with_delimiters_is_encoded_and_stays_in_the_table() {
    let bed = TestBed::start();
    bed.origin
        .otherwise(|_| Answer::ok("x").header("cache-control", "max-age=60"));
    let mut client = H2Client::connect(bed.addr());
    let send = |client: &mut H2Client, stream, block: &[u8]| {
        client.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, block));
        assert_eq!(client.status(stream), 200);
    };
    let mut others = Vec::new();
    literal(&mut others, 0, ":method", "GET");
    literal(&mut others, 0, ":scheme", "http");
    let with_path = |pattern: u8, path: &str| {
        let mut block = others.clone();
        literal(&mut block, pattern, ":path", path);
        literal(&mut block, 0x40, ":authority", "test.example");
        block
    };
    send(&mut client, 1, &with_path(0x00, "/a?q={b=\"c\"}"));
    send(&mut client, 3, &with_path(0x40, "/<d>?e>1"));
    // The authority is the newest field of the table, the path is the next.
    send(
        &mut client,
        5,
        &[&others[..], &[LAST_INDEXED + 1, LAST_INDEXED]].concat(),
    );
    let targets = ["/a?q={b=%22c%22}", "/%3Cd%3E?e%3E1"];
    for target in targets {
        assert!(bed.get(target).is_hit(), "{target}");
    }
    let recorded = bed.origin.recorded();
    let forwarded: Vec<_> = recorded.iter().map(|request| request.target()).collect();
    assert_eq!(forwarded, targets);
    assert!(
        !format!("{recorded:?}").contains("edgeward-path"),
        "{recorded:?}"
    );
}

fn origin_with_a_malformed_response(block: Vec<u8>, reached: mpsc::Sender<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("the address is valid");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("the edge connects");
        let mut edge = H2Client::accept(stream);
        let mut first = None;
        while let Some(received) = edge.frame() {
            let answer =
                |stream, block: &[u8]| frame(HEADERS, END_STREAM | END_HEADERS, stream, block);
            match first {
                _ if received.kind != HEADERS => {}
                None => {
                    first = Some(received.stream);
                    reached.send(()).expect("the test waits");
                }
                Some(first) => {
                    edge.send(&answer(received.stream, &block));
                    edge.send(&answer(first, &[0x88]));
                }
            }
        }
    });
    addr
}
