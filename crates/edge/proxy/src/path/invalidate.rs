//! Requests with unsafe methods, and the stored responses that they invalidate (RFC 9111 §4.4).
//!
//! An unsafe request that was sent may have changed the origin's state even if its response is lost. Therefore a
//! request without a response invalidates its target too. If the client disconnects, the exchange continues for
//! `limits.abandoned_wait`, because an invalidation after the origin's change is better than one before it.
//!
//! `Cache-Group-Invalidation` of the response invalidates cache groups of the origin (RFC 9875 §3), as a purge does.
//!
//! The response to a POST may replace the stored response of its target ([`PostUpdate`]).

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Instant;

use edgeward_balance::NodeGroup;
use edgeward_purge::{Purge, Scope, Stamp};
use edgeward_semantics::{PassReason, Route, invalidation};
use edgeward_store::purges::PurgeError;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use tokio::sync::oneshot;

use crate::cache::disk::Durable;
use crate::cache::push_class;
use crate::exchange::{ConnState, Request};
use crate::observe::outcome::RequestOutcome;
use crate::origin::{Attempt, Conditions, OriginError, OriginResponse, Upload};
use crate::path::ask::ask;
use crate::path::body::EdgeBody;
use crate::path::deliver::Reply;
use crate::path::detachable::Detachable;
use crate::path::fetch::{PostBegin, PostUpdate};
use crate::path::peer;
use crate::path::question::Question;
use crate::path::worker::Worker;

/// Sends an unsafe request, and invalidates the stored responses that it makes outdated. Also returns the update of the
/// cache by the response to a POST.
pub(super) async fn send(
    worker: Rc<Worker>,
    request: Rc<Request>,
    conn: Rc<ConnState>,
    mut attempt: Attempt,
    upload: Upload,
) -> (Result<OriginResponse, OriginError>, Option<PostUpdate>) {
    let was_sent = Rc::new(Cell::new(false));
    attempt.was_sent = Some(Rc::clone(&was_sent));
    let exchange = exchange(Rc::clone(&worker), Rc::clone(&request), attempt, upload);
    let mut exchange = Detachable::new(Box::pin(exchange), |exchange| {
        // The client has left. The exchange continues only if the origin may have received a part of the request.
        if !was_sent.get() {
            return;
        }
        let orphan = conn.begin_orphan();
        let mut unanswered = Unanswered(Some((Rc::clone(&worker), Rc::clone(&request))));
        let exchange = async move {
            drop(exchange.await);
            unanswered.disarm();
            drop(orphan);
        };
        let origin = worker.origin(&request);
        let tasks = &worker.fetch_tasks;
        origin.abandon(tasks, exchange, worker.abandoned(), || false, || false);
    });
    let (sent, mut pending) = poll_fn(|cx| exchange.poll(cx)).await;
    if !pending.removals.is_empty() || pending.scopes.is_some() {
        wait_until_durable(&worker, &mut pending).await;
    }
    (sent, pending.update)
}

/// Invalidates the target of a request when it is dropped, unless it is empty.
struct Unanswered(Option<(Rc<Worker>, Rc<Request>)>);

impl Unanswered {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some((worker, request)) = self.0.take() {
            // The origin may have executed the request. The client that waited for the removals has left.
            let (status, headers) = (StatusCode::OK, HeaderMap::new());
            let keys = keys_of(&worker, &request, status, &headers);
            drop(invalidate(&worker, &request, status, &headers, &keys, None));
            if worker.shared.fleet.is_none() || keys.is_empty() {
                return;
            }
            let tasks = worker.fetch_tasks.clone();
            tasks.spawn(|member| async move {
                let informed_at = Instant::now();
                let tell = |group| peer::invalidate(&worker, &request, group, &keys, informed_at);
                tell(NodeGroup::Shield).await;
                // Meanwhile this node may have fetched the old object from a shield.
                drop(invalidate(&worker, &request, status, &headers, &keys, None));
                tell(NodeGroup::Edge).await;
                drop(member);
            });
        }
    }
}

