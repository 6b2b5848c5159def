//! Limits of request bodies that rules state, over HTTP/1.1 and HTTP/2.

use bytes::Bytes;
use edgeward_proxy::EdgeConfig;
use edgeward_sites::{Condition, PathPattern, Rule, Settings};
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;
use http::Request;
use http_body::Frame;
use http_body_util::BodyExt as _;

use super::{FrameBody, connect, frames};
use crate::codecs::{H2Request, send_h2};
use crate::one_site::set_site;
use crate::support::{TestBed, run};

/// Returns a rule with a limit of request bodies.
fn limit(glob: &str, max: Option<u64>) -> Rule {
    Rule {
        condition: Condition {
            paths: vec![PathPattern::glob(glob).expect("a glob")],
            ..Condition::default()
        },
        settings: Settings {
            request_body_max: max.map(ByteSize).into(),
            ..Settings::default()
        },
        line: 7,
    }
}

/// All bodies may have 1000 bytes, those of `/small` 100, those of `/large` 5000, and those of `/any` any number. A
/// request takes a connection to the origin when 50 bytes of its body have arrived.
fn config(config: &mut EdgeConfig) {
    config.limits.request_body_bytes_max = Some(ByteSize(1000));
    config.limits.upload_buffer_bytes = ByteSize(50);
    let rules = vec![
        limit("/small", Some(100)),
        limit("/large", Some(5000)),
        limit("/any", None),
    ];
    set_site(config, Settings::default(), rules);
}

fn too_large(bed: &TestBed, refused: &str) -> f64 {
    let name = "edgeward_request_bodies_too_large_total";
    bed.metric(&format!("{name}{{refused=\"{refused}\"}}"))
}

/// Both sides of each limit. A rule may also allow more than `limits.request_body_bytes_max`.
#[test]
fn a_body_declared_longer_than_the_limit_of_its_rule_gets_413_and_the_origin_is_not_asked() {
    let bed = TestBed::with_config(config);
    bed.origin.otherwise(|_| Answer::ok("x"));
    let mut refused = 0.0;
    for (path, length, status) in [
        ("/small", 100, 200),
        ("/small", 101, 413),
        ("/other", 1000, 200),
        ("/other", 1001, 413),
        ("/large", 5000, 200),
        ("/large", 5001, 413),
        ("/any", 100_000, 200),
    ] {
        let body = vec![b'a'; length];
        let before = bed.origin.requests_total();
        let fields = [("content-length", &*length.to_string())];
        let h1 = bed.connect().request("POST", path, &fields, &body);
        let h2 = send_h2(
            bed.addr(),
            &H2Request {
                method: "POST",
                authority: Some("test.example"),
                path,
                body: &body,
                ..H2Request::default()
            },
        );
        let h2 = h2.expect("the stream is answered");
        assert_eq!((h1.status, h2.status), (status, status), "{path} {length}");
        let asked = bed.origin.requests_total() - before;
        assert_eq!(asked, if status == 200 { 2 } else { 0 }, "{path} {length}");
        if status == 413 {
            refused += 2.0;
            for answer in [h1, h2] {
                assert_eq!(answer.cache_status(), "edgeward; detail=content-too-large");
            }
        }
        assert_eq!(too_large(&bed, "declared"), refused);
    }
    assert_eq!(too_large(&bed, "streamed"), 0.0);
}

/// A client that expects `100 Continue` gets 413 in its place, so that it need not send the body.
#[test]
fn an_expected_body_beyond_the_limit_gets_413_before_it_is_sent() {
    let bed = TestBed::with_config(config);
    let mut client = bed.connect();
    let fields = [("content-length", "101"), ("expect", "100-continue")];
    client.send_head("PUT", "/small", &fields);
    assert_eq!(client.head().status, 413);
    assert_eq!(bed.origin.requests_total(), 0);
}

