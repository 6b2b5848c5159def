//! Laws of the translation of VCL, over configurations of the kinds that operators publish.

use std::fs;

use edgeward_migrate::{Entry, MigrateError, Migration, vcl};
use proptest::prelude::*;

use crate::support::{
    Files, Listed, assert_documented, assert_listed, beside, changed, changes, corpus,
};

pub(crate) fn translate(name: &str, text: &str) -> Result<Migration, MigrateError> {
    let included = fs::read_to_string(beside("vcl/included/backends.vcl")).expect("read");
    let files = Files::of(&[(name, text), ("/etc/varnish/backends.vcl", &included)]);
    vcl(&files, &[name.to_owned()], "/etc/varnish")
}

/// The number of declarations and statements, by the characters outside of strings and comments that end one.
fn nodes(text: &str) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = |end: &str, from: usize| {
            let at = rest[from..].find(end);
            at.map_or(rest.len(), |at| from + at + end.len())
        };
        let bytes = match c {
            '#' => skipped("\n", 0),
            '/' if rest.starts_with("//") => skipped("\n", 0),
            '/' if rest.starts_with("/*") => skipped("*/", 2),
            '{' if rest.starts_with("{\"") => skipped("\"}", 2),
            '"' => skipped("\"", 1),
            ';' | '{' => {
                count += 1;
                1
            }
            c => c.len_utf8(),
        };
        rest = &rest[bytes..];
    }
    // An included file has entries of its own.
    let included = text.matches("include \"backends.vcl\"").count();
    count + 3 * included
}

fn is_of_cache(entry: &Entry) -> bool {
    let text = entry.directive.as_str();
    [
        "beresp.ttl",
        "beresp.grace",
        "beresp.uncacheable",
        "hash_data",
        "(pass)",
        "(hash)",
        "(purge)",
        "ban(",
        "req.url =",
        "Cookie",
    ]
    .iter()
    .any(|part| text.contains(part))
        && !text.ends_with("{…}")
}

/// For each configuration: its statements of caching, how many of them are translated, and the lines that are lost.
const EXPECTED: &[Listed] = &[
    ("ab-test.vcl", 8, 8, &[]),
    ("api-gateway.vcl", 8, 8, &[]),
    ("discourse.vcl", 12, 12, &[]),
    ("drupal.vcl", 14, 12, &[44, 70]),
    ("geo.vcl", 5, 5, &[28]),
    ("gitlab.vcl", 8, 8, &[]),
    ("image-resizer.vcl", 8, 8, &[]),
    ("joomla.vcl", 10, 10, &[]),
    ("magento.vcl", 16, 16, &[84]),
    ("maintenance.vcl", 2, 2, &[]),
    ("mastodon.vcl", 13, 13, &[]),
    ("news.vcl", 11, 11, &[]),
    ("nextcloud.vcl", 8, 8, &[]),
    ("package-mirror.vcl", 12, 12, &[]),
    ("shop.vcl", 13, 13, &[]),
    ("stale-if-error.vcl", 5, 4, &[]),
    ("typo3.vcl", 9, 9, &[]),
    ("video.vcl", 11, 11, &[]),
    ("wiki.vcl", 9, 9, &[]),
    ("wordpress.vcl", 23, 23, &[]),
];

/// Each statement of each configuration has one entry, and all losses are those that are listed.
#[test]
fn each_configuration_is_translated_as_far_as_it_is_listed() {
    let check = |name: &str, text: &str, entries: &[Entry]| {
        assert_eq!(entries.len(), nodes(text), "{name}: entries");
    };
    assert_listed("vcl", translate, is_of_cache, check, EXPECTED);
}

