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

mod evidence;
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
use fields::{head_has, is_text, states_lifetime};
use hosts::HostNames;
pub use kind::FaultKind;
use recent::RecentTable;
pub use request::{ObjectFacts, Observed, ResponseFacts, ResponseSource};
use url::{
    gives_access, is_buster, is_host, is_name, is_noise, is_static, is_tracking, parameters,
    pattern_of, subject_of, value_of,
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
        if matches!(seen.status, 401 | 403 | 404 | 410) {
            // A parameter may give access. The rule would remove it from requests to the origin, too.
            for (name, _) in parameters(query).filter(|(name, _)| is_name(name)) {
                let fault = (FaultKind::IgnoredParameter, seen.site, subject_of(name));
                self.evidence.refute(fault);
            }
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
        let age = seen.at.since(before.fetched_at);
        let repeats = parsed.is_fetch && parsed.is_known && is_same != Some(false);
        let evidence = &mut self.evidence;
        refute(evidence, (seen, pattern), parsed.is_static, is_same);
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
            if seen.object.is_some_and(|it| !it.has_validator) {
                let stale = Duration::from_millis(before.lifetime_ms) + STALE_USE;
                add(FaultKind::NoValidator, stale);
            }
        }
        let ended = parsed.is_fetch
            && parsed.is_known
            && (1..SHORT_LIFETIME_MS).contains(&before.lifetime_ms)
            && seen.at >= before.fresh_until;
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
        let vary = seen.head.map_or("", |head| head.vary);
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
        let seen = parsed.seen;
        let (Some(body), false) = (seen.body, seen.body_bytes < BODY_BYTES_MIN) else {
            return; // short bodies such as `ok` are the same by chance
        };
        let (host, path) = (seen.host, parsed.path);
        let shared = |faults: &mut Self, key: u64, part: u64| {
            let (entry, is_known) = faults.shortened.entry(key);
            let before = *entry;
            let fresh_until = if before.body == body {
                before.fresh_until.max(parsed.fresh_until)
            } else {
                parsed.fresh_until
            };
            *entry = SeenBody {
                part,
                body,
                fresh_until,
            };
            let is_hit = parsed.is_fetch && !parsed.is_known && seen.at < before.fresh_until;
            (is_known && before.part != part).then_some((before, before.body == body, is_hit))
        };
        let parameters: Vec<(&str, &str)> = parameters(parsed.query).collect();
        let base = |without: &str| -> Vec<&str> {
            let kept = parameters.iter().filter(|(name, parameter)| {
                *name != without && !is_noise(name, value_of(parameter))
            });
            kept.map(|(_, parameter)| *parameter).collect()
        };
        let mut names: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names
            .iter()
            .copied()
            .filter(|name| is_name(name) && !gives_access(name))
        {
            let mut rest = base(name);
            rest.sort_unstable();
            let rest = rest.join("&");
            let key = self.hash(&["parameter", host, path, coding, name, &rest]);
            let values = parameters.iter().filter(|(other, _)| *other == name);
            let values: Vec<&str> = values.map(|(_, parameter)| *parameter).collect();
            let part = self.hash(&[&values.join("&")]);
            let Some((_, is_same, is_hit)) = shared(self, key, part) else {
                continue;
            };
            let fault = (FaultKind::IgnoredParameter, seen.site, subject_of(name));
            let row = self.evidence.add(fault, seen, is_same, is_hit);
            let is_buster = values.iter().any(|one| is_buster(name, value_of(one)));
            if let Some(row) = row.filter(|_| is_same && is_buster && !parsed.is_known) {
                row.fresh += 1.0;
            }
        }
        if names.len() > 1 {
            let mut sorted: Vec<&str> = parameters.iter().map(|(_, it)| *it).collect();
            sorted.sort_unstable();
            let key = self.hash(&["order", host, path, coding, &sorted.join("&")]);
            let part = self.hash(&[parsed.query]);
            if let Some((_, is_same, is_hit)) = shared(self, key, part) {
                let fault = (FaultKind::ParameterOrder, seen.site, "");
                self.evidence.add(fault, seen, is_same, is_hit);
            }
        }
        if is_host(host) {
            let key = self.hash(&["host", seen.target, coding]);
            let part = self.hash(&[host]);
            let other = shared(self, key, part);
            // Other hosts may be other customers with the same files, or names that a client has made up.
            let is_pair = |other: &str| {
                host.strip_prefix("www.") == Some(other) || other.strip_prefix("www.") == Some(host)
            };
            if let Some((before, is_same, is_hit)) = other
                && let Some(other) = self.hosts.name(before.part).filter(|other| is_pair(other))
            {
                // The shorter name stays, for example without `www.`.
                let (stays, leaves) = if (other.len(), other) < (host.len(), host) {
                    (other, host)
                } else {
                    (host, other)
                };
                let fault = (FaultKind::SameOnTwoHosts, None, leaves);
                if let Some(row) = self.evidence.add(fault, seen, is_same, is_hit) {
                    stays.clone_into(&mut row.other);
                }
            }
            self.hosts.insert(part, host);
        }
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        if let Some(pattern) = pattern_of(trimmed).filter(|_| parsed.query.is_empty()) {
            let key = self.hash(&["slash", host, trimmed, coding]);
            let part = u64::from(trimmed.len() == path.len());
            if let Some((_, is_same, is_hit)) = shared(self, key, part) {
                let fault = (FaultKind::FinalSlash, seen.site, pattern.as_str());
                self.evidence.add(fault, seen, is_same, is_hit);
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
        let control = seen.head.map_or("", |head| head.cache_control);
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
            FaultKind::PrivateStatic | FaultKind::CookieOnStatic => true,
            FaultKind::IgnoredParameter => !is_tracking(&row.subject),
            _ => false,
        };
        row.samples >= SAMPLES_MIN
            && !row.is_refuted
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
    }

    fn decay(&mut self, now: Timestamp) {
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

/// Refutes the faults whose rules would store a response for one user, or remove the sign of it.
fn refute(
    evidence: &mut EvidenceTable,
    (seen, pattern): (&Observed<'_>, &str),
    is_static: bool,
    is_same: Option<bool>,
) {
    let Some(head) = seen.head else {
        return;
    };
    let is_for_user = seen.has_credentials && is_same == Some(false);
    let forbids = head_has(head.cache_control, &["no-store", "private"]);
    let mut refute = |kind| evidence.refute((kind, seen.site, pattern));
    if is_for_user || forbids || head.sets_cookie {
        refute(FaultKind::ShortLifetime);
        refute(FaultKind::NoLifetime);
    }
    if is_static && (is_for_user || (forbids && seen.has_credentials)) {
        refute(FaultKind::PrivateStatic);
        refute(FaultKind::CookieOnStatic);
    }
    if is_for_user || head_has(head.vary, &["cookie", "authorization", "origin"]) {
        refute(FaultKind::NeedlessVary);
    }
}

/// Returns the lifetime to set if the origin states none.
const fn default_lifetime(is_static: bool) -> Duration {
    Duration::from_secs(if is_static { 86_400 } else { 60 })
}

/// Returns the lifetime to set in place of a short one.
fn longer_lifetime(lifetime_ms: u64) -> Duration {
    let seconds = lifetime_ms.div_ceil(1000).max(1);
    Duration::from_secs(10 * seconds)
}

/// The memory of the table of evidence, and of the names of hosts.
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
