//! Names on demand: added when a client first asks for them, if the operator's program allows it and the limits admit
//! it.
//!
//! Anyone can ask for any name, so each name passes these checks: it is a host name; its last order has not just
//! failed; the program has not just refused it; and neither the names under way, nor all names, nor the new names of
//! the last hour, nor the queries of the last minute have reached their limit. Then the program is queried.
//!
//! A name without a usable certificate is dropped at its first failure, and a client may ask for it again after the
//! back-off. Names of strangers therefore cause no repeated orders, and the names on demand cannot fill with them.

use std::collections::{BTreeSet, VecDeque};

use super::{Scheduler, abandon};
use crate::backoff::Failure;
use crate::name::Name;
use crate::plan::NamePlan;
use crate::reading::Reading;

/// The decision about a name for which a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Ask the operator's program, then call [`Scheduler::on_answer`].
    Query,
    /// The name is under way. Its certificate may soon be there.
    Wait,
    /// The client gets no certificate.
    Refuse(DemandOutcome),
}

/// The answer of the operator's program about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name may have a certificate.
    Allowed,
    /// The name must not have one.
    Refused,
    /// The program could not be reached, or has an error of its own.
    Missing,
}

/// The result of a handshake for a name that had no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandOutcome {
    /// A certificate was issued while the client waited.
    Issued,
    /// The certificate was not issued in time.
    Timeout,
    /// The text is not a host name for which an issuer could have a certificate.
    Invalid,
    /// The program refuses the name.
    Refused,
    /// The program did not answer.
    Unanswered,
    /// The order failed, or an earlier one has failed and its back-off has not ended.
    Failed,
    /// A limit of orders is reached, or the issuer has failed and its back-off has not ended.
    Deferred,
    /// Too many names are under way, or too many clients wait.
    PendingLimit,
    /// Too many names are on demand.
    NamesLimit,
    /// Too many names were added in the last hour.
    RateLimit,
    /// The program was queried too often in the last minute, or is being queried about too many names.
    QueryLimit,
    /// Another process orders certificates.
    NoLease,
}

impl DemandOutcome {
    /// The labels of metrics, in the order of the variants.
    pub const LABELS: [&'static str; 12] = [
        "issued",
        "timeout",
        "invalid",
        "refused",
        "unanswered",
        "failed",
        "deferred",
        "pending-limit",
        "names-limit",
        "rate-limit",
        "query-limit",
        "no-lease",
    ];

    /// The position in [`LABELS`](Self::LABELS).
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The part of the names on demand that is not persisted: after a restart, the program is queried again.
#[derive(Clone, Debug, Default)]
pub(super) struct Demands {
    /// The names about which the program is being queried.
    queried: BTreeSet<Name>,
    /// When the queries of the last minute began, in seconds since boot.
    query_times: VecDeque<u64>,
    /// The names that the program has allowed, until their order has ended.
    allowed: BTreeSet<Name>,
    /// The names that the program has not allowed, the oldest first, with the time since boot at which they may be
    /// queried again.
    refused: VecDeque<(Name, u64, DemandOutcome)>,
    /// The names that were dropped.
    dropped: Vec<Name>,
}

impl Demands {
    /// Records the end of an order.
    pub(super) fn end(&mut self, name: &Name) {
        self.allowed.remove(name);
    }

    fn refusal(&self, name: &Name, since_boot: u64) -> Option<DemandOutcome> {
        let mut refused = self.refused.iter();
        let found = refused.find(|(refused, until, _)| refused == name && *until > since_boot);
        found.map(|(_, _, outcome)| *outcome)
    }

    /// Returns true if one more query may begin now, and counts it.
    fn admits_query(&mut self, per_minute: usize, since_boot: u64) -> bool {
        self.query_times
            .retain(|&began| began.saturating_add(60) > since_boot);
        let is_admitted = self.queried.len() < QUERIED_MAX && self.query_times.len() < per_minute;
        if is_admitted {
            self.query_times.push_back(since_boot);
        }
        is_admitted
    }

