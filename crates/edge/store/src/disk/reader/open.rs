//! Opens the object at a location from the index: reads the metadata with one read, and compares the key.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::body::Body;
use super::object::{DiskObject, Inner, Layout};
use super::waiting::{NotRead, Wait, into_blocking};
use crate::disk::error::{Miss, NonBlockingRead};
use crate::disk::format::{Extent, RecordKind};
use crate::disk::location::Location;
use crate::disk::unwritten::UnwrittenObject;
use crate::disk::volume::Volume;
use crate::sync::Mutex;

/// The number of bytes to read for the metadata. They are enough for a header, a key, a head, and the checksums
/// of a body of one mebibyte.
const META_READ_BYTES: u64 = 4096;

impl Volume {
    /// Opens the object at a location, or returns `WouldBlock` if this has to wait for the device.
    pub(crate) fn read_head_now(
        self: &Arc<Self>,
        hash: KeyHash,
        at: Location,
        key: &[u8],
    ) -> NonBlockingRead<DiskObject> {
        let result = self.read_head_with(hash, at, key, Wait::Never);
        if matches!(result, Err(NotRead::WouldBlock)) {
            self.counters.would_block.increment();
        }
        result.into()
    }

    /// Opens the object at a location. Waits for the device if necessary.
    pub(crate) fn read_head(
        self: &Arc<Self>,
        hash: KeyHash,
        at: Location,
        key: &[u8],
    ) -> Result<DiskObject, Miss> {
        into_blocking(self.read_head_with(hash, at, key, Wait::Allowed))
    }

    /// Like [`read_head`](Self::read_head), but counts nothing, and removes no unreadable object from the index.
    pub(crate) fn peek_head(
        self: &Arc<Self>,
        hash: KeyHash,
        at: Location,
        key: &[u8],
    ) -> Result<DiskObject, Miss> {
        into_blocking(self.open_object(hash, at, key, META_READ_BYTES, Wait::Allowed))
    }

    /// Opens an object that is in the writer's buffer. Returns `None` if the object is no longer in the buffer
    /// and the index has this location, because the object was written.
    pub(crate) fn read_unwritten(
        self: &Arc<Self>,
        hash: KeyHash,
        location: Location,
        key: &[u8],
    ) -> Option<Result<DiskObject, Miss>> {
        let read = self.open_unwritten(hash, location, key, UnwrittenObject::touch)?;
        match &read {
            Ok(_) => self.counters.read_objects.increment(),
            Err(Miss::KeyMismatch) => self.counters.strangers.increment(),
            Err(_) => {}
        }
        Some(read)
    }

    /// Like [`read_unwritten`](Self::read_unwritten), but counts nothing.
    pub(crate) fn peek_unwritten(
        self: &Arc<Self>,
        hash: KeyHash,
        location: Location,
        key: &[u8],
    ) -> Option<Result<DiskObject, Miss>> {
        self.open_unwritten(hash, location, key, |_| ())
    }

    fn open_unwritten(
        self: &Arc<Self>,
        hash: KeyHash,
        location: Location,
        key: &[u8],
        on_match: impl FnOnce(&UnwrittenObject),
    ) -> Option<Result<DiskObject, Miss>> {
        let Some(object) = self.unwritten.find(hash) else {
            // If the write failed, the index has no entry for the location. The bytes at the location are then not
            // a record, and must not be counted as corrupt.
            let is_written = self.index.find(hash) == Some(location);
            return (!is_written).then_some(Err(Miss::Reclaimed));
        };
        if object.key() != key {
            // The object belongs to another key with the same hash.
            return Some(Err(Miss::KeyMismatch));
        }
        on_match(&object);
        let inner = Inner {
            volume: Arc::clone(self),
            hash,
            location: object.location,
            head: object.head().clone(),
            length: object.body().len(),
            layout: Layout::Unwritten(object.body().clone()),
            _pin: self
                .segments
                .pin(self.segments.segment_at(object.location.offset())?),
            _pins: Vec::new(),
        };
        Some(Ok(DiskObject {
            inner: Arc::new(inner),
        }))
    }

    /// Returns the key of the object at a location, or `None` if the record cannot be read or has another hash. Waits
    /// for the device if necessary.
    pub(crate) fn key_at(&self, hash: KeyHash, location: Location) -> Option<Box<[u8]>> {
        let _pin = self
            .segments
            .pin(self.segments.segment_at(location.offset())?);
        let record = self.record_at(location.offset(), META_READ_BYTES, Wait::Allowed);
        let record = record.ok().filter(|record| record.header.hash == hash.0)?;
        Some(record.key().into())
    }

