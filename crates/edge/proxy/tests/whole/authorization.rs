//! Stored responses whose use the origin allows for each client (`check_authorization`).

use std::time::Duration;

use crate::one_site::set_site;
use crate::support::TestBed;
use edgeward_sites::{Condition, FieldCondition, Rule, Settings, StatusSet};
use edgeward_testkit::{Answer, Gate, RecordedRequest};
use edgeward_types::Pattern;
use http::header::AUTHORIZATION;

const PATH: &str = "/package.tgz";
const ALICE: &[(&str, &str)] = &[("authorization", "Bearer alice")];
const MALLORY: &[(&str, &str)] = &[("authorization", "Bearer mallory")];

/// An edge that asks the origin before each hit, and whose origin accepts only the token of Alice.
fn checked() -> TestBed {
    start(Settings {
        check_authorization: Some(true),
        ..storing()
    })
}

/// Settings that store 200 and 404, and use them while they are stale.
fn storing() -> Settings {
    let hour = Duration::from_secs(3600);
    let mut settings = Settings {
        stale_if_error: Some(hour),
        stale_while_revalidate: Some(hour),
        ..Settings::default()
    };
    for status in [200, 404] {
        settings.ttl.insert(StatusSet::One(status), Some(hour));
    }
    settings
}

fn start(settings: Settings) -> TestBed {
    start_with_rules(settings, Vec::new())
}

fn start_with_rules(settings: Settings, rules: Vec<Rule>) -> TestBed {
    let bed = TestBed::with_config(|config| set_site(config, settings, rules));
    bed.origin.otherwise(registry);
    bed
}

/// The rule of requests with `Authorization`.
fn for_tokens() -> Rule {
    Rule {
        condition: Condition {
            fields: vec![FieldCondition {
                name: AUTHORIZATION,
                values: vec![Pattern::new("*")],
            }],
            ..Condition::default()
        },
        settings: Settings {
            check_authorization: Some(true),
            ..Settings::default()
        },
        line: 1,
    }
}

fn registry(request: &RecordedRequest) -> Answer {
    match request.header("authorization") {
        Some("Bearer alice") => package().revalidates(),
        Some(_) => Answer::status(404),
        None => Answer::status(401),
    }
}

fn package() -> Answer {
    Answer::pattern(1 << 20).header("etag", "\"1\"")
}

/// Alice's second request gets the stored body after a 304. Clients without her token get the refusal of the origin,
/// 404 or 401, although a rule stores 404, and leave the stored body in place.
#[test]
fn the_origin_decides_about_each_client_of_a_stored_response() {
    let bed = checked();
    let first = bed.get_with(PATH, ALICE);
    assert_eq!((first.status, first.body.len()), (200, 1 << 20));
    let written = bed.origin.bytes_written();

    for (fields, status) in [(MALLORY, 404), (&[], 401)] {
        let refused = bed.get_with(PATH, fields);
        assert_eq!(refused.status, status, "{}", refused.cache_status());
    }
    let ranged = [MALLORY[0], ("range", "bytes=0-9")];
    assert_eq!(bed.get_with(PATH, &ranged).status, 404);

    let again = bed.get_with(PATH, ALICE);
    assert_eq!((again.status, again.body), (200, first.body));
    assert!(
        bed.origin.bytes_written() < written + 4096,
        "the body came from the cache"
    );
    assert_eq!(
        bed.origin.requests(PATH),
        5,
        "each request reaches the origin"
    );
}

/// A range of a URL without a stored response is not answered from slices that another client fetched.
#[test]
fn ranges_are_checked_too() {
    let bed = checked();
    let range = ("range", "bytes=0-9");
    // This origin ignores `Range`.
    assert_eq!(bed.get_with(PATH, &[ALICE[0], range]).status, 200);
    assert_eq!(bed.get_with(PATH, &[MALLORY[0], range]).status, 404);
    assert_eq!(bed.get_with(PATH, &[range]).status, 401);
}

/// A request that arrives while another client's fetch is under way sends its own request.
#[test]
fn a_client_does_not_follow_the_fetch_of_another_one() {
    let bed = checked();
    let gate = Gate::new();
    bed.origin.once(PATH, package().wait_at(10, &gate));
    let mut alice = bed.connect();
    alice.send_head("GET", PATH, ALICE);
    gate.wait_reached(1);
    assert_eq!(bed.get_with(PATH, MALLORY).status, 404);
    gate.open();
    let answer = alice.answer("GET");
    assert_eq!((answer.status, answer.body.len()), (200, 1 << 20));
}

/// A stored response does not replace an error of the origin, because the origin did not decide.
#[test]
fn no_stored_response_replaces_an_error_of_the_check() {
    let bed = checked();
    assert_eq!(bed.get_with(PATH, ALICE).status, 200);
    bed.origin.otherwise(|_| Answer::status(503));
    assert_eq!(bed.get_with(PATH, ALICE).status, 503);
    assert_eq!(bed.get_with(PATH, ALICE).status, 503, "no back-off either");
    bed.origin.otherwise(registry);
    let again = bed.get_with(PATH, ALICE);
    assert_eq!((again.status, again.body.len()), (200, 1 << 20));
}

/// A response that was stored under the rule is not used for requests to which the rule does not apply, for example
/// those without the field, unless the origin validates it.
#[test]
fn a_checked_response_is_never_used_without_a_check() {
    let bed = start_with_rules(storing(), vec![for_tokens()]);
    assert_eq!(bed.get_with(PATH, ALICE).status, 200);
    assert_eq!(bed.get(PATH).status, 401);
    assert_eq!(bed.get_with(PATH, MALLORY).status, 404);
    assert_eq!(bed.get_with(PATH, ALICE).status, 200);
}

/// A response that a client without a token stored is checked for clients to which the rule applies.
#[test]
fn a_public_response_is_checked_for_clients_with_a_token() {
    let bed = start_with_rules(storing(), vec![for_tokens()]);
    bed.origin.otherwise(|_| package().revalidates());
    bed.get(PATH);
    assert!(bed.get(PATH).is_hit());
    bed.origin.otherwise(registry);
    assert_eq!(bed.get_with(PATH, MALLORY).status, 404);
    assert!(
        bed.get(PATH).is_hit(),
        "the refusal of one client removes nothing"
    );
}
