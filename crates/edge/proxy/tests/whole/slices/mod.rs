//! Ranges without a complete stored response, fetched in slices: tested with what clients and the origin receive.

mod representation;
mod stored;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::one_site::set_site;
use crate::support::{Client, TestBed};
use edgeward_proxy::config::Token;
use edgeward_sites::{FieldChange, Settings};
use edgeward_testkit::client::until;
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;
use http::HeaderName;
use representation::{
    LENGTH, Representation, SLICE, TOKEN, bed_with, expect_range, get_range, ranges_requested,
    slice_value, sliced,
};

#[test]
fn a_range_on_a_miss_fetches_only_its_slices() {
    let bed = bed_with(&Representation::cached());
    let first = expect_range(&bed, 0, SLICE + 100..SLICE + 200);
    assert_eq!(
        first.cache_status(),
        "edgeward; fwd=uri-miss; fwd-status=206; stored"
    );
    let again = expect_range(&bed, 0, SLICE..SLICE + 150);
    assert!(again.is_hit(), "{}", again.cache_status());
    let across = expect_range(&bed, 0, SLICE + 5..4 * SLICE + 7);
    assert_eq!(
        across.cache_status(),
        "edgeward; fwd=partial; detail=slices"
    );
    assert!(expect_range(&bed, 0, SLICE + 5..4 * SLICE + 7).is_hit());
    let expected: Vec<String> = (1..5).map(slice_value).collect();
    assert_eq!(ranges_requested(&bed), expected);
    let last = bed.origin.last("/a").expect("a request");
    assert_eq!(last.header("if-range"), Some("\"v0\""));
    assert_eq!(bed.metric("edgeward_requests_total{outcome=\"hit\"}"), 2.0);
    assert_eq!(
        bed.metric("edgeward_requests_total{outcome=\"partial\"}"),
        1.0
    );
    assert_eq!(
        bed.metric("edgeward_slice_fetches_total{result=\"slice\"}"),
        4.0
    );
    until("the cause is counted", || {
        let series = "edgeward_site_misses_total{site=\"default\",cause=\"range\"} 1";
        bed.metrics().contains(series).then_some(())
    });
}

#[test]
fn a_response_in_slices_answers_requests_of_all_kinds() {
    let bed = bed_with(&Representation::cached());
    expect_range(&bed, 0, 0..10);
    let head = bed.connect().request("HEAD", "/a", &[], b"");
    assert!(head.is_hit() && head.status == 200, "{head:?}");
    let length = LENGTH.to_string();
    assert_eq!(head.header("content-length"), Some(length.as_str()));
    assert_eq!(head.header("content-range"), None);
    let unchanged = bed.get_with("/a", &[("if-none-match", "\"v0\"")]);
    assert!(unchanged.is_hit() && unchanged.status == 304);
    let beyond = bed.get_with("/a", &[("range", &format!("bytes={LENGTH}-"))]);
    assert_eq!(beyond.status, 416);
    let content = format!("bytes */{LENGTH}");
    assert_eq!(beyond.header("content-range"), Some(content.as_str()));
    let other = [("range", "bytes=0-1"), ("if-range", "\"other\"")];
    for fields in [&[][..], &other] {
        let whole = bed.get_with("/a", fields);
        assert_eq!((whole.status, whole.complete), (200, true));
        assert!(whole.body == Representation::bytes(0, 0..LENGTH));
    }
    let suffix = bed.get_with("/a", &[("range", "bytes=-5")]);
    assert!(suffix.is_hit() && suffix.body == Representation::bytes(0, LENGTH - 5..LENGTH));
    let expected: Vec<String> = (0..11).map(slice_value).collect();
    assert_eq!(ranges_requested(&bed), expected);
}

