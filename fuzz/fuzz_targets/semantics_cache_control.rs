//! Untrusted `Cache-Control` of responses and requests, compared with a literal reading of RFC 9111 §5.2.
//!
//! The input is the lines of the field. Lines with quotes are only checked for properties.
#![no_main]

use edgeward_semantics::{
    DELTA_SECONDS_MAX, FieldScope, MaxStale, RequestDirectives, ResponseDirectives,
};
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let lines = || input.split(|&byte| byte == b'\n').take(64);
    let mut head = head(lines());
    let response = ResponseDirectives::from_headers(&head);
    let request = RequestDirectives::from_headers(&head);
    if !input.contains(&b'"') {
        let directives: Vec<_> = head
            .get_all("cache-control")
            .iter()
            .flat_map(directives)
            .collect();
        assert_eq!(response, expected_response(&directives));
        assert_eq!(request, expected_request(&directives));
    }
    // §5.2: names are case-insensitive, and so are the field names of a list.
    let upper: Vec<_> = lines().map(<[u8]>::to_ascii_uppercase).collect();
    let upper = self::head(upper.iter().map(Vec::as_slice));
    assert_eq!(ResponseDirectives::from_headers(&upper), response);
    assert_eq!(RequestDirectives::from_headers(&upper), request);
    // A further line adds its directive and changes no other.
    head.append("cache-control", HeaderValue::from_static("no-store"));
    let with_line = ResponseDirectives::from_headers(&head);
    assert_eq!(
        with_line,
        ResponseDirectives {
            no_store: true,
            ..response
        }
    );
    let with_line = RequestDirectives::from_headers(&head);
    assert_eq!(
        with_line,
        RequestDirectives {
            no_store: true,
            ..request
        }
    );
});

fn head<'a>(lines: impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let values = lines.flat_map(HeaderValue::from_bytes);
    values
        .map(|value| (http::header::CACHE_CONTROL, value))
        .collect()
}

/// A directive: its name in lower case, and its argument if it has one. An argument that is not a token is `Err`.
type Directive = (String, Option<Result<String, ()>>);

fn directives(line: &HeaderValue) -> Vec<Directive> {
    // Each byte becomes a character.
    let line: String = line
        .as_bytes()
        .iter()
        .map(|&byte| char::from(byte))
        .collect();
    let members = line
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members = members.filter(|member| !member.is_empty());
    members
        .map(|member| {
            let Some((name, argument)) = member.split_once('=') else {
                return (member.to_ascii_lowercase(), None);
            };
            let trimmed = name.trim_matches([' ', '\t']);
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            let is_valid =
                trimmed == name && !argument.is_empty() && argument.chars().all(is_token);
            let argument = is_valid.then(|| argument.to_owned()).ok_or(());
            (trimmed.to_ascii_lowercase(), Some(argument))
        })
        .collect()
}

/// Returns the delta-seconds of each directive with this name (§1.2.2), or `invalid`.
fn seconds(directives: &[Directive], name: &str, invalid: u32) -> Vec<u32> {
    let named = directives.iter().filter(|(other, _)| other == name);
    let arguments = named.map(|(_, argument)| argument.clone().and_then(Result::ok));
    arguments
        .map(|text| {
            let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
            let number = digits.parse::<u128>().unwrap_or(u128::MAX);
            u32::try_from(number.min(DELTA_SECONDS_MAX.into())).ok()
        })
        .map(|secs| secs.unwrap_or(invalid))
        .collect()
}

fn expected_response(directives: &[Directive]) -> ResponseDirectives {
    let least = |name| seconds(directives, name, 0).into_iter().min();
    let has = |name: &str| directives.iter().any(|(other, _)| other == name);
    // A permissive directive counts only without an argument.
    let permits = |name: &str| {
        directives
            .iter()
            .any(|(other, argument)| other == name && argument.is_none())
    };
    ResponseDirectives {
        max_age: least("max-age"),
        s_maxage: least("s-maxage"),
        stale_while_revalidate: least("stale-while-revalidate"),
        stale_if_error: least("stale-if-error"),
        no_cache: scope(directives, "no-cache"),
        private: scope(directives, "private"),
        no_store: has("no-store"),
        public: permits("public"),
        must_revalidate: has("must-revalidate"),
        proxy_revalidate: has("proxy-revalidate"),
        must_understand: permits("must-understand"),
        no_transform: has("no-transform"),
        immutable: permits("immutable"),
        is_targeted: false,
    }
}

/// Without quotes, a list has one member: the token.
fn scope(directives: &[Directive], name: &str) -> FieldScope {
    let mut fields = Vec::new();
    for (_, argument) in directives.iter().filter(|(other, _)| other == name) {
        let Some(Ok(Ok(field))) = argument
            .as_ref()
            .map(|argument| argument.as_ref().map(|text| text.parse()))
        else {
            return FieldScope::Whole;
        };
        // 32 names are the limit, also for a name that repeats one of them.
        if fields.len() == 32 {
            return FieldScope::Whole;
        }
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    match fields.is_empty() {
        true => FieldScope::Absent,
        false => FieldScope::Fields(fields),
    }
}

fn expected_request(directives: &[Directive]) -> RequestDirectives {
    let has = |name: &str| directives.iter().any(|(other, _)| other == name);
    let least = |name| seconds(directives, name, 0).into_iter().min();
    // Without an argument, `max-stale` accepts any staleness. A limit is stricter.
    let limited = directives
        .iter()
        .filter(|(name, argument)| name == "max-stale" && argument.is_some());
    let limited: Vec<_> = limited.cloned().collect();
    let limit = seconds(&limited, "max-stale", 0).into_iter().min();
    let any = has("max-stale").then_some(MaxStale::Any);
    RequestDirectives {
        max_age: least("max-age"),
        max_stale: limit.map(MaxStale::Seconds).or(any),
        min_fresh: seconds(directives, "min-fresh", DELTA_SECONDS_MAX)
            .into_iter()
            .max(),
        stale_if_error: least("stale-if-error"),
        no_cache: has("no-cache"),
        no_store: has("no-store"),
        no_transform: has("no-transform"),
        only_if_cached: has("only-if-cached"),
    }
}
