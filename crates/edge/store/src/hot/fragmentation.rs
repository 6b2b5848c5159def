//! Computes the number of bytes by which fragmentation of the allocator reduces the capacity of the cache.
//!
//! The allocator places small allocations of one size class together in slabs. It returns a slab to the system when
//! no allocation is left in it. If the sizes of the stored values change, for example because small values replace
//! large ones, many slabs are partly empty for some time. The charge of each value includes a fixed share for empty
//! parts of slabs (`edgeward_types::allocated_bytes`). If the measured empty bytes exceed these charges and an
//! allowance, the cache stores fewer bytes.

use edgeward_types::empty_slab_bytes_charged;

/// A measurement of the allocator's slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slabs {
    /// Bytes of the allocations in slabs.
    pub allocated_bytes: u64,
    /// Bytes of the empty parts of slabs.
    pub empty_bytes: u64,
}

/// Returns the number of bytes by which the capacity is reduced after a measurement. `previous` is the result of the
/// previous measurement.
///
/// The result approaches, in steps, the empty bytes that are neither charged nor allowed, up to half of the capacity.
pub(super) fn next_reduction_bytes(previous: u64, slabs: Slabs, capacity_bytes: u64) -> u64 {
    let uncharged_bytes = slabs
        .empty_bytes
        .saturating_sub(empty_slab_bytes_charged(slabs.allocated_bytes));
    let target = uncharged_bytes
        .saturating_sub(allowed_bytes(capacity_bytes))
        .min(capacity_bytes / REDUCTION_SHARE);
    let step = capacity_bytes / STEP_SHARE;
    target.clamp(previous.saturating_sub(step), previous.saturating_add(step))
}

/// Returns the number of uncharged empty bytes that do not reduce the capacity: 1/32 of the capacity, at least 2 MiB.
///
/// Operators plan memory for 10 % more than the capacity. These bytes (1/32), the freed pages (1/32) and the pinned
/// bytes that do not reduce the capacity (1/32) are 9.4 % of it. The minimum is for small caches, because the
/// measurement includes the slabs of the whole process.
fn allowed_bytes(capacity_bytes: u64) -> u64 {
    (capacity_bytes / 32).max(2 << 20)
}

/// The largest reduction is the capacity divided by this. `bench/memory` with small objects needs a reduction by a
/// third, when `density` replaces objects of one class of histories by those of another.
const REDUCTION_SHARE: u64 = 2;

/// One measurement changes the reduction by at most the capacity divided by this. An eviction leaves empty bytes in
/// slabs at first, so a large step would evict more objects than necessary.
const STEP_SHARE: u64 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The allowance for a capacity of 64 MiB is 2 MiB, the step is 1 MiB, and the largest reduction is 32 MiB.
    const CAPACITY: u64 = 64 << 20;

    fn slabs(allocated_bytes: u64, empty_bytes: u64) -> Slabs {
        Slabs {
            allocated_bytes,
            empty_bytes,
        }
    }

    #[test]
    fn charged_and_allowed_empty_bytes_reduce_nothing() {
        let charged_and_allowed = (32 << 20) / 16 + (2 << 20);
        let reduction = |empty| next_reduction_bytes(0, slabs(32 << 20, empty), CAPACITY);
        assert_eq!(reduction(charged_and_allowed), 0);
        assert_eq!(reduction(charged_and_allowed + 1), 1);
    }

    proptest! {
        /// If the measurement stays the same, the reduction becomes constant after at most 32 steps of 1/64 of the
        /// capacity. The reduced capacity and the uncharged empty bytes then take at most the capacity and the
        /// allowance, unless the reduction is at its limit.
        #[test]
        fn a_reduction_converges_to_the_uncharged_empty_bytes(
            start in 0..=CAPACITY / 2,
            allocated in 0..=2 * CAPACITY,
            empty in 0..=CAPACITY,
        ) {
            let mut reduction = start;
            for _ in 0..32 {
                let next = next_reduction_bytes(reduction, slabs(allocated, empty), CAPACITY);
                prop_assert!(next.abs_diff(reduction) <= 1 << 20);
                prop_assert!(next <= CAPACITY / 2);
                reduction = next;
            }
            let uncharged = empty.saturating_sub(allocated / 16);
            let memory = CAPACITY - reduction + uncharged;
            if reduction < CAPACITY / 2 {
                prop_assert!(memory <= CAPACITY + (2 << 20), "{memory} bytes");
            }
            prop_assert!(reduction == 0 || memory >= CAPACITY + (2 << 20), "{reduction} bytes");
        }
    }
}
