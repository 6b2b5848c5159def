//! Server-sent events (HTML Standard §9.2): one text for all clients that follow it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Publishes the newest version of a text to a limited number of streams.
///
/// A stream keeps no queue: a client that reads slowly misses versions, and gets the newest one when it reads again.
/// The server closes the connection of a client that reads nothing, as for all responses.
#[derive(Debug)]
pub struct Events {
    /// `None` after the end.
    newest: watch::Sender<Option<Bytes>>,
    permits: Arc<Semaphore>,
    streams_max: usize,
}

impl Events {
    /// Returns events for at most `streams_max` streams.
    pub fn new(streams_max: usize) -> Self {
        Self {
            newest: watch::Sender::new(Some(Bytes::new())),
            permits: Arc::new(Semaphore::new(streams_max)),
            streams_max,
        }
    }

    /// Returns a stream of the versions that are published from now on. `None` if the maximum number of streams is
    /// open, or after the end.
    pub fn follow(&self) -> Option<EventStream> {
        if self.newest.borrow().is_none() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(EventStream {
            next: next(self.newest.subscribe()),
            _permit: permit,
        })
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams_max - self.permits.available_permits()
    }

    /// Sends a text without line breaks, such as JSON, to all streams.
    pub fn publish(&self, text: &str) {
        debug_assert!(
            !text.contains(['\n', '\r']),
            "a line break would end the event"
        );
        self.newest
            .send_replace(Some(Bytes::from(format!("data: {text}\n\n"))));
    }

    /// Ends all streams, so that a server that stops need not wait for them.
    pub fn end(&self) {
        self.newest.send_replace(None);
    }
}

/// The body of a response: a stream of events. It ends with its [`Events`].
pub struct EventStream {
    next: NextEvent,
    /// The place among the streams.
    _permit: OwnedSemaphorePermit,
}

/// The next version, with the receiver of those after it. `None` after the end.
type NextEvent =
    Pin<Box<dyn Future<Output = Option<(Bytes, watch::Receiver<Option<Bytes>>)>> + Send>>;

fn next(mut newest: watch::Receiver<Option<Bytes>>) -> NextEvent {
    Box::pin(async move {
        newest.changed().await.ok()?;
        let event = newest.borrow_and_update().clone()?;
        Some((event, newest))
    })
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventStream")
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = ready!(self.next.as_mut().poll(cx));
        Poll::Ready(event.map(|(event, newest)| {
            self.next = next(newest);
            Ok(Frame::data(event))
        }))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn read(stream: &mut EventStream) -> Option<Bytes> {
        let frame = stream.frame().await?;
        frame.expect("an event cannot fail").into_data().ok()
    }

    #[tokio::test]
    async fn a_stream_gets_the_newest_text_and_ends_with_its_events() {
        let events = Events::new(1);
        events.publish("before");
        let mut stream = events.follow().expect("the stream is the first one");
        events.publish("1");
        events.publish("2");
        assert_eq!(
            read(&mut stream).await.as_deref(),
            Some(&b"data: 2\n\n"[..])
        );
        events.publish("3");
        assert_eq!(
            read(&mut stream).await.as_deref(),
            Some(&b"data: 3\n\n"[..])
        );
        events.end();
        assert_eq!(read(&mut stream).await, None);
        drop(stream);
        assert!(events.follow().is_none());
    }

    #[test]
    fn a_stream_beyond_the_maximum_is_refused_until_another_ends() {
        let events = Events::new(2);
        let streams = [events.follow(), events.follow()];
        assert!(streams.iter().all(Option::is_some));
        assert_eq!(events.streams(), 2);
        assert!(events.follow().is_none());
        drop(streams);
        assert_eq!(events.streams(), 0);
        assert!(events.follow().is_some());
    }
}
