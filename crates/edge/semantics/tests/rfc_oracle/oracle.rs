//! The literal oracle: the rules of the RFCs, computed again for each request from the parts of the messages. It keeps
//! no value that the rules do not name.

use edgeward_semantics::{MaxStale, RequestDirectives};

use crate::message::{Directives, Request, Response};

/// A stored response: its parts, the request that selected it, and absolute times.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) response: Response,
    pub(crate) request: Request,
    /// In seconds, like `date` and `last_modified`.
    expires: Option<u64>,
    date: Option<u64>,
    pub(crate) last_modified: Option<u64>,
    request_ms: u64,
    response_ms: u64,
    /// True if the cache estimates lifetimes (RFC 9111 §4.2.2).
    estimates: bool,
}

/// The times of an exchange in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) request_ms: u64,
    pub(crate) response_ms: u64,
}

impl Remembered {
    pub(crate) fn new(response: Response, request: Request, times: Times, estimates: bool) -> Self {
        let arrival = times.response_ms / 1000;
        let at = |offset: Option<i64>| offset.and_then(|offset| arrival.checked_add_signed(offset));
        Self {
            expires: at(response.expires),
            date: at(response.date),
            last_modified: at(response.last_modified),
            request_ms: times.request_ms,
            response_ms: times.response_ms,
            response,
            request,
            estimates,
        }
    }

    /// Returns the stored response after an update (§3.2): the fields of the new response replace the stored ones,
    /// and other stored fields stay. The age is that of the new response (§4.3.4).
    pub(crate) fn updated(&self, answer: Response, times: Times) -> Self {
        let old = self.clone();
        let mut new = Self::new(answer, old.request, times, old.estimates);
        new.expires = new.expires.or(old.expires);
        new.last_modified = new.last_modified.or(old.last_modified);
        new.response.status = old.response.status;
        // §4.3.4: tags that differ only in `W/` belong to one response, which keeps its tag.
        new.response.etag = old.response.etag.or(new.response.etag);
        let (fields, old) = (&mut new.response, old.response);
        fields.cdn_cache_control = fields.cdn_cache_control.take().or(old.cdn_cache_control);
        fields.own_cache_control = fields.own_cache_control.take().or(old.own_cache_control);
        fields.vary = fields.vary.or(old.vary);
        fields.no_vary_search = fields.no_vary_search.or(old.no_vary_search);
        new
    }

    /// Returns the directives that count, and true if a targeted field has them (RFC 9213 §2.2): the first valid field
    /// of the target list, or else `Cache-Control`.
    fn directives(&self) -> (&Directives, bool) {
        let Response {
            own_cache_control: own,
            cdn_cache_control: cdn,
            cache_control,
            ..
        } = &self.response;
        // RFC 9213 §2.1: a structured field with an error is ignored.
        let valid = |field: &'_ &Directives| !field.has_comma;
        match own
            .as_ref()
            .filter(valid)
            .or_else(|| cdn.as_ref().filter(valid))
        {
            Some(targeted) => (targeted, true),
            None => (cache_control, false),
        }
    }

    fn has(&self, flag: &str) -> bool {
        self.directives().0.has(flag)
    }

    /// Returns true if `no-cache` or `private` applies to the whole response (§5.2.2.4, §5.2.2.7). In a structured
    /// field the last member with a name counts (RFC 8941 §3.2), which here is the one with a list of fields.
    fn has_whole(&self, flag: &str) -> bool {
        let (directives, is_targeted) = self.directives();
        directives.has(flag) && !(is_targeted && directives.has(&format!("{flag}=\"x-b\"")))
    }

    /// Returns the explicit lifetime in seconds (§4.2.1).
    fn explicit_lifetime(&self) -> Option<u64> {
        let (directives, is_targeted) = self.directives();
        let stated = directives.s_maxage.or(directives.max_age).map(u64::from);
        // RFC 9213 §2.2: `Expires` does not count beside a targeted field.
        let expires = self.expires.filter(|_| !is_targeted);
        stated.or_else(|| expires.map(|expires| expires.saturating_sub(self.date())))
    }

