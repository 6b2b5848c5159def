//! [`HyperBody`], the body of a request that hyper reads.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::exchange::{BodyError, ConnState};
use crate::rt::tasks::TaskSet;

/// The body of a request that hyper reads. If it is dropped before its end over HTTP/2, its rest is read and discarded,
/// up to [`DISCARDED_BYTES_MAX`] and for at most [`DISCARD_TIME_MAX`].
///
/// hyper would send RST_STREAM with NO_ERROR right behind the response (RFC 9113 §8.1). Some clients, such as curl
/// before version 8, then report a failure in place of a response that they have received. Over HTTP/1.1 hyper discards
/// the rest, or the connection lingers.
pub(super) struct HyperBody {
    incoming: Option<Incoming>,
    /// For HTTP/2: the tasks and the connection that discard the rest.
    discarding: Option<(TaskSet, Rc<ConnState>)>,
}

impl HyperBody {
    /// Returns the body of an HTTP/1.1 request.
    pub(super) fn of_h1(incoming: Incoming) -> Self {
        Self {
            incoming: Some(incoming),
            discarding: None,
        }
    }

    /// Returns the body of an HTTP/2 request.
    pub(super) fn of_h2(incoming: Incoming, tasks: &TaskSet, conn: &Rc<ConnState>) -> Self {
        Self {
            incoming: Some(incoming),
            discarding: Some((tasks.clone(), Rc::clone(conn))),
        }
    }

    fn incoming(&self) -> &Incoming {
        self.incoming.as_ref().expect(PRESENT)
    }
}

impl Body for HyperBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let incoming = Pin::new(self.incoming.as_mut().expect(PRESENT));
        incoming.poll_frame(cx).map_err(BodyError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming().size_hint()
    }
}

impl Drop for HyperBody {
    fn drop(&mut self) {
        let Some(incoming) = self.incoming.take() else {
            return;
        };
        // A body that has panicked is not continued.
        if let Some((tasks, conn)) = self.discarding.take()
            && !incoming.is_end_stream()
            && !std::thread::panicking()
        {
            let in_flight = conn.begin_request();
            tasks.spawn(|member| async move {
                _ = tokio::time::timeout(DISCARD_TIME_MAX, discard(incoming, in_flight.conn()))
                    .await;
                drop((member, in_flight));
            });
        }
    }
}

/// Reads a body to its end, to an error, or up to the limit of bytes.
async fn discard(mut incoming: Incoming, conn: &ConnState) {
    let mut left = DISCARDED_BYTES_MAX;
    while left > 0 {
        match poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                conn.record_content_read(bytes as u64);
                left = left.saturating_sub(bytes);
            }
            Some(Err(_)) | None => return,
        }
    }
}

/// The limits of connections that linger over HTTP/1.1.
const DISCARDED_BYTES_MAX: usize = 4 << 20;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(2);

const PRESENT: &str = "the body is present until it is dropped";