/// The invalidations of one response that the client's response waits for.
#[derive(Default)]
struct Pending {
    removals: Vec<Durable>,
    /// The update of the cache by the response, after its target was invalidated.
    update: Option<PostUpdate>,
    /// Resolves when the purge of cache groups and of classes of URLs applies and is durable.
    scopes: Option<oneshot::Receiver<Result<Stamp, PurgeError>>>,
    /// The number of scopes in this purge.
    scopes_count: u64,
}

impl Pending {
    /// Adds hard purges of these scopes to the table of purges.
    fn purge(&mut self, worker: &Worker, scopes: Vec<Scope>) {
        if scopes.is_empty() {
            return;
        }
        self.scopes_count = scopes.len() as u64;
        let hard = |scope| Purge { scope, soft: false };
        let purges = scopes.into_iter().map(hard).collect();
        let (sender, accepted) = oneshot::channel();
        let at_successor = worker.cache.purge_scopes(purges, move |result| {
            // The client's task may have ended.
            _ = sender.send(result);
        });
        self.scopes = Some(accepted);
        self.removals.extend(at_successor);
    }
}

async fn exchange(
    worker: Rc<Worker>,
    request: Rc<Request>,
    attempt: Attempt,
    upload: Upload,
) -> (Result<OriginResponse, OriginError>, Pending) {
    // A response that a rule keeps from the cache is not stored.
    let may_store = request.method == Method::POST
        && request.route == Route::Pass(PassReason::Method)
        && request.settings().stated.pass != Some(true);
    let begin = may_store.then(|| PostBegin::now(&worker, &request));
    let question = Question {
        method: &request.method,
        conditions: Conditions::Keep,
        attempt: attempt.clone(),
        upload,
        refreshes: None,
        may_ask_peer: false,
    };
    let answered = ask(&worker, &request, question).await;
    let sent = answered.sent;
    let no_fields = HeaderMap::new();
    let (status, headers, begin) = match &sent {
        Ok((parts, _)) => (parts.status, &parts.headers, begin),
        // The origin may have executed the request, although no response arrived. After an upload error it has not,
        // because the request was incomplete (RFC 9112 §8). An incomplete request must not remove stored responses.
        Err(error) if attempt.was_sent() && !error.is_upload_error() => {
            (StatusCode::OK, &no_fields, None)
        }
        Err(_) => return (sent, Pending::default()),
    };
    let update = match (&sent, begin) {
        (Ok((parts, _)), Some(begin)) => begin.update(&worker, &request, parts),
        _ => None,
    };
    let keys = keys_of(&worker, &request, status, headers);
    // A node that has removed an object may fetch the old one from a shield that has not.
    let informed_at = Instant::now();
    let tell = |group| peer::invalidate(&worker, &request, group, &keys, informed_at);
    tell(NodeGroup::Shield).await;
    let pending = invalidate(&worker, &request, status, headers, &keys, update);
    tell(NodeGroup::Edge).await;
    (sent, pending)
}

/// Returns true if a request with this method may change the origin's state.
pub(super) fn is_unsafe(method: &Method) -> bool {
    invalidation::applies(method, StatusCode::OK)
}

/// Returns the keys of the targets that a response to an unsafe method invalidates, without classes.
fn keys_of(
    worker: &Worker,
    request: &Request,
    status: StatusCode,
    headers: &HeaderMap,
) -> Vec<Vec<u8>> {
    let Some(target) = request.target() else {
        return Vec::new();
    };
    let targets = invalidation::targets(&request.method, status, &target, headers);
    let targets = targets.into_iter();
    let keys = targets.map(|key| worker.cache.without_ignored_parameters(key));
    keys.collect()
}