/// The rule: the first range of a URL costs the origin only bytes that the client requests, and the second one costs
/// whole slices. Method: slices of 256 KiB, and ranges within a slice, across slices, at the end and over a whole
/// slice.
#[test]
fn the_first_range_of_a_url_costs_the_origin_no_further_byte() {
    const BIG: u64 = 256 << 10;
    let slice = |index: u64| {
        format!(
            "bytes={}-{}",
            index * BIG,
            ((index + 1) * BIG).min(LENGTH) - 1
        )
    };
    let part = |range: Range<u64>| format!("bytes={}-{}", range.start, range.end - 1);
    let cases = [
        (5..10, vec![part(5..10)], vec![slice(0)]),
        (
            BIG - 1..BIG + 1,
            vec![part(BIG - 1..BIG + 1)],
            vec![slice(0), slice(1)],
        ),
        (
            LENGTH - 2..LENGTH,
            vec![part(LENGTH - 2..LENGTH)],
            vec![slice(2)],
        ),
        (5..BIG + 6, vec![part(5..BIG), slice(1)], vec![slice(0)]),
        (0..BIG, vec![slice(0)], vec![]),
    ];
    for (range, first, second) in cases {
        let bed = TestBed::with_config(|config| {
            sliced(config);
            config.ranges.slice_bytes = ByteSize(BIG);
        });
        Representation::cached().serve(&bed.origin, "/a");
        expect_range(&bed, 0, range.clone());
        bed.wait_for_metric("edgeward_fills", 0.0);
        assert_eq!(ranges_requested(&bed), first, "{range:?}");
        // The next range has a byte before the first one, in the same slices.
        let wider = range.start.saturating_sub(1)..range.end;
        let next = expect_range(&bed, 0, wider.clone());
        bed.wait_for_metric("edgeward_fills", 0.0);
        assert_eq!(next.is_hit(), second.is_empty(), "{range:?}");
        assert_eq!(
            ranges_requested(&bed),
            [first, second].concat(),
            "{range:?}"
        );
        assert!(expect_range(&bed, 0, wider).is_hit(), "{range:?}");
    }
}

/// Method: one client requests a few bytes of an unknown URL. Before its response arrives, others request other bytes
/// of the same slice.
#[test]
fn requests_that_wait_for_the_first_range_share_one_fetch_of_its_slice() {
    let bed = TestBed::with_config(|config| {
        sliced(config);
        config.ranges.slice_bytes = ByteSize::kib(256);
    });
    let gate = Gate::new();
    let representation = Representation::cached();
    let wait = gate.clone();
    bed.origin.on_call("/a", move |request| {
        representation.answer(request).wait_before_head(&wait)
    });
    let get = |range: &str| {
        let mut client = bed.connect();
        client.send_head("GET", "/a", &[("range", range)]);
        client
    };
    let mut clients = vec![get("bytes=100-109")];
    gate.wait_reached(1);
    clients.extend((0..5).map(|n| get(&format!("bytes={n}-9"))));
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 6.0);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.answer("GET").status, 206);
    }
    let expected = ["bytes=100-109", "bytes=0-262143"];
    assert_eq!(ranges_requested(&bed), expected);
}

/// Method: the responses have a field that forbids to store them, and a rule of the site removes it.
#[test]
fn rules_on_the_origins_response_apply_to_each_slice() {
    let representation =
        Representation::with(&[("cache-control", "max-age=600"), ("set-cookie", "lb=1")]);
    // Without the rule, one further request shows that the representation cannot be stored.
    for (removes, requests) in [(true, 5), (false, 11)] {
        let bed = TestBed::with_config(|config| {
            sliced(config);
            let mut settings = Settings::default();
            if removes {
                let name = HeaderName::from_static("set-cookie");
                settings.origin_response.insert(name, FieldChange::Remove);
            }
            set_site(config, settings, Vec::new());
        });
        representation.serve(&bed.origin, "/a");
        for _ in 0..2 {
            for index in 0..5 {
                let start = index * SLICE;
                let answer = expect_range(&bed, 0, start..start + SLICE);
                assert_eq!(answer.header("set-cookie").is_none(), removes);
            }
        }
        assert_eq!(bed.origin.requests("/a"), requests, "removes: {removes}");
    }
}

