//! Updates the head of a stored response with the fields of a 304 or of a response to HEAD (RFC 9111 §3.2,
//! §4.3.4, §4.3.5).

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderMap,
    HeaderName, LAST_MODIFIED,
};
use http::{Method, StatusCode};

use crate::age::Exchange;
use crate::hop_by_hop;
use crate::rules::Rules;
use crate::storability::{NotStoredReason, Storable, decide};
use crate::validators::Validators;

/// The result of validating a stored response.
#[derive(Clone, Debug)]
pub enum Freshened {
    /// The stored response is valid. The head and the policy of this [`Storable`] replace the stored ones, and
    /// the response is served.
    Keep(Box<Storable>),
    /// The stored response is valid for this request but must not be stored any longer, for example because the
    /// 304 has `no-store`. The cache sends the stored response with this head to this client, but not to
    /// followers, and then removes the stored response.
    UseOnce {
        /// The head to serve.
        head: HeaderMap,
        /// Why the response must not be stored.
        reason: NotStoredReason,
    },
    /// The new response is about another representation. After a 304, remove the stored response and repeat the
    /// request without conditions. After a HEAD, treat the stored response as stale.
    Mismatch,
}

/// The stored response that is validated.
#[derive(Clone, Copy, Debug)]
pub struct StoredResponse<'a> {
    /// The status of the stored response.
    pub status: StatusCode,
    /// The stored head, see [`Storable::head`].
    pub head: &'a HeaderMap,
    /// The validators in the stored head.
    pub validators: &'a Validators,
}

/// Applies a 304 to the stored response (§4.3.4). The request was a
/// [`conditional::revalidation_request`](crate::conditional::revalidation_request).
///
/// This differs from the RFC in two points, because the request concerned one stored response only. A 304
/// without a validator applies to that response. Tags that differ only in `W/` agree, because origins that
/// compress weaken the tag of the 200 but not of the 304; the stored tag is retained.
pub fn by_not_modified(
    rules: &Rules,
    request: &HeaderMap,
    stored: StoredResponse<'_>,
    not_modified: &HeaderMap,
    exchange: Exchange,
) -> Freshened {
    let new_validators = Validators::from_headers(not_modified);
    let agrees = match (&new_validators.etag, &stored.validators.etag) {
        (Some(new), Some(old)) => new.weak_eq(old),
        // A strong tag cannot belong to a stored response without a tag (§4.3.4).
        (Some(new), None) => {
            new.is_weak() && same_last_modified(&new_validators, stored.validators)
        }
        (None, _) => {
            new_validators.last_modified.is_none()
                || same_last_modified(&new_validators, stored.validators)
        }
    };
    if agrees {
        update(
            rules,
            request,
            stored,
            not_modified,
            &new_validators,
            exchange,
        )
    } else {
        Freshened::Mismatch
    }
}

/// Updates a stored GET response after a HEAD request was answered with 200 (§4.3.5).
///
/// All validators and the length in the HEAD response must equal the stored values.
pub fn by_head(
    rules: &Rules,
    request: &HeaderMap,
    stored: StoredResponse<'_>,
    head_response: &HeaderMap,
    exchange: Exchange,
) -> Freshened {
    let same = |name: &HeaderName| {
        head_response.get(name).is_none() || head_response.get(name) == stored.head.get(name)
    };
    if stored.status == StatusCode::OK
        && same(&ETAG)
        && same(&LAST_MODIFIED)
        && same(&CONTENT_LENGTH)
    {
        let new_validators = Validators::from_headers(head_response);
        update(
            rules,
            request,
            stored,
            head_response,
            &new_validators,
            exchange,
        )
    } else {
        Freshened::Mismatch
    }
}

fn same_last_modified(new_validators: &Validators, stored: &Validators) -> bool {
    new_validators.last_modified.is_some() && new_validators.last_modified == stored.last_modified
}

