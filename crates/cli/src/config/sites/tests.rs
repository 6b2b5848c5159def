//! Tests of sites in the configuration file and of the messages about them.

mod wrong_values;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use edgeward_sites::{FieldChange, RULES_MAX, RateKey, SITES_MAX, Site};
use http::StatusCode;
use http::header::HeaderName;
use proptest::prelude::*;

use super::super::check::{self, CheckedConfig};
use super::super::file;
use super::super::setting::SettingsFile;
use super::keys;
use super::row::Read;
use crate::diagnostic::{self, Diagnostics};

const LISTENER_AND_ORIGIN: &str =
    "[[listener]]\naddress = '127.0.0.1:0'\n[origin]\nurl = 'http://127.0.0.1:9'\n";

/// Checks the text of a file in `folder`.
pub(super) fn check_text(text: &str, folder: &Path) -> Result<CheckedConfig, Diagnostics> {
    let file = folder.join("edge.toml");
    let settings_file = SettingsFile { file: Some(&file) };
    check::check(file::parse(text, folder), &settings_file)
}

/// The messages about a file with these sites. Lines count from the first line of `sites`.
fn messages(sites: &str) -> String {
    // The other tables come last, so that lines count from the first line of the sites.
    match check_text(&format!("{sites}\n{LISTENER_AND_ORIGIN}"), Path::new("")) {
        Ok(_) => "valid".to_owned(),
        Err(errors) => diagnostic::render(&errors.into()),
    }
}

/// The configuration of a file with these sites.
fn config(sites: &str) -> CheckedConfig {
    check_text(&format!("{sites}\n{LISTENER_AND_ORIGIN}"), Path::new(""))
        .expect("the file is valid")
}

/// The only site of a file, for all hosts.
fn site(lines: &str) -> Site {
    let config = config(&format!("[[site]]\nhosts = '*'\n{lines}"));
    let id = config
        .edge
        .sites
        .find("a.example")
        .expect("the site serves all hosts");
    config.edge.sites.site(id).clone()
}

#[test]
fn without_sites_one_site_serves_all_hosts() {
    for sites in ["", "site = []"] {
        let config = config(sites);
        assert_eq!(config.edge.sites.len(), 1);
        assert!(config.edge.sites.find("a.example").is_some());
        assert!(config.sites.is_empty());
    }
}

#[test]
fn sites_have_their_hosts_and_their_rules_in_order() {
    let config = config(
        "[[site]]\nhosts = ['Example.ORG', '*.example.org']\nttl = '1h'\n\
         [[site.rule]]\npath = '/a/*'\npass = true\n\
         [[site.rule]]\nmethod = 'POST'\ndeny = true\n\
         [[site]]\nhosts = 'b.example'\n",
    );
    let sites = &config.edge.sites;
    let rules_of = |host: &str| {
        let id = sites.find(host)?;
        let lines = sites.site(id).rules().iter().map(|rule| rule.line);
        Some(lines.collect::<Vec<_>>())
    };
    assert_eq!(rules_of("example.org"), Some(vec![4, 7]));
    assert_eq!(rules_of("x.example.org:80"), Some(vec![4, 7]));
    assert_eq!(rules_of("b.example"), Some(vec![]));
    assert_eq!(rules_of("c.example"), None);
    let summaries = serde_json::to_value(&config.sites).expect("JSON");
    let expected = serde_json::json!([
        { "hosts": ["example.org", "*.example.org"], "rules": 2, "line": 1 },
        { "hosts": ["b.example"], "rules": 0, "line": 10 },
    ]);
    assert_eq!(summaries, expected);
}

#[test]
fn one_table_is_an_array_with_one_table() {
    let config = config("[site]\nhosts = 'a.example'\n[site.rule]\npath = '/a'\npass = true\n");
    let id = config.edge.sites.find("a.example").expect("a site");
    assert_eq!(config.edge.sites.site(id).rules().len(), 1);
}

/// The keys that other keys need beside them.
fn companions(path: &str) -> &'static str {
    match path {
        "redirect_status" => "redirect = '/a'",
        "rate_limit_burst" | "rate_limit_by" => "rate_limit = '1/s'",
        "rewrite" => "path_regex = '^/(.*)$'",
        "tls_certificates" => "tls_key = 'tls/example.org.key'",
        "tls_key" => "tls_certificates = 'tls/example.org.pem'",
        "tls_ocsp" => "tls_certificates = 'tls/example.org.pem'\ntls_key = 'tls/example.org.key'",
        _ => "",
    }
}

