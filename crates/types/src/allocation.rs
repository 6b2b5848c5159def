//! The memory that an object takes: what the allocator rounds up, and what the cache charges.

/// The size class of an allocation: the bytes that jemalloc reserves for `bytes`.
///
/// Classes are 8, multiples of 16 up to 128, and from there four between a power of two and the next. The rest of a class is lost: 10 %
/// on average and 25 % at most.
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

/// The memory that an allocation of `bytes` takes: its size class, and its share of partly empty slabs.
///
/// ```
/// # use edgeward_types::allocated_bytes;
/// assert_eq!(allocated_bytes(1000), 1024 + 64);
/// assert_eq!(allocated_bytes(100_000), 114_688);
/// ```
pub const fn allocated_bytes(bytes: u64) -> u64 {
    let class = size_class(bytes);
    if class <= SLAB_CLASS_MAX {
        class + class / SLAB_SHARE
    } else {
        class
    }
}

/// The bytes that a cache in memory charges for an object: the memory of its body, and `overhead_bytes` for its key, its head and the
/// cache's own structures. The server and the simulator share this function, so that one predicts the other.
///
/// Without an overhead an object costs the size of its body, as in the literature.
pub const fn charge_bytes(body_bytes: u64, overhead_bytes: u64) -> u64 {
    match overhead_bytes {
        0 => body_bytes,
        _ => allocated_bytes(body_bytes).saturating_add(overhead_bytes),
    }
}

/// The largest class that jemalloc takes from slabs, with pages of 4 KiB. A slab holds allocations of one class and stays while one of
/// them is in use.
const SLAB_CLASS_MAX: u64 = 14 << 10;

/// While objects of 200 B to 10 KiB come and go, 7 % of the slabs' memory is empty.
const SLAB_SHARE: u64 = 16;
