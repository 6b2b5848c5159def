//! Random histories of a cache, compared with a literal oracle: the rules of RFC 9110, 9111, 5861 and 9213 and of
//! `No-Vary-Search`, computed again for each request from the parts of the messages.
//!
//! The cache of the test stores responses in a list, which it searches from its end. Everything else is decided by the
//! crate: what is stored, which request a response answers, for how long, and what an update or an unsafe request
//! changes.

mod conditions;
mod message;
mod oracle;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use edgeward_semantics::freshen::{self, Freshened, StoredResponse};
use edgeward_semantics::{
    ClientDirectives, Exchange, Heuristic, Reuse, Route, Rules, Storable, Target, Vary, Verdict,
    invalidation, on_response, route,
};
use edgeward_types::Timestamp;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

use conditions::{check_answer, check_validation};
use message::{Request, Response, request, response};
use oracle::{Remembered, Times};

/// A request `wait_ms` after the end of the previous one; the clock may step back. If the request is forwarded, the
/// origin answers after `delay_ms`.
#[derive(Clone, Debug)]
struct Step {
    wait_ms: i64,
    request: Request,
    delay_ms: u64,
    answer: Response,
    /// The origin answers a validation by a 304.
    confirms: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let wait_ms = prop_oneof![9 => 0_i64..4_000, 9 => 0_i64..15_000, 2 => -5_000_i64..0];
    (wait_ms, request(), 0_u64..3_000, response(), any::<bool>()).prop_map(
        |(wait_ms, request, delay_ms, answer, confirms)| Step {
            wait_ms,
            request,
            delay_ms,
            answer,
            confirms,
        },
    )
}

/// A stored response of the cache of the test.
#[derive(Clone, Debug)]
struct Entry {
    target: Vec<u8>,
    request: HeaderMap,
    status: StatusCode,
    storable: Storable,
}

impl Entry {
    fn matches(&self, target: &[u8], request: &HeaderMap) -> bool {
        let canonical = |target: &[u8]| {
            let Some(rule) = &self.storable.no_vary_search else {
                return target.to_vec();
            };
            let path_end = target.iter().position(|&byte| byte == b'?');
            let (path, query) = target.split_at(path_end.unwrap_or(target.len()));
            let mut key = path.to_vec();
            rule.write_query(query.strip_prefix(b"?").unwrap_or_default(), &mut key);
            key
        };
        let varies_equally = match &self.storable.vary {
            Vary::None => true,
            Vary::Fields(fields) => fields.selects_same(&self.request, request),
            Vary::Any => panic!("a response with `Vary: *` is not stored"),
        };
        canonical(&self.target) == canonical(target) && varies_equally
    }

    fn stored(&self) -> StoredResponse<'_> {
        StoredResponse {
            status: self.status,
            head: &self.storable.head,
            validators: &self.storable.validators,
        }
    }
}

/// The cache and its oracle. Both lists have the same order.
struct History {
    rules: Rules,
    /// All times are multiples of this number of milliseconds.
    grain_ms: u64,
    estimates: bool,
    now_ms: u64,
    limit_secs: u32,
    cache: Vec<Entry>,
    oracle: Vec<Remembered>,
}

/// Counts the events of all histories by name.
type Events = RefCell<BTreeMap<&'static str, u32>>;

