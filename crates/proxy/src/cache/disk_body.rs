//! A body on its way from disk to a client, read as the client takes it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_store::disk::{DiskObject, Miss, Now, Piece};
use edgeward_store::hot::{Commit, Hold, Offer, Reservation};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use tokio::sync::oneshot;

use super::disk::DiskTier;
use super::disk_hit::DiskHit;
use super::key::CacheKey;
use super::tiers::{Cache, WorkerCache};
use crate::base::budget::charged;
use crate::cache::stored::{Stored, StoredBody, StoredKind, StoredResponse};

/// The disk did not give what its index promised, after the client had got the head.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum BrokenRead {
    /// The disk said so.
    #[error("the disk cache lost the rest of the body: {0}")]
    Miss(Miss),
    /// The edge is being stopped.
    #[error("the disk cache is closed")]
    Closed,
}

/// A part of an object, or all of it.
pub(crate) struct DiskBody {
    object: DiskObject,
    range: Range<u64>,
    waiting: Option<oneshot::Receiver<Result<Bytes, Miss>>>,
    promotion: Option<Promotion>,
}

impl DiskBody {
    /// A range of the object's body.
    pub(crate) fn part(object: DiskObject, range: Range<u64>) -> Self {
        Self {
            object,
            range,
            waiting: None,
            promotion: None,
        }
    }

    /// All of it, which may go to RAM as well.
    pub(crate) fn whole(cache: &WorkerCache, hash: KeyHash, stored: &Arc<Stored>) -> Option<Self> {
        let StoredKind::Response(response) = &stored.kind else {
            return None;
        };
        let StoredBody::Disk(object) = &response.body else {
            return None;
        };
        let mut body = Self::part(object.clone(), 0..response.body.len());
        let passing = Passing {
            hash,
            charge_bytes: stored.charge_bytes(),
            length: response.body.len(),
        };
        body.promotion = Promotion::begin(cache, object, &passing, || Arc::clone(stored));
        Some(body)
    }

    /// All of a hit, which may go to memory as well.
    pub(crate) fn of_hit(cache: &WorkerCache, key: &CacheKey, hit: &DiskHit) -> Self {
        let mut body = Self::part(hit.object.clone(), 0..hit.length());
        let passing = Passing {
            hash: key.hash,
            charge_bytes: hit.charge_bytes(key),
            length: hit.length(),
        };
        body.promotion = Promotion::begin(cache, &hit.object, &passing, || hit.stored(key));
        body
    }

    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The next part of it if that takes no waiting; as a span if `spans` may be and all goes to the client alone.
    pub(crate) fn piece_now(&mut self, cache: &WorkerCache, spans: bool) -> Now<Piece> {
        let range = self.range.clone();
        let piece = if spans && self.promotion.is_none() {
            self.object.piece_now(range)
        } else {
            match self.object.read_now(range) {
                Now::Ready(bytes) => Now::Ready(Piece::Bytes(bytes)),
                Now::WouldBlock => Now::WouldBlock,
                Now::Miss(miss) => Now::Miss(miss),
            }
        };
        if let Now::Ready(piece) = &piece {
            self.gave(cache, piece);
        }
        piece
    }

    /// The next part, which may be a span if `spans` says so; nothing at the end.
    pub(crate) fn poll_piece(
        &mut self,
        cache: &WorkerCache,
        cx: &mut Context<'_>,
        spans: bool,
    ) -> Poll<Option<Result<Piece, BrokenRead>>> {
        if self.range.is_empty() {
            return Poll::Ready(None);
        }
        if self.waiting.is_none() {
            match self.piece_now(cache, spans) {
                Now::Ready(piece) => return Poll::Ready(Some(Ok(piece))),
                Now::Miss(miss) => return Poll::Ready(Some(Err(BrokenRead::Miss(miss)))),
                Now::WouldBlock => {}
            }
            let tier = cache.disk.as_ref();
            let (object, range) = (self.object.clone(), self.range.clone());
            let asked =
                tier.and_then(|tier| tier.readers().insist(move || object.read(range)).ok());
            let Some(asked) = asked else {
                return Poll::Ready(Some(Err(BrokenRead::Closed)));
            };
            cache.counters.disk_waited_bodies.increment();
            self.waiting = Some(asked);
        }
        let waiting = self.waiting.as_mut().expect("asked above");
        let answer = ready!(Pin::new(waiting).poll(cx));
        self.waiting = None;
        Poll::Ready(Some(match answer {
            Ok(Ok(bytes)) => {
                let piece = Piece::Bytes(bytes);
                self.gave(cache, &piece);
                Ok(piece)
            }
            Ok(Err(miss)) => Err(BrokenRead::Miss(miss)),
            Err(_) => Err(BrokenRead::Closed),
        }))
    }

