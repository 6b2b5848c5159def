//! From a target to what is stored for it.

use std::sync::Arc;

use edgeward_semantics::Forward;
use edgeward_store::disk::Candidate;
use edgeward_store::hot::{Commit, Offer};
use edgeward_types::KeyHash;

use crate::cache::disk::Looked;
use crate::cache::stored::{Stored, StoredKind, StoredResponse};
use crate::exchange::Request;
use crate::origin::as_origin_sees;
use crate::path::worker::Worker;

/// What a lookup found.
pub(super) enum Found {
    /// A response, fresh or not.
    Response {
        hash: KeyHash,
        primary_len: usize,
        stored: Arc<Stored>,
        /// What told the way to it, if the URI varies.
        marker: Option<Arc<Stored>>,
    },
    /// Nothing that answers this request.
    Nothing { key: MissKey, why: Forward },
    /// The disk may have it and has to be waited for: see [`wait`].
    Waits(Box<Waiting>),
}

/// A lookup that waits for the disk.
pub(super) struct Waiting {
    key: Vec<u8>,
    primary_len: usize,
    hash: KeyHash,
    marker: Option<Arc<Stored>>,
    candidate: Candidate,
}

/// Under which key a missing response belongs.
#[derive(Clone, Debug)]
pub(super) struct MissKey {
    pub(super) hash: KeyHash,
    /// The primary key, and behind it the secondary one if the URI is known to vary.
    pub(super) bytes: Box<[u8]>,
    pub(super) primary_len: usize,
    /// What said that it varies.
    pub(super) marker: Option<Arc<Stored>>,
}

impl MissKey {
    pub(super) fn primary(&self) -> &[u8] {
        &self.bytes[..self.primary_len]
    }

    pub(super) fn primary_hash(&self, worker: &Worker) -> KeyHash {
        if self.primary_len == self.bytes.len() {
            self.hash
        } else {
            worker.cache.hash(self.primary())
        }
    }
}

/// Two lookups at most: one for the URI, one for the variant if it varies. Each in RAM, then on disk.
pub(super) fn find(worker: &Worker, request: &Request) -> Found {
    let mut key = worker.scratch.borrow_mut();
    key.clear();
    let target = request
        .target()
        .expect("a request that is not refused has a target");
    target.write_key(&mut key);
    let hash = worker.cache.hash(&key);
    let looked = look(worker, hash, &key);
    of_primary(worker, request, &mut key, hash, looked)
}

/// The same after the first lookup, whose key is in the worker's scratch.
pub(super) fn after(worker: &Worker, request: &Request, hash: KeyHash, looked: Looked) -> Found {
    let mut key = worker.scratch.borrow_mut();
    of_primary(worker, request, &mut key, hash, looked)
}

fn of_primary(
    worker: &Worker,
    request: &Request,
    key: &mut Vec<u8>,
    hash: KeyHash,
    looked: Looked,
) -> Found {
    match looked {
        Looked::Waits(candidate) => waits(key, key.len(), hash, None, candidate),
        Looked::Found(stored) => go_on(worker, request, key, hash, Some(stored)),
        Looked::Absent => go_on(worker, request, key, hash, None),
    }
}

/// Goes on with a lookup when the disk has answered.
pub(super) async fn wait(worker: &Worker, mut waiting: Waiting, request: &Request) -> Found {
    loop {
        let Waiting {
            mut key,
            primary_len,
            hash,
            marker,
            candidate,
        } = waiting;
        let stored = match &worker.cache.disk {
            Some(disk) => {
                let stored = disk.wait(candidate, hash, &key, &worker.counters).await;
                if let Some(stored) = &stored {
                    keep_marker(worker, hash, stored);
                }
                stored
            }
            None => None,
        };
        let found = match marker {
            Some(marker) => end(key.as_slice(), primary_len, hash, stored, Some(marker)),
            None => go_on(worker, request, &mut key, hash, stored),
        };
        match found {
            Found::Waits(next) => waiting = *next,
            found => {
                // Where `key_of` looks for it.
                let mut scratch = worker.scratch.borrow_mut();
                scratch.clear();
                scratch.extend_from_slice(&key);
                return found;
            }
        }
    }
}

