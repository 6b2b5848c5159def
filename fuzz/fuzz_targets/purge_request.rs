//! The body of a request to the purge API, the selectors of a request with PURGE, and the tags of a head: any bytes are
//! rejected or parsed without a panic. Each scope can be parsed again from its text.
//!
//! Run: `cargo +nightly fuzz run purge_request`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_purge::{
    GROUPS_MAX, METHODS, PurgeRequest, SCOPES_MAX, Scope, SelectedPurge, Selection, visit_head_tags,
};

fuzz_target!(|input: &[u8]| {
    visit_head_tags(input, |tag| assert!(tag.len() <= input.len()));
    assert!(Scope::invalidated_groups(b"http://h/", [input]).len() <= GROUPS_MAX);
    let mut lines = input.split(|byte| *byte == b'\n');
    let target = lines.next().and_then(|line| str::from_utf8(line).ok());
    let fields: Vec<(&str, &[u8])> = lines
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((str::from_utf8(&line[..colon]).ok()?, &line[colon + 1..]))
        })
        .collect();
    for method in METHODS {
        let fields = fields.iter().copied();
        if let Ok(selected) = SelectedPurge::read(method, "h", target.unwrap_or("/"), fields)
            && let Selection::Scopes(scopes) = selected.selection
        {
            assert!(!scopes.is_empty(), "a purge of nothing");
        }
    }
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
