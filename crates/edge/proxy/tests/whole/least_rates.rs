//! The minimum rates at which clients must send and read bodies, and the limits of the queue for origin
//! connections.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::support::{Client, TIMEOUT, TestBed};
use bytes::Bytes;
use edgeward_proxy::EdgeConfig;
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// The setting `rate_window`: a client may pause for this time before its rate is too low.
const WINDOW: Duration = Duration::from_millis(800);

fn start_edge(change: impl FnOnce(&mut EdgeConfig)) -> TestBed {
    TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN;
        config.limits.rate_window = WINDOW;
        change(config);
    })
}

fn no_store(answer: Answer) -> Answer {
    answer.header("cache-control", "no-store")
}

/// Sends `bytes` again and again, at intervals of `every`, until the edge answers. Returns the status
/// of the response, or 0 if the edge closes the connection without a response.
fn upload_slowly(client: &mut Client, every: Duration, bytes: &[u8]) -> u16 {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(answer) = client.head_within(every) {
            return answer.status;
        }
        if !client.try_send(bytes) {
            return client.try_head().map_or(0, |answer| answer.status);
        }
    }
    panic!("the edge did not end the upload");
}

#[test]
fn an_upload_below_the_minimum_rate_gets_a_408() {
    let bed = start_edge(|_| {});
    bed.origin.on("/up", no_store(Answer::ok("x")));
    // One byte per 0.1 s is below the default minimum of 256 bytes per second.
    let step = WINDOW / 8;
    // The upload buffer has 64 KiB. The origin gets a request when its body is complete or the buffer is full.
    let mut client = bed.connect();
    client.send_head("POST", "/up", &[("content-length", "1000")]);
    assert_eq!(
        upload_slowly(&mut client, step, b"x"),
        408,
        "a buffered upload"
    );
    assert_eq!(bed.origin.requests("/up"), 0);
    let mut client = bed.connect();
    client.send_head("POST", "/up", &[("content-length", "1000000")]);
    client.send(vec![b'x'; 100_000]);
    assert_eq!(
        upload_slowly(&mut client, step, b"x"),
        408,
        "a streamed upload"
    );
    assert_eq!(
        bed.metric("edgeward_slow_clients_total{direction=\"upload\"}"),
        2.0
    );
    bed.origin
        .wait_until("the origin's connection closes", |origin| {
            origin.open_connections() == 0
        });
}

/// The client sends 24 kB in 2.4 s (three rate windows), which is far above the minimum of 10 bytes per second.
#[test]
fn a_slow_upload_above_the_minimum_rate_arrives() {
    let bed = start_edge(|config| config.limits.upload_rate_min = ByteSize(10));
    bed.origin.on("/up", no_store(Answer::ok("thanks")));
    let mut client = bed.connect();
    client.send_head("POST", "/up", &[("content-length", "24000")]);
    let began = Instant::now();
    for piece in 1..=24 {
        client.send([b'x'; 1000]);
        while began.elapsed() < WINDOW * 3 * piece / 24 {
            std::thread::yield_now();
        }
    }
    assert_eq!(client.answer("POST").text(), "thanks");
}

/// The edge reads no bytes from the client while the origin does not read. The edge must not close the
/// client's connection because of this pause.
#[test]
fn a_client_is_not_closed_because_its_origin_reads_slowly() {
    let bed = start_edge(|_| {});
    let gate = Gate::new();
    bed.origin
        .on("/up", no_store(Answer::ok("thanks")).read_body_after(&gate));
    let mut client = bed.connect();
    let length = 64 << 20;
    client.send_head("POST", "/up", &[("content-length", &length.to_string())]);
    let piece = vec![b'x'; 1 << 20];
    let sent = client.send_until_blocked(&piece, length);
    let blocked = Instant::now();
    while blocked.elapsed() < WINDOW * 2 {
        std::thread::yield_now();
    }
    gate.open();
    client.send_rest(&piece, length - sent);
    assert_eq!(client.answer("POST").text(), "thanks");
}

/// Each pause between events is longer than the rate window. These pauses do not count, because the edge then has
/// no bytes to send.
#[test]
fn a_stream_of_rare_events_is_not_ended() {
    let bed = start_edge(|_| {});
    let gates: Vec<Gate> = (0..3).map(|_| Gate::new()).collect();
    let mut events = no_store(Answer::pattern(30)).chunked(10);
    for (n, gate) in gates.iter().enumerate() {
        events = events.wait_at(10 * n as u64 + 5, gate);
    }
    bed.origin.on("/events", events);
    let mut client = bed.connect();
    client.send_head("GET", "/events", &[]);
    let mut got = client.head();
    for gate in &gates {
        let began = Instant::now();
        while began.elapsed() < WINDOW * 3 / 2 {
            std::thread::yield_now();
        }
        gate.open();
    }
    client.body("GET", &mut got);
    assert!(got.complete);
    assert_eq!(got.body.len(), 30);
    assert_eq!(
        bed.metric("edgeward_slow_clients_total{direction=\"response\"}"),
        0.0
    );
}

