//! Caching faults of a site, found in a sample of its finished requests.
//!
//! Two tables of fixed size remember URLs and shortened URLs with the hash of their last body. A request whose URL
//! differs from an earlier one only by a query parameter, the order of parameters, the host or a final slash, and has
//! the same body, is evidence for a fault; another body is evidence against it. Other faults show in the head of one
//! response. Evidence is counted by kind and subject, such as a path pattern, in a bounded table. It decays, so that
//! a fault disappears after it was mended.
//!
//! For each request with a fault the finder decides if it would have been a hit under the rule that mends the fault:
//! the origin answered, and the response that was seen before is still fresh with the key or the lifetime of the rule.
//! In a sample that has only a part of the requests, the response before may be missing, so the share of hits is then
//! too low.
//!
//! A response for one user, or a refusal of access, excludes the rule that could give it to others. Exclusions are kept
//! apart from the evidence, so that no flood of other faults replaces them.

mod evidence;
mod exclusions;
mod fields;
mod hosts;
mod kind;
mod recent;
mod request;
mod url;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::time::Duration;

use edgeward_types::Timestamp;
use edgeward_types::xxh3::Xxh3;

use evidence::{Evidence, EvidenceTable};
use exclusions::{EXCLUSION_BYTES, Exclusions, RuleGroup};
pub use fields::FIELD_BYTES_MAX;
use fields::{head_has, is_text, states_lifetime};
use hosts::HostNames;
pub use kind::FaultKind;
use recent::RecentTable;
pub use request::{ObjectFacts, Observed, ResponseFacts, ResponseSource};
use url::{
    PARAMETERS_MAX, Parameter, folder_pattern_of, gives_access, is_buster, is_host, is_noise,
    is_static, is_tracking, parameters, pattern_of, sorted_text, subject_of, subjects,
};

/// A fault with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The kind.
    pub kind: FaultKind,
    /// The path pattern, parameter or host that has the fault.
    pub subject: String,
    /// The index of the site.
    pub site: Option<usize>,
    /// The requests with the fault, estimated from the sample.
    pub requests: f64,
    /// Their share of all requests.
    pub request_share: f64,
    /// The share of all requests that the rule would turn into hits, estimated by simulation.
    pub hit_share: f64,
    /// A URL with the fault: visible ASCII, at most [`EXAMPLE_BYTES_MAX`] bytes.
    pub example: String,
    /// The rule that mends the fault, in TOML.
    pub rule: String,
}

/// Finds caching faults in bounded memory.
#[derive(Debug)]
pub struct Faults {
    seed: u64,
    urls: RecentTable<SeenUrl>,
    shortened: RecentTable<SeenBody>,
    evidence: EvidenceTable,
    exclusions: Exclusions,
    hosts: HostNames,
    /// All requests, with decay.
    requests: f64,
    /// True if old requests count less.
    decays: bool,
    /// The time of the last decay.
    scaled_at: Option<Timestamp>,
}

/// The last response of a URL.
#[derive(Clone, Copy, Debug, Default)]
struct SeenUrl {
    /// The hash of the body. 0: unknown.
    body: u64,
    /// The key of the object. 0: unknown.
    object: u64,
    /// The time at which the origin sent or confirmed the response.
    fetched_at: Timestamp,
    fresh_until: Timestamp,
    lifetime_ms: u64,
    /// Responses without a coding, from the cache or passed.
    uncoded: u8,
}

/// The last body of a shortened URL, and the part that the URL lacks.
#[derive(Clone, Copy, Debug, Default)]
struct SeenBody {
    part: u64,
    body: u64,
    fresh_until: Timestamp,
}

/// The result of the comparison of a body with that of another URL whose shortened form is equal.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// The part of the other URL that its shortened form lacks.
    part: u64,
    /// True if the bodies are equal.
    is_same: bool,
    /// True if the request would have been a hit under one key.
    is_hit: bool,
}

