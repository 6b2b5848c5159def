//! The rules of HTTP caching (RFC 9111), tested with responses that clients receive from the edge.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{TestBed, pattern};
use edgeward_semantics::{ClientDirectives, SetCookie};
use edgeward_testkit::{Answer, Gate, Step};
use edgeward_types::ByteSize;

fn cached(text: &'static str) -> Answer {
    Answer::ok(text).header("cache-control", "max-age=60")
}

#[test]
fn a_stale_response_is_revalidated_without_its_body() {
    let bed = TestBed::start();
    bed.origin.on(
        "/page",
        Answer::ok("body")
            .header("cache-control", "max-age=0")
            .header("etag", "\"v1\"")
            .revalidates(),
    );
    assert_eq!(bed.get("/page").text(), "body");
    let again = bed.get("/page");
    assert_eq!((again.status, again.text()), (200, "body"));
    // The response delay is part of the age (RFC 9111 §4.2.3). It may be several seconds on a busy machine, so
    // the test does not expect an exact `ttl`.
    let status = again.cache_status();
    let ttl = status.strip_prefix("edgeward; fwd=stale; fwd-status=304; ttl=");
    let ttl: Option<i64> = ttl.and_then(|ttl| ttl.parse().ok());
    assert!(matches!(ttl, Some(..=0)), "{status}");
    let revalidation = bed
        .origin
        .last("/page")
        .expect("the origin got two requests");
    assert_eq!(revalidation.header("if-none-match"), Some("\"v1\""));
    assert_eq!(bed.origin.requests("/page"), 2);
}

#[test]
fn a_304_makes_a_response_fresh_again() {
    let bed = TestBed::start();
    let first = Answer::ok("body")
        .header("cache-control", "max-age=0")
        .header("etag", "\"v1\"");
    bed.origin.once("/page", first);
    bed.origin.once(
        "/page",
        Answer::status(304)
            .header("cache-control", "max-age=60")
            .header("etag", "\"v1\"")
            .header("x-new", "yes"),
    );
    assert_eq!(bed.get("/page").text(), "body");
    assert_eq!(bed.get("/page").text(), "body");
    let hit = bed.get("/page");
    assert!(hit.is_hit(), "{hit:?}");
    assert_eq!((hit.text(), hit.header("x-new")), ("body", Some("yes")));
    assert_eq!(bed.origin.requests("/page"), 2);
}

#[test]
fn a_changed_response_replaces_the_stale_one() {
    let bed = TestBed::start();
    bed.origin.once(
        "/page",
        Answer::ok("old")
            .header("cache-control", "max-age=0")
            .header("etag", "\"v1\""),
    );
    bed.origin
        .on("/page", cached("new").header("etag", "\"v2\""));
    assert_eq!(bed.get("/page").text(), "old");
    assert_eq!(bed.get("/page").text(), "new");
    assert!(bed.get("/page").is_hit());
    assert_eq!(bed.get("/page").text(), "new");
}

#[test]
fn a_stale_response_with_stale_if_error_replaces_an_error_of_the_origin() {
    let bed = TestBed::start();
    let answer = |extra: &str| {
        Answer::ok("kept")
            .header("cache-control", &format!("max-age=0{extra}"))
            .header("etag", "\"a\"")
    };
    bed.origin.once("/yes", answer(", stale-if-error=60"));
    bed.origin.once("/no", answer(""));
    bed.origin.on("/yes", Answer::status(503));
    bed.origin.on("/no", Answer::status(503));
    assert_eq!(bed.get("/yes").status, 200);
    assert_eq!(bed.get("/no").status, 200);
    let stale = bed.get("/yes");
    assert_eq!((stale.status, stale.text()), (200, "kept"));
    assert!(
        stale
            .cache_status()
            .starts_with("edgeward; fwd=stale; fwd-status=503; ttl=")
    );
    assert_eq!(bed.get("/no").status, 503);
}

