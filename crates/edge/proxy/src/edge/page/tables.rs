//! The counters of each site and origin: their sums, and their growth within a window as JSON.

use std::collections::HashMap;
use std::sync::Arc;

use edgeward_semantics::NotStoredReason;
use serde_json::{Value, json};

use crate::config::OriginConfig;
use crate::edge::status;
use crate::observe::causes::MissCause;
use crate::observe::duration_histogram::BUCKETS;
use crate::observe::history::{Sums, growth, number, percentile};
use crate::observe::labels::Label as _;
use crate::observe::origin_counters::STATUS_CLASSES;
use crate::observe::site_counters::{FetchClass, OutcomeClass, STATUS_LABELS};
use crate::origin::{ServerReport, Servers};
use crate::path::worker::Shared;

/// Sums of counters since the start, by site and by origin.
#[derive(Debug, Default)]
pub(super) struct TableSums {
    sites: HashMap<Box<str>, SiteSums>,
    origins: HashMap<Box<str>, OriginSums>,
}

#[derive(Clone, Debug)]
struct SiteSums {
    requests: [u64; OutcomeClass::LABELS.len()],
    bytes: [u64; OutcomeClass::LABELS.len()],
    server_errors: u64,
    misses: [u64; MissCause::LABELS.len()],
    /// Indexed as [`NotStoredReason::ALL`].
    not_storable: [u64; NotStoredReason::ALL.len()],
    /// All durations.
    durations: [u64; BUCKETS],
    /// The times until the origin answered.
    waits: [u64; BUCKETS],
}

impl Default for SiteSums {
    fn default() -> Self {
        Self {
            requests: [0; _],
            bytes: [0; _],
            server_errors: 0,
            misses: [0; _],
            not_storable: [0; _],
            durations: [0; BUCKETS],
            waits: [0; BUCKETS],
        }
    }
}

#[derive(Clone, Debug, Default)]
struct OriginSums {
    responses: [u64; STATUS_CLASSES.len()],
    latency: [u64; BUCKETS],
}

impl TableSums {
    pub(super) fn of(shared: &Shared) -> Self {
        let labels = &shared.labels;
        let sites = labels.sites.all().into_iter().map(|(name, workers)| {
            let mut sums = SiteSums::default();
            for counters in workers.iter().flat_map(|workers| workers.iter()) {
                for (class, histogram) in counters.durations.iter().enumerate() {
                    let mut counts = [0; BUCKETS];
                    histogram.add_to(&mut counts);
                    sums.requests[class] += counts.iter().sum::<u64>();
                    let all = sums.durations.iter_mut().zip(counts);
                    all.for_each(|(sum, count)| *sum += count);
                    sums.bytes[class] += counters.body_bytes[class].value();
                }
                for fetch in 0..FetchClass::LABELS.len() {
                    counters.first_bytes[fetch].add_to(&mut sums.waits);
                }
                let reasons = sums.not_storable.iter_mut().zip(&counters.not_storable);
                reasons.for_each(|(sum, count)| *sum += count.value());
                let misses = sums.misses.iter_mut().zip(counters.misses.all());
                misses.for_each(|(sum, count)| *sum += count.value());
                let statuses = STATUS_LABELS.iter().zip(&counters.statuses);
                let failed = statuses.filter(|(label, _)| label.starts_with('5'));
                sums.server_errors += failed.map(|(_, count)| count.value()).sum::<u64>();
            }
            (name, sums)
        });
        let origins = labels.origins.all().into_iter().map(|(name, workers)| {
            let mut sums = OriginSums::default();
            for counters in workers.iter().flat_map(|workers| workers.iter()) {
                let all = sums.responses.iter_mut().zip(&counters.responses);
                all.for_each(|(sum, count)| *sum += count.value());
                counters.latency.add_to(&mut sums.latency);
            }
            (name, sums)
        });
        Self {
            sites: sites.collect(),
            origins: origins.collect(),
        }
    }

    /// Adds the sums of all sites and origins to `sums`.
    pub(super) fn add_to(&self, sums: &mut Sums) {
        for site in self.sites.values() {
            let add = |sum: &mut [u64], counts: &[u64]| {
                let all = sum.iter_mut().zip(counts);
                all.for_each(|(sum, count)| *sum += count);
            };
            add(&mut sums.requests, &site.requests);
            add(&mut sums.bytes, &site.bytes);
            add(&mut sums.durations, &site.durations);
        }
        for origin in self.origins.values() {
            let all = sums.latencies.iter_mut().zip(origin.latency);
            all.for_each(|(sum, count)| *sum += count);
        }
    }

    /// Returns the responses of all origins with a status 5xx.
    pub(super) fn failed_responses(&self) -> u64 {
        let origins = self.origins.values();
        origins.map(|origin| origin.responses[FAILED_CLASS]).sum()
    }

