//! A request's way through the edge: understood, looked up, and then delivered from the cache,
//! fetched from the origin or passed to it.

mod deliver;
mod disk_hit;
mod expect;
mod fetch;
mod field_filter;
mod interim;
mod invalidate;
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

use edgeward_semantics::hop_by_hop::ConnectionOptions;
use edgeward_semantics::{CacheStatus, Forward, RequestDirectives, Reuse, Route, Target};
use edgeward_types::KeyHash;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;

use crate::access_log::Pending;
use crate::body::EdgeBody;
use crate::client_io::{ConnState, InFlight, Interims};
use crate::disk::Looked;
use crate::heads::{self, HeadCharge};
use crate::negative::{Advice, Negative};
use crate::worker::Worker;
use lookup::Found;
use receive::Stop;

pub(crate) use deliver::Refusal;
pub(crate) use disk_hit::{DiskHit, Plain, plain};
pub(crate) use field_filter::FieldFilter;
pub(crate) use outbound::{Hop, Outbound};
pub(crate) use pass::Chain;
pub(crate) use receive::RawHead;
pub(crate) use upload::{Upload, UploadProgress, UploadTooLarge, UploadTooSlow};

/// What is known of the client's side of a connection.
#[derive(Clone)]
pub(crate) struct ClientLink {
    pub(crate) conn: Rc<ConnState>,
    pub(crate) peer: SocketAddr,
    /// The address as `X-Forwarded-For` shows it, written once a connection.
    pub(crate) peer_text: HeaderValue,
    pub(crate) tls: bool,
    /// Whether the peer is one of `forwarding.trusted_proxies`.
    pub(crate) is_trusted: bool,
}

impl ClientLink {
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

/// A request's head in its canonical form, and whom to answer.
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// The target as it arrived: see [`path_and_query`](Self::path_and_query) and [`authority`](Self::authority).
    uri: Uri,
    pub(crate) version: Version,
    /// Without the fields of the connection, and without those that no origin gets.
    pub(crate) headers: HeaderMap,
    /// A GET or HEAD for one host, without a body, conditions, a range, directives or anything else that needs a second
    /// look, as the [lane](crate::lane) found.
    pub(crate) plain: bool,
    pub(crate) scheme: &'static str,
    pub(crate) peer: SocketAddr,
    pub(crate) peer_text: HeaderValue,
    /// What the head takes of the memory for heads, if it came by HTTP/2.
    pub(crate) _charge: Option<HeadCharge>,
    peer_is_trusted: bool,
    /// Where the text in the request is another; most requests are canonical, and a hit should not copy them.
    canonical_authority: Option<Box<str>>,
    canonical_target: Option<Box<str>>,
    /// What the removed fields of the connection said.
    options: ConnectionOptions,
    route: Route,
    /// Takes the interim responses for a client of HTTP/1.1. hyper's server cannot send them, so the [lane](crate::lane)
    /// writes them beneath it.
    interims: Option<Interims>,
}

impl Ask {
    /// Path and query, or `*`: canonical unless the request is refused.
    pub(crate) fn path_and_query(&self) -> &str {
        match &self.canonical_target {
            Some(target) => target,
            None => self
                .uri
                .path_and_query()
                .map_or("/", |target| target.as_str()),
        }
    }

    pub(crate) fn path(&self) -> &str {
        let target = self.path_and_query();
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    /// The host and port that the request is for, canonical unless the request is refused: from `:authority`, an
    /// absolute target, or `Host`.
    pub(crate) fn authority(&self) -> Option<&str> {
        if let Some(authority) = &self.canonical_authority {
            return Some(authority);
        }
        match self.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => self.headers.get(http::header::HOST)?.to_str().ok(),
        }
    }

    /// What the primary key is made of. Nothing for a request that is refused.
    fn target(&self) -> Option<Target<'_>> {
        Target::new(self.scheme, self.authority()?, self.path_and_query()).ok()
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
    let (ask, _) = receive::canonical(worker, link, head);
    ready(Reply::new(worker, link, &ask).refuse(refusal))
}

fn answer(
    worker: &Rc<Worker>,
    link: &ClientLink,
    head: RawHead,
    incoming: Option<Incoming>,
    looked: Option<(KeyHash, Looked)>,
) -> Serving {
    let (ask, checked) = receive::canonical(worker, link, head);
    let reply = Reply::new(worker, link, &ask);
    match checked {
        Ok(()) => {}
        Err(Stop::Refuse(refusal)) => return ready(reply.refuse(&refusal)),
        Err(Stop::AnswerHere) => return ready(reply.final_recipient(&ask)),
    }
    if let Route::Pass(reason) = ask.route {
        return later(pass::pass(reply, ask, incoming, reason.forward()));
    }
    let found = match looked {
        Some((hash, looked)) => lookup::after(worker, &ask, hash, looked),
        None => lookup::find(worker, &ask),
    };
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
                let found = lookup::wait(&worker, *waiting, &ask).await;
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
            let negative = &worker.shared.negative;
            if why == Forward::UriMiss && !asked.no_cache && negative.has_rules() {
                match negative.advise(ask.path()) {
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
