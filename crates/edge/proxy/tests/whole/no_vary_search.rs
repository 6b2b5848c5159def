//! `No-Vary-Search` (draft-ietf-httpbis-no-vary-search-06) and `caching.ignored_parameters`, tested with the responses
//! that clients receive.

use std::path::Path;
use std::thread;

use crate::support::{Client, TestBed};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, Token};
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use edgeward_types::ByteSize;

/// Returns a response that is fresh for ten minutes and has this rule.
fn ruled(text: impl Into<bytes::Bytes>, rule: &str) -> Answer {
    cached(text).header("no-vary-search", rule)
}

fn cached(text: impl Into<bytes::Bytes>) -> Answer {
    Answer::ok(text).header("cache-control", "max-age=600")
}

/// Configures a disk of 64 MiB in `folder`, and memory for few objects. Every miss is written to disk.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        with_token(config);
        config.hot.capacity = ByteSize::kib(4);
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

fn with_token(config: &mut EdgeConfig) {
    config.purge.token = Token::new("correct-horse-battery").ok();
}

/// Purges a URL of the host `test.example`.
fn purge(bed: &TestBed, target: &str, soft: bool) {
    let body = format!(r#"{{"urls": ["http://test.example{target}"], "soft": {soft}}}"#);
    let addr = bed
        .edge
        .admin_addr()
        .expect("the admin server is configured");
    let length = body.len().to_string();
    let fields = [
        ("authorization", "Bearer correct-horse-battery"),
        ("content-length", &*length),
    ];
    let answer = Client::connect(addr).request("POST", "/purge", &fields, body.as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_response_answers_urls_that_differ_in_ignored_parameters() {
    let bed = TestBed::start();
    bed.origin
        .on("/a", ruled("one", "key-order, params=(\"utm\")"));
    assert!(!bed.get("/a?x=1&y=2&utm=5").is_hit());
    for target in [
        "/a?x=1&y=2&utm=5",
        "/a?y=2&x=1",
        "/a?utm=&y=%32&x=1&utm",
        "/a?x=1&y=2",
    ] {
        let answer = bed.get(target);
        assert!(
            answer.is_hit() && answer.text() == "one",
            "{target}: {answer:?}"
        );
    }
    for target in ["/a?x=2&y=2", "/a?x=1", "/a", "/b?x=1&y=2"] {
        assert!(!bed.get(target).is_hit(), "{target}");
    }
    assert_eq!(
        bed.metric("edgeward_path_rules_total{result=\"stored\"}"),
        1.0
    );
    assert!(bed.metric("edgeward_path_rule_lookups_total") >= 6.0);
}

#[test]
fn except_without_names_makes_one_response_of_a_path() {
    let bed = TestBed::start();
    bed.origin.on("/a", ruled("one", "except=()"));
    bed.get("/a?x=1");
    assert!(bed.get("/a").is_hit() && bed.get("/a?").is_hit() && bed.get("/a?y").is_hit());
    let head = bed.connect().request("HEAD", "/a?z", &[], b"");
    assert!(head.is_hit(), "{head:?}");
    let range = bed.get_with("/a?z", &[("range", "bytes=1-")]);
    assert_eq!((range.status, range.text()), (206, "ne"));
}

#[test]
fn an_invalid_rule_ignores_no_parameter() {
    let bed = TestBed::start();
    bed.origin.on("/a", ruled("one", "params"));
    bed.get("/a?x=1");
    assert!(bed.get("/a?x=1").is_hit());
    assert!(!bed.get("/a?x=2").is_hit());
}

/// §7: a stored response is reused by its own rule only. Method: the origin changes its rule, then removes it.
#[test]
fn a_changed_or_removed_rule_stops_reuse() {
    let bed = TestBed::start();
    bed.origin.on("/a", ruled("one", "params=(\"u\")"));
    bed.get("/a?x=1&u=1");
    assert!(bed.get("/a?x=1&u=2").is_hit());
    bed.origin.on("/a", ruled("two", "params=(\"v\")"));
    assert_eq!(bed.get("/a?x=2&u=1").text(), "two");
    assert!(
        !bed.get("/a?x=2&u=2").is_hit(),
        "the new rule does not ignore u"
    );
    assert!(bed.get("/a?x=2&u=1&v=1").is_hit());
    assert!(
        !bed.get("/a?x=1&u=3").is_hit(),
        "the old rule is not used any more"
    );
    bed.origin.on("/a", cached("three"));
    assert_eq!(bed.get("/a?x=3&v=1").text(), "three");
    assert!(bed.get("/a?x=3&v=1").is_hit());
    assert!(!bed.get("/a?x=3&v=2").is_hit(), "the response has no rule");
    assert!(
        bed.get("/a?x=2&u=1&v=2").is_hit(),
        "another response still has one"
    );
}

/// Method: a stale response without a rule is stored, and the origin answers its validation with a 200 that has one.
/// The stale response must not be found before the new one.
#[test]
fn a_response_that_gets_a_rule_replaces_the_stale_one() {
    let bed = TestBed::start();
    let stale = Answer::ok("old")
        .header("cache-control", "max-age=0")
        .header("etag", "\"1\"");
    bed.origin.on("/a", stale);
    bed.get("/a?u=1");
    bed.origin.on("/a", ruled("new", "params=(\"u\")"));
    assert_eq!(bed.get("/a?u=1").text(), "new");
    assert!(bed.get("/a?u=1").is_hit() && bed.get("/a?u=2").is_hit());
}

/// Method: a response under a rule becomes stale, and the 304 changes the rule.
#[test]
fn a_304_that_changes_the_rule_removes_the_response() {
    let bed = TestBed::start();
    let with_rule = |rule: &str, max_age: &str| {
        let answer = Answer::ok("one").header("etag", "\"1\"").revalidates();
        answer
            .header("cache-control", max_age)
            .header("no-vary-search", rule)
    };
    bed.origin
        .on("/a", with_rule("params=(\"u\")", "max-age=0"));
    bed.get("/a?u=1");
    bed.origin
        .on("/a", with_rule("params=(\"u\")", "max-age=600"));
    assert!(bed.get("/a?u=2").cache_status().contains("fwd-status=304"));
    assert!(bed.get("/a?u=3").is_hit(), "the rule did not change");
    let bed = TestBed::start();
    bed.origin
        .on("/a", with_rule("params=(\"u\")", "max-age=0"));
    bed.get("/a?u=1");
    bed.origin
        .on("/a", with_rule("params=(\"v\")", "max-age=600"));
    assert!(bed.get("/a?u=2").cache_status().contains("fwd-status=304"));
    assert!(!bed.get("/a?u=3").is_hit(), "the rule changed");
}

#[test]
fn a_response_with_a_rule_may_also_vary() {
    let bed = TestBed::start();
    let answer =
        |text: &'static str| ruled(text, "params=(\"u\")").header("vary", "accept-language");
    bed.origin.on_call("/a", move |request| {
        answer(if request.header("accept-language") == Some("de") {
            "de"
        } else {
            "en"
        })
    });
    let get = |target: &str, language: &str| bed.get_with(target, &[("accept-language", language)]);
    for (target, language) in [("/a?u=1", "de"), ("/a?u=2", "en")] {
        let answer = get(target, language);
        assert!(!answer.is_hit() && answer.text() == language, "{answer:?}");
    }
    for (target, language) in [("/a?u=3", "de"), ("/a?u=4", "en")] {
        let answer = get(target, language);
        assert!(answer.is_hit() && answer.text() == language, "{answer:?}");
    }
    assert!(!get("/a?u=1&x", "de").is_hit());
}

/// Method: the response of a request under the old rule is held back while a request for another URL joins it.
#[test]
fn a_follower_gets_a_shared_response_only_if_its_rule_covers_the_url() {
    for (rule, requests) in [
        ("params=(\"u\" \"w\")", 1),
        ("params=(\"w\")", 2),
        ("key-order=?0", 2),
    ] {
        let bed = TestBed::start();
        bed.origin.on("/a", ruled("zero", "params=(\"u\")"));
        bed.get("/a?x=0&u=1");
        let gate = Gate::new();
        bed.origin
            .on("/a", ruled("one", rule).wait_before_head(&gate));
        let addr = bed.addr();
        let first = thread::spawn(move || Client::connect(addr).get("/a?x=1&u=1", &[]));
        gate.wait_reached(1);
        let second = thread::spawn(move || Client::connect(addr).get("/a?x=1&u=2", &[]));
        bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 3.0);
        gate.open();
        for client in [first, second] {
            assert_eq!(client.join().expect("answered").text(), "one");
        }
        assert_eq!(bed.origin.requests_total() - 1, requests, "{rule}");
    }
}

/// Each row: a target, and true if its response was stored under the rule that a purge of `/a?x=1&u=9` covers.
#[test]
fn a_purge_of_a_url_covers_the_response_that_answers_it() {
    for soft in [false, true] {
        let bed = TestBed::with_config(with_token);
        bed.origin.on("/a", ruled("old", "params=(\"u\")"));
        bed.get("/a?x=1&u=1");
        bed.get("/a?x=2&u=1");
        bed.origin.on("/a", ruled("new", "params=(\"u\")"));
        purge(&bed, "/a?x=1&u=9", soft);
        if soft {
            assert_eq!(
                bed.get("/a?x=1&u=2").text(),
                "old",
                "served while it is validated"
            );
            bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 3.0);
        }
        assert_eq!(bed.get("/a?x=1&u=3").text(), "new", "soft: {soft}");
        assert_eq!(bed.get("/a?x=2&u=3").text(), "old", "soft: {soft}");
    }
}

/// RFC 9111 §4.4.
#[test]
fn an_unsafe_request_invalidates_the_response_under_the_rule() {
    let bed = TestBed::start();
    bed.origin.on("/a", ruled("old", "params=(\"u\")"));
    bed.get("/a?u=1");
    assert_eq!(
        bed.connect().request("POST", "/a?u=2", &[], b"").status,
        200
    );
    assert!(!bed.get("/a?u=3").is_hit());
}

/// Method: a purge arrives while the first response with a rule is fetched.
#[test]
fn a_purge_during_the_fetch_keeps_the_response_out_of_the_cache() {
    let bed = TestBed::with_config(with_token);
    let gate = Gate::new();
    bed.origin
        .on("/a", ruled("old", "params=(\"u\")").wait_before_head(&gate));
    let addr = bed.addr();
    let first = thread::spawn(move || Client::connect(addr).get("/a?u=1", &[]));
    gate.wait_reached(1);
    bed.origin.on("/a", ruled("new", "params=(\"u\")"));
    purge(&bed, "/a?u=1", false);
    gate.open();
    assert_eq!(first.join().expect("answered").text(), "old");
    assert_eq!(bed.get("/a?u=1").text(), "new");
    assert_eq!(bed.get("/a?u=2").text(), "new");
}

/// Method: the edge restarts. Memory has a rule then only if the warm start has loaded its marker from disk.
#[test]
fn rules_and_their_purges_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut origin = ScriptedOrigin::start();
    for path in ["/kept", "/purged", "/soft"] {
        let answer = Answer::pattern(20_000).header("cache-control", "max-age=600");
        origin.on(path, answer.header("no-vary-search", "params=(\"u\")"));
    }
    for round in 0..2 {
        let bed = TestBed::with_origin(origin, on_disk(folder.path()));
        if round == 0 {
            for path in ["/kept", "/purged", "/soft"] {
                bed.get(&format!("{path}?x&u=1"));
            }
            bed.wait_until("three objects and three markers are on disk", |status| {
                status["disk"]["devices"][0]["stored_objects"] == 6
            });
        } else {
            purge(&bed, "/purged?x&u=5", false);
            purge(&bed, "/soft?x&u=5", true);
            assert!(bed.get("/kept?x&u=2").is_hit());
        }
        origin = bed.stop();
    }
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    assert!(bed.get("/kept?u=3&x").is_hit());
    assert!(!bed.get("/purged?x&u=3").is_hit());
    // Served while it is validated if memory had the rule when the purge arrived, otherwise not used again.
    bed.get("/soft?x&u=3");
    bed.origin
        .wait_until("the softly purged response is validated", |origin| {
            origin.requests("/soft") == 2
        });
}

