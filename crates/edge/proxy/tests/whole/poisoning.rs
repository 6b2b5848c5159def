//! Web cache poisoning: an origin builds its pages from request fields that are not in the cache key.

use std::sync::Arc;

use edgeward_sites::{Class, FieldChange, Settings, Stated, Template};
use edgeward_testkit::Answer;
use edgeward_types::Pattern;
use http::HeaderName;

use crate::one_site::set_site;
use crate::support::TestBed;

/// Fields from which frameworks build links, or by which they choose another page.
const FIELDS: [&str; 12] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-scheme",
    "x_forwarded_host",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
    "x-http-method-override",
];

/// Returns an edge whose origin copies the lines of all fields with `evil` into its pages.
fn bed(settings: Settings) -> TestBed {
    let bed = TestBed::with_config(|config| set_site(config, settings, Vec::new()));
    bed.origin.otherwise(|request| {
        let values = request.headers().iter().map(|(_, value)| value.as_str());
        let evil: Vec<&str> = values.filter(|value| value.contains("evil")).collect();
        Answer::ok(format!("page {}", evil.join(" "))).header("cache-control", "max-age=600")
    });
    bed
}

/// Method: an attacker fetches a page with the field, and another client fetches the same page.
#[test]
fn fields_that_override_url_host_or_client_cannot_poison_a_stored_page() {
    let bed = bed(Settings::default());
    for name in FIELDS {
        let path = format!("/{name}");
        for field in ["/evil", "evil.example"] {
            let attack = bed.get_with(&path, &[(name, field)]);
            assert_eq!(attack.text(), "page ", "{name}");
        }
        let victim = bed.get(&path);
        assert!(victim.is_hit() && victim.text() == "page ", "{name}");
    }
}

/// A field that the edge does not know reaches the origin. A site removes it, lists the others, or puts it into the
/// key.
#[test]
fn a_site_keeps_a_further_field_from_the_origin_or_puts_it_into_the_key() {
    let name = HeaderName::from_static("x-theme-host");
    let mut removes = Settings::default();
    removes.request.insert(name.clone(), FieldChange::Remove);
    let keys = Settings {
        key: Some([Class::Header(name.clone())].into()),
        ..Settings::default()
    };
    let lists = Settings {
        request_only: Stated::On([Pattern::new("accept*")].into()),
        ..Settings::default()
    };
    for (settings, attacked, next) in [
        (Settings::default(), "page evil", "page evil"), // the attack that the other settings prevent
        (removes, "page ", "page "),
        (lists, "page ", "page "),
        (keys, "page evil", "page "),
    ] {
        let bed = bed(settings);
        let attack = bed.get_with("/", &[(name.as_str(), "evil")]);
        assert_eq!(attack.text(), attacked);
        assert_eq!(bed.get("/").text(), next);
    }
}

/// Method: the site lists no field at all. The origin gets the fields that HTTP needs, and what a rule sets.
#[test]
fn a_list_of_fields_leaves_what_http_needs_and_what_rules_set() {
    let mut settings = Settings {
        request_only: Stated::On([].into()),
        key: Some([Class::Header(HeaderName::from_static("x-theme"))].into()),
        ..Settings::default()
    };
    let template = Template::new("${header.x-theme}", None).expect("a template");
    settings.request.insert(
        HeaderName::from_static("x-kept-theme"),
        FieldChange::Set(Arc::new(template)),
    );
    let bed = bed(settings);
    let fields = [
        ("x-theme", "dark"),
        ("user-agent", "a"),
        ("content-type", "text/plain"),
        ("cookie", "a=b"),
        ("content-length", "4"),
    ];
    let answer = bed.connect().request("POST", "/", &fields, b"body");
    assert_eq!(answer.status, 200);
    let recorded = bed.origin.recorded();
    let sent = recorded.last().expect("a request");
    assert_eq!(sent.body(), b"body");
    let one = |name: &str| sent.headers_named(name).collect::<Vec<_>>();
    assert_eq!(one("content-type"), ["text/plain"]);
    assert_eq!(one("x-kept-theme"), ["dark"]);
    assert_eq!(one("x-forwarded-for"), ["127.0.0.1"]);
    for removed in ["x-theme", "user-agent", "cookie"] {
        assert!(one(removed).is_empty(), "{removed}");
    }
    // The class is of the field that the client sent.
    bed.get_with("/", &[("x-theme", "dark")]);
    assert!(bed.get_with("/", &[("x-theme", "dark")]).is_hit());
    assert!(!bed.get_with("/", &[("x-theme", "light")]).is_hit());
}
