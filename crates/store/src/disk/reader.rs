//! Reading: a head with one read, bodies by ranges, every byte checked before it is handed on.
//!
//! Every read exists twice. `…_now` answers if that takes no waiting (what is asked for lies in the
//! page cache), so that a thread that serves many clients may try it in place; if it says
//! [`Now::WouldBlock`] the blocking call belongs on a thread that may wait.
//!
//! A location from the index may be stale and a segment may be overwritten while it is read. So
//! nothing is believed that the bytes themselves do not prove: the meta's checksum, the full key,
//! the epoch, and a checksum for every block of body.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::error::{Miss, Now};
use super::format::{
    BLOCK_BYTES, ChecksumSeed, Extent, Kind, RECORD_HEADER_BYTES, RecordError, RecordHeader,
};
use super::location::Location;
use super::segment::Pin;
use super::volume::Volume;
use crate::sync::Mutex;

/// An object that can be read. Cheap to clone; while one lives its segments are overwritten last.
#[derive(Clone, Debug)]
pub struct DiskObject {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    volume: Arc<Volume>,
    hash: KeyHash,
    location: Location,
    head: Bytes,
    length: u64,
    layout: Layout,
    _pins: Vec<Pin>,
}

#[derive(Debug)]
enum Layout {
    /// The body lies in the record itself.
    Single(Body),
    /// The body lies in pieces.
    Pieces {
        object: u64,
        extents: Vec<Extent>,
        /// Where each begins in the body.
        starts: Vec<u64>,
        /// The piece that was read last: reading on needs no second look at its meta.
        last: Mutex<Option<(usize, Body)>>,
    },
}

/// A record's body: where it lies and what its blocks must add up to.
#[derive(Clone, Debug)]
struct Body {
    /// Bytes from the device's start.
    at: u64,
    epoch: u64,
    bytes: u64,
    checksums: Bytes,
    /// The front of the body, read along with the meta. Not yet checked.
    front: Bytes,
}

/// A record with its meta checked.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) header: RecordHeader,
    at: u64,
    /// The meta and as much of what follows as was read along.
    bytes: Bytes,
}

impl Record {
    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[self.header.key_range()]
    }

    pub(super) fn head(&self) -> Bytes {
        self.bytes.slice(self.header.head_range())
    }

    pub(super) fn table(&self) -> Bytes {
        self.bytes.slice(self.header.table_range())
    }

    /// What of the body was read along.
    pub(super) fn body(&self) -> Bytes {
        let meta_bytes = self.header.meta_bytes();
        let record_bytes = self.header.record_bytes();
        let end =
            usize::try_from(record_bytes).map_or(self.bytes.len(), |end| end.min(self.bytes.len()));
        self.bytes.slice(meta_bytes..end)
    }

    fn into_body(self) -> Body {
        Body {
            at: self.at + self.header.meta_bytes() as u64,
            epoch: self.header.epoch,
            bytes: self.header.body_bytes,
            checksums: self.table(),
            front: self.body(),
        }
    }
}

/// Whether a read may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Never,
    AsLongAsItTakes,
}

/// Why a read gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotRead {
    WouldBlock,
    Miss(Miss),
}

impl From<Miss> for NotRead {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl<T> From<Result<T, NotRead>> for Now<T> {
    fn from(result: Result<T, NotRead>) -> Self {
        match result {
            Ok(value) => Self::Ready(value),
            Err(NotRead::WouldBlock) => Self::WouldBlock,
            Err(NotRead::Miss(miss)) => Self::Miss(miss),
        }
    }
}

fn waited<T>(result: Result<T, NotRead>) -> Result<T, Miss> {
    result.map_err(|not_read| match not_read {
        NotRead::Miss(miss) => miss,
        NotRead::WouldBlock => unreachable!("only asked for where waiting is forbidden"),
    })
}

impl DiskObject {
    /// What the writer kept beside the body.
    pub fn head(&self) -> &Bytes {
        &self.inner.head
    }

    /// Bytes of the body.
    pub fn length(&self) -> u64 {
        self.inner.length
    }

    /// The body from `range.start` on: at least a byte, at most the range, and no more than one read
    /// brings. Ask again behind what came. Empty if the range is, or lies behind the body.
    pub fn read_now(&self, range: Range<u64>) -> Now<Bytes> {
        let result = self.inner.read(range, Wait::Never);
        if matches!(result, Err(NotRead::WouldBlock)) {
            self.inner.volume.counters.would_block.one();
        }
        result.into()
    }

