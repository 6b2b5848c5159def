//! Compares the exchanges one by one, and keeps what later exchanges need.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::answer::{Answer, Exchange, Verdict};
use crate::bodies::{Bodies, BodyResult};
use crate::difference::{Cause, Difference, shortened};
use crate::heads;
use crate::history::History;
use crate::latencies::Latencies;
use crate::lifetime::{Evidence, Lifetime};
use crate::recent::Recent;
use crate::report::{
    BudgetReport, ErrorKind, ErrorReport, Group, HitReport, IntervalReport, ShadowReport, Side,
    VerdictPair,
};
use crate::request::{LineMark, Method, Request, Skip};

/// The choices of a user.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Names of fields of answers, in lower case, that are not compared.
    pub ignored_fields: Vec<String>,
    /// True if the comparison gets the lines of the incumbent's log. Their verdicts show its lifetimes and its hits.
    pub has_log: bool,
}

/// The sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// URLs whose lifetimes are compared: 65,536. A URL takes about 300 bytes.
    pub urls_max: usize,
    /// URLs whose bodies are compared: 8,192. A URL takes at most 2 KiB.
    pub bodies_max: usize,
    /// Groups of differences: 256.
    pub groups_max: usize,
    /// Intervals of the history: 120.
    pub intervals_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            urls_max: 1 << 16,
            bodies_max: 1 << 13,
            groups_max: 256,
            intervals_max: 120,
        }
    }
}

/// The comparison of two caches.
#[derive(Debug)]
pub struct Comparison {
    settings: Settings,
    limits: Limits,
    urls: Recent<UrlState>,
    bodies: Recent<Bodies>,
    groups: BTreeMap<(Cause, String), Group>,
    ungrouped: u64,
    errors: BTreeMap<(Side, ErrorKind), ErrorReport>,
    skipped: [u64; Skip::ALL.len()],
    verdicts: BTreeMap<(&'static str, &'static str), u64>,
    history: History,
    incumbent_latency: Latencies,
    edge_latency: Latencies,
    /// The number of times that the edge was unreachable. Its stored responses may be lost each time.
    edge_restarts: u64,
    edge_is_down: bool,
    /// True if the incumbent states expiries: its words are those of nginx or of RFC 9211.
    states_expiry: bool,
    /// True if the log has had a line with the mark of own requests. All own lines then have it.
    has_marks: bool,
    /// Own requests. The number matters until a line has a mark.
    own_requests: u32,
    requests: u64,
    answered: u64,
    compared: u64,
    compared_bodies: u64,
    changing_bodies: u64,
    unasked: u64,
    without_credentials: u64,
    budget: BudgetReport,
}

/// The knowledge about one URL.
#[derive(Debug, Default)]
struct UrlState {
    incumbent: Lifetime,
    edge: Lifetime,
    /// The value of `edge_restarts` at the last answer of the edge.
    restarts: u64,
    has_lifetime_difference: bool,
    /// Answers since the edge last had a stored response, which it fetched without storing them.
    unstored: u32,
    /// The last length in the log that was shorter than the body of the edge.
    short_length: Option<u64>,
    /// Requests of the shadow to the incumbent whose lines in the log are not read yet.
    own_lines: u32,
    /// The time since 1970 of the last of them.
    asked_at: Duration,
}

impl Comparison {
    /// Returns a comparison without exchanges.
    pub fn new(settings: Settings, limits: Limits) -> Self {
        Self {
            settings,
            limits,
            urls: Recent::new(limits.urls_max),
            bodies: Recent::new(limits.bodies_max),
            groups: BTreeMap::new(),
            ungrouped: 0,
            errors: BTreeMap::new(),
            skipped: [0; Skip::ALL.len()],
            verdicts: BTreeMap::new(),
            history: History::new(limits.intervals_max),
            incumbent_latency: Latencies::new(),
            edge_latency: Latencies::new(),
            edge_restarts: 0,
            edge_is_down: false,
            states_expiry: false,
            has_marks: false,
            own_requests: 0,
            requests: 0,
            answered: 0,
            compared: 0,
            compared_bodies: 0,
            changing_bodies: 0,
            unasked: 0,
            without_credentials: 0,
            budget: BudgetReport::default(),
        }
    }

    /// Counts a request of the source. `has_credentials_withheld` is true if it is sent without the credentials of its
    /// client.
    pub fn count_request(&mut self, has_credentials_withheld: bool) {
        self.requests += 1;
        self.without_credentials += u64::from(has_credentials_withheld);
    }

