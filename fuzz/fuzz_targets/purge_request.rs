//! The body of a request to the purge API, and the tags of a head: any bytes are rejected or parsed without a panic.
//! Each scope can be parsed again from its text.
//!
//! Run: `cargo +nightly fuzz run purge_request`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_purge::{GROUPS_MAX, PurgeRequest, SCOPES_MAX, Scope, visit_head_tags};

fuzz_target!(|input: &[u8]| {
    visit_head_tags(input, |tag| assert!(tag.len() <= input.len()));
    assert!(Scope::invalidated_groups(b"http://h/", [input]).len() <= GROUPS_MAX);
    let Ok(request) = PurgeRequest::parse(input) else {
        return;
    };
    assert!((1..=SCOPES_MAX).contains(&request.scopes.len()));
    for scope in &request.scopes {
        let text = scope.to_string();
        let again = match scope {
            Scope::Url(_) => Scope::url(&text),
            Scope::Host(_) => Scope::host(&text),
            Scope::Tag(_) => Scope::tag(&text),
            Scope::Group { .. } => unreachable!("a request cannot purge a group of an origin"),
            Scope::Prefix(_) => Scope::prefix(&text),
            Scope::Pattern(_) => Scope::pattern(&text),
        };
        assert_eq!(again.as_ref(), Ok(scope));
    }
});