/// Method: each example of the reference is checked in a file in which only this key is given.
#[test]
fn every_example_of_the_reference_is_valid() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (name, text) in [
        ("tls/example.org.pem", "certificate"),
        ("tls/example.org.key", "key"),
        ("tls/example.org.ocsp", "response"),
        ("pages/404.html", "<h1>not found</h1>"),
        ("pages/error.html", "<h1>error</h1>"),
        ("pages/welcome.html", "<h1>welcome</h1>"),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is created");
        fs::write(path, text).expect("the file is written");
    }
    let tls = "tls_certificates = 'tls/example.org.pem'\ntls_key = 'tls/example.org.key'\n";
    let others = LISTENER_AND_ORIGIN.replace("[origin]", &format!("{tls}[origin]"));
    for key in keys::all() {
        let lines = format!("{}\n{}\n", companions(key.path), key.example);
        let hosts = "[[site]]\nhosts = ['a.example']\n";
        let site = match key.read {
            Read::Site(_) if key.path == "hosts" => format!("[[site]]\n{lines}"),
            Read::Site(_) => format!("{hosts}{lines}"),
            _ => format!("{hosts}[[site.rule]]\n{lines}"),
        };
        let text = format!("{site}{others}");
        if let Err(errors) = check_text(&text, folder.path()) {
            panic!("{}: {}", key.path, diagnostic::render(&errors.into()));
        }
        // A setting is also a key of the site itself, without the conditions of a rule.
        if let Read::Setting(_) = key.read
            && key.path != "rewrite"
        {
            let text = format!("{hosts}{lines}{others}");
            assert!(
                check_text(&text, folder.path()).is_ok(),
                "{} in [[site]]",
                key.path
            );
        }
    }
}

#[test]
fn the_configuration_of_the_page_about_registries_is_valid() {
    let page = include_str!("../../../../../docs/how-to/registries.md");
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (text, _) = rest.split_once("```").expect("its end");
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    if let Err(errors) = check_text(text, folder.path()) {
        panic!("{}", diagnostic::render(&errors.into()));
    }
}

/// Method: each example of docs/how-to/sites.md is completed by the tables that it lacks, and checked.
#[test]
fn the_examples_of_the_page_about_sites_are_valid() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    fs::create_dir(folder.path().join("pages")).expect("the folder is created");
    fs::write(folder.path().join("pages/error.html"), "<h1>error</h1>").expect("written");
    fs::write(folder.path().join("pages/robots.txt"), "User-agent: *").expect("written");
    let page = include_str!("../../../../../docs/how-to/sites.md");
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("split returns a part"))
        .collect();
    assert_eq!(examples.len(), 9);
    for example in examples {
        let mut text = String::new();
        if !example.contains("[[listener]]") {
            text.push_str("[[listener]]\naddress = '127.0.0.1:0'\n");
        }
        if !example.contains("[[origin]]") {
            text.push_str("[origin]\nurl = 'http://127.0.0.1:9'\n");
        }
        if !example.contains("[[site]]") {
            text.push_str("[[site]]\nhosts = '*'\n");
        }
        text.push_str(example);
        if let Err(errors) = check_text(&text, folder.path()) {
            panic!("{}\n{text}", diagnostic::render(&errors.into()));
        }
    }
}

#[test]
fn an_origin_is_found_by_its_name() {
    let sites = "[[site]]\nhosts = '*'\norigin = 'b'\n[[site.rule]]\norigin = 'a'\n\
                 [[origin]]\nname = 'a'\nurl = 'http://127.0.0.1:1'\n\
                 [[origin]]\nname = 'b'\nurl = 'http://127.0.0.1:2'\n\
                 [[listener]]\naddress = '127.0.0.1:0'\n";
    let config = check_text(sites, Path::new("")).expect("the file is valid");
    let (_, site) = config.edge.sites.iter().next().expect("a site");
    assert_eq!(site.settings.origin, Some(1));
    assert_eq!(site.rules()[0].settings.origin, Some(0));
}

