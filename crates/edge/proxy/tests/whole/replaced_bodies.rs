//! Rules with `replace`: strings in the origin's responses are replaced before the responses are stored.

use std::sync::Arc;

use crate::one_site::set_site;
use crate::support::{Client, TestBed};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::Token;
use edgeward_sites::{Replacement, Replacements, Settings, Template};
use edgeward_testkit::Answer;
use edgeward_types::Pattern;
use http::HeaderName;

const TOKEN: &str = "correct-horse-battery";

fn replacing(pairs: &[(&str, &str)]) -> Settings {
    let list = pairs.iter().map(|(from, to)| Replacement {
        from: (*from).into(),
        to: Template::new(to, None).expect("a template"),
    });
    let list = Replacements::new(list.collect()).expect("few strings");
    Settings {
        replace: Some(Arc::new(list)),
        ..Settings::default()
    }
}

fn with_settings(settings: Settings) -> impl FnOnce(&mut EdgeConfig) {
    move |config| {
        set_site(config, settings, Vec::new());
        config.purge.token = Token::new(TOKEN).ok();
    }
}

fn index() -> Settings {
    replacing(&[("https://files.example", "${scheme}://${host}/files")])
}

fn page(text: impl AsRef<str>) -> Answer {
    Answer::ok(text.as_ref().to_owned())
        .header("cache-control", "max-age=600")
        .header("content-type", "text/html; charset=utf-8")
}

const LINK: &str = "<a href=\"https://files.example/a.whl\">a</a>";

#[test]
fn a_body_is_replaced_once_and_stored_for_hits() {
    let bed = TestBed::with_config(with_settings(index()));
    bed.origin.on(
        "/simple/a/",
        page(LINK)
            .header("etag", "\"1\"")
            .header("content-md5", "x")
            .header("repr-digest", "sha-256=:x:"),
    );
    for hit in [false, true, true] {
        let answer = bed.get_with("/simple/a/", &[("accept-encoding", "gzip")]);
        assert_eq!(answer.is_hit(), hit, "{answer:?}");
        assert_eq!(
            answer.text(),
            "<a href=\"http://test.example/files/a.whl\">a</a>"
        );
        assert_eq!(answer.header("etag"), Some("W/\"1\""));
        assert_eq!(answer.header("content-md5"), None);
        assert_eq!(answer.header("repr-digest"), None);
    }
    let request = bed.origin.last("/simple/a/").expect("a request");
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    let metric = "edgeward_replaced_bodies_total{result=\"replaced\"}";
    assert_eq!(bed.metric(metric), 1.0);
}

/// The head of a 304 has the strong tag of the origin again. The stored response keeps its weak tag and its length.
#[test]
fn a_replaced_body_is_revalidated_by_its_weak_tag() {
    let bed = TestBed::with_config(with_settings(index()));
    let of = |status| {
        move |text: &'static str| {
            Answer::ok(text)
                .with_status(status)
                .header("etag", "\"1\"")
                .header("cache-control", "max-age=0")
        }
    };
    bed.origin
        .on("/a", of(200)(LINK).header("content-type", "text/html"));
    let first = bed.get("/a");
    bed.origin.on("/a", of(304)(""));
    for _ in 0..2 {
        let answer = bed.get("/a");
        assert_eq!(answer.text(), first.text(), "{answer:?}");
        assert_eq!(answer.header("etag"), Some("W/\"1\""));
        let request = bed.origin.last("/a").expect("a request");
        assert_eq!(request.header("if-none-match"), Some("W/\"1\""));
    }
    assert!(first.text().contains("http://test.example/files/a.whl"));
}

#[test]
fn other_types_and_codings_stay_and_a_range_gets_the_complete_body() {
    let bed = TestBed::with_config(with_settings(index()));
    let image = Answer::ok(LINK)
        .header("cache-control", "max-age=600")
        .header("content-type", "image/png")
        .header("etag", "\"1\"");
    bed.origin.on("/image", image);
    bed.origin
        .on("/coded", page(LINK).header("content-encoding", "x-unknown"));
    bed.origin.on("/range", page(LINK));
    assert_eq!(bed.get("/image").text(), LINK);
    assert_eq!(bed.get("/image").header("etag"), Some("\"1\""));
    let coded = bed.get_with("/coded", &[("accept-encoding", "x-unknown")]);
    assert_eq!(coded.text(), LINK);
    let metric = "edgeward_replaced_bodies_total{result=\"coded\"}";
    assert_eq!(bed.metric(metric), 1.0);
    for _ in 0..2 {
        let answer = bed.get_with("/range", &[("range", "bytes=0-4")]);
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains("http://test.example/files/a.whl"));
    }
    let request = bed.origin.last("/range").expect("a request");
    assert_eq!(request.header("range"), None);
    assert_eq!(bed.origin.requests("/range"), 1);
}

