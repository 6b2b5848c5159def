//! The requests of the tests are those of an edge in front of a site with one fault.

mod exclusions;

use super::*;

/// A site whose requests are observed. Its bodies are those of the path and `depends`.
struct Site {
    faults: Faults,
    now_ms: u64,
    stored: std::collections::HashMap<String, u64>,
    /// True if the origin confirms stale objects.
    confirms: bool,
}

/// The request of a good site: a page with validator and lifetime.
fn good<'a>(host: &'a str, target: &'a str, body: &str) -> Observed<'a> {
    Observed {
        at: Timestamp::ZERO,
        weight: 1,
        site: Some(0),
        host,
        target,
        status: 200,
        is_get: true,
        has_credentials: false,
        has_range: false,
        accepts_coding: true,
        source: ResponseSource::Origin,
        not_stored: "",
        body_bytes: 5000,
        body: Some(edgeward_types::xxh3::xxh3_64(body.as_bytes())),
        object: Some(ObjectFacts {
            key: edgeward_types::xxh3::xxh3_64(format!("{host}{target}").as_bytes()),
            lifetime_ms: 3_600_000,
            has_validator: true,
        }),
        head: Some(ResponseFacts {
            cache_control: b"max-age=3600",
            content_type: "text/html",
            content_encoding: "gzip",
            ..ResponseFacts::default()
        }),
    }
}

impl Site {
    fn new() -> Self {
        Self {
            faults: Faults::new(512 << 10, 7),
            now_ms: 0,
            stored: std::collections::HashMap::new(),
            confirms: false,
        }
    }

    /// Observes a request a tenth of a second after the last one. The cache answers if it has the object.
    fn request(&mut self, mut seen: Observed<'_>) {
        self.now_ms += 100;
        seen.at = Timestamp::from_millis(self.now_ms);
        if let Some(object) = seen
            .object
            .filter(|_| seen.source == ResponseSource::Origin)
        {
            let key = format!("{} {}", seen.host, object.key);
            let fresh_until = self.stored.get(&key).copied().unwrap_or(0);
            if self.now_ms < fresh_until {
                seen.source = ResponseSource::Cache;
            } else {
                if self.confirms && fresh_until > 0 {
                    (seen.source, seen.body) = (ResponseSource::Confirmed, None);
                }
                self.stored.insert(key, self.now_ms + object.lifetime_ms);
            }
        }
        self.faults.observe(&seen);
    }

    fn findings(&self) -> Vec<Finding> {
        self.faults.findings()
    }

    /// Returns the only finding.
    fn finding(&self) -> Finding {
        let mut findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }
}

/// Pages, files, queries that select the page, variants by language, users with cookies, dynamic pages, private pages.
#[test]
fn a_good_site_has_no_faults() {
    let mut site = Site::new();
    for n in 0..4000_u64 {
        let path = format!("/page/{}?id={}&sort=up", n % 7, n % 50);
        site.request(good("a.example", &path, &path));
        let search = format!("/search?q=word{n}&page=1");
        site.request(good("a.example", &search, &search));
        let file = format!("/static/{}.css", n % 20);
        site.request(good("a.example", &file, &file));
        let language = format!("de{}", n % 3);
        let mut varied = good("a.example", "/news/today", &language);
        varied.head = varied.head.map(|head| ResponseFacts {
            vary: b"Accept-Language",
            ..head
        });
        varied.object = varied.object.map(|object| ObjectFacts {
            key: n % 3,
            ..object
        });
        site.request(varied);
        let body = format!("dynamic {n}");
        let mut dynamic = good("a.example", "/api/time", &body);
        dynamic.object = None;
        dynamic.not_stored = "never-reusable";
        dynamic.head = Some(ResponseFacts {
            content_type: "application/json",
            content_encoding: "gzip",
            ..ResponseFacts::default()
        });
        site.request(dynamic);
        let mut private = good("a.example", "/account", &body);
        private.has_credentials = true;
        private.object = None;
        private.not_stored = "private";
        site.request(private);
        site.request(good("b.example", "/page/1", "the page of b"));
        site.request(good("b.example", "/same-texts", "ok"));
    }
    assert_eq!(site.findings(), []);
}