#[test]
fn a_first_suffix_is_requested_as_it_is() {
    let bed = bed_with(&Representation::cached());
    let get = |length: u64| {
        let answer = bed.get_with("/a", &[("range", &format!("bytes=-{length}"))]);
        assert_eq!((answer.status, answer.complete), (206, true));
        assert!(answer.body == Representation::bytes(0, LENGTH - length..LENGTH));
        answer
    };
    get(600);
    assert!(get(500).is_hit());
    get(800); // The part that is stored is shorter, so the whole slice is fetched.
    assert!(get(1000).is_hit());
    assert_eq!(ranges_requested(&bed), ["bytes=-600", &slice_value(10)]);
}

/// Method: the part of the first suffix has bytes of two slices, so only the head of the response is of use.
#[test]
fn a_suffix_across_slices_is_answered_and_its_target_is_sliced() {
    let bed = bed_with(&Representation::cached());
    let answer = bed.get_with("/a", &[("range", "bytes=-2000")]);
    assert_eq!((answer.status, answer.complete), (206, true));
    assert!(answer.body == Representation::bytes(0, LENGTH - 2000..LENGTH));
    let again = expect_range(&bed, 0, LENGTH - 900..LENGTH);
    assert_eq!(again.cache_status(), "edgeward; fwd=partial; detail=slices");
    assert!(expect_range(&bed, 0, LENGTH - 900..LENGTH).is_hit());
    assert_eq!(ranges_requested(&bed), ["bytes=-2000", &slice_value(10)]);
}

#[test]
fn a_206_with_the_whole_representation_is_stored_as_a_complete_response() {
    let bed = TestBed::with_config(sliced);
    let answer = Answer::ok("0123456789")
        .with_status(206)
        .header("content-range", "bytes 0-9/10")
        .header("cache-control", "max-age=600");
    bed.origin.on("/a", answer);
    let first = bed.get_with("/a", &[("range", "bytes=2-4")]);
    assert_eq!((first.status, first.text()), (206, "234"));
    assert_eq!(first.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(first.header("content-length"), Some("3"));
    let whole = bed.get("/a");
    assert!(whole.is_hit() && whole.status == 200);
    assert_eq!(
        (whole.text(), whole.header("content-range")),
        ("0123456789", None)
    );
    assert_eq!(bed.origin.requests("/a"), 1);
}

/// Method: a follower joins while the origin sends the complete response.
#[test]
fn a_200_to_a_range_is_stored_while_clients_get_their_parts() {
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let answer = Answer::pattern(LENGTH)
        .header("cache-control", "max-age=600")
        .wait_at(SLICE, &gate);
    bed.origin.on("/a", answer);
    let get = |range: &'static str| {
        let mut client = bed.connect();
        client.send_head("GET", "/a", &[("range", range)]);
        client
    };
    let mut leader = get("bytes=100000-100009");
    gate.wait_reached(1);
    let mut follower = get("bytes=5-9");
    let early = follower.answer("GET");
    assert_eq!(
        (early.status, early.body),
        (206, Representation::bytes(0, 5..10))
    );
    gate.open();
    let late = leader.answer("GET");
    assert_eq!(late.status, 206);
    assert_eq!(late.body, Representation::bytes(0, 100_000..100_010));
    let unsatisfied = format!("bytes={LENGTH}-");
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 1.0);
    assert_eq!(bed.get_with("/a", &[("range", &unsatisfied)]).status, 416);
    assert!(bed.get("/a").is_hit());
    assert_eq!(bed.origin.requests("/a"), 1);
}

/// Method: a fetch of the complete response has sent its first bytes. A range far behind them does not wait for it.
#[test]
fn a_range_far_from_a_fill_under_way_is_passed() {
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let wait = gate.clone();
    let length = 3 << 20;
    bed.origin
        .on_call("/a", move |request| match request.header("range") {
            Some(_) => Answer::ok("0123456789")
                .with_status(206)
                .header("content-range", &format!("bytes 2500000-2500009/{length}")),
            None => Answer::pattern(length)
                .header("cache-control", "max-age=600")
                .wait_at(100, &wait),
        });
    let mut whole = bed.connect();
    whole.send_head("GET", "/a", &[]);
    gate.wait_reached(1);
    let part = bed.get_with("/a", &[("range", "bytes=2500000-2500009")]);
    assert_eq!((part.status, part.text()), (206, "0123456789"));
    assert_eq!(
        bed.metric("edgeward_ranges_passed_total{reason=\"fill\"}"),
        1.0
    );
    gate.open();
    assert_eq!(whole.answer("GET").body.len() as u64, length);
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 1.0);
    assert!(bed.get("/a").is_hit());
}