/// A request with the parts and properties of its URL.
struct Parsed<'a> {
    seen: &'a Observed<'a>,
    path: &'a str,
    query: &'a str,
    /// The path pattern of its rules.
    pattern: Option<String>,
    is_static: bool,
    /// True if the origin was asked.
    is_fetch: bool,
    /// True if an earlier request had the URL.
    is_known: bool,
    fresh_until: Timestamp,
}

impl Faults {
    /// Returns a finder that takes at most `memory_max_bytes`, but at least about 256 KiB. `seed` is the secret seed of
    /// the hashes of URLs.
    pub fn new(memory_max_bytes: u64, seed: u64) -> Self {
        let tables = memory_max_bytes.saturating_sub(EVIDENCE_BYTES_MAX);
        Self {
            seed,
            urls: RecentTable::new(tables / 2),
            shortened: RecentTable::new(tables / 2),
            evidence: EvidenceTable::new(seed),
            exclusions: Exclusions::new(seed),
            hosts: HostNames::default(),
            requests: 0.0,
            decays: true,
            scaled_at: None,
        }
    }

    /// Counts all requests equally, also old ones.
    #[must_use]
    pub const fn without_decay(mut self) -> Self {
        self.decays = false;
        self
    }

    /// Follows a request.
    pub fn observe(&mut self, seen: &Observed<'_>) {
        self.decay(seen.at);
        self.requests += f64::from(seen.weight);
        let is_whole = seen.target.len() <= TARGET_BYTES_MAX && seen.host.len() <= HOST_BYTES_MAX;
        if !seen.is_get || !is_whole {
            return;
        }
        let (path, query) = seen.target.split_once('?').unwrap_or((seen.target, ""));
        let coding = seen.head.map_or("", |head| head.content_encoding);
        let url = self.hash(&[seen.host, seen.target, coding]);
        if seen.has_range {
            self.observe_range(seen, url);
            return;
        }
        if matches!(seen.status, 301 | 302 | 307 | 308) && !path.ends_with('/') {
            // A redirect of the other form would come back here.
            if let Some(pattern) = pattern_of(path) {
                let fault = (FaultKind::FinalSlash, seen.site, pattern.as_str());
                self.evidence.add(fault, seen, false, false);
            }
        }
        if matches!(seen.status, 302 | 303 | 307 | 400 | 401 | 403 | 404 | 410) {
            self.observe_refusal(seen, query);
        }
        if seen.status != 200 {
            return;
        }
        let (known, is_known) = self.urls.entry(url);
        let before = *known;
        let lifetime_ms = seen.object.map_or(0, |object| object.lifetime_ms);
        let is_fetch = seen.source != ResponseSource::Cache;
        let mut now = before;
        if is_fetch {
            now.fetched_at = seen.at;
            now.fresh_until = seen.at.after(Duration::from_millis(lifetime_ms));
            now.lifetime_ms = lifetime_ms;
        }
        now.object = seen.object.map_or(0, |object| object.key);
        let is_same_object = now.object == before.object;
        now.body = match (seen.body, seen.source) {
            (Some(body), _) => body,
            (None, ResponseSource::Cache | ResponseSource::Confirmed) if is_same_object => {
                before.body
            }
            (None, _) => 0,
        };
        let is_uncoded = coding.is_empty() && seen.head.is_some() && seen.accepts_coding;
        if is_uncoded && matches!(seen.source, ResponseSource::Cache | ResponseSource::Passed) {
            now.uncoded = now.uncoded.saturating_add(1);
        }
        *known = now;
        let parsed = Parsed {
            seen,
            path,
            query,
            pattern: pattern_of(path),
            is_static: is_static(path, seen.head.map_or("", |head| head.content_type)),
            is_fetch,
            is_known,
            fresh_until: now.fresh_until,
        };
        self.compare_with_last(&parsed, &before, &now);
        self.compare_with_others(&parsed, coding);
    }

