//! The decisions of VCL programs: which lines of the result state an exact decision, and how a lost or inexact one
//! fails closed.

use edgeward_migrate::Effect;

use crate::support::without_sources;
use crate::vcl::{toml, translate};

/// A configuration whose exception from caching is lost stores nothing.
#[test]
fn a_lost_exception_from_caching_bypasses_the_cache() {
    let passes = |condition: &str| {
        let recv = format!("if ({condition}) {{ return (pass); }} return (hash);");
        let toml = toml(&recv, "");
        let site = toml.split("[[site.rule]]").next();
        site.is_some_and(|site| site.contains("\npass = true"))
    };
    assert!(!passes("req.url ~ \"^/a/\""));
    assert!(passes("std.random(0, 9) < 1"));
}

/// Programs that a translation must not open, with a line that the result has. Each of them has a loss.
const CLOSED: &[(&str, &str, &str)] = &[
    // A lifetime for further responses.
    (
        "vcl_backend_response",
        "if (bereq.http.X ~ \"^s[0-9]{5}$\") { set beresp.ttl = 1h; }",
        "header.X = \"s*\"\ndefault_ttl = { 2xx = \"1h\"",
    ),
    (
        "vcl_backend_response",
        "if (!beresp.http.Cache-Control) { set beresp.uncacheable = true; return (deliver); }",
        "pass = true",
    ),
    (
        "vcl_backend_response",
        "if (beresp.http.Cache-Control ~ \"max-age=5\") { set beresp.ttl = 0s; return (deliver); }",
        "pass = true",
    ),
    (
        "vcl_backend_response",
        "if (beresp.http.X-Private) { set beresp.ttl = 0s; }",
        "pass = true",
    ),
    (
        "vcl_backend_response",
        "if (beresp.http.X-Short) { return (deliver); } set beresp.ttl = 1h;",
        "pass = true",
    ),
    (
        "vcl_recv",
        "if (std.random(0, 9) < 1) { call denied; } return (hash);",
        "deny = 403",
    ),
    (
        "vcl_recv",
        "if (std.random(0, 9) < 1) { call absent; } return (hash);",
        "deny = 403",
    ),
    (
        "vcl_recv",
        "if (std.random(0, 9) < 1 && req.url ~ \"^/a/\") { return (synth(403)); } return (hash);",
        "path = \"/a/*\"\ndeny = 403",
    ),
    (
        "vcl_recv",
        "if (req.http.X != digest.hmac_sha256(\"k\", req.url)) { return (synth(302, \"/login\")); } return (hash);",
        "deny = 403",
    ),
    (
        "vcl_recv",
        "if (req.http.X !~ \"^secret[0-9]{5}$\") { return (synth(200, \"no\")); } return (hash);",
        "header.X = \"secret*\"\nanswer = false\ndeny = 403",
    ),
    (
        "vcl_recv",
        "if (std.random(0, 9) < 1) { return (synth(200, \"ok\")); } return (hash);",
        "deny = 403",
    ),
    (
        "vcl_backend_fetch",
        "if (std.random(0, 9) < 1) { return (abandon); }",
        "deny = 403",
    ),
    (
        "vcl_recv",
        "if (req.http.Cookie ~ \"SESS[[:alnum:]]_id\") { return (pass); } return (hash);",
        "pass = true",
    ),
    (
        "vcl_recv",
        "if (req.http.Cookie ~ \"(^|; )logged_in=1|(^|; )admin=1\") { return (pass); } return (hash);",
        "pass = true",
    ),
    (
        "vcl_backend_response",
        "if (beresp.http.Pragma ~ \"no-cache\") { set beresp.uncacheable = true; return (deliver); } set beresp.ttl = 1h;",
        "pass = true",
    ),
    (
        "vcl_recv",
        "if (std.random(0, 9) < 1) { unset req.http.X-Remote-User; } return (hash);",
        "request.remove = [\"X-Remote-User\"]",
    ),
    (
        "vcl_recv",
        "if (req.url ~ \"(?i)[?&]debug=\") { return (synth(403)); } return (hash);",
        "parameter = \"*\"\ndeny = 403",
    ),
    (
        "vcl_hash",
        "if (client.ip ~ office) { hash_data(\"1\"); }",
        "client = \"10.0.0.0/8\"\npass = true",
    ),
    (
        "vcl_recv",
        "if (req.method == \"PURGE\") { return (purge); }",
        "method = \"PURGE\"\ndeny = 403",
    ),
    (
        "vcl_recv",
        "if (req.method == \"REFRESH\" && client.ip ~ office) { return (purge); }",
        "method = \"REFRESH\"\ndeny = 403",
    ),
    (
        "vcl_recv",
        "if (req.http.X !~ \"^secret[0-9]{5}$\") { return (synth(403)); } return (hash);",
        "deny = 403",
    ),
    (
        "vcl_recv",
        "if (req.http.X ~ \"(?i)debug\") { return (pass); } return (hash);",
        "header.X = \"*\"\npass = true",
    ),
    (
        "vcl_recv",
        "if (req.http.Cookie !~ \"auth=[a-z]+xyz\") { return (synth(403)); } return (hash);",
        "deny = 403",
    ),
    (
        "vcl_recv",
        "set req.url = regsub(req.url, \"^/api/\", \"/\"); if (req.url ~ \"^/admin\") { return (synth(403)); }",
        "path_regex = \"^/api/(.*)$\"\ndeny = 403",
    ),
    (
        "vcl_recv",
        "set req.http.X = req.http.Y + std.time(now); if (req.http.X) { return (hash); } return (synth(403));",
        "deny = 403",
    ),
    ("vcl_hash", "hash_data(client.ip);", "pass = true"),
    (
        "vcl_deliver",
        "if (req.url ~ \"^/d\") { return (synth(403)); }",
        "path = \"/d*\"\ndeny = 403",
    ),
    (
        "vcl_recv",
        "if (req.method == \"PURGE\" && client.ip ~ office && req.http.X == \"k\") { return (purge); }",
        "hosts = [\"*\"]",
    ),
];

