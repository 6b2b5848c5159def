//! Random histories of one URL, compared with a literal oracle: the formulas of RFC 9111 §3, §4.2 and §5.2, RFC 5861
//! and RFC 9213, computed again for each request from the parts of the last response.

use std::fmt::Write as _;
use std::time::Duration;

use edgeward_semantics::freshen::{self, Freshened, StoredResponse};
use edgeward_semantics::{
    ClientDirectives, Exchange, MaxStale, RequestDirectives, Reuse, Rules, Storable, Verdict,
    format_http_date, on_response,
};
use edgeward_types::Timestamp;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use proptest::option::of;
use proptest::prelude::*;

/// The parts of a response. Directives are in `CDN-Cache-Control` if `is_targeted`, otherwise in `Cache-Control`.
#[derive(Clone, Debug)]
struct Response {
    is_targeted: bool,
    max_age: Option<u32>,
    s_maxage: Option<u32>,
    stale_while_revalidate: Option<u32>,
    stale_if_error: Option<u32>,
    /// The directives of [`FLAGS`] that the response has.
    flags: [bool; 6],
    /// Seconds after the response's arrival, or before it if negative; the same for `date`.
    expires: Option<i64>,
    date: Option<i64>,
    age: Option<u32>,
    has_etag: bool,
}

const FLAGS: [&str; 6] = [
    "no-cache",
    "must-revalidate",
    "proxy-revalidate",
    "no-store",
    "private",
    "public",
];

impl Response {
    fn has(&self, flag: &str) -> bool {
        FLAGS
            .iter()
            .zip(self.flags)
            .any(|(name, is_set)| *name == flag && is_set)
    }

    fn head(&self, arrival_secs: u64) -> HeaderMap {
        let mut directives = String::from("extension");
        for (name, secs) in [
            ("max-age", self.max_age),
            ("s-maxage", self.s_maxage),
            ("stale-while-revalidate", self.stale_while_revalidate),
            ("stale-if-error", self.stale_if_error),
        ] {
            if let Some(secs) = secs {
                write!(directives, ", {name}={secs}").expect("a string");
            }
        }
        for (name, is_set) in FLAGS.iter().zip(self.flags) {
            if is_set {
                write!(directives, ", {name}").expect("a string");
            }
        }
        let mut head = HeaderMap::new();
        let mut insert = |name: &'static str, value: &str| {
            let value = HeaderValue::try_from(value).expect("visible ASCII");
            head.insert(HeaderName::from_static(name), value);
        };
        if self.is_targeted {
            insert("cdn-cache-control", &directives);
            insert("cache-control", "no-store, max-age=7");
        } else {
            insert("cache-control", &directives);
        }
        if let Some(age) = self.age {
            insert("age", &age.to_string());
        }
        if self.has_etag {
            insert("etag", "\"a\"");
        }
        for (name, offset) in [("expires", self.expires), ("date", self.date)] {
            if let Some(offset) = offset {
                let secs = arrival_secs.checked_add_signed(offset).expect("after 1970");
                head.insert(name, format_http_date(Timestamp::from_secs(secs)));
            }
        }
        head
    }
}

/// The last response as the oracle remembers it: its parts, and absolute times in milliseconds.
#[derive(Clone, Debug)]
struct Remembered {
    response: Response,
    /// In seconds. A 304 without `Expires` does not change it.
    expires: Option<u64>,
    /// In seconds.
    date: Option<u64>,
    request_ms: u64,
    response_ms: u64,
}

impl Remembered {
    fn new(response: Response, request_ms: u64, response_ms: u64, older: Option<&Self>) -> Self {
        let arrival = response_ms / 1000;
        let at = |offset: Option<i64>| offset.and_then(|offset| arrival.checked_add_signed(offset));
        Self {
            expires: at(response.expires).or_else(|| older.and_then(|older| older.expires)),
            date: at(response.date),
            request_ms,
            response_ms,
            response,
        }
    }

    /// Returns the freshness lifetime in milliseconds (§4.2.1).
    fn freshness_lifetime(&self) -> u64 {
        let Response {
            s_maxage,
            max_age,
            is_targeted,
            ..
        } = self.response;
        let from_expires = || {
            let date = self.date.unwrap_or(self.response_ms / 1000);
            self.expires
                .filter(|_| !is_targeted)
                .map(|expires| expires.saturating_sub(date))
        };
        let secs = s_maxage.or(max_age).map(u64::from).or_else(from_expires);
        secs.unwrap_or(0) * 1000
    }

    /// Returns `current_age` in milliseconds (§4.2.3).
    fn current_age(&self, now: u64) -> u64 {
        let arrival = self.response_ms / 1000;
        let apparent_age = self
            .date
            .map_or(0, |date| arrival.saturating_sub(date) * 1000);
        let response_delay = self.response_ms - self.request_ms;
        let age_value = u64::from(self.response.age.unwrap_or(0)) * 1000;
        apparent_age.max(age_value + response_delay) + (now - self.response_ms)
    }

