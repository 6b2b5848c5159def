//! Request collapsing: a table of the fetches under way of all workers, by key. A request that arrives after an
//! invalidation does not join a fetch that began before the invalidation.
//!
//! When a fetch fails, all requests that waited for the fetch share one further fetch, even requests that wake after
//! the further fetch has ended. If the further fetch fails too, the same rule applies. A request waits for a bounded
//! number of fetches. An origin that is down therefore gets a few requests, and not one for each waiting request.
//!
//! Two limits apply to each fetch. Requests wait for its head until a deadline, and further requests do not wait for an
//! overdue fetch at all. If the fetch has as many followers as it may have, the next request leads another fetch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use edgeward_types::{KeyHash, Timestamp};

use super::fill::{Fill, FillReader, FollowLimits, JoinError, Retry};
use super::key_map::WordMap;
use crate::rt::panics::lock;

/// The fetches under way, by key. Only misses use this table.
#[derive(Debug)]
pub(crate) struct Collapse {
    /// The most followers of a fetch.
    followers_max: usize,
    /// The longest time from the start of a fetch to its head for which followers wait.
    wait_max: Duration,
    shards: Box<[Mutex<WordMap<KeyHash, Entry>>]>,
}

#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    fill: Arc<Fill>,
}

/// The role of a miss in collapsing.
pub(crate) enum Role {
    /// The request starts the fetch, and owns the [`FetchLeader`] until the fetch ends.
    Leader(FetchLeader, FillReader),
    /// Like `Leader`. The fetch under way has too many followers, and the new fetch takes its place in the table.
    FurtherLeader(FetchLeader, FillReader),
    /// The request waits for a fetch under way.
    Follower(FillReader),
    /// The request gets a fetch of its own: the fetch under way has another key of the same hash, or cannot be joined.
    Uncollapsed,
    /// The request gets a fetch of its own, because no head has arrived before the deadline of the fetch under way.
    Overdue,
}