/// Differences that admit or purge more than Varnish, each with its line among the losses.
#[test]
fn a_difference_that_gives_more_than_varnish_is_a_loss() {
    for (statements, expected) in [
        (
            "if (req.url !~ \"[?&]token=\") { return (synth(403)); } return (hash);",
            true,
        ),
        (
            "if (req.url !~ \"[?&]token=\") { return (synth(750, \"/login\")); } return (hash); }\n\
             sub vcl_synth { if (resp.status == 750) { set resp.http.Location = resp.reason;\
             set resp.status = 302; return (deliver); }",
            true,
        ),
        (
            "if (req.url ~ \"[?&]token=\") { return (synth(403)); } return (hash);",
            false,
        ),
        (
            "if (req.url !~ \"\\?\") { return (synth(403)); } return (hash);",
            false,
        ),
        (
            "if (req.method == \"PURGE\" && client.ip ~ office) { return (purge); }\
             if (req.method == \"BAN\") { return (synth(405)); } return (hash);",
            false,
        ),
        (
            "if (req.method == \"BAN\") { return (synth(405)); } return (hash);",
            false,
        ),
    ] {
        let text = format!(
            "vcl 4.1; acl office {{ \"10.0.0.0\"/8; }} backend default {{ .host = \"10.0.0.1\"; }}\n\
             sub vcl_recv {{ {statements} }}\n"
        );
        let migration = translate("t", &text).expect("translated");
        let mut losses = migration.report.losses();
        let is_named = losses.any(|loss| loss.effect == Effect::Access && loss.at.line == 2);
        assert_eq!(is_named, expected, "{statements}: {:#?}", migration.report);
    }
}