/// With what lies under the primary key, on to the variant if the URI varies.
fn go_on(
    worker: &Worker,
    request: &Request,
    key: &mut Vec<u8>,
    hash: KeyHash,
    stored: Option<Arc<Stored>>,
) -> Found {
    let primary_len = key.len();
    let Some(marker) = stored
        .as_ref()
        .filter(|stored| matches!(stored.kind, StoredKind::Varies(_)))
        .cloned()
    else {
        return end(key, primary_len, hash, stored, None);
    };
    if let StoredKind::Varies(variants) = &marker.kind {
        variants.write_key(
            &as_origin_sees(worker.hop(), request, &variants.fields),
            key,
        );
    }
    let hash = worker.cache.hash(key);
    match look(worker, hash, key) {
        Looked::Waits(candidate) => waits(key, primary_len, hash, Some(marker), candidate),
        Looked::Found(stored) => end(key, primary_len, hash, Some(stored), Some(marker)),
        Looked::Absent => end(key, primary_len, hash, None, Some(marker)),
    }
}

fn waits(
    key: &[u8],
    primary_len: usize,
    hash: KeyHash,
    marker: Option<Arc<Stored>>,
    candidate: Candidate,
) -> Found {
    Found::Waits(Box::new(Waiting {
        key: key.to_vec(),
        primary_len,
        hash,
        marker,
        candidate,
    }))
}

fn end(
    key: &[u8],
    primary_len: usize,
    hash: KeyHash,
    stored: Option<Arc<Stored>>,
    marker: Option<Arc<Stored>>,
) -> Found {
    match stored {
        Some(stored) if matches!(stored.kind, StoredKind::Response(_)) => Found::Response {
            hash,
            primary_len,
            stored,
            marker,
        },
        _ => Found::Nothing {
            why: if marker.is_some() {
                Forward::VaryMiss
            } else {
                Forward::UriMiss
            },
            key: MissKey {
                hash,
                bytes: key.into(),
                primary_len,
                marker,
            },
        },
    }
}

/// What RAM or the disk has under a key.
fn look(worker: &Worker, hash: KeyHash, key: &[u8]) -> Looked {
    if let Some(stored) = lookup(worker, hash, key) {
        return Looked::Found(stored);
    }
    let Some(disk) = &worker.cache.disk else {
        return Looked::Absent;
    };
    let looked = disk.look(hash, key, &worker.counters);
    if let Looked::Found(stored) = &looked {
        keep_marker(worker, hash, stored);
    }
    looked
}

/// Puts a marker that came from disk into RAM, where every request for the URI will look for it.
pub(super) fn keep_marker(worker: &Worker, hash: KeyHash, stored: &Arc<Stored>) {
    let cache = &worker.cache;
    let StoredKind::Varies(variants) = &stored.kind else {
        return;
    };
    let Some(seen) = variants.seen.filter(|_| cache.hot.peek(hash).is_none()) else {
        return;
    };
    if let Offer::Admit(mut reservation) =
        cache.offer_to_ram(hash, stored.charge_bytes(), &worker.counters)
    {
        stored.keep_hold(reservation.take_hold());
        if reservation.promote(Arc::clone(stored), seen) == Commit::Outdated {
            worker.counters.dropped_promotion.one();
        }
    }
}

/// The key of a response that [`find`] has just found and that cannot be used as it is.
pub(super) fn key_of(
    worker: &Worker,
    hash: KeyHash,
    primary_len: usize,
    marker: Option<Arc<Stored>>,
) -> MissKey {
    MissKey {
        hash,
        // `find` left the key where it put it together.
        bytes: worker.scratch.borrow().as_slice().into(),
        primary_len,
        marker,
    }
}

/// What is under a hash, if it is under this very key.
pub(super) fn lookup(worker: &Worker, hash: KeyHash, key: &[u8]) -> Option<Arc<Stored>> {
    let stored = worker.cache.hot.lookup(hash)?;
    if stored.is_of(key) {
        return Some(stored);
    }
    worker.counters.key_collisions.one();
    None
}

/// The response in what [`find`] found.
pub(super) fn response(stored: &Stored) -> &StoredResponse {
    match &stored.kind {
        StoredKind::Response(response) => response,
        StoredKind::Varies(_) => unreachable!("only responses are handed on"),
    }
}