/// RFC 9111 §4.2.4. Method: the client demands a validation, because the test has no clock that makes a response stale.
#[test]
fn a_stored_response_replaces_the_error_of_an_origin_that_closes_the_connection() {
    let bed = TestBed::with_config(|config| {
        config.caching.rules.client_directives = ClientDirectives::Honour;
    });
    let paths = [
        ("/kept", "max-age=60", true),
        ("/must-revalidate", "max-age=0, must-revalidate", false),
        ("/no-cache", "max-age=60, no-cache", false),
        ("/never-fresh", "max-age=0", false),
    ];
    let validated = [("cache-control", "no-cache")];
    for (path, directives, is_kept) in paths {
        let answer = Answer::ok("kept").header("cache-control", directives);
        bed.origin.once(path, answer.header("etag", "\"a\""));
        bed.origin.on(path, Answer::script(vec![Step::Close]));
        assert_eq!(bed.get(path).text(), "kept");
        let got = bed.get_with(path, &validated);
        assert_eq!(
            got.status,
            if is_kept { 200 } else { 502 },
            "{path}: {got:?}"
        );
        assert!(!is_kept || got.text() == "kept");
        let detail = "detail=http_response_incomplete";
        assert!(
            got.cache_status().ends_with(detail),
            "{}",
            got.cache_status()
        );
    }
    assert_eq!(bed.metric("edgeward_requests_stale_on_error_total"), 1.0);
}

/// RFC 5861 §4. Method: a stored response that is stale on arrival, an origin that fails in both ways, and requests
/// with and without the directive. The second request of each path comes while the edge backs off.
#[test]
fn a_request_with_stale_if_error_0_gets_the_error() {
    let bed = TestBed::with_config(|config| {
        config.caching.rules.client_directives = ClientDirectives::Honour;
        config.caching.validation_backoff = Duration::from_secs(600);
    });
    let answer = Answer::ok("kept").header("cache-control", "max-age=0, stale-if-error=600");
    for (path, failure, status) in [
        ("/fails", Answer::status(503), 503),
        ("/closes", Answer::script(vec![Step::Close]), 502),
    ] {
        bed.origin
            .once(path, answer.clone().header("etag", "\"a\""));
        bed.origin.on(path, failure);
        let with = |directive| bed.get_with(path, &[("cache-control", directive)]);
        assert_eq!(bed.get(path).text(), "kept");
        assert_eq!(with("stale-if-error=0").status, status);
        assert_eq!(with("stale-if-error=600").text(), "kept");
        assert_eq!(with("stale-if-error=0").status, status);
        assert_eq!(bed.get(path).text(), "kept");
        let head =
            bed.connect()
                .request("HEAD", path, &[("cache-control", "stale-if-error=0")], b"");
        assert_eq!(head.status, status);
    }
}

