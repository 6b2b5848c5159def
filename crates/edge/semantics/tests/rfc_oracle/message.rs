//! The parts of requests and of responses, random values of them, and their heads.

use std::fmt::Write as _;

use edgeward_semantics::{MaxStale, RequestDirectives, format_http_date};
use edgeward_types::Timestamp;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use crate::conditions::{Conditions, conditions};

/// The directives of one field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directives {
    pub(crate) max_age: Option<u32>,
    pub(crate) s_maxage: Option<u32>,
    pub(crate) stale_while_revalidate: Option<u32>,
    pub(crate) stale_if_error: Option<u32>,
    /// The directives of [`FLAGS`] that the field has.
    flags: [bool; FLAGS.len()],
    /// True if the field ends with a comma, which makes a structured field invalid.
    pub(crate) has_comma: bool,
}

const FLAGS: [&str; 9] = [
    "no-cache",
    "must-revalidate",
    "proxy-revalidate",
    "no-store",
    "private",
    "public",
    "must-understand",
    "private=\"x-b\"",
    "no-cache=\"x-b\"",
];

impl Directives {
    pub(crate) fn has(&self, flag: &str) -> bool {
        let flags = FLAGS.iter().zip(self.flags);
        flags
            .into_iter()
            .any(|(name, is_set)| *name == flag && is_set)
    }

    fn value(&self) -> String {
        let mut value = String::from("extension");
        for (name, secs) in [
            ("max-age", self.max_age),
            ("s-maxage", self.s_maxage),
            ("stale-while-revalidate", self.stale_while_revalidate),
            ("stale-if-error", self.stale_if_error),
        ] {
            if let Some(secs) = secs {
                write!(value, ", {name}={secs}").expect("a string");
            }
        }
        for (name, is_set) in FLAGS.iter().zip(self.flags) {
            if is_set {
                write!(value, ", {name}").expect("a string");
            }
        }
        if self.has_comma {
            value.push(',');
        }
        value
    }
}

/// The parts of a response. Times are seconds after its arrival, or before it if negative.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) cache_control: Directives,
    pub(crate) cdn_cache_control: Option<Directives>,
    pub(crate) own_cache_control: Option<Directives>,
    pub(crate) expires: Option<i64>,
    pub(crate) date: Option<i64>,
    pub(crate) last_modified: Option<i64>,
    pub(crate) age: Option<u32>,
    pub(crate) etag: Option<&'static str>,
    pub(crate) has_cookie: bool,
    pub(crate) vary: Option<&'static str>,
    pub(crate) no_vary_search: Option<&'static str>,
    pub(crate) location: Option<&'static str>,
    pub(crate) content_location: Option<&'static str>,
}

impl Response {
    pub(crate) fn head(&self, arrival_secs: u64) -> HeaderMap {
        let mut head = HeaderMap::new();
        let mut insert = |name: &'static str, value: Option<&str>| {
            if let Some(value) = value {
                let value = HeaderValue::try_from(value).expect("visible ASCII");
                head.insert(HeaderName::from_static(name), value);
            }
        };
        let directives = |field: &Option<Directives>| field.as_ref().map(Directives::value);
        insert("cache-control", Some(&self.cache_control.value()));
        insert(
            "cdn-cache-control",
            directives(&self.cdn_cache_control).as_deref(),
        );
        insert(
            "edgeward-cache-control",
            directives(&self.own_cache_control).as_deref(),
        );
        insert("age", self.age.map(|age| age.to_string()).as_deref());
        insert("etag", self.etag);
        insert("set-cookie", self.has_cookie.then_some("a=b"));
        insert("vary", self.vary);
        insert("no-vary-search", self.no_vary_search);
        insert("location", self.location);
        insert("content-location", self.content_location);
        for (name, offset) in [
            ("expires", self.expires),
            ("date", self.date),
            ("last-modified", self.last_modified),
        ] {
            if let Some(offset) = offset {
                let secs = arrival_secs.checked_add_signed(offset).expect("after 1970");
                head.insert(name, format_http_date(Timestamp::from_secs(secs)));
            }
        }
        head
    }
}

