//! Which name is ordered next, from which issuer, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use edgeward_types::mix64;

use crate::backoff::Failure;
use crate::ledger::{CertificateRecord, Ledger, NameRecord, PendingOrder};
use crate::name::Name;
use crate::plan::{NamePlan, Plan};
use crate::reading::{JUMP_SECONDS_MIN, Reading};
use crate::renewal::{SuggestedWindow, Validity, renewal_at, window_query_delay};

use demand::Demands;
pub use demand::{Answer, Demand, DemandOutcome};

mod demand;

/// Work for the caller. The caller persists the ledger before it begins an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Order a certificate, or continue an order.
    Order {
        /// The name.
        name: Name,
        /// The URL of the issuer's directory.
        issuer: Box<str>,
        /// The URL of the order that another process or attempt began.
        resumed: Option<Box<str>>,
        /// The identifier of the certificate that the new one replaces (RFC 9773 §5).
        replaces: Option<Box<str>>,
    },
    /// Query the window in which the issuer wants a certificate to be renewed.
    QueryWindow {
        /// The name of the certificate.
        name: Name,
        /// The URL of the directory of the certificate's issuer.
        issuer: Box<str>,
        /// The identifier of the certificate.
        window_id: Box<str>,
    },
}

/// The decision of [`Scheduler::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Begin this task, then ask again.
    Start(Task),
    /// Ask again after this time, or when a task has ended. At most an hour.
    Wait(Duration),
}

/// The state of one name, for an operator.
#[derive(Clone, Debug)]
pub struct NameStatus<'a> {
    /// The name.
    pub name: &'a Name,
    /// True while an order is under way.
    pub is_running: bool,
    /// The time of the next order, in seconds since 1970. `u64::MAX` if a limit of zero forbids it.
    pub next_order_at: u64,
    /// The time of the next order, if the only reason to wait is that the issuer has failed.
    pub issuer_wait_until: Option<u64>,
    /// The issuer of the next order.
    pub issuer: &'a str,
    /// The history. `None` if the name has none.
    pub record: Option<&'a NameRecord>,
}

/// Decides which name is ordered next.
#[derive(Clone, Debug)]
pub struct Scheduler {
    plan: Plan,
    ledger: Ledger,
    /// The names of the plan, then those that clients have asked for.
    names: Vec<NamePlan>,
    running: BTreeSet<Name>,
    demands: Demands,
}

impl Scheduler {
    /// Continues with the ledger of an earlier process. Its orders under way are continued, unless the issuer's answer
    /// is unknown: they count as failed.
    pub fn new(plan: Plan, ledger: Ledger, reading: Reading) -> Self {
        let mut scheduler = Self::view(plan, ledger);
        if reading.boot == 0 {
            // Nothing tells if the ledger's reading is of this start of the machine.
            scheduler.ledger.reading = None;
        }
        let now = scheduler.observe(reading);
        scheduler.ledger.end_future(now);
        scheduler.drop_orders(now);
        scheduler.trim(now);
        scheduler
    }

    /// Returns a scheduler that only reports the state of another process.
    pub fn view(plan: Plan, ledger: Ledger) -> Self {
        let mut scheduler = Self {
            plan,
            ledger,
            names: Vec::new(),
            running: BTreeSet::new(),
            demands: Demands::default(),
        };
        scheduler.collect_names();
        scheduler
    }

    /// Replaces the plan. Tasks under way continue.
    pub fn set_plan(&mut self, plan: Plan, reading: Reading) {
        let now = self.observe(reading);
        self.plan = plan;
        self.collect_names();
        self.trim(now);
    }

