//! Ids that certainly do not exist: answered 404 here, without asking the origin.
//!
//! A rule maps paths such as `/resource/{id}` to a filter. The filter is asked last, when nothing is
//! stored for the URI and the request would go to the origin: a hit costs nothing more, and a stored
//! response always wins, for a fresh one may be used whatever a filter says and a stale one shows that
//! the id existed once, so that the origin is asked whether it still does. A filter that cannot be shown
//! to be fresh says nothing, and the request goes its way. So does one with `no-cache` (RFC 9111
//! §5.2.1.4) where clients' directives are honoured: who has just created something can see it.
//!
//! RFC 9211 §2 would rather have no `Cache-Status` on responses that a cache makes up. This one says
//! `hit; detail=id-filter`: the answer comes from what the origin's publisher stated and this node
//! keeps, and an operator who wonders about a 404 must see where it came from.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_semantics::{CacheStatus, Outcome};
use http::StatusCode;
use prometheus::proto::{MetricFamily, MetricType};

use crate::base::config::id_filter::{Judgement, NegativeRule};
use crate::base::metric_family::{counter, family, gauge, labelled};

/// All rules at work.
#[derive(Debug, Default)]
pub(crate) struct Negative {
    rules: Vec<Working>,
}

#[derive(Debug)]
struct Working {
    rule: NegativeRule,
    /// By several threads, on the way of misses only.
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    skipped: AtomicU64,
    passed: AtomicU64,
    not_ids: AtomicU64,
    unknown: AtomicU64,
    false_positives: AtomicU64,
}

/// What becomes of a request that nothing is stored for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// No rule speaks of it, or its filter says nothing.
    Forward,
    /// The filter said "maybe": the rule with this number wants to know what comes of it.
    Watch(usize),
    /// There is no such id.
    Absent,
}

impl Negative {
    pub(crate) fn new(rules: &[NegativeRule]) -> Self {
        let working = |rule: &NegativeRule| Working {
            rule: rule.clone(),
            counts: Counts::default(),
        };
        Self {
            rules: rules.iter().map(working).collect(),
        }
    }

    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The first rule whose pattern fits decides.
    pub(crate) fn advise(&self, path: &str) -> Advice {
        for (number, working) in self.rules.iter().enumerate() {
            let Some(id) = working.rule.pattern.id(path) else {
                continue;
            };
            let counts = &working.counts;
            let (counter, advice) = match working.rule.filter.judge(&id) {
                Judgement::Absent => (&counts.skipped, Advice::Absent),
                Judgement::Maybe => (&counts.passed, Advice::Watch(number)),
                Judgement::NotAnId => (&counts.not_ids, Advice::Forward),
                Judgement::Unknown => (&counts.unknown, Advice::Forward),
            };
            counter.fetch_add(1, Ordering::Relaxed);
            return advice;
        }
        Advice::Forward
    }

    /// What the origin said to a request that a filter had let pass.
    pub(crate) fn watch(&self, rule: usize, status: StatusCode) {
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            let counts = &self.rules[rule].counts;
            counts.false_positives.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is said of a 404 of ours.
    pub(crate) fn cache_status() -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Hit,
            fwd_status: None,
            ttl: None,
            stored: false,
            collapsed: false,
            detail: Some(Cow::Borrowed("id-filter")),
        }
    }

    pub(crate) fn metrics(&self) -> Vec<MetricFamily> {
        if self.rules.is_empty() {
            return Vec::new();
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let mut asked = Vec::new();
        let mut wrong = Vec::new();
        let mut gauges = [
            (
                "edgeward_negative_fresh",
                "Whether the filter answers: 1, or 0 while every request passes.",
            ),
            ("edgeward_negative_epoch", "Epoch of the filter in use."),
            ("edgeward_negative_ids", "Ids in the filter in use."),
            (
                "edgeward_negative_overlay_ids",
                "Ids added since it was built.",
            ),
            ("edgeward_negative_bytes", "Memory of the filter in use."),
        ]
        .map(|(name, help)| (name, help, Vec::new()));
        let mut refused = Vec::new();
        for Working { rule, counts } in &self.rules {
            let path = rule.pattern.to_string();
            for (answer, value) in [
                ("absent", read(&counts.skipped)),
                ("maybe", read(&counts.passed)),
                ("not-an-id", read(&counts.not_ids)),
                ("unknown", read(&counts.unknown)),
            ] {
                asked.push(labelled(
                    counter(value),
                    &[("path", &path), ("answer", answer)],
                ));
            }
            let label = [("path", path.as_str())];
            wrong.push(labelled(counter(read(&counts.false_positives)), &label));
            let facts = rule.filter.facts();
            refused.push(labelled(counter(facts.refused as f64), &label));
            let values = [
                u64::from(facts.fresh),
                facts.epoch,
                facts.ids,
                facts.overlay_ids,
                facts.bytes,
            ];
            for ((_, _, metrics), value) in gauges.iter_mut().zip(values) {
                metrics.push(labelled(gauge(value as f64), &label));
            }
        }
        let mut families = vec![
            family(
                "edgeward_negative_asked_total",
                "Requests whose id a filter was asked for, by its answer: absent ones were answered 404 here.",
                MetricType::COUNTER,
                asked,
            ),
            family(
                "edgeward_negative_false_positives_total",
                "Requests a filter let pass and the origin answered 404 or 410.",
                MetricType::COUNTER,
                wrong,
            ),
            family(
                "edgeward_negative_refused_total",
                "Manifests, snapshots and deltas that were refused.",
                MetricType::COUNTER,
                refused,
            ),
        ];
        let gauges = gauges
            .into_iter()
            .map(|(name, help, metrics)| family(name, help, MetricType::GAUGE, metrics));
        families.extend(gauges);
        families
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rules = self.rules.iter().map(|Working { rule, counts }| {
            let facts = rule.filter.facts();
            serde_json::json!({
                "path": rule.pattern.to_string(),
                "fresh": facts.fresh,
                "epoch": facts.epoch,
                "ids": facts.ids,
                "overlay_ids": facts.overlay_ids,
                "bytes": facts.bytes,
                "refused": facts.refused,
                "absent": read(&counts.skipped),
                "maybe": read(&counts.passed),
                "not_an_id": read(&counts.not_ids),
                "unknown": read(&counts.unknown),
                "false_positives": read(&counts.false_positives),
            })
        });
        rules.collect::<Vec<_>>().into()
    }
}
