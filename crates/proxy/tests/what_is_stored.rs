//! What the cache keeps, and which change of it wins, seen from outside.

mod support;

use edgeward_testkit::Answer;
use support::Bed;

fn page(text: &'static str) -> Answer {
    Answer::ok(text).header("cache-control", "max-age=600")
}

/// A response that every use has to validate.
fn stale(body: Answer) -> Answer {
    body.header("cache-control", "max-age=0")
        .header("etag", "\"a\"")
}

/// A field that is not in the cache key causes the error, which the origin declares cacheable.
#[test]
fn an_error_that_one_request_caused_is_not_served_to_the_next() {
    let bed = Bed::start();
    for (path, status) in [
        ("/400", 400),
        ("/413", 413),
        ("/414", 414),
        ("/431", 431),
        ("/501", 501),
    ] {
        bed.origin.on_call(path, move |request| {
            if request.header("x-bad").is_some() {
                Answer::status(status).header("cache-control", "public, max-age=600")
            } else {
                page("page")
            }
        });
        let refused = bed.get_with(path, &[("x-bad", "1")]);
        assert_eq!(refused.status, status);
        let next = bed.get(path);
        assert_eq!((next.status, next.text()), (200, "page"), "{path}");
        assert!(bed.get(path).is_hit());
    }
}

/// The error answers one request and says nothing about the response that was being validated.
#[test]
fn an_error_that_one_request_caused_does_not_remove_what_is_stored() {
    let bed = Bed::start();
    bed.origin.on_call("/page", |request| {
        if request.header("x-bad").is_some() {
            Answer::status(400)
        } else {
            stale(Answer::ok("page")).revalidates()
        }
    });
    bed.get("/page");
    assert_eq!(bed.get_with("/page", &[("x-bad", "1")]).status, 400);
    let next = bed.get("/page");
    assert!(next.cache_status().contains("fwd-status=304"), "{next:?}");
    assert_eq!(next.text(), "page");
}

#[test]
fn an_operator_may_allow_errors_with_a_lifetime() {
    let bed = Bed::with(|config| config.caching.rules.store_request_errors = true);
    let error = Answer::status(400);
    bed.origin
        .on("/a", error.clone().header("cache-control", "max-age=600"));
    bed.origin.on("/b", error.header("etag", "\"b\""));
    for (path, requests) in [("/a", 1), ("/b", 2)] {
        for _ in 0..2 {
            assert_eq!(bed.get(path).status, 400);
        }
        assert_eq!(bed.origin.requests(path), requests, "{path}");
    }
}
