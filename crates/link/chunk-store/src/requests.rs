//! Performs the requests of the state machines of `edgeward_dedup`.
//!
//! A request is answered from memory if possible. Otherwise a thread that may block answers it: it reads from the
//! device what the queries of the request need, without holding the lock of the store, and repeats the queries.

use edgeward_dedup::buffer::Pool;
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::store::{
    Answer, Entry, LocatedChunk, Request, bytes_of, bytes_of_located, rows,
};

use crate::Chunks;
use crate::query::{ChunkStore, load_verified};

/// The request needs a read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldBlock;

impl Chunks {
    /// Performs a request without blocking on the device. Returns `None` if the request has no answer. Fails if the
    /// request needs a read from the device: it then had no effect, and a thread that may block calls
    /// [`answer`](Self::answer).
    pub fn try_answer(
        &self,
        request: &Request,
        id_key: &IdKey,
        pool: &Pool,
    ) -> Result<Option<Answer>, WouldBlock> {
        let evicted_bytes = self.evicted_bytes(request);
        let mut store = self.non_blocking();
        let answer = perform(&mut store, request, id_key, pool);
        if store.has_pending_reads() {
            return Err(WouldBlock);
        }
        Ok(answer.map(|answer| with_evicted_bytes(answer, evicted_bytes)))
    }

    /// Performs a request, and blocks on the device if necessary. Returns `None` if the request has no answer.
    pub fn answer(&self, request: &Request, id_key: &IdKey, pool: &Pool) -> Option<Answer> {
        let evicted_bytes = self.evicted_bytes(request);
        let answer = self.answer_after_reads(request, id_key, pool);
        answer.map(|answer| with_evicted_bytes(answer, evicted_bytes))
    }

    /// Returns an estimate of the bytes of chunks like the requested one that the store had and evicted. The answer has
    /// it if the store lacks the chunk.
    fn evicted_bytes(&self, request: &Request) -> u64 {
        let Request::Find { entry, .. } = request else {
            return 0;
        };
        self.evicted_chunk_bytes(entry)
    }

    fn answer_after_reads(&self, request: &Request, id_key: &IdKey, pool: &Pool) -> Option<Answer> {
        for _ in 0..READS_MAX {
            let mut store = self.non_blocking();
            let answer = perform(&mut store, request, id_key, pool);
            let pending = store.into_pending();
            if pending.is_empty() {
                return answer;
            }
            self.fetch(&pending);
        }
        perform(&mut self.clone(), request, id_key, pool)
    }
}

/// Adds the estimate from before the request to the answer about a chunk that was not stored.
fn with_evicted_bytes(mut answer: Answer, bytes: u64) -> Answer {
    if let Answer::Found {
        was_stored: false,
        evicted_bytes,
        ..
    } = &mut answer
    {
        *evicted_bytes = bytes;
    }
    answer
}

/// Performs a request on a store that may have pending reads afterwards. The result is then undefined.
fn perform<S: ChunkStore>(
    store: &mut S,
    request: &Request,
    id_key: &IdKey,
    pool: &Pool,
) -> Option<Answer> {
    Some(match request {
        Request::Find {
            entry,
            chunk,
            expected,
        } => {
            let (location, was_stored) = match chunk {
                Some(chunk) => store.find_or_insert(entry.id, chunk),
                None => store.find_or_list(*entry),
            };
            let other = location.filter(|_| was_stored && location != *expected);
            Answer::Found {
                location,
                was_stored,
                evicted_bytes: 0,
                row: other.and_then(|location| store.row(location)),
            }
        }
        Request::List(location) => Answer::Row(store.row(*location)),
        Request::Lookup(ids) => Answer::Located(locate_each(store, ids)),
        Request::LookupRun { first, chunks } => Answer::Located(locate_run(store, first, *chunks)),
        Request::Load(chunks) => {
            let bytes = bytes_of_located(chunks);
            let mut buffer = pool.buffer(bytes);
            let mut is_loaded = true;
            for (location, entries) in rows(chunks) {
                let row_bytes = bytes_of(&entries);
                let out = &mut buffer.spare()[..row_bytes];
                if load_verified(store, id_key, location, &entries, out) {
                    buffer.fill(row_bytes);
                    continue;
                }
                is_loaded = false;
                // The other rows are tried too, so that all reads are performed at once.
                if !store.has_pending_reads() {
                    break;
                }
            }
            Answer::Loaded(is_loaded.then(|| buffer.freeze(0..bytes)))
        }
        Request::Store { id, chunk } => Answer::Stored(store.find_or_insert(*id, chunk).0),
        Request::SetFingerprint {
            location,
            id,
            fingerprint,
        } => {
            store.set_fingerprint(*location, id, || Some(*fingerprint));
            return None;
        }
    })
}

/// Returns the chunks up to the first one that is missing. If a chunk needs a read from the device, the others are
/// looked up too, so that all reads are performed at once.
fn locate_each<S: ChunkStore>(store: &mut S, ids: &[ChunkId]) -> Vec<LocatedChunk> {
    let mut located = Vec::with_capacity(ids.len());
    let mut entries = Vec::with_capacity(1);
    for id in ids {
        entries.clear();
        let location = store.locate(id);
        location.inspect(|&location| store.entries(location, 1, &mut entries));
        match (location, entries.first()) {
            (Some(location), Some(entry)) if entry.id == *id => located.push(LocatedChunk {
                location,
                entry: *entry,
            }),
            _ if store.has_pending_reads() => {}
            _ => break,
        }
    }
    located
}

/// Returns at most this many consecutive chunks, beginning with the one with this hash. A container of the peer's store
/// and a container of this store end at different chunks, so the chunks may continue in the next containers.
fn locate_run<S: ChunkStore>(store: &mut S, first: &ChunkId, chunks: usize) -> Vec<LocatedChunk> {
    let mut located: Vec<LocatedChunk> = Vec::with_capacity(chunks);
    let mut next = store.locate(first);
    for _ in 0..CONTAINERS_PER_RUN {
        let Some(location) = next.filter(|_| located.len() < chunks) else {
            break;
        };
        let mut entries: Vec<Entry> = Vec::new();
        store.entries(location, chunks - located.len(), &mut entries);
        let chunk = |(nth, entry): (usize, &Entry)| LocatedChunk {
            location: location.plus(nth),
            entry: *entry,
        };
        located.extend(entries.iter().enumerate().map(chunk));
        next = (!entries.is_empty()).then(|| location.next_container());
    }
    located
}

/// The largest number of containers that a run may span. A run has at most 512 KiB, which lie in at most two
/// containers, unless some containers are nearly empty.
const CONTAINERS_PER_RUN: usize = 4;

/// After this number of rounds of reads, a request is performed with the lock held. A request needs up to three rounds:
/// the trailers of containers, the further containers of a run, and the chunks. More rounds are needed if the system
/// evicts pages before they are used, or if it cannot read them.
const READS_MAX: usize = 6;