/// RFC 9110 §15.3.7.3: without a strong validator, parts must not be combined.
#[test]
fn ranges_that_cannot_be_sliced_are_passed_unchanged() {
    let cases: [(&str, &[(&str, &str)]); 5] = [
        (
            "/weak",
            &[("etag", "W/\"a\""), ("content-range", "bytes 0-4/1000")],
        ),
        ("/none", &[("content-range", "bytes 0-4/1000")]),
        (
            "/unknown",
            &[("etag", "\"a\""), ("content-range", "bytes 0-4/*")],
        ),
        (
            "/length",
            &[("etag", "\"a\""), ("content-range", "bytes 0-5/1000")],
        ),
        (
            "/private",
            &[
                ("etag", "\"a\""),
                ("content-range", "bytes 0-4/1000"),
                ("cache-control", "private"),
            ],
        ),
    ];
    let bed = TestBed::with_config(sliced);
    for (path, fields) in cases {
        let answer = Answer::ok("01234").with_status(206);
        let answer = fields
            .iter()
            .fold(answer, |answer, (name, value)| answer.header(name, value));
        bed.origin
            .on(path, answer.header("cache-control", "max-age=60"));
        for requests in 1..4 {
            let answer = bed.get_with(path, &[("range", "bytes=0-4"), ("if-range", "\"a\"")]);
            assert_eq!((answer.status, answer.text()), (206, "01234"), "{path}");
            // The first request is sent twice. The target is then remembered.
            assert_eq!(bed.origin.requests(path), requests + 1, "{path}");
            let last = bed.origin.last(path).expect("a request");
            assert_eq!(last.header("range"), Some("bytes=0-4"), "{path}");
            assert_eq!(last.header("if-range"), Some("\"a\""), "{path}");
        }
    }
    let passed = |reason: &str| {
        bed.metric(&format!(
            "edgeward_ranges_passed_total{{reason=\"{reason}\"}}"
        ))
    };
    assert_eq!((passed("unusable"), passed("marked")), (5.0, 10.0));
}

#[test]
fn several_ranges_and_disabled_slices_are_passed() {
    let bed = bed_with(&Representation::cached());
    bed.origin.on("/a", Answer::ok("whole"));
    bed.get_with("/a", &[("range", "bytes=0-1,5-6")]);
    assert_eq!(ranges_requested(&bed), ["bytes=0-1,5-6"]);
    let representation = Representation::cached();
    let bed = TestBed::with_config(|config| config.ranges.slice_bytes = ByteSize(0));
    representation.serve(&bed.origin, "/a");
    expect_range(&bed, 0, 5..10);
    expect_range(&bed, 0, 5..10);
    assert_eq!(ranges_requested(&bed), ["bytes=5-9", "bytes=5-9"]);
    assert_eq!(
        bed.metric("edgeward_ranges_passed_total{reason=\"form\"}"),
        2.0
    );
}

#[test]
fn other_statuses_are_answered_as_without_slices() {
    let bed = TestBed::with_config(sliced);
    bed.origin.on(
        "/gone",
        Answer::ok("gone")
            .with_status(404)
            .header("cache-control", "max-age=60"),
    );
    let range = [("range", "bytes=0-1")];
    let gone = bed.get_with("/gone", &range);
    assert_eq!((gone.status, gone.text()), (404, "gone"));
    assert!(bed.get("/gone").is_hit());
    Representation::cached().serve(&bed.origin, "/a");
    let beyond = bed.get_with("/a", &[("range", &format!("bytes={}-", 20 * SLICE))]);
    assert_eq!(beyond.status, 416);
    // The slice of this range exists, but the range begins after its last byte.
    let beyond = bed.get_with("/a", &[("range", &format!("bytes={LENGTH}-"))]);
    assert_eq!(beyond.status, 416);
    let content = format!("bytes */{LENGTH}");
    assert_eq!(beyond.header("content-range"), Some(content.as_str()));
}

