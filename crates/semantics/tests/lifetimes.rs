//! Lifetimes that the operator states in place of the origin.

use std::sync::Arc;

use edgeward_semantics::{
    Exchange, LifetimeSource, Lifetimes, NotStoredReason, Rules, StatusLifetimes, Storable,
    Verdict, on_response,
};
use edgeward_types::Timestamp;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

const NOW: Timestamp = Timestamp::from_secs(784_111_777);

fn decide(
    lifetimes: Lifetimes,
    status: u16,
    fields: &[(&'static str, &'static str)],
) -> Result<Box<Storable>, NotStoredReason> {
    let rules = Rules {
        lifetimes: Some(Arc::new(lifetimes)),
        ..Rules::default()
    };
    let line = |(name, value): &(&'static str, &'static str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    let response: HeaderMap = fields.iter().map(line).collect();
    let exchange = Exchange::at(NOW);
    let status = StatusCode::from_u16(status).expect("a status");
    let request = HeaderMap::new();
    match on_response(&rules, &Method::GET, &request, status, &response, exchange) {
        Verdict::Store(storable) => Ok(storable),
        Verdict::Refuse(reason) => Err(reason),
    }
}

fn replacing() -> Lifetimes {
    Lifetimes {
        replacing: StatusLifetimes(vec![(404..405, 5), (200..300, 60), (302..303, 7)]),
        stale_while_revalidate_secs: Some(10),
        ..Lifetimes::default()
    }
}

fn unstated() -> Lifetimes {
    Lifetimes {
        unstated: StatusLifetimes(vec![(200..201, 60), (302..303, 7)]),
        stale_if_error_secs: Some(30),
        ..Lifetimes::default()
    }
}

#[test]
fn a_replacing_lifetime_counts_in_place_of_all_directives_of_the_response() {
    for fields in [
        &[][..],
        &[("cache-control", "no-store, private")],
        &[("cache-control", "max-age=1")],
        &[("expires", "0")],
        &[("cdn-cache-control", "max-age=1")],
    ] {
        let storable = decide(replacing(), 200, fields).expect("a storable response");
        assert_eq!(storable.source, LifetimeSource::Replaced);
        assert_eq!(storable.policy.lifetime_ms, 60_000, "{fields:?}");
        let stale = storable.policy.stale_while_revalidate_until;
        assert_eq!(stale, Timestamp::from_secs(784_111_777 + 70));
    }
    assert_eq!(
        decide(replacing(), 404, &[])
            .expect("storable")
            .policy
            .lifetime_ms,
        5_000
    );
    assert_eq!(
        decide(replacing(), 302, &[])
            .expect("storable")
            .policy
            .lifetime_ms,
        7_000
    );
    let private = [("cache-control", "private")];
    assert_eq!(
        decide(replacing(), 301, &private).err(),
        Some(NotStoredReason::Private)
    );
}

/// A lifetime never makes the cookie of one user available to others.
#[test]
fn a_replacing_lifetime_shares_no_cookie() {
    let cookie = [("set-cookie", "a=1")];
    assert_eq!(
        decide(replacing(), 200, &cookie).err(),
        Some(NotStoredReason::SetCookie)
    );
}

#[test]
fn an_unstated_lifetime_counts_only_without_a_lifetime_and_keeps_all_directives() {
    let storable = decide(unstated(), 200, &[]).expect("storable");
    assert_eq!(
        (storable.policy.lifetime_ms, storable.source),
        (60_000, LifetimeSource::Unstated)
    );
    let until = storable.policy.stale_if_error_until;
    assert_eq!(until, Timestamp::from_secs(784_111_777 + 90));
    // The status 302 needs a lifetime, which the operator states.
    assert_eq!(
        decide(unstated(), 302, &[])
            .expect("storable")
            .policy
            .lifetime_ms,
        7_000
    );
    let stated = decide(unstated(), 200, &[("cache-control", "max-age=1")]).expect("storable");
    assert_eq!(
        (stated.policy.lifetime_ms, stated.source),
        (1_000, LifetimeSource::MaxAge)
    );
    for (directive, reason) in [
        ("no-store", NotStoredReason::NoStore),
        ("private", NotStoredReason::Private),
    ] {
        let refused = decide(unstated(), 200, &[("cache-control", directive)]).err();
        assert_eq!(refused, Some(reason));
    }
    let no_cache = decide(
        unstated(),
        200,
        &[("cache-control", "no-cache"), ("etag", "\"a\"")],
    );
    assert!(no_cache.expect("storable").policy.no_cache);
}
