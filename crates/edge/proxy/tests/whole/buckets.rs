//! An origin that is a bucket of S3: a stand-in that verifies each signature by an independent implementation, and
//! refuses requests as a bucket does.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::one_site::set_site;
use crate::support::{Client, TestBed, config_for};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{CredentialsSource, OriginUrl, S3Config, Token};
use edgeward_sites::{FieldChange, Settings, Stated, StatusSet, Template};
use edgeward_testkit::s3::{AccessKey, Bucket, ReceivedRequest};
use edgeward_testkit::{Answer, RecordedRequest, ScriptedOrigin};
use edgeward_types::{ByteSize, Pattern};
use http::HeaderName;
use tempfile::TempDir;

const REGION: &str = "eu-central-1";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// The session token of the temporary credentials.
const SESSION_TOKEN: &str = "FwoGZXIvYXdzEXAMPLETOKEN";

fn key(id: &str, token: Option<&str>) -> AccessKey {
    AccessKey {
        id: id.to_owned(),
        secret: format!("{SECRET}{id}"),
        token: token.map(str::to_owned),
    }
}

/// Replaces the file of credentials in one step, as tools do.
fn write_credentials(folder: &TempDir, text: &str) {
    let (new, path) = (folder.path().join("new"), folder.path().join("credentials"));
    std::fs::write(&new, text).expect("the folder is writable");
    std::fs::rename(new, path).expect("the folder is writable");
}

fn file_of(key: &AccessKey) -> String {
    let token = key.token.iter();
    let token: String = token
        .map(|token| format!("aws_session_token = {token}\n"))
        .collect();
    format!(
        "[edge]\naws_access_key_id = {}\naws_secret_access_key = {}\n{token}",
        key.id, key.secret
    )
}

/// A bucket behind a scripted origin, with the file of its credentials.
struct StandIn {
    bucket: Arc<Bucket>,
    origin: ScriptedOrigin,
    folder: TempDir,
}

impl StandIn {
    fn start() -> Self {
        let key = key("AKIA1", Some(SESSION_TOKEN));
        let folder = tempfile::tempdir().expect("a folder");
        write_credentials(&folder, &file_of(&key));
        let bucket = Arc::new(Bucket::new(REGION, key));
        let origin = ScriptedOrigin::start();
        serve_objects(&origin, &bucket);
        Self {
            bucket,
            origin,
            folder,
        }
    }

    fn config(&self, path_style: bool) -> S3Config {
        S3Config {
            bucket: "media".to_owned(),
            region: REGION.to_owned(),
            path_style,
            serves_list: false,
            credentials: CredentialsSource::File {
                path: self.folder.path().join("credentials"),
                profile: "edge".to_owned(),
            },
        }
    }

    fn bed(self, change: impl FnOnce(&mut EdgeConfig)) -> (TestBed, Arc<Bucket>, TempDir) {
        let s3 = self.config(true);
        let bed = TestBed::with_origin(self.origin, |config| {
            config.origins[0].s3 = Some(Arc::new(s3));
            change(config);
        });
        (bed, self.bucket, self.folder)
    }
}

/// Answers requests with a valid signature by the target, and others as a bucket does.
fn serve_objects(origin: &ScriptedOrigin, bucket: &Arc<Bucket>) {
    let bucket = Arc::clone(bucket);
    origin.otherwise(move |request| match verify(&bucket, request) {
        Ok(()) => object(request),
        Err(code) => Answer::ok(code).with_status(403),
    });
}

fn verify(bucket: &Bucket, request: &RecordedRequest) -> Result<(), &'static str> {
    let fields = request.headers().iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    let request = ReceivedRequest {
        method: request.method(),
        target: request.target(),
        fields: &fields,
        body: request.body(),
    };
    bucket.verify(&request, SystemTime::now())
}

/// Returns the object of a request: its target, repeated to 64 KiB for targets of large objects.
fn object(request: &RecordedRequest) -> Answer {
    let etag = "\"e\"";
    if request.header("if-none-match") == Some(etag) {
        return Answer::status(304).header("etag", etag);
    }
    let target = request.target().to_owned();
    let body = match target.contains("large") {
        true => target.repeat(65_536 / target.len() + 1)[..65_536].to_owned(),
        false => target,
    };
    let lifetime = match request.target().contains("stale") {
        true => "max-age=0",
        false => "max-age=600",
    };
    let range = request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes="));
    let range = range.and_then(|range| {
        let (first, last) = range.split_once('-')?;
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some((first, last.min(body.len() - 1)))
    });
    let answer = match range {
        Some((first, last)) => {
            let content_range = format!("bytes {first}-{last}/{}", body.len());
            Answer::ok(body[first..=last].to_owned())
                .with_status(206)
                .header("content-range", &content_range)
        }
        None => Answer::ok(body),
    };
    answer
        .header("etag", etag)
        .header("accept-ranges", "bytes")
        .header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        .header("cache-control", lifetime)
}

