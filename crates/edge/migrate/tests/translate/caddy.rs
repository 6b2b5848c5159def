//! Laws of the translation of Caddyfiles, over configurations of the kinds that operators publish.

use std::collections::BTreeSet;

use edgeward_migrate::{Entry, MigrateError, Migration, caddy};
use proptest::prelude::*;

use crate::support::{
    Files, Listed, assert_documented, assert_listed, changed, changes, corpus, without_sources,
};

fn translate(name: &str, text: &str) -> Result<Migration, MigrateError> {
    let files = Files::of(&[(name, text)]);
    caddy(&files, &[name.to_owned()], "/etc/caddy")
}

/// The lines with directives: all that are neither empty, nor a comment, nor a closing brace.
fn lines(text: &str) -> BTreeSet<usize> {
    let is_directive = |line: &str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && line != "}"
    };
    let numbered = text.lines().zip(1..);
    numbered
        .filter(|(line, _)| is_directive(line))
        .map(|(_, number)| number)
        .collect()
}

fn is_of_cache(entry: &Entry) -> bool {
    let name = entry.directive.split(' ').next().unwrap_or_default();
    matches!(
        name,
        "cache" | "ttl" | "stale" | "key" | "headers" | "regex" | "exclude"
    )
}

/// For each configuration: its directives of caching, how many of them are translated, and the lines that are lost.
const EXPECTED: &[Listed] = &[
    ("ab-test.caddyfile", 0, 0, &[]),
    ("api-gateway.caddyfile", 4, 4, &[]),
    ("docker-registry.caddyfile", 2, 2, &[]),
    ("drupal.caddyfile", 3, 3, &[]),
    ("geo.caddyfile", 0, 0, &[]),
    ("gitlab.caddyfile", 2, 2, &[]),
    ("image-resizer.caddyfile", 3, 3, &[]),
    ("magento.caddyfile", 4, 4, &[]),
    ("maintenance.caddyfile", 0, 0, &[]),
    ("mastodon.caddyfile", 2, 2, &[]),
    ("multi.caddyfile", 0, 0, &[]),
    ("news.caddyfile", 7, 7, &[]),
    ("nextcloud.caddyfile", 0, 0, &[]),
    ("package-mirror.caddyfile", 5, 5, &[]),
    ("plain-http.caddyfile", 0, 0, &[4]),
    ("shop.caddyfile", 4, 4, &[]),
    ("spa.caddyfile", 2, 2, &[]),
    ("video.caddyfile", 4, 4, &[]),
    ("wiki.caddyfile", 2, 2, &[7]),
    ("wordpress.caddyfile", 7, 7, &[]),
];

/// Each line of each configuration has an entry, and all losses are those that are listed.
#[test]
fn each_configuration_is_translated_as_far_as_it_is_listed() {
    let check = |name: &str, text: &str, entries: &[Entry]| {
        let with_entry: BTreeSet<usize> = entries.iter().map(|entry| entry.at.line).collect();
        assert_eq!(with_entry, lines(text), "{name}: lines");
    };
    assert_listed("caddy", translate, is_of_cache, check, EXPECTED);
}

/// Directives that the edge cannot replace, each in a configuration that is translated otherwise, in line 2.
const LOSSES: [&str; 30] = [
    "basic_auth * { a b }",
    "basicauth /x { a b }",
    "forward_auth auth:9000 { uri /verify }",
    "file_server",
    "php_fastcgi unix//run/php.sock",
    "try_files {path} /index.html",
    "templates",
    "handle_errors { respond 500 }",
    "map {host} {x} { a b }",
    "vars a b",
    "method GET",
    "push /a.css",
    "respond hello-{host}",
    "respond /ok 206",
    "respond /x 304",
    "redir /x elsewhere",
    "redir /x https://a/ 399",
    "redir /x https://{env.HOST}/",
    "rewrite /x y",
    "rewrite /x /{file.base}",
    "uri replace /a /b",
    "header X a b",
    "header Bad@Name x",
    "reverse_proxy /x {env.HOST}:80",
    "reverse_proxy /x ftp://a",
    "reverse_proxy /x a:80 { lb_policy ip_hash }",
    "reverse_proxy /x a:80 { handle_response }",
    "cache { default_cache_control public }",
    "cache { mode bypass }",
    "no_such_directive on",
];

