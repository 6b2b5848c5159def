//! A request that asks for nothing but the whole response: a fresh one in RAM, or one whose head the disk has at hand.
//!
//! Does what [`serve`](super::serve) does for such a request, without a map of its fields. What cannot be answered so
//! goes there, along with what was looked up, so that nothing is looked up or counted twice.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_semantics::{RequestDirectives, Reuse, StoredPolicy};
use edgeward_store::arena::Arena;
use edgeward_store::disk::{DiskObject, Now, Piece};
use edgeward_types::{KeyHash, Timestamp};
use http::StatusCode;

use super::lookup::{keep_marker, lookup};
use crate::disk::body::DiskBody;
use crate::disk::head::{self, DiskHead};
use crate::disk::{Glanced, Looked};
use crate::stored::{OnDisk, Stored, StoredBody, StoredKind, StoredResponse, has_length};
use crate::worker::Worker;

/// What became of a plain request.
pub(crate) enum Plain {
    /// It was answered from RAM.
    Answered,
    /// The disk has a fresh response.
    Disk(Box<DiskHit>),
    /// Neither; its key's hash and what was found under it. The key is left in the worker's scratch.
    Elsewhere(KeyHash, Looked),
}

/// A fresh response on disk.
pub(crate) struct DiskHit {
    hash: KeyHash,
    key_bytes: usize,
    object: DiskObject,
    pub(crate) status: StatusCode,
    pub(crate) policy: StoredPolicy,
    /// `name: value\r\n` for each field but `Content-Length`.
    pub(crate) fields: Bytes,
    /// What [`DiskTier::changes`](crate::disk::DiskTier::changes) said before it was looked up.
    changes: u64,
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
    let hash = worker.shared.hash(&key);
    let Some(stored) = lookup(worker, hash, &key) else {
        return on_disk(worker, hash, &key, now);
    };
    if let StoredKind::Response(response) = &stored.kind
        && let StoredBody::Memory(body) = &response.body
        && is_fresh(&response.policy, now)
    {
        worker.counters.hit.one();
        worker.record(hash, stored.charge_bytes(), true);
        deliver(hash, response, body);
        let may_move = Arena::BODY_BYTES_MIN..=Arena::BODY_BYTES_MAX;
        if sends_files && may_move.contains(&(body.len() as u64)) {
            worker.shared.move_if_worth_it(hash, &stored);
        }
        return Plain::Answered;
    }
    Plain::Elsewhere(hash, Looked::Found(stored))
}

fn on_disk(worker: &Worker, hash: KeyHash, key: &[u8], now: Timestamp) -> Plain {
    let Some(disk) = &worker.shared.disk else {
        return Plain::Elsewhere(hash, Looked::Absent);
    };
    let changes = disk.changes(hash);
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
            key_bytes: key.len(),
            object,
            status,
            policy,
            fields,
            changes,
        }));
    }
    let looked = disk.known(key, object, changes, &worker.counters);
    if let Looked::Found(stored) = &looked {
        keep_marker(worker, hash, stored, changes);
    }
    Plain::Elsewhere(hash, looked)
}

fn is_fresh(policy: &StoredPolicy, now: Timestamp) -> bool {
    let asked = RequestDirectives::default();
    matches!(policy.reuse(now, &asked), Reuse::Fresh { .. })
}

impl DiskHit {
    /// Bytes of the body.
    pub(crate) fn length(&self) -> u64 {
        self.object.length()
    }

    /// What `Content-Length` says, where the status has one.
    pub(crate) fn content_length(&self) -> Option<u64> {
        has_length(self.status).then(|| self.length())
    }

    /// The front of the body, if it takes no waiting, and the rest. What RAM's policy says of the object is asked here.
    ///
    /// # Errors
    ///
    /// If the disk does not have it after all: nothing was sent, so it can still be a miss.
    pub(crate) fn body(
        &self,
        worker: &Worker,
        spans: bool,
    ) -> Result<(Option<Piece>, DiskBody), Looked> {
        let mut body = DiskBody::of_hit(worker, self);
        match body.piece_now(worker, spans) {
            Now::Ready(piece) => Ok((Some(piece), body)),
            Now::WouldBlock => Ok((None, body)),
            Now::Miss(_) => {
                worker.counters.disk_unreadable.one();
                Err(Looked::Absent)
            }
        }
    }

    /// Nothing of the body was asked for.
    pub(crate) fn pass_by(&self, worker: &Worker) {
        if let Some(disk) = &worker.shared.disk {
            disk.hit(self.hash, self.length());
        }
        worker.record(self.hash, self.charge_bytes(), false);
    }

    /// As it would lie in RAM, but for its body. For [`plain`]'s caller, before another key is put together.
    pub(crate) fn stored(&self, worker: &Worker) -> Arc<Stored> {
        let response = StoredResponse {
            policy: self.policy,
            status: self.status,
            head: head::block(self.status, &self.fields, self.length()),
            body: StoredBody::Disk(OnDisk {
                object: self.object.clone(),
                changes: self.changes,
            }),
        };
        Stored::new(&worker.scratch.borrow(), StoredKind::Response(response))
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.hash
    }

    pub(crate) fn object(&self) -> &DiskObject {
        &self.object
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// What RAM would charge for it.
    pub(crate) fn charge_bytes(&self) -> u64 {
        let head_bytes = head::block_bytes(self.status, &self.fields, self.length());
        crate::stored::charge_bytes(self.key_bytes, head_bytes, self.length())
    }
}
