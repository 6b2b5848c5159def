//! Errors of clients.

use std::time::Duration;

use edgeward_h3::FrameType;
use edgeward_proxy::config::ListenerConfig;
use edgeward_proxy::{Edge, StartError};

use crate::Http3Bed;
use crate::client::{close_code, connect_quic, endpoint_with, frame, head, headers, open_uni};
use crate::identity::SelfSigned;
use crate::support::{config_for, run};

/// Bytes of a request stream, and the code with which the edge closes the connection (RFC 9114 §8.1, RFC 9204 §6).
#[test]
fn frames_that_a_request_cannot_have_close_the_connection() {
    let http3 = Http3Bed::start();
    let data_first = frame(FrameType::DATA, b"content");
    let settings = frame(FrameType::SETTINGS, b"");
    let bad_section = frame(FrameType::HEADERS, b"\0\0\xff\xff\xff\xff");
    let dynamic = frame(FrameType::HEADERS, b"\x01\0\x80");
    let of_h2 = frame(FrameType(0x2), b"");
    for (bytes, code) in [
        (data_first, 0x105),
        (settings, 0x105),
        (bad_section, 0x200),
        (dynamic, 0x200),
        (of_h2, 0x105),
    ] {
        run(async {
            let client = http3.connect().await;
            let mut stream = client.open().await;
            stream.write(&bytes).await;
            assert_eq!(client.close_code().await, code, "{bytes:?}");
        });
    }
    let closed = "edgeward_client_connections_closed_total{cause=\"protocol-error\"}";
    assert_eq!(http3.bed.metric(closed), 5.0);
}

#[test]
fn a_malformed_request_is_reset_and_others_are_served() {
    let http3 = Http3Bed::start();
    let pseudo = [(":method", "GET"), (":scheme", "https"), (":path", "/")];
    let repeated = [pseudo.as_slice(), &[(":path", "/2"), ("host", "a")]].concat();
    let no_method = [(":scheme", "https"), (":path", "/"), ("host", "a")];
    let upper = [pseudo.as_slice(), &[("Host", "a")]].concat();
    let connection = [pseudo.as_slice(), &[("host", "a"), ("connection", "x")]].concat();
    let chunked = [
        pseudo.as_slice(),
        &[("host", "a"), ("transfer-encoding", "chunked")],
    ]
    .concat();
    run(async {
        let client = http3.connect().await;
        for fields in [&*repeated, &no_method, &upper, &connection, &chunked] {
            let mut stream = client.open().await;
            stream.write(&headers(fields)).await;
            stream.finish();
            assert_eq!(stream.read_all().await, Err(0x10e), "{fields:?}"); // H3_MESSAGE_ERROR
        }
        // More content than Content-Length states.
        let mut stream = client.open().await;
        stream
            .write(&head("POST", "/", &[("content-length", "1")]))
            .await;
        stream.write(&frame(FrameType::DATA, b"two")).await;
        stream.finish();
        assert_eq!(stream.read_all().await, Err(0x10e));
        assert_ne!(client.get("/").await.status, 0);
    });
}

#[test]
fn control_streams_must_stay_open_and_begin_with_settings() {
    let http3 = Http3Bed::start();
    run(async {
        let mut client = http3.connect().await;
        client.control.finish().expect("the stream is open");
        assert_eq!(client.close_code().await, 0x104);
        // A second control stream.
        let client = http3.connect().await;
        let _second = open_uni(&client.quic, b"\0").await;
        assert_eq!(client.close_code().await, 0x103);
        // A push stream.
        let client = http3.connect().await;
        let _push = open_uni(&client.quic, b"\x01").await;
        assert_eq!(client.close_code().await, 0x103);
        // A second SETTINGS.
        let mut client = http3.connect().await;
        client
            .control
            .write_all(&frame(FrameType::SETTINGS, b""))
            .await
            .expect("the edge reads");
        assert_eq!(client.close_code().await, 0x105);
    });
}

/// Their certificates would not be demanded.
#[test]
fn a_listener_for_nodes_has_no_http3() {
    let identity = SelfSigned::new();
    let nodes = |listener: &mut ListenerConfig| listener.is_for_nodes = true;
    let certificates = |listener: &mut ListenerConfig| {
        let authorities = listener.tls.as_ref().map(|tls| tls.certificates.clone());
        listener.node_authorities = authorities;
    };
    for change in [nodes as fn(&mut ListenerConfig), certificates] {
        let mut config = config_for(([127, 0, 0, 1], 9).into());
        let listener = &mut config.listeners[0];
        listener.tls = Some(identity.files());
        listener.http3 = true;
        change(listener);
        let error = Edge::start(config).expect_err("HTTP/3 for nodes");
        assert!(matches!(error, StartError::Http3 { .. }), "{error:?}");
    }
}

/// Its pings would keep the connection open for ever.
#[test]
fn a_client_that_allows_no_control_stream_is_disconnected() {
    let http3 = Http3Bed::start();
    run(async {
        let endpoint = endpoint_with(&http3.identity, |transport| {
            transport
                .max_concurrent_uni_streams(0_u32.into())
                .keep_alive_interval(Some(Duration::from_secs(1)));
        });
        let quic = connect_quic(&endpoint, http3.bed.addr()).await;
        assert_eq!(close_code(&quic).await, 0x101); // H3_GENERAL_PROTOCOL_ERROR
    });
    let closed = "edgeward_client_connections_closed_total{cause=\"protocol-error\"}";
    http3.bed.wait_for_metric(closed, 1.0);
}

#[test]
fn streams_of_an_unknown_type_are_stopped() {
    let http3 = Http3Bed::start();
    run(async {
        let client = http3.connect().await;
        let unknown = open_uni(&client.quic, b"\x21").await;
        let stopped = unknown.stopped().await.expect("the connection is open");
        assert_eq!(stopped.map(quinn::VarInt::into_inner), Some(0x103));
        assert_ne!(client.get("/").await.status, 0);
    });
}
