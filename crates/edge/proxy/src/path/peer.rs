//! Asks another node of the fleet in place of the origin.
//!
//! A request that cannot be answered by another node is sent to the origin: at once if the node has failed, and within
//! the budget of fallbacks if the node is slow or refuses the request. A request that the budget does not cover waits
//! for the node as for the origin.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use edgeward_balance::{NodeGroup, Sender};
use edgeward_purge::Stamp;
use edgeward_semantics::{Route, hop_by_hop};
use edgeward_sites::Settings;
use edgeward_types::KeyHash;
use http::Method;
use http::header::{HOST, HeaderMap};
use http_body::Body as _;

use super::copies::{MemoryCounts, hits_in_memory};
use super::fleet::{Fleet, Member, is_usable};
use super::lookup::key_of;
use super::question::{Answered, Question, Storing};
use super::worker::Worker;
use crate::exchange::Request;
use crate::exchange::hop::{Hop, INVALIDATE, OBJECT, ObjectNote, Signed};
use crate::observe::causes::CopyResult;
use crate::origin::{Attempt, Conditions, Outbound, PeerTarget, Upload};

/// The direction of a request, with the fleet if another node is asked.
pub(super) struct PeerDirection<'a> {
    pub(super) peer: Option<(&'a Fleet, &'a Member)>,
    /// True if this node stores the response. Without a fleet always.
    pub(super) stores: bool,
    /// True if the owner's load has reached the bound, so that another node stands in for it.
    is_moved: bool,
}

/// Returns the direction of a request. Counts one that is moved from an overloaded owner.
pub(super) fn direction_of<'a>(worker: &'a Worker, request: &Request) -> PeerDirection<'a> {
    let alone = PeerDirection {
        peer: None,
        stores: true,
        is_moved: false,
    };
    let Some(fleet) = &worker.shared.fleet else {
        return alone;
    };
    let is_shared = request.route == Route::Lookup
        && matches!(request.method, Method::GET | Method::HEAD)
        && !is_checked(request);
    if !is_shared {
        return alone;
    }
    let direction = direction_in(fleet, worker, request);
    let is_moved = direction.is_moved;
    worker.counters.fleet_moved.add(u64::from(is_moved));
    direction
}

/// Returns true if this node stores the response to a request, whatever its method is.
pub(super) fn stores(worker: &Worker, request: &Request) -> bool {
    let fleet = worker.shared.fleet.as_ref();
    fleet.is_none_or(|fleet| is_checked(request) || direction_in(fleet, worker, request).stores)
}

/// Returns true if the origin checks the authorization of each request. Each node then asks the origin itself, and
/// stores the response.
fn is_checked(request: &Request) -> bool {
    request.settings().caching.check_authorization
}

fn direction_in<'a>(fleet: &'a Fleet, worker: &Worker, request: &Request) -> PeerDirection<'a> {
    let key = key_of(worker, request);
    let sender = match &request.hop {
        None => Sender::Client,
        Some(_) => Sender::Edge,
    };
    let direction = fleet.direction(key.primary(), sender, |member| {
        let servers = member.origin.map(|origin| &worker.shared.origins[origin]);
        servers.is_some_and(|servers| is_usable(servers))
    });
    // The last response could not be stored, so the owner would only pass the request on.
    let marks = &worker.cache.hit_for_miss;
    let is_passed = marks.contains(refusal_mark(key.primary_hash()), worker.now());
    let has_own_rules = match &request.hop {
        None => true,
        Some(hop) => hop.digest == fleet.digest(request.settings().site),
    };
    worker.cache.recycle_key(key);
    let is_changed = changes_compared_fields(&request.settings().stated);
    PeerDirection {
        peer: direction
            .peer
            .filter(|_| !is_passed && !is_changed)
            .map(|peer| (fleet, peer)),
        stores: (direction.stores || is_changed) && has_own_rules,
        is_moved: direction.is_moved && !is_passed && !is_changed,
    }
}

/// Returns true if the rules of a request have changed fields that rules and classes may depend on. Another node would
/// apply its rules to the changed fields, and might answer with the object of another class. Each node stores these
/// objects itself. A rule that changes `Host` changes it only for the origin.
fn changes_compared_fields(stated: &Settings) -> bool {
    stated.request_only.is_on() || stated.request.iter().any(|(name, _)| *name != HOST)
}

/// Records that the response for a target may not be stored, so that its owner would only pass requests on. For a time,
/// this node asks the origin.
pub(super) fn mark_refusal(worker: &Worker, primary: KeyHash) {
    if worker.shared.fleet.is_some() {
        let marks = &worker.cache.hit_for_miss;
        marks.mark(refusal_mark(primary), worker.now());
    }
}

/// Records that a response for a target may be stored, so that its owner is asked again.
pub(super) fn clear_refusal(worker: &Worker, primary: KeyHash) {
    if worker.shared.fleet.is_some() {
        worker.cache.hit_for_miss.clear(refusal_mark(primary));
    }
}

/// Returns the hash by which a target is marked whose last response could not be stored. Other marks rotate the hash
/// by 16 and by 32 bits.
fn refusal_mark(primary: KeyHash) -> KeyHash {
    KeyHash(primary.0.rotate_left(48))
}

