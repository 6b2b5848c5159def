//! Requests and responses.

use edgeward_h3::FrameType;
use edgeward_proxy::config::{AccessLogConfig, LogDestination, LogFormat};
use edgeward_testkit::{Answer, Gate};

use crate::Http3Bed;
use crate::client::{frame, head, headers};
use crate::support::{TIMEOUT, pattern, run};

#[test]
fn a_response_is_fetched_once_and_then_a_hit() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let log = folder.path().join("log");
    let http3 = Http3Bed::with_config(|config| {
        let format = LogFormat::Template("$ssl_curve".parse().expect("a variable"));
        let destination = LogDestination::File(log.clone());
        config.access_log = Some(AccessLogConfig::new(destination, format));
    });
    let page = Answer::pattern(300_000).header("cache-control", "max-age=60");
    http3.bed.origin.on("/page", page);
    run(async {
        let client = http3.connect().await;
        let first = client.get("/page").await;
        assert_eq!(first.status, 200);
        assert!(!first.is_hit(), "{first:?}");
        assert!(first.body == pattern(0..300_000));
        let second = client.get("/page").await;
        assert!(second.is_hit());
        assert!(second.body == pattern(0..300_000));
        assert_eq!(second.field("content-length"), Some("300000"));
        assert!(second.field("date").is_some() && second.field("age").is_some());
    });
    assert_eq!(http3.bed.origin.requests("/page"), 1);
    let accepted = "edgeward_client_connections_total{protocol=\"h3\"}";
    assert_eq!(http3.bed.metric(accepted), 1.0);
    let handshakes = "edgeward_client_tls_handshakes_total{key_exchange=\"X25519MLKEM768\"}";
    assert_eq!(http3.bed.metric(handshakes), 1.0);
    let status = &http3.bed.status()["http3"];
    assert_eq!(
        (&status["requests"]["h3"], &status["requests"]["h2"]),
        (&2.into(), &0.into())
    );
    assert_eq!(status["connections"]["h3"], 1);
    http3.bed.edge.shutdown(TIMEOUT);
    let log = std::fs::read_to_string(&log).expect("the log can be read");
    assert_eq!(log, "X25519MLKEM768\n".repeat(2));
}

#[test]
fn the_response_to_a_head_has_no_content() {
    let http3 = Http3Bed::start();
    let page = Answer::ok("hello").header("cache-control", "max-age=60");
    http3.bed.origin.on("/page", page);
    run(async {
        let client = http3.connect().await;
        client.get("/page").await;
        let answer = client.send("HEAD", "/page", &[]).await.answer().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-length"), Some("5"));
        assert_eq!(answer.body, b"");
    });
}

#[test]
fn ranges_and_validators_are_answered() {
    let http3 = Http3Bed::start();
    let page = Answer::pattern(1000)
        .header("cache-control", "max-age=60")
        .header("etag", "\"1\"");
    http3.bed.origin.on("/page", page);
    run(async {
        let client = http3.connect().await;
        client.get("/page").await;
        let part = client.get_with("/page", &[("range", "bytes=10-19")]).await;
        assert_eq!((part.status, part.body), (206, pattern(10..20)));
        let unchanged = client
            .get_with("/page", &[("if-none-match", "\"1\"")])
            .await;
        assert_eq!((unchanged.status, unchanged.body), (304, Vec::new()));
    });
}

/// The upload is larger than the first window, so the window has to move.
#[test]
fn an_upload_reaches_the_origin() {
    let http3 = Http3Bed::start();
    http3.bed.origin.on("/form", Answer::ok("thanks"));
    let content = pattern(0..3_000_000);
    run(async {
        let client = http3.connect().await;
        for length in [Some("3000000"), None] {
            let mut stream = client.open().await;
            let length: Vec<_> = length
                .map(|length| ("content-length", length))
                .into_iter()
                .collect();
            stream.write(&head("POST", "/form", &length)).await;
            for piece in content.chunks(100_000) {
                stream.write(&frame(FrameType::DATA, piece)).await;
            }
            stream.finish();
            let answer = stream.answer().await;
            assert_eq!((answer.status, answer.body), (200, b"thanks".to_vec()));
            let request = http3
                .bed
                .origin
                .last("/form")
                .expect("the origin got the upload");
            assert_eq!(request.body_len(), content.len() as u64);
            assert!(content.starts_with(request.body()));
        }
    });
}