/// Each of these configurations has losses in the line of the directive alone.
#[test]
fn a_directive_without_a_counterpart_is_named_with_its_line() {
    for directive in LOSSES {
        // The block in one line stands for one in several lines.
        let directive_lines = directive.replacen(" { ", " {\n", 1).replace(" }", "\n}");
        let text = format!("a.example {{\n{directive_lines}\nreverse_proxy b:80\n}}\n");
        let end = 2 + directive_lines.matches('\n').count();
        let migration =
            translate("t", &text).unwrap_or_else(|error| panic!("{directive}: {error}"));
        let losses: Vec<_> = migration.report.losses().collect();
        assert!(
            !losses.is_empty(),
            "{directive}: no loss\n{:#?}",
            migration.report
        );
        assert!(
            losses.iter().all(|loss| (2..=end).contains(&loss.at.line)),
            "{directive}: {losses:#?}"
        );
    }
    for matcher in [
        "expression {a} == 1",
        "file /x",
        "vars a b",
        "header_regexp X (?!a)",
    ] {
        let text = format!("a.example {{\n@m {matcher}\nrespond @m 403\nreverse_proxy b:80\n}}\n");
        let migration = translate("t", &text).expect("translated");
        let lost: Vec<usize> = migration.report.losses().map(|loss| loss.at.line).collect();
        assert_eq!(lost, [3], "{matcher}");
    }
}

/// A site without `cache` stores nothing, because Caddy itself stores nothing.
#[test]
fn only_sites_with_cache_store_responses() {
    let toml = |more: &str| {
        let text = format!("a.example {{\n{more}\nreverse_proxy b:80\n}}\n");
        translate("t", &text).expect("translated").toml
    };
    assert!(toml("").contains("\npass = true"));
    assert!(toml("cache").contains("\npass = false"));
    let part = toml("@a path /a/*\ncache @a {\nttl 1h\n}");
    assert!(
        part.contains("\npass = true")
            && part.contains("path_regex = \"(?i)^/a/\"\ndefault_ttl = \"1h\""),
        "{part}"
    );
}

/// Caddy's order of directives counts, and not that of the file: `redir` and `respond` precede `reverse_proxy`.
#[test]
fn directives_apply_in_the_order_of_caddy() {
    let text = "http://a.example {\nreverse_proxy b:80\nrespond /x 404\nredir /x/y /z\n}\n";
    let migration = translate("t", text).expect("translated");
    let toml = &migration.toml;
    assert!(
        toml.contains("path_regex = \"(?i)^/x$\"\ndeny = 404"),
        "{toml}"
    );
    assert!(
        toml.contains("path_regex = \"(?i)^/x/y$\"\nredirect = \"/z\""),
        "{toml}"
    );
    // The first matching handle counts, the longest path first.
    let text = "http://a.example {\nhandle {\nreverse_proxy b:80\n}\nhandle /a/* {\nreverse_proxy c:80\n}\n}\n";
    let toml = translate("t", text).expect("translated").toml;
    assert!(
        toml.contains("path_regex = \"(?i)^/a/\"\norigin = \"c-80\""),
        "{toml}"
    );
}

/// A site with authentication is closed.
#[test]
fn a_site_with_authentication_is_denied() {
    let text = "a.example {\nbasic_auth /private/* {\na b\n}\nreverse_proxy b:80\n}\n";
    let toml = translate("t", text).expect("translated").toml;
    assert!(
        toml.contains("path_regex = \"(?i)^/private/\"\ndeny = 403"),
        "{toml}"
    );
}

/// Caddy obtains certificates and redirects to https by itself, unless the address or an option says otherwise.
#[test]
fn sites_with_names_are_served_by_https() {
    let toml = |text: &str| translate("t", text).expect("translated").toml;
    let encrypted = toml("a.example {\nreverse_proxy b:80\n}\n");
    for part in [
        "names = [\"a.example\"]",
        "acme = true",
        "scheme = \"http\"",
        "redirect_status = 308",
    ] {
        assert!(encrypted.contains(part), "{part}: {encrypted}");
    }
    for text in [
        "http://a.example {\nreverse_proxy b:80\n}\n",
        ":80 {\nreverse_proxy b:80\n}\n",
        "{\nauto_https off\n}\na.example {\nreverse_proxy b:80\n}\n",
    ] {
        let plain = toml(text);
        assert!(
            !plain.contains("acme") && !plain.contains("redirect"),
            "{plain}"
        );
    }
}

