//! Web cache poisoning: an origin builds its pages from request fields that are not in the cache key.

use std::sync::Arc;

use edgeward_sites::{Class, FieldChange, Settings, Site, Sites};
use edgeward_testkit::Answer;
use http::HeaderName;

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
    let bed = TestBed::with_config(|config| {
        let mut sites = Sites::default();
        sites
            .add(Site::new("*", settings), &[], true)
            .expect("the only site");
        config.sites = Arc::new(sites);
    });
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

/// A field that the edge does not know reaches the origin. A site removes it, or puts it into the key.
#[test]
fn a_site_removes_a_further_field_or_puts_it_into_the_key() {
    let name = HeaderName::from_static("x-theme-host");
    let mut removes = Settings::default();
    removes.request.insert(name.clone(), FieldChange::Remove);
    let keys = Settings {
        key: Some([Class::Header(name.clone())].into()),
        ..Settings::default()
    };
    for (settings, attacked, next) in [
        (Settings::default(), "page evil", "page evil"), // the attack that both settings prevent
        (removes, "page ", "page "),
        (keys, "page evil", "page "),
    ] {
        let bed = bed(settings);
        let attack = bed.get_with("/", &[(name.as_str(), "evil")]);
        assert_eq!(attack.text(), attacked);
        assert_eq!(bed.get("/").text(), next);
    }
}
