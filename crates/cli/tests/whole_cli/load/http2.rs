//! A client of HTTP/2 without TLS that sends four requests at a time on one connection.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::{Counts, body_of, path};

type Sender = SendRequest<Empty<Bytes>>;

pub(super) fn run(addr: SocketAddr, number: u64, counts: &Counts) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime starts");
    runtime.block_on(async {
        let mut n = number * 1000;
        while !counts.is_over() {
            match connect(addr).await {
                Ok(sender) => {
                    let requests =
                        (0..4).map(|stream| send_all(sender.clone(), n + stream, counts));
                    let mut all = requests.map(Box::pin).collect::<Vec<_>>();
                    for stream in &mut all {
                        stream.await;
                    }
                }
                Err(error) => counts.fail(format!("HTTP/2 connect: {error}")),
            }
            n += 7;
        }
    });
}

async fn connect(addr: SocketAddr) -> Result<Sender, String> {
    let stream = TcpStream::connect(addr)
        .await
        .map_err(|error| error.to_string())?;
    let io = TokioIo::new(stream);
    let (sender, connection) = handshake(TokioExecutor::new(), io)
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends requests until the connection accepts no more.
async fn send_all(mut sender: Sender, first: u64, counts: &Counts) {
    let mut n = first;
    while !counts.is_over() && sender.ready().await.is_ok() {
        n += 1;
        let path = path(n);
        let request = Request::get(format!("http://load.example{path}"));
        let request = request.body(Empty::new()).expect("the request is valid");
        let exchange = async {
            let response = sender.try_send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await;
            let body = body.map(http_body_util::Collected::to_bytes);
            Ok(match body {
                Ok(body) if status == StatusCode::OK && body == body_of(&path) => Ok(()),
                Ok(_) => Err(format!("status {status} or a wrong body")),
                Err(error) => Err(format!("the body: {error}")),
            })
        };
        let exchanged: Result<_, hyper::client::conn::TrySendError<_>> =
            match tokio::time::timeout(Duration::from_secs(20), exchange).await {
                Ok(exchanged) => exchanged,
                Err(_) => Ok(Err("no response in time".to_owned())),
            };
        match exchanged {
            Ok(Ok(())) => {
                counts.http2.fetch_add(1, Relaxed);
            }
            Ok(Err(failure)) => return counts.fail(format!("HTTP/2 GET {path}: {failure}")),
            // A returned request was not sent.
            Err(mut error) => {
                if error.take_message().is_some() {
                    return;
                }
                let error = error.into_error();
                if !is_refused(&error) {
                    counts.fail(format!("HTTP/2 GET {path}: {error:?}"));
                }
                return;
            }
        }
    }
}

/// Returns true if the edge states that it has not processed the request, so that the client may repeat it.
fn is_refused(error: &hyper::Error) -> bool {
    format!("{error:?}").contains("REFUSED_STREAM")
}
