//! Resolves frames to bytes: loads chunks from the store and decompresses payloads.

use bytes::Bytes;

use crate::buffer::Buffer;
use crate::codec::{Codec, Method};
use crate::id::{ChunkId, sequence_check};
use crate::store::{ChunkLocation, ChunkStore, Entry, bytes_of, load_verified};
use crate::wire::{NakCause, PIECE_BYTES_MAX, Run, Span};
use crate::{Resources, Violation};

use super::stream::{PieceContent, ReceivedPiece};
use super::{Receiver, Sharing};

/// Why the bytes of a frame are unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupError {
    /// The frame is refused: the peer has to send the bytes in another form.
    Refused(NakCause),
    /// A read of the store is pending.
    Pending,
}

impl Receiver {
    /// Loads the bytes of `span` from the chunks with these hashes. The first `skip` bytes of the first chunk were
    /// received before: they become `prefix`, and are not part of the span.
    pub(super) fn load_references<S: ChunkStore, C: Codec>(
        &mut self,
        span: Span,
        skip: u32,
        ids: &[ChunkId],
        resources: &mut Resources<'_, S, C>,
    ) -> Result<ReceivedPiece, LookupError> {
        let (length, skip) = (span.length as usize, skip as usize);
        let bytes = self.load_each(ids, length + skip, resources)?;
        if bytes.len() != length + skip {
            return Err(self.lookup_error(resources));
        }
        self.counters.from_store += length as u64;
        let prefix = bytes[..skip].to_vec();
        let bytes = bytes.freeze(skip..skip + length);
        let kind = PieceContent::References { prefix };
        Ok(ReceivedPiece { bytes, kind })
    }

    /// Loads the chunks that a delta refers to.
    pub(super) fn load_base<S: ChunkStore, C: Codec>(
        &mut self,
        ids: &[ChunkId],
        resources: &mut Resources<'_, S, C>,
    ) -> Result<Buffer, LookupError> {
        let base = self.load_each(ids, PIECE_BYTES_MAX, resources)?;
        self.counters.bases += base.len() as u64;
        Ok(base)
    }

