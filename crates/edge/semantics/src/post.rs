//! The response to a POST that answers later GETs (RFC 9110 §9.3.3).

use http::header::{CONTENT_LOCATION, HeaderMap};
use http::{Method, StatusCode};

use crate::age::Exchange;
use crate::cache_key::Target;
use crate::invalidation::same_origin_key;
use crate::rules::Rules;
use crate::storability::{NotStoredReason, Verdict, on_response};

/// Decides from both heads if the response to a POST is stored for later GETs of its target.
///
/// It is, if it would be stored as the response to a GET, has an explicit lifetime, and declares with
/// `Content-Location` that it is the representation of its target (RFC 9110 §8.7). The status must be 200, because with
/// another status the field has another meaning: the `Content-Location` of a 201 may be the new resource.
pub fn on_post_response(
    rules: &Rules,
    request: &HeaderMap,
    target: &Target<'_>,
    status: StatusCode,
    response: &HeaderMap,
    exchange: Exchange,
) -> Verdict {
    if status != StatusCode::OK || !describes_target(target, response) {
        return Verdict::Refuse(NotStoredReason::Method);
    }
    match on_response(rules, &Method::GET, request, status, response, exchange) {
        Verdict::Store(storable) if !storable.source.is_explicit() => {
            Verdict::Refuse(NotStoredReason::NoExplicitFreshness)
        }
        verdict => verdict,
    }
}

/// Returns true if the response has exactly one `Content-Location`, which is the URI of the target.
fn describes_target(target: &Target<'_>, response: &HeaderMap) -> bool {
    let mut lines = response.get_all(CONTENT_LOCATION).into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let key = line
        .to_str()
        .ok()
        .and_then(|reference| same_origin_key(target, reference));
    key.is_some_and(|key| key == target.key())
}

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use super::*;
    use crate::rules::Heuristic;
    use crate::testing::headers;

    fn verdict(request: &str, status: u16, response: &str) -> Result<(), NotStoredReason> {
        let target = Target::new("http", "h", "/a/b?q").expect("the authority is valid");
        let rules = Rules {
            heuristic: Some(Heuristic::default()),
            ..Rules::default()
        };
        let now = Timestamp::from_secs(784_111_777);
        let exchange = Exchange::at(now);
        let status = StatusCode::from_u16(status).expect("the status is valid");
        let (request, response) = (&headers(request), &headers(response));
        match on_post_response(&rules, request, &target, status, response, exchange) {
            Verdict::Store(_) => Ok(()),
            Verdict::Refuse(reason) => Err(reason),
        }
    }

    /// RFC 9110 §9.3.3: explicit freshness, and a `Content-Location` equal to the target.
    #[test]
    fn a_response_is_stored_only_if_it_describes_its_target_and_has_a_lifetime() {
        use NotStoredReason::{Method, NoExplicitFreshness};
        let lifetime = "cache-control: max-age=60\n";
        for (location, expected) in [
            ("content-location: /a/b?q", Ok(())),
            ("content-location: b?q", Ok(())),
            ("content-location: ?q", Ok(())),
            ("content-location: http://H:80/a/./b?q#part", Ok(())),
            ("", Err(Method)),
            ("location: /a/b?q", Err(Method)),
            ("content-location: /a/b", Err(Method)),
            ("content-location: /a/b?Q", Err(Method)),
            ("content-location: /a/%62?q", Err(Method)),
            ("content-location: https://h/a/b?q", Err(Method)),
            ("content-location: http://other/a/b?q", Err(Method)),
            (
                "content-location: /a/b?q\ncontent-location: /x",
                Err(Method),
            ),
        ] {
            assert_eq!(
                verdict("", 200, &format!("{lifetime}{location}")),
                expected,
                "{location}"
            );
        }
        let own = "content-location: /a/b?q\n";
        for (lifetime, expected) in [
            ("cache-control: s-maxage=60", Ok(())),
            ("cdn-cache-control: max-age=60", Ok(())),
            (
                "date: Sun, 06 Nov 1994 08:49:37 GMT\nexpires: Sun, 06 Nov 1994 08:50:37 GMT",
                Ok(()),
            ),
            ("", Err(NotStoredReason::NeverReusable)),
            ("etag: \"a\"", Err(NoExplicitFreshness)),
            (
                "last-modified: Sun, 06 Nov 1984 08:49:37 GMT",
                Err(NoExplicitFreshness),
            ),
            (
                "cache-control: public\netag: \"a\"",
                Err(NoExplicitFreshness),
            ),
        ] {
            assert_eq!(
                verdict("", 200, &format!("{own}{lifetime}")),
                expected,
                "{lifetime}"
            );
        }
        for status in [201, 204, 206, 301, 303, 404] {
            assert_eq!(
                verdict("", status, &format!("{own}{lifetime}")),
                Err(Method),
                "{status}"
            );
        }
    }

    /// The rules for responses to GET apply as well.
    #[test]
    fn a_response_that_a_get_could_not_store_is_not_stored() {
        let own = "content-location: /a/b?q\ncache-control: max-age=60";
        for (request, more, expected) in [
            ("", ", no-store", NotStoredReason::NoStore),
            ("", ", private", NotStoredReason::Private),
            ("", "\nset-cookie: a=b", NotStoredReason::SetCookie),
            ("", "\nvary: *", NotStoredReason::VaryAny),
            (
                "authorization: Basic QQ==",
                "",
                NotStoredReason::Authorization,
            ),
        ] {
            assert_eq!(
                verdict(request, 200, &format!("{own}{more}")),
                Err(expected),
                "{more}"
            );
        }
    }
}
