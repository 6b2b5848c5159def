//! A part of a body in the page cache, which the kernel sends to a socket.
//!
//! This process does not read the bytes. The kernel copies a short span from a mapping. For a long span it passes
//! the pages to the socket without a copy. The bytes are correct for two reasons. Every block of the span was
//! compared with its checksum lately ([`Verified`](crate::disk::verified::Verified)). And an overwrite guard
//! protects the segment during the system call, if the segment still has the epoch of the comparison.
//!
//! Between two calls no guard exists, because a slow client must not delay the writer. Pages that were sent may
//! stay in socket buffers after the call. So their segment gets new pages before it is overwritten
//! ([`page_replacement`]).

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use edgeward_policy::log::SegmentId;

use super::DiskObject;
use super::body::Body;
use crate::disk::error::Miss;
use crate::disk::format::BLOCK_BYTES;
use crate::disk::mapping::{Mapping, is_unreadable, unreadable_error};
use crate::disk::page_replacement::{self, FOLIO_BYTES_MAX};
use crate::disk::verified::BlockId;
use crate::disk::volume::Volume;

/// Bytes of a body in the page cache. Until the span is dropped, its segment is overwritten last.
#[derive(Debug)]
pub struct Span {
    object: DiskObject,
    segment: SegmentId,
    epoch: u64,
    /// The range of bytes on the device.
    range: Range<u64>,
    /// The offset of the body on the device. It identifies the blocks of the body.
    body_offset: u64,
}

/// The smallest span that is sent with `sendfile`. A shorter span is copied in the same call as the head, which
/// costs less than two calls.
const SENDFILE_BYTES_MIN: u64 = 32 << 10;

/// Why no byte of a span was sent.
#[derive(Debug)]
pub enum SendError {
    /// The socket returned this error. `WouldBlock` if the socket accepts no byte now.
    Receiver(io::Error),
    /// The bytes are no longer available. The object was removed from the index.
    Lost(Miss),
}

/// A range of a body that is in the page cache.
#[derive(Debug)]
pub(super) struct CachedRange {
    segment: SegmentId,
    epoch: u64,
    range: Range<u64>,
    body_offset: u64,
}

impl Span {
    pub(super) fn new(object: DiskObject, cached: CachedRange) -> Self {
        Self {
            object,
            segment: cached.segment,
            epoch: cached.epoch,
            range: cached.range,
            body_offset: cached.body_offset,
        }
    }

    /// Returns the number of bytes that are left.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns true if no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Removes the first `bytes` from the span, because the socket took them.
    ///
    /// # Panics
    ///
    /// If the span is shorter.
    pub fn advance(&mut self, bytes: u64) {
        assert!(bytes <= self.len(), "the socket takes at most the span");
        self.range.start += bytes;
    }

    /// Returns how many bytes [`send`](Self::send) offers to the socket.
    pub fn offered(&self, copied_max: u64) -> u64 {
        let has_sendfile = self.object.inner.volume.device.sendfile_source().is_some();
        match has_sendfile && self.may_use_sendfile(&self.range) {
            true => self.len(),
            false => self.len().min(copied_max),
        }
    }

    /// Sends `before` and then the span to a non-blocking socket. Returns the number of bytes that the socket
    /// accepted. If the kernel copies the bytes, at most `copied_max` are offered. The caller then calls
    /// [`advance`](Self::advance) with the number of accepted bytes of the span.
    ///
    /// # Errors
    ///
    /// Fails if no byte was sent.
    pub fn send(
        &self,
        to: BorrowedFd<'_>,
        before: &[u8],
        copied_max: u64,
    ) -> Result<usize, SendError> {
        let volume = &self.object.inner.volume;
        let Some(mapping) = volume.device.mapping() else {
            unreachable!("a span is made only for a device with a mapping");
        };
        let Some(guard) = volume.segments.block_overwrite(self.segment, self.epoch) else {
            return Err(SendError::Lost(self.handle_miss(Miss::Reclaimed)));
        };
        let range = self.range.clone();
        let length = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let sent = match volume.device.sendfile_source() {
            Some(file) if self.may_use_sendfile(&range) => {
                // The flag is set before the call, so that the writer sees the flag once the guard is dropped.
                volume.segments.set_pages_in_sockets(self.segment);
                page_replacement::send(to, before, file, range.start, length).and_then(|sent| {
                    match sent {
                        0 => Err(unreadable_error()),
                        sent => Ok(sent),
                    }
                })
            }
            _ => mapping.send(
                to,
                before,
                range.start..range.start + self.len().min(copied_max),
            ),
        };
        drop(guard);
        match sent {
            Ok(sent) => Ok(sent),
            Err(error) if is_unreadable(&error) => {
                volume.record_read_failure(&error);
                for block in blocks(self.body_offset, self.epoch, &self.range) {
                    volume.verified.remove(block);
                    volume.residents.remove(block);
                }
                // The bytes were in the page cache a moment ago, so the error is not temporary. The object is
                // removed from the index.
                let inner = &self.object.inner;
                volume.index.remove(inner.hash, inner.location);
                Err(SendError::Lost(Miss::Device(error.kind())))
            }
            Err(error) => Err(SendError::Receiver(error)),
        }
    }

