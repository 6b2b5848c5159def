//! [`RequestBody`], the body of a client's request, without the type of the codec that reads it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The error of a body that has not arrived completely.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a client's request. A codec of `client` supplies its frames.
pub(crate) enum RequestBody {
    Empty,
    Streaming(Pin<Box<dyn Body<Data = Bytes, Error = BodyError>>>),
}

impl RequestBody {
    /// Takes the body of a codec. A body that has ended already takes no memory.
    pub(crate) fn new(body: impl Body<Data = Bytes, Error = BodyError> + 'static) -> Self {
        match body.is_end_stream() {
            true => Self::Empty,
            false => Self::Streaming(Box::pin(body)),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Streaming(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streaming(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streaming(body) => body.size_hint(),
        }
    }
}
