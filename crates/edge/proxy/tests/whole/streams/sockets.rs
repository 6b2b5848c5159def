//! WebSocket over HTTP/2: the edge turns an extended CONNECT (RFC 8441) into an upgrade of HTTP/1.1.

use bytes::Bytes;
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::OriginProtocol;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{bed_with, connect};
use crate::accept_key::accept_of;
use crate::support::{TestBed, run};

type Sender = http2::SendRequest<Empty<Bytes>>;

fn extended_connect(protocol: &'static str) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = "http://test.example/chat?a".parse().expect("a URI");
    let headers = request.headers_mut();
    for (name, value) in [
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let protocol = Protocol::from_static(protocol);
    request.extensions_mut().insert(protocol);
    request
}

/// Accepts a connection of the edge and reads the head of its request.
async fn accept(listener: &TcpListener) -> (String, TcpStream) {
    let (mut stream, _) = listener.accept().await.expect("the edge connects");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the head is complete"));
    }
    (String::from_utf8(head).expect("the head is text"), stream)
}

/// Sends an extended CONNECT. The origin answers with `answer`, in which `ACCEPT` is the accepted key.
async fn handshake(
    listener: &TcpListener,
    sender: &mut Sender,
    answer: &str,
) -> (Response<Incoming>, String, TcpStream) {
    let answering = async {
        let (head, mut stream) = accept(listener).await;
        let key = head
            .lines()
            .find_map(|line| line.strip_prefix("sec-websocket-key: "));
        let accept = accept_of(key.expect("the edge has made a key"));
        let answer = answer.replace("ACCEPT", &accept);
        stream
            .write_all(answer.as_bytes())
            .await
            .expect("the edge reads");
        (head, stream)
    };
    let (response, (head, stream)) = tokio::join!(
        sender.send_request(extended_connect("websocket")),
        answering
    );
    (response.expect("a response arrives"), head, stream)
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Protocol: chat\r\n\r\nhello";

async fn open(
    listener: &TcpListener,
    sender: &mut Sender,
) -> (TokioIo<hyper::upgrade::Upgraded>, TcpStream) {
    let (response, _, origin) = handshake(listener, sender, SWITCH).await;
    let upgraded = hyper::upgrade::on(response).await;
    let mut client = TokioIo::new(upgraded.expect("the stream is open"));
    read_text(&mut client, "hello").await;
    (client, origin)
}

async fn read_text(stream: &mut (impl tokio::io::AsyncRead + Unpin), text: &str) {
    let mut read = vec![0; text.len()];
    stream
        .read_exact(&mut read)
        .await
        .expect("the bytes arrive");
    assert_eq!(String::from_utf8_lossy(&read), text);
}

#[test]
fn an_extended_connect_is_a_websocket_of_http1_to_the_origin() {
    run(async {
        let (bed, listener) = bed_with(|_| {}).await;
        let mut sender = connect(bed.addr()).await;
        let (response, head, mut origin) = handshake(&listener, &mut sender, SWITCH).await;
        assert!(head.starts_with("GET /chat?a HTTP/1.1\r\n"), "{head}");
        for line in [
            "connection: upgrade",
            "upgrade: websocket",
            "host: test.example",
            "sec-websocket-version: 13",
            "sec-websocket-protocol: chat",
        ] {
            assert!(head.lines().any(|l| l == line), "{line} in {head}");
        }
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers();
        assert_eq!(headers["sec-websocket-protocol"], "chat");
        for absent in [
            "sec-websocket-accept",
            "upgrade",
            "connection",
            "content-length",
        ] {
            assert!(!headers.contains_key(absent), "{absent}");
        }
        let mut client = TokioIo::new(hyper::upgrade::on(response).await.expect("a tunnel"));
        read_text(&mut client, "hello").await;
        for text in ["one", "two"] {
            client
                .write_all(text.as_bytes())
                .await
                .expect("the edge reads");
            read_text(&mut origin, text).await;
            origin
                .write_all(text.as_bytes())
                .await
                .expect("the edge reads");
            read_text(&mut client, text).await;
        }
        // END_STREAM is the counterpart of FIN, in both directions (RFC 8441 §5).
        client.shutdown().await.expect("the stream is open");
        assert_eq!(origin.read_u8().await.ok(), None);
        origin.write_all(b"last").await.expect("the edge reads");
        drop(origin);
        let mut rest = Vec::new();
        _ = client
            .read_to_end(&mut rest)
            .await
            .expect("the stream ends");
        assert_eq!(rest, b"last");
        bed.wait_for_metric("edgeward_tunnels_ended_total{cause=\"closed\"}", 1.0);
    });
}

/// Method: 4 MiB in each direction, more than the windows of the stream and of the connection.
#[test]
fn a_tunnel_and_requests_share_a_connection() {
    const BYTES: usize = 4 << 20;
    run(async {
        let (bed, listener) = bed_with(|_| {}).await;
        let mut sender = connect(bed.addr()).await;
        let (client, origin) = open(&listener, &mut sender).await;
        let sent: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
        let copy = |stream: Box<dyn Stream>| {
            let sent = sent.clone();
            async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let writing = async {
                    writer.write_all(&sent).await.expect("the tunnel reads");
                    writer.shutdown().await.expect("the tunnel is open");
                };
                let mut received = Vec::new();
                let reading = reader.read_to_end(&mut received);
                let (read, ()) = tokio::join!(reading, writing);
                read.expect("the tunnel ends");
                assert!(received == sent);
            }
        };
        let request = async {
            let (_, mut stream) = accept(&listener).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage";
            stream.write_all(answer).await.expect("the edge reads");
            stream
        };
        let get = Request::get("http://test.example/page").body(Empty::new());
        let response = sender.send_request(get.expect("a valid request"));
        let (response, _stream) = tokio::join!(response, request);
        let body = response.expect("a response arrives").into_body().collect();
        assert_eq!(body.await.expect("a complete body").to_bytes(), "page");
        tokio::join!(copy(Box::new(client)), copy(Box::new(origin)));
    });
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Stream for T {}

#[test]
fn a_client_that_resets_its_stream_closes_the_connection_to_the_origin() {
    run(async {
        let (bed, listener) = bed_with(|_| {}).await;
        let mut sender = connect(bed.addr()).await;
        let (client, mut origin) = open(&listener, &mut sender).await;
        drop(client);
        assert_eq!(origin.read_u8().await.ok(), None);
        drop(origin);
        bed.wait_for_metric("edgeward_tunnels", 0.0);
        // The connection of the client still serves streams.
        let (_client, _origin) = open(&listener, &mut sender).await;
    });
}

/// A 2xx would tell the client that the tunnel is open, so an ordinary response of this kind becomes a 502.
#[test]
fn an_extended_connect_fails_without_a_valid_101() {
    run(async {
        let (bed, listener) = bed_with(|_| {}).await;
        let mut sender = connect(bed.addr()).await;
        for (answer, status) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 502),
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403),
            (
                "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
                302,
            ),
            (
                "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                502,
            ),
        ] {
            let (response, ..) = handshake(&listener, &mut sender, answer).await;
            assert_eq!(response.status(), status, "{answer}");
        }
        assert_eq!(bed.metric("edgeward_tunnels"), 0.0);
        let response = sender.send_request(extended_connect("foo")).await;
        assert_eq!(response.expect("a response arrives").status(), 501);
        let mut plain = Request::new(Empty::new());
        *plain.method_mut() = Method::CONNECT;
        *plain.uri_mut() = "test.example:443".parse().expect("an authority");
        let response = sender.send_request(plain).await;
        assert_eq!(response.expect("a response arrives").status(), 501);
    });
}

#[test]
fn an_origin_of_http2_gets_the_upgrade_over_http1() {
    run(async {
        let change = |config: &mut EdgeConfig| config.origins[0].protocol = OriginProtocol::Http2;
        let (bed, listener) = bed_with(change).await;
        let mut sender = connect(bed.addr()).await;
        let (response, head, _) = handshake(&listener, &mut sender, SWITCH).await;
        assert_eq!(response.status(), 200);
        assert!(head.starts_with("GET "), "{head}");
    });
}

/// RFC 8441 §3: a server that has not announced extended CONNECT treats it as malformed.
#[test]
fn without_websocket_an_extended_connect_is_reset() {
    run(async {
        let none = "none".parse().expect("no protocol");
        let bed = TestBed::with_config(|config| config.forwarding.upgrades = none);
        let mut sender = connect(bed.addr()).await;
        let response = sender.send_request(extended_connect("websocket")).await;
        assert!(response.is_err());
    });
}
