//! The ends of connections: shutdown, reload, idle clients.

use std::net::UdpSocket;
use std::time::Duration;

use edgeward_h3::{FrameEvent, FrameType};
use edgeward_testkit::client::until;
use edgeward_testkit::{Answer, Gate};

use crate::Http3Bed;
use crate::support::{TIMEOUT, TestBed, pattern, run};

/// The first GOAWAY rejects no request, the second one says which were served. The download under way is completed, and
/// the connection then closes.
#[test]
fn a_shutdown_completes_the_requests_under_way() {
    let http3 = Http3Bed::start();
    let gate = Gate::new();
    http3
        .bed
        .origin
        .on("/page", Answer::pattern(1_000_000).wait_at(500_000, &gate));
    run(async {
        let mut client = http3.connect().await;
        let mut stream = client.send("GET", "/page", &[]).await;
        gate.reached_by(1).await;
        let TestBed { edge, origin } = http3.bed;
        let stopping = std::thread::spawn(move || edge.shutdown(TIMEOUT));
        assert_eq!(client.edge_control.goaway().await, (1 << 62) - 4);
        assert_eq!(client.edge_control.goaway().await, 4);
        let mut late = client.open().await;
        late.write(&crate::client::head("GET", "/late", &[])).await;
        assert_eq!(late.read_all().await, Err(0x10b)); // H3_REQUEST_REJECTED
        gate.open();
        let answer = stream.read_all().await.expect("the response is complete");
        assert!(answer.body == pattern(0..1_000_000));
        assert_eq!(client.close_code().await, 0x100); // H3_NO_ERROR
        stopping.join().expect("the edge stops");
        assert_eq!(origin.requests("/late"), 0);
    });
}

#[test]
fn a_shutdown_closes_connections_at_the_drain_timeout() {
    let http3 = Http3Bed::start();
    let gate = Gate::new();
    http3
        .bed
        .origin
        .on("/page", Answer::ok("hello").wait_before_head(&gate));
    run(async {
        let client = http3.connect().await;
        let _stream = client.send("GET", "/page", &[]).await;
        gate.reached_by(1).await;
        let edge = http3.bed.edge;
        let stopping = std::thread::spawn(move || edge.shutdown(Duration::ZERO));
        assert_eq!(client.close_code().await, 0x100);
        stopping.join().expect("the edge stops");
    });
    gate.open();
}

#[test]
fn a_reload_keeps_connections_and_their_requests() {
    let http3 = Http3Bed::start();
    let gate = Gate::new();
    http3
        .bed
        .origin
        .on("/slow", Answer::ok("slow").wait_before_head(&gate));
    http3.bed.origin.on("/page", Answer::ok("hello"));
    run(async {
        let client = http3.connect().await;
        let slow = client.send("GET", "/slow", &[]).await;
        gate.reached_by(1).await;
        let reloader = http3.bed.edge.reloader();
        let mut config = reloader.config();
        config.limits.request_body_bytes_max = Some(edgeward_types::ByteSize(1));
        reloader
            .reload(&config)
            .expect("the configuration is valid");
        assert_eq!(client.get("/page").await.body, b"hello");
        gate.open();
        assert_eq!(slow.answer().await.body, b"slow");
        // New settings apply to requests of old connections.
        let fields = [("content-length", "2")];
        assert_eq!(
            client.send_content("/page", &fields, b"ab").await.status,
            413
        );
    });
}

#[test]
fn a_reload_that_switches_http3_off_drains_its_connections() {
    let http3 = Http3Bed::start();
    http3.bed.origin.on("/page", Answer::ok("hello"));
    run(async {
        let mut client = http3.connect().await;
        let reloader = http3.bed.edge.reloader();
        let mut config = reloader.config();
        config.listeners[0].http3 = false;
        reloader
            .reload(&config)
            .expect("the configuration is valid");
        client.edge_control.goaway().await;
        assert_eq!(client.close_code().await, 0x100);
        client.endpoint.wait_idle().await;
        http3
            .bed
            .wait_for_metric("edgeward_client_connections", 0.0);
    });
    let addr = http3.bed.addr();
    until("the port is free", || UdpSocket::bind(addr).ok());
}

#[test]
fn an_idle_connection_is_closed() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.idle_timeout = Duration::from_secs(2);
    });
    run(async {
        let mut client = http3.connect().await;
        assert_eq!(client.edge_control.goaway().await, 0);
        assert_eq!(client.close_code().await, 0x100);
    });
    let closed = "edgeward_client_connections_closed_total{cause=\"idle\"}";
    http3.bed.wait_for_metric(closed, 1.0);
}

/// Method: an idle connection that begins later reaches the timeout first. It gets no frames but SETTINGS and GOAWAY.
#[test]
fn a_request_that_waits_for_the_origin_outlives_the_idle_timeout() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.idle_timeout = Duration::from_secs(3);
    });
    let gate = Gate::new();
    let slow = Answer::ok("slow").wait_before_head(&gate);
    http3.bed.origin.on("/slow", slow);
    run(async {
        let client = http3.connect().await;
        let slow = client.send("GET", "/slow", &[]).await;
        gate.reached_by(1).await;
        let mut idle = http3.connect().await;
        for expected in [FrameType::SETTINGS, FrameType::GOAWAY] {
            let event = idle.edge_control.next().await;
            let Ok(Some(FrameEvent::Frame(frame_type, _))) = event else {
                panic!("{event:?}, not {expected:?}");
            };
            assert_eq!(frame_type, expected);
        }
        assert_eq!(idle.close_code().await, 0x100);
        gate.open();
        assert_eq!(slow.answer().await.body, b"slow");
    });
}

/// The timeout of the client would else end the connection. The frame has a type that every client ignores.
#[test]
fn a_connection_with_a_request_is_kept_open_by_frames() {
    let http3 = Http3Bed::with_config(|config| {
        config.limits.idle_timeout = Duration::from_secs(3);
    });
    let gate = Gate::new();
    let slow = Answer::ok("slow").wait_before_head(&gate);
    http3.bed.origin.on("/slow", slow);
    run(async {
        let mut client = http3.connect().await;
        let slow = client.send("GET", "/slow", &[]).await;
        while !matches!(
            client.edge_control.next().await,
            Ok(Some(FrameEvent::Skipped(FrameType(0x21))))
        ) {}
        gate.open();
        assert_eq!(slow.answer().await.body, b"slow");
    });
}
