//! A connection to the origin.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::header::HeaderValue;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, Sleep};

use crate::exchange::partial_head::PartialHead;
use crate::origin::connect::OriginStream;

/// A connection to the origin, idle or in use by one exchange. It is boxed, because each exchange moves it several
/// times.
pub(in crate::origin) struct Connection {
    pub(super) stream: Box<dyn OriginStream>,
    /// Bytes that were read and not parsed yet.
    pub(super) inbox: BytesMut,
    /// The progress of parsing the head at the start of the inbox.
    pub(super) partial: PartialHead,
    /// The interim responses that may still come before the final response.
    pub(super) interims_left: u32,
    /// The values of `Link` of the 103 responses to the current request.
    pub(super) early_links: Vec<HeaderValue>,
    /// The number of bytes to read at a time: the size of the last body, because the next body is often similar.
    pub(super) read_bytes: usize,
    /// The timer for response heads. It is kept for the next request, because a reset costs less than a new timer.
    pub(super) timer: Pin<Box<Sleep>>,
}

impl Connection {
    pub(in crate::origin) fn new(stream: Box<dyn OriginStream>) -> Box<Self> {
        Box::new(Self {
            stream,
            inbox: BytesMut::new(),
            partial: PartialHead::default(),
            interims_left: INTERIM_MAX,
            early_links: Vec::new(),
            read_bytes: READ_BYTES_MIN,
            timer: Box::pin(tokio::time::sleep_until(Instant::now())),
        })
    }

    /// Returns the stream. Must only be called if the connection [is quiet](Self::is_quiet).
    pub(in crate::origin) fn into_stream(self) -> Box<dyn OriginStream> {
        self.stream
    }

    /// Returns true if no bytes have arrived since the last response, and the stream has not ended.
    pub(in crate::origin) fn is_quiet(&mut self) -> bool {
        self.inbox.is_empty() && self.stream.is_quiet()
    }

    /// Reads available bytes to the inbox. `reserve_bytes` is about the most bytes to read.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        reserve_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        self.inbox.reserve(reserve_bytes);
        // Dropping the pending future loses no bytes, because `read_buf` has not read any.
        pin!(self.stream.read_buf(&mut self.inbox)).poll(cx)
    }
}

/// The bounds of the bytes of one read. A small response fits the minimum.
pub(super) const READ_BYTES_MIN: usize = 8 << 10;
pub(super) const READ_BYTES_MAX: usize = 64 << 10;

/// The most interim responses before a final response. RFC 9110 §15.2 allows any number.
pub(super) const INTERIM_MAX: u32 = 16;
