//! Returns freed memory pages from jemalloc to the operating system.
//!
//! jemalloc keeps freed pages for its decay time, so that the next allocation can use them. The decay time is 100 ms
//! (`.cargo/config.toml`). In a cache that evicts objects, the freed pages therefore hold about as many bytes as the
//! cache frees in 100 ms, whatever its capacity is. To limit these bytes, the cache calls [`return_pages_above`] again
//! and again while objects are offered to it.

use std::sync::Mutex;

use tikv_jemalloc_ctl::{Access as _, AsName as _, Result, epoch};

/// Gives all freed pages back to the system if they exceed `bytes_max`. The result is true if it gave pages back. If
/// another thread is already giving pages back, the function does nothing and the result is false.
pub(crate) fn return_pages_above(bytes_max: u64) -> bool {
    static RETURNING: Mutex<()> = Mutex::new(());
    let Ok(_guard) = RETURNING.try_lock() else {
        return false;
    };
    // The statistics and settings that this module uses exist in every jemalloc since 5.0. If a call fails, jemalloc
    // returns the pages later by its own rules.
    freed_bytes().is_ok_and(|freed| freed > bytes_max) && return_pages().is_ok()
}

/// The number of bytes in pages that were freed and are still resident.
fn freed_bytes() -> Result<u64> {
    // jemalloc updates its statistics only when a caller advances its epoch, a counter.
    epoch::advance()?;
    let pages: usize = c"stats.arenas.0.pdirty".to_bytes_with_nul().name().read()?;
    let page_bytes: usize = c"arenas.page".to_bytes_with_nul().name().read()?;
    Ok(pages as u64 * page_bytes as u64)
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
        assert!(!return_pages_above(1 << 40));
        assert!(freed_bytes().expect("jemalloc has statistics") > 32 << 20);
        assert!(return_pages_above(16 << 20));
        assert!(freed_bytes().expect("jemalloc has statistics") <= 16 << 20);
        decay_ms
            .write(configured)
            .expect("the decay time is restored");
    }
}
