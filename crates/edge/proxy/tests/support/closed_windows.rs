//! An HTTP/2 client with a stream window of zero bytes. It receives the heads of its responses, but the edge
//! must not send a byte of their bodies.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::runtime::{Builder, Runtime};

use super::support::{TIMEOUT, TestBed};

/// The client and its responses. Dropping this value closes the connection.
pub(crate) struct ClosedWindows {
    _responses: Vec<Response<Incoming>>,
    _sender: http2::SendRequest<Empty<Bytes>>,
    _runtime: Runtime,
}

impl ClosedWindows {
    /// Requests `/0`, `/1` and so on, and waits for the heads of all responses.
    pub(crate) fn request(bed: &TestBed, requests: u64) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the runtime can be built");
        let (sender, responses) = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(bed.addr()).await;
            let stream = TokioIo::new(stream.expect("the edge listens"));
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(0);
            let (mut sender, connection) = builder
                .handshake(stream)
                .await
                .expect("the HTTP/2 handshake succeeds");
            tokio::spawn(connection);
            let pending: Vec<_> = (0..requests)
                .map(|n| {
                    let uri = format!("http://test.example/{n}");
                    let request = Request::get(uri)
                        .body(Empty::new())
                        .expect("the request is valid");
                    tokio::time::timeout(TIMEOUT, sender.send_request(request))
                })
                .collect();
            let mut responses = Vec::new();
            for response in pending {
                responses.push(
                    response
                        .await
                        .expect("the response arrives in time")
                        .expect("a response arrives"),
                );
            }
            (sender, responses)
        });
        Self {
            _responses: responses,
            _sender: sender,
            _runtime: runtime,
        }
    }
}