/// The rule: each failure of a refresh begins the back-off, whatever the method of the request and the kind of failure.
///
/// Method: a stale response of 3 MB, or of a few bytes, and an origin that then fails in each way.
#[test]
fn each_failure_of_a_refresh_begins_the_back_off() {
    let bed = TestBed::with_config(|config| {
        config.caching.validation_backoff = Duration::from_secs(600);
    });
    let fresh = |length| Answer::pattern(length).header("cache-control", "max-age=60");
    let failures = [
        ("error", Answer::status(500)),
        ("close", Answer::script(vec![Step::Close])),
        ("reset", Answer::script(vec![Step::Reset])),
        ("garbage", Answer::garbage("nonsense")),
        ("cut", fresh(3_000_000).close_at(2_000_000)),
        ("short", fresh(8).close_at(4)),
        ("chunk", fresh(3_000_000).chunked(1000).close_at(2_000_000)),
    ];
    let cases = failures
        .iter()
        .flat_map(|failure| ["GET", "HEAD"].map(|method| (failure, method)));
    for ((name, failure), method) in cases {
        if method == "HEAD" && ["cut", "short", "chunk"].contains(name) {
            continue; // a HEAD has no body
        }
        let path = format!("/{method}-{name}");
        let stale = "max-age=0, stale-if-error=600";
        let first = Answer::pattern(3_000_000).header("cache-control", stale);
        bed.origin.once(&path, first.header("etag", "\"a\""));
        bed.origin.on(&path, failure.clone());
        bed.get(&path);
        // The first request may get a part of the new body. After a repeated request, the origin has got three.
        bed.connect().request(method, &path, &[], b"");
        bed.wait_for_metric("edgeward_fills", 0.0);
        let requests = bed.origin.requests(&path);
        assert!((2..=3).contains(&requests), "{path}: {requests}");
        for _ in 0..5 {
            for method in ["GET", "HEAD"] {
                let answer = bed.connect().request(method, &path, &[], b"");
                let status = answer.cache_status();
                assert!(status.ends_with("detail=backoff"), "{path}: {status}");
                assert_eq!((answer.status, answer.complete), (200, true), "{path}");
            }
        }
        assert_eq!(bed.origin.requests(&path), requests, "{path}");
    }
}

/// RFC 5861 §4, and the rule of the edge that a failing origin is not asked for each request.
#[test]
fn a_failed_validation_is_not_repeated_for_a_while() {
    let bed = TestBed::with_config(|config| {
        config.caching.validation_backoff = Duration::from_secs(600);
    });
    let answer = Answer::ok("kept").header("cache-control", "max-age=0, stale-if-error=600");
    for (path, failure) in [
        ("/fails", Answer::status(503)),
        ("/closes", Answer::script(vec![Step::Close])),
    ] {
        bed.origin.once(path, answer.clone());
        bed.origin.on(path, failure);
        for _ in 0..5 {
            assert_eq!(bed.get(path).text(), "kept");
        }
        let status = bed.get(path).cache_status().to_owned();
        let is_stale_hit =
            status.starts_with("edgeward; hit; ttl=") && status.ends_with("; detail=backoff");
        assert!(is_stale_hit, "{status}");
    }
    assert_eq!(bed.origin.requests("/fails"), 2);
    // The edge repeats a GET whose connection is closed early.
    assert!(bed.origin.requests("/closes") <= 3);
    // Without permission to serve it stale, each request reaches the origin.
    bed.origin.once(
        "/error",
        Answer::ok("")
            .header("cache-control", "max-age=0")
            .header("etag", "\"a\""),
    );
    bed.origin.on("/error", Answer::status(503));
    for _ in 0..3 {
        bed.get("/error");
    }
    assert_eq!(bed.origin.requests("/error"), 3);
}

/// RFC 5861 §3. Method: the origin holds the validation back until the client has the stale response.
#[test]
fn a_stale_response_is_served_while_it_is_revalidated_once() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let first = Answer::ok("old").header("cache-control", "max-age=0, stale-while-revalidate=600");
    bed.origin.once("/page", first.header("etag", "\"a\""));
    bed.origin
        .on("/page", cached("new").wait_before_head(&gate));
    assert_eq!(bed.get("/page").text(), "old");
    for _ in 0..3 {
        let stale = bed.get("/page");
        assert_eq!(stale.text(), "old");
        assert!(stale.is_hit(), "{}", stale.cache_status());
    }
    gate.wait_reached(1);
    let validation = bed.origin.last("/page").expect("two requests");
    assert_eq!(validation.header("if-none-match"), Some("\"a\""));
    gate.open();
    bed.wait_for_metric("edgeward_fills", 0.0);
    assert_eq!(bed.get("/page").text(), "new");
    assert_eq!(bed.origin.requests("/page"), 2);
    assert_eq!(bed.metric("edgeward_background_revalidations_total"), 1.0);
    assert_eq!(
        bed.metric("edgeward_requests_total{outcome=\"hit-stale\"}"),
        3.0
    );
}

