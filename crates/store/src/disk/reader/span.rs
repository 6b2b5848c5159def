//! A part of a body that lies in the page cache, for the kernel to send.
//!
//! Nothing of it is read here. A short one the kernel copies from a mapping, of a long one it sends the pages themselves. What
//! makes that safe to serve: every block of it was compared with
//! its checksum lately ([`Verified`](crate::disk::verified::Verified)), and its segment is held while the kernel works,
//! which it is only in the epoch it was compared in. Between two calls nothing is held: a client may take its time. Pages that
//! were sent may leave later still; their segment gets new ones before it is overwritten ([`renewal`]).

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use edgeward_policy::log::SegmentId;

use super::DiskObject;
use super::body::Body;
use crate::disk::error::Miss;
use crate::disk::format::BLOCK_BYTES;
use crate::disk::mapping::{Mapping, gone, is_gone};
use crate::disk::renewal::{self, FOLIO_BYTES_MAX};
use crate::disk::verified::BlockName;
use crate::disk::volume::Volume;

/// Bytes of a body in the page cache. While one lives its segment is overwritten last.
#[derive(Debug)]
pub struct Span {
    object: DiskObject,
    segment: SegmentId,
    epoch: u64,
    /// Bytes from the device's start.
    range: Range<u64>,
    /// Where its body begins: names the blocks.
    body_at: u64,
}

/// Below this one call that copies costs less than two of which one does not.
const SENT_BYTES_MIN: u64 = 32 << 10;

/// Why nothing of a span was sent.
#[derive(Debug)]
pub enum Unsent {
    /// The receiver takes none; what it said. `WouldBlock` if it takes none now.
    Receiver(io::Error),
    /// The bytes are no longer there. The object is forgotten.
    Lost(Miss),
}

/// Where a span would lie.
#[derive(Debug)]
pub(super) struct SpanPlace {
    segment: SegmentId,
    epoch: u64,
    range: Range<u64>,
    body_at: u64,
}

impl Span {
    pub(super) fn new(object: DiskObject, place: SpanPlace) -> Self {
        Self {
            object,
            segment: place.segment,
            epoch: place.epoch,
            range: place.range,
            body_at: place.body_at,
        }
    }

    /// Bytes that are left.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether none are.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The first `bytes` were taken.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn advance(&mut self, bytes: u64) {
        assert!(bytes <= self.len(), "no more is taken than is there");
        self.range.start += bytes;
    }

    /// How many bytes of it [`send`](Self::send) offers the socket.
    pub fn offered(&self, copied_max: u64) -> u64 {
        let sends = self.object.inner.volume.device.sendable().is_some();
        match sends && self.may_be_sent(&self.range) {
            true => self.len(),
            false => self.len().min(copied_max),
        }
    }

    /// Sends `before` and then the span to a socket that does not block, as much as that takes: so many bytes. What has to be
    /// copied is offered `copied_max` at a time. What was taken of the span is to be [`advance`](Self::advance)d by the caller.
    ///
    /// # Errors
    ///
    /// If nothing was sent.
    pub fn send(
        &self,
        to: BorrowedFd<'_>,
        before: &[u8],
        copied_max: u64,
    ) -> Result<usize, Unsent> {
        let volume = &self.object.inner.volume;
        let Some(mapping) = volume.device.mapping() else {
            unreachable!("spans are made of mappings");
        };
        let Some(hold) = volume.segments.hold(self.segment, self.epoch) else {
            return Err(Unsent::Lost(self.lost(Miss::Reclaimed)));
        };
        let range = self.range.clone();
        let length = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let sent = match volume.device.sendable() {
            Some(file) if self.may_be_sent(&range) => {
                // Before the call, and seen by the writer when it no longer sees the hold.
                volume.segments.set_lent_pages(self.segment);
                renewal::send(to, before, file, range.start, length).and_then(|sent| match sent {
                    0 => Err(gone()),
                    sent => Ok(sent),
                })
            }
            _ => mapping.send(
                to,
                before,
                range.start..range.start + self.len().min(copied_max),
            ),
        };
        drop(hold);
        match sent {
            Ok(sent) => Ok(sent),
            Err(error) if is_gone(&error) => {
                volume.read_failed(&error);
                for block in blocks(self.body_at, self.epoch, &self.range) {
                    volume.verified.forget(block);
                    volume.residents.forget(block);
                }
                // It was in the page cache a moment ago: no passing trouble. What lies there now is not asked again.
                let inner = &self.object.inner;
                volume.index.remove(inner.hash, inner.location);
                Err(Unsent::Lost(Miss::Device(error.kind())))
            }
            Err(error) => Err(Unsent::Receiver(error)),
        }
    }

    /// Whether the pages themselves may go: it pays, and none reaches over the segment's edge.
    fn may_be_sent(&self, range: &Range<u64>) -> bool {
        let segments = &self.object.inner.volume.segments;
        let first = segments
            .start(self.segment)
            .next_multiple_of(FOLIO_BYTES_MAX);
        let last = segments.end(self.segment) / FOLIO_BYTES_MAX * FOLIO_BYTES_MAX;
        range.end - range.start >= SENT_BYTES_MIN && range.start >= first && range.end <= last
    }

    fn lost(&self, miss: Miss) -> Miss {
        let inner = &self.object.inner;
        inner.volume.lost(inner.hash, inner.location, miss);
        miss
    }
}

impl Volume {
    /// Whether bodies may be served from the page cache as they lie there.
    pub(super) fn lends(&self) -> bool {
        self.verified.is_on() && self.device.mapping().is_some()
    }

    /// The front of a body's `range` that was compared lately and is in memory. Nothing if that is not a byte.
    pub(super) fn lend(&self, body: &Body, range: &Range<u64>) -> Option<SpanPlace> {
        let mapping = self.device.mapping()?;
        let segment = self.segments.segment_at(body.at)?;
        let wanted = body.at + range.start..body.at + range.end;
        let mut end = wanted.start;
        for block in blocks(body.at, body.epoch, &wanted) {
            if !self.verified.knows(block) {
                break;
            }
            end = wanted.end.min(block.at + BLOCK_BYTES);
        }
        let resident = self.resident(mapping, body, wanted.start..end);
        if resident == 0 {
            return None;
        }
        self.counters.read_ops.one();
        self.counters.read_bytes.add(resident);
        self.counters.mapped_bytes.add(resident);
        Some(SpanPlace {
            segment,
            epoch: body.epoch,
            range: wanted.start..wanted.start + resident,
            body_at: body.at,
        })
    }
}

impl Volume {
    /// How many bytes from `range.start` on are in memory, or were a moment ago.
    fn resident(&self, mapping: &Mapping, body: &Body, range: Range<u64>) -> u64 {
        let blocks = || blocks(body.at, body.epoch, &range);
        if !range.is_empty() && blocks().all(|block| self.residents.knows(block)) {
            return range.end - range.start;
        }
        let resident = mapping.resident(range.clone());
        if resident == range.end - range.start {
            // Of the first and the last block a part was asked about: pages come and go with their neighbours.
            blocks().for_each(|block| self.residents.note(block));
        }
        resident
    }
}

/// The blocks of the body at `body_at` that a range of the device touches.
pub(super) fn blocks(
    body_at: u64,
    epoch: u64,
    range: &Range<u64>,
) -> impl Iterator<Item = BlockName> + use<> {
    let first = (range.start - body_at) / BLOCK_BYTES;
    let last = (range.end - body_at).div_ceil(BLOCK_BYTES);
    (first..last).map(move |number| BlockName {
        at: body_at + number * BLOCK_BYTES,
        epoch,
    })
}
