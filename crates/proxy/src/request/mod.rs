//! A request's way through the edge: understood, looked up, and then delivered from the cache,
//! fetched from the origin or passed to it.

mod deliver;
mod disk_hit;
mod fetch;
mod lookup;
mod outbound;
mod pass;
mod receive;
mod revalidate;
mod upload;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use edgeward_semantics::{CacheStatus, Forward, RequestDirectives, Reuse, Route, Target, route};
use edgeward_types::KeyHash;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;

use crate::access_log::Pending;
use crate::body::EdgeBody;
use crate::client_io::{ConnState, InFlight};
use crate::disk::Looked;
use crate::heads::{self, HeadCharge};
use crate::negative::{Advice, Negative};
use crate::worker::Worker;
use deliver::Refusal;
use lookup::Found;

pub(crate) use disk_hit::{DiskHit, Plain, plain};
pub(crate) use outbound::{Hop, Outbound};
pub(crate) use pass::Chain;
pub(crate) use upload::{Upload, UploadProgress, UploadTooLarge, UploadTooSlow};

/// What is known of the client's side of a connection.
#[derive(Clone)]
pub(crate) struct ClientLink {
    pub(crate) conn: Rc<ConnState>,
    pub(crate) peer: SocketAddr,
    /// The address as `X-Forwarded-For` shows it, written once a connection.
    pub(crate) peer_text: HeaderValue,
    pub(crate) tls: bool,
}

impl ClientLink {
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

/// A request's head and whom to answer.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// A GET or HEAD for one host, without a body, conditions, a range, directives or anything else that needs a second
    /// look, as the [lane](crate::lane) found.
    pub(crate) plain: bool,
    pub(crate) scheme: &'static str,
    pub(crate) peer: SocketAddr,
    pub(crate) peer_text: HeaderValue,
    /// What the head takes of the memory for heads, if it came by HTTP/2.
    pub(crate) _charge: Option<HeadCharge>,
}

impl Ask {
    pub(crate) fn path_and_query(&self) -> &str {
        self.uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
    }

    /// Whom the request is for: `:authority`, an absolute target's host, or `Host`.
    pub(crate) fn authority(&self) -> Option<&str> {
        match self.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.headers.get(http::header::HOST)?.to_str().ok(),
        }
    }
}

/// What an answer needs besides its head: kept apart from [`Ask`], since a fetch shares that.
pub(crate) struct Reply {
    pub(crate) worker: Rc<Worker>,
    pub(crate) in_flight: InFlight,
    pub(crate) log: Option<Box<Pending>>,
}

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
pub(crate) fn serve(worker: &Rc<Worker>, link: &ClientLink, request: Request<Incoming>) -> Serving {
    let (parts, incoming) = request.into_parts();
    let mut ask = Ask {
        method: parts.method,
        uri: parts.uri,
        version: parts.version,
        headers: parts.headers,
        plain: false,
        scheme: link.scheme(),
        peer: link.peer,
        peer_text: link.peer_text.clone(),
        _charge: None,
    };
    if ask.version == Version::HTTP_2 {
        match admit(worker, link, &ask) {
            Ok(charge) => ask._charge = Some(charge),
            Err(refusal) => return ready(Reply::new(worker, link, &ask).refuse(&refusal)),
        }
    }
    answer(worker, link, Rc::new(ask), Some(incoming))
}

/// Whether a request of HTTP/2 has a place. Refused, its head is freed at once.
fn admit(worker: &Worker, link: &ClientLink, ask: &Ask) -> Result<HeadCharge, Refusal> {
    let limits = &worker.config().limits;
    let counters = &worker.counters;
    if ask.headers.len() > limits.headers_max.get() {
        counters.h2_refused_fields.one();
        return Err(Refusal::too_many_fields());
    }
    if link.conn.orphans_fill(limits.h2_streams_max.get()) {
        counters.h2_refused_orphans.one();
        return Err(Refusal::overloaded(
            "the origin still works on requests of this connection that were cancelled",
        ));
    }
    let bytes = heads::decoded_bytes(&ask.uri, &ask.headers);
    let budget = &worker.shared.head_budget;
    budget
        .charge(&link.conn, limits.h2_heads_bytes_max.bytes(), bytes)
        .ok_or_else(|| {
            counters.h2_refused_heads.one();
            Refusal::overloaded("the heads of the requests under way take too much memory")
        })
}