    /// Calls `visit` with the key and the head of each object in the index, in the order of the log.
    pub(crate) fn for_each_head(self: &Arc<Self>, visit: &mut impl FnMut(&[u8], &Bytes)) {
        let mut offsets = Vec::new();
        self.index.for_each(|at, _| offsets.push(at.offset()));
        offsets.sort_unstable();
        for offset in offsets {
            if let Ok(record) = self.record_at(offset, META_READ_BYTES, Wait::Allowed)
                && matches!(record.header.kind, RecordKind::Object | RecordKind::Commit)
            {
                visit(record.key(), &record.head());
            }
        }
    }

    fn read_head_with(
        self: &Arc<Self>,
        hash: KeyHash,
        location: Location,
        key: &[u8],
        wait: Wait,
    ) -> Result<DiskObject, NotRead> {
        let first = match wait {
            // Only the metadata is read. The body will be sent from the page cache, or read when its length is known.
            Wait::Never if self.can_send_from_cache() => META_READ_BYTES,
            _ => self.settings.first_read_bytes.bytes(),
        };
        let opened = self.open_object(hash, location, key, first, wait);
        match &opened {
            Ok(_) => {
                self.index.touch(hash, location);
                self.counters.read_objects.increment();
            }
            Err(NotRead::WouldBlock) => {}
            // The entry belongs to another key and is valid, so it stays in the index.
            Err(NotRead::Miss(Miss::KeyMismatch)) => {
                self.index.note_false_match();
                self.counters.strangers.increment();
            }
            Err(NotRead::Miss(miss)) => self.handle_miss(hash, location, *miss),
        }
        opened
    }

    fn open_object(
        self: &Arc<Self>,
        hash: KeyHash,
        location: Location,
        key: &[u8],
        first_bytes: u64,
        wait: Wait,
    ) -> Result<DiskObject, NotRead> {
        let segment = self
            .segments
            .segment_at(location.offset())
            .ok_or(Miss::Reclaimed)?;
        let pin = self.segments.pin(segment);
        let mut pins = Vec::new();
        let record = self.record_at(location.offset(), first_bytes, wait)?;
        if record.header.hash != hash.0 || record.key() != key {
            return Err(Miss::KeyMismatch.into());
        }
        let head = record.head();
        let length = record.header.body_bytes;
        let layout = match record.header.kind {
            RecordKind::Object => Layout::Single(Body::from_record(&record)),
            RecordKind::Commit => {
                let extents: Vec<_> = Extent::parse_all(&record.table()).collect();
                let mut starts = Vec::with_capacity(extents.len());
                let mut start = 0;
                let mut pinned = segment;
                for extent in &extents {
                    starts.push(start);
                    start += u64::from(extent.body_bytes);
                    let segment = self
                        .segments
                        .segment_at(extent.offset)
                        .ok_or(Miss::Corrupt)?;
                    if segment != pinned {
                        pins.push(self.segments.pin(segment));
                        pinned = segment;
                    }
                }
                // The segments are pinned before this check. If the check succeeds, the segments had the right
                // epoch after they were pinned. They are now overwritten only if all free segments are pinned.
                if !extents.iter().all(|extent| self.has_extent(extent)) {
                    return Err(Miss::Reclaimed.into());
                }
                if start != length {
                    return Err(Miss::Corrupt.into());
                }
                Layout::Pieces {
                    object_id: record.header.object_id,
                    extents,
                    starts,
                    last: Mutex::default(),
                }
            }
            RecordKind::Piece | RecordKind::Tombstones => return Err(Miss::KeyMismatch.into()),
        };
        let inner = Inner {
            volume: Arc::clone(self),
            hash,
            location,
            head,
            length,
            layout,
            _pin: pin,
            _pins: pins,
        };
        Ok(DiskObject {
            inner: Arc::new(inner),
        })
    }

    /// Returns true if the piece's segment still has the epoch in which the piece was written.
    pub(in crate::disk) fn has_extent(&self, extent: &Extent) -> bool {
        let segment = self.segments.segment_at(extent.offset);
        segment.is_some_and(|segment| self.segments.epoch(segment) == extent.epoch)
    }

    /// Removes an object that could not be read from the index, unless the device may recover. Counts the read if the
    /// object's segment was reclaimed.
    pub(super) fn handle_miss(&self, hash: KeyHash, location: Location, miss: Miss) {
        match miss {
            // The error was counted when the read failed. The device may recover.
            Miss::Device(_) | Miss::OutOfService => return,
            Miss::Reclaimed => self.counters.reclaimed_reads.increment(),
            Miss::Corrupt | Miss::KeyMismatch => {}
        }
        self.index.remove(hash, location);
    }
}