#[test]
fn keys_are_unique_and_no_key_is_a_group_of_others() {
    let paths: Vec<&str> = keys::all().map(|key| key.path).collect();
    let unique: HashSet<&str> = paths.iter().copied().collect();
    assert_eq!(unique.len(), paths.len());
    for path in &paths {
        let group = format!("{path}.");
        assert!(
            !paths.iter().any(|other| other.starts_with(&group)),
            "{path}"
        );
    }
}

#[test]
fn one_duration_stands_for_cacheable_statuses_but_not_for_errors() {
    let own = site("ttl = '1h'\ndefault_ttl = { 404 = '1min', 5xx = '5s' }").settings;
    let ttl = |status| {
        own.ttl
            .get(StatusCode::from_u16(status).expect("a status"))
            .copied()
            .flatten()
    };
    for status in [200, 203, 206, 301, 308] {
        assert_eq!(ttl(status), Some(Duration::from_secs(3600)), "{status}");
    }
    for status in [204, 302, 404, 500] {
        assert_eq!(ttl(status), None, "{status}");
    }
    let default = |status| own.default_ttl.get(status).copied().flatten();
    assert_eq!(
        default(StatusCode::NOT_FOUND),
        Some(Duration::from_secs(60))
    );
    assert_eq!(
        default(StatusCode::BAD_GATEWAY),
        Some(Duration::from_secs(5))
    );
    assert_eq!(default(StatusCode::OK), None);
    let own = site("ttl = { 404 = '0s', 5xx = 'no-store' }").settings;
    assert_eq!(own.ttl.get(StatusCode::BAD_GATEWAY), Some(&None));
    assert_eq!(
        own.ttl.get(StatusCode::NOT_FOUND),
        Some(&Some(Duration::ZERO))
    );
}

#[test]
fn the_burst_of_a_rate_is_what_one_second_allows() {
    for (lines, requests, seconds, burst, by) in [
        ("rate_limit = '100/s'", 100, 1, 100, RateKey::Client),
        ("rate_limit = '600/min'", 600, 60, 10, RateKey::Client),
        ("rate_limit = '30/min'", 30, 60, 1, RateKey::Client),
        (
            "rate_limit = '7200/h'\nrate_limit_burst = 50",
            7200,
            3600,
            50,
            RateKey::Client,
        ),
        (
            "rate_limit_by = 'header:X-Key'\nrate_limit = '1/s'",
            1,
            1,
            1,
            RateKey::Header(HeaderName::from_static("x-key")),
        ),
        (
            "rate_limit_by = 'site'\nrate_limit = '5/s'",
            5,
            1,
            5,
            RateKey::Site,
        ),
    ] {
        let limit = site(lines).settings.rate_limit;
        let limit = limit.value().expect(lines);
        assert_eq!(limit.requests, requests, "{lines}");
        assert_eq!(limit.per, Duration::from_secs(seconds), "{lines}");
        assert_eq!(limit.burst, burst, "{lines}");
        assert_eq!(limit.by, by, "{lines}");
    }
}

#[test]
fn rate_limits_have_different_numbers() {
    let config = config(
        "[[site]]\nhosts = 'a'\nrate_limit = '1/s'\n[[site.rule]]\nrate_limit = '1/s'\n\
         [[site]]\nhosts = 'b'\n[[site.rule]]\nrate_limit = '1/s'\n",
    );
    let mut numbers = Vec::new();
    for (_, site) in config.edge.sites.iter() {
        let rules = site.rules().iter().map(|rule| &rule.settings);
        for settings in std::iter::once(&site.settings).chain(rules) {
            numbers.extend(settings.rate_limit.value().map(|limit| limit.number));
        }
    }
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn error_pages_start_at_the_folder_of_the_file_and_have_a_size_limit() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let write = |name: &str, bytes: usize| {
        fs::write(folder.path().join(name), vec![b'a'; bytes]).expect("the file is written");
    };
    write("full.txt", 1 << 20);
    write("large.txt", (1 << 20) + 1);
    write("page.php", 1);
    let check = |page: &str| {
        let text = format!(
            "{LISTENER_AND_ORIGIN}[[site]]\nhosts = '*'\nerror_page = {{ 5xx = '{page}' }}\n"
        );
        check_text(&text, folder.path()).map_err(|errors| errors.to_string())
    };
    let config = check("full.txt").expect("the largest page");
    let (_, site) = config.edge.sites.iter().next().expect("a site");
    let page = site
        .settings
        .error_pages
        .get(StatusCode::BAD_GATEWAY)
        .expect("a page");
    assert_eq!(page.body.len(), 1 << 20);
    assert_eq!(&*page.content_type, "text/plain; charset=utf-8");
    for (page, part) in [
        ("large.txt", "exceeds 1 MiB"),
        ("page.php", "has an extension without a known type"),
        ("none.html", "does not exist"),
    ] {
        let message = check(page).expect_err(page);
        assert!(message.contains(part), "{message}");
    }
}

