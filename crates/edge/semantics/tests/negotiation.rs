//! Compares [`negotiation::answers`] with origins that choose a representation for each request by themselves.
//!
//! The origins read the field as text, by the sections of RFC 9110. They rank what they have in different ways: by
//! their own order, by weights, by the product of both, or by the order of the field; and some use a type only if the
//! field lists it. If the crate lets a stored response answer a request, the origin must choose the same representation
//! for it.

use std::cell::Cell;
use std::cmp::Reverse;

use edgeward_semantics::negotiation::{
    Representation, answers, negotiated_lines, with_negotiated_lines,
};
use edgeward_semantics::{Vary, VaryFields};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// The members of a field: a name and a weight in tenths.
type Field = Vec<(&'static str, u32)>;

fn text(field: &Field) -> String {
    let members = field.iter().map(|(name, weight)| match weight {
        10 => (*name).to_owned(),
        weight => format!("{name};q=0.{weight}"),
    });
    members.collect::<Vec<_>>().join(", ")
}

/// How an origin ranks the representations that a request accepts.
#[derive(Clone, Copy, Debug)]
enum Ranking {
    OwnOrder,
    Weights,
    Product,
    OrderOfTheField,
}

#[derive(Clone, Debug)]
struct Origin {
    /// The codings or types that the origin has, the best first.
    available: Vec<&'static str>,
    ranking: Ranking,
    /// True if the origin uses a name only if the field lists it, whatever wildcards the field has. The last available
    /// representation is used without that.
    reads_names_only: bool,
}

impl Origin {
    fn choose(&self, field: &Field, is_media: bool) -> Option<&'static str> {
        let last = self.available.len() - 1;
        let candidates = self
            .available
            .iter()
            .enumerate()
            .filter_map(|(rank, &name)| {
                let (at, weight) = match is_media {
                    true => media_weight(field, name)?,
                    false => coding_weight(field, name)?,
                };
                let is_listed = field.iter().any(|(listed, _)| *listed == name);
                let is_used = weight > 0 && (is_listed || !self.reads_names_only || rank == last);
                is_used.then_some((rank, at, weight, name))
            });
        let count = self.available.len();
        let best = candidates.max_by_key(|&(rank, at, weight, _)| match self.ranking {
            Ranking::OwnOrder => (0, Reverse(rank), Reverse(0)),
            Ranking::Weights => (weight, Reverse(rank), Reverse(0)),
            Ranking::Product => (weight * (count - rank) as u32, Reverse(rank), Reverse(0)),
            Ranking::OrderOfTheField => (weight, Reverse(at), Reverse(rank)),
        });
        best.map(|(_, _, _, name)| name)
    }
}

/// RFC 9110 §12.5.3. The position counts in the canonical field, whose codings are sorted.
fn coding_weight(field: &Field, coding: &str) -> Option<(usize, u32)> {
    let mut sorted = field.clone();
    sorted.sort_unstable();
    let listed = |name: &str| {
        let mut members = sorted.iter().enumerate();
        members
            .find(|(_, member)| member.0 == name)
            .map(|(at, member)| (at, member.1))
    };
    // An identity that is not listed is acceptable; this origin gives it the lowest weight.
    let unlisted = (coding == "identity").then_some((usize::MAX, 1));
    listed(coding).or_else(|| listed("*")).or(unlisted)
}

/// RFC 9110 §12.5.1: the most specific range applies.
fn media_weight(field: &Field, media_type: &str) -> Option<(usize, u32)> {
    let (kind, _) = media_type.split_once('/').expect("a media type");
    [media_type, &format!("{kind}/*"), "*/*"]
        .iter()
        .find_map(|range| {
            let mut members = field.iter().enumerate();
            members
                .find(|(_, member)| member.0 == *range)
                .map(|(at, member)| (at, member.1))
        })
}

const CODINGS: [&str; 6] = ["gzip", "br", "zstd", "deflate", "identity", "*"];
const TYPES: [&str; 8] = [
    "image/avif",
    "image/webp",
    "image/jxl",
    "image/png",
    "image/jpeg",
    "image/*",
    "video/*",
    "*/*",
];

