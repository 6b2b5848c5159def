//! The rules between memory and disk: where an object is stored.
//!
//! The server and the simulator use the same rules:
//!
//! - **Found in neither tier.** The response is offered to memory, whose own policy decides. It is written to
//!   disk if the disk admission rule accepts it. Both tiers may store it: the tiers are inclusive, because an
//!   object removed from disk at promotion would have to be written again later.
//! - **Found on disk.** The object is offered to memory unless it exceeds a size limit. The disk keeps its copy.
//! - **Found in memory.** No function is called, because hits in memory are too frequent.
//! - **Evicted from memory.** The object is offered to the disk if it was hit in memory and the disk does not have
//!   it. Such an object had at least two requests, but the disk admission rule counted only the first, because it
//!   is not called at hits. An object that was never hit is not offered: the rule has already counted
//!   its only request.
//!
//! [`Hierarchy`] stores neither bytes nor an index. Its methods need shared access only.

use crate::disk_admission::{AnyDiskAdmission, DiskRejectReason, DiskVerdict};
use crate::object::{Evicted, Object};

/// The rules between memory and disk.
#[derive(Debug)]
pub struct Hierarchy {
    admission: AnyDiskAdmission,
    rules: HierarchyRules,
}

/// The settings of a [`Hierarchy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HierarchyRules {
    /// Larger objects are not written to disk.
    pub disk_object_bytes_max: u64,
    /// Larger objects are not promoted from disk to memory, regardless of the memory policy: reading a large
    /// object only to offer it is expensive.
    pub ram_object_bytes_max: u64,
    /// If true, objects that are evicted from memory after a hit are offered to the disk. True by default: on
    /// three large traces of `bench/runs/2026-11-21-disk-simulated` the hit ratio rises by 0.1 to 0.3 percentage
    /// points for 1 to 4 % more writes.
    pub offer_evicted: bool,
    /// If true, a hit on disk counts as a request in the disk admission rule. An object that is then evicted
    /// from disk is written again at its next request. False by default: the rule remembers the earlier
    /// requests long enough. On no trace of `bench/runs/2026-11-21-disk-simulated` did this setting change the
    /// hit ratio by 0.001 or more.
    pub note_disk_hits: bool,
}

impl Default for HierarchyRules {
    fn default() -> Self {
        Self {
            disk_object_bytes_max: u64::MAX,
            ram_object_bytes_max: u64::MAX,
            offer_evicted: true,
            note_disk_hits: false,
        }
    }
}

/// The tiers in which an object is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// True if the object is offered to memory, whose policy decides.
    pub offer_to_ram: bool,
    /// The decision if the object is written to disk, with the reason if it is not.
    pub disk: DiskVerdict,
}

impl Hierarchy {
    /// Makes the rules with a disk admission rule.
    pub fn new(admission: AnyDiskAdmission, rules: HierarchyRules) -> Self {
        Self { admission, rules }
    }

    /// Decides about a storable response that neither tier had. Call this once per request.
    ///
    /// If the length is not known yet, pass its lower bound. The verdict may then be to write an object
    /// that later turns out to be too large for the disk.
    #[inline]
    pub fn miss(&self, object: &Object) -> Placement {
        // Requests for too large objects are counted too: the limits may be raised later, and counting is
        // cheap.
        let verdict = self.admission.request(object);
        Placement {
            offer_to_ram: true,
            disk: if object.size_bytes > self.rules.disk_object_bytes_max {
                DiskVerdict::Reject(DiskRejectReason::TooLarge)
            } else {
                verdict
            },
        }
    }

    /// Decides about an object that the disk answered.
    #[inline]
    pub fn disk_hit(&self, object: &Object) -> Placement {
        if self.rules.note_disk_hits {
            self.admission.record(object.key);
        }
        Placement {
            offer_to_ram: object.size_bytes <= self.rules.ram_object_bytes_max,
            disk: DiskVerdict::Reject(DiskRejectReason::AlreadyOnDisk),
        }
    }

    /// Decides if an object that was evicted from memory is written to disk. The caller must still have its
    /// body and metadata, `object_bytes` in total.
    ///
    /// Do not call this for purged or replaced objects. `on_disk` is called only if its result matters.
    pub fn evicted_from_ram(
        &self,
        evicted: &Evicted,
        object_bytes: u64,
        on_disk: impl FnOnce() -> bool,
    ) -> DiskVerdict {
        if !self.rules.offer_evicted || !evicted.was_hit {
            return DiskVerdict::Reject(DiskRejectReason::NotHit);
        }
        if object_bytes > self.rules.disk_object_bytes_max {
            return DiskVerdict::Reject(DiskRejectReason::TooLarge);
        }
        if on_disk() {
            return DiskVerdict::Reject(DiskRejectReason::AlreadyOnDisk);
        }
        self.admission.request(&Object {
            key: evicted.object.key,
            size_bytes: object_bytes,
        })
    }

