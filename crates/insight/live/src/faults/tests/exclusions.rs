//! Observations that exclude rules.

use super::*;

/// Responses that differ by user or by origin have equal bodies now and then.
#[test]
fn a_vary_by_user_or_origin_is_not_needless() {
    for field in ["Cookie", "Accept-Encoding, Origin"] {
        let mut site = Site::new();
        for n in 0..1000_u64 {
            let mut seen = good("a.example", "/news/today", "the same");
            seen.head = seen.head.map(|head| ResponseFacts {
                vary: field.as_bytes(),
                ..head
            });
            seen.object = seen.object.map(|object| ObjectFacts {
                key: n % 50,
                ..object
            });
            site.request(seen);
        }
        assert_eq!(site.findings(), [], "{field}");
    }
}

/// Method: two variants of one page with equal bodies, and one response to a user among a hundred. It says `private`.
#[test]
fn a_vary_beside_private_responses_to_users_is_not_needless() {
    let mut site = Site::new();
    for n in 0..1000_u64 {
        let mut seen = good("a.example", "/news/today", "the same");
        seen.has_credentials = n % 100 == 99;
        let control: &[u8] = if seen.has_credentials {
            b"private"
        } else {
            b""
        };
        seen.head = seen.head.map(|head| ResponseFacts {
            vary: b"User-Agent",
            cache_control: control,
            ..head
        });
        seen.object = seen.object.map(|object| ObjectFacts {
            key: n % 2,
            ..object
        });
        site.request(seen);
    }
    assert_eq!(site.findings(), []);
}

/// A value of the greatest length may be the beginning of a longer one, which may end with `private` or `Cookie`.
#[test]
fn fields_that_may_be_cut_forbid_rules() {
    let long = ["x"; 128].join(",") + "y";
    let kinds = [FaultKind::NoLifetime, FaultKind::NeedlessVary];
    for (kind, length) in kinds
        .into_iter()
        .flat_map(|kind| [(kind, 255), (kind, 256)])
    {
        let value = &long.as_bytes()[..length];
        let mut site = Site::new();
        for n in 0..1000_u64 {
            let mut seen = good("a.example", "/docs/1", "the same");
            if kind == FaultKind::NoLifetime {
                seen = without_lifetime(seen);
                seen.head = seen.head.map(|head| ResponseFacts {
                    cache_control: value,
                    ..head
                });
            } else {
                seen.object = seen.object.map(|object| ObjectFacts {
                    key: n % 50,
                    ..object
                });
                seen.head = seen.head.map(|head| ResponseFacts {
                    vary: value,
                    ..head
                });
            }
            site.request(seen);
        }
        let found: Vec<_> = site.findings().iter().map(|finding| finding.kind).collect();
        let expected = if length < FIELD_BYTES_MAX {
            vec![kind]
        } else {
            Vec::new()
        };
        assert_eq!(found, expected, "{length}");
    }
}

/// Method: a private response of a path and a refused parameter, then more faults than the evidence has rows, and last
/// the same faults as before the flood.
#[test]
fn a_flood_of_faults_does_not_bring_an_excluded_rule_back() {
    let mut site = Site::new();
    let mut private = without_lifetime(good("a.example", "/docs/1", "of a user"));
    private.head = private.head.map(|head| ResponseFacts {
        cache_control: b"private",
        ..head
    });
    site.request(private);
    let mut refused = good("a.example", "/p/1?from=x", "no");
    (refused.status, refused.object) = (403, None);
    site.request(refused);
    for n in 0..20 * evidence::ROWS_MAX {
        let path = format!("/folder-{}/", n / 10);
        site.request(without_lifetime(good("a.example", &path, &path)));
    }
    for n in 0..1000 {
        site.request(without_lifetime(good("a.example", "/docs/1", "1")));
        site.request(without_lifetime(good("a.example", "/free/1", "1")));
        let target = format!("/p/1?from={n}");
        site.request(good("a.example", &target, "2"));
    }
    let subjects: Vec<String> = site.findings().into_iter().map(|it| it.subject).collect();
    assert!(subjects.contains(&"/free/*".to_owned()), "{subjects:?}");
    for excluded in ["/docs/*", "from"] {
        assert!(!subjects.contains(&excluded.to_owned()), "{subjects:?}");
    }
    assert!(site.faults.withheld_ratio() < 0.001);
}

/// Broken links with parameters of web analysis are common, and these parameters give no access.
#[test]
fn one_broken_link_hides_a_tracking_parameter_only_while_it_counts() {
    for (name, is_found) in [("utm_source", true), ("from", false)] {
        let mut site = Site::new();
        let mut broken = good("a.example", "/gone", "gone");
        let target = format!("/gone?{name}=x");
        (broken.target, broken.status, broken.object) = (&target, 404, None);
        site.request(broken);
        for n in 0..1000 {
            let target = format!("/p/1?{name}={n}");
            site.request(good("a.example", &target, "1"));
        }
        assert_eq!(site.findings().len(), usize::from(is_found), "{name}");
    }
}

