//! Rules and keys hold for all that an origin may read in a request: every reading of the path, every line of a field,
//! and the scheme that a trusted proxy states.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{ClientField, Networks};
use edgeward_sites::{
    Class, Condition, FieldChange, FieldCondition, PathPattern, RateKey, RateLimit, Redirect, Rule,
    Settings, Stated, StatusSet, Template,
};
use edgeward_testkit::programs::{ServerProcess, find, find_or_skip};
use edgeward_testkit::{Answer as OriginAnswer, RecordedRequest};
use edgeward_types::Pattern;
use http::{HeaderName, StatusCode};

use crate::one_site::set_site;
use crate::support::{Answer, TIMEOUT, TestBed, config_for};

fn glob(text: &str) -> Condition {
    Condition {
        paths: vec![PathPattern::glob(text).expect("a glob")],
        ..Condition::default()
    }
}

fn rule(condition: Condition, settings: Settings) -> Rule {
    Rule {
        condition,
        settings,
        line: 1,
    }
}

fn denying() -> Settings {
    Settings {
        deny: Stated::On(StatusCode::FORBIDDEN),
        ..Settings::default()
    }
}

fn storing() -> Settings {
    let mut settings = Settings::default();
    let week = Some(Duration::from_secs(7 * 86400));
    settings.ttl.insert(StatusSet::One(200), week);
    settings
}

fn trusting(config: &mut EdgeConfig) {
    config.forwarding.trusted_proxies = "127.0.0.0/8".parse().expect("a network");
}

/// The rules of a site with an administration, an account and static files.
fn guarded(config: &mut EdgeConfig) {
    let rules = vec![
        rule(glob("/static/*"), storing()),
        rule(glob("/admin/*"), denying()),
    ];
    set_site(config, Settings::default(), rules);
}

/// Paths that are below `/admin/` or `/account/` for some origins, and somewhere else for others.
const PATHS: [&str; 24] = [
    "/admin/x",
    "/admin/..%2fx",
    "/admin/../x",
    "/admin/%2e%2e/x",
    "/admin//../static/x",
    "/admin/x/../../",
    "/admin/.%2e/static/x",
    "/%61dmin/x",
    "//h/admin/x",
    "//admin/x",
    "/static/..%2fadmin/x",
    "/static/..\\admin/x",
    "/static/..;/admin/x",
    "/static%2f../admin/x",
    "/x%3f/../admin/x",
    "/account/..%2fstatic/x",
    "/account/%2e%2e/static/x",
    "/account/../static/x",
    "/account/x/..%2f..%2fstatic/x",
    "/account%2f..%2fstatic/x",
    "/account/..;/static/x",
    "/account%00/../static/x",
    "/static/..%2faccount/x",
    "/static/%2e%2e/account/x",
];

/// Method: an origin that compares the path as sent, with two clients for each path.
#[test]
fn rules_restrict_if_any_reading_matches_and_permit_if_all_do() {
    let bed = TestBed::with_config(guarded);
    bed.origin.otherwise(|request| {
        let path = request.path();
        let page = if path.starts_with("/admin/") {
            "ADMIN".to_owned()
        } else if path.starts_with("/account") {
            format!("PRIVATE {:?}", request.header("cookie"))
        } else {
            "OTHER".to_owned()
        };
        OriginAnswer::ok(page).header("cache-control", "private")
    });
    for path in PATHS {
        let first = bed.get_with(path, &[("cookie", "victim=1")]);
        let second = bed.get(path);
        for answer in [&first, &second] {
            assert!(!answer.text().contains("ADMIN"), "{path}");
        }
        assert!(!second.text().contains("victim"), "{path}");
    }
    // The readings of these paths agree.
    for path in ["/static/x", "/static/a%20b;c//d%2Fe"] {
        assert_eq!(bed.get(path).text(), "OTHER");
        assert!(bed.get(path).is_hit(), "{path}");
    }
    assert_eq!(bed.get("/other/..%2fx").status, 200);
}