/// Statements that the edge cannot replace, each in a configuration that is translated otherwise. The first word is the
/// subroutine, or `top` for a declaration. The line of the statement is 3.
const LOSSES: [(&str, &str); 38] = [
    (
        "top",
        "acl a { \"host.example\"; } sub vcl_recv { if (client.ip ~ a) { return (pass); } }",
    ),
    ("top", "include \"absent.vcl\";"),
    ("vcl_recv", "set req.method = \"GET\";"),
    ("vcl_recv", "set req.url = regsub(req.url, \"a\", \"b\");"),
    (
        "vcl_recv",
        "set req.url = regsub(req.url, \"^/(?!x)a\", \"/b\");",
    ),
    ("vcl_recv", "set req.url = \"b\" + req.url;"),
    (
        "vcl_recv",
        "set req.http.Host = regsub(req.http.Host, \"^www\\.\", \"\");",
    ),
    (
        "vcl_recv",
        "set req.http.X = regsub(req.http.Y, \"a\", \"b\");",
    ),
    ("vcl_recv", "set req.http.X = std.file2string(\"/x\");"),
    ("vcl_recv", "set req.http.Cookie = req.http.X;"),
    (
        "vcl_recv",
        "set req.http.Cookie = regsuball(req.http.Cookie, \"a=b\", \"a=c\");",
    ),
    ("vcl_recv", "set req.backend_hint = nowhere.backend();"),
    ("vcl_recv", "return (restart);"),
    ("vcl_recv", "return (vcl(other));"),
    ("vcl_recv", "return (synth(206, \"ok\"));"),
    ("vcl_recv", "return (synth(301, \"https://b.example/\"));"),
    ("vcl_recv", "return (purge);"),
    (
        "vcl_recv",
        "if (req.method == \"REFRESH\") { return (purge); }",
    ),
    ("vcl_recv", "if (std.healthy(default)) { return (pass); }"),
    ("vcl_recv", "if (std.random(0, 10) < 5) { return (pass); }"),
    (
        "vcl_recv",
        "if (req.http.X ~ \"^(?!a)\") { return (pass); }",
    ),
    (
        "vcl_recv",
        "if (req.url ~ \"^/a\\?b=c\") { return (pass); }",
    ),
    (
        "vcl_recv",
        "if (req.http.host ~ \"^www[0-9]\") { return (pass); }",
    ),
    (
        "vcl_recv",
        "if (std.ip(req.http.X-Real-IP, client.ip) ~ office) { return (pass); }",
    ),
    (
        "vcl_recv",
        "if (req.http.A == req.http.B) { return (pass); }",
    ),
    ("vcl_recv", "ban(\"obj.age > 1h\");"),
    ("vcl_recv", "ban(\"obj.http.x ~ \" + req.http.anything);"),
    ("vcl_recv", "header.append(req.http.X, \"a\");"),
    ("vcl_recv", "no.such();"),
    ("vcl_hash", "hash_data(client.ip);"),
    ("vcl_hash", "hash_data(req.http.X + std.time(now));"),
    (
        "vcl_backend_response",
        "set beresp.ttl = std.duration(beresp.http.X-TTL, 1s);",
    ),
    (
        "vcl_backend_response",
        "if (beresp.http.Content-Type ~ \"image\") { set beresp.ttl = 1d; }",
    ),
    ("vcl_backend_response", "set beresp.do_esi = true;"),
    ("vcl_backend_response", "set beresp.status = 200;"),
    (
        "vcl_backend_response",
        "if (beresp.status == 404) { set beresp.http.X-Missing = \"1\"; }",
    ),
    ("vcl_deliver", "set resp.status = 200;"),
    ("vcl_deliver", "return (synth(403));"),
];

/// Each of these configurations has losses in the line of the statement alone.
#[test]
fn a_statement_without_a_counterpart_is_named_with_its_line() {
    for (sub, statement) in LOSSES {
        let text = match sub {
            "top" => format!(
                "vcl 4.1; acl office {{ \"10.0.0.0\"/8; }}\nbackend default {{ .host = \"10.0.0.1\"; }}\n{statement}\n"
            ),
            _ => format!(
                "vcl 4.1; acl office {{ \"10.0.0.0\"/8; }} backend default {{ .host = \"10.0.0.1\"; }}\nsub {sub} {{\n\
                 {statement}\n}}\n"
            ),
        };
        let migration =
            translate("t", &text).unwrap_or_else(|error| panic!("{statement}: {error}"));
        let losses: Vec<_> = migration.report.losses().collect();
        assert!(
            !losses.is_empty(),
            "{statement}: no loss\n{:#?}",
            migration.report
        );
        assert!(
            losses.iter().all(|loss| loss.at.line == 3),
            "{statement}: {losses:#?}"
        );
    }
}

