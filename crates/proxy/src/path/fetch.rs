//! A miss: one fetch for all who request, answered while it arrives and kept if it may be.
//!
//! The one who leads drives the fetch as part of answering, which costs no task and no channel. What is left of it when
//! the answer can begin, or when the leader hangs up, goes on as a task of its own: he takes nobody with him.

mod lead;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use edgeward_semantics::conditional::{self, Answer};
use edgeward_semantics::{CacheStatus, Forward, Validators};
use http::header::{HeaderMap, RANGE};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;

use super::deliver::{self, Reply};
use super::lookup::lookup_again;
use super::pass;
use crate::cache::CacheKey;
use crate::cache::collapse::{Lead, Role};
use crate::cache::fill::{FillHead, FillReader, Followed};
use crate::cache::stored::{Stored, StoredKind};
use crate::exchange::{ConnState, Refusal, Request};
use crate::origin::as_origin_sees;
use crate::origin::{OriginError, Received};
use crate::path::body::{EdgeBody, Source};
use crate::path::worker::Worker;
use lead::Fetch;

/// What the leader's client gets.
enum Led {
    /// The body flows through the fill.
    Shared {
        status: StatusCode,
        headers: HeaderMap,
        length: Option<u64>,
        stored: bool,
    },
    /// The response is not shared: here it is.
    Direct(Received, Option<&'static str>),
    /// What was stored can be served after all.
    Found {
        stored: Arc<Stored>,
        fwd_status: Option<u16>,
    },
    Failed(OriginError),
}

/// Answers a request for which nothing usable is stored.
pub(super) async fn fetch(
    reply: Reply,
    request: Rc<Request>,
    incoming: Option<Incoming>,
    mut key: CacheKey,
    why: Forward,
    stale: Option<Arc<Stored>>,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    // A part of something that is not here is the origin's to give, and a HEAD's answer has no body
    // to keep. With something stale at hand both first request whether it still holds.
    let wants_range = !request.plain && request.headers.contains_key(RANGE);
    if stale.is_none() && (request.method == Method::HEAD || wants_range) {
        count(&worker, why);
        return Box::pin(pass::pass_counted(reply, request, incoming, why)).await;
    }
    drop(incoming);
    let mut follows_left = FOLLOWS_MAX;
    let mut failed: Option<FillReader> = None;
    loop {
        let primary = key.primary_hash();
        let alone = follows_left == 0 || worker.cache.hit_for_miss.contains(primary, worker.now());
        let collapse = &worker.cache.collapse;
        let role = match &failed {
            _ if alone => Role::Alone,
            Some(failed) => collapse.join_after(failed, key.hash, &key.bytes),
            None => collapse.join(key.hash, &key.bytes),
        };
        failed = None;
        if follows_left == FOLLOWS_MAX {
            // Once it waits, so that a request that is counted is one that waits.
            count(&worker, why);
        }
        let reader = match role {
            Role::Follower(reader) => reader,
            Role::Leader(mut lead, reader) => {
                // It may have come between the lookup and the lead.
                if let Some(stored) = came_meanwhile(&worker, &key, stale.as_ref()) {
                    lead.close();
                    lead.fill.found(Arc::clone(&stored));
                    return reply.stored(&request, &stored, None);
                }
                return lead_fetch(reply, request, key, why, stale, lead, reader).await;
            }
            Role::Alone => {
                let (lead, reader) = worker.cache.collapse.alone();
                return lead_fetch(reply, request, key, why, stale, lead, reader).await;
            }
        };
        follows_left -= 1;
        let wait_max = worker.config().caching.collapse_wait_max;
        let head = poll_fn(|cx| reader.poll_head(cx));
        let Ok(followed) = tokio::time::timeout(wait_max, head).await else {
            worker.counters.collapse_timeouts.increment();
            follows_left = 0;
            continue;
        };
        match followed {
            Followed::Head(head) => {
                if let Some((fields, secondary)) = &head.variant {
                    let mut own = Vec::new();
                    fields.write_key(&as_origin_sees(worker.hop(), &request, fields), &mut own);
                    if own != *secondary {
                        // Another variant of the same URI: look again, now that this is known.
                        let (next, fresh) = lookup_again(&worker, &request).await;
                        if let Some(stored) = fresh {
                            return reply.stored(&request, &stored, None);
                        }
                        key = next;
                        continue;
                    }
                }
                worker.counters.collapsed.increment();
                if let Some(disk) = &worker.cache.disk {
                    let secondary = head.variant.as_ref().map(|(_, secondary)| &secondary[..]);
                    disk.note(key.primary(), secondary);
                }
                return follow(reply, &request, &head, reader, why);
            }
            Followed::Found(stored) => {
                worker.counters.collapsed.increment();
                let mut status = CacheStatus::forward(why);
                status.collapsed = true;
                status.ttl = Some(deliver::ttl_secs(&stored, worker.now()));
                return reply.stored(&request, &stored, Some(status));
            }
            Followed::Released => follows_left = 0,
            Followed::Failed(failure) if follows_left == 0 => {
                let mut status = CacheStatus::forward(why).with_detail(failure.detail);
                status.collapsed = true;
                return reply.refuse(&Refusal {
                    status: failure.status,
                    cache_status: Some(status),
                    text: "the origin failed the request this one waited for".into(),
                    close: false,
                });
            }
            // One of those who waited leads now, the others follow it.
            Followed::Failed(_) => failed = Some(reader),
        }
    }
}

/// Leads a fetch and answers with what comes of it.
async fn lead_fetch(
    reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    why: Forward,
    stale: Option<Arc<Stored>>,
    lead: Lead,
    reader: FillReader,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let told = Rc::new(Cell::new(None));
    let fetch = Fetch {
        worker: Rc::clone(&worker),
        request: Rc::clone(&request),
        key,
        lead,
        to_leader: Some(Rc::clone(&told)),
    };
    let mut driven = Driven {
        worker: Rc::clone(&worker),
        conn: Rc::clone(reply.in_flight.conn()),
        answered: false,
        fetch: Some(Box::pin(fetch.run(stale))),
    };
    let led = poll_fn(|cx| driven.poll(cx, &told)).await;
    // From here on whoever reads the body is served by a task.
    drop(driven);
    let mut status = CacheStatus::forward(why);
    match led {
        Led::Shared {
            status: code,
            headers,
            length,
            stored,
        } => {
            status.stored = stored;
            status.fwd_status = Some(code.as_u16());
            shared(reply, &request, code, headers, length, reader, status)
        }
        Led::Direct(response, detail) => {
            drop(reader);
            status.detail = detail.map(Into::into);
            let (parts, body) = response;
            pass::stripped(reply, &request, *parts, body, status)
        }
        Led::Found { stored, fwd_status } => {
            worker.counters.revalidated.increment();
            status.fwd_status = fwd_status;
            status.ttl = Some(deliver::ttl_secs(&stored, worker.now()));
            reply.stored(&request, &stored, Some(status))
        }
        Led::Failed(error) => pass::failed(reply, &error, status),
    }
}

/// A fetch as its leader drives it. Given up before its end it goes on by itself.
struct Driven<F: Future<Output = ()> + 'static> {
    worker: Rc<Worker>,
    conn: Rc<ConnState>,
    /// The leader has its answer, so that the fetch is no orphan.
    answered: bool,
    fetch: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = ()> + 'static> Driven<F> {
    fn poll(&mut self, cx: &mut Context<'_>, told: &Cell<Option<Led>>) -> Poll<Led> {
        if let Some(fetch) = &mut self.fetch
            && fetch.as_mut().poll(cx).is_ready()
        {
            self.fetch = None;
        }
        match told.take() {
            Some(led) => {
                self.answered = true;
                Poll::Ready(led)
            }
            None => {
                debug_assert!(
                    self.fetch.is_some(),
                    "every fetch tells its leader how it ended"
                );
                Poll::Pending
            }
        }
    }
}

