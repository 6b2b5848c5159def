//! One client connection: the detection of its protocol, and serving it to its end.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::{StatusCode, Version};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWrite as _, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use super::h1::FastPath;
use super::io::ClientIo;
use super::service::{EdgeService, run_tunnel};
use super::stream::ClientStream;
use crate::config::HEADERS_ON_STACK;
use crate::exchange::h2_frames::Excess;
use crate::exchange::h2_io::H2Io;
use crate::exchange::h2_streams::CONNECTION_WINDOW_BYTES;
use crate::exchange::{Client, CloseReason};
use crate::observe::labels::Label as _;
use crate::path::worker::{CurrentWorker, Worker};
use crate::rt::tasks::LocalExecutor;

/// The result of detecting a connection's protocol.
enum Detected {
    Http1,
    Http2,
    /// The client has disconnected, or the connection drains.
    Gone,
    /// The client has not sent the bytes that show its protocol in time, or others need the connection's descriptor or
    /// memory.
    Closed(CloseReason),
}

/// Reads enough bytes to distinguish HTTP/2's preface from an HTTP/1.1 request.
pub(super) async fn detect<S>(workers: Rc<CurrentWorker>, client: Client, mut stream: S)
where
    S: ClientStream + 'static,
{
    let mut start = BytesMut::new();
    let (idle_timeout, head_timeout) = {
        let worker = workers.get();
        let limits = &worker.config().limits;
        (limits.idle_timeout, limits.request_head_timeout)
    };
    let detecting = async {
        // The idle timeout applies until the first byte arrives, then the timeout of heads to the whole preface.
        let mut deadline = Instant::now() + idle_timeout;
        loop {
            let compared = start.len().min(H2_PREFACE.len());
            if start[..compared] != H2_PREFACE[..compared] {
                return Detected::Http1;
            }
            if compared == H2_PREFACE.len() {
                return Detected::Http2;
            }
            let reading = poll_fn(|cx| poll_start(&mut stream, &mut start, cx));
            match tokio::time::timeout_at(deadline, reading).await {
                Ok(Ok(0) | Err(_)) => return Detected::Gone,
                Ok(Ok(_)) if compared == 0 => deadline = Instant::now() + head_timeout,
                Ok(Ok(_)) => {}
                Err(_) if compared > 0 => return Detected::Closed(CloseReason::Head),
                Err(_) => return Detected::Closed(CloseReason::Idle),
            }
        }
    };
    let is_h2 = {
        let mut detecting = pin!(detecting);
        // A connection that is draining does not wait for its first request.
        let unless_closed = poll_fn(|cx| {
            client.conn.register_task(cx);
            if client.conn.is_draining() {
                return Poll::Ready(Detected::Gone);
            }
            if let Some(reason) = client.conn.must_leave() {
                return Poll::Ready(Detected::Closed(reason));
            }
            detecting.as_mut().poll(cx)
        });
        match unless_closed.await {
            Detected::Http1 => false,
            Detected::Http2 => true,
            Detected::Gone => return,
            Detected::Closed(reason) => return workers.get().counters.closed[reason].increment(),
        }
    };
    let io = ClientIo::new(stream, Rc::clone(&client.conn), start.freeze());
    serve(workers, client, io, is_h2).await;
}

/// Reads the first bytes of a connection by way of the stack, so that a connection without bytes has no buffer.
fn poll_start<S: ClientStream>(
    stream: &mut S,
    start: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut space = [MaybeUninit::uninit(); READ_AHEAD_BYTES];
    let mut space = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(cx, &mut space))?;
    start.extend_from_slice(space.filled());
    Poll::Ready(Ok(space.filled().len()))
}

/// Serves HTTP/1.1 or HTTP/2. Both futures are boxed, so a connection takes only the memory of its own protocol.
pub(super) async fn serve<S>(
    workers: Rc<CurrentWorker>,
    client: Client,
    io: ClientIo<S>,
    is_h2: bool,
) where
    S: ClientStream + 'static,
{
    if client.is_node && !is_h2 {
        // Nodes speak HTTP/2. The fast path of HTTP/1.1 would not check their signatures.
        return workers.get().counters.closed[CloseReason::Protocol].increment();
    }
    if is_h2 {
        Box::pin(serve_h2(workers, client, io)).await;
    } else {
        Box::pin(serve_h1(workers, client, io)).await;
    }
}

