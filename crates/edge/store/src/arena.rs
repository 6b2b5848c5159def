//! Large bodies in an in-memory file, so that the kernel can send them without copying.
//!
//! A write to a socket copies the body into the socket's buffers. For a body of one megabyte this copy is half
//! of the cost of a hit. `sendfile` passes the pages themselves to the socket, but they must belong to a file.
//! The arena is an anonymous file in RAM (`memfd_create`). It is also mapped, so that a body is an ordinary
//! [`Bytes`] for readers such as TLS, HTTP/2 and ranges. A sender calls [`Arena::offset_of`] to get the body's
//! offset in the file.
//!
//! After `sendfile` has returned, socket buffers may still refer to the pages. A page is therefore never
//! written twice. When a body is freed, its extent (its part of the file) is punched out, which returns the memory to
//! the system at once. The next body at this offset gets new pages, while the old pages in socket buffers exist
//! until they have been sent.
//!
//! The file is sparse and far larger than the arena's capacity, so that a free extent is found without a search:
//! the size of an extent is rounded up to a power of two, and each power of two has a list of freed extents.
//! Only pages that were written take memory. Allocating and freeing an extent is O(1).
//!
//! ```
//! # use edgeward_store::arena::Arena;
//! # use edgeward_types::ByteSize;
//! let arena = Arena::new(ByteSize::mib(64))?;
//! let body = arena.insert(&[7; 200_000]).expect("the space is sufficient");
//! assert_eq!(body[199_999], 7);
//! assert!(arena.offset_of(&body).is_some());
//! assert_eq!(arena.offset_of(&[7; 10]), None);
//! # std::io::Result::Ok(())
//! ```
//!
//! Memory of a file takes more time to allocate and to free than memory of the heap: 0.45 ms per mebibyte,
//! which is four times the time that one hit saves. Moving a body to the arena is therefore useful only if the
//! body is requested repeatedly. The caller of the arena selects the bodies.

mod huge_pages;

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

/// An in-memory file for bodies from [`Arena::BODY_BYTES_MIN`] to [`Arena::BODY_BYTES_MAX`] bytes.
#[derive(Debug)]
pub struct Arena {
    file: File,
    map: MmapRaw,
    /// The length of the file and of its mapping.
    bytes: u64,
    /// The size of a page of the file in bytes: the system's page size, a power of two.
    page_bytes: u64,
    extents: Mutex<FreeExtents>,
    used_bytes: AtomicU64,
    lost_bytes: AtomicU64,
}

impl Arena {
    /// The size of the smallest body. For smaller bodies `sendfile` saves too little time.
    pub const BODY_BYTES_MIN: u64 = 128 << 10;

    /// The size of the largest body. Moving a body of this size takes 7 ms, and other requests of the same
    /// thread should not wait longer. While a body is moved, it takes memory twice.
    pub const BODY_BYTES_MAX: u64 = 16 << 20;

    /// Returns an arena with address space for bodies that take `capacity` in total. The arena does not enforce the
    /// capacity: the caller limits the bodies.
    ///
    /// # Errors
    ///
    /// Fails if the system has no in-memory files or not enough address space. Also fails if the system backs
    /// these files with huge pages: punching a hole would then clear parts of pages that are still in socket
    /// buffers.
    pub fn new(capacity: ByteSize) -> io::Result<Arc<Self>> {
        huge_pages::check_disabled()?;
        Self::with_page_bytes(capacity, rustix::param::page_size() as u64)
    }