    /// Returns true if a directive prohibits stale use (§4.2.4).
    fn prohibits_stale(&self) -> bool {
        ["no-cache", "must-revalidate", "proxy-revalidate"]
            .iter()
            .any(|flag| self.response.has(flag))
            || self.response.s_maxage.is_some()
    }

    /// Returns true if the response is fresh, or stale for less than `extra` seconds (RFC 5861). With `no-cache`,
    /// returns false.
    fn is_within(&self, now: u64, extra: Option<u32>) -> bool {
        let extra = extra
            .filter(|_| !self.prohibits_stale())
            .map_or(0, u64::from);
        !self.response.has("no-cache")
            && self.current_age(now) < self.freshness_lifetime() + extra * 1000
    }

    /// Returns true if the response may be stored (§3, §3.5). It must also be usable for a later request.
    fn may_be_stored(&self, has_authorization: bool) -> bool {
        let Response {
            stale_while_revalidate,
            stale_if_error,
            s_maxage,
            ..
        } = self.response;
        let shares = self.response.has("public")
            || self.response.has("must-revalidate")
            || s_maxage.is_some();
        let now = self.response_ms;
        let is_usable = self.response.has_etag
            || self.is_within(now, stale_while_revalidate)
            || self.is_within(now, stale_if_error);
        !self.response.has("no-store")
            && !self.response.has("private")
            && (!has_authorization || shares)
            && is_usable
    }

    /// Returns the name of the decision about a request (§4, §4.2.4, §5.2.1).
    fn reuse(&self, now: u64, request: &RequestDirectives) -> &'static str {
        let (age, lifetime) = (self.current_age(now), self.freshness_lifetime());
        let millis = |secs: u32| u64::from(secs) * 1000;
        let is_usable = !request.no_cache
            && !self.response.has("no-cache")
            && request.max_age.is_none_or(|limit| age <= millis(limit));
        let is_fresh = lifetime > age;
        let stays_fresh = request
            .min_fresh
            .is_none_or(|margin| lifetime >= age + millis(margin));
        let accepts_stale = match request.max_stale {
            Some(MaxStale::Any) => true,
            Some(MaxStale::Seconds(limit)) => age <= lifetime + millis(limit),
            None => false,
        };
        let states_a_limit = request.max_age.is_some() || request.max_stale.is_some();
        if is_usable && is_fresh && stays_fresh {
            "fresh"
        } else if is_usable && !is_fresh && !self.prohibits_stale() && request.min_fresh.is_none() {
            if accepts_stale {
                "stale"
            } else if !states_a_limit && self.is_within(now, self.response.stale_while_revalidate) {
                "stale-while-revalidate"
            } else {
                self.without_reuse(request)
            }
        } else {
            self.without_reuse(request)
        }
    }

    /// Returns the name of the decision if the stored response cannot be used as it is.
    fn without_reuse(&self, request: &RequestDirectives) -> &'static str {
        match (request.only_if_cached, self.response.has_etag) {
            (true, _) => "504",
            (false, true) => "validate",
            (false, false) => "fetch",
        }
    }

    /// Returns true if the response may be served while the origin cannot be reached (§4.2.4). The limits are those
    /// that `StoredPolicy::may_serve_disconnected` documents.
    fn may_be_served_disconnected(&self, now: u64, limit_secs: u32) -> bool {
        let extra = self.response.stale_if_error;
        let limit = u64::from(limit_secs) * 1000;
        let was_fresh = !self.response.has("no-cache")
            && self.freshness_lifetime() > self.current_age(self.response_ms);
        let is_unlimited = extra.is_none_or(|secs| secs == 0);
        self.is_within(now, extra)
            || (was_fresh
                && !self.prohibits_stale()
                && is_unlimited
                && self.current_age(now) <= self.freshness_lifetime() + limit)
    }
}

/// A request `wait_ms` after the end of the previous one. If it is forwarded, the origin answers after `delay_ms`.
#[derive(Clone, Debug)]
struct Step {
    wait_ms: u64,
    request: RequestDirectives,
    has_authorization: bool,
    delay_ms: u64,
    answer: Response,
    is_304: bool,
}

fn secs() -> impl Strategy<Value = Option<u32>> {
    of(prop_oneof![Just(0), 1_u32..30])
}

fn response() -> impl Strategy<Value = Response> {
    let flags = prop_oneof![
        3 => Just([false; 6]),
        3 => (0..FLAGS.len()).prop_map(|at| std::array::from_fn(|n| n == at)),
        1 => any::<[bool; 6]>(),
    ];
    let times = (of(-20_i64..40), of(-20_i64..20), of(0_u32..20));
    (
        (any::<bool>(), secs(), secs(), secs(), secs()),
        flags,
        times,
        any::<bool>(),
    )
        .prop_map(
            |(
                (is_targeted, max_age, s_maxage, swr, sie),
                flags,
                (expires, date, age),
                has_etag,
            )| {
                Response {
                    is_targeted,
                    max_age,
                    // `s-maxage` is rare, because it prohibits stale use.
                    s_maxage: s_maxage.filter(|secs| secs % 4 == 0),
                    stale_while_revalidate: swr,
                    stale_if_error: sie,
                    flags,
                    expires,
                    date,
                    age,
                    has_etag,
                }
            },
        )
}