/// A text has the limit of a file.
#[test]
fn a_text_of_the_file_is_a_page_like_that_of_another_file() {
    let site = site(
        "answer = { body = 'ok' }\nerror_page = { 404 = { body = '{}', content_type = 'application/json' } }",
    );
    let answer = site.settings.answer.value().expect("an answer");
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(&*answer.page.content_type, "text/plain; charset=utf-8");
    assert_eq!(answer.page.body, "ok");
    let page = site.settings.error_pages.get(StatusCode::NOT_FOUND);
    let page = page.expect("a page");
    assert_eq!(
        (&*page.content_type, &page.body[..]),
        ("application/json", &b"{}"[..])
    );
    let of_length = |length: usize| {
        let body = "a".repeat(length);
        messages(&format!(
            "[[site]]\nhosts = '*'\nanswer = {{ body = '{body}' }}\n"
        ))
    };
    assert_eq!(of_length(1 << 20), "valid");
    assert!(of_length((1 << 20) + 1).contains("exceeds 1 MiB"));
}

#[test]
fn locations_that_lead_where_they_say_are_valid() {
    for location in [
        "/new",
        "/new/${1}",
        "https://${host}${uri}",
        "${scheme}://www.example.org${path}",
        "https://example.org/${1}",
        "https://${1}.example.org/",
        "http://example.org:8080?from=${path}",
        "https://example.org#top",
    ] {
        let rule = format!("[[site.rule]]\npath_regex = '(a)'\nredirect = '{location}'");
        let site = site(&rule);
        let redirect = site.rules()[0].settings.redirect.value().expect(location);
        assert_eq!(redirect.location.to_string(), location);
        assert_eq!(redirect.status, StatusCode::FOUND);
    }
}

#[test]
fn groups_of_an_invalid_or_ambiguous_expression_are_not_reported_twice() {
    let printed = messages(
        "[[site]]\nhosts = '*'\n[[site.rule]]\npath_regex = '('\nrewrite = '/${1}'\n\
         [[site.rule]]\npath_regex = ['^/a(.*)', '^/b(.*)']\nrewrite = '/${1}'\n",
    );
    assert_eq!(printed.matches("error: ").count(), 2, "{printed}");
    assert!(printed.contains("${1} needs a path_regex"), "{printed}");
}

#[test]
fn host_can_be_set_for_the_origin() {
    let own = site("request.set.Host = 'app.internal'").settings;
    let change = own.request.get(&http::header::HOST);
    assert!(matches!(change, Some(FieldChange::Set(value)) if value.to_string() == "app.internal"));
}

#[test]
fn unknown_keys_have_the_nearest_known_key_as_hint() {
    insta::assert_snapshot!(
        messages(
            "[[site]]\nhosts = '*'\npth = '/a'\npath = '/a'\nqeury.sort = true\n\
             [[site.rule]]\nhosts = 'a'\nmethods = 'GET'\nsort = true\nquery.sotr = true\nnonsense = 1\n\
             response.sett.X-A = 'a'\n"
        ),
        @r#"
    error: unknown key pth in [[site]]
      in edge.toml, line 3
      hint: did you mean path?
    error: unknown key path in [[site]]
      in edge.toml, line 4
      hint: write it in a [[site.rule]]: a site applies to all requests of its hosts
    error: unknown key qeury in [[site]]
      in edge.toml, line 5
      hint: did you mean query?
    error: unknown key hosts in [[site.rule]]
      in edge.toml, line 7
      hint: write it in [[site]]: it concerns all requests of a site
    error: unknown key methods in [[site.rule]]
      in edge.toml, line 8
      hint: did you mean method?
    error: unknown key sort in [[site.rule]]
      in edge.toml, line 9
      hint: did you mean query.sort?
    error: unknown key query.sotr in [[site.rule]]
      in edge.toml, line 10
      hint: did you mean query.sort?
    error: unknown key nonsense in [[site.rule]]
      in edge.toml, line 11
      hint: `edgeward check-config --reference` lists the keys of [[site.rule]]
    error: unknown key response.sett in [[site.rule]]
      in edge.toml, line 12
      hint: did you mean response.set?
    "#
    );
}

