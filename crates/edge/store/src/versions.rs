//! The rule for every change of a stored object. The caller reads the version of the key before it decides
//! about a change, and passes this version with the change. If the key has another version when the change is
//! applied, the change is dropped.
//!
//! A version identifies the content that both tiers have under a key. Four operations make a new version,
//! because decisions that were based on the old content are then wrong: the insert of a response, the refresh
//! of its head, its removal, and the purge by an invalidation. Three operations only move content and make no
//! new version: the promotion from disk to RAM, the eviction from RAM to disk, and the move of a body within
//! RAM. A purge is always applied. Every other operation compares versions first.
//!
//! **When a version is read.** A fetch reads the version before its request is sent to the origin. The response
//! is then at least as new as the content of that version. A promotion reads the version with
//! `Versions::settled`, and then looks up the object on disk again. An eviction reads the version while it
//! holds the lock for the removal from RAM.
//!
//! **When a version is compared.** The RAM tier ([`HotCache`](crate::hot::HotCache)) compares the version, makes
//! the new one and changes its index under one lock. The disk is updated later, so a change of both tiers is not
//! one atomic step. Three facts make such a change safe:
//!
//! 1. A write is registered with its device before its version is compared. A purge stops the registered writes
//!    of its key on the device. If a purge follows the registration, the purge stops the write. If a purge precedes
//!    the registration, the comparison finds the new version, and the write is dropped.
//! 2. A key has at most one write in the queue of its device, and the device keeps the order of writes. A change
//!    without a write to the device purges the key on the device.
//! 3. Until the disk is updated, the key has a [`ChangeGuard`], or a registered write that lookups do not find
//!    yet. In both cases a promotion of the key is abandoned. A promotion reads the version, then checks for
//!    guards and writes, then looks the object up again. A promotion can therefore not commit an object that a
//!    change has replaced. Suppose that a promotion did commit one. RAM compares versions, so the promotion
//!    read its version after the change in RAM. It checked for guards and writes even later. The check found
//!    neither a guard nor a write, so the disk was already updated. The second lookup then does not find the
//!    object, which is a contradiction.
//!
//! | race | result |
//! |---|---|
//! | insert, purge | a later purge drops the insert: in RAM by comparison, on disk by facts 1 and 2 |
//! | insert, insert | the first insert makes a new version, and the second is dropped |
//! | refresh or removal, insert | the first wins; a new head is written only to the disk object that was revalidated |
//! | promotion, any change | fact 3 |
//! | eviction to disk, any change | the eviction has the older version; fact 1 for a purge, fact 2 for an insert |
//! | variant, purge of its URL | the purge removes the marker (see below) |
//! | restart | no operation is in progress; see `disk` for what is durable |
//!
//! The marker is the stored entry of a URL whose responses vary. A marker has a generation, which is part of
//! the key of each variant, so lookups find no variant after the marker is removed. A fetch uses a marker only
//! if the URL still has the version that it had when the marker was read.
//!
//! Keys have no counters of their own. Instead, each stripe of keys (selected by hash) has a log of the keys of
//! the last changes. A version is a position in the stripe's log, and a key has changed if the log lists the
//! key after that position. Changes of other keys have no effect until the log has overwritten the position.
//! From then on the version counts as outdated: a change may be dropped without need, but no outdated change is
//! applied. A long fetch or promotion keeps its version recent with `Versions::renewed`.

use edgeward_types::KeyHash;

use crate::sync::Mutex;

/// The version of a key at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    key: KeyHash,
    /// The number of changes in the key's stripe before that moment.
    position: u64,
}

/// The versions of all keys.
#[derive(Debug)]
pub(crate) struct Versions {
    stripes: Box<[Mutex<Stripe>]>,
}

#[derive(Debug)]
struct Stripe {
    /// The number of changes so far.
    length: u64,
    /// The keys of the last changes, each as 32 bits of its hash (`tag`). Change `n` is at `n % LOG_KEYS`.
    log: Box<[u32]>,
    /// The keys of changes that are not on disk yet.
    changing: Vec<KeyHash>,
}

/// A change that is not on disk yet. While this value lives, the key is not settled (`Versions::settled`).
#[derive(Debug)]
pub struct ChangeGuard<'a> {
    versions: &'a Versions,
    key: KeyHash,
}

impl Version {
    /// Returns the key of this version.
    pub fn key(self) -> KeyHash {
        self.key
    }
}

impl Versions {
    /// Returns the version of a key.
    pub(crate) fn current(&self, key: KeyHash) -> Version {
        self.stripe(key).lock().version(key)
    }

    /// Returns the version of a key, or `None` while a change of the key is not on disk yet.
    pub(crate) fn settled(&self, key: KeyHash) -> Option<Version> {
        let stripe = self.stripe(key).lock();
        (!stripe.changing.contains(&key)).then(|| stripe.version(key))
    }

    /// Returns true if the key has not changed since the version.
    pub(crate) fn is_current(&self, version: Version) -> bool {
        self.stripe(version.key).lock().is_current(version)
    }

