//! Performs the requests of the state machines of `edgeward_dedup`.
//!
//! A request is answered from memory if possible. Otherwise a [thread of the store](crate::threads) answers it.

use edgeward_dedup::buffer::Pool;
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::store::{
    Answer, Entry, LocatedChunk, Request, bytes_of, bytes_of_located, rows,
};

use crate::Chunks;
use crate::access::Wait;
use crate::chunks::Shared;

/// The request needs a read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldBlock;

impl Chunks {
    /// Performs a request without waiting for the device. Returns `None` if the request has no answer. Fails if the
    /// request needs a read from the device: it then had no effect, and the caller [submits](Self::submit) it.
    pub fn try_answer(
        &self,
        request: &Request,
        id_key: &IdKey,
        pool: &Pool,
    ) -> Result<Option<Answer>, WouldBlock> {
        self.0.answer(request, id_key, pool, Wait::Never)
    }

    /// Performs a request, and waits for the device if necessary. Returns `None` if the request has no answer.
    pub fn answer(&self, request: &Request, id_key: &IdKey, pool: &Pool) -> Option<Answer> {
        let answer = self.0.answer(request, id_key, pool, Wait::Device);
        answer.unwrap_or_default()
    }
}

impl Shared {
    /// Performs a request. Returns `None` if the request has no answer.
    pub(crate) fn answer(
        &self,
        request: &Request,
        id_key: &IdKey,
        pool: &Pool,
        wait: Wait,
    ) -> Result<Option<Answer>, WouldBlock> {
        Ok(Some(match request {
            Request::Find {
                entry,
                chunk,
                expected,
            } => {
                // An estimate of the bytes of chunks like this one that the store had and evicted.
                let evicted_bytes = self.evicted_chunk_bytes(entry);
                let (location, was_stored) = match chunk {
                    Some(chunk) => self.find_or_insert(entry.id, chunk, wait)?,
                    None => self.find_or_list(*entry, wait)?,
                };
                let other = location.filter(|_| was_stored && location != *expected);
                Answer::Found {
                    location,
                    was_stored,
                    evicted_bytes: if was_stored { 0 } else { evicted_bytes },
                    row: match other {
                        Some(location) => self.row(location, wait)?,
                        None => None,
                    },
                }
            }
            Request::List(location) => Answer::Row(self.row(*location, wait)?),
            Request::Lookup(ids) => Answer::Located(self.locate_each(ids, wait)?),
            Request::LookupRun { first, chunks } => {
                Answer::Located(self.locate_run(first, *chunks, wait)?)
            }
            Request::Load(chunks) => {
                let bytes = bytes_of_located(chunks);
                let mut buffer = pool.buffer(bytes);
                let mut is_loaded = true;
                for (location, entries) in rows(chunks) {
                    let row_bytes = bytes_of(&entries);
                    let out = &mut buffer.spare()[..row_bytes];
                    is_loaded = self.load_verified(id_key, location, &entries, out, wait)?;
                    if !is_loaded {
                        break;
                    }
                    buffer.fill(row_bytes);
                }
                Answer::Loaded(is_loaded.then(|| buffer.freeze(0..bytes)))
            }
            Request::Store { id, chunk } => {
                Answer::Stored(self.find_or_insert(*id, chunk, wait)?.0)
            }
            Request::SetFingerprint {
                location,
                id,
                fingerprint,
            } => {
                self.set_fingerprint(*location, id, || Some(*fingerprint));
                return Ok(None);
            }
        }))
    }

    /// Returns the chunks up to the first one that is missing.
    fn locate_each(&self, ids: &[ChunkId], wait: Wait) -> Result<Vec<LocatedChunk>, WouldBlock> {
        let mut located = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(location) = self.locate(id, wait)? else {
                break;
            };
            match self.entries(location, 1, wait)?.first() {
                Some(entry) if entry.id == *id => located.push(LocatedChunk {
                    location,
                    entry: *entry,
                }),
                _ => break,
            }
        }
        Ok(located)
    }

    /// Returns at most this many consecutive chunks, beginning with the one with this hash. A container of the peer's
    /// store and a container of this store end at different chunks, so the chunks may continue in the next containers.
    fn locate_run(
        &self,
        first: &ChunkId,
        chunks: usize,
        wait: Wait,
    ) -> Result<Vec<LocatedChunk>, WouldBlock> {
        let mut located: Vec<LocatedChunk> = Vec::with_capacity(chunks);
        let mut next = self.locate(first, wait)?;
        for _ in 0..CONTAINERS_PER_RUN {
            let Some(location) = next.filter(|_| located.len() < chunks) else {
                break;
            };
            let entries = self.entries(location, chunks - located.len(), wait)?;
            let chunk = |(nth, entry): (usize, &Entry)| LocatedChunk {
                location: location.plus(nth),
                entry: *entry,
            };
            located.extend(entries.iter().enumerate().map(chunk));
            next = (!entries.is_empty()).then(|| location.next_container());
        }
        Ok(located)
    }
}

/// The largest number of containers that a run may span. A run has at most 512 KiB, which lie in at most two
/// containers, unless some containers are nearly empty.
const CONTAINERS_PER_RUN: usize = 4;