impl Collapse {
    pub(crate) fn new(followers_max: usize, wait_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            followers_max,
            wait_max,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        })
    }

    /// Joins the fetch under way for a key. If there is no fetch, or if it has too many followers, the caller becomes
    /// the leader of a new one.
    pub(crate) fn join(self: &Arc<Self>, hash: KeyHash, key: &[u8]) -> Role {
        let mut shard = self.shard(hash);
        let is_full = if let Some(entry) = shard.get(&hash) {
            if *entry.key != *key {
                return Role::Uncollapsed;
            }
            match entry.fill.join() {
                Ok(reader) => return Role::Follower(reader),
                Err(JoinError::Overdue) => return Role::Overdue,
                Err(JoinError::NotShared) => return Role::Uncollapsed,
                Err(JoinError::Full) => true,
            }
        } else {
            false
        };
        let (leader, reader) = self.lead_in(&mut shard, hash, key);
        match is_full {
            true => Role::FurtherLeader(leader, reader),
            false => Role::Leader(leader, reader),
        }
    }

    /// Joins the fetch under way for a key. Returns `None` if there is no fetch, or if it cannot be joined.
    pub(crate) fn follow(&self, hash: KeyHash, key: &[u8]) -> Option<FillReader> {
        let shard = self.shard(hash);
        let entry = shard.get(&hash).filter(|entry| *entry.key == *key)?;
        entry.fill.join().ok()
    }

    /// Becomes the leader of a fetch for a key. Returns `None` if a fetch for the hash of the key is under way.
    pub(crate) fn lead(self: &Arc<Self>, hash: KeyHash, key: &[u8]) -> Option<FetchLeader> {
        let mut shard = self.shard(hash);
        let is_vacant = !shard.contains_key(&hash);
        is_vacant.then(|| self.lead_in(&mut shard, hash, key).0)
    }

    fn lead_in(
        self: &Arc<Self>,
        shard: &mut WordMap<KeyHash, Entry>,
        hash: KeyHash,
        key: &[u8],
    ) -> (FetchLeader, FillReader) {
        let (mut leader, reader) = self.lead_uncollapsed();
        leader.key = Some(hash);
        let fill = Arc::clone(&leader.fill);
        let key = key.into();
        shard.insert(hash, Entry { key, fill });
        (leader, reader)
    }

    /// Returns the next role of a request that waited for a fetch, after that fetch has failed.
    pub(crate) fn join_after(
        self: &Arc<Self>,
        failed: &FillReader,
        hash: KeyHash,
        key: &[u8],
    ) -> Role {
        let mut first = None;
        let retry = failed.fill().retry_or_start(|| {
            let role = self.join(hash, key);
            let fill = match &role {
                Role::Leader(leader, _) | Role::FurtherLeader(leader, _) => {
                    Some(Arc::clone(&leader.fill))
                }
                Role::Follower(reader) => Some(Arc::clone(reader.fill())),
                Role::Uncollapsed | Role::Overdue => None,
            };
            first = Some(role);
            Retry {
                key: key.into(),
                fill,
            }
        });
        if let Some(role) = first {
            return role;
        }
        // Some followers joined by the primary key, others by a variant's key. The retry is for one of these keys.
        match retry.fill.as_ref().filter(|_| *retry.key == *key) {
            Some(fill) => fill.join_retry().map_or(Role::Uncollapsed, Role::Follower),
            None => self.join(hash, key),
        }
    }

    /// Starts a fetch that is not in the table. No other request can join it unless the caller adds a key.
    pub(crate) fn lead_uncollapsed(self: &Arc<Self>) -> (FetchLeader, FillReader) {
        let (fill, reader) = Fill::new(FollowLimits {
            readers_max: self.followers_max.saturating_add(1),
            head_deadline: Instant::now() + self.wait_max,
        });
        let leader = FetchLeader {
            collapse: Arc::clone(self),
            fill,
            key: None,
            variant: None,
        };
        (leader, reader)
    }

    /// Removes the fetch of a key from the table after the target was invalidated. Later requests start a new fetch.
    pub(crate) fn stop_joining(&self, hash: KeyHash, key: &[u8]) {
        let mut shard = self.shard(hash);
        if shard.get(&hash).is_some_and(|entry| *entry.key == *key) {
            shard.remove(&hash);
        }
    }

    /// Removes a fetch from the table after its response was purged. Later requests start a new fetch.
    pub(crate) fn stop_joining_fill(&self, hash: KeyHash, fill: &Arc<Fill>) {
        let mut shard = self.shard(hash);
        if shard
            .get(&hash)
            .is_some_and(|entry| Arc::ptr_eq(&entry.fill, fill))
        {
            shard.remove(&hash);
        }
    }

    /// Returns the number of keys whose fetch requests can join.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| lock(s).len()).sum()
    }

    fn shard(&self, hash: KeyHash) -> MutexGuard<'_, WordMap<KeyHash, Entry>> {
        lock(&self.shards[shard_of(hash)])
    }
}

fn shard_of(hash: KeyHash) -> usize {
    usize::try_from(hash.0 % SHARDS as u64).expect("below the number of shards")
}

/// The leader of a fetch. Dropping the leader ends the fetch for all followers.
#[derive(Debug)]
pub(crate) struct FetchLeader {
    collapse: Arc<Collapse>,
    pub(crate) fill: Arc<Fill>,
    /// The primary key by which other requests may join. `None` for an uncollapsed fetch and after `close`.
    key: Option<KeyHash>,
    /// The key of the variant by which other requests may join.
    variant: Option<KeyHash>,
}

impl FetchLeader {
    /// Lets requests also join by the key of the response's variant, which is known after the head has arrived.
    pub(crate) fn add_variant_key(&mut self, hash: KeyHash, key: &[u8]) {
        let mut shard = self.collapse.shard(hash);
        if let std::collections::hash_map::Entry::Vacant(vacant) = shard.entry(hash) {
            vacant.insert(Entry {
                key: key.into(),
                fill: Arc::clone(&self.fill),
            });
            self.variant = Some(hash);
        }
    }