/// Serves HTTP/1.1. The fast path answers simple requests; hyper is started for the first other request.
async fn serve_h1<S>(workers: Rc<CurrentWorker>, client: Client, io: ClientIo<S>)
where
    S: ClientStream + 'static,
{
    workers.get().counters.accepted_h1.increment();
    let mut io = io.with_fast_path(Rc::clone(&workers), client.clone());
    let serving = poll_fn(|cx| {
        client.conn.register_task(cx);
        if let Some(reason) = client.conn.close_reason() {
            return Poll::Ready(FastPathResult::Closed(reason));
        }
        // hyper ends a connection that is draining.
        if client.conn.is_draining() && !client.conn.fast_path_writes() {
            return Poll::Ready(FastPathResult::NeedsHyper);
        }
        let polled = io.poll_fast_path(cx);
        relieve_if_grown(&workers, &client);
        polled.map(|result| match result {
            Ok(()) if io.fast_path().is_some_and(FastPath::is_over) => FastPathResult::Finished,
            Ok(()) => FastPathResult::NeedsHyper,
            Err(error) => FastPathResult::Failed(error),
        })
    });
    match serving.await {
        FastPathResult::NeedsHyper => Box::pin(serve_by_hyper(workers, client, io)).await,
        FastPathResult::Finished => {
            if client.conn.lingers() || io.fast_path().is_some_and(FastPath::has_surplus) {
                half_close(io, b"").await;
            } else if client.tls {
                // One attempt to send `close_notify` (RFC 8446 §6.1). Without TLS, closing the socket is enough.
                poll_fn(|cx| Poll::Ready(Pin::new(&mut io).poll_shutdown(cx).is_ready())).await;
            }
        }
        FastPathResult::Closed(reason) => {
            if let Some(response) = record_closed(&workers.get(), &client, reason) {
                half_close(io, response).await;
            }
        }
        // A client may disconnect at any time.
        FastPathResult::Failed(error) => {
            tracing::debug!(peer = %client.peer, %error, "a connection ended");
        }
    }
}

/// Frees memory if this connection has made all connections together exceed their budget.
fn relieve_if_grown(workers: &CurrentWorker, client: &Client) {
    if client.conn.take_growth() {
        workers.get().relieve_connections();
    }
}

/// The reason why the fast path no longer serves a connection.
enum FastPathResult {
    /// A request for hyper has arrived, or the connection drains.
    NeedsHyper,
    /// The last response was written, or the client has disconnected between two requests.
    Finished,
    Closed(CloseReason),
    Failed(io::Error),
}

