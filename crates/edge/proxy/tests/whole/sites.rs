//! Sites and their rules, tested with the requests that the origin gets and the responses that clients get.

use std::sync::Arc;
use std::time::Duration;

use crate::codecs::{H2Request, for_hyper, send_h1, send_h2};
use crate::one_site::set_site;
use crate::support::{Client, TestBed};
use bytes::Bytes;
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{OriginConfig, Token};
use edgeward_sites::{
    Class, Condition, FieldChange, FieldCondition, FixedAnswer, HostPattern, Page, PathPattern,
    RateKey, RateLimit, Redirect, Rule, Settings, Site, Sites, Stated, StatusSet, Template,
};
use edgeward_testkit::{Answer, ScriptedOrigin};
use edgeward_types::Pattern;
use http::{HeaderName, Method, StatusCode};

fn template(text: &str) -> Template {
    Template::new(text, None).expect("a template")
}

fn set(name: &'static str, text: &str) -> (HeaderName, FieldChange) {
    let name = HeaderName::from_static(name);
    (name, FieldChange::Set(Arc::new(template(text))))
}

/// Returns a rule for paths that a glob matches.
fn rule(glob: &str, settings: Settings) -> Rule {
    Rule {
        condition: Condition {
            paths: vec![PathPattern::glob(glob).expect("a glob")],
            ..Condition::default()
        },
        settings,
        line: 7,
    }
}

/// Configures one site for all hosts with these rules.
fn with_rules(rules: Vec<Rule>) -> impl FnOnce(&mut EdgeConfig) {
    move |config| set_site(config, Settings::default(), rules)
}

fn cached(text: &'static str) -> Answer {
    Answer::ok(text).header("cache-control", "max-age=600")
}

#[test]
fn each_site_and_rule_has_its_origin() {
    let other = ScriptedOrigin::start();
    other.otherwise(|_| cached("other"));
    let url = format!("http://{}", other.addr()).parse().expect("a URL");
    let on_other = || Settings {
        origin: Some(1),
        ..Settings::default()
    };
    let bed = TestBed::with_config(|config| {
        config.origins.push(OriginConfig::new(url));
        let mut sites = Sites::default();
        let by_rule = Site::new("a.example", Settings::default());
        let by_rule = by_rule
            .with_rules(vec![rule("/api/*", on_other())])
            .expect("one rule");
        let by_site = Site::new("b.example", on_other());
        for (site, host) in [(by_rule, "a.example"), (by_site, "b.example")] {
            sites
                .add(site, &[host.parse().expect("a host")], false)
                .expect("distinct hosts");
        }
        config.sites = Arc::new(sites);
    });
    bed.origin.otherwise(|_| cached("first"));
    for hit in [false, true] {
        for (host, target, text) in [
            ("a.example", "/", "first"),
            ("a.example", "/api/x", "other"),
            ("b.example", "/", "other"),
        ] {
            let answer = get_of(&bed, host, target);
            assert_eq!(
                (answer.text(), answer.is_hit()),
                (text, hit),
                "{host}{target}"
            );
        }
    }
    assert_eq!(
        other.last("/api/x").expect("a request").header("host"),
        Some("a.example")
    );
}

/// Sends a GET for a host.
fn get_of(bed: &TestBed, host: &str, target: &str) -> crate::support::Answer {
    let mut client = bed.connect();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    client.answer("GET")
}

#[test]
fn a_host_without_a_site_gets_421_on_both_paths_and_reaches_neither_cache_nor_origin() {
    let bed = TestBed::with_config(|config| {
        let hosts: Vec<HostPattern> = vec!["a.example".parse().expect("a host")];
        let mut sites = Sites::default();
        let site = Site::new("a.example", Settings::default());
        sites.add(site, &hosts, false).expect("the only site");
        config.sites = Arc::new(sites);
    });
    bed.origin.otherwise(|_| cached("page"));
    assert_eq!(get_of(&bed, "a.example", "/").status, 200);
    assert!(get_of(&bed, "A.Example:80", "/").is_hit());
    for target in ["/", "/x?y"] {
        assert_eq!(get_of(&bed, "b.example", target).status, 421);
        // With a range, the request is not plain.
        let mut client = bed.connect();
        let head = format!("GET {target} HTTP/1.1\r\nHost: b.example\r\nRange: bytes=0-1\r\n\r\n");
        client.send(head.as_bytes());
        assert_eq!(client.answer("GET").status, 421);
    }
    assert_eq!(bed.origin.requests_total(), 1);
    assert_eq!(
        bed.metric("edgeward_requests_refused_total{status=\"421\"}"),
        4.0
    );
}