/// Each host has its own key, so a client cannot give the links of its host to the clients of another host.
#[test]
fn fields_are_replaced_too_and_each_host_gets_its_own_links() {
    let mut settings = index();
    settings.replace_types = Some(Arc::from([]));
    settings.replace_fields = Some(Arc::from([
        HeaderName::from_static("location"),
        HeaderName::from_static("www-authenticate"),
    ]));
    let bed = TestBed::with_config(with_settings(settings));
    let redirect = page(LINK)
        .with_status(307)
        .header("location", "https://files.example/blob?sig=1")
        .header(
            "www-authenticate",
            "Bearer realm=\"https://files.example/token\"",
        );
    bed.origin.on("/v2/blob", redirect);
    for (host, hit) in [
        ("a.example", false),
        ("b.example", false),
        ("a.example", true),
    ] {
        let mut client = bed.connect();
        let head = format!("GET /v2/blob HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.send(head.as_bytes());
        let answer = client.answer("GET");
        assert_eq!(answer.is_hit(), hit, "{host}: {answer:?}");
        assert_eq!(answer.text(), LINK);
        let location = format!("http://{host}/files/blob?sig=1");
        assert_eq!(answer.header("location"), Some(&*location));
        let realm = format!("Bearer realm=\"http://{host}/files/token\"");
        assert_eq!(answer.header("www-authenticate"), Some(&*realm));
    }
}

/// Method: a body of many pieces whose strings cross their borders, with a length that is not known at first.
#[test]
fn a_long_body_is_replaced_while_it_streams() {
    let bed = TestBed::with_config(with_settings(replacing(&[
        ("https://files.example", "https://f"),
        ("abc", "a longer text"),
    ])));
    let text: String = (0..40_000)
        .map(|n| format!("{n} https://files.example/{n} abc\n"))
        .collect();
    bed.origin.on("/long", page(&text));
    let expected = text
        .replace("https://files.example", "https://f")
        .replace("abc", "a longer text");
    for hit in [false, true] {
        let answer = bed.get("/long");
        assert!(answer.text() == expected, "hit: {hit}");
        assert_eq!(answer.is_hit(), hit);
    }
    let head = bed.connect().request("HEAD", "/long", &[], b"");
    assert_eq!(
        head.header("content-length"),
        Some(&*expected.len().to_string())
    );
}

#[test]
fn an_explanation_shows_the_strings_and_where_they_are_replaced() {
    let mut settings = index();
    settings.replace_types = Some(Arc::from([Pattern::new("text/html")]));
    settings.replace_fields = Some(Arc::from([HeaderName::from_static("location")]));
    let bed = TestBed::with_config(with_settings(settings));
    let authorization = format!("Bearer {TOKEN}");
    let question = r#"{ "url": "http://test.example/a" }"#;
    let length = question.len().to_string();
    let fields = [
        ("authorization", &*authorization),
        ("content-length", &*length),
    ];
    let admin = bed.edge.admin_addr().expect("configured");
    let answer = Client::connect(admin).request("POST", "/explain", &fields, question.as_bytes());
    let explained: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    let step = explained["steps"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|step| step["step"] == "replace")
        .expect("a step");
    assert_eq!(
        step["decision"],
        "https://files.example by http://test.example/files in text/html, field location"
    );
}

#[test]
fn only_a_rule_shares_responses_to_authorized_requests() {
    for shares in [false, true] {
        let settings = Settings {
            share_authorized: Some(shares),
            ..Settings::default()
        };
        let bed = TestBed::with_config(with_settings(settings));
        bed.origin.on("/v2/blobs/1", page("blob"));
        for (user, hit) in [("a", false), ("b", shares)] {
            let authorization = format!("Bearer {user}");
            let answer = bed.get_with("/v2/blobs/1", &[("authorization", &authorization)]);
            assert_eq!(answer.is_hit(), hit, "{answer:?}");
        }
    }
}