fn without_lifetime(mut seen: Observed<'_>) -> Observed<'_> {
    seen.object = None;
    seen.not_stored = "never-reusable";
    seen.head = seen.head.map(|head| ResponseFacts {
        cache_control: b"",
        ..head
    });
    seen
}

/// Method: ten pages in turn, each every second. A rule with a minute turns all but 10 of 600 requests in each minute
/// into hits. If bodies change at each request, there is no fault.
#[test]
fn responses_without_lifetime_are_a_fault_unless_they_change() {
    for changes in [false, true] {
        let mut site = Site::new();
        for n in 0..3000 {
            let (path, body) = (format!("/docs/{}", n % 10), format!("{}", n % 10));
            let body = if changes { format!("{n}") } else { body };
            site.request(without_lifetime(good("a.example", &path, &body)));
        }
        if changes {
            assert_eq!(site.findings(), []);
            continue;
        }
        let finding = site.finding();
        assert_eq!(finding.kind, FaultKind::NoLifetime);
        assert_eq!(
            finding.rule,
            "[[site.rule]]\npath = \"/docs/*\"\ndefault_ttl = \"1min\"\n\
             [[site.rule]]\npath = \"/docs/*\"\ncookie = \"*\"\n\
             pass = true # a response to a request with a cookie may be for one user\n"
        );
        assert!((finding.request_share - 1.0).abs() < 0.01, "{finding:?}");
        assert!(finding.hit_share > 0.98, "{finding:?}");
        assert_eq!(finding.example, "a.example/docs/0");
    }
}

/// Method: each page with many values of a parameter. Half of the requests have it. Without it, all but one request of
/// each page would be hits.
#[test]
fn parameters_that_do_not_change_the_body_are_a_fault() {
    let cases = [
        ("utm_source", "utm_*", FaultKind::IgnoredParameter, false),
        ("from", "from", FaultKind::IgnoredParameter, false),
        ("_", "_", FaultKind::CacheBuster, true),
    ];
    for (name, subject, kind, is_unique) in cases {
        let mut site = Site::new();
        for n in 0..2000_u64 {
            let value = if is_unique {
                1_700_000_000_000 + n
            } else {
                n % 40
            };
            let path = format!("/p/{}?id={}", n % 3, n % 5);
            let body = path.clone();
            let target = match n / 15 % 2 {
                0 => path,
                _ => format!("{path}&{name}={value}"),
            };
            site.request(good("a.example", &target, &body));
        }
        let finding = site.finding();
        assert_eq!((finding.kind, finding.subject.as_str()), (kind, subject));
        assert_eq!(
            finding.rule,
            format!("[[site.rule]]\nquery.drop = [\"{subject}\"]\n")
        );
        // 60 pairs of a page and one of 40 values have a request, and 15 pages.
        let expected = if is_unique { 0.485 } else { 0.0225 };
        assert!((finding.hit_share - expected).abs() < 0.008, "{finding:?}");
    }
}

/// Bodies above the limit of hashes may change with each request.
#[test]
fn responses_with_unknown_bodies_get_no_lifetime() {
    let mut site = Site::new();
    for n in 0..1000 {
        let path = format!("/export/{}", n % 10);
        let mut seen = without_lifetime(good("a.example", &path, ""));
        seen.body = None;
        site.request(seen);
    }
    assert_eq!(site.findings(), []);
}

/// Two customers with the same files, and a host that a client has made up.
#[test]
fn hosts_that_are_no_pair_with_www_are_not_joined() {
    let mut site = Site::new();
    for n in 0..1000 {
        let target = format!("/assets/{}", n % 40);
        for host in ["www.shop.example", "b.example", "a.co"] {
            site.request(good(host, &target, &target));
        }
    }
    assert_eq!(site.findings(), []);
}

/// All parameters of a link have one subject, so a request is counted once.
#[test]
fn a_request_with_many_tracking_parameters_is_counted_once() {
    let mut site = Site::new();
    for n in 0..1000 {
        let target = format!("/p/1?utm_source={n}&utm_medium={n}&utm_campaign={n}");
        site.request(good("a.example", &target, "1"));
        site.request(good("a.example", &format!("/other/{n}"), &n.to_string()));
    }
    let finding = site.finding();
    assert!((finding.request_share - 0.5).abs() < 0.01, "{finding:?}");
    assert!((finding.hit_share - 0.5).abs() < 0.01, "{finding:?}");
}

/// If only the first parameters were compared, a later one could select the body.
#[test]
fn a_query_with_too_many_parameters_is_not_compared() {
    for (count, is_compared) in [(PARAMETERS_MAX - 1, true), (PARAMETERS_MAX, false)] {
        let others: String = (0..count).map(|n| format!("&p{n}=1")).collect();
        let mut site = Site::new();
        for n in 0..1000 {
            let target = format!("/p/1?from={n}{others}");
            site.request(good("a.example", &target, "1"));
        }
        assert_eq!(site.findings().len(), usize::from(is_compared), "{count}");
    }
}

/// Parameters with one name keep their order under the rule, so these URLs stay apart.
#[test]
fn values_of_one_parameter_in_another_order_are_no_fault() {
    for (second, is_fault) in [("a", false), ("b", true)] {
        let mut site = Site::new();
        for n in 0..1000 {
            for order in [format!("a=x&{second}=y"), format!("{second}=y&a=x")] {
                let target = format!("/p/1?{order}&z={n}");
                site.request(good("a.example", &target, &n.to_string()));
            }
        }
        let findings = site.findings();
        let found = findings
            .iter()
            .any(|it| it.kind == FaultKind::ParameterOrder);
        assert_eq!(found, is_fault, "{findings:#?}");
    }
}

/// A later rule replaces the list of an earlier one.
#[test]
fn one_rule_drops_all_needless_parameters_of_a_site() {
    let mut site = Site::new();
    for n in 0..1000 {
        for name in ["b_from", "a_ref"] {
            let target = format!("/p/1?{name}={n}");
            site.request(good("a.example", &target, "1"));
        }
    }
    let rules: Vec<String> = site.findings().into_iter().map(|it| it.rule).collect();
    let rule = "[[site.rule]]\nquery.drop = [\"a_ref\", \"b_from\"]\n";
    assert_eq!(rules, [rule, rule]);
}

/// A parameter that has no effect on one path, and selects the body of another.
#[test]
fn a_parameter_that_sometimes_changes_the_body_is_no_fault() {
    let mut site = Site::new();
    for n in 0..2000 {
        let target = format!("/static/?lang={}", n % 40);
        site.request(good("a.example", &target, "1"));
        let target = format!("/dynamic/?lang={}", n % 40);
        site.request(good("a.example", &target, &target));
    }
    assert_eq!(site.findings(), []);
}

/// Method: each page has one request for each of two forms of its URL, and as many pages have one form.
#[test]
fn other_forms_of_a_url_with_the_same_body_are_a_fault() {
    let of_form = |kind, n: u64| {
        let (page, is_first) = (n / 2, n.is_multiple_of(2));
        let (first, second, host) = match kind {
            FaultKind::ParameterOrder => (
                format!("/s?x=1&y={page}"),
                format!("/s?y={page}&x=1"),
                "a.example",
            ),
            FaultKind::SameOnTwoHosts => (
                format!("/about/{page}"),
                format!("/about/{page}"),
                "www.a.example",
            ),
            _ => (
                format!("/team/{page}"),
                format!("/team/{page}/"),
                "a.example",
            ),
        };
        if is_first {
            (first, host)
        } else {
            (second, "a.example")
        }
    };
    let cases = [
        (FaultKind::ParameterOrder, ""),
        (FaultKind::SameOnTwoHosts, "www.a.example"),
        (FaultKind::FinalSlash, "/team/*"),
    ];
    for (kind, subject) in cases {
        for is_redirected in [false, true] {
            let mut site = Site::new();
            for n in 0..200 {
                let (target, host) = of_form(kind, n);
                site.request(good(host, &target, &(n / 2).to_string()));
                let other = format!("/other/{n}");
                let mut other = good("a.example", &other, &other);
                if is_redirected && n.is_multiple_of(10) {
                    (other.target, other.status) = ("/team/x", 301);
                }
                site.request(other);
            }
            if is_redirected && kind == FaultKind::FinalSlash {
                assert_eq!(site.findings(), []);
                continue;
            }
            let finding = site.finding();
            assert_eq!((finding.kind, finding.subject.as_str()), (kind, subject));
            assert!((finding.hit_share - 0.25).abs() < 0.01, "{finding:?}");
        }
    }
}

/// Method: ten files in turn.
#[test]
fn heads_that_keep_files_out_of_the_cache_are_a_fault() {
    let cases = [
        (
            "set-cookie",
            FaultKind::CookieOnStatic,
            "origin_response.remove = [\"Set-Cookie\"]\ndefault_ttl = \"1d\"",
        ),
        ("private", FaultKind::PrivateStatic, "ttl = \"1d\""),
        (
            "vary-any",
            FaultKind::NeedlessVary,
            "origin_response.remove = [\"Vary\"]",
        ),
    ];
    for (reason, kind, rule) in cases {
        for (has_credentials, extension) in [(false, "css"), (true, "css"), (false, "html")] {
            let mut site = Site::new();
            for n in 0..1000 {
                let path = format!("/files/{}.{extension}", n % 10);
                let mut seen = good("a.example", &path, &path);
                (seen.not_stored, seen.object, seen.has_credentials) =
                    (reason, None, has_credentials);
                seen.head = seen.head.map(|head| ResponseFacts {
                    cache_control: if reason == "private" { b"private" } else { b"" },
                    content_type: "text/css",
                    ..head
                });
                site.request(seen);
            }
            let is_page = extension == "html" && kind != FaultKind::NeedlessVary;
            if has_credentials || is_page {
                assert_eq!(site.findings(), []);
                continue;
            }
            let finding = site.finding();
            assert_eq!(finding.kind, kind);
            let with_cookie = match kind {
                FaultKind::NeedlessVary => "",
                _ => {
                    "[[site.rule]]\npath = \"*.css\"\ncookie = \"*\"\n\
             pass = true # a response to a request with a cookie may be for one user\n"
                }
            };
            let rule = format!("\n{rule}\n{with_cookie}");
            assert!(finding.rule.ends_with(&rule), "{finding:?}");
            assert!(finding.hit_share > 0.98, "{finding:?}");
        }
    }
}

/// Method: three pages with a lifetime of a second and requests every 0.3 s, so every fourth request of a page finds a
/// stale response. A lifetime of ten seconds would save nine of ten fetches.
#[test]
fn short_lifetimes_that_end_without_a_change_are_a_fault() {
    for (confirms, changes) in [(false, false), (true, false), (false, true)] {
        let mut site = Site {
            confirms,
            ..Site::new()
        };
        for n in 0..3000_u64 {
            let path = format!("/feed/{}", n % 3);
            let body = if changes {
                format!("{n}")
            } else {
                path.clone()
            };
            let mut seen = good("a.example", &path, &body);
            seen.object = seen.object.map(|object| ObjectFacts {
                lifetime_ms: 1000,
                ..object
            });
            site.request(seen);
        }
        if changes {
            assert_eq!(site.findings(), []);
            continue;
        }
        let finding = site.finding();
        assert_eq!(finding.kind, FaultKind::ShortLifetime);
        assert_eq!(
            finding.rule,
            "[[site.rule]]\npath = \"/feed/*\"\nttl = \"10s\"\n\
             [[site.rule]]\npath = \"/feed/*\"\ncookie = \"*\"\n\
             pass = true # a response to a request with a cookie may be for one user\n"
        );
        assert!((finding.hit_share - 0.25).abs() < 0.02, "{finding:?}");
    }
}

/// Method: two variants of each page in turn. The caches of the test begin with each of them once.
#[test]
fn variants_with_the_same_body_are_a_fault() {
    for (vary, rule) in [
        ("User-Agent", "origin_response.remove = [\"Vary\"]"),
        (
            "Accept-Encoding, User-Agent",
            "origin_response.set.Vary = \"Accept-Encoding\"",
        ),
    ] {
        let mut site = Site::new();
        for n in 0..1000_u64 {
            let path = format!("/page/{}", n / 2);
            let mut seen = good("a.example", &path, &path);
            seen.object = seen.object.map(|object| ObjectFacts {
                key: object.key + n % 2,
                ..object
            });
            seen.head = seen.head.map(|head| ResponseFacts {
                vary: vary.as_bytes(),
                ..head
            });
            site.request(seen);
        }
        let finding = site.finding();
        assert_eq!(finding.kind, FaultKind::NeedlessVary);
        assert!(
            finding.rule.ends_with(&format!("\n{rule}\n")),
            "{finding:?}"
        );
        assert!((finding.hit_share - 0.5).abs() < 0.01, "{finding:?}");
    }
}

#[test]
fn faults_that_cost_bytes_are_found() {
    let uncoded = |n: u64, seen: &mut Observed<'_>| {
        seen.head = seen.head.map(|head| ResponseFacts {
            content_encoding: "",
            ..head
        });
        // The first hits of a page may come before its encoding.
        if n < 20 {
            seen.body_bytes = 10;
        }
    };
    let without_validator = |_: u64, seen: &mut Observed<'_>| {
        seen.object = seen.object.map(|object| ObjectFacts {
            has_validator: false,
            ..object
        });
    };
    type Change<'c> = &'c dyn Fn(u64, &mut Observed<'_>);
    let cases: [(Change<'_>, _); 2] = [
        (&uncoded, FaultKind::Uncompressed),
        (&without_validator, FaultKind::NoValidator),
    ];
    for (change, kind) in cases {
        let mut site = Site::new();
        for n in 0..1000 {
            let path = format!("/page/{}", n % 10);
            let mut seen = good("a.example", &path, &path);
            change(n, &mut seen);
            if n % 100 == 0 {
                site.now_ms += 3_600_000; // the lifetime of the pages
            }
            site.request(seen);
        }
        assert_eq!(site.finding().kind, kind);
    }
}

/// Method: ten pages without validators that live for an hour. The cache has evicted each of them before its next
/// request, and the requests end before the first page expires.
#[test]
fn fetches_of_evicted_objects_are_no_refreshes() {
    let mut site = Site::new();
    for n in 0..1000 {
        let path = format!("/page/{}", n % 10);
        let mut seen = good("a.example", &path, &path);
        seen.object = seen.object.map(|object| ObjectFacts {
            has_validator: false,
            ..object
        });
        site.stored.clear();
        site.request(seen);
    }
    assert_eq!(site.findings(), []);
}

#[test]
fn a_longer_lifetime_is_ten_times_as_long_in_round_units() {
    for (lifetime_ms, seconds) in [
        (0, 10),
        (1, 10),
        (1000, 10),
        (59_000, 590),
        (60_000, 600),
        (299_000, 3000),
        (3_599_000, 36_000),
    ] {
        let expected = Duration::from_secs(seconds);
        assert_eq!(longer_lifetime(lifetime_ms), expected, "{lifetime_ms}");
    }
}

#[test]
fn ranges_that_are_passed_again_are_a_fault() {
    for source in [
        ResponseSource::Passed,
        ResponseSource::Origin,
        ResponseSource::Cache,
    ] {
        let mut site = Site::new();
        for n in 0..200 {
            let path = format!("/film/{}.mp4", n % 4);
            let mut seen = good("a.example", &path, "a part");
            (seen.has_range, seen.status, seen.source, seen.object) = (true, 206, source, None);
            site.request(seen);
        }
        if source == ResponseSource::Passed {
            let finding = site.finding();
            assert_eq!(finding.kind, FaultKind::PassedRanges);
            assert!(finding.hit_share > 0.97, "{finding:?}");
        } else {
            assert_eq!(site.findings(), []);
        }
    }
}

/// Method: a fault with 5 % of the requests among distinct URLs and hosts that all show faults, and bytes that would
/// end a string of TOML or begin a script.
#[test]
fn a_flood_of_hosts_and_urls_stays_within_the_memory_and_hides_no_fault() {
    for memory_max in [256 << 10, 1 << 20] {
        let mut site = Site {
            faults: Faults::new(memory_max, 7),
            ..Site::new()
        };
        for n in 0..40_000_u64 {
            let host = format!("host-{n}.example");
            let long = "x".repeat(usize::try_from(n % 900).unwrap_or(0));
            let target = match n % 4 {
                0 => format!("/folder-{n}/\"]\nsite = <script>é{long}"),
                1 => format!("/same?{n}=1&\"=2"),
                2 => format!("/folder-{n}/a"),
                _ => format!("/p{}?from={n}", n % 7),
            };
            let host = if n % 4 == 3 { "a.example" } else { &host };
            let seen = good(host, &target, "one body");
            site.request(if n % 4 == 3 {
                seen
            } else {
                without_lifetime(seen)
            });
        }
        let memory = site.faults.memory_bytes();
        assert!(memory <= memory_max, "{memory}");
        let findings = site.findings();
        let of_parameter = findings.iter().filter(|finding| finding.subject == "from");
        assert_eq!(of_parameter.count(), 1, "{findings:#?}");
        for finding in findings {
            let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
            assert!(is_visible(&finding.example) && finding.example.len() <= EXAMPLE_BYTES_MAX);
            assert!(!finding.rule.contains("script"), "{finding:?}");
        }
    }
}

/// Method: an hour of a fault, then hours without it.
#[test]
fn a_mended_fault_disappears() {
    let mut site = Site::new();
    for n in 0..400 {
        let path = format!("/docs/{}", n % 10);
        site.request(without_lifetime(good("a.example", &path, &path)));
    }
    assert_eq!(site.findings().len(), 1);
    site.now_ms += 3 * 3_600_000;
    site.request(good("a.example", "/docs/1", "1"));
    assert_eq!(site.findings(), []);
}
