//! Writes the responses to plain requests (see [`super::head`]) that are not hits in memory, without hyper.
//!
//! These requests take the same [request path](crate::path::serve()) as requests that hyper parses. A plain request
//! has no body, and the framing of its response is simple. hyper's state machines would only cost time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_store::disk::Piece;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, TRANSFER_ENCODING};
use http::{Method, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame};

use super::head_parts::HeadParts;
use super::outbox::Outbox;
use crate::exchange::canonical::RawHead;
use crate::exchange::{Client, RequestError};
use crate::path::body::EdgeBody;
use crate::path::lookup::Outcome;
use crate::path::worker::Worker;
use crate::path::{self, Serving};

/// The writer of one response.
pub(super) struct ResponseWriter {
    head_only: bool,
    stage: Stage,
    /// True if the connection ends with this response.
    closes: bool,
}

enum Stage {
    Waiting(Serving),
    Sending { body: EdgeBody, framing: Framing },
    Sent,
}

/// The framing of the body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
}

/// The result of filling the outbox.
pub(super) enum FillProgress {
    /// The outbox has bytes to write.
    Bytes,
    /// The response is complete.
    End { closes: bool },
}

impl ResponseWriter {
    /// Begins to serve the request in `head`. Returns `None` if the head is invalid or too large. The caller then
    /// passes the request to hyper, which refuses it. `outcome` is the result of the lookup, if the caller made one.
    pub(super) fn begin(
        worker: &Rc<Worker>,
        client: &Client,
        head: &Bytes,
        parts: &HeadParts,
        outcome: Option<Outcome>,
    ) -> Option<Self> {
        let limits = &worker.config().limits;
        if head.len() > limits.head_len_max() || parts.fields.len() > limits.headers_max.get() {
            return None;
        }
        let mut head = parts.read(head)?;
        head.interims = Some(client.conn.begin_interims());
        let serving = path::serve(worker, client, head, None, outcome);
        Some(Self {
            head_only: parts.head_only,
            stage: Stage::Waiting(serving),
            closes: parts.closes,
        })
    }

    /// Begins the error response to a request that the fast path refuses and does not pass to hyper.
    pub(super) fn refuse(
        worker: &Rc<Worker>,
        client: &Client,
        method: Method,
        error: &RequestError,
    ) -> Self {
        let head_only = method == Method::HEAD;
        let uri = Uri::from_static("/");
        let head = RawHead::new(method, uri, Version::HTTP_11, HeaderMap::new());
        Self {
            head_only,
            stage: Stage::Waiting(path::refuse(worker, client, head, error)),
            closes: false,
        }
    }

    /// Continues a response whose head and perhaps first body bytes are in the outbox. `bytes` bytes of `body` remain.
    pub(super) fn resume(mut body: EdgeBody, bytes: u64, closes: bool) -> Self {
        body.let_writer_count(); // response bytes are counted when the socket accepts them, not by `body`
        Self {
            head_only: false,
            stage: Stage::Sending {
                body,
                framing: Framing::Length(bytes),
            },
            closes,
        }
    }

    /// Ends the response early, because a part of the body cannot be sent.
    pub(super) fn cut(&mut self, worker: &Worker) {
        match &mut self.stage {
            Stage::Sending { body, .. } => body.cut(),
            Stage::Waiting(_) | Stage::Sent => worker.counters.disk_body_cut.increment(),
        }
    }

