//! Names that a client spells in another way than a rule, and content that a head does not announce: what the origin
//! reads agrees with what rules, keys and limits read.

use std::sync::Arc;
use std::time::Duration;

use crate::codecs::{H2Request, send_h2};
use crate::one_site::set_site;
use crate::socket_origin::SocketBed;
use crate::support::TestBed;
use edgeward_proxy::EdgeConfig;
use edgeward_sites::{
    Class, Condition, FieldChange, FieldCondition, RateKey, RateLimit, Rule, Settings, Stated,
    StatusSet,
};
use edgeward_testkit::Answer;
use edgeward_types::Pattern;
use http::{HeaderName, StatusCode};

/// Configures one site for all hosts.
fn with_site(settings: Settings, rules: Vec<Rule>) -> impl FnOnce(&mut EdgeConfig) {
    move |config| set_site(config, settings, rules)
}

fn denies(condition: Condition) -> Rule {
    let settings = Settings {
        deny: Stated::On(StatusCode::FORBIDDEN),
        ..Settings::default()
    };
    Rule {
        condition,
        settings,
        line: 1,
    }
}

fn removes(name: &'static str) -> Settings {
    let mut settings = Settings::default();
    let name = HeaderName::from_static(name);
    settings.request.insert(name, FieldChange::Remove);
    settings
}

#[test]
fn no_spelling_of_a_name_evades_a_rule() {
    let mut site = removes("x-auth-user");
    site.key = Some([Class::Header(HeaderName::from_static("x-theme"))].into());
    let patterns = |text| vec![Pattern::new(text)];
    let rules = vec![
        denies(Condition {
            fields: vec![FieldCondition {
                name: HeaderName::from_static("x-debug"),
                values: patterns("*"),
            }],
            ..Condition::default()
        }),
        denies(Condition {
            parameters: patterns("preview"),
            ..Condition::default()
        }),
        denies(Condition {
            cookies: patterns("wordpress_logged_in_*"),
            ..Condition::default()
        }),
    ];
    let bed = TestBed::with_config(with_site(site, rules));
    bed.origin.otherwise(|request| {
        let read = |name: &str| request.header(name).unwrap_or("none").to_owned();
        let text = ["x_auth_user", "x_debug", "x_theme", "x_other"].map(read);
        Answer::ok(text.join(" ")).header("cache-control", "max-age=60")
    });
    for (path, name, value, status, text) in [
        ("/1", "x_auth_user", "root", 200, "none none none none"),
        ("/2", "X-Auth_User", "root", 200, "none none none none"),
        ("/3", "x_debug", "1", 200, "none none none none"),
        ("/4", "x_theme", "evil", 200, "none none none none"),
        ("/5", "x_other", "1", 200, "none none none 1"),
        ("/6", "x-debug", "1", 403, ""),
        ("/7?pre%76iew=1", "accept", "*/*", 403, ""),
        ("/8?a=1&preview[]=1", "accept", "*/*", 403, ""),
        ("/9?previews=1", "accept", "*/*", 200, "none none none none"),
        ("/10", "cookie", "wordpress.logged_in_1=a", 403, ""),
        (
            "/11",
            "cookie",
            "a=wordpress_logged_in_1",
            200,
            "none none none none",
        ),
    ] {
        // The second request finds a stored response, if there is one.
        for _ in 0..2 {
            let answer = bed.get_with(path, &[(name, value)]);
            assert_eq!(answer.status, status, "{path} {name}");
            if status == 200 {
                assert_eq!(answer.text(), text, "{path} {name}");
            }
        }
    }
}

/// Method: the origin reads all bytes of the request.
#[test]
fn trailers_carry_no_field_that_the_edge_removes_from_heads() {
    let bed = SocketBed::with_config(with_site(removes("x-auth-user"), Vec::new()));
    let mut client = bed.bed.connect();
    client.send(
        b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\
          Trailer: X-Forwarded-For, X-Auth-User, X_Auth_User, Cookie, X-Sum\r\n\r\n1\r\nx\r\n0\r\n\
          X-Forwarded-For: 6.6.6.6\r\nX-Auth-User: root\r\nX_Auth_User: root\r\nCookie: a=root\r\nX-Sum: 17\r\n\r\n",
    );
    let mut request = bed.origin.request();
    let body = request.read_until("\r\n\r\n");
    request.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.answer("POST").status, 200);
    assert!(
        !body.contains("6.6.6.6") && !body.contains("root"),
        "{body}"
    );
    // Other trailers pass if the head announces them.
    if request.field("trailer").contains("X-Sum") {
        assert!(body.to_lowercase().contains("x-sum: 17"), "{body}");
    }
}

#[test]
fn a_request_with_content_passes_with_it_although_its_head_states_no_length() {
    let bed = TestBed::start();
    bed.origin.otherwise(|request| {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        Answer::ok(body).header("cache-control", "max-age=60")
    });
    for method in ["GET", "HEAD"] {
        for _ in 0..2 {
            let answer = send_h2_unsized(bed.addr(), method, b"q=1");
            assert!(answer.cache_status().contains("fwd=bypass"), "{answer:?}");
            let sent = bed.origin.last("/a").expect("a request");
            assert_eq!((sent.method(), sent.body()), (method, &b"q=1"[..]));
        }
    }
    let request = H2Request {
        path: "/b",
        ..H2Request::default()
    };
    send_h2(bed.addr(), &request).expect("an answer");
    assert!(send_h2(bed.addr(), &request).expect("an answer").is_hit());
}

