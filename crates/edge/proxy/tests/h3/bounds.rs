//! The limits of connections and requests.

use std::future::Future as _;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use edgeward_h3::FrameType;
use edgeward_proxy::EdgeConfig;
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;

use crate::Http3Bed;
use crate::client::{connect_from, endpoint, endpoint_with, frame, head, open_uni};
use crate::support::run;

#[test]
fn a_client_opens_no_more_streams_than_the_limit() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.h2_streams_max = 2.try_into().expect("not zero");
    });
    let gate = Gate::new();
    http3.bed.origin.otherwise({
        let gate = gate.clone();
        move |_| Answer::ok("hello").wait_before_head(&gate)
    });
    run(async {
        let client = http3.connect().await;
        let first = client.send("GET", "/1", &[]).await;
        let second = client.send("GET", "/2", &[]).await;
        gate.reached_by(2).await;
        let mut third = pin!(client.open());
        let mut context = Context::from_waker(Waker::noop());
        assert!(third.as_mut().poll(&mut context).is_pending());
        gate.open();
        assert_eq!(first.answer().await.status, 200);
        assert_eq!(second.answer().await.status, 200);
        third.await;
    });
}

#[test]
fn a_head_above_the_limits_is_refused() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.head_bytes_max = ByteSize(4096);
        config.limits.headers_max = NonZeroUsize::new(10).expect("not zero");
    });
    let long = "a".repeat(4096);
    let fields = [("x", "1"); 11];
    run(async {
        let client = http3.connect().await;
        let answer = client.get_with("/", &[("x", &long)]).await;
        assert_eq!(answer.status, 431);
        assert_eq!(client.get_with("/", &fields).await.status, 431);
        assert_ne!(client.get_with("/", &fields[..10]).await.status, 431);
    });
    let refused = "edgeward_h3_requests_refused_total{bound=\"head\"}";
    assert_eq!(http3.bed.metric(refused), 2.0);
}

#[test]
fn the_heads_of_all_requests_share_a_budget() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.heads_bytes_max = ByteSize::kib(64);
    });
    let gate = Gate::new();
    http3.bed.origin.otherwise({
        let gate = gate.clone();
        move |_| Answer::ok("hello").wait_before_head(&gate)
    });
    let long = "a".repeat(40_000);
    run(async {
        let client = http3.connect().await;
        let first = client.send("GET", "/1", &[("x", &long)]).await;
        gate.reached_by(1).await;
        assert_eq!(client.get_with("/2", &[("x", &long)]).await.status, 503);
        gate.open();
        assert_eq!(first.answer().await.status, 200);
        assert_eq!(client.get_with("/3", &[("x", &long)]).await.status, 200);
    });
    let refused = "edgeward_h3_requests_refused_total{bound=\"head-memory\"}";
    assert_eq!(http3.bed.metric(refused), 1.0);
}

/// With one handshake for each worker, half of the limit is reached without any.
#[test]
fn under_load_a_client_proves_its_address() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.quic_handshakes_max = NonZeroUsize::new(2).expect("not zero");
    });
    http3.bed.origin.on("/page", Answer::ok("hello"));
    run(async {
        let client = http3.connect().await;
        assert_eq!(client.get("/page").await.body, b"hello");
    });
    let retries = "edgeward_quic_attempts_total{answer=\"retry\"}";
    // A client that waits for long sends its first datagram again.
    assert!(http3.bed.metric(retries) >= 1.0);
    assert_eq!(http3.bed.metric("edgeward_quic_handshakes"), 0.0);
}

/// The client sends first datagrams faster than handshakes end. Method: on a busy machine, one may end meanwhile.
#[test]
fn attempts_of_a_burst_are_counted() {
    let http3 = Http3Bed::with_config(|config| {
        // A worker accepts the first attempt only.
        config.limits.quic_handshakes_max = NonZeroUsize::new(4).expect("not zero");
    });
    run(async {
        let endpoint = endpoint(&http3.identity);
        let connect = |_| endpoint.connect(http3.bed.addr(), "localhost");
        let attempts: Vec<_> = (0..10).map(connect).collect();
        for attempt in attempts {
            // A client whose proof arrives above the limit is refused.
            _ = attempt.expect("the settings are valid").await;
        }
    });
    let retries = "edgeward_quic_attempts_total{answer=\"retry\"}";
    let count = http3.bed.metric(retries);
    assert!(count >= 5.0, "{count}");
}

#[test]
fn a_client_that_cancels_too_many_requests_is_disconnected() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.h2_resets_max = 10.try_into().expect("not zero");
    });
    run(async {
        let client = http3.connect().await;
        for _ in 0..10 {
            client.open_and_cancel().await;
        }
        http3.bed.origin.on("/page", Answer::ok("hello"));
        assert_eq!(client.get("/page").await.status, 200);
        client.open_and_cancel().await;
        assert_eq!(client.close_code().await, 0x107); // H3_EXCESSIVE_LOAD
    });
    assert_eq!(http3.bed.metric(CLOSED_FLOODS), 1.0);
}

