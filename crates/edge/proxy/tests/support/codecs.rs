//! Sends one request to each codec of the edge: the fast path (the edge's own HTTP/1.1 code for simple requests),
//! hyper's HTTP/1.1, and HTTP/2.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::support::{Answer, Client, TIMEOUT};

/// Sends a raw HTTP/1 request, head and body, on a new connection, and reads the response.
pub(crate) fn send_h1(addr: SocketAddr, request: &str) -> Answer {
    let mut client = Client::connect(addr);
    client.send(request.as_bytes());
    let method = request.split(' ').next().unwrap_or_default();
    client.answer(method)
}

/// Adds an unknown connection option to a request. The fast path passes requests with unknown options to hyper.
/// The edge does not forward the option.
pub(crate) fn for_hyper(request: &str) -> String {
    let end = request
        .find("\r\n\r\n")
        .expect("the request has a complete head");
    let (head, rest) = request.split_at(end);
    format!("{head}\r\nConnection: x-for-hyper{rest}")
}

/// The parts of an HTTP/2 request.
#[derive(Clone, Debug)]
pub(crate) struct H2Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) authority: Option<&'a str>,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

impl Default for H2Request<'_> {
    fn default() -> Self {
        Self {
            method: "GET",
            authority: Some("shop.example"),
            path: "/",
            headers: &[],
            body: b"",
        }
    }
}

/// Sends one HTTP/2 request on a new connection, with prior knowledge (RFC 9113 §3.3). Returns `None` if the
/// edge resets the stream.
pub(crate) fn send_h2(addr: SocketAddr, request: &H2Request<'_>) -> Option<Answer> {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(request.path.parse().expect("the path is valid"));
    if let Some(authority) = request.authority {
        parts.authority = Some(authority.parse().expect("the authority is valid"));
        parts.scheme = Some(http::uri::Scheme::HTTP);
    }
    let uri = Uri::from_parts(parts).expect("the URI is valid");
    let mut builder = Request::builder().method(request.method).uri(uri);
    for (name, value) in request.headers {
        builder = builder.header(*name, *value);
    }
    let body = Full::new(Bytes::copy_from_slice(request.body));
    let request = builder.body(body).expect("the request is valid");
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime can be built")
        .block_on(async {
            let exchange = async {
                let stream = TcpStream::connect(addr).await.expect("the edge listens");
                let (mut sender, connection) =
                    http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                        .await
                        .expect("the HTTP/2 handshake succeeds");
                tokio::spawn(connection);
                let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
                let text = |value: &http::HeaderValue| {
                    String::from_utf8_lossy(value.as_bytes()).into_owned()
                };
                Some(Answer {
                    status: parts.status.as_u16(),
                    headers: parts
                        .headers
                        .iter()
                        .map(|(name, value)| (name.to_string(), text(value)))
                        .collect(),
                    body: body.collect().await.ok()?.to_bytes().to_vec(),
                    complete: true,
                })
            };
            tokio::time::timeout(TIMEOUT, exchange)
                .await
                .expect("the response arrives in time")
        })
}