/// Method: the first bytes of a chunked body reach the origin. Then the body exceeds its limit.
#[test]
fn a_streamed_body_that_exceeds_the_limit_gets_413_and_the_origin_connection_is_closed() {
    let bed = TestBed::with_config(config);
    bed.origin.on("/small", Answer::ok("x"));
    let mut client = bed.connect();
    client.send_head("POST", "/small", &[("transfer-encoding", "chunked")]);
    client.send(format!("50\r\n{}\r\n", "a".repeat(80)).as_bytes());
    bed.origin
        .wait_until("the origin gets the request", |origin| {
            origin.requests_total() == 1
        });
    client.send(format!("15\r\n{}\r\n", "a".repeat(21)).as_bytes());
    let answer = client.answer("POST");
    assert_eq!(answer.status, 413);
    assert_eq!(
        answer.cache_status(),
        "edgeward; fwd=bypass; detail=http_request_too_large"
    );
    assert!(client.is_closed());
    let status = run(async {
        let mut sender = connect(bed.addr()).await;
        let (body, stream) = frames();
        let response = sender.send_request(post(stream));
        send(&body, 80).await;
        bed.origin
            .until("the origin gets the request", |o| o.requests_total() == 2)
            .await;
        send(&body, 21).await;
        response.await.expect("the stream is answered").status()
    });
    assert_eq!(status, 413);
    expect_closed_origin(&bed);
    assert_eq!(too_large(&bed, "streamed"), 2.0);
    assert_eq!(too_large(&bed, "declared"), 0.0);
}

/// Method: the origin sends the start of its response, and waits. Then the body exceeds its limit.
#[test]
fn a_streamed_body_that_exceeds_the_limit_after_the_response_began_ends_the_response() {
    let bed = TestBed::with_config(config);
    let early = Answer::pattern(1000).before_reading_body().hang_at(100);
    bed.origin.on("/small", early);
    let mut client = bed.connect();
    client.send_head("POST", "/small", &[("transfer-encoding", "chunked")]);
    client.send(format!("50\r\n{}\r\n", "a".repeat(80)).as_bytes());
    let mut answer = client.head();
    assert_eq!(answer.status, 200);
    client.send(format!("15\r\n{}\r\n", "a".repeat(21)).as_bytes());
    client.body("POST", &mut answer);
    assert!(!answer.complete && answer.body.len() <= 100, "{answer:?}");
    run(async {
        let mut sender = connect(bed.addr()).await;
        let (body, stream) = frames();
        let response = sender.send_request(post(stream));
        send(&body, 80).await;
        let response = response.await.expect("the stream is answered");
        assert_eq!(response.status(), 200);
        send(&body, 21).await;
        let rest = response.into_body().collect().await;
        rest.expect_err("the stream is reset");
    });
    expect_closed_origin(&bed);
    assert_eq!(too_large(&bed, "streamed"), 2.0);
}

/// Method: a body that may have any size is 2000 bytes long, twice the limit of other paths.
#[test]
fn a_streamed_body_without_a_limit_arrives_completely() {
    let bed = TestBed::with_config(config);
    let gate = Gate::new();
    bed.origin
        .on("/any", Answer::ok("x").read_body_after(&gate));
    let mut client = bed.connect();
    client.send_head("POST", "/any", &[("transfer-encoding", "chunked")]);
    client.send(format!("7d0\r\n{}\r\n0\r\n\r\n", "a".repeat(2000)).as_bytes());
    gate.open();
    assert_eq!(client.answer("POST").status, 200);
    let got = bed.origin.last("/any").expect("the origin got a request");
    assert_eq!(got.body_len(), 2000);
}

fn post(body: FrameBody) -> Request<FrameBody> {
    let request = Request::post("http://test.example/small").body(body);
    request.expect("the request is valid")
}

async fn send(body: &tokio::sync::mpsc::Sender<Frame<Bytes>>, bytes: usize) {
    let frame = Frame::data(Bytes::from(vec![b'a'; bytes]));
    body.send(frame).await.expect("the stream is open");
}

/// The origin's requests are incomplete, and its connections are closed.
fn expect_closed_origin(bed: &TestBed) {
    bed.origin
        .wait_until("the connections are closed", |origin| {
            origin.open_connections() == 0
        });
    for request in bed.origin.recorded() {
        assert!(!request.is_complete(), "{request:?}");
        assert!(request.body_len() <= 100, "{request:?}");
    }
}
