//! Explains the decisions for a request, for `edgeward explain` and the admin server.
//!
//! The steps call the same functions as a request: the canonical form, the route, the key, the verdict of the purges,
//! [`StoredPolicy::reuse`](edgeward_semantics::StoredPolicy::reuse), [`judge_found`], [`judge_absent`] and the
//! evaluation of conditions and ranges. Nothing is sent to the origin, counted or changed. The test
//! `an_explanation_predicts_the_answer` compares explanations with answers.

mod changes; // the changes of requests and responses that rules demand

use edgeward_purge::Verdict;
use edgeward_semantics::content_coding::{Coding, encode_head, may_encode};
use edgeward_semantics::range::{self, RangeAnswer};
use edgeward_semantics::{CacheStatus, Forward, Reuse, Route, Validators, Vary};
use edgeward_sites::Stated;
use http::StatusCode;
use http::header::RANGE;
use serde_json::{Value, json};

use self::changes::{RULES_PAGE, Step};
use super::inspect::{self, FoundEntries, FoundEntry, InspectedRequest};
use super::judge::{AbsentDecision, FoundDecision, judge_absent, judge_found};
use super::lookup::id_filters_of;
use super::rules::{NotServed, RuleAnswer};
use super::stale::StaleCause;
use super::worker::Shared;
use super::{coding_choice, deliver, encoded};
use crate::cache::negative::Negative;
use crate::cache::stored::{StoredBody, StoredResponse};
use crate::cache::{Tier, url_of};
use crate::exchange::Request;

/// The section about paths that origins read differently.
const READINGS_PAGE: &str = "docs/how-to/sites.md#paths-that-origins-read-differently";

/// The answer needs slices that are not stored.
struct MissingSlices;

/// The steps of a decision, and its result.
#[derive(Default)]
struct Explanation {
    steps: Vec<Value>,
    /// The predicted `Cache-Status`, without the status of the origin.
    cache_status: Option<CacheStatus>,
    /// The status of the answer, if the edge gives the answer.
    status: Option<StatusCode>,
    stored: Option<Value>,
}

/// Returns the explanation of a request as JSON.
pub(crate) fn explain(shared: &Shared, query: &InspectedRequest) -> Value {
    let mut explanation = Explanation::default();
    explanation.decide(shared, query);
    let cache_status = explanation.cache_status.map(|status| {
        let mut text = String::new();
        status.write(&shared.config.name, &mut text);
        text
    });
    json!({
        "steps": explanation.steps,
        "cache_status": cache_status,
        "status": explanation.status.map(|status| status.as_u16()),
        "stored": explanation.stored,
    })
}

impl Explanation {
    fn step(&mut self, step: &str, decision: impl Into<String>, section: &str) {
        let decision: String = decision.into();
        self.steps
            .push(json!({ "step": step, "decision": decision, "section": section }));
    }

    fn decide(&mut self, shared: &Shared, query: &InspectedRequest) {
        let (request, checked) = query.canonical(shared);
        self.decide_request(shared, &request, checked);
        if let Some(status) = changes::page_status(&request, self.status) {
            let text = format!(
                "the body is the page of the site for status {}",
                status.as_u16()
            );
            self.step("error page", text, RULES_PAGE);
        }
        for text in changes::of_response(&request) {
            self.step("answer field", text, RULES_PAGE);
        }
    }