impl History {
    fn run(&mut self, step: Step, events: &Events) -> Result<(), TestCaseError> {
        let event = |name| *events.borrow_mut().entry(name).or_default() += 1;
        let grain = i64::try_from(self.grain_ms).expect("a small number");
        let wait_ms = step.wait_ms / grain * grain;
        self.now_ms = self.now_ms.checked_add_signed(wait_ms).expect("after 1970");
        let Step {
            request,
            mut answer,
            ..
        } = step;
        let (method, head) = (&request.method, request.head(self.now_ms / 1000));
        let path_and_query = request.path_and_query();
        let target = Target::new("http", request.host, &path_and_query).expect("a valid target");
        prop_assert_eq!(self.rules.request_directives(&head), request.directives);

        let is_looked_up = [Method::GET, Method::HEAD].contains(method);
        prop_assert_eq!(route(method, &head) == Route::Lookup, is_looked_up);
        let mut selected = None;
        if is_looked_up {
            let key = target.key();
            selected = self
                .cache
                .iter()
                .rposition(|entry| entry.matches(&key, &head));
            let expected = self
                .oracle
                .iter()
                .rposition(|stored| stored.matches(&request));
            prop_assert_eq!(selected, expected);
        }
        if let Some(at) = selected {
            let reuse = self.check_reuse(at, &request)?;
            event(reuse);
            if matches!(reuse, "fresh" | "stale" | "stale-while-revalidate") {
                let now_secs = self.now_ms / 1000;
                let validators = &self.cache[at].storable.validators;
                if check_answer(&request, &head, now_secs, validators, &self.oracle[at])? {
                    event("not modified");
                }
            }
            if !matches!(reuse, "validate" | "fetch" | "stale-while-revalidate") {
                return Ok(());
            }
        }

        let times = Times {
            request_ms: self.now_ms,
            response_ms: self.now_ms + step.delay_ms / self.grain_ms * self.grain_ms,
        };
        self.now_ms = times.response_ms;
        let exchange = Exchange {
            request_time: Timestamp::from_millis(times.request_ms),
            response_time: Timestamp::from_millis(times.response_ms),
            response_date: Timestamp::from_millis(times.response_ms),
        };
        let validated = selected.filter(|&at| step.confirms && self.oracle[at].has_validator());
        if let Some(old) = validated.map(|at| &self.oracle[at]) {
            // The date of the stored response, another one, or none.
            let signed = |secs: u64| i64::try_from(secs).expect("in this century");
            let same = old.last_modified.map(signed);
            answer.last_modified = match answer.last_modified {
                Some(-100..) => same.map(|same| same - signed(times.response_ms / 1000)),
                Some(..-200) => answer.last_modified,
                _ => None,
            };
        }
        let answer_head = answer.head(times.response_ms / 1000);
        let status = StatusCode::from_u16(answer.status).expect("three digits");
        let rules = &self.rules;
        let decide = || on_response(rules, method, &head, status, &answer_head, exchange);
        match (method.as_str(), validated.or(selected)) {
            ("GET", Some(at)) if validated.is_some() => {
                let entry = &self.cache[at];
                let old = &self.oracle[at];
                check_validation(head.clone(), &entry.storable.validators, old)?;
                let new = Remembered::new(answer.clone(), request.clone(), times, self.estimates);
                let is_confirmed = old.is_confirmed_by(&new);
                let freshened =
                    freshen::by_not_modified(rules, &head, entry.stored(), &answer_head, exchange);
                let updated = old.updated(answer, times);
                event(if is_confirmed { "304" } else { "another 304" });
                self.update(at, freshened, is_confirmed.then_some(updated), &request)?;
            }
            ("GET", selected) => {
                let expected = Remembered::new(answer, request.clone(), times, self.estimates);
                let may_be_stored = expected.may_be_stored(&request);
                let verdict = decide();
                prop_assert_eq!(
                    matches!(verdict, Verdict::Store(_)),
                    may_be_stored,
                    "{:?}",
                    expected
                );
                // The new response replaces the one that was selected.
                if let Some(at) = selected {
                    self.remove(at);
                }
                if let Verdict::Store(storable) = verdict {
                    event("stored");
                    self.cache.push(Entry {
                        target: target.key(),
                        request: head,
                        status,
                        storable: *storable,
                    });
                    self.oracle.push(expected);
                }
            }
            ("HEAD", Some(at)) if status == StatusCode::OK => {
                let stored = self.cache[at].stored();
                let freshened = freshen::by_head(rules, &head, stored, &answer_head, exchange);
                let old = &self.oracle[at];
                let new = Remembered::new(answer.clone(), request.clone(), times, self.estimates);
                let is_confirmed = old.is_confirmed_by_head(&new);
                let updated = old.updated(answer, times);
                event(if is_confirmed { "HEAD" } else { "another HEAD" });
                self.update(at, freshened, is_confirmed.then_some(updated), &request)?;
            }
            _ => {
                prop_assert!(
                    matches!(decide(), Verdict::Refuse(_)),
                    "{} is not stored",
                    method
                );
                let keys = invalidation::targets(method, status, &target, &answer_head);
                let before = self.cache.len();
                self.cache.retain(|entry| !keys.contains(&entry.target));
                self.oracle
                    .retain(|stored| !stored.is_invalidated(&request, &answer));
                prop_assert_eq!(self.cache.len(), self.oracle.len());
                if self.cache.len() < before {
                    event("invalidated");
                }
            }
        }
        Ok(())
    }

