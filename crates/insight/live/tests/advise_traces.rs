//! The setting that is recommended for a log is near the best of all settings, by complete simulations. The traces are
//! in the folder `shared/traces` beside the checkout. A test without its traces is skipped.

use std::fs::File;
use std::path::Path;

use edgeward_live::advise::{NEAR_BEST, recommended};
use edgeward_live::study::{LoggedRequest, OVERHEAD_BYTES, Study, Survey, WARMUP_PART};
use edgeward_policy::PolicySpec;
use edgeward_sim::{Run, RunConfig};
use edgeward_trace::{ReadOptions, Record, open};
use edgeward_types::Seed;

/// Method: the study of a trace with a bounded memory, so that it follows a part of the objects, and complete
/// simulations of each setting that it tries.
#[test]
fn the_recommended_setting_is_within_a_point_of_the_best_of_all() {
    for trace in ["akamai-w-web", "akamai-tc0-download", "akamai-v-video"] {
        let Some(records) = records(&format!("{trace}.tr.zst"), 100_000) else {
            continue;
        };
        let requests = || {
            records.iter().map(|record| LoggedRequest {
                at: record.time,
                key: record.key,
                size: record.size,
            })
        };
        let mut survey = Survey::default();
        requests().for_each(|request| survey.add(&request));
        let capacity_bytes = survey.capacity_bytes();
        let policy = PolicySpec::default();
        let mut study = Study::new(&survey, capacity_bytes, policy, None, 16 << 20);
        requests().for_each(|request| study.request(&request));
        let settings = study.finish(false).settings;
        assert_eq!(settings.len(), 15);
        let hits = |policy: &str, capacity_bytes| {
            let mut run = Run::new(RunConfig {
                policy: policy.parse().expect("a policy"),
                capacity_bytes,
                warmup_requests: records.len() as u64 / WARMUP_PART,
                object_overhead_bytes: OVERHEAD_BYTES,
                seed: Seed(1),
                window_requests: None,
                interval_requests: u64::MAX,
            });
            run.feed(&records);
            run.report().object_hit_ratio
        };
        let all = settings
            .iter()
            .map(|it| hits(&it.policy, it.capacity_bytes));
        let best = all.reduce(f64::max).expect("settings");
        let recommended = recommended(&settings).expect("settings");
        let reached = hits(&recommended.policy, recommended.capacity_bytes);
        let predicted = recommended.hit_ratio;
        eprintln!("{trace}: {recommended:?} reaches {reached:.4} of {best:.4}");
        // The prediction has an error, too.
        assert!(
            reached >= best - NEAR_BEST - 0.005,
            "{trace}: {reached} of {best}"
        );
        assert!(
            (predicted - reached).abs() < 0.02,
            "{trace}: {recommended:?} {reached}"
        );
    }
}

fn records(file: &str, requests_max: usize) -> Option<Vec<Record>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../..");
    let path = root.join("shared/traces").join(file);
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
        return None;
    }
    let file = File::open(&path).expect("the trace can be opened");
    let mut reader = open(file, ReadOptions::default()).expect("a trace");
    let mut records = Vec::new();
    while records.len() < requests_max {
        let Some(batch) = reader.next_batch().expect("the input is valid") else {
            break;
        };
        records.extend_from_slice(batch);
    }
    records.truncate(requests_max);
    Some(records)
}