    /// Writes the next bytes to the outbox: interim responses (1xx), then the head and the body of the response.
    pub(super) fn poll_fill(
        &mut self,
        worker: &Worker,
        client: &Client,
        outbox: &mut Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<FillProgress>> {
        loop {
            match &mut self.stage {
                Stage::Waiting(serving) => {
                    let polled = Pin::new(serving).poll(cx);
                    if let Some(lines) = client.conn.take_interims() {
                        outbox.push_lines(&lines);
                        if polled.is_pending() {
                            return Poll::Ready(Ok(FillProgress::Bytes));
                        }
                    }
                    let Ok(response) = ready!(polled);
                    client.conn.end_interims();
                    self.closes |= client.conn.is_draining();
                    self.stage = self.send_head(worker, response, outbox);
                }
                Stage::Sending { body, framing } => {
                    let polled = if client.tls {
                        let frame = body.poll_unpinned(cx);
                        // Trailers are dropped: a plain request has no TE.
                        let bytes = |frame: Frame<Bytes>| frame.into_data().unwrap_or_default();
                        frame.map_ok(|frame| Piece::Bytes(bytes(frame)))
                    } else {
                        body.poll_piece(cx)
                    };
                    let Poll::Ready(next) = polled else {
                        // The head is sent although no byte of the body has arrived.
                        return if outbox.is_empty() {
                            Poll::Pending
                        } else {
                            Poll::Ready(Ok(FillProgress::Bytes))
                        };
                    };
                    match next {
                        Some(Ok(piece)) => {
                            if piece.is_empty() {
                                continue;
                            }
                            framing.put(piece, outbox)?;
                            outbox.set_memory(body.memory()); // the owner of the memory of the last piece
                            if *framing == Framing::Length(0) {
                                self.stage = Stage::Sent;
                            }
                            return Poll::Ready(Ok(FillProgress::Bytes));
                        }
                        Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                        None => {
                            framing.end(outbox)?;
                            self.stage = Stage::Sent;
                        }
                    }
                }
                Stage::Sent if outbox.is_empty() => {
                    return Poll::Ready(Ok(FillProgress::End {
                        closes: self.closes,
                    }));
                }
                Stage::Sent => return Poll::Ready(Ok(FillProgress::Bytes)),
            }
        }
    }

    /// Writes the head, and decides the framing of the body (RFC 9112 §6).
    fn send_head(
        &mut self,
        worker: &Worker,
        response: Response<EdgeBody>,
        outbox: &mut Outbox,
    ) -> Stage {
        let (parts, mut body) = response.into_parts();
        body.let_writer_count(); // response bytes are counted when the socket accepts them, not by `body`
        let status = parts.status;
        let headers = parts.headers;
        let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        outbox.push_status(status);
        let mut is_dated = false;
        for (name, value) in &headers {
            // The edge writes the fields of its own connection and framing.
            let is_framing = match *name {
                TRANSFER_ENCODING => true,
                CONNECTION => {
                    self.closes |= value.as_bytes().eq_ignore_ascii_case(b"close");
                    true
                }
                DATE => {
                    is_dated = true;
                    false
                }
                // For a HEAD and a 304 this is the length of the full response (RFC 9110 §8.6).
                CONTENT_LENGTH => !(self.head_only || bodiless) || status == StatusCode::NO_CONTENT,
                _ => false,
            };
            if !is_framing {
                outbox.push_field(name, value.as_bytes());
            }
        }
        if !is_dated {
            // RFC 9110 §6.6.1: a recipient with a clock adds `Date` to a message without it.
            outbox.push_field(&DATE, worker.http_date().as_bytes());
        }
        if self.closes {
            outbox.push_field(&CONNECTION, b"close");
        }
        let stage = if self.head_only || bodiless {
            Stage::Sent
        } else if let Some(length) = body.size_hint().exact() {
            let mut digits = itoa::Buffer::new();
            outbox.push_field(&CONTENT_LENGTH, digits.format(length).as_bytes());
            match length {
                0 => Stage::Sent,
                _ => Stage::Sending {
                    body,
                    framing: Framing::Length(length),
                },
            }
        } else {
            outbox.push_field(&TRANSFER_ENCODING, b"chunked");
            Stage::Sending {
                body,
                framing: Framing::Chunked,
            }
        };
        outbox.end_head();
        stage
    }
}

impl Framing {
    fn put(&mut self, piece: Piece, outbox: &mut Outbox) -> io::Result<()> {
        match self {
            Self::Length(left) => {
                // The client would parse the surplus bytes as the next response.
                let Some(rest) = left.checked_sub(piece.len()) else {
                    return Err(io::Error::other("body longer than Content-Length"));
                };
                *left = rest;
                outbox.push_piece(piece);
            }
            Self::Chunked => outbox.push_chunk(piece),
        }
        Ok(())
    }

    fn end(self, outbox: &mut Outbox) -> io::Result<()> {
        match self {
            Self::Length(0) => Ok(()),
            Self::Length(_) => Err(io::Error::other("body shorter than Content-Length")),
            Self::Chunked => {
                outbox.push_last_chunk();
                Ok(())
            }
        }
    }
}
