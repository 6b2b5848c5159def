//! Reads and parses a record, and verifies its metadata.

use bytes::Bytes;

use super::body::check_blocks;
use super::record::Record;
use super::waiting::{NotRead, Wait, into_blocking};
use crate::disk::counters::DeviceState;
use crate::disk::error::Miss;
use crate::disk::format::{RECORD_HEADER_BYTES, RecordError, RecordHeader, RecordKind};
use crate::disk::location::Location;
use crate::disk::volume::Volume;

impl Volume {
    /// Reads the whole record at a location and verifies every byte. The first read returns up to `first_bytes`. If the
    /// record is longer, a second read returns all of it. Waits for the device, and is called only by the writer's
    /// thread.
    pub(in crate::disk) fn load_record(
        &self,
        location: Location,
        first_bytes: u64,
    ) -> Result<Record, Miss> {
        let wait = Wait::Allowed;
        let mut record = into_blocking(self.record_at(location.offset(), first_bytes, wait))?;
        let whole = record.header.record_bytes();
        if whole > record.bytes.len() as u64 {
            record.bytes = into_blocking(self.read_bytes(record.offset, whole, wait))?;
            let meta = &record.bytes[..record.header.meta_bytes()];
            let checked = record.header.check(meta, self.superblock.checksum_seed);
            checked.map_err(|_| Miss::Corrupt)?;
        }
        if matches!(record.header.kind, RecordKind::Object | RecordKind::Piece) {
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

    /// Reads the record at an offset and verifies its metadata. The first read returns up to `first_bytes`.
    pub(super) fn record_at(
        &self,
        at: u64,
        first_bytes: u64,
        wait: Wait,
    ) -> Result<Record, NotRead> {
        let segment = self.segments.segment_at(at).ok_or(Miss::Reclaimed)?;
        let epoch = self.segments.epoch(segment);
        // Bodies that are sent from the page cache need only the metadata, and the metadata cache has no body bytes.
        let use_metadata_cache = wait == Wait::Never && self.can_send_from_cache();
        if use_metadata_cache && let Some(record) = self.metadata_cache.find(at, epoch) {
            return Ok(record);
        }
        let bytes_left = self.segments.end(segment) - at;
        let mut bytes = self.read_bytes(at, first_bytes.min(bytes_left), wait)?;
        let seed = self.superblock.checksum_seed;
        // Invalid bytes have one of two causes: if the epoch has changed, the segment was overwritten during
        // the read; otherwise the record is corrupt.
        let cause = || {
            if self.segments.epoch(segment) == epoch {
                Miss::Corrupt
            } else {
                Miss::Reclaimed
            }
        };
        if bytes.len() < RECORD_HEADER_BYTES {
            bytes = self.read_bytes(at, bytes_left.min(RECORD_HEADER_BYTES as u64), wait)?;
        }
        let header = match RecordHeader::parse(&bytes, self.shape.segment_bytes) {
            Ok(header) if header.epoch == epoch => header,
            // A valid record of another epoch of the segment: the location is outdated.
            Ok(_) => return Err(Miss::Reclaimed.into()),
            Err(_) if wait == Wait::Never && bytes.len() < RECORD_HEADER_BYTES => {
                return Err(NotRead::WouldBlock);
            }
            Err(error) => return Err(self.report_miss(cause(), at, &error).into()),
        };
        if header.record_bytes() > bytes_left {
            return Err(self.report_miss(cause(), at, &RecordError::NoRecord).into());
        }
        let meta_bytes = header.meta_bytes();
        if bytes.len() < meta_bytes {
            bytes = self.read_bytes(at, meta_bytes as u64, wait)?;
            if bytes.len() < meta_bytes {
                return Err(NotRead::WouldBlock);
            }
        }
        // If the metadata was read again, the header was read again with it. The header is therefore parsed again.
        let header = RecordHeader::parse(&bytes, self.shape.segment_bytes)
            .ok()
            .filter(|again| again.meta_bytes() == meta_bytes)
            .ok_or_else(|| self.report_miss(cause(), at, &RecordError::NoRecord))?;
        if let Err(error) = header.check(&bytes[..meta_bytes], seed) {
            return Err(self.report_miss(cause(), at, &error).into());
        }
        let record = Record {
            header,
            offset: at,
            bytes,
        };
        if use_metadata_cache {
            self.metadata_cache.insert(&record);
        }
        Ok(record)
    }

    /// Reports the error if the miss is a corrupt record. Returns the miss.
    fn report_miss(&self, miss: Miss, at: u64, error: &RecordError) -> Miss {
        if miss == Miss::Corrupt {
            self.report_corruption(|| format!("record at {at:#x}: {error}"));
        }
        miss
    }

    /// Reads bytes of the device. A read that must not wait may return fewer bytes than requested, but at least
    /// one.
    pub(super) fn read_bytes(&self, at: u64, bytes: u64, wait: Wait) -> Result<Bytes, NotRead> {
        if self.health.state() == DeviceState::OutOfService {
            return Err(Miss::OutOfService.into());
        }
        let mut buffer = vec![0; usize::try_from(bytes).expect("the read is at most a segment")];
        let read = match wait {
            Wait::Allowed => self.device.read_at(&mut buffer, at).map(|()| buffer.len()),
            Wait::Never => self.device.read_now_at(&mut buffer, at),
        };
        match read {
            Ok(0) if wait == Wait::Never && bytes > 0 => Err(NotRead::WouldBlock),
            Ok(filled) => {
                self.record_read_success();
                self.counters.read_bytes.add(filled as u64);
                self.counters.read_ops.increment();
                buffer.truncate(filled);
                Ok(Bytes::from(buffer))
            }
            Err(error) => {
                self.record_read_failure(&error);
                Err(Miss::Device(error.kind()).into())
            }
        }
    }
}