/// Returns the result for these statements of `vcl_recv` and of `vcl_backend_response`.
pub(crate) fn toml(recv: &str, response: &str) -> String {
    let text = format!(
        "vcl 4.1; backend default {{ .host = \"10.0.0.1\"; }} backend other {{ .host = \"10.0.0.2\"; }}\n\
         sub vcl_recv {{ {recv} }}\nsub vcl_backend_response {{ {response} }}\n"
    );
    translate("t", &text).expect("translated").toml
}

/// Subroutines that call each other in two places, and hosts with many rules, are refused in a bounded number of steps.
#[test]
fn a_configuration_that_needs_too_many_steps_is_refused() {
    let backend = "vcl 4.1; backend default { .host = \"10.0.0.1\"; }\n";
    let calls: String = (0..30)
        .map(|n| format!("sub s{n} {{ call s{0}; call s{0}; }}\n", n + 1))
        .collect();
    let nested = format!("{backend}{calls}sub s30 {{ }} sub vcl_recv {{ call s0; }}");
    let refused = |text: &str| matches!(translate("t", text), Err(MigrateError::TooComplex { .. }));
    assert!(refused(&nested));
    assert!(!refused(&nested.replace("call s0", "call s25")));
}

/// Varnish's own subroutine behind that of the configuration obeys `private` and passes requests with cookies.
#[test]
fn the_subroutines_of_varnish_run_behind_those_of_the_configuration() {
    let plain = toml("", "set beresp.ttl = 1h;");
    assert!(
        plain.contains("default_ttl = { 2xx = \"1h\"") && !plain.contains("\nttl ="),
        "{plain}"
    );
    assert!(plain.contains("cookie = \"*\"\npass = true"), "{plain}");
    let own = toml("return (hash);", "set beresp.ttl = 1h; return (deliver);");
    assert!(
        own.contains("\nttl = { 2xx = \"1h\"") && !own.contains("pass ="),
        "{own}"
    );
    // A configuration that excludes such responses itself must not store them either.
    let checked = toml(
        "return (hash);",
        "if (beresp.http.Cache-Control ~ \"private\") { set beresp.uncacheable = true; return (deliver); }\n\
         set beresp.ttl = 1h; return (deliver);",
    );
    assert!(
        checked.contains("default_ttl = { 2xx = \"1h\"") && !checked.contains("\nttl ="),
        "{checked}"
    );
}

/// A part of Varnish's own subroutine that the configuration ends with `return` does not run.
#[test]
fn a_part_of_the_subroutine_of_varnish_is_skipped_by_a_return() {
    let passes = |parts: &str| {
        let text = format!("vcl 4.1; backend default {{ .host = \"10.0.0.1\"; }} {parts}");
        let migration = translate("t", &text).expect("translated");
        assert_eq!(
            migration.report.losses().count(),
            0,
            "{:#?}",
            migration.report
        );
        [
            "cookie = \"*\"\npass = true",
            "header.Authorization = \"*\"\npass = true",
        ]
        .map(|rule| migration.toml.contains(rule))
    };
    assert_eq!(passes(""), [true, true]);
    assert_eq!(passes("sub vcl_req_cookie { return; }"), [false, true]);
    assert_eq!(
        passes("sub vcl_req_authorization { return; }"),
        [true, false]
    );
    assert_eq!(
        passes("sub vcl_req_cookie { unset req.http.X; }"),
        [true, true]
    );
}

