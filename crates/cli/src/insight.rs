//! Connects the edge's samples of requests with their analysis in `live`.

pub(crate) mod faults;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edgeward_live::disk::{DiskPoint, DiskWhatIf, DiskWhatIfConfig};
use edgeward_live::faults::Faults;
use edgeward_live::top::{OneHitWonders, Top, TopUrl};
use edgeward_live::what_if::{Counts, Point, Report, Request, Totals, WhatIf, WhatIfConfig};
use edgeward_policy::log::Reinsertion;
use edgeward_policy::{DiskAdmissionSpec, PolicySpec};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::DiskConfig;
use edgeward_proxy::watch::{
    FinishedRequest, Progress, RequestedObject, Samples, Tally, Watcher, WatcherFacts, WhatIfPoint,
};
use edgeward_types::Timestamp;
use serde_json::{Value, json};

/// Returns the watcher of the requests, if the configuration asks for one.
pub(crate) fn watcher_of(config: &EdgeConfig) -> Option<Arc<dyn Watcher>> {
    if !config.watches_requests() {
        return None;
    }
    let memory_max = config.insight.memory_max(config.hot.capacity).bytes();
    let capacity = config.hot.capacity.bytes();
    Some(Arc::new(Insight::new(
        capacity,
        memory_max,
        config.disk.as_ref().map(PresentDisk::of),
    )))
}

/// The disk of the edge.
#[derive(Clone, Copy, Debug)]
struct PresentDisk {
    /// The capacity of all devices. `None` if one has the size of an existing file.
    capacity_bytes: Option<u64>,
    reinsertion: Reinsertion,
    admission: DiskAdmissionSpec,
}

impl PresentDisk {
    fn of(config: &DiskConfig) -> Self {
        let devices = config.settings.devices.iter();
        Self {
            capacity_bytes: devices.map(|it| it.capacity.map(|it| it.bytes())).sum(),
            reinsertion: config.settings.reinsertion,
            admission: config.admission,
        }
    }
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
    /// `None` without a disk of known size.
    disk_what_if: Option<DiskWhatIf>,
    top: Top,
    faults: Faults,
    wonders: OneHitWonders,
    /// One of so many requests has a text.
    texts_one_in: u32,
    /// The time of the last choice of `texts_one_in`, and the number of requests then.
    second: (Timestamp, u64),
    progress: Progress,
    /// The time of the last change of the policy.
    policy_since: Timestamp,
    disk: Option<PresentDisk>,
}

