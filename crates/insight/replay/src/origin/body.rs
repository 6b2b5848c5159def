//! Generates a response body while it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::stats::OriginStats;
use crate::pattern::Pattern;

/// The body of a response: bytes of an object, a text, or empty.
#[derive(Debug)]
pub(super) enum OriginBody {
    Empty,
    Text(Bytes),
    Object {
        pattern: Pattern,
        /// The offset in the object of the next byte to send.
        at: u64,
        /// The offset in the object after the last byte to send.
        end: u64,
        /// If false, hyper does not learn the size and sends the body in chunks.
        declares_size: bool,
        stats: Arc<OriginStats>,
    },
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Self::Empty => return Poll::Ready(None),
            Self::Text(text) => {
                let text = std::mem::take(text);
                *self = Self::Empty;
                text
            }
            Self::Object { at, end, .. } if at == end => return Poll::Ready(None),
            Self::Object {
                pattern,
                at,
                end,
                stats,
                ..
            } => {
                let len = FRAME_BYTES.min(usize::try_from(*end - *at).unwrap_or(usize::MAX));
                let mut frame = Vec::new();
                pattern.append(*at, len, &mut frame);
                *at += len as u64;
                stats.add_body_bytes(len as u64);
                Bytes::from(frame)
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Text(_) => false,
            Self::Object { at, end, .. } => at == end,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Object {
                declares_size: false,
                ..
            } => SizeHint::default(),
            Self::Object { at, end, .. } => SizeHint::with_exact(end - at),
        }
    }
}

/// The number of bytes that are generated at a time. These bytes fit into the processor's L2 cache, from which the
/// kernel copies them. Larger frames would not reduce the number of writes enough to matter.
const FRAME_BYTES: usize = 128 << 10;