    /// As [`read_now`](Self::read_now), waiting for the device if need be.
    ///
    /// # Errors
    ///
    /// If what is there is not what was written, or cannot be read; the object is forgotten then.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes, Miss> {
        waited(self.inner.read(range, Wait::AsLongAsItTakes))
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.inner.hash
    }

    pub(crate) fn location(&self) -> Location {
        self.inner.location
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.inner.volume
    }
}

impl Volume {
    pub(crate) fn read_head_now(
        self: &Arc<Self>,
        hash: KeyHash,
        at: Location,
        key: &[u8],
    ) -> Now<DiskObject> {
        let result = self.read_head_waiting(hash, at, key, Wait::Never);
        if matches!(result, Err(NotRead::WouldBlock)) {
            self.counters.would_block.one();
        }
        result.into()
    }

    pub(crate) fn read_head(
        self: &Arc<Self>,
        hash: KeyHash,
        at: Location,
        key: &[u8],
    ) -> Result<DiskObject, Miss> {
        waited(self.read_head_waiting(hash, at, key, Wait::AsLongAsItTakes))
    }

    fn read_head_waiting(
        self: &Arc<Self>,
        hash: KeyHash,
        location: Location,
        key: &[u8],
        wait: Wait,
    ) -> Result<DiskObject, NotRead> {
        let first = self.settings.first_read_bytes.bytes();
        let opened = self.open_object(hash, location, key, first, wait);
        match &opened {
            Ok(_) => {
                self.index.touch(hash, location);
                self.counters.read_objects.one();
            }
            Err(NotRead::WouldBlock) => {}
            // The entry is another key's, and that one's record is sound.
            Err(NotRead::Miss(Miss::Stranger)) => {
                self.index.note_false_match();
                self.counters.strangers.one();
            }
            Err(NotRead::Miss(miss)) => self.lost(hash, location, *miss),
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
        let mut pins = vec![self.segments.pin(segment)];
        let record = self.record_at(location.offset(), first_bytes, wait)?;
        if record.header.hash != hash.0 || record.key() != key {
            return Err(Miss::Stranger.into());
        }
        let head = record.head();
        let length = record.header.body_bytes;
        let layout = match record.header.kind {
            Kind::Object => Layout::Single(record.into_body()),
            Kind::Commit => {
                let extents: Vec<_> = Extent::parse_all(&record.table()).collect();
                let mut starts = Vec::with_capacity(extents.len());
                let mut start = 0;
                let mut pinned = segment;
                for extent in &extents {
                    starts.push(start);
                    start += u64::from(extent.body_bytes);
                    let segment = self.segments.segment_at(extent.at).ok_or(Miss::Corrupt)?;
                    if segment != pinned {
                        pins.push(self.segments.pin(segment));
                        pinned = segment;
                    }
                }
                // Pinned first and asked then: what counts now is overwritten last.
                if !extents.iter().all(|extent| self.holds(extent)) {
                    return Err(Miss::Reclaimed.into());
                }
                if start != length {
                    return Err(Miss::Corrupt.into());
                }
                Layout::Pieces {
                    object: record.header.object,
                    extents,
                    starts,
                    last: Mutex::default(),
                }
            }
            Kind::Piece | Kind::Tombstones => return Err(Miss::Stranger.into()),
        };
        let inner = Inner {
            volume: Arc::clone(self),
            hash,
            location,
            head,
            length,
            layout,
            _pins: pins,
        };
        Ok(DiskObject {
            inner: Arc::new(inner),
        })
    }

    /// Whether a piece's segment still holds what it held when the piece was written.
    pub(super) fn holds(&self, extent: &Extent) -> bool {
        let segment = self.segments.segment_at(extent.at);
        segment.is_some_and(|segment| self.segments.epoch(segment) == extent.epoch)
    }

    /// The whole record at a place, every byte checked. For the writer's thread.
    pub(super) fn load_record(
        &self,
        location: Location,
        record_bytes: u64,
    ) -> Result<Record, Miss> {
        let wait = Wait::AsLongAsItTakes;
        let mut record = waited(self.record_at(location.offset(), record_bytes, wait))?;
        let whole = record.header.record_bytes();
        if whole > record.bytes.len() as u64 {
            record.bytes = waited(self.read_bytes(record.at, whole, wait))?;
            let meta = &record.bytes[..record.header.meta_bytes()];
            let checked = record.header.check(meta, self.superblock.checksum_seed);
            checked.map_err(|_| Miss::Corrupt)?;
        }
        if matches!(record.header.kind, Kind::Object | Kind::Piece) {
            check_blocks(
                &record.table(),
                0,
                &record.body(),
                self.superblock.checksum_seed,
            )
            .map_err(|_| Miss::Corrupt)?;
        }
        Ok(record)
    }

    /// The record at a place with its meta checked, reading `first_bytes` at first.
    fn record_at(&self, at: u64, first_bytes: u64, wait: Wait) -> Result<Record, NotRead> {
        let segment = self.segments.segment_at(at).ok_or(Miss::Reclaimed)?;
        let epoch = self.segments.epoch(segment);
        let room = self.segments.end(segment) - at;
        let mut bytes = self.read_bytes(at, first_bytes.min(room), wait)?;
        let seed = self.superblock.checksum_seed;
        // If the epoch is another now, the segment was overwritten meanwhile and the bytes prove nothing.
        let blame = || {
            if self.segments.epoch(segment) == epoch {
                Miss::Corrupt
            } else {
                Miss::Reclaimed
            }
        };
        if bytes.len() < RECORD_HEADER_BYTES {
            bytes = self.read_bytes(at, room.min(RECORD_HEADER_BYTES as u64), wait)?;
        }
        let header = match RecordHeader::parse(&bytes, self.shape.segment_bytes) {
            Ok(header) if header.epoch == epoch => header,
            // A sound record from another opening of the segment: the location is stale.
            Ok(_) => return Err(Miss::Reclaimed.into()),
            Err(_) if wait == Wait::Never && bytes.len() < RECORD_HEADER_BYTES => {
                return Err(NotRead::WouldBlock);
            }
            Err(error) => return Err(self.blamed(blame(), at, &error).into()),
        };
        if header.record_bytes() > room {
            return Err(self.blamed(blame(), at, &RecordError::NoRecord).into());
        }
        let meta_bytes = header.meta_bytes();
        if bytes.len() < meta_bytes {
            bytes = self.read_bytes(at, meta_bytes as u64, wait)?;
            if bytes.len() < meta_bytes {
                return Err(NotRead::WouldBlock);
            }
        }
        // Of a header that was read again nothing is assumed: it is part of the meta.
        let header = RecordHeader::parse(&bytes, self.shape.segment_bytes)
            .ok()
            .filter(|again| again.meta_bytes() == meta_bytes)
            .ok_or_else(|| self.blamed(blame(), at, &RecordError::NoRecord))?;
        if let Err(error) = header.check(&bytes[..meta_bytes], seed) {
            return Err(self.blamed(blame(), at, &error).into());
        }
        Ok(Record { header, at, bytes })
    }

    fn blamed(&self, miss: Miss, at: u64, error: &RecordError) -> Miss {
        if miss == Miss::Corrupt {
            self.corrupt(|| format!("record at {at:#x}: {error}"));
        }
        miss
    }

    /// Bytes of the device. Without waiting it may be fewer than asked for, but not none.
    fn read_bytes(&self, at: u64, bytes: u64, wait: Wait) -> Result<Bytes, NotRead> {
        if self.health.state() == super::DeviceState::OutOfService {
            return Err(Miss::OutOfService.into());
        }
        let mut buffer = vec![0; usize::try_from(bytes).expect("at most a segment")];
        let read = match wait {
            Wait::AsLongAsItTakes => self.device.read_at(&mut buffer, at).map(|()| buffer.len()),
            Wait::Never => self.device.read_now_at(&mut buffer, at),
        };
        match read {
            Ok(0) if wait == Wait::Never && bytes > 0 => Err(NotRead::WouldBlock),
            Ok(filled) => {
                self.read_succeeded();
                self.counters.read_bytes.add(filled as u64);
                self.counters.read_ops.one();
                buffer.truncate(filled);
                Ok(Bytes::from(buffer))
            }
            Err(error) => {
                self.read_failed(&error);
                Err(Miss::Device(error.kind()).into())
            }
        }
    }

    /// An object turned out not to be there: it is looked for no more.
    fn lost(&self, hash: KeyHash, location: Location, miss: Miss) {
        match miss {
            // Counted where it was found. The device may answer again.
            Miss::Device(_) | Miss::OutOfService => return,
            Miss::Reclaimed => self.counters.reclaimed_reads.one(),
            Miss::Corrupt | Miss::Stranger => {}
        }
        self.index.remove(hash, location);
    }
}

impl Inner {
    fn read(&self, range: Range<u64>, wait: Wait) -> Result<Bytes, NotRead> {
        let range = range.start..range.end.min(self.length);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let result = match &self.layout {
            Layout::Single(body) => self.read_body(body, range, wait),
            Layout::Pieces {
                object,
                extents,
                starts,
                last,
            } => {
                let number = starts.partition_point(|&start| start <= range.start) - 1;
                let start = starts[number];
                let within = range.start - start
                    ..(range.end - start).min(u64::from(extents[number].body_bytes));
                let known = last.lock().as_ref().filter(|(n, _)| *n == number).cloned();
                let body = match known {
                    Some((_, body)) => Ok(body),
                    None => self
                        .open_piece(*object, &extents[number], start, &within, wait)
                        .inspect(|body| *last.lock() = Some((number, body.clone()))),
                };
                body.and_then(|body| self.read_body(&body, within, wait))
            }
        };
        if let Err(NotRead::Miss(miss)) = result {
            self.volume.lost(self.hash, self.location, miss);
        }
        result
    }