/// Memory that takes no marker stores the response under the target's own key.
#[test]
fn without_memory_for_the_rule_each_url_has_its_own_response() {
    let bed = TestBed::with_config(|config| {
        config.hot.policy = "threshold:400B".parse().expect("the policy is valid");
    });
    let names: Vec<String> = (0..40).map(|n| format!("\"parameter-{n}\"")).collect();
    let rule = format!("params=({})", names.join(" "));
    bed.origin.on("/a", ruled("one", &rule));
    assert!(!bed.get("/a?parameter-1").is_hit());
    assert!(!bed.get("/a?parameter-2").is_hit());
    assert!(bed.metric("edgeward_path_rules_total{result=\"refused\"}") >= 1.0);
}

#[test]
fn an_operator_can_let_the_cache_ignore_parameters() {
    let bed = TestBed::with_config(|config| {
        with_token(config);
        let names = "utm_*, gclid".parse().expect("the names are valid");
        config.caching.ignored_parameters = names;
    });
    bed.origin.on("/a", cached("one"));
    bed.get("/a?utm_source=x&b=1&gclid=2");
    assert_eq!(
        bed.origin.last("/a").expect("one request").target(),
        "/a?utm_source=x&b=1&gclid=2",
        "the origin gets the whole URL"
    );
    assert!(bed.get("/a?b=1").is_hit() && bed.get("/a?b=1&utm_medium=").is_hit());
    assert!(!bed.get("/a?b=2").is_hit());
    let hit = bed.get_with("/a?gclid=1&b=1", &[("range", "bytes=0-0")]);
    assert_eq!(
        hit.status, 206,
        "requests that the fast path does not serve"
    );
    purge(&bed, "/a?b=1&gclid=9", false);
    assert!(!bed.get("/a?b=1").is_hit());
    assert_eq!(
        bed.connect()
            .request("POST", "/a?b=1&gclid=3", &[], b"")
            .status,
        200
    );
    assert!(!bed.get("/a?b=1").is_hit());
}

