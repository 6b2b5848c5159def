//! A record with verified metadata.

use bytes::Bytes;

use crate::disk::format::RecordHeader;

/// A record with verified metadata.
#[derive(Clone, Debug)]
pub(in crate::disk) struct Record {
    pub(in crate::disk) header: RecordHeader,
    /// The offset of the record on the device.
    pub(in crate::disk) offset: u64,
    /// The metadata, and the bytes after the metadata that the same read returned.
    pub(super) bytes: Bytes,
}

impl Record {
    #[cfg(test)]
    pub(in crate::disk) fn new(header: RecordHeader, offset: u64, bytes: Bytes) -> Self {
        Self {
            header,
            offset,
            bytes,
        }
    }

    pub(in crate::disk) fn key(&self) -> &[u8] {
        &self.bytes[self.header.key_range()]
    }

    pub(in crate::disk) fn head(&self) -> Bytes {
        self.bytes.slice(self.header.head_range())
    }

    /// Returns the table; its content depends on the [`RecordKind`](crate::disk::format::RecordKind). For an object or a piece it has a checksum for
    /// each block of the body.
    pub(in crate::disk) fn table(&self) -> Bytes {
        self.bytes.slice(self.header.table_range())
    }

    /// Returns a copy of the record without its body.
    pub(in crate::disk) fn without_body(&self) -> Self {
        Self {
            header: self.header,
            offset: self.offset,
            bytes: Bytes::copy_from_slice(&self.bytes[..self.header.meta_bytes()]),
        }
    }

    /// Returns the part of the body that was read with the metadata.
    pub(in crate::disk) fn body(&self) -> Bytes {
        let meta_bytes = self.header.meta_bytes();
        let record_bytes = self.header.record_bytes();
        let end =
            usize::try_from(record_bytes).map_or(self.bytes.len(), |end| end.min(self.bytes.len()));
        self.bytes.slice(meta_bytes..end)
    }
}
