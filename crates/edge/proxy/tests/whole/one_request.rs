//! The edge normalizes each request once. The cache key, the `Vary` key and the forwarded request are all made
//! from the normalized request.
//!
//! The fast path is the edge's own parser. `for_hyper` adds a connection option that the fast path does not know, so
//! hyper parses the request. `send_h2` returns `None` if the edge resets the stream.

use crate::codecs::{H2Request, for_hyper, send_h1, send_h2};
use crate::support::TestBed;
use edgeward_testkit::Answer;

/// Makes the origin answer each request with its target, its `Host` and the values of one field. Paths that
/// begin with `/cached` are cacheable; without `vary`, all paths are.
fn echo(bed: &TestBed, field: &'static str, vary: Option<&'static str>) {
    bed.origin.otherwise(move |request| {
        let values: Vec<&str> = request.headers_named(field).collect();
        let host = request.header("host").unwrap_or("none");
        let text = format!("{} {host} {}", request.target(), values.join("|"));
        let cache_control = if request.target().starts_with("/cached") || vary.is_none() {
            "max-age=60"
        } else {
            "no-store"
        };
        let answer = Answer::ok(text).header("cache-control", cache_control);
        match vary {
            Some(vary) => answer.header("vary", vary),
            None => answer,
        }
    });
}

#[test]
fn user_information_in_an_authority_is_refused() {
    let bed = TestBed::start();
    echo(&bed, "accept", None);
    for request in [
        "GET /a HTTP/1.1\r\nHost: x@shop.example\r\n\r\n",
        "GET http://x@shop.example/a HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        "GET http://x:y@shop.example/a HTTP/1.1\r\nHost: x:y@shop.example\r\n\r\n",
        "GET http://shop.example/a HTTP/1.1\r\nHost: x@shop.example\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: x@shop.example\r\nContent-Length: 0\r\n\r\n",
    ] {
        assert_eq!(send_h1(bed.addr(), request).status, 400, "{request}");
        assert_eq!(
            send_h1(bed.addr(), &for_hyper(request)).status,
            400,
            "{request}"
        );
    }
    let request = H2Request {
        authority: Some("x@shop.example"),
        path: "/a",
        ..H2Request::default()
    };
    let answer = send_h2(bed.addr(), &request);
    assert!(answer.is_none_or(|answer| answer.status == 400));
    assert_eq!(bed.origin.requests_total(), 0);
}

