//! Bringing a stored response up to date without its body (RFC 9111 §3.2, §4.3.4, §4.3.5).

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderMap,
    HeaderName, LAST_MODIFIED,
};
use http::{Method, StatusCode};

use crate::age::Exchange;
use crate::hop_by_hop;
use crate::rules::Rules;
use crate::storability::{Refusal, Storable, decide};
use crate::validators::Validators;

/// What became of a stored response.
#[derive(Clone, Debug)]
pub enum Freshened {
    /// It is valid. Replace its head and policy by these and serve it.
    Keep(Box<Storable>),
    /// It is valid for this request, with this head, but may no longer be stored, for
    /// instance because the 304 says `no-store`. Serve it and forget it.
    UseOnce {
        /// The head to serve.
        head: HeaderMap,
        /// Why it may not be kept.
        refusal: Refusal,
    },
    /// The answer is about another representation. A 304: forget the stored one and ask
    /// again without conditions. A HEAD: treat the stored one as stale.
    Mismatch,
}

/// The stored side of a validation.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its head as kept, see [`Storable::head`].
    pub head: &'a HeaderMap,
    /// Its validators.
    pub validators: &'a Validators,
}

/// Applies a 304 that answered
/// [`conditional::revalidation_request`](crate::conditional::revalidation_request) (§4.3.4).
///
/// Two departures, both since only one stored response was asked about, so the 304 can mean no
/// other. A 304 without any validator is taken for it. And tags that differ in `W/` alone
/// agree, because origins that compress weaken the tag of the 200 and not that of the
/// 304; the stored tag then stays.
pub fn by_not_modified(
    rules: &Rules,
    request: &HeaderMap,
    stored: Stored<'_>,
    not_modified: &HeaderMap,
    exchange: Exchange,
) -> Freshened {
    let news = Validators::of(not_modified);
    let agrees = match (&news.etag, &stored.validators.etag) {
        (Some(new), Some(old)) => new.weak_eq(old),
        (Some(new), None) => new.is_weak() && same_last_modified(&news, stored.validators),
        (None, _) => news.last_modified.is_none() || same_last_modified(&news, stored.validators),
    };
    if agrees {
        update(rules, request, stored, not_modified, &news, exchange)
    } else {
        Freshened::Mismatch
    }
}

/// Applies a 200 to a HEAD (§4.3.5) to a stored GET.
///
/// Every validator and the length that the HEAD response states must be the stored ones.
pub fn by_head(
    rules: &Rules,
    request: &HeaderMap,
    stored: Stored<'_>,
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
        let news = Validators::of(head_response);
        update(rules, request, stored, head_response, &news, exchange)
    } else {
        Freshened::Mismatch
    }
}

fn same_last_modified(news: &Validators, stored: &Validators) -> bool {
    news.last_modified.is_some() && news.last_modified == stored.last_modified
}

/// The stored head with the new fields in it, judged like a new response.
fn update(
    rules: &Rules,
    request: &HeaderMap,
    stored: Stored<'_>,
    new: &HeaderMap,
    news: &Validators,
    exchange: Exchange,
) -> Freshened {
    let mut head = stored.head.clone();
    // Time counts from the new response. Its `Date` may be missing, and then the old
    // one must not make it old.
    head.remove(DATE);
    let mut new = new.clone();
    hop_by_hop::strip_response(&mut new);
    let keeps_etag = match (&news.etag, &stored.validators.etag) {
        (Some(new), Some(old)) => new.is_weak() != old.is_weak(),
        // A tag that cannot be read must not replace one that can.
        (None, Some(_)) => true,
        _ => false,
    };
    for name in new.keys() {
        if describes_stored_content(name) || (keeps_etag && *name == ETAG) {
            continue;
        }
        // §3.2: new values replace all old ones of the field.
        head.remove(name);
        for value in new.get_all(name) {
            head.append(name, value.clone());
        }
    }
    match decide(rules, &Method::GET, request, stored.status, &head, exchange) {
        Ok(storable) => Freshened::Keep(Box::new(storable)),
        Err(refusal) => {
            head.remove(AGE);
            head.entry(DATE)
                .or_insert_with(|| crate::date::format_http_date(exchange.response_time));
            Freshened::UseOnce { head, refusal }
        }
    }
}

/// Fields that stay as stored because the stored bytes depend on them (§3.2): with
/// another `Content-Encoding` the same bytes are garbage.
fn describes_stored_content(name: &HeaderName) -> bool {
    *name == CONTENT_ENCODING
        || *name == CONTENT_LENGTH
        || *name == CONTENT_RANGE
        || *name == CONTENT_TYPE
}
