//! Returns freed memory pages from jemalloc to the operating system, and measures jemalloc's slabs.
//!
//! jemalloc keeps freed pages for its decay time, so that the next allocation can use them. The decay time is 100 ms
//! (`.cargo/config.toml`). In a cache that evicts objects, the freed pages therefore hold about as many bytes as the
//! cache frees in 100 ms, whatever its capacity is. To limit these bytes, the cache calls [`return_pages_above`] again
//! and again while objects are offered to it.

use std::ffi::CStr;
use std::sync::Mutex;

use edgeward_store::hot::{AllocatorState, Slabs};
use tikv_jemalloc_ctl::{Access as _, AsName as _, Result, epoch};

/// Gives all freed pages back to the system if they exceed `bytes_max`, and measures the slabs. If another thread is
/// already doing so, the function does nothing and the result is the default.
pub(crate) fn return_pages_above(bytes_max: u64) -> AllocatorState {
    static RETURNING: Mutex<()> = Mutex::new(());
    let Ok(_guard) = RETURNING.try_lock() else {
        return AllocatorState::default();
    };
    // The statistics and settings that this module uses exist in every jemalloc since 5.0. If a call fails, jemalloc
    // returns the pages later by its own rules.
    AllocatorState {
        were_returned: freed_bytes().is_ok_and(|freed| freed > bytes_max) && return_pages().is_ok(),
        slabs: slabs().ok(),
    }
}

/// The number of bytes in pages that were freed and are still resident.
fn freed_bytes() -> Result<u64> {
    // jemalloc updates its statistics only when a caller advances its epoch, a counter. This takes 10 to 20 µs.
    epoch::advance()?;
    Ok(statistic(c"stats.arenas.0.pdirty")? * statistic(c"arenas.page")?)
}

/// The slabs at the last advance of the epoch. Large allocations take whole pages, so the empty parts of the pages in
/// use are those of slabs.
fn slabs() -> Result<Slabs> {
    let (used, allocated) = (statistic(c"stats.active")?, statistic(c"stats.allocated")?);
    Ok(Slabs {
        allocated_bytes: statistic(c"stats.arenas.0.small.allocated")?,
        empty_bytes: used.saturating_sub(allocated),
    })
}

fn statistic(name: &CStr) -> Result<u64> {
    let number: usize = name.to_bytes_with_nul().name().read()?;
    Ok(number as u64)
}

/// Gives all freed pages back to the system. A decay time of 0 makes jemalloc return all freed pages immediately;
/// then the function restores the configured decay time. Arena 0 has all freed pages, because jemalloc is built with
/// one arena (`narenas:1`).
fn return_pages() -> Result<()> {
    let decay_ms = c"arena.0.dirty_decay_ms".to_bytes_with_nul().name();
    let configured: isize = decay_ms.update(0)?;
    decay_ms.write(configured)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `edgeward_types::size_class` returns the size classes of jemalloc.
    #[test]
    fn size_classes_equal_those_of_the_allocator() {
        let statistic = |name: String| -> u64 {
            let name = format!("{name}\0");
            let name = name.as_bytes().name();
            let as_usize: Result<usize> = name.read();
            let as_u32 = || name.read().map(|number: u32| number as usize);
            as_usize
                .or_else(|_| as_u32())
                .expect("jemalloc knows the statistic") as u64
        };
        let small = (0..statistic("arenas.nbins".into())).map(|n| format!("arenas.bin.{n}.size"));
        let large =
            (0..statistic("arenas.nlextents".into())).map(|n| format!("arenas.lextent.{n}.size"));
        let mut previous_class = 0;
        for class in small.chain(large).map(statistic) {
            assert_eq!(edgeward_types::size_class(previous_class + 1), class);
            assert_eq!(edgeward_types::size_class(class), class);
            previous_class = class;
        }
        assert!(
            previous_class > 1 << 60,
            "the classes reach {previous_class}"
        );
    }

    #[test]
    fn freed_pages_above_the_limit_are_returned_to_the_system() {
        // A decay time of -1 stops jemalloc from returning pages by itself while this test runs.
        let decay_ms = c"arena.0.dirty_decay_ms".to_bytes_with_nul().name();
        let configured: isize = decay_ms.update(-1).expect("the decay time is set");
        let bodies: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        drop(bodies);
        assert!(!return_pages_above(1 << 40).were_returned);
        assert!(freed_bytes().expect("jemalloc has statistics") > 32 << 20);
        assert!(return_pages_above(16 << 20).were_returned);
        // Other tests of this process free memory meanwhile.
        let is_returned = |_| {
            return_pages_above(16 << 20);
            freed_bytes().expect("jemalloc has statistics") <= 16 << 20
        };
        assert!((0..1000).any(is_returned), "pages above the limit stay");
        decay_ms
            .write(configured)
            .expect("the decay time is restored");
    }

    /// Method: of 32 MiB in small allocations, every eighth allocation stays. A slab of this class holds 32
    /// allocations, so no slab becomes empty, and 7/8 of the bytes are empty parts of slabs.
    #[test]
    fn empty_parts_of_slabs_are_measured() {
        let measure = || {
            epoch::advance().expect("the epoch advances");
            slabs().expect("jemalloc has statistics")
        };
        let mut bodies: Vec<_> = (0..52_429).map(|_| Some(Box::new([1u8; 640]))).collect();
        let full = measure();
        assert!(full.allocated_bytes >= 32 << 20, "{full:?}");
        for (n, body) in bodies.iter_mut().enumerate() {
            *body = body.take().filter(|_| n % 8 == 0);
        }
        let sparse = measure();
        assert!(
            sparse.empty_bytes > full.empty_bytes + (24 << 20),
            "{sparse:?}"
        );
    }
}
