//! Untrusted responses: the decision to store one, its freshness over time, and its update by a 304 or a HEAD.
//!
//! The input is the times of the request and of the response (eight bytes each, in milliseconds), a status (two bytes),
//! and two heads as lines, separated by an empty line: the response and its update.
#![no_main]

#[path = "support/heads.rs"]
mod heads;

use edgeward_semantics::freshen::{self, Freshened, StoredResponse};
use edgeward_semantics::{
    Exchange, Heuristic, RequestDirectives, Reuse, Rules, SetCookie, Storable, Verdict, on_response,
};
use edgeward_types::Timestamp;
use http::{HeaderMap, Method, StatusCode};
use libfuzzer_sys::fuzz_target;

use heads::{halves, head};

fuzz_target!(|input: &[u8]| {
    let Some((numbers, lines)) = input.split_at_checked(18) else {
        return;
    };
    let number =
        |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
    let (request_time, response_time) = (
        Timestamp::from_millis(number(0)),
        Timestamp::from_millis(number(8)),
    );
    let exchange = Exchange {
        request_time,
        response_time,
        response_date: response_time,
    };
    let code = u16::from_le_bytes([numbers[16], numbers[17]]) % 900 + 100;
    let status = StatusCode::from_u16(code).expect("three digits");
    let (first, second) = halves(lines);
    let (response, update) = (head(first), head(second));
    let rules = Rules {
        heuristic: Some(Heuristic::default()),
        set_cookie: SetCookie::Strip,
        ..Rules::default()
    };
    let request = HeaderMap::new();
    let Verdict::Store(storable) =
        on_response(&rules, &Method::GET, &request, status, &response, exchange)
    else {
        return;
    };
    check(&storable, response_time);
    let stored = StoredResponse {
        status,
        head: &storable.head,
        validators: &storable.validators,
    };
    for freshened in [
        freshen::by_not_modified(&rules, &request, stored, &update, exchange),
        freshen::by_head(&rules, &request, stored, &update, exchange),
    ] {
        if let Freshened::Keep(storable) = freshened {
            check(&storable, response_time);
        }
    }
});

/// Checks the properties of every stored response.
fn check(storable: &Storable, response_time: Timestamp) {
    for name in [
        "connection",
        "transfer-encoding",
        "keep-alive",
        "age",
        "set-cookie",
    ] {
        assert!(!storable.head.contains_key(name), "{name}");
    }
    assert!(storable.head.contains_key("date"));
    let policy = storable.policy;
    // `stale-if-error=0` is stored as an end one millisecond before the freshness ends.
    assert!(policy.stale_if_error_until.as_millis() + 1 >= policy.fresh_until.as_millis());
    assert!(policy.stale_while_revalidate_until >= policy.fresh_until);
    let no_directives = RequestDirectives::default();
    let mut was_fresh = true;
    for later_ms in [0, 1, 1000, 1 << 32, 1 << 45, u64::MAX] {
        let now = Timestamp::from_millis(response_time.as_millis().saturating_add(later_ms));
        let fresh = matches!(policy.reuse(now, &no_directives), Reuse::Fresh { .. });
        assert!(was_fresh || !fresh, "a stale response became fresh again");
        was_fresh = fresh;
        let _ = policy.ttl_secs(now);
    }
}