    /// The disk admission rule, for its statistics and for saving its state.
    pub fn admission(&self) -> &AnyDiskAdmission {
        &self.admission
    }

    /// The settings.
    pub fn rules(&self) -> &HierarchyRules {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use crate::Benefit;
    use std::num::NonZeroU64;

    use edgeward_types::{KeyHash, Seed};

    use super::*;
    use crate::disk_admission::DiskAdmissionSpec;
    use crate::sketch::RotatingBloomConfig;
    use crate::{PolicySpec, Verdict};

    const WRITE: DiskVerdict = DiskVerdict::Write;

    fn object(key: u64) -> Object {
        Object {
            key: KeyHash(key),
            size_bytes: 100,
        }
    }

    fn hierarchy(rules: HierarchyRules) -> Hierarchy {
        let memory =
            RotatingBloomConfig::new(NonZeroU64::new(1000).expect("the number is not zero"), 1e-6);
        Hierarchy::new(
            AnyDiskAdmission::new(DiskAdmissionSpec::SecondHit, memory),
            rules,
        )
    }

    /// Returns the object that a tier with space for one object evicts after this number of hits.
    fn evicted_after(policy: PolicySpec, hits: u32) -> Evicted {
        let mut tier = policy.tier(100, Seed(0));
        let mut evicted = Vec::new();
        let Verdict::Admit(slot) = tier.offer(&object(1), Benefit::ONE, &mut evicted) else {
            panic!("the tier is empty");
        };
        (0..hits).for_each(|_| tier.hit_recorder().hit(slot));
        // GDSF rejects object 2 while object 1 has a higher rank. Each rejection raises the inflation, and with it the
        // rank of object 2 at its next offer.
        while evicted.is_empty() {
            tier.offer(&object(2), Benefit::ONE, &mut evicted);
        }
        evicted[0]
    }

    #[test]
    fn a_miss_is_offered_to_ram_and_written_at_its_second_request() {
        let rules = hierarchy(HierarchyRules::default());
        let first = rules.miss(&object(1));
        assert!(first.offer_to_ram && first.disk != WRITE);
        let second = rules.miss(&object(1));
        assert!(second.offer_to_ram && second.disk == WRITE);
    }

    #[test]
    fn only_objects_hit_in_ram_are_written_to_disk_when_evicted() {
        let by_hits = [
            (evicted_after(PolicySpec::LRU, 0), false),
            (evicted_after(PolicySpec::LRU, 1), true),
            (evicted_after(PolicySpec::GDSF, 0), false),
            (evicted_after(PolicySpec::GDSF, 3), true),
        ];
        for (evicted, written) in by_hits {
            let rules = hierarchy(HierarchyRules::default());
            assert_ne!(rules.miss(&object(1)).disk, WRITE);
            let verdict = rules.evicted_from_ram(&evicted, 100, || false);
            assert_eq!(verdict == WRITE, written, "{evicted:?}");
        }
    }

    #[test]
    fn an_object_on_disk_is_not_written_again() {
        let rules = hierarchy(HierarchyRules::default());
        let evicted = evicted_after(PolicySpec::LRU, 1);
        rules.miss(&object(1));
        let verdict = rules.evicted_from_ram(&evicted, 100, || true);
        assert_eq!(
            verdict,
            DiskVerdict::Reject(DiskRejectReason::AlreadyOnDisk)
        );
        assert_ne!(rules.disk_hit(&object(1)).disk, WRITE);
    }

    /// The object is evicted from disk after a hit there: the next miss is then its second counted request.
    #[test]
    fn a_hit_on_disk_counts_as_a_request_if_configured() {
        for note_disk_hits in [false, true] {
            let rules = hierarchy(HierarchyRules {
                note_disk_hits,
                ..HierarchyRules::default()
            });
            rules.disk_hit(&object(1));
            assert_eq!(rules.miss(&object(1)).disk == WRITE, note_disk_hits);
        }
    }

    #[test]
    fn requests_for_objects_above_the_size_limits_are_counted() {
        let rules = hierarchy(HierarchyRules {
            disk_object_bytes_max: 99,
            ram_object_bytes_max: 99,
            ..HierarchyRules::default()
        });
        let too_large = DiskVerdict::Reject(DiskRejectReason::TooLarge);
        rules.miss(&object(1));
        assert_eq!(rules.miss(&object(1)).disk, too_large);
        assert!(!rules.disk_hit(&object(1)).offer_to_ram);
        let evicted = evicted_after(PolicySpec::LRU, 1);
        assert_eq!(rules.evicted_from_ram(&evicted, 100, || false), too_large);
        // The rule of the second hit remembers at most one request of a key.
        assert_eq!(rules.admission().requests_seen(KeyHash(1)), 1);
    }
}