#[test]
fn every_spelling_of_an_authority_is_one_key_and_one_forwarded_host() {
    let bed = TestBed::start();
    echo(&bed, "x-forwarded-host", None);
    let expected = "/a shop.example shop.example";
    for host in [
        "shop.example",
        "SHOP.Example",
        "shop.example:80",
        "shop.example:",
        "shop.example.",
        "Shop.example.:080",
    ] {
        let fast = format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let absolute = format!("GET http://{host}/a HTTP/1.1\r\nHost: other.example\r\n\r\n");
        for request in [&fast, &for_hyper(&fast), &absolute] {
            assert_eq!(send_h1(bed.addr(), request).text(), expected, "{request}");
        }
        // A pass needs no key, but its `Host` is also normalized.
        let passed = format!("POST /a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(send_h1(bed.addr(), &passed).text(), expected, "{host}");
        let request = H2Request {
            authority: Some(host),
            path: "/a",
            ..H2Request::default()
        };
        let answer = send_h2(bed.addr(), &request).expect("a response arrives");
        assert_eq!(answer.text(), expected, "{host}");
    }
    let gets = bed.origin.recorded();
    let gets = gets.iter().filter(|request| request.method() == "GET");
    // The first GET is a miss. Each of the six POSTs invalidates the stored response, so the next GET is a miss.
    assert_eq!(gets.count(), 7);
}

/// A field that `Connection` lists is removed before the `Vary` key is made and before the request is
/// forwarded.
#[test]
fn a_field_that_connection_lists_is_not_in_the_vary_key() {
    let bed = TestBed::start();
    echo(&bed, "accept-language", Some("accept-language"));
    let listed = [("accept-language", "de"), ("connection", "accept-language")];
    assert_eq!(
        bed.get_with("/cached", &listed).text(),
        "/cached test.example "
    );
    let plain = [("accept-language", "de")];
    assert_eq!(
        bed.get_with("/cached", &plain).text(),
        "/cached test.example de"
    );
    assert!(bed.get_with("/cached", &[]).is_hit());
    assert!(bed.get_with("/cached", &plain).is_hit());
}

/// A hit must equal the response that the origin would send to this request.
///
/// Method: the origin answers with the field value that it got. For each pair of values, send a request with
/// the first value and then a request with the second value. The second request, hit or miss, must get the same
/// text as an uncached request with the second value. Variants are not shared: sharing is for origins that distinguish
/// requests by the coding that they choose, and this one returns the field.
#[test]
fn requests_share_a_variant_only_if_the_origin_gets_equal_fields() {
    for (field, values) in [
        (
            "accept-language",
            &["de", "DE", "d e", "de ,en", "de,en", "en,de"][..],
        ),
        (
            "accept-encoding",
            &[
                "gzip",
                "GZIP",
                "g zip",
                "x-gzip",
                "gzip;q=1.0",
                "br, gzip",
                "gzip,br",
                "",
            ],
        ),
        (
            "accept",
            &["a/b;v=B", "a/b;v=b", "A/B; v=B", "a/b;q=0.5", "a/b; Q=0.5"],
        ),
        ("x-any", &["a", "A", "a, b", "a,b"]),
    ] {
        let bed = TestBed::with_config(|config| config.caching.share_variants = false);
        echo(&bed, field, Some(field));
        for (i, one) in values.iter().enumerate() {
            for (j, other) in values.iter().enumerate() {
                let path = format!("/cached/{i}/{j}");
                bed.get_with(&path, &[(field, one)]);
                let got = bed.get_with(&path, &[(field, other)]);
                let uncached = bed.get_with("/uncached", &[(field, other)]);
                assert_eq!(
                    got.text().replacen(&path, "/uncached", 1),
                    uncached.text(),
                    "{field}: {other:?} after {one:?}"
                );
            }
        }
    }
    let bed = TestBed::start();
    echo(&bed, "x-any", Some("x-any"));
    // The origin may treat two field lines differently from one line with both values, so they are two variants.
    let two_lines = [("x-any", "a"), ("x-any", "b")];
    assert_eq!(
        bed.get_with("/cached", &two_lines).text(),
        "/cached test.example a|b"
    );
    let one_line = [("x-any", "a, b")];
    assert_eq!(
        bed.get_with("/cached", &one_line).text(),
        "/cached test.example a, b"
    );
}

/// If the origin lists forwarded fields in `Vary`, the values that the edge writes select the variant, not the
/// values that the client sent.
#[test]
fn vary_uses_the_forwarded_fields_that_the_edge_writes() {
    let bed = TestBed::start();
    echo(&bed, "x-forwarded-proto", Some("x-forwarded-proto, host"));
    let expected = "/cached test.example http";
    for n in 0..3 {
        let claimed = [("x-forwarded-proto", ["http", "https", "x"][n])];
        let got = bed.get_with("/cached", &claimed);
        assert_eq!(got.text(), expected);
        assert_eq!(got.is_hit(), n > 0, "{n}");
    }
}

#[test]
fn a_target_without_a_path_is_the_root_for_key_and_origin() {
    let bed = TestBed::start();
    echo(&bed, "accept", None);
    let expected = "/?x=1 shop.example ";
    for (n, request) in [
        "GET http://shop.example?x=1 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        "GET http://shop.example/?x=1 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
        "GET /?x=1 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
    ]
    .iter()
    .enumerate()
    {
        for request in [(*request).to_owned(), for_hyper(request)] {
            let answer = send_h1(bed.addr(), &request);
            assert_eq!(answer.text(), expected, "{n}");
        }
    }
    let request = H2Request {
        path: "?x=1",
        ..H2Request::default()
    };
    let answer = send_h2(bed.addr(), &request).expect("a response arrives");
    assert_eq!(answer.text(), expected);
    assert_eq!(bed.origin.requests_total(), 1);
}

#[test]
fn only_options_accepts_an_asterisk_as_target() {
    let bed = TestBed::start();
    echo(&bed, "accept", None);
    for method in ["GET", "HEAD", "POST", "DELETE"] {
        let request =
            format!("{method} * HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(send_h1(bed.addr(), &request).status, 400, "{method}");
        let request = H2Request {
            method,
            path: "*",
            ..H2Request::default()
        };
        let answer = send_h2(bed.addr(), &request);
        assert!(answer.is_none_or(|answer| answer.status == 400), "{method}");
    }
    assert_eq!(bed.origin.requests_total(), 0);
    let request = "OPTIONS * HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    assert_eq!(send_h1(bed.addr(), request).text(), "* shop.example ");
    let request = H2Request {
        method: "OPTIONS",
        path: "*",
        ..H2Request::default()
    };
    assert_eq!(
        send_h2(bed.addr(), &request)
            .expect("a response arrives")
            .text(),
        "* shop.example "
    );
}

#[test]
fn a_target_that_is_not_a_path_is_refused() {
    let bed = TestBed::start();
    echo(&bed, "accept", None);
    for target in [
        "shop.example:80",
        "shop.example",
        "ftp://shop.example/a",
        "/a#b",
        "/#",
        "/a?b#c",
        "http://shop.example/a#b",
        "http://shop.example#b",
    ] {
        for method in ["GET", "POST"] {
            let length = if method == "POST" {
                "Content-Length: 0\r\n"
            } else {
                ""
            };
            let request =
                format!("{method} {target} HTTP/1.1\r\nHost: shop.example\r\n{length}\r\n");
            for request in [&request, &for_hyper(&request)] {
                assert_eq!(send_h1(bed.addr(), request).status, 400, "{request}");
            }
        }
    }
    assert_eq!(bed.origin.requests_total(), 0);
}

/// The edge also checks the target of a request that follows a request with a body on its connection.
#[test]
fn a_fragment_is_refused_on_a_connection_that_carried_a_body() {
    for body in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nx-trailer: 1\r\n\r\n",
    ] {
        let bed = TestBed::start();
        echo(&bed, "accept", None);
        let mut client = bed.connect();
        let post = format!("POST /a HTTP/1.1\r\nHost: shop.example\r\n{body}");
        for _ in 0..2 {
            client.send(post.as_bytes());
            assert_eq!(client.answer("POST").text(), "/a shop.example ");
        }
        client.send(b"GET /a#b HTTP/1.1\r\nHost: shop.example\r\nConnection: x\r\n\r\n");
        assert_eq!(client.answer("GET").status, 400);
        assert_eq!(bed.origin.requests_total(), 2);
    }
}

/// Request fields that override the target or the method of the request line in some origins.
const OVERRIDE_FIELDS: &[&str] = &[
    "x-original-url",
    "x-rewrite-url",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-host",
];

/// Request fields in which a proxy describes the client and the URL that the client requested.
const CLIENT_FIELDS: &[&str] = &[
    "forwarded",
    "x-forwarded",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-original-host",
    "x-real-ip",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
];

#[test]
fn cacheable_requests_are_forwarded_without_override_fields_and_client_fields() {
    let bed = TestBed::start();
    bed.origin
        .otherwise(|_| Answer::ok("x").header("cache-control", "max-age=60"));
    for (n, name) in OVERRIDE_FIELDS.iter().chain(CLIENT_FIELDS).enumerate() {
        for (codec, connection) in [("fast", "keep-alive"), ("hyper", "x-for-hyper")] {
            let path = format!("/{codec}/{n}");
            bed.get_with(&path, &[(name, "/admin"), ("connection", connection)]);
            let forwarded = bed.origin.last(&path).expect("the origin got a request");
            assert_eq!(
                forwarded.header(name),
                None,
                "{codec}: {}",
                forwarded.head()
            );
        }
        let path = format!("/h2/{n}");
        let request = H2Request {
            path: &path,
            headers: &[(name, "/admin")],
            ..H2Request::default()
        };
        send_h2(bed.addr(), &request).expect("a response arrives");
        let forwarded = bed.origin.last(&path).expect("the origin got a request");
        assert_eq!(forwarded.header(name), None, "h2: {}", forwarded.head());
    }
}

#[test]
fn a_pass_keeps_its_method_override_but_no_field_that_describes_the_client() {
    let bed = TestBed::start();
    bed.origin.otherwise(|_| Answer::ok("x"));
    for name in OVERRIDE_FIELDS.iter().chain(CLIENT_FIELDS) {
        let fields = [(*name, "PATCH"), ("content-length", "0")];
        bed.connect().request("POST", "/a", &fields, b"");
        let forwarded = bed.origin.last("/a").expect("the origin got a request");
        let expected = OVERRIDE_FIELDS.contains(name).then_some("PATCH");
        assert_eq!(forwarded.header(name), expected, "{}", forwarded.head());
    }
}

#[test]
fn fields_by_which_a_client_describes_itself_are_replaced() {
    let bed = TestBed::start();
    bed.origin
        .otherwise(|_| Answer::ok("x").header("cache-control", "max-age=60"));
    for connection in [
        "keep-alive",
        "x-for-hyper",
        "x-forwarded-for, x-forwarded-host",
    ] {
        let path = format!("/{}", connection.len());
        let fields = [
            ("x-forwarded-for", "192.0.2.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil.example"),
            ("connection", connection),
        ];
        bed.get_with(&path, &fields);
        let forwarded = bed.origin.last(&path).expect("the origin got a request");
        for (name, expected) in [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "test.example"),
        ] {
            let values: Vec<&str> = forwarded.headers_named(name).collect();
            assert_eq!(values, [expected], "{}", forwarded.head());
        }
    }
}