impl Insight {
    fn new(capacity_bytes: u64, memory_max_bytes: u64, disk: Option<PresentDisk>) -> Self {
        let top_bytes = memory_max_bytes / TOP_PART;
        let disk_capacity_bytes = disk.and_then(|disk| disk.capacity_bytes);
        let disk_part = disk_capacity_bytes.map_or(0, |_| memory_max_bytes / DISK_PART);
        let what_if = WhatIf::new(WhatIfConfig {
            capacity_bytes,
            memory_max_bytes: memory_max_bytes - top_bytes - disk_part,
            samples_per_second_max: SAMPLES_PER_SECOND_MAX,
        });
        let seed = RandomState::new().hash_one(0);
        Self {
            memory_max_bytes,
            state: Mutex::new(State {
                disk_what_if: disk.zip(disk_capacity_bytes).map(|(disk, bytes)| {
                    let config = DiskWhatIfConfig {
                        capacity_bytes: bytes,
                        reinsertion: disk.reinsertion,
                        memory_capacity_bytes: capacity_bytes,
                        memory_max_bytes: disk_part,
                    };
                    DiskWhatIf::new(config, PolicySpec::default(), what_if.sample())
                }),
                what_if,
                top: Top::new(top_bytes * 3 / 8, seed),
                faults: Faults::new(top_bytes / 2, seed),
                wonders: OneHitWonders::new(KEYS_MAX),
                texts_one_in: 1,
                second: (Timestamp::ZERO, 0),
                progress: Progress::default(),
                policy_since: Timestamp::ZERO,
                disk,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a request for the lists of URLs, for the caching faults and for the share of one-hit wonders.
    fn count(&mut self, seen: &FinishedRequest) {
        if let Some(text) = &seen.text {
            let url = format!("{}{}", text.host, text.target);
            let is_miss = matches!(seen.class, "miss" | "pass");
            let weight = self.texts_one_in;
            self.top
                .observe(seen.at, &url, seen.body_bytes, is_miss, weight);
            self.faults.observe(&faults::observed(seen, text, weight));
        }
        if let Some(object) = seen.object.filter(|_| seen.is_key_sample) {
            self.wonders.observe(object.key);
        }
    }

    /// Chooses the part of the requests that have a text, so that there are about [`TEXTS_PER_SECOND`].
    fn choose_texts(&mut self, progress: &Progress) {
        let (at, requests) = self.second;
        let seconds = progress.at.since(at).as_secs();
        let ended = progress.of_objects.requests + progress.others.requests;
        let new = ended.saturating_sub(requests);
        if let Some(rate) = new.checked_div(seconds) {
            let one_in = rate.div_ceil(TEXTS_PER_SECOND).max(1);
            self.texts_one_in = u32::try_from(one_in).unwrap_or(u32::MAX);
            self.second = (progress.at, ended);
        }
    }

    fn top(&self) -> Value {
        if self.top.observed() == 0 {
            return Value::Null;
        }
        let [requests, bytes, misses] = self.top.lists(LISTED_MAX);
        let ratios = self.wonders.ratios();
        json!({
            "sampled": self.top.observed(),
            "requests": urls(requests),
            "bytes": urls(bytes),
            "misses": urls(misses),
            "one_hit_wonder_ratio": ratios.map(|(of_keys, _)| of_keys),
            "one_hit_wonder_request_ratio": ratios.map(|(_, of_requests)| of_requests),
        })
    }

    fn faults(&self) -> Value {
        if self.top.observed() == 0 {
            return Value::Null;
        }
        json!({
            "sampled": self.top.observed(),
            // With more than 1 the shares of hits are too low, because the sample lacks earlier requests.
            "texts_one_in": self.texts_one_in,
            // Above 0 the memory of excluded rules is nearly full, and hides so many of the other findings.
            "withheld_ratio": self.faults.withheld_ratio(),
            "findings": faults::json_of(&self.faults.findings()),
        })
    }

    /// Returns the predictions. `None` before the first request.
    fn prediction(&self) -> Option<Report> {
        let now = self.progress.at;
        let is_constant = now.since(self.policy_since) >= WINDOW;
        let present = self.progress.policy.parse().ok();
        let present = present.filter(|_| is_constant && self.disk.is_none());
        self.what_if.report(now, present)
    }

    fn points(&self) -> Vec<Point> {
        let report = self.prediction();
        report.map(|report| report.points).unwrap_or_default()
    }

    fn disk_points(&self) -> Vec<DiskPoint> {
        let what_if = self.disk_what_if.as_ref();
        let present = self.disk.map(|disk| disk.admission);
        let report = what_if.and_then(|what_if| what_if.report(self.progress.at, present));
        report.map(|(_, points)| points).unwrap_or_default()
    }

    fn disk_json(&self) -> Value {
        let Some(what_if) = &self.disk_what_if else {
            return Value::Null;
        };
        let present = self.disk.map(|disk| disk.admission);
        let report = what_if.report(self.progress.at, present);
        let (samples, points) = report.unwrap_or_default();
        let points = points.iter().map(|point| {
            json!({
                "admission": point.admission.to_string(),
                "size": point.size,
                "capacity_bytes": point.capacity_bytes,
                "present": point.size == "1" && Some(point.admission) == present,
                "hit_ratio": point.estimate.hit_ratio,
                "hit_ratio_error": point.estimate.hit_ratio_error,
                "byte_hit_ratio": point.estimate.byte_hit_ratio,
                "origin_bytes_per_second": point.estimate.origin_bytes_per_second,
                "disk_bytes_per_second": point.disk_bytes_per_second,
                "filling": point.is_filling,
            })
        });
        json!({
            "requests_sampled": samples,
            "sampled_share": what_if.sampled_share(),
            "points": points.collect::<Vec<_>>(),
        })
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
                // True: the simulated cache has never been full, so the hit ratio is a lower bound.
                "filling": point.is_filling,
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
            // True: the sample has few objects, so the errors are larger than stated.
            "uncertain": report.as_ref().is_some_and(|report| report.is_uncertain),
            // The factors of the estimated misses, from the measured ones. 1 if the policy has just changed or a disk
            // exists.
            "calibration": report.as_ref().map(|report| report.calibration.requests),
            "byte_calibration": report.as_ref().map(|report| report.calibration.bytes),
            "points": points.collect::<Vec<_>>(),
            "disk": self.disk_json(),
        })
    }
}

impl Watcher for Insight {
    fn observe(&self, batch: &mut Vec<FinishedRequest>, progress: &Progress) {
        let mut state = self.state();
        for seen in batch.drain(..) {
            state.count(&seen);
            if let Some(object) = seen.object.filter(|_| seen.is_key_sample) {
                let request = request_of(&seen, &object);
                state.what_if.request(&request);
                if let Some(disk) = &mut state.disk_what_if {
                    disk.request(&request);
                }
            }
        }
        let totals = Totals {
            of_objects: counts(&progress.of_objects),
            others: counts(&progress.others),
            lost: progress.lost,
        };
        state.what_if.count(progress.at, &totals);
        let sample = state.what_if.sample();
        if let Some(disk) = &mut state.disk_what_if {
            disk.count(progress.at, &totals);
            disk.follow(progress.policy.parse().unwrap_or_default(), sample);
        }
        if state.progress.policy != progress.policy && !state.progress.policy.is_empty() {
            state.policy_since = progress.at;
        }
        state.wonders.limit(sample);
        state.choose_texts(progress);
        state.progress.clone_from(progress);
    }

    fn samples(&self) -> Samples {
        let state = self.state();
        Samples {
            keys: state.what_if.sample(),
            texts_one_in: state.texts_one_in,
        }
    }

    fn report(&self) -> Value {
        let state = self.state();
        json!({ "what_if": state.report(), "top": state.top(), "faults": state.faults() })
    }

    fn facts(&self) -> WatcherFacts {
        let state = self.state();
        let of_disk = state.disk_points().into_iter().map(disk_point);
        let points = state.points().into_iter().map(what_if_point);
        let disk_memory = state
            .disk_what_if
            .as_ref()
            .map_or(0, DiskWhatIf::memory_bytes);
        WatcherFacts {
            samples: state.what_if.samples(),
            sampled_share: state.what_if.sample().share(),
            lost: state.progress.lost,
            memory_bytes: state.what_if.memory_bytes()
                + disk_memory
                + state.top.memory_bytes()
                + state.faults.memory_bytes()
                + state.wonders.memory_bytes(),
            memory_max_bytes: self.memory_max_bytes,
            faults_withheld_ratio: state.faults.withheld_ratio(),
            points: points.chain(of_disk).collect(),
        }
    }
}

fn request_of(seen: &FinishedRequest, object: &RequestedObject) -> Request {
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
        tier: "memory",
        policy: point.policy.to_string(),
        size: point.size,
        hit_ratio: point.hit_ratio,
        byte_hit_ratio: point.byte_hit_ratio,
    }
}

/// Returns the metrics of a disk. Their label `policy` has had this form since before the label `tier`.
fn disk_point(point: DiskPoint) -> WhatIfPoint {
    WhatIfPoint {
        tier: "disk",
        policy: format!("disk:{}", point.admission),
        size: point.size,
        hit_ratio: point.estimate.hit_ratio,
        byte_hit_ratio: point.estimate.byte_hit_ratio,
    }
}

fn urls(urls: Vec<TopUrl>) -> Value {
    let rows = urls.into_iter().map(|url| {
        json!({
            "url": url.url,
            "requests": url.requests.round() as u64,
            "bytes": url.bytes.round() as u64,
            "misses": url.misses.round() as u64,
        })
    });
    rows.collect()
}

/// The window of predictions.
const WINDOW: Duration = Duration::from_secs(3600);

/// The most requests of the sample in a second. The caches take about 2 µs for each, so 0.8 % of a core.
const SAMPLES_PER_SECOND_MAX: u64 = 4000;

/// The part of the memory that the lists of URLs, the search for caching faults and the sample of one-hit wonders may
/// take: one of so many.
const TOP_PART: u64 = 8;

/// The part of the memory that the simulated disks may take, if the edge has a disk: one of so many.
const DISK_PART: u64 = 4;

/// The most keys that are followed for the share of one-hit wonders. A key takes about 20 bytes.
const KEYS_MAX: usize = 4096;

/// The number of requests per second whose texts are sampled. A text costs about 2 µs.
const TEXTS_PER_SECOND: u64 = 500;

/// The number of URLs in a list.
const LISTED_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use edgeward_proxy::watch::SampledText;
    use edgeward_types::{KeyHash, mix64};

