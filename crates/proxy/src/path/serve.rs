//! A request's way through the edge: understood, looked up, and then delivered from the cache,
//! fetched from the origin or passed to it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use edgeward_semantics::{CacheStatus, Forward, RequestDirectives, Reuse, Route};
use edgeward_types::KeyHash;
use http::{Response, StatusCode, Version};
use hyper::body::Incoming;

use super::body::EdgeBody;
use super::deliver::Reply;
use super::lookup::{self, Found};
use super::worker::Worker;
use super::{fetch, pass};
use crate::cache::disk::Looked;
use crate::cache::negative::{Advice, Negative};
use crate::exchange::canonical::{self, RawHead, Stop};
use crate::exchange::heads::{self, HeadCharge};
use crate::exchange::{ClientLink, Refusal, Request};

/// A response that is there, or one that has to be waited for.
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

/// Answers a request: at once if the cache can, else by a future.
pub(crate) fn serve(
    worker: &Rc<Worker>,
    link: &ClientLink,
    request: http::Request<Incoming>,
) -> Serving {
    let (parts, incoming) = request.into_parts();
    let mut head = RawHead {
        method: parts.method,
        uri: parts.uri,
        version: parts.version,
        headers: parts.headers,
        plain: false,
        host_is_canonical: false,
        charge: None,
        interims: None,
    };
    if head.version == Version::HTTP_11 {
        head.interims = Some(link.conn.begin_interims());
    }
    if head.version == Version::HTTP_2 {
        match admit(worker, link, &head) {
            Ok(charge) => head.charge = Some(charge),
            Err(refusal) => return refuse(worker, link, head, &refusal),
        }
    }
    answer(worker, link, head, Some(incoming), None)
}

/// Whether a request of HTTP/2 has a place. Refused, its head is freed at once.
fn admit(worker: &Worker, link: &ClientLink, head: &RawHead) -> Result<HeadCharge, Refusal> {
    let limits = &worker.config().limits;
    let counters = &worker.counters;
    if head.headers.len() > limits.headers_max.get() {
        counters.h2_refused_fields.one();
        return Err(Refusal::too_many_fields());
    }
    if link.conn.orphans_fill(limits.h2_streams_max.get()) {
        counters.h2_refused_orphans.one();
        return Err(Refusal::overloaded(
            "the origin still works on requests of this connection that were cancelled",
        ));
    }
    let bytes = heads::decoded_bytes(&head.uri, &head.headers);
    let budget = &worker.shared.head_budget;
    budget
        .charge(&link.conn, limits.h2_heads_bytes_max.bytes(), bytes)
        .ok_or_else(|| {
            counters.h2_refused_heads.one();
            Refusal::overloaded("the heads of the requests under way take too much memory")
        })
}

/// The same for a request that is known to have no body. `looked` is what lies under its key, if that was looked up a
/// moment ago; the key is then where [`plain`] put it together.
pub(crate) fn serve_bodiless(
    worker: &Rc<Worker>,
    link: &ClientLink,
    head: RawHead,
    looked: Option<(KeyHash, Looked)>,
) -> Serving {
    answer(worker, link, head, None, looked)
}

/// Refuses a request of which only the head was read.
pub(crate) fn refuse(
    worker: &Rc<Worker>,
    link: &ClientLink,
    head: RawHead,
    refusal: &Refusal,
) -> Serving {
    let (request, _) = canonical::canonical(&worker.shared.border, link, head);
    ready(Reply::new(worker, link, &request).refuse(refusal))
}

fn answer(
    worker: &Rc<Worker>,
    link: &ClientLink,
    head: RawHead,
    incoming: Option<Incoming>,
    looked: Option<(KeyHash, Looked)>,
) -> Serving {
    let (request, checked) = canonical::canonical(&worker.shared.border, link, head);
    let reply = Reply::new(worker, link, &request);
    match checked {
        Ok(()) => {}
        Err(Stop::Refuse(refusal)) => return ready(reply.refuse(&refusal)),
        Err(Stop::AnswerHere) => return ready(reply.final_recipient(&request)),
    }
    if let Route::Pass(reason) = request.route {
        return later(pass::pass(reply, request, incoming, reason.forward()));
    }
    let found = match looked {
        Some((hash, looked)) => lookup::after(worker, &request, hash, looked),
        None => lookup::find(worker, &request),
    };
    go_on(worker, reply, request, incoming, found)
}