/// Asks a member. Returns `None` if the origin is to be asked.
pub(super) async fn ask(
    worker: &Rc<Worker>,
    request: &Request,
    question: &Question<'_>,
    (fleet, member): (&Fleet, &Member),
    stores: bool,
) -> Option<Answered> {
    let counters = &worker.counters;
    let origin = member.origin?;
    let (host, target) = (request.authority()?, request.path_and_query());
    let signed = Signed {
        method: question.method.as_str(),
        host,
        target,
    };
    let hop = hop_of(fleet, request, request.scheme).sign(&fleet.key, signed);
    let outbound = Outbound {
        edge: worker.shared.edge_info_at(origin),
        request,
        method: question.method,
        conditions: question.conditions,
        peer: Some(PeerTarget {
            hop: &hop,
            host,
            target,
        }),
    };
    let may_copy =
        !stores && request.hop.is_none() && member.group == fleet.group && fleet.copies.is_some();
    let is_paused = may_copy && pauses_copies(worker, request);
    let (request_time, sent_at) = (worker.now(), Instant::now());
    let asked_at = worker.cache.purges.latest();
    fleet.record_request(request_time);
    let sending = worker.origins[origin].send(&question.attempt, &outbound, Upload::Empty);
    let mut sending = pin!(sending);
    let sent = match tokio::time::timeout(fleet.wait, &mut sending).await {
        Ok(sent) => sent,
        Err(_) if fleet.may_fall_back(worker.now()) => {
            counters.fleet_slow.increment();
            return None;
        }
        Err(_) => {
            counters.fleet_waits.increment();
            sending.await
        }
    };
    let Ok((mut parts, body)) = sent else {
        counters.fleet_failed.increment();
        return None;
    };
    let note = parts.headers.remove(OBJECT);
    let note = note.as_ref().and_then(ObjectNote::read);
    if let Some(note) = &note
        && is_purged(worker, request, note, &parts.headers, asked_at)
    {
        counters.fleet_purged.increment();
        return None;
    }
    if note.is_some() {
        let key = key_of(worker, request);
        let body_bytes = body.size_hint().exact().unwrap_or(0);
        fleet.record_answer(member, key.primary(), body_bytes);
        worker.cache.recycle_key(key);
    }
    match note {
        // The node has generated the response, for example because it is overloaded or stops.
        None => {
            counters.fleet_refused.increment();
            if fleet.may_fall_back(worker.now()) {
                return None;
            }
        }
        Some(note) if note.is_hit => counters.fleet_hits.increment(),
        Some(_) => counters.fleet_misses.increment(),
    }
    hop_by_hop::strip_response(&mut parts.headers);
    let is_equal =
        |note: &ObjectNote| !note.is_stale && note.digest == fleet.digest(request.settings().site);
    Some(Answered {
        sent: Ok((parts, body)),
        exchange: worker.exchange(request_time),
        fetch_time: sent_at.elapsed(),
        storing: match note.filter(is_equal) {
            Some(note) if stores => Storing::Received(stamp_of(&note)),
            Some(_) if is_paused => {
                counters.fleet_copies[CopyResult::Paused].increment();
                Storing::Never
            }
            // A response that the owner has only passed on is no stored object.
            Some(note) if may_copy && note.stamp.is_some() => Storing::Copy {
                stamp: stamp_of(&note),
                owner_rate: note.rate,
            },
            _ => Storing::Never,
        },
    })
}

/// Returns true if the object of a request was invalidated a moment ago. The owner may still have the old one.
fn pauses_copies(worker: &Worker, request: &Request) -> bool {
    let cache = &worker.cache;
    request.target().is_none_or(|target| {
        let key = cache.key(|bytes| cache.write_target_key(target, bytes));
        let is_paused = cache.copy_pauses.is_paused(&key.bytes);
        cache.recycle_key(key);
        is_paused
    })
}

/// Returns true if this node keeps a copy of an object with this charge, for which the owner states this rate.
pub(super) fn keeps_copy(worker: &Worker, owner_rate: u64, charge_bytes: u64) -> bool {
    let fleet = worker.shared.fleet.as_ref();
    let Some(copies) = fleet.and_then(|fleet| fleet.copies.as_ref()) else {
        return false;
    };
    let memory = || MemoryCounts {
        hits: hits_in_memory(&worker.shared.counters),
        used_bytes: worker.cache.hot.charged_bytes(),
    };
    let keeps = copies.keeps(owner_rate, charge_bytes, worker.now(), memory);
    if !keeps {
        worker.counters.fleet_copies[CopyResult::Cold].increment();
    }
    keeps
}

/// Returns the rate of requests for the object of a node's request, per million seconds.
pub(super) fn rate(worker: &Worker, request: &Request) -> u64 {
    let fleet = worker.shared.fleet.as_ref();
    let Some(copies) = fleet.and_then(|fleet| fleet.copies.as_ref()) else {
        return 0;
    };
    let key = key_of(worker, request);
    let rate = copies.rate(key.primary_hash(), worker.now());
    worker.cache.recycle_key(key);
    rate
}

