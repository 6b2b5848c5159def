//! Lists the records of a segment: from the footer, which is written at the end of a full segment, or by a search.

use std::io;

use edgeward_policy::log::SegmentId;

use super::device::Device;
use super::format::{
    BLOCK_BYTES, ChecksumSeed, ENTRY_BYTES, Entry, Extent, RECORD_HEADER_BYTES, RecordHeader,
    RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, TRAILER_BYTES, Trailer,
};
use super::location::Location;
use super::segment::SegmentTable;

/// Reads the segments of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) segments: &'a SegmentTable,
    pub(crate) segment_bytes: u64,
    pub(crate) seed: ChecksumSeed,
}

/// A record found by a search. Its metadata is verified.
#[derive(Debug)]
pub(crate) struct FoundRecord<'a> {
    pub(crate) header: RecordHeader,
    /// The offset from the start of the segment.
    pub(crate) offset: u64,
    meta: &'a [u8],
    /// False if the search checks bodies and a block of this body does not match its checksum.
    pub(crate) has_valid_body: bool,
}

impl FoundRecord<'_> {
    pub(crate) fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + '_ {
        Extent::parse_all(&self.meta[self.header.table_range()])
    }

    /// Returns the entries that a footer has for the record: one entry, or one per purged key for tombstones.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let entry = |hash| Entry {
            hash,
            object_id: self.header.object_id,
            offset: u32::try_from(self.offset).expect("the number is within a segment"),
            record_bytes: u32::try_from(self.header.record_bytes())
                .expect("the number is within a segment"),
            kind: self.header.kind,
        };
        if self.header.kind != RecordKind::Tombstones {
            return vec![entry(self.header.hash)];
        }
        let table = &self.meta[self.header.table_range()];
        let hashes = table.chunks_exact(8);
        hashes
            .map(|hash| {
                entry(u64::from_le_bytes(
                    hash.try_into().expect("the slice has eight bytes"),
                ))
            })
            .collect()
    }
}

