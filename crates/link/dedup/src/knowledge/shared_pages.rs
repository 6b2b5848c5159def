//! The pages of the knowledge of all peers that one store serves. Equal pages are kept once.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};

use super::page::Page;

/// The pages of all peers, with a limit of their bytes.
///
/// Half of the limit is free for all peers. When the pages take more, a peer that learns of further chunks forgets its
/// oldest pages, as many as are above the half, but keeps an equal part of the other half. A peer can therefore not
/// take the memory of the others, and all peers together do not exceed the limit.
///
/// The table does not keep pages alive. Each new page removes a few entries whose pages were released, so the reported
/// bytes may include recently released pages. Before a peer has to forget pages, all entries are checked.
#[derive(Debug)]
pub struct SharedPages {
    bytes_max: usize,
    peers_max: usize,
    entries: Vec<PageEntry>,
    /// The index in `entries` by the hash of the content. An entry with the hash of a later one is not found any more.
    by_hash: BTreeMap<u64, usize>,
    /// The index of the entry that is checked next for a released page.
    next_checked: usize,
    /// The bytes of all pages.
    bytes: usize,
    /// The bytes of pages that were added since all entries were checked. The whole limit if a peer has forgotten
    /// pages.
    unchecked_bytes: usize,
    forgotten_pages: u64,
}

#[derive(Debug)]
struct PageEntry {
    hash: u64,
    bytes: usize,
    page: Weak<Page>,
}

/// The state of the shared pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPagesStatus {
    /// The memory of the pages in bytes. A page of several peers counts once.
    pub bytes: usize,
    /// The highest number of bytes.
    pub bytes_max: usize,
    /// The number of pages, each of 64 containers, that peers have forgotten because of the limit.
    pub forgotten_pages: u64,
}

impl SharedPages {
    /// Creates a table for pages of at most `bytes_max` bytes and `peers_max` peers.
    pub fn new(bytes_max: usize, peers_max: usize) -> Self {
        Self {
            bytes_max,
            peers_max: peers_max.max(1),
            entries: Vec::new(),
            by_hash: BTreeMap::new(),
            next_checked: 0,
            bytes: 0,
            unchecked_bytes: 0,
            forgotten_pages: 0,
        }
    }

    /// Returns the state.
    pub fn status(&self) -> SharedPagesStatus {
        SharedPagesStatus {
            bytes: self.bytes,
            bytes_max: self.bytes_max,
            forgotten_pages: self.forgotten_pages,
        }
    }

    /// Replaces the page by an equal page of the table. If the table has no equal page, adds the page.
    pub(super) fn share(&mut self, page: &mut Arc<Page>) {
        (0..CHECKS_PER_PAGE).for_each(|_| self.remove_if_released());
        let mut hasher = DefaultHasher::new();
        page.content().hash(&mut hasher);
        let hash = hasher.finish();
        let equal = self.by_hash.get(&hash).map(|at| &self.entries[*at]);
        if let Some(equal) = equal.and_then(|entry| entry.page.upgrade())
            && equal.has_same_bits(page)
        {
            *page = equal;
            return;
        }
        let bytes = page.bytes();
        self.bytes += bytes;
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes);
        self.by_hash.insert(hash, self.entries.len());
        self.entries.push(PageEntry {
            hash,
            bytes,
            page: Arc::downgrade(page),
        });
    }

    /// Returns the bytes of pages that a peer with `bytes` bytes keeps if it learns of further chunks now. `None` if
    /// there is no limit, because the pages of all peers take at most half of the limit.
    pub(super) fn bytes_max_of_peer(&mut self, bytes: usize) -> Option<usize> {
        let half = self.bytes_max / 2;
        if self.bytes > half && self.unchecked_bytes > half / UNCHECKED_SHARE {
            self.remove_released();
        }
        let surplus = self.bytes.checked_sub(half)?;
        (surplus > 0).then(|| bytes.saturating_sub(surplus).max(half / self.peers_max))
    }

    pub(super) fn count_forgotten(&mut self, pages: u64) {
        self.forgotten_pages += pages;
        if pages > 0 {
            // Otherwise the next peer would forget pages, too, in place of those that are released now.
            self.unchecked_bytes = self.bytes_max;
        }
    }

    /// Checks all entries, and removes those whose pages were released.
    fn remove_released(&mut self) {
        self.unchecked_bytes = 0;
        self.next_checked = 0;
        while self.next_checked < self.entries.len() {
            self.remove_if_released();
        }
    }

    /// Checks the next entry, and removes it if its page was released.
    fn remove_if_released(&mut self) {
        let at = self.next_checked;
        let Some(entry) = self.entries.get(at) else {
            self.next_checked = 0;
            return;
        };
        if entry.page.strong_count() > 0 {
            self.next_checked += 1;
            return;
        }
        self.bytes -= entry.bytes;
        if self.by_hash.get(&entry.hash) == Some(&at) {
            self.by_hash.remove(&entry.hash);
        }
        self.entries.swap_remove(at);
        // The last entry has moved to this index.
        if let Some(moved) = self.entries.get(at)
            && let Some(index) = self.by_hash.get_mut(&moved.hash)
            && *index == self.entries.len()
        {
            *index = at;
        }
    }
}

/// The number of entries that are checked for each page that is added. Above 1, all entries are checked before their
/// number has doubled.
const CHECKS_PER_PAGE: usize = 4;

/// All entries are checked when this part of half of the limit was added since the last time.
const UNCHECKED_SHARE: usize = 16;