#[test]
fn a_configuration_without_an_origin_is_an_error() {
    for text in [
        "",
        "a.example {\nrespond 404\n}\n",
        "a.example {\nfile_server\n}\n",
    ] {
        assert_eq!(translate("t", text), Err(MigrateError::Empty), "{text}");
    }
    assert!(matches!(
        translate("t", "a {\n"),
        Err(MigrateError::Syntax(_))
    ));
}

/// The table of docs/how-to/from-caddy.md is the one of the translation. `make reference` rewrites it.
#[test]
fn the_table_of_directives_is_that_of_the_documentation() {
    assert_documented(
        "from-caddy.md",
        "directives",
        &edgeward_migrate::caddy_directives_markdown(),
    );
}

/// Characters of the syntax, and words at the border of what numbers and paths may be.
const ADDED: &[&str] = &[
    "",
    "{",
    "}",
    "\n",
    "\n}\n",
    " {\n",
    "\"",
    "`",
    "<<E\n",
    "#",
    "@",
    "@x",
    "*",
    "/",
    "(s) {\n",
    "import s\n",
    "\\\n",
    "{args[0]}",
    "99999999999999999999",
    "-1",
    "0",
    "not ",
    "path_regexp ",
    "header ",
    "cache\n",
    "handle {\n",
    "reverse_proxy ",
    "http://",
    ":80",
    "*.a.example",
    "$",
    "${",
    "(?!",
    "é",
    "\u{202e}",
    "\0",
    "respond 404\n",
];

/// The text of a denial is that of the rule which denies, and of no other answer to the same requests.
#[test]
fn a_denial_has_the_text_of_respond() {
    let toml = |site: &str| {
        let text = format!("http://a.example {{\n{site}\nreverse_proxy b\n}}\n");
        let migration = translate("t", &text).expect("translated");
        assert_eq!(migration.report.losses().count(), 0, "{text}");
        without_sources(&migration.toml)
    };
    let page = |text: &str| {
        format!("{{ body = \"{text}\", content_type = \"text/plain; charset=utf-8\" }}")
    };
    let denied = toml("respond /a* \"not here\" 403");
    let rule = format!("deny = 403\nerror_page = {{ 403 = {} }}", page("not here"));
    assert!(denied.contains(&rule), "{denied}");
    // The origin's own 403 keeps its body, and a denial without a text has none of another.
    let inner = toml(
        "handle /a/b* {\nreverse_proxy c\n}\nhandle /a/c* {\nrespond 403\n}\nrespond /a* no 403",
    );
    assert!(
        inner.contains(&format!("error_page = {{ 403 = {} }}", page("no"))),
        "{inner}"
    );
    for rule in [
        "path_regex = [\"(?i)^/a/b\", \"(?i)^/a/c\"]\ndeny = false\nerror_page = false",
        "path_regex = \"(?i)^/a/c\"\ndeny = 403\nerror_page = false",
    ] {
        assert!(inner.contains(rule), "{rule}: {inner}");
    }
    let json = toml("respond `{\"error\": 1}` 500");
    assert!(
        json.contains("content_type = \"application/json\""),
        "{json}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A damaged configuration is translated or refused without a panic, and each entry has a line of the text.
    #[test]
    fn a_damaged_configuration_is_translated_or_refused(
        file in any::<prop::sample::Index>(),
        changes in changes(ADDED),
    ) {
        let corpus = corpus("caddy");
        let (name, text) = file.get(&corpus);
        let text = changed(text, &changes);
        let count = text.matches('\n').count() + 1;
        if let Ok(migration) = translate(name, &text) {
            let entries = &migration.report.entries;
            prop_assert!(entries.iter().all(|entry| (1..=count).contains(&entry.at.line)));
            prop_assert!(entries.iter().all(|entry| !entry.text.is_empty()));
        }
    }
}
