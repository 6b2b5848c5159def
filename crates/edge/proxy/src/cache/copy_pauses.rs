//! The pause of hot copies after an invalidation: see [`CopyPause`].

use std::time::Instant;

use edgeward_balance::CopyPause;
use edgeward_types::{KeyHash, Timestamp};

use super::key::hash_key;

/// The pauses of copies, by the path of a URL: by `No-Vary-Search`, URLs of one path may have one object.
#[derive(Debug)]
pub(crate) struct CopyPauses {
    pauses: CopyPause,
    hash_seed: u64,
    /// Time 0.
    begun: Instant,
}

impl CopyPauses {
    pub(crate) fn new(hash_seed: u64) -> Self {
        Self {
            pauses: CopyPause::default(),
            hash_seed,
            begun: Instant::now(),
        }
    }

    /// Records that the objects of a target's own key are invalidated. The caller then removes them: a fetch that began
    /// before is dropped by its version, and a later one by the pause.
    pub(super) fn begin(&self, target: &[u8]) {
        self.pauses.begin(self.hash_of_path(target), self.now());
    }

    /// Returns true if no copy of the object is kept, if it is requested from another node now.
    pub(crate) fn is_paused(&self, target: &[u8]) -> bool {
        self.pauses.is_paused(self.hash_of_path(target), self.now())
    }

    fn hash_of_path(&self, target: &[u8]) -> KeyHash {
        let end = memchr::memchr(b'?', target).unwrap_or(target.len());
        hash_key(&target[..end], self.hash_seed)
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO.after(self.begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalidation_pauses_the_copies_of_all_urls_of_its_path() {
        let pauses = CopyPauses::new(1);
        assert!(!pauses.is_paused(b"http://a.example/a?b=1"));
        pauses.begin(b"http://a.example/a?b=2");
        // The pause may have ended, if the machine is busy.
        let is_early = || pauses.begun.elapsed() < CopyPause::PAUSE;
        assert!(pauses.is_paused(b"http://a.example/a?b=1") || !is_early());
        assert!(pauses.is_paused(b"http://a.example/a") || !is_early());
        assert!(!pauses.is_paused(b"http://a.example/b"));
    }
}