    /// Like [`new`](Self::new), for a system with pages of `page_bytes`. Tests inject page sizes that this
    /// system does not have.
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
            extents: Mutex::default(),
            used_bytes: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
        }))
    }

    /// Returns true if the arena accepts bodies of `bytes` bytes.
    ///
    /// A body takes whole pages, and the cache is not charged for the unused end of the last page. With at
    /// least 32 pages this end is at most 3 % of the body, whatever the page size.
    pub fn accepts(&self, bytes: u64) -> bool {
        let min = Self::BODY_BYTES_MIN.max(BODY_PAGES_MIN * self.page_bytes);
        (min..=Self::BODY_BYTES_MAX).contains(&bytes)
    }

    /// Returns the file of the bodies, the source for `sendfile`.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the offset of `bytes` in the file, or `None` if they are elsewhere in memory.
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.map.as_ptr() as usize)?;
        let offset = offset as u64;
        let end = offset.checked_add(bytes.len() as u64)?;
        (end <= self.bytes).then_some(offset)
    }

    /// The bytes of memory that bodies take, in whole pages.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// The bytes of memory that could not be returned to the system when bodies were freed.
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Relaxed)
    }

    /// Returns a copy of `body` in the arena. Returns `None` if the body is empty, or if the arena has no
    /// address space or no memory left. Takes time in proportion to the length of the body.
    pub fn insert(self: &Arc<Self>, body: &[u8]) -> Option<Bytes> {
        self.insert_with(body, ())
    }

    /// Like [`insert`](Self::insert). `guard` is dropped when the memory is freed.
    pub fn insert_with(self: &Arc<Self>, body: &[u8], guard: impl Send + 'static) -> Option<Bytes> {
        let extent = self.allocate(body.len() as u64)?;
        self.file.write_all_at(body, extent.offset).ok()?;
        let bytes = body.len();
        Some(Bytes::from_owner(Body {
            extent,
            bytes,
            _guard: guard,
        }))
    }

    /// Allocates an extent of at least `bytes`, or returns `None` if there is no space.
    fn allocate(self: &Arc<Self>, bytes: u64) -> Option<Extent> {
        if bytes == 0 {
            return None;
        }
        // An extent begins and ends at a page boundary. If two extents shared a page, or a hole ended within a
        // page, the kernel would clear a part of this page in place, although the page may be in a socket
        // buffer.
        let bytes = bytes.next_multiple_of(self.page_bytes);
        let class = SizeClass::for_bytes(bytes);
        let offset = {
            let mut extents = self.extents.lock();
            match extents.free[class.index()].pop() {
                Some(offset) => offset,
                None => {
                    let offset = extents.end;
                    let end = offset + class.bytes();
                    if end > self.bytes {
                        return None;
                    }
                    extents.end = end;
                    offset
                }
            }
        };
        self.used_bytes.fetch_add(bytes, Relaxed);
        Some(Extent {
            arena: Arc::clone(self),
            offset,
            bytes,
            class,
        })
    }
}

/// The number of pages of the smallest body. With pages of 4 KiB, it has 128 KiB.
const BODY_PAGES_MIN: u64 = 32;

/// The bytes of the file's address space for each byte of capacity. The address space must be larger than the
/// capacity, because an extent takes up to twice its size in the file, and a freed extent of one size class is
/// not used for another class.
const ADDRESSES_PER_BYTE: u64 = 16;

#[derive(Debug)]
struct FreeExtents {
    /// For each size class, the offsets of freed extents.
    free: [Vec<u64>; SizeClass::COUNT],
    /// The offset from which on the file was never allocated.
    end: u64,
}

impl Default for FreeExtents {
    fn default() -> Self {
        Self {
            free: [const { Vec::new() }; SizeClass::COUNT],
            end: 0,
        }
    }
}

/// A size class: the extents whose sizes are rounded up to the same power of two. The freed extents of a class
/// share a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SizeClass(u32);

impl SizeClass {
    const COUNT: usize = 64;

    fn for_bytes(bytes: u64) -> Self {
        Self(u64::BITS - (bytes - 1).leading_zeros())
    }

    fn bytes(self) -> u64 {
        1 << self.0
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The part of the file that holds one body.
#[derive(Debug)]
struct Extent {
    arena: Arc<Arena>,
    offset: u64,
    /// A multiple of the page size.
    bytes: u64,
    class: SizeClass,
}

impl Drop for Extent {
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
            arena.extents.lock().free[self.class.index()].push(self.offset);
        } else {
            // Pages that may be in socket buffers must not be written again, so the extent is never reused.
            arena.lost_bytes.fetch_add(self.bytes, Relaxed);
        }
    }
}

/// A body in the arena. Its bytes are written once and never again.
#[derive(Debug)]
struct Body<G> {
    extent: Extent,
    bytes: usize,
    _guard: G,
}

impl<G> AsRef<[u8]> for Body<G> {
    #[expect(
        unsafe_code,
        reason = "a slice of the mapping, which the compiler cannot prove to be constant"
    )]
    fn as_ref(&self) -> &[u8] {
        let Extent { arena, offset, .. } = &self.extent;
        let start = usize::try_from(*offset).expect("the offset is within the mapping");
        // SAFETY: only `Arena::insert_with` makes a `Body`. It has written the body's bytes within the extent,
        // and the extent lies within the mapping. The extent keeps the arena alive, and the arena keeps the
        // mapping alive. No other body is written at this offset until the extent is dropped, which happens
        // when the body is dropped; other writes go to other pages. The file has no path, so no other process
        // can shrink it.
        unsafe { std::slice::from_raw_parts(arena.map.as_ptr().add(start), self.bytes) }
    }
}

#[cfg(test)]
mod tests;
