//! What a frame stands for: chunks out of the store, and bytes out of compressed ones.

use bytes::Bytes;

use crate::buffer::Buffer;
use crate::codec::{Codec, Method};
use crate::id::{ChunkId, row_check};
use crate::store::{ChunkStore, Entry, Place, bytes_of, load_verified};
use crate::wire::{NakCause, PIECE_BYTES_MAX, Run, Span};
use crate::{Tools, Violation};

use super::stream::{Arrived, Kind};
use super::{Receiver, Sharing};

/// Why a frame's bytes are not at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// The peer has to send something else.
    Refused(NakCause),
    /// The store has yet to say.
    Owed,
}

impl Receiver {
    /// Chunks by their names.
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

    /// What a delta was made against.
    pub(super) fn load_base<S: ChunkStore, C: Codec>(
        &mut self,
        ids: &[ChunkId],
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Buffer, Unresolved> {
        self.load_each(ids, PIECE_BYTES_MAX, tools)
    }

    /// Chunks wherever they lie; of all of them not more than `bytes_max`. Those that lie together are read together. Where an answer is
    /// owed the others are asked for, too, so that all can be seen to at once.
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

    /// Chunks one after the other, of `length` bytes together.
    pub(super) fn load_run<S: ChunkStore, C: Codec>(
        &mut self,
        run: &Run,
        length: u32,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Bytes, Unresolved> {
        let first = tools.store.locate(&run.first);
        let mut place = self.permitted(first, tools)?;
        let chunks = usize::from(run.chunks);
        // Containers end at other places than the peer's: a run may go on in the next.
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

    /// The place, if there is one and the peer may name what lies there.
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

    /// Something was not found, which means that it is not there if nothing is owed.
    fn missing<S: ChunkStore, C>(&mut self, tools: &Tools<'_, S, C>) -> Unresolved {
        if tools.store.has_pending_reads() {
            return Unresolved::Owed;
        }
        self.counters.missing += 1;
        Unresolved::Refused(NakCause::Missing)
    }
}

/// Appends chunks from a place on, verified.
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

/// What a payload was made of. `frame` is what it lies in, if that may be kept.
pub(super) fn unpack(
    span: Span,
    method: Method,
    past: &[u8],
    payload: &[u8],
    frame: Option<&Bytes>,
    codec: &mut impl Codec,
) -> Result<Bytes, Violation> {
    if method == Method::None {
        // Little shall not keep much in memory.
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

/// Containers a run may span: its 512 KiB lie in two, unless some of its own were nearly empty.
const CONTAINERS_PER_RUN: usize = 4;
