//! Uploads over HTTP/2: their lengths, and the end of uploads that the edge refuses.

use std::num::NonZeroUsize;

use edgeward_testkit::Answer;
use edgeward_types::ByteSize;

use super::frames::*;
use crate::support::TestBed;

const PROTOCOL_ERROR: u32 = 1;
const NO_ERROR: u32 = 0;

/// An edge that refuses the body of a request with 413.
fn refusing_bed() -> TestBed {
    TestBed::with_config(|config| {
        config.limits.request_body_bytes_max = Some(ByteSize::kib(1));
        config.workers = NonZeroUsize::MIN;
    })
}

/// curl before version 8 reports a failure if RST_STREAM arrives before it has sent the whole body.
#[test]
fn a_refused_upload_is_read_to_its_end_without_a_reset() {
    let bed = refusing_bed();
    let mut client = H2Client::connect(bed.addr());
    let block = request("POST", "/x", &[("content-length", "60000")]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &block));
    assert_eq!(client.status(1), 413);
    let kinds = client.kinds_until_ping();
    assert!(!kinds.contains(&RST_STREAM), "{kinds:?}");
    for _ in 0..5 {
        client.send(&frame(DATA, 0, 1, &[b'x'; 10_000]));
    }
    client.send(&frame(DATA, END_STREAM, 1, &[b'x'; 10_000]));
    let kinds = client.kinds_until_ping();
    assert!(!kinds.contains(&RST_STREAM), "{kinds:?}");
}

/// The bound of time. The bound of bytes is 4 MiB.
#[test]
fn a_refused_upload_that_does_not_end_is_reset_with_no_error() {
    let bed = refusing_bed();
    let mut client = H2Client::connect(bed.addr());
    let block = request("POST", "/x", &[("content-length", "200000")]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &block));
    assert_eq!(client.status(1), 413);
    loop {
        let frame = client.frame().expect("a reset arrives");
        if frame.kind == RST_STREAM {
            assert_eq!(frame.payload, NO_ERROR.to_be_bytes());
            return;
        }
    }
}

/// Origins of CGI and WSGI cannot read a body of unknown length.
#[test]
fn an_upload_that_is_complete_in_the_buffer_has_a_length_at_the_origin() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    for (stream, body) in [(1, &b"hello"[..]), (3, b"")] {
        let path = format!("/{stream}");
        let block = request("POST", &path, &[]);
        client.send(&frame(HEADERS, END_HEADERS, stream, &block));
        client.send(&frame(DATA, END_STREAM, stream, body));
        assert_eq!(client.status(stream), 200);
        let forwarded = bed.origin.last(&path).expect("a request");
        let length = body.len().to_string();
        assert_eq!(forwarded.header("content-length"), Some(&*length));
        assert_eq!(forwarded.header("transfer-encoding"), None);
        assert_eq!(forwarded.body(), body);
    }
}

#[test]
fn equal_lengths_are_one_line_at_the_origin_and_different_ones_are_refused() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut client = H2Client::connect(bed.addr());
    let mut post = |stream, lengths: &[&str]| {
        let fields: Vec<_> = lengths
            .iter()
            .map(|length| ("content-length", *length))
            .collect();
        let block = request("POST", "/x", &fields);
        client.send(&frame(HEADERS, END_HEADERS, stream, &block));
        client.send(&frame(DATA, END_STREAM, stream, b"abc"));
        match lengths.contains(&"4") {
            true => assert_eq!(client.reset_code(stream), PROTOCOL_ERROR),
            false => assert_eq!(client.status(stream), 200),
        }
    };
    post(1, &["3", "3"]);
    post(3, &["003", "3", "3"]);
    post(5, &["3", "4"]);
    let requests = bed.origin.recorded();
    assert_eq!(requests.len(), 2);
    for request in requests {
        let lengths: Vec<_> = request.headers_named("content-length").collect();
        assert_eq!(lengths, ["3"]);
    }
}