#[test]
fn a_failed_background_validation_keeps_the_stale_response() {
    let bed = TestBed::start();
    let first = Answer::ok("old").header("cache-control", "max-age=0, stale-while-revalidate=600");
    bed.origin.once("/page", first);
    bed.origin.on("/page", Answer::status(503));
    for _ in 0..3 {
        assert_eq!(bed.get("/page").text(), "old");
        bed.wait_for_metric("edgeward_fills", 0.0);
    }
    // The origin takes the object away: the next request must not get it.
    let bed = TestBed::start();
    let first = Answer::ok("old").header("cache-control", "max-age=0, stale-while-revalidate=600");
    bed.origin.once("/page", first);
    bed.origin.on(
        "/page",
        Answer::ok("mine").header("cache-control", "private"),
    );
    assert_eq!(bed.get("/page").text(), "old");
    assert_eq!(bed.get("/page").text(), "old");
    bed.origin.wait_until("the validation arrives", |origin| {
        origin.requests("/page") == 2
    });
    bed.wait_for_metric("edgeward_fills", 0.0);
    assert_eq!(bed.get("/page").text(), "mine");
}

/// RFC 9111 §4.3.5: the 200 to a HEAD updates the stored response if its validators and its length agree.
#[test]
fn a_head_for_a_stale_response_is_forwarded_as_head_and_updates_it() {
    let bed = TestBed::start();
    let first = || {
        Answer::ok("body")
            .header("cache-control", "max-age=0")
            .header("etag", "\"a\"")
            .header("x-kept", "1")
            .header("x-new", "1")
    };
    let head = |path| bed.connect().request("HEAD", path, &[], b"");
    bed.origin.once("/same", first());
    let update = Answer::ok("body").header("cache-control", "max-age=60");
    bed.origin
        .once("/same", update.header("etag", "\"a\"").header("x-new", "2"));
    bed.get("/same");
    let got = head("/same");
    let status = got.cache_status();
    assert!(
        status.starts_with("edgeward; fwd=stale; fwd-status=200; ttl="),
        "{status}"
    );
    assert_eq!(
        bed.origin.last("/same").expect("two requests").method(),
        "HEAD"
    );
    for got in [got, bed.get("/same")] {
        let fields = ["x-kept", "x-new", "cache-control", "content-length"];
        let fields = fields.map(|name| got.header(name).unwrap_or("none"));
        assert_eq!(fields, ["1", "2", "max-age=60", "4"]);
    }
    assert_eq!(bed.origin.requests("/same"), 2);

    // Another representation: the stored response is removed.
    bed.origin.once("/other", first());
    bed.origin.once("/other", cached("longer"));
    bed.origin.on("/other", cached("longer"));
    bed.get("/other");
    assert_eq!(head("/other").header("content-length"), Some("6"));
    let again = bed.get("/other");
    assert!(
        again.cache_status().starts_with("edgeward; fwd=uri-miss"),
        "{again:?}"
    );

    // An error says nothing about the stored response.
    bed.origin.once("/error", first());
    bed.origin.once("/error", Answer::status(503));
    bed.origin.on("/error", first().revalidates());
    bed.get("/error");
    assert_eq!(head("/error").status, 503);
    assert!(bed.get("/error").cache_status().contains("fwd-status=304"));
}

#[test]
fn variants_are_stored_side_by_side() {
    let bed = TestBed::start();
    bed.origin.on_call("/page", |request| {
        let language = request
            .header("accept-language")
            .unwrap_or("none")
            .to_owned();
        Answer::ok(language)
            .header("cache-control", "max-age=60")
            .header("vary", "Accept-Language")
    });
    for round in 0..2 {
        for language in ["de", "en", "fr"] {
            let got = bed.get_with("/page", &[("accept-language", language)]);
            assert_eq!(got.text(), language);
            assert_eq!(
                got.is_hit(),
                round == 1,
                "{language}: {}",
                got.cache_status()
            );
        }
        assert_eq!(bed.get("/page").text(), "none");
    }
    let another = bed.get_with("/page", &[("accept-language", "it")]);
    assert!(
        another
            .cache_status()
            .starts_with("edgeward; fwd=vary-miss")
    );
    assert_eq!(bed.origin.requests("/page"), 5);
}