    /// Returns the plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns all names: those of the plan, then those that clients have asked for.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.iter().map(|planned| &planned.name)
    }

    /// Returns the ledger. The caller persists it after each call that changes it.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the next task, or how long to wait. The ledger then has the task.
    pub fn next(&mut self, reading: Reading) -> Next {
        let now = self.observe(reading);
        let mut soonest = now.saturating_add(WAIT_MAX.as_secs());
        if self.running.len() >= self.plan.limits.tasks_max {
            return Next::Wait(WAIT_MAX);
        }
        let idle = self.names.iter().enumerate();
        let idle = idle.filter(|(_, planned)| !self.running.contains(&planned.name));
        let mut first: Option<(Urgency, usize)> = None;
        let mut window = None;
        for (index, planned) in idle {
            let record = self.ledger.names.get(&planned.name);
            let certificate = record.and_then(|record| record.certificate.as_ref());
            let (at, _) = self.order_at(planned, record, now);
            if at <= now {
                let validity = certificate.map(|certificate| certificate.validity);
                let is_demanded = record.is_some_and(|record| record.demanded_at.is_some());
                let urgent = Some((Urgency::of(validity, is_demanded, now), index));
                first = first.min(urgent).or(urgent);
                continue;
            }
            soonest = soonest.min(at);
            if let Some(certificate) = certificate
                && certificate.window_id.is_some()
                && certificate.issuer.is_some()
            {
                soonest = soonest.min(certificate.window_query_at.max(now + 1));
                if certificate.window_query_at <= now {
                    window = window.or(Some(index));
                }
            }
        }
        match (first, window) {
            (Some((_, index)), _) => Next::Start(self.start_order(index, now)),
            (None, Some(index)) => Next::Start(self.start_window_query(index, now)),
            (None, None) => Next::Wait(Duration::from_secs(soonest - now)),
        }
    }

    /// Records the URL of an order.
    pub fn on_order(&mut self, name: &Name, url: &str) {
        let record = self.ledger.names.get_mut(name);
        if let Some(pending) = record.and_then(|record| record.pending.as_mut()) {
            pending.url = Some(url.into());
        }
    }

    /// Records that a request for a certificate is about to be sent, or (`false`) that the issuer has refused it.
    pub fn on_finalize(&mut self, name: &Name, is_finalized: bool) {
        let record = self.ledger.names.get_mut(name);
        if let Some(pending) = record.and_then(|record| record.pending.as_mut()) {
            pending.is_finalized = is_finalized;
        }
    }

    /// Records a certificate that was issued and stored.
    pub fn on_stored(
        &mut self,
        name: &Name,
        validity: Validity,
        window_id: Option<Box<str>>,
        reading: Reading,
    ) {
        let now = self.observe(reading);
        self.running.remove(name);
        self.demands.end(name);
        let record = self.ledger.names.entry(name.clone()).or_default();
        let issuer = record.pending.take().map(|pending| pending.issuer);
        if let Some(issuer) = &issuer {
            let of_issuer = self.ledger.issuers.entry(issuer.clone()).or_default();
            of_issuer.backoff = Default::default();
        }
        record.issued.push(now);
        record.backoff = Default::default();
        record.renewal_requested = false;
        record.last_error = None;
        record.certificate = Some(CertificateRecord {
            validity,
            stored_at: now,
            issuer,
            window_id,
            window: None,
            window_query_at: now,
        });
        self.trim(now);
    }

    /// Records that an order failed.
    pub fn on_failed(&mut self, name: &Name, failure: Failure, error: &str, reading: Reading) {
        let now = self.observe(reading);
        self.running.remove(name);
        let seed = self.seed_of(name);
        let record = self.ledger.names.entry(name.clone()).or_default();
        record.backoff.fail_name(failure, now, seed);
        record.last_error = Some(error.chars().take(ERROR_CHARS_MAX).collect());
        if failure == Failure::Validation {
            record.failed_validations.push(now);
        }
        if let Some(pending) = &record.pending {
            if let Some(bounds) = failure.bounds_of_issuer() {
                let of_issuer = self
                    .ledger
                    .issuers
                    .entry(pending.issuer.clone())
                    .or_default();
                of_issuer.backoff.fail(bounds, now, seed);
            }
            let is_final = !matches!(failure, Failure::Issuer | Failure::Local);
            if is_final || pending.url.is_none() || pending.resumes >= RESUMES_MAX {
                abandon(record, failure != Failure::Validation, now);
            }
        }
        self.demands.end(name);
        self.drop_unusable(name, now);
        self.trim(now);
    }

    /// Records the answer to a query of a window. `None`: the issuer did not answer, or has no window.
    pub fn on_window(
        &mut self,
        name: &Name,
        window: Option<SuggestedWindow>,
        retry_after: Option<Duration>,
        reading: Reading,
    ) {
        let now = self.observe(reading);
        self.running.remove(name);
        let record = self.ledger.names.get_mut(name);
        if let Some(certificate) = record.and_then(|record| record.certificate.as_mut()) {
            certificate.window_query_at = now.saturating_add(window_query_delay(retry_after));
            // An issuer that is unreachable has not changed its mind.
            certificate.window = window.or(certificate.window);
        }
    }

    /// Records a certificate that the caller found in its store, unless the ledger has it.
    pub fn adopt(
        &mut self,
        name: &Name,
        validity: Validity,
        window_id: Option<Box<str>>,
        reading: Reading,
    ) {
        let now = self.observe(reading);
        let record = self.ledger.names.entry(name.clone()).or_default();
        if let Some(certificate) = &record.certificate
            && certificate.validity == validity
            && certificate.window_id == window_id
        {
            return;
        }
        record.certificate = Some(CertificateRecord {
            validity,
            stored_at: validity.not_before_at.min(now),
            issuer: None,
            window_id,
            window: None,
            window_query_at: now,
        });
    }

    /// Forgets the certificate of a name, because the store has none that can be used.
    pub fn forget_certificate(&mut self, name: &Name) {
        if let Some(record) = self.ledger.names.get_mut(name) {
            record.certificate = None;
        }
    }

    /// Demands a renewal as soon as the limits admit it. The back-off ends, because the operator may have removed the
    /// cause. Returns false if the name is neither in the plan nor on demand.
    pub fn request_renewal(&mut self, name: &Name) -> bool {
        let is_planned = self.names().any(|planned| planned == name);
        if is_planned {
            let record = self.ledger.names.entry(name.clone()).or_default();
            record.renewal_requested = true;
            record.backoff = Default::default();
        }
        is_planned
    }

    /// Returns the state of each name.
    pub fn status(&self, now: u64) -> impl Iterator<Item = NameStatus<'_>> {
        self.names.iter().map(move |planned| {
            let record = self.ledger.names.get(&planned.name);
            let (next_order_at, issuer) = self.order_at(planned, record, now);
            let of_issuer = self.ledger.issuers.get(issuer);
            let issuer_at = of_issuer.map_or(0, |issuer| issuer.backoff.ends_at(now));
            NameStatus {
                name: &planned.name,
                is_running: self.running.contains(&planned.name),
                next_order_at,
                issuer_wait_until: (issuer_at > now && issuer_at == next_order_at)
                    .then_some(issuer_at),
                issuer,
                record,
            }
        })
    }

    /// Returns true while an order for a name is under way, or is to be continued.
    pub fn has_order(&self, name: &Name) -> bool {
        let record = self.ledger.names.get(name);
        record.is_some_and(|record| record.pending.is_some())
    }

    /// Returns from when a name may be ordered, and the issuer.
    fn order_at<'a>(
        &'a self,
        planned: &'a NamePlan,
        record: Option<&'a NameRecord>,
        now: u64,
    ) -> (u64, &'a str) {
        let Some(record) = record else {
            let issuer = self.issuer_of(planned, 0, now);
            return (self.issuer_at(issuer, now), issuer);
        };
        let retry_at = record.backoff.ends_at(now);
        if let Some(pending) = &record.pending {
            let of_issuer = self.ledger.issuers.get(&pending.issuer);
            let issuer_at = of_issuer.map_or(0, |issuer| issuer.backoff.ends_at(now));
            let pause = RESUME_PAUSE_SECONDS * u64::from(pending.resumes);
            let resumed_at = pending.started_at.min(now).saturating_add(pause);
            return (resumed_at.max(issuer_at).max(retry_at), &pending.issuer);
        }
        let issuer = self.issuer_of(planned, record.backoff.failures, now);
        let due_at = match &record.certificate {
            Some(certificate) if !record.renewal_requested && is_wanted(certificate, planned) => {
                let validity = certificate.validity;
                let seed = self.seed_of(&planned.name) ^ validity.not_before_at;
                let interval = validity.renewal_interval_seconds_min();
                let earliest = certificate.stored_at.min(now).saturating_add(interval);
                renewal_at(validity, certificate.window, seed).max(earliest)
            }
            _ => 0,
        };
        let limits = &self.plan.limits;
        let at = due_at
            .max(retry_at)
            .max(
                limits
                    .failures_per_name
                    .admits_at(&record.failed_validations, now),
            )
            .max(limits.certificates_per_name.admits_at(&record.issued, now))
            .max(self.issuer_at(issuer, now));
        (at, issuer)
    }

    /// Returns the issuer after this number of failures of a name: the next one after each
    /// [`FAILURES_PER_ISSUER`]. Issuers that fail for all names are skipped, if another one is usable.
    fn issuer_of<'a>(&'a self, planned: &'a NamePlan, failures: u32, now: u64) -> &'a str {
        let count = planned.issuers.len();
        let first = (failures / FAILURES_PER_ISSUER) as usize % count;
        let rotated = (0..count).map(|n| &*planned.issuers[(first + n) % count]);
        let is_usable = |issuer: &&str| match self.ledger.issuers.get(*issuer) {
            Some(record) => {
                let backoff = &record.backoff;
                backoff.failures < FAILURES_PER_ISSUER || backoff.ends_at(now) <= now
            }
            None => true,
        };
        let mut usable = rotated.filter(is_usable);
        usable.next().unwrap_or(&planned.issuers[first])
    }

    /// Returns from when an issuer may get an order.
    fn issuer_at(&self, issuer: &str, now: u64) -> u64 {
        let rate = &self.plan.limits.orders_per_issuer;
        let Some(record) = self.ledger.issuers.get(issuer) else {
            return rate.admits_at(&[], now);
        };
        let retry_at = record.backoff.ends_at(now);
        retry_at.max(rate.admits_at(&record.orders, now))
    }

    fn start_order(&mut self, index: usize, now: u64) -> Task {
        let planned = &self.names[index];
        let name = planned.name.clone();
        let (_, issuer) = self.order_at(planned, self.ledger.names.get(&name), now);
        let issuer: Box<str> = issuer.into();
        let record = self.ledger.names.entry(name.clone()).or_default();
        self.running.insert(name.clone());
        let resumed = match &mut record.pending {
            Some(pending) => {
                pending.resumes += 1;
                pending.url.clone()
            }
            None => {
                record.pending = Some(PendingOrder {
                    issuer: issuer.clone(),
                    url: None,
                    started_at: now,
                    resumes: 0,
                    is_finalized: false,
                });
                let of_issuer = self.ledger.issuers.entry(issuer.clone()).or_default();
                of_issuer.orders.push(now);
                None
            }
        };
        // Only the issuer of a certificate knows its identifier. After a failure `replaces` may be the cause: an order
        // that failed may already have replaced the certificate.
        let certificate = record.certificate.as_ref();
        let certificate = certificate.filter(|_| record.backoff.failures == 0);
        let replaced = certificate.filter(|old| old.issuer.as_ref() == Some(&issuer));
        let replaces = replaced.and_then(|old| old.window_id.clone());
        self.trim(now);
        Task::Order {
            name,
            issuer,
            resumed,
            replaces,
        }
    }

    fn start_window_query(&mut self, index: usize, now: u64) -> Task {
        let name = self.names[index].name.clone();
        let record = self.ledger.names.get_mut(&name);
        let certificate = record.and_then(|record| record.certificate.as_mut());
        let certificate = certificate.expect("`next` has found the certificate");
        // A process that is killed does not query again at its next start, if the ledger was persisted since.
        certificate.window_query_at = now.saturating_add(window_query_delay(None));
        let (issuer, window_id) = (certificate.issuer.clone(), certificate.window_id.clone());
        self.running.insert(name.clone());
        Task::QueryWindow {
            name,
            issuer: issuer.expect("`next` has found the issuer"),
            window_id: window_id.expect("`next` has found the identifier"),
        }
    }

    /// Ends orders of an earlier process that cannot be continued.
    fn drop_orders(&mut self, now: u64) {
        let names: Vec<_> = self.ledger.names.keys().cloned().collect();
        for name in names {
            let seed = self.seed_of(&name);
            let record = self
                .ledger
                .names
                .get_mut(&name)
                .expect("the key is of this map");
            let Some(pending) = &record.pending else {
                continue;
            };
            if pending.url.is_none() || pending.resumes >= RESUMES_MAX {
                record.backoff.fail_name(Failure::Local, now, seed);
                record.last_error = Some("the process ended during the order".into());
                abandon(record, true, now);
                self.drop_unusable(&name, now);
            }
        }
    }

    /// Moves the times of the ledger if the wall clock has jumped, and returns the time.
    fn observe(&mut self, reading: Reading) -> u64 {
        let now = reading.wall_at;
        match self
            .ledger
            .reading
            .map(|earlier| reading.jump_since(&earlier))
        {
            // The earlier reading is kept, so that small differences add up.
            Some(Some(jump)) if jump.unsigned_abs() < JUMP_SECONDS_MIN => return now,
            Some(Some(jump)) => self.ledger.shift(jump),
            Some(None) => self.ledger.end_future(now),
            None => {}
        }
        self.ledger.reading = Some(reading);
        now
    }

    fn trim(&mut self, now: u64) {
        let planned: BTreeSet<_> = self.names.iter().map(|planned| &planned.name).collect();
        let is_used = |name: &Name| planned.contains(name) || self.running.contains(name);
        self.ledger.trim(&self.plan, now, is_used);
    }

    fn seed_of(&self, name: &Name) -> u64 {
        let bytes = name.to_string();
        let mix = |seed: u64, byte: u8| mix64(seed ^ u64::from(byte)).wrapping_add(1);
        bytes.bytes().fold(self.plan.seed, mix)
    }
}