    /// Returns a version of the same content whose position is the end of the log, or `None` if the key has changed.
    pub(crate) fn renewed(&self, version: Version) -> Option<Version> {
        let stripe = self.stripe(version.key).lock();
        stripe
            .is_current(version)
            .then(|| stripe.version(version.key))
    }

    /// Makes and returns a new version, or returns `None` if the key has changed since the given version. The RAM
    /// tier calls this function under its lock.
    pub(crate) fn advance(&self, version: Version) -> Option<Version> {
        let mut stripe = self.stripe(version.key).lock();
        stripe
            .is_current(version)
            .then(|| stripe.change(version.key))
    }

    /// Makes and returns a new version, regardless of earlier changes. The RAM tier calls this function under its
    /// lock.
    pub(crate) fn change(&self, key: KeyHash) -> Version {
        self.stripe(key).lock().change(key)
    }

    /// Marks a key as changing until the returned value is dropped.
    pub(crate) fn changing(&self, key: KeyHash) -> ChangeGuard<'_> {
        self.stripe(key).lock().changing.push(key);
        let versions = self;
        ChangeGuard { versions, key }
    }

    fn stripe(&self, key: KeyHash) -> &Mutex<Stripe> {
        &self.stripes[key.0 as usize % STRIPES]
    }
}

impl Default for Versions {
    fn default() -> Self {
        let stripe = || {
            Mutex::new(Stripe {
                length: 0,
                log: vec![0; LOG_KEYS].into(),
                changing: Vec::new(),
            })
        };
        Self {
            stripes: (0..STRIPES).map(|_| stripe()).collect(),
        }
    }
}

impl Stripe {
    fn version(&self, key: KeyHash) -> Version {
        let position = self.length;
        Version { key, position }
    }

    fn is_current(&self, version: Version) -> bool {
        let since = self.length - version.position;
        if since == 0 || since > LOG_KEYS as u64 {
            return since == 0;
        }
        let (start, end) = (log_slot(version.position), log_slot(self.length));
        let tag = tag(version.key);
        match start < end {
            true => !self.log[start..end].contains(&tag),
            false => !self.log[start..].contains(&tag) && !self.log[..end].contains(&tag),
        }
    }

    fn change(&mut self, key: KeyHash) -> Version {
        self.log[log_slot(self.length)] = tag(key);
        self.length += 1;
        self.version(key)
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let changing = &mut self.versions.stripe(self.key).lock().changing;
        let index = changing.iter().position(|key| *key == self.key);
        changing.swap_remove(index.expect("the key was added when this value was made"));
    }
}

/// Returns a number that distinguishes the keys of a stripe. Two keys with one tag count as one key; the only
/// effect is a change that is dropped without need.
fn tag(key: KeyHash) -> u32 {
    (key.0 / STRIPES as u64) as u32
}

fn log_slot(change: u64) -> usize {
    change as usize % LOG_KEYS
}

/// The number of stripes. All logs together keep the last 262 144 changes in 1 MiB. If 16 thousand misses per second
/// each cause one change, these are the changes of 16 seconds. The model checker runs with fewer stripes, because
/// the simulation of every lock takes time.
const STRIPES: usize = if cfg!(feature = "shuttle") { 2 } else { 256 };

/// The number of changes that the log of a stripe keeps.
const LOG_KEYS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash(7);

    /// Returns another key of the same stripe.
    fn other(n: u64) -> KeyHash {
        KeyHash(KEY.0 + (1 + n) * STRIPES as u64)
    }

    #[test]
    fn the_second_of_two_changes_with_the_same_version_is_dropped() {
        let versions = Versions::default();
        let (first, second) = (versions.current(KEY), versions.current(KEY));
        let new_version = versions
            .advance(first)
            .expect("the key did not change before");
        assert_eq!(versions.advance(second), None);
        assert!(versions.is_current(new_version));
        versions.change(KEY);
        assert!(!versions.is_current(new_version));
    }

    /// Method: make as many changes of other keys as the log has entries, and then one change more.
    #[test]
    fn a_version_stays_current_until_the_log_has_overwritten_it_or_longer_if_it_is_renewed() {
        let versions = Versions::default();
        let version = versions.current(KEY);
        for n in 0..LOG_KEYS as u64 {
            assert!(versions.is_current(version));
            versions.change(other(n));
        }
        assert!(versions.is_current(version));
        let renewed = versions.renewed(version).expect("the key did not change");
        versions.change(other(0));
        assert!(
            !versions.is_current(version),
            "the log has overwritten the position"
        );
        assert!(versions.is_current(renewed));
        versions.change(KEY);
        assert_eq!(versions.renewed(renewed), None);
    }

    #[test]
    fn a_key_is_settled_once_all_its_changes_have_ended() {
        let versions = Versions::default();
        let (one, two) = (versions.changing(KEY), versions.changing(KEY));
        assert_eq!(versions.settled(KEY), None);
        assert_eq!(versions.settled(other(1)), Some(versions.current(other(1))));
        drop(one);
        assert_eq!(versions.settled(KEY), None);
        drop(two);
        assert_eq!(versions.settled(KEY), Some(versions.current(KEY)));
    }
}