impl<F: Future<Output = ()> + 'static> Drop for Driven<F> {
    fn drop(&mut self) {
        if let Some(fetch) = self.fetch.take() {
            // The origin works on for a client that may request for the next thing at once.
            let orphan = (!self.answered).then(|| self.conn.orphan());
            self.worker.fetch_tasks.spawn(|member| async move {
                fetch.await;
                drop((member, orphan));
            });
        }
    }
}

/// Answers with a response that others share.
fn shared(
    reply: Reply,
    request: &Request,
    status: StatusCode,
    mut headers: HeaderMap,
    length: Option<u64>,
    reader: FillReader,
    cache_status: CacheStatus,
) -> Response<EdgeBody> {
    cache_status.append_to(&mut headers, &reply.worker.config().name);
    if !request.plain && conditional::is_conditional(&request.headers) {
        let validators = Validators::of(&headers);
        if conditional::evaluate(&request.method, &request.headers, status, &validators)
            == Answer::NotModified
        {
            let head = conditional::not_modified_head(&headers);
            let code = StatusCode::NOT_MODIFIED;
            return reply.respond(request, code, head, Source::Empty, &cache_status);
        }
    }
    let source = Source::Fill(reader, length);
    reply.respond(request, status, headers, source, &cache_status)
}

fn follow(
    reply: Reply,
    request: &Request,
    head: &FillHead,
    reader: FillReader,
    why: Forward,
) -> Response<EdgeBody> {
    let mut status = CacheStatus::forward(why);
    status.collapsed = true;
    status.stored = head.stored;
    let headers = head.headers.clone();
    shared(
        reply,
        request,
        head.status,
        headers,
        head.length,
        reader,
        status,
    )
}

fn came_meanwhile(
    worker: &Worker,
    key: &CacheKey,
    stale: Option<&Arc<Stored>>,
) -> Option<Arc<Stored>> {
    let stored = worker.cache.hot.peek(key.hash)?;
    let is_news = stale.is_none_or(|stale| !Arc::ptr_eq(stale, &stored));
    let usable = is_news
        && stored.is_of(&key.bytes)
        && matches!(&stored.kind, StoredKind::Response(r) if r.policy.is_fresh(worker.now()));
    usable.then_some(stored)
}

fn count(worker: &Worker, why: Forward) {
    let counters = &worker.counters;
    match why {
        Forward::VaryMiss => counters.vary_miss.increment(),
        Forward::Stale => counters.stale.increment(),
        Forward::Request => counters.request.increment(),
        Forward::Partial => counters.partial.increment(),
        Forward::UriMiss | Forward::Miss | Forward::Bypass | Forward::Method => {
            counters.uri_miss.increment();
        }
    }
}

/// How often one request waits for another's fetch before it asks on its own, or shares the failure of the last.
const FOLLOWS_MAX: u32 = 3;
