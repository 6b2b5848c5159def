//! A request that asks for nothing but the whole response: a fresh one in RAM, or one whose head the disk has at hand.
//!
//! Does what [`serve`](super::serve) does for such a request, without a map of its fields. What cannot be answered so
//! goes there, along with what was looked up, so that nothing is looked up or counted twice.

use bytes::Bytes;
use edgeward_semantics::{RequestDirectives, Reuse, StoredPolicy};
use edgeward_store::arena::Arena;
use edgeward_store::disk::{Now, Piece};
use edgeward_types::{KeyHash, Timestamp};

use super::lookup::{keep_marker, lookup};
use crate::cache::DiskHit;
use crate::cache::disk::head::{self, DiskHead};
use crate::cache::disk::{Glanced, Looked};
use crate::cache::disk_body::DiskBody;
use crate::cache::stored::{StoredBody, StoredKind, StoredResponse};
use crate::path::worker::Worker;

/// What became of a plain request.
pub(crate) enum Plain {
    /// It was answered from RAM.
    Answered,
    /// The disk has a fresh response.
    Disk(Box<DiskHit>),
    /// Neither; its key's hash and what was found under it. The key is left in the worker's scratch.
    Elsewhere(KeyHash, Looked),
}

/// Looks for a fresh response. One in RAM is delivered. `sends_files`: over a connection that need not copy what lies in the arena.
pub(crate) fn plain(
    worker: &Worker,
    write_key: impl FnOnce(&mut Vec<u8>),
    now: Timestamp,
    sends_files: bool,
    deliver: impl FnOnce(KeyHash, &StoredResponse, &Bytes),
) -> Plain {
    let mut key = worker.scratch.borrow_mut();
    key.clear();
    write_key(&mut key);
    let hash = worker.cache.hash(&key);
    let Some(stored) = lookup(worker, hash, &key) else {
        return on_disk(worker, hash, &key, now);
    };
    if let StoredKind::Response(response) = &stored.kind
        && let StoredBody::Memory(body) = &response.body
        && is_fresh(&response.policy, now)
    {
        worker.counters.hit.one();
        worker.cache.record(hash, stored.charge_bytes(), true);
        deliver(hash, response, body);
        let may_move = Arena::BODY_BYTES_MIN..=Arena::BODY_BYTES_MAX;
        if sends_files && may_move.contains(&(body.len() as u64)) {
            worker.cache.move_if_worth_it(hash, &stored);
        }
        return Plain::Answered;
    }
    Plain::Elsewhere(hash, Looked::Found(stored))
}

fn on_disk(worker: &Worker, hash: KeyHash, key: &[u8], now: Timestamp) -> Plain {
    let Some(disk) = &worker.cache.disk else {
        return Plain::Elsewhere(hash, Looked::Absent);
    };
    let object = match disk.glance(hash, key, &worker.counters) {
        Glanced::Found(object) => object,
        Glanced::Absent => return Plain::Elsewhere(hash, Looked::Absent),
        Glanced::Waits(candidate) => return Plain::Elsewhere(hash, Looked::Waits(candidate)),
    };
    if let Ok(DiskHead::Response {
        status,
        policy,
        fields,
    }) = head::parse(object.head())
        && is_fresh(&policy, now)
    {
        return Plain::Disk(Box::new(DiskHit {
            hash,
            key: key.into(),
            object,
            status,
            policy,
            fields,
        }));
    }
    let looked = disk.known(hash, key, object, &worker.counters);
    if let Looked::Found(stored) = &looked {
        keep_marker(worker, hash, stored);
    }
    Plain::Elsewhere(hash, looked)
}

fn is_fresh(policy: &StoredPolicy, now: Timestamp) -> bool {
    let asked = RequestDirectives::default();
    matches!(policy.reuse(now, &asked), Reuse::Fresh { .. })
}

/// The front of a hit's body, if the disk need not be waited for, and the rest.
///
/// # Errors
///
/// If the disk does not have it after all: nothing was sent, so it can still be a miss.
pub(crate) fn disk_hit_body(
    worker: &Worker,
    hit: &DiskHit,
    spans: bool,
) -> Result<(Option<Piece>, DiskBody), Looked> {
    let mut body = DiskBody::of_hit(&worker.cache, hit);
    match body.piece_now(&worker.cache, spans) {
        Now::Ready(piece) => Ok((Some(piece), body)),
        Now::WouldBlock => Ok((None, body)),
        Now::Miss(_) => {
            worker.counters.disk_unreadable.one();
            Err(Looked::Absent)
        }
    }
}
