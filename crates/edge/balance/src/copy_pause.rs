//! The pause of copies after an invalidation.
//!
//! An unsafe request at a node invalidates its object at all nodes. They do not do this at one time: a node that has
//! removed its copy may ask the owner, which has not removed the object yet, and would keep the old object after the
//! client of the unsafe request has its response. A node therefore keeps no copy of an object for [`CopyPause::PAUSE`]
//! after it has invalidated the object.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use edgeward_types::{KeyHash, Timestamp};

/// The last invalidations. The table is fixed, and a slot has no key: objects that share a slot pause together, and no
/// pause is forgotten.
#[derive(Debug)]
pub struct CopyPause {
    /// The end of the pause in milliseconds.
    slots: Box<[AtomicU64]>,
}

impl CopyPause {
    /// The time without copies after an invalidation. The nodes are informed within two seconds of each other; the rest
    /// is for requests that are under way.
    pub const PAUSE: Duration = Duration::from_secs(5);

    /// Records that the objects of this hash are invalidated.
    pub fn begin(&self, hash: KeyHash, now: Timestamp) {
        self.slot(hash)
            .fetch_max(now.after(Self::PAUSE).as_millis(), Relaxed);
    }

    /// Returns true if the node keeps no copy of an object of this hash for which it asks another node at this time.
    pub fn is_paused(&self, hash: KeyHash, asked_at: Timestamp) -> bool {
        asked_at.as_millis() < self.slot(hash).load(Relaxed)
    }

    fn slot(&self, hash: KeyHash) -> &AtomicU64 {
        let index = hash.0 % SLOTS as u64;
        &self.slots[usize::try_from(index).expect("below the number of slots")]
    }
}

impl Default for CopyPause {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

/// The table takes 32 KiB. With 100 invalidations per second, an eighth of the slots are in use.
const SLOTS: usize = 1 << 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_pause_after_an_invalidation_and_not_before_it() {
        let pause = CopyPause::default();
        let at = Timestamp::from_millis;
        let (key, same_slot) = (KeyHash(3), KeyHash(3 + SLOTS as u64));
        assert!(!pause.is_paused(key, at(0)));
        pause.begin(key, at(1000));
        assert!(pause.is_paused(key, at(1000)) && pause.is_paused(same_slot, at(5999)));
        assert!(!pause.is_paused(key, at(6000)) && !pause.is_paused(KeyHash(4), at(1000)));
        // A slower thread does not end the pause of a later invalidation.
        pause.begin(key, at(500));
        assert!(pause.is_paused(same_slot, at(5999)));
    }
}
