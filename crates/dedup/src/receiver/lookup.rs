//! What a frame stands for: chunks out of the store, and bytes out of compressed ones.

use bytes::Bytes;

use crate::codec::{Codec, Method};
use crate::id::{ChunkId, row_check};
use crate::store::{ChunkStore, Entry, Place, load_verified};
use crate::wire::{NakCause, PIECE_BYTES_MAX, Run, Span};
use crate::{Tools, Violation};

use super::stream::{Arrived, Kind};
use super::{Receiver, Sharing};

impl Receiver {
    /// Chunks by their names.
    pub(super) fn load_named<S: ChunkStore, C: Codec>(
        &mut self,
        span: Span,
        skip: u32,
        ids: &[ChunkId],
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Arrived, NakCause> {
        let (length, skip) = (span.length as usize, skip as usize);
        let bytes = self.load_each(ids, length + skip, tools)?;
        if bytes.len() != length + skip {
            return Err(self.missing());
        }
        self.counters.from_store += length as u64;
        let prefix = bytes[..skip].to_vec();
        let bytes = Bytes::from(bytes).slice(skip..);
        let kind = Kind::Kept { prefix };
        Ok(Arrived { bytes, kind })
    }

    /// What a delta was made against.
    pub(super) fn load_base<S: ChunkStore, C: Codec>(
        &mut self,
        ids: &[ChunkId],
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Vec<u8>, NakCause> {
        self.load_each(ids, PIECE_BYTES_MAX, tools)
    }

    /// Chunks one by one, wherever they lie; of all of them not more than `bytes_max`.
    fn load_each<S: ChunkStore, C: Codec>(
        &mut self,
        ids: &[ChunkId],
        bytes_max: usize,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Vec<u8>, NakCause> {
        let (mut bytes, mut entries) = (Vec::with_capacity(bytes_max), Vec::with_capacity(1));
        for id in ids {
            let place = tools.store.locate(id);
            let place = self.permitted(place, tools)?;
            entries.clear();
            tools.store.entries(place, 1, &mut entries);
            let there = entries.first().is_some_and(|entry| {
                entry.id == *id && bytes.len() + entry.length as usize <= bytes_max
            });
            if !there || !load_verified(tools.store, tools.ids, place, &entries, &mut bytes) {
                return Err(self.missing());
            }
        }
        Ok(bytes)
    }

    /// Chunks one after the other, of `length` bytes together.
    pub(super) fn load_run<S: ChunkStore, C: Codec>(
        &mut self,
        run: &Run,
        length: u32,
        tools: &mut Tools<'_, S, C>,
    ) -> Result<Bytes, NakCause> {
        let first = tools.store.locate(&run.first);
        let mut place = self.permitted(first, tools)?;
        let chunks = usize::from(run.chunks);
        // Containers end at other places than the peer's: a run may go on in the next.
        let mut parts: Vec<(Place, Vec<Entry>)> = Vec::new();
        let mut found = 0;
        while found < chunks && parts.len() < CONTAINERS_PER_RUN {
            let mut entries = Vec::new();
            tools.store.entries(place, chunks - found, &mut entries);
            found += entries.len();
            parts.push((place, entries));
            let container = place.container.wrapping_add(1);
            place = Place { container, slot: 0 };
        }
        let all = || parts.iter().flat_map(|(_, entries)| entries);
        let bytes: usize = all().map(|entry| entry.length as usize).sum();
        let fits = bytes == length as usize;
        if found != chunks || !fits || row_check(all().map(|entry| &entry.id)) != run.check {
            self.counters.disordered += 1;
            return Err(NakCause::Order);
        }
        let mut loaded = Vec::with_capacity(bytes);
        for (place, entries) in &parts {
            for nth in 0..entries.len() {
                self.permitted(Some(place.plus(nth)), tools)?;
            }
            if !load_verified(tools.store, tools.ids, *place, entries, &mut loaded) {
                return Err(self.missing());
            }
        }
        self.counters.from_store += bytes as u64;
        Ok(loaded.into())
    }

    /// The place, if there is one and the peer may name what lies there.
    fn permitted<S, C>(
        &mut self,
        place: Option<Place>,
        tools: &Tools<'_, S, C>,
    ) -> Result<Place, NakCause> {
        let place = place.ok_or_else(|| self.missing())?;
        if self.config.sharing == Sharing::Exchanged && !tools.knowledge.has(place) {
            self.counters.foreign += 1;
            return Err(NakCause::Missing);
        }
        Ok(place)
    }

    fn missing(&mut self) -> NakCause {
        self.counters.missing += 1;
        NakCause::Missing
    }
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