#[test]
fn a_rule_passes_requests_and_states_lifetimes() {
    let mut ttl = Settings::default();
    ttl.ttl
        .insert(StatusSet::One(200), Some(Duration::from_secs(60)));
    let mut default_ttl = Settings::default();
    default_ttl
        .default_ttl
        .insert(StatusSet::One(404), Some(Duration::from_secs(60)));
    let pass = Settings {
        pass: Some(true),
        ..Settings::default()
    };
    let bed = TestBed::with_config(with_rules(vec![
        rule("/ttl/*", ttl),
        rule("/default/*", default_ttl),
        rule("/pass/*", pass),
    ]));
    bed.origin.on(
        "/ttl/a",
        Answer::ok("a").header("cache-control", "no-store"),
    );
    bed.origin
        .on("/default/a", Answer::ok("none").with_status(404));
    bed.origin.on("/pass/a", cached("a"));
    for (target, hits) in [("/ttl/a", true), ("/default/a", true), ("/pass/a", false)] {
        assert!(!bed.get(target).is_hit());
        let second = bed.get(target);
        assert_eq!(second.is_hit(), hits, "{target}: {second:?}");
    }
    assert!(bed.get("/pass/a").cache_status().contains("fwd=bypass"));
}

/// Stale use would keep a response of a lifetime of zero in use.
#[test]
fn a_rule_excludes_statuses_that_would_else_be_stored_and_used_when_stale() {
    let zero = Some(Duration::ZERO);
    let stale = |rule: &mut Settings| {
        rule.stale_while_revalidate = Some(Duration::from_secs(600));
        rule.stale_if_error = Some(Duration::from_secs(600));
    };
    let mut ttl = Settings::default();
    ttl.ttl.insert(StatusSet::Class(5), None);
    ttl.ttl.insert(StatusSet::One(503), zero);
    stale(&mut ttl);
    let mut default_ttl = Settings::default();
    default_ttl.default_ttl.insert(StatusSet::Class(4), None);
    stale(&mut default_ttl);
    let bed = TestBed::with_config(with_rules(vec![
        rule("/ttl/*", ttl),
        rule("/default/*", default_ttl),
    ]));
    let answer = |status| Answer::ok("a").with_status(status).header("etag", "\"1\"");
    let fresh = |status| answer(status).header("cache-control", "max-age=600");
    bed.origin.on("/ttl/500", fresh(500));
    bed.origin.on("/ttl/503", fresh(503));
    bed.origin.on("/ttl/404", fresh(404));
    bed.origin.on("/default/404", answer(404));
    bed.origin.on("/default/fresh", fresh(404));
    for (target, is_stored) in [
        ("/ttl/500", false),
        ("/ttl/503", true),
        ("/ttl/404", true),
        ("/default/404", false),
        ("/default/fresh", true),
    ] {
        let first = bed.get(target);
        let detail = first.cache_status().contains("detail=rule");
        assert_eq!(detail, !is_stored, "{target}: {first:?}");
        let second = bed.get(target);
        assert_eq!(second.is_hit(), is_stored, "{target}: {second:?}");
    }
}