    use super::*;

    fn seen(at: Timestamp, path: &str, key: Option<u64>) -> FinishedRequest {
        let object = key.map(|key| RequestedObject {
            key: KeyHash(mix64(key)),
            charge_bytes: 1000,
            length: 500,
            lifetime: Duration::from_secs(60),
            stale_while_revalidate: Duration::ZERO,
            has_validator: false,
        });
        let text = SampledText::new("shop.example", path, None);
        FinishedRequest {
            at,
            object,
            is_key_sample: object.is_some(),
            outcome: "uri-miss",
            class: "miss",
            status: 200,
            body_bytes: 500,
            duration: Duration::from_millis(1),
            text: Some(text),
        }
    }

    fn progress(at: Timestamp, requests: u64) -> Progress {
        let of_objects = Tally {
            requests,
            ..Tally::default()
        };
        Progress {
            at,
            of_objects,
            ..Progress::default()
        }
    }

    /// Method: 100 requests in the first second, and 100,000 in the second one. One request in 200 has a text.
    #[test]
    fn the_urls_of_busy_edges_are_sampled_and_their_counts_scaled() {
        let insight = Insight::new(1 << 30, 8 << 20, None);
        assert_eq!(insight.report()["top"], Value::Null);
        let at = |seconds| Timestamp::ZERO.after(Duration::from_secs(seconds));
        let mut batch: Vec<FinishedRequest> = (0..100).map(|_| seen(at(1), "/a", None)).collect();
        insight.observe(&mut batch, &progress(at(1), 100));
        assert_eq!(insight.samples().texts_one_in, 1);
        insight.observe(&mut batch, &progress(at(2), 100_100));
        assert_eq!(insight.samples().texts_one_in, 200);
        batch.extend((0..10).map(|_| seen(at(3), "/b", None)));
        insight.observe(&mut batch, &progress(at(3), 100_110));
        assert_eq!(insight.samples().texts_one_in, 1);
        let top = &insight.report()["top"];
        assert_eq!(top["sampled"], 110);
        let urls = [&top["requests"][0], &top["requests"][1]];
        assert_eq!(urls[0]["url"], "shop.example/b");
        assert_eq!(urls[0]["requests"], 2000);
        assert_eq!(urls[0]["misses"], 2000);
        assert_eq!(urls[1]["requests"], 100);
        assert_eq!(urls[1]["bytes"], 50_000);
    }

