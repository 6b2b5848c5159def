//! Sends the response of a request on its stream.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use edgeward_h3::{
    ErrorCode, FrameType, RequestEnd, StreamId, push_frame_head, push_response, push_trailers,
    response_bytes,
};
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body as _, Frame};
use quinn::{SendStream, Written};
use tokio::time::Instant;

use super::state::{Http3, varint};
use crate::cache::pinned::PinnedPiece;
use crate::config::LimitsConfig;
use crate::exchange::InFlight;
use crate::path::body::EdgeBody;
use crate::path::delivery::Delivery;
use crate::path::sweep::record_slow_response;
use crate::path::worker::Worker;

/// The sending direction of a request's stream. The request ends when this value is dropped. A response that is not
/// complete is then reset.
pub(super) struct Responder {
    http3: Rc<Http3>,
    id: StreamId,
    stream: SendStream,
    /// The rank among the responses of the connection, once it is set.
    rank: Option<i32>,
    /// The bytes that the transport has accepted.
    written_bytes: u64,
    unacknowledged: VecDeque<SentPiece>,
    /// True if the body has a delivery of its own.
    is_body_watched: bool,
    /// Makes the sweep watch the client, which has made the response wait. The worker sweeps its own deliveries.
    delivery: Option<(Rc<Delivery>, Rc<Worker>)>,
    is_finished: bool,
    /// The code of a reset.
    code: ErrorCode,
    end: RequestEnd,
}

/// A piece of a body that the client has perhaps not acknowledged, so that the transport keeps it.
struct SentPiece {
    /// The position in the stream after the piece.
    end: u64,
    _pinned: Rc<PinnedPiece>,
}

/// The reason why a response is not sent to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFault {
    /// The client has cancelled the request, or the connection is lost.
    Cancelled,
    /// The body has ended early, the client accepts no head of this size, or no byte for too long.
    Unsent,
}

impl Responder {
    pub(super) fn new(http3: &Rc<Http3>, id: StreamId, stream: SendStream) -> Self {
        Self {
            http3: Rc::clone(http3),
            id,
            stream,
            rank: None,
            written_bytes: 0,
            unacknowledged: VecDeque::new(),
            is_body_watched: false,
            delivery: None,
            is_finished: false,
            code: ErrorCode::H3_INTERNAL_ERROR,
            end: RequestEnd::Complete,
        }
    }

    /// Sets the code of the reset of an incomplete response.
    pub(super) fn set_code(&mut self, code: ErrorCode) {
        self.code = code;
    }

    /// Records that the client has violated a rule: the response is reset with `code`, and counts as one that the
    /// client has reset. A client that makes the edge reset streams costs as much (CVE-2025-8671).
    pub(super) fn set_violated(&mut self, code: ErrorCode) {
        self.code = code;
        self.end = RequestEnd::Cancelled;
    }

    /// Records that the client has cancelled the request.
    pub(super) fn set_cancelled(&mut self) {
        self.set_violated(ErrorCode::H3_REQUEST_CANCELLED);
    }