    fn decide_request(
        &mut self,
        shared: &Shared,
        request: &Request,
        checked: Result<(), NotServed>,
    ) {
        match checked {
            Err(NotServed::Refused(refusal)) => {
                self.status = Some(refusal.status);
                let text = format!("refuse with {}: {}", refusal.status, refusal.text);
                return self.step("request", text, "RFC 9110 §15.5");
            }
            Err(NotServed::FinalRecipient) => {
                self.status = Some(StatusCode::OK);
                let text = "answer: Max-Forwards is 0, so the edge is the final recipient";
                return self.step("request", text, "RFC 9110 §7.6.2");
            }
            Err(NotServed::Answered(_)) | Ok(()) => {}
        }
        self.explain_rules(shared, request);
        if let Err(NotServed::Answered(answer)) = checked {
            return self.answered(&answer);
        }
        let authority = request.authority().unwrap_or_default();
        let target = request.path_and_query();
        let text = format!(
            "{} {}://{authority}{target}",
            request.method, request.scheme
        );
        self.step("request", text, "RFC 9110 §4.2.3, §7.2");
        for Step { name, text, page } in changes::steps(request) {
            self.step(name, text, page);
        }
        if request.received_fields.is_some() {
            let text = "purge: the edge carries the method out for clients of purge.allow";
            return self.step("route", text, "docs/how-to/purge.md");
        }
        match request.route {
            Route::Pass(reason) => {
                self.cache_status = Some(reason.cache_status());
                let text = format!("pass: {}", reason.as_str());
                self.step("route", text, reason.section());
            }
            Route::Lookup => {
                self.step("route", "look up a stored response", "RFC 9111 §4");
                if let Some(found) = inspect::find(shared, request) {
                    self.look_up(shared, request, &found);
                }
            }
        }
    }

    /// Names the site and the rules that apply.
    fn explain_rules(&mut self, shared: &Shared, request: &Request) {
        let settings = request.settings();
        let sites = settings.sites();
        let site = sites.site(settings.site);
        self.step("site", &*site.name, RULES_PAGE);
        for (n, rule) in site.rules().iter().enumerate() {
            if settings.rules.contains(n) {
                let text = format!("the rule in line {} applies", rule.line);
                self.step("rule", text, RULES_PAGE);
            } else if settings.rules.disputes(n) {
                let text = format!(
                    "the rule in line {} restricts, because origins may read the request in several ways",
                    rule.line
                );
                self.step("rule", text, READINGS_PAGE);
            }
        }
        if shared.config.origins.len() > 1 {
            let origin = &shared.config.origins[request.origin.index()];
            self.step("origin", &*origin.name, RULES_PAGE);
        }
        if !request.class.is_empty() {
            let class = String::from_utf8_lossy(&request.class).into_owned();
            self.step("class", class, RULES_PAGE);
        }
        let body_limit = match settings.stated.request_body_max {
            Stated::Unstated => None,
            Stated::Off => Some("request bodies of any size".to_owned()),
            Stated::On(max) => Some(format!("request bodies up to {} bytes", max.bytes())),
        };
        if let Some(text) = body_limit {
            self.step("body limit", text, RULES_PAGE);
        }
        if let Some(target) = &request.forwarded_target {
            self.step("rewrite", &**target, RULES_PAGE);
        }
    }

    fn answered(&mut self, answer: &RuleAnswer) {
        let (status, text) = match answer {
            RuleAnswer::Denied(status) => (*status, "deny".to_owned()),
            RuleAnswer::Redirect(status, location) => {
                let location = String::from_utf8_lossy(location.as_bytes());
                (*status, format!("redirect to {location}"))
            }
            RuleAnswer::Fixed(answer) => (answer.status, "page".to_owned()),
            RuleAnswer::Challenge(_) => (StatusCode::OK, "challenge".to_owned()),
            RuleAnswer::RateLimited(_) => (StatusCode::TOO_MANY_REQUESTS, "rate limit".to_owned()),
        };
        self.status = Some(status);
        let text = format!("{text}: {}", status.as_u16());
        self.step("answer", text, RULES_PAGE);
    }

