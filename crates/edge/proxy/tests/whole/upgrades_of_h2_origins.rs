//! Requests for another protocol at an origin whose protocol is HTTP/2: they use HTTP/1.1.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use bytes::Bytes;
use edgeward_proxy::config::OriginProtocol;
use edgeward_proxy::{Edge, RunningEdge};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::accept_key::accept_of;
use crate::protocols::Identity;
use crate::support::{Client, TIMEOUT, config_for, run};

/// Starts an origin that serves HTTP/2, and WebSockets that echo over HTTP/1.1, by the protocols of `alpn`.
async fn origin(identity: &Identity, alpn: &[&[u8]]) -> SocketAddr {
    let acceptor = identity.acceptor_for(alpn);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(tcp).await else {
                    return;
                };
                if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
                    let service = service_fn(|_: Request<Incoming>| async {
                        let body = Full::new(Bytes::from_static(b"by HTTP/2"));
                        Ok::<_, Infallible>(Response::new(body))
                    });
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    _ = http.serve_connection(TokioIo::new(tls), service).await;
                    return;
                }
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(tls.read_u8().await.expect("a head"));
                }
                let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
                assert!(head.contains("upgrade: websocket"), "{head}");
                let accept = accept_of(KEY);
                let response = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: {accept}\r\n\r\n"
                );
                tls.write_all(response.as_bytes()).await.expect("sent");
                let mut text = [0; 4];
                tls.read_exact(&mut text).await.expect("four bytes");
                tls.write_all(&text).await.expect("sent");
            });
        }
    });
    addr
}

fn edge_before(identity: &Identity, origin: SocketAddr) -> RunningEdge {
    let mut config = config_for(origin);
    let url = format!("https://localhost:{}", origin.port());
    config.origins[0].servers[0] = url.parse().expect("a URL");
    config.origins[0].tls.roots = Some(identity.certificate.clone());
    config.origins[0].protocol = OriginProtocol::Http2;
    Edge::start(config).expect("the edge starts")
}

/// Sends the handshake of a WebSocket, and returns the head of the response and its connection.
fn handshake(edge: SocketAddr) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(edge).expect("the edge listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let request = format!(
        "GET /socket HTTP/1.1\r\nHost: test.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    (String::from_utf8(head).expect("text"), stream)
}

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

#[test]
fn a_websocket_reaches_an_origin_of_http2_over_http1() {
    let identity = Identity::new();
    run(async {
        let origin = origin(&identity, &[b"h2", b"http/1.1"]).await;
        let edge = edge_before(&identity, origin);
        let addr = edge.addrs()[0];
        let tests = move || {
            assert_eq!(Client::connect(addr).get("/a", &[]).text(), "by HTTP/2");
            let (head, mut stream) = handshake(addr);
            assert!(head.starts_with("HTTP/1.1 101"), "{head}");
            stream.write_all(b"echo").expect("sent");
            let mut text = [0; 4];
            stream.read_exact(&mut text).expect("an echo");
            assert_eq!(&text, b"echo");
            drop(edge);
        };
        tokio::task::spawn_blocking(tests).await.expect("no panic");
    });
}

/// Otherwise a client could take an origin out of service by handshakes.
#[test]
fn a_refused_upgrade_leaves_a_server_that_knows_only_http2_healthy() {
    let identity = Identity::new();
    run(async {
        let origin = origin(&identity, &[b"h2"]).await;
        let edge = edge_before(&identity, origin);
        let addr = edge.addrs()[0];
        let tests = move || {
            for _ in 0..20 {
                let (head, _) = handshake(addr);
                assert!(head.starts_with("HTTP/1.1 502"), "{head}");
            }
            assert_eq!(Client::connect(addr).get("/a", &[]).text(), "by HTTP/2");
            drop(edge);
        };
        tokio::task::spawn_blocking(tests).await.expect("no panic");
    });
}