/// Configures one site for all hosts, with these settings.
fn with_site(settings: Settings) -> impl FnOnce(&mut EdgeConfig) {
    move |config| set_site(config, settings, Vec::new())
}

/// Returns settings with these patterns of `query.keep`.
fn keeping(names: &[&str]) -> Settings {
    Settings {
        query_keep: Stated::On(names.iter().map(|name| Pattern::new(name)).collect()),
        ..Settings::default()
    }
}

/// Method: targets that clients send, with the target that the bucket must get. The stand-in decodes the target and
/// encodes it again, as buckets do. Each response is then a hit.
#[test]
fn a_bucket_accepts_the_signature_of_every_target() {
    let stand_in = StandIn::start();
    let (bed, _, _folder) = stand_in.bed(with_site(keeping(&["*"])));
    for (target, sent) in [
        ("/a.png", "/media/a.png"),
        ("/a+b", "/media/a%2Bb"),
        ("/a%20b", "/media/a%20b"),
        ("/mac@2x.png", "/media/mac%402x.png"),
        ("/state=fl/(1).txt", "/media/state%3Dfl/%281%29.txt"),
        ("/a%2Fb%2fc", "/media/a/b/c"),
        ("/a%252Fb", "/media/a%252Fb"),
        ("//a//b/", "/media//a//b/"),
        ("/gr%c3%bc%C3%9Fe", "/media/gr%C3%BC%C3%9Fe"),
        ("/50%", "/media/50%25"),
        ("/~a-b_c.d", "/media/~a-b_c.d"),
        (
            "/a?versionId=x&partNumber=1",
            "/media/a?partNumber=1&versionId=x",
        ),
        ("/a?z=1&a=x+y%2B&b", "/media/a?a=x%20y%2B&b=&z=1"),
        ("/a?X-Amz-Signature=0&v=1", "/media/a?v=1"),
    ] {
        let answer = bed.get(target);
        assert_eq!((answer.status, answer.text()), (200, sent), "{target}");
        assert!(bed.get(target).is_hit(), "{target}");
    }
    for target in ["/a/../b", "/a%2F..%2Fb", "/%ff", "/a?b=%ff"] {
        assert_eq!(bed.get(target).status, 400, "{target}");
    }
}

/// Method: every kind of request that the edge sends, to a stand-in that refuses unsigned ones.
#[test]
fn every_kind_of_request_is_signed() {
    let stand_in = StandIn::start();
    let (bed, _, _folder) = stand_in.bed(|config| {
        config.ranges.slice_bytes = ByteSize::kib(16);
    });
    // A miss, a HEAD, and a request that bypasses the cache.
    assert_eq!(bed.get("/a").text(), "/media/a");
    let head = bed.connect().request("HEAD", "/head", &[], b"");
    assert_eq!(head.status, 200);
    assert_eq!(bed.connect().request("OPTIONS", "/a", &[], b"").status, 200);
    let content = [("content-length", "2")];
    assert_eq!(
        bed.connect()
            .request("GET", "/content", &content, b"ab")
            .status,
        200
    );
    // A revalidation.
    assert_eq!(bed.get("/stale").status, 200);
    let again = bed.get("/stale");
    assert_eq!((again.status, again.text()), (200, "/media/stale"));
    let validation = bed.origin.last("/media/stale").expect("a request");
    assert_eq!(validation.header("if-none-match"), Some("\"e\""));
    // Slices: the first range fetches two of them, the second one all others.
    for (range, bytes) in [("bytes=16000-17000", 1001), ("bytes=0-65535", 65_536)] {
        let part = bed.get_with("/large", &[("range", range)]);
        assert_eq!((part.status, part.body.len()), (206, bytes));
    }
    let requests = bed.origin.recorded();
    let slices = requests
        .iter()
        .filter(|request| request.header("range").is_some());
    assert!(slices.count() >= 2);
    // A retry after the bucket has closed the idle connection.
    bed.origin.close_idle_connections();
    assert_eq!(bed.get("/after").status, 200);
    for request in &requests {
        assert_eq!(
            request.header("host"),
            Some(&*bed.origin.addr().to_string())
        );
        assert_eq!(request.header("x-amz-security-token"), Some(SESSION_TOKEN));
    }
}

