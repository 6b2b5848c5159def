//! Bodies that are read from disk as fast as their clients accept them.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_store::disk::{DiskObject, Miss, NonBlockingRead, Piece};
use edgeward_store::hot::{ChargeGuard, Commit, Offer, Reservation};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use tokio::sync::oneshot;

use super::disk::{Claim, DiskHit};
use super::key::CacheKey;
use super::stored::{Stored, StoredBody, StoredKind, StoredResponse};
use super::tiers::{Cache, WorkerCache};
use crate::rt::budget::charged;

/// The reason why the rest of a body cannot be read, after the client got the head.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum BrokenRead {
    /// The object is no longer readable.
    #[error("the disk cache lost the rest of the body: {0}")]
    Miss(Miss),
    /// The edge is stopping.
    #[error("the disk cache is closed")]
    Closed,
}

/// A body, or a range of it, that is read from an object on disk.
pub(crate) struct DiskBody {
    object: DiskObject,
    remaining: Range<u64>,
    pending_read: Option<oneshot::Receiver<Result<Bytes, Miss>>>,
    promotion: Option<Promotion>,
}

impl DiskBody {
    /// Returns a body that reads a range of the object.
    pub(crate) fn part(object: DiskObject, range: Range<u64>) -> Self {
        Self {
            object,
            remaining: range,
            pending_read: None,
            promotion: None,
        }
    }

    /// Returns a body that reads all of `object`, the body of `stored`. Reading may promote the object to memory if
    /// `promotes` is true.
    pub(crate) fn all(
        cache: &WorkerCache,
        hash: KeyHash,
        stored: &Arc<Stored>,
        object: &DiskObject,
        promotes: bool,
    ) -> Self {
        let mut body = Self::part(object.clone(), 0..object.length());
        let charge_bytes = stored.charge_bytes();
        if !promotes {
            return body;
        }
        body.promotion = Promotion::begin(cache, object, hash, charge_bytes, || Arc::clone(stored));
        body
    }

    /// Returns a body that reads all of a hit's object. Reading may promote the object to memory if `promotes` is
    /// true.
    pub(crate) fn of_hit(
        cache: &WorkerCache,
        key: &CacheKey,
        hit: &DiskHit,
        promotes: bool,
    ) -> Self {
        let mut body = Self::part(hit.object.clone(), 0..hit.length());
        let charge_bytes = hit.charge_bytes(key.bytes.len());
        let stored = || hit.stored(key);
        if !promotes {
            return body;
        }
        body.promotion = Promotion::begin(cache, &hit.object, key.hash, charge_bytes, stored);
        body
    }

    /// Returns the number of bytes that are still to be read.
    pub(crate) fn remaining_bytes(&self) -> u64 {
        self.remaining.end - self.remaining.start
    }

    /// Returns the next piece if it can be read without waiting. If `spans` is true and the body is not being promoted,
    /// the piece may be a [`Piece::Span`], which the kernel sends from the page cache.
    pub(crate) fn piece_now(&mut self, cache: &WorkerCache, spans: bool) -> NonBlockingRead<Piece> {
        let range = self.remaining.clone();
        let piece = if spans && self.promotion.is_none() {
            self.object.piece_now(range)
        } else {
            match self.object.read_now(range) {
                NonBlockingRead::Ready(bytes) => NonBlockingRead::Ready(Piece::Bytes(bytes)),
                NonBlockingRead::WouldBlock => NonBlockingRead::WouldBlock,
                NonBlockingRead::Miss(miss) => NonBlockingRead::Miss(miss),
            }
        };
        if let NonBlockingRead::Ready(piece) = &piece {
            self.record_piece(cache, piece);
        }
        piece
    }

