//! Tests of the parser of `Cache-Control` and `Pragma`: tables with one row per rule, and a comparison with a naive
//! parser. Sections are those of RFC 9111.

use http::HeaderValue;
use http::header::{CONTENT_TYPE, HeaderName, SET_COOKIE};
use proptest::prelude::*;

use super::directives::QUALIFIED_FIELDS_MAX;
use super::*;
use crate::testing::headers;

fn response(line: &str) -> ResponseDirectives {
    let mut directives = ResponseDirectives::default();
    directives.add_line(line.as_bytes());
    directives
}

fn request(lines: &str) -> RequestDirectives {
    RequestDirectives::from_headers(&headers(lines))
}

/// §1.2.2, §4.2.1 and §5.2: quotes, duplicates, invalid arguments and very large numbers.
#[test]
fn an_ambiguous_max_age_gets_the_most_restrictive_reading() {
    let table = [
        ("max-age=60", Some(60)),
        ("MAX-AGE=60", Some(60)),
        ("  max-age=60 ,", Some(60)),
        ("max-age=\"60\"", Some(60)),
        ("max-age=060", Some(60)),
        ("max-age=60, max-age=5", Some(5)),
        ("max-age=5, max-age=60", Some(5)),
        ("max-age=60, max-age=x", Some(0)),
        ("max-age", Some(0)),
        ("max-age=", Some(0)),
        ("max-age=-1", Some(0)),
        ("max-age=1.5", Some(0)),
        ("max-age=60s", Some(0)),
        ("max-age='60'", Some(0)),
        ("max-age=\"60", Some(0)),
        ("max-age=6 0", Some(0)),
        ("max-age =60", Some(0)),
        ("max-age= 60", Some(0)),
        ("max-age=2147483647", Some(2_147_483_647)),
        ("max-age=2147483648", Some(DELTA_SECONDS_MAX)),
        ("max-age=2147483649", Some(DELTA_SECONDS_MAX)),
        (
            "max-age=99999999999999999999999999",
            Some(DELTA_SECONDS_MAX),
        ),
        ("max-age-2=60", None),
        ("x=\"max-age=60\"", None),
        ("x=\",max-age=60,\"", None),
        ("", None),
    ];
    for (line, expected) in table {
        assert_eq!(response(line).max_age, expected, "{line}");
    }
}

#[test]
fn several_lines_are_one_list() {
    let all = ResponseDirectives::from_headers(&headers(
        "cache-control: max-age=60, public\ncache-control: s-maxage=5\ncache-control: no-store",
    ));
    assert_eq!((all.max_age, all.s_maxage), (Some(60), Some(5)));
    assert!(all.public && all.no_store);
}

#[test]
fn unknown_directives_are_ignored() {
    // §5.2.3. The last name is longer than all known names and starts like one of them.
    for line in [
        "x",
        "x=1",
        "x=\"1, 2\"",
        "=",
        "=5",
        "no-storex",
        "stale-while-revalidated=5",
    ] {
        assert_eq!(response(line), ResponseDirectives::default(), "{line}");
    }
}

#[test]
fn an_unexpected_argument_voids_permissive_directives_but_not_restrictive_ones() {
    let strict = response("no-store=x, must-revalidate=1, proxy-revalidate=\"\", no-transform=0");
    assert!(
        strict.no_store && strict.must_revalidate && strict.proxy_revalidate && strict.no_transform
    );
    let permissive = response("public=1, must-understand=\"x\", immutable=0");
    assert!(!permissive.public && !permissive.must_understand && !permissive.immutable);
    let bare = response("public, must-understand, immutable");
    assert!(bare.public && bare.must_understand && bare.immutable);
}

/// §5.2.2.4 and §5.2.2.7: `no-cache="a, b"`.
#[test]
fn the_qualified_form_lists_fields_and_any_other_form_means_the_whole_response() {
    let fields = |names: &[HeaderName]| FieldScope::Fields(names.to_vec());
    let table = [
        ("private", FieldScope::Whole),
        ("private=\"Set-Cookie\"", fields(&[SET_COOKIE])),
        ("private=set-cookie", fields(&[SET_COOKIE])),
        (
            "private=\"set-cookie , Content-Type\"",
            fields(&[SET_COOKIE, CONTENT_TYPE]),
        ),
        (
            "private=\"set-cookie\", private=\"content-type\"",
            fields(&[SET_COOKIE, CONTENT_TYPE]),
        ),
        ("private=\"set-cookie\", private", FieldScope::Whole),
        ("private, private=\"set-cookie\"", FieldScope::Whole),
        ("private=\"\"", FieldScope::Whole),
        ("private=", FieldScope::Whole),
        ("private=\"a b\"", FieldScope::Whole),
        ("private=\"set-cookie", FieldScope::Whole),
        ("private =\"set-cookie\"", FieldScope::Whole),
        ("max-age=5", FieldScope::Absent),
    ];
    for (line, expected) in table {
        assert_eq!(response(line).private, expected, "{line}");
        let no_cache = line.replace("private", "no-cache");
        assert_eq!(response(&no_cache).no_cache, expected, "{no_cache}");
    }
}

