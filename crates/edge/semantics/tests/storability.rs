//! Tests of the decision to store a response (RFC 9111 §3): a golden table, and a comparison with an oracle for
//! all combinations of inputs.

use edgeward_semantics::{Exchange, NotStoredReason, Rules, SetCookie, Verdict, on_response};
use edgeward_types::Timestamp;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

const CDN: HeaderName = HeaderName::from_static("cdn-cache-control");

const NOW: Timestamp = Timestamp::from_secs(784_111_777);

fn verdict(
    rules: &Rules,
    method: &Method,
    status: u16,
    request: &HeaderMap,
    response: &HeaderMap,
) -> Result<(), NotStoredReason> {
    let exchange = Exchange::at(NOW);
    let status = StatusCode::from_u16(status).expect("three digits");
    match on_response(rules, method, request, status, response, exchange) {
        Verdict::Store(_) => Ok(()),
        Verdict::Refuse(reason) => Err(reason),
    }
}

/// A header field in a table.
type Field = (HeaderName, &'static str);

fn head(fields: &[Field]) -> HeaderMap {
    let mut head = HeaderMap::new();
    for (name, value) in fields {
        head.append(name, HeaderValue::from_static(value));
    }
    head
}

/// The table in `golden/storability.txt` shows operators which responses are stored. If this test fails, the
/// set of cached responses has changed. Write the table again with `EDGEWARD_RENEW_GOLDEN=1` and explain the
/// change in the commit.
#[test]
fn the_golden_table_of_storability_holds() {
    const STATUSES: [u16; 19] = [
        200, 203, 204, 206, 301, 302, 304, 307, 400, 404, 410, 413, 414, 416, 429, 431, 500, 501,
        503,
    ];
    const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "PUT", "DELETE"];
    let cc = |value| vec![(CACHE_CONTROL, value)];
    let rows: Vec<(&str, &[Field], Vec<Field>)> = vec![
        ("(nothing)", &[], vec![]),
        ("etag", &[], vec![(ETAG, "\"a\"")]),
        ("max-age=60", &[], cc("max-age=60")),
        ("max-age=0", &[], cc("max-age=0")),
        (
            "max-age=0 + etag",
            &[],
            vec![(CACHE_CONTROL, "max-age=0"), (ETAG, "\"a\"")],
        ),
        (
            "max-age=0, stale-if-error=60",
            &[],
            cc("max-age=0, stale-if-error=60"),
        ),
        ("max-age=x", &[], cc("max-age=x")),
        ("s-maxage=60", &[], cc("s-maxage=60")),
        ("s-maxage=0, max-age=60", &[], cc("s-maxage=0, max-age=60")),
        (
            "expires in a minute",
            &[],
            vec![(EXPIRES, "Sun, 06 Nov 1994 08:50:37 GMT")],
        ),
        ("expires: 0", &[], vec![(EXPIRES, "0")]),
        ("public", &[], cc("public")),
        (
            "public + etag",
            &[],
            vec![(CACHE_CONTROL, "public"), (ETAG, "\"a\"")],
        ),
        ("no-store", &[], cc("no-store, max-age=60")),
        (
            "must-understand, no-store",
            &[],
            cc("must-understand, no-store, max-age=60"),
        ),
        ("private", &[], cc("private, max-age=60")),
        ("private=\"x\"", &[], cc("private=\"x\", max-age=60")),
        ("no-cache", &[], cc("no-cache, max-age=60")),
        (
            "no-cache + etag",
            &[],
            vec![(CACHE_CONTROL, "no-cache, max-age=60"), (ETAG, "\"a\"")],
        ),
        ("no-cache=\"x\"", &[], cc("no-cache=\"x\", max-age=60")),
        (
            "set-cookie",
            &[],
            vec![(CACHE_CONTROL, "max-age=60"), (SET_COOKIE, "a=b")],
        ),
        (
            "set-cookie named",
            &[],
            vec![
                (CACHE_CONTROL, "max-age=60, private=\"set-cookie\""),
                (SET_COOKIE, "a=b"),
            ],
        ),
        (
            "vary: *",
            &[],
            vec![(CACHE_CONTROL, "max-age=60"), (VARY, "*")],
        ),
        (
            "text/event-stream",
            &[],
            vec![
                (CACHE_CONTROL, "max-age=60"),
                (CONTENT_TYPE, "Text/Event-Stream; charset=utf-8"),
            ],
        ),
        (
            "text/event-streams",
            &[],
            vec![
                (CACHE_CONTROL, "max-age=60"),
                (CONTENT_TYPE, "text/event-streams"),
            ],
        ),
        (
            "vary: accept",
            &[],
            vec![(CACHE_CONTROL, "max-age=60"), (VARY, "accept")],
        ),
        ("authorization", &[(AUTHORIZATION, "x")], cc("max-age=60")),
        (
            "authorization, public",
            &[(AUTHORIZATION, "x")],
            cc("max-age=60, public"),
        ),
        (
            "authorization, s-maxage",
            &[(AUTHORIZATION, "x")],
            cc("s-maxage=60"),
        ),
        (
            "authorization, must-revalidate",
            &[(AUTHORIZATION, "x")],
            cc("max-age=60, must-revalidate"),
        ),
        (
            "authorization, proxy-revalidate",
            &[(AUTHORIZATION, "x")],
            cc("max-age=60, proxy-revalidate"),
        ),
        (
            "no-store, but cdn max-age=60",
            &[],
            vec![(CACHE_CONTROL, "no-store"), (CDN, "max-age=60")],
        ),
        (
            "max-age=60, but cdn no-store",
            &[],
            vec![(CACHE_CONTROL, "max-age=60"), (CDN, "no-store")],
        ),
        (
            "max-age=60, cdn invalid",
            &[],
            vec![(CACHE_CONTROL, "max-age=60"), (CDN, "no-store,")],
        ),
        (
            "request no-store (ignored)",
            &[(CACHE_CONTROL, "no-store")],
            cc("max-age=60"),
        ),
    ];
    let rules = Rules::default();
    let mut table = String::from(
        "What a GET may store by default, by status and response head. `+` is stored.\n\n",
    );
    for status in STATUSES {
        table.push_str(&format!("{status}\n"));
        for (name, request, response) in &rows {
            let word = match verdict(
                &rules,
                &Method::GET,
                status,
                &head(request),
                &head(response),
            ) {
                Ok(()) => "+",
                Err(reason) => reason.as_str(),
            };
            table.push_str(&format!("  {name:<34}{word}\n"));
        }
    }
    table.push_str("method, with max-age=60 and 200\n");
    for method in METHODS {
        let method = Method::from_bytes(method.as_bytes()).expect("the method is a token");
        let word = match verdict(
            &rules,
            &method,
            200,
            &HeaderMap::new(),
            &head(&cc("max-age=60")),
        ) {
            Ok(()) => "+",
            Err(reason) => reason.as_str(),
        };
        table.push_str(&format!("  {:<34}{word}\n", method.as_str()));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/storability.txt");
    if std::env::var_os("EDGEWARD_RENEW_GOLDEN").is_some() {
        std::fs::write(path, &table).expect("the golden file is writable");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file is committed");
    for (line, (actual, expected)) in table.lines().zip(golden.lines()).enumerate() {
        assert_eq!(actual, expected, "line {} of {path}", line + 1);
    }
    assert_eq!(table.lines().count(), golden.lines().count());
}

/// A combination of all inputs of the decision. Each bit of `bits` is a property of the request or the
/// response.
#[derive(Clone, Copy, Debug)]
struct Case {
    method_is_get: bool,
    status: u16,
    bits: u32,
}

impl Case {
    const BITS: u32 = 11;

    fn has(self, bit: u32) -> bool {
        self.bits >> bit & 1 == 1
    }
    fn no_store(self) -> bool {
        self.has(0)
    }
    fn private(self) -> bool {
        self.has(1)
    }
    fn public(self) -> bool {
        self.has(2)
    }
    fn max_age(self) -> bool {
        self.has(3)
    }
    fn s_maxage(self) -> bool {
        self.has(4)
    }
    fn must_revalidate(self) -> bool {
        self.has(5)
    }
    fn no_cache(self) -> bool {
        self.has(6)
    }
    fn authorization(self) -> bool {
        self.has(7)
    }
    fn set_cookie(self) -> bool {
        self.has(8)
    }
    fn etag(self) -> bool {
        self.has(9)
    }
    fn must_understand(self) -> bool {
        self.has(10)
    }

    fn heads(self) -> (HeaderMap, HeaderMap) {
        let mut request = HeaderMap::new();
        let mut response = HeaderMap::new();
        if self.authorization() {
            request.insert(AUTHORIZATION, HeaderValue::from_static("x"));
        }
        for (is_present, directive) in [
            (self.no_store(), "no-store"),
            (self.private(), "private"),
            (self.public(), "public"),
            (self.max_age(), "max-age=60"),
            (self.s_maxage(), "s-maxage=60"),
            (self.must_revalidate(), "must-revalidate"),
            (self.no_cache(), "no-cache"),
            (self.must_understand(), "must-understand"),
        ] {
            if is_present {
                response.append(CACHE_CONTROL, HeaderValue::from_static(directive));
            }
        }
        if self.set_cookie() {
            response.insert(SET_COOKIE, HeaderValue::from_static("a=b"));
        }
        if self.etag() {
            response.insert(ETAG, HeaderValue::from_static("\"a\""));
        }
        (request, response)
    }

    /// Returns the expected decision: RFC 9111 §3 as one expression, and the additional rules of this cache.
    ///
    /// `store_request_errors` is the setting in [`Rules`].
    fn may_be_stored(self, store_request_errors: bool) -> bool {
        let final_status = self.status >= 200;
        let heuristic =
            [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501].contains(&self.status);
        let understood = [
            200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 451, 501,
        ];
        let allowed_by_rfc = self.method_is_get
            && final_status
            && ![206, 304].contains(&self.status)
            && (!self.must_understand() || understood.contains(&self.status))
            && (!self.no_store() || self.must_understand())
            && !self.private()
            && (!self.authorization()
                || self.must_revalidate()
                || self.public()
                || self.s_maxage())
            && (self.public() || self.max_age() || self.s_maxage() || heuristic);
        let about_one_request =
            [407, 408, 412, 416, 417, 421, 425, 426, 428, 429, 431, 511].contains(&self.status);
        let usable_later = self.etag() || ((self.max_age() || self.s_maxage()) && !self.no_cache());
        let has_lifetime = self.max_age() || self.s_maxage();
        let caused_by_request =
            [400, 413, 414, 501].contains(&self.status) && !(store_request_errors && has_lifetime);
        allowed_by_rfc
            && !about_one_request
            && !caused_by_request
            && !self.set_cookie()
            && usable_later
    }
}

/// The decision equals the oracle, [`Case::may_be_stored`], for every combination.
///
/// Method: check all 368 640 combinations of 11 flags, 45 statuses, GET or POST, and `store_request_errors` off
/// or on.
#[test]
fn every_combination_agrees_with_the_oracle() {
    for store_request_errors in [false, true] {
        every_combination_agrees(store_request_errors);
    }
}

fn every_combination_agrees(store_request_errors: bool) {
    let rules = Rules {
        store_request_errors,
        ..Rules::default()
    };
    let statuses = [
        100, 101, 103, 199, 200, 201, 202, 203, 204, 205, 206, 207, 226, 300, 301, 302, 303, 304,
        307, 308, 400, 401, 403, 404, 405, 407, 408, 410, 412, 413, 414, 416, 417, 421, 425, 426,
        428, 429, 431, 451, 500, 501, 503, 511, 999,
    ];
    for bits in 0..1 << Case::BITS {
        for status in statuses {
            for method_is_get in [true, false] {
                let case = Case {
                    method_is_get,
                    status,
                    bits,
                };
                let method = if method_is_get {
                    Method::GET
                } else {
                    Method::POST
                };
                let (request, response) = case.heads();
                let verdict = verdict(&rules, &method, status, &request, &response);
                assert_eq!(
                    verdict.is_ok(),
                    case.may_be_stored(store_request_errors),
                    "{case:?} {response:?} {verdict:?}"
                );
            }
        }
    }
}

/// A request field that is not in the cache key can cause such an error. If the error were stored, other clients would
/// get it instead of the page.
#[test]
fn an_error_that_the_request_caused_is_stored_only_with_a_lifetime_and_the_setting() {
    let with_lifetime = head(&[(CACHE_CONTROL, "max-age=60")]);
    let without = head(&[(ETAG, "\"a\"")]);
    let allowed = Rules {
        store_request_errors: true,
        ..Rules::default()
    };
    for status in [400, 413, 414, 501] {
        let decide = |rules: &Rules, response| {
            verdict(rules, &Method::GET, status, &HeaderMap::new(), response)
        };
        let refused = Err(NotStoredReason::RequestError);
        assert_eq!(
            decide(&Rules::default(), &with_lifetime),
            refused,
            "{status}"
        );
        assert_eq!(decide(&Rules::default(), &without), refused, "{status}");
        assert_eq!(decide(&allowed, &with_lifetime), Ok(()), "{status}");
        assert_eq!(decide(&allowed, &without), refused, "{status}");
    }
    // RFC 6585 §5: MUST NOT be stored by a cache.
    let status = 431;
    let verdict = verdict(
        &allowed,
        &Method::GET,
        status,
        &HeaderMap::new(),
        &with_lifetime,
    );
    assert_eq!(verdict, Err(NotStoredReason::Status));
}

#[test]
fn each_reason_has_a_different_name() {
    for (n, one) in NotStoredReason::ALL.iter().enumerate() {
        for other in &NotStoredReason::ALL[n + 1..] {
            assert_ne!(one.as_str(), other.as_str());
        }
        assert_eq!(one.to_string(), one.as_str());
    }
}

#[test]
fn a_client_can_forbid_storing_if_its_directives_are_honoured() {
    let response = head(&[(CACHE_CONTROL, "max-age=60")]);
    let request = head(&[(CACHE_CONTROL, "no-store")]);
    let honour = Rules {
        client_directives: edgeward_semantics::ClientDirectives::Honour,
        ..Rules::default()
    };
    assert_eq!(
        verdict(&Rules::default(), &Method::GET, 200, &request, &response),
        Ok(())
    );
    assert_eq!(
        verdict(&honour, &Method::GET, 200, &request, &response),
        Err(NotStoredReason::RequestNoStore)
    );
}

/// RFC 9111 §5.2.2.4, §5.2.2.7, §7.3: the stored head does not have fields that must not be shared.
#[test]
fn the_stored_head_lacks_fields_that_must_not_be_shared() {
    let response = head(&[
        (
            CACHE_CONTROL,
            "max-age=60, private=\"x-mine\", no-cache=\"x-once\"",
        ),
        (HeaderName::from_static("x-mine"), "1"),
        (HeaderName::from_static("x-once"), "1"),
        (HeaderName::from_static("x-all"), "1"),
        (HeaderName::from_static("age"), "5"),
        (HeaderName::from_static("trailer"), "x-sum"),
        (HeaderName::from_static("connection"), "x-hop"),
        (HeaderName::from_static("x-hop"), "1"),
        (HeaderName::from_static("transfer-encoding"), "chunked"),
        (SET_COOKIE, "a=b"),
    ]);
    for (set_cookie, has_cookie) in [(SetCookie::Strip, false), (SetCookie::Share, true)] {
        let rules = Rules {
            set_cookie,
            ..Rules::default()
        };
        let exchange = Exchange::at(NOW);
        let verdict = on_response(
            &rules,
            &Method::GET,
            &HeaderMap::new(),
            StatusCode::OK,
            &response,
            exchange,
        );
        let Verdict::Store(storable) = verdict else {
            panic!("{verdict:?}")
        };
        let mut names: Vec<&str> = storable.head.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let mut expected = vec!["cache-control", "date", "x-all"];
        if has_cookie {
            expected.insert(2, "set-cookie");
        }
        assert_eq!(names, expected);
        assert_eq!(storable.head["date"], "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(storable.policy.age_secs(NOW), 5);
    }
}

/// A validator that is removed from the stored head cannot validate the response.
#[test]
fn a_validator_that_is_private_is_not_used() {
    let response = head(&[
        (CACHE_CONTROL, "max-age=0, private=\"etag\""),
        (ETAG, "\"a\""),
    ]);
    assert_eq!(
        verdict(
            &Rules::default(),
            &Method::GET,
            200,
            &HeaderMap::new(),
            &response
        ),
        Err(NotStoredReason::NeverReusable)
    );
}