/// The first `return` counts in VCL, and the last rule at the edge.
#[test]
fn an_earlier_return_is_a_later_rule() {
    let toml = toml(
        "if (req.url ~ \"^/a/\") { set req.backend_hint = other; return (hash); } if (req.url ~ \"b\") { \
         return (pass); } unset req.http.Cookie; return (hash);",
        "",
    );
    let passed = toml.find("path_regex = \"b\"").expect("the pass");
    let stored = toml.rfind("path = \"/a/*\"").expect("the exception");
    assert!(passed < stored, "{toml}");
    let exception = &toml[stored..];
    assert!(exception.contains("pass = false"), "{toml}");
    assert!(exception.contains("request.keep = [\"Cookie\"]"), "{toml}");
}

/// Hosts in conditions become sites, and a lifetime depends on the status.
#[test]
fn hosts_are_sites_and_statuses_are_keys() {
    let toml = toml(
        "if (req.http.host == \"b.example\") { set req.backend_hint = other; }",
        "if (beresp.status == 404) { set beresp.ttl = 5s; } elseif (beresp.status >= 500) { set beresp.ttl = 1s; }",
    );
    let site = toml
        .split("[[site]]")
        .find(|site| site.contains("b.example"))
        .expect("the site");
    assert!(site.contains("origin = \"other\""), "{toml}");
    assert!(
        site.contains("404 = \"5s\"") && site.contains("5xx = \"1s\""),
        "{toml}"
    );
}

/// A class has no lifetime if one of its statuses keeps that of the origin, which no setting states.
#[test]
fn a_status_keeps_the_lifetime_of_the_origin_if_only_others_are_excluded() {
    let toml = toml(
        "return (hash);",
        "if (beresp.status != 200 && beresp.status != 404) { set beresp.ttl = 0s; set beresp.uncacheable = true; } \
         return (deliver);",
    );
    let ttl = toml.lines().find(|line| line.starts_with("ttl = {"));
    let ttl = ttl.unwrap_or_default();
    for (status, is_stated) in [
        ("200", false),
        ("404", false),
        ("2xx", false),
        ("4xx", false),
        ("206", true),
        ("403", true),
        ("3xx", true),
        ("5xx", true),
    ] {
        let is_found = ttl.contains(&format!("{status} = \"no-store\""));
        assert_eq!(is_found, is_stated, "{status}: {ttl}");
    }
}

/// Varnish stores a lifetime of zero for its grace behind `return (deliver)`, and else its own subroutine excludes the
/// response. `beresp.uncacheable` excludes it in any case.
#[test]
fn only_a_lifetime_of_zero_that_is_delivered_is_stored() {
    for (response, expected) in [
        (
            "if (beresp.status >= 500) { set beresp.uncacheable = true; }",
            "no-store",
        ),
        (
            "if (beresp.status >= 500) { set beresp.uncacheable = true; return (deliver); }",
            "no-store",
        ),
        (
            "if (beresp.status >= 500) { set beresp.ttl = 0s; }",
            "no-store",
        ),
        (
            "if (beresp.status >= 500) { set beresp.ttl = 0s; return (deliver); }",
            "0s",
        ),
        ("if (beresp.status >= 500) { return (pass); }", "no-store"),
    ] {
        let toml = toml(
            "return (hash);",
            &format!("set beresp.grace = 1h; {response}"),
        );
        assert!(
            toml.contains(&format!("5xx = \"{expected}\"")),
            "{response}: {toml}"
        );
    }
}

/// Passed requests need no key. Their cookies stay, so the condition on a cookie would else hold for them alone.
#[test]
fn a_condition_of_vcl_hash_holds_for_requests_that_are_looked_up() {
    let toml = |pass: &str, hash: &str| {
        let text = format!(
            "vcl 4.1; backend default {{ .host = \"10.0.0.1\"; }}\n\
             sub vcl_recv {{ if (req.http.Cookie ~ \"session=\") {{ {pass} }} unset req.http.Cookie; }}\n\
             sub vcl_hash {{ {hash} }}\n"
        );
        translate("t", &text).expect("translated").toml
    };
    let hash = "if (req.http.Cookie ~ \"mobile\") { hash_data(\"m\"); }";
    let of_looked_up = toml("return (pass);", hash);
    let has_site_pass = |toml: &str| {
        let site = toml.split("[[site]]").nth(1).unwrap_or_default();
        let own = site.split("[[site.rule]]").next().unwrap_or_default();
        own.contains("pass = true")
    };
    assert!(
        !has_site_pass(&of_looked_up) && !of_looked_up.contains("key ="),
        "{of_looked_up}"
    );
    let all = toml("return (hash);", hash);
    assert!(has_site_pass(&all) || all.contains("key ="), "{all}");
    let changed = toml("return (pass);", &format!("set req.http.X = \"1\"; {hash}"));
    assert!(
        has_site_pass(&changed) || changed.contains("key ="),
        "{changed}"
    );
}

