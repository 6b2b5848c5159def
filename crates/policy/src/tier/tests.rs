use std::collections::{BTreeMap, HashMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::eviction::{Gdsf, Lru};

fn object(key: u64, size_bytes: u64) -> Object {
    Object {
        key: KeyHash(key),
        size_bytes,
    }
}

/// A tier with an index from key to slot, which together can answer requests.
struct Driver<R: Ranking> {
    tier: Tier<R>,
    index: HashMap<u64, Slot>,
    tick_each_request: bool,
}

impl<R: Ranking> Driver<R> {
    fn new(capacity_bytes: u64, admission: Admission) -> Self {
        Self {
            tier: Tier::new(capacity_bytes, admission, Seed(1)),
            index: HashMap::new(),
            tick_each_request: false,
        }
    }

    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if self.tick_each_request {
            R::tick(&self.tier.hit_recorder.0.ranking);
        }
        if let Some(&slot) = self.index.get(&key) {
            self.tier.hit_recorder().hit(slot);
            return true;
        }
        let mut evicted = Vec::new();
        let verdict = self.tier.offer(&object(key, size_bytes), &mut evicted);
        for victim in evicted {
            assert_eq!(self.index.remove(&victim.object.key.0), Some(victim.slot));
        }
        if let Verdict::Admit(slot) = verdict {
            self.index.insert(key, slot);
        }
        self.check();
        false
    }

    fn check(&self) {
        assert!(self.tier.used_bytes() <= self.tier.capacity_bytes());
        assert_eq!(self.tier.residents(), self.index.len());
        assert!(self.index.values().all(|&slot| self.tier.holds(slot)));
    }
}

/// Textbook LRU: a list in order of use.
#[derive(Default)]
struct TextbookLru {
    front_to_back: VecDeque<(u64, u64)>,
}

impl TextbookLru {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        if let Some(at) = self.front_to_back.iter().position(|&(k, _)| k == key) {
            let entry = self.front_to_back.remove(at).expect("found there");
            self.front_to_back.push_front(entry);
            return true;
        }
        if size_bytes <= capacity_bytes {
            self.front_to_back.push_front((key, size_bytes));
            while self.front_to_back.iter().map(|&(_, s)| s).sum::<u64>() > capacity_bytes {
                self.front_to_back.pop_back();
            }
        }
        false
    }
}

fn size_of_key(key: u64) -> u64 {
    1 + edgeward_types::mix64(key) % 40
}