    /// Counts a request that is not sent.
    pub fn count_skipped(&mut self, skip: Skip) {
        self.skipped[skip as usize] += 1;
    }

    /// Counts a request that is not compared with an answer of the incumbent because of its rate limit.
    pub fn count_unasked(&mut self) {
        self.unasked += 1;
    }

    /// Counts the cost of an answer of the edge at its origin.
    pub fn count_origin(&mut self, bytes: u64) {
        self.budget.origin_requests += 1;
        self.budget.origin_bytes += bytes;
    }

    /// Counts a wait for the budget.
    pub fn count_wait(&mut self, wait: Duration) {
        self.budget.waited_seconds += wait.as_secs_f64();
    }

    /// Returns the number of requests that the edge answered.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the number of answers that were compared.
    pub const fn compared(&self) -> u64 {
        self.compared
    }

    /// Returns the number of differences.
    pub fn differences(&self) -> u64 {
        self.groups.values().map(|group| group.count).sum::<u64>() + self.ungrouped
    }

    /// Returns the number of failed requests.
    pub fn errors(&self) -> u64 {
        self.errors.values().map(|error| error.count).sum()
    }

    /// Announces a request of the shadow to the incumbent, whose log will have a line for it. `now` is the time since
    /// 1970.
    pub fn expect_own_line(&mut self, url_key: u64, now: Duration) {
        let state = self.urls.entry(url_key);
        state.own_lines = (state.own_lines + 1).min(OWN_LINES_MAX);
        state.asked_at = now;
        self.own_requests = self.own_requests.saturating_add(1);
    }

    /// Takes note of a line of the incumbent's log. Returns true if the line is that of an own request, so that it
    /// must not be sent again.
    ///
    /// A log without user agents has no marks. The next lines for a URL that the shadow has requested then count as its
    /// own, unless they are older. If a client requests the URL at the same time, its line may be taken for the own
    /// one: one request is not sent, and no count is wrong. If the form of the lines promises user agents, but none of
    /// many own requests had a line with its mark, the log has no user agents, and own lines would be sent again and
    /// again.
    pub fn observe_line(&mut self, url_key: u64, answer: &Answer, mark: LineMark) -> bool {
        let is_marked = mark == LineMark::Own;
        self.states_expiry |= matches!(answer.verdict, Some(Verdict::Hit | Verdict::Expired));
        self.has_marks |= is_marked;
        let evidence = match self.states_expiry {
            true => Evidence::Complete,
            false => Evidence::WithoutExpiry,
        };
        let state = self.urls.entry(url_key);
        // A line without a time shows no age.
        if let (Some(verdict), false) = (answer.verdict, answer.at.is_zero()) {
            state
                .incumbent
                .observe(verdict, answer.at, answer.ttl_seconds, evidence);
        }
        let promises_marks = mark == LineMark::Client && self.own_requests < UNMARKED_MAX;
        if self.has_marks || promises_marks {
            return is_marked;
        }
        let is_older = !answer.at.is_zero() && answer.at + CLOCK_SLACK < state.asked_at;
        let is_own = state.own_lines > 0 && !is_older;
        if is_own {
            state.own_lines -= 1;
        }
        is_own
    }

    /// Counts the answer of a line whose request is not sent, because it arrives as a mirrored request, too. `at` is
    /// the time since the start.
    pub fn count_line(&mut self, request: &Request, answer: &Answer, at: Duration) {
        if let Some(latency) = answer.latency {
            self.incumbent_latency.add(latency);
        }
        if let Some(verdict) = answer.verdict {
            self.history.count(at, Side::Incumbent, verdict.is_hit());
        }
        if let Some(difference) = self.lifetime(request) {
            self.add(request, 1, difference);
        }
    }

    /// Counts a failed request. A failed connection to the edge ends what is known of its stored responses.
    pub fn count_error(&mut self, side: Side, kind: ErrorKind, message: &str) {
        self.edge_is_down |= (side, kind) == (Side::Edge, ErrorKind::Connect);
        let error = self.errors.entry((side, kind));
        let error = error.or_insert_with(|| ErrorReport {
            side,
            kind,
            count: 0,
            example: shortened(message, MESSAGE_CHARS_MAX),
        });
        error.count += 1;
    }