/// Merges the new fields into the stored head and decides about the result as about a new response.
fn update(
    rules: &Rules,
    request: &HeaderMap,
    stored: StoredResponse<'_>,
    new: &HeaderMap,
    new_validators: &Validators,
    exchange: Exchange,
) -> Freshened {
    let mut head = stored.head.clone();
    // The age counts from the new response. If the new response has no `Date`, the age must not be computed from the
    // stored `Date`.
    head.remove(DATE);
    let mut new = new.clone();
    hop_by_hop::strip_response(&mut new);
    let keeps_etag = match (&new_validators.etag, &stored.validators.etag) {
        // The tags agree, so they differ at most in `W/`. The stored tag is then retained.
        (Some(new), Some(old)) => new.is_weak() != old.is_weak(),
        // An invalid tag must not replace a valid one.
        (None, Some(_)) => true,
        _ => false,
    };
    for name in new.keys() {
        if describes_stored_content(name) || (keeps_etag && *name == ETAG) {
            continue;
        }
        // §3.2: new values replace all old values of the field.
        head.remove(name);
        for value in new.get_all(name) {
            head.append(name, value.clone());
        }
    }
    match decide(rules, &Method::GET, request, stored.status, &head, exchange) {
        Ok(storable) => Freshened::Keep(Box::new(storable)),
        Err(reason) => {
            head.remove(AGE);
            head.entry(DATE)
                .or_insert_with(|| crate::date::format_http_date(exchange.response_date));
            Freshened::UseOnce { head, reason }
        }
    }
}

/// Returns true for fields that keep their stored values because the stored bytes depend on them (§3.2). With
/// another `Content-Encoding` the stored bytes could not be decoded.
fn describes_stored_content(name: &HeaderName) -> bool {
    *name == CONTENT_ENCODING
        || *name == CONTENT_LENGTH
        || *name == CONTENT_RANGE
        || *name == CONTENT_TYPE
}

#[cfg(test)]
mod tests {
    use edgeward_types::Timestamp;

    use super::*;
    use crate::testing::headers;
    use crate::{LifetimeSource, Verdict, on_response};

    const FETCHED: Timestamp = Timestamp::from_secs(784_111_777);
    const VALIDATED: Timestamp = Timestamp::from_secs(784_111_877);

    fn at(time: Timestamp) -> Exchange {
        Exchange::at(time)
    }

    fn store(lines: &str) -> Storable {
        let nothing = HeaderMap::new();
        match on_response(
            &Rules::default(),
            &Method::GET,
            &nothing,
            StatusCode::OK,
            &headers(lines),
            at(FETCHED),
        ) {
            Verdict::Store(storable) => *storable,
            Verdict::Refuse(reason) => panic!("{lines}: {reason}"),
        }
    }

    fn freshen(stored: &Storable, lines: &str) -> Freshened {
        let stored_response = StoredResponse {
            status: StatusCode::OK,
            head: &stored.head,
            validators: &stored.validators,
        };
        by_not_modified(
            &Rules::default(),
            &HeaderMap::new(),
            stored_response,
            &headers(lines),
            at(VALIDATED),
        )
    }

    fn expect_keep(freshened: Freshened) -> Storable {
        match freshened {
            Freshened::Keep(storable) => *storable,
            other => panic!("{other:?}"),
        }
    }

    const DATE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";

    /// §3.2: new values replace old ones, other fields stay, and fields that describe the body stay.
    #[test]
    fn a_304_replaces_fields_except_those_that_describe_the_body() {
        let stored = store(&format!(
            "{DATE}\ncache-control: max-age=10\netag: \"a\"\nx-old: 1\nx-both: 1\nx-both: 2\n\
             content-type: text/plain\ncontent-length: 5\ncontent-encoding: gzip"
        ));
        let fresh = expect_keep(freshen(
            &stored,
            "date: Sun, 06 Nov 1994 08:51:17 GMT\ncache-control: max-age=20\netag: \"a\"\nx-new: 1\nx-both: 3\n\
             content-type: text/html\ncontent-length: 0\ncontent-encoding: br\ncontent-range: bytes 0-1/2\n\
             connection: x-mine\nx-mine: 1\nage: 3",
        ));
        assert_eq!(
            fresh.head,
            headers(
                "date: Sun, 06 Nov 1994 08:51:17 GMT\ncache-control: max-age=20\netag: \"a\"\nx-old: 1\nx-both: 3\n\
                 x-new: 1\ncontent-type: text/plain\ncontent-length: 5\ncontent-encoding: gzip"
            )
        );
        assert_eq!(
            fresh.policy.fresh_until,
            VALIDATED.after(std::time::Duration::from_secs(17))
        );
        assert_eq!(fresh.policy.age_secs(VALIDATED), 3);
    }

