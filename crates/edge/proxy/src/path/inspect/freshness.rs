//! The freshness of a stored response, and the reason for it, as JSON.

use edgeward_semantics::{
    Exchange, Rules, StoredPolicy, format_http_date, on_response, targeted_field,
};
use edgeward_types::Timestamp;
use http::Method;
use http::header::{CACHE_CONTROL, EXPIRES, HeaderMap};
use serde_json::{Value, json};

use crate::cache::stored::StoredResponse;
use crate::rt::clock::Clock;

/// Returns the freshness of a response as JSON. The decision to store the response is made again from the stored head,
/// because the policy has only its result.
pub(super) fn freshness(
    rules: &Rules,
    response: &StoredResponse,
    head: &HeaderMap,
    clock: &Clock,
) -> Value {
    let (policy, now) = (&response.policy, clock.now());
    let seconds = |millis: u64| millis as f64 / 1000.0;
    let date = |until: Timestamp| {
        let is_later = until > policy.fresh_until;
        let date = format_http_date(clock.date_of(until));
        is_later.then(|| String::from_utf8_lossy(date.as_bytes()).into_owned())
    };
    let exchange = Exchange {
        request_time: policy.response_time,
        response_time: policy.response_time,
        response_date: clock.date_of(policy.response_time),
    };
    let request = HeaderMap::new();
    let decided = on_response(
        rules,
        &Method::GET,
        &request,
        response.status,
        head,
        exchange,
    );
    let mut freshness = json!({
        "is_fresh": policy.is_fresh(now),
        "age_seconds": policy.age_secs(now),
        "age_on_arrival_seconds": seconds(policy.initial_age_ms),
        "lifetime_seconds": seconds(policy.lifetime_ms),
        "ttl_seconds": policy.ttl_secs(now),
        "no_cache": policy.no_cache,
        "stale_while_revalidate_until": date(policy.stale_while_revalidate_until),
        "stale_if_error_until": date(policy.stale_if_error_until),
        "forbids_stale": policy.forbids_stale,
    });
    let reason = why(&decided, policy, head);
    if let (Value::Object(all), Value::Object(reason)) = (&mut freshness, reason) {
        all.extend(reason);
    }
    freshness
}

/// Returns the reason for the lifetime, and the reason why the response was storable.
fn why(decided: &edgeward_semantics::Verdict, policy: &StoredPolicy, head: &HeaderMap) -> Value {
    use edgeward_semantics::LifetimeSource::{Expires, MaxAge, SMaxage};
    match decided {
        edgeward_semantics::Verdict::Store(storable)
            if storable.policy.lifetime_ms == policy.lifetime_ms =>
        {
            let field = match storable.source {
                SMaxage | MaxAge => Some(targeted_field(head).unwrap_or(&CACHE_CONTROL).as_str()),
                Expires => Some(EXPIRES.as_str()),
                _ => None,
            };
            json!({
                "source": storable.source.as_str(),
                "field": field,
                "section": storable.source.section(),
                "storable_because": storable.source.why_storable(),
            })
        }
        // The rules of the edge, or the fields that are not stored, gave another lifetime.
        edgeward_semantics::Verdict::Store(_) => json!({
            "source": "unknown: the settings or the response's fields have changed since",
        }),
        edgeward_semantics::Verdict::Refuse(reason) => json!({
            "source": "unknown: with the current settings the response would not be stored",
            "not_storable_because": reason.as_str(),
            "section": reason.section(),
        }),
    }
}