    /// Loads chunks from any locations, at most `bytes_max` bytes in total. Adjacent chunks are loaded
    /// together. If the lookup of a chunk needs a read from the device, the function also looks up the
    /// remaining chunks, so that the caller can perform all reads at once.
    fn load_each<S: ChunkStore, C: Codec>(
        &mut self,
        ids: &[ChunkId],
        bytes_max: usize,
        resources: &mut Resources<'_, S, C>,
    ) -> Result<Buffer, LookupError> {
        let (mut locations, mut entries) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            let location = resources.store.locate(id);
            if location.is_none() && resources.store.has_pending_reads() {
                continue;
            }
            locations.push(self.check_permission(location, resources)?);
            resources
                .store
                .entries(locations[locations.len() - 1], 1, &mut entries);
            if entries.len() != locations.len()
                || entries.last().is_none_or(|entry| entry.id != *id)
            {
                return Err(self.lookup_error(resources));
            }
        }
        if locations.len() < ids.len() {
            return Err(LookupError::Pending);
        }
        let bytes = bytes_of(&entries);
        if bytes > bytes_max {
            return Err(self.lookup_error(resources));
        }
        let mut loaded = resources.pool.buffer(bytes);
        let mut rest = &entries[..];
        for row in locations.chunk_by(|one, next| one.plus(1) == *next) {
            let (row_entries, later) = rest.split_at(row.len());
            if !load_into(&mut loaded, row[0], row_entries, resources)
                && !resources.store.has_pending_reads()
            {
                return Err(self.lookup_error(resources));
            }
            rest = later;
        }
        if loaded.len() < bytes {
            return Err(LookupError::Pending);
        }
        Ok(loaded)
    }

    /// Loads consecutive chunks of `length` bytes in total.
    pub(super) fn load_run<S: ChunkStore, C: Codec>(
        &mut self,
        run: &Run,
        length: u32,
        resources: &mut Resources<'_, S, C>,
    ) -> Result<Bytes, LookupError> {
        let first = resources.store.locate(&run.first);
        let mut location = self.check_permission(first, resources)?;
        let chunks = usize::from(run.chunks);
        // A container of the peer's store and a container of this store end at different chunks. A run may therefore
        // continue in the next container.
        let mut parts: Vec<(ChunkLocation, Vec<Entry>)> = Vec::new();
        let mut found = 0;
        while found < chunks && parts.len() < CONTAINERS_PER_RUN {
            let mut entries = Vec::new();
            resources
                .store
                .entries(location, chunks - found, &mut entries);
            if entries.is_empty() && resources.store.has_pending_reads() {
                return Err(LookupError::Pending);
            }
            found += entries.len();
            parts.push((location, entries));
            let container = location.container.wrapping_add(1);
            location = ChunkLocation { container, slot: 0 };
        }
        let all = || parts.iter().flat_map(|(_, entries)| entries);
        let bytes: usize = parts.iter().map(|(_, entries)| bytes_of(entries)).sum();
        let has_length = bytes == length as usize;
        if found != chunks
            || !has_length
            || sequence_check(all().map(|entry| &entry.id)) != run.check
        {
            self.counters.disordered += 1;
            return Err(LookupError::Refused(NakCause::Order));
        }
        let mut loaded = resources.pool.buffer(bytes);
        for (location, entries) in &parts {
            for nth in 0..entries.len() {
                self.check_permission(Some(location.plus(nth)), resources)?;
            }
            if !load_into(&mut loaded, *location, entries, resources)
                && !resources.store.has_pending_reads()
            {
                return Err(self.lookup_error(resources));
            }
        }
        if loaded.len() < bytes {
            return Err(LookupError::Pending);
        }
        self.counters.from_store += bytes as u64;
        Ok(loaded.freeze(0..bytes))
    }

    /// Returns the location of a chunk, or an error if the chunk is missing, or if [`Sharing`] forbids that the peer
    /// refers to it.
    fn check_permission<S: ChunkStore, C>(
        &mut self,
        location: Option<ChunkLocation>,
        resources: &Resources<'_, S, C>,
    ) -> Result<ChunkLocation, LookupError> {
        let location = location.ok_or_else(|| self.lookup_error(resources))?;
        if self.config.sharing == Sharing::Exchanged && !resources.knowledge.has(location) {
            self.counters.foreign += 1;
            return Err(LookupError::Refused(NakCause::Missing));
        }
        Ok(location)
    }

    /// Returns the cause of a failed lookup: the chunk is missing, unless a read is pending.
    fn lookup_error<S: ChunkStore, C>(&mut self, resources: &Resources<'_, S, C>) -> LookupError {
        if resources.store.has_pending_reads() {
            return LookupError::Pending;
        }
        self.counters.missing += 1;
        LookupError::Refused(NakCause::Missing)
    }
}

/// Loads the chunks from a location on, verifies them, and appends them to the buffer. Returns false if this fails.
fn load_into<S: ChunkStore, C: Codec>(
    buffer: &mut Buffer,
    location: ChunkLocation,
    entries: &[Entry],
    resources: &mut Resources<'_, S, C>,
) -> bool {
    let bytes = bytes_of(entries);
    let out = &mut buffer.spare()[..bytes];
    let is_loaded = load_verified(resources.store, resources.id_key, location, entries, out);
    if is_loaded {
        buffer.fill(bytes);
    }
    is_loaded
}

/// Decompresses a payload. `frame` is the buffer that contains the payload, or `None` if the result must not share
/// this buffer.
pub(super) fn unpack(
    span: Span,
    method: Method,
    dictionary: &[u8],
    payload: &[u8],
    frame: Option<&Bytes>,
    codec: &mut impl Codec,
) -> Result<Bytes, Violation> {
    if method == Method::None {
        // A short payload is copied, so that it does not keep a large buffer in use.
        let frame = frame.filter(|frame| payload.len() >= frame.len() / 2);
        return Ok(frame.map_or_else(
            || Bytes::copy_from_slice(payload),
            |frame| frame.slice_ref(payload),
        ));
    }
    let length = span.length as usize;
    let mut bytes = Vec::with_capacity(length);
    let result = codec.decompress(method, dictionary, payload, length, &mut bytes);
    if result.is_err() || bytes.len() != length {
        return Err(Violation::Payload(span.stream));
    }
    Ok(bytes.into())
}

/// The largest number of containers that a run may span. A run has at most 512 KiB, which lie in at most two
/// containers, unless some containers are nearly empty.
const CONTAINERS_PER_RUN: usize = 4;
