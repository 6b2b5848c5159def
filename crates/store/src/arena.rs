//! Large bodies in a file in memory, so that the kernel can send them without copying.
//!
//! A write to a socket copies the body into the socket's buffers; of a body of a megabyte that copy
//! is half of all a hit costs. `sendfile` hands the pages themselves over, and for that they must
//! belong to a file. The arena is such a file, anonymous and in RAM (`memfd_create`). It is mapped as well, so that a
//! body is an ordinary [`Bytes`] to whoever wants to read it (TLS, HTTP/2, ranges); who wants to send it asks
//! [`Arena::place_of`] where in the file it lies.
//!
//! What is sent this way is still read after the call has returned, from pages that are on their way in
//! socket buffers. So no page is ever written twice: a place that comes free is punched out of the file, which gives its
//! memory back to the system at once, and whoever takes the place next gets new pages, while those on their
//! way live until they have arrived.
//!
//! The file is sparse and far larger than what it may hold, so that places need no search: the
//! size is rounded up to a power of two, and each of those has a list of places that came free. Only pages that were
//! written take memory. Taking and freeing a place is O(1).
//!
//! ```
//! # use edgeward_store::arena::Arena;
//! # use edgeward_types::ByteSize;
//! let arena = Arena::new(ByteSize::mib(64))?;
//! let body = arena.keep(&[7; 200_000]).expect("there is room");
//! assert_eq!(body[199_999], 7);
//! assert!(arena.place_of(&body).is_some());
//! assert_eq!(arena.place_of(&[7; 10]), None);
//! # std::io::Result::Ok(())
//! ```
//!
//! Memory of a file costs more to get and to give back than the heap's: 0.45 ms a mebibyte, four times what one hit saves. So
//! bodies belong here only after they were asked for repeatedly; which ones is for whoever keeps them to decide.

mod folios;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use edgeward_types::ByteSize;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags};

use crate::sync::Mutex;

/// A file in memory, meant for bodies from [`Arena::BODY_BYTES_MIN`] to [`Arena::BODY_BYTES_MAX`]. Share it in an `Arc`.
#[derive(Debug)]
pub struct Arena {
    file: File,
    map: MmapRaw,
    bytes: u64,
    /// Bytes of one page of the file: the system's page size, a power of two.
    page_bytes: u64,
    places: Mutex<Places>,
    used_bytes: AtomicU64,
    lost_bytes: AtomicU64,
}

impl Arena {
    /// Bodies below this gain too little.
    pub const BODY_BYTES_MIN: u64 = 128 << 10;

    /// Bodies above this take longer to move (7 ms) than other requests of the same thread should wait, and while one moves
    /// it takes memory twice.
    pub const BODY_BYTES_MAX: u64 = 16 << 20;

    /// An arena for bodies of `capacity` together.
    ///
    /// # Errors
    ///
    /// If the system has no such files, or so much address space is not to be had, or it is set to
    /// back such files with several pages at once: punching a hole would then reach into pages that are on their way.
    pub fn new(capacity: ByteSize) -> io::Result<Arc<Self>> {
        folios::are_single_pages()?;
        Self::with_page_bytes(capacity, rustix::param::page_size() as u64)
    }

    /// As [`new`](Self::new), on a system whose pages have `page_bytes`. Tests inject sizes here that this system does not have.
    fn with_page_bytes(capacity: ByteSize, page_bytes: u64) -> io::Result<Arc<Self>> {
        if !page_bytes.is_power_of_two() {
            return Err(io::Error::other("the page size is not a power of two"));
        }
        let bytes = capacity
            .bytes()
            .max(1 << 20)
            .checked_next_power_of_two()
            .and_then(|bytes| bytes.checked_mul(ADDRESSES_PER_BYTE))
            .ok_or_else(|| io::Error::other("the capacity is beyond any address space"))?;
        let file = File::from(rustix::fs::memfd_create(
            "edgeward-bodies",
            MemfdFlags::CLOEXEC,
        )?);
        file.set_len(bytes)?;
        let map = MmapOptions::new().map_raw_read_only(&file)?;
        Ok(Arc::new(Self {
            file,
            map,
            bytes,
            page_bytes,
            places: Mutex::default(),
            used_bytes: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
        }))
    }

    /// Whether a body of `bytes` belongs here, once it is asked for often enough.
    ///
    /// A body takes whole pages, and is charged to the cache without the unused end of its last page. With at least 32 pages
    /// that end is at most 3 % of the body, whatever the page size.
    pub fn accepts(&self, bytes: u64) -> bool {
        let min = Self::BODY_BYTES_MIN.max(BODY_PAGES_MIN * self.page_bytes);
        (min..=Self::BODY_BYTES_MAX).contains(&bytes)
    }