/// Method: the origin states no lifetime, and the site does.
#[test]
fn a_lifetime_of_a_site_stores_no_response_to_post() {
    let hour = Some(Duration::from_secs(3600));
    let (mut replacing, mut unstated) = (Settings::default(), Settings::default());
    replacing.ttl.insert(StatusSet::Class(2), hour);
    unstated.default_ttl.insert(StatusSet::Class(2), hour);
    for settings in [replacing, unstated] {
        let bed = TestBed::with_config(with_site(settings, Vec::new()));
        let page = |text: &'static str| Answer::ok(text).header("content-location", "/a");
        bed.origin.once("/a", page("of a client"));
        let mut client = bed.connect();
        client.request("POST", "/a", &[("content-length", "4")], b"evil");
        bed.origin.on("/a", page("page"));
        let first = bed.get("/a");
        assert!(!first.is_hit() && first.text() == "page", "{first:?}");
        assert!(bed.get("/a").is_hit());
        // With a lifetime of the origin, the response to a POST answers later GETs.
        bed.origin
            .once("/a", page("stated").header("cache-control", "max-age=60"));
        let mut client = bed.connect();
        client.request("POST", "/a", &[("content-length", "4")], b"good");
        assert_eq!(bed.get("/a").text(), "stated");
    }
}

#[test]
fn without_retries_connections_are_reused_and_a_closed_one_costs_no_request() {
    let bed = TestBed::with_config(|config| {
        config.origins[0].retries_max = 0;
        config.workers = std::num::NonZeroUsize::MIN;
    });
    let fresh = || Answer::ok("a").header("cache-control", "no-store");
    bed.origin.on("/a", fresh());
    for _ in 0..20 {
        assert_eq!(bed.get("/a").status, 200);
    }
    assert_eq!(bed.origin.accepted_connections(), 1);
    bed.origin.close_idle_connections();
    for _ in 0..3 {
        assert_eq!(bed.get("/a").status, 200);
    }
    assert_eq!(bed.origin.accepted_connections(), 2);
}

/// Method: compression is off for the edge and on for the site.
#[test]
fn a_tag_that_only_a_site_changes_reaches_the_origin_as_its_own() {
    let settings = Settings {
        compression: Some(true),
        ..Settings::default()
    };
    let site = with_site(settings, Vec::new());
    let bed = TestBed::with_config(|config| {
        config.compression.enabled = false;
        site(config);
    });
    bed.origin.on(
        "/a",
        Answer::ok("hello ".repeat(2000))
            .header("cache-control", "max-age=60")
            .header("content-type", "text/plain")
            .header("etag", "\"a\""),
    );
    bed.get("/a");
    let gzip = [("accept-encoding", "gzip")];
    let tag = || bed.get_with("/a", &gzip).header("etag").map(str::to_owned);
    let tag = tag().expect("a tag");
    assert_ne!(tag, "\"a\"");
    let fields = [("if-match", tag.as_str()), ("content-length", "1")];
    bed.connect().request("PUT", "/a", &fields, b"x");
    let sent = bed.origin.last("/a").expect("a request");
    assert_eq!(
        (sent.method(), sent.header("if-match")),
        ("PUT", Some("\"a\""))
    );
}

/// Method: a key may send 5 requests, and an address those of 4 keys.
#[test]
fn an_address_with_invented_keys_is_limited() {
    let limit = RateLimit {
        number: 0,
        requests: 1,
        per: Duration::from_secs(3600),
        burst: 5,
        by: RateKey::Header(HeaderName::from_static("x-api-key")),
    };
    let settings = Settings {
        rate_limit: Stated::On(Arc::new(limit)),
        ..Settings::default()
    };
    let bed = TestBed::with_config(with_site(settings, Vec::new()));
    let get = |key: String| bed.get_with("/a", &[("x-api-key", &key)]).status;
    bed.origin
        .on("/a", Answer::ok("a").header("cache-control", "max-age=60"));
    let own = (0..7).map(|_| get("own".to_owned())).collect::<Vec<_>>();
    assert_eq!(own, [200, 200, 200, 200, 200, 429, 429]);
    let admitted = (0..60).filter(|n| get(format!("k{n}")) == 200).count();
    assert_eq!(admitted, 15);
}

/// A body of one piece whose length is not known before its end.
struct Unsized(Option<bytes::Bytes>);

impl http_body::Body for Unsized {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

/// Sends a request with content and without `Content-Length` by HTTP/2, which hyper's client adds for sized bodies.
fn send_h2_unsized(
    addr: std::net::SocketAddr,
    method: &str,
    body: &'static [u8],
) -> crate::support::Answer {
    use bytes::Bytes;
    use http_body_util::BodyExt as _;
    use hyper::client::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime can be built");
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(addr)
            .await
            .expect("the edge listens");
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("the handshake succeeds");
        tokio::spawn(connection);
        let request = http::Request::builder()
            .method(method)
            .uri("http://shop.example/a")
            .body(Unsized(Some(Bytes::from_static(body))))
            .expect("the request is valid");
        let response = sender.send_request(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let text =
            |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        crate::support::Answer {
            status: parts.status.as_u16(),
            headers: parts
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect(),
            body: body.collect().await.expect("a body").to_bytes().to_vec(),
            complete: true,
        }
    })
}
