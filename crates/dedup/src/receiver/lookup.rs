//! Resolves frames to bytes: loads chunks from the store and decompresses payloads.

use bytes::Bytes;

use crate::buffer::Buffer;
use crate::codec::{Codec, Method};
use crate::id::{ChunkId, row_check};
use crate::store::{ChunkStore, Entry, Place, bytes_of, load_verified};
use crate::wire::{NakCause, PIECE_BYTES_MAX, Run, Span};
use crate::{Tools, Violation};

use super::stream::{Arrived, Kind};
use super::{Receiver, Sharing};

/// Why the bytes of a frame are unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// The frame is refused: the peer has to send the bytes in another form.
    Refused(NakCause),
    /// A read of the store is pending.
    Owed,
}

impl Receiver {
    /// Loads chunks by their hashes.
    pub(super) fn load_named<S: ChunkStore, C: Codec>(
        &mut self,
        span: Span,
        skip: u32,
        ids: &[ChunkId],
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Arrived, Unresolved> {
        let (length, skip) = (span.length as usize, skip as usize);
        let bytes = self.load_each(ids, length + skip, tools)?;
        if bytes.len() != length + skip {
            return Err(self.missing(tools));
        }
        self.counters.from_store += length as u64;
        let prefix = bytes[..skip].to_vec();
        let bytes = bytes.freeze(skip..skip + length);
        let kind = Kind::Kept { prefix };
        Ok(Arrived { bytes, kind })
    }

    /// Loads the chunks that a delta refers to.
    pub(super) fn load_base<S: ChunkStore, C: Codec>(
        &mut self,
        ids: &[ChunkId],
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Buffer, Unresolved> {
        self.load_each(ids, PIECE_BYTES_MAX, tools)
    }

    /// Loads chunks from any location, at most `bytes_max` bytes in total. Adjacent chunks are loaded together.
    /// After a pending read the remaining chunks are looked up too, so that all reads are performed at once.
    fn load_each<S: ChunkStore, C: Codec>(
        &mut self,
        ids: &[ChunkId],
        bytes_max: usize,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Buffer, Unresolved> {
        let (mut places, mut entries) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            let place = tools.store.locate(id);
            if place.is_none() && tools.store.has_pending_reads() {
                continue;
            }
            places.push(self.permitted(place, tools)?);
            tools
                .store
                .entries(places[places.len() - 1], 1, &mut entries);
            if entries.len() != places.len() || entries.last().is_none_or(|entry| entry.id != *id) {
                return Err(self.missing(tools));
            }
        }
        if places.len() < ids.len() {
            return Err(Unresolved::Owed);
        }
        let bytes = bytes_of(&entries);
        if bytes > bytes_max {
            return Err(self.missing(tools));
        }
        let mut loaded = tools.pool.buffer(bytes);
        let mut rest = &entries[..];
        for row in places.chunk_by(|one, next| one.plus(1) == *next) {
            let (these, others) = rest.split_at(row.len());
            if !load_into(&mut loaded, row[0], these, tools) && !tools.store.has_pending_reads() {
                return Err(self.missing(tools));
            }
            rest = others;
        }
        if loaded.len() < bytes {
            return Err(Unresolved::Owed);
        }
        Ok(loaded)
    }

    /// Loads consecutive chunks of `length` bytes in total.
    pub(super) fn load_run<S: ChunkStore, C: Codec>(
        &mut self,
        run: &Run,
        length: u32,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Bytes, Unresolved> {
        let first = tools.store.locate(&run.first);
        let mut place = self.permitted(first, tools)?;
        let chunks = usize::from(run.chunks);
        // Containers end elsewhere than those of the peer: a run may continue in the next one.
        let mut parts: Vec<(Place, Vec<Entry>)> = Vec::new();
        let mut found = 0;
        while found < chunks && parts.len() < CONTAINERS_PER_RUN {
            let mut entries = Vec::new();
            tools.store.entries(place, chunks - found, &mut entries);
            if entries.is_empty() && tools.store.has_pending_reads() {
                return Err(Unresolved::Owed);
            }
            found += entries.len();
            parts.push((place, entries));
            let container = place.container.wrapping_add(1);
            place = Place { container, slot: 0 };
        }
        let all = || parts.iter().flat_map(|(_, entries)| entries);
        let bytes: usize = parts.iter().map(|(_, entries)| bytes_of(entries)).sum();
        let fits = bytes == length as usize;
        if found != chunks || !fits || row_check(all().map(|entry| &entry.id)) != run.check {
            self.counters.disordered += 1;
            return Err(Unresolved::Refused(NakCause::Order));
        }
        let mut loaded = tools.pool.buffer(bytes);
        for (place, entries) in &parts {
            for nth in 0..entries.len() {
                self.permitted(Some(place.plus(nth)), tools)?;
            }
            if !load_into(&mut loaded, *place, entries, tools) && !tools.store.has_pending_reads() {
                return Err(self.missing(tools));
            }
        }
        if loaded.len() < bytes {
            return Err(Unresolved::Owed);
        }
        self.counters.from_store += bytes as u64;
        Ok(loaded.freeze(0..bytes))
    }

    /// Returns the location if it exists and the peer may refer to its chunk.
    fn permitted<S: ChunkStore, C>(
        &mut self,
        place: Option<Place>,
        tools: &Tools<'_, S, C>,
    ) -> Result<Place, Unresolved> {
        let place = place.ok_or_else(|| self.missing(tools))?;
        if self.config.sharing == Sharing::Exchanged && !tools.knowledge.has(place) {
            self.counters.foreign += 1;
            return Err(Unresolved::Refused(NakCause::Missing));
        }
        Ok(place)
    }

    /// Returns the cause of a failed lookup: the chunk is missing, unless a read is pending.
    fn missing<S: ChunkStore, C>(&mut self, tools: &Tools<'_, S, C>) -> Unresolved {
        if tools.store.has_pending_reads() {
            return Unresolved::Owed;
        }
        self.counters.missing += 1;
        Unresolved::Refused(NakCause::Missing)
    }
}

/// Appends verified chunks from a location on.
fn load_into<S: ChunkStore, C: Codec>(
    buffer: &mut Buffer,
    place: Place,
    entries: &[Entry],
    tools: &mut Tools<'_, S, C>,
) -> bool {
    let bytes = bytes_of(entries);
    let out = &mut buffer.spare()[..bytes];
    let there = load_verified(tools.store, tools.ids, place, entries, out);
    if there {
        buffer.fill(bytes);
    }
    there
}

/// Decompresses a payload. `frame` is the buffer that contains it, if the buffer may be kept.
pub(super) fn unpack(
    span: Span,
    method: Method,
    past: &[u8],
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
    let unpacked = codec.decompress(method, past, payload, length, &mut bytes);
    if unpacked.is_err() || bytes.len() != length {
        return Err(Violation::Payload(span.stream));
    }
    Ok(bytes.into())
}

/// The number of containers that a run may span. Its 512 KiB lie in two, unless some containers are nearly empty.
const CONTAINERS_PER_RUN: usize = 4;
