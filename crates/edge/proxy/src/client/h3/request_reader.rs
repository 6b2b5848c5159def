//! Reads a request from its stream: the head first, then content and trailers.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use edgeward_h3::{Error, ErrorCode, RequestEvent, RequestHead, RequestStream};
use http::Method;
use http_body::{Body, Frame, SizeHint};
use quinn::{ReadError, RecvStream};

use super::state::{Http3, varint};
use crate::exchange::{BodyError, Holding};

/// The request of one stream.
pub(super) struct RequestReader {
    http3: Rc<Http3>,
    stream: RecvStream,
    parser: RequestStream,
    /// Bytes that have arrived and were not parsed.
    input: Bytes,
    /// An event that was read before its turn.
    next: Option<RequestEvent>,
    /// The bytes of the content that must still arrive, if the head states them.
    content_left: Option<u64>,
    /// True if the request is complete.
    has_ended: bool,
    /// True while the receive window is charged for this request.
    is_charged: bool,
    /// The charge for an incomplete frame.
    held: Holding,
    /// Where a fault is reported, so that the response is not sent.
    fault: Rc<Cell<Option<ErrorCode>>>,
}

/// The reason why a request cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFault {
    /// The client has violated a rule.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The client has reset the stream, or the connection is lost.
    #[error("the client has cancelled the request")]
    Cancelled,
    /// The head did not arrive in time.
    #[error("the head of the request did not arrive in time")]
    Late,
}

impl RequestReader {
    pub(super) fn new(http3: &Rc<Http3>, stream: RecvStream, parser: RequestStream) -> Self {
        Self {
            stream,
            parser,
            input: Bytes::new(),
            next: None,
            content_left: None,
            has_ended: false,
            is_charged: false,
            held: http3.conn().holding(0),
            http3: Rc::clone(http3),
            fault: Rc::default(),
        }
    }

    /// Returns the place where a fault in the content is reported.
    pub(super) fn fault(&self) -> Rc<Cell<Option<ErrorCode>>> {
        Rc::clone(&self.fault)
    }

    /// Reads the head, and then the first part of the content if it has arrived. A GET or HEAD without Content-Length
    /// is read to its end, which a client may send in a datagram of its own.
    pub(super) async fn head(&mut self, timeout: Duration) -> Result<Box<RequestHead>, ReadFault> {
        let reading = async {
            let first = poll_fn(|cx| self.poll_event(cx)).await?;
            let Some(RequestEvent::Head(head)) = first else {
                unreachable!("a request begins with its head");
            };
            self.content_left = head.content_length;
            let is_bodiless =
                matches!(head.method, Method::GET | Method::HEAD) && head.content_length.is_none();
            poll_fn(|cx| match self.poll_event(cx) {
                Poll::Pending if !is_bodiless => Poll::Ready(Ok(())),
                polled => polled.map_ok(|event| self.next = event),
            })
            .await?;
            // From now on the window may fill while nothing reads the content.
            self.charge_window();
            Ok(head)
        };
        match tokio::time::timeout(timeout, reading).await {
            Ok(head) => head,
            Err(_) => Err(ReadFault::Late),
        }
    }

    /// Reads the next event. `None` is the end of the request.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<RequestEvent>, ReadFault>> {
        loop {
            if let Some(event) = self.next.take() {
                return Poll::Ready(Ok(Some(event)));
            }
            if self.has_ended {
                return Poll::Ready(Ok(None));
            }
            if let Some(event) = self.parser.receive(&mut self.input)? {
                return Poll::Ready(Ok(Some(event)));
            }
            let Poll::Ready(chunk) = self.poll_chunk(cx) else {
                self.held.set(self.parser.buffered_bytes() as u64);
                self.charge_window();
                return Poll::Pending;
            };
            match chunk {
                Ok(Some(bytes)) => {
                    self.http3.record_read(bytes.len());
                    self.input = bytes;
                }
                Ok(None) => {
                    self.parser.finish()?;
                    self.end();
                }
                Err(_) => return Poll::Ready(Err(ReadFault::Cancelled)),
            }
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        // The future has no state of its own, so it may be dropped.
        let chunk = ready!(pin!(self.stream.read_chunk(CHUNK_BYTES_MAX, true)).poll(cx))?;
        Poll::Ready(Ok(chunk.map(|chunk| chunk.bytes)))
    }

    /// Charges the receive window until the request is complete.
    fn charge_window(&mut self) {
        if !self.has_ended && !self.is_charged {
            self.is_charged = true;
            self.http3.begin_incomplete();
        }
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.held.set(0);
        if std::mem::take(&mut self.is_charged) {
            self.http3.end_incomplete();
        }
    }

    /// Asks the client to stop sending.
    pub(super) fn stop(&mut self, code: ErrorCode) {
        if !self.has_ended {
            // Fails if the client has reset the stream.
            _ = self.stream.stop(varint(code));
            self.end();
        }
    }
}

impl Drop for RequestReader {
    /// The response needs no more content (RFC 9114 §4.1).
    fn drop(&mut self) {
        self.stop(ErrorCode::H3_NO_ERROR);
    }
}

impl Body for RequestReader {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let fault = match ready!(self.poll_event(cx)) {
            Ok(None) => return Poll::Ready(None),
            Ok(Some(RequestEvent::Data(bytes))) => {
                if let Some(left) = &mut self.content_left {
                    // The parser refuses more content than the head states.
                    *left -= bytes.len() as u64;
                }
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Ok(Some(RequestEvent::Trailers(trailers))) => {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            Ok(Some(RequestEvent::Head(_))) => unreachable!("a request has one head"),
            Err(fault) => fault,
        };
        let code = match &fault {
            ReadFault::Refused(error) => error.code(),
            ReadFault::Cancelled | ReadFault::Late => ErrorCode::H3_REQUEST_CANCELLED,
        };
        if let ReadFault::Refused(Error::Connection(error)) = &fault {
            self.http3.fail(*error);
        }
        self.fault.set(Some(code));
        self.stop(code);
        Poll::Ready(Some(Err(fault.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended && self.next.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (self.is_end_stream(), self.content_left) {
            (true, _) => SizeHint::with_exact(0),
            (false, Some(left)) => SizeHint::with_exact(left),
            (false, None) => SizeHint::default(),
        }
    }
}

/// The most bytes that are read at once.
const CHUNK_BYTES_MAX: usize = 64 << 10;