/// The client reads all the time, so the idle timeout does not apply. Its rate is below the minimum.
#[test]
fn a_client_that_reads_its_response_too_slowly_is_closed() {
    let bed = start_edge(|config| {
        config.limits.body_idle_timeout = WINDOW;
        config.limits.response_rate_min = ByteSize::gib(16);
    });
    bed.origin.on("/big", no_store(Answer::pattern(4 << 30)));
    let mut client = bed.connect();
    client.send_head("GET", "/big", &[]);
    assert_eq!(client.head().status, 200);
    let deadline = Instant::now() + TIMEOUT;
    while client.read_up_to(1 << 20).len() == 1 << 20 {
        let read = Instant::now();
        assert!(read < deadline, "the response was not ended");
        while read.elapsed() < WINDOW / 40 {
            std::thread::yield_now();
        }
    }
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"slow-response\"}"),
        1.0
    );
    assert_eq!(
        bed.metric("edgeward_slow_clients_total{direction=\"response\"}"),
        1.0
    );
}

/// The response to a client that reads no bytes uses an origin connection. If other requests wait for an origin
/// connection, the edge therefore closes the connection of this client without waiting for `body_idle_timeout`.
#[test]
fn a_client_that_reads_nothing_is_closed_when_others_wait() {
    let bed = start_edge(|config| {
        config.origins[0].connections_per_worker_max = NonZeroUsize::MIN;
        config.origins[0].queue_timeout = TIMEOUT / 2;
    });
    bed.origin.on("/big", no_store(Answer::pattern(64 << 20)));
    bed.origin.on("/page", no_store(Answer::ok("x")));
    let mut stalled = bed.connect();
    stalled.send_head("GET", "/big", &[]);
    assert_eq!(stalled.head().status, 200);
    assert_eq!(bed.get("/page").status, 200);
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"slow-response\"}"),
        1.0
    );
    assert_eq!(
        bed.metric("edgeward_slow_clients_total{direction=\"response\"}"),
        1.0
    );
}

/// The edge resets only the stream that the client does not read. It continues to serve the other streams of
/// the connection.
#[test]
fn a_stream_that_its_client_does_not_read_is_reset_alone() {
    let bed = start_edge(|_| {});
    bed.origin.on("/big", no_store(Answer::pattern(64 << 20)));
    bed.origin.on("/page", no_store(Answer::ok("x")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime can be built");
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(bed.addr()).await;
        let stream = TokioIo::new(stream.expect("the edge listens"));
        let builder = http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder
            .handshake::<_, Empty<Bytes>>(stream)
            .await
            .expect("the HTTP/2 handshake succeeds");
        tokio::spawn(connection);
        let get = |path: &str| {
            let uri = format!("http://test.example{path}");
            Request::get(uri)
                .body(Empty::new())
                .expect("the request is valid")
        };
        let mut stalled = sender
            .send_request(get("/big"))
            .await
            .expect("a response arrives");
        // Small responses keep the connection active.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let page = sender
                .send_request(get("/page"))
                .await
                .expect("a response arrives");
            let body = page.into_body().collect().await.expect("the body arrives");
            assert_eq!(body.to_bytes(), "x");
            let ended = bed.metric("edgeward_slow_clients_total{direction=\"response\"}");
            if ended == 1.0 {
                break;
            }
            assert!(Instant::now() < deadline, "the stream was not reset");
        }
        let ended = stalled.body_mut().collect().await;
        assert!(
            ended.is_err(),
            "a body that was cut must not end as a complete one"
        );
        let page = sender
            .send_request(get("/page"))
            .await
            .expect("a response arrives");
        assert_eq!(page.status(), 200);
    });
    assert_eq!(
        bed.metric("edgeward_client_connections_closed_total{cause=\"slow-response\"}"),
        0.0
    );
}

#[test]
fn a_request_that_finds_the_queue_full_or_waits_too_long_gets_a_503() {
    for (queue_max, end) in [(0, "queue-full"), (8, "timeout")] {
        let bed = start_edge(|config| {
            config.origins[0].connections_per_worker_max = NonZeroUsize::MIN;
            config.origins[0].queue_max = queue_max;
            config.origins[0].queue_timeout = Duration::from_millis(1100);
            // Waits for another origin do not matter to this client.
            let mut other = config.origins[0].clone();
            other.queue_timeout = Duration::from_secs(60);
            config.origins.push(other);
        });
        let gate = Gate::new();
        bed.origin
            .on("/slow", no_store(Answer::ok("x")).wait_before_head(&gate));
        let mut first = bed.connect();
        first.send_head("GET", "/slow", &[]);
        gate.wait_reached(1);
        let refused = bed.get("/other");
        assert_eq!(refused.status, 503, "{end}");
        // The queue timeout of 1.1 s, rounded up to whole seconds.
        assert_eq!(refused.header("retry-after"), Some("2"));
        let ended = format!("edgeward_origin_waits_total{{end=\"{end}\"}}");
        assert_eq!(bed.metric(&ended), 1.0);
        assert_eq!(bed.metric("edgeward_origin_waiting"), 0.0);
        gate.open();
        assert_eq!(first.answer("GET").text(), "x");
    }
}

#[test]
fn uploads_are_streamed_if_no_buffer_memory_is_available() {
    let bed = start_edge(|config| config.limits.upload_buffers_bytes_max = ByteSize(0));
    bed.origin.on("/up", no_store(Answer::ok("thanks")));
    let mut client = bed.connect();
    client.send_head("POST", "/up", &[("content-length", "10")]);
    client.send(b"hello");
    bed.origin
        .wait_until("the origin gets the request", |origin| {
            origin.open_connections() == 1
        });
    client.send(b"world");
    assert_eq!(client.answer("POST").text(), "thanks");
    assert_eq!(
        bed.origin
            .last("/up")
            .expect("the origin got a request")
            .body(),
        b"helloworld"
    );
}