    /// Compares the answers to one request. `at` is the time since the start.
    pub fn record(&mut self, exchange: &Exchange, at: Duration) {
        let Exchange {
            request,
            logged,
            asked,
            edge,
        } = exchange;
        self.answered += 1;
        if std::mem::take(&mut self.edge_is_down) {
            self.edge_restarts += 1;
        }
        self.count_answers(logged.as_ref(), asked.as_ref(), edge, at);
        self.observe(request, asked.as_ref(), edge);
        if logged.is_some() || asked.is_some() {
            self.compared += 1;
        }
        let mut differences = Vec::new();
        if let Some(asked) = asked {
            differences.extend(heads::compare(asked, edge, &self.settings.ignored_fields));
            differences.extend(served_by_one(request, asked, edge, true));
        } else if let Some(logged) = logged {
            differences.extend(logged_status(logged, edge));
            differences.extend(self.logged_length(request, logged, edge));
            differences.extend(served_by_one(request, logged, edge, false));
        }
        differences.extend(self.lifetime(request));
        differences.extend(self.not_stored(request, logged.as_ref().or(asked.as_ref()), edge));
        for difference in differences {
            self.add(request, 1, difference);
        }
        self.compare_bodies(request, asked.as_ref(), edge);
    }

    fn count_answers(
        &mut self,
        logged: Option<&Answer>,
        asked: Option<&Answer>,
        edge: &Answer,
        at: Duration,
    ) {
        let incumbent = logged.or(asked);
        // The latency of the clients, if a log states it.
        let has_lines = self.settings.has_log && logged.is_none();
        if let (Some(latency), false) = (incumbent.and_then(|answer| answer.latency), has_lines) {
            self.incumbent_latency.add(latency);
        }
        if let Some(latency) = edge.latency {
            self.edge_latency.add(latency);
        }
        let verdict = incumbent.and_then(|answer| answer.verdict);
        let name = |verdict: Option<Verdict>| verdict.map_or("unknown", Verdict::as_str);
        let pair = (name(verdict), name(edge.verdict));
        *self.verdicts.entry(pair).or_default() += 1;
        // The incumbent has answered the client just before, so its answer to the shadow would nearly always be a hit.
        // Only the log has the verdicts of its clients.
        if let Some(verdict) = logged.and_then(|answer| answer.verdict) {
            self.history.count(at, Side::Incumbent, verdict.is_hit());
        }
        if let Some(verdict) = edge.verdict {
            self.history.count(at, Side::Edge, verdict.is_hit());
        }
    }

    /// Adds the answers to what is known of the lifetimes.
    fn observe(&mut self, request: &Request, asked: Option<&Answer>, edge: &Answer) {
        let restarts = self.edge_restarts;
        let has_log = self.settings.has_log;
        // The lines of a log do not show which variant of a URL they are about.
        let is_one_response = !has_log || edge.field("vary").is_none();
        let key = self.lifetime_key(request);
        let state = self.urls.entry(key);
        if state.restarts != restarts {
            state.restarts = restarts;
            state.edge = Lifetime::default();
            state.unstored = 0;
        }
        if let Some(verdict) = edge.verdict {
            let evidence = Evidence::Complete;
            state
                .edge
                .observe(verdict, edge.at, edge.ttl_seconds, evidence);
        }
        if let (false, Some(asked)) = (has_log, asked)
            && let Some(verdict) = asked.verdict
        {
            let evidence = Evidence::Partial;
            state
                .incumbent
                .observe(verdict, asked.at, asked.ttl_seconds, evidence);
        }
        if !is_one_response {
            state.incumbent = Lifetime::default();
        }
    }

    /// Returns the key of the lifetimes: that of the URL if they come from a log, else that of URL and fields.
    fn lifetime_key(&self, request: &Request) -> u64 {
        match self.settings.has_log {
            true => request.url_key(),
            false => request.url_key() ^ request.fields_hash(),
        }
    }

    fn lifetime(&mut self, request: &Request) -> Option<Difference> {
        let state = self.urls.entry(self.lifetime_key(request));
        if state.has_lifetime_difference {
            return None;
        }
        let detail = if state.incumbent.is_longer_than(&state.edge) {
            "shorter at the edge"
        } else if state.edge.is_longer_than(&state.incumbent) {
            "longer at the edge"
        } else {
            return None;
        };
        state.has_lifetime_difference = true;
        Some(Difference::new(
            Cause::Lifetime,
            detail,
            state.incumbent.describe(),
            state.edge.describe(),
        ))
    }