/// The parts of a request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) host: &'static str,
    pub(crate) path: &'static str,
    /// With its `?`, or empty.
    pub(crate) query: &'static str,
    pub(crate) directives: RequestDirectives,
    /// True if `no-cache` is in `Pragma` instead of `Cache-Control`.
    pub(crate) has_pragma: bool,
    pub(crate) has_authorization: bool,
    pub(crate) x_a: Option<&'static str>,
    pub(crate) accept_language: Option<&'static str>,
    pub(crate) conditions: Conditions,
}

impl Request {
    pub(crate) fn path_and_query(&self) -> String {
        format!("{}{}", self.path, self.query)
    }

    pub(crate) fn head(&self, now_secs: u64) -> HeaderMap {
        let mut head = HeaderMap::new();
        let mut insert = |name: &'static str, value: Option<&str>| {
            if let Some(value) = value {
                let value = HeaderValue::try_from(value).expect("visible ASCII");
                head.insert(HeaderName::from_static(name), value);
            }
        };
        insert("authorization", self.has_authorization.then_some("x"));
        insert("x-a", self.x_a);
        insert("accept-language", self.accept_language);
        insert("pragma", self.has_pragma.then_some("no-cache"));
        let requested = &self.directives;
        let mut directives = Vec::new();
        for (name, secs) in [
            ("max-age", requested.max_age),
            ("min-fresh", requested.min_fresh),
            ("stale-if-error", requested.stale_if_error),
        ] {
            directives.extend(secs.map(|secs| format!("{name}={secs}")));
        }
        directives.extend(requested.max_stale.map(|limit| match limit {
            MaxStale::Any => "max-stale".to_owned(),
            MaxStale::Seconds(secs) => format!("Max-Stale={secs}"),
        }));
        for (name, is_set) in [
            ("no-cache", requested.no_cache && !self.has_pragma),
            ("no-store", requested.no_store),
            ("only-if-cached", requested.only_if_cached),
        ] {
            directives.extend(is_set.then(|| name.to_owned()));
        }
        if !directives.is_empty() {
            insert("cache-control", Some(&directives.join(", ")));
        }
        self.conditions.add_to(&mut head, now_secs);
        head
    }
}

fn secs() -> impl Strategy<Value = Option<u32>> {
    of(prop_oneof![Just(0), 1_u32..30])
}

fn directives() -> impl Strategy<Value = Directives> {
    let flags = prop_oneof![
        6 => Just([false; FLAGS.len()]),
        3 => (0..FLAGS.len()).prop_map(|at| std::array::from_fn(|n| n == at)),
        1 => any::<[bool; FLAGS.len()]>(),
    ];
    let max_age = prop::option::weighted(0.7, 0_u32..60);
    let seconds = (max_age, secs(), secs(), secs());
    (seconds, flags, prop::bool::weighted(0.2)).prop_map(
        |((max_age, s_maxage, stale_while_revalidate, stale_if_error), flags, has_comma)| {
            Directives {
                max_age,
                // `s-maxage` is rare, because it prohibits stale use.
                s_maxage: s_maxage.filter(|secs| secs % 4 == 0),
                stale_while_revalidate,
                stale_if_error,
                flags,
                has_comma,
            }
        },
    )
}

/// References to the URLs of requests and to other origins, and `None`.
pub(crate) const REFERENCES: [Option<&str>; 12] = [
    None,
    None,
    None,
    Some("/b"),
    Some("a?x=1"),
    Some("./../b?u=2&x=1"),
    Some("?x=1"),
    Some("HTTP://H:80/a"),
    Some("http://h/b#part"),
    Some("//g/a"),
    Some("https://h/a"),
    Some("http://h:81/a"),
];