/// A denial has the text of `vcl_synth`, with the text of `synth` in it. Without a `return`, Varnish's own subroutine
/// replaces the text.
#[test]
fn a_denial_has_the_text_of_vcl_synth() {
    let denied = |call: &str, synth: &str| {
        let text = format!(
            "vcl 4.1; backend default {{ .host = \"10.0.0.1\"; }}\n\
             sub vcl_recv {{ if (req.url ~ \"^/a/\") {{ return ({call}); }} return (hash); }}\n\
             sub vcl_synth {{ set resp.http.Content-Type = \"text/plain\"; {synth} }}\n"
        );
        let migration = translate("t", &text).expect("translated");
        assert_eq!(migration.report.losses().count(), 0, "{text}");
        let page = migration
            .toml
            .lines()
            .find(|line| line.starts_with("error_page = {"));
        let page = page.map(|line| {
            line.split('#')
                .next()
                .unwrap_or_default()
                .trim_end()
                .to_owned()
        });
        page.unwrap_or_default()
    };
    let named = "synthetic(\"no: \" + resp.reason); return (deliver);";
    let page = |status, body| {
        let body = format!("body = \"{body}\", content_type = \"text/plain\"");
        format!("error_page = {{ {status} = {{ {body} }} }}")
    };
    assert_eq!(denied("synth(403, \"Away\")", named), page(403, "no: Away"));
    assert_eq!(denied("synth(503, \"Soon\")", named), page(503, "no: Soon"));
    let changed = "set resp.status = 410; set resp.reason = \"Gone\"; synthetic(resp.reason + \".\"); \
                   return (deliver);";
    assert_eq!(denied("synth(700)", changed), page(410, "Gone."));
    for (call, synth) in [
        ("synth(403, \"Away\")", ""),
        ("synth(403, \"Away\")", "synthetic(\"no\");"),
        ("synth(403, \"/?\" + req.url)", named),
        ("synth(403)", named),
        (
            "synth(403, \"Away\")",
            "synthetic(\"no \" + req.xid); return (deliver);",
        ),
    ] {
        assert_eq!(denied(call, synth), "", "{call} {synth}");
    }
}

#[test]
fn a_configuration_without_a_backend_is_an_error() {
    for text in [
        "",
        "vcl 4.1; sub vcl_recv { return (pass); }",
        "vcl 4.1; backend default none;",
    ] {
        assert_eq!(translate("t", text), Err(MigrateError::Empty), "{text}");
    }
    assert!(matches!(
        translate("t", "sub a {"),
        Err(MigrateError::Syntax(_))
    ));
}

/// The table of docs/how-to/from-varnish.md is the one of the translation. `make reference` rewrites it.
#[test]
fn the_table_of_constructs_is_that_of_the_documentation() {
    assert_documented(
        "from-varnish.md",
        "constructs",
        &edgeward_migrate::constructs_markdown(),
    );
}