    /// Returns a difference if the edge has fetched a response several times that the incumbent stores.
    fn not_stored(
        &mut self,
        request: &Request,
        incumbent: Option<&Answer>,
        edge: &Answer,
    ) -> Option<Difference> {
        let state = self.urls.entry(self.lifetime_key(request));
        let is_fetched = edge.verdict == Some(Verdict::Miss) && !edge.is_stored;
        if !is_fetched {
            state.unstored = 0;
            return None;
        }
        if !incumbent.is_some_and(|answer| answer.verdict.is_some_and(Verdict::is_hit)) {
            return None;
        }
        state.unstored = state.unstored.saturating_add(1);
        (state.unstored == UNSTORED_MIN).then(|| {
            let reason = match edge.detail.is_empty() {
                true => "no reason stated".to_owned(),
                false => edge.detail.clone(),
            };
            Difference::new(Cause::NotStored, &reason[..], "stored", reason.clone())
        })
    }

    /// Compares the length of a log with that of the edge's body.
    ///
    /// A coding changes the length, and the log does not show the coding, so only bodies that no server compresses are
    /// compared. Some logs count the head, too. A client that leaves gets fewer bytes; a shorter length counts if two
    /// clients in a row got it.
    fn logged_length(
        &mut self,
        request: &Request,
        logged: &Answer,
        edge: &Answer,
    ) -> Option<Difference> {
        let is_whole = request.method == Method::Get && logged.status == 200 && edge.status == 200;
        let is_compressed = [
            "application/json",
            "application/javascript",
            "text/",
            "xml",
            "svg",
        ]
        .iter()
        .any(|part| edge.field("content-type").unwrap_or("text/").contains(part));
        let (of_incumbent, of_edge) = (logged.bytes?, edge.bytes?);
        if !is_whole || is_compressed || edge.field("content-encoding").is_some() {
            return None;
        }
        let state = self.urls.entry(request.url_key());
        let is_short = of_incumbent < of_edge;
        let is_repeated = state.short_length == Some(of_incumbent);
        state.short_length = is_short.then_some(of_incumbent);
        let is_long = of_incumbent > of_edge + HEAD_BYTES_MAX;
        (is_long || (is_short && is_repeated)).then(|| {
            let bytes = |length: u64| format!("{length} bytes");
            Difference::new(Cause::Length, "", bytes(of_incumbent), bytes(of_edge))
        })
    }

    fn compare_bodies(&mut self, request: &Request, asked: Option<&Answer>, edge: &Answer) {
        let hash = |answer: &Answer| answer.head.as_ref()?.body_hash;
        let Some(asked) = asked.filter(|asked| asked.status == edge.status) else {
            return;
        };
        let (Some(of_incumbent), Some(of_edge)) = (hash(asked), hash(edge)) else {
            return;
        };
        self.compared_bodies += 1;
        let bodies = self.bodies.entry(request.url_key());
        match bodies.compare(request, (asked, of_incumbent), (edge, of_edge)) {
            BodyResult::Equal => {}
            BodyResult::Changing => self.changing_bodies += 1,
            BodyResult::Differs(differences) => {
                for (count, difference) in differences {
                    self.add(request, count, difference);
                }
            }
        }
    }

    fn add(&mut self, request: &Request, count: u64, difference: Difference) {
        let key = (difference.cause, difference.detail);
        if let Some(group) = self.groups.get_mut(&key) {
            group.count += count;
        } else if self.groups.len() < self.limits.groups_max {
            let group = Group {
                cause: key.0,
                detail: key.1.clone(),
                count,
                method: request.method.as_str(),
                url: request.url(),
                incumbent: difference.incumbent,
                edge: difference.edge,
            };
            self.groups.insert(key, group);
        } else {
            self.ungrouped += count;
        }
    }