#[test]
fn a_list_with_too_many_fields_means_the_whole_response() {
    let line = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("x-{n}")).collect();
        format!("private=\"{}\"", names.join(","))
    };
    assert_eq!(
        response(&line(QUALIFIED_FIELDS_MAX)).private.fields().len(),
        QUALIFIED_FIELDS_MAX
    );
    assert_eq!(
        response(&line(QUALIFIED_FIELDS_MAX + 1)).private,
        FieldScope::Whole
    );
}

#[test]
fn staleness_is_forbidden_by_four_directives() {
    for line in [
        "must-revalidate",
        "proxy-revalidate",
        "s-maxage=5",
        "no-cache",
    ] {
        assert!(response(line).forbids_stale(), "{line}");
    }
    for line in ["max-age=5", "public", "no-cache=\"x\"", ""] {
        assert!(!response(line).forbids_stale(), "{line}");
    }
}

#[test]
fn request_directives_are_read_in_their_strictest_form() {
    let requested = request(
        "cache-control: max-age=9, max-age=3, min-fresh=1, min-fresh=4, max-stale=7, max-stale",
    );
    assert_eq!(requested.max_age, Some(3));
    assert_eq!(requested.min_fresh, Some(4));
    assert_eq!(requested.max_stale, Some(MaxStale::Seconds(7)));
    assert_eq!(
        request("cache-control: max-stale").max_stale,
        Some(MaxStale::Any)
    );
    assert_eq!(
        request("cache-control: max-stale=x").max_stale,
        Some(MaxStale::Seconds(0))
    );
    assert_eq!(
        request("cache-control: min-fresh=x").min_fresh,
        Some(DELTA_SECONDS_MAX)
    );
    let flags = request("cache-control: no-cache, no-store, no-transform, only-if-cached");
    assert!(flags.no_cache && flags.no_store && flags.no_transform && flags.only_if_cached);
}

/// §5.4: `Pragma` counts only without `Cache-Control`.
#[test]
fn pragma_counts_only_without_cache_control() {
    assert!(request("pragma: no-cache").no_cache);
    assert!(request("pragma: x, No-Cache").no_cache);
    assert!(!request("pragma: no-cache\ncache-control: max-age=5").no_cache);
    assert!(request("pragma: x").is_empty());
    assert!(request("").is_empty());
}

/// Returns the smallest `max-age` of the parts, computed without the parser. A `max-age` without a value counts
/// as zero.
fn naive_max_age(parts: &[(String, Option<u64>)]) -> Option<u32> {
    parts
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("max-age"))
        .map(|(_, value)| match value {
            Some(secs) => {
                u32::try_from((*secs).min(1 << 31)).expect("the value is limited to 2^31")
            }
            None => 0,
        })
        .min()
}

proptest! {
    /// The parser agrees with the naive parser on random lists.
    #[test]
    fn the_parser_agrees_with_a_naive_parser(
        parts in proptest::collection::vec(
            (
                prop_oneof![
                    Just("max-age".to_owned()), Just("Max-Age".to_owned()),
                    Just("no-store".to_owned()), Just("s-maxage".to_owned()), "[a-z]{1,30}",
                ],
                proptest::option::of(prop_oneof![0_u64..100, any::<u64>()]),
            ),
            0..8,
        ),
        quoted in any::<bool>(),
        members_per_line in 1_usize..4,
    ) {
        let mut headers = HeaderMap::new();
        for chunk in parts.chunks(members_per_line) {
            let line: Vec<String> = chunk.iter().map(|(name, value)| match value {
                Some(secs) if quoted => format!("{name}=\"{secs}\""),
                Some(secs) => format!("{name}={secs}"),
                None => name.clone(),
            }).collect();
            headers.append(CACHE_CONTROL, HeaderValue::try_from(line.join(", ")).expect("ASCII"));
        }
        let directives = ResponseDirectives::from_headers(&headers);
        prop_assert_eq!(directives.max_age, naive_max_age(&parts));
        prop_assert_eq!(directives.no_store, parts.iter().any(|(name, _)| name == "no-store"));
    }

    /// The parser finds a `no-store` member after any bytes.
    #[test]
    fn no_bytes_hide_a_later_no_store(random_bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        // No quote follows the random bytes, so a quoted string among them never ends after `no-store`. The parser must
        // not treat `no-store` as a part of an unclosed string.
        let mut line = random_bytes;
        line.extend_from_slice(b", no-store");
        let mut directives = ResponseDirectives::default();
        directives.add_line(&line);
        prop_assert!(directives.no_store);
    }

    /// An additional line never raises or removes `max-age`, and never removes `no-store`.
    #[test]
    fn a_second_line_only_restricts(first in "[a-z0-9=\", -]{0,40}", second in "[a-z0-9=\", -]{0,40}") {
        let alone = response(&first);
        let mut with_second_line = alone.clone();
        with_second_line.add_line(second.as_bytes());
        if let Some(secs) = alone.max_age {
            prop_assert!(with_second_line.max_age.is_some_and(|other| other <= secs));
        }
        prop_assert!(with_second_line.no_store >= alone.no_store);
    }
}
