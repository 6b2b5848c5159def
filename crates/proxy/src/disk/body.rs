//! A body on its way from disk to a client, read as the client takes it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_store::arena::Draft;
use edgeward_store::disk::{DiskObject, Miss, Now};
use edgeward_store::hot::{Offer, Reservation};
use edgeward_types::KeyHash;
use tokio::sync::oneshot;

use super::DiskTier;
use crate::stored::{OnDisk, Stored, StoredBody, StoredKind, StoredResponse};
use crate::worker::{Shared, Worker};

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
    pub(crate) fn whole(worker: &Worker, hash: KeyHash, stored: &Arc<Stored>) -> Option<Self> {
        let StoredKind::Response(response) = &stored.kind else {
            return None;
        };
        let StoredBody::Disk(on_disk) = &response.body else {
            return None;
        };
        let object = on_disk.object.clone();
        let mut body = Self::part(object, 0..response.body.len());
        body.promotion = Promotion::begin(worker, hash, stored, on_disk);
        Some(body)
    }

    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The next bytes; nothing at the end.
    pub(crate) fn poll_bytes(
        &mut self,
        worker: &Worker,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BrokenRead>>> {
        if self.range.is_empty() {
            return Poll::Ready(None);
        }
        let read = match &mut self.waiting {
            Some(waiting) => {
                let answer = ready!(Pin::new(waiting).poll(cx));
                self.waiting = None;
                answer.map_err(|_| BrokenRead::Closed)
            }
            None => match self.object.read_now(self.range.clone()) {
                Now::Ready(bytes) => Ok(Ok(bytes)),
                Now::Miss(miss) => Ok(Err(miss)),
                Now::WouldBlock => {
                    let tier = worker.shared.disk.as_ref();
                    let (object, range) = (self.object.clone(), self.range.clone());
                    let asked = tier
                        .and_then(|tier| tier.readers().insist(move || object.read(range)).ok());
                    let Some(asked) = asked else {
                        return Poll::Ready(Some(Err(BrokenRead::Closed)));
                    };
                    worker.counters.disk_waited_bodies.one();
                    self.waiting = Some(asked);
                    return self.poll_bytes(worker, cx);
                }
            },
        };
        let bytes = match read {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(miss)) => return Poll::Ready(Some(Err(BrokenRead::Miss(miss)))),
            Err(broken) => return Poll::Ready(Some(Err(broken))),
        };
        self.range.start += bytes.len() as u64;
        worker.counters.disk_response_bytes.add(bytes.len() as u64);
        if let Some(promotion) = &mut self.promotion {
            promotion.buffer.push(&bytes);
            if self.range.is_empty()
                && let Some(promotion) = self.promotion.take()
                && promotion.finish()
            {
                worker.counters.disk_promoted.one();
            }
        }
        Poll::Ready(Some(Ok(bytes)))
    }
}

/// An object on its way to RAM while a client gets it.
struct Promotion {
    shared: Arc<Shared>,
    hash: KeyHash,
    stored: Arc<Stored>,
    changes: u64,
    reservation: Option<Reservation<Stored>>,
    /// As large as the body from the start: its place is charged.
    buffer: Draft,
}

impl Promotion {
    /// Asks RAM's policy.
    fn begin(
        worker: &Worker,
        hash: KeyHash,
        stored: &Arc<Stored>,
        on_disk: &OnDisk,
    ) -> Option<Self> {
        let shared = &worker.shared;
        let tier = shared.disk.as_ref()?;
        let length = on_disk.object.length();
        let charge = stored.charge_bytes();
        let offers = tier.hit(hash, length) && tier.promoting.insert(hash);
        if !offers {
            worker.record(hash, charge, false);
            return None;
        }
        let mut promotion = Self {
            shared: Arc::clone(shared),
            hash,
            stored: Arc::clone(stored),
            changes: on_disk.changes,
            reservation: None,
            buffer: Draft::new(None, 0),
        };
        if let Some(Offer::Admit(reservation)) = promotion
            .unchanged()
            .then(|| shared.offer_to_ram(hash, charge, &worker.counters))
        {
            promotion.reservation = Some(reservation);
            promotion.buffer = Draft::new(shared.arena.as_ref(), length);
        }
        worker.record(hash, charge, false);
        // Without a place the drop ends it.
        promotion.reservation.is_some().then_some(promotion)
    }

    fn tier(&self) -> Option<&Arc<DiskTier>> {
        self.shared.disk.as_ref()
    }

    /// Whether what was read is still what the cache holds, and holds on disk alone.
    fn unchanged(&self) -> bool {
        self.tier()
            .is_some_and(|tier| tier.changes(self.hash) == self.changes)
            && self.shared.hot.peek(self.hash).is_none()
    }

    /// The body is whole.
    fn finish(mut self) -> bool {
        let Some(reservation) = self.reservation.take() else {
            return false;
        };
        let StoredKind::Response(response) = &self.stored.kind else {
            return false;
        };
        if !self.unchanged() {
            return false;
        }
        let body = std::mem::replace(&mut self.buffer, Draft::new(None, 0)).freeze();
        let response = StoredResponse {
            body: StoredBody::Memory(body),
            // The block may be a part of what was read from disk.
            head: Bytes::copy_from_slice(&response.head),
            ..response.clone()
        };
        let promoted = reservation.commit(self.stored.renewed(StoredKind::Response(response)));
        // Forgotten between the look before and the commit: whoever forgot it did not see it in RAM.
        let current = self
            .tier()
            .is_some_and(|tier| tier.changes(self.hash) == self.changes);
        if promoted && !current {
            self.shared.hot.remove(self.hash);
        }
        promoted && current
    }
}

impl Drop for Promotion {
    fn drop(&mut self) {
        if let Some(tier) = self.tier() {
            tier.promoting.remove(self.hash);
        }
    }
}
