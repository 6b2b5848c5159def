//! Reads ranges of bodies: reads whole blocks, compares them with their checksums, and returns the requested
//! bytes.

use std::ops::Range;

use bytes::Bytes;

use super::body::{Body, check_blocks, to_usize, whole_blocks};
use super::object::{DiskObject, Inner, Layout};
use super::span::{CachedRange, Span};
use super::waiting::{NotRead, Wait, into_blocking};
use crate::disk::error::{Miss, NonBlockingRead};
use crate::disk::format::{BLOCK_BYTES, Extent, RecordKind};
use crate::disk::verified::BlockId;

/// A part of a body, as returned by [`DiskObject::piece_now`]. Its boundaries need not be those of pieces on disk.
#[derive(Debug)]
pub enum Piece {
    /// Bytes that were read and verified.
    Bytes(Bytes),
    /// Bytes in the page cache that were verified recently.
    Span(Span),
}

impl Piece {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Span(span) => span.len(),
        }
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl DiskObject {
    /// Reads the body from `range.start` on, without waiting for the device. Returns at most as many
    /// bytes as the setting `read_bytes`, so the caller repeats the call for the rest of the range. The result is
    /// empty only if the range is empty or begins after the body.
    pub fn read_now(&self, range: Range<u64>) -> NonBlockingRead<Bytes> {
        let result = self.inner.read(range, Wait::Never);
        self.count_would_block(&result);
        result.into()
    }

    /// Like [`read_now`](Self::read_now), but returns a span of at most one mebibyte if the bytes are in the
    /// page cache and were verified recently. The caller sends the span to a socket.
    pub fn piece_now(&self, range: Range<u64>) -> NonBlockingRead<Piece> {
        let result = self.inner.piece(range);
        self.count_would_block(&result);
        match result {
            Ok(InnerPiece::Bytes(bytes)) => NonBlockingRead::Ready(Piece::Bytes(bytes)),
            Ok(InnerPiece::Cached(range)) => {
                NonBlockingRead::Ready(Piece::Span(Span::new(self.clone(), range)))
            }
            Err(NotRead::WouldBlock) => NonBlockingRead::WouldBlock,
            Err(NotRead::Miss(miss)) => NonBlockingRead::Miss(miss),
        }
    }

    fn count_would_block<T>(&self, result: &Result<T, NotRead>) {
        if matches!(result, Err(NotRead::WouldBlock)) {
            self.inner.volume.counters.would_block.increment();
        }
    }

    /// Like [`read_now`](Self::read_now), but waits for the device if necessary.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are corrupt or cannot be read. The object is then removed from the index.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes, Miss> {
        into_blocking(self.inner.read(range, Wait::Allowed))
    }
}

/// A part of a body: its bytes, or its range in the page cache.
enum InnerPiece {
    Bytes(Bytes),
    Cached(CachedRange),
}

impl Inner {
    fn read(&self, range: Range<u64>, wait: Wait) -> Result<Bytes, NotRead> {
        if let Layout::Unwritten(body) = &self.layout {
            return Ok(body.read(range));
        }
        self.with_body(range, wait, |body, within| {
            self.read_body(body, within, wait)
        })
        .map(Option::unwrap_or_default)
    }

    /// Returns a part of the body without waiting: its range in the page cache if possible, otherwise its
    /// bytes.
    fn piece(&self, range: Range<u64>) -> Result<InnerPiece, NotRead> {
        if let Layout::Unwritten(body) = &self.layout {
            return Ok(InnerPiece::Bytes(body.read(range)));
        }
        let piece = self.with_body(range, Wait::Never, |body, within| {
            if self.volume.can_send_from_cache()
                && within.start >= body.front_end()
                && let Some(cached) = self.volume.cached_range(body, &within)
            {
                return Ok(InnerPiece::Cached(cached));
            }
            self.read_body(body, within, Wait::Never)
                .map(InnerPiece::Bytes)
        })?;
        Ok(piece.unwrap_or_else(|| InnerPiece::Bytes(Bytes::new())))
    }

