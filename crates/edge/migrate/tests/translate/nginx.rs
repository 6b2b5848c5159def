//! Laws of the translation of nginx's configurations, over configurations of the kinds that operators publish.

use edgeward_migrate::{Effect, Entry, MigrateError, Migration, Paths, SITE_RULES_MAX, nginx};
use proptest::prelude::*;

use crate::support::{Files, Listed, assert_documented, assert_listed, changed, changes, corpus};

pub(crate) fn translate(name: &str, text: &str) -> Result<Migration, MigrateError> {
    let files = Files::of(&[(name, text)]);
    let paths = Paths {
        prefix: "/etc/nginx".to_owned(),
        disk: "/var/cache/edgeward/disk".to_owned(),
    };
    nginx(&files, &[name.to_owned()], &paths)
}

/// The number of directives, by the characters outside of quotes and comments that end one.
fn directives(text: &str) -> usize {
    let mut count = 0;
    let (mut quote, mut is_comment, mut is_start, mut is_escaped) = (None, false, true, false);
    let mut before = ' ';
    for c in text.chars() {
        match (quote, c) {
            _ if is_comment => is_comment = c != '\n',
            _ if is_escaped => is_escaped = false,
            (_, '\\') => is_escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '#') if is_start => is_comment = true,
            (None, '"' | '\'') if is_start => quote = Some(c),
            (None, ';') => count += 1,
            (None, '{') if before != '$' => count += 1,
            _ => {}
        }
        is_start = c.is_whitespace() || matches!(c, ';' | '{' | '}');
        before = c;
    }
    count
}

fn is_of_cache(entry: &Entry) -> bool {
    let name = entry.directive.split(' ').next().unwrap_or_default();
    name.starts_with("proxy_cache")
        || matches!(
            name,
            "proxy_no_cache" | "proxy_ignore_headers" | "proxy_buffering" | "expires" | "slice"
        )
}

/// For each configuration: its directives of caching, how many of them are translated, and the lines that are lost.
const EXPECTED: &[Listed] = &[
    ("api-gateway.conf", 6, 6, &[]),
    ("discourse.conf", 7, 7, &[]),
    ("django.conf", 8, 8, &[]),
    ("docker-registry.conf", 6, 6, &[]),
    ("drupal.conf", 9, 9, &[]),
    ("gitlab.conf", 7, 7, &[]),
    ("image-resizer.conf", 8, 8, &[]),
    ("jenkins.conf", 4, 4, &[]),
    ("magento.conf", 13, 13, &[]),
    ("mastodon.conf", 9, 9, &[]),
    ("news.conf", 11, 11, &[]),
    ("nextcloud.conf", 5, 5, &[]),
    ("npm-registry.conf", 7, 7, &[]),
    ("package-mirror.conf", 11, 11, &[]),
    ("rails.conf", 6, 6, &[]),
    ("spa.conf", 8, 8, &[]),
    ("tenants.conf", 6, 6, &[]),
    ("video.conf", 14, 14, &[]),
    ("whole.conf", 7, 7, &[]),
    ("wiki.conf", 7, 7, &[]),
    ("wordpress.conf", 13, 13, &[45]),
];

/// Each directive of each configuration has one entry, and all losses are those that are listed.
#[test]
fn each_configuration_is_translated_as_far_as_it_is_listed() {
    let check = |name: &str, text: &str, entries: &[Entry]| {
        assert_eq!(entries.len(), directives(text), "{name}: entries");
    };
    assert_listed("nginx", translate, is_of_cache, check, EXPECTED);
}

