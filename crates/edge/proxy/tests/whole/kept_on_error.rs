//! Errors of the origin that may be stored, beside stored responses that may still be used.

use edgeward_semantics::ClientDirectives;
use edgeward_testkit::Answer;

use crate::support::TestBed;

/// A storable error does not replace a body that may still be used, unless a setting says so. Method: a body that is
/// fresh, and one within its `stale-while-revalidate`. The first request accepts neither the stored body nor any other
/// after an error; the validation of the second one is in the background.
#[test]
fn an_error_does_not_replace_a_usable_body_unless_a_setting_says_so() {
    for replaces in [false, true] {
        let bed = TestBed::with_config(|config| {
            config.caching.rules.client_directives = ClientDirectives::Honour;
            config.caching.errors_replace_stale = replaces;
        });
        let error = || Answer::status(500).header("cache-control", "max-age=600");
        for (path, directives) in [
            ("/fresh", "max-age=600"),
            ("/stale", "max-age=0, stale-while-revalidate=600"),
        ] {
            let answer = Answer::ok("body").header("cache-control", directives);
            bed.origin.once(path, answer.header("etag", "\"a\""));
            bed.origin.on(path, error());
            assert_eq!(bed.get(path).text(), "body");
        }
        let strict = [("cache-control", "no-cache, stale-if-error=0")];
        let refused = bed.get_with("/fresh", &strict);
        assert_eq!(refused.status, 500);
        let is_kept = refused.cache_status().ends_with("detail=keeps-stored");
        assert_eq!(is_kept, !replaces, "{}", refused.cache_status());
        assert_eq!(bed.get("/stale").text(), "body");
        bed.wait_for_metric("edgeward_background_revalidations_total", 1.0);
        bed.wait_for_metric("edgeward_fills", 0.0);
        for path in ["/fresh", "/stale"] {
            let after = bed.get(path);
            let expected = if replaces { 500 } else { 200 };
            assert_eq!(after.status, expected, "{path} {}", after.cache_status());
            assert!(after.is_hit(), "{path} {}", after.cache_status());
        }
    }
}

/// An error without `Vary` is stored for the variant whose request caused it. Under the key of the target it would
/// replace the marker of all variants.
#[test]
fn an_error_of_one_variant_leaves_the_others() {
    let bed = TestBed::start();
    let answer = Answer::ok("one").header("cache-control", "max-age=60");
    bed.origin.once("/page", answer.header("vary", "x-a"));
    bed.origin.on(
        "/page",
        Answer::status(500).header("cache-control", "max-age=600"),
    );
    assert_eq!(bed.get_with("/page", &[("x-a", "1")]).text(), "one");
    for is_hit in [false, true] {
        let error = bed.get_with("/page", &[("x-a", "2")]);
        assert_eq!((error.status, error.is_hit()), (500, is_hit));
    }
    let one = bed.get_with("/page", &[("x-a", "1")]);
    assert!(one.is_hit() && one.text() == "one", "{one:?}");
}