/// Returns true if a purge of the fleet that this node has applied covers the object of another node, which has not
/// applied the purge yet. A response that the other node has only passed on has no stamp: it is no stored object.
/// Without a common stream, the stamps of different nodes have no order.
fn is_purged(
    worker: &Worker,
    request: &Request,
    note: &ObjectNote,
    headers: &HeaderMap,
    asked_at: Stamp,
) -> bool {
    let cache = &worker.cache;
    let is_object = note.is_hit || note.stamp.is_some();
    if cache.fleet.is_none() || !is_object {
        return false;
    }
    let key = key_of(worker, request);
    let stamp = cache.received_stamp(stamp_of(note), asked_at);
    let is_purged = cache.is_purged(key.primary(), headers, stamp);
    cache.recycle_key(key);
    is_purged
}

/// Returns the stamp that a note states. An object whose newest purge is unknown is older than all purges.
fn stamp_of(note: &ObjectNote) -> Stamp {
    note.stamp.unwrap_or(Stamp::NONE)
}

fn hop_of(fleet: &Fleet, request: &Request, scheme: &'static str) -> Hop {
    Hop {
        node: fleet.name.clone(),
        group: fleet.group,
        scheme,
        client: request.client,
        digest: fleet.digest(request.settings().site),
    }
}

/// Invalidates objects at the other nodes of a group. `keys` are the keys of targets, without classes. The shields must
/// be informed first, because edges fetch from shields. `begin` is the time at which the first group was informed.
/// Waits for the nodes until at most [`INVALIDATION_WAIT`] after it, and for a node that seems to have failed for at
/// most `fleet.wait`, because each unsafe request waits for it.
pub(super) async fn invalidate(
    worker: &Worker,
    request: &Request,
    group: NodeGroup,
    keys: &[Vec<u8>],
    begin: Instant,
) {
    let Some(fleet) = &worker.shared.fleet else {
        return;
    };
    let wait = match group {
        NodeGroup::Shield => INVALIDATION_WAIT / 2,
        NodeGroup::Edge => INVALIDATION_WAIT,
    };
    let wait = wait.saturating_sub(begin.elapsed());
    let tell = |member, is_up, key| async move {
        let wait = if is_up { wait } else { wait.min(fleet.wait) };
        let told = invalidate_at(worker, request, fleet, (member, is_up), key);
        match tokio::time::timeout(wait, told).await {
            Ok(true) => worker.counters.fleet_invalidated.increment(),
            Ok(false) | Err(_) => worker.counters.fleet_not_invalidated.increment(),
        }
    };
    let mut pending = Vec::new();
    for member in fleet.others(group) {
        let servers = member.origin.map(|origin| &worker.shared.origins[origin]);
        let is_up = servers.is_some_and(|servers| is_usable(servers));
        pending.extend(keys.iter().map(|key| Box::pin(tell(member, is_up, key))));
    }
    poll_fn(|cx| {
        pending.retain_mut(|told| told.as_mut().poll(cx).is_pending());
        match pending.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// Invalidates the object of a key at a member. A member that is not up is asked once, too. Returns false if the member
/// has not confirmed it.
async fn invalidate_at(
    worker: &Worker,
    request: &Request,
    fleet: &Fleet,
    (member, is_up): (&Member, bool),
    key: &[u8],
) -> bool {
    let (Some(origin), Some((scheme, host, target))) = (member.origin, parts_of(key)) else {
        return true;
    };
    let method = Method::from_bytes(INVALIDATE.as_bytes()).expect("the name is a token");
    let signed = Signed {
        method: INVALIDATE,
        host,
        target,
    };
    let hop = hop_of(fleet, request, scheme).sign(&fleet.key, signed);
    let outbound = Outbound {
        edge: worker.shared.edge_info_at(origin),
        request,
        method: &method,
        conditions: Conditions::Remove,
        peer: Some(PeerTarget {
            hop: &hop,
            host,
            target,
        }),
    };
    let attempt = Attempt::without_body(true);
    let group = &worker.origins[origin];
    let sent = match is_up {
        true => Box::pin(group.send(&attempt, &outbound, Upload::Empty)).await,
        false => group.send_to_ejected(&attempt, &outbound).await,
    };
    sent.is_ok_and(|(parts, _)| parts.status.is_success())
}

/// Returns scheme, host and target of the key of a target.
fn parts_of(key: &[u8]) -> Option<(&'static str, &str, &str)> {
    let (scheme, rest) = std::str::from_utf8(key).ok()?.split_once("://")?;
    let (host, target) = rest.split_at(rest.find('/')?);
    let scheme = match scheme {
        "http" => "http",
        "https" => "https",
        _ => return None,
    };
    Some((scheme, host, target))
}

/// The longest wait for the nodes that invalidate objects. They remove the objects from memory, and record on disk that
/// they are removed. Shields have half of this time.
const INVALIDATION_WAIT: Duration = Duration::from_secs(2);
const _: () =
    assert!(2 * INVALIDATION_WAIT.as_millis() <= edgeward_balance::CopyPause::PAUSE.as_millis());