    fn refuse(&mut self, name: &Name, outcome: DemandOutcome, seconds: u64, since_boot: u64) {
        self.refused
            .retain(|(refused, until, _)| refused != name && *until > since_boot);
        while self.refused.len() >= REFUSED_MAX {
            self.refused.pop_front();
        }
        let until = since_boot.saturating_add(seconds);
        self.refused.push_back((name.clone(), until, outcome));
    }
}

impl Scheduler {
    /// Decides about a name for which a client asks and for which no certificate is in use.
    pub fn demand(&mut self, name: &Name, reading: Reading) -> Demand {
        let now = self.observe(reading);
        let Some(limits) = &self.plan.on_demand else {
            return Demand::Refuse(DemandOutcome::Refused);
        };
        if !name.is_public_host() {
            return Demand::Refuse(DemandOutcome::Invalid);
        }
        if self.demands.queried.contains(name) || self.names().any(|known| known == name) {
            return Demand::Wait;
        }
        let record = self.ledger.names.get(name);
        if record.is_some_and(|record| record.backoff.ends_at(now) > now) {
            return Demand::Refuse(DemandOutcome::Failed);
        }
        if let Some(outcome) = self.demands.refusal(name, reading.since_boot_seconds) {
            return Demand::Refuse(outcome);
        }
        let planned = NamePlan {
            name: name.clone(),
            issuers: limits.issuers.clone(),
        };
        if self.order_at(&planned, record, now).0 > now {
            return Demand::Refuse(DemandOutcome::Deferred);
        }
        if let Some(limit) = self.reached_limit(now) {
            return Demand::Refuse(limit);
        }
        let queries_per_minute = limits.queries_per_minute as usize;
        if !self
            .demands
            .admits_query(queries_per_minute, reading.since_boot_seconds)
        {
            return Demand::Refuse(DemandOutcome::QueryLimit);
        }
        self.demands.queried.insert(name.clone());
        Demand::Query
    }

    /// Records the answer about a name. Returns the outcome for the clients that wait, unless the name is ordered now.
    pub fn on_answer(
        &mut self,
        name: &Name,
        answer: Answer,
        reading: Reading,
    ) -> Result<(), DemandOutcome> {
        let now = self.observe(reading);
        self.demands.queried.remove(name);
        let (outcome, seconds) = match answer {
            Answer::Allowed if self.plan.on_demand.is_none() => return Err(DemandOutcome::Refused),
            // Other names may have been allowed since the query began.
            Answer::Allowed => match self.reached_limit(now) {
                Some(limit) => return Err(limit),
                None => {
                    let record = self.ledger.names.entry(name.clone()).or_default();
                    record.demanded_at = Some(now);
                    self.ledger.demands.push(now);
                    self.demands.allowed.insert(name.clone());
                    self.collect_names();
                    self.trim(now);
                    return Ok(());
                }
            },
            Answer::Refused => (DemandOutcome::Refused, REFUSED_SECONDS),
            Answer::Missing => (DemandOutcome::Unanswered, UNANSWERED_SECONDS),
        };
        let since_boot = reading.since_boot_seconds;
        self.demands.refuse(name, outcome, seconds, since_boot);
        Err(outcome)
    }

    /// Returns true if the program has to allow an order, because it has not done so in this process: a renewal.
    pub fn needs_answer(&self, name: &Name) -> bool {
        let is_demanded = || self.demanded_names().any(|demanded| demanded == name);
        !self.demands.allowed.contains(name) && is_demanded()
    }

    /// Records that the program refuses the renewal of a name. The name is dropped when its certificate has ended, or
    /// when all answers of some days were refusals: a fault of the program, such as wrong answers for a night, removes
    /// no certificate.
    pub fn on_renewal_refused(&mut self, name: &Name, reading: Reading) {
        let error = "the URL of `on_demand` refuses the name";
        self.on_failed(name, Failure::Rejected, error, reading);
        let now = reading.wall_at;
        let Some(record) = self.ledger.names.get_mut(name) else {
            return;
        };
        if record.refusals == 0 {
            record.refused_since = now;
        }
        record.refusals = record.refusals.saturating_add(1);
        let refused_until = record.refused_since.saturating_add(REFUSALS_SECONDS_MIN);
        if record.refusals >= REFUSALS_MIN && refused_until <= now {
            self.drop_demanded(name, now);
        }
    }