    /// Resolves when the client has cancelled the request, or the connection is lost.
    pub(super) fn cancelled(&self) -> impl Future<Output = ()> + 'static {
        let stopped = self.stream.stopped();
        async move {
            _ = stopped.await;
        }
    }

    /// Sends a response without content.
    pub(super) async fn send_status(&mut self, status: StatusCode) -> Result<InFlight, SendFault> {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, self.http3.worker().http_date());
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        let in_flight = self.http3.conn().begin_request();
        self.write(&mut [head_frame(status, &headers).into()])
            .await?;
        self.finish();
        Ok(in_flight)
    }

    /// Sends a response. The returned value counts the request as under way.
    pub(super) async fn send(
        &mut self,
        response: Response<EdgeBody>,
    ) -> Result<InFlight, SendFault> {
        let (mut parts, body) = response.into_parts();
        self.is_body_watched = body.is_watched();
        let mut body = pin!(body);
        let date = || self.http3.worker().http_date();
        parts.headers.entry(DATE).or_insert_with(date);
        let mut length_left = body.size_hint().exact();
        if let (Some(length), false) = (length_left, body.is_end_stream()) {
            let length = || HeaderValue::from(length);
            parts.headers.entry(CONTENT_LENGTH).or_insert_with(length);
        }
        self.check_head(&parts.headers)?;
        let mut frames = head_frame(parts.status, &parts.headers);
        if let (Some(length), false) = (length_left, body.is_end_stream()) {
            push_frame_head(&mut frames, FrameType::DATA, length);
        }
        let mut cancelled = pin!(self.cancelled());
        loop {
            let next = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
                // Bytes that are ready do not wait for the next piece.
                Poll::Pending if !frames.is_empty() => Poll::Ready(Ok(None)),
                Poll::Pending => cancelled
                    .as_mut()
                    .poll(cx)
                    .map(|()| Err(SendFault::Cancelled)),
                Poll::Ready(frame) => Poll::Ready(Ok(Some(frame))),
            });
            let frame = match next.await? {
                None => {
                    self.write_frames(&mut frames).await?;
                    continue;
                }
                Some(None) => break,
                Some(Some(Ok(frame))) => frame,
                Some(Some(Err(_))) => return Err(SendFault::Unsent),
            };
            match frame.into_data().map_err(Frame::into_trailers) {
                Ok(piece) => {
                    let (bytes, pinned) = piece.into_parts();
                    let length = bytes.len() as u64;
                    match &mut length_left {
                        Some(left) => *left = left.checked_sub(length).ok_or(SendFault::Unsent)?,
                        None => push_frame_head(&mut frames, FrameType::DATA, length),
                    }
                    self.write_piece(&mut frames, bytes, pinned).await?;
                }
                Err(Ok(trailers)) => {
                    let mut section = Vec::new();
                    push_trailers(&mut section, &trailers);
                    push_headers_frame(&mut frames, &section);
                }
                Err(Err(_)) => {} // Bodies have no other frames.
            }
        }
        if length_left.is_some_and(|left| left > 0) {
            return Err(SendFault::Unsent);
        }
        self.write_frames(&mut frames).await?;
        self.finish();
        // Before the body is dropped, so that the connection never seems to be idle.
        Ok(self.http3.conn().begin_request())
    }

    /// Sends the head of the response that opens a tunnel.
    pub(super) async fn send_tunnel_head(
        &mut self,
        status: StatusCode,
        mut headers: HeaderMap,
    ) -> Result<(), SendFault> {
        let date = || self.http3.worker().http_date();
        headers.entry(DATE).or_insert_with(date);
        self.check_head(&headers)?;
        self.write(&mut [head_frame(status, &headers).into()])
            .await?;
        self.delivery = None; // The sweep of tunnels watches the client from now on.
        Ok(())
    }

    fn check_head(&self, headers: &HeaderMap) -> Result<(), SendFault> {
        let head_bytes_max = self.http3.settings.get().field_section_bytes_max;
        if head_bytes_max.is_some_and(|max| response_bytes(headers) > max) {
            tracing::debug!(peer = %self.http3.client.peer, "a client accepts no head of this size");
            return Err(SendFault::Unsent);
        }
        Ok(())
    }

    /// Ends a request whose response was sent, or was not.
    pub(super) async fn end(&mut self, sent: Result<InFlight, SendFault>) {
        match sent {
            Ok(_in_flight) => self.acknowledged().await,
            Err(SendFault::Cancelled) => self.set_cancelled(),
            Err(SendFault::Unsent) => {}
        }
    }

    /// Waits until the client has acknowledged the whole response, refuses it, or takes too long: the minimum rate
    /// applies to the bytes, and the response ends if the transport sends none for `limits.body_idle_timeout`.
    async fn acknowledged(&mut self) {
        self.end_client_turn();
        let mut stopped = pin!(self.stream.stopped());
        let (timeout, deadline) = {
            let worker = self.http3.worker();
            let limits = &worker.config().limits;
            let time = acknowledgement_time(self.written_bytes, limits);
            let deadline = time.and_then(|time| Instant::now().checked_add(time));
            (limits.body_idle_timeout, deadline)
        };
        let mut sent_before = None;
        let is_slow = loop {
            match tokio::time::timeout(timeout, stopped.as_mut()).await {
                Ok(Ok(None)) => break false,
                Ok(_) => {
                    self.end = RequestEnd::Cancelled;
                    break false;
                }
                Err(_) => {}
            }
            // The transport sends only as much as the client acknowledges.
            let sent = self.http3.quic.stats().frame_tx.stream;
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if is_late || sent_before.replace(sent) == Some(sent) {
                break true;
            }
        };
        if is_slow {
            self.is_finished = false; // so that the stream is reset
            let worker = self.http3.worker();
            record_slow_response(&worker, worker.now());
        }
    }

    /// Records that the response waits for its client. The sweep would close the connection after the timeout of the
    /// response, and with it all other requests. The wait of one stream has a timeout of its own instead.
    fn end_client_turn(&self) {
        self.http3.conn().end_client_turn();
    }

    /// Writes frames and the piece that follows them.
    async fn write_piece(
        &mut self,
        frames: &mut Vec<u8>,
        piece: Bytes,
        pinned: Option<Rc<PinnedPiece>>,
    ) -> Result<(), SendFault> {
        if let Some(pinned) = pinned {
            let end = self.written_bytes + frames.len() as u64 + piece.len() as u64;
            let piece = SentPiece {
                end,
                _pinned: pinned,
            };
            self.unacknowledged.push_back(piece);
        }
        match frames.is_empty() {
            true => self.write(&mut [piece]).await,
            false => {
                let frames = Bytes::from(std::mem::take(frames));
                self.write(&mut [frames, piece]).await
            }
        }
    }

    async fn write_frames(&mut self, frames: &mut Vec<u8>) -> Result<(), SendFault> {
        if frames.is_empty() {
            return Ok(());
        }
        self.write(&mut [std::mem::take(frames).into()]).await
    }

    /// Gives all bytes to the transport, which keeps them without a copy.
    async fn write(&mut self, mut pieces: &mut [Bytes]) -> Result<(), SendFault> {
        while !pieces.is_empty() {
            self.follow_priority();
            let written = self.write_some(pieces).await?;
            pieces = &mut pieces[written.chunks..];
            self.written_bytes += written.bytes as u64;
            self.http3
                .conn()
                .record_write(&Poll::Ready(Ok(written.bytes)));
            self.release_acknowledged();
        }
        Ok(())
    }

    /// Gives the bytes of a tunnel to the transport. Resolves when it has accepted all.
    pub(super) fn poll_write(
        &mut self,
        unsent: &mut Bytes,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendFault>> {
        while !unsent.is_empty() {
            self.follow_priority();
            let mut piece = [std::mem::take(unsent)];
            // The future has no state of its own, so it may be dropped.
            let polled = pin!(self.stream.write_chunks(&mut piece)).poll(cx);
            [*unsent] = piece;
            let Ok(written) = ready!(polled) else {
                self.set_cancelled();
                return Poll::Ready(Err(SendFault::Cancelled));
            };
            self.written_bytes += written.bytes as u64;
            self.http3
                .conn()
                .record_write(&Poll::Ready(Ok(written.bytes)));
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the transport as many bytes as it accepts. The client's flow control may block the stream: while it does,
    /// the minimum rate of responses applies, and the response ends after `limits.body_idle_timeout` without a byte.
    async fn write_some(&mut self, pieces: &mut [Bytes]) -> Result<Written, SendFault> {
        let stream = &mut self.stream;
        let tried = poll_fn(|cx| Poll::Ready(pin!(stream.write_chunks(pieces)).poll(cx)));
        let written = match tried.await {
            Poll::Ready(written) => written,
            Poll::Pending => {
                let timeout = self.begin_wait();
                let writing = self.stream.write_chunks(pieces);
                let Ok(written) = tokio::time::timeout(timeout, writing).await else {
                    let worker = self.http3.worker();
                    record_slow_response(&worker, worker.now());
                    return Err(SendFault::Unsent);
                };
                written
            }
        };
        let written = written.map_err(|_| SendFault::Cancelled)?;
        if let Some((delivery, worker)) = &self.delivery {
            delivery.record_piece(written.bytes as u64, worker.now());
        }
        Ok(written)
    }

    /// Begins to wait until the client accepts bytes. Returns the longest time.
    fn begin_wait(&mut self) -> Duration {
        self.end_client_turn();
        let worker = self.http3.worker();
        let timeout = worker.config().limits.body_idle_timeout;
        if !self.is_body_watched && self.delivery.is_none() {
            let delivery = Delivery::new_watched(&worker.deliveries, self.http3.conn(), None);
            self.delivery = Some((delivery, worker));
        }
        timeout
    }

    /// Releases the pieces that the client has acknowledged for certain: the transport accepts further bytes only while
    /// it keeps less than its window.
    fn release_acknowledged(&mut self) {
        let acknowledged = self.written_bytes.saturating_sub(SEND_WINDOW_BYTES);
        while let Some(piece) = self.unacknowledged.front()
            && piece.end <= acknowledged
        {
            self.unacknowledged.pop_front();
        }
    }

    /// Sends in the order of the priorities that the client states.
    fn follow_priority(&mut self) {
        let mut state = self.http3.state.borrow_mut();
        let rank = state.priorities().rank(self.id);
        if self.rank.replace(rank) != Some(rank) {
            _ = self.stream.set_priority(rank);
        }
    }

    /// Returns true if the response has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(super) fn finish(&mut self) {
        self.is_finished = true;
        self.delivery = None;
        // Fails if the client has stopped the stream, which `acknowledged` finds.
        _ = self.stream.finish();
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.is_finished {
            _ = self.stream.reset(varint(self.code));
        }
        self.http3.end_request(self.id, self.end);
    }
}

/// Returns the longest time in which a client may acknowledge a response of `written` bytes after the last one was
/// written. `None` without a minimum rate.
fn acknowledgement_time(written: u64, limits: &LimitsConfig) -> Option<Duration> {
    // The client has acknowledged all other bytes.
    let bytes = written.min(SEND_WINDOW_BYTES);
    let seconds = bytes.checked_div(limits.response_rate_min.bytes())?;
    Some(
        limits
            .body_idle_timeout
            .saturating_add(Duration::from_secs(seconds)),
    )
}

fn head_frame(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let mut section = Vec::with_capacity(SECTION_BYTES);
    push_response(&mut section, status, headers);
    let mut frame = Vec::with_capacity(section.len() + FRAME_HEAD_BYTES);
    push_headers_frame(&mut frame, &section);
    frame
}

fn push_headers_frame(frames: &mut Vec<u8>, section: &[u8]) {
    push_frame_head(frames, FrameType::HEADERS, section.len() as u64);
    frames.extend_from_slice(section);
}

/// The bytes of responses that a connection keeps until the client has acknowledged them: 160 Mbit/s at a round trip of
/// 100 ms.
pub(super) const SEND_WINDOW_BYTES: u64 = 2 << 20;

/// The size of most field sections.
const SECTION_BYTES: usize = 512;

/// The largest heads of a HEADERS frame and of a DATA frame together.
pub(super) const FRAME_HEAD_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use edgeward_types::ByteSize;

    use super::*;

    #[test]
    fn the_time_for_acknowledgements_is_that_of_a_client_at_the_minimum_rate() {
        let mut limits = LimitsConfig {
            body_idle_timeout: Duration::from_secs(60),
            response_rate_min: ByteSize(256),
            ..LimitsConfig::default()
        };
        let seconds = |bytes| acknowledgement_time(bytes, &limits).map(|time| time.as_secs());
        assert_eq!(seconds(100), Some(60));
        assert_eq!(seconds(2560), Some(70));
        assert_eq!(seconds(1 << 40), Some(60 + 8192));
        limits.response_rate_min = ByteSize(0);
        assert_eq!(acknowledgement_time(100, &limits), None);
    }
}
