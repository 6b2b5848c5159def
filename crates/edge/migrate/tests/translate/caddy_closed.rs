//! The translation of Caddyfiles fails closed: it admits no request that Caddy denies, stores no response that Caddy
//! does not store, and each directive that it leaves out has an entry.

use edgeward_migrate::{MigrateError, Migration, Outcome, caddy};
use proptest::prelude::*;

use crate::caddy_oracle::{Admitted, Statement, answer, block, requests, text};
use crate::support::Files;
use crate::written::{Request, Rules};

fn translate(text: &str) -> Result<Migration, MigrateError> {
    caddy(&Files::of(&[("t", text)]), &["t".to_owned()], "/etc/caddy")
}

/// A site, whose first line is line 2 of the file, and requests.
struct Case {
    site: &'static str,
    /// The lines of directives that were left out.
    losses: &'static [usize],
    denied: &'static [&'static str],
    /// Requests that an origin gets, with `cached` at the end if the response may be stored.
    admitted: &'static [&'static str],
}

const CASES: &[Case] = &[
    // A condition that is wider than its matcher denies, and serves to nothing else.
    Case {
        site: "@ok query token=s3cret\nhandle @ok {\nreverse_proxy b\n}\nrespond 403",
        losses: &[3],
        denied: &["/?token=s3cret", "/?token=x", "/"],
        admitted: &[],
    },
    Case {
        site: "@bad query token=x\nrespond @bad 403\nreverse_proxy b",
        losses: &[],
        denied: &["/?token=x", "/?token=y"],
        admitted: &["/"],
    },
    Case {
        site: "@tok not header_regexp X-Token ^secret[0-9]$\nrespond @tok 403\nreverse_proxy b",
        losses: &[3],
        denied: &["/", "/ X-Token:secret", "/ X-Token:secret1"],
        admitted: &[],
    },
    Case {
        site: "@tok not header_regexp X-Token ^secret1$\nrespond @tok 403\nreverse_proxy b",
        losses: &[],
        denied: &["/", "/ X-Token:secret"],
        admitted: &["/ X-Token:secret1"],
    },
    Case {
        site: "@c header_regexp Cookie session=[a-z]+9\nrespond @c 403\nreverse_proxy b",
        losses: &[],
        denied: &["/ Cookie:session=a9", "/ Cookie:session=a99"],
        admitted: &["/ Cookie:a=b"],
    },
    Case {
        site: "@c header_regexp X-A (?i)^evil$\nrespond @c 403\nreverse_proxy b",
        losses: &[3],
        denied: &["/ X-A:eViL", "/"],
        admitted: &[],
    },
    // All parameters of `query` are needed.
    Case {
        site: "@two query a=* b=*\nhandle @two {\nreverse_proxy b\n}\nrespond 403",
        losses: &[3],
        denied: &["/?a=1", "/?a=1&b=1"],
        admitted: &[],
    },
    // The path of a named matcher decides about the order.
    Case {
        site: "@p path /files/private/*\nhandle /files/* {\nreverse_proxy b\n}\nhandle @p {\nrespond 403\n}",
        losses: &[],
        denied: &["/files/private/x", "/FILES/Private/x"],
        admitted: &["/files/x"],
    },
    // Each block has its own matchers.
    Case {
        site: "handle /a/* {\n@ok remote_ip 10.0.0.0/8\nhandle @ok {\nreverse_proxy b\n}\nrespond 403\n}\n\
               handle /b/* {\n@ok remote_ip 0.0.0.0/0\nhandle @ok {\nreverse_proxy b\n}\nrespond 403\n}",
        losses: &[],
        denied: &["/a/x"],
        admitted: &["/a/x from:10.0.0.1", "/b/x"],
    },
    // Matchers compare the path that the directives in front of them have left.
    Case {
        site: "handle_path /api/* {\nrespond /admin/* 403\nreverse_proxy b\n}",
        losses: &[],
        denied: &["/api/admin/x", "/admin/x"],
        admitted: &["/api/x"],
    },
    Case {
        site: "uri strip_prefix /api\nbasic_auth /admin/* {\na b\n}\nreverse_proxy b",
        losses: &[3],
        denied: &["/api/admin/x", "/admin/x", "/x"],
        admitted: &[],
    },
    Case {
        site: "rewrite /old/* /admin/x\nrespond /admin/* 403\nreverse_proxy b",
        losses: &[3],
        denied: &["/old/x", "/admin/x"],
        admitted: &[],
    },
    // The first `rewrite` counts.
    Case {
        site: "rewrite /a/* /public\nrewrite * /b\nrewrite /c\nreverse_proxy b",
        losses: &[4],
        denied: &["/c"],
        admitted: &["/a/x"],
    },
    // Matchers compare the query that the directives in front of them have left.
    Case {
        site: "rewrite /old /new?admin=1\n@a query admin=*\nrespond @a 403\nreverse_proxy b",
        losses: &[4],
        denied: &["/old", "/old?admin=1", "/?admin=1"],
        admitted: &[],
    },
    Case {
        site: "handle /p/* {\nrewrite * {path}?role=guest\n@g query role=guest\nrespond @g 403\nreverse_proxy b\n}\n\
               reverse_proxy b",
        losses: &[5],
        denied: &["/p/x", "/p/x?role=admin"],
        admitted: &["/x"],
    },
    Case {
        site: "uri query -token\n@a not query token=*\nrespond @a 403\nreverse_proxy b",
        losses: &[2, 4],
        denied: &["/?token=1", "/"],
        admitted: &[],
    },
    Case {
        site: "request_header Host b.example\n@b host b.example\nrespond @b 403\nreverse_proxy b",
        losses: &[4],
        denied: &["/"],
        admitted: &[],
    },
    // A field that a directive removes is not that of the client.
    Case {
        site: "request_header -X-User\n@u header X-User *\nhandle @u {\nreverse_proxy b\n}\nrespond 403",
        losses: &[4],
        denied: &["/ X-User:a"],
        admitted: &[],
    },
    // Directives within a block that was left out may have changed fields.
    Case {
        site: "@u expression true\nroute @u {\nrequest_header X-Role guest\n}\n@g header X-Role guest\n\
               respond @g 403\nreverse_proxy b",
        losses: &[3, 7],
        denied: &["/ X-Role:guest", "/"],
        admitted: &[],
    },
    Case {
        site: "@u expression true\nhandle @u {\nroute {\nrequest_header -X-*\n}\nreverse_proxy b\n}\nreverse_proxy b",
        losses: &[3, 5],
        denied: &["/ X-Role:a"],
        admitted: &[],
    },
    Case {
        site: "method POST\n@p method POST\nrespond @p 403\nreverse_proxy b",
        losses: &[2, 4],
        denied: &["/", "POST /"],
        admitted: &[],
    },
    Case {
        site: "@p method POST\nrespond @p 403\nreverse_proxy b",
        losses: &[],
        denied: &["POST /"],
        admitted: &["/"],
    },
    // The edge finds the name of a parameter in more queries than Caddy.
    Case {
        site: "@t not query token=*\nrespond @t 403\nreverse_proxy b",
        losses: &[3],
        denied: &["/", "/?x=1;token=2", "/?token[]=2"],
        admitted: &[],
    },
    Case {
        site: "@t {\npath /a/*\nnot {\nquery token=*\n}\n}\nrespond @t 403\nreverse_proxy b",
        losses: &[8],
        denied: &["/a/x", "/a/x?token[]=2"],
        admitted: &["/b"],
    },
    Case {
        site: "@t query token=*\nroute {\nreverse_proxy @t b\nredir /login\n}",
        losses: &[5],
        denied: &["/"],
        admitted: &["/?token=x"],
    },
    // Responses of the origin may be replaced by a denial.
    Case {
        site: "intercept /a/* {\n@no status 404\nhandle_response @no {\nrespond 403\n}\n}\nreverse_proxy b",
        losses: &[2],
        denied: &["/a/x"],
        admitted: &["/x"],
    },
    Case {
        site: "intercept /a/* {\nhandle_response {\nheader X-A b\ncopy_response\n}\n}\nreverse_proxy b",
        losses: &[2],
        denied: &[],
        admitted: &["/a/x"],
    },
    // A directive without a condition denies, as far as its matcher is known.
    Case {
        site: "@x {\npath /b/*\nexpression {path}.startsWith(\"/b\")\n}\nrespond @x 403\nreverse_proxy b",
        losses: &[6],
        denied: &["/b/x"],
        admitted: &["/a"],
    },
    Case {
        site: "@x expression true\nabort @x\nreverse_proxy b",
        losses: &[3],
        denied: &["/"],
        admitted: &[],
    },
    Case {
        site: "@x expression true\nredir @x /login\nreverse_proxy b",
        losses: &[3],
        denied: &["/"],
        admitted: &[],
    },
    Case {
        site: "@a expression true\nhandle @a {\nbasic_auth {\na b\n}\nreverse_proxy b\n}\nhandle {\nreverse_proxy c\n}",
        losses: &[3],
        denied: &["/"],
        admitted: &[],
    },
    Case {
        site: "@a expression true\nhandle @a {\nreverse_proxy b\n}\nhandle {\ncache\nreverse_proxy c\n}",
        losses: &[3],
        denied: &[],
        admitted: &["/"],
    },
    Case {
        site: "handle {$ADMIN}/* {\nreverse_proxy b\n}\nrespond 403",
        losses: &[2],
        denied: &["/admin/x", "/"],
        admitted: &[],
    },
    Case {
        site: "authorize with admins\nreverse_proxy b",
        losses: &[2],
        denied: &["/"],
        admitted: &[],
    },
    Case {
        site: "import auth\nreverse_proxy b",
        losses: &[2],
        denied: &["/"],
        admitted: &[],
    },
    Case {
        site: "metrics /metrics\nreverse_proxy b",
        losses: &[2],
        denied: &["/metrics"],
        admitted: &["/"],
    },
    // An option that answers responses of the origin may deny.
    Case {
        site: "reverse_proxy /a/* c {\n@no status 403\nhandle_response @no {\nrespond 404\n}\n}\nreverse_proxy b",
        losses: &[2],
        denied: &["/a/x"],
        admitted: &["/x"],
    },
    // A host that a matcher excludes has other rules.
    Case {
        site: "@x not host a.example\nrespond @x 403\nreverse_proxy b",
        losses: &[],
        denied: &[],
        admitted: &["/"],
    },
    // Options of the global `cache` and exclusions count for each `cache`.
    Case {
        site: "handle /x* {\ncache\nreverse_proxy b\n}\nhandle {\nreverse_proxy b\n}",
        losses: &[],
        denied: &[],
        admitted: &["/x cached", "/x/excluded", "/x?excluded", "/a"],
    },
    Case {
        site: "cache /a/* {\nregex {\nexclude ^/a/b\n}\n}\ncache {\nttl 1h\n}\nreverse_proxy b",
        losses: &[],
        denied: &[],
        admitted: &["/a/b", "/a/c cached", "/c cached"],
    },
    Case {
        site: "cache {\nkey {\nheaders X\ntemplate y\n}\n}\nreverse_proxy b",
        losses: &[3],
        denied: &[],
        admitted: &["/"],
    },
    Case {
        site: "cache\n@m expression true\nheader @m Cache-Control no-store\nreverse_proxy b",
        losses: &[4],
        denied: &[],
        admitted: &["/"],
    },
    // Caddy compares paths without regard to case, and a `*` in the middle with a part of one segment.
    Case {
        site: "respond /admin/* 403\nhandle /a/*/b {\nreverse_proxy b\n}",
        losses: &[],
        denied: &["/Admin/x", "/a/x/y/b"],
        admitted: &["/a/x/b", "/A/x/B"],
    },
];