/// The response behind another cache, or of an origin with a slow clock, is fresh for the lifetime of the rule, and no
/// client gets a response that its `Age` or `Date` makes stale at once (RFC 9111 §4.2.3).
#[test]
fn a_lifetime_of_a_rule_begins_at_arrival_for_the_edge_and_for_clients() {
    let mut ttl = Settings::default();
    ttl.ttl
        .insert(StatusSet::One(200), Some(Duration::from_secs(300)));
    let mut default_ttl = Settings::default();
    let lifetime = Some(Duration::from_secs(300));
    default_ttl
        .default_ttl
        .insert(StatusSet::One(200), lifetime);
    let bed = TestBed::with_config(with_rules(vec![
        rule("/ttl/*", ttl),
        rule("/default/*", default_ttl),
    ]));
    let old = edgeward_semantics::format_http_date(edgeward_types::Timestamp::from_secs(1_000_000));
    let old = old.to_str().expect("ASCII").to_owned();
    let bare = || Answer::ok("a");
    for (path, answer) in [
        (
            "/ttl/age",
            bare()
                .header("cache-control", "max-age=300")
                .header("age", "400"),
        ),
        (
            "/ttl/date",
            bare()
                .header("cache-control", "max-age=300")
                .header("date", &old),
        ),
        ("/default/age", bare().header("age", "400")),
        ("/default/date", bare().header("date", &old)),
    ] {
        bed.origin.on(path, answer);
        for is_hit in [false, true] {
            let got = bed.get(path);
            assert_eq!(got.is_hit(), is_hit, "{path}: {got:?}");
            let age: u64 = got
                .header("age")
                .map_or(0, |age| age.parse().expect("a number"));
            assert!(age < 60, "{path}: {age}");
            let date = got.header("date").expect("the field is there").as_bytes();
            let date = edgeward_semantics::parse_http_date(date).expect("a date");
            let now = edgeward_types::Timestamp::from(std::time::SystemTime::now());
            assert!(now.as_secs() - date.as_secs() < 60, "{path}");
        }
    }
}

#[test]
fn fields_are_changed_towards_the_origin_before_storing_and_towards_clients() {
    let mut settings = Settings::default();
    for (name, change) in [set("x-site", "${host}"), set("host", "internal.example")] {
        settings.request.insert(name, change);
    }
    settings
        .request
        .insert(HeaderName::from_static("cookie"), FieldChange::Remove);
    settings
        .origin_response
        .insert(HeaderName::from_static("set-cookie"), FieldChange::Remove);
    let (name, change) = set("x-client", "${client}");
    settings.response.insert(name, change);
    let bed = TestBed::with_config(with_rules(vec![rule("/a", settings)]));
    bed.origin
        .on("/a", cached("page").header("set-cookie", "session=1"));
    for hit in [false, true] {
        let answer = bed.get_with("/a", &[("cookie", "a=1")]);
        assert_eq!(answer.is_hit(), hit, "{answer:?}");
        assert_eq!(answer.header("set-cookie"), None);
        assert_eq!(answer.header("x-client"), Some("127.0.0.1"));
    }
    let request = bed.origin.last("/a").expect("the origin got a request");
    assert_eq!(request.header("host"), Some("internal.example"));
    assert_eq!(request.header("x-site"), Some("test.example"));
    assert_eq!(request.header("cookie"), None);
}

