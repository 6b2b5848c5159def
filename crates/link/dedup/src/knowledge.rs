//! The chunks that this endpoint and one peer have exchanged, one bit per chunk.
//!
//! The peer has a chunk if it sent or received the chunk. The sender queries the knowledge before it sends a
//! reference to a chunk. The receiver queries it before it resolves a reference: a reference to a chunk that was
//! never exchanged with this peer is refused, even if the store has the chunk from another peer. The knowledge may
//! be wrong, because the peer may have lost a chunk since the exchange. The peer then answers a reference with a NAK.
//!
//! The bits are grouped in pages of 64 containers. A full page takes about 21 bytes per container of 113 chunks, the
//! usual number for chunks of 8 KiB. Peers that have the same chunks of 64 containers share one page, see
//! [`SharedPages`]; a change copies a shared page. Two limits bound the memory, and both forget the oldest pages of
//! the peer first: the number of containers, and the bytes of all pages of all peers. A forgotten chunk is sent again
//! as bytes. [`Knowledge::encode`] and [`Knowledge::decode`] save and restore the bits of an endpoint that restarts
//! with its store.

mod encoding;
mod page;
mod shared_pages;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::ChunkLocation;

use page::{CONTAINERS_PER_PAGE, Page};
pub use shared_pages::{SharedPages, SharedPagesStatus};

/// The chunks that the peer has.
#[derive(Clone, Debug)]
pub struct Knowledge {
    /// The pages from number `first_page` on. Page `n` has the containers from `64 * n` on.
    pages: VecDeque<Option<Arc<Page>>>,
    first_page: u32,
    pages_max: usize,
    /// The numbers of the pages that are not in the table of shared pages, in the order of their first change.
    unshared: VecDeque<u32>,
    /// True if the bits have changed since [`take_unsaved`](Self::take_unsaved) returned them.
    is_unsaved: bool,
    /// The epoch of our store: its random number. 0 until it is set.
    own_epoch: u64,
    /// The epoch of the peer's store. 0 until it is set.
    peer_epoch: u64,
}

impl Knowledge {
    /// Creates empty knowledge of at most `containers_max` consecutive containers, rounded up to whole pages. The
    /// containers with the highest numbers are remembered.
    pub fn new(containers_max: usize) -> Self {
        Self {
            pages: VecDeque::new(),
            first_page: 0,
            // The first and the last page may be incomplete.
            pages_max: containers_max.div_ceil(CONTAINERS_PER_PAGE as usize) + 1,
            unshared: VecDeque::new(),
            is_unsaved: true,
            own_epoch: 0,
            peer_epoch: 0,
        }
    }

    /// Returns true if the chunk at this location was exchanged with the peer.
    pub fn has(&self, location: ChunkLocation) -> bool {
        let page = self.page(location.container);
        page.is_some_and(|page| page.has(location))
    }

    /// Records that the chunk at this location is being exchanged with the peer. If its container is older than the
    /// limit of containers allows, the chunk is not recorded.
    pub fn add(&mut self, location: ChunkLocation) {
        if !self.has(location) && self.make_space_for(location.container) {
            self.change(location.container, |page| page.add(location));
        }
    }

    /// Records that the peer does not have the chunk at this location.
    pub fn remove(&mut self, location: ChunkLocation) {
        if self.has(location) {
            self.change(location.container, |page| page.remove(location));
        }
    }

    /// Returns true if the peer has chunks of this container, and no NAK has reported that the peer's store has
    /// them in another order than our store.
    pub fn in_order(&self, container: u32) -> bool {
        let page = self.page(container);
        page.is_some_and(|page| page.has_container(container) && !page.is_disordered(container))
    }

    /// Records that the peer has the chunks of this container in another order.
    pub(crate) fn set_disordered(&mut self, container: u32) {
        if self.in_order(container) {
            self.change(container, |page| page.set_disordered(container));
        }
    }

    /// Sets the epoch of our store. If the epoch has changed, the locations have other chunks, and all bits are
    /// cleared.
    pub fn set_own_epoch(&mut self, epoch: u64) {
        if std::mem::replace(&mut self.own_epoch, epoch) != epoch {
            self.clear();
        }
    }

    /// Sets the epoch of the peer's store. If it has changed, the peer has lost its chunks and all bits are
    /// cleared.
    pub(crate) fn set_peer_epoch(&mut self, epoch: u64) {
        if std::mem::replace(&mut self.peer_epoch, epoch) != epoch {
            self.clear();
        }
    }

    /// Returns true if more pages have changed than may stay out of the table of shared pages. The driver then calls
    /// [`share`](Self::share).
    pub fn must_share(&self) -> bool {
        self.unshared.len() > UNSHARED_PAGES_MAX
    }

    /// Adds up to 64 changed pages to the table of the pages of all peers, but not those that changed last. A page that
    /// is equal to a page of the table is replaced by it. If the table is full, the oldest pages are forgotten.
    pub fn share(&mut self, table: &mut SharedPages) {
        let surplus = self.unshared.len().saturating_sub(UNSHARED_PAGES_MAX);
        for _ in 0..surplus.min(PAGES_PER_SHARE_MAX) {
            let number = self.unshared.pop_front();
            let at = number.and_then(|number| self.index(number));
            if let Some(Some(page)) = at.and_then(|at| self.pages.get_mut(at)) {
                Arc::make_mut(page).set_shared();
                table.share(page);
            }
        }
        // Restored knowledge lists all its pages at first.
        self.unshared.shrink_to(PAGES_PER_SHARE_MAX);
        let bytes = self.pages.iter().flatten().map(|page| page.bytes()).sum();
        if let Some(bytes_max) = table.bytes_max_of_peer(bytes) {
            table.count_forgotten(self.keep_newest(bytes_max));
        }
    }