/// Six requests for three variants wait for one fetch. Each request gets its own variant.
#[test]
fn followers_get_their_own_variants() {
    let bed = TestBed::start();
    let gate = Gate::new();
    let origin_gate = gate.clone();
    bed.origin.on_call("/page", move |request| {
        let language = request
            .header("accept-language")
            .unwrap_or("none")
            .to_owned();
        Answer::ok(language)
            .header("cache-control", "max-age=60")
            .header("vary", "Accept-Language")
            .wait_before_head(&origin_gate)
    });
    let languages = ["de", "en", "de", "fr", "en", "de"];
    let mut clients = Vec::new();
    for language in languages {
        let mut client = bed.connect();
        client.send_head("GET", "/page", &[("accept-language", language)]);
        clients.push(client);
    }
    bed.wait_until("all requests wait", |status| {
        status["requests"]["uri-miss"] == 6
    });
    gate.wait_reached(1);
    assert_eq!(bed.origin.requests("/page"), 1);
    gate.open();
    for (client, language) in clients.iter_mut().zip(languages) {
        assert_eq!(client.answer("GET").text(), language);
    }
    assert_eq!(bed.origin.requests("/page"), 3, "one for each variant");
}

#[test]
fn an_unsafe_method_invalidates_its_target_and_all_variants() {
    let bed = TestBed::start();
    for vary in ["", "Accept-Language"] {
        let path = if vary.is_empty() { "/plain" } else { "/varied" };
        bed.origin.on_call(path, move |request| {
            let body = if request.method() == "GET" {
                "read"
            } else {
                "written"
            };
            let answer = Answer::ok(body).header("cache-control", "max-age=60");
            if vary.is_empty() {
                answer
            } else {
                answer.header("vary", vary)
            }
        });
        let read = || bed.get_with(path, &[("accept-language", "de")]);
        read();
        assert!(read().is_hit(), "{path}");
        let written = bed
            .connect()
            .request("POST", path, &[("content-length", "3")], b"new");
        assert_eq!(written.text(), "written");
        assert_eq!(
            written.cache_status(),
            "edgeward; fwd=method; fwd-status=200; detail=method"
        );
        assert!(!read().is_hit(), "{path}");
        assert!(read().is_hit(), "{path}");
    }
    assert_eq!(bed.metric("edgeward_invalidations_total"), 2.0);
}

/// A POST invalidates a response whose body is still arriving from the origin. This response must not be stored.
///
/// Method: send a POST while a fetch waits in the middle of its body, then let the fetch finish.
#[test]
fn a_response_invalidated_while_it_arrives_is_not_stored() {
    let bed = TestBed::start();
    let gate = Gate::new();
    bed.origin.once(
        "/page",
        Answer::pattern(1000)
            .header("cache-control", "max-age=60")
            .wait_at(500, &gate),
    );
    bed.origin.on("/page", cached("new"));
    let mut reader = bed.connect();
    reader.send_head("GET", "/page", &[]);
    gate.wait_reached(1);
    let written = bed
        .connect()
        .request("POST", "/page", &[("content-length", "0")], b"");
    assert_eq!(written.status, 200);
    gate.open();
    assert!(reader.answer("GET").body == pattern(0..1000));
    bed.wait_until("the fill ends", |status| status["fills"]["under_way"] == 0);
    let next = bed.get("/page");
    assert_eq!((next.text(), next.is_hit()), ("new", false));
}

