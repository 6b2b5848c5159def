//! Responses whose media type contradicts the extension of the path (web cache deception).

use std::time::Duration;

use crate::one_site::set_site;
use crate::support::TestBed;
use edgeward_proxy::EdgeConfig;
use edgeward_sites::{Settings, StatusSet};
use edgeward_testkit::Answer;

const COUNTER: &str = "edgeward_extension_mismatches_total";

/// A site that stores 200 and 404 for an hour.
fn storing(check_extension: Option<bool>) -> impl FnOnce(&mut EdgeConfig) {
    move |config| {
        let mut settings = Settings {
            check_extension,
            ..Settings::default()
        };
        for status in [200, 404] {
            let lifetime = Some(Duration::from_secs(3600));
            settings.ttl.insert(StatusSet::One(status), lifetime);
        }
        set_site(config, settings, Vec::new());
    }
}

fn account() -> Answer {
    Answer::ok("the victim's account").header("content-type", "text/html; charset=utf-8")
}

fn second_is_hit(bed: &TestBed, path: &str) -> bool {
    bed.get(path);
    bed.get(path).is_hit()
}

#[test]
fn a_page_under_the_name_of_a_static_file_is_not_stored_by_ttl() {
    let bed = TestBed::with_config(storing(None));
    for path in ["/account/x.css", "/account;x.JS", "/account/x.png?a=b"] {
        bed.origin.on(path, account());
        assert!(!second_is_hit(&bed, path), "{path}");
    }
    assert_eq!(bed.metric(COUNTER), 6.0);
    let answer = bed.get("/account/x.css");
    let status = answer.header("cache-status").expect("a field");
    assert!(status.contains("detail=extension"), "{status}");
}

#[test]
fn pages_and_static_files_are_stored_by_ttl() {
    let bed = TestBed::with_config(storing(None));
    bed.origin.on("/account/", account());
    bed.origin.on(
        "/a.css",
        Answer::ok("a{}").header("content-type", "text/css"),
    );
    bed.origin.on("/b.css", Answer::ok("b{}"));
    // An error page has the type of a page.
    bed.origin.on("/c.css", account().with_status(404));
    for path in ["/account/", "/a.css", "/b.css", "/c.css"] {
        assert!(second_is_hit(&bed, path), "{path}");
    }
    assert_eq!(bed.metric(COUNTER), 0.0);
}

#[test]
fn a_lifetime_of_the_origin_allows_the_contradiction_unless_a_rule_forbids_it() {
    for (check, stores) in [(None, true), (Some(true), false)] {
        let bed = TestBed::with_config(|config| {
            let settings = Settings {
                check_extension: check,
                ..Settings::default()
            };
            set_site(config, settings, Vec::new());
        });
        let answer = account().header("cache-control", "max-age=600");
        bed.origin.on("/chart.js", answer);
        assert_eq!(second_is_hit(&bed, "/chart.js"), stores, "{check:?}");
    }
}

#[test]
fn a_rule_can_switch_the_check_off() {
    let bed = TestBed::with_config(storing(Some(false)));
    bed.origin.on("/chart.js", account());
    assert!(second_is_hit(&bed, "/chart.js"));
    assert_eq!(bed.metric(COUNTER), 0.0);
}
