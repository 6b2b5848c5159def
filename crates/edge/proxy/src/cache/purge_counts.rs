//! Counts the accepted purges, and keeps the last ones. Any thread may accept purges, so these counters are not part of
//! a worker's counters.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use edgeward_purge::Scope;

use crate::rt::panics::lock;

/// The numbers of accepted purges, by kind of scope, and the last purges.
#[derive(Debug, Default)]
pub(crate) struct AcceptedPurges {
    counts: [AtomicU64; 6],
    /// The newest last. At most [`RECENT_MAX`].
    recent: Mutex<VecDeque<RecentPurge>>,
}

/// An accepted purge.
#[derive(Clone, Debug)]
pub(crate) struct RecentPurge {
    pub(crate) at: SystemTime,
    pub(crate) kind: &'static str,
    /// The beginning of the scope's text.
    pub(crate) target: String,
    pub(crate) soft: bool,
    pub(crate) by: String,
}

impl AcceptedPurges {
    /// Returns the number of accepted purges with this kind of scope, or 0 for an unknown kind.
    pub(crate) fn count(&self, kind: &str) -> u64 {
        let index = KINDS.iter().position(|known| *known == kind);
        index.map_or(0, |index| self.counts[index].load(Ordering::Relaxed))
    }

    pub(crate) fn record(&self, scope: &Scope, soft: bool, by: &str) {
        if let Some(index) = KINDS.iter().position(|kind| *kind == scope.kind()) {
            self.counts[index].fetch_add(1, Ordering::Relaxed);
        }
        let cut = |text: &str| text.chars().take(TEXT_CHARACTERS_MAX).collect();
        let purge = RecentPurge {
            at: SystemTime::now(),
            kind: scope.kind(),
            target: cut(&scope.to_string()),
            soft,
            by: cut(by),
        };
        let mut recent = lock(&self.recent);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back(purge);
    }

    /// Returns the last purges, newest first.
    pub(crate) fn recent(&self) -> Vec<RecentPurge> {
        lock(&self.recent).iter().rev().cloned().collect()
    }
}

/// The values of [`Scope::kind`].
const KINDS: [&str; 6] = ["url", "host", "tag", "group", "prefix", "pattern"];

/// The number of purges that are kept: a screen of the admin page.
const RECENT_MAX: usize = 20;

/// The most characters of a target that are kept.
const TEXT_CHARACTERS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_purges_are_kept_with_the_beginning_of_their_targets() {
        let purges = AcceptedPurges::default();
        for n in 0..100 {
            let tag = format!("{n}-{}", "x".repeat(500));
            purges.record(&Scope::Tag(tag.into()), n % 2 == 0, "token cms");
        }
        assert_eq!((purges.count("tag"), purges.count("url")), (100, 0));
        let recent = purges.recent();
        assert_eq!(recent.len(), RECENT_MAX);
        assert!(recent[0].target.starts_with("99-x") && !recent[0].soft);
        assert!(recent[19].target.starts_with("80-x") && recent[19].soft);
        assert!(
            recent
                .iter()
                .all(|purge| purge.target.len() == TEXT_CHARACTERS_MAX)
        );
    }
}
