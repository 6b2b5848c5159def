//! Compares a run with two tiers with a naive model of the rules between them.
//!
//! Method: send small random traces through [`Run::with_disk`] and through a model that was written from the
//! text of the rules alone. The model has lists and counts instead of tiers, filters and a log. It cannot model
//! filter errors or full segments. The test therefore uses a filter of requested keys with a very low error rate,
//! and a disk that is never full. `policy::log` tests a full disk, and so does
//! `the_byte_counts_of_a_full_disk_agree` below.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;

use edgeward_policy::log::Reinsertion;
use edgeward_policy::sketch::RotatingBloomConfig;
use edgeward_policy::{DiskAdmissionSpec, HierarchyRules, PolicySpec};
use edgeward_sim::{DiskConfig, DiskReport, Run, RunConfig, RunReport};
use edgeward_trace::Record;
use edgeward_types::{Seed, Timestamp};
use proptest::prelude::*;

/// The model of the two tiers: memory (`ram`), which is an LRU cache, and disk.
struct Model {
    ram_bytes_max: u64,
    /// From the least to the most recently used object.
    ram: Vec<RamObject>,
    disk: HashSet<u64>,
    requests: HashMap<u64, u64>,
    spec: DiskAdmissionSpec,
    rules: HierarchyRules,
    counts: Tally,
}

#[derive(Clone, Copy)]
struct RamObject {
    key: u64,
    size: u64,
    was_hit: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    ram_hits: u64,
    disk_hits: u64,
    written_objects: u64,
    written_body_bytes: u64,
    from_ram_bytes: u64,
    origin_bytes: u64,
}

impl Model {
    fn request(&mut self, key: u64, size: u64) {
        if let Some(at) = self.ram.iter().position(|object| object.key == key) {
            let mut object = self.ram.remove(at);
            object.was_hit = true;
            self.ram.push(object);
            self.counts.ram_hits += 1;
            return;
        }
        let on_disk = self.disk.contains(&key);
        let write = if on_disk {
            self.counts.disk_hits += 1;
            if self.rules.note_disk_hits {
                *self.requests.entry(key).or_default() += 1;
            }
            false
        } else {
            self.counts.origin_bytes += size;
            self.admitted(key, size)
        };
        self.offer_to_ram(key, size);
        if write {
            self.write(key, size);
        }
    }

    fn offer_to_ram(&mut self, key: u64, size: u64) {
        if size > self.ram_bytes_max {
            return;
        }
        while self.ram.iter().map(|object| object.size).sum::<u64>() + size > self.ram_bytes_max {
            let evicted = self.ram.remove(0);
            let offer =
                self.rules.offer_evicted && evicted.was_hit && !self.disk.contains(&evicted.key);
            if offer && self.admitted(evicted.key, evicted.size) {
                self.counts.from_ram_bytes += evicted.size;
                self.write(evicted.key, evicted.size);
            }
        }
        self.ram.push(RamObject {
            key,
            size,
            was_hit: false,
        });
    }

    fn admitted(&mut self, key: u64, size: u64) -> bool {
        let needed = match self.spec {
            DiskAdmissionSpec::Always => 1,
            DiskAdmissionSpec::Never => u64::MAX,
            DiskAdmissionSpec::SecondHit => 2,
            DiskAdmissionSpec::NthHit(n) => u64::from(n),
            DiskAdmissionSpec::MeasuredDensity => unreachable!("not among the specs"),
            DiskAdmissionSpec::SizeDensity(bytes) => size.div_ceil(bytes.get()).clamp(1, 8),
        };
        let requests = self.requests.entry(key).or_default();
        // Objects that are small enough to be written at once are not counted.
        *requests += u64::from(needed > 1);
        needed == 1 || *requests >= needed
    }

    fn write(&mut self, key: u64, size: u64) {
        self.disk.insert(key);
        self.counts.written_objects += 1;
        self.counts.written_body_bytes += size;
    }
}

fn size_of(key: u64) -> u64 {
    100 + key * 7919 % 4000
}

fn records(keys: &[u64]) -> Vec<Record> {
    keys.iter()
        .zip(0..)
        .map(|(&key, n)| Record {
            time: Timestamp::from_millis(n),
            key,
            size: size_of(key),
        })
        .collect()
}

fn run_config(capacity_bytes: u64) -> RunConfig {
    RunConfig {
        policy: PolicySpec::LRU,
        capacity_bytes,
        warmup_requests: 0,
        object_overhead_bytes: 0,
        seed: Seed(1),
        window_requests: None,
        interval_requests: 100,
    }
}

fn disk_config(capacity_bytes: u64, admission: DiskAdmissionSpec) -> DiskConfig {
    DiskConfig {
        capacity_bytes,
        admission,
        // The filter of requested keys: 20 000 keys with a false-positive rate of 1e-7.
        memory: RotatingBloomConfig::new(
            NonZeroU64::new(20_000).expect("the number is not zero"),
            1e-7,
        ),
        eviction: Reinsertion::Never,
        rules: HierarchyRules::default(),
    }
}

fn disk_of(report: &RunReport) -> &DiskReport {
    report.disk.as_ref().expect("there is a disk")
}