#[test]
fn a_rule_answers_with_an_error_a_redirect_a_page_or_a_limit() {
    let deny = Settings {
        deny: Stated::On(StatusCode::FORBIDDEN),
        ..Settings::default()
    };
    let allow = Settings {
        deny: Stated::Off,
        ..Settings::default()
    };
    let redirect = Settings {
        redirect: Stated::On(Arc::new(Redirect {
            status: StatusCode::MOVED_PERMANENTLY,
            location: template("https://${host}${uri}"),
        })),
        ..Settings::default()
    };
    let limit = Settings {
        rate_limit: Stated::On(Arc::new(RateLimit {
            number: 0,
            requests: 1,
            per: Duration::from_secs(3600),
            burst: 2,
            by: RateKey::Client,
        })),
        ..Settings::default()
    };
    let answer = |status, body| {
        let page = Page {
            content_type: "text/html".into(),
            body: Bytes::from_static(body),
        };
        let page = Arc::new(page);
        Settings {
            answer: Stated::On(Arc::new(FixedAnswer { status, page })),
            ..Settings::default()
        }
    };
    let page = answer(StatusCode::ACCEPTED, b"<h1>welcome</h1>");
    let mut own = rule("/admin/*", allow);
    own.condition.clients = vec!["10.0.0.0/8".parse().expect("a network")];
    let bed = TestBed::with_config(with_rules(vec![
        rule("/admin/*", deny),
        own,
        rule("/old/*", redirect),
        rule("/limited", limit),
        rule("/welcome", page),
        rule("/empty", answer(StatusCode::NO_CONTENT, b"")),
    ]));
    bed.origin.otherwise(|_| cached("page"));
    for target in ["/admin/x", "/%61dmin//x", "/a/../admin/x"] {
        let denied = bed.get(target);
        assert_eq!(denied.status, 403, "{target}");
        assert_eq!(denied.cache_status(), "edgeward; detail=deny");
    }
    let moved = bed.get("/old/a?b=1");
    assert_eq!(moved.status, 301);
    assert_eq!(moved.cache_status(), "edgeward; detail=redirect");
    assert_eq!(
        moved.header("location"),
        Some("https://test.example/old/a?b=1")
    );
    assert_eq!(bed.get("/limited").status, 200);
    assert!(bed.get("/limited").is_hit());
    let refused = bed.get("/limited");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.cache_status(), "edgeward; detail=rate-limit");
    assert_eq!(refused.header("retry-after"), Some("3600"));
    assert_eq!(bed.origin.requests_total(), 1);
    let welcome = bed.get("/welcome");
    assert_eq!(welcome.status, 202);
    assert_eq!(welcome.text(), "<h1>welcome</h1>");
    assert_eq!(welcome.header("content-type"), Some("text/html"));
    assert_eq!(welcome.header("cache-control"), Some("no-store"));
    assert_eq!(welcome.cache_status(), "edgeward; detail=answer");
    let empty = bed.get("/empty");
    assert_eq!((empty.status, empty.text()), (204, ""));
    for name in ["content-type", "content-length", "transfer-encoding"] {
        assert_eq!(empty.header(name), None, "{name}");
    }
    assert_eq!(bed.origin.requests_total(), 1);
    let counts = [
        ("deny", 3.0),
        ("redirect", 1.0),
        ("page", 2.0),
        ("rate-limit", 1.0),
    ];
    for (answer, count) in counts {
        let series = format!("edgeward_rule_answers_total{{answer=\"{answer}\"}}");
        assert_eq!(bed.metric(&series), count, "{answer}");
    }
    assert_eq!(bed.metric("edgeward_requests_total{outcome=\"rule\"}"), 7.0);
}

#[test]
fn a_rewritten_request_is_stored_under_the_url_of_the_client() {
    let regex = match PathPattern::regex("^/v1/(.*)$").expect("an expression") {
        PathPattern::Regex(regex) => regex,
        PathPattern::Glob(_) => unreachable!("it is an expression"),
    };
    let rewrite = Template::new("/api/${1}?version=1", Some(&regex)).expect("a template");
    let settings = Settings {
        rewrite: Stated::On(Arc::new(rewrite)),
        ..Settings::default()
    };
    let bed = TestBed::with_config(with_rules(vec![rule("/v1/*", settings)]));
    bed.origin.on("/api/users", cached("users"));
    assert_eq!(bed.get("/v1/users").text(), "users");
    assert!(bed.get("/v1/users").is_hit());
    let request = bed.origin.last("/api/users").expect("a request");
    assert_eq!(request.target(), "/api/users?version=1");
}

#[test]
fn a_shaped_query_is_the_query_of_the_key_and_of_the_origin() {
    let settings = Settings {
        query_sort: Some(true),
        query_drop: Some([Pattern::new("utm_*")].into()),
        ..Settings::default()
    };
    let bed = TestBed::with_config(|config| {
        with_rules(vec![rule("/*", settings)])(config);
        config.purge.token = Token::new("correct-horse-battery").ok();
    });
    bed.origin.on("/a", cached("page"));
    assert!(!bed.get("/a?b=2&utm_source=x&a=1").is_hit());
    for target in ["/a?a=1&b=2", "/a?utm_medium=y&b=2&a=1"] {
        assert!(bed.get(target).is_hit(), "{target}");
    }
    assert_eq!(
        bed.origin.last("/a").expect("a request").target(),
        "/a?a=1&b=2"
    );
    // A purge names the URL as a client sends it.
    purge(&bed, "/a?utm_source=z&b=2&a=1");
    assert!(!bed.get("/a?a=1&b=2").is_hit());
}