    /// Returns the growth since `before`, `seconds` ago, for each site that had a request, busiest first.
    pub(super) fn sites_json(&self, before: &Self, seconds: f64) -> Value {
        let mut rows: Vec<(u64, Value)> = Vec::new();
        for (name, now) in &self.sites {
            let none = SiteSums::default();
            let before = before.sites.get(name).unwrap_or(&none);
            let grown = |now: &[u64], before: &[u64]| -> Vec<u64> {
                let both = now.iter().zip(before);
                both.map(|(now, before)| now.saturating_sub(*before))
                    .collect()
            };
            let requests = grown(&now.requests, &before.requests);
            let bytes = grown(&now.bytes, &before.bytes);
            let total: u64 = requests.iter().sum();
            if total == 0 {
                continue;
            }
            let hits =
                |of: &[u64]| of[OutcomeClass::Hit as usize] + of[OutcomeClass::HitStale as usize];
            let all_bytes: u64 = bytes.iter().sum();
            let durations = growth(&before.durations, &now.durations);
            let waits = growth(&before.waits, &now.waits);
            let by_class = OutcomeClass::LABELS.iter().zip(&requests);
            let reasons = grown(&now.not_storable, &before.not_storable);
            let reasons = NotStoredReason::ALL.iter().zip(reasons);
            let reasons = reasons.filter(|(_, count)| *count > 0);
            let misses = MissCause::LABELS
                .iter()
                .zip(grown(&now.misses, &before.misses));
            let misses = misses.filter(|(_, count)| *count > 0);
            let failed = now.server_errors.saturating_sub(before.server_errors);
            let row = json!({
                "site": name,
                "requests": total,
                "requests_per_second": number(total as f64 / seconds),
                "by_outcome": by_class.map(|(label, n)| ((*label).to_owned(), json!(n)))
                    .collect::<serde_json::Map<_, _>>(),
                "misses_by_cause": misses.map(|(label, n)| ((*label).to_owned(), json!(n)))
                    .collect::<serde_json::Map<_, _>>(),
                // Fetched responses that may not be stored, by reason.
                "not_storable": reasons.map(|(reason, n)| (reason.as_str().to_owned(), json!(n)))
                    .collect::<serde_json::Map<_, _>>(),
                "hit_ratio": ratio(hits(&requests), total),
                "byte_hit_ratio": ratio(hits(&bytes), all_bytes),
                "bytes_per_second": number(all_bytes as f64 / seconds),
                "server_errors": failed,
                "client_p99_seconds": percentile(&durations, 0.99).map(number),
                "origin_p50_seconds": percentile(&waits, 0.5).map(number),
                "origin_p99_seconds": percentile(&waits, 0.99).map(number),
            });
            rows.push((total, row));
        }
        sorted(rows)
    }

    /// Returns the state of each origin, and its growth since `before`, `seconds` ago.
    pub(super) fn origins_json(&self, before: &Self, seconds: f64, shared: &Shared) -> Value {
        let origins = shared.config.origins.iter().zip(&shared.origins);
        let row = |(origin, servers): (&OriginConfig, &Arc<Servers>)| {
            let name = origin.name.as_str();
            let none = OriginSums::default();
            let now = self.origins.get(name).unwrap_or(&none);
            let before = before.origins.get(name).unwrap_or(&none);
            let latency = growth(&before.latency, &now.latency);
            let responses =
                |class: usize| now.responses[class].saturating_sub(before.responses[class]);
            let total: u64 = (0..STATUS_CLASSES.len()).map(responses).sum();
            json!({
                "origin": name,
                "url": origin.url().to_string(),
                // False if the last connections to all servers failed.
                "up": !servers.is_down(),
                "responses": total,
                "responses_per_second": number(total as f64 / seconds),
                "server_errors": responses(FAILED_CLASS),
                "p50_seconds": percentile(&latency, 0.5).map(number),
                "p90_seconds": percentile(&latency, 0.9).map(number),
                "p99_seconds": percentile(&latency, 0.99).map(number),
                "servers": servers.reports().iter().map(server).collect::<Value>(),
            })
        };
        origins.map(row).collect()
    }
}

fn server(report: &ServerReport) -> Value {
    use std::sync::atomic::Ordering::Relaxed;
    let mut server = status::server(report);
    server["failed_checks"] = report.server.failed_checks.load(Relaxed).into();
    server
}

/// Returns the rows with the largest numbers first.
pub(super) fn sorted(mut rows: Vec<(u64, Value)>) -> Value {
    rows.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    rows.truncate(ROWS_MAX);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The place of `5xx` in [`STATUS_CLASSES`].
pub(super) const FAILED_CLASS: usize = 4;
const _: () = assert!(STATUS_CLASSES[FAILED_CLASS].as_bytes()[0] == b'5');

/// The most rows of a table: a page with the sites of `metric_labels_max` would have megabytes each second.
const ROWS_MAX: usize = 200;

/// Returns a part of a whole, or null without a whole.
pub(super) fn ratio(part: u64, whole: u64) -> Value {
    match whole {
        0 => Value::Null,
        whole => number(part as f64 / whole as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_busiest_rows_up_to_a_bound() {
        for (rows, expected) in [(ROWS_MAX, ROWS_MAX), (ROWS_MAX + 1, ROWS_MAX)] {
            let all = (0..rows as u64).map(|n| (n, json!(n))).collect();
            let table = sorted(all);
            let table = table.as_array().expect("rows");
            assert_eq!(table.len(), expected);
            assert_eq!(table[0], rows - 1);
        }
    }
}