/// Method: a client sends its own credentials, and fields that ask a bucket for more than reading. The edge sends none
/// of them, so the credentials do not prevent that the response is stored.
#[test]
fn a_client_cannot_use_the_credentials_of_the_edge_for_more_than_reading() {
    let stand_in = StandIn::start();
    let (bed, _, _folder) = stand_in.bed(|_| {});
    let fields = [
        ("authorization", "Basic QTpC"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-copy-source", "/other/secret"),
        ("x-amz-security-token", "own"),
    ];
    assert_eq!(bed.get_with("/a", &fields).text(), "/media/a");
    let sent = bed.origin.last("/media/a").expect("a request");
    assert_eq!(sent.header("x-amz-copy-source"), None);
    assert_eq!(sent.headers_named("authorization").count(), 1);
    assert!(bed.get("/a").is_hit());
    // The same object with parameters that would select another view of it.
    for query in [
        "acl",
        "response-content-type=text/html",
        "versionId=1",
        "%61cl",
    ] {
        assert!(bed.get(&format!("/a?{query}")).is_hit(), "{query}");
    }
    let total = bed.origin.requests_total();
    for method in ["PUT", "POST", "DELETE", "PATCH", "PROPFIND"] {
        let answer = bed
            .connect()
            .request(method, "/a", &[("content-length", "0")], b"");
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD, OPTIONS"));
    }
    for target in ["/", "/?list-type=2", "//", "/%2f"] {
        assert_eq!(bed.get(target).status, 404, "{target}");
    }
    assert_eq!(bed.origin.requests_total(), total);
}

#[test]
fn rules_rewrite_the_target_and_add_fields_and_the_signature_covers_both() {
    let stand_in = StandIn::start();
    let template = |text: &str| Arc::new(Template::new(text, None).expect("a template"));
    let mut settings = Settings {
        rewrite: Stated::On(template("/site${uri}index.html")),
        ..Settings::default()
    };
    settings.request.insert(
        HeaderName::from_static("x-amz-request-payer"),
        FieldChange::Set(template("requester")),
    );
    let (bed, _, _folder) = stand_in.bed(with_site(settings));
    assert_eq!(bed.get("/").text(), "/media/site/index.html");
    let sent = bed
        .origin
        .last("/media/site/index.html")
        .expect("a request");
    assert_eq!(sent.header("x-amz-request-payer"), Some("requester"));
    assert!(
        sent.header("authorization")
            .is_some_and(|value| value.contains("x-amz-request-payer"))
    );
}

#[test]
fn a_list_is_served_if_the_operator_says_so() {
    let stand_in = StandIn::start();
    let s3 = S3Config {
        serves_list: true,
        ..stand_in.config(false)
    };
    let (bed, _, _folder) = stand_in.bed(|config| {
        with_site(keeping(&["list-type", "prefix"]))(config);
        config.origins[0].s3 = Some(Arc::new(s3));
    });
    let list = bed.get("/?prefix=a/&list-type=2&acl");
    assert_eq!(list.text(), "/?list-type=2&prefix=a%2F");
}

/// Method: the file changes to other keys, to unusable text, and to further keys. Requests follow the usable ones; a
/// reload with an unusable file changes nothing.
#[test]
fn credentials_follow_their_file() {
    let stand_in = StandIn::start();
    let (bed, bucket, folder) = stand_in.bed(|config| {
        config.certificate_interval = Duration::from_millis(1);
    });
    assert_eq!(bed.get("/1").status, 200);
    let second = key("AKIA2", None);
    write_credentials(&folder, &file_of(&second));
    bucket.accept_only(second);
    bed.wait_for_metric("edgeward_credential_reads_total{result=\"applied\"}", 1.0);
    assert_eq!(bed.get("/2").status, 200);
    write_credentials(&folder, "[other]");
    bed.wait_for_metric("edgeward_credential_reads_total{result=\"refused\"}", 1.0);
    assert_eq!(bed.get("/3").status, 200);
    let error = bed.edge.reloader().reload(&bed.edge.reloader().config());
    let error = error.expect_err("the file is unusable");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("there is no section [edge]"));
    assert_eq!(bed.get("/4").status, 200);
}

/// A reload reads the file although the watch is off.
#[test]
fn a_reload_reads_the_credentials_again() {
    let stand_in = StandIn::start();
    let (bed, bucket, folder) = stand_in.bed(|config| {
        config.certificate_interval = Duration::ZERO;
    });
    assert_eq!(bed.get("/1").status, 200);
    let second = key("AKIA2", None);
    write_credentials(&folder, &file_of(&second));
    bucket.accept_only(second);
    let refused = bed.get("/2");
    assert_eq!(
        (refused.status, refused.text()),
        (403, "InvalidAccessKeyId")
    );
    let reloader = bed.edge.reloader();
    reloader
        .reload(&reloader.config())
        .expect("the file is usable");
    assert_eq!(bed.get("/2").status, 200);
}