    /// Removes the fetch from the table. Later requests start a new fetch.
    pub(crate) fn close(&mut self) {
        for hash in [self.key.take(), self.variant.take()].into_iter().flatten() {
            self.collapse.stop_joining_fill(hash, &self.fill);
        }
    }
}

impl Drop for FetchLeader {
    fn drop(&mut self) {
        self.close();
        // This has no effect on a fill that has ended.
        self.fill.abort();
    }
}

/// Keys that are marked for a time, for example because requests for them are not collapsed (Varnish: hit-for-miss).
///
/// The table needs no locks: each hash has one slot, and a new entry overwrites the old one. If a mark is lost early,
/// its user only repeats the work that the mark saves. A slot contains the upper half of the hash and the second in
/// which the entry expires.
#[derive(Debug)]
pub(crate) struct MarkedKeys {
    slots: Box<[AtomicU64]>,
    lifetime: Duration,
}

impl MarkedKeys {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self {
            slots: (0..MARK_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            lifetime,
        }
    }

    pub(crate) fn mark(&self, hash: KeyHash, now: Timestamp) {
        // Seconds since 1970 fit 32 bits until 2106.
        let until = now.after(self.lifetime).as_secs() & 0xffff_ffff;
        let entry = (hash.0 & !0xffff_ffff) | until;
        self.slot(hash).store(entry, Ordering::Relaxed);
    }

    pub(crate) fn contains(&self, hash: KeyHash, now: Timestamp) -> bool {
        let entry = self.slot(hash).load(Ordering::Relaxed);
        (entry ^ hash.0) >> 32 == 0 && now.as_secs() < entry & 0xffff_ffff
    }

    pub(crate) fn clear(&self, hash: KeyHash) {
        if (self.slot(hash).load(Ordering::Relaxed) ^ hash.0) >> 32 == 0 {
            self.slot(hash).store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, hash: KeyHash) -> &AtomicU64 {
        let index = hash.0 % MARK_SLOTS as u64;
        &self.slots[usize::try_from(index).expect("below the number of slots")]
    }
}

/// The number of shards, so that two workers rarely wait for the same lock. Only misses take these locks.
const SHARDS: usize = 64;

/// The number of slots for marked keys. A slot has 8 bytes, so the table takes 512 KiB.
const MARK_SLOTS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::cache::fill::Failure;

    #[test]
    fn a_marked_key_is_contained_until_it_expires() {
        let marks = MarkedKeys::new(Duration::from_secs(10));
        let now = Timestamp::from_secs(1_700_000_000);
        let key = KeyHash(0x1234_5678_9abc_def0);
        assert!(!marks.contains(key, now));
        marks.mark(key, now);
        assert!(marks.contains(key, Timestamp::from_secs(1_700_000_009)));
        assert!(!marks.contains(key, Timestamp::from_secs(1_700_000_010)));
        assert!(!marks.contains(KeyHash(key.0 ^ (1 << 40)), now));
        marks.clear(key);
        assert!(!marks.contains(key, now));
    }

    /// Returns a table whose fetches may have a thousand followers, which wait for a minute.
    fn collapse() -> Arc<Collapse> {
        Collapse::new(1000, Duration::from_secs(60))
    }

    /// Joins with the first request for a key, which becomes the leader.
    fn lead(collapse: &Arc<Collapse>) -> (FetchLeader, FillReader) {
        match collapse.join(KeyHash(1), b"a") {
            Role::Leader(leader, reader) => (leader, reader),
            _ => panic!("the first leads"),
        }
    }

