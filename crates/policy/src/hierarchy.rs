//! RAM and disk together: what goes where.
//!
//! The rules, which the server and the simulator both ask here:
//!
//! - **Found in neither tier.** The response is offered to RAM, whose own policy decides, and written to disk if
//!   the rule of admission says so. Both may say yes: the tiers are inclusive, because taking an object off the disk
//!   when RAM gets it would only mean to write it again later.
//! - **Found on disk.** Offered to RAM, whose own policy decides. The disk keeps its copy.
//! - **Found in RAM.** Nothing to decide, and nothing is asked: hits in RAM are too many and too quick for it.
//! - **Evicted from RAM.** What was hit there has been asked for twice at the least, and the rule of admission
//!   has heard of one of these requests. It is offered to the disk if the disk does not have it; one that
//!   was never hit is not, since nothing is known that was not known when it came.
//!
//! [`Hierarchy`] holds no bytes and knows no index. It is asked under shared access.

use crate::disk_admission::{AnyDiskAdmission, DiskRefusal, DiskVerdict};
use crate::{Evicted, Object};

/// The rules between RAM and disk.
#[derive(Debug)]
pub struct Hierarchy {
    admission: AnyDiskAdmission,
    rules: HierarchyRules,
}

/// What can be set about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HierarchyRules {
    /// Objects above this are not written to disk.
    pub disk_object_bytes_max: u64,
    /// Objects above this are not read into RAM from disk, whatever RAM's policy would say: reading all of a large
    /// object to offer it is work in itself.
    pub ram_object_bytes_max: u64,
    /// Whether what leaves RAM and was hit there is offered to the disk. On: on three large traces 0.1 to 0.3 points of
    /// hit ratio for one to four percent more writing, in the same runs as below.
    pub offer_evicted: bool,
    /// Whether a hit on disk counts as a request for the rule of admission, so that an object evicted from
    /// disk between two requests is written again at the next. Off: the memory of the requests that brought it
    /// there lasts long enough, on no trace of `bench/runs/2026-11-21-disk-simulated` did it change a thousandth.
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

/// What to do with an object that passes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offer it to RAM, whose policy decides.
    pub offer_to_ram: bool,
    /// Write it to disk or not.
    pub disk: DiskVerdict,
}

impl Hierarchy {
    /// Rules with a rule of admission to disk.
    pub fn new(admission: AnyDiskAdmission, rules: HierarchyRules) -> Self {
        Self { admission, rules }
    }

    /// A request for `object` that neither tier could answer and whose response may be kept. Call it once a request.
    ///
    /// Where the length is not known yet, give the least it can be: it may still be dropped from disk.
    #[inline]
    pub fn miss(&self, object: &Object) -> Placement {
        // Counted also where it is too large: limits may be raised, and counting is cheap.
        let verdict = self.admission.request(object);
        Placement {
            offer_to_ram: true,
            disk: if object.size_bytes > self.rules.disk_object_bytes_max {
                DiskVerdict::Refuse(DiskRefusal::TooLarge)
            } else {
                verdict
            },
        }
    }

    /// A request for `object` that the disk answered.
    #[inline]
    pub fn disk_hit(&self, object: &Object) -> Placement {
        if self.rules.note_disk_hits {
            self.admission.note(object.key);
        }
        Placement {
            offer_to_ram: object.size_bytes <= self.rules.ram_object_bytes_max,
            disk: DiskVerdict::Refuse(DiskRefusal::AlreadyThere),
        }
    }

    /// An object left RAM to make room: whether to write it to disk, where its `object_bytes` are still at hand.
    ///
    /// Not for what was purged or replaced. `on_disk` is asked only where the answer matters.
    pub fn evicted_from_ram(
        &self,
        evicted: &Evicted,
        object_bytes: u64,
        on_disk: impl FnOnce() -> bool,
    ) -> DiskVerdict {
        if !self.rules.offer_evicted || !evicted.was_hit {
            return DiskVerdict::Refuse(DiskRefusal::NotHit);
        }
        if object_bytes > self.rules.disk_object_bytes_max {
            return DiskVerdict::Refuse(DiskRefusal::TooLarge);
        }
        if on_disk() {
            return DiskVerdict::Refuse(DiskRefusal::AlreadyThere);
        }
        self.admission.request(&Object {
            key: evicted.object.key,
            size_bytes: object_bytes,
        })
    }