/// A trace whose URLs have shuffled tracking parameters has the hit ratio of the trace with clean URLs, within 0.1
/// points, apart from the first request of each path.
///
/// Method: send one Zipf-like trace three times, each to an edge of its own: with clean URLs, with known tracking
/// parameters that the rule lists, and with unknown ones beside a rule that lists the significant parameters. Values,
/// unknown names and the order of all parameters are random. Four paths with 1,000 objects share a memory tier that
/// holds half of them.
#[test]
fn tracking_parameters_do_not_change_the_hit_ratio() {
    const REQUESTS: u64 = 8_000;
    const LISTED: &str = "key-order, params=(\"utm_source\" \"gclid\" \"fbclid\")";
    let random = |seed: &mut u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *seed >> 33
    };
    let below = |seed: &mut u64, end: usize| usize::try_from(random(seed)).expect("31 bits") % end;
    let hit_ratio = |rule: &str, tracking: &dyn Fn(&mut u64) -> Vec<String>| {
        let bed = TestBed::with_config(|config| {
            config.hot.capacity = ByteSize::mib(1);
            config.workers = std::num::NonZeroUsize::MIN;
        });
        let answer = ruled(vec![b'x'; 1500], rule);
        bed.origin.otherwise(move |_| answer.clone());
        let mut hits = 0;
        let mut client = bed.connect();
        let (mut seed, mut noise) = (1, 2);
        for _ in 0..REQUESTS {
            // The product of two uniform numbers prefers small ones.
            let object = random(&mut seed) % 1000 * (random(&mut seed) % 1000) / 1000;
            let (path, id) = (object % 4, object / 4);
            let mut parameters = vec![format!("id={id}"), format!("lang={}", id % 3)];
            let tracking = tracking(&mut noise);
            if !tracking.is_empty() {
                for name in tracking {
                    parameters.push(format!("{name}={}", random(&mut noise)));
                }
                for at in 1..parameters.len() {
                    parameters.swap(at, below(&mut noise, at + 1));
                }
            }
            let target = format!("/path{path}?{}", parameters.join("&"));
            let answer = client.get(&target, &[]);
            assert_eq!(answer.status, 200);
            hits += u64::from(answer.is_hit());
        }
        hits as f64 / REQUESTS as f64
    };
    let clean = hit_ratio(LISTED, &|_| Vec::new());
    assert!(
        (0.3..0.9).contains(&clean),
        "the cache is too large or too small: {clean}"
    );
    let known = hit_ratio(LISTED, &|_| {
        ["utm_source", "gclid", "fbclid"]
            .map(str::to_owned)
            .to_vec()
    });
    let unknown = hit_ratio("key-order, except=(\"id\" \"lang\")", &|noise| {
        (0..=below(noise, 4))
            .map(|_| format!("t{}", random(noise)))
            .collect()
    });
    for shuffled in [known, unknown] {
        assert!((clean - shuffled).abs() <= 0.001, "{clean} {shuffled}");
    }
    // Without the rule, hardly any URL is requested twice.
    let without_rule = hit_ratio("", &|_| vec!["gclid".to_owned()]);
    assert!(without_rule < 0.01, "{without_rule}");
}
