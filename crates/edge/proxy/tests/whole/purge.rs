//! Purges, tested with the responses that clients receive.

use std::path::Path;

use crate::one_site::set_site;
use crate::support::{Client, TestBed, config_for};
use edgeward_proxy::config::{DiskConfig, Token};
use edgeward_proxy::{Edge, EdgeConfig, Inheritance};
use edgeward_sites::{Settings, Stated};
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use edgeward_types::ByteSize;

const TOKEN: &str = "correct-horse-battery";

fn with_token(config: &mut EdgeConfig) {
    config.purge.token = Token::new(TOKEN).ok();
}

/// Returns a configuration with 64 MiB of disk in `folder`, and memory for few objects. Every miss is written to disk.
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

fn tagged(text: &'static str, tags: &str) -> Answer {
    Answer::ok(text)
        .header("cache-control", "max-age=600")
        .header("surrogate-key", tags)
}

/// Sends a request to the purge API and returns its status and its body.
fn api(bed: &TestBed, token: &str, body: &str) -> (u16, serde_json::Value) {
    let addr = bed
        .edge
        .admin_addr()
        .expect("the admin server is configured");
    let authorization = format!("Bearer {token}");
    let length = body.len().to_string();
    let fields = [
        ("authorization", authorization.as_str()),
        ("content-length", &length),
    ];
    let answer = Client::connect(addr).request("POST", "/purge", &fields, body.as_bytes());
    (
        answer.status,
        serde_json::from_slice(&answer.body).expect("JSON"),
    )
}