/// The body is one piece, which waits in the transport and in no queue of the edge.
#[test]
fn a_hit_whose_client_accepts_no_bytes_is_reset() {
    let slow = "edgeward_slow_clients_total{direction=\"response\"}";
    let by_time = |config: &mut EdgeConfig| {
        config.limits.response_rate_min = ByteSize(0);
        config.limits.body_idle_timeout = Duration::from_secs(2);
    };
    let by_rate = |config: &mut EdgeConfig| config.limits.rate_window = Duration::from_secs(2);
    for change in [by_time as fn(&mut EdgeConfig), by_rate] {
        let http3 = Http3Bed::with_config(change);
        let page = Answer::pattern(300_000).header("cache-control", "max-age=60");
        http3.bed.origin.on("/page", page);
        run(async {
            assert!(!http3.connect().await.get("/page").await.is_hit());
            let narrow = endpoint_with(&http3.identity, |transport| {
                transport
                    .stream_receive_window(1000_u32.into())
                    .keep_alive_interval(Some(Duration::from_secs(1)));
            });
            let client = connect_from(narrow, http3.bed.addr()).await;
            let mut stream = client.send("GET", "/page", &[]).await;
            let reset = stream.frames.stream.received_reset().await;
            assert!(reset.expect("the connection is open").is_some());
        });
        assert_eq!(http3.bed.metric(slow), 1.0);
        assert_eq!(http3.bed.origin.requests("/page"), 1);
    }
}

/// The timeout of a stream ends that stream. The sweep would close the connection, and with it the other requests.
///
/// Method: a reload shortens the timeout, so that only the sweep applies the new one to the wait under way. The sweep
/// has passed when it has closed an idle connection.
#[test]
fn a_response_that_waits_for_its_client_does_not_end_its_connection() {
    let http3 = Http3Bed::with_config(|config| config.limits.response_rate_min = ByteSize(0));
    // A body of several pieces.
    let page = Answer::pattern(300_000).header("cache-control", "max-age=60");
    http3.bed.origin.on("/page", page);
    http3.bed.origin.on("/small", Answer::ok("hello"));
    run(async {
        assert!(!http3.connect().await.get("/page").await.is_hit());
        let narrow = endpoint_with(&http3.identity, |transport| {
            transport
                .stream_receive_window(1000_u32.into())
                .keep_alive_interval(Some(Duration::from_secs(1)));
        });
        let client = connect_from(narrow, http3.bed.addr()).await;
        let mut stream = client.send("GET", "/page", &[]).await;
        stream.frames.next().await.expect("the response begins");
        // The edge has used the credit of the stream before it gets this request.
        assert_eq!(client.get("/small").await.body, b"hello");
        let reloader = http3.bed.edge.reloader();
        let mut config = reloader.config();
        config.limits.body_idle_timeout = Duration::from_secs(1);
        config.limits.idle_timeout = Duration::from_secs(2);
        reloader
            .reload(&config)
            .expect("the configuration is valid");
        assert_eq!(http3.connect().await.close_code().await, 0x100);
        assert_eq!(client.get("/small").await.body, b"hello");
    });
}

/// A client may reset the direction that it sends in alone.
#[test]
fn a_client_that_resets_too_many_uploads_is_disconnected() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.h2_resets_max = 10.try_into().expect("not zero");
    });
    run(async {
        let client = http3.connect().await;
        let begin_and_reset = async || {
            let mut stream = client.open().await;
            let head = head("POST", "/form", &[("content-length", "10")]);
            stream.write(&head).await;
            // The edge has read the head when it answers a later request.
            assert_eq!(client.get("/page").await.status, 200);
            stream.reset();
            stream
        };
        http3.bed.origin.on("/page", Answer::ok("hello"));
        for _ in 0..10 {
            let mut stream = begin_and_reset().await;
            assert_eq!(stream.read_all().await, Err(0x10c)); // H3_REQUEST_CANCELLED
        }
        let _last = begin_and_reset().await;
        assert_eq!(client.close_code().await, 0x107); // H3_EXCESSIVE_LOAD
    });
}

#[test]
fn a_head_that_never_ends_is_answered_with_408() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.request_head_timeout = Duration::from_secs(1);
    });
    run(async {
        let client = http3.connect().await;
        let mut stream = client.open().await;
        let head = head("GET", "/", &[]);
        stream.write(&head[..head.len() - 1]).await;
        assert_eq!(stream.answer().await.status, 408);
    });
}

/// Each stream of an unknown type is stopped, and the client may then open another one.
#[test]
fn a_client_that_opens_too_many_streams_of_an_unknown_type_is_disconnected() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.h2_control_frames_max = 10.try_into().expect("not zero");
    });
    run(async {
        let client = http3.connect().await;
        // The control stream and its SETTINGS count too.
        for _ in 0..8 {
            let unknown = open_uni(&client.quic, b"\x21").await;
            unknown.stopped().await.expect("the connection is open");
        }
        let _last = open_uni(&client.quic, b"\x21").await;
        assert_eq!(client.close_code().await, 0x107); // H3_EXCESSIVE_LOAD
    });
}

/// A client that makes the edge reset streams may do so as often as one that resets them.
#[test]
fn a_client_that_sends_too_many_malformed_requests_is_disconnected() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.h2_resets_max = 10.try_into().expect("not zero");
    });
    http3.bed.origin.otherwise(|_| Answer::never());
    run(async {
        let client = http3.connect().await;
        for nth in 0..11 {
            let mut stream = client.open().await;
            if nth % 2 == 0 {
                stream
                    .write(&head("GET", "/", &[("connection", "x")]))
                    .await;
            } else {
                stream
                    .write(&head("POST", "/", &[("content-length", "1")]))
                    .await;
                stream.write(&frame(FrameType::DATA, b"two")).await;
            }
            let code = stream
                .read_all()
                .await
                .expect_err("the request is malformed");
            assert!(matches!(code, 0x10e | 0x107), "{code:#x}");
        }
        assert_eq!(client.close_code().await, 0x107); // H3_EXCESSIVE_LOAD
    });
    assert_eq!(http3.bed.metric(CLOSED_FLOODS), 1.0);
}

const CLOSED_FLOODS: &str = "edgeward_client_connections_closed_total{cause=\"h3-flood\"}";