/// With what was found, once the disk has answered.
fn go_on(
    worker: &Rc<Worker>,
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<Incoming>,
    found: Found,
) -> Serving {
    match found {
        Found::Waits(waiting) => {
            let worker = Rc::clone(worker);
            later(async move {
                let found = lookup::wait(&worker, *waiting, &request).await;
                match decide(&worker, reply, request, incoming, found).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            })
        }
        found => decide(worker, reply, request, incoming, found),
    }
}

/// With what was found: serve it, or request the origin.
fn decide(
    worker: &Rc<Worker>,
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<Incoming>,
    found: Found,
) -> Serving {
    let asked = if request.plain {
        RequestDirectives::default()
    } else {
        let rules = &worker.config().caching.rules;
        rules.request_directives(&request.headers)
    };
    let (key, why, stale) = match found {
        Found::Response {
            hash,
            primary_len,
            stored,
            marker,
        } => {
            let now = worker.now();
            let on_disk = stored.is_on_disk();
            let reuse = lookup::response(&stored).policy.reuse(now, &asked);
            match reuse {
                Reuse::Fresh { .. } | Reuse::StaleAllowed { .. } => {
                    let counters = &worker.counters;
                    match reuse {
                        Reuse::Fresh { .. } => counters.hit.one(),
                        _ => counters.hit_stale.one(),
                    }
                    if on_disk {
                        counters.disk_hit.one();
                    } else {
                        worker.cache.record(hash, stored.charge_bytes(), true);
                    }
                    return ready(reply.stored(&request, &stored, None));
                }
                Reuse::Revalidate { cause } | Reuse::MustForward { cause } => {
                    if on_disk {
                        worker.counters.disk_stale.one();
                    }
                    let key = lookup::key_of(worker, hash, primary_len, marker);
                    (key, cause.forward(), Some(stored))
                }
                Reuse::GatewayTimeout => return ready(reply.only_if_cached()),
            }
        }
        Found::Nothing { key, why } => {
            // Another variant of the URI shows that it exists.
            let negative = &worker.cache.negative;
            if why == Forward::UriMiss && !asked.no_cache && negative.has_rules() {
                match negative.advise(request.path()) {
                    Advice::Absent => return ready(reply.no_such_id()),
                    Advice::Watch(rule) if !asked.only_if_cached => {
                        return later(watched(rule, reply, request, incoming, key));
                    }
                    Advice::Watch(_) | Advice::Forward => {}
                }
            }
            if asked.only_if_cached {
                return ready(reply.only_if_cached());
            }
            (key, why, None)
        }
        Found::Waits(_) => unreachable!("waited for before"),
    };
    later(fetch::miss(reply, request, incoming, key, why, stale))
}

/// A miss of an id that may exist: what comes of it is told to the rule that let it pass.
async fn watched(
    rule: usize,
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<Incoming>,
    key: lookup::MissKey,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let miss = fetch::miss(reply, request, incoming, key, Forward::UriMiss, None);
    let response = miss.await;
    worker.cache.negative.watch(rule, response.status());
    response
}

fn ready(response: Response<EdgeBody>) -> Serving {
    Serving::Ready(Some(response))
}

fn later(future: impl Future<Output = Response<EdgeBody>> + 'static) -> Serving {
    Serving::Later(Box::pin(future))
}

impl Reply {
    fn no_such_id(self) -> Response<EdgeBody> {
        self.worker.counters.id_filter.one();
        self.refuse(&Refusal {
            status: StatusCode::NOT_FOUND,
            cache_status: Some(Negative::cache_status()),
            text: "there is no such id".into(),
            close: false,
        })
    }

    fn only_if_cached(self) -> Response<EdgeBody> {
        self.worker.counters.only_if_cached.one();
        // RFC 9111 §5.2.1.7.
        self.refuse(&Refusal {
            status: StatusCode::GATEWAY_TIMEOUT,
            cache_status: Some(CacheStatus::forward(Forward::Miss).with_detail("only-if-cached")),
            text: "only a stored response was asked for, and none can be used".into(),
            close: false,
        })
    }
}