/// Removes the stored responses of `keys`, which a response to an unsafe method invalidates. Returns the removals that
/// have to become durable before the client gets its response.
fn invalidate(
    worker: &Worker,
    request: &Request,
    status: StatusCode,
    headers: &HeaderMap,
    keys: &[Vec<u8>],
    mut update: Option<PostUpdate>,
) -> Pending {
    let mut pending = Pending::default();
    let mut scopes = Vec::new();
    let Some(target) = request.target() else {
        return pending;
    };
    for key in keys {
        let mut own_key = key.clone();
        push_class(&request.class, &mut own_key);
        let own_hash = worker.cache.hash(&own_key);
        let mut updated = update.take_if(|update| update.version.key() == own_hash);
        let replaced = updated
            .as_ref()
            .and_then(|update| worker.cache.purge_target_since(update.version, &own_key));
        let (removed, durable) = match (replaced, &mut updated) {
            (Some((mut removed, mut durable, version)), Some(update)) => {
                update.version = version;
                if own_key != *key {
                    let (found, more) = worker.cache.purge_target(key); // the response without a class
                    removed |= found;
                    durable.extend(more);
                }
                (removed, durable)
            }
            // Without an update, or because the target was changed while the origin handled the request.
            _ => {
                updated = None;
                worker.cache.purge_target(key)
            }
        };
        if removed {
            worker.counters.invalidations.increment();
        }
        pending.removals.extend(durable);
        pending.update = pending.update.take().or(updated);
        scopes.extend(scope_of_classes(worker, key.clone()));
    }
    if invalidation::applies(&request.method, status)
        && headers.contains_key(&CACHE_GROUP_INVALIDATION)
    {
        let lines = headers.get_all(&CACHE_GROUP_INVALIDATION);
        let lines = lines.iter().map(HeaderValue::as_bytes);
        for scope in Scope::invalidated_groups(&target.key(), lines) {
            tracing::debug!(%scope, "a response invalidates a cache group");
            worker
                .cache
                .accepted_purges
                .record(&scope, false, "the origin");
            scopes.push(scope);
        }
    }
    pending.purge(worker, scopes);
    pending
}

/// Returns the scope of the responses of all classes for the key of a target, or `None` if no site has classes.
fn scope_of_classes(worker: &Worker, key: Vec<u8>) -> Option<Scope> {
    if !worker.cache.live.config().site_urls.has_classes {
        return None;
    }
    let url = String::from_utf8(key).ok()?;
    Some(Scope::Url(url.into()))
}

/// Removes the stored responses of a target for another node of the fleet, and confirms it when the removal is durable.
pub(super) async fn answer_node(mut reply: Reply, request: Rc<Request>) -> Response<EdgeBody> {
    let worker = Rc::clone(&reply.worker);
    reply.count(RequestOutcome::Method);
    let target = request
        .target()
        .expect("a request that is not refused has a target");
    let key = worker.cache.without_ignored_parameters(target.key());
    let (removed, removals) = worker.cache.purge_target(&key);
    if removed {
        worker.counters.invalidations.increment();
    }
    let mut pending = Pending {
        removals,
        ..Pending::default()
    };
    pending.purge(
        &worker,
        scope_of_classes(&worker, key).into_iter().collect(),
    );
    wait_until_durable(&worker, &mut pending).await;
    reply.confirm("fleet", "invalidated\n".to_owned())
}

/// The field that names the groups (RFC 9875 §3).
static CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// Waits until invalidations are durable, so that clients do not get the old content after a restart of the edge. The
/// wait is limited, so that a faulty disk does not delay responses for long.
async fn wait_until_durable(worker: &Worker, pending: &mut Pending) {
    let all = async {
        let mut certain = true;
        if let Some(scopes) = pending.scopes.take() {
            match (scopes.await, &mut pending.update) {
                (Ok(Ok(stamp)), Some(update)) => update.set_purged(stamp, pending.scopes_count),
                (Ok(Ok(_)), None) => {}
                _ => certain = false,
            }
        }
        for durable in pending.removals.drain(..) {
            certain &= matches!(durable.await, Ok(Ok(())));
        }
        certain
    };
    let wait_max = worker.cache.invalidation_wait_max();
    if tokio::time::timeout(wait_max, all).await != Ok(true) {
        worker.counters.invalidations_not_durable.increment();
        tracing::debug!("an invalidation is not durable on disk");
    }
}
