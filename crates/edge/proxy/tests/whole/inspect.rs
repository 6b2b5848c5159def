//! The pages `/cache` and `/explain` of the admin server, compared with the answers that clients get.

use std::num::NonZeroU32;
use std::path::Path;

use crate::support::{Client, TestBed};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, Token};
use edgeward_semantics::ClientDirectives;
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::Answer;
use edgeward_types::{ByteSize, SplitMix64};
use serde_json::{Value, json};

const TOKEN: &str = "correct-horse-battery";

fn in_memory(config: &mut EdgeConfig) {
    config.purge.token = Token::new(TOKEN).ok();
    config.caching.rules.client_directives = ClientDirectives::Honour;
}

/// Returns a configuration with a disk in `folder`, and memory for few objects. Every miss is written to disk.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        in_memory(config);
        config.hot.capacity = ByteSize::kib(8);
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

/// Sends a request to a page of the admin server. Returns its status and its body.
fn api(bed: &TestBed, token: &str, page: &str, body: &str) -> (u16, Value) {
    let addr = bed.edge.admin_addr().expect("configured");
    let authorization = format!("Bearer {token}");
    let length = body.len().to_string();
    let fields = [
        ("authorization", authorization.as_str()),
        ("content-length", &length),
    ];
    let answer = Client::connect(addr).request("POST", page, &fields, body.as_bytes());
    let body = serde_json::from_slice(&answer.body).expect("JSON");
    (answer.status, body)
}

fn ask(bed: &TestBed, page: &str, method: &str, path: &str, fields: &[(&str, &str)]) -> Value {
    let url = format!("http://test.example{path}");
    let body = match page {
        "/cache" => json!({ "url": url, "headers": fields }),
        _ => json!({ "url": url, "method": method, "headers": fields }),
    };
    let (status, answer) = api(bed, TOKEN, page, &body.to_string());
    assert_eq!(status, 200, "{answer}");
    answer
}

/// A site's times of stale use apply to a response with a lifetime of the origin. Method: the page `/cache`, because
/// the test has no clock that makes a response stale.
#[test]
fn the_times_of_stale_use_of_a_site_apply_to_lifetimes_of_the_origin() {
    let bed = TestBed::with_config(|config| {
        in_memory(config);
        let settings = edgeward_sites::Settings {
            stale_while_revalidate: Some(std::time::Duration::from_secs(60)),
            stale_if_error: Some(std::time::Duration::from_secs(120)),
            ..edgeward_sites::Settings::default()
        };
        let mut sites = edgeward_sites::Sites::default();
        let site = edgeward_sites::Site::new("*", settings);
        sites.add(site, &[], true).expect("the only site");
        config.sites = std::sync::Arc::new(sites);
    });
    for (path, directives, applies) in [
        ("/a", "max-age=60", true),
        ("/b", "max-age=60, must-revalidate", false),
    ] {
        let answer = Answer::ok("a").header("cache-control", directives);
        bed.origin.on(path, answer);
        assert_eq!(bed.get(path).status, 200);
        let stored = ask(&bed, "/cache", "GET", path, &[]);
        let freshness = &stored["stored"]["freshness"];
        for name in ["stale_while_revalidate_until", "stale_if_error_until"] {
            assert_eq!(freshness[name].is_string(), applies, "{path}: {stored}");
        }
    }
}

/// Returns the outcome (`hit` or `fwd=…`) and the detail of a value of `Cache-Status`. The details of an answer that
/// the origin gave are not predicted.
fn outcome(cache_status: &str) -> (String, Option<String>) {
    let mut parts = cache_status.split("; ").skip(1);
    let outcome = parts.next().unwrap_or_default().to_owned();
    let detail = parts.find_map(|part| part.strip_prefix("detail="));
    let detail = detail.filter(|detail| matches!(*detail, "disk" | "only-if-cached" | "backoff"));
    (outcome, detail.map(str::to_owned))
}

fn pick<'a, T>(random: &mut SplitMix64, from: &'a [T]) -> &'a T {
    &from[random.below(from.len() as u64) as usize]
}