/// Method: of two servers one refuses connections, and health checks find it. The checks and the requests that another
/// server gets are signed.
#[test]
fn health_checks_and_failovers_are_signed() {
    let stand_in = StandIn::start();
    let down: OriginUrl = format!("http://{}", ScriptedOrigin::unused_addr())
        .parse()
        .expect("a URL");
    let (bed, bucket, _folder) = stand_in.bed(|config| {
        let origin = &mut config.origins[0];
        origin.servers.push(down);
        origin.checks.path = Some("/health check".replace(' ', "+"));
        origin.checks.interval = Duration::from_millis(100);
    });
    bed.origin.wait_until("two checks", |origin| {
        origin.requests("/media/health%2Bcheck") >= 2
    });
    for n in 0..20 {
        assert_eq!(bed.get(&format!("/{n}")).status, 200);
    }
    for request in bed.origin.recorded() {
        assert_eq!(verify(&bucket, &request), Ok(()), "{}", request.head());
    }
}

/// Method: an edge whose bucket has temporary credentials serves requests, is inspected and reports its state. No page
/// and no text of the configuration has a secret.
#[test]
fn no_secret_is_shown() {
    let stand_in = StandIn::start();
    let s3 = stand_in.config(true);
    let credentials = s3.credentials.read().expect("the file is usable");
    let (bed, _, _folder) = stand_in.bed(|config| {
        config.purge.token = Token::new("correct-horse-battery").ok();
        config.origins[0].s3 = Some(Arc::new(S3Config {
            credentials: CredentialsSource::Environment(credentials),
            ..s3
        }));
    });
    assert_eq!(bed.get("/a").status, 200);
    let admin = bed.edge.admin_addr().expect("configured");
    let question = r#"{"url":"http://test.example/a%2Bb?acl"}"#;
    let length = question.len().to_string();
    let fields = [
        ("authorization", "Bearer correct-horse-battery"),
        ("content-length", &*length),
    ];
    let explained =
        Client::connect(admin).request("POST", "/explain", &fields, question.as_bytes());
    assert!(
        explained.text().contains("/media/a%2Bb"),
        "{}",
        explained.text()
    );
    let config = format!("{:?}", bed.edge.reloader().config());
    for shown in [
        config.as_str(),
        &bed.metrics(),
        &bed.status().to_string(),
        explained.text(),
    ] {
        for secret in [SECRET, "AKIA1", SESSION_TOKEN, "correct-horse-battery"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
}

/// A purge of a URL covers the response although the purged URL has parameters that the bucket does not get.
#[test]
fn a_purge_covers_the_object_with_any_parameters() {
    let stand_in = StandIn::start();
    let (bed, _, _folder) = stand_in.bed(|config| {
        config.purge.allow = "127.0.0.1".parse().expect("a network");
    });
    bed.get("/a");
    assert!(bed.get("/a?x=1").is_hit());
    assert_eq!(
        bed.connect().request("PURGE", "/a?x=2", &[], b"").status,
        200
    );
    assert!(!bed.get("/a").is_hit());
}

/// A refusal by the bucket is not stored as an object, unless a rule states a lifetime for its status.
#[test]
fn a_lifetime_for_objects_is_not_one_for_refusals() {
    let stand_in = StandIn::start();
    stand_in.bucket.accept_only(key("AKIA9", None));
    let mut settings = Settings::default();
    settings
        .ttl
        .insert(StatusSet::One(200), Some(Duration::from_secs(600)));
    let (bed, bucket, _folder) = stand_in.bed(with_site(settings));
    assert_eq!(bed.get("/a").status, 403);
    bucket.accept_only(key("AKIA1", Some(SESSION_TOKEN)));
    assert_eq!(bed.get("/a").status, 200);
}

/// An edge without usable credentials does not start, and says which file is the cause.
#[test]
fn an_edge_without_credentials_does_not_start() {
    let stand_in = StandIn::start();
    write_credentials(&stand_in.folder, "[edge]\naws_access_key_id = AKIA1\n");
    let mut config = config_for(stand_in.origin.addr());
    config.origins[0].s3 = Some(Arc::new(stand_in.config(true)));
    let error = edgeward_proxy::Edge::start(config).expect_err("no secret");
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    assert!(
        text.contains("credentials has no usable credentials: aws_secret_access_key is missing"),
        "{text}"
    );
}
