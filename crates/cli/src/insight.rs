//! Connects the edge's samples of requests with their analysis in `live`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edgeward_live::what_if::{Counts, Point, Report, Request, Totals, WhatIf, WhatIfConfig};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::watch::{
    FinishedRequest, Progress, Samples, SeenObject, Tally, Watcher, WatcherFacts, WhatIfPoint,
};
use edgeward_types::Timestamp;
use serde_json::{Value, json};

/// Returns the watcher of the requests, if the configuration asks for one.
pub(crate) fn watcher_of(config: &EdgeConfig) -> Option<Arc<dyn Watcher>> {
    if !config.watches_requests() {
        return None;
    }
    let memory_max = config.insight.memory_max(config.hot.capacity);
    let what_if = WhatIf::new(WhatIfConfig {
        capacity_bytes: config.hot.capacity.bytes(),
        memory_max_bytes: memory_max.bytes(),
        samples_per_second_max: SAMPLES_PER_SECOND_MAX,
    });
    Some(Arc::new(Insight {
        memory_max_bytes: memory_max.bytes(),
        state: Mutex::new(State {
            what_if,
            progress: Progress::default(),
            policy_since: Timestamp::ZERO,
            has_disk: config.disk.is_some(),
        }),
    }))
}

/// The analysis of the requests of an edge.
#[derive(Debug)]
struct Insight {
    memory_max_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    what_if: WhatIf,
    progress: Progress,
    /// The time of the last change of the policy.
    policy_since: Timestamp,
    has_disk: bool,
}

impl Insight {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the predictions. `None` before the first request.
    fn prediction(&self) -> Option<Report> {
        let now = self.progress.at;
        let is_constant = now.since(self.policy_since) >= WINDOW;
        let present = self.progress.policy.parse().ok();
        let present = present.filter(|_| is_constant && !self.has_disk);
        self.what_if.report(now, present)
    }

    fn points(&self) -> Vec<Point> {
        let report = self.prediction();
        report.map(|report| report.points).unwrap_or_default()
    }

    /// Returns true if a prediction is for the present policy and size.
    fn is_present(&self, point: &Point) -> bool {
        point.size == "1" && point.policy.to_string() == self.progress.policy
    }

    fn report(&self) -> Value {
        let now = self.progress.at;
        let report = self.prediction();
        let all = report.as_ref().map(|report| report.all).unwrap_or_default();
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let points = report.iter().flat_map(|report| &report.points);
        let points = points.map(|point| {
            json!({
                "policy": point.policy.to_string(),
                "size": point.size,
                "capacity_bytes": point.capacity_bytes,
                "present": self.is_present(point),
                "hit_ratio": point.hit_ratio,
                "hit_ratio_error": point.hit_ratio_error,
                "byte_hit_ratio": point.byte_hit_ratio,
                "origin_bytes_per_second": point.origin_bytes_per_second,
            })
        });
        json!({
            "policy": self.progress.policy,
            "capacity_bytes": self.progress.hot_capacity_bytes,
            // The window of all other values. `null` before the first request.
            "window_seconds": report.as_ref().map(|report| now.since(report.since).as_secs()),
            "requests": all.requests,
            "hit_ratio": ratio(all.hits, all.requests),
            "byte_hit_ratio": ratio(all.hit_bytes, all.bytes),
            "requests_sampled": report.as_ref().map_or(0, |report| report.samples),
            "sampled_share": self.what_if.sample().share(),
            "samples_lost": report.as_ref().map_or(0, |report| report.lost),
            // True: many samples are lost, so the predictions are too high. They are not corrected.
            "incomplete": report.as_ref().is_some_and(Report::is_incomplete),
            // The factors of the estimated misses, from the measured ones. 1 if the policy has just changed or a disk
            // exists.
            "calibration": report.as_ref().map(|report| report.calibration.requests),
            "byte_calibration": report.as_ref().map(|report| report.calibration.bytes),
            "points": points.collect::<Vec<_>>(),
        })
    }
}

impl Watcher for Insight {
    fn observe(&self, batch: &mut Vec<FinishedRequest>, progress: &Progress) {
        let mut state = self.state();
        for seen in batch.drain(..) {
            if let Some(object) = seen.object.filter(|_| seen.is_key_sample) {
                state.what_if.request(&request_of(&seen, &object));
            }
        }
        let totals = Totals {
            of_objects: counts(&progress.of_objects),
            others: counts(&progress.others),
            lost: progress.lost,
        };
        state.what_if.count(progress.at, &totals);
        if state.progress.policy != progress.policy && !state.progress.policy.is_empty() {
            state.policy_since = progress.at;
        }
        state.progress.clone_from(progress);
    }

    fn samples(&self) -> Samples {
        Samples {
            keys: self.state().what_if.sample(),
            texts_one_in: 0,
        }
    }

    fn report(&self) -> Value {
        json!({ "what_if": self.state().report() })
    }

    fn facts(&self) -> WatcherFacts {
        let state = self.state();
        let points = state.points().into_iter();
        WatcherFacts {
            samples: state.what_if.samples(),
            sampled_share: state.what_if.sample().share(),
            lost: state.progress.lost,
            memory_bytes: state.what_if.memory_bytes(),
            memory_max_bytes: self.memory_max_bytes,
            points: points.map(what_if_point).collect(),
        }
    }
}

fn request_of(seen: &FinishedRequest, object: &SeenObject) -> Request {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Request {
        at: seen.at,
        key: object.key,
        charge_bytes: object.charge_bytes,
        length: object.length,
        sent_bytes: seen.body_bytes,
        lifetime_ms: millis(object.lifetime),
        stale_while_revalidate_ms: millis(object.stale_while_revalidate),
        has_validator: object.has_validator,
    }
}

fn counts(tally: &Tally) -> Counts {
    Counts {
        requests: tally.requests,
        hits: tally.hits,
        bytes: tally.bytes,
        hit_bytes: tally.hit_bytes,
    }
}

fn what_if_point(point: Point) -> WhatIfPoint {
    WhatIfPoint {
        policy: point.policy.to_string(),
        size: point.size,
        hit_ratio: point.hit_ratio,
        byte_hit_ratio: point.byte_hit_ratio,
    }
}

/// The window of predictions.
const WINDOW: Duration = Duration::from_secs(3600);

/// The most requests of the sample in a second. The caches take about 2 µs for each, so 0.8 % of a core.
const SAMPLES_PER_SECOND_MAX: u64 = 4000;