#[test]
fn a_failed_delete_invalidates_nothing() {
    let bed = TestBed::start();
    bed.origin
        .on_call("/page", |request| match request.method() {
            "GET" => cached("read"),
            _ => Answer::status(500),
        });
    bed.get("/page");
    bed.connect().request("DELETE", "/page", &[], b"");
    assert!(bed.get("/page").is_hit());
}

#[test]
fn a_head_request_is_answered_from_a_stored_response_or_passed() {
    let bed = TestBed::start();
    bed.origin.on("/page", cached("hello"));
    let passed = bed.connect().request("HEAD", "/page", &[], b"");
    assert_eq!(
        (passed.status, passed.header("content-length")),
        (200, Some("5"))
    );
    assert!(!passed.is_hit());
    bed.get("/page");
    let mut client = bed.connect();
    let hit = client.request("HEAD", "/page", &[], b"");
    assert!(hit.is_hit(), "{hit:?}");
    assert_eq!((hit.status, hit.header("content-length")), (200, Some("5")));
    assert_eq!(
        client.get("/page", &[]).text(),
        "hello",
        "the next response on the connection is read correctly"
    );
    assert_eq!(bed.origin.requests("/page"), 2);
}

#[test]
fn a_client_with_the_current_response_gets_a_304() {
    let bed = TestBed::start();
    bed.origin.on(
        "/page",
        cached("hello")
            .header("etag", "\"v1\"")
            .header("last-modified", "Sun, 09 Sep 2001 01:46:40 GMT"),
    );
    for round in 0..2 {
        for (name, value, status) in [
            ("if-none-match", "\"v1\"", 304),
            ("if-none-match", "W/\"v1\", \"x\"", 304),
            ("if-none-match", "\"v2\"", 200),
            ("if-modified-since", "Sun, 09 Sep 2001 01:46:40 GMT", 304),
            ("if-modified-since", "Sun, 09 Sep 2001 01:46:39 GMT", 200),
        ] {
            let got = bed.get_with("/page", &[(name, value)]);
            assert_eq!(got.status, status, "{round} {name}: {value}");
            assert_eq!(got.text(), if status == 304 { "" } else { "hello" });
            assert_eq!(got.header("etag"), Some("\"v1\""));
        }
    }
    assert_eq!(
        bed.origin.requests("/page"),
        1,
        "the first conditional request fetched the whole response"
    );
}

#[test]
fn a_range_of_a_stored_body_is_served_from_the_cache() {
    let bed = TestBed::start();
    bed.origin.on(
        "/file",
        Answer::pattern(1000)
            .header("cache-control", "max-age=60")
            .header("etag", "\"a\""),
    );
    bed.get("/file");
    for (range, status, content_range, bytes) in [
        ("bytes=0-99", 206, Some("bytes 0-99/1000"), 0..100),
        ("bytes=900-", 206, Some("bytes 900-999/1000"), 900..1000),
        ("bytes=-10", 206, Some("bytes 990-999/1000"), 990..1000),
        ("bytes=990-2000", 206, Some("bytes 990-999/1000"), 990..1000),
        ("bytes=1000-", 416, Some("bytes */1000"), 0..0),
        ("bytes=5-1", 200, None, 0..1000),
    ] {
        let got = bed.get_with("/file", &[("range", range)]);
        assert_eq!(got.status, status, "{range}");
        assert_eq!(got.header("content-range"), content_range, "{range}");
        assert!(got.body == pattern(bytes), "{range}");
    }
    let changed = bed.get_with("/file", &[("range", "bytes=0-9"), ("if-range", "\"b\"")]);
    assert_eq!(changed.status, 200);
    assert_eq!(bed.origin.requests("/file"), 1);
}

