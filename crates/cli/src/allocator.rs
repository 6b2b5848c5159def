//! Returns freed memory pages from jemalloc to the operating system.
//!
//! jemalloc keeps freed pages for a while, so that the next allocation can use them. In a cache that evicts
//! objects, these pages hold about as many bytes as the cache frees in 100 ms; this does not depend on the cache's
//! capacity. The cache calls [`return_pages_above`] after it has freed bodies.

use std::sync::Mutex;

use tikv_jemalloc_ctl::{Access as _, AsName as _, Result, epoch};

/// Gives all freed pages back to the system if they exceed `bytes_max`. The result is true if it gave pages back. If
/// another thread is already giving pages back, the function does nothing and the result is false.
pub(crate) fn return_pages_above(bytes_max: u64) -> bool {
    static RETURNING: Mutex<()> = Mutex::new(());
    let Ok(_guard) = RETURNING.try_lock() else {
        return false;
    };
    // The names of the statistics and settings below exist in every jemalloc since 5.0. If a call fails,
    // jemalloc returns the pages later by its own rules.
    freed_bytes().is_ok_and(|freed| freed > bytes_max) && return_pages().is_ok()
}

/// The number of bytes in pages that were freed and are still resident.
fn freed_bytes() -> Result<u64> {
    // jemalloc's statistics are updated when the epoch advances.
    epoch::advance()?;
    let pages: usize = c"stats.arenas.0.pdirty".to_bytes_with_nul().name().read()?;
    let page_bytes: usize = c"arenas.page".to_bytes_with_nul().name().read()?;
    Ok(pages as u64 * page_bytes as u64)
}

/// Gives all freed pages back to the system. A decay time of 0 makes jemalloc return all freed pages immediately;
/// then the function restores the configured decay time.
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
        let number = |name: String| -> u64 {
            let name = format!("{name}\0");
            let name = name.as_bytes().name();
            let wide: Result<usize> = name.read();
            let narrow = || name.read().map(|number: u32| number as usize);
            wide.or_else(|_| narrow()).expect("a number") as u64
        };
        let small = (0..number("arenas.nbins".into())).map(|n| format!("arenas.bin.{n}.size"));
        let large =
            (0..number("arenas.nlextents".into())).map(|n| format!("arenas.lextent.{n}.size"));
        let mut below = 0;
        for class in small.chain(large).map(number) {
            assert_eq!(edgeward_types::size_class(below + 1), class);
            assert_eq!(edgeward_types::size_class(class), class);
            below = class;
        }
        assert!(below > 1 << 60, "the classes reach {below}");
    }

    #[test]
    fn freed_pages_above_the_bound_are_returned() {
        // A decay time of -1 stops jemalloc from returning pages by itself while this test runs.
        let decay_ms = c"arena.0.dirty_decay_ms".to_bytes_with_nul().name();
        let configured: isize = decay_ms.update(-1).expect("a decay time");
        let bodies: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        drop(bodies);
        assert!(!return_pages_above(1 << 40));
        assert!(freed_bytes().expect("a number") > 32 << 20);
        assert!(return_pages_above(16 << 20));
        assert!(freed_bytes().expect("a number") <= 16 << 20);
        decay_ms.write(configured).expect("a decay time");
    }
}