/// Method: twenty clients request ranges of four slices of a cold object. The origin waits until all have joined.
#[test]
fn clients_share_the_fetch_of_each_slice() {
    let representation = Representation::cached();
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let (this, wait) = (representation, gate.clone());
    bed.origin.on_call("/a", move |request| {
        this.answer(request).wait_before_head(&wait)
    });
    let clients: Vec<(Client, Range<u64>)> = (0..20)
        .map(|number| {
            let start = (number % 4) * 2 * SLICE + number;
            let range = start..start + SLICE / 2;
            let value = format!("bytes={}-{}", range.start, range.end - 1);
            let mut client = bed.connect();
            client.send_head("GET", "/a", &[("range", &value)]);
            (client, range)
        })
        .collect();
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 20.0);
    gate.open();
    for (mut client, range) in clients {
        let answer = client.answer("GET");
        assert_eq!(answer.status, 206);
        assert!(answer.body == Representation::bytes(0, range));
    }
    let mut requested = ranges_requested(&bed);
    requested.sort();
    let mut expected: Vec<String> = [0, 2, 4, 6].map(slice_value).to_vec();
    expected.sort();
    assert_eq!(requested, expected);
}

/// Method: read a whole response slowly enough to see which slices the origin was asked for.
#[test]
fn slices_are_fetched_ahead_of_a_client_that_reads_in_order() {
    let bed = TestBed::with_config(|config| {
        sliced(config);
        config.ranges.read_ahead_slices = 2;
    });
    let gate = Gate::new();
    let (this, wait) = (Representation::cached(), gate.clone());
    bed.origin.on_call("/a", move |request| {
        let answer = this.answer(request);
        match request.header("range") {
            Some(range) if range == slice_value(2) => answer.wait_before_head(&wait),
            _ => answer,
        }
    });
    expect_range(&bed, 0, 10..SLICE);
    assert_eq!(bed.origin.requests("/a"), 1, "no slice after the range");
    let mut client = bed.connect();
    client.send_head("GET", "/a", &[("range", "bytes=0-")]);
    let mut answer = client.head();
    // Slice 2 waits, but slice 3 is fetched nevertheless.
    bed.origin
        .wait_until("slice 3 is fetched", |origin| origin.requests("/a") >= 4);
    gate.open();
    client.body("GET", &mut answer);
    assert!(answer.complete && answer.body == Representation::bytes(0, 0..LENGTH));
    assert_eq!(bed.origin.requests("/a"), 11);
}

/// Method: the client disconnects while the origin waits within the second slice.
#[test]
fn a_slice_is_fetched_to_its_end_although_its_client_leaves() {
    let bed = TestBed::with_config(sliced);
    let gate = Gate::new();
    let (this, wait) = (Representation::cached(), gate.clone());
    bed.origin.on_call("/a", move |request| {
        let answer = this.answer(request);
        match request.header("if-range") {
            Some(_) => answer.wait_at(1000, &wait),
            None => answer,
        }
    });
    expect_range(&bed, 0, 0..10);
    let mut client = bed.connect();
    client.send_head("GET", "/a", &[]);
    gate.wait_reached(1);
    client.reset();
    bed.wait_for_metric("edgeward_responses_aborted_total{by=\"client\"}", 1.0);
    gate.open();
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 2.0);
    assert!(expect_range(&bed, 0, SLICE..2 * SLICE).is_hit());
    assert_eq!(bed.origin.requests("/a"), 2);
}