fn specs() -> impl Strategy<Value = DiskAdmissionSpec> {
    prop_oneof![
        Just(DiskAdmissionSpec::Always),
        Just(DiskAdmissionSpec::Never),
        Just(DiskAdmissionSpec::SecondHit),
        (2u32..6).prop_map(DiskAdmissionSpec::NthHit),
        (200u64..4000).prop_map(|bytes| {
            DiskAdmissionSpec::SizeDensity(NonZeroU64::new(bytes).expect("the number is not zero"))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_tiers_follow_the_rules(
        keys in prop::collection::vec(0u64..60, 0..600),
        ram_bytes in 1000u64..40_000,
        spec in specs(),
        offer_evicted in any::<bool>(),
        note_disk_hits in any::<bool>(),
    ) {
        let rules = HierarchyRules { offer_evicted, note_disk_hits, ..HierarchyRules::default() };
        let mut model = Model {
            ram_bytes_max: ram_bytes,
            ram: Vec::new(),
            disk: HashSet::new(),
            requests: HashMap::new(),
            spec,
            rules,
            counts: Tally::default(),
        };
        keys.iter().for_each(|&key| model.request(key, size_of(key)));

        let disk = DiskConfig { rules, ..disk_config(64 << 20, spec) };
        let mut run = Run::with_disk(run_config(ram_bytes), disk);
        run.feed(&records(&keys));
        let report = run.report();
        let disk = disk_of(&report);
        let simulated = Tally {
            ram_hits: disk.ram_hits,
            disk_hits: disk.disk_hits,
            written_objects: disk.done.written_objects,
            written_body_bytes: disk.done.written_body_bytes,
            from_ram_bytes: disk.done.from_ram_bytes,
            origin_bytes: disk.origin_bytes,
        };
        prop_assert_eq!(simulated, model.counts);
        prop_assert_eq!(report.hits, disk.ram_hits + disk.disk_hits);
        // Each object has one record, and each hit reads one record.
        prop_assert_eq!(disk.done.write_operations, disk.done.written_objects);
        prop_assert_eq!(disk.done.read_operations, disk.disk_hits);
    }

    /// On a full disk, every resident or evicted object was written, all bytes are accounted for, and the content fits.
    #[test]
    fn the_byte_counts_of_a_full_disk_agree(
        keys in prop::collection::vec(0u64..3000, 2000..4000),
        spec in specs(),
        eviction in prop_oneof![
            Just(Reinsertion::Never),
            Just(Reinsertion::Hit { hits_min: 1 }),
            Just(Reinsertion::HitsPerByte),
        ],
    ) {
        // The objects have 100 KiB to 4 MiB, so about thirty fill the 64 MiB of disk.
        let mut records = records(&keys);
        records.iter_mut().for_each(|record| record.size *= 1024);
        let disk = DiskConfig { eviction, ..disk_config(64 << 20, spec) };
        let mut run = Run::with_disk(run_config(8 << 20), disk);
        run.feed(&records);
        let report = run.report();
        let disk = disk_of(&report);
        let done = disk.done;
        let requested: u64 = records.iter().map(|record| record.size).sum();
        let hit_bytes = (report.byte_hit_ratio * requested as f64).round() as u64;
        prop_assert_eq!(disk.origin_bytes, requested - hit_bytes);
        prop_assert!(done.written_objects - disk.residents >= done.evicted_objects);
        prop_assert!(disk.used_bytes <= 64 << 20);
        prop_assert!(done.written_bytes >= done.written_body_bytes + done.reinserted_bytes);
        prop_assert!(disk.write_amplification >= 1.0);
        let series = &report.series;
        let over_time: u64 =
            series.iter().filter_map(|interval| interval.tiers).map(|tiers| tiers.disk_written_bytes).sum();
        prop_assert_eq!(over_time, done.written_bytes, "the intervals add up");
        let origin: u64 =
            series.iter().filter_map(|interval| interval.tiers).map(|tiers| tiers.origin_bytes).sum();
        prop_assert_eq!(origin, disk.origin_bytes);
    }
}

/// Requests of the warm-up fill the disk, but the counts of the disk begin after the warm-up.
#[test]
fn the_warm_up_is_not_counted_on_disk() {
    let keys: Vec<u64> = (0..50).chain(0..50).collect();
    let config = RunConfig {
        warmup_requests: 50,
        ..run_config(1000)
    };
    let mut run = Run::with_disk(config, disk_config(64 << 20, DiskAdmissionSpec::Always));
    run.feed(&records(&keys));
    let report = run.report();
    let disk = disk_of(&report);
    assert_eq!(
        disk.done.written_objects, 0,
        "all objects were written during the warm-up"
    );
    assert_eq!(
        disk.ram_hits + disk.disk_hits,
        50,
        "all requests after the warm-up are hits"
    );
}

/// The purpose of second-hit admission: if most objects are requested once, it writes fewer bytes than `Always` and has
/// at least as many hits.
#[test]
fn second_hit_writes_less_than_always_for_the_same_hits() {
    let mut once = 1_000_000;
    let keys: Vec<u64> = (0..40_000u64)
        .map(|n| {
            // Three of four requests are for new objects. The fourth is for one of 500 keys in turn.
            if n % 4 == 0 {
                n / 4 % 500
            } else {
                once += 1;
                once
            }
        })
        .collect();
    let outcome = |spec| {
        let mut run = Run::with_disk(run_config(100_000), disk_config(16 << 20, spec));
        run.feed(&records(&keys));
        let report = run.report();
        (report.object_hit_ratio, disk_of(&report).done.written_bytes)
    };
    let (always_hits, always_bytes) = outcome(DiskAdmissionSpec::Always);
    let (second_hits, second_bytes) = outcome(DiskAdmissionSpec::SecondHit);
    assert!(second_hits >= always_hits, "{second_hits} {always_hits}");
    assert!(
        always_bytes > 20 * second_bytes,
        "{always_bytes} {second_bytes}"
    );
}
