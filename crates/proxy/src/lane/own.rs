//! A plain request whose answer is not in memory, served without hyper.
//!
//! The request's way through the edge is the common one, [`serve`](crate::request::serve); only its head is read here
//! and the response is written here. The end of a plain request is certain (it has no body), and so is how its
//! response must be framed, so hyper's two state machines have nothing to add but their cost.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri, Version};
use http_body::Body as _;

use super::Outbox;
use super::glance::FIELDS_MAX;
use crate::body::EdgeBody;
use crate::request::{self, Ask, ClientLink, Serving};
use crate::worker::Worker;

/// One request and what has become of it.
pub(super) struct Own {
    head_only: bool,
    stage: Stage,
    /// The connection ends with this response.
    closes: bool,
}

enum Stage {
    Waiting(Serving),
    Sending { body: EdgeBody, framing: Framing },
    Sent,
}

/// How the client knows the body's end (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked { first: bool },
}

/// What the outbox got.
pub(super) enum Put {
    /// Something to write.
    Bytes,
    /// Nothing more: the response is whole.
    End { closes: bool },
}

impl Own {
    /// Begins to serve the request in `head`, or leaves it to hyper, which knows how to refuse it.
    pub(super) fn begin(worker: &Rc<Worker>, link: &ClientLink, head: &Bytes) -> Option<Self> {
        let limits = &worker.config().limits;
        if head.len() > crate::connection::head_bytes_max(limits) {
            return None;
        }
        let ask = read(link, head, limits.headers_max.get())?;
        let head_only = ask.method == Method::HEAD;
        Some(Self {
            head_only,
            stage: Stage::Waiting(request::serve_bodiless(worker, link, ask)),
            closes: false,
        })
    }

    /// Puts into the outbox what the response has next.
    pub(super) fn poll_put(
        &mut self,
        worker: &Worker,
        link: &ClientLink,
        outbox: &mut Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Put>> {
        loop {
            match &mut self.stage {
                Stage::Waiting(serving) => {
                    let Ok(response) = ready!(Pin::new(serving).poll(cx));
                    self.closes = link.conn.is_draining() || says_close(response.headers());
                    self.stage = self.send_head(worker, response, outbox);
                }
                Stage::Sending { body, framing } => {
                    let polled = Pin::new(&mut *body).poll_frame(cx);
                    let Poll::Ready(next) = polled else {
                        // The head need not wait for a body that takes its time.
                        return if outbox.is_empty() {
                            Poll::Pending
                        } else {
                            Poll::Ready(Ok(Put::Bytes))
                        };
                    };
                    match next {
                        Some(Ok(frame)) => {
                            // Trailers were not asked for: a plain request has no TE.
                            let Ok(bytes) = frame.into_data() else {
                                continue;
                            };
                            if bytes.is_empty() {
                                continue;
                            }
                            framing.put(&bytes, outbox)?;
                            if *framing == Framing::Length(0) {
                                self.stage = Stage::Sent;
                            }
                            return Poll::Ready(Ok(Put::Bytes));
                        }
                        Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                        None => {
                            framing.end(outbox)?;
                            self.stage = Stage::Sent;
                        }
                    }
                }
                Stage::Sent if outbox.is_empty() => {
                    return Poll::Ready(Ok(Put::End {
                        closes: self.closes,
                    }));
                }
                Stage::Sent => return Poll::Ready(Ok(Put::Bytes)),
            }
        }
    }

    /// Writes the head down and finds how the body is to be framed (RFC 9112 §6).
    fn send_head(
        &self,
        worker: &Worker,
        response: Response<EdgeBody>,
        outbox: &mut Outbox,
    ) -> Stage {
        let (parts, body) = response.into_parts();
        let status = parts.status;
        let headers = parts.headers;
        let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        outbox.push_status(status);
        for (name, value) in &headers {
            // Ours to say, here and now.
            let is_framing = match *name {
                TRANSFER_ENCODING | CONNECTION => true,
                // Of a HEAD and a 304 the length is the whole response's (RFC 9110 §8.6).
                CONTENT_LENGTH => !(self.head_only || bodiless) || status == StatusCode::NO_CONTENT,
                _ => false,
            };
            if !is_framing {
                outbox.push_field(name, value.as_bytes());
            }
        }
        if !headers.contains_key(DATE) {
            // RFC 9110 §6.6.1: a recipient with a clock adds it to a message that it forwards.
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
                framing: Framing::Chunked { first: true },
            }
        };
        outbox.end_head();
        stage
    }
}

impl Framing {
    fn put(&mut self, bytes: &Bytes, outbox: &mut Outbox) -> io::Result<()> {
        match self {
            Self::Length(left) => {
                // The head has said how much comes; more would be read as the next response.
                let Some(rest) = left.checked_sub(bytes.len() as u64) else {
                    return Err(io::Error::other("a body longer than its head says"));
                };
                *left = rest;
            }
            Self::Chunked { first } => {
                outbox.push_chunk(bytes.len(), *first);
                *first = false;
            }
        }
        outbox.push_body(bytes);
        Ok(())
    }

    fn end(self, outbox: &mut Outbox) -> io::Result<()> {
        match self {
            Self::Length(0) => Ok(()),
            Self::Length(_) => Err(io::Error::other("a body shorter than its head says")),
            Self::Chunked { first } => {
                outbox.push_last_chunk(first);
                Ok(())
            }
        }
    }
}

/// The request in a head that was found to be plain. Nothing if it has more fields than are taken.
fn read(link: &ClientLink, head: &Bytes, fields_max: usize) -> Option<Ask> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let fields = &mut fields[..fields_max.min(FIELDS_MAX)];
    let mut request = httparse::Request::new(&mut []);
    request.parse_with_uninit_headers(head, fields).ok()?;
    let method = match request.method? {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        _ => return None,
    };
    let target = head.slice_ref(request.path?.as_bytes());
    let mut uri = http::uri::Parts::default();
    uri.path_and_query = Some(PathAndQuery::from_maybe_shared(target).ok()?);
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for field in request.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value)).ok()?;
        headers.append(name, value);
    }
    Some(Ask {
        method,
        uri: Uri::from_parts(uri).ok()?,
        version: Version::HTTP_11,
        headers,
        scheme: link.scheme(),
        peer: link.peer,
        peer_text: link.peer_text.clone(),
    })
}

fn says_close(headers: &HeaderMap) -> bool {
    headers
        .get(CONNECTION)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}