#[test]
fn a_directive_that_rules_cannot_state_denies_or_bypasses_the_cache() {
    for case in CASES {
        // The exclusion of the global options is that of the cases with `excluded`.
        let text = format!(
            "http://a.example {{\n{}\n}}\n{}",
            case.site, "http://z.example {\nreverse_proxy z\n}\n"
        );
        let global = "{\ncache {\nregex {\nexclude excluded\n}\n}\n}\n";
        let (text, lines) = match case.site.contains("cache\n") {
            true => (format!("{global}{text}"), global.matches('\n').count()),
            false => (text, 0),
        };
        let migration = translate(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let losses = migration.report.losses();
        let losses: Vec<usize> = losses.map(|entry| entry.at.line - lines).collect();
        assert_eq!(losses, case.losses, "{text}\n{:#?}", migration.report);
        let rules = Rules::of(&migration.toml, "a.example");
        for request in case.denied {
            let answer = rules.answer(&Request::of(request));
            assert_eq!(answer.origin, None, "{request}\n{text}\n{}", migration.toml);
        }
        for request in case.admitted {
            let plain = request.strip_suffix(" cached").unwrap_or(request);
            let answer = rules.answer(&Request::of(plain));
            assert!(
                answer.origin.is_some(),
                "{request}\n{text}\n{}",
                migration.toml
            );
            let is_cached = plain != *request;
            assert_eq!(
                answer.is_cached, is_cached,
                "{request}\n{text}\n{}",
                migration.toml
            );
        }
    }
}

/// Requests of hosts that Caddy answers by another site than the edge are denied: for each configuration the lines that
/// were left out, and the requests of hosts with true if an origin gets them.
#[test]
fn requests_that_another_site_of_caddy_answers_are_denied() {
    const PROXY: &str = "{\nreverse_proxy b\n}\n";
    type Answers<'a> = &'a [(&'a str, &'a str, bool)];
    let table: &[(&str, &[usize], Answers<'_>)] = &[
        // `*` is one label.
        (
            "http://*.a.example PROXY:80 {\nrespond 403\n}\n",
            &[1],
            &[
                ("*.a.example", "/ host:x.a.example", true),
                ("*.a.example", "/ host:x.y.a.example", false),
                ("*", "/", false),
            ],
        ),
        // No site of Caddy has the host.
        (
            "http://*.a.example PROXY",
            &[],
            &[
                ("*.a.example", "/ host:x.a.example", true),
                ("*.a.example", "/ host:x.y.a.example", false),
                ("*.a.example", "/ host:x.ya.example", false),
            ],
        ),
        (
            ":80 {\n@a host *.a.example\nhandle @a PROXYrespond 403\n}\n",
            &[1],
            &[
                ("*.a.example", "/ host:x.a.example", true),
                ("*.a.example", "/ host:x.y.a.example", false),
                ("*", "/", false),
            ],
        ),
        (
            "http://*.a.example {\n@x host x.a.example\nhandle @x PROXY@y host x.y.a.example\nhandle @y PROXY}\n",
            &[],
            &[("x.a.example", "/", true), ("x.y.a.example", "/", false)],
        ),
        // A site of a path.
        (
            "http://a.example/admin/* {\nrespond 403\n}\nhttp://a.example PROXY",
            &[1, 2],
            &[("a.example", "/Admin/x", false), ("a.example", "/", true)],
        ),
        (
            "http://a.example/admin http://a.example/ {\nrespond 403\n}\n:80 PROXY",
            &[1, 2],
            &[
                ("a.example", "/admin", false),
                ("a.example", "/", false),
                ("a.example", "/admin/x", true),
                ("*", "/admin", true),
            ],
        ),
        (
            "http://x.y.a.example/b* {\nrespond 403\n}\nhttp://*.a.example PROXY",
            &[1, 2],
            &[
                ("x.y.a.example", "/b", false),
                ("*.a.example", "/b host:x.a.example", true),
            ],
        ),
        (
            "http:///%61* {\nrespond 403\n}\nhttp://a.example PROXY",
            &[1, 2],
            &[("a.example", "/", false)],
        ),
    ];
    for (text, losses, answers) in table {
        let text = text.replace("PROXY", PROXY) + "http://z.example {\nreverse_proxy z\n}\n";
        let migration = translate(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = migration.report.losses().map(|entry| entry.at.line);
        assert_eq!(
            found.collect::<Vec<_>>(),
            *losses,
            "{text}\n{}",
            migration.toml
        );
        for (host, request, is_admitted) in *answers {
            let answer = Rules::of(&migration.toml, host).answer(&Request::of(request));
            let found = answer.origin.is_some();
            assert_eq!(found, *is_admitted, "{host}{request}\n{}", migration.toml);
        }
    }
    for address in ["{$HOST}", "http://a.*.example", "ftp://a.example"] {
        let text = format!("{address} {{\nrespond 403\n}}\n:80 {PROXY}");
        let error = translate(&text).err();
        assert!(
            matches!(error, Some(MigrateError::UnknownAddress { .. })),
            "{address}: {error:?}"
        );
    }
}

/// Directives that change the whole edge: the expected parts of the result, and the lines that were left out.
#[test]
fn addresses_and_trusted_proxies_are_those_of_caddy() {
    const PROXY: &str = "reverse_proxy b\n}\n";
    for (text, parts, losses) in [
        (
            format!("http://a.example {{\nbind 127.0.0.1\n{PROXY}"),
            &["address = \"127.0.0.1:80\""][..],
            &[][..],
        ),
        (
            format!("{{\ndefault_bind 127.0.0.1 [::1]\n}}\n:9000 {{\n{PROXY}"),
            &["\"127.0.0.1:9000\"", "\"[::1]:9000\""],
            &[],
        ),
        (
            format!("{{\nhttp_port 8080\n}}\nhttp://a.example {{\n{PROXY}"),
            &["\"0.0.0.0:8080\""],
            &[],
        ),
        (
            format!("a.example:8443 {{\n{PROXY}"),
            &["\"0.0.0.0:8443\"", "https://${host}:8443${uri}"],
            &[],
        ),
        (
            format!("http://a.example {{\n{PROXY}http://b.example {{\nbind 127.0.0.1\n{PROXY}"),
            &["hosts = [\"b.example\"]\ncompression = false\ndeny = 403"],
            &[5],
        ),
        (
            format!("http://a.example {{\nbind eth0\n{PROXY}"),
            &["deny = 403"],
            &[2],
        ),
        (
            format!("a.example {{\ntls /c /k {{\nclient_auth {{\nmode require\n}}\n}}\n{PROXY}"),
            &["deny = 403"],
            &[3],
        ),
        (
            format!(
                "{{\nservers {{\ntrusted_proxies static 10.0.0.0/8\n}}\n}}\nhttp://a.example {{\n\
                 @x remote_ip 10.0.0.0/8\nhandle @x {{\n{PROXY}respond 403\n}}\n"
            ),
            &["deny = 403", "trusted_proxies"],
            &[8],
        ),
        (
            format!(
                "{{\nservers {{\ntrusted_proxies static 10.0.0.0/8\n}}\n}}\nhttp://a.example {{\n\
                 @x not client_ip 10.0.0.0/8\nrespond @x 403\n{PROXY}"
            ),
            &["client = \"10.0.0.0/8\"\ndeny = false"],
            &[],
        ),
        (
            format!(
                "{{\norder nothing before respond\norder respond before nowhere\n}}\na {{\n{PROXY}"
            ),
            &[],
            &[3],
        ),
    ] {
        let migration = translate(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<usize> = migration
            .report
            .losses()
            .map(|entry| entry.at.line)
            .collect();
        assert_eq!(found, losses, "{text}\n{:#?}", migration.report);
        for part in parts {
            assert!(migration.toml.contains(part), "{part}\n{}", migration.toml);
        }
    }
}

/// The option `order` decides which directive answers.
#[test]
fn the_option_order_is_that_of_the_rules() {
    let site = "http://a.example {\nrespond /x 403\nhandle {\nreverse_proxy b\n}\n}\n";
    for (option, is_admitted) in [("", true), ("{\norder respond before handle\n}\n", false)] {
        let migration = translate(&format!("{option}{site}")).expect("translated");
        let rules = Rules::of(&migration.toml, "a.example");
        let answer = rules.answer(&Request::of("/x"));
        assert_eq!(answer.origin.is_some(), is_admitted, "{}", migration.toml);
    }
}

/// The comparison of conditions is limited by its steps, and not by time.
#[test]
fn a_configuration_with_too_many_conditions_is_refused() {
    let paths: Vec<String> = (0..20_000).map(|n| format!("/{n}")).collect();
    let text = format!(
        "a.example {{\n@m path {}\nrespond @m 403\nreverse_proxy b\n}}\n",
        paths.join(" ")
    );
    assert_eq!(translate(&text).err(), Some(MigrateError::TooLarge));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The result admits no request that Caddy denies, and stores no response that Caddy does not. If nothing was left
    /// out and nothing differs, it admits the same requests to the same origins, by the same paths.
    #[test]
    fn no_request_is_admitted_that_caddy_denies(statements in block(3)) {
        let text = format!(
            "http://a.example {{\n{}}}\nhttp://z.example {{\nreverse_proxy z\n}}\n",
            text(&statements)
        );
        let migration = match translate(&text) {
            Ok(migration) => migration,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
        };
        let rules = Rules::of(&migration.toml, "a.example");
        let is_exact = migration.report.losses().next().is_none()
            && migration.report.entries.iter().all(|entry| entry.outcome != Outcome::Differs);
        for request in requests() {
            let found = rules.answer(&request);
            let expected: Option<Admitted> = answer(&statements, &request);
            let context = format!("{request:?}\n{expected:?}\n{found:?}\n{text}\n{}", migration.toml);
            match &expected {
                None => prop_assert!(found.origin.is_none(), "admitted: {}", context),
                Some(expected) => {
                    let is_stored = found.is_cached && found.origin.is_some();
                    prop_assert!(expected.is_cached || !is_stored, "stored: {}", context);
                    if is_exact {
                        let origin = Some((expected.origin.clone(), expected.path.clone()));
                        prop_assert!(found.origin == origin, "exact: {}", context);
                    }
                }
            }
        }
    }
}

/// The statements of the property occur with all their forms.
#[test]
fn the_oracle_applies_the_order_of_caddy() {
    use Statement::{Handle, Proxy, Respond};
    let proxy = |name| Proxy(crate::caddy_oracle::Matcher::All, name);
    let path = crate::caddy_oracle::Matcher::Path;
    let site = vec![
        Handle(path("/a*"), vec![proxy(1)]),
        Handle(
            path("/a/b"),
            vec![Respond(crate::caddy_oracle::Matcher::All)],
        ),
    ];
    assert!(answer(&site, &Request::of("/a/b")).is_none());
    let admitted = answer(&site, &Request::of("/A/c")).expect("admitted");
    assert_eq!(admitted.origin, "o1-80");
}