/// A request whose readings select different rules is not answered from the cache either, on both paths of hits.
#[test]
fn a_disputed_rule_makes_a_request_bypass_the_cache() {
    let bed = TestBed::with_config(|config| {
        let mut headers = Settings::default();
        let text = Template::new("1", None).expect("a template");
        let set = FieldChange::Set(Arc::new(text));
        headers
            .request
            .insert(HeaderName::from_static("x-inner"), set);
        let country = Condition {
            fields: vec![FieldCondition {
                name: HeaderName::from_static("x-country"),
                values: vec![Pattern::new("DE")],
            }],
            ..Condition::default()
        };
        let rules = vec![rule(glob("/inner/*"), headers), rule(country, storing())];
        set_site(config, Settings::default(), rules);
    });
    bed.origin.otherwise(|request| {
        let text = format!("{:?}", request.header("x-inner"));
        OriginAnswer::ok(text).header("cache-control", "max-age=600")
    });
    for _ in 0..2 {
        let sent = [("x-inner", "2")];
        assert_eq!(bed.get_with("/inner/x", &sent).text(), "Some(\"1\")");
        // Neither the value of the client nor that of the rule.
        let disputed = bed.get_with("/inner/..%2fx", &sent);
        assert_eq!((disputed.text(), disputed.is_hit()), ("None", false));
        let two_lines = [("x-country", "DE"), ("x-country", "FR")];
        assert!(!bed.get_with("/y", &two_lines).is_hit());
    }
    assert!(!bed.get_with("/z", &[("x-country", "DE")]).is_hit());
    assert!(bed.get_with("/z", &[("x-country", "DE")]).is_hit());
}