    /// Method: 2,000 objects in turn, which the disk has room for and memory has not, with the least memory.
    #[test]
    fn an_edge_with_a_disk_predicts_its_sizes_and_rules() {
        let disk = PresentDisk {
            capacity_bytes: Some(1 << 30),
            reinsertion: Reinsertion::Never,
            admission: DiskAdmissionSpec::SecondHit,
        };
        let insight = Insight::new(64 << 20, 8 << 20, Some(disk));
        assert_eq!(insight.report()["what_if"]["disk"]["points"], json!([]));
        for round in 0..5 {
            let mut batch: Vec<FinishedRequest> = (0..2000)
                .map(|key| {
                    let mut seen = seen(Timestamp::ZERO, "/", Some(key));
                    seen.object = seen.object.map(|object| RequestedObject {
                        charge_bytes: 100_000,
                        length: 99_000,
                        ..object
                    });
                    seen
                })
                .collect();
            let mut progress = progress(Timestamp::ZERO, 2000 * (round + 1));
            progress.of_objects.hits = 2000 * round.saturating_sub(1);
            insight.observe(&mut batch, &progress);
        }
        let disk = &insight.report()["what_if"]["disk"];
        let points = disk["points"].as_array().expect("points");
        assert_eq!(points.len(), 10);
        let present: Vec<_> = points.iter().filter(|it| it["present"] == true).collect();
        assert_eq!(present.len(), 1, "{points:?}");
        assert_eq!(present[0]["admission"], "second-hit");
        assert_eq!(present[0]["capacity_bytes"], 1 << 30);
        // The first two rounds of five write the disk.
        let hit_ratio = present[0]["hit_ratio"].as_f64().expect("a number");
        assert!((0.55..0.65).contains(&hit_ratio), "{hit_ratio}");
        let facts = insight.facts();
        let count = |tier, policy: &str| {
            let points = facts.points.iter();
            let points = points.filter(|it| it.tier == tier && it.policy == policy);
            points.count()
        };
        assert_eq!(count("disk", "disk:second-hit"), 5);
        assert_eq!(count("memory", "density"), 5);
        // A query for the present size of memory must not have the disk too.
        let is_present = |it: &&WhatIfPoint| it.tier == "memory" && it.size == "1";
        assert_eq!(facts.points.iter().filter(is_present).count(), 3);
        assert!(facts.memory_bytes <= facts.memory_max_bytes, "{facts:?}");
    }

    /// Method: 1,000 keys. Every second key has two requests, and the others have one.
    #[test]
    fn the_report_has_the_share_of_one_hit_wonders() {
        let insight = Insight::new(1 << 20, 6 << 20, None); // all keys, and the least memory
        let keys = (0..1000).chain((0..1000).step_by(2));
        let mut batch: Vec<FinishedRequest> = keys
            .map(|key| seen(Timestamp::ZERO, "/", Some(key)))
            .collect();
        insight.observe(&mut batch, &progress(Timestamp::ZERO, 1500));
        let top = &insight.report()["top"];
        assert_eq!(top["one_hit_wonder_ratio"], 0.5);
        assert_eq!(top["one_hit_wonder_request_ratio"], 500.0 / 1500.0);
        let facts = insight.facts();
        assert!(facts.memory_bytes <= facts.memory_max_bytes, "{facts:?}");
    }
}