pub(crate) fn response() -> impl Strategy<Value = Response> {
    let status = prop_oneof![
        12 => Just(200),
        6 => select(vec![203, 204, 206, 302, 400, 404, 414, 429, 451, 500, 503]),
    ];
    let fields = (directives(), of(directives()), of(directives()));
    let has_field = || prop::bool::weighted(0.4);
    let fields = (fields, has_field(), has_field());
    let times = (
        of(-20_i64..40),
        of(-20_i64..20),
        of(prop_oneof![-30_i64..0, -300_i64..-200, Just(-100_000_000)]),
        prop::option::weighted(0.3, 0_u32..20),
    );
    let vary = select(vec![
        None,
        None,
        None,
        Some("x-a"),
        Some("X-A, accept-language"),
        Some("*"),
    ]);
    let search = select(vec![
        None,
        None,
        Some("key-order"),
        Some("params=(\"u\")"),
        Some("params=(\"u\"), key-order"),
        Some("except=(\"x\")"),
        Some("params=(\"u\""),
    ]);
    let references = (select(&REFERENCES[..]), select(&REFERENCES[..]));
    let tags = vec![None, None, Some("\"a\""), Some("W/\"a\""), Some("\"b\"")];
    let rest = (
        select(tags),
        prop::bool::weighted(0.05),
        vary,
        search,
        references,
    );
    (status, fields, times, rest).prop_map(|(status, fields, times, rest)| {
        let ((cache_control, cdn, own), has_cdn, has_own) = fields;
        let (expires, date, last_modified, age) = times;
        let (etag, has_cookie, vary, no_vary_search, (location, content_location)) = rest;
        Response {
            status,
            cache_control,
            cdn_cache_control: cdn.filter(|_| has_cdn),
            own_cache_control: own.filter(|_| has_own),
            expires,
            date,
            last_modified,
            age,
            etag,
            has_cookie,
            vary,
            no_vary_search,
            location,
            content_location,
        }
    })
}

fn requested() -> impl Strategy<Value = (RequestDirectives, bool)> {
    let max_stale = of(prop_oneof![
        Just(MaxStale::Any),
        (0_u32..20).prop_map(MaxStale::Seconds)
    ]);
    let rarely = || prop::bool::weighted(0.2);
    let flags = (rarely(), rarely(), rarely());
    let stated = (secs(), max_stale, secs(), secs(), flags).prop_map(
        |(max_age, max_stale, min_fresh, stale_if_error, (no_cache, only_if_cached, no_store))| {
            RequestDirectives {
                stale_if_error,
                max_age,
                max_stale,
                min_fresh,
                no_cache,
                only_if_cached,
                no_store,
                ..RequestDirectives::default()
            }
        },
    );
    // One directive alone: its limit decides.
    let single = prop_oneof![
        (0_u32..30).prop_map(|secs| RequestDirectives {
            max_age: Some(secs),
            ..RequestDirectives::default()
        }),
        (0_u32..30).prop_map(|secs| RequestDirectives {
            max_stale: Some(MaxStale::Seconds(secs)),
            ..RequestDirectives::default()
        }),
        (0_u32..30).prop_map(|secs| RequestDirectives {
            min_fresh: Some(secs),
            ..RequestDirectives::default()
        }),
    ];
    let no_cache = RequestDirectives {
        no_cache: true,
        ..RequestDirectives::default()
    };
    prop_oneof![
        10 => Just((RequestDirectives::default(), false)),
        5 => stated.prop_map(|directives| (directives, false)),
        5 => single.prop_map(|directives| (directives, false)),
        1 => Just((no_cache, true)),
    ]
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let method = prop_oneof![
        16 => Just(Method::GET),
        2 => Just(Method::HEAD),
        2 => select(vec![Method::POST, Method::DELETE, Method::from_bytes(b"PURR").expect("a token")]),
        1 => Just(Method::OPTIONS),
    ];
    let host = prop_oneof![12 => Just("h"), 1 => Just("g")];
    let path = prop_oneof![8 => Just("/a"), 1 => Just("/b")];
    let query = prop_oneof![6 => Just(""), 4 => select(&QUERIES[..])];
    let x_a = select(vec![None, None, None, Some("1"), Some("2")]);
    let language = select(vec![
        None,
        Some("de, en;q=0.5"),
        Some("DE,en; q=0.5"),
        Some("en"),
    ]);
    let has_authorization = prop::bool::weighted(0.1);
    (
        method,
        (host, path, query),
        requested(),
        has_authorization,
        (x_a, language),
        conditions(),
    )
        .prop_map(
            |(method, (host, path, query), requested, has_authorization, varying, conditions)| {
                let (directives, has_pragma) = requested;
                let (x_a, accept_language) = varying;
                Request {
                    method,
                    host,
                    path,
                    query,
                    directives,
                    has_pragma,
                    has_authorization,
                    x_a,
                    accept_language,
                    conditions,
                }
            },
        )
}

const QUERIES: [&str; 8] = [
    "?", "?x=1", "?x=2", "?u=3", "?x=1&u=1", "?u=2&x=1", "?x=1&y=2", "?y=2&x=1",
];
