//! The bits of 64 consecutive containers.
//!
//! A container has up to 2^16 chunks, but usually about a hundred, and a peer may have few of them. A page therefore
//! stores only the words that are not zero, with a key for each.

use crate::store::ChunkLocation;

/// The number of containers of a page. The number of a page is that of its first container divided by this number.
pub(super) const CONTAINERS_PER_PAGE: u32 = 64;

/// A word has the bits of 64 chunks.
const CHUNKS_PER_WORD: u16 = 64;

/// A container has at most 2^10 words, because a slot number has 16 bits. The lower bits of a key select the word.
const WORD_BITS: u32 = 10;

/// The chunks that a peer has of 64 containers.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// The key of each word, in increasing order: the number of the container in the page (6 bits) and the number of
    /// the word in the container (10 bits).
    keys: Vec<u16>,
    /// The words that are not 0. Bit `n % 64` of word `n / 64` is for the chunk in slot `n`.
    words: Vec<u64>,
    /// One bit per container: 1 if the peer's store has the chunks in another order than our store. The peer then
    /// cannot resolve a run: one reference to several consecutive chunks.
    disordered: u64,
    /// True if the page is in the table of shared pages.
    is_shared: bool,
}

impl Page {
    pub(super) fn has(&self, location: ChunkLocation) -> bool {
        let (key, bit) = key_and_bit(location);
        let at = self.keys.binary_search(&key);
        at.is_ok_and(|at| self.words[at] & bit != 0)
    }

    pub(super) fn add(&mut self, location: ChunkLocation) {
        let (key, bit) = key_and_bit(location);
        match self.keys.binary_search(&key) {
            Ok(at) => self.words[at] |= bit,
            Err(at) => {
                self.keys.insert(at, key);
                self.words.insert(at, bit);
            }
        }
    }

    pub(super) fn remove(&mut self, location: ChunkLocation) {
        let (key, bit) = key_and_bit(location);
        let Ok(at) = self.keys.binary_search(&key) else {
            return;
        };
        self.words[at] &= !bit;
        if self.words[at] == 0 {
            self.keys.remove(at);
            self.words.remove(at);
        }
    }

    /// Returns true if the peer has a chunk of this container.
    pub(super) fn has_container(&self, container: u32) -> bool {
        let first = self.keys.partition_point(|key| *key < key_of(container, 0));
        let key = self.keys.get(first);
        key.is_some_and(|key| *key >> WORD_BITS == key_of(container, 0) >> WORD_BITS)
    }

    pub(super) fn is_disordered(&self, container: u32) -> bool {
        self.disordered & container_bit(container) != 0
    }

    pub(super) fn set_disordered(&mut self, container: u32) {
        self.disordered |= container_bit(container);
    }

    /// Sets the bits of 64 chunks of a container.
    pub(super) fn set_word(&mut self, container: u32, word: u16, bits: u64) {
        let key = key_of(container, word);
        let at = self.keys.partition_point(|other| *other < key);
        self.keys.insert(at, key);
        self.words.insert(at, bits);
    }

    /// Returns the containers with chunks that the peer has, by their numbers in the page.
    pub(super) fn containers(&self) -> impl Iterator<Item = u32> {
        let same_container = |one: &u16, other: &u16| one >> WORD_BITS == other >> WORD_BITS;
        let containers = self.keys.chunk_by(same_container);
        containers.map(|keys| u32::from(keys[0] >> WORD_BITS))
    }

    /// Returns the words of a container that are not 0, with their numbers.
    pub(super) fn words(&self, container: u32) -> impl Iterator<Item = (u16, u64)> {
        let container = key_of(container, 0) >> WORD_BITS;
        let start = self
            .keys
            .partition_point(|key| key >> WORD_BITS < container);
        let end = self
            .keys
            .partition_point(|key| key >> WORD_BITS <= container);
        let words = self.keys[start..end].iter().zip(&self.words[start..end]);
        words.map(|(key, bits)| (key & ((1 << WORD_BITS) - 1), *bits))
    }

    /// Returns the memory of the page and of its entry in the table of shared pages, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let words = self.keys.len() * size_of::<u16>() + self.words.len() * size_of::<u64>();
        words + size_of::<Self>() + ENTRY_BYTES
    }

    /// Records that the page is in the table of shared pages, and releases unused memory.
    pub(super) fn set_shared(&mut self) {
        self.is_shared = true;
        self.keys.shrink_to_fit();
        self.words.shrink_to_fit();
    }

    /// Records that the page is not in the table any more. Returns true if it was.
    pub(super) fn set_unshared(&mut self) -> bool {
        std::mem::take(&mut self.is_shared)
    }

    /// Returns true if both pages have the same bits.
    pub(super) fn has_same_bits(&self, other: &Self) -> bool {
        self.content() == other.content()
    }

    /// Returns the fields by which pages are compared.
    pub(super) fn content(&self) -> (&[u16], &[u64], u64) {
        (&self.keys, &self.words, self.disordered)
    }
}

/// The counters of an `Arc`, and the entry of the table of shared pages with its slot in the map of hashes.
const ENTRY_BYTES: usize = 16 + 32 + 24;

fn key_of(container: u32, word: u16) -> u16 {
    ((container % CONTAINERS_PER_PAGE) as u16) << WORD_BITS | word
}

fn key_and_bit(location: ChunkLocation) -> (u16, u64) {
    let key = key_of(location.container, location.slot / CHUNKS_PER_WORD);
    (key, 1 << (location.slot % CHUNKS_PER_WORD))
}

fn container_bit(container: u32) -> u64 {
    1 << (container % CONTAINERS_PER_PAGE)
}