/// Ends an order. If its issuer may have issued a certificate that this process did not get, the certificate counts.
fn abandon(record: &mut NameRecord, is_maybe_issued: bool, now: u64) {
    let pending = record.pending.take();
    if is_maybe_issued && pending.is_some_and(|pending| pending.is_finalized) {
        record.issued.push(now);
    }
}

/// Returns false if the certificate is of an issuer that the plan no longer has, for example one for trials.
fn is_wanted(certificate: &CertificateRecord, planned: &NamePlan) -> bool {
    let issuer = certificate.issuer.as_ref();
    issuer.is_none_or(|issuer| planned.issuers.contains(issuer))
}

/// The order in which due names are served. A thousand new names take hours, in which no certificate may expire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// The certificate ends soon, or has ended. The time of its end.
    Ending(u64),
    /// A client waits for the certificate.
    Demanded,
    /// The name has no certificate.
    Missing,
    /// The certificate is due. The time of its end.
    Due(u64),
}

impl Urgency {
    fn of(validity: Option<Validity>, is_demanded: bool, now: u64) -> Self {
        match validity {
            None if is_demanded => Self::Demanded,
            None => Self::Missing,
            Some(validity) if validity.is_ending(now) => Self::Ending(validity.not_after_at),
            Some(validity) => Self::Due(validity.not_after_at),
        }
    }
}

/// The longest wait: even if a reading of the clocks is wrong, the caller asks again.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Failures after which the next issuer is tried.
const FAILURES_PER_ISSUER: u32 = 3;

/// The most continuations of an order, so that an order by which the process crashes is not continued for ever.
const RESUMES_MAX: u32 = 3;

/// The wait before the second continuation of an order; twice that before the third.
const RESUME_PAUSE_SECONDS: u64 = 60;

/// The longest error that the ledger keeps.
const ERROR_CHARS_MAX: usize = 500;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