    /// Finds the faults that show in the response, compared with the last one of the URL.
    fn compare_with_last(&mut self, parsed: &Parsed<'_>, before: &SeenUrl, now: &SeenUrl) {
        let (seen, Some(pattern)) = (parsed.seen, parsed.pattern.as_deref()) else {
            return;
        };
        let is_same = match seen.source {
            ResponseSource::Confirmed => Some(true),
            _ if !parsed.is_known || before.body == 0 || now.body == 0 => None,
            _ => Some(before.body == now.body),
        };
        // A rule for the folder has its files, too.
        let of_folder = || folder_pattern_of(parsed.path);
        let folder = pattern.starts_with('*').then(of_folder).flatten();
        for pattern in [Some(pattern), folder.as_deref()].into_iter().flatten() {
            exclude_rules(
                &mut self.exclusions,
                (seen, pattern),
                parsed.is_static,
                is_same,
            );
        }
        let age = seen.at.since(before.fetched_at);
        let repeats = parsed.is_fetch && parsed.is_known && is_same != Some(false);
        let has_expired = parsed.is_fetch
            && parsed.is_known
            && before.lifetime_ms > 0
            && seen.at >= before.fresh_until;
        let evidence = &mut self.evidence;
        let mut add = |kind, lifetime: Duration| {
            // An unknown body may be another one each time.
            if is_same.is_none() && kind != FaultKind::NoValidator {
                return;
            }
            let is_hit = repeats && age < lifetime;
            _ = evidence.add(
                (kind, seen.site, pattern),
                seen,
                is_same != Some(false),
                is_hit,
            );
        };
        let lifetime = default_lifetime(parsed.is_static);
        if let Some(head) = seen.head.filter(|_| parsed.is_fetch) {
            let has_none = match seen.object {
                Some(object) => object.lifetime_ms == 0,
                None => seen.not_stored == "never-reusable",
            };
            // Not `no-cache`: with a validator it is the right choice for a file that must be current.
            let forbids = head_has(head.cache_control, &["no-store", "private"])
                && seen.object.is_none_or(|object| object.lifetime_ms == 0);
            if seen.has_credentials {
                // The response may be for one user.
            } else if seen.not_stored == "vary-any" {
                add(FaultKind::NeedlessVary, lifetime);
            } else if seen.not_stored == "set-cookie" {
                if parsed.is_static {
                    add(FaultKind::CookieOnStatic, lifetime);
                }
            } else if forbids {
                if parsed.is_static && !head.sets_cookie {
                    add(FaultKind::PrivateStatic, lifetime);
                }
            } else if has_none && !head.has_expires && !states_lifetime(head.cache_control) {
                add(FaultKind::NoLifetime, lifetime);
            }
            // A fetch of a fresh response has another cause, such as an eviction. A validator would not shorten it.
            if has_expired && seen.object.is_some_and(|it| !it.has_validator) {
                let stale = Duration::from_millis(before.lifetime_ms) + STALE_USE;
                add(FaultKind::NoValidator, stale);
            }
        }
        let ended = has_expired && before.lifetime_ms < SHORT_LIFETIME_MS;
        if ended && is_same.is_some() {
            let fault = (FaultKind::ShortLifetime, seen.site, pattern);
            let is_hit = repeats && age < longer_lifetime(before.lifetime_ms);
            if let Some(row) = evidence.add(fault, seen, is_same == Some(true), is_hit) {
                row.lifetime_ms = match row.lifetime_ms {
                    0 => before.lifetime_ms,
                    known => known.min(before.lifetime_ms),
                };
            }
        }
        let is_text = seen.head.is_some_and(|head| is_text(head.content_type));
        let newly_uncoded = now.uncoded >= UNCODED_MIN && now.uncoded > before.uncoded;
        // Compression of responses for users is off where it could tell secrets (BREACH).
        let newly_uncoded = newly_uncoded && !seen.has_credentials;
        if is_text && newly_uncoded && seen.body_bytes >= COMPRESSED_BYTES_MIN {
            let fault = (FaultKind::Uncompressed, seen.site, pattern);
            evidence.add(fault, seen, true, false);
        }
        // Another object with the URL and the coding is another variant.
        let vary = seen.head.map_or(&[][..], |head| head.vary);
        let is_other = parsed.is_known && before.object != 0 && before.object != now.object;
        if is_other && now.object != 0 && !vary.is_empty() && before.body != 0 && now.body != 0 {
            let is_hit = parsed.is_fetch && seen.at < before.fresh_until;
            let fault = (FaultKind::NeedlessVary, seen.site, pattern);
            let row = evidence.add(fault, seen, before.body == now.body, is_hit);
            if let Some(row) = row.filter(|_| head_has(vary, &["accept-encoding"])) {
                "Accept-Encoding".clone_into(&mut row.other);
            }
        }
    }

