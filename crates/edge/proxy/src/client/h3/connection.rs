//! One connection: its handshake, its control streams, and its end.

use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use edgeward_h3::{ConnectionError, ErrorCode, StreamId, UniEvent, UniStream};
use quinn::{Connecting, ReadError, RecvStream, SendStream, VarInt};
use quinn_proto::crypto::rustls::HandshakeData;
use rustls::NamedGroup;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::frame_flood::{CHECK_INTERVAL, FrameCount};
use super::keep_alive::KeepAlive;
use super::request;
use super::state::{Http3, varint};
use crate::client::accepted::Registration;
use crate::exchange::{Client, CloseReason, ConnState};
use crate::observe::counters::Counters;
use crate::path::worker::CurrentWorker;
use crate::rt::tasks::Member;

/// Makes the handshake, and serves the connection to its end. It drains when the sender of `ending` is dropped.
pub(super) async fn run(
    workers: Rc<CurrentWorker>,
    mut handshake: Handshake,
    peer: SocketAddr,
    ending: watch::Receiver<()>,
    _member: Member,
) {
    let (conn, _registration) = Registration::begin(&workers);
    let _held = conn.holding(QUIC_BYTES);
    let timeout = workers.get().config().limits.request_head_timeout;
    let connected = tokio::select! {
        biased;
        reason = must_close(&conn, ConnState::must_leave) => {
            return workers.get().counters.closed[reason].increment();
        }
        connected = tokio::time::timeout(timeout, &mut handshake.connecting) => connected,
    };
    drop(handshake);
    let quic = match connected {
        Ok(Ok(quic)) => quic,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "QUIC handshake failed");
            return workers.get().counters.closed[CloseReason::Tls].increment();
        }
        Err(_) => {
            tracing::debug!(%peer, "QUIC handshake not finished in time");
            return workers.get().counters.closed[CloseReason::Tls].increment();
        }
    };
    conn.set_multiplexed();
    let client = {
        let worker = workers.get();
        worker.counters.accepted_h3.increment();
        let mut client = Client::new(&conn, peer, true, worker.config());
        client.set_key_exchange(key_exchange_group(&quic), &worker.counters);
        client
    };
    let http3 = Http3::new(&workers, client, quic);
    Box::pin(serve(&http3, ending)).await;
    // The transport sends the frame that closes the connection in a task of its own, which runs now.
    tokio::task::yield_now().await;
}

fn key_exchange_group(quic: &quinn::Connection) -> Option<NamedGroup> {
    let data = quic.handshake_data()?.downcast::<HandshakeData>();
    data.ok().map(|data| data.negotiated_key_exchange_group)
}

/// A handshake, which is counted as under way until dropped.
pub(super) struct Handshake {
    connecting: Connecting,
    counters: Arc<Counters>,
}

impl Handshake {
    pub(super) fn begin(counters: &Arc<Counters>, connecting: Connecting) -> Self {
        counters.quic_handshakes.increment();
        Self {
            connecting,
            counters: Arc::clone(counters),
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.counters.quic_handshakes.decrement();
    }
}

/// The progress of a graceful end (RFC 9114 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// The client knows that the connection ends. Its requests that are on their way are served until this time.
    Announced(Instant),
    /// Further requests are rejected.
    Final,
}

impl Drain {
    /// Resolves when the client has had the time to learn that the connection ends.
    async fn announced(self) {
        match self {
            Self::Announced(deadline) => tokio::time::sleep_until(deadline).await,
            Self::No | Self::Final => std::future::pending().await,
        }
    }
}

/// A step of a connection.
enum Step {
    Request(SendStream, RecvStream),
    Uni(RecvStream),
    Drain,
    FinalGoaway,
    Drained,
    KeepAlive,
    CountFrames,
    Close(CloseReason),
    Fail(ConnectionError),
    Lost(quinn::ConnectionError),
}

