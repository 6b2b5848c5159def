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
        replacing: StatusLifetimes(vec![
            (404..405, Some(5)),
            (200..300, Some(60)),
            (302..303, Some(7)),
        ]),
        stale_while_revalidate_secs: Some(10),
        ..Lifetimes::default()
    }
}

fn unstated() -> Lifetimes {
    Lifetimes {
        unstated: StatusLifetimes(vec![(200..201, Some(60)), (302..303, Some(7))]),
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

/// The origin's lifetime precedes an excluded status of `unstated`, and no directive precedes one of `replacing`.
#[test]
fn an_excluded_status_is_not_stored_unless_the_origin_may_decide() {
    let excluded = StatusLifetimes(vec![(503..504, Some(0)), (500..600, None)]);
    let replacing = Lifetimes {
        replacing: excluded.clone(),
        ..Lifetimes::default()
    };
    let unstated = Lifetimes {
        unstated: excluded,
        stale_while_revalidate_secs: Some(10),
        ..Lifetimes::default()
    };
    let refused = Some(NotStoredReason::Rule);
    let (fresh, tag) = (("cache-control", "max-age=600"), ("etag", "\"a\""));
    for fields in [&[fresh][..], &[], &[("cache-control", "public"), tag]] {
        let verdict = decide(replacing.clone(), 500, fields);
        assert_eq!(verdict.err(), refused, "{fields:?}");
    }
    assert!(decide(unstated.clone(), 500, &[fresh]).is_ok());
    let public = [("cache-control", "public"), tag];
    assert_eq!(decide(unstated.clone(), 500, &public).err(), refused);
    assert!(decide(unstated.clone(), 503, &public).is_ok());
    let private = [("cache-control", "private")];
    let verdict = decide(unstated, 500, &private).err();
    assert_eq!(verdict, Some(NotStoredReason::Private));
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

/// A lifetime of the operator begins at the arrival, whatever the origin says about the age.
///
/// Method: a response with an old `Age` or `Date` under a lifetime of the operator, and under `max-age` of the origin.
/// A client computes the age from the stored fields (RFC 9111 §4.2.3) on arrival.
#[test]
fn a_lifetime_of_the_operator_begins_at_the_arrival() {
    const OLD: &str = "Sun, 06 Nov 1994 08:42:57 GMT"; // 400 s before NOW
    const ARRIVAL: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    for old in [
        &[("age", "400")][..],
        &[("date", OLD)],
        &[("date", OLD), ("age", "500")],
        &[("date", "never"), ("age", "400")],
        &[("date", "Sun, 06 Nov 1994 09:49:37 GMT")],
        &[],
    ] {
        for lifetimes in [replacing(), unstated()] {
            let storable = decide(lifetimes, 200, old).expect("storable");
            let policy = storable.policy;
            assert_eq!(policy.age_secs(NOW), 0, "{old:?}");
            let last = Timestamp::from_millis(NOW.as_millis() + 59_999);
            assert!(policy.is_fresh(last), "{old:?}");
            assert!(!policy.is_fresh(Timestamp::from_secs(NOW.as_secs() + 60)));
            assert!(!storable.head.contains_key("age"));
            let future = "Sun, 06 Nov 1994 09:49:37 GMT";
            let is_future = old.iter().any(|(_, value)| *value == future);
            let date = if is_future { future } else { ARRIVAL };
            assert_eq!(storable.head["date"], date, "{old:?}");
            let mut first = HeaderMap::new();
            for (name, value) in old {
                first.insert(*name, HeaderValue::from_static(value));
            }
            storable.set_dates(&mut first);
            assert_eq!(first.get("date"), storable.head.get("date"));
            assert!(!first.contains_key("age"));
        }
        let mut fields = old.to_vec();
        fields.push(("cache-control", "max-age=600"));
        let storable = decide(unstated(), 200, &fields).expect("storable");
        let is_old = matches!(old.first(), Some(("age", _) | ("date", OLD | "never")));
        let age = storable.policy.age_secs(NOW);
        assert_eq!(age > 0, is_old, "{old:?}: a lifetime of the origin");
        let date = old.iter().find(|(name, _)| *name == "date");
        let date = date.map_or(ARRIVAL, |(_, value)| value);
        assert_eq!(storable.head["date"], date);
    }
}

/// The lifetime that clients compute from `Expires` and `Date` stays, and so does the weakness of `Last-Modified`.
#[test]
fn the_dates_of_a_head_move_together_and_a_weak_last_modified_stays_weak() {
    let old = "Sun, 06 Nov 1994 08:42:57 GMT";
    let moved = |more: &[(&'static str, &'static str)]| {
        let mut fields = vec![("date", old)];
        fields.extend_from_slice(more);
        decide(replacing(), 200, &fields).expect("storable").head
    };
    let head = moved(&[("expires", "Sun, 06 Nov 1994 08:47:57 GMT")]);
    assert_eq!(head["date"], "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(head["expires"], "Sun, 06 Nov 1994 08:54:37 GMT");
    assert_eq!(moved(&[("expires", "0")])["expires"], "0");
    let strong = moved(&[("last-modified", "Sun, 06 Nov 1994 08:42:56 GMT")]);
    assert_eq!(strong["date"], "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(moved(&[("last-modified", old)])["date"], old);
}

/// The operator's times of stale use apply to lifetimes of the origin, unless the origin decides.
#[test]
fn the_operators_times_of_stale_use_apply_unless_the_origin_decides() {
    let both = || Lifetimes {
        stale_while_revalidate_secs: Some(10),
        stale_if_error_secs: Some(30),
        ..Lifetimes::default()
    };
    let seconds = |lines: &'static str| {
        let fields = [("cache-control", lines), ("etag", "\"a\"")];
        let policy = decide(both(), 200, &fields).expect("storable").policy;
        let since = |until: Timestamp| {
            until
                .as_millis()
                .saturating_sub(NOW.as_millis() + policy.lifetime_ms)
        };
        (
            since(policy.stale_while_revalidate_until) / 1000,
            since(policy.stale_if_error_until) / 1000,
        )
    };
    for (lines, expected) in [
        ("max-age=60", (10, 30)),
        ("max-age=60, public", (10, 30)),
        ("max-age=60, stale-while-revalidate=5", (5, 30)),
        ("max-age=60, stale-if-error=5", (10, 5)),
        (
            "max-age=60, stale-while-revalidate=0, stale-if-error=0",
            (0, 0),
        ),
        ("max-age=60, must-revalidate", (0, 0)),
        ("max-age=60, proxy-revalidate", (0, 0)),
        ("s-maxage=60", (0, 0)),
        ("max-age=60, no-cache", (0, 0)),
        ("max-age=0", (0, 0)),
        ("max-age=0, stale-if-error=5", (0, 5)),
        ("public", (0, 0)),
    ] {
        assert_eq!(seconds(lines), expected, "{lines}");
    }
    // The operator's time permits stale use after errors. It does not limit the use while the origin is unreachable.
    let at = |secs| Timestamp::from_secs(NOW.as_secs() + secs);
    let disconnected = |lines| {
        let policy = decide(both(), 200, &[("cache-control", lines)])
            .expect("storable")
            .policy;
        policy.may_serve_disconnected(at(60 + 500), std::time::Duration::from_secs(500))
    };
    assert!(disconnected("max-age=60"));
    assert!(!disconnected("max-age=60, stale-if-error=30"));
    assert!(!disconnected("max-age=60, must-revalidate"));
}