fn purge(bed: &TestBed, body: &str) {
    let (status, answer) = api(bed, TOKEN, body);
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn each_scope_purges_the_responses_that_it_covers_and_no_other() {
    let bed = TestBed::with_config(with_token);
    let table = [
        (r#"{"urls": ["http://test.example/one"]}"#, "/one", "/one?x"),
        (r#"{"tags": ["blue"]}"#, "/blue", "/red"),
        (r#"{"prefixes": ["test.example/a/"]}"#, "/a/b", "/ab"),
        (r#"{"prefixes": ["http://test.example/a/"]}"#, "/a/b", "/ab"),
        (
            r#"{"patterns": ["*.example/*.png"]}"#,
            "/x/y.png",
            "/x/y.jpg",
        ),
    ];
    bed.origin.on("/blue", tagged("one", "green blue"));
    bed.origin.on("/red", tagged("one", "red"));
    for path in ["/one", "/one?x", "/a/b", "/ab", "/x/y.png", "/x/y.jpg"] {
        bed.origin.on(path, tagged("one", "none"));
    }
    for (body, covered, other) in table {
        bed.get(covered);
        bed.get(other);
        assert!(bed.get(covered).is_hit() && bed.get(other).is_hit());
        purge(&bed, body);
        assert!(
            !bed.get(covered).is_hit(),
            "{body} does not purge {covered}"
        );
        assert!(
            bed.get(covered).is_hit(),
            "{body} purges the next response too"
        );
        assert!(bed.get(other).is_hit(), "{body} purges {other}");
    }
    purge(&bed, r#"{"hosts": ["other.example"]}"#);
    assert!(bed.get("/one").is_hit());
    purge(&bed, r#"{"hosts": ["Test.Example"]}"#);
    assert!(!bed.get("/one").is_hit());
    assert_eq!(bed.metric("edgeward_purges_total{scope=\"prefix\"}"), 2.0);
    assert_eq!(
        bed.metric("edgeward_purged_found_total{purge=\"hard\"}"),
        5.0
    );
}

#[test]
fn urls_and_prefixes_are_compared_as_keys_are() {
    let bed = TestBed::with_config(with_token);
    bed.origin.otherwise(|_| tagged("one", "none"));
    for body in [
        r#"{"urls": ["http://test.example/a\"b?q=\"<c>\""]}"#,
        r#"{"urls": ["http://test.example:80/a%22b?q=%22%3Cc%3E%22"]}"#,
        r#"{"prefixes": ["test.example/a\"b?q=\"<"]}"#,
    ] {
        let get = || bed.get("/a%22b?q=%22%3Cc%3E%22");
        get();
        assert!(get().is_hit());
        purge(&bed, body);
        assert!(!get().is_hit(), "{body}");
    }
}

#[test]
fn the_api_needs_the_token_and_a_valid_body() {
    let bed = TestBed::with_config(with_token);
    bed.origin.on("/a", tagged("one", "a"));
    bed.get("/a");
    let body = r#"{"tags": ["a"]}"#;
    assert_eq!(api(&bed, "correct-horse-batterz", body).0, 401);
    assert_eq!(api(&bed, TOKEN, r#"{"tags": "a"}"#).0, 400);
    assert_eq!(api(&bed, TOKEN, r#"{"urls": ["http://a b/"]}"#).0, 400);
    assert_eq!(api(&bed, TOKEN, r#"{"urls": ["http://a:b/"]}"#).0, 400);
    assert_eq!(
        api(&bed, TOKEN, &format!("{body}{}", " ".repeat(1 << 20))).0,
        413
    );
    assert!(bed.get("/a").is_hit());
    let closed = TestBed::start();
    assert_eq!(api(&closed, TOKEN, body).0, 401);
}

#[test]
fn a_list_with_an_invalid_url_purges_and_counts_nothing() {
    let bed = TestBed::with_config(with_token);
    bed.origin.on("/a", tagged("one", "a"));
    bed.get("/a");
    let body = r#"{"urls": ["http://test.example/a", "http://a:b/"]}"#;
    assert_eq!(api(&bed, TOKEN, body).0, 400);
    assert!(bed.get("/a").is_hit());
    assert_eq!(bed.metric("edgeward_purges_total{scope=\"url\"}"), 0.0);
}

#[test]
fn a_dry_run_counts_the_responses_and_purges_none() {
    let bed = TestBed::with_config(with_token);
    for path in ["/1", "/2", "/3"] {
        bed.origin.on(path, tagged("one", "a"));
        bed.get(path);
    }
    let count = |body: &str| api(&bed, TOKEN, body).1["memory_objects"].as_u64();
    assert_eq!(count(r#"{"tags": ["a"], "dry_run": true}"#), Some(3));
    assert_eq!(
        count(r#"{"urls": ["http://test.example/1"], "tags": ["b"], "dry_run": true}"#),
        Some(1)
    );
    assert!(bed.get("/1").is_hit());
    purge(&bed, r#"{"patterns": ["*/2"]}"#);
    assert_eq!(
        count(r#"{"tags": ["a"], "soft": true, "dry_run": true}"#),
        Some(2)
    );
}

/// Method: the edge restarts after each purge. Responses are served from disk, where their stamps are stored.
#[test]
fn a_purge_applies_on_disk_and_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut origin = ScriptedOrigin::start();
    for path in ["/url", "/tag", "/prefix", "/kept"] {
        origin.on(
            path,
            Answer::pattern(20_000)
                .header("cache-control", "max-age=600")
                .header("xkey", path),
        );
    }
    for round in 0..2 {
        let bed = TestBed::with_origin(origin, on_disk(folder.path()));
        let stored = if round == 0 { 4 } else { 3 };
        for path in ["/url", "/tag", "/prefix", "/kept"] {
            assert_eq!(
                bed.get(path).is_hit(),
                round == 1 && path == "/kept",
                "round {round} {path}"
            );
        }
        bed.wait_until("the objects are on disk", |status| {
            status["disk"]["devices"][0]["stored_objects"] == stored
        });
        assert!(bed.get("/tag").is_hit() && bed.get("/prefix").is_hit());
        let body = r#"{"urls": ["http://test.example/url"], "tags": ["/tag"], "prefixes": ["test.example/pre"]}"#;
        purge(&bed, body);
        origin = bed.stop();
    }
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    let counted = api(
        &bed,
        TOKEN,
        r#"{"prefixes": ["test.example/"], "dry_run": true}"#,
    )
    .1;
    assert_eq!(counted["disk_objects"], 1, "{counted}");
    for path in ["/url", "/tag", "/prefix"] {
        assert!(!bed.get(path).is_hit(), "{path} is served after a restart");
    }
    assert!(bed.get("/kept").is_hit());
}

/// Method: the second edge replaces the first one, as in an upgrade, and cannot open its store, because another file is
/// in its place for a moment. The third edge has the store again.
#[test]
fn a_purge_is_kept_if_an_upgraded_edge_cannot_open_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = ScriptedOrigin::start();
    let answer = || Answer::pattern(20_000).header("cache-control", "max-age=600");
    origin.on("/a", answer());
    origin.on("/b", answer());
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    bed.get("/a");
    bed.get("/b");
    bed.wait_until("the objects are on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == 2
    });
    let identity = bed.edge.upgrade_source().cache_identity();
    let origin = bed.stop();

    let mut config = config_for(origin.addr());
    on_disk(folder.path())(&mut config);
    let inheritance = Inheritance {
        predecessor: Some(identity),
        ..Inheritance::default()
    };
    let edge = Edge::start_with(config, inheritance).expect("the edge starts");
    let bed = TestBed { edge, origin };
    purge(&bed, r#"{"urls": ["http://test.example/a"]}"#);
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    let store = files
        .map(|file| file.expect("a file"))
        .max_by_key(|file| file.metadata().expect("a file").len());
    let store = store.expect("a store").path();
    let away = store.with_extension("away");
    std::fs::rename(&store, &away).expect("renamed");
    std::fs::write(&store, "this is no store").expect("written");
    let result = bed.edge.disk_take_over().run();
    assert!(bed.status()["disk"].is_null(), "{result:?}");
    purge(&bed, r#"{"urls": ["http://test.example/unknown"]}"#);
    let origin = bed.stop();
    std::fs::rename(&away, &store).expect("renamed");

    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    assert!(bed.get("/b").is_hit());
    assert!(!bed.get("/a").is_hit(), "a purged object is served");
}

/// Method: the log is deleted, so the purges since the response was stored are unknown.
#[test]
fn responses_on_disk_count_as_purged_if_the_log_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = ScriptedOrigin::start();
    origin.on(
        "/a",
        Answer::pattern(20_000).header("cache-control", "max-age=600"),
    );
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    bed.get("/a");
    bed.wait_until("the object is on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == 1
    });
    let origin = bed.stop();
    std::fs::remove_file(folder.path().join("purges.log")).expect("the log exists");
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    assert!(!bed.get("/a").is_hit());
}

/// Method: the origin holds the first response back until the purge is accepted.
#[test]
fn a_fetch_that_began_before_a_purge_answers_no_request_after_it() {
    let bed = TestBed::with_config(with_token);
    let gate = Gate::new();
    bed.origin
        .on("/a", tagged("old", "a").wait_before_head(&gate));
    let addr = bed.addr();
    let first = std::thread::spawn(move || Client::connect(addr).get("/a", &[]));
    gate.wait_reached(1);
    bed.origin.on("/a", tagged("new", "a"));
    purge(&bed, r#"{"tags": ["a"]}"#);
    let later: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(move || Client::connect(addr).get("/a", &[])))
        .collect();
    bed.wait_for_metric("edgeward_requests_total{outcome=\"uri-miss\"}", 5.0);
    gate.open();
    assert_eq!(first.join().expect("answered").text(), "old");
    for later in later {
        assert_eq!(later.join().expect("answered").text(), "new");
    }
    assert_eq!(bed.get("/a").text(), "new");
}

/// Method: the origin holds the revalidation back, so a client that waited for it would time out.
#[test]
fn no_client_waits_after_a_soft_purge() {
    let bed = TestBed::with_config(with_token);
    bed.origin
        .on("/a", tagged("old", "a").header("etag", "\"1\""));
    bed.get("/a");
    let gate = Gate::new();
    bed.origin
        .on("/a", tagged("new", "a").wait_before_head(&gate));
    purge(&bed, r#"{"tags": ["a"], "soft": true}"#);
    for _ in 0..10 {
        let answer = bed.get("/a");
        assert!(answer.is_hit() && answer.text() == "old", "{answer:?}");
    }
    gate.wait_reached(1);
    assert_eq!(bed.origin.requests("/a"), 2, "one revalidation, shared");
    gate.open();
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 2.0);
    let answer = bed.get("/a");
    assert!(answer.is_hit() && answer.text() == "new", "{answer:?}");
    assert_eq!(
        bed.metric("edgeward_purged_found_total{purge=\"soft\"}"),
        10.0
    );
}

#[test]
fn the_methods_need_an_allowed_address_and_purge_like_the_api() {
    let bed = TestBed::with_config(|config| {
        config.purge.allow = "127.0.0.0/8".parse().expect("a network");
    });
    for path in ["/a", "/b", "/c.png"] {
        bed.origin
            .on(path, tagged("one", "t").header("etag", "\"1\""));
    }
    let send = |method: &str, path: &str, fields: &[(&str, &str)]| {
        bed.connect().request(method, path, fields, b"").status
    };
    bed.get("/a");
    assert_eq!(send("PURGE", "/a", &[]), 200);
    assert!(!bed.get("/a").is_hit());
    bed.get("/b");
    assert_eq!(send("PURGE", "/", &[("surrogate-key", "t u")]), 200);
    assert!(!bed.get("/a").is_hit() && !bed.get("/b").is_hit());
    assert_eq!(send("PURGE", "/a", &[("soft-purge", "1")]), 200);
    assert!(bed.get("/a").is_hit());
    bed.get("/c.png");
    assert_eq!(send("BAN", "/*.png", &[]), 200);
    assert!(!bed.get("/c.png").is_hit() && bed.get("/b").is_hit());
    let strict = TestBed::with_config(|config| {
        config.purge.allow = "10.0.0.0/8".parse().expect("a network");
    });
    strict.origin.on("/a", tagged("one", "t"));
    strict.get("/a");
    assert_eq!(
        strict.connect().request("PURGE", "/a", &[], b"").status,
        403
    );
    assert!(strict.get("/a").is_hit());
    // Another method than those of the configuration.
    let by_url = TestBed::with_config(|config| {
        config.purge.allow = "127.0.0.0/8".parse().expect("a network");
        config.purge.methods = "PURGE".parse().expect("a method");
    });
    by_url.origin.on("/a", tagged("one", "t"));
    by_url.get("/a");
    let send = |method: &str| by_url.connect().request(method, "/a", &[], b"").status;
    let refused = || by_url.metric("edgeward_requests_refused_total{status=\"403\"}");
    let before = refused();
    assert_eq!((send("BAN"), send("PURGEKEYS")), (403, 403));
    assert_eq!(refused() - before, 2.0);
    assert!(by_url.get("/a").is_hit());
    assert_eq!(send("PURGE"), 200);
    assert!(!by_url.get("/a").is_hit());
    // Without the setting, the origin gets the request.
    let open = TestBed::start();
    assert_eq!(open.connect().request("PURGE", "/a", &[], b"").status, 404);
    assert_eq!(open.origin.requests("/a"), 1);
}

/// Returns a test bed in which clients of these networks may purge, and whose proxies at 127.0.0.1 are trusted.
fn behind_a_proxy(allow: &'static str, trusted: bool) -> TestBed {
    TestBed::with_config(move |config| {
        config.purge.allow = allow.parse().expect("networks");
        if trusted {
            config.forwarding.trusted_proxies = "127.0.0.1".parse().expect("a network");
        }
    })
}

/// Method: the proxy is the peer 127.0.0.1, which may purge. Its client may or may not.
#[test]
fn a_purge_needs_an_allowed_peer_and_allowed_clients_behind_it() {
    for trusted in [true, false] {
        let bed = behind_a_proxy("127.0.0.1, 10.0.0.5", trusted);
        bed.origin.on("/a", tagged("one", "t"));
        for (field, value, status) in [
            ("x-forwarded-for", "203.0.113.9", 403),
            ("x-forwarded-for", "10.0.0.5, 203.0.113.9", 403),
            ("x-forwarded-for", "unknown", 403),
            ("forwarded", "for=203.0.113.9", 403),
            ("forwarded", "proto=https", 403),
            ("x-real-ip", "203.0.113.9", 403),
            ("cf-connecting-ip", "2001:db8::1", 403),
            ("x-forwarded-for", "10.0.0.5", 200),
            ("x-forwarded-for", "203.0.113.9, 10.0.0.5", 200),
            ("forwarded", "for=10.0.0.5", 200),
            ("accept", "*/*", 200),
        ] {
            for (method, target) in [("PURGE", "/a"), ("BAN", "/*"), ("PURGEKEYS", "/")] {
                bed.get("/a");
                let fields = [(field, value), ("host", "test.example"), ("xkey", "t")];
                let fields = match method {
                    "PURGEKEYS" => &fields[..],
                    _ => &fields[..1],
                };
                let answer = bed.connect().request(method, target, fields, b"");
                assert_eq!(answer.status, status, "{trusted} {method} {field}: {value}");
                assert_eq!(bed.get("/a").is_hit(), status == 403);
            }
        }
    }
    // The client is allowed, and the proxy is not.
    let bed = behind_a_proxy("10.0.0.5", true);
    let fields = [("x-forwarded-for", "10.0.0.5")];
    let answer = bed.connect().request("PURGE", "/a", &fields, b"");
    assert_eq!(answer.status, 403);
}

#[test]
fn the_selectors_of_plugins_purge_and_the_answer_counts_the_objects() {
    let bed = behind_a_proxy("127.0.0.1", false);
    let tags = [
        ("/magento", "x-magento-tags", "cat_p_1,store"),
        ("/drupal", "x-drupal-cache-tags", "node:5 config:x"),
        ("/fos", "x-cache-tags", "fos1,fos2"),
        ("/blog/a", "cache-tags", "node:5"),
        ("/blog/b?x=1", "x-tag", "fos1,other"),
    ];
    for (path, name, value) in tags {
        let answer = Answer::ok("one").header("cache-control", "max-age=600");
        bed.origin.on(path, answer.header(name, value));
    }
    let regex = [("x-purge-method", "regex")];
    type Fields<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, &str, Fields<'_>, &str, &[&str]); 10] = [
        (
            "PURGE",
            "/",
            &[("x-magento-tags-pattern", "((^|,)cat_p_1(,|$))")],
            "1",
            &["/magento"],
        ),
        (
            "PURGE",
            "/",
            &[("x-magento-tags-pattern", ".*")],
            "5",
            &["/magento", "/drupal", "/fos", "/blog/a", "/blog/b?x=1"],
        ),
        (
            "BAN",
            "/",
            &[("cache-tags", "node:5")],
            "2",
            &["/drupal", "/blog/a"],
        ),
        (
            "BAN",
            "/",
            &[("x-cache-tags", "fos1")],
            "2",
            &["/fos", "/blog/b?x=1"],
        ),
        (
            "PURGE",
            "/blog/.*",
            &regex,
            "2",
            &["/blog/a", "/blog/b?x=1"],
        ),
        ("PURGE", "/blog/*", &[], "2", &["/blog/a", "/blog/b?x=1"]),
        ("PURGE", "/blog/b?x=1", &[], "1", &["/blog/b?x=1"]),
        ("PURGE", "/fos", &[("soft-purge", "0")], "1", &["/fos"]),
        ("PURGE", "/none", &[], "0", &[]),
        ("PURGE", "/", &[("xkey", "none")], "0", &[]),
    ];
    for (method, target, fields, count, purged) in cases {
        for (path, _, _) in tags {
            bed.get(path);
        }
        let answer = bed.connect().request(method, target, fields, b"");
        let expected = format!("purged: {count}\n");
        assert_eq!(
            (answer.status, answer.text()),
            (200, &*expected),
            "{method} {target} {fields:?}"
        );
        for (path, _, _) in tags {
            assert_eq!(
                bed.get(path).is_hit(),
                !purged.contains(&path),
                "{method} {target} {fields:?} {path}"
            );
        }
        // The same purge again finds the objects that were stored since.
        let again = bed.connect().request(method, target, fields, b"");
        assert_eq!(again.text(), expected);
    }
    bed.get("/fos");
    for (method, fields) in [
        ("PURGEALL", &[][..]),
        ("FULLBAN", &[]),
        ("PURGE", &[("x-purge-method", "wildcard")]),
        ("PURGE", &[("x-ban-regex", ".*")]),
    ] {
        let answer = bed.connect().request(method, "/fos", fields, b"");
        assert_eq!(answer.status, 400, "{method} {fields:?}");
    }
    assert!(bed.get("/fos").is_hit());
}

/// Method: a rule of the site keeps only some fields of requests, which are no selectors.
#[test]
fn a_rule_that_removes_fields_removes_no_selector() {
    let settings = Settings {
        request_only: Stated::On([].into()),
        ..Settings::default()
    };
    let bed = TestBed::with_config(move |config| {
        config.purge.allow = "127.0.0.1".parse().expect("a network");
        set_site(config, settings, Vec::new());
    });
    bed.origin.on("/a", tagged("one", "t"));
    bed.get("/a");
    let fields = [("surrogate-key", "t")];
    let answer = bed.connect().request("PURGE", "/", &fields, b"");
    assert_eq!((answer.status, answer.text()), (200, "purged: 1\n"));
    assert!(!bed.get("/a").is_hit());
}

/// Method: a cache with three objects counts among two at most.
#[test]
fn objects_are_counted_up_to_a_limit() {
    let bed = TestBed::with_config(|config| {
        config.purge.allow = "127.0.0.1".parse().expect("a network");
        config.purge.count_objects_max = 2;
    });
    let ban = || {
        let answer = bed.connect().request("BAN", "/*", &[], b"");
        (answer.status, answer.text().to_owned())
    };
    for path in ["/1", "/2"] {
        bed.origin.on(path, tagged("one", "a"));
    }
    bed.get("/1");
    assert_eq!(ban(), (200, "purged: 1\n".to_owned()));
    bed.get("/1");
    bed.get("/2");
    assert_eq!(ban(), (200, "purged: 2\n".to_owned()));
    bed.get("/1");
    bed.get("/2");
    assert_eq!(bed.metric("edgeward_purges_uncounted_total"), 0.0);
    bed.origin.on("/3", tagged("one", "a"));
    bed.get("/3");
    let (status, text) = ban();
    assert!(status == 200 && text.contains("not counted"), "{text}");
    assert_eq!(bed.metric("edgeward_purges_uncounted_total"), 1.0);
    assert!(!bed.get("/1").is_hit() && !bed.get("/3").is_hit());
}

fn grouped(groups: &str) -> Answer {
    Answer::ok("one")
        .header("cache-control", "max-age=600")
        .header("cache-groups", groups)
}

/// RFC 9875 §3. Method: two members of a group, a member of another group, and a response with a tag of this name.
#[test]
fn a_response_to_an_unsafe_method_invalidates_cache_groups() {
    let bed = TestBed::with_config(with_token);
    bed.origin.on("/a", grouped("\"news\", \"home\""));
    bed.origin.on("/b", grouped("\"news\""));
    bed.origin.on("/c", grouped("\"home\""));
    bed.origin.on("/d", tagged("one", "news"));
    let paths = ["/a", "/b", "/c", "/d"];
    let hits = || paths.map(|path| bed.get(path).is_hit());
    hits();
    assert_eq!(hits(), [true; 4]);
    let field = "cache-group-invalidation";
    for (method, path, status, value) in [
        ("GET", "/get", 200, "\"news\""),
        ("POST", "/error", 500, "\"news\""),
        ("POST", "/not-found", 404, "\"news\""),
        ("POST", "/malformed", 200, "news"),
        ("POST", "/other", 200, "\"News\", \"new\""),
    ] {
        bed.origin
            .on(path, Answer::status(status).header(field, value));
        let answer = bed
            .connect()
            .request(method, path, &[("content-length", "0")], b"");
        assert_eq!((answer.status, answer.header(field)), (status, Some(value)));
        assert_eq!(hits(), [true; 4], "{method} {path}");
    }
    let before = bed.metric("edgeward_purges_total{scope=\"group\"}");
    bed.origin
        .on("/news", Answer::status(201).header(field, "\"news\";p=1"));
    let answer = bed
        .connect()
        .request("POST", "/news", &[("content-length", "0")], b"");
    assert_eq!(answer.status, 201);
    assert_eq!(hits(), [false, false, true, true]);
    assert_eq!(hits(), [true; 4]);
    assert_eq!(
        bed.metric("edgeward_purges_total{scope=\"group\"}"),
        before + 1.0
    );
}

/// Method: the group is invalidated while a disk has its member. The edge starts again.
#[test]
fn an_invalidated_group_stays_invalid_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let bed = TestBed::with_config(on_disk(folder.path()));
    bed.origin.on("/a", grouped("\"news\""));
    bed.origin.on("/c", grouped("\"home\""));
    bed.get("/a");
    bed.get("/c");
    bed.wait_until("both are on disk", |status| {
        status["disk"]["devices"][0]["objects"] == 2
    });
    bed.origin.on(
        "/news",
        Answer::status(204).header("cache-group-invalidation", "\"news\""),
    );
    bed.connect()
        .request("POST", "/news", &[("content-length", "0")], b"");
    let bed = TestBed::with_origin(bed.stop(), on_disk(folder.path()));
    assert!(bed.get("/c").is_hit());
    assert!(!bed.get("/a").is_hit());
    assert_eq!(bed.metric("edgeward_invalidations_not_durable_total"), 0.0);
}