/// Statements with known and unknown words.
fn statements() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "return (pass);",
        "return (hash);",
        "return (deliver);",
        "return (synth(403));",
        "return (synth(301, \"https://a/\"));",
        "return (purge);",
        "return;",
        "unset req.http.Cookie;",
        "unset beresp.http.Set-Cookie;",
        "set req.http.X = \"1\";",
        "set req.http.X = req.http.Y;",
        "set req.http.Cookie = regsuball(req.http.Cookie, \"(^|; )_ga=[^;]+\", \"\");",
        "set req.url = std.querysort(req.url);",
        "set req.url = regsub(req.url, \"^/a\", \"/b\");",
        "set req.url = regsuball(req.url, \"utm_[a-z]+=[^&]+&?\", \"\");",
        "set req.backend_hint = other;",
        "set beresp.ttl = 1h;",
        "set beresp.ttl = 0s;",
        "set beresp.grace = 10s;",
        "set beresp.uncacheable = true;",
        "set resp.http.X = req.http.X;",
        "hash_data(req.http.X);",
        "call other;",
        "no.such();",
    ]);
    let condition = prop::sample::select(vec![
        "req.url ~ \"^/a\"",
        "req.url ~ \"b\"",
        "req.url !~ \"\\.css$\"",
        "req.url ~ \"[?&]x=\"",
        "req.http.X",
        "!req.http.X",
        "req.http.X == \"1\"",
        "req.http.Cookie ~ \"a|b\"",
        "req.http.host == \"a.example\"",
        "req.method == \"POST\" || req.method == \"PUT\"",
        "client.ip ~ office && req.url ~ \"^/c\"",
        "beresp.status >= 400 && beresp.status != 404",
        "no.such(1)",
    ]);
    let leaf = leaf.prop_map(|text| format!("{text}\n"));
    leaf.prop_recursive(3, 24, 4, move |inner| {
        let block = || prop::collection::vec(inner.clone(), 0..4).prop_map(|inner| inner.concat());
        (condition.clone(), block(), block(), any::<bool>()).prop_map(
            |(condition, then, other, has_else)| {
                let other = if has_else {
                    format!(" else {{\n{other}}}")
                } else {
                    String::new()
                };
                format!("if ({condition}) {{\n{then}}}{other}\n")
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// No statement is dropped: the report has as many entries as the text has statements.
    #[test]
    fn each_statement_of_any_program_has_one_entry(
        recv in prop::collection::vec(statements(), 0..6),
        response in prop::collection::vec(statements(), 0..4),
        deliver in prop::collection::vec(statements(), 0..3),
    ) {
        let text = format!(
            "vcl 4.1; acl office {{ \"10.0.0.0\"/8; }} backend default {{ .host = \"10.0.0.1\"; }}\n\
             backend other {{ .host = \"10.0.0.2\"; }} sub other {{ unset req.http.Z; return; }}\n\
             sub vcl_recv {{ {} }}\nsub vcl_backend_response {{ {} }}\nsub vcl_deliver {{ {} }}\n",
            recv.concat(), response.concat(), deliver.concat(),
        );
        if let Ok(migration) = translate("t", &text) {
            prop_assert_eq!(migration.report.entries.len(), nodes(&text));
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
    "{\"",
    "\"}",
    "\\",
    "#",
    "/*",
    "(",
    ")",
    "*",
    "~",
    "!~",
    "=",
    "\n",
    " ",
    "\0",
    "é",
    "\u{202e}",
    "if (",
    "else ",
    "sub a {",
    "call a;",
    "include \"backends.vcl\";",
    "99999999999999999999",
    "-1",
    "0",
    "1y",
    "\\1",
    "[",
    "^",
    "|",
    "${",
    "||",
    "&&",
    "req.url",
    "return (pass);",
    "regsub(req.url, ",
    "acl a {",
    "backend default {",
    "vcl 4.1;",
    "C{",
    "beresp.status == 404",
    "req.http.host ~ ",
    "!",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A damaged configuration is translated or refused without a panic, and each entry has a line of the text.
    #[test]
    fn a_damaged_configuration_is_translated_or_refused(
        file in any::<prop::sample::Index>(),
        changes in changes(ADDED),
    ) {
        let corpus = corpus("vcl");
        let (name, text) = file.get(&corpus);
        let text = changed(text, &changes);
        let lines = text.matches('\n').count() + 1;
        if let Ok(migration) = translate(name, &text) {
            let entries = &migration.report.entries;
            let own = entries.iter().filter(|entry| *entry.at.file == **name);
            prop_assert!(own.map(|entry| entry.at.line).all(|line| (1..=lines).contains(&line)));
        }
    }
}