async fn serve_by_hyper<S>(workers: Rc<CurrentWorker>, client: Client, io: ClientIo<S>)
where
    S: ClientStream + 'static,
{
    let _held = client.conn.holding(HYPER_H1_BYTES);
    let worker = workers.get();
    let limits = &worker.config().limits;
    let mut builder = http1::Builder::new();
    builder
        // The worker's sweep checks the timeout of heads. A timer of hyper would add a cost to each request.
        .header_read_timeout(None)
        .max_header_size(limits.head_len_max());
    if limits.headers_max.get() != HEADERS_ON_STACK {
        builder.max_headers(limits.headers_max.get());
    }
    drop(worker);
    let service = EdgeService::new(&workers, &client);
    let tunnel = Rc::clone(&service.tunnel);
    let mut connection = builder.serve_connection(TokioIo::new(io), service);
    let mut draining = false;
    let end = poll_fn(|cx| {
        client.conn.register_task(cx);
        if let Some(reason) = client.conn.close_reason() {
            return Poll::Ready(Err(reason));
        }
        // hyper does not know of requests that the fast path serves, and would close the connection as idle.
        if client.conn.is_draining() && !draining && !client.conn.fast_path_writes() {
            draining = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        let polled = Pin::new(&mut connection).poll(cx);
        relieve_if_grown(&workers, &client);
        polled.map(Ok)
    })
    .await;
    if let Some(tunnel) = tunnel.take() {
        // If hyper could not flush the head, the client must not get other bytes in its place.
        if matches!(end, Ok(Ok(()))) && client.conn.hyper_is_done() {
            let parts = connection.into_parts();
            run_tunnel(&client, tunnel, parts.io.into_inner(), &parts.read_buf).await;
        }
        return;
    }
    let mut last_bytes = client.conn.lingers().then_some(&b""[..]);
    match end {
        Ok(result) => {
            // hyper has refused a malformed or too large head by itself, with 400, 414 or 431.
            if matches!(&result, Err(error) if error.is_parse()) {
                last_bytes = Some(b"");
                let status = client.conn.status_written();
                if let Some(status) = status.filter(StatusCode::is_client_error) {
                    workers
                        .get()
                        .record_unread(&client, status, Version::HTTP_11);
                }
            }
            record_end(&workers.get(), &client, result);
        }
        Err(reason) => last_bytes = record_closed(&workers.get(), &client, reason).or(last_bytes),
    }
    if let Some(last_bytes) = last_bytes {
        half_close(connection.into_parts().io.into_inner(), last_bytes).await;
    }
}

/// Ends a connection whose client may still send bytes. Closing a socket with unread bytes resets the connection, and
/// the reset may reach the client before the response. The edge therefore sends `last_bytes` and half-closes the
/// connection. It then reads and discards up to 4 MiB from the client. All this takes at most two seconds.
async fn half_close<S: ClientStream>(io: ClientIo<S>, last_bytes: &[u8]) {
    _ = tokio::time::timeout(LINGER_MAX, Box::pin(linger(io, last_bytes))).await;
}

async fn linger<S>(io: ClientIo<S>, last_bytes: &[u8]) -> io::Result<()>
where
    S: ClientStream,
{
    let mut stream = io.into_stream();
    stream.write_all(last_bytes).await?;
    stream.shutdown().await?;
    let mut ignored = vec![0; 16 << 10];
    let mut left = LINGER_BYTES_MAX;
    while left > 0 {
        match stream.read(&mut ignored).await? {
            0 => break,
            n => left = left.saturating_sub(n),
        }
    }
    Ok(())
}

async fn serve_h2<S>(workers: Rc<CurrentWorker>, client: Client, io: ClientIo<S>)
where
    S: ClientStream + 'static,
{
    let worker = workers.get();
    worker.counters.accepted_h2.increment();
    client.conn.set_multiplexed();
    let _held = client.conn.holding(HYPER_H2_BYTES);
    let limits = &*client.limits(&worker.config().limits);
    let mut builder = http2::Builder::new(LocalExecutor(worker.connection_tasks.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.h2_streams_max.get())
        .max_header_list_size(u32::try_from(limits.head_bytes_max.bytes()).unwrap_or(u32::MAX))
        .max_send_buf_size(H2_SEND_BUFFER_BYTES)
        .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        // hyper's limit counts in the lifetime of a connection, so the errors of one client of a proxy would end the
        // requests of others. `H2Io` bounds the RST_STREAM frames that wait for a slow peer.
        .max_local_error_reset_streams(None);
    if worker.config().forwarding.upgrades.allows("websocket") {
        builder.enable_connect_protocol();
    }
    let service = EdgeService::new(&workers, &client);
    let io = H2Io::new(io, limits, Arc::clone(&worker.shared.clock), &client.conn);
    drop(worker);
    let mut connection = builder.serve_connection(TokioIo::new(io.share()), service);
    let mut draining = false;
    let end = poll_fn(|cx| {
        client.conn.register_task(cx);
        if let Some(reason) = client.conn.close_reason() {
            return Poll::Ready(Err(reason));
        }
        if client.conn.is_draining() && !draining {
            draining = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        let polled = poll_h2(&mut connection, &io, cx);
        relieve_if_grown(&workers, &client);
        polled.map(Ok)
    })
    .await;
    if let Some(excess) = io.excess() {
        record_flood(&workers.get(), &client, excess);
        drop(connection);
        if let Some((io, goaway)) = io.into_stream_and_goaway() {
            half_close(io, &goaway).await;
        }
        return;
    }
    match end {
        Ok(result) => record_end(&workers.get(), &client, result),
        Err(reason) => {
            workers.get().counters.closed[reason].increment();
            if reason == CloseReason::Idle {
                // RFC 9113 §9.1: GOAWAY tells the client which requests were not served.
                Pin::new(&mut connection).graceful_shutdown();
                let ending = poll_fn(|cx| poll_h2(&mut connection, &io, cx));
                _ = tokio::time::timeout(LINGER_MAX, ending).await;
            } else if reason.is_urgent() {
                // GOAWAY is sent only if the socket accepts it at once: others need the descriptor or the memory.
                Pin::new(&mut connection).graceful_shutdown();
                poll_fn(|cx| Poll::Ready(poll_h2(&mut connection, &io, cx).is_ready())).await;
            }
        }
    }
}

/// Polls hyper's connection, then writes the frames that it has flushed.
fn poll_h2<S: ClientStream>(
    connection: &mut (impl Future<Output = hyper::Result<()>> + Unpin),
    io: &H2Io<ClientIo<S>>,
    cx: &mut Context<'_>,
) -> Poll<hyper::Result<()>> {
    let polled = Pin::new(connection).poll(cx);
    match io.poll_out(cx) {
        // A client may disconnect at any time.
        Poll::Ready(Err(_)) if polled.is_pending() => Poll::Ready(Ok(())),
        _ => polled,
    }
}

fn record_flood(worker: &Worker, client: &Client, excess: Excess) {
    worker.counters.closed[CloseReason::Flood].increment();
    worker.counters.floods[excess].increment();
    if let Some(unlogged) = worker.warnings.flood.record(worker.now()) {
        tracing::warn!(
            peer = %client.peer,
            excess = excess.as_str(),
            unlogged,
            "an HTTP/2 connection exceeded a limit of frames and was closed with ENHANCE_YOUR_CALM"
        );
    }
}

fn record_end(worker: &Worker, client: &Client, result: hyper::Result<()>) {
    let Err(error) = result else {
        return;
    };
    // Most of these errors are clients that disconnect. Only malformed bytes are counted.
    if error.is_parse() {
        worker.counters.closed[CloseReason::Protocol].increment();
    }
    tracing::debug!(peer = %client.peer, %error, "a connection ended");
}

/// Counts a connection that is closed. If its request head was late, logs the status 408 and returns that response.
fn record_closed(worker: &Worker, client: &Client, reason: CloseReason) -> Option<&'static [u8]> {
    worker.counters.closed[reason].increment();
    let is_head = reason == CloseReason::Head;
    is_head.then(|| {
        worker.record_unread(client, StatusCode::REQUEST_TIMEOUT, Version::HTTP_11);
        REQUEST_TIMEOUT_RESPONSE
    })
}

/// The memory of hyper's codec of HTTP/1.1: its state and its first read buffer.
const HYPER_H1_BYTES: u64 = 14 << 10;

/// The memory of hyper's codec of HTTP/2: its state, its read and write buffers, and the tables of HPACK.
const HYPER_H2_BYTES: u64 = 16 << 10;

/// The preface of HTTP/2 (RFC 9113 §3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The size of the first read in bytes. Most heads fit, so one read detects the protocol and gets the first head.
const READ_AHEAD_BYTES: usize = 4096;

/// The most bytes that an HTTP/2 stream queues for a slow client.
const H2_SEND_BUFFER_BYTES: usize = 256 << 10;

/// The receive window of one stream: bytes that a client may send ahead of the origin.
const H2_STREAM_WINDOW_BYTES: u32 = 256 << 10;

const REQUEST_TIMEOUT_RESPONSE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The most time that the edge spends to end a connection, and the most bytes that it discards from the client.
const LINGER_MAX: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 4 << 20;