    /// Compares the body with those of other URLs.
    fn compare_with_others(&mut self, parsed: &Parsed<'_>, coding: &str) {
        let Some(body) = parsed.seen.body else {
            return;
        };
        if parsed.seen.body_bytes < BODY_BYTES_MIN {
            return; // short bodies such as `ok` are the same by chance
        }
        let parameters = parameters(parsed.query);
        // The number of comparisons is bounded. All are omitted, because an omitted parameter could select the body.
        if parameters.len() <= PARAMETERS_MAX {
            self.compare_parameters(parsed, coding, body, &parameters);
            self.compare_order(parsed, coding, body, &parameters);
        }
        if is_host(parsed.seen.host) {
            self.compare_hosts(parsed, coding, body);
        }
        self.compare_final_slash(parsed, coding, body);
    }

    /// Compares the URL with others that differ in the values of one parameter.
    fn compare_parameters(
        &mut self,
        parsed: &Parsed<'_>,
        coding: &str,
        body: u64,
        parameters: &[Parameter<'_>],
    ) {
        let seen = parsed.seen;
        for subject in subjects(parameters).filter(|subject| !gives_access(subject)) {
            let of_subject = |it: &&Parameter<'_>| subject_of(it.name) == subject;
            let rest = parameters
                .iter()
                .filter(|it| !of_subject(it) && !is_noise(it));
            let rest = sorted_text(rest);
            let key = ["parameter", seen.host, parsed.path, coding, subject, &rest];
            let key = self.hash(&key);
            let own = parameters.iter().filter(of_subject);
            let part = self.hash(&[&sorted_text(own.clone())]);
            let Some(other) = self.compare(parsed, key, part, body) else {
                continue;
            };
            let fault = (FaultKind::IgnoredParameter, seen.site, subject);
            let row = self.evidence.add(fault, seen, other.is_same, other.is_hit);
            let is_new = other.is_same && !parsed.is_known && own.clone().any(is_buster);
            if let Some(row) = row.filter(|_| is_new) {
                row.fresh += 1.0;
            }
        }
    }

    /// Compares the URL with others that have its parameters in another order. Parameters with one name keep theirs.
    fn compare_order(
        &mut self,
        parsed: &Parsed<'_>,
        coding: &str,
        body: u64,
        parameters: &[Parameter<'_>],
    ) {
        let seen = parsed.seen;
        if parameters.iter().all(|it| it.name == parameters[0].name) {
            return;
        }
        let sorted = sorted_text(parameters.iter());
        let key = self.hash(&["order", seen.host, parsed.path, coding, &sorted]);
        let part = self.hash(&[parsed.query]);
        if let Some(other) = self.compare(parsed, key, part, body) {
            let fault = (FaultKind::ParameterOrder, seen.site, "");
            self.evidence.add(fault, seen, other.is_same, other.is_hit);
        }
    }

    /// Compares the URL with that of the host with, or without, `www.`.
    fn compare_hosts(&mut self, parsed: &Parsed<'_>, coding: &str, body: u64) {
        let (seen, host) = (parsed.seen, parsed.seen.host);
        let key = self.hash(&["host", seen.target, coding]);
        let part = self.hash(&[host]);
        // Other hosts may be other customers with the same files, or names that a client has made up.
        let is_pair = |other: &str| {
            host.strip_prefix("www.") == Some(other) || other.strip_prefix("www.") == Some(host)
        };
        if let Some(found) = self.compare(parsed, key, part, body)
            && let Some(other) = self.hosts.name(found.part).filter(|other| is_pair(other))
        {
            // The shorter name stays, for example without `www.`.
            let (stays, leaves) = if (other.len(), other) < (host.len(), host) {
                (other, host)
            } else {
                (host, other)
            };
            let fault = (FaultKind::SameOnTwoHosts, None, leaves);
            let row = self.evidence.add(fault, seen, found.is_same, found.is_hit);
            if let Some(row) = row {
                stays.clone_into(&mut row.other);
            }
        }
        self.hosts.insert(part, host);
    }

    /// Compares the path with that without, or with, a final slash.
    fn compare_final_slash(&mut self, parsed: &Parsed<'_>, coding: &str, body: u64) {
        let seen = parsed.seen;
        let trimmed = parsed.path.strip_suffix('/').unwrap_or(parsed.path);
        let Some(pattern) = pattern_of(trimmed).filter(|_| parsed.query.is_empty()) else {
            return;
        };
        let key = self.hash(&["slash", seen.host, trimmed, coding]);
        let part = u64::from(trimmed.len() == parsed.path.len());
        if let Some(other) = self.compare(parsed, key, part, body) {
            let fault = (FaultKind::FinalSlash, seen.site, pattern.as_str());
            self.evidence.add(fault, seen, other.is_same, other.is_hit);
        }
    }

    /// Compares the body with the last body of a shortened URL, and replaces that body. Returns `None` if no other URL
    /// has this shortened form.
    fn compare(
        &mut self,
        parsed: &Parsed<'_>,
        shortened: u64,
        part: u64,
        body: u64,
    ) -> Option<Comparison> {
        let (entry, is_known) = self.shortened.entry(shortened);
        let before = *entry;
        let is_same = before.body == body;
        let fresh_until = if is_same {
            before.fresh_until.max(parsed.fresh_until)
        } else {
            parsed.fresh_until
        };
        *entry = SeenBody {
            part,
            body,
            fresh_until,
        };
        let is_fresh = parsed.seen.at < before.fresh_until;
        (is_known && before.part != part).then_some(Comparison {
            part: before.part,
            is_same,
            is_hit: parsed.is_fetch && !parsed.is_known && is_fresh,
        })
    }

    /// Follows a request that the origin has refused, or for which it has nothing.
    fn observe_refusal(&mut self, seen: &Observed<'_>, query: &str) {
        for name in subjects(&parameters(query)) {
            if is_tracking(name) || seen.status < 401 {
                // It gives no access, or the answer may have another reason: many broken links have a parameter of web
                // analysis, and a redirect to a login looks like one to a new address. It is only evidence against the
                // fault.
                let fault = (FaultKind::IgnoredParameter, seen.site, name);
                self.evidence.add(fault, seen, false, false);
            } else {
                // It may give access. The rule would remove it from requests to the origin, too.
                self.exclusions.exclude(RuleGroup::Parameter, name);
            }
        }
    }

    /// Finds ranges that are passed although the URL had a range before.
    fn observe_range(&mut self, seen: &Observed<'_>, url: u64) {
        let is_passed = match seen.source {
            ResponseSource::Passed => true,
            ResponseSource::Origin => matches!(seen.not_stored, "range" | "far-range"),
            ResponseSource::Cache | ResponseSource::Confirmed => false,
        };
        let control = seen.head.map_or(&[][..], |head| head.cache_control);
        let forbids = head_has(control, &["no-store", "private"]);
        if seen.status != 206 || !is_passed || forbids || seen.has_credentials {
            return;
        }
        let (_, is_known) = self.shortened.entry(url ^ RANGE);
        if is_known {
            let fault = (FaultKind::PassedRanges, None, "");
            self.evidence.add(fault, seen, true, true);
        }
    }

    /// Returns the faults, those that cost the most hits first.
    pub fn findings(&self) -> Vec<Finding> {
        let rows = self.evidence.rows().iter();
        let rows: Vec<&Evidence> = rows.filter(|row| self.is_fault(row)).collect();
        let mut parameters: BTreeMap<Option<usize>, Vec<&str>> = BTreeMap::new();
        for row in &rows {
            if row.kind == FaultKind::IgnoredParameter {
                parameters.entry(row.site).or_default().push(&row.subject);
            }
        }
        parameters
            .values_mut()
            .for_each(|names| names.sort_unstable());
        let findings = rows.into_iter().map(|row| {
            let is_buster = row.fresh >= BUSTER_PART * row.samples;
            let kind = match row.kind {
                FaultKind::IgnoredParameter if is_buster => FaultKind::CacheBuster,
                kind => kind,
            };
            let rule = match parameters.get(&row.site) {
                Some(names) if row.kind == FaultKind::IgnoredParameter => kind::drop_rule(names),
                _ => {
                    let lifetime = match row.kind {
                        FaultKind::ShortLifetime => longer_lifetime(row.lifetime_ms),
                        _ => default_lifetime(row.subject.starts_with('*')),
                    };
                    kind.rule(&row.subject, &row.other, lifetime)
                }
            };
            let share = |requests: f64| (requests / self.requests).min(1.0);
            Finding {
                kind,
                subject: row.subject.clone(),
                site: row.site,
                requests: row.requests,
                request_share: share(row.requests),
                hit_share: share(row.hits),
                example: row.example.clone(),
                rule,
            }
        });
        let mut findings: Vec<Finding> = findings.collect();
        let cost = |finding: &Finding| (finding.hit_share, finding.request_share);
        findings.sort_by(|a, b| cost(b).partial_cmp(&cost(a)).unwrap_or(Ordering::Equal));
        findings.truncate(FINDINGS_MAX);
        findings
    }

    /// Returns true if the evidence is sufficient.
    fn is_fault(&self, row: &Evidence) -> bool {
        let cost = if row.kind.costs_hits() {
            row.hits
        } else {
            row.requests
        };
        // These rules would be wrong for a single other response.
        let needs_all = match row.kind {
            FaultKind::PrivateStatic | FaultKind::CookieOnStatic | FaultKind::NeedlessVary => true,
            FaultKind::IgnoredParameter => !is_tracking(&row.subject),
            _ => false,
        };
        row.samples >= SAMPLES_MIN
            && !self.exclusions.excludes(row.kind, &row.subject)
            && row.against <= AGAINST_MAX * row.samples
            && (row.against == 0.0 || !needs_all)
            && cost >= SHARE_MIN * self.requests
    }

    /// Returns the memory of the tables.
    pub fn memory_bytes(&self) -> u64 {
        self.urls.memory_bytes()
            + self.shortened.memory_bytes()
            + self.evidence.memory_bytes()
            + self.hosts.memory_bytes()
            + EXCLUSION_BYTES
    }

    /// Returns the probability that a finding is withheld although nothing excludes its rule, because the memory of
    /// exclusions is full.
    pub fn withheld_ratio(&self) -> f64 {
        self.exclusions.withheld_ratio()
    }

    fn decay(&mut self, now: Timestamp) {
        if self.decays {
            self.exclusions.forget_old(now);
        }
        let scaled_at = *self.scaled_at.get_or_insert(now);
        let halvings = now.since(scaled_at).as_secs() / HALF_LIFE.as_secs();
        if halvings > 0 && self.decays {
            let factor = 0.5_f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX));
            self.evidence.scale(factor);
            self.requests *= factor;
            self.scaled_at = Some(now);
        }
    }