#[test]
fn a_range_of_a_response_that_is_not_stored_is_passed() {
    let bed = TestBed::start();
    bed.origin
        .on_call("/file", |request| match request.header("range") {
            Some(_) => Answer::ok("01234")
                .with_status(206)
                .header("content-range", "bytes 0-4/10")
                .header("cache-control", "max-age=60"),
            _ => cached("0123456789"),
        });
    let part = bed.get_with("/file", &[("range", "bytes=0-4")]);
    assert_eq!((part.status, part.text()), (206, "01234"));
    let full = bed.get("/file");
    assert_eq!((full.status, full.text()), (200, "0123456789"));
    assert!(!full.is_hit(), "a part is not stored as the whole response");
}

#[test]
fn a_response_with_set_cookie_is_shared_only_if_configured() {
    for (choice, hit, cookie) in [
        (SetCookie::Refuse, false, Some("id=1")),
        (SetCookie::Strip, true, None),
        (SetCookie::Share, true, Some("id=1")),
    ] {
        let bed = TestBed::with_config(|config| config.caching.rules.set_cookie = choice);
        bed.origin
            .on("/page", cached("x").header("set-cookie", "id=1"));
        assert_eq!(
            bed.get("/page").header("set-cookie"),
            Some("id=1"),
            "{choice:?}"
        );
        let second = bed.get("/page");
        assert_eq!(
            (second.is_hit(), second.header("set-cookie")),
            (hit, cookie),
            "{choice:?}"
        );
    }
}

#[test]
fn a_response_to_a_request_with_authorization_is_not_shared() {
    let bed = TestBed::start();
    bed.origin.on("/mine", cached("x"));
    bed.origin.on(
        "/ours",
        Answer::ok("x").header("cache-control", "public, max-age=60"),
    );
    let user = [("authorization", "Basic YTpi")];
    for _ in 0..2 {
        assert!(!bed.get_with("/mine", &user).is_hit());
    }
    assert_eq!(bed.origin.requests("/mine"), 2);
    bed.get_with("/ours", &user);
    assert!(bed.get_with("/ours", &user).is_hit());
    assert_eq!(
        bed.origin
            .last("/mine")
            .expect("the origin got a request")
            .header("authorization"),
        Some("Basic YTpi")
    );
}

#[test]
fn directives_of_clients_are_honoured_if_configured() {
    let bed = TestBed::with_config(|config| {
        config.caching.rules.client_directives = ClientDirectives::Honour;
    });
    bed.origin.on("/page", cached("x"));
    let cached_only = [("cache-control", "only-if-cached")];
    let not_cached = bed.get_with("/page", &cached_only);
    assert_eq!(not_cached.status, 504);
    assert_eq!(bed.origin.requests_total(), 0);
    bed.get("/page");
    assert!(bed.get_with("/page", &cached_only).is_hit());
    let reload = bed.get_with("/page", &[("cache-control", "no-cache")]);
    assert!(
        reload.cache_status().starts_with("edgeward; fwd=request"),
        "{}",
        reload.cache_status()
    );
    assert_eq!(bed.origin.requests("/page"), 2);

    let ignoring = TestBed::start();
    ignoring.origin.on("/page", cached("x"));
    ignoring.get("/page");
    assert!(
        ignoring
            .get_with("/page", &[("cache-control", "no-cache")])
            .is_hit()
    );
}

#[test]
fn keys_differ_by_host_and_port_but_not_by_case_or_default_port() {
    let bed = TestBed::start();
    bed.origin.on_call("/", |request| {
        let host = request.header("host").unwrap_or_default().to_owned();
        Answer::ok(host).header("cache-control", "max-age=60")
    });
    assert_eq!(
        bed.get_with("/", &[("host", "a.example")]).text(),
        "a.example"
    );
    assert_eq!(
        bed.get_with("/", &[("host", "b.example")]).text(),
        "b.example"
    );
    assert!(bed.get_with("/", &[("host", "A.Example:80")]).is_hit());
    assert!(!bed.get_with("/", &[("host", "a.example:81")]).is_hit());
}