#[test]
fn a_path_with_a_refused_form_gets_400() {
    let bed = TestBed::with_config(|config| {
        config.forwarding.refused_path_forms = "encoded-slash, dot-segment".parse().expect("forms");
    });
    bed.origin
        .otherwise(|_| OriginAnswer::ok("x").header("cache-control", "max-age=600"));
    for (path, status) in [
        ("/a%2fb", 400),
        ("/a/../b", 400),
        ("/a/%2e%2e/b", 400),
        ("/a//b", 200),
        ("/a%20b", 200),
        ("/a?%2f..", 200),
    ] {
        assert_eq!(bed.get(path).status, status, "{path}");
        assert_eq!(
            bed.get_with(path, &[("range", "bytes=0-")]).status / 100,
            status / 100,
            "{path}"
        );
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/whole/origin_programs")
        .join(name)
}

fn nginx(merge_slashes: &str) -> Option<ServerProcess> {
    ServerProcess::nginx(|_, addr| {
        format!(
            "access_log off; merge_slashes {merge_slashes};\n\
             server {{ listen {addr}; location /admin/ {{ return 200 ADMIN; }}\n\
             location /account/ {{ return 200 PRIVATE; }} location / {{ return 200 OTHER; }} }}"
        )
    })
}

fn apache() -> Option<ServerProcess> {
    ServerProcess::apache(&["rewrite"], |folder| {
        for page in ["ADMIN", "PRIVATE", "OTHER"] {
            std::fs::write(folder.join(page), page).expect("the page is written");
        }
        let folder = folder.display();
        format!(
            "AllowEncodedSlashes On\nRewriteEngine On\nRewriteRule ^/admin/ {folder}/ADMIN [L]\n\
             RewriteRule ^/account/ {folder}/PRIVATE [L]\nRewriteRule ^ {folder}/OTHER [L]\n"
        )
    })
}

/// Starts a program that prints its port.
fn script(program: &str, arguments: &[&str]) -> Option<ServerProcess> {
    let mut command = Command::new(find_or_skip(program)?);
    command.args(arguments);
    Some(ServerProcess::with_printed_port(command))
}

/// Starts the program `mux.go`, which is compiled into `folder`.
fn go(folder: &Path, mode: &str) -> Option<ServerProcess> {
    let binary = folder.join("origin");
    let built = Command::new(find_or_skip("go")?)
        .args(["build", "-o"])
        .args([&binary, &source("mux.go")])
        .current_dir(folder)
        .status()
        .expect("the compiler starts");
    assert!(built.success(), "mux.go compiles");
    script(&binary.display().to_string(), &[mode])
}

/// Returns the path of a program that `make test` does not install, because its package is large.
fn find_optional(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

fn php() -> Option<ServerProcess> {
    let program = find_optional("php")?;
    ServerProcess::start(&program, |folder, addr| {
        let mut command = Command::new(&program);
        command.args(["-S", &addr.to_string(), "-t"]).arg(folder);
        command.arg(source("router.php"));
        command
    })
}

/// Returns the real origins that are installed.
fn origins() -> Vec<(&'static str, ServerProcess)> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name| source(name).display().to_string();
    let all = [
        ("nginx", nginx("on")),
        ("nginx, merge_slashes off", nginx("off")),
        ("Apache", apache()),
        (
            "Node, as Express",
            script("node", &[&file("node.js"), "raw"]),
        ),
        ("Node, new URL", script("node", &[&file("node.js"), "url"])),
        ("Python, WSGI", script("python3", &[&file("wsgi.py")])),
        ("Go, ServeMux", go(folder.path(), "mux")),
        ("Go, own handler", go(folder.path(), "own")),
        ("PHP", php()),
        (
            "JDK",
            find_optional("java").and_then(|_| script("java", &[&file("Contexts.java")])),
        ),
    ];
    let installed = all
        .into_iter()
        .filter_map(|(name, program)| Some((name, program?)));
    installed.collect()
}

/// Returns the page that an origin sends for a path.
fn page_of(origin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(origin).expect("the origin listens");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("the timeout can be set");
    let head = format!("GET {path} HTTP/1.1\r\nHost: test.example\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the origin reads");
    let mut response = Vec::new();
    _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// Method: each origin is asked for each path directly. If it sends the page of the administration, the edge must deny
/// the path. If it sends the page of an account, the edge must not store it by the rule for static files.
#[test]
fn rules_hold_for_what_real_origins_read() {
    for (name, program) in origins() {
        let mut config = config_for(program.addr());
        guarded(&mut config);
        let edge = edgeward_proxy::Edge::start(config).expect("the edge starts");
        let get = |path: &str| -> Answer {
            crate::support::Client::connect(edge.addrs()[0]).get(path, &[])
        };
        let mut pages = 0;
        for path in PATHS {
            let page = page_of(program.addr(), path);
            let answers = [get(path), get(path)];
            if page.ends_with("ADMIN") {
                pages += 1;
                assert_eq!(answers[1].status, 403, "{name} {path}");
            }
            if page.ends_with("PRIVATE") {
                pages += 1;
                assert!(!answers[1].is_hit(), "{name} {path}");
            }
        }
        assert!(pages > 1, "{name} has pages of both kinds");
        edge.shutdown(TIMEOUT);
    }
}

/// Method: a proxy that appends to `X-Forwarded-For` forwards `Connection` of its client.
#[test]
fn connection_removes_no_field_that_the_edge_reads() {
    let field = |name, value| Condition {
        fields: vec![FieldCondition {
            name: HeaderName::from_static(name),
            values: vec![Pattern::new(value)],
        }],
        ..Condition::default()
    };
    let bed = TestBed::with_config(|config| {
        trusting(config);
        let of_proxy = Condition {
            clients: vec!["127.0.0.0/8".parse().expect("a network")],
            ..glob("/admin/*")
        };
        let admitting = Settings {
            deny: Stated::Off,
            ..Settings::default()
        };
        let limit = RateLimit {
            number: 0,
            requests: 1,
            per: Duration::from_secs(3600),
            burst: 1,
            by: RateKey::Client,
        };
        let limiting = Settings {
            rate_limit: Stated::On(Arc::new(limit)),
            ..Settings::default()
        };
        let rules = vec![
            rule(glob("/admin/*"), denying()),
            rule(of_proxy, admitting),
            rule(field("x-country", "XX"), denying()),
            rule(glob("/login"), limiting),
        ];
        let keyed: Class = "header:x-theme".parse().expect("a class");
        let settings = Settings {
            key: Some(Arc::new([keyed])),
            ..Settings::default()
        };
        set_site(config, settings, rules);
    });
    bed.origin.otherwise(echo);
    let client = ("x-forwarded-for", "203.0.113.9");
    let get = |path: &str, line: (&str, &str), listed: &str| {
        bed.get_with(path, &[line, ("connection", listed)])
    };
    assert_eq!(get("/admin/x", client, "X-Forwarded-For").status, 403);
    assert_eq!(
        get("/admin/x", client, "close, x-forwarded-for").status,
        403
    );
    assert_eq!(get("/a", ("x-country", "XX"), "X-Country").status, 403);
    assert_eq!(get("/login", client, "keep-alive").status, 200);
    assert_eq!(get("/login", client, "X-Forwarded-For").status, 429);
    let themed = get("/themed", ("x-theme", "dark"), "X-Theme");
    assert!(themed.text().contains("x-theme: dark"), "{}", themed.text());
    assert!(!bed.get("/themed").is_hit());
    // Other fields are still removed (RFC 9110 §7.6.1).
    assert!(
        !get("/b", ("x-mine", "1"), "X-Mine")
            .text()
            .contains("x-mine")
    );
}

/// Answers with the fields of the request.
fn echo(request: &RecordedRequest) -> OriginAnswer {
    OriginAnswer::ok(request.head().to_lowercase()).header("cache-control", "max-age=600")
}

/// A second value must not reach the origin unless it is in the key.
#[test]
fn a_key_has_every_value_that_the_origin_gets() {
    let bed = TestBed::with_config(|config| {
        let parts = ["header:x-theme", "cookie:cur"].map(|part| part.parse().expect("a class"));
        let settings = Settings {
            key: Some(Arc::new(parts)),
            ..Settings::default()
        };
        set_site(config, settings, Vec::new());
    });
    bed.origin.otherwise(echo);
    for (path, evil, honest) in [
        (
            "/a",
            &[("x-theme", "dark"), ("x-theme", "evil")][..],
            ("x-theme", "dark"),
        ),
        (
            "/b",
            &[("cookie", "cur=EUR; cur=evil")],
            ("cookie", "cur=EUR"),
        ),
        (
            "/c",
            &[("cookie", "cur=EUR"), ("cookie", "cur=evil")],
            ("cookie", "cur=EUR"),
        ),
        (
            "/d",
            &[("cookie", "cur=EUR, cur=evil")],
            ("cookie", "cur=EUR"),
        ),
    ] {
        assert!(bed.get_with(path, evil).text().contains("evil"), "{path}");
        for hit in [false, true] {
            let answer = bed.get_with(path, &[honest]);
            assert!(!answer.text().contains("evil"), "{path}");
            assert_eq!(answer.is_hit(), hit, "{path}");
        }
    }
}

/// Redirects `http` to `https`, as the page about sites shows. The origin does the same, and its redirect is stored.
fn behind_tls(config: &mut EdgeConfig) {
    let redirecting = Settings {
        redirect: Stated::On(Arc::new(Redirect {
            status: StatusCode::MOVED_PERMANENTLY,
            location: Template::new("https://${host}${uri}", None).expect("a template"),
        })),
        ..Settings::default()
    };
    let http = Condition {
        schemes: vec!["http".into()],
        ..glob("/rule/*")
    };
    let mut settings = Settings::default();
    let text = Template::new("${scheme}", None).expect("a template");
    let name = HeaderName::from_static("x-scheme");
    settings
        .response
        .insert(name, FieldChange::Set(Arc::new(text)));
    set_site(config, settings, vec![rule(http, redirecting)]);
}

fn redirecting_origin(request: &RecordedRequest) -> OriginAnswer {
    let location = format!("https://test.example{}", request.target());
    let answer = match request.header("x-forwarded-proto") {
        Some("https") => OriginAnswer::ok("secure"),
        _ => OriginAnswer::status(301).header("location", &location),
    };
    answer.header("cache-control", "max-age=600")
}

#[test]
fn the_scheme_of_a_trusted_proxy_is_the_scheme_of_the_request() {
    for field in [
        ClientField::XForwardedFor,
        ClientField::Forwarded,
        ClientField::None,
    ] {
        let bed = TestBed::with_config(|config| {
            trusting(config);
            config.forwarding.client_field = field;
            behind_tls(config);
        });
        bed.origin.otherwise(redirecting_origin);
        for (https, http) in [
            (
                ("x-forwarded-proto", "https"),
                ("x-forwarded-proto", "http"),
            ),
            (
                ("forwarded", "for=192.0.2.1;proto=https"),
                ("forwarded", "for=192.0.2.1;proto=http"),
            ),
        ] {
            for path in [format!("/{}", https.0), format!("/rule/{}", https.0)] {
                for _ in 0..2 {
                    let answer = bed.get_with(&path, &[http]);
                    assert_eq!(
                        (answer.status, answer.header("x-scheme")),
                        (301, Some("http")),
                        "{path} {field:?}"
                    );
                    let answer = bed.get_with(&path, &[https]);
                    assert_eq!(answer.text(), "secure", "{path} {field:?}");
                    assert_eq!(answer.header("x-scheme"), Some("https"));
                }
            }
        }
        let lists = [
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "https, http"),
        ];
        assert_eq!(bed.get_with("/list", &lists).status, 301);
        let forwarded = bed.origin.last("/list").expect("a request");
        assert_eq!(
            forwarded.header("x-forwarded-proto"),
            Some("http"),
            "the scheme of the key"
        );
    }
}

/// Hits of the fast path, whose connection has requests of both schemes.
#[test]
fn one_connection_of_a_trusted_proxy_has_both_schemes() {
    let bed = TestBed::with_config(trusting);
    bed.origin.otherwise(redirecting_origin);
    let mut client = bed.connect();
    for hit in [false, true, true] {
        for (scheme, status) in [("https", 200), ("http", 301)] {
            for host in ["test.example", "test.example:443"] {
                let fields = [("host", host), ("x-forwarded-proto", scheme)];
                let answer = client.get(&format!("/{host}"), &fields);
                assert_eq!(
                    (answer.status, answer.is_hit()),
                    (status, hit),
                    "{scheme} {host}"
                );
            }
        }
    }
}

#[test]
fn the_scheme_of_a_stranger_does_not_count() {
    let bed = TestBed::with_config(behind_tls);
    bed.origin.otherwise(redirecting_origin);
    let https = [("x-forwarded-proto", "https"), ("forwarded", "proto=https")];
    assert_eq!(bed.get_with("/a", &https).status, 301);
}

/// The proxy ends TLS and says so in the PROXY header.
#[test]
fn the_scheme_of_a_proxy_header_is_the_scheme_of_the_request() {
    let bed = TestBed::with_config(|config| {
        let proxies: Networks = "127.0.0.0/8".parse().expect("a network");
        config.listeners[0].proxy_protocol_from = Some(proxies);
        behind_tls(config);
    });
    bed.origin.otherwise(redirecting_origin);
    let header = |client: u8| {
        let mut bytes =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x14\xc0\0\x02\x07\xc0\0\x02\x01\xc3\x50\x01\xbb"
                .to_vec();
        bytes.extend_from_slice(&[0x20, 0, 5, client, 0, 0, 0, 0]);
        bytes
    };
    for path in ["/a", "/rule/a"] {
        for (client, status) in [(1, 200), (0, 301), (1, 200)] {
            let mut connection = bed.connect();
            connection.send(header(client));
            assert_eq!(connection.get(path, &[]).status, status, "{path}");
        }
    }
}