    fn hash(&self, texts: &[&str]) -> u64 {
        let mut hash = Xxh3::with_seed(self.seed);
        for text in texts {
            hash.write(text.as_bytes());
            hash.write(&[0]); // no text has this byte, so the parts cannot be mistaken for others
        }
        hash.finish()
    }
}

/// Excludes the rules that would store a response for one user, or remove the sign of it.
fn exclude_rules(
    exclusions: &mut Exclusions,
    (seen, pattern): (&Observed<'_>, &str),
    is_static: bool,
    is_same: Option<bool>,
) {
    let head = seen.head.unwrap_or_default();
    let is_for_user = seen.has_credentials && is_same == Some(false);
    let forbids = head_has(head.cache_control, &["no-store", "private"]);
    let may_be_for_user = is_for_user || (forbids && seen.has_credentials);
    let mut exclude = |group| exclusions.exclude(group, pattern);
    if is_for_user || forbids || head.sets_cookie {
        exclude(RuleGroup::Lifetime);
    }
    if is_static && may_be_for_user {
        exclude(RuleGroup::StaticLifetime);
    }
    let is_any_of_user = seen.has_credentials && head_has(head.vary, &["*"]);
    let depends_on_user = head_has(head.vary, &["cookie", "authorization", "origin"]);
    if may_be_for_user || is_any_of_user || depends_on_user {
        exclude(RuleGroup::Vary);
    }
}

/// Returns the lifetime to set if the origin states none.
const fn default_lifetime(is_static: bool) -> Duration {
    Duration::from_secs(if is_static { 86_400 } else { 60 })
}

/// Returns the lifetime to set in place of a short one: ten times as long, from ten minutes on in whole minutes. The
/// age of a response shortens its lifetime by some seconds.
fn longer_lifetime(lifetime_ms: u64) -> Duration {
    let seconds = 10 * lifetime_ms.div_ceil(1000).max(1);
    Duration::from_secs(if seconds < 600 {
        seconds
    } else {
        seconds.next_multiple_of(60)
    })
}

/// The memory of the table of evidence, of exclusions and of the names of hosts.
const EVIDENCE_BYTES_MAX: u64 = 192 << 10;

/// The time after which a request counts half.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// The least samples that are a fault.
const SAMPLES_MIN: f64 = 5.0;

/// The most samples against a fault, as a part of those for it.
const AGAINST_MAX: f64 = 0.05;

/// The least cost of a fault: the share of requests that the rule would turn into hits, or that have the fault.
const SHARE_MIN: f64 = 0.002;

/// A parameter is a cache buster if so many of its values are new.
const BUSTER_PART: f64 = 0.8;

/// The most faults in a list.
const FINDINGS_MAX: usize = 30;

/// The shortest body that is compared with those of other URLs.
const BODY_BYTES_MIN: u64 = 64;

/// The shortest text that should be compressed.
const COMPRESSED_BYTES_MIN: u64 = 1024;

/// The responses of a URL without a coding that are a fault. The first ones may have been sent before the encoding was
/// ready.
const UNCODED_MIN: u8 = 3;

/// Lifetimes below an hour are short.
const SHORT_LIFETIME_MS: u64 = 3_600_000;

/// The time of stale use that the rule for responses without validators sets.
const STALE_USE: Duration = Duration::from_secs(600);

/// The longest example of a URL.
pub const EXAMPLE_BYTES_MAX: usize = evidence::EXAMPLE_BYTES_MAX;

/// The longest target that is compared. A sample may have cut longer ones.
const TARGET_BYTES_MAX: usize = 1000;

/// The longest host, by RFC 1035.
const HOST_BYTES_MAX: usize = 255;

/// Distinguishes the entries of ranges in the table of shortened URLs.
const RANGE: u64 = 0x7261_6e67_6500_0000;

#[cfg(test)]
mod tests;