    fn look_up(&mut self, shared: &Shared, request: &Request, found: &FoundEntries) {
        let target = String::from_utf8_lossy(found.key.target()).into_owned();
        self.step("key", target, "RFC 9111 §2");
        if let Some(rule) = found.key.rule() {
            let url = String::from_utf8_lossy(url_of(found.key.primary())).into_owned();
            let text = format!("No-Vary-Search: {rule}, as {url}");
            self.step("path rule", text, "draft-ietf-httpbis-no-vary-search-06 §6");
        }
        if found.key.marker.is_some() {
            let variant = inspect::variant_text(&found.key.bytes);
            self.step("variant", variant, "RFC 9111 §4.1");
            if found.key.own_variant().is_some() {
                let text = "the variant was fetched by another client and answers this request";
                let page = "docs/reference/http-caching.md#variants-that-clients-share";
                self.step("shared variant", text, page);
            }
        }
        let rules = &request.settings().caching;
        let directives = rules.request_directives(&request.headers);
        let Some((entry, response)) = with_response(found) else {
            self.step("stored", "no response is stored", "RFC 9111 §4");
            return self.absent(shared, request, found, &directives);
        };
        let tier = if entry.in_memory { "memory" } else { "disk" };
        let since = shared.clock.date_of(response.policy.response_time);
        let since = edgeward_semantics::format_http_date(since);
        let since = String::from_utf8_lossy(since.as_bytes()).into_owned();
        let text = format!(
            "status {} in {tier}, validated at {since}",
            response.status.as_u16()
        );
        self.step("stored", text, "RFC 9111 §4");
        let stored = inspect::describe(shared, rules, found.key.primary(), entry);
        self.explain_freshness(&stored["freshness"]);
        self.stored = Some(stored);
        let verdict = inspect::verdict(shared, found.key.primary(), entry);
        let text = match verdict {
            Verdict::Current => "no purge covers the response",
            Verdict::Soft => "a soft purge covers the response: it is validated in the background",
            Verdict::Hard => "a hard purge covers the response: it is not used",
        };
        self.step("purges", text, "docs/explanation/purge.md");
        let now = shared.clock.now();
        let mut reuse = None;
        let decision = judge_found(verdict, shared.cache.fleet.as_ref(), || {
            *reuse.insert(response.policy.reuse(now, &directives))
        });
        if let Some(reuse) = reuse {
            self.explain_reuse(reuse);
        }
        let ttl = response.policy.ttl_secs(now);
        match decision {
            FoundDecision::Purged => self.absent(shared, request, found, &directives),
            FoundDecision::Serve { .. } => match self.find_slices(shared, request, entry) {
                Err(MissingSlices) if directives.only_if_cached => self.only_if_cached(),
                Err(MissingSlices) => {
                    let status = CacheStatus::forward(Forward::Partial);
                    self.cache_status = Some(status.with_detail("slices"));
                }
                Ok(tier) => self.serve(shared, request, entry, tier, ttl),
            },
            FoundDecision::Validate { reason } => {
                let hash = found.key.hash;
                let backs_off = || StaleCause::of_back_off(shared, request, hash, &entry.stored);
                if reason == Forward::Stale
                    && let Some(cause) = backs_off()
                {
                    let text =
                        "serve although it is stale: the origin has just failed to validate it";
                    self.step("back-off", text, "RFC 9111 §4.2.4, RFC 5861 §4");
                    self.serve(shared, request, entry, entry.tier(), ttl);
                    self.cache_status = Some(cause.cache_status(reason, ttl));
                } else {
                    self.cache_status = Some(CacheStatus::forward(reason));
                }
            }
            FoundDecision::OnlyIfCached => self.only_if_cached(),
            FoundDecision::CutOff => self.status = Some(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    fn explain_freshness(&mut self, freshness: &Value) {
        let source = freshness["source"].as_str().unwrap_or_default();
        let from = match freshness["field"].as_str() {
            Some(field) if field != source => format!("{source} of {field}"),
            _ => source.to_owned(),
        };
        let text = format!(
            "age {} s, lifetime {} s from {from}",
            freshness["age_seconds"],
            freshness["lifetime_seconds"].as_f64().unwrap_or(0.0)
        );
        let section = freshness["section"].as_str().unwrap_or("RFC 9111 §4.2");
        self.step("freshness", text, section);
        if let Some(because) = freshness["storable_because"].as_str() {
            self.step("storable", because, "RFC 9111 §3");
        }
    }

    fn explain_reuse(&mut self, reuse: Reuse) {
        if let Some(cause) = reuse.cause() {
            self.step("not reusable", cause.as_str(), cause.section());
        }
        self.step("reuse", reuse.as_str(), reuse.section());
    }

    /// Explains if the answer needs slices that are not stored. Otherwise returns the tier that has the first bytes of
    /// the answer.
    fn find_slices(
        &mut self,
        shared: &Shared,
        request: &Request,
        entry: &FoundEntry,
    ) -> Result<Tier, MissingSlices> {
        let Some(slices) = entry.stored.slices() else {
            return Ok(entry.tier());
        };
        let Some(needed) = deliver::needed_bytes(request, entry.stored.response()) else {
            return Ok(Tier::Memory); // the answer has no body
        };
        let tiers: Vec<_> = inspect::slice_tiers(shared, &entry.stored, slices, &needed).collect();
        let missing = tiers.iter().filter(|tier| tier.is_none()).count();
        let text = match missing {
            0 => format!(
                "the answer needs {} slices, and all are stored",
                tiers.len()
            ),
            _ => format!(
                "the answer needs {} slices; fetch the {missing} that are not stored",
                tiers.len()
            ),
        };
        self.step("slices", text, "RFC 9111 §3.4");
        match missing {
            0 => Ok(tiers.first().copied().flatten().unwrap_or(Tier::Memory)),
            _ => Err(MissingSlices),
        }
    }

    /// Explains the status of the answer that a stored response gives. `tier` has the response without a coding.
    fn serve(
        &mut self,
        shared: &Shared,
        request: &Request,
        entry: &FoundEntry,
        tier: Tier,
        ttl: i64,
    ) {
        let response = entry.stored.response();
        let selected = self.select_coding(shared, request, entry);
        let tier = selected.as_ref().map_or(tier, |(_, tier)| *tier);
        let mut status = CacheStatus::hit(ttl);
        if tier == Tier::Disk {
            status = status.with_detail("disk");
        }
        self.cache_status = Some(status);
        let mut headers = response.headers();
        let ignores_range = response.generation.is_some()
            && coding_choice::ignores_range(&shared.config.compression, request, &headers);
        if let Some((coding, _)) = selected {
            encode_head(&mut headers, coding, 0); // the length does not matter here
        }
        if deliver::is_not_modified(request, response.status, &headers) {
            self.status = Some(StatusCode::NOT_MODIFIED);
            let text = "answer 304: the condition of the request holds for the stored response";
            return self.step("condition", text, "RFC 9110 §13.2.2, RFC 9111 §4.3.2");
        }
        self.status = Some(response.status);
        if !request.headers.contains_key(RANGE) {
            return;
        }
        if ignores_range {
            let text =
                "answer with the whole response, because the client may have a part in a coding";
            return self.step("range", text, "RFC 9110 §13.1.5");
        }
        let (method, fields) = (&request.method, &request.headers);
        let validators = Validators::from_headers(&headers);
        let length = response.body.len();
        let (status, text) =
            match range::decide(method, fields, response.status, &validators, length) {
                RangeAnswer::Full => (response.status, "answer with the whole response"),
                RangeAnswer::Several(_) if matches!(response.body, StoredBody::Slices(_)) => {
                    let text = "answer with the whole response, because it is in slices";
                    (response.status, text)
                }
                RangeAnswer::Unsatisfiable => {
                    let text = "answer 416: no range lies in the stored response";
                    (StatusCode::RANGE_NOT_SATISFIABLE, text)
                }
                _ => (
                    StatusCode::PARTIAL_CONTENT,
                    "answer 206 with a part of the stored response",
                ),
            };
        self.status = Some(status);
        self.step("range", text, "RFC 9110 §14.2");
    }

    /// Explains in which coding a response is sent. Returns the coding, and the tier that has or will have the
    /// encoding.
    fn select_coding(
        &mut self,
        shared: &Shared,
        request: &Request,
        entry: &FoundEntry,
    ) -> Option<(Coding, Tier)> {
        const SECTION: &str = "RFC 9110 §12.5.3";
        let config = &shared.config.compression;
        let response = entry.stored.response();
        let order = coding_choice::accepted_codings(config, request);
        let first = order.first()?;
        let Some(_) = response.generation else {
            let (head, fields) = (response.headers(), &request.headers);
            let (status, vary) = (response.status, Vary::from_headers(&head));
            let length = Some(response.body.len());
            let text = match may_encode(&config.rules, fields, status, &head, &vary, length) {
                Err(reason) => reason.as_str(),
                Ok(()) => "it was stored with other settings or by an older release",
            };
            self.step("coding", format!("none: {text}"), SECTION);
            return None;
        };
        match encoded::select_by_fields(request, response, &order) {
            Some(Some(coding)) => {
                let text = format!("{}: the client has it", coding.name());
                self.step("coding", text, SECTION);
                return Some((coding, Tier::Memory));
            }
            Some(None) => {
                let text = "none: the condition or the range is for the response without a coding";
                self.step("coding", text, SECTION);
                return None;
            }
            None => {}
        }
        let name = first.name();
        let (text, selected) = match inspect::find_encoding(shared, entry, first) {
            Some(encoding) if encoding.stored.response().body.len() == 0 => {
                (format!("none: {name} saves too little"), None)
            }
            Some(encoding) => {
                let tier = encoding.tier();
                let place = if tier == Tier::Memory {
                    "memory"
                } else {
                    "disk"
                };
                (format!("{name}, stored in {place}"), Some((first, tier)))
            }
            None if response.body.len() > config.wait_bytes_max.bytes() => {
                (format!("none: {name} is made for later requests"), None)
            }
            None => (format!("{name}, made now"), Some((first, Tier::Memory))),
        };
        self.step("coding", text, SECTION);
        selected
    }

    fn absent(
        &mut self,
        shared: &Shared,
        request: &Request,
        found: &FoundEntries,
        directives: &edgeward_semantics::RequestDirectives,
    ) {
        let is_unknown_id = || {
            shared
                .negative
                .is_absent(request.path(), id_filters_of(request))
        };
        match judge_absent(found.key.marker.is_some(), directives, is_unknown_id) {
            AbsentDecision::UnknownId => {
                self.status = Some(StatusCode::NOT_FOUND);
                self.cache_status = Some(Negative::cache_status());
                let text = "answer 404: a filter knows that the id does not exist";
                self.step("negative rule", text, "docs/how-to/negative-lookups.md");
            }
            AbsentDecision::OnlyIfCached => self.only_if_cached(),
            AbsentDecision::Forward(reason) => {
                self.cache_status = Some(CacheStatus::forward(reason));
                let text = match reason {
                    Forward::VaryMiss => "forward: other variants of the URL are stored",
                    _ => "forward: no response of the URL is stored",
                };
                self.step("forward", text, "RFC 9211 §2.2");
            }
        }
    }

    fn only_if_cached(&mut self) {
        self.status = Some(StatusCode::GATEWAY_TIMEOUT);
        let status = CacheStatus::forward(Forward::Miss).with_detail("only-if-cached");
        self.cache_status = Some(status);
        let text = "answer 504: the request has only-if-cached";
        self.step("forward", text, "RFC 9111 §5.2.1.7");
    }
}

fn with_response(found: &FoundEntries) -> Option<(&FoundEntry, &StoredResponse)> {
    let entry = found.entry.as_ref()?;
    Some((entry, entry.response()?))
}