/// Directives that the edge cannot replace, each in a configuration that is translated otherwise. The line is 4, in the
/// block of the server, or 6, in that of the location.
const LOSSES: [(usize, &str); 38] = [
    (4, "set_real_ip_from lb.example;"),
    (4, "server_name b.example:8080;"),
    (4, "server_name ~^(?!www)(.+)$;"),
    (4, "ssl_verify_client on;"),
    (4, "if ($http_user_agent ~* (bot|crawler)) { return 403; }"),
    (
        4,
        "location /t { if ($arg_token = '') { return 403; } proxy_pass http://a; }",
    ),
    (4, "if (-f $document_root/maintenance.html) { return 503; }"),
    (4, "if ($request_method !~ ^(GET|HEAD)$) { return 405; }"),
    (4, "real_ip_header CF-Connecting-IP;"),
    (4, "location ~ (?!admin)x { deny all; }"),
    (4, "location /f/ { root /var/www; }"),
    (4, "location /p/ { fastcgi_pass unix:/run/php.sock; }"),
    (4, "location = /ok { return 206 ok; }"),
    (4, "location = /ok { return 200 $request_id; }"),
    (4, "rewrite ^/(.*)$ /index.php?q=$1 last;"),
    (4, "location /v/ { proxy_pass http://$arg_target; }"),
    (
        4,
        "location /w/ { proxy_pass http://a; location ~ x { location ~ y { deny all; } } }",
    ),
    (6, "rewrite ^(/a/.*)/b$ $1 break;"),
    (6, "if ($scheme = http) { return 301 elsewhere; }"),
    (6, "proxy_cache_valid 99 1d;"),
    (6, "auth_basic secret;"),
    (6, "auth_request /auth;"),
    (6, "satisfy any;"),
    (6, "limit_conn perip 10;"),
    (6, "limit_req zone=absent;"),
    (6, "allow unix:;"),
    (6, "proxy_cache_key $uri;"),
    (6, "proxy_cache_key $uri$is_args$args$geoip_country_code;"),
    (6, "proxy_cache_bypass $upstream_http_x_nocache;"),
    (6, "proxy_no_cache $sent_http_set_cookie;"),
    (6, "proxy_cache_methods GET POST;"),
    (6, "proxy_cache_valid 200 soon;"),
    (6, "proxy_store on;"),
    (6, "proxy_redirect http://a/ https://b/;"),
    (6, "proxy_cookie_domain a b;"),
    (6, "sub_filter a b;"),
    (6, "error_page 404 = @fallback;"),
    (6, "no_such_directive on;"),
];

/// Each of these configurations has one loss, with the line of the directive.
#[test]
fn a_directive_without_a_counterpart_is_named_with_its_line() {
    for (line, directive) in LOSSES {
        let (in_server, in_location) = match line {
            4 => (directive, ""),
            _ => ("", directive),
        };
        let text = format!(
            "proxy_cache_path /c keys_zone=z:1m;\nserver {{\nserver_name a.example;\n{in_server}\n\
             location / {{ proxy_pass http://a; proxy_cache z;\n{in_location}\n}}\n}}\n"
        );
        let migration =
            translate("t", &text).unwrap_or_else(|error| panic!("{directive}: {error}"));
        let losses: Vec<_> = migration.report.losses().collect();
        assert!(!losses.is_empty(), "{directive}: no loss");
        assert!(
            losses.iter().all(|loss| loss.at.line == line),
            "{directive}: {losses:#?}"
        );
    }
}

/// Returns the tables of the result that begin with a line, such as the rules of a site.
fn tables<'a>(toml: &'a str, header: &str) -> Vec<&'a str> {
    let all = toml.split("\n[[");
    all.filter(|table| table.starts_with(&header[2..]))
        .collect()
}