    /// Compares the decisions about a stored response with the oracle, and returns the name of the decision.
    fn check_reuse(&self, at: usize, request: &Request) -> Result<&'static str, TestCaseError> {
        let (policy, remembered) = (&self.cache[at].storable.policy, &self.oracle[at]);
        let now = Timestamp::from_millis(self.now_ms);
        let age = Duration::from_millis(remembered.current_age(self.now_ms));
        let (reuse, actual_age) = match policy.reuse(now, &request.directives) {
            Reuse::Fresh { age } => ("fresh", age),
            Reuse::StaleAllowed { age } => ("stale", age),
            Reuse::StaleWhileRevalidate { age } => ("stale-while-revalidate", age),
            Reuse::Revalidate { .. } => ("validate", age),
            Reuse::MustForward { .. } => ("fetch", age),
            Reuse::GatewayTimeout => ("504", age),
        };
        let expected = remembered.reuse(self.now_ms, &request.directives);
        prop_assert_eq!((reuse, actual_age), (expected, age), "{:?}", remembered);
        let on_error = remembered.may_be_served_on_error(self.now_ms);
        prop_assert_eq!(policy.may_serve_on_error(now), on_error);
        let limit = request.directives.stale_if_error;
        prop_assert_eq!(
            policy.is_too_stale_for(limit, now),
            remembered.is_too_stale_for(self.now_ms, limit)
        );
        let limit = Duration::from_secs(u64::from(self.limit_secs));
        prop_assert_eq!(
            policy.may_serve_disconnected(now, limit),
            remembered.may_be_served_disconnected(self.now_ms, self.limit_secs)
        );
        Ok(reuse)
    }

    /// Replaces a stored response by its update, or removes it if it may not be stored any longer. `updated` is `None`
    /// if the new response is about another one.
    fn update(
        &mut self,
        at: usize,
        freshened: Freshened,
        updated: Option<Remembered>,
        request: &Request,
    ) -> Result<(), TestCaseError> {
        let actual = match freshened {
            Freshened::Keep(storable) => {
                self.cache[at].storable = *storable;
                "keep"
            }
            Freshened::UseOnce { .. } => "use once",
            Freshened::Mismatch => "mismatch",
        };
        let expected = match &updated {
            Some(updated) if updated.may_be_stored(request) => "keep",
            Some(_) => "use once",
            None => "mismatch",
        };
        prop_assert_eq!(actual, expected, "{:?}", updated);
        match updated {
            Some(updated) if actual == "keep" => self.oracle[at] = updated,
            _ => self.remove(at),
        }
        Ok(())
    }

    fn remove(&mut self, at: usize) {
        self.cache.remove(at);
        self.oracle.remove(at);
    }
}

/// Every decision of a cache in a history equals that of the oracle.
///
/// Method: requests for a few URLs arrive one after another. The origin answers a forwarded request with any response,
/// or a validation with a 304. All events must happen in the histories.
#[test]
fn every_decision_in_a_history_equals_the_oracle() {
    let events = Events::default();
    let history = (
        proptest::collection::vec(step(), 1..40),
        0_u64..10_000,
        // With whole seconds, ages often equal the limits of directives.
        proptest::sample::select(vec![1, 1000]),
        0_u32..30,
        any::<bool>(),
    );
    let config = ProptestConfig {
        cases: 3000,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(
        &history,
        |(steps, start_ms, grain_ms, limit_secs, estimates)| {
            let mut history = History {
                rules: Rules {
                    client_directives: ClientDirectives::Honour,
                    heuristic: estimates.then(Heuristic::default),
                    ..Rules::default()
                },
                grain_ms,
                estimates,
                now_ms: 1_000_000_000_000 + start_ms / grain_ms * grain_ms,
                limit_secs,
                cache: Vec::new(),
                oracle: Vec::new(),
            };
            steps
                .into_iter()
                .try_for_each(|step| history.run(step, &events))
        },
    );
    if let Err(error) = result {
        panic!("{error}");
    }
    let names = [
        "fresh",
        "stale",
        "stale-while-revalidate",
        "validate",
        "fetch",
        "504",
        "304",
        "stored",
        "HEAD",
        "another 304",
        "not modified",
        "another HEAD",
        "invalidated",
    ];
    let events = events.into_inner();
    for name in names {
        assert!(
            events.get(name).is_some_and(|&count| count >= 20),
            "{name}: {events:?}"
        );
    }
}