    /// The file, to send from.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where in the file `bytes` lie; nothing if they lie elsewhere in memory.
    pub fn place_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.map.as_ptr() as usize)?;
        let offset = offset as u64;
        let end = offset.checked_add(bytes.len() as u64)?;
        (end <= self.bytes).then_some(offset)
    }

    /// Bytes of memory that bodies lie in, whole pages.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Bytes of memory that could not be given back to the system.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Relaxed)
    }

    /// A copy of `body` in the arena. Nothing if it is empty, or there is no address or no memory left for it. O(`body`).
    pub fn keep(self: &Arc<Self>, body: &[u8]) -> Option<Bytes> {
        self.keep_with(body, ())
    }

    /// As [`keep`](Self::keep). `guard` is dropped with the memory.
    pub fn keep_with(self: &Arc<Self>, body: &[u8], guard: impl Send + 'static) -> Option<Bytes> {
        let place = self.take(body.len() as u64)?;
        self.file.write_all_at(body, place.offset).ok()?;
        let bytes = body.len();
        Some(Bytes::from_owner(Body {
            place,
            bytes,
            _guard: guard,
        }))
    }

    /// A place for so many bytes, if there is one.
    fn take(self: &Arc<Self>, bytes: u64) -> Option<Place> {
        if bytes == 0 {
            return None;
        }
        // A place begins and ends at a page's border. If two places shared a page, or a hole ended within one, the kernel would
        // clear a part of that page in place, although it may be on its way to a client.
        let bytes = bytes.next_multiple_of(self.page_bytes);
        let class = Class::of(bytes);
        let offset = {
            let mut places = self.places.lock();
            match places.free[class.index()].pop() {
                Some(offset) => offset,
                None => {
                    let offset = places.end;
                    let end = offset + class.bytes();
                    if end > self.bytes {
                        return None;
                    }
                    places.end = end;
                    offset
                }
            }
        };
        self.used_bytes.fetch_add(bytes, Relaxed);
        Some(Place {
            arena: Arc::clone(self),
            offset,
            bytes,
            class,
        })
    }
}

/// Pages of the smallest body: 128 KiB where pages have 4 KiB.
const BODY_PAGES_MIN: u64 = 32;

/// Addresses for each byte of capacity. A place takes at most two for each of its bytes, and what
/// came free in one size is not used for another.
const ADDRESSES_PER_BYTE: u64 = 16;

#[derive(Debug)]
struct Places {
    /// By class, where places are that came free.
    free: [Vec<u64>; Class::COUNT],
    /// From here on nothing was ever taken.
    end: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            free: [const { Vec::new() }; Class::COUNT],
            end: 0,
        }
    }
}

/// Sizes that share a list: up to a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class(u32);

impl Class {
    const COUNT: usize = 64;

    fn of(bytes: u64) -> Self {
        Self(u64::BITS - (bytes - 1).leading_zeros())
    }

    fn bytes(self) -> u64 {
        1 << self.0
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// One body's part of the file.
#[derive(Debug)]
struct Place {
    arena: Arc<Arena>,
    offset: u64,
    /// Whole pages.
    bytes: u64,
    class: Class,
}

impl Drop for Place {
    fn drop(&mut self) {
        let arena = &self.arena;
        arena.used_bytes.fetch_sub(self.bytes, Relaxed);
        let punched = rustix::fs::fallocate(
            &arena.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            self.offset,
            self.bytes,
        );
        if punched.is_ok() {
            arena.places.lock().free[self.class.index()].push(self.offset);
        } else {
            // Pages that may be on their way must not be written again: the place is given up.
            arena.lost_bytes.fetch_add(self.bytes, Relaxed);
        }
    }
}

/// A body that was written and is never written again.
#[derive(Debug)]
struct Body<G> {
    place: Place,
    bytes: usize,
    _guard: G,
}

impl<G> AsRef<[u8]> for Body<G> {
    #[expect(
        unsafe_code,
        reason = "a view of the mapping that the compiler cannot know to be constant"
    )]
    fn as_ref(&self) -> &[u8] {
        let Place { arena, offset, .. } = &self.place;
        let start = usize::try_from(*offset).expect("within the mapping");
        // SAFETY: a `Body` is made by `Arena::keep_with` alone, of bytes that it has written, within the place and so within the
        // mapping, which lives as long as the arena, which the place keeps alive. Nobody writes there again before the place is
        // dropped, which is when the body is; others write to other pages only. No file of another name leads to the memory,
        // so nobody else can shrink it.
        unsafe { std::slice::from_raw_parts(arena.map.as_ptr().add(start), self.bytes) }
    }
}

#[cfg(test)]
mod tests;