/// The value of a cookie is found behind each separator.
#[test]
fn the_value_of_a_cookie_is_compared_behind_each_separator() {
    let text = "vcl 4.1; backend default { .host = \"10.0.0.1\"; }\n\
                sub vcl_recv { if (cookie.get(\"a\") == \"1\") { return (synth(403)); } return (hash); }\n";
    let migration = translate("t", text).expect("translated");
    let line = r#"header.Cookie = ["a=1", "a=1;*", "*;a=1", "*;a=1;*", "*; a=1", "*; a=1;*"]"#;
    assert!(migration.toml.contains(line), "{}", migration.toml);
    let star = translate("t", &text.replace("\"1\"", "\"*\"")).expect("translated");
    assert_ne!(star.report.losses().count(), 0);
}

#[test]
fn a_lost_statement_fails_closed() {
    for (sub, statements, expected) in CLOSED {
        let text = format!(
            "vcl 4.1; acl office {{ \"10.0.0.0\"/8; }} backend default {{ .host = \"10.0.0.1\"; }}\n\
             sub denied {{ return (synth(403)); }}\nsub {sub} {{ {statements} }}\n"
        );
        let migration = translate("t", &text).expect("translated");
        let toml = without_sources(&migration.toml);
        // Varnish's own `vcl_recv` passes requests with cookies in each result, so the site itself has to pass.
        let part = match *expected {
            "pass = true" => toml.split("[[site.rule]]").next().unwrap_or_default(),
            _ => &toml,
        };
        assert!(part.contains(expected), "{statements}: {toml}");
        assert!(!toml.contains("[purge]"), "{statements}: {toml}");
        assert_ne!(migration.report.losses().count(), 0, "{statements}");
    }
}

/// Statements that are translated exactly, with the lines of the result that state them.
#[test]
fn an_exception_from_caching_is_stated_wherever_it_is_made() {
    for (sub, statements, expected) in [
        (
            "vcl_miss",
            "if (req.url ~ \"^/m\") { return (pass); }",
            "path = \"/m*\"\npass = true",
        ),
        (
            "vcl_hit",
            "if (req.url ~ \"^/h\") { return (pass); }",
            "path = \"/h*\"\npass = true",
        ),
        (
            "vcl_backend_fetch",
            "if (bereq.url ~ \"^/f\") { return (abandon); }",
            "path = \"/f*\"\ndeny = 503",
        ),
        (
            "vcl_backend_fetch",
            "if (bereq.url ~ \"^/f\") { set bereq.uncacheable = true; }",
            "path = \"/f*\"\npass = true",
        ),
        (
            "vcl_backend_response",
            "if (bereq.url ~ \"^/p\") { set beresp.http.Cache-Control = \"private, no-store\"; }",
            "path = \"/p*\"\ndefault_ttl = false\npass = true",
        ),
        (
            "vcl_backend_response",
            "if (beresp.status == 404) { set beresp.uncacheable = true; }",
            "404 = \"no-store\"",
        ),
        (
            "vcl_recv",
            "if (req.url != \"/x\") { return (synth(403)); }",
            "path = \"/x\"\nparameter = \"*\"\ndeny = 403",
        ),
    ] {
        let text = format!(
            "vcl 4.1; backend default {{ .host = \"10.0.0.1\"; }} sub {sub} {{ {statements} }}"
        );
        let migration = translate("t", &text).expect("translated");
        let toml = without_sources(&migration.toml);
        assert!(toml.contains(expected), "{statements}: {toml}");
        assert_eq!(
            migration.report.losses().count(),
            0,
            "{statements}: {:#?}",
            migration.report
        );
    }
}