    /// Finds the record that contains the start of `range`, and calls `then` with the record's body and the part
    /// of the range within this body. Returns `None` if the range is empty.
    fn with_body<T>(
        &self,
        range: Range<u64>,
        wait: Wait,
        then: impl FnOnce(&Body, Range<u64>) -> Result<T, NotRead>,
    ) -> Result<Option<T>, NotRead> {
        let range = range.start..range.end.min(self.length);
        if range.is_empty() {
            return Ok(None);
        }
        let result = match &self.layout {
            // The object has no body on the device.
            Layout::Unwritten(_) => return Ok(None),
            Layout::Single(body) => then(body, range),
            Layout::Pieces {
                object_id,
                extents,
                starts,
                last,
            } => {
                let number = starts.partition_point(|&start| start <= range.start) - 1;
                let start = starts[number];
                let within = range.start - start
                    ..(range.end - start).min(u64::from(extents[number].body_bytes));
                let cached = last.lock().as_ref().filter(|(n, _)| *n == number).cloned();
                let body = match cached {
                    Some((_, body)) => Ok(body),
                    None => self
                        .open_piece(*object_id, &extents[number], start, &within, wait)
                        .inspect(|body| *last.lock() = Some((number, body.clone()))),
                };
                body.and_then(|body| then(&body, within))
            }
        };
        if let Err(NotRead::Miss(miss)) = result {
            self.volume.handle_miss(self.hash, self.location, miss);
        }
        result.map(Some)
    }

    /// Reads the metadata of a piece. If the requested range begins in the first block of the piece's body, the
    /// same read returns the requested blocks, unless the kernel may send them from the page cache.
    fn open_piece(
        &self,
        object_id: u64,
        extent: &Extent,
        start: u64,
        requested: &Range<u64>,
        wait: Wait,
    ) -> Result<Body, NotRead> {
        let meta_bytes = u64::from(extent.meta_bytes);
        let may_send_from_cache = wait == Wait::Never && self.volume.can_send_from_cache();
        let body_bytes = if requested.start < BLOCK_BYTES && !may_send_from_cache {
            let most = self.volume.settings.read_bytes.bytes();
            let end = requested.end.next_multiple_of(BLOCK_BYTES).min(most);
            end.min(u64::from(extent.body_bytes))
        } else {
            0
        };
        let record = self
            .volume
            .record_at(extent.offset, meta_bytes + body_bytes, wait)?;
        let header = &record.header;
        let matches = header.kind == RecordKind::Piece
            && header.hash == self.hash.0
            && header.object_id == object_id
            && header.epoch == extent.epoch
            && header.body_offset == start
            && header.body_bytes == u64::from(extent.body_bytes);
        if matches {
            Ok(Body::from_record(&record))
        } else {
            Err(Miss::Reclaimed.into())
        }
    }

    /// Returns the first bytes of `range`. Reads whole blocks from the device.
    fn read_body(&self, body: &Body, range: Range<u64>, wait: Wait) -> Result<Bytes, NotRead> {
        let volume = &self.volume;
        let first_block = range.start / BLOCK_BYTES;
        let start = first_block * BLOCK_BYTES;
        let most = volume.settings.read_bytes.bytes().max(BLOCK_BYTES);
        let wanted_end = range
            .end
            .next_multiple_of(BLOCK_BYTES)
            .min(start + most / BLOCK_BYTES * BLOCK_BYTES)
            .min(body.bytes);
        let front_end = body.front_end();
        let bytes = if range.start < front_end {
            let end = wanted_end.min(front_end);
            body.front.slice(to_usize(start)..to_usize(end))
        } else {
            let bytes = volume.read_bytes(body.offset + start, wanted_end - start, wait)?;
            let whole = whole_blocks(start + bytes.len() as u64, body.bytes);
            // The page cache had less than the first requested block.
            if whole <= range.start {
                return Err(NotRead::WouldBlock);
            }
            bytes.slice(..to_usize(whole - start))
        };
        let seed = volume.superblock.checksum_seed;
        if let Err(block) = check_blocks(&body.checksums, first_block, &bytes, seed) {
            let at = body.offset + block * BLOCK_BYTES;
            let segment = volume.segments.segment_at(at);
            // If the segment has another epoch by now, the bytes were overwritten. Otherwise they are corrupt.
            let overwritten =
                segment.is_none_or(|segment| volume.segments.epoch(segment) != body.epoch);
            if overwritten {
                return Err(Miss::Reclaimed.into());
            }
            volume.report_corruption(|| format!("block {block} of the body at {:#x}", body.offset));
            return Err(Miss::Corrupt.into());
        }
        for (number, _) in (first_block..).zip(bytes.chunks(BLOCK_BYTES as usize)) {
            volume.verified.insert(BlockId {
                offset: body.offset + number * BLOCK_BYTES,
                epoch: body.epoch,
            });
        }
        let skip = range.start - start;
        let end = (start + bytes.len() as u64).min(range.end) - start;
        Ok(bytes.slice(to_usize(skip)..to_usize(end)))
    }
}