    /// The rule of admission, for its figures and for saving what it remembers.
    pub fn admission(&self) -> &AnyDiskAdmission {
        &self.admission
    }

    /// What was set.
    pub fn rules(&self) -> &HierarchyRules {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use edgeward_types::{KeyHash, Seed};

    use super::*;
    use crate::admission::Admission;
    use crate::disk_admission::DiskAdmissionSpec;
    use crate::eviction::{Gdsf, Lru, Ranking};
    use crate::sketch::RotatingBloomConfig;
    use crate::{Tier, Verdict};

    const WRITE: DiskVerdict = DiskVerdict::Write;

    fn object(key: u64) -> Object {
        Object {
            key: KeyHash(key),
            size_bytes: 100,
        }
    }

    fn hierarchy(rules: HierarchyRules) -> Hierarchy {
        let memory = RotatingBloomConfig::new(NonZeroU64::new(1000).expect("not zero"), 1e-6);
        Hierarchy::new(
            AnyDiskAdmission::new(DiskAdmissionSpec::SecondHit, memory),
            rules,
        )
    }

    /// What a tier of one place evicts after its object was hit so often.
    fn evicted_after<R: Ranking>(hits: u32) -> Evicted {
        let mut tier = Tier::<R>::new(100, Admission::Always, Seed(0));
        let mut evicted = Vec::new();
        let Verdict::Admit(slot) = tier.offer(&object(1), &mut evicted) else {
            panic!("there is room");
        };
        (0..hits).for_each(|_| tier.touch().hit(slot));
        tier.offer(&object(2), &mut evicted);
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
    fn what_was_hit_in_ram_goes_to_disk_when_it_leaves_and_the_rest_does_not() {
        let by_hits = [
            (evicted_after::<Lru>(0), false),
            (evicted_after::<Lru>(1), true),
            (evicted_after::<Gdsf>(0), false),
            (evicted_after::<Gdsf>(3), true),
        ];
        for (evicted, written) in by_hits {
            let rules = hierarchy(HierarchyRules::default());
            assert_ne!(rules.miss(&object(1)).disk, WRITE);
            let verdict = rules.evicted_from_ram(&evicted, 100, || false);
            assert_eq!(verdict == WRITE, written, "{evicted:?}");
        }
    }

    #[test]
    fn what_is_on_disk_is_not_written_again() {
        let rules = hierarchy(HierarchyRules::default());
        let evicted = evicted_after::<Lru>(1);
        rules.miss(&object(1));
        let verdict = rules.evicted_from_ram(&evicted, 100, || true);
        assert_eq!(verdict, DiskVerdict::Refuse(DiskRefusal::AlreadyThere));
        assert_ne!(rules.disk_hit(&object(1)).disk, WRITE);
    }

    /// Evicted from disk after a hit there: the next miss is not the first anybody hears of it.
    #[test]
    fn a_hit_on_disk_is_a_request_if_so_set() {
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
    fn limits_of_size_hold_and_do_not_stop_the_counting() {
        let rules = hierarchy(HierarchyRules {
            disk_object_bytes_max: 99,
            ram_object_bytes_max: 99,
            ..HierarchyRules::default()
        });
        let too_large = DiskVerdict::Refuse(DiskRefusal::TooLarge);
        rules.miss(&object(1));
        assert_eq!(rules.miss(&object(1)).disk, too_large);
        assert!(!rules.disk_hit(&object(1)).offer_to_ram);
        let evicted = evicted_after::<Lru>(1);
        assert_eq!(rules.evicted_from_ram(&evicted, 100, || false), too_large);
        assert_eq!(rules.admission().requests_seen(KeyHash(1)), 1);
    }
}