fn request() -> impl Strategy<Value = RequestDirectives> {
    let max_stale = of(prop_oneof![
        Just(MaxStale::Any),
        (0_u32..20).prop_map(MaxStale::Seconds)
    ]);
    let stated = (secs(), max_stale, secs(), any::<bool>(), any::<bool>()).prop_map(
        |(max_age, max_stale, min_fresh, no_cache, only_if_cached)| RequestDirectives {
            max_age,
            max_stale,
            min_fresh,
            no_cache,
            only_if_cached,
            ..RequestDirectives::default()
        },
    );
    prop_oneof![Just(RequestDirectives::default()), stated]
}

fn step() -> impl Strategy<Value = Step> {
    (
        0_u64..20_000,
        request(),
        prop::bool::weighted(0.2),
        0_u64..3_000,
        response(),
        any::<bool>(),
    )
        .prop_map(
            |(wait_ms, request, has_authorization, delay_ms, answer, is_304)| Step {
                wait_ms,
                request,
                has_authorization,
                delay_ms,
                answer,
                is_304,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Every decision about a stored response equals that of the oracle.
    ///
    /// Method: requests arrive one after another. The origin answers a forwarded request with a 200 or a 304.
    #[test]
    fn every_decision_in_a_history_equals_the_oracle(
        steps in proptest::collection::vec(step(), 1..12),
        start_ms in 1_000_000_000_000_u64..1_000_000_010_000,
        limit_secs in 0_u32..30,
    ) {
        let rules = Rules {
            client_directives: ClientDirectives::Honour,
            ..Rules::default()
        };
        let mut now_ms = start_ms;
        let mut stored: Option<(Storable, Remembered)> = None;
        for Step { wait_ms, request, has_authorization, delay_ms, mut answer, is_304 } in steps {
            now_ms += wait_ms;
            let now = Timestamp::from_millis(now_ms);
            let mut forwards = true;
            if let Some((storable, remembered)) = &stored {
                let policy = &storable.policy;
                let age = Duration::from_millis(remembered.current_age(now_ms));
                let (reuse, actual_age) = match policy.reuse(now, &request) {
                    Reuse::Fresh { age } => ("fresh", age),
                    Reuse::StaleAllowed { age } => ("stale", age),
                    Reuse::StaleWhileRevalidate { age } => ("stale-while-revalidate", age),
                    Reuse::Revalidate { .. } => ("validate", age),
                    Reuse::MustForward { .. } => ("fetch", age),
                    Reuse::GatewayTimeout => ("504", age),
                };
                prop_assert_eq!((reuse, actual_age), (remembered.reuse(now_ms, &request), age));
                let on_error = remembered.is_within(now_ms, remembered.response.stale_if_error);
                prop_assert_eq!(policy.may_serve_on_error(now), on_error);
                let limit = Duration::from_secs(u64::from(limit_secs));
                prop_assert_eq!(
                    policy.may_serve_disconnected(now, limit),
                    remembered.may_be_served_disconnected(now_ms, limit_secs)
                );
                forwards = matches!(reuse, "validate" | "fetch" | "stale-while-revalidate");
            }
            if !forwards {
                continue;
            }
            let request_ms = now_ms;
            now_ms += delay_ms;
            let exchange = Exchange {
                request_time: Timestamp::from_millis(request_ms),
                response_time: Timestamp::from_millis(now_ms),
            };
            let mut request_head = HeaderMap::new();
            if has_authorization {
                request_head.insert(AUTHORIZATION, HeaderValue::from_static("x"));
            }
            let validated = stored.take().filter(|(old, _)| is_304 && old.policy.has_validator);
            let (actual, expected) = match validated {
                Some((old, remembered)) => {
                    // §3.2: the fields of the 304 replace the stored ones. The entity tag stays.
                    answer.has_etag = true;
                    answer.is_targeted = remembered.response.is_targeted;
                    let head = answer.head(now_ms / 1000);
                    let old_response = StoredResponse {
                        status: StatusCode::OK,
                        head: &old.head,
                        validators: &old.validators,
                    };
                    let freshened =
                        freshen::by_not_modified(&rules, &request_head, old_response, &head, exchange);
                    let actual = match freshened {
                        Freshened::Keep(storable) => Some(*storable),
                        Freshened::UseOnce { .. } => None,
                        Freshened::Mismatch => panic!("the tags are equal"),
                    };
                    (actual, Remembered::new(answer, request_ms, now_ms, Some(&remembered)))
                }
                None => {
                    let head = answer.head(now_ms / 1000);
                    let status = StatusCode::OK;
                    let verdict =
                        on_response(&rules, &Method::GET, &request_head, status, &head, exchange);
                    let actual = match verdict {
                        Verdict::Store(storable) => Some(*storable),
                        Verdict::Refuse(_) => None,
                    };
                    (actual, Remembered::new(answer, request_ms, now_ms, None))
                }
            };
            prop_assert_eq!(actual.is_some(), expected.may_be_stored(has_authorization), "{:?}", expected);
            stored = actual.map(|storable| (storable, expected));
        }
    }
}