fn field(names: &'static [&'static str]) -> impl Strategy<Value = Field> {
    let weight = prop_oneof![6 => Just(10_u32), 3 => 1_u32..10, 1 => Just(0_u32)];
    let members = proptest::sample::subsequence(names, 0..=names.len());
    (
        members,
        proptest::collection::vec(weight, names.len()),
        any::<bool>(),
    )
        .prop_map(|(names, weights, is_weighted)| {
            let weights = weights
                .into_iter()
                .map(|weight| if is_weighted { weight } else { 10 });
            names.into_iter().zip(weights).collect::<Field>()
        })
        .prop_shuffle()
}

/// A field that is often similar to `field`.
fn similar(field: Field, change: u32, other: Field, keeps: &[bool]) -> Field {
    match change {
        0 => other,
        1 => field,
        _ => {
            let kept = field.into_iter().zip(keeps).filter(|(_, keep)| **keep);
            let mut kept: Field = kept.map(|(member, _)| member).collect();
            if change == 3
                && let Some(first) = kept.first_mut()
            {
                first.1 = (first.1 + 1).min(10);
            }
            if change == 4 {
                kept.reverse();
            }
            kept
        }
    }
}

fn origin(names: &'static [&'static str]) -> impl Strategy<Value = Origin> {
    let names: Vec<&'static str> = names
        .iter()
        .copied()
        .filter(|name| !name.contains('*'))
        .collect();
    let count = names.len();
    let ranking = prop_oneof![
        Just(Ranking::OwnOrder),
        Just(Ranking::Weights),
        Just(Ranking::Product),
        Just(Ranking::OrderOfTheField),
    ];
    let available = proptest::sample::subsequence(names, 1..=count).prop_shuffle();
    (available, ranking, any::<bool>()).prop_map(|(available, ranking, reads_names_only)| Origin {
        available,
        ranking,
        reads_names_only,
    })
}

fn request(name: &HeaderName, field: &Field) -> HeaderMap {
    let mut request = HeaderMap::new();
    request.insert(
        name,
        HeaderValue::try_from(text(field)).expect("visible ASCII"),
    );
    request
}

fn fields(names: &str) -> VaryFields {
    let mut response = HeaderMap::new();
    response.insert(VARY, HeaderValue::try_from(names).expect("visible ASCII"));
    match Vary::from_headers(&response) {
        Vary::Fields(fields) => fields,
        other => panic!("{other:?}"),
    }
}

fn response(coding: &str, media_type: &str) -> Representation {
    let mut head = HeaderMap::new();
    if coding != "identity" {
        head.insert(
            CONTENT_ENCODING,
            HeaderValue::try_from(coding).expect("visible ASCII"),
        );
    }
    head.insert(
        CONTENT_TYPE,
        HeaderValue::try_from(media_type).expect("visible ASCII"),
    );
    Representation::from_response(StatusCode::OK, &head).expect("a known representation")
}

