//! gRPC: calls over HTTP/2 to client and origin, with trailers and with messages in both directions at the same time.

use std::convert::Infallible;

use bytes::{BufMut as _, Bytes, BytesMut};
use edgeward_proxy::config::OriginProtocol;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{FrameBody, bed_with, connect, frames, next_data, trailers};
use crate::support::{TestBed, run};

/// A call at the origin: its request, and the sender of its response.
struct Call {
    request: Request<Incoming>,
    respond: tokio::sync::oneshot::Sender<Response<FrameBody>>,
}

/// Serves HTTP/2 connections. Each request is sent to the test.
fn serve(listener: TcpListener) -> mpsc::Receiver<Call> {
    let (sender, calls) = mpsc::channel(10);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let service = service_fn(move |request| {
                let sender = sender.clone();
                async move {
                    let (respond, response) = tokio::sync::oneshot::channel();
                    _ = sender.send(Call { request, respond }).await;
                    Ok::<_, Infallible>(response.await.expect("the test responds"))
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    calls
}

/// An edge whose origin uses HTTP/2, the client's connection, and the calls that arrive at the origin.
struct CallBed {
    bed: TestBed,
    client: http2::SendRequest<FrameBody>,
    calls: mpsc::Receiver<Call>,
}

impl CallBed {
    async fn start() -> Self {
        Self::with_config(|_| {}).await
    }

    async fn with_config(change: impl FnOnce(&mut edgeward_proxy::EdgeConfig)) -> Self {
        let (bed, listener) = bed_with(|config| {
            config.origins[0].protocol = OriginProtocol::Http2;
            change(config);
        })
        .await;
        let calls = serve(listener);
        let client = connect(bed.addr()).await;
        Self { bed, client, calls }
    }

    /// Begins a call. Returns the sender of the client's messages, and the future response.
    fn call(
        &mut self,
    ) -> (
        mpsc::Sender<Frame<Bytes>>,
        impl Future<Output = hyper::Result<Response<Incoming>>> + use<>,
    ) {
        let (messages, body) = frames();
        let request = Request::post("http://test.example/echo.Echo/Talk")
            .header("content-type", "application/grpc+proto")
            .header("te", "trailers")
            .body(body);
        let sent = self.client.send_request(request.expect("a valid request"));
        (messages, sent)
    }

    async fn at_origin(&mut self) -> Call {
        self.calls.recv().await.expect("the call arrives")
    }
}

/// Returns a message with its prefix: no compression, and the length.
fn message(text: &str) -> Frame<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(text.len()).expect("a short text"));
    bytes.put_slice(text.as_bytes());
    Frame::data(bytes.freeze())
}

fn bytes_of(text: &str) -> Bytes {
    message(text).into_data().expect("a message is data")
}

fn status(code: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    Frame::trailers(trailers)
}

/// Responds with the head of a call. Returns the sender of the messages and trailers.
fn respond(call: tokio::sync::oneshot::Sender<Response<FrameBody>>) -> mpsc::Sender<Frame<Bytes>> {
    let (messages, body) = frames();
    let response = Response::builder()
        .header("content-type", "application/grpc")
        .body(body);
    assert!(call.send(response.expect("a valid response")).is_ok());
    messages
}

async fn send(messages: &mpsc::Sender<Frame<Bytes>>, frame: Frame<Bytes>) {
    messages.send(frame).await.expect("the peer reads");
}

#[test]
fn a_unary_call_keeps_its_fields_and_trailers() {
    run(async {
        let mut bed = CallBed::start().await;
        let (messages, response) = bed.call();
        let asking = async {
            send(&messages, message("ping")).await;
            let mut checksum = HeaderMap::new();
            checksum.insert("x-checksum", HeaderValue::from_static("7"));
            send(&messages, Frame::trailers(checksum)).await;
            drop(messages);
            response.await.expect("a response arrives")
        };
        let answering = async {
            let Call {
                request,
                respond: call,
            } = bed.calls.recv().await.expect("a call");
            assert_eq!(request.version(), http::Version::HTTP_2);
            assert_eq!(request.headers()["te"], "trailers");
            assert_eq!(request.headers()["content-type"], "application/grpc+proto");
            let mut body = request.into_body();
            assert_eq!(next_data(&mut body).await, Some(bytes_of("ping")));
            assert_eq!(trailers(&mut body).await["x-checksum"], "7");
            let messages = respond(call);
            send(&messages, message("pong")).await;
            send(&messages, status("0")).await;
        };
        let (response, ()) = tokio::join!(asking, answering);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let mut body = response.into_body();
        assert_eq!(next_data(&mut body).await, Some(bytes_of("pong")));
        assert_eq!(trailers(&mut body).await["grpc-status"], "0");
    });
}

/// An error may have no body: then its trailers are in the head.
#[test]
fn a_response_of_trailers_alone_arrives() {
    run(async {
        let mut bed = CallBed::start().await;
        let (messages, response) = bed.call();
        drop(messages);
        let answering = async {
            let call = bed.calls.recv().await.expect("a call");
            let (_, body) = frames();
            let response = Response::builder().header("grpc-status", "12").body(body);
            assert!(
                call.respond
                    .send(response.expect("a valid response"))
                    .is_ok()
            );
        };
        let (response, ()) = tokio::join!(response, answering);
        let response = response.expect("a response arrives");
        assert_eq!(response.headers()["grpc-status"], "12");
    });
}

/// Method: each peer sends a message only after it has the message before from the other one. The origin's head is sent
/// with its first message, as grpc-go does.
#[test]
fn both_peers_of_a_call_may_wait_for_each_other() {
    run(async {
        let mut bed = CallBed::start().await;
        let (to_origin, response) = bed.call();
        let response = tokio::spawn(response);
        send(&to_origin, message("0")).await;
        let Call {
            request,
            respond: call,
        } = bed.at_origin().await;
        let mut at_origin = request.into_body();
        assert_eq!(next_data(&mut at_origin).await, Some(bytes_of("0")));
        let to_client = respond(call);
        send(&to_client, message("0")).await;
        let response = response
            .await
            .expect("no panic")
            .expect("a response arrives");
        let mut at_client = response.into_body();
        assert_eq!(next_data(&mut at_client).await, Some(bytes_of("0")));
        for n in 1..50 {
            let text = n.to_string();
            send(&to_origin, message(&text)).await;
            assert_eq!(next_data(&mut at_origin).await, Some(bytes_of(&text)));
            send(&to_client, message(&text)).await;
            assert_eq!(next_data(&mut at_client).await, Some(bytes_of(&text)));
        }
        // The client has sent all; the origin still sends.
        drop(to_origin);
        assert_eq!(next_data(&mut at_origin).await, None);
        send(&to_client, message("end")).await;
        assert_eq!(next_data(&mut at_client).await, Some(bytes_of("end")));
        send(&to_client, status("0")).await;
        assert_eq!(trailers(&mut at_client).await["grpc-status"], "0");
    });
}

/// Method: the client sends no message. `upload_buffer_wait` is longer than the test may take, so the edge must not
/// wait for the start of the body.
#[test]
fn the_origin_may_send_the_first_message() {
    run(async {
        let mut bed = CallBed::with_config(|config| {
            config.limits.upload_buffer_wait = std::time::Duration::from_secs(3600);
        })
        .await;
        let (to_origin, response) = bed.call();
        let response = tokio::spawn(response);
        let Call {
            request,
            respond: call,
        } = bed.at_origin().await;
        let to_client = respond(call);
        send(&to_client, message("welcome")).await;
        let response = response
            .await
            .expect("no panic")
            .expect("a response arrives");
        let mut at_client = response.into_body();
        assert_eq!(next_data(&mut at_client).await, Some(bytes_of("welcome")));
        send(&to_origin, message("thanks")).await;
        let mut at_origin = request.into_body();
        assert_eq!(next_data(&mut at_origin).await, Some(bytes_of("thanks")));
    });
}

/// A subscription is a call whose client sends one message and then only reads.
///
/// Method: the limits of slow uploads are 100 ms. The origin sends messages for ten times as long.
#[test]
fn a_client_that_only_listens_is_not_a_slow_upload() {
    let short = std::time::Duration::from_millis(100);
    run(async {
        let mut bed = CallBed::with_config(|config| {
            config.limits.body_idle_timeout = short;
            config.limits.rate_window = short;
        })
        .await;
        let (to_origin, response) = bed.call();
        let response = tokio::spawn(response);
        send(&to_origin, message("subscribe")).await;
        let Call {
            request,
            respond: call,
        } = bed.at_origin().await;
        let mut at_origin = request.into_body();
        assert_eq!(next_data(&mut at_origin).await, Some(bytes_of("subscribe")));
        let to_client = respond(call);
        let response = response
            .await
            .expect("no panic")
            .expect("a response arrives");
        let mut at_client = response.into_body();
        let start = std::time::Instant::now();
        while start.elapsed() < 10 * short {
            send(&to_client, message("news")).await;
            assert_eq!(next_data(&mut at_client).await, Some(bytes_of("news")));
        }
        send(&to_origin, message("bye")).await;
        assert_eq!(next_data(&mut at_origin).await, Some(bytes_of("bye")));
        drop(to_client);
        assert_eq!(next_data(&mut at_client).await, None);
        assert_eq!(
            bed.bed
                .metric("edgeward_slow_clients_total{direction=\"upload\"}"),
            0.0
        );
    });
}

#[test]
fn a_call_that_the_client_cancels_is_cancelled_at_the_origin() {
    run(async {
        let mut bed = CallBed::start().await;
        let (to_origin, response) = bed.call();
        let response = tokio::spawn(response);
        let Call {
            request,
            respond: call,
        } = bed.at_origin().await;
        let to_client = respond(call);
        send(&to_client, message("news")).await;
        let response = response
            .await
            .expect("no panic")
            .expect("a response arrives");
        drop((response, to_origin));
        to_client.closed().await;
        drop(request);
    });
}