#[test]
fn a_host_of_two_sites_names_both() {
    insta::assert_snapshot!(
        messages(
            "[[site]]\nhosts = ['a.example', 'b.example', 'A.example']\n\
             [[site]]\nhosts = ['c.example', 'b.example', '*']\n\
             [[site]]\nhosts = '*'\n[[site]]\nttl = '1h'\n[[site]]\nhosts = []\n\
             [[site]]\nhosts = ['http://a', 'a:80', 'bücher.example', 5]\n"
        ),
        @r#"
    error: the site a.example has the host a.example twice
      in edge.toml, line 2
      hint: remove one of the two
    error: the site c.example has the host b.example, which belongs to the site a.example in line 1
      in edge.toml, line 4
      hint: remove it from one of the two sites
    error: the site * has the host *, which belongs to the site c.example in line 3
      in edge.toml, line 6
      hint: remove it from one of the two sites
    error: this [[site]] has no hosts
      in edge.toml, line 7
      hint: add hosts = ["www.example.org"], or hosts = "*" for all other hosts
    error: hosts = [] is an empty list
      in edge.toml, line 10
      hint: write at least one host
    error: hosts = 'http://a' is not a host name
      in edge.toml, line 12
      hint: write www.example.org, *.example.org for all hosts below a domain, or * for all other hosts
    error: hosts = 'a:80' is not a host name
      in edge.toml, line 12
      hint: leave out the port: a site answers on all ports
    error: hosts = 'bücher.example' is not a host name
      in edge.toml, line 12
      hint: write the host in ASCII, as browsers send it: xn--…
    error: hosts = 5 is a number, not a host
      in edge.toml, line 12
      hint: write "www.example.org"
    "#
    );
}

#[test]
fn a_lifetime_that_is_a_wrong_word_is_told_both_forms() {
    insta::assert_snapshot!(
        messages("[[site]]\nhosts = '*'\nttl = { 404 = 'no-stor' }\n"),
        @r#"
    error: ttl.404 = 'no-stor' is neither a duration nor "no-store"
      in edge.toml, line 3
      hint: write "no-store", or a duration such as "30s"
    "#
    );
}

#[test]
fn a_certificate_needs_its_key_a_host_and_a_listener_with_tls() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    fs::write(folder.path().join("a.pem"), "a").expect("the file is written");
    let both = "tls_certificates = 'a.pem'\ntls_key = 'a.pem'\n";
    let tls = LISTENER_AND_ORIGIN.replace("[origin]", &format!("{both}[origin]"));
    let check = |others: &str, site: &str| match check_text(
        &format!("{others}[[site]]\n{site}"),
        folder.path(),
    ) {
        Ok(config) => format!("{} certificates", config.edge.site_certificates.len()),
        Err(errors) => errors.to_string(),
    };
    assert_eq!(
        check(&tls, &format!("hosts = ['a', '*']\n{both}")),
        "1 certificates"
    );
    for (others, site, part) in [
        (
            &*tls,
            "hosts = 'a'\ntls_key = 'a.pem'\n",
            "tls_key is set without tls_certificates",
        ),
        (
            &*tls,
            "hosts = 'a'\ntls_ocsp = 'a.pem'\n",
            "tls_ocsp is set without tls_certificates",
        ),
        (
            &*tls,
            "hosts = 'a'\ntls_certificates = 'a.pem'\n",
            "is set without tls_key",
        ),
        (
            &*tls,
            &*format!("hosts = '*'\n{both}"),
            "a site for all other hosts",
        ),
        (
            LISTENER_AND_ORIGIN,
            &*format!("hosts = 'a'\n{both}"),
            "no listener accepts TLS",
        ),
    ] {
        let message = check(others, site);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_syntax_error_has_one_message_and_hides_no_other_error() {
    insta::assert_snapshot!(
        messages("site = 5\n"),
        @r#"
    error: site = 5 is not a table
      in edge.toml, line 1
      hint: write [[site]] on a line, and its keys below
    "#
    );
    let printed = messages(
        "[[site]]\nhosts = a.example\n[[site.rule]]\npath = /a/*\npass = yes\nttl = 1h\ndeny = 5\n",
    );
    let of_sites: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("edge.toml, line"))
        .collect();
    let expected = [2, 4, 5, 6, 7].map(|line| format!("  in edge.toml, line {line}"));
    assert_eq!(of_sites, expected, "{printed}");
}