    /// Returns true if the pages themselves may be sent: the span is long enough, and no folio crosses the
    /// segment's edge.
    fn may_use_sendfile(&self, range: &Range<u64>) -> bool {
        let segments = &self.object.inner.volume.segments;
        let first = segments
            .start(self.segment)
            .next_multiple_of(FOLIO_BYTES_MAX);
        let last = segments.end(self.segment) / FOLIO_BYTES_MAX * FOLIO_BYTES_MAX;
        range.end - range.start >= SENDFILE_BYTES_MIN && range.start >= first && range.end <= last
    }

    fn handle_miss(&self, miss: Miss) -> Miss {
        let inner = &self.object.inner;
        inner.volume.handle_miss(inner.hash, inner.location, miss);
        miss
    }
}

impl Volume {
    /// Returns true if bodies may be sent from the page cache.
    pub(super) fn can_send_from_cache(&self) -> bool {
        self.verified.is_enabled() && self.device.mapping().is_some()
    }

    /// Returns the first part of a body's `range` whose blocks were verified lately and are in memory. Returns
    /// `None` if this part is empty.
    pub(super) fn cached_range(&self, body: &Body, range: &Range<u64>) -> Option<CachedRange> {
        let mapping = self.device.mapping()?;
        let segment = self.segments.segment_at(body.offset)?;
        let requested = body.offset + range.start..body.offset + range.end;
        let mut end = requested.start;
        for block in blocks(body.offset, body.epoch, &requested) {
            if !self.verified.contains(block) {
                break;
            }
            end = requested.end.min(block.offset + BLOCK_BYTES);
        }
        let resident = self.resident_bytes(mapping, body, requested.start..end);
        if resident == 0 {
            return None;
        }
        self.counters.read_ops.increment();
        self.counters.read_bytes.add(resident);
        self.counters.mapped_bytes.add(resident);
        Some(CachedRange {
            segment,
            epoch: body.epoch,
            range: requested.start..requested.start + resident,
            body_offset: body.offset,
        })
    }
}

impl Volume {
    /// Returns how many bytes from `range.start` on are in memory, or were in memory a moment ago.
    fn resident_bytes(&self, mapping: &Mapping, body: &Body, range: Range<u64>) -> u64 {
        let blocks = || blocks(body.offset, body.epoch, &range);
        if !range.is_empty() && blocks().all(|block| self.residents.contains(block)) {
            return range.end - range.start;
        }
        let resident = mapping.resident_bytes(range.clone());
        if resident == range.end - range.start {
            // Parts of the first and the last block were not queried, but pages are usually cached together
            // with their neighbours.
            blocks().for_each(|block| self.residents.insert(block));
        }
        resident
    }
}

/// Returns the blocks of the body at `body_offset` that overlap a range of the device.
pub(super) fn blocks(
    body_offset: u64,
    epoch: u64,
    range: &Range<u64>,
) -> impl Iterator<Item = BlockId> + use<> {
    let first = (range.start - body_offset) / BLOCK_BYTES;
    let last = (range.end - body_offset).div_ceil(BLOCK_BYTES);
    (first..last).map(move |number| BlockId {
        offset: body_offset + number * BLOCK_BYTES,
        epoch,
    })
}
