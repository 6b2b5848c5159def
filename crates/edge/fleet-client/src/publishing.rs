//! The requests of clients that wait for the stream. A request is one message, or several if its texts are long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use edgeward_fleet::{PublishDone, PublishError};

/// The requests that wait, and their messages by the ids of the outbox.
#[derive(Default)]
pub(crate) struct Requests {
    messages: HashMap<u64, Message>,
    waiting: HashMap<u64, Request>,
    next: u64,
}

struct Message {
    payload: Bytes,
    request: u64,
}

struct Request {
    /// The messages that are not done.
    left: usize,
    error: Option<PublishError>,
    done: PublishDone,
}

impl Requests {
    /// Adds a request for these messages, whose ids `submit` returns. If a message is refused, the request fails as
    /// soon as the messages before it are done.
    pub(crate) fn add(
        &mut self,
        messages: Vec<Vec<u8>>,
        done: PublishDone,
        mut submit: impl FnMut() -> Result<u64, PublishError>,
    ) {
        let request = self.next;
        self.next += 1;
        let (mut left, mut error) = (0, None);
        for message in messages {
            match submit() {
                Ok(id) => {
                    let payload = message.into();
                    self.messages.insert(id, Message { payload, request });
                    left += 1;
                }
                Err(refused) => {
                    error = Some(refused);
                    break;
                }
            }
        }
        let waiting = Request { left, error, done };
        self.waiting.insert(request, waiting);
        self.finish(request);
    }

    /// Returns the payload of a message.
    pub(crate) fn payload(&self, id: u64) -> Option<Bytes> {
        self.messages
            .get(&id)
            .map(|message| message.payload.clone())
    }

    /// Ends a message, and its request after its last message.
    pub(crate) fn end(&mut self, id: u64, result: Result<(), PublishError>) {
        let Some(Message { request, .. }) = self.messages.remove(&id) else {
            return;
        };
        if let Some(waiting) = self.waiting.get_mut(&request) {
            waiting.left -= 1;
            waiting.error = waiting.error.or_else(|| result.err());
        }
        self.finish(request);
    }

    fn finish(&mut self, request: u64) {
        if self.waiting.get(&request).is_some_and(|r| r.left == 0)
            && let Some(Request { error, done, .. }) = self.waiting.remove(&request)
        {
            done(error.map_or(Ok(()), Err));
        }
    }
}

/// The bytes of the messages that wait, in the queue of the thread or for the stream.
#[derive(Debug)]
pub(crate) struct PendingBytes {
    used: AtomicUsize,
    max: usize,
}

/// Bytes that are free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    of: Arc<PendingBytes>,
    bytes: usize,
}

impl PendingBytes {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { used, max })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves bytes. Returns `None` if more than the bound would be in use.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.max);
        let added = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.ok().map(|_| Reserved {
            of: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_bytes_of_requests_are_bounded_until_they_are_done() {
        let pending = PendingBytes::new(100);
        let first = pending.reserve(60);
        assert!(pending.reserve(41).is_none());
        let second = pending.reserve(40);
        assert!(second.is_some());
        assert_eq!(pending.used(), 100);
        assert!(pending.reserve(1).is_none());
        drop(first);
        assert_eq!(pending.used(), 40);
        assert!(pending.reserve(60).is_some());
        assert!(pending.reserve(usize::MAX).is_none());
    }

    #[test]
    fn a_request_is_done_after_its_last_message_and_fails_with_any_of_them() {
        let (send, results) = mpsc::channel();
        let done = || {
            let send = send.clone();
            let done: PublishDone = Box::new(move |result| send.send(result).expect("received"));
            done
        };
        let mut requests = Requests::default();
        let mut ids = 0..;
        requests.add(vec![b"a".to_vec(), b"b".to_vec()], done(), || {
            ids.next().ok_or(PublishError::Busy)
        });
        assert_eq!(requests.payload(1).as_deref(), Some(&b"b"[..]));
        requests.end(1, Ok(()));
        assert!(results.try_recv().is_err());
        requests.end(0, Ok(()));
        assert_eq!(results.try_recv(), Ok(Ok(())));
        let mut one = 7..8;
        requests.add(vec![b"a".to_vec(), b"b".to_vec()], done(), || {
            one.next().ok_or(PublishError::Busy)
        });
        assert!(results.try_recv().is_err());
        requests.end(7, Ok(()));
        assert_eq!(results.try_recv(), Ok(Err(PublishError::Busy)));
        requests.add(vec![b"a".to_vec()], done(), || {
            Err(PublishError::Disconnected)
        });
        assert_eq!(results.try_recv(), Ok(Err(PublishError::Disconnected)));
        assert!(requests.messages.is_empty() && requests.waiting.is_empty());
    }
}
