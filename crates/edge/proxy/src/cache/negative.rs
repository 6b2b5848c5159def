//! Negative rules: the edge answers requests for ids that do not exist with 404, without asking the origin.
//!
//! A rule maps paths such as `/resource/{id}` to a filter. The filter is queried only if no response is stored for the
//! target, so it adds no cost to a hit. A stored response takes precedence: a fresh response may be used, and a stale
//! response shows that the id existed, so the origin validates the response. A filter that may be outdated is not used.
//! If clients' directives are honoured, no filter is used for a request with `no-cache` (RFC 9111 §5.2.1.4), so that a
//! client can read a resource that it has just created.
//!
//! RFC 9211 §2 advises against `Cache-Status` on responses that a cache generates. The edge sends `hit;
//! detail=id-filter`, because the answer comes from stored data, and an operator must find the source of a 404.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_metrics::{Family, metrics};
use edgeward_semantics::{CacheStatus, Outcome};
use edgeward_sites::IdFilters;
use http::StatusCode;

use crate::config::id_filter::{FilterFacts, Judgement, NegativeRule};

/// All rules, each with the counts of its filter's answers.
#[derive(Debug, Default)]
pub(crate) struct Negative {
    rules: Vec<CountedRule>,
}

#[derive(Debug)]
struct CountedRule {
    rule: NegativeRule,
    /// The filter's answers. All workers share the counts: hits do not increment them, so threads rarely contend.
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    absent: AtomicU64,
    maybe: AtomicU64,
    not_ids: AtomicU64, // the text does not have the form of an id
    unknown: AtomicU64, // no filter is loaded, or the filter may be outdated
    false_positives: AtomicU64,
}

/// The decision about a request for which no response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// No rule applies, the path does not contain an id of the rule's form, or the filter has no answer.
    Forward,
    /// The id may exist. The request is forwarded. The rule with this index counts a 404 or 410 of the origin.
    Watch(usize),
    /// The id does not exist.
    Absent,
}

/// The state of one rule for metrics and status.
pub(crate) struct RuleReport {
    path: String,
    facts: FilterFacts,
    absent: u64,
    maybe: u64,
    not_ids: u64,
    unknown: u64,
    false_positives: u64,
}

metrics! {
    /// The metrics of a rule.
    pub(crate) const METRICS: RuleReport ["path"] = |rule| {
        Counter "edgeward_negative_asked_total"
            "Requests whose id was looked up in a filter, by the filter's answer; the edge answers 404 for `absent`."
            ["answer":
            "absent" = rule.absent,
            "maybe" = rule.maybe,
            "not-an-id" = rule.not_ids,
            "unknown" = rule.unknown,
        ]
        Counter "edgeward_negative_false_positives_total"
            "Requests that the filter answered with `maybe` and the origin with 404 or 410." { rule.false_positives }
        Counter "edgeward_negative_refused_total"
            "Manifests, snapshots and deltas that were refused." { rule.facts.refused }
        Gauge "edgeward_negative_fresh"
            "1 if the filter answers, 0 while the edge forwards requests for all ids." { u8::from(rule.facts.fresh) }
        Gauge "edgeward_negative_epoch" "Epoch of the filter in use." { rule.facts.epoch }
        Gauge "edgeward_negative_ids" "Ids in the filter in use." { rule.facts.ids }
        Gauge "edgeward_negative_overlay_ids" "Ids added since the filter was built." { rule.facts.overlay_ids }
        Gauge "edgeward_negative_bytes" "Bytes of memory of the filter in use." { rule.facts.bytes }
    }
}

impl Negative {
    pub(crate) fn new(rules: &[NegativeRule]) -> Self {
        let counted = |rule: &NegativeRule| CountedRule {
            rule: rule.clone(),
            counts: Counts::default(),
        };
        Self {
            rules: rules.iter().map(counted).collect(),
        }
    }

    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the decision of the first rule of these filters whose pattern matches.
    pub(crate) fn advise(&self, path: &str, filters: &IdFilters) -> Advice {
        let Some((number, judgement)) = self.judge(path, filters) else {
            return Advice::Forward;
        };
        let counts = &self.rules[number].counts;
        let (counter, advice) = match judgement {
            Judgement::Absent => (&counts.absent, Advice::Absent),
            Judgement::Maybe => (&counts.maybe, Advice::Watch(number)),
            Judgement::NotAnId => (&counts.not_ids, Advice::Forward),
            Judgement::Unknown => (&counts.unknown, Advice::Forward),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        advice
    }

    /// Returns true if [`advise`](Self::advise) would return [`Advice::Absent`]. Counts nothing.
    pub(crate) fn is_absent(&self, path: &str, filters: &IdFilters) -> bool {
        matches!(self.judge(path, filters), Some((_, Judgement::Absent)))
    }

    /// Returns the index of the first rule of these filters whose pattern matches, and the answer of its filter.
    fn judge(&self, path: &str, filters: &IdFilters) -> Option<(usize, Judgement)> {
        self.rules.iter().enumerate().find_map(|(number, rule)| {
            if !filters.include(rule.rule.name.as_deref()) {
                return None;
            }
            let id = rule.rule.pattern.id(path)?;
            Some((number, rule.rule.filter.judge(&id)))
        })
    }

    /// Counts a false positive if `status` shows that an id does not exist although the filter answered *maybe*.
    pub(crate) fn watch(&self, rule: usize, status: StatusCode) {
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            let counts = &self.rules[rule].counts;
            counts.false_positives.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the `Cache-Status` of a 404 from a filter.
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

    pub(crate) fn metrics(&self) -> Vec<Family> {
        let rules: Vec<_> = self.reports().collect();
        let rows = rules.iter().map(|rule| (vec![rule.path.as_str()], rule));
        METRICS.families(&rows.collect::<Vec<_>>())
    }

    fn reports(&self) -> impl Iterator<Item = RuleReport> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.rules
            .iter()
            .map(move |CountedRule { rule, counts }| RuleReport {
                path: rule.pattern.to_string(),
                facts: rule.filter.facts(),
                absent: read(&counts.absent),
                maybe: read(&counts.maybe),
                not_ids: read(&counts.not_ids),
                unknown: read(&counts.unknown),
                false_positives: read(&counts.false_positives),
            })
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let rules = self.reports().map(|rule| {
            let facts = &rule.facts;
            serde_json::json!({
                "path": rule.path,
                "fresh": facts.fresh,
                "epoch": facts.epoch,
                "ids": facts.ids,
                "overlay_ids": facts.overlay_ids,
                "bytes": facts.bytes,
                "refused": facts.refused,
                "absent": rule.absent,
                "maybe": rule.maybe,
                "not_an_id": rule.not_ids,
                "unknown": rule.unknown,
                "false_positives": rule.false_positives,
            })
        });
        rules.collect::<Vec<_>>().into()
    }
}