/// An expression that names few hosts becomes these, and another one a condition of rules.
#[test]
fn expressions_of_server_names_become_hosts_or_conditions() {
    let toml = |name: &str| {
        let text = format!(
            "http {{ server {{ listen 80; return 404; }} server {{ listen 80; server_name {name}; location / {{ \
             proxy_pass http://a; }} }} }}"
        );
        let migration = translate("t", &text).expect("translated");
        assert_eq!(migration.report.losses().count(), 0, "{name}");
        migration.toml
    };
    let finite = toml(r"~^(www\.)?a\.example$");
    assert!(
        finite.contains(r#"hosts = ["www.a.example", "a.example"]"#),
        "{finite}"
    );
    assert!(!finite.contains("host_regex"), "{finite}");
    let domain = toml(r"~^(?<sub>.+)\.a\.example$");
    assert!(
        domain.contains(r#"hosts = "*.a.example""#) && !domain.contains("host_regex"),
        "{domain}"
    );
    let label = toml(r"~^(?<sub>[^.]+)\.a\.example$");
    let [of_domain, _] = &tables(&label, "[[site]]")[..] else {
        panic!("{label}");
    };
    assert!(of_domain.contains("deny = 404"), "{label}");
    assert!(
        label.contains(r"host_regex = '(?i)^(?<sub>[^.]+)\.a\.example$'"),
        "{label}"
    );
}

/// Requests for a server that denies some are not answered by another one, if the edge cannot compare its expression.
#[test]
fn an_unknown_expression_of_a_server_with_access_denies_other_hosts() {
    let translated = |inner: &str| {
        let text = format!(
            "http {{ server {{ listen 80; server_name a; location / {{ proxy_pass http://a; }} }}\nserver {{ listen 80; \
             server_name ~^(?!a)b; {inner} location / {{ proxy_pass http://b; }} }} }}"
        );
        translate("t", &text).expect("translated")
    };
    let open = translated("");
    let losses: Vec<_> = open.report.losses().collect();
    assert!(
        losses
            .iter()
            .all(|loss| loss.effect == Effect::Response && loss.at.line == 2)
    );
    assert!(
        !losses.is_empty() && !open.toml.contains("deny = true"),
        "{}",
        open.toml
    );
    for limit in [
        "deny all;",
        "return 403;",
        "auth_basic x;",
        "location /x { internal; }",
    ] {
        let closed = translated(limit);
        let effects: Vec<Effect> = closed.report.losses().map(|loss| loss.effect).collect();
        assert!(effects.contains(&Effect::Access), "{limit}");
        let sites = tables(&closed.toml, "[[site]]");
        let of_others = sites.iter().find(|site| site.contains(r#"hosts = "*""#));
        assert!(
            of_others.is_some_and(|site| site.contains("deny = true")),
            "{limit}: {}",
            closed.toml
        );
        let of_name = sites.iter().find(|site| site.contains(r#"hosts = "a""#));
        assert!(
            of_name.is_some_and(|site| !site.contains("deny")),
            "{limit}: {}",
            closed.toml
        );
    }
}

/// A server that listens at an inner address is not answered at the others.
#[test]
fn a_server_of_an_inner_address_is_denied_at_the_others() {
    let translated = |own: &str| {
        let text = format!(
            "http {{ server {{ listen 80; server_name a; location / {{ proxy_pass http://a; }} }}\nserver {{ listen \
             {own}; server_name inner; location / {{ proxy_pass http://b; }} }} }}"
        );
        translate("t", &text).expect("translated")
    };
    for (own, is_denied) in [
        ("127.0.0.1:81", true),
        ("8080", true),
        ("80", false),
        ("[::]:80", false),
    ] {
        let migration = translated(own);
        let sites = tables(&migration.toml, "[[site]]");
        let inner = sites
            .iter()
            .find(|site| site.contains("\"inner\""))
            .expect("a site");
        assert_eq!(
            inner.contains("deny = true"),
            is_denied,
            "{own}: {}",
            migration.toml
        );
        let losses = migration.report.losses();
        let of_access = losses.filter(|loss| loss.effect == Effect::Access && loss.at.line == 2);
        assert_eq!(of_access.count() > 0, is_denied, "{own}");
        let outer = sites
            .iter()
            .find(|site| site.contains("\"a\""))
            .expect("a site");
        assert!(!outer.contains("deny"), "{own}: {}", migration.toml);
    }
}

/// A configuration whose exception from caching is lost stores nothing in that location.
#[test]
fn a_lost_exception_from_caching_bypasses_the_cache() {
    let site = |words: &str| {
        format!(
            "proxy_cache_path /c keys_zone=z:1m; server {{ server_name a; location / {{ proxy_pass http://a; \
             proxy_cache z; proxy_cache_bypass {words}; }} }}"
        )
    };
    let toml = |words: &str| translate("t", &site(words)).expect("translated").toml;
    assert!(toml("$cookie_a").contains("pass = false"));
    assert!(!toml("$cookie_a $upstream_http_x").contains("pass = false"));
}

/// A part of a configuration may state the rule of a disk cache that another part describes.
#[test]
fn a_number_of_uses_without_a_zone_makes_no_disk() {
    let site = "server { server_name a; location / { proxy_pass http://a; proxy_cache z; proxy_cache_min_uses 3; } }";
    let toml = |more: &str| {
        translate("t", &format!("{more}{site}"))
            .expect("translated")
            .toml
    };
    assert!(toml("proxy_cache_path /c keys_zone=z:1m; ").contains("admission = \"nth-hit:3\""));
    assert!(!toml("").contains("disk"));
}

/// If the trusted proxies cannot be stated, no other host may choose the address of the client.
#[test]
fn proxies_that_cannot_be_stated_do_not_become_all_hosts() {
    let toml = |trusted: &str| {
        let text = format!(
            "server {{ listen 80 proxy_protocol; server_name a; {trusted} real_ip_header proxy_protocol; location / {{ \
             proxy_pass http://a; }} }}"
        );
        translate("t", &text).expect("translated").toml
    };
    let named = toml("set_real_ip_from lb.example;");
    assert!(
        named.contains(r#"proxy_protocol_from = ["127.0.0.1"]"#),
        "{named}"
    );
    let stated = toml("set_real_ip_from lb.example; set_real_ip_from 10.0.0.0/8;");
    assert!(
        stated.contains(r#"proxy_protocol_from = ["10.0.0.0/8"]"#),
        "{stated}"
    );
}

/// A text that nginx sends is a text of the result, with its type.
#[test]
fn texts_of_return_are_answers_and_error_pages() {
    let migration = |inner: &str| {
        let text = format!(
            "http {{ include mime.types; default_type a/b; server {{ set $word x; location / {{ proxy_pass http://a; }} \
             {inner} }} }}"
        );
        translate("t", &text).expect("translated")
    };
    for (inner, line) in [
        (
            "location /a { return 200 ok; }",
            r#"answer = { body = "ok", content_type = "a/b" }"#,
        ),
        (
            "location = /a.txt { return 200 ok; }",
            r#"answer = { body = "ok", content_type = "text/plain" }"#,
        ),
        (
            "location /a { default_type application/json; return 201 '{\"a\":1}'; }",
            r#"answer = { status = 201, body = '{"a":1}', content_type = "application/json" }"#,
        ),
        ("location /a { return 204; }", "answer = { status = 204 }"),
        (
            "location /a { return 200 $word; }",
            r#"answer = { body = "x", content_type = "a/b" }"#,
        ),
        (
            "if ($arg_a) { return 200 ok; }",
            r#"answer = { body = "ok", content_type = "a/b" }"#,
        ),
        (
            "location /a { return 410 gone; }",
            r#"error_page = { 410 = { body = "gone", content_type = "a/b" } }"#,
        ),
    ] {
        let migration = migration(inner);
        assert!(migration.toml.contains(line), "{inner}: {}", migration.toml);
        // The file of types was not read.
        assert_eq!(
            migration.report.losses().count(),
            0,
            "{inner}: {:#?}",
            migration.report
        );
    }
}

/// The answer of an inner location, or of an `if`, counts in place of what the location around it states.
#[test]
fn an_answer_counts_in_place_of_denials_and_redirects_around_it() {
    let text = "server { server_name a; location / { proxy_pass http://a; }\n\
                location /a { return 403 no; } location /a/b { return 200 ok; }\n\
                location /c { return 301 /d; } location /c/d { if ($arg_x) { return 200 ok; } return 302 /e; }\n\
                location /a/c { deny all; } }";
    let migration = translate("t", text).expect("translated");
    let rules = tables(&migration.toml, "[[site.rule]]");
    let of = |comment: &str| {
        let at = migration
            .toml
            .find(comment)
            .unwrap_or_else(|| panic!("{comment}: {}", migration.toml));
        let rest = &migration.toml[at..];
        let end = rest.find("\n\n").unwrap_or(rest.len());
        rest[..end].to_owned()
    };
    assert!(!rules.is_empty());
    let inner = of("# location /a/b");
    assert!(
        inner.contains("deny = false") && inner.contains("answer = { body"),
        "{inner}"
    );
    let denied = of("# location /a/c");
    assert!(
        denied.contains("deny = true") && denied.contains("error_page = false"),
        "{denied}"
    );
    let branch = of("# from t:3\n[[site.rule]]\npath = \"/c/d*\"\nparameter");
    assert!(
        branch.contains("redirect = false") && branch.contains("answer = { body"),
        "{branch}"
    );
}

/// A file that nginx sends for one path, or for an error, is one of the edge if it can be read.
#[test]
fn pages_of_files_are_those_of_the_edge() {
    let migration = |inner: &str, files: &[(&str, &str)]| {
        let text = format!("server {{ root /w; location / {{ proxy_pass http://a; {inner}\n");
        let mut all = vec![("t", text.as_str())];
        all.extend(files);
        let paths = Paths::default();
        nginx(&Files::of(&all), &["t".to_owned()], &paths).expect("translated")
    };
    let page = "error_page 502 504 /50x.html; } location = /50x.html { internal; } }";
    let own = "error_page 404 500 /e.html; proxy_intercept_errors on; } location = /e.html { root /x; internal; } }";
    let found = migration(page, &[("/w/50x.html", "<p>")]);
    let line = r#"error_page = { 502 = "/w/50x.html", 504 = "/w/50x.html" }"#;
    assert!(found.toml.contains(line), "{}", found.toml);
    assert_eq!(found.report.losses().count(), 0, "{:#?}", found.report);
    let absent = migration(page, &[]);
    assert!(!absent.toml.contains("error_page") && absent.report.losses().count() > 0);
    let large = "x".repeat((1 << 20) + 1);
    assert!(
        !migration(page, &[("/w/50x.html", &large)])
            .toml
            .contains("error_page")
    );
    let all = migration(own, &[("/x/e.html", "<p>")]);
    let line = r#"error_page = { 404 = "/x/e.html", 500 = "/x/e.html" }"#;
    assert!(all.toml.contains(line), "{}", all.toml);
    let some = migration(
        &page.replace("502 504", "500 502"),
        &[("/w/50x.html", "<p>")],
    );
    assert!(
        some.toml
            .contains(r#"error_page = { 502 = "/w/50x.html" }"#),
        "{}",
        some.toml
    );
    assert_eq!(some.report.losses().count(), 1, "{:#?}", some.report);
    let robots = migration(
        "} location = /robots.txt { access_log off; } }",
        &[("/w/robots.txt", "a")],
    );
    assert!(
        robots.toml.contains(r#"answer = "/w/robots.txt""#),
        "{}",
        robots.toml
    );
    let php = migration(
        "} location = /a.php { alias /x/a.php; } }",
        &[("/x/a.php", "a")],
    );
    assert!(php.toml.contains("deny = 404") && php.report.losses().count() > 0);
}

/// The result has numbers of nginx as numbers, within the limits of the edge.
#[test]
fn numbers_of_nginx_are_numbers_of_the_edge() {
    let toml = |failures: &str, connections: &str| {
        let text = format!(
            "upstream u {{ server 10.0.0.1 max_fails={failures}; keepalive {connections}; }}\n\
             server {{ server_name a; location / {{ proxy_pass http://u; }} }}"
        );
        translate("t", &text).expect("translated").toml
    };
    let plain = toml("2", "8");
    assert!(
        plain.contains("failures_max = 2 ") && plain.contains("idle_per_worker_max = 8 "),
        "{plain}"
    );
    let large = toml("5000", "100000");
    assert!(
        large.contains("failures_max = 1000 ") && large.contains("idle_per_worker_max = 65536 "),
        "{large}"
    );
    let other = toml("'1\n[admin]'", "x");
    assert!(
        !other.contains("failures_max") && !other.contains("idle_per_worker_max"),
        "{other}"
    );
}

/// Groups of the expression of a location are groups of its rule.
#[test]
fn groups_of_a_location_are_used_in_paths_and_redirects() {
    let text = "server { server_name a; location ~ ^/img/(.*)$ { proxy_pass http://a/big/$1$is_args$args; }\n\
                location ~ ^/old/(.*)$ { return 301 /new/$1; } location / { proxy_pass http://a; root /x; } }";
    let migration = translate("t", text).expect("translated");
    assert_eq!(
        migration.report.losses().count(),
        0,
        "{:#?}",
        migration.report
    );
    for line in [
        r#"rewrite = "/big/${1}?${query}""#,
        r#"redirect = "${scheme}://${host}/new/${1}""#,
    ] {
        assert!(migration.toml.contains(line), "{}", migration.toml);
    }
}

/// nginx redirects the name of a folder to the location of the folder, unless a location has the name itself.
#[test]
fn the_name_of_a_folder_is_redirected_unless_it_is_a_location() {
    let toml = |more: &str| {
        let text =
            format!("server {{ server_name a; location /w/ {{ proxy_pass http://a; }} {more} }}");
        translate("t", &text).expect("translated").toml
    };
    let redirect = r#"redirect = "${scheme}://${host}/w/?${query}""#;
    assert!(toml("").contains(redirect));
    assert!(!toml("location /w { proxy_pass http://b; }").contains(redirect));
}

/// A location that lost its protection is closed.
#[test]
fn a_location_with_authentication_is_denied() {
    let text = "server { listen 80; server_name a; location / { proxy_pass http://a; auth_basic x; allow 10.0.0.1; } }";
    let migration = translate("t", text).expect("translated");
    assert!(migration.toml.contains("deny = true"), "{}", migration.toml);
    assert!(
        !migration.toml.contains("deny = false"),
        "{}",
        migration.toml
    );
}

#[test]
fn a_configuration_without_an_origin_is_an_error() {
    for text in [
        "",
        "server { root /var/www; }",
        "stream { server { proxy_pass a:1; } }",
    ] {
        assert_eq!(translate("t", text), Err(MigrateError::Empty), "{text}");
    }
    assert!(matches!(
        translate("t", "server {"),
        Err(MigrateError::Syntax(_))
    ));
}

/// A site takes as many rules as the edge accepts, and one more is an error that names the host and the server.
#[test]
fn a_host_with_too_many_locations_is_an_error_with_its_line() {
    let site = |count: usize| {
        let location = |n: usize| format!("location = /{n} {{ return 403; }}\n");
        let all: String = (0..count).map(location).collect();
        let text = format!(
            "\nserver {{ server_name a.example; location / {{ proxy_pass http://a; }}\n{all}}}"
        );
        translate("t", &text)
    };
    let most = site(SITE_RULES_MAX).expect("translated");
    assert_eq!(most.toml.matches("[[site.rule]]").count(), SITE_RULES_MAX);
    let error = site(SITE_RULES_MAX + 1).expect_err("too many");
    let text = "a.example needs 257 rules, and a site of the edge has at most 256 (server t:2)";
    assert_eq!(error.to_string(), text);
}

/// Clients that may read files, or the page of the status, do not reach the origin of the location around it.
#[test]
fn a_location_of_files_has_no_origin_for_the_clients_that_it_admits() {
    for content in ["root /var/www;", "stub_status;"] {
        let text = format!(
            "server {{ listen 80; server_name a.example; location / {{ proxy_pass http://10.0.0.1; }}\n\
             location /s/ {{ {content} allow 10.0.0.0/8; deny all; }} }}"
        );
        let toml = translate("t", &text).expect("translated").toml;
        let (_, of_clients) = toml.split_once("client = \"10.0.0.0/8\"").expect("a rule");
        let deny = of_clients.lines().find(|line| line.starts_with("deny"));
        let deny = deny.unwrap_or_default();
        assert!(deny.starts_with("deny = 404"), "{content}: {toml}");
    }
}

/// The table of docs/how-to/from-nginx.md is the one of the translation. `make reference` rewrites it.
#[test]
fn the_table_of_directives_is_that_of_the_documentation() {
    assert_documented(
        "from-nginx.md",
        "directives",
        &edgeward_migrate::directives_markdown(),
    );
}

/// Names of known and of unknown directives.
fn trees() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "proxy_pass",
        "proxy_cache",
        "proxy_cache_valid",
        "proxy_cache_bypass",
        "proxy_cache_key",
        "proxy_no_cache",
        "add_header",
        "expires",
        "return",
        "rewrite",
        "allow",
        "deny",
        "limit_req",
        "set",
        "proxy_set_header",
        "root",
        "listen",
        "server_name",
        "error_page",
        "slice",
        "x_unknown",
        "gzip_types",
        "access_log",
        "client_max_body_size",
        "proxy_ignore_headers",
    ]);
    let words = prop::sample::select(vec![
        "on",
        "off",
        "10m",
        "200",
        "404",
        "any",
        "all",
        "$cookie_a",
        "$v",
        "${x}",
        "http://u",
        "http://10.0.0.1/b/",
        "/a",
        "10.0.0.0/8",
        "''",
        "'a b'",
        "z",
        "$arg_x",
        "zone=z",
        "burst=5",
        "301",
        "https://$host$request_uri",
        "^/a(.*)$",
        "(",
        "~x",
        "443",
        "ssl",
    ]);
    let leaf = (names, prop::collection::vec(words, 0..4)).prop_map(|(name, words)| {
        let words: Vec<String> = words.into_iter().map(|word| format!(" {word}")).collect();
        format!("{name}{};\n", words.concat())
    });
    let blocks = prop::sample::select(vec![
        "server",
        "location /",
        "location = /a",
        "location ~ b",
        "location ^~ /a/",
        "if ($v)",
        "if ($http_cookie ~* a|b)",
        "map $uri $v",
        "geo $v",
        "upstream u",
        "http",
        "location @n",
        "limit_except GET",
        "types",
        "x_block",
    ]);
    leaf.prop_recursive(4, 60, 8, move |inner| {
        (blocks.clone(), prop::collection::vec(inner, 0..8))
            .prop_map(|(name, inner)| format!("{name} {{\n{}}}\n", inner.concat()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// No directive is dropped: the report has as many entries as the text has directives.
    #[test]
    fn each_directive_of_any_tree_has_one_entry(parts in prop::collection::vec(trees(), 1..6)) {
        let origin = "server { listen 80; location /o { proxy_pass http://10.0.0.1; } }\n";
        let text = format!("{}{origin}", parts.concat());
        // A block `http` replaces the servers beside it, unless they are of their own.
        if let Ok(migration) = translate("t", &text) {
            prop_assert_eq!(migration.report.entries.len(), directives(&text));
            prop_assert!(migration.report.entries.iter().all(|entry| !entry.text.is_empty()));
        }
    }
}

/// Characters of the syntax, and words at the border of what numbers and paths may be.
const ADDED: &[&str] = &[
    "",
    "{",
    "}",
    ";",
    "\"",
    "'",
    "\\",
    "#",
    "$",
    "${",
    "(",
    ")",
    "*",
    "~",
    "=",
    "\n",
    " ",
    "\t",
    "\0",
    "é",
    "\u{202e}",
    "if (",
    "location ",
    "server {",
    "map $a $b {",
    "set $a $a;",
    "include input;",
    "upstream a {",
    "99999999999999999999",
    "-1",
    "0",
    "1y",
    "$1",
    "[",
    "^",
    "|",
    "//",
    "::",
    "http://",
    "unix:",
    "@",
    "%2e",
    "return 301 ",
    "rewrite ^ / last;",
    "proxy_pass http://$b;",
    "default",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// A damaged configuration is translated or refused without a panic, and each entry has a line of the text.
    #[test]
    fn a_damaged_configuration_is_translated_or_refused(
        file in any::<prop::sample::Index>(),
        changes in changes(ADDED),
    ) {
        let corpus = corpus("nginx");
        let (name, text) = file.get(&corpus);
        let text = changed(text, &changes);
        let lines = text.matches('\n').count() + 1;
        if let Ok(migration) = translate(name, &text) {
            let entries = &migration.report.entries;
            prop_assert!(entries.iter().all(|entry| (1..=lines).contains(&entry.at.line)));
        }
    }
}