/// Method: the first fetch of the slice breaks after its head, so the rest of the slice is fetched by another request.
#[test]
fn a_slice_that_ended_early_is_fetched_again() {
    let bed = TestBed::with_config(sliced);
    let this = Representation::cached();
    let breaks = AtomicU64::new(0);
    bed.origin.on_call("/a", move |request| {
        let answer = this.answer(request);
        let is_second = request.header("range") == Some(&slice_value(1));
        if is_second && breaks.fetch_add(1, Ordering::SeqCst) == 0 {
            return answer.reset_at(1000);
        }
        answer
    });
    expect_range(&bed, 0, 0..2 * SLICE);
    assert_eq!(bed.origin.requests("/a"), 3);
}

#[test]
fn an_origin_that_ignores_if_range_gets_the_requests_unchanged() {
    let bed = TestBed::with_config(sliced);
    let this = Representation::cached();
    bed.origin.on_call("/a", move |request| {
        if request.header("if-range").is_some() {
            return Answer::ok(Representation::bytes(0, 0..LENGTH)).header("etag", "\"v0\"");
        }
        this.answer(request)
    });
    expect_range(&bed, 0, 0..10);
    expect_range(&bed, 0, SLICE..SLICE + 10);
    expect_range(&bed, 0, 5 * SLICE..5 * SLICE + 10);
    let requested = ranges_requested(&bed);
    assert_eq!(
        requested.last().map(String::as_str),
        Some("bytes=327680-327689")
    );
}

/// Method: the second and third slice are stored. Before each request, the edge explains it.
#[test]
fn an_explanation_predicts_which_slices_are_fetched() {
    let representation = Representation::cached();
    let bed = TestBed::with_config(|config| {
        sliced(config);
        config.purge.token = Token::new(TOKEN).ok();
    });
    representation.serve(&bed.origin, "/a");
    get_range(&bed, SLICE..3 * SLICE);
    let api = |page: &str, range: &str| {
        let headers = if range.is_empty() {
            vec![]
        } else {
            vec![["range", range]]
        };
        let url = "http://test.example/a";
        let body = serde_json::json!({ "url": url, "headers": headers }).to_string();
        let authorization = format!("Bearer {TOKEN}");
        let length = body.len().to_string();
        let fields = [
            ("authorization", &*authorization),
            ("content-length", &*length),
        ];
        let addr = bed.edge.admin_addr().expect("configured");
        let answer = Client::connect(addr).request("POST", page, &fields, body.as_bytes());
        serde_json::from_slice::<serde_json::Value>(&answer.body).expect("JSON")
    };
    let shown = api("/cache", "");
    let slices = &shown["stored"]["slices"];
    assert_eq!(
        (
            &slices["count"],
            &slices["in_memory"],
            &slices["on_disk_only"]
        ),
        (&11.into(), &2.into(), &0.into()),
        "{shown}"
    );
    let second = format!("bytes={}-{}", SLICE, 2 * SLICE - 1);
    let fourth = format!("bytes={}-{}", 2 * SLICE, 3 * SLICE);
    for (range, cache_status, status) in [
        (second.as_str(), "edgeward; hit; ttl=", Some(206)),
        (&fourth, "edgeward; fwd=partial; detail=slices", None),
        (&fourth, "edgeward; hit; ttl=", Some(206)),
        ("bytes=99999999-", "edgeward; hit; ttl=", Some(416)),
        (
            "bytes=0-0,9-9",
            "edgeward; fwd=partial; detail=slices",
            None,
        ),
        ("bytes=0-0,9-9", "edgeward; hit; ttl=", Some(200)),
    ] {
        let explained = api("/explain", range);
        let predicted = explained["cache_status"].as_str().expect("text");
        assert!(predicted.starts_with(cache_status), "{range}: {explained}");
        assert_eq!(explained["status"].as_u64(), status, "{range}: {explained}");
        let answer = bed.get_with("/a", &[("range", range)]);
        let outcome = |text: &str| text.split("; ").nth(1).map(str::to_owned);
        assert_eq!(
            outcome(predicted),
            outcome(answer.cache_status()),
            "{range}: {explained}"
        );
    }
}