fn the_origin_agrees(name: HeaderName, names: &'static [&'static str]) {
    let is_media = name == ACCEPT;
    let vary = fields(name.as_str());
    let (answered, refused) = (Cell::new(0), Cell::new(0));
    let strategy = (
        origin(names),
        field(names),
        0_u32..5,
        field(names),
        proptest::collection::vec(any::<bool>(), names.len()),
    );
    let config = ProptestConfig {
        cases: 20_000,
        ..ProptestConfig::default()
    };
    TestRunner::new(config)
        .run(&strategy, |(origin, before, change, other, keeps)| {
            let now = similar(before.clone(), change, other, &keeps);
            let Some(chosen) = origin.choose(&before, is_media) else {
                return Ok(());
            };
            let representation = match is_media {
                true => response("identity", chosen),
                false => response(chosen, "text/html"),
            };
            let (before_key, now_key) = (
                vary.key(&request(&name, &before)),
                vary.key(&request(&name, &now)),
            );
            if before_key == now_key || !answers(representation, &before_key, &now_key) {
                refused.set(refused.get() + 1);
                return Ok(());
            }
            answered.set(answered.get() + 1);
            prop_assert_eq!(
                origin.choose(&now, is_media),
                Some(chosen),
                "{:?} chose {} for `{}`, then `{}`",
                origin,
                chosen,
                text(&before),
                text(&now)
            );
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(
        answered.get() > 500 && refused.get() > 500,
        "{answered:?} {refused:?}"
    );
}

#[test]
fn a_response_answers_another_accept_encoding_only_if_the_origin_chose_the_same_coding() {
    the_origin_agrees(ACCEPT_ENCODING, &CODINGS);
}

#[test]
fn a_response_answers_another_accept_only_if_the_origin_chose_the_same_image() {
    the_origin_agrees(ACCEPT, &TYPES);
}

/// Each row: the field of the first request, the coding or type of its response, the field of the next request, and
/// true if the response answers it.
#[test]
fn requests_of_different_clients_share_a_response_if_they_accept_it_and_nothing_better() {
    let codings = [
        (
            "gzip, deflate, br, zstd",
            "br",
            "gzip, deflate, br",
            true,
            "an older browser",
        ),
        ("gzip, deflate, br, zstd", "br", "br", true, ""),
        ("gzip, deflate, br, zstd", "br", "gzip", false, "refuses br"),
        (
            "gzip, deflate, br",
            "br",
            "gzip, deflate, br, zstd",
            false,
            "zstd was not offered yet",
        ),
        ("gzip, deflate", "gzip", "gzip", true, ""),
        ("gzip, deflate", "gzip", "x-gzip", true, "RFC 9110 §8.4.1.3"),
        (
            "gzip, deflate, br",
            "identity",
            "gzip",
            true,
            "the origin does not compress it",
        ),
        ("gzip, deflate, br", "identity", "", true, ""),
        (
            "gzip, deflate, br",
            "identity",
            "identity;q=1, *;q=0",
            false,
            "prefers identity",
        ),
        (
            "identity;q=1, *;q=0",
            "identity",
            "identity",
            true,
            "all other codings are refused",
        ),
        (
            "gzip, br",
            "br",
            "gzip;q=0.5, br",
            true,
            "gzip is less welcome",
        ),
        (
            "gzip, br",
            "br",
            "gzip, br;q=0.5",
            false,
            "br is less welcome",
        ),
        ("gzip, br", "br", "br, *", false, "accepts all codings"),
        (
            "gzip, br",
            "br",
            "br, identity;q=0",
            false,
            "refuses identity",
        ),
        (
            "gzip, br, x",
            "br",
            "br",
            false,
            "an unknown coding may have had an effect",
        ),
        ("gzip, br", "br", "gzip;q=2, br", false, "not a weight"),
    ];
    for (before, chosen, now, expected, why) in codings {
        check(
            &ACCEPT_ENCODING,
            before,
            response(chosen, "text/html"),
            now,
            expected,
            why,
        );
    }
    let chrome = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8";
    let firefox = "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5";
    let older = "image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8";
    let types = [
        (
            chrome,
            "image/webp",
            older,
            true,
            "an older version, which does not list AVIF",
        ),
        (
            chrome,
            "image/avif",
            older,
            false,
            "accepts AVIF by its wildcard only",
        ),
        (
            older,
            "image/webp",
            chrome,
            false,
            "AVIF was not offered yet",
        ),
        (
            chrome,
            "image/webp",
            firefox,
            false,
            "lists PNG, which was not offered by name",
        ),
        (chrome, "image/jpeg", "*/*", false, "another range matches"),
        (chrome, "image/jpeg", "image/*", true, ""),
        (chrome, "text/html", "image/*", false, "no image"),
        (
            "application/json, */*",
            "image/png",
            "*/*",
            false,
            "an unknown type may have had an effect",
        ),
        (
            "image/png;v=1, image/*",
            "image/png",
            "image/*",
            false,
            "a parameter may have had an effect",
        ),
    ];
    for (before, chosen, now, expected, why) in types {
        check(
            &ACCEPT,
            before,
            response("identity", chosen),
            now,
            expected,
            why,
        );
    }
}

fn check(
    name: &HeaderName,
    before: &str,
    chosen: Representation,
    now: &str,
    expected: bool,
    why: &str,
) {
    let key = |value: &str| {
        let mut request = HeaderMap::new();
        request.insert(name, HeaderValue::try_from(value).expect("visible ASCII"));
        fields(name.as_str()).key(&request)
    };
    let shown = answers(chosen, &key(before), &key(now));
    assert_eq!(
        shown, expected,
        "`{before}` chose {chosen:?}, then `{now}`: {why}"
    );
}

/// Errors, and bodies whose coding the cache does not know, answer only requests with equal fields.
#[test]
fn only_known_representations_with_status_200_are_shared() {
    let head = |coding: &[&str]| {
        let mut head = HeaderMap::new();
        for value in coding {
            head.append(
                CONTENT_ENCODING,
                HeaderValue::try_from(*value).expect("visible ASCII"),
            );
        }
        head
    };
    let known = |status: u16, coding: &[&str]| {
        let status = StatusCode::from_u16(status).expect("a status");
        Representation::from_response(status, &head(coding)).is_some()
    };
    assert!(known(200, &[]) && known(200, &["gzip"]) && known(200, &["X-Gzip"]));
    for (status, coding) in [
        (404, &[] as &[&str]),
        (406, &[]),
        (206, &["gzip"]),
        (200, &["gzip, br"]),
        (200, &["gzip", "br"]),
        (200, &["*"]),
        (200, &["x"]),
    ] {
        assert!(!known(status, coding), "{status} {coding:?}");
    }
}

/// The other fields of `Vary` have to be equal, and the negotiated lines of a key can be replaced.
#[test]
fn the_other_fields_of_vary_are_compared_byte_for_byte() {
    let vary = fields("accept, accept-encoding, cookie");
    let request = |accept: &str, encoding: &str, cookie: &str| {
        let mut request = HeaderMap::new();
        for (name, value) in [
            ("accept", accept),
            ("accept-encoding", encoding),
            ("cookie", cookie),
        ] {
            if value != "absent" {
                let name = HeaderName::try_from(name).expect("a name");
                request.insert(name, HeaderValue::try_from(value).expect("visible ASCII"));
            }
        }
        vary.key(&request)
    };
    let png = response("gzip", "image/png");
    let stored = request("image/png, image/webp", "gzip, br", "a=b");
    for (key, expected) in [
        (request("image/png", "gzip", "a=b"), true),
        (request("image/png", "gzip", "a=c"), false),
        (request("image/png", "gzip", "absent"), false),
        (request("image/png", "absent", "a=b"), false),
        (request("absent", "gzip", "a=b"), false),
        (request("image/webp", "gzip", "a=b"), false),
        (request("image/png", "br", "a=b"), false),
    ] {
        assert_eq!(
            answers(png, &stored, &key),
            expected,
            "{}",
            String::from_utf8_lossy(&key)
        );
    }
    let lines = negotiated_lines(&stored).expect("all parts are known");
    let other = request("image/gif", "br", "c=d");
    let replaced = with_negotiated_lines(&other, &lines).expect("the same fields");
    assert_eq!(
        replaced,
        request("image/png, image/webp", "gzip, br", "c=d")
    );
    assert_eq!(
        negotiated_lines(&request("image/gif", "absent", "a=b")),
        None
    );
    assert_eq!(negotiated_lines(&request("image/gif", "evil", "a=b")), None);
    assert_eq!(
        with_negotiated_lines(&fields("cookie").key(&HeaderMap::new()), &lines),
        None
    );
    let encoding_only = fields("accept-encoding").key(&HeaderMap::new());
    assert_eq!(with_negotiated_lines(&encoding_only, &lines), None);
}
