//! The causes of the misses of a site, and their counts.

use std::collections::BTreeMap;

use edgeward_semantics::ClientDirectives;
use edgeward_testkit::client::until;
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;

use crate::support::TestBed;

/// Waits until this number of misses has ended, and returns their number by cause.
fn causes(bed: &TestBed, misses: u64) -> BTreeMap<String, u64> {
    until("the misses have ended", || {
        let page = bed.metrics();
        let values = |series: &str| {
            let of = |line: &str| line.strip_prefix(series).map(str::to_owned);
            page.lines().filter_map(of).collect::<Vec<_>>()
        };
        let counted = values("edgeward_site_misses_total{site=\"default\",cause=\"");
        let counted: BTreeMap<_, _> = counted
            .iter()
            .filter_map(|rest| rest.split_once("\"} "))
            .map(|(cause, n)| (cause.to_owned(), n.parse().expect("a number")))
            .collect();
        let ended = "edgeward_request_duration_seconds_count{site=\"default\",outcome=\"miss\"} ";
        let ended = values(ended).first().and_then(|n| n.parse::<u64>().ok());
        // Each miss has one cause.
        let sums = (counted.values().sum(), ended.unwrap_or_default());
        (sums == (misses, misses)).then_some(counted)
    })
}

fn expect(bed: &TestBed, expected: &[(&str, u64)]) {
    let misses = expected.iter().map(|(_, n)| n).sum();
    let expected = expected.iter().map(|(cause, n)| ((*cause).to_owned(), *n));
    assert_eq!(causes(bed, misses), expected.collect());
}

fn page(text: &'static str) -> Answer {
    Answer::ok(text).header("cache-control", "max-age=600")
}

#[test]
fn a_response_that_is_not_stored_is_new_once_and_then_refused() {
    let bed = TestBed::start();
    let basket = Answer::ok("basket").header("cache-control", "no-store");
    bed.origin.on("/basket", basket);
    bed.origin.on("/page", page("page"));
    for path in ["/basket", "/page", "/basket", "/page", "/basket"] {
        assert_eq!(bed.get(path).status, 200);
    }
    expect(&bed, &[("new", 2), ("refused", 2)]);
}

/// The origin confirms one response, which is no miss, and replaces the other one.
#[test]
fn a_stale_response_that_the_origin_replaces_is_expired() {
    let bed = TestBed::start();
    let stale = |etag: &str| {
        let page = Answer::ok("page").header("cache-control", "max-age=0");
        page.header("etag", etag)
    };
    bed.origin.on("/same", stale("\"a\"").revalidates());
    bed.origin.on("/other", stale("\"a\""));
    for _ in 0..2 {
        assert_eq!(bed.get("/same").status, 200);
    }
    assert_eq!(bed.get("/other").status, 200);
    bed.origin.on("/other", stale("\"b\""));
    assert_eq!(bed.get("/other").status, 200);
    expect(&bed, &[("new", 2), ("expired", 1)]);
}

/// Method: fill a small memory with objects of two lifetimes, and request the first ones again.
#[test]
fn an_evicted_response_is_evicted_or_expired_by_its_lifetime() {
    let bed = TestBed::with_config(|config| config.hot.capacity = ByteSize::mib(2));
    let body = |control| Answer::pattern(30_000).header("cache-control", control);
    bed.origin.otherwise(move |_| body("max-age=600"));
    // A response without a lifetime must be validated at each use.
    bed.origin
        .on("/short", body("max-age=0").header("etag", "\"a\""));
    bed.get("/short");
    bed.get("/long");
    for n in 0..100 {
        bed.get(&format!("/{n}"));
    }
    for path in ["/short", "/long"] {
        let answer = bed.get(path);
        assert_eq!(
            answer.cache_status(),
            "edgeward; fwd=uri-miss; fwd-status=200; stored"
        );
    }
    expect(&bed, &[("new", 102), ("evicted", 1), ("expired", 1)]);
}

#[test]
fn a_variant_whose_marker_was_evicted_is_evicted() {
    let bed = TestBed::with_config(|config| config.hot.capacity = ByteSize::mib(2));
    let body = || Answer::pattern(30_000).header("cache-control", "max-age=600");
    bed.origin.otherwise(move |_| body());
    bed.origin
        .on("/varies", body().header("vary", "accept-language"));
    for language in ["de", "fr"] {
        bed.get_with("/varies", &[("accept-language", language)]);
    }
    for n in 0..100 {
        bed.get(&format!("/{n}"));
    }
    bed.get_with("/varies", &[("accept-language", "de")]);
    expect(&bed, &[("new", 102), ("evicted", 1)]);
}

#[test]
fn a_response_that_an_unsafe_request_removed_is_purged() {
    let bed = TestBed::start();
    bed.origin.on("/page", page("old"));
    assert_eq!(bed.get("/page").text(), "old");
    bed.origin.once("/page", Answer::status(204));
    let post = bed
        .connect()
        .request("POST", "/page", &[("content-length", "0")], b"");
    assert_eq!(post.status, 204);
    assert_eq!(bed.get("/page").text(), "old");
    expect(&bed, &[("new", 1), ("purged", 1)]);
}

#[test]
fn requests_during_a_fetch_are_collapsed_and_no_further_cause() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin
        .on("/popular", page("popular").wait_before_head(&gate));
    let mut clients: Vec<_> = (0..5).map(|_| bed.connect()).collect();
    for client in &mut clients {
        client.send_head("GET", "/popular", &[]);
    }
    bed.wait_until("all requests are misses", |status| {
        status["requests"]["uri-miss"] == 5
    });
    gate.open();
    for client in &mut clients {
        assert_eq!(client.answer("GET").text(), "popular");
    }
    expect(&bed, &[("new", 1), ("collapsed", 4)]);
}

#[test]
fn the_origin_is_asked_about_a_fresh_response_because_the_request_demands_it() {
    let bed = TestBed::with_config(|config| {
        config.caching.rules.client_directives = ClientDirectives::Honour;
    });
    bed.origin.on("/page", page("page"));
    bed.get("/page");
    bed.get_with("/page", &[("cache-control", "no-cache")]);
    expect(&bed, &[("new", 1), ("request", 1)]);
}