    /// Returns the next piece, or `None` at the end. The piece may be a [`Piece::Span`] if `spans` is true.
    pub(crate) fn poll_piece(
        &mut self,
        cache: &WorkerCache,
        cx: &mut Context<'_>,
        spans: bool,
    ) -> Poll<Option<Result<Piece, BrokenRead>>> {
        if self.remaining.is_empty() {
            return Poll::Ready(None);
        }
        if self.pending_read.is_none() {
            match self.piece_now(cache, spans) {
                NonBlockingRead::Ready(piece) => return Poll::Ready(Some(Ok(piece))),
                NonBlockingRead::Miss(miss) => {
                    return Poll::Ready(Some(Err(BrokenRead::Miss(miss))));
                }
                NonBlockingRead::WouldBlock => {}
            }
            let tier = cache.disk();
            let (object, range) = (self.object.clone(), self.remaining.clone());
            let read =
                tier.and_then(|tier| tier.readers.queue_required(move || object.read(range)).ok());
            let Some(read) = read else {
                return Poll::Ready(Some(Err(BrokenRead::Closed)));
            };
            cache.counters.disk_waited_bodies.increment();
            self.pending_read = Some(read);
        }
        let pending = self.pending_read.as_mut().expect("a read is pending");
        let result = ready!(Pin::new(pending).poll(cx));
        self.pending_read = None;
        Poll::Ready(Some(match result {
            Ok(Ok(bytes)) => {
                let piece = Piece::Bytes(bytes);
                self.record_piece(cache, &piece);
                Ok(piece)
            }
            Ok(Err(miss)) => Err(BrokenRead::Miss(miss)),
            Err(_) => Err(BrokenRead::Closed),
        }))
    }

    fn record_piece(&mut self, cache: &WorkerCache, piece: &Piece) {
        self.remaining.start += piece.len();
        cache.counters.disk_response_bytes.add(piece.len());
        if let (Some(promotion), Piece::Bytes(bytes)) = (&mut self.promotion, piece) {
            let Some(version) = promotion.cache.hot.renewed(promotion.version) else {
                // The object of the key has changed since the promotion began.
                cache.counters.dropped_promotion.increment();
                self.promotion = None;
                return;
            };
            promotion.version = version;
            promotion.buffer.extend_from_slice(bytes);
            if self.remaining.is_empty()
                && let Some(promotion) = self.promotion.take()
            {
                match promotion.finish() {
                    Commit::Done(_) => cache.counters.disk_promoted.increment(),
                    Commit::Outdated => cache.counters.dropped_promotion.increment(),
                    Commit::Lost => {} // The memory tier has evicted the reserved slot.
                }
            }
        }
    }
}

/// A promotion under way: an object that is copied to memory while a client reads it.
struct Promotion {
    cache: Arc<Cache>,
    /// Prevents another body from promoting the object at the same time.
    _claim: Claim,
    stored: Arc<Stored>,
    /// The version of the key at which the object was current on disk.
    version: Version,
    reservation: Reservation<Stored>,
    /// The bytes read so far. The capacity is the length of the body.
    buffer: Vec<u8>,
    /// The charge for the buffer. After the insert, the body owns the charge.
    charge: Option<ChargeGuard>,
}

impl Promotion {
    /// Starts a promotion if memory admits the object. `charge_bytes` is the charge of the object in memory.
    fn begin(
        cache: &WorkerCache,
        object: &DiskObject,
        hash: KeyHash,
        charge_bytes: u64,
        stored: impl FnOnce() -> Arc<Stored>,
    ) -> Option<Self> {
        let shared = cache.shared();
        let tier = shared.disk()?;
        let length = object.length();
        let is_offered = tier.hit(hash, length);
        let Some(claim) = is_offered.then(|| tier.promoting.claim(hash)).flatten() else {
            // For the admission tuner, the request is a miss in memory.
            cache.record(hash, charge_bytes, false);
            return None;
        };
        let version = tier.version_of(hash, object);
        let version = version.filter(|_| shared.hot.peek(hash).is_none());
        let offer = version.map(|_| shared.offer_to_ram(hash, charge_bytes, None, &cache.counters));
        cache.record(hash, charge_bytes, false);
        let (Some(version), Some(Offer::Admit(mut reservation))) = (version, offer) else {
            return None;
        };
        Some(Self {
            cache: Arc::clone(shared),
            _claim: claim,
            stored: stored(),
            version,
            charge: reservation.take_charge(),
            reservation,
            buffer: Vec::with_capacity(usize::try_from(length).unwrap_or(0)),
        })
    }

    /// Inserts the complete body, if the object is still current and is not in memory.
    fn finish(self) -> Commit {
        let response = self.stored.response();
        let body = charged(self.buffer.into_boxed_slice(), self.charge);
        let response = StoredResponse {
            body: StoredBody::Memory(body),
            // The head is copied, because it may be a slice of a larger buffer that was read from disk.
            head: Bytes::copy_from_slice(&response.head),
            ..response.clone()
        };
        let value = self.stored.renewed(StoredKind::Response(response));
        self.reservation.promote(value, self.version)
    }
}