proptest! {
    /// Lazily ranked LRU has the same hits and misses as a list that moves an object at every hit.
    ///
    /// Method: the clock ticks at every request, so that all requests have different times.
    #[test]
    fn lru_with_a_tick_per_request_equals_textbook_lru(
        keys in prop::collection::vec(0u64..40, 0..400),
        capacity in 1u64..300,
    ) {
        let mut ours = Driver::<Lru>::new(capacity, Admission::Always);
        ours.tick_each_request = true;
        let mut textbook = TextbookLru::default();
        for key in keys {
            let size = size_of_key(key);
            prop_assert_eq!(ours.request(key, size), textbook.request(key, size, capacity));
        }
    }

    /// GDSF evicts the lowest `L + f/s`, as a table that is searched completely.
    #[test]
    fn gdsf_equals_a_search_for_the_lowest_rank(
        keys in prop::collection::vec(0u64..40, 0..300),
        capacity in 40u64..300,
    ) {
        let mut ours = Driver::<Gdsf>::new(capacity, Admission::Always);
        // key -> (H, f)
        let mut table: BTreeMap<u64, (f64, u32)> = BTreeMap::new();
        let mut inflation = 0f64;
        for key in keys {
            let size = size_of_key(key);
            let per_byte = f64::from((1.0 / size as f64) as f32);
            let hit = ours.request(key, size);
            prop_assert_eq!(hit, table.contains_key(&key));
            if let Some((h, f)) = table.get_mut(&key) {
                *f += 1;
                *h = inflation + f64::from(*f) * per_byte;
                continue;
            }
            let used = |table: &BTreeMap<u64, (f64, u32)>| -> u64 {
                table.keys().map(|&k| size_of_key(k)).sum()
            };
            let mut lowest = f64::NAN;
            while used(&table) + size > capacity {
                lowest = table.values().map(|&(h, _)| h).fold(f64::INFINITY, f64::min);
                inflation = inflation.max(lowest);
                let victim = table.iter()
                    .find(|&(k, &(h, _))| h == lowest && !ours.index.contains_key(k))
                    .map(|(&k, _)| k);
                prop_assert!(victim.is_some(), "the lowest rank was not evicted");
                table.remove(&victim.expect("checked"));
            }
            // Objects of equal rank may be evicted in any order. The table may need one victim where the tier
            // needs both, because the table evicted the larger one first.
            table.retain(|k, &mut (h, _)| h != lowest || ours.index.contains_key(k));
            table.insert(key, (inflation + per_byte, 1));
        }
    }

    /// The budget holds and the counts agree for any sequence of offers, hits, removals and resizes.
    #[test]
    fn the_budget_is_never_exceeded(
        steps in prop::collection::vec((0u8..10, 0u64..60, 1u64..100), 0..500),
    ) {
        let mut driver = Driver::<Gdsf>::new(500, Admission::Exponential { c: 60.0 });
        for (step, key, number) in steps {
            match step {
                0..=7 => { driver.request(key, number); }
                8 => if let Some(slot) = driver.index.remove(&key) {
                    prop_assert!(driver.tier.remove(slot));
                    prop_assert!(!driver.tier.remove(slot), "removed twice");
                },
                _ => {
                    let mut evicted = Vec::new();
                    driver.tier.resize(number * 10, &mut evicted);
                    for victim in evicted {
                        driver.index.remove(&victim.object.key.0);
                    }
                }
            }
            driver.check();
        }
    }
}

#[test]
fn an_object_larger_than_the_tier_is_refused_and_evicts_nothing() {
    let mut driver = Driver::<Lru>::new(100, Admission::Always);
    driver.request(1, 100);
    driver.request(2, 101);
    assert!(driver.request(1, 100));
    let mut evicted = Vec::new();
    assert_eq!(
        driver.tier.offer(&object(2, 101), &mut evicted),
        Verdict::Reject(RejectReason::LargerThanTier)
    );
    assert!(evicted.is_empty());
}

#[test]
fn a_reused_slot_does_not_match_its_earlier_use() {
    let mut tier = Tier::<Lru>::new(10, Admission::Always, Seed(1));
    let mut evicted = Vec::new();
    let Verdict::Admit(first) = tier.offer(&object(1, 10), &mut evicted) else {
        panic!("it fits");
    };
    let Verdict::Admit(second) = tier.offer(&object(2, 10), &mut evicted) else {
        panic!("it fits");
    };
    assert_eq!(first.index, second.index, "the slot is reused");
    assert!(!tier.holds(first));
    assert!(!tier.remove(first));
    assert!(tier.holds(second));
}

#[test]
fn removed_objects_do_not_pile_up_in_the_queue() {
    let mut tier = Tier::<Lru>::new(u64::MAX, Admission::Always, Seed(1));
    let mut evicted = Vec::new();
    for key in 0..100_000 {
        let Verdict::Admit(slot) = tier.offer(&object(key, 1), &mut evicted) else {
            panic!("it fits");
        };
        assert!(tier.remove(slot));
    }
    assert!(
        tier.entries.len() <= GHOSTS_MIN + 2,
        "{}",
        tier.entries.len()
    );
}

#[test]
fn the_digest_does_not_depend_on_key_hashes() {
    let run = |scatter: fn(u64) -> u64, seed| {
        let mut tier = Tier::<Lru>::new(2000, Admission::Exponential { c: 30.0 }, Seed(seed));
        let mut evicted = Vec::new();
        for n in 0..1000u64 {
            let key = edgeward_types::mix64(n) % 300;
            tier.offer(&object(scatter(key), size_of_key(key)), &mut evicted);
        }
        tier.digest()
    };
    assert_eq!(run(|key| key, 1), run(edgeward_types::mix64, 1));
    assert_ne!(run(|key| key, 1), run(|key| key, 2));
}