#[test]
fn fields_of_a_trusted_proxy_about_the_client_are_forwarded() {
    let bed = TestBed::with_config(|config| {
        config.forwarding.trusted_proxies = "127.0.0.0/8".parse().expect("the network is valid");
    });
    bed.origin
        .otherwise(|_| Answer::ok("x").header("cache-control", "max-age=60"));
    for connection in ["keep-alive", "x-for-hyper"] {
        let path = format!("/{connection}");
        let fields = [
            ("x-forwarded-for", "192.0.2.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "www.example"),
            ("x-real-ip", "192.0.2.9"),
            ("x-original-url", "/admin"),
            ("connection", connection),
        ];
        bed.get_with(&path, &fields);
        let forwarded = bed.origin.last(&path).expect("the origin got a request");
        for (name, expected) in [
            ("x-forwarded-for", Some("192.0.2.9, 127.0.0.1")),
            ("x-forwarded-proto", Some("https")),
            ("x-forwarded-host", Some("www.example")),
            ("x-real-ip", Some("192.0.2.9")),
            ("x-original-url", None),
        ] {
            assert_eq!(forwarded.header(name), expected, "{}", forwarded.head());
        }
    }
}

#[test]
fn the_removed_fields_are_configurable() {
    let bed = TestBed::with_config(|config| {
        config.forwarding.removed_fields =
            "x-one, X-Two".parse().expect("the field names are valid");
    });
    bed.origin
        .otherwise(|_| Answer::ok("x").header("cache-control", "max-age=60"));
    let fields = [("x-one", "1"), ("x-two", "2"), ("x-original-url", "/a")];
    bed.get_with("/a", &fields);
    let forwarded = bed.origin.last("/a").expect("the origin got a request");
    assert_eq!(forwarded.header("x-one"), None);
    assert_eq!(forwarded.header("x-two"), None);
    assert_eq!(forwarded.header("x-original-url"), Some("/a"));
}
