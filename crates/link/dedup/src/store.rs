//! The requests of the sender and the receiver to a chunk store, and the answers.
//!
//! A body, the content of a stream, is cut into chunks. Chunks lie in containers in the order in which they were
//! stored, which is their order in the bodies. The chunks that follow a chunk in its container are therefore
//! usually those that followed it in a body. One reference can name such a run of chunks, and the neighbours of a
//! chunk are a good dictionary for compression.
//!
//! The state machines do not call a store. They queue a [`Request`], and the driver passes the [`Answer`] to
//! [`Endpoint::complete`](crate::endpoint::Endpoint::complete), at once or later. Requests of one endpoint are begun in
//! their order. If answers arrive in another order, chunks are at worst sent again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::fingerprint::ChunkFingerprint;
use crate::id::ChunkId;

/// The location of a chunk: its container, and the number of chunks before it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkLocation {
    /// The number of the container. Containers are numbered in order of creation; no number is used twice within an
    /// epoch.
    pub container: u32,
    /// The index of the chunk in the container, from 0.
    pub slot: u16,
}

impl ChunkLocation {
    /// Returns the location this many chunks further in the container.
    #[must_use]
    pub fn plus(self, chunks: usize) -> Self {
        let chunks = u16::try_from(chunks).unwrap_or(u16::MAX);
        Self {
            slot: self.slot.saturating_add(chunks),
            ..self
        }
    }

    /// Returns the location of the first chunk of the next container.
    #[must_use]
    pub fn next_container(self) -> Self {
        Self {
            container: self.container.wrapping_add(1),
            slot: 0,
        }
    }
}

/// A chunk as its container lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The hash of the chunk.
    pub id: ChunkId,
    /// The length of the chunk in bytes.
    pub length: u32,
}

/// A chunk with its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocatedChunk {
    /// The location of the chunk.
    pub location: ChunkLocation,
    /// The hash and the length of the chunk.
    pub entry: Entry,
}

/// A chunk of a [`Row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChunk {
    /// The chunk as its container lists it.
    pub entry: Entry,
    /// The fingerprint, or `None` if the chunk can only be recognised by its hash. Fingerprints are valid only within
    /// one process.
    pub fingerprint: Option<ChunkFingerprint>,
    /// True if the store has the bytes of the chunk, and not only its entry.
    pub has_bytes: bool,
}

/// The chunks of a container from one location to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The location of the first chunk.
    pub location: ChunkLocation,
    /// The chunks, in their order.
    pub chunks: Arc<[RowChunk]>,
    /// True if the store will not overwrite the container soon. The sender then need not keep the bytes of its chunks
    /// in memory until the peer has acknowledged them.
    pub is_retained: bool,
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Finds a chunk. If the store does not have it, stores its bytes, or only its entry if there are no bytes. A
    /// sender needs only entries to send references. Answered by [`Answer::Found`].
    Find {
        /// The hash and the length of the chunk.
        entry: Entry,
        /// The bytes. A store that has only the entry stores them, too.
        chunk: Option<Bytes>,
        /// The location that needs no [`Row`] in the answer.
        expected: Option<ChunkLocation>,
    },
    /// Lists the chunks from a location on. Answered by [`Answer::Row`].
    List(ChunkLocation),
    /// Finds chunks with their bytes. Answered by [`Answer::Located`].
    Lookup(Vec<ChunkId>),
    /// Finds consecutive chunks: the first one, and those that follow it in its container and in the next ones.
    /// Answered by [`Answer::Located`].
    LookupRun {
        /// The hash of the first chunk.
        first: ChunkId,
        /// The number of chunks.
        chunks: usize,
    },
    /// Loads chunks, and verifies their bytes by their fingerprints or hashes. Answered by [`Answer::Loaded`].
    Load(Vec<LocatedChunk>),
    /// Stores a chunk, unless it is stored already. Answered by [`Answer::Stored`].
    Store {
        /// The hash of the chunk.
        id: ChunkId,
        /// The bytes.
        chunk: Bytes,
    },
    /// Records the fingerprint of a chunk. The store may lose it at any time. There is no answer.
    SetFingerprint {
        /// The location of the chunk.
        location: ChunkLocation,
        /// The hash of the chunk.
        id: ChunkId,
        /// The fingerprint.
        fingerprint: ChunkFingerprint,
    },
}

/// The answer to a request. A store treats an unreadable chunk as missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Find`].
    Found {
        /// The location of the chunk, or `None` if it could not be stored.
        location: Option<ChunkLocation>,
        /// True if the chunk was stored before.
        was_stored: bool,
        /// If the chunk was not stored, an estimate of the bytes of chunks like it that the store once had and evicted.
        /// A store counts a sample of its chunks, so this is 0 for most chunks and many times the length for some.
        evicted_bytes: u64,
        /// The row that begins with the chunk, if the chunk was stored before at another location than the expected
        /// one.
        row: Option<Row>,
    },
    /// To [`Request::List`]: `None` if there is no chunk at the location.
    Row(Option<Row>),
    /// To [`Request::Lookup`] and [`Request::LookupRun`]: the chunks up to the first one that is missing.
    Located(Vec<LocatedChunk>),
    /// To [`Request::Load`]: the bytes of all chunks, or `None` if one of them is missing or corrupt.
    Loaded(Option<Bytes>),
    /// To [`Request::Store`]: the location of the chunk, or `None` if it could not be stored.
    Stored(Option<ChunkLocation>),
}

/// Identifies a request until its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// True for a request of the receiver.
    pub(crate) is_receiver: bool,
    number: u64,
}

impl RequestId {
    /// Returns true if a received frame caused the request, false if a body that is sent caused it.
    pub fn is_incoming(self) -> bool {
        self.is_receiver
    }
}

/// The queue of the requests that the driver has not taken yet.
#[derive(Debug)]
pub(crate) struct Requests {
    is_receiver: bool,
    queue: VecDeque<(RequestId, Request)>,
    next_number: u64,
}

impl Requests {
    pub(crate) fn of_sender() -> Self {
        Self::new(false)
    }

    pub(crate) fn of_receiver() -> Self {
        Self::new(true)
    }

    fn new(is_receiver: bool) -> Self {
        Self {
            is_receiver,
            queue: VecDeque::new(),
            next_number: 0,
        }
    }

    pub(crate) fn push(&mut self, request: Request) -> RequestId {
        let id = RequestId {
            is_receiver: self.is_receiver,
            number: self.next_number,
        };
        self.next_number += 1;
        self.queue.push_back((id, request));
        id
    }

    pub(crate) fn pop(&mut self) -> Option<(RequestId, Request)> {
        self.queue.pop_front()
    }

    /// Numbers the next requests after all of `before`, so that a late answer to one of those belongs to no new one.
    pub(crate) fn number_after(&mut self, before: &Self) {
        self.next_number = before.next_number;
    }
}

/// Returns the total length of these chunks.
pub fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.length as usize).sum()
}

/// Returns the total length of these chunks.
pub fn bytes_of_located(chunks: &[LocatedChunk]) -> usize {
    let lengths = chunks.iter().map(|chunk| chunk.entry.length as usize);
    lengths.sum()
}

/// Divides chunks into rows of adjacent chunks. Returns the location and the entries of each row.
pub fn rows(chunks: &[LocatedChunk]) -> impl Iterator<Item = (ChunkLocation, Vec<Entry>)> {
    let rows = chunks.chunk_by(|one, next| one.location.plus(1) == next.location);
    rows.map(|row| {
        let entries = row.iter().map(|chunk| chunk.entry).collect();
        (row[0].location, entries)
    })
}