    /// Reads a piece's meta, and along with it what is wanted of its front.
    fn open_piece(
        &self,
        object: u64,
        extent: &Extent,
        start: u64,
        wanted: &Range<u64>,
        wait: Wait,
    ) -> Result<Body, NotRead> {
        let meta_bytes = u64::from(extent.meta_bytes);
        let along = if wanted.start < BLOCK_BYTES {
            let most = self.volume.settings.read_bytes.bytes();
            let end = wanted.end.next_multiple_of(BLOCK_BYTES).min(most);
            end.min(u64::from(extent.body_bytes))
        } else {
            0
        };
        let record = self.volume.record_at(extent.at, meta_bytes + along, wait)?;
        let header = &record.header;
        let is_it = header.kind == Kind::Piece
            && header.hash == self.hash.0
            && header.object == object
            && header.epoch == extent.epoch
            && header.body_offset == start
            && header.body_bytes == u64::from(extent.body_bytes);
        if is_it {
            Ok(record.into_body())
        } else {
            Err(Miss::Reclaimed.into())
        }
    }

    /// The front of `range`, in whole blocks as far as the device is concerned.
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
        let front_end = whole_blocks(body.front.len() as u64, body.bytes);
        let bytes = if range.start < front_end {
            let end = wanted_end.min(front_end);
            body.front.slice(to_usize(start)..to_usize(end))
        } else {
            let bytes = volume.read_bytes(body.at + start, wanted_end - start, wait)?;
            let whole = whole_blocks(start + bytes.len() as u64, body.bytes);
            if whole <= range.start {
                return Err(NotRead::WouldBlock);
            }
            bytes.slice(..to_usize(whole - start))
        };
        let seed = volume.superblock.checksum_seed;
        if let Err(block) = check_blocks(&body.checksums, first_block, &bytes, seed) {
            let at = body.at + block * BLOCK_BYTES;
            let segment = volume.segments.segment_at(at);
            // Overwritten while it was read, or damaged? The header says which opening it is in.
            let overwritten =
                segment.is_none_or(|segment| volume.segments.epoch(segment) != body.epoch);
            if overwritten {
                return Err(Miss::Reclaimed.into());
            }
            volume.corrupt(|| format!("block {block} of the body at {:#x}", body.at));
            return Err(Miss::Corrupt.into());
        }
        let skip = range.start - start;
        let end = (start + bytes.len() as u64).min(range.end) - start;
        Ok(bytes.slice(to_usize(skip)..to_usize(end)))
    }
}

/// How much of `bytes` is whole blocks of a body of `body_bytes`, whose last block may be short.
fn whole_blocks(bytes: u64, body_bytes: u64) -> u64 {
    if bytes >= body_bytes {
        body_bytes
    } else {
        bytes / BLOCK_BYTES * BLOCK_BYTES
    }
}

/// Compares blocks, the first of which is number `first`, with their checksums. The number of one
/// that is wrong.
fn check_blocks(checksums: &[u8], first: u64, bytes: &[u8], seed: ChecksumSeed) -> Result<(), u64> {
    for (block, number) in bytes.chunks(BLOCK_BYTES as usize).zip(first..) {
        let item = checksums.chunks_exact(8).nth(to_usize(number));
        if item != Some(&seed.of(block).to_le_bytes()[..]) {
            return Err(number);
        }
    }
    Ok(())
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("within a record")
}
