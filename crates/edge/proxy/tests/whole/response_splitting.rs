//! Rules that copy parts of a request into fields and locations, with requests that try to begin a line of their own.

use std::sync::Arc;

use edgeward_sites::{
    Condition, FieldChange, PathPattern, Redirect, Rule, Settings, Stated, Template,
};
use edgeward_testkit::Answer;
use http::{HeaderName, StatusCode};

use crate::one_site::set_site;
use crate::support::TestBed;

/// The line that the requests try to make.
const INJECTED: &str = "x-injected";

/// Returns an edge that copies path, query, host, a field, cookies and a group into fields of both messages.
/// Paths below `/go/` are redirected.
fn bed() -> TestBed {
    let expression = PathPattern::regex("(?s-u)^/(.*)$").expect("an expression");
    let PathPattern::Regex(regex) = &expression else {
        panic!("an expression is a regex");
    };
    let template = |text: &str| Template::new(text, Some(regex)).expect("a template");
    let copy = template("${path}|${query}|${host}|${header.x-a}|${header.cookie}|${1}");
    let copy = FieldChange::Set(Arc::new(copy));
    let mut copies = Settings::default();
    let name = HeaderName::from_static("x-copy");
    copies.request.insert(name.clone(), copy.clone());
    copies
        .origin_response
        .insert(HeaderName::from_static("x-origin"), copy.clone());
    copies.response.insert(name, copy);
    let redirect = Redirect {
        status: StatusCode::FOUND,
        location: template("/to/${1}?${query}&${header.x-a}"),
    };
    let redirects = Settings {
        redirect: Stated::On(Arc::new(redirect)),
        ..Settings::default()
    };
    let everywhere = Condition {
        path_regexes: vec![expression.clone()],
        ..Condition::default()
    };
    let below_go = Condition {
        paths: vec![PathPattern::glob("/go/*").expect("a glob")],
        ..everywhere.clone()
    };
    let rules = [(everywhere, copies), (below_go, redirects)].map(|(condition, settings)| Rule {
        condition,
        settings,
        line: 7,
    });
    TestBed::with_config(|config| set_site(config, Settings::default(), rules.to_vec()))
}

/// Method: each request tries to make a line by raw or encoded control characters in one of its parts. The edge refuses
/// it, or answers without the line. The origin never gets the line either.
#[test]
fn no_part_of_a_request_begins_a_line_of_a_field_a_location_or_a_forwarded_request() {
    let bed = bed();
    bed.origin
        .otherwise(|_| Answer::ok("page").header("cache-control", "max-age=60"));
    let breaks = [
        "\r\n",
        "\n",
        "\r",
        "\0",
        "%0d%0a",
        "%0A",
        "%0D",
        "%00",
        "%250d%250a",
        "\u{e5}\u{98}\u{8a}",
    ];
    for (n, end) in breaks.iter().enumerate() {
        let evil = format!("a{end}{INJECTED}:1");
        for (part, head) in [
            (
                "path",
                format!("GET /{n}/{evil} HTTP/1.1\r\nHost: test.example"),
            ),
            (
                "redirect",
                format!("GET /go/{n}/{evil} HTTP/1.1\r\nHost: test.example"),
            ),
            (
                "query",
                format!("GET /go/{n}?{evil} HTTP/1.1\r\nHost: test.example"),
            ),
            ("host", format!("GET /{n}/host HTTP/1.1\r\nHost: {evil}")),
            (
                "field",
                format!("GET /go/{n} HTTP/1.1\r\nHost: test.example\r\nX-A: {evil}"),
            ),
            (
                "cookie",
                format!("GET /{n}/cookie HTTP/1.1\r\nHost: test.example\r\nCookie: {evil}"),
            ),
        ] {
            // A complete line break in a field or a host begins another field of the request: that is no injection.
            if matches!(part, "host" | "field" | "cookie") && matches!(*end, "\r\n" | "\n") {
                continue;
            }
            let mut wire = bed.connect();
            wire.send(format!("{head}\r\nConnection: close\r\n\r\n"));
            let answer = wire.read_to_end();
            let shown = format!("{part} {end:?}: {answer:?}");
            assert!(answer.starts_with("HTTP/1.1 "), "{shown}");
            let head = answer.split("\r\n\r\n").next().unwrap_or_default();
            for line in head.split("\r\n") {
                assert!(!line.contains(['\r', '\n', '\0']), "{shown}");
                assert!(!line.starts_with(INJECTED), "{shown}");
            }
        }
    }
    let requests = bed.origin.recorded();
    assert!(!requests.is_empty());
    for request in requests {
        assert_eq!(request.header(INJECTED), None, "{}", request.head());
        for (_, value) in request.headers() {
            assert!(!value.contains(['\r', '\n', '\0']), "{value:?}");
        }
    }
}