    /// Returns `Date` in seconds, or the time of arrival without it (RFC 9110 §6.6.1).
    pub(crate) fn date(&self) -> u64 {
        self.date.unwrap_or(self.response_ms / 1000)
    }

    /// Returns the freshness lifetime in milliseconds (§4.2.1).
    fn freshness_lifetime(&self) -> u64 {
        self.explicit_lifetime()
            .map_or_else(|| self.heuristic_lifetime(), |secs| secs * 1000)
    }

    /// Returns a tenth of the time since `Last-Modified`, at most a day (§4.2.2). The status must be heuristically
    /// cacheable, or the response `public`.
    fn heuristic_lifetime(&self) -> u64 {
        match self.last_modified {
            Some(modified)
                if self.estimates && (self.is_heuristically_cacheable() || self.has("public")) =>
            {
                (self.date().saturating_sub(modified) * 100).min(24 * 60 * 60 * 1000)
            }
            _ => 0,
        }
    }

    /// RFC 9110 §15.1.
    fn is_heuristically_cacheable(&self) -> bool {
        let statuses = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];
        statuses.contains(&self.response.status)
    }

    /// Returns `current_age` in milliseconds (§4.2.3). A clock that steps back makes no response younger than it was on
    /// arrival.
    pub(crate) fn current_age(&self, now: u64) -> u64 {
        let arrival = self.response_ms / 1000;
        let apparent_age = self
            .date
            .map_or(0, |date| arrival.saturating_sub(date) * 1000);
        let response_delay = self.response_ms - self.request_ms;
        let age_value = u64::from(self.response.age.unwrap_or(0)) * 1000;
        let resident_time = now.saturating_sub(self.response_ms);
        apparent_age.max(age_value + response_delay) + resident_time
    }

    /// Returns true if a directive prohibits stale use (§4.2.4, §5.2.2.2, §5.2.2.8, §5.2.2.10).
    fn prohibits_stale(&self) -> bool {
        self.has_whole("no-cache")
            || self.has("must-revalidate")
            || self.has("proxy-revalidate")
            || self.directives().0.s_maxage.is_some()
    }

    /// Returns true if the response is fresh, or stale for less than `extra` seconds (RFC 5861). With `no-cache`,
    /// returns false, and also for a response from the future.
    fn is_within(&self, now: u64, extra: Option<u32>) -> bool {
        let extra = extra
            .filter(|_| !self.prohibits_stale())
            .map_or(0, u64::from);
        !self.has_whole("no-cache")
            && now >= self.response_ms
            && self.current_age(now) < self.freshness_lifetime() + extra * 1000
    }

    /// RFC 5861 §4.
    pub(crate) fn may_be_served_on_error(&self, now: u64) -> bool {
        self.is_within(now, self.directives().0.stale_if_error)
    }

    /// RFC 5861 §4: a request may limit the staleness after errors.
    pub(crate) fn is_too_stale_for(&self, now: u64, limit_secs: Option<u32>) -> bool {
        let staleness = self
            .current_age(now)
            .saturating_sub(self.freshness_lifetime());
        limit_secs.is_some_and(|limit| staleness >= u64::from(limit) * 1000)
    }

    /// Returns true if the cache can validate the response (§4.3.1).
    pub(crate) fn has_validator(&self) -> bool {
        self.response.etag.is_some() || self.last_modified.is_some()
    }

    /// Returns true if a 304 is about this response (§4.3.4). The request concerned this response only, so that a 304
    /// without validators confirms it, and so does a tag that differs only in `W/`.
    pub(crate) fn is_confirmed_by(&self, answer: &Self) -> bool {
        let same_date = answer.last_modified == self.last_modified;
        match (answer.response.etag, self.response.etag) {
            (Some(new), Some(old)) => new.trim_start_matches("W/") == old.trim_start_matches("W/"),
            (Some(new), None) => {
                new.starts_with("W/") && same_date && answer.last_modified.is_some()
            }
            (None, _) => same_date || answer.last_modified.is_none(),
        }
    }

    /// Returns true if a response to HEAD is about this response (§4.3.5): its validators, if any, are equal.
    pub(crate) fn is_confirmed_by_head(&self, answer: &Self) -> bool {
        self.response.status == 200
            && (answer.response.etag.is_none() || answer.response.etag == self.response.etag)
            && (answer.last_modified.is_none() || answer.last_modified == self.last_modified)
    }

    /// Returns true if the response to this GET may be stored (§3). It must also be usable for a later request.
    pub(crate) fn may_be_stored(&self, request: &Request) -> bool {
        let directives = self.directives().0;
        // §3: the status is final. A cache that combines no partial responses does not store a 206 (§3.3). A 302, a
        // 500 or a 503 needs an explicit lifetime or `public`.
        let is_cacheable = match self.response.status {
            206 => false,
            // Errors that fields of the request cause: the operator did not allow to store them.
            400 | 414 => false,
            // RFC 6585 §4.
            429 => false,
            _ => {
                self.explicit_lifetime().is_some()
                    || self.has("public")
                    || self.is_heuristically_cacheable()
            }
        };
        // §5.2.2.3: with `must-understand`, `no-store` does not count if the cache knows the status.
        let knows_status = ![500, 503].contains(&self.response.status);
        let is_storable = match self.has("must-understand") {
            true => knows_status,
            false => !self.has("no-store"),
        };
        // §3.5.
        let shares =
            self.has("public") || self.has("must-revalidate") || directives.s_maxage.is_some();
        let now = self.response_ms;
        let is_usable = self.has_validator()
            || self.is_within(now, directives.stale_while_revalidate)
            || self.is_within(now, directives.stale_if_error);
        is_cacheable
            && is_storable
            && is_usable
            && !self.has_whole("private")
            && (!request.has_authorization || shares)
            // §5.2.1.5.
            && !request.directives.no_store
            // §4.1: `Vary: *` never matches.
            && self.response.vary != Some("*")
            // §7.3: this cache does not store cookies by default.
            && !self.response.has_cookie
    }

    /// Returns the name of the decision about a request (§4, §4.2.4, §5.2.1).
    pub(crate) fn reuse(&self, now: u64, request: &RequestDirectives) -> &'static str {
        let (age, lifetime) = (self.current_age(now), self.freshness_lifetime());
        let millis = |secs: u32| u64::from(secs) * 1000;
        let is_usable = !request.no_cache
            && !self.has_whole("no-cache")
            && request.max_age.is_none_or(|limit| age <= millis(limit));
        // The age of a response from the future is unknown.
        let is_fresh = lifetime > age && now >= self.response_ms;
        let stays_fresh = request
            .min_fresh
            .is_none_or(|margin| lifetime >= age + millis(margin));
        let accepts_stale = match request.max_stale {
            Some(MaxStale::Any) => true,
            Some(MaxStale::Seconds(limit)) => age <= lifetime + millis(limit),
            None => false,
        };
        let states_a_limit = request.max_age.is_some() || request.max_stale.is_some();
        let extra = self.directives().0.stale_while_revalidate;
        if is_usable && is_fresh && stays_fresh {
            "fresh"
        } else if is_usable && !is_fresh && !self.prohibits_stale() && request.min_fresh.is_none() {
            if accepts_stale {
                "stale"
            } else if !states_a_limit && self.is_within(now, extra) {
                "stale-while-revalidate"
            } else {
                self.without_reuse(request)
            }
        } else {
            self.without_reuse(request)
        }
    }

    /// Returns the name of the decision if the stored response cannot be used as it is.
    fn without_reuse(&self, request: &RequestDirectives) -> &'static str {
        match (request.only_if_cached, self.has_validator()) {
            (true, _) => "504",
            (false, true) => "validate",
            (false, false) => "fetch",
        }
    }

    /// Returns true if the response may be served while the origin cannot be reached (§4.2.4). The limits are those
    /// that `StoredPolicy::may_serve_disconnected` documents.
    pub(crate) fn may_be_served_disconnected(&self, now: u64, limit_secs: u32) -> bool {
        let extra = self.directives().0.stale_if_error;
        let limit = u64::from(limit_secs) * 1000;
        let was_fresh = !self.has_whole("no-cache")
            && self.freshness_lifetime() > self.current_age(self.response_ms);
        self.is_within(now, extra)
            || (was_fresh
                && !self.prohibits_stale()
                && extra.is_none()
                && self.current_age(now) <= self.freshness_lifetime() + limit)
    }

    /// Returns true if the response may be selected for a request (§4): the URIs match, or differ only as
    /// `No-Vary-Search` allows, and the fields that `Vary` names match.
    pub(crate) fn matches(&self, request: &Request) -> bool {
        let own = &self.request;
        (own.host, own.path) == (request.host, request.path)
            && self.has_equivalent_query(own.query, request.query)
            && self.response.vary.is_none_or(|names| {
                names.split(", ").all(|name| match name {
                    // §4.1: an absent field matches only an absent one.
                    "x-a" | "X-A" => own.x_a == request.x_a,
                    // §4.1: normalised as its syntax allows. RFC 9110 §12.5.4: language ranges have no letter case.
                    "accept-language" => {
                        let normal = |value: &str| value.replace(' ', "").to_lowercase();
                        own.accept_language.map(normal) == request.accept_language.map(normal)
                    }
                    _ => unreachable!("`*` is not stored"),
                })
            })
    }

    /// draft-ietf-httpbis-no-vary-search §6. The queries of the test contain no encoded letters.
    fn has_equivalent_query(&self, one: &'static str, other: &'static str) -> bool {
        let is_significant: fn(&str) -> bool = match self.response.no_vary_search {
            Some("key-order") => |_| true,
            Some("params=(\"u\")" | "params=(\"u\"), key-order") => |name| name != "u",
            Some("except=(\"x\")") => |name| name == "x",
            // §5.1: an invalid field makes the default config.
            _ => return one == other,
        };
        let ignores_order = self
            .response
            .no_vary_search
            .is_some_and(|rule| rule.contains("key-order"));
        let parameters = |query: &'static str| {
            let parts = query.trim_start_matches('?').split('&');
            let pairs = parts.filter_map(|part| part.split_once('='));
            let mut pairs: Vec<_> = pairs.filter(|(name, _)| is_significant(name)).collect();
            if ignores_order {
                pairs.sort_by_key(|(name, _)| *name);
            }
            pairs
        };
        parameters(one) == parameters(other)
    }

    /// Returns true if a response to an unsafe request makes this response invalid (§4.4): it is stored for the target,
    /// or for the URI of `Location` or `Content-Location` with the origin of the target.
    pub(crate) fn is_invalidated(&self, request: &Request, answer: &Response) -> bool {
        // RFC 9110 §9.2.1: OPTIONS is safe. An unknown method counts as unsafe.
        let is_safe = ["GET", "HEAD", "OPTIONS", "TRACE"].contains(&request.method.as_str());
        let own = (self.request.host, self.request.path_and_query());
        let is_success = (200..400).contains(&answer.status);
        !is_safe
            && is_success
            && (own == (request.host, request.path_and_query())
                || [answer.location, answer.content_location]
                    .into_iter()
                    .flatten()
                    .any(|reference| resolve(reference, request).is_some_and(|uri| uri == own)))
    }
}

/// Resolves a reference (RFC 3986 §5.2). Returns host, path and query if scheme, host and port are those of the
/// request.
fn resolve(reference: &str, request: &Request) -> Option<(&'static str, String)> {
    let same_host = |path: &str| Some((request.host, path.to_owned()));
    match reference {
        "/b" => same_host("/b"),
        "a?x=1" => same_host("/a?x=1"),
        "./../b?u=2&x=1" => same_host("/b?u=2&x=1"),
        "?x=1" => same_host(&format!("{}?x=1", request.path)),
        "HTTP://H:80/a" if request.host == "h" => same_host("/a"),
        // A fragment is not a part of the key.
        "http://h/b#part" if request.host == "h" => same_host("/b"),
        "//g/a" if request.host == "g" => same_host("/a"),
        // Another host, scheme or port.
        _ => None,
    }
}
