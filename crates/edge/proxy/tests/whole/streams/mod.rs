//! Exchanges whose bodies are streams: WebSocket over HTTP/2 (RFC 8441), gRPC, server-sent events, and long uploads.

mod body_limits; // limits of request bodies by rules
mod browser;
mod calls; // gRPC
mod events; // server-sent events
mod sockets; // extended CONNECT

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::support::{TestBed, config_for};
use bytes::Bytes;
use edgeward_proxy::EdgeConfig;
use http::HeaderMap;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A body whose frames the test sends one by one. The body ends when the sender is dropped.
struct FrameBody(mpsc::Receiver<Frame<Bytes>>);

/// Returns a body and the sender of its frames.
fn frames() -> (mpsc::Sender<Frame<Bytes>>, FrameBody) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, FrameBody(receiver))
}

impl Body for FrameBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// Reads the next frame with data. Returns `None` at the end of the body and at trailers.
async fn next_data(body: &mut Incoming) -> Option<Bytes> {
    loop {
        let frame = http_body_util::BodyExt::frame(body).await?;
        let data = frame.expect("the body is complete").into_data().ok()?;
        // An empty frame may end the stream.
        if !data.is_empty() {
            return Some(data);
        }
    }
}

/// Reads the trailers that follow the data.
async fn trailers(body: &mut Incoming) -> HeaderMap {
    let frame = http_body_util::BodyExt::frame(body).await;
    let frame = frame
        .expect("trailers follow")
        .expect("the body is complete");
    frame.into_trailers().expect("no more data follows")
}

/// Starts an edge in front of an origin that the test serves itself.
async fn bed_with(change: impl FnOnce(&mut EdgeConfig)) -> (TestBed, TcpListener) {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("a port is free");
    let addr = listener.local_addr().expect("the socket is bound");
    let bed = TestBed::with_config(|config| {
        config.origins = config_for(addr).origins;
        change(config);
    });
    (bed, listener)
}

/// Opens an HTTP/2 connection to the edge, with prior knowledge.
async fn connect<B>(addr: SocketAddr) -> http2::SendRequest<B>
where
    B: Body<Data = Bytes, Error = std::convert::Infallible> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(addr).await.expect("the edge listens");
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("the HTTP/2 handshake succeeds");
    tokio::spawn(connection);
    sender
}