    fn gave(&mut self, cache: &WorkerCache, piece: &Piece) {
        self.range.start += piece.len();
        cache.counters.disk_response_bytes.add(piece.len());
        if let (Some(promotion), Piece::Bytes(bytes)) = (&mut self.promotion, piece) {
            let Some(seen) = promotion.cache.hot.renewed(promotion.seen) else {
                cache.counters.dropped_promotion.increment();
                self.promotion = None;
                return;
            };
            promotion.seen = seen;
            promotion.buffer.extend_from_slice(bytes);
            if self.range.is_empty()
                && let Some(promotion) = self.promotion.take()
            {
                match promotion.finish() {
                    Commit::Done(_) => cache.counters.disk_promoted.increment(),
                    Commit::Outdated => cache.counters.dropped_promotion.increment(),
                    Commit::Lost => {}
                }
            }
        }
    }
}

/// An object that a request takes past RAM.
struct Passing {
    hash: KeyHash,
    /// What RAM would charge for it.
    charge_bytes: u64,
    length: u64,
}

/// An object on its way to RAM while a client gets it.
struct Promotion {
    cache: Arc<Cache>,
    hash: KeyHash,
    stored: Arc<Stored>,
    seen: Version,
    reservation: Option<Reservation<Stored>>,
    /// As large as the body from the start.
    buffer: Vec<u8>,
    /// Its charge, also after its place was lost.
    hold: Option<Hold>,
}

impl Promotion {
    /// Asks RAM's policy.
    fn begin(
        cache: &WorkerCache,
        object: &DiskObject,
        passing: &Passing,
        stored: impl FnOnce() -> Arc<Stored>,
    ) -> Option<Self> {
        let shared = cache.shared();
        let tier = shared.disk.as_ref()?;
        let &Passing {
            hash,
            charge_bytes,
            length,
        } = passing;
        let offers = tier.hit(hash, length) && tier.begin_promotion(hash);
        if !offers {
            cache.record(hash, charge_bytes, false);
            return None;
        }
        let seen = tier.version_of(hash, object);
        let seen = seen.filter(|_| shared.hot.peek(hash).is_none());
        let offer = seen.map(|_| shared.offer_to_ram(hash, charge_bytes, &cache.counters));
        cache.record(hash, charge_bytes, false);
        let (Some(seen), Some(Offer::Admit(mut reservation))) = (seen, offer) else {
            tier.end_promotion(hash);
            return None;
        };
        Some(Self {
            cache: Arc::clone(shared),
            hash,
            stored: stored(),
            seen,
            hold: reservation.take_hold(),
            reservation: Some(reservation),
            buffer: Vec::with_capacity(usize::try_from(length).unwrap_or(0)),
        })
    }

    fn tier(&self) -> Option<&Arc<DiskTier>> {
        self.cache.disk.as_ref()
    }

    /// The body is whole. Kept if it is still what the cache holds, and holds on disk alone.
    fn finish(mut self) -> Commit {
        let Some(reservation) = self.reservation.take() else {
            return Commit::Lost;
        };
        let StoredKind::Response(response) = &self.stored.kind else {
            return Commit::Lost;
        };
        let buffer = std::mem::take(&mut self.buffer).into_boxed_slice();
        let body = charged(buffer, self.hold.take());
        let response = StoredResponse {
            body: StoredBody::Memory(body),
            // The block may be a part of what was read from disk.
            head: Bytes::copy_from_slice(&response.head),
            ..response.clone()
        };
        let value = self.stored.renewed(StoredKind::Response(response));
        reservation.promote(value, self.seen)
    }
}

impl Drop for Promotion {
    fn drop(&mut self) {
        if let Some(tier) = self.tier() {
            tier.end_promotion(self.hash);
        }
    }
}
