//! The memory of an object: allocations rounded up as the allocator does, and the charge of a cache.

/// Returns the size class of an allocation: the bytes that jemalloc reserves for `bytes`.
///
/// The size classes are 8, the multiples of 16 up to 128, and above 128 four classes for each power of two.
/// Above 128 bytes, rounding adds about 10 % on average and at most 25 %.
pub const fn size_class(bytes: u64) -> u64 {
    let step = match bytes {
        0 => return 0,
        1..=8 => 8,
        9..=64 => 16,
        _ => 1 << ((bytes - 1).ilog2() - 2),
    };
    match bytes.checked_next_multiple_of(step) {
        Some(rounded) => rounded,
        None => u64::MAX,
    }
}

/// Returns the memory of an allocation of `bytes`: its size class, and its share of partly empty slabs.
///
/// ```
/// # use edgeward_types::allocated_bytes;
/// assert_eq!(allocated_bytes(1000), 1024 + 64);
/// assert_eq!(allocated_bytes(100_000), 114_688);
/// ```
pub const fn allocated_bytes(bytes: u64) -> u64 {
    let class = size_class(bytes);
    if class <= SLAB_CLASS_MAX {
        class + empty_slab_bytes_charged(class)
    } else {
        class
    }
}

/// Returns the charge of [`allocated_bytes`] for empty parts of slabs, if allocations of `slab_bytes` are in slabs.
pub const fn empty_slab_bytes_charged(slab_bytes: u64) -> u64 {
    slab_bytes / SLAB_SHARE
}

/// Returns the charge of an object in memory: the memory of its body, and `overhead_bytes` for its key, its
/// head and the cache's own structures.
///
/// The server and the simulator share this function, so that the simulator predicts the server. If
/// `overhead_bytes` is 0, the charge is the size of the body, as in the literature.
pub const fn charge_bytes(body_bytes: u64, overhead_bytes: u64) -> u64 {
    match overhead_bytes {
        0 => body_bytes,
        _ => allocated_bytes(body_bytes).saturating_add(overhead_bytes),
    }
}

/// The largest class that jemalloc allocates in slabs, with pages of 4 KiB. A slab holds allocations of one
/// class and is not released while one of them is in use.
const SLAB_CLASS_MAX: u64 = 14 << 10;

/// One divided by the estimated empty share of slabs. The measured share is 7 % while objects of 200 B to 10
/// KiB are stored and evicted.
const SLAB_SHARE: u64 = 16;
