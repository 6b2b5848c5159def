//! The entry of the request path: makes a request canonical, looks it up, and answers it according to the outcome.
//!
//! Each codec (hyper or the HTTP/1.1 fast path) calls [`serve`] with a request's head and gets a response or a future.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use edgeward_semantics::{PassReason, Route};
use http::Response;
use hyper::body::Incoming;

use super::body::EdgeBody;
use super::deliver::Reply;
use super::lookup::{Outcome, key_of, lookup};
use super::worker::Worker;
use super::{fetch, invalidate, pass, purge, unsafe_request};
use crate::exchange::canonical::{self, NotForwarded, RawHead};
use crate::exchange::{Client, Request, RequestError};

/// A response that is ready, or a future that resolves to one.
#[expect(
    clippy::large_enum_variant,
    reason = "boxing the ready response would cost every hit an allocation"
)]
pub(crate) enum Serving {
    Ready(Option<Response<EdgeBody>>),
    Later(Pin<Box<dyn Future<Output = Response<EdgeBody>>>>),
}

impl Future for Serving {
    type Output = Result<Response<EdgeBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(response) => {
                Poll::Ready(Ok(response.take().expect("polled once to the end")))
            }
            Self::Later(future) => future.as_mut().poll(cx).map(Ok),
        }
    }
}

/// Serves a request. `body` is `Some` if the request may have a body, `outcome` if the codec has already looked the
/// request up. As final recipient, the edge answers OPTIONS and TRACE with `Max-Forwards: 0` itself.
pub(crate) fn serve(
    worker: &Rc<Worker>,
    client: &Client,
    head: RawHead,
    body: Option<Incoming>,
    outcome: Option<Outcome>,
) -> Serving {
    let (request, checked) =
        canonical::canonical(&worker.shared.canonicaliser, &client.facts(), head);
    let reply = Reply::new(worker, client, &request);
    match checked {
        Ok(()) => {}
        Err(NotForwarded::Refused(refusal)) => return ready(reply.refuse(&refusal)),
        Err(NotForwarded::FinalRecipient) => return ready(reply.final_recipient(&request)),
    }
    if purge::is_purge(worker.config(), &request) {
        worker.counters.method.increment();
        return later(purge::answer(reply, request));
    }
    let outcome = match request.route {
        Route::Pass(reason) => Outcome::Pass(reason),
        Route::Lookup => {
            outcome.unwrap_or_else(|| lookup(worker, key_of(worker, &request), &*request))
        }
    };
    carry_out(reply, request, body, outcome)
}

/// Refuses a request with an error that a codec has found.
pub(crate) fn refuse(
    worker: &Rc<Worker>,
    client: &Client,
    head: RawHead,
    error: &RequestError,
) -> Serving {
    let (request, _) = canonical::canonical(&worker.shared.canonicaliser, &client.facts(), head);
    ready(Reply::new(worker, client, &request).refuse(error))
}

/// Answers the request according to the outcome of its lookup.
fn carry_out(
    reply: Reply,
    request: Rc<Request>,
    body: Option<Incoming>,
    outcome: Outcome,
) -> Serving {
    let worker = Rc::clone(&reply.worker);
    match outcome {
        Outcome::Hit(hit) => {
            if let Some(stored) = hit.sliced() {
                let stored = Arc::clone(stored);
                return later(fetch::answer_sliced(reply, request, hit, stored));
            }
            hit.count(&worker);
            let stored = hit.found.into_stored(&hit.key);
            if hit.revalidates {
                fetch::revalidate_in_background(&worker, &request, hit.key, &stored);
            } else {
                worker.cache.recycle_key(hit.key);
            }
            ready(reply.stored(&request, &stored, None))
        }
        Outcome::Revalidate { key, reason, stale } => {
            later(fetch::fetch(reply, request, body, key, reason, Some(stale)))
        }
        Outcome::Miss { key, reason, rule } => {
            let fetch = fetch::fetch(reply, request, body, key, reason, None);
            let Some(rule) = rule else {
                return later(fetch);
            };
            later(async move {
                let response = fetch.await;
                // The filter of the negative rule answered "maybe": a 404 or 410 is a false positive.
                worker.cache.negative.watch(rule, response.status());
                response
            })
        }
        Outcome::Pass(reason) => {
            match reason {
                PassReason::Method => worker.counters.method.increment(),
                _ => worker.counters.bypass.increment(),
            }
            match invalidate::is_unsafe(&request.method) {
                true => {
                    let status = reason.cache_status();
                    later(unsafe_request::pass(reply, request, body, status))
                }
                false => later(pass::pass(reply, request, body, reason.cache_status())),
            }
        }
        Outcome::Refuse(refusal) => ready(reply.refuse(&refusal)),
        Outcome::Wait(waiting) => later(async move {
            let outcome = waiting.outcome(&worker, &*request).await;
            match carry_out(reply, request, body, outcome).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }),
    }
}

fn ready(response: Response<EdgeBody>) -> Serving {
    Serving::Ready(Some(response))
}

fn later(future: impl Future<Output = Response<EdgeBody>> + 'static) -> Serving {
    Serving::Later(Box::pin(future))
}