    /// A 304 without fields starts the stored lifetime again: neither the stored `Date` nor the stored `Age`
    /// counts.
    #[test]
    fn a_304_without_fields_restarts_the_lifetime() {
        let stored = store(&format!(
            "{DATE}\ncache-control: max-age=10\netag: \"a\"\nage: 5"
        ));
        let fresh = expect_keep(freshen(&stored, ""));
        assert_eq!(fresh.policy.age_secs(VALIDATED), 0);
        assert_eq!(
            fresh.policy.fresh_until,
            VALIDATED.after(std::time::Duration::from_secs(10))
        );
        assert_eq!(
            fresh.head.get("date").expect("the field was added"),
            "Sun, 06 Nov 1994 08:51:17 GMT"
        );
        assert_eq!(fresh.source, LifetimeSource::MaxAge);
    }

    /// §4.3.4: a 304 applies to the stored response only if its validators match.
    #[test]
    fn a_304_about_another_representation_is_no_update() {
        let modified = "last-modified: Sun, 06 Nov 1994 08:00:00 GMT";
        let other = "last-modified: Sun, 06 Nov 1994 08:00:01 GMT";
        let table = [
            ("etag: \"a\"", "etag: \"a\"", true),
            ("etag: \"a\"", "etag: \"b\"", false),
            ("etag: W/\"a\"", "etag: \"a\"", true),
            ("etag: \"a\"", "etag: W/\"a\"", true),
            ("etag: \"a\"", "", true),
            (modified, modified, true),
            (modified, other, false),
            (modified, "etag: \"a\"", false),
            (modified, &format!("etag: W/\"a\"\n{modified}"), true),
            (modified, &format!("etag: \"a\"\n{modified}"), false),
            (&format!("etag: \"a\"\n{modified}"), modified, true),
            (&format!("etag: \"a\"\n{modified}"), other, false),
            (
                &format!("etag: \"a\"\n{modified}"),
                &format!("etag: \"a\"\n{other}"),
                true,
            ),
        ];
        for (old, new, updates) in table {
            let stored = store(&format!("cache-control: max-age=10\n{old}"));
            let is_updated = matches!(freshen(&stored, new), Freshened::Keep(_));
            assert_eq!(is_updated, updates, "{old} | {new}");
        }
    }

    #[test]
    fn a_tag_that_differs_in_weakness_or_cannot_be_read_does_not_replace_the_stored_one() {
        let stored = store("cache-control: max-age=10\netag: W/\"a\"");
        for etag in ["\"a\"", "a"] {
            let fresh = expect_keep(freshen(&stored, &format!("etag: {etag}")));
            assert_eq!(
                fresh.head.get("etag").expect("the field is still there"),
                "W/\"a\"",
                "{etag}"
            );
        }
    }

    #[test]
    fn a_response_is_served_once_after_a_304_that_forbids_storing_it() {
        let stored = store("cache-control: max-age=10\netag: \"a\"");
        for (lines, expected) in [
            ("cache-control: no-store", NotStoredReason::NoStore),
            ("cache-control: private", NotStoredReason::Private),
            ("vary: *", NotStoredReason::VaryAny),
            ("set-cookie: a=b", NotStoredReason::SetCookie),
        ] {
            let Freshened::UseOnce { head, reason } = freshen(&stored, &format!("{lines}\nage: 5"))
            else {
                panic!("{lines}");
            };
            assert_eq!(reason, expected, "{lines}");
            assert!(
                head.contains_key("etag") && head.contains_key("date") && !head.contains_key("age")
            );
        }
    }

    /// §4.3.5: the validators and the length must match, if the HEAD response has them.
    #[test]
    fn a_head_response_freshens_a_stored_response_with_the_same_validators() {
        let stored = store("cache-control: max-age=10\netag: \"a\"\ncontent-length: 5");
        let stored_response = StoredResponse {
            status: StatusCode::OK,
            head: &stored.head,
            validators: &stored.validators,
        };
        for (lines, updates) in [
            ("etag: \"a\"\ncontent-length: 5", true),
            ("etag: \"a\"", true),
            ("", true),
            ("etag: \"b\"", false),
            ("etag: W/\"a\"", false),
            ("content-length: 6", false),
            ("last-modified: Sun, 06 Nov 1994 08:00:00 GMT", false),
        ] {
            let response = headers(&format!("cache-control: max-age=20\n{lines}"));
            let freshened = by_head(
                &Rules::default(),
                &HeaderMap::new(),
                stored_response,
                &response,
                at(VALIDATED),
            );
            match freshened {
                Freshened::Keep(storable) => {
                    assert!(updates, "{lines}");
                    assert_eq!(storable.policy.lifetime_ms, 20_000);
                }
                Freshened::Mismatch => assert!(!updates, "{lines}"),
                Freshened::UseOnce { reason, .. } => panic!("{lines}: {reason}"),
            }
        }
    }
}