#[test]
fn sites_and_rules_have_limits() {
    let rules = |count: usize| {
        let mut text = String::from("[[site]]\nhosts = 'a.example'\n");
        text.push_str(&"[[site.rule]]\npass = true\n".repeat(count));
        text
    };
    assert_eq!(messages(&rules(RULES_MAX)), "valid");
    assert_eq!(
        messages(&rules(RULES_MAX + 1)),
        "error: the site a.example has more than 256 rules\n  in edge.toml, line 515\n  \
         hint: combine rules: `path` and the other conditions accept lists\n"
    );
    let sites = |count: usize| {
        let mut text = String::new();
        for n in 0..count {
            _ = writeln!(text, "[[site]]\nhosts = 's{n}.example'");
        }
        text
    };
    assert_eq!(messages(&sites(SITES_MAX)), "valid");
    let printed = messages(&sites(SITES_MAX + 1));
    assert!(printed.starts_with("error: 10001 sites are given, but at most 10000 are possible\n"));
    assert!(printed.contains("line 20001\n"), "{printed}");
}

#[test]
fn a_missing_bracket_does_not_flood_the_terminal() {
    let rules = "[[site.rule]]\npath = '/a'\n".repeat(50);
    let printed = messages(&format!("[[site]]\nhosts = ['a.example'\n{rules}"));
    // Ten errors, the remark about the others, and the missing listener and origin.
    assert_eq!(printed.matches("error: ").count(), 13, "{printed}");
    assert!(printed.starts_with("error: invalid TOML: "), "{printed}");
}

/// A line of a file that is nearly valid.
fn line() -> impl Strategy<Value = String> {
    let paths: Vec<&str> = keys::all().map(|key| key.path).collect();
    let examples: Vec<&str> = keys::all().map(|key| key.example).collect();
    let value = prop_oneof![
        Just("true".to_owned()),
        "-?[0-9]{1,4}",
        "'[a-z0-9/*.:${} ]{0,9}'",
        "\\['[a-z/*]{0,3}'(, [0-9])?\\]",
        "\\{ [0-9]{3} = '[a-z0-9]{0,3}' \\}",
        "[a-z\\[{]{0,3}",
    ];
    prop_oneof![
        2 => Just("[[site]]\nhosts = '*'".to_owned()),
        2 => Just("[[site.rule]]".to_owned()),
        4 => proptest::sample::select(examples).prop_map(str::to_owned),
        4 => (proptest::sample::select(paths), value).prop_map(|(path, value)| format!("{path} = {value}")),
        1 => any::<String>(),
        1 => "[a-z\\[\\]=. '\"#]{0,12}",
    ]
}

proptest! {
    /// The parser of a file gets any text: it returns a configuration or errors, each with a line of the file or about
    /// what is missing in the whole file.
    #[test]
    fn any_text_is_a_configuration_or_has_errors_with_lines(
        lines in proptest::collection::vec(line(), 0..12),
    ) {
        let text = lines.join("\n");
        // A message at the end of a text that ends with a line feed is on the line after it.
        let lines = text.split('\n').count();
        if let Err(Diagnostics(errors)) = check_text(&text, Path::new("")) {
            prop_assert!(!errors.is_empty());
            for error in errors {
                let json = error.to_json();
                let line = json["line"].as_u64();
                let is_of_file = json["message"].as_str().is_some_and(|message| message.contains(" is missing: "));
                prop_assert!(
                    line.map_or(is_of_file, |line| (1..=lines as u64).contains(&line)),
                    "{json}\n{text}"
                );
            }
        }
    }
}