/// The same for a request that is known to have no body.
pub(crate) fn serve_bodiless(worker: &Rc<Worker>, link: &ClientLink, ask: Rc<Ask>) -> Serving {
    answer(worker, link, ask, None)
}

/// The same for a plain request whose key was looked up a moment ago, and is where [`plain`] put it together.
pub(crate) fn serve_looked(
    worker: &Rc<Worker>,
    link: &ClientLink,
    ask: Rc<Ask>,
    hash: KeyHash,
    looked: Looked,
) -> Serving {
    let found = lookup::after(worker, &ask.headers, hash, looked);
    go_on(worker, Reply::new(worker, link, &ask), ask, None, found)
}

fn answer(
    worker: &Rc<Worker>,
    link: &ClientLink,
    ask: Rc<Ask>,
    incoming: Option<Incoming>,
) -> Serving {
    let reply = Reply::new(worker, link, &ask);
    if let Err(refusal) = receive::check(&ask, worker) {
        return ready(reply.refuse(&refusal));
    }
    let authority = ask.authority().unwrap_or_default();
    let target = match Target::new(ask.scheme, authority, ask.path_and_query()) {
        Ok(target) => target,
        Err(error) => return ready(reply.refuse(&Refusal::bad_request(error.to_string()))),
    };
    if let Route::Pass(reason) = route(&ask.method, &ask.headers) {
        return later(pass::pass(reply, ask, incoming, reason.forward()));
    }
    let found = lookup::find(worker, &target, &ask.headers);
    go_on(worker, reply, ask, incoming, found)
}

/// With what was found, once the disk has answered.
fn go_on(
    worker: &Rc<Worker>,
    reply: Reply,
    ask: Rc<Ask>,
    incoming: Option<Incoming>,
    found: Found,
) -> Serving {
    match found {
        Found::Waits(waiting) => {
            let worker = Rc::clone(worker);
            later(async move {
                let found = lookup::wait(&worker, *waiting, &ask.headers).await;
                match decide(&worker, reply, ask, incoming, found).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            })
        }
        found => decide(worker, reply, ask, incoming, found),
    }
}

/// With what was found: serve it, or ask the origin.
fn decide(
    worker: &Rc<Worker>,
    reply: Reply,
    ask: Rc<Ask>,
    incoming: Option<Incoming>,
    found: Found,
) -> Serving {
    let asked = if ask.plain {
        RequestDirectives::default()
    } else {
        let rules = &worker.config().caching.rules;
        rules.request_directives(&ask.headers)
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
                        worker.record(hash, stored.charge_bytes(), true);
                    }
                    return ready(reply.stored(&ask, &stored, None));
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
            if why == Forward::UriMiss && !asked.no_cache {
                match worker.shared.negative.advise(ask.uri.path()) {
                    Advice::Absent => return ready(reply.no_such_id()),
                    Advice::Watch(rule) if !asked.only_if_cached => {
                        return later(watched(rule, reply, ask, incoming, key));
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
    later(fetch::miss(reply, ask, incoming, key, why, stale))
}

/// A miss of an id that may exist: what comes of it is told to the rule that let it pass.
async fn watched(
    rule: usize,
    reply: Reply,
    ask: Rc<Ask>,
    incoming: Option<Incoming>,
    key: lookup::MissKey,
) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    let miss = fetch::miss(reply, ask, incoming, key, Forward::UriMiss, None);
    let response = miss.await;
    worker.shared.negative.watch(rule, response.status());
    response
}

fn ready(response: Response<EdgeBody>) -> Serving {
    Serving::Ready(Some(response))
}

fn later(future: impl Future<Output = Response<EdgeBody>> + 'static) -> Serving {
    Serving::Later(Box::pin(future))
}

impl Reply {
    fn new(worker: &Rc<Worker>, link: &ClientLink, ask: &Ask) -> Self {
        Self {
            worker: Rc::clone(worker),
            in_flight: link.conn.begin(),
            log: worker
                .logs()
                .then(|| Box::new(Pending::new(ask, worker.now()))),
        }
    }

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