/// Method: random responses with random requests, one after the other, in memory and on disk. Before each request, the
/// edge explains it. The explanation must predict hit or reason of forwarding, the tier, and the status of a hit. Now
/// and then a purge covers the response, or another response evicts it from memory. The test prints the failing case.
#[test]
fn an_explanation_predicts_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = TestBed::with_config(on_disk(folder.path()));
    let memory = TestBed::with_config(in_memory);
    let mut counts = std::collections::BTreeMap::new();
    for (bed, seed) in [(&memory, 1), (&disk, 2)] {
        let mut random = SplitMix64(seed);
        for case in 0..150 {
            let path = format!("/{case}");
            let mut answer =
                Answer::ok("0123456789").header("surrogate-key", &format!("tag-{case}"));
            let cache_control = *pick(&mut random, &RESPONSES);
            answer = answer.header("cache-control", cache_control);
            for field in [
                ("etag", "\"a\""),
                ("vary", "accept-language"),
                ("age", "61"),
                ("no-vary-search", "params=(\"utm\")"),
            ] {
                if random.below(3) == 0 {
                    answer = answer.header(field.0, field.1);
                }
            }
            bed.origin.on(&path, answer);
            for _ in 0..5 {
                if random.below(8) == 0 {
                    let soft = random.below(2) == 0;
                    let body = json!({ "tags": [format!("tag-{case}")], "soft": soft });
                    assert_eq!(api(bed, TOKEN, "/purge", &body.to_string()).0, 200);
                }
                if random.below(4) == 0 {
                    // A response of most of the small memory evicts the others.
                    let filler = format!("/filler/{}", random.below(1 << 32));
                    let body = Answer::ok(vec![b'x'; 6000]).header("cache-control", "max-age=60");
                    bed.origin.on(&filler, body);
                    bed.get(&filler);
                }
                let target = format!("{path}?utm={}", random.below(2));
                let method = *pick(&mut random, &["GET", "GET", "GET", "GET", "HEAD", "POST"]);
                let mut fields = vec![("accept-language", *pick(&mut random, &["de", "fr"]))];
                if random.below(2) == 0 {
                    fields.push(*pick(&mut random, &REQUEST_FIELDS));
                }
                let predicted = ask(bed, "/explain", method, &target, &fields);
                let mut all = fields.clone();
                if method == "POST" {
                    all.push(("content-length", "0"));
                }
                let answer = bed.connect().request(method, &target, &all, b"");
                let shown = format!(
                    "{cache_control}: {method} {target} {fields:?}: {}\n{predicted:#}",
                    answer.cache_status()
                );
                let cache_status = predicted["cache_status"].as_str().unwrap_or_default();
                let (mut expected, mut actual) =
                    (outcome(cache_status), outcome(answer.cache_status()));
                let steps = predicted["steps"].as_array().expect("a list");
                if steps
                    .iter()
                    .any(|step| matches!(step["step"].as_str(), Some("variant" | "path rule")))
                {
                    // The lookup copies the marker to memory, which may evict the response from this small memory.
                    let is_tier = |detail: &mut String| detail == "disk";
                    expected.1.take_if(is_tier);
                    actual.1.take_if(is_tier);
                }
                assert_eq!(expected, actual, "{shown}");
                if let Some(status) = predicted["status"].as_u64() {
                    assert_eq!(status, u64::from(answer.status), "{shown}");
                }
                for step in steps {
                    let section = step["section"].as_str().expect("text");
                    assert!(
                        ["RFC ", "draft-", "docs/"]
                            .iter()
                            .any(|start| section.starts_with(start)),
                        "{step}"
                    );
                }
                *counts.entry(outcome(cache_status)).or_insert(0) += 1;
                // A revalidation in the background, or a write to disk, would change the tier meanwhile.
                bed.wait_until("no fetch and no write is under way", |status| {
                    let device = &status["disk"]["devices"][0];
                    status["fills"]["under_way"] == 0
                        && (device.is_null() || device["queue_messages"] == 0)
                });
            }
        }
    }
    eprintln!("{counts:?}");
    for expected in [
        "hit",
        "fwd=uri-miss",
        "fwd=vary-miss",
        "fwd=stale",
        "fwd=request",
        "fwd=method",
        "fwd=bypass",
    ] {
        assert!(
            counts.keys().any(|(outcome, _)| outcome == expected),
            "{expected} did not occur"
        );
    }
    assert!(
        counts
            .keys()
            .any(|(_, detail)| detail.as_deref() == Some("disk"))
    );
}

const RESPONSES: [&str; 9] = [
    "max-age=60",
    "max-age=600",
    "s-maxage=600",
    "max-age=60, stale-while-revalidate=600",
    "max-age=600, must-revalidate",
    "no-cache",
    "no-store",
    "private",
    "public",
];

const REQUEST_FIELDS: [(&str, &str); 9] = [
    ("cache-control", "no-cache"),
    ("cache-control", "max-age=30"),
    ("cache-control", "min-fresh=1000"),
    ("cache-control", "max-stale"),
    ("cache-control", "only-if-cached"),
    ("if-none-match", "\"a\""),
    ("if-match", "\"a\""),
    ("range", "bytes=2-3"),
    ("range", "bytes=20-"),
];