#[test]
fn a_small_cache_evicts_and_stays_within_its_budget() {
    let bed = TestBed::with_config(|config| {
        config.hot.capacity = ByteSize::kib(256);
        config.workers = NonZeroUsize::MIN;
    });
    bed.origin
        .otherwise(|_| Answer::pattern(10_000).header("cache-control", "max-age=60"));
    let mut client = bed.connect();
    for n in 0..100 {
        assert!(client.get(&format!("/{n}"), &[]).body == pattern(0..10_000));
    }
    let status = bed.status();
    let number = |value: &serde_json::Value| value.as_u64().expect("the value is a number");
    assert!(number(&status["hot"]["used_bytes"]) <= 256 << 10);
    assert!(number(&status["hot"]["evicted"]) > 50);
    assert!(client.get("/99", &[]).is_hit());
    assert!(!client.get("/0", &[]).is_hit());
}

/// The rule: the first HEAD of a URL is forwarded as HEAD, the second one is fetched with GET if the body is not too
/// large, and later ones are hits. Method: bodies on both sides of the limit, bodies of unknown length, and a response
/// that is not stored.
#[test]
fn many_head_requests_cost_the_origin_two_requests_if_the_body_is_within_the_limit() {
    const MIB: u64 = 1 << 20;
    let of = |length, control| Answer::pattern(length).header("cache-control", control);
    let cached = |length| of(length, "max-age=60");
    let two = &["HEAD", "GET"][..];
    for (name, bytes_max, answer, methods) in [
        ("within", 10, cached(10), two),
        ("above", 9, cached(10), &["HEAD"; 5]),
        ("off", 0, cached(0), &["HEAD"; 5]),
        ("private", 10, of(10, "private"), &["HEAD"; 5]),
        ("missing", 10, cached(10).with_status(404), two),
        ("chunked", MIB, cached(MIB).chunked(1000), two),
        // The fetch ends when the body exceeds the limit, and is not repeated.
        (
            "long",
            MIB,
            cached(4 * MIB).chunked(1000),
            &["HEAD", "GET", "HEAD", "HEAD", "HEAD"],
        ),
    ] {
        let bed = TestBed::with_config(|config| {
            config.caching.head_fetch_bytes_max = ByteSize(bytes_max);
        });
        bed.origin.on("/a", answer);
        for _ in 0..5 {
            let head = bed.connect().request("HEAD", "/a", &[], b"");
            assert!([200, 404].contains(&head.status), "{name}: {head:?}");
            bed.wait_for_metric("edgeward_fills", 0.0);
        }
        let recorded = bed.origin.recorded();
        let sent: Vec<_> = recorded.iter().map(|request| request.method()).collect();
        assert_eq!(sent, methods, "{name}");
        let fetches = if methods.contains(&"GET") { 1.0 } else { 0.0 };
        assert_eq!(bed.metric("edgeward_head_fetches_total"), fetches);
        assert_eq!(bed.get("/a").is_hit(), methods.len() == 2, "{name}");
    }
}

/// Method: 20 clients send HEAD before the origin answers. If the response may not be shared, each gets its own.
#[test]
fn head_requests_that_wait_together_share_one_request() {
    for (control, requests) in [("max-age=60", 1), ("private", 20)] {
        let bed = TestBed::with_config(|config| {
            config.caching.head_fetch_bytes_max = ByteSize(0);
        });
        let gate = Gate::new();
        let answer = Answer::ok("0123456789").header("cache-control", control);
        bed.origin.on("/a", answer.wait_before_head(&gate));
        let mut clients: Vec<_> = (0..20).map(|_| bed.connect()).collect();
        for client in &mut clients {
            client.send_head("HEAD", "/a", &[]);
        }
        bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 20.0);
        gate.wait_reached(1);
        gate.open();
        for client in &mut clients {
            let head = client.answer("HEAD");
            assert_eq!(head.status, 200);
            assert_eq!(head.header("content-length"), Some("10"));
        }
        assert_eq!(bed.origin.requests("/a"), requests, "{control}");
    }
}