    /// Returns a copy, or `None` if the containers with numbers below `end` have not changed since the last call. The
    /// copy shares the pages.
    pub fn take_unsaved(&mut self, end: u32) -> Option<Self> {
        let is_unsaved = self.is_unsaved;
        // Chunks in later containers will be below a later `end`.
        self.is_unsaved = self.last_container().is_some_and(|last| last >= end);
        is_unsaved.then(|| self.clone())
    }

    /// Records that the last copy of [`take_unsaved`](Self::take_unsaved) could not be saved.
    pub fn set_unsaved(&mut self) {
        self.is_unsaved = true;
    }

    /// Returns the number of containers with chunks that the peer has.
    pub fn containers(&self) -> usize {
        let pages = self.pages.iter().flatten();
        pages.map(|page| page.containers().count()).sum()
    }

    /// Returns the maximum number of remembered containers.
    pub fn containers_max(&self) -> usize {
        (self.pages_max - 1) * CONTAINERS_PER_PAGE as usize
    }

    /// Returns the highest number of a container with chunks that the peer has.
    fn last_container(&self) -> Option<u32> {
        let mut pages = self.numbered_pages().rev();
        pages.find_map(|(number, page)| {
            let last = page.containers().last()?;
            Some(number * CONTAINERS_PER_PAGE + last)
        })
    }

    /// Returns the pages with their numbers.
    fn numbered_pages(&self) -> impl DoubleEndedIterator<Item = (u32, &Page)> {
        let pages = self.pages.iter().enumerate();
        pages.filter_map(|(at, page)| Some((self.first_page + at as u32, &**page.as_ref()?)))
    }

    fn index(&self, page_number: u32) -> Option<usize> {
        Some(page_number.checked_sub(self.first_page)? as usize)
    }

    fn page(&self, container: u32) -> Option<&Page> {
        let page = self.pages.get(self.index(page_number(container))?)?;
        page.as_deref()
    }

    /// Makes the page of a container addressable, and forgets the oldest pages above the limit. Returns false if the
    /// page is too old.
    fn make_space_for(&mut self, container: u32) -> bool {
        let number = page_number(container);
        if self.pages.is_empty() {
            self.first_page = number;
        }
        let before = self.first_page.saturating_sub(number) as usize;
        if before > 0 {
            if before + self.pages.len() > self.pages_max {
                return false;
            }
            // By default the memory of the list would double.
            self.pages.reserve_exact(before);
            (0..before).for_each(|_| self.pages.push_front(None));
            self.first_page = number;
        }
        let index = (number - self.first_page) as usize;
        self.forget_oldest((index + 1).saturating_sub(self.pages_max));
        if self.pages.is_empty() {
            self.first_page = number;
        }
        let pages = (number - self.first_page) as usize + 1;
        if self.pages.capacity() < pages {
            // The list grows by an eighth. By default its memory would double.
            let capacity = (pages + pages / 8).min(self.pages_max);
            self.pages.reserve_exact(capacity - self.pages.len());
        }
        if self.pages.len() < pages {
            self.pages.resize(pages, None);
        }
        true
    }

    /// Changes the page of a container, which is addressable. Other peers that share the page keep the old content.
    fn change(&mut self, container: u32, action: impl FnOnce(&mut Page)) {
        let number = page_number(container);
        let page = self.index(number).and_then(|at| self.pages.get_mut(at));
        let page = page.expect("the page is addressable");
        let page = match page {
            Some(page) => {
                let page = Arc::make_mut(page);
                if page.set_unshared() {
                    self.unshared.push_back(number);
                }
                page
            }
            None => {
                self.unshared.push_back(number);
                Arc::make_mut(page.insert(Arc::default()))
            }
        };
        action(page);
        self.is_unsaved = true;
    }

    /// Forgets the oldest pages until the others have at most `bytes_max` bytes. Returns the number of forgotten pages.
    /// The newest page is never forgotten.
    fn keep_newest(&mut self, bytes_max: usize) -> u64 {
        let mut bytes = 0;
        let mut newest_first = self.pages.iter().enumerate().rev();
        let surplus = newest_first.find_map(|(at, page)| {
            bytes += page.as_ref().map_or(0, |page| page.bytes());
            (bytes > bytes_max && at + 1 < self.pages.len()).then_some(at + 1)
        });
        self.forget_oldest(surplus.unwrap_or(0))
    }

    /// Removes this many positions for pages, the oldest first. Returns the number of forgotten pages.
    fn forget_oldest(&mut self, positions: usize) -> u64 {
        if positions == 0 {
            return 0;
        }
        let removed = self.pages.drain(..positions.min(self.pages.len()));
        let forgotten = removed.flatten().count();
        self.first_page += positions as u32;
        let first_page = self.first_page;
        self.unshared.retain(|number| *number >= first_page);
        self.pages.shrink_to(self.pages.len() * 2);
        self.is_unsaved |= forgotten > 0;
        forgotten as u64
    }

    fn clear(&mut self) {
        self.pages = VecDeque::new();
        self.unshared = VecDeque::new();
        self.is_unsaved = true;
    }
}

/// Returns the number of the page of a container.
fn page_number(container: u32) -> u32 {
    container / CONTAINERS_PER_PAGE
}

/// The number of changed pages of a peer that stay out of the table of shared pages. The pages to which chunks are
/// being added would otherwise be shared after each of their changes.
const UNSHARED_PAGES_MAX: usize = 4;

/// The highest number of pages that are added to the table at once. Each takes about 2 µs.
const PAGES_PER_SHARE_MAX: usize = 64;