    /// Records that the program does not refuse the renewal of a name.
    pub fn on_renewal_allowed(&mut self, name: &Name) {
        if let Some(record) = self.ledger.names.get_mut(name) {
            record.refusals = 0;
        }
    }

    /// Returns the names that were dropped since the last call. The caller removes their certificates.
    pub fn take_dropped(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.demands.dropped)
    }

    /// Returns the names that are on demand.
    pub fn demanded_names(&self) -> impl Iterator<Item = &Name> {
        self.names[self.plan.names.len()..]
            .iter()
            .map(|demanded| &demanded.name)
    }

    /// Collects the names of the plan, and those on demand.
    pub(super) fn collect_names(&mut self) {
        self.names.clone_from(&self.plan.names);
        let Some(on_demand) = &self.plan.on_demand else {
            return;
        };
        let planned: BTreeSet<_> = self
            .plan
            .names
            .iter()
            .map(|planned| &planned.name)
            .collect();
        let demanded = self.ledger.demanded();
        let demanded = demanded.filter(|name| !planned.contains(name));
        self.names.extend(demanded.map(|name| NamePlan {
            name: name.clone(),
            issuers: on_demand.issuers.clone(),
        }));
    }

    /// Drops a name on demand after a failure, unless it has a certificate that is still valid.
    pub(super) fn drop_unusable(&mut self, name: &Name, now: u64) {
        let record = self.ledger.names.get(name);
        let certificate = record.and_then(|record| record.certificate.as_ref());
        if certificate.is_none_or(|certificate| certificate.validity.not_after_at <= now) {
            self.drop_demanded(name, now);
        }
    }

    /// Drops a name, unless it is not on demand any more: the configuration may have it, too.
    fn drop_demanded(&mut self, name: &Name, now: u64) {
        if !self.demanded_names().any(|demanded| demanded == name) {
            return;
        }
        let Some(record) = self.ledger.names.get_mut(name) else {
            return;
        };
        if record.demanded_at.take().is_some() {
            record.certificate = None;
            record.renewal_requested = false;
            record.refusals = 0;
            abandon(record, true, now);
            self.demands.dropped.push(name.clone());
            self.collect_names();
        }
    }

    /// Returns the number of names that are ordered for the first time.
    fn pending_demands(&self) -> usize {
        let is_ordered = |name: &&Name| {
            let record = self.ledger.names.get(*name);
            record.is_some_and(|record| record.certificate.is_none())
        };
        self.demanded_names().filter(is_ordered).count()
    }

    fn reached_limit(&self, now: u64) -> Option<DemandOutcome> {
        let limits = self.plan.on_demand.as_ref()?;
        if self.pending_demands() >= limits.pending_max {
            return Some(DemandOutcome::PendingLimit);
        }
        // Those that the configuration has, too, count: they are on demand again when it no longer has them.
        if self.ledger.demanded().count() >= limits.names_max {
            return Some(DemandOutcome::NamesLimit);
        }
        let is_within = limits.new_names.admits_at(&self.ledger.demands, now) <= now;
        (!is_within).then_some(DemandOutcome::RateLimit)
    }
}

/// The most names that are queried at once. Queries do not count in the limit of orders.
const QUERIED_MAX: usize = 8;

/// The most answers that are remembered.
const REFUSED_MAX: usize = 1000;

/// The time for which a refusal is remembered. A customer who is added meanwhile waits this long.
const REFUSED_SECONDS: u64 = 60;

/// The time for which a missing answer is remembered, so that a program that is down is not flooded when it returns.
const UNANSWERED_SECONDS: u64 = 10;

/// The fewest refusals in a row after which a name with a valid certificate is dropped.
const REFUSALS_MIN: u32 = 3;

/// The shortest time of these refusals.
const REFUSALS_SECONDS_MIN: u64 = 3 * 24 * 3600;

#[cfg(test)]
mod tests;