/// The edge does not know the fields of the requests for a purged URL. A limit, which the page about purges states.
#[test]
fn a_rule_with_a_condition_on_fields_does_not_shape_the_url_of_a_purge() {
    let settings = Settings {
        query_drop: Some([Pattern::new("utm_*")].into()),
        ..Settings::default()
    };
    let of_app = Condition {
        fields: vec![FieldCondition {
            name: HeaderName::from_static("x-app"),
            values: vec![Pattern::new("1")],
        }],
        ..Condition::default()
    };
    let bed = TestBed::with_config(|config| {
        let rule = Rule {
            condition: of_app,
            ..rule("/*", settings)
        };
        with_rules(vec![rule])(config);
        config.purge.token = Token::new("correct-horse-battery").ok();
    });
    bed.origin.on("/a", cached("page"));
    let get = || bed.get_with("/a?utm_source=x", &[("x-app", "1")]);
    assert!(!get().is_hit());
    purge(&bed, "/a?utm_source=x");
    assert!(get().is_hit(), "the response is stored as /a");
    purge(&bed, "/a");
    assert!(!get().is_hit());
}

/// Purges a URL of the host `test.example`.
fn purge(bed: &TestBed, target: &str) {
    let body = format!(r#"{{"urls": ["http://test.example{target}"]}}"#);
    let length = body.len().to_string();
    let fields = [
        ("authorization", "Bearer correct-horse-battery"),
        ("content-length", &*length),
    ];
    let admin = bed
        .edge
        .admin_addr()
        .expect("the admin server is configured");
    let answer = Client::connect(admin).request("POST", "/purge", &fields, body.as_bytes());
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// Configures one class for all requests, and a token for purges.
fn with_class(class: &str) -> impl FnOnce(&mut EdgeConfig) {
    let class: Class = class.parse().expect("a class");
    let settings = Settings {
        key: Some([class].into()),
        ..Settings::default()
    };
    |config| {
        with_rules(vec![rule("/*", settings)])(config);
        config.purge.token = Token::new("correct-horse-battery").ok();
    }
}

#[test]
fn each_class_has_a_stored_response_of_its_own() {
    let bed = TestBed::with_config(with_class("cookie:currency"));
    bed.origin.otherwise(|request| {
        let cookie = request.header("cookie").unwrap_or("none").to_owned();
        Answer::ok(cookie).header("cache-control", "max-age=600")
    });
    let get = |cookie: &str| bed.get_with("/a", &[("cookie", cookie)]);
    assert_eq!(get("currency=EUR").text(), "currency=EUR");
    assert_eq!(get("currency=USD").text(), "currency=USD");
    let other = get("session=1; currency=EUR");
    assert!(other.is_hit());
    assert_eq!(other.text(), "currency=EUR");
    // A class that is too long for a key is passed.
    let long = format!("currency={}", "x".repeat(200));
    assert!(get(&long).cache_status().contains("fwd=bypass"));
    purge(&bed, "/a");
    for cookie in ["currency=EUR", "currency=USD"] {
        assert!(!get(cookie).is_hit(), "{cookie}");
    }
}

/// A POST that changes a page makes the responses of all classes outdated, not only those of its own class.
#[test]
fn an_unsafe_request_invalidates_all_classes() {
    let bed = TestBed::with_config(with_class("device"));
    bed.origin.otherwise(|_| cached("page"));
    let get = |agent: &str| bed.get_with("/a", &[("user-agent", agent)]).is_hit();
    for hit in [false, true] {
        assert_eq!(get("iPhone Mobile"), hit);
        assert_eq!(get("X11"), hit);
    }
    let posted = bed
        .connect()
        .request("POST", "/a", &[("content-length", "0")], b"");
    assert_eq!(posted.status, 200);
    assert!(!get("iPhone Mobile") && !get("X11"));
}

#[test]
fn a_response_to_post_answers_later_gets_of_its_class_only() {
    let bed = TestBed::with_config(with_class("device"));
    let posted = cached("posted").header("content-location", "/a");
    bed.origin.once("/a", posted);
    bed.origin.otherwise(|_| cached("page"));
    let fields = [("user-agent", "iPhone Mobile"), ("content-length", "0")];
    let answer = bed.connect().request("POST", "/a", &fields, b"");
    assert_eq!(
        answer.cache_status(),
        "edgeward; fwd=method; fwd-status=200; stored"
    );
    let hit = bed.get_with("/a", &[("user-agent", "iPhone Mobile")]);
    assert!(hit.is_hit(), "{hit:?}");
    assert_eq!(hit.text(), "posted");
    assert_eq!(bed.get_with("/a", &[("user-agent", "X11")]).text(), "page");
}

#[test]
fn a_response_to_post_is_not_stored_if_a_rule_passes_the_request() {
    let settings = Settings {
        pass: Some(true),
        ..Settings::default()
    };
    let mut pass = rule("/*", settings);
    pass.condition.methods = vec![Method::POST];
    let bed = TestBed::with_config(with_rules(vec![pass]));
    let posted = cached("posted").header("content-location", "/a");
    bed.origin.once("/a", posted);
    bed.origin.otherwise(|_| cached("page"));
    let fields = [("content-length", "0")];
    let answer = bed.connect().request("POST", "/a", &fields, b"");
    assert_eq!(answer.text(), "posted");
    assert_eq!(bed.get("/a").text(), "page");
}

/// A rule that removes a field of the origin's response applies once, and before the response is stored.
#[test]
fn fields_of_a_response_to_post_are_changed_before_it_is_stored() {
    let mut settings = Settings::default();
    settings
        .origin_response
        .insert(HeaderName::from_static("set-cookie"), FieldChange::Remove);
    let bed = TestBed::with_config(with_rules(vec![rule("/a", settings)]));
    let posted = cached("posted").header("content-location", "/a");
    bed.origin.once("/a", posted.header("set-cookie", "a=1"));
    let fields = [("content-length", "0")];
    let answer = bed.connect().request("POST", "/a", &fields, b"");
    assert_eq!(answer.header("set-cookie"), None);
    assert!(bed.get("/a").is_hit());
}

#[test]
fn an_error_page_replaces_the_body_of_origins_and_of_the_edge() {
    let page = Arc::new(Page {
        content_type: "text/html".into(),
        body: Bytes::from_static(b"<h1>sorry</h1>"),
    });
    let mut settings = Settings::default();
    settings
        .error_pages
        .insert(StatusSet::Class(5), Arc::clone(&page));
    settings.error_pages.insert(StatusSet::One(404), page);
    let bed = TestBed::with_config(with_rules(vec![rule("/*", settings)]));
    bed.origin.on(
        "/404",
        cached("not here").with_status(404).header("etag", "\"a\""),
    );
    bed.origin.on("/500", Answer::ok("trace").with_status(500));
    bed.origin.on("/garbage", Answer::garbage("nonsense"));
    bed.origin.on("/200", cached("page"));
    for (target, status) in [
        ("/404", 404),
        ("/404", 404),
        ("/500", 500),
        ("/garbage", 502),
    ] {
        let answer = bed.get(target);
        assert_eq!(answer.status, status);
        assert_eq!(answer.text(), "<h1>sorry</h1>", "{target}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("text/html"));
        assert_eq!(answer.header("etag"), None);
    }
    assert!(bed.get("/404").is_hit());
    assert_eq!(bed.get("/200").text(), "page");
}

/// RFC 9110 §9.3.2. In HTTP/2, DATA frames in the response to a HEAD are a stream error, which the client reports.
#[test]
fn a_response_of_the_edge_to_head_has_no_body_in_any_protocol() {
    let deny = Settings {
        deny: Stated::On(StatusCode::FORBIDDEN),
        ..Settings::default()
    };
    let mut page = Settings::default();
    let sorry = Arc::new(Page {
        content_type: "text/html".into(),
        body: b"<h1>sorry</h1>"[..].into(),
    });
    page.error_pages.insert(StatusSet::Class(5), sorry);
    let rules = vec![rule("/denied", deny), rule("/page/*", page)];
    let bed = TestBed::with_config(with_rules(rules));
    bed.origin.otherwise(|_| Answer::garbage("nonsense"));
    for (target, status, length) in [
        ("/denied", 403, "14"),
        ("/502", 502, ""),
        ("/page/502", 502, "14"),
    ] {
        let request = H2Request {
            method: "HEAD",
            path: target,
            ..H2Request::default()
        };
        let h1 = format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        for answer in [
            send_h2(bed.addr(), &request).expect("the stream is not reset"),
            send_h1(bed.addr(), &h1),
            send_h1(bed.addr(), &for_hyper(&h1)),
        ] {
            assert_eq!((answer.status, answer.text()), (status, ""), "{target}");
            let stated = answer.header("content-length");
            let stated = stated.expect("the length of the response to a GET");
            assert!(length.is_empty() || stated == length, "{target}: {stated}");
        }
    }
}
