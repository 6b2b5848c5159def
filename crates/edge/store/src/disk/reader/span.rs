//! A part of a body in the page cache, which the kernel sends to a socket.
//!
//! This process does not read the bytes. The kernel copies a short span from a mapping. For a long span the
//! kernel passes the pages to the socket without a copy. The bytes are correct for two reasons. First, every
//! block of the span was compared with its checksum recently
//! ([`VerifiedBlocks`](crate::disk::verified::VerifiedBlocks)).
//! Second, the span is sent only while its segment has the epoch of this comparison, and an overwrite guard
//! protects the segment during the system call.
//!
//! Between two calls no guard exists, because a slow client must not delay the writer. Pages that were sent may
//! stay in socket buffers after the call. The segment of these pages therefore gets new pages before it is
//! overwritten ([`page_replacement`]).

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use edgeward_policy::log::SegmentId;

use super::body::Body;
use super::object::DiskObject;
use crate::disk::error::Miss;
use crate::disk::format::BLOCK_BYTES;
use crate::disk::mapping::{Mapping, is_unreadable, unreadable_error};
use crate::disk::page_replacement::{self, FOLIO_BYTES_MAX};
use crate::disk::verified::BlockId;
use crate::disk::volume::Volume;

/// Bytes of a body in the page cache. While a span exists, the writer prefers to overwrite other segments. It
/// overwrites the segment of the span only if every free segment contains an object that is being read.
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

/// The size of the smallest span that is sent with `sendfile`. A shorter span is sent with the head in one call
/// that copies both. This takes less time than two calls.
const SENDFILE_BYTES_MIN: u64 = 32 << 10;

/// The reason why no byte of a span was sent.
#[derive(Debug)]
pub enum SendError {
    /// The socket returned this error. `WouldBlock` if the socket accepts no byte now.
    Receiver(io::Error),
    /// The bytes are no longer available. The object was removed from the index.
    Lost(Miss),
}

/// A range of a body that is in the page cache. The fields are those of [`Span`].
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

    /// Returns the number of bytes that are not sent yet.
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns true if all bytes are sent.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Removes the first `bytes` bytes from the span, because the socket accepted them.
    ///
    /// # Panics
    ///
    /// Panics if the span has fewer bytes.
    pub fn advance(&mut self, bytes: u64) {
        assert!(bytes <= self.len(), "the socket takes at most the span");
        self.range.start += bytes;
    }

    /// Returns how many bytes of the span [`send`](Self::send) offers to the socket. If the kernel has to copy the
    /// bytes, these are at most `copied_max`.
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
                // The flag `pages_in_sockets` is set before the call. The writer waits until the guard is
                // dropped, and then sees this flag.
                volume.segments.set_pages_in_sockets(self.segment);
                page_replacement::send(to, before, file, range.start, length).and_then(|sent| {
                    match sent {
                        // The file ends before the span. A full socket returns `WouldBlock` instead.
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

    /// Returns true if `sendfile` may pass the pages to the socket: the span is long enough, and its pages are
    /// in no folio that crosses an edge of the segment.
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

    /// Returns the longest part from the start of `range` whose blocks were verified recently and are in memory.
    /// Returns `None` if this part is empty. `range` is a range of the body.
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
    /// Returns how many bytes from `range.start` on are in memory. An answer of the kernel is reused for up to two
    /// seconds.
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