impl Scan<'_> {
    /// Returns the header of a segment, or `None` if it has no valid header, for example because it was never opened.
    pub(crate) fn header(&self, segment: SegmentId) -> io::Result<Option<SegmentHeader>> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        self.device
            .read_at(&mut bytes, self.segments.start(segment))?;
        Ok(SegmentHeader::parse(&bytes, self.seed, segment.0))
    }

    /// Returns the entries of the footer, or `None` if the segment has no valid footer of this epoch.
    pub(crate) fn footer(&self, segment: SegmentId, epoch: u64) -> io::Result<Option<Vec<Entry>>> {
        let end = self.segments.end(segment);
        // One read returns the trailer and, for most segments, all entries.
        let first = FOOTER_READ_BYTES.min(self.segment_bytes);
        let mut bytes = vec![0; to_usize(first)];
        self.device.read_at(&mut bytes, end - first)?;
        let trailer = bytes
            .last_chunk::<TRAILER_BYTES>()
            .expect("the read is longer than a trailer");
        let Some(trailer) = Trailer::parse(trailer, self.seed, epoch, self.segment_bytes) else {
            return Ok(None);
        };
        let entries_bytes = trailer.entries as usize * ENTRY_BYTES;
        let footer_bytes = entries_bytes + TRAILER_BYTES;
        if footer_bytes > bytes.len() {
            bytes.resize(footer_bytes, 0);
            self.device.read_at(&mut bytes, end - footer_bytes as u64)?;
        }
        let entries_end = bytes.len() - TRAILER_BYTES;
        let entries = &bytes[entries_end - entries_bytes..entries_end];
        if self.seed.checksum(entries) != trailer.entries_checksum {
            return Ok(None);
        }
        let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
        // If an entry is impossible, the function returns `None`, and the caller searches the segment instead.
        let possible = |entry: &Entry| {
            u64::from(entry.offset) + u64::from(entry.record_bytes) <= trailer.records_end
                && u64::from(entry.offset).is_multiple_of(Location::UNIT_BYTES)
        };
        Ok(entries
            .iter()
            .map(|entry| Entry::parse(entry).filter(possible))
            .collect())
    }

    /// Searches a segment for records of `epoch`, which may begin at every unit of 512 bytes, and calls `visit`
    /// with each record, in order.
    ///
    /// After a record with valid metadata, the search continues at the end of the record. Otherwise it continues
    /// at the next unit, so that records after a torn write are found. The search ends with an error at bytes
    /// that cannot be read. If `check_bodies` is true, it compares each body with its checksums.
    pub(crate) fn search(
        &self,
        segment: SegmentId,
        epoch: u64,
        check_bodies: bool,
        mut visit: impl FnMut(&FoundRecord<'_>),
    ) -> io::Result<()> {
        let start = self.segments.start(segment);
        let mut window = Window {
            device: self.device,
            start,
            bytes: Vec::new(),
            at: 0,
            end: self.segment_bytes,
        };
        let mut offset = SEGMENT_HEADER_BYTES as u64;
        while offset + RECORD_HEADER_BYTES as u64 <= self.segment_bytes {
            let room = self.segment_bytes - offset;
            let header = RecordHeader::parse(
                window.view(offset, RECORD_HEADER_BYTES as u64)?,
                self.segment_bytes,
            );
            let header = header.ok();
            let header =
                header.filter(|header| header.epoch == epoch && header.record_bytes() <= room);
            offset += match header {
                Some(header) => {
                    self.visit_record(&mut window, header, offset, check_bodies, &mut visit)?
                }
                None => Location::UNIT_BYTES,
            };
        }
        Ok(())
    }

    /// Calls `visit` with the record if its metadata is valid. Returns the distance to the next possible
    /// record.
    fn visit_record(
        &self,
        window: &mut Window<'_>,
        header: RecordHeader,
        offset: u64,
        check_bodies: bool,
        visit: &mut impl FnMut(&FoundRecord<'_>),
    ) -> io::Result<u64> {
        let meta_bytes = header.meta_bytes();
        let view_bytes = if check_bodies {
            header.record_bytes()
        } else {
            meta_bytes as u64
        };
        let bytes = window.view(offset, view_bytes)?;
        let (meta, body) = bytes.split_at(meta_bytes);
        if header.check(meta, self.seed).is_err() {
            return Ok(Location::UNIT_BYTES);
        }
        let has_body = matches!(header.kind, RecordKind::Object | RecordKind::Piece);
        let checksums = meta[header.table_range()].chunks_exact(8);
        let has_valid_body = !has_body
            || !check_bodies
            || checksums
                .zip(body.chunks(BLOCK_BYTES as usize))
                .all(|(item, block)| item == self.seed.checksum(block).to_le_bytes());
        visit(&FoundRecord {
            header,
            offset,
            meta,
            has_valid_body,
        });
        Ok(header.record_bytes().next_multiple_of(Location::UNIT_BYTES))
    }
}

/// The number of bytes at the end of a segment that are read first. They have the trailer and up to 2046 entries.
const FOOTER_READ_BYTES: u64 = 64 << 10;

/// A buffer with a part of a segment. During a search, later parts replace earlier ones.
struct Window<'a> {
    device: &'a dyn Device,
    /// The offset of the segment on the device.
    start: u64,
    bytes: Vec<u8>,
    /// The offset of `bytes` from the start of the segment.
    at: u64,
    /// The size of the segment.
    end: u64,
}

impl Window<'_> {
    /// Returns `bytes` bytes of the segment from `offset` on, and reads them from the device if necessary. The
    /// caller ensures that the bytes are within the segment.
    fn view(&mut self, offset: u64, bytes: u64) -> io::Result<&[u8]> {
        let buffered = self.at..self.at + self.bytes.len() as u64;
        if offset < buffered.start || offset + bytes > buffered.end {
            let read = bytes.max(WINDOW_BYTES).min(self.end - offset);
            self.bytes.resize(to_usize(read), 0);
            self.device.read_at(&mut self.bytes, self.start + offset)?;
            self.at = offset;
        }
        let from = to_usize(offset - self.at);
        Ok(&self.bytes[from..from + to_usize(bytes)])
    }
}

/// The number of bytes that a search reads at a time. A longer record is read at once.
const WINDOW_BYTES: u64 = 2 << 20;

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the number is within a segment")
}
