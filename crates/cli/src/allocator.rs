//! The allocator's freed pages: how many there are, and giving them back to the system.
//!
//! jemalloc keeps freed pages for a while, so that the next allocation can use them. While objects come and go that is the traffic of
//! 100 ms, whatever the capacity is. The cache calls [`give_back_above`] after it has freed bodies.

use std::sync::Mutex;

use tikv_jemalloc_ctl::{Access as _, AsName as _, Result, epoch};

/// Gives all freed pages back to the system if they are more than `bytes_max`, and returns whether they were. Returns at once while
/// another thread does the same.
pub(crate) fn give_back_above(bytes_max: u64) -> bool {
    static TURN: Mutex<()> = Mutex::new(());
    let Ok(_turn) = TURN.try_lock() else {
        return false;
    };
    // The names exist in every jemalloc since 5.0. Without them jemalloc gives pages back by its own rules alone.
    freed_bytes().is_ok_and(|freed| freed > bytes_max) && give_back().is_ok()
}

/// Bytes of pages that were freed and are still resident.
fn freed_bytes() -> Result<u64> {
    // Statistics are as of the last epoch.
    epoch::advance()?;
    let pages: usize = c"stats.arenas.0.pdirty".to_bytes_with_nul().name().read()?;
    let page_bytes: usize = c"arenas.page".to_bytes_with_nul().name().read()?;
    Ok(pages as u64 * page_bytes as u64)
}

/// A decay time of 0 gives back at once what is freed. It is in force only between the two calls.
fn give_back() -> Result<()> {
    let decay_ms = c"arena.0.dirty_decay_ms".to_bytes_with_nul().name();
    let configured: isize = decay_ms.update(0)?;
    decay_ms.write(configured)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `edgeward_types` computes what this allocator does.
    #[test]
    fn size_classes_are_those_of_the_allocator() {
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
    fn freed_pages_are_given_back_above_the_bound() {
        // Never by jemalloc itself while this test runs.
        let decay_ms = c"arena.0.dirty_decay_ms".to_bytes_with_nul().name();
        let configured: isize = decay_ms.update(-1).expect("a decay time");
        let bodies: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        drop(bodies);
        assert!(!give_back_above(1 << 40));
        assert!(freed_bytes().expect("a number") > 32 << 20);
        assert!(give_back_above(16 << 20));
        assert!(freed_bytes().expect("a number") <= 16 << 20);
        decay_ms.write(configured).expect("a decay time");
    }
}
