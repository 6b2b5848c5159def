//! The entry of the request path: makes a request canonical, looks it up, and answers it according to the outcome.
//!
//! Each codec (hyper or the HTTP/1.1 fast path) calls [`serve`] with a request's head and gets a response or a future.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use edgeward_overload::{Level, Work};
use edgeward_semantics::{Forward, PassReason, Route, TraceParent};
use http::Response;

use super::body::EdgeBody;
use super::deliver::Reply;
use super::encoded::{self, Choice};
use super::lookup::{Outcome, key_of, lookup};
use super::rules::{self, NotServed};
use super::stale::StaleCause;
use super::worker::Worker;
use super::{fetch, invalidate, pass, purge, unsafe_request, upgrade};
use crate::exchange::canonical::RawHead;
use crate::exchange::hop::INVALIDATE;
use crate::exchange::{Client, ConnState, Holding, Request, RequestBody, RequestError};
use crate::observe::causes::MissCause;
use crate::observe::outcome::RequestOutcome;
use crate::observe::spans::SampledRequest;
use crate::path::debug_faults;
use crate::rt::health::Activity;

/// A response that is ready, or a future that resolves to one.
#[expect(
    clippy::large_enum_variant,
    reason = "boxing the ready response would cost every hit an allocation"
)]
pub(crate) enum Serving {
    Ready(Option<Response<EdgeBody>>),
    Later {
        future: Pin<Box<dyn Future<Output = Response<EdgeBody>>>>,
        /// The charge for the memory of the future.
        _held: Option<Holding>,
    },
}

impl Serving {
    /// Returns a future that continues another one, and owns its charge.
    pub(crate) fn after(future: impl Future<Output = Response<EdgeBody>> + 'static) -> Self {
        Self::Later {
            future: Box::pin(future),
            _held: None,
        }
    }

    pub(crate) async fn response(self) -> Response<EdgeBody> {
        match self.await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

impl Future for Serving {
    type Output = Result<Response<EdgeBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(response) => {
                Poll::Ready(Ok(response.take().expect("polled once to the end")))
            }
            Self::Later { future, .. } => future.as_mut().poll(cx).map(Ok),
        }
    }
}

/// Serves a request. `body` is `Some` if the request may have a body, `outcome` if the codec has already looked the
/// request up. As final recipient, the edge answers OPTIONS and TRACE with `Max-Forwards: 0` itself.
pub(crate) fn serve(
    worker: &Rc<Worker>,
    client: &Client,
    head: RawHead,
    body: Option<RequestBody>,
    outcome: Option<Outcome>,
) -> Serving {
    worker.heart().set_activity(Activity::Request);
    let (mut request, checked) = rules::prepare(worker, client, head);
    debug_faults::cause("request", &request.headers);
    debug_faults::step_wall(&worker.shared.clock, &request.headers);
    let sampled = sample(worker, &mut request);
    let mut reply = Reply::new(worker, client, &request);
    reply.observation.sampled = sampled;
    match checked {
        Ok(()) => {}
        Err(NotServed::Refused(refusal)) => return ready(reply.refuse(&refusal)),
        Err(NotServed::FinalRecipient) => return ready(reply.final_recipient(&request)),
        Err(NotServed::Answered(answer)) => return ready(reply.answer(answer)),
    }
    if request.hop.is_some() && request.method == INVALIDATE {
        return later(&client.conn, invalidate::answer_node(reply, request));
    }
    if let Some(received) = request.received_fields.clone() {
        reply.count(RequestOutcome::Method);
        return later(&client.conn, purge::answer(reply, request, received));
    }
    if request.upgrade.is_some() && worker.sheds(Work::Pass) {
        return ready(shed(reply, false));
    }
    if let Some(asked) = &request.upgrade {
        reply.count(RequestOutcome::Bypass);
        let asked = (**asked).clone();
        return later(&client.conn, upgrade::forward(reply, request, asked));
    }
    let outcome = match request.route {
        Route::Pass(reason) => Outcome::Pass(reason),
        Route::Lookup => {
            outcome.unwrap_or_else(|| lookup(worker, key_of(worker, &request), &*request))
        }
    };
    carry_out(reply, request, body, outcome)
}

/// Decides whether the request is sampled. The origin then gets the `traceparent` of the span of the fetch.
fn sample(worker: &Worker, request: &mut Rc<Request>) -> Option<Box<SampledRequest>> {
    let sampler = worker.sampler()?;
    let parent = || TraceParent::of(&request.headers);
    let text = || request.trace_text(worker.wall());
    let sampled = sampler.sample(request.peer_is_trusted, Instant::now(), parent, text)?;
    let request = Rc::get_mut(request).expect("no other code has the request yet");
    sampled.write_to(&mut request.headers);
    Some(sampled)
}

/// Refuses a request with an error that a codec has found.
pub(crate) fn refuse(
    worker: &Rc<Worker>,
    client: &Client,
    head: RawHead,
    error: &RequestError,
) -> Serving {
    let (request, _) = rules::prepare(worker, client, head);
    ready(Reply::new(worker, client, &request).refuse(error))
}