    /// Returns the result after `duration`. The caller adds the position in a log and the limits of the budget.
    pub fn report(&self, duration: Duration) -> ShadowReport {
        let mut groups: Vec<Group> = self.groups.values().cloned().collect();
        groups.sort_by_key(|group| (group.cause, std::cmp::Reverse(group.count)));
        let skipped = Skip::ALL.into_iter();
        let verdicts = self.verdicts.iter();
        ShadowReport {
            duration_seconds: duration.as_secs_f64(),
            requests: self.requests,
            answered: self.answered,
            compared: self.compared,
            compared_bodies: self.compared_bodies,
            changing_bodies: self.changing_bodies,
            unasked: self.unasked,
            skipped: skipped
                .map(|skip| (skip, self.skipped[skip as usize]))
                .collect(),
            without_credentials: self.without_credentials,
            differences: self.differences(),
            groups,
            ungrouped: self.ungrouped,
            hits: self.hits(),
            verdicts: verdicts
                .map(|(&(incumbent, edge), &requests)| VerdictPair {
                    incumbent,
                    edge,
                    requests,
                })
                .collect(),
            errors: self.errors.values().cloned().collect(),
            edge_restarts: self.edge_restarts,
            budget: self.budget,
            incumbent_latency: self.incumbent_latency.report(),
            edge_latency: self.edge_latency.report(),
            log: None,
        }
    }

    /// Returns the hit ratios so far.
    pub fn hits(&self) -> HitReport {
        let total = self.history.total();
        let intervals = self.history.intervals();
        HitReport {
            incumbent_ratio: total.incumbent.ratio(),
            edge_ratio: total.edge.ratio(),
            intervals: intervals
                .map(|(start, counts)| IntervalReport {
                    start_seconds: start.as_secs_f64(),
                    requests: counts.edge.requests,
                    incumbent_ratio: counts.incumbent.ratio(),
                    edge_ratio: counts.edge.ratio(),
                })
                .collect(),
        }
    }
}

/// Compares the status of a log with that of the edge.
///
/// The log does not show the fields of the client's request. A 206, 304, 412 or 416 answers a range or a condition, 401
/// and 403 may follow from missing credentials, 429 from the client's address, and 408, 444 and 499 state that the
/// client left. None of them is comparable.
fn logged_status(logged: &Answer, edge: &Answer) -> Option<Difference> {
    const NOT_COMPARED: [u16; 11] = [0, 206, 304, 401, 403, 408, 412, 416, 429, 444, 499];
    // Without its cookies, the request of a user may be sent to the page for logging in.
    let is_login = (200..300).contains(&logged.status) && matches!(edge.status, 302 | 303 | 307);
    match NOT_COMPARED.contains(&logged.status)
        || NOT_COMPARED.contains(&edge.status)
        || (is_login && !edge.verdict.is_some_and(Verdict::is_hit))
    {
        true => None,
        false => heads::status(logged.status, edge.status),
    }
}

/// Returns a difference if one cache passes a request that the other one serves from its cache or stores.
///
/// `is_same_request` is false for a line of a log. The client of the line may have sent a cookie, so that a pass of the
/// incumbent shows nothing.
fn served_by_one(
    request: &Request,
    incumbent: &Answer,
    edge: &Answer,
    is_same_request: bool,
) -> Option<Difference> {
    let (of_incumbent, of_edge) = (incumbent.verdict?, edge.verdict?);
    let caches_at_edge = of_edge.is_hit() || (of_edge.is_fetch() && edge.is_stored);
    let (detail, incumbent, edge) = if of_incumbent == Verdict::Pass && caches_at_edge {
        if !is_same_request {
            return None;
        }
        ("the incumbent passes", "pass", of_edge.as_str())
    } else if of_edge == Verdict::Pass && of_incumbent.is_hit() {
        ("the edge passes", of_incumbent.as_str(), "pass")
    } else {
        return None;
    };
    let cause = match request.field("cookie") {
        Some(_) => Cause::Cookie,
        None => Cause::Pass,
    };
    Some(Difference::new(cause, detail, incumbent, edge))
}

/// The number of answers that the edge must have fetched without storing them. Some admission policies store an object
/// at its second request.
const UNSTORED_MIN: u32 = 3;

/// The longest head that a log may count with the body.
const HEAD_BYTES_MAX: u64 = 2048;

/// The own requests whose lines may lack their marks although lines have user agents. Lines follow their requests after
/// some milliseconds, so that few of them are missing in an ordinary log.
const UNMARKED_MAX: u32 = 64;

/// The limit of own requests for one URL whose lines are awaited. An incumbent that does not log them thereby hides
/// only a few lines of clients.
const OWN_LINES_MAX: u32 = 4;

/// The precision of the times in a log, and the difference of two clocks.
const CLOCK_SLACK: Duration = Duration::from_secs(2);

const MESSAGE_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests;
