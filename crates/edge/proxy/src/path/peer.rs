//! Asks another node of the fleet in place of the origin.
//!
//! A request that cannot be answered by another node is sent to the origin: at once if the node has failed, and within
//! the budget of fallbacks if the node is slow or refuses the request. A request that the budget does not cover waits
//! for the node as for the origin.

use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use edgeward_balance::Sender;
use edgeward_semantics::{Route, hop_by_hop};
use edgeward_types::KeyHash;
use http::Method;

use super::fleet::{Fleet, Member, is_usable};
use super::lookup::key_of;
use super::question::{Answered, Question, Storing};
use super::worker::Worker;
use crate::exchange::Request;
use crate::exchange::hop::{Hop, OBJECT, ObjectNote, Signed};
use crate::origin::{Outbound, Upload};

/// The direction of a request, with the fleet if another node is asked.
pub(super) struct PeerDirection<'a> {
    pub(super) peer: Option<(&'a Fleet, &'a Member)>,
    /// True if this node stores the response. Without a fleet always.
    pub(super) stores: bool,
}

/// Returns the direction of a request.
pub(super) fn direction_of<'a>(worker: &'a Worker, request: &Request) -> PeerDirection<'a> {
    let alone = PeerDirection {
        peer: None,
        stores: true,
    };
    let Some(fleet) = &worker.shared.fleet else {
        return alone;
    };
    let is_shared = request.route == Route::Lookup
        && matches!(request.method, Method::GET | Method::HEAD)
        && !request.settings().caching.check_authorization;
    if !is_shared {
        return alone;
    }
    direction_in(fleet, worker, request)
}

/// Returns true if this node stores the response to a request, whatever its method is.
pub(super) fn stores(worker: &Worker, request: &Request) -> bool {
    let fleet = worker.shared.fleet.as_ref();
    fleet.is_none_or(|fleet| direction_in(fleet, worker, request).stores)
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
    PeerDirection {
        peer: direction
            .peer
            .filter(|_| !is_passed)
            .map(|peer| (fleet, peer)),
        stores: direction.stores && has_own_rules,
    }
}

/// Returns the hash by which a target is marked whose last response could not be stored.
pub(super) fn refusal_mark(primary: KeyHash) -> KeyHash {
    KeyHash(primary.0.rotate_left(16))
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
    let hop = Hop {
        node: fleet.name.clone(),
        group: fleet.group,
        scheme: request.scheme,
        client: request.client,
        digest: fleet.digest(request.settings().site),
    };
    let signed = Signed {
        method: question.method.as_str(),
        host: request.authority()?,
        target: request.path_and_query(),
    };
    let hop = hop.sign(&fleet.key, signed);
    let outbound = Outbound {
        edge: worker.shared.edge_info_at(origin),
        request,
        method: question.method,
        conditions: question.conditions,
        hop: Some(&hop),
    };
    let (request_time, sent_at) = (worker.now(), Instant::now());
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
        storing: match note.filter(|note| stores && is_equal(note)) {
            Some(note) => Storing::Received(note.stamp),
            None => Storing::Never,
        },
    })
}