/// Answers the request according to the outcome of its lookup.
fn carry_out(
    mut reply: Reply,
    request: Rc<Request>,
    body: Option<RequestBody>,
    outcome: Outcome,
) -> Serving {
    let worker = Rc::clone(&reply.worker);
    let conn = &Rc::clone(reply.in_flight.conn());
    reply.observation.trace(SampledRequest::end_lookup);
    if worker.shared.health.level() > Level::Normal
        && let Some(work) = work_of(&worker, &outcome)
        && worker.sheds(work)
    {
        return match outcome {
            Outcome::Revalidate { key, reason, stale }
                if let Some(cause) = StaleCause::of_overload(&worker, &request, &stale) =>
            {
                later(conn, async move {
                    fetch::respond_stale(reply, request, key, stale, cause, reason).await
                })
            }
            _ => ready(shed(reply, work == Work::Hit)),
        };
    }
    match outcome {
        Outcome::Hit(hit) => {
            if let Some(stored) = hit.sliced() {
                let stored = Arc::clone(stored);
                return later(conn, fetch::answer_sliced(reply, request, hit, stored));
            }
            hit.count(&worker, &mut reply.observation);
            let stored = hit.found.into_stored(&hit.key);
            if hit.revalidates && !worker.shared.health.sheds(Work::Pass) {
                fetch::revalidate_in_background(&worker, &request, hit.key, &stored);
            } else {
                worker.cache.recycle_key(hit.key);
            }
            match encoded::choose(&worker, &request, &stored, true) {
                Choice::Plain => ready(reply.stored(&request, &stored, None)),
                Choice::Encoded(encoded) => ready(reply.stored(&request, &encoded, None)),
                Choice::Later(encoded) => later(conn, async move {
                    let encoded = encoded.await;
                    reply.stored(&request, encoded.as_ref().unwrap_or(&stored), None)
                }),
            }
        }
        Outcome::Revalidate { key, reason, stale } => {
            worker.record_request_rate(&key);
            reply.observation.miss_cause = match reason {
                Forward::Stale => MissCause::Expired,
                _ => MissCause::Request,
            };
            let fetch = fetch::fetch(reply, request, body, key, reason, Some(stale));
            later(conn, fetch)
        }
        Outcome::Miss { key, reason, rule } => {
            worker.record_request_rate(&key);
            reply.observation.miss_cause =
                worker.cache.miss_history.request(key.hash, worker.now());
            let fetch = fetch::fetch(reply, request, body, key, reason, None);
            let Some(rule) = rule else {
                return later(conn, fetch);
            };
            later(conn, async move {
                let response = fetch.await;
                // The filter of the negative rule answered "maybe": a 404 or 410 is a false positive.
                worker.shared.negative.watch(rule, response.status());
                response
            })
        }
        Outcome::Pass(reason) => {
            reply.count(match reason {
                PassReason::Method => RequestOutcome::Method,
                _ => RequestOutcome::Bypass,
            });
            match invalidate::is_unsafe(&request.method) {
                true => {
                    let status = reason.cache_status();
                    later(conn, unsafe_request::pass(reply, request, body, status))
                }
                false => later(
                    conn,
                    pass::pass(reply, request, body, reason.cache_status()),
                ),
            }
        }
        Outcome::Refuse(refusal) => ready(reply.refuse(&refusal)),
        Outcome::Wait(waiting) => later(conn, async move {
            let outcome = waiting.outcome(&worker, &*request).await;
            carry_out(reply, request, body, outcome).response().await
        }),
    }
}

/// Returns the class of work to which a request belongs, or `None` if the edge refuses it anyway or still looks it up.
fn work_of(worker: &Worker, outcome: &Outcome) -> Option<Work> {
    match outcome {
        Outcome::Hit(_) => Some(Work::Hit),
        Outcome::Revalidate { .. } => Some(Work::Miss),
        Outcome::Miss { key, .. } => {
            // The last response for the URL could not be stored.
            let marks = &worker.cache.hit_for_miss;
            Some(match marks.contains(key.primary_hash(), worker.now()) {
                true => Work::Pass,
                false => Work::Miss,
            })
        }
        Outcome::Pass(_) => Some(Work::Pass),
        Outcome::Refuse(_) | Outcome::Wait(_) => None,
    }
}

/// Refuses a request because of overload.
fn shed(reply: Reply, close: bool) -> Response<EdgeBody> {
    let retry_after = reply.worker.config().overload.retry_after;
    reply.refuse(&RequestError::shed(retry_after, close))
}

fn ready(response: Response<EdgeBody>) -> Serving {
    Serving::Ready(Some(response))
}

fn later(
    conn: &Rc<ConnState>,
    future: impl Future<Output = Response<EdgeBody>> + 'static,
) -> Serving {
    let held = conn.holding(size_of_val(&future) as u64 + REQUEST_BYTES);
    Serving::Later {
        future: Box::pin(future),
        _held: Some(held),
    }
}

/// The memory of a request under way besides its future: its canonical form, the tables of its fields, and its upload.
const REQUEST_BYTES: u64 = 1024;