/// Conditions whose counterpart is wider or another one, with lines of the result. None of them is a loss.
#[test]
fn a_condition_holds_at_the_edge_for_all_requests_for_which_it_does_in_varnish() {
    for (statements, hash, expected) in [
        (
            "if (req.url ~ \"wp-admin|wp-login|preview=true\") { return (pass); }",
            "",
            &[
                "path_regex = [\"preview=true\", \"wp-login\", \"wp-admin\"]\npass = true",
                "parameter = \"*preview\"",
            ][..],
        ),
        (
            "if (req.url ~ \"\\?add=|\\?remove_item=\") { return (pass); }",
            "",
            &["parameter = [\"remove_item\", \"add\"]\npass = true"],
        ),
        (
            "if (req.url ~ \"debug=1|^/internal/\") { return (synth(403)); }",
            "",
            &[
                "path = \"/internal/*\"\ndeny = 403",
                "parameter = \"*debug\"\ndeny = 403",
            ],
        ),
        (
            "if (req.http.User-Agent == \"\") { return (synth(403)); }",
            "",
            &["header.User-Agent = \"\"\ndeny = 403"],
        ),
        (
            "if (req.url ~ \"[?&]debug\") { return (pass); }",
            "",
            &["parameter = \"debug*\"\npass = true"],
        ),
        (
            "if (req.url ~ \"token=\") { return (synth(403)); }",
            "",
            &[
                "path_regex = \"token=\"\ndeny = 403",
                "parameter = \"*token\"\ndeny = 403",
            ],
        ),
        (
            "",
            "if (req.http.Cookie ~ \"logged_in\") { hash_data(\"1\"); }",
            &["key = [\"header:Cookie\"]"],
        ),
        (
            "",
            "if (req.http.X-A ~ \"^a\") { hash_data(\"1\"); }",
            &["key = [\"header:X-A\"]"],
        ),
        (
            "if (req.http.User-Agent ~ \"MyShopApp\") { set req.http.X-Class = \"app\"; }",
            "hash_data(req.http.X-Class);",
            &["key = [\"header:X-Class\", \"header:User-Agent\"]"],
        ),
        (
            "if (req.http.Cookie ~ \"vip\") { set req.http.X-Class = \"vip\"; }",
            "hash_data(req.http.X-Class);",
            &["key = [\"header:X-Class\", \"header:Cookie\"]"],
        ),
        (
            "if (req.method == \"PURGE\") { return (synth(405)); }",
            "",
            &["method = \"PURGE\"\ndeny = 405"],
        ),
        (
            "if (req.method == \"REFRESH\") { return (synth(405)); }\n\
             if (req.method == \"PURGE\") { if (client.ip !~ office) { return (synth(405)); } return (purge); }",
            "",
            &[
                "method = \"REFRESH\"\ndeny = 405",
                "[purge]\nallow = [\"10.0.0.0/8\"]\nmethods = [\"PURGE\"]",
            ],
        ),
        (
            "if (req.method == \"BAN\") { if (client.ip !~ office) { return (synth(405)); } \
             ban(\"req.http.host == \" + req.http.host + \" && req.url == \" + req.url); return (synth(200)); }\n\
             if (req.method == \"PURGE\") { if (client.ip !~ office) { return (synth(405)); } return (purge); }",
            "",
            &["[purge]\nallow = [\"10.0.0.0/8\"]\nmethods = [\"PURGE\", \"BAN\"]"],
        ),
    ] {
        let text = format!(
            "vcl 4.1; acl office {{ \"10.0.0.0\"/8; }} backend default {{ .host = \"10.0.0.1\"; }}\n\
             sub vcl_recv {{ {statements} return (hash); }} sub vcl_hash {{ {hash} }}"
        );
        let migration = translate("t", &text).expect("translated");
        let toml = without_sources(&migration.toml);
        for line in expected {
            assert!(toml.contains(line), "{text}: {line}: {toml}");
        }
        assert_eq!(
            migration.report.losses().count(),
            0,
            "{text}: {:#?}",
            migration.report
        );
    }
}

/// Cookies are only removed from all responses if the configuration does so for all that it stores.
#[test]
fn cookies_are_stripped_from_all_stored_responses_or_from_none() {
    let strips = |response: &str| toml("return (hash);", response).contains("set_cookie");
    let removal = "if (beresp.ttl > 0s) { unset beresp.http.Set-Cookie; }";
    assert!(strips(removal));
    assert!(!strips(&format!(
        "if (bereq.url ~ \"^/a\") {{ {removal} }}"
    )));
    assert!(!strips(&removal.replace('>', "<")));
    let excluded =
        "if (beresp.http.Set-Cookie) { set beresp.uncacheable = true; return (deliver); }";
    assert!(!strips(&format!("{excluded} {removal}")));
}