/// Method: compare the metrics of the cache before and after questions about objects in both tiers.
#[test]
fn a_question_counts_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let bed = TestBed::with_config(on_disk(folder.path()));
    for n in 0..20 {
        let path = format!("/{n}");
        let answer = Answer::ok(vec![b'x'; 1000]).header("cache-control", "max-age=600");
        bed.origin.on(&path, answer);
        bed.get(&path);
    }
    let counted = || {
        let metrics = bed.metrics();
        let lines = metrics.lines().filter(|line| {
            line.starts_with("edgeward_") && !line.starts_with("edgeward_memory_bytes")
        });
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    bed.wait_until("the objects are on disk", |status| {
        status["disk"]["devices"][0]["objects"] == 20
    });
    let before = counted();
    let mut tiers = Vec::new();
    for n in 0..20 {
        let path = format!("/{n}");
        let shown = ask(&bed, "/cache", "GET", &path, &[]);
        tiers.push(shown["stored"]["where"].to_string());
        ask(&bed, "/explain", "GET", &path, &[]);
        ask(&bed, "/explain", "GET", "/absent", &[]);
    }
    assert!(tiers.contains(&"[\"disk\"]".to_owned()), "{tiers:?}");
    assert!(
        tiers.contains(&"[\"memory\",\"disk\"]".to_owned()),
        "{tiers:?}"
    );
    assert_eq!(bed.origin.requests("/absent"), 0);
    let relevant = |lines: Vec<String>| {
        let changes_alone = |line: &&String| {
            !line.contains("_syncs_total")
                && !line.contains("_write")
                && !line.contains("queue")
                && !line.contains("_read_bytes")
                && !line.contains("_read_ops")
                && !line.contains("checkpoints")
                && !line.contains("lag")
                && !line.contains("overload_used")
        };
        lines
            .iter()
            .filter(changes_alone)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(relevant(counted()), relevant(before));
}

/// Method: one response per source of a lifetime, and a purge.
#[test]
fn a_stored_response_is_shown_with_the_reason_for_its_lifetime() {
    let bed = TestBed::with_config(in_memory);
    let table = [
        (
            "cache-control",
            "max-age=60",
            json!("max-age"),
            json!("cache-control"),
            60.0,
        ),
        (
            "cache-control",
            "s-maxage=30, max-age=60",
            json!("s-maxage"),
            json!("cache-control"),
            30.0,
        ),
        (
            "cdn-cache-control",
            "max-age=90",
            json!("max-age"),
            json!("cdn-cache-control"),
            90.0,
        ),
        (
            "expires",
            "Thu, 01 Jan 2099 00:00:00 GMT",
            json!("expires"),
            json!("expires"),
            0.0,
        ),
    ];
    for (n, (name, value, source, field, lifetime)) in table.iter().enumerate() {
        let path = format!("/{n}");
        let answer = Answer::ok("hello")
            .header(name, value)
            .header("surrogate-key", "a b");
        bed.origin.on(&path, answer.header("etag", "\"v\""));
        bed.get(&path);
        let shown = ask(&bed, "/cache", "GET", &path, &[]);
        let stored = &shown["stored"];
        let freshness = &stored["freshness"];
        assert_eq!(
            (&freshness["source"], &freshness["field"]),
            (source, field),
            "{shown}"
        );
        assert_eq!(freshness["section"], "RFC 9111 §4.2.1");
        assert_eq!(freshness["is_fresh"], true);
        if *lifetime > 0.0 {
            assert_eq!(freshness["lifetime_seconds"], *lifetime);
        }
        assert_eq!(
            (&stored["where"], &stored["body_bytes"]),
            (&json!(["memory"]), &json!(5))
        );
        assert_eq!(
            (&stored["tags"], &stored["purged"]),
            (&json!(["a", "b"]), &json!("no"))
        );
        assert_eq!(stored["validators"]["etag"], "\"v\"");
    }
    assert_eq!(
        api(&bed, TOKEN, "/purge", r#"{"tags": ["a"], "soft": true}"#).0,
        200
    );
    assert_eq!(
        ask(&bed, "/cache", "GET", "/0", &[])["stored"]["purged"],
        "soft"
    );
    assert_eq!(api(&bed, TOKEN, "/purge", r#"{"tags": ["a"]}"#).0, 200);
    assert_eq!(
        ask(&bed, "/cache", "GET", "/0", &[])["stored"]["purged"],
        "hard"
    );
    assert_eq!(
        ask(&bed, "/cache", "GET", "/absent", &[])["stored"],
        Value::Null
    );
}

/// Method: three variants in memory and on disk. The fields select one; the others are listed.
#[test]
fn the_selected_variant_is_shown_and_the_others_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let bed = TestBed::with_config(on_disk(folder.path()));
    let answer = Answer::ok("hello").header("cache-control", "max-age=60");
    bed.origin
        .on("/v", answer.header("vary", "Accept-Language"));
    for language in ["de", "fr", "it"] {
        bed.get_with("/v", &[("accept-language", language)]);
    }
    bed.wait_until("the variants and the marker are on disk", |status| {
        status["disk"]["devices"][0]["objects"] == 4
    });
    let body = |all: bool| json!({ "url": "http://test.example/v", "headers": [["Accept-Language", "fr"]], "all": all });
    let (_, shown) = api(&bed, TOKEN, "/cache", &body(true).to_string());
    assert_eq!(
        (&shown["vary"], &shown["variant"]),
        (&json!(["accept-language"]), &json!("accept-language:fr"))
    );
    assert_eq!(shown["stored"]["status"], 200);
    let others = shown["other_variants"].as_array().expect("a list");
    let names: Vec<_> = others.iter().map(|other| &other["variant"]).collect();
    assert_eq!(
        names,
        [&json!("accept-language:de"), &json!("accept-language:it")]
    );
    assert!(
        others
            .iter()
            .all(|other| other["where"].to_string().contains("disk")),
        "{shown}"
    );
    let absent = ask(&bed, "/cache", "GET", "/v", &[("accept-language", "es")]);
    assert_eq!(
        (&absent["stored"], &absent["variant"]),
        (&Value::Null, &json!("accept-language:es"))
    );
}

/// Method: two URLs share a response by its `No-Vary-Search`. Both are shown with the rule and the URL under it.
#[test]
fn a_response_that_several_urls_share_is_shown_with_its_rule() {
    let bed = TestBed::with_config(in_memory);
    let answer = Answer::ok("hello").header("cache-control", "max-age=60");
    let answer = answer.header("no-vary-search", "params=(\"utm\"), key-order");
    bed.origin.on("/a", answer);
    bed.get("/a?y=2&x=1&utm=3");
    let shown = ask(&bed, "/cache", "GET", "/a?utm=4&x=1&y=2", &[]);
    assert_eq!(shown["url"], "http://test.example/a?utm=4&x=1&y=2");
    assert_eq!(shown["no_vary_search"], "key-order, params=(\"utm\")");
    assert_eq!(shown["url_under_rule"], "http://test.example/a?x=1&y=2");
    assert_eq!(shown["stored"]["status"], 200);
    let other = ask(&bed, "/cache", "GET", "/b", &[]);
    assert_eq!(
        (&other["no_vary_search"], &other["stored"]),
        (&Value::Null, &Value::Null)
    );
}

/// Method: two variants more than are listed, one of which is the selected one.
#[test]
fn the_list_of_other_variants_has_a_limit() {
    let bed = TestBed::with_config(|config| {
        in_memory(config);
        config.caching.variants_max = NonZeroU32::new(2000).expect("2000 is not zero");
    });
    let answer = Answer::ok("x").header("cache-control", "max-age=60");
    bed.origin.on("/v", answer.header("vary", "x-number"));
    for number in 0..1002 {
        bed.get_with("/v", &[("x-number", &number.to_string())]);
    }
    let shown = ask(&bed, "/cache", "GET", "/v", &[("x-number", "7")]);
    let others = shown["other_variants"].as_array().expect("a list");
    assert_eq!(
        (others.len(), &shown["variant"]),
        (1000, &json!("x-number:7"))
    );
}

#[test]
fn the_pages_need_the_token_and_a_valid_question() {
    let bed = TestBed::with_config(in_memory);
    for page in ["/cache", "/explain"] {
        let body = r#"{"url": "http://test.example/"}"#;
        assert_eq!(
            api(&bed, "another-token-of-32-characters", page, body).0,
            401
        );
        assert_eq!(api(&bed, TOKEN, page, body).0, 200);
        for (body, message) in [
            ("{}", "missing field `url`"),
            (r#"{"url": "test.example/"}"#, "is not a URL"),
            (r#"{"url": "ftp://test.example/"}"#, "is not a URL"),
            (r#"{"url": "http://a/ b"}"#, "is not a URL"),
            (
                r#"{"url": "http://a/", "method": "A B"}"#,
                "is not a method",
            ),
            (
                r#"{"url": "http://a/", "headers": [["a b", "c"]]}"#,
                "is not a header field",
            ),
            (r#"{"url": "http://a/", "Headers": []}"#, "unknown field"),
        ] {
            let (status, answer) = api(&bed, TOKEN, page, body);
            let error = answer["error"].as_str().expect("an error");
            assert!(status == 400 && error.contains(message), "{body}: {answer}");
        }
    }
    let refused = api(&bed, TOKEN, "/cache", r#"{"url": "http://a b/"}"#);
    assert_eq!(refused.0, 400, "{}", refused.1);
    let explained = ask(&bed, "/explain", "CONNECT", "/", &[]);
    assert_eq!(explained["status"], 501, "{explained}");
}