#[test]
fn trailers_of_a_response_are_passed_on_and_a_request_may_have_them() {
    let http3 = Http3Bed::start();
    let answer = Answer::pattern(10).chunked(5).trailer("x-sum", "7");
    http3.bed.origin.on("/page", answer);
    run(async {
        let client = http3.connect().await;
        let answer = client.get_with("/page", &[("te", "trailers")]).await;
        assert_eq!(answer.body, pattern(0..10));
        assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())]);
        let mut stream = client.open().await;
        stream.write(&head("POST", "/page", &[])).await;
        stream.write(&frame(FrameType::DATA, b"content")).await;
        stream.write(&headers(&[("x-sum", "8")])).await;
        stream.finish();
        assert_eq!(stream.answer().await.status, 200);
    });
    let request = http3
        .bed
        .origin
        .last("/page")
        .expect("the origin got the upload");
    assert_eq!(request.body(), b"content");
}

#[test]
fn a_request_does_not_wait_for_another_one() {
    let http3 = Http3Bed::start();
    let gate = Gate::new();
    let slow = Answer::ok("slow").wait_before_head(&gate);
    http3.bed.origin.on("/slow", slow);
    http3.bed.origin.on("/fast", Answer::ok("fast"));
    run(async {
        let client = http3.connect().await;
        let slow = client.send("GET", "/slow", &[]).await;
        gate.reached_by(1).await;
        assert_eq!(client.get("/fast").await.body, b"fast");
        gate.open();
        assert_eq!(slow.answer().await.body, b"slow");
    });
}

/// The body is larger than all windows.
#[test]
fn a_large_body_arrives_complete() {
    let http3 = Http3Bed::start();
    let page = Answer::pattern(20_000_000).header("cache-control", "max-age=60");
    http3.bed.origin.on("/page", page);
    run(async {
        let client = http3.connect().await;
        for _ in 0..2 {
            let answer = client.get("/page").await;
            assert_eq!(answer.body.len(), 20_000_000);
            assert!(answer.body == pattern(0..20_000_000));
        }
    });
    assert_eq!(http3.bed.origin.requests("/page"), 1);
}

/// A client may end its stream in a datagram of its own. A GET is looked up nevertheless.
#[test]
fn the_end_of_a_get_may_arrive_late() {
    let http3 = Http3Bed::start();
    let page = Answer::ok("hello").header("cache-control", "max-age=60");
    http3.bed.origin.on("/page", page);
    run(async {
        let client = http3.connect().await;
        client.get("/page").await;
        let mut stream = client.open().await;
        stream.write(&head("GET", "/page", &[])).await;
        // The edge has read the head when it answers a later request.
        client.get("/page").await;
        stream.finish();
        assert!(stream.answer().await.is_hit());
    });
    assert_eq!(http3.bed.origin.requests("/page"), 1);
}

#[test]
fn a_cancelled_request_frees_its_stream() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.h2_streams_max = 3.try_into().expect("not zero");
    });
    let gate = Gate::new();
    http3
        .bed
        .origin
        .on("/slow", Answer::ok("slow").wait_before_head(&gate));
    http3.bed.origin.on("/page", Answer::ok("hello"));
    let large = Answer::pattern(50_000_000);
    http3.bed.origin.on("/large", large);
    run(async {
        let client = http3.connect().await;
        let stream = client.send("GET", "/slow", &[]).await;
        gate.reached_by(1).await;
        stream.cancel();
        // A response that is under way can be cancelled too.
        for _ in 0..3 {
            let mut stream = client.send("GET", "/large", &[]).await;
            stream.frames.next().await.expect("the response begins");
            stream.cancel();
        }
        assert_eq!(client.get("/page").await.body, b"hello");
    });
    gate.open();
    http3
        .bed
        .wait_for_metric("edgeward_responses_aborted_total{by=\"client\"}", 3.0);
}
