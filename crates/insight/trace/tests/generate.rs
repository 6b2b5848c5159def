//! Tests that generated traces have the properties of their workload. A workload has classes of traffic, each with its
//! own sizes and popularity, and phases that set the share of each class.

use std::collections::HashMap;

use edgeward_trace::generate::{Generator, Phase, Preset, Workload, WorkloadError};
use edgeward_trace::{Record, Summary, TraceSummary};
use edgeward_types::Seed;
use proptest::prelude::*;

#[test]
fn every_preset_has_the_requests_and_objects_of_its_workload() {
    for preset in Preset::ALL {
        let workload = preset.workload().scaled_to(100_000);
        let got = summary(workload.clone(), Seed(1));
        assert_eq!(got.requests, workload.requests, "{preset}");
        assert_eq!(got.objects, workload.objects, "{preset}");
        let off = got.one_hit_share() - workload.one_hit_share;
        assert!(off.abs() < 0.0001, "{preset}: {off}");
        assert_eq!(got.size_changes, 0, "{preset}");
        assert_eq!(got.times_backwards, 0, "{preset}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The cases with 0 extra requests have exactly two requests for every object that is not a one-hit wonder.
    #[test]
    fn the_numbers_of_requests_objects_and_one_hit_wonders_are_exact(
        seed in any::<u64>(),
        objects in 1u64..3000,
        one_hit_share in 0.0f64..0.99,
        extra_requests in prop_oneof![Just(0u64), 0u64..10, 0u64..20_000],
        churn in prop_oneof![Just(0.0), Just(1.0), 0.0f64..1.0],
        scans in prop_oneof![Just(0u32), 1u32..5, Just(5000)],
        recurring_days in 0u32..4,
    ) {
        let one_hit = (objects as f64 * one_hit_share + 0.5) as u64;
        prop_assume!(one_hit < objects);
        let workload = Workload {
            requests: 2 * objects - one_hit + extra_requests,
            objects,
            one_hit_share,
            churn,
            scans,
            recurring_days,
            ..Preset::Mixed.workload()
        };
        let got = summary(workload.clone(), Seed(seed));
        prop_assert_eq!(got.requests, workload.requests);
        prop_assert_eq!(got.objects, objects);
        prop_assert_eq!(got.one_hit_objects, one_hit);
    }
}

/// A trace is published as its seed, so the trace of a seed must not differ between machines or versions. If it
/// changes, the changelog must say so, because published figures depend on the traces.
#[test]
fn a_seed_always_gives_the_same_trace() {
    for (preset, expected) in [
        (Preset::Web, 0x592e_7f4b_80bb_f44a),
        (Preset::Video, 0x8681_8dac_0de1_dbc2),
        (Preset::Mixed, 0x6c0c_d76a_84a7_091b),
        (Preset::Switch, 0x6343_bb1a_c5c9_1dcf),
        (Preset::Small, 0xd42e_0fc2_fa51_4b3f),
        (Preset::Chunks, 0xaa21_8073_83a5_2812),
        (Preset::Scan, 0x0e21_63f2_8bb4_4bd9),
        (Preset::Recurring, 0x2a40_1b96_a19c_be3e),
    ] {
        let workload = preset.workload().scaled_to(20_000);
        let digest = digest(records(workload.clone(), Seed(42)));
        assert_eq!(digest, expected, "{preset}: {digest:#018x}");
        assert_ne!(self::digest(records(workload, Seed(43))), digest);
    }
}

#[test]
fn sizes_span_seven_orders_of_magnitude() {
    let got = summary(Preset::Mixed.workload(), Seed(1));
    let sizes = got.sizes.expect("the trace has objects");
    assert!(sizes.min <= 100, "{sizes:?}");
    assert!(sizes.max >= 1 << 30, "{sizes:?}");
    assert!(sizes.p99 > 100 * sizes.p50, "{sizes:?}");
}

/// Method: generate a trace of one class without churn, so that no object replaces another. Compute the slope of the
/// request counts over the ranks in a log-log plot.
#[test]
fn popularity_follows_zipfs_law() {
    let mut workload = Preset::Web.workload();
    workload.classes.truncate(1);
    workload.classes[0].zipf_exponent = 0.9;
    workload.phases[0].weights.truncate(1);
    workload.churn = 0.0;
    workload.one_hit_share = 0.0;
    workload.objects = 20_000;
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for record in records(workload, Seed(3)) {
        *counts.entry(record.key).or_default() += 1;
    }
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let count_at = |rank: usize| f64::from(counts[rank - 1]);
    let slope = (count_at(10) / count_at(1000)).ln() / 100f64.ln();
    assert!((slope - 0.9).abs() < 0.05, "{slope}");
}

/// With a churn of 0.8, less than 60 % of the objects that are popular in the first quarter have requests in the last
/// quarter. Without churn, more than 95 % of them have.
#[test]
fn with_churn_popular_objects_lose_their_requests() {
    let survivors = |churn: f64| {
        let workload = Workload {
            churn,
            ..Preset::Web.workload().scaled_to(200_000)
        };
        let all: Vec<Record> = records(workload, Seed(5)).collect();
        let (early, late) = (&all[..all.len() / 4], &all[all.len() * 3 / 4..]);
        let count = |part: &[Record]| {
            let mut counts: HashMap<u64, u32> = HashMap::new();
            for record in part {
                *counts.entry(record.key).or_default() += 1;
            }
            counts
        };
        let (early, late) = (count(early), count(late));
        let popular = || early.iter().filter(|(_, count)| **count >= 10);
        let alive = popular().filter(|(key, _)| late.contains_key(key)).count();
        alive as f64 / popular().count() as f64
    };
    let (fixed, churned) = (survivors(0.0), survivors(0.8));
    assert!(fixed > 0.95, "{fixed}");
    assert!(churned < 0.6, "{churned}");
}

/// Method: in each tenth of the trace, find the first request for an object with one request. All requests from there
/// to the end of the tenth are for such objects.
#[test]
fn a_scan_is_a_run_of_requests_for_one_hit_wonders() {
    let all: Vec<Record> = records(Preset::Scan.workload().scaled_to(100_000), Seed(1)).collect();
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for record in &all {
        *counts.entry(record.key).or_default() += 1;
    }
    for tenth in all.chunks(10_000) {
        let once: Vec<bool> = tenth.iter().map(|r| counts[&r.key] == 1).collect();
        let begin = once.iter().position(|once| *once);
        let begin = begin.expect("each tenth has a scan");
        assert!(once[begin..].iter().all(|once| *once));
        // One-hit wonders are 70 % of 15,000 objects, in ten scans.
        assert_eq!(once.len() - begin, 1050);
    }
}

/// The popular objects of the first part of a day have most of their requests in this part of every day.
#[test]
fn popular_objects_recur_in_the_same_part_of_each_day() {
    let workload = Workload {
        churn: 0.0,
        ..Preset::Recurring.workload().scaled_to(160_000)
    };
    let all: Vec<Record> = records(workload, Seed(1)).collect();
    let parts: Vec<&[Record]> = all.chunks(160_000 / 32).collect();
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for record in parts[0] {
        *counts.entry(record.key).or_default() += 1;
    }
    let requests_in = |part: usize| {
        let popular = |r: &&Record| counts.get(&r.key).is_some_and(|count| *count >= 10);
        parts[part].iter().filter(popular).count()
    };
    for day in 1..8 {
        let (same, next) = (requests_in(4 * day), requests_in(4 * day + 1));
        assert!(same > 10 * next, "day {day}: {same}, {next}");
    }
}

#[test]
fn the_mix_changes_when_a_phase_begins() {
    let mut workload = Preset::Switch.workload().scaled_to(100_000);
    let only = |class: usize| (0..5).map(|c| f64::from(u8::from(c == class))).collect();
    // Class 4 has API responses, whose median is 300 B. Class 2 has video segments of at least 16 KiB.
    workload.phases = vec![
        Phase {
            from: 0.0,
            weights: only(4),
        },
        Phase {
            from: 0.6,
            weights: only(2),
        },
    ];
    workload.classes[4].sizes.max_bytes = 1000;
    workload.churn = 0.0;
    workload.one_hit_share = 0.9;
    let all: Vec<Record> = records(workload, Seed(9)).collect();
    let small =
        |part: &[Record]| part.iter().filter(|r| r.size <= 1000).count() as f64 / part.len() as f64;
    // Each object that is not a one-hit wonder gets at least two requests. The generator adds missing ones in any
    // phase, so a few requests belong to the class of the other phase.
    assert!(small(&all[..60_000]) > 0.9, "{}", small(&all[..60_000]));
    assert!(small(&all[60_000..]) < 0.1, "{}", small(&all[60_000..]));
}

/// The first half of a day has more requests than the second half, as `diurnal` determines. The mean is the
/// configured rate.
#[test]
fn the_rate_of_arrivals_varies_over_the_day() {
    let workload = Workload {
        requests_per_second: 2.0,
        diurnal: 0.5,
        ..Preset::Web.workload().scaled_to(400_000)
    };
    let all: Vec<Record> = records(workload, Seed(11)).collect();
    let in_day = |from: u64, to: u64| {
        let within = |secs: u64| (from..to).contains(&secs);
        all.iter().filter(|r| within(r.time.as_secs())).count() as f64
    };
    // The requests of the first half of the day, when the rate is above the mean, and of the second half, when it is
    // below.
    let (rising, falling) = (in_day(0, 43_200), in_day(43_200, 86_400));
    let rate = (rising + falling) / 86_400.0;
    assert!((rate / 2.0 - 1.0).abs() < 0.02, "{rate}");
    // In each half of the day, the deviation of the rate is a parabola of height 0.5 (`diurnal`). Its mean is two
    // thirds of the height, so the expected ratio is (1 + 1/3) / (1 - 1/3).
    assert!(
        (rising / falling - 2.0).abs() < 0.05,
        "{}",
        rising / falling
    );
}

#[test]
fn an_inconsistent_workload_is_refused_with_a_hint() {
    let base = || Preset::Web.workload();
    let refused =
        |workload: Workload| Generator::new(workload, Seed(0)).expect_err("the input is refused");
    let too_few = refused(Workload {
        requests: 1000,
        objects: 900,
        one_hit_share: 0.5,
        ..base()
    });
    assert_eq!(
        too_few,
        WorkloadError::TooFewRequests {
            requests: 1000,
            needed: 1350
        }
    );
    assert!(too_few.to_string().contains("fewer objects"), "{too_few}");
    for (workload, message_part) in [
        (
            Workload {
                one_hit_share: 1.5,
                ..base()
            },
            "one-hit share is 1.5",
        ),
        (
            Workload {
                churn: f64::NAN,
                ..base()
            },
            "churn is NaN",
        ),
        (
            Workload {
                one_hit_share: 1.0,
                ..base()
            },
            "one-hit wonder",
        ),
        (
            Workload {
                objects: 0,
                ..base()
            },
            "0 objects",
        ),
        (
            Workload {
                objects: 1 << 40,
                requests: 1 << 50,
                ..base()
            },
            "cannot be generated",
        ),
        (
            Workload {
                requests_per_second: 0.0,
                ..base()
            },
            "rate",
        ),
        (
            Workload {
                classes: Vec::new(),
                ..base()
            },
            "classes",
        ),
        (
            Workload {
                phases: Vec::new(),
                ..base()
            },
            "must begin at 0",
        ),
        (
            Workload {
                phases: vec![Phase {
                    from: 0.0,
                    weights: vec![1.0],
                }],
                ..base()
            },
            "weight for each class",
        ),
    ] {
        let message = refused(workload).to_string();
        assert!(message.contains(message_part), "{message}");
    }
    let all_once = Workload {
        requests: 500,
        objects: 500,
        one_hit_share: 1.0,
        ..base()
    };
    assert_eq!(summary(all_once, Seed(0)).one_hit_objects, 500);
}

fn records(workload: Workload, seed: Seed) -> Generator {
    Generator::new(workload, seed).expect("the workload is consistent")
}

fn summary(workload: Workload, seed: Seed) -> TraceSummary {
    let mut summary = Summary::default();
    records(workload, seed).for_each(|record| summary.add(&record));
    summary.finish()
}

/// Returns the FNV-1a hash of all fields of all records.
fn digest(records: impl Iterator<Item = Record>) -> u64 {
    records.fold(0xcbf2_9ce4_8422_2325, |digest, record| {
        [record.time.as_millis(), record.key, record.size]
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .fold(digest, |digest, byte| {
                (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
    })
}