    #[test]
    fn a_key_has_one_leader_until_it_is_closed() {
        let collapse = collapse();
        let (mut leader, _reader) = lead(&collapse);
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Follower(_)));
        assert!(matches!(collapse.join(KeyHash(1), b"b"), Role::Uncollapsed));
        leader.add_variant_key(KeyHash(2), b"a2");
        assert!(matches!(
            collapse.join(KeyHash(2), b"a2"),
            Role::Follower(_)
        ));
        leader.close();
        assert_eq!(collapse.len(), 0);
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Leader(..)));
    }

    /// Method: a fetch with two followers is full. The next request leads a fetch that further requests follow.
    #[test]
    fn a_request_beyond_the_limit_of_followers_leads_a_fetch_for_further_requests() {
        let collapse = Collapse::new(2, Duration::from_secs(60));
        let hash = KeyHash(1);
        let (mut first, _reader) = lead(&collapse);
        let follow = || collapse.join(hash, b"a");
        let kept = [follow(), follow()];
        assert!(kept.iter().all(|role| matches!(role, Role::Follower(_))));
        let Role::FurtherLeader(second, _reader) = follow() else {
            panic!("the first fetch is full");
        };
        let Role::Follower(reader) = follow() else {
            panic!("the second fetch has no follower yet");
        };
        assert!(Arc::ptr_eq(reader.fill(), &second.fill));
        // The end of the first fetch does not end the second one.
        first.close();
        assert!(matches!(follow(), Role::Follower(_)));
    }

    /// Method: with a wait of zero, the deadline of a fetch has passed at its start.
    #[test]
    fn requests_do_not_wait_for_an_overdue_fetch() {
        let collapse = Collapse::new(1000, Duration::ZERO);
        let (leader, _reader) = lead(&collapse);
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Overdue));
        assert!(collapse.follow(KeyHash(1), b"a").is_none());
        drop(leader);
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Leader(..)));
    }

    #[test]
    fn a_background_fetch_begins_only_without_another_fetch() {
        let collapse = collapse();
        assert!(collapse.follow(KeyHash(1), b"a").is_none());
        let leader = collapse.lead(KeyHash(1), b"a").expect("no other fetch");
        assert!(collapse.lead(KeyHash(1), b"a").is_none());
        assert!(collapse.follow(KeyHash(1), b"b").is_none(), "another key");
        assert!(collapse.follow(KeyHash(1), b"a").is_some());
        drop(leader);
        assert!(collapse.lead(KeyHash(1), b"a").is_some());
    }

    #[test]
    fn requests_after_an_invalidation_do_not_join_an_earlier_fetch() {
        let collapse = collapse();
        let _first = lead(&collapse);
        // Another key with the same hash.
        collapse.stop_joining(KeyHash(1), b"b");
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Follower(_)));
        collapse.stop_joining(KeyHash(1), b"a");
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Leader(..)));
    }

    /// Method: each waiting request wakes only after the next fetch has ended, which is the worst case.
    #[test]
    fn requests_that_waited_for_a_failed_fetch_share_one_further_fetch() {
        const FAILURE: Failure = Failure {
            mismatch: None,
            status: StatusCode::BAD_GATEWAY,
            detail: "connection_refused",
        };
        let collapse = collapse();
        let hash = KeyHash(1);
        let fail = |mut leader: FetchLeader| {
            leader.close();
            leader.fill.fail(FAILURE);
        };
        let (leader, _) = lead(&collapse);
        let mut waiting: Vec<_> = (0..20)
            .map(|_| match collapse.join(hash, b"a") {
                Role::Follower(reader) => reader,
                _ => panic!("the others wait"),
            })
            .collect();
        fail(leader);
        for round in 2..5 {
            let mut leaders = 0;
            let mut still_waiting = Vec::new();
            for reader in waiting {
                match collapse.join_after(&reader, hash, b"a") {
                    Role::Leader(leader, _) | Role::FurtherLeader(leader, _) => {
                        leaders += 1;
                        fail(leader);
                    }
                    Role::Follower(reader) => still_waiting.push(reader),
                    Role::Uncollapsed | Role::Overdue => panic!("a failure is shared"),
                }
            }
            assert_eq!(leaders, 1, "fetch {round}");
            waiting = still_waiting;
        }
        assert!(matches!(
            collapse.join_after(&waiting[0], hash, b"other"),
            Role::Leader(..)
        ));
    }
}