async fn serve(http3: &Rc<Http3>, mut ending: watch::Receiver<()>) {
    let quic = &http3.quic;
    let mut frames = Vec::new();
    http3.state.borrow().push_preface(&mut frames);
    // A client must allow the stream from the start (RFC 9114 §6.2), so nothing waits for it.
    let mut control = match poll_fn(|cx| Poll::Ready(pin!(quic.open_uni()).poll(cx))).await {
        Poll::Ready(Ok(control)) => control,
        Poll::Ready(Err(error)) => return record_lost(http3, &error),
        Poll::Pending => {
            let error = http3.state.borrow().control_refused();
            return http3.fail(error);
        }
    };
    _ = control.set_priority(CONTROL_PRIORITY);
    let stopped = control.stopped();
    let mut control_stopped = pin!(async {
        // If the connection is lost, the other futures know the reason.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    });
    let mut streams = Vec::new();
    let mut drain = Drain::No;
    let mut keep_alive = KeepAlive::new(http3.worker().config().limits.idle_timeout);
    let mut requests = 0_u64;
    let mut frame_count = FrameCount::default();
    let mut count_frames = interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
    count_frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // The frames of the control stream are short. If the client allows none, the stream waits and no other does.
        if !frames.is_empty() && write_now(&mut control, &mut frames).await.is_err() {
            frames.clear(); // the client has stopped the stream, or the connection is lost
        }
        let step = tokio::select! {
            biased;
            reason = must_close(http3.conn(), ConnState::close_reason) => Step::Close(reason),
            () = must_drain(http3.conn(), &mut ending), if drain == Drain::No => Step::Drain,
            () = drain.announced() => Step::FinalGoaway,
            () = drained(http3), if drain == Drain::Final => Step::Drained,
            () = keep_alive.due() => Step::KeepAlive,
            _ = count_frames.tick() => Step::CountFrames,
            () = &mut control_stopped => Step::Fail(http3.state.borrow().control_stopped()),
            error = poll_fn(|cx| poll_streams(http3, &mut streams, cx)) => Step::Fail(error),
            stream = quic.accept_uni() => stream.map_or_else(Step::Lost, Step::Uni),
            stream = quic.accept_bi() => stream.map_or_else(Step::Lost, |(sending, receiving)| {
                Step::Request(sending, receiving)
            }),
        };
        match step {
            Step::Request(sending, receiving) => {
                begin_request(http3, sending, receiving, drain);
                requests += 1;
                keep_alive.arm();
            }
            Step::Uni(stream) => {
                let now_ms = http3.now_ms();
                if let Err(error) = http3.state.borrow_mut().begin_uni(now_ms) {
                    return http3.fail(error);
                }
                streams.push(ClientStream {
                    stream,
                    state: UniStream::default(),
                });
            }
            Step::CountFrames => {
                let max = http3.worker().config().limits.h2_window_updates_max;
                if let Err(error) = frame_count.check(&quic.stats(), requests, max.get()) {
                    return http3.fail(error);
                }
            }
            Step::Drain => {
                http3.state.borrow_mut().push_first_goaway(&mut frames);
                drain = Drain::Announced(Instant::now() + quic.rtt().min(ROUND_TRIP_MAX));
            }
            Step::FinalGoaway => {
                http3.state.borrow_mut().push_final_goaway(&mut frames);
                drain = Drain::Final;
            }
            Step::KeepAlive => {
                let state = http3.state.borrow();
                if !state.has_requests() {
                    keep_alive.disarm();
                }
                // Otherwise the client accepts no frames.
                if frames.is_empty() {
                    state.push_keep_alive(&mut frames);
                }
            }
            Step::Drained => return http3.close(ErrorCode::H3_NO_ERROR, ""),
            Step::Close(reason) => return close(http3, &mut control, reason).await,
            Step::Fail(error) => return http3.fail(error),
            Step::Lost(error) => return record_lost(http3, &error),
        }
    }
}

/// Writes what the client's flow control allows.
async fn write_now(
    control: &mut SendStream,
    frames: &mut Vec<u8>,
) -> Result<(), quinn::WriteError> {
    let written = poll_fn(|cx| {
        let polled = pin!(control.write(frames)).poll(cx);
        Poll::Ready(match polled {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(0),
        })
    });
    frames.drain(..written.await?);
    Ok(())
}

/// Begins the request of a stream, or rejects it.
fn begin_request(
    http3: &Rc<Http3>,
    mut sending: SendStream,
    mut receiving: RecvStream,
    drain: Drain,
) {
    let id = StreamId(VarInt::from(sending.id()).into_inner());
    let worker = http3.worker();
    match http3.begin_request(id) {
        Some(parser) => {
            let request = request::run(Rc::clone(http3), id, parser, sending, receiving);
            worker.connection_tasks.spawn_abortable(request);
        }
        None => {
            if drain != Drain::Final {
                worker.counters.h3_refused_streams.increment();
            }
            _ = sending.reset(varint(ErrorCode::H3_REQUEST_REJECTED));
            _ = receiving.stop(varint(ErrorCode::H3_REQUEST_REJECTED));
        }
    }
}

/// A unidirectional stream of the client.
struct ClientStream {
    stream: RecvStream,
    state: UniStream,
}

/// Reads the unidirectional streams. Resolves at an error of the client.
fn poll_streams(
    http3: &Http3,
    streams: &mut Vec<ClientStream>,
    cx: &mut Context<'_>,
) -> Poll<ConnectionError> {
    let mut at = 0;
    while at < streams.len() {
        match poll_stream(http3, &mut streams[at], cx) {
            Poll::Pending => at += 1,
            Poll::Ready(Ok(true)) => {
                // Other tasks run before the next bytes are read.
                cx.waker().wake_by_ref();
                at += 1;
            }
            Poll::Ready(Ok(false)) => _ = streams.swap_remove(at),
            Poll::Ready(Err(error)) => return Poll::Ready(error),
        }
    }
    Poll::Pending
}

/// Reads the next bytes of a unidirectional stream. Returns false if it has ended.
fn poll_stream(
    http3: &Http3,
    client: &mut ClientStream,
    cx: &mut Context<'_>,
) -> Poll<Result<bool, ConnectionError>> {
    let chunk = pin!(client.stream.read_chunk(CHUNK_BYTES_MAX, true)).poll(cx);
    let mut bytes = match chunk {
        Poll::Pending => return Poll::Pending,
        Poll::Ready(Ok(Some(chunk))) => chunk.bytes,
        Poll::Ready(Ok(None) | Err(ReadError::Reset(_))) => {
            let ended = http3.state.borrow().finish_uni(&client.state);
            return Poll::Ready(ended.map(|()| false));
        }
        // The connection is lost.
        Poll::Ready(Err(_)) => return Poll::Ready(Ok(false)),
    };
    let now_ms = http3.now_ms();
    let mut state = http3.state.borrow_mut();
    while let Some(event) = state.receive_uni(&mut client.state, &mut bytes, now_ms)? {
        match event {
            UniEvent::Settings(settings) => http3.settings.set(settings),
            UniEvent::Unknown => {
                let code = varint(ErrorCode::H3_STREAM_CREATION_ERROR);
                _ = client.stream.stop(code);
                return Poll::Ready(Ok(false));
            }
        }
    }
    Poll::Ready(Ok(true))
}

/// Resolves when the worker closes the connection for a reason that `reason_of` returns.
async fn must_close(
    conn: &ConnState,
    reason_of: fn(&ConnState) -> Option<CloseReason>,
) -> CloseReason {
    poll_fn(|cx| {
        conn.register_task(cx);
        reason_of(conn).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Resolves when the connection must accept no further request.
async fn must_drain(conn: &ConnState, ending: &mut watch::Receiver<()>) {
    let mut ended = pin!(ending.changed());
    poll_fn(|cx| match conn.is_draining() {
        true => Poll::Ready(()),
        false => ended.as_mut().poll(cx).map(drop),
    })
    .await;
}

/// Resolves when all requests have ended after the final GOAWAY.
async fn drained(http3: &Http3) {
    while !http3.state.borrow().is_drained() {
        http3.request_ended.notified().await;
    }
}

/// Closes the connection for a reason of the edge. Its GOAWAY says which requests were not served.
async fn close(http3: &Http3, control: &mut SendStream, reason: CloseReason) {
    http3.worker().counters.closed[reason].increment();
    let mut frames = Vec::new();
    http3.state.borrow_mut().push_final_goaway(&mut frames);
    if !frames.is_empty() {
        _ = write_now(control, &mut frames).await;
        // The transport sends the frame before the connection closes.
        tokio::task::yield_now().await;
    }
    http3.close(ErrorCode::H3_NO_ERROR, "");
}

/// Counts a connection that the transport has closed.
fn record_lost(http3: &Http3, error: &quinn::ConnectionError) {
    let reason = match error {
        quinn::ConnectionError::TimedOut => CloseReason::Idle,
        quinn::ConnectionError::TransportError(_) => CloseReason::Protocol,
        // A client may disconnect at any time.
        _ => return,
    };
    tracing::debug!(peer = %http3.client.peer, %error, "a QUIC connection ended");
    http3.worker().counters.closed[reason].increment();
}

/// The memory of a connection in the transport: its state, its keys, and the datagrams that it is making.
const QUIC_BYTES: u64 = 32 << 10;

/// Control frames are sent before responses.
const CONTROL_PRIORITY: i32 = i32::MAX;

/// The most bytes of a unidirectional stream that are read at once.
const CHUNK_BYTES_MAX: usize = 4 << 10;

/// The longest wait between the two GOAWAY frames.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(1);