/// An origin that does not refuse the parameter any more.
#[test]
fn an_exclusion_ends_some_weeks_after_its_reason() {
    let mut site = Site::new();
    let mut refused = good("a.example", "/p/1?from=x", "no");
    (refused.status, refused.object) = (403, None);
    site.request(refused);
    for (days, is_found) in [(0, false), (6, false), (7, false), (14, true)] {
        site.now_ms = days * 86_400_000 + 1000;
        for n in 0..100 {
            let target = format!("/p/{days}?from={n}");
            site.request(good("a.example", &target, "1"));
        }
        assert_eq!(site.findings().len(), usize::from(is_found), "{days} days");
    }
}

/// Method: a folder with a fault whose rule would harm another response in it: a private one, one of a user, one that
/// sets a cookie. It has one request in a hundred.
#[test]
fn one_response_for_a_user_forbids_lifetimes_for_its_folder() {
    let of_user = |kind: usize, body: &str| {
        let mut seen = good("a.example", "/docs/me", body);
        (seen.object, seen.not_stored) = (None, "private");
        seen.has_credentials = kind == 1;
        seen.head = seen.head.map(|head| ResponseFacts {
            cache_control: if kind == 0 { b"private" } else { b"" },
            sets_cookie: kind == 2,
            ..head
        });
        seen
    };
    for kind in 0..3 {
        for is_short in [false, true] {
            let mut site = Site::new();
            for n in 0..3000_u64 {
                let path = format!("/docs/{}", n % 10);
                let mut seen = good("a.example", &path, &path);
                if is_short {
                    seen.object = seen.object.map(|object| ObjectFacts {
                        lifetime_ms: 900,
                        ..object
                    });
                } else {
                    seen = without_lifetime(seen);
                }
                site.request(seen);
                if n % 100 == 1 {
                    let body = n.to_string();
                    let mut seen = of_user(kind, &body);
                    seen.body = Some(edgeward_types::xxh3::xxh3_64(body.as_bytes()));
                    site.request(seen);
                }
            }
            assert_eq!(site.findings(), [], "{kind} {is_short}");
        }
    }
}

/// The signature of a URL, a parameter without which the origin refuses, and one that selects few bodies.
#[test]
fn parameters_that_give_access_or_select_some_bodies_are_no_fault() {
    for (name, refuses, selects) in [
        ("X-Amz-Signature", false, false),
        ("url_token", false, false),
        ("accessToken", false, false),
        ("apikey", false, false),
        ("pwd", false, false),
        ("from", true, false),
        ("from", false, true),
    ] {
        let mut site = Site::new();
        for n in 0..2000_u64 {
            let target = format!("/p/{}?{name}={n}", n % 3);
            let mut seen = good("a.example", &target, "1");
            if refuses && n % 100 == 1 {
                (seen.status, seen.object) = (403, None);
            }
            site.request(seen);
            if selects && n % 100 < 2 {
                let target = format!("/article?{name}={n}");
                site.request(good("a.example", &target, &target));
            }
        }
        assert_eq!(site.findings(), [], "{name} {refuses} {selects}");
    }
}

/// A rule for a folder has its files, too. Method: one file of the folder says `no-store`.
#[test]
fn a_file_that_must_not_be_stored_forbids_a_lifetime_for_its_folder() {
    let mut site = Site::new();
    for n in 0..1000_u64 {
        site.request(without_lifetime(good("a.example", "/docs/1", "1")));
        if n % 100 == 1 {
            let mut live = without_lifetime(good("a.example", "/docs/live.txt", &n.to_string()));
            live.head = live.head.map(|head| ResponseFacts {
                cache_control: b"no-store",
                ..head
            });
            site.request(live);
        }
    }
    assert_eq!(site.findings(), []);
}

/// Method: two variants of a page have one body, and a third that few clients get has another one.
#[test]
fn a_vary_that_matters_to_few_clients_is_not_needless() {
    let mut site = Site::new();
    for n in 0..1000_u64 {
        let is_other = n % 100 == 1;
        let body = if is_other { "another page" } else { "a page" };
        let mut seen = good("a.example", "/news/today", body);
        seen.head = seen.head.map(|head| ResponseFacts {
            vary: b"User-Agent",
            ..head
        });
        seen.object = seen.object.map(|object| ObjectFacts {
            key: if is_other { 2 } else { n % 2 },
            ..object
        });
        site.request(seen);
    }
    assert_eq!(site.findings(), []);
}
