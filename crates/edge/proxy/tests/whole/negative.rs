//! Negative rules: the edge answers a path with an id with 404 if the id filter reports that the id is absent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::TestBed;
use edgeward_proxy::negative::{FilterFacts, IdFilter, Judgement, NegativeRule};
use edgeward_semantics::ClientDirectives;
use edgeward_testkit::Answer;

/// An id filter of the even numbers: it answers *maybe* for an even number and *absent* for an odd number. An even
/// number for which the origin sends 404 or 410 is a false positive.
#[derive(Debug, Default)]
struct EvenNumbers {
    stale: AtomicBool,
}

impl IdFilter for EvenNumbers {
    fn judge(&self, id: &[u8]) -> Judgement {
        if self.stale.load(Ordering::Relaxed) {
            return Judgement::Unknown;
        }
        let number = std::str::from_utf8(id)
            .ok()
            .and_then(|id| id.parse::<u64>().ok());
        match number {
            None => Judgement::NotAnId,
            Some(number) if number % 2 == 0 => Judgement::Maybe,
            Some(_) => Judgement::Absent,
        }
    }

    fn facts(&self) -> FilterFacts {
        FilterFacts {
            fresh: !self.stale.load(Ordering::Relaxed),
            epoch: 7,
            ids: 100,
            ..FilterFacts::default()
        }
    }
}

fn bed() -> (TestBed, Arc<EvenNumbers>) {
    let filter_state = Arc::new(EvenNumbers::default());
    let filter = Arc::clone(&filter_state);
    let bed = TestBed::with_config(|config| {
        config.caching.rules.client_directives = ClientDirectives::Honour;
        config.negative = vec![NegativeRule {
            name: Some("even".into()),
            pattern: "/r/{id}".parse().expect("the pattern is valid"),
            filter,
        }];
    });
    for path in ["/r/2", "/r/3", "/r/search", "/other/3"] {
        let answer = Answer::ok("there").header("cache-control", "max-age=60");
        bed.origin.on(path, answer);
    }
    (bed, filter_state)
}

/// The first request is served by the fast path, the edge's own HTTP/1.1 code. The fast path does not handle the
/// fields of the other requests, so hyper handles these requests.
#[test]
fn an_absent_id_is_answered_without_the_origin() {
    let (bed, _) = bed();
    for fields in [
        &[][..],
        &[("expect", "nothing")][..],
        &[("range", "bytes=0-1")][..],
    ] {
        let answer = bed.get_with("/r/3?query=ignored", fields);
        assert_eq!(answer.status, 404, "{answer:?}");
        assert_eq!(answer.cache_status(), "edgeward; hit; detail=id-filter");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert_eq!(bed.origin.requests("/r/3"), 0);
    assert_eq!(
        bed.metric("edgeward_negative_asked_total{path=\"/r/{id}\",answer=\"absent\"}"),
        3.0
    );
    assert_eq!(
        bed.metric("edgeward_requests_total{outcome=\"id-filter\"}"),
        3.0
    );
}

#[test]
fn requests_without_an_absent_id_go_to_the_origin() {
    let (bed, _) = bed();
    for path in ["/r/2", "/r/search", "/other/3", "/r/3/more"] {
        let answer = bed.get(path);
        assert!(
            answer.cache_status().contains("fwd=uri-miss"),
            "{path}: {answer:?}"
        );
    }
    let status = bed.status();
    assert_eq!(status["negative"][0]["maybe"], 1);
    assert_eq!(status["negative"][0]["not_an_id"], 1);
}

/// A fresh stored response takes precedence over the filter. A request with `no-cache` is forwarded although
/// the filter reports the id absent.
#[test]
fn stored_responses_and_no_cache_take_precedence_over_the_filter() {
    let (bed, filter_state) = bed();
    filter_state.stale.store(true, Ordering::Relaxed);
    assert_eq!(bed.get("/r/3").status, 200);
    filter_state.stale.store(false, Ordering::Relaxed);
    let hit = bed.get("/r/3");
    assert!(hit.is_hit() && hit.status == 200, "{hit:?}");
    assert_eq!(bed.status()["negative"][0]["unknown"], 1);

    bed.origin.on("/r/5", Answer::ok("just created"));
    assert_eq!(bed.get("/r/5").status, 404);
    assert_eq!(
        bed.get_with("/r/5", &[("cache-control", "no-cache")])
            .status,
        200
    );
}

#[test]
fn a_stale_filter_forwards_all_requests() {
    let (bed, filter_state) = bed();
    filter_state.stale.store(true, Ordering::Relaxed);
    assert_eq!(bed.get("/r/3").status, 200);
    assert_eq!(bed.origin.requests("/r/3"), 1);
    assert_eq!(bed.metric("edgeward_negative_fresh{path=\"/r/{id}\"}"), 0.0);
}

/// A 404 or 410 of the origin for an id for which the filter answered *maybe* is a false positive. A hit on a
/// stored 404 is not counted.
#[test]
fn false_positives_are_counted() {
    let (bed, _) = bed();
    bed.origin.on(
        "/r/8",
        Answer::status(404).header("cache-control", "max-age=60"),
    );
    bed.origin.on("/r/10", Answer::status(410));
    for path in ["/r/8", "/r/8", "/r/10", "/r/2"] {
        bed.get(path);
    }
    let series = "edgeward_negative_false_positives_total{path=\"/r/{id}\"}";
    assert_eq!(bed.metric(series), 2.0);
}

/// The filter also answers requests with `only-if-cached`, because no request to the origin is needed.
#[test]
fn the_filter_answers_only_if_cached() {
    let (bed, _) = bed();
    let only_if_cached = [("cache-control", "only-if-cached")];
    assert_eq!(bed.get_with("/r/3", &only_if_cached).status, 404);
    assert_eq!(bed.get_with("/r/2", &only_if_cached).status, 504);
    let head = bed.connect().request("HEAD", "/r/3", &[], b"");
    assert_eq!(head.status, 404);
}
