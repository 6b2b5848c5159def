//! WebSocket over HTTP/3: the edge turns an extended CONNECT (RFC 9220) into an upgrade of HTTP/1.1.

use std::num::NonZeroUsize;
use std::time::Duration;

use edgeward_h3::{FrameEvent, FrameType};
use edgeward_proxy::EdgeConfig;

use crate::Http3Bed;
use crate::client::{H3Client, H3Stream, frame, headers};
use crate::socket_origin::{SocketOrigin, SocketRequest};
use crate::support::{config_for, pattern, run};

fn bed(change: impl FnOnce(&mut EdgeConfig)) -> (Http3Bed, SocketOrigin) {
    let origin = SocketOrigin::start();
    let http3 = Http3Bed::with_config(|config| {
        config.origins = config_for(origin.addr).origins;
        config.workers = NonZeroUsize::MIN;
        change(config);
    });
    (http3, origin)
}

async fn send_connect(client: &H3Client) -> H3Stream {
    let mut stream = client.open().await;
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "test.example"),
        (":path", "/chat?a"),
        ("sec-websocket-version", "13"),
    ];
    stream.write(&headers(&fields)).await;
    stream
}

/// Runs blocking calls while the client sends and receives.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let task = tokio::task::spawn_blocking(call);
    task.await.expect("the call does not panic")
}

/// Opens a tunnel. Returns the client's stream, after the head of the response, and the origin's connection.
async fn open(client: &H3Client, origin: SocketOrigin) -> (H3Stream, SocketRequest) {
    let mut stream = send_connect(client).await;
    let request = blocking(move || {
        let mut request = origin.request();
        request.accept();
        request
    })
    .await;
    let head = stream.frames.next().await;
    let Ok(Some(FrameEvent::Frame(FrameType::HEADERS, section))) = head else {
        panic!("not a head: {head:?}");
    };
    // The entry of `:status` 200 in the static table.
    assert_eq!(section[..3], [0, 0, 0xd9]);
    (stream, request)
}

/// Method: more bytes than all windows in both directions, and then the end of each.
#[test]
fn a_websocket_is_a_tunnel_in_data_frames() {
    const BYTES: u64 = 3_000_000;
    let (http3, origin) = bed(|_| {});
    run(async {
        let mut client = http3.connect().await;
        let settings = client.edge_control.next().await;
        let Ok(Some(FrameEvent::Frame(FrameType::SETTINGS, settings))) = settings else {
            panic!("not SETTINGS: {settings:?}");
        };
        let enabled = settings.windows(2).any(|setting| setting == [0x8, 1]);
        assert!(enabled, "{settings:?}");
        let (mut stream, mut request) = open(&client, origin).await;
        assert!(request.head.starts_with("GET /chat?a HTTP/1.1\r\n"));
        assert_eq!(request.field("upgrade"), "websocket");
        let echoing = tokio::task::spawn_blocking(move || {
            let read = request.peer.read_up_to(BYTES as usize);
            assert!(read == pattern(0..BYTES));
            request.peer.send(&read);
            request.peer.read_to_end();
        });
        let sending = async {
            for piece in pattern(0..BYTES).chunks(70_000) {
                let written = stream
                    .sending
                    .write_all(&frame(FrameType::DATA, piece))
                    .await;
                written.expect("the edge reads the stream");
            }
        };
        let mut received = Vec::new();
        let receiving = async {
            while received.len() < BYTES as usize {
                match stream.frames.next().await {
                    Ok(Some(FrameEvent::Data(bytes))) => received.extend_from_slice(&bytes),
                    Ok(Some(FrameEvent::DataBegins(_))) => {}
                    other => panic!("not content: {other:?}"),
                }
            }
        };
        tokio::join!(sending, receiving);
        assert!(received == pattern(0..BYTES));
        stream.finish();
        echoing.await.expect("the echo does not panic");
        let end = stream.frames.next().await;
        assert!(matches!(end, Ok(None)), "{end:?}");
    });
    let closed = "edgeward_tunnels_ended_total{cause=\"closed\"}";
    http3.bed.wait_for_metric(closed, 1.0);
}

#[test]
fn another_answer_than_101_reaches_the_client() {
    let (http3, origin) = bed(|_| {});
    run(async {
        let client = http3.connect().await;
        let stream = send_connect(&client).await;
        blocking(move || {
            let mut request = origin.request();
            let answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
            request.peer.send(answer);
        })
        .await;
        let answer = stream.answer().await;
        assert_eq!((answer.status, answer.body), (403, b"no".to_vec()));
    });
}

#[test]
fn a_reset_of_the_client_ends_the_tunnel() {
    let (http3, origin) = bed(|_| {});
    run(async {
        let client = http3.connect().await;
        let (stream, mut request) = open(&client, origin).await;
        stream.cancel();
        blocking(move || request.peer.read_to_end()).await;
    });
    let failed = "edgeward_tunnels_ended_total{cause=\"error\"}";
    http3.bed.wait_for_metric(failed, 1.0);
}

#[test]
fn an_idle_tunnel_is_reset() {
    let (http3, origin) = bed(|config| {
        config.limits.tunnel_idle_timeout = Duration::from_secs(3);
    });
    run(async {
        let client = http3.connect().await;
        let (mut stream, _request) = open(&client, origin).await;
        assert_eq!(stream.read_all().await, Err(0x10f)); // H3_CONNECT_ERROR
    });
}

#[test]
fn an_edge_without_upgrades_refuses_an_extended_connect() {
    let (http3, _origin) =
        bed(|config| config.forwarding.upgrades = "none".parse().expect("no protocol"));
    run(async {
        let client = http3.connect().await;
        let mut stream = send_connect(&client).await;
        assert_eq!(stream.read_all().await, Err(0x10e)); // H3_MESSAGE_ERROR
    });
}
