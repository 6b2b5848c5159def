//! Compression by the edge: tested with what clients with different `Accept-Encoding` receive, and with decoders.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use crate::codecs::{H2Request, for_hyper, send_h1, send_h2};
use crate::identity::SelfSigned;
use crate::support::{Client, TestBed};
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, OriginAccepts, Token};
use edgeward_semantics::content_coding::Coding;
use edgeward_sites::{Settings, Site, Sites};
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::programs::find_or_skip;
use edgeward_testkit::{Answer, Gate, ScriptedOrigin};
use edgeward_types::ByteSize;

const TOKEN: &str = "correct-horse-battery";
const ALL: &str = "gzip, deflate, br, zstd";

/// Returns text of at least `bytes` bytes. Texts with another seed differ.
fn text(seed: usize, bytes: usize) -> String {
    let mut text = String::new();
    let mut line = 0;
    while text.len() < bytes {
        text.push_str(&format!(
            "<p>Paragraph {line} of document {seed}, number {}.</p>\n",
            line * seed % 977
        ));
        line += 1;
    }
    text
}

fn html(body: &str) -> Answer {
    Answer::ok(body.to_owned())
        .header("content-type", "text/html; charset=utf-8")
        .header("cache-control", "max-age=600")
        .header("etag", "\"v1\"")
}

/// Decodes a body, and checks the fields that belong to its coding.
fn decoded(answer: &crate::support::Answer) -> String {
    let length = answer.header("content-length").expect("a length");
    assert_eq!(length, answer.body.len().to_string());
    let body = &answer.body[..];
    let mut plain = Vec::new();
    match answer.header("content-encoding") {
        None => plain.extend_from_slice(body),
        Some("gzip") => {
            let mut decoder = flate2::read::GzDecoder::new(body);
            decoder.read_to_end(&mut plain).expect("gzip");
        }
        Some("br") => brotli::BrotliDecompress(&mut &*body, &mut plain).expect("brotli"),
        Some("zstd") => zstd::stream::copy_decode(body, &mut plain).expect("zstd"),
        Some(other) => panic!("{other}"),
    }
    String::from_utf8(plain).expect("text")
}

fn get(bed: &TestBed, path: &str, accept: &str) -> crate::support::Answer {
    bed.get_with(path, &[("accept-encoding", accept)])
}

fn coding(answer: &crate::support::Answer) -> &str {
    answer.header("content-encoding").unwrap_or("none")
}

fn made(bed: &TestBed) -> f64 {
    bed.metric("edgeward_encodings_total{result=\"made\"}")
}

/// Returns a configuration with a disk in `folder`, and memory for Vary markers only. Every miss is written to disk.
fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        config.hot.capacity = ByteSize::kib(2);
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

/// Method: each request twice, first as a miss of another URL and then as a hit.
#[test]
fn each_client_gets_the_coding_that_it_prefers() {
    let bed = TestBed::start();
    let body = text(1, 20_000);
    for (n, (accept, expected)) in [
        (ALL, "br"),
        ("gzip, deflate", "gzip"),
        ("zstd, gzip", "zstd"),
        ("br;q=0.5, gzip;q=0.9", "gzip"),
        ("*", "br"),
        ("br;q=0, *", "zstd"),
        ("identity", "none"),
        ("gzip;q=0.5, identity", "none"),
        ("deflate", "none"),
        ("", "none"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        bed.origin.on(&path, html(&body));
        for hit in [false, true] {
            let answer = get(&bed, &path, accept);
            assert_eq!(
                (coding(&answer), answer.is_hit()),
                (expected, hit),
                "{accept}"
            );
            assert_eq!(decoded(&answer), body, "{accept}");
            assert_eq!(answer.header("vary"), Some("accept-encoding"));
            let tag = match expected {
                "none" => "\"v1\"".to_owned(),
                name => format!("\"v1~{name}\""),
            };
            assert_eq!(answer.header("etag"), Some(&*tag));
        }
        assert_eq!(bed.origin.requests(&path), 1);
    }
    let plain = bed.get("/0");
    assert_eq!((coding(&plain), decoded(&plain)), ("none", body));
    let sent = get(&bed, "/0", ALL).body.len();
    assert!(
        sent * 4 < plain.body.len(),
        "{sent} of {}",
        plain.body.len()
    );
    assert_eq!(
        bed.metric("edgeward_encoded_responses_total{coding=\"gzip\"}"),
        4.0
    );
}

/// Method: the same requests to the fast path, to hyper and over HTTP/2, before and after the encoding is stored.
#[test]
fn all_codecs_answer_with_the_same_representation() {
    let bed = TestBed::start();
    let body = text(2, 5000);
    for (n, accept) in [ALL, "gzip", "zstd;q=0.1, br;q=0", "identity"]
        .into_iter()
        .enumerate()
    {
        for method in ["GET", "HEAD"] {
            let path = format!("/{n}{method}");
            bed.origin.on(&path, html(&body));
            bed.get(&path);
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: test.example\r\nAccept-Encoding: {accept}\r\n\r\n"
            );
            let request = H2Request {
                method,
                authority: Some("test.example"),
                path: &path,
                headers: &[("accept-encoding", accept)],
                body: b"",
            };
            let fields = |answer: &crate::support::Answer| {
                let mut fields = answer.headers.clone();
                fields
                    .retain(|(name, _)| !matches!(&**name, "age" | "connection" | "cache-status"));
                fields.sort();
                (answer.status, fields, answer.body.clone())
            };
            let first = send_h1(bed.addr(), &head);
            for round in 0..2 {
                let answers = [
                    send_h1(bed.addr(), &head),
                    send_h1(bed.addr(), &for_hyper(&head)),
                    send_h2(bed.addr(), &request).expect("an answer"),
                ];
                for (codec, answer) in answers.iter().enumerate() {
                    assert!(answer.is_hit(), "{codec} {round} {answer:?}");
                    assert_eq!(fields(answer), fields(&first), "{codec} {round} {accept}");
                }
            }
            if method == "GET" {
                assert_eq!(decoded(&first), body);
            }
        }
    }
}

#[test]
fn a_client_that_has_the_response_in_a_form_that_it_accepts_gets_a_304() {
    let bed = TestBed::start();
    let body = text(3, 5000);
    bed.origin.on("/a", html(&body));
    bed.get("/a");
    for (accept, condition, expected) in [
        (ALL, "\"v1~br\"", Some("\"v1~br\"")),
        (ALL, "\"other\", \"v1~gzip\"", Some("\"v1~gzip\"")),
        (ALL, "\"v1\"", Some("\"v1\"")),
        ("gzip", "\"v1~br\"", None),
        (ALL, "\"v2~br\"", None),
        ("identity", "\"v1~br\"", None),
    ] {
        let answer = bed.get_with(
            "/a",
            &[("accept-encoding", accept), ("if-none-match", condition)],
        );
        match expected {
            Some(tag) => {
                assert_eq!(
                    (answer.status, answer.header("etag")),
                    (304, Some(tag)),
                    "{condition}"
                );
                assert_eq!(answer.header("vary"), Some("accept-encoding"));
                assert!(answer.header("content-encoding").is_none() && answer.body.is_empty());
            }
            None => assert_eq!(
                (answer.status, decoded(&answer)),
                (200, body.clone()),
                "{condition}"
            ),
        }
    }
}

#[test]
fn a_range_is_taken_from_the_plain_bytes_unless_the_client_has_encoded_ones() {
    let bed = TestBed::start();
    let body = text(4, 5000);
    let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
    bed.origin
        .on("/a", html(&body).header("last-modified", modified));
    get(&bed, "/a", ALL);
    for (accept, if_range, is_partial) in [
        (ALL, None, true),
        (ALL, Some("\"v1\""), true),
        (ALL, Some("\"v1~br\""), false),
        (ALL, Some(modified), false),
        ("identity", Some(modified), true),
    ] {
        let mut fields = vec![("accept-encoding", accept), ("range", "bytes=10-19")];
        fields.extend(if_range.map(|value| ("if-range", value)));
        let answer = bed.get_with("/a", &fields);
        if is_partial {
            assert_eq!(
                (answer.status, coding(&answer)),
                (206, "none"),
                "{if_range:?}"
            );
            assert_eq!(answer.text(), &body[10..20]);
            assert_eq!(answer.header("etag"), Some("\"v1\""));
        } else {
            assert_eq!(
                (answer.status, coding(&answer)),
                (200, "br"),
                "{if_range:?}"
            );
            assert_eq!(decoded(&answer), body);
        }
    }
}

/// Method: a short lifetime of zero, so that each request validates the response.
#[test]
fn an_encoding_outlives_a_validation_and_not_a_change() {
    let bed = TestBed::start();
    let [old, new] = [5, 6].map(|seed| text(seed, 5000));
    let validated = |body: &str, tag: &str| {
        Answer::ok(body.to_owned())
            .header("content-type", "text/html")
            .header("cache-control", "max-age=0")
            .header("etag", tag)
            .revalidates()
    };
    bed.origin.on("/a", validated(&old, "\"v1\""));
    for _ in 0..3 {
        assert_eq!(decoded(&get(&bed, "/a", ALL)), old);
    }
    assert_eq!((made(&bed), bed.origin.requests("/a")), (1.0, 3));
    bed.origin.on("/a", validated(&new, "\"v2\""));
    for _ in 0..3 {
        let answer = get(&bed, "/a", ALL);
        assert_eq!((coding(&answer), decoded(&answer)), ("br", new.clone()));
        assert_eq!(answer.header("etag"), Some("\"v2~br\""));
    }
    assert_eq!(made(&bed), 2.0);
}

#[test]
fn a_validation_that_forbids_transformations_ends_the_coding() {
    let body = text(7, 5000);
    // The operator lets clients ask for a validation.
    let honours = TestBed::with_config(|config| {
        config.caching.rules.client_directives = edgeward_semantics::ClientDirectives::Honour;
    });
    honours.origin.once("/a", html(&body));
    assert_eq!(coding(&get(&honours, "/a", ALL)), "br");
    let gone = Answer::status(304)
        .header("etag", "\"v1\"")
        .header("cache-control", "max-age=600, no-transform");
    honours.origin.on("/a", gone);
    let fields = [("accept-encoding", ALL), ("cache-control", "no-cache")];
    for answer in [honours.get_with("/a", &fields), get(&honours, "/a", ALL)] {
        assert_eq!((coding(&answer), decoded(&answer)), ("none", body.clone()));
    }
}

#[test]
fn a_purge_takes_the_encodings_along() {
    let bed = TestBed::with_config(|config| config.purge.token = Token::new(TOKEN).ok());
    let purge = |body: &str| {
        let addr = bed.edge.admin_addr().expect("configured");
        let (token, length) = (format!("Bearer {TOKEN}"), body.len().to_string());
        let fields = [("authorization", &*token), ("content-length", &*length)];
        let answer = Client::connect(addr).request("POST", "/purge", &fields, body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    for (n, scope) in [
        r#"{"urls": ["http://test.example/a"]}"#,
        r#"{"tags": ["t"]}"#,
        r#"{"hosts": ["test.example"]}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let [old, new] = [10 + n, 20 + n].map(|seed| text(seed, 5000));
        // The tag of the origin stays, and so does the length.
        let new = new[..old.len().min(new.len())].to_owned();
        bed.origin.on("/a", html(&old).header("cache-tag", "t"));
        let first = get(&bed, "/a", ALL);
        assert_eq!(coding(&first), "br");
        bed.origin.on("/a", html(&new).header("cache-tag", "t"));
        purge(scope);
        for _ in 0..2 {
            assert_eq!(decoded(&get(&bed, "/a", ALL)), new, "{scope}");
        }
        purge(scope);
    }
}

/// Method: a disk, and memory that takes no body. The second edge finds both objects of the first on disk.
#[test]
fn encodings_on_disk_are_served_and_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let bed = TestBed::with_config(on_disk(folder.path()));
    let body = text(8, 50_000);
    bed.origin.on("/a", html(&body));
    assert_eq!(decoded(&get(&bed, "/a", ALL)), body);
    bed.wait_until("both objects are on disk", |status| {
        status["disk"]["devices"][0]["stored_objects"] == 2
    });
    let answer = get(&bed, "/a", ALL);
    assert_eq!((coding(&answer), decoded(&answer)), ("br", body.clone()));
    assert!(answer.cache_status().contains("detail=disk"), "{answer:?}");
    // Another coding is made from the body on disk.
    let answer = get(&bed, "/a", "gzip");
    assert_eq!((coding(&answer), decoded(&answer)), ("gzip", body.clone()));
    assert_eq!(made(&bed), 2.0);
    let origin = bed.stop();
    let bed = TestBed::with_origin(origin, on_disk(folder.path()));
    for name in ["br", "gzip"] {
        let answer = get(&bed, "/a", name);
        assert_eq!((coding(&answer), decoded(&answer)), (name, body.clone()));
        assert!(answer.is_hit());
    }
    assert_eq!((made(&bed), bed.origin.requests("/a")), (0.0, 1));
}

#[test]
fn responses_that_may_not_be_encoded_are_sent_as_they_are() {
    let bed = TestBed::start();
    let body = text(9, 5000);
    let packed = Answer::ok(b"packed by the origin".to_vec())
        .header("content-type", "text/html")
        .header("cache-control", "max-age=600")
        .header("content-encoding", "gzip")
        .header("vary", "accept-encoding");
    bed.origin.on("/packed", packed);
    bed.origin
        .on("/picture", html(&body).header("content-type", "image/png"));
    let fixed = Answer::ok(body.clone())
        .header("content-type", "text/html")
        .header("cache-control", "max-age=600, no-transform");
    bed.origin.on("/fixed", fixed);
    bed.origin.on("/short", html(&body[..255]));
    bed.origin
        .on("/cookie", html(&body).header("vary", "cookie"));
    bed.origin.on("/error", html(&body).with_status(404));
    for path in ["/packed", "/fixed", "/short", "/cookie", "/error"] {
        let first = get(&bed, path, ALL);
        let second = get(&bed, path, ALL);
        assert!(second.is_hit(), "{path} {second:?}");
        for answer in [first, second] {
            let expected = if path == "/packed" { "gzip" } else { "none" };
            assert_eq!(coding(&answer), expected, "{path}");
            assert!(
                !answer.header("etag").unwrap_or_default().contains('~'),
                "{path}"
            );
        }
    }
    // A client forbids transformations.
    bed.origin.on("/a", html(&body));
    let fields = [("accept-encoding", ALL), ("cache-control", "no-transform")];
    assert_eq!(coding(&bed.get_with("/a", &fields)), "none");
    assert_eq!(made(&bed), 0.0);
}

#[test]
fn compression_can_be_disabled() {
    let bed = TestBed::with_config(|config| config.compression.enabled = false);
    bed.origin.on("/a", html(&text(1, 5000)));
    for _ in 0..2 {
        let answer = get(&bed, "/a", ALL);
        assert_eq!((coding(&answer), answer.header("vary")), ("none", None));
    }
}

#[test]
fn responses_for_one_user_are_encoded_only_with_the_setting() {
    for (personal, expected) in [(false, "none"), (true, "br")] {
        let bed = TestBed::with_config(|config| config.compression.rules.personal = personal);
        bed.origin
            .on("/a", html(&text(1, 5000)).header("vary", "cookie"));
        for _ in 0..2 {
            let answer = bed.get_with("/a", &[("accept-encoding", ALL), ("cookie", "user=1")]);
            assert_eq!(coding(&answer), expected);
        }
    }
}

/// Method: memory for jobs that is smaller than the body, so that each job is refused.
#[test]
fn a_response_is_sent_plain_while_too_much_is_being_compressed() {
    let bed = TestBed::with_config(|config| config.compression.pending_bytes_max = ByteSize(4000));
    let body = text(1, 5000);
    bed.origin.on("/a", html(&body));
    for _ in 0..3 {
        let answer = get(&bed, "/a", ALL);
        assert_eq!((coding(&answer), decoded(&answer)), ("none", body.clone()));
    }
    assert_eq!(bed.metric("edgeward_encodings_total{result=\"busy\"}"), 3.0);
    bed.origin.on("/b", html(&body[..3000]));
    assert_eq!(coding(&get(&bed, "/b", ALL)), "br");
    bed.wait_for_metric("edgeward_encoding_pending_bytes", 0.0);
}

/// Method: the origin holds the body back until the client has the head, so that only the second request can begin an
/// encoding.
#[test]
fn no_request_waits_for_a_long_body() {
    let bed = TestBed::with_config(|config| config.compression.wait_bytes_max = ByteSize(4000));
    let body = text(1, 5000);
    let gate = Gate::new();
    bed.origin.on("/a", html(&body).wait_at(1000, &gate));
    let mut client = bed.connect();
    client.send_head("GET", "/a", &[("accept-encoding", ALL)]);
    assert_eq!(coding(&client.head()), "none");
    gate.open();
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 1.0);
    let answer = get(&bed, "/a", ALL);
    assert_eq!((coding(&answer), decoded(&answer)), ("none", body.clone()));
    bed.wait_for_metric("edgeward_encodings_total{result=\"made\"}", 1.0);
    let answer = get(&bed, "/a", ALL);
    assert_eq!((coding(&answer), decoded(&answer)), ("br", body));
}

#[test]
fn a_body_that_no_coding_shortens_is_compressed_once() {
    let bed = TestBed::start();
    let mut state = 7_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(5000)
    .collect();
    let answer = Answer::ok(noise.clone())
        .header("content-type", "application/wasm")
        .header("cache-control", "max-age=600");
    bed.origin.on("/a", answer);
    for _ in 0..3 {
        let answer = get(&bed, "/a", ALL);
        assert_eq!((coding(&answer), &answer.body), ("none", &noise));
    }
    assert_eq!(
        bed.metric("edgeward_encodings_total{result=\"no-gain\"}"),
        1.0
    );
}

/// Method: a body of unknown length, and one above the longest that is compressed.
#[test]
fn a_chunked_body_is_encoded_when_its_length_is_known() {
    let bed = TestBed::with_config(|config| config.compression.rules.length_max = 100_000);
    let body = text(1, 50_000);
    let gate = Gate::new();
    bed.origin
        .on("/a", html(&body).chunked(1000).wait_at(20_000, &gate));
    let mut client = bed.connect();
    client.send_head("GET", "/a", &[("accept-encoding", ALL)]);
    assert_eq!(
        coding(&client.head()),
        "none",
        "the client does not wait for the end"
    );
    gate.open();
    drop(client);
    bed.wait_for_metric("edgeward_fills_total{end=\"stored\"}", 1.0);
    let answer = get(&bed, "/a", ALL);
    assert_eq!((coding(&answer), decoded(&answer)), ("br", body));
    let long = text(1, 200_000);
    bed.origin.on("/long", html(&long).chunked(10_000));
    for _ in 0..2 {
        let answer = get(&bed, "/long", ALL);
        assert_eq!((coding(&answer), answer.text()), ("none", &*long));
    }
    assert_eq!(made(&bed), 1.0);
}

/// Method: the origin holds the body back until all requests have joined its fetch.
#[test]
fn requests_that_share_a_fetch_share_its_encoding() {
    let bed = TestBed::start();
    let body = text(1, 30_000);
    let gate = Gate::new();
    bed.origin.on("/a", html(&body).wait_at(1000, &gate));
    let clients = 20;
    let mut connections: Vec<Client> = (0..clients).map(|_| bed.connect()).collect();
    for client in &mut connections {
        client.send_head("GET", "/a", &[("accept-encoding", ALL)]);
    }
    bed.wait_for_metric(
        "edgeward_requests_total{outcome=\"uri-miss\"}",
        f64::from(clients),
    );
    gate.open();
    for mut client in connections {
        let answer = client.answer("GET");
        assert_eq!((coding(&answer), decoded(&answer)), ("br", body.clone()));
    }
    assert_eq!((made(&bed), bed.origin.requests("/a")), (1.0, 1));
}

#[test]
fn a_body_that_ends_early_while_a_request_waits_for_it_is_not_encoded() {
    let bed = TestBed::start();
    let body = text(1, 30_000);
    bed.origin.once("/a", html(&body).close_at(10_000));
    let mut client = bed.connect();
    client.send_head("GET", "/a", &[("accept-encoding", ALL)]);
    // The edge may close the connection before it has sent a byte.
    if let Some(mut answer) = client.try_head() {
        client.body("GET", &mut answer);
        assert!(
            !answer.complete || answer.status == 502,
            "{}",
            answer.status
        );
    }
    bed.origin.on("/a", html(&body));
    assert_eq!(decoded(&get(&bed, "/a", ALL)), body);
}

#[test]
fn each_variant_has_its_own_encodings() {
    let bed = TestBed::start();
    bed.origin.on_call("/a", |request| {
        let language = request.header("accept-language").unwrap_or_default();
        let seed = language.len();
        html(&text(seed, 5000)).header("vary", "accept-language")
    });
    for _ in 0..2 {
        for language in ["de", "pt-br"] {
            let fields = [("accept-encoding", ALL), ("accept-language", language)];
            let answer = bed.get_with("/a", &fields);
            assert_eq!(decoded(&answer), text(language.len(), 5000));
            assert_eq!(coding(&answer), "br");
            let vary: Vec<_> = answer
                .headers
                .iter()
                .filter(|(name, _)| name == "vary")
                .collect();
            assert_eq!(vary.len(), 2, "{vary:?}");
        }
    }
    assert_eq!((made(&bed), bed.origin.requests("/a")), (2.0, 2));
}

/// The origin does not know the tags that the edge has made (RFC 9110 §13.1.1).
#[test]
fn a_change_with_the_tag_of_an_encoding_reaches_the_origin_with_its_own_tag() {
    let bed = TestBed::start();
    bed.origin.on("/a", html(&text(1, 5000)));
    let tag = get(&bed, "/a", ALL)
        .header("etag")
        .expect("a tag")
        .to_owned();
    let fields = [("if-match", tag.as_str()), ("content-length", "1")];
    bed.connect().request("PUT", "/a", &fields, b"x");
    let sent = bed.origin.last("/a").expect("a request");
    assert_eq!(
        (sent.method(), sent.header("if-match")),
        ("PUT", Some("\"v1\""))
    );
}

#[test]
fn with_identity_the_cache_stores_one_response_for_all_clients() {
    let serve = |origin: &ScriptedOrigin| {
        origin.on_call("/a", |request| {
            let accept = request.header("accept-encoding").unwrap_or_default();
            let answer = html(&text(1, 5000)).header("vary", "accept-encoding");
            match accept.contains("gzip") {
                true => answer.header("content-encoding", "gzip"),
                false => answer,
            }
        });
    };
    let bed = TestBed::with_config(|config| {
        config.compression.origin_accepts = OriginAccepts::Identity;
    });
    serve(&bed.origin);
    for (accept, expected) in [
        (ALL, "br"),
        ("gzip", "gzip"),
        ("", "none"),
        ("identity", "none"),
    ] {
        let answer = get(&bed, "/a", accept);
        assert_eq!(
            (coding(&answer), decoded(&answer)),
            (expected, text(1, 5000))
        );
    }
    assert_eq!(coding(&bed.get("/a")), "none");
    assert_eq!(bed.origin.requests("/a"), 1);
    let sent = bed.origin.last("/a").expect("a request");
    assert_eq!(sent.header("accept-encoding"), Some("identity"));
}

/// Compression is off, and one site enables it: its requests ask the origin for identity, and others do not.
#[test]
fn a_site_that_enables_compression_asks_for_identity() {
    let bed = TestBed::with_config(|config| {
        config.compression.enabled = false;
        config.compression.origin_accepts = OriginAccepts::Identity;
        let mut sites = Sites::default();
        let compressing = Settings {
            compression: Some(true),
            ..Settings::default()
        };
        let host = "compressed.example".parse().expect("the host is valid");
        let site = Site::new("compressed.example", compressing);
        sites.add(site, &[host], false).expect("the host is free");
        let others = Site::new("*", Settings::default());
        sites.add(others, &[], true).expect("the hosts are free");
        config.sites = sites.into();
    });
    bed.origin.on("/a", html(&text(1, 5000)));
    for (host, expected, asked) in [
        ("compressed.example", "gzip", "identity"),
        ("other.example", "none", "gzip"),
    ] {
        let fields = [("host", host), ("accept-encoding", "gzip")];
        let answer = bed.get_with("/a", &fields);
        assert_eq!(coding(&answer), expected, "{host}");
        let sent = bed.origin.last("/a").expect("a request");
        assert_eq!(sent.header("accept-encoding"), Some(asked), "{host}");
    }
}

#[test]
fn the_order_of_the_codings_is_a_setting() {
    let bed = TestBed::with_config(|config| config.compression.codings = vec![Coding::Gzip]);
    bed.origin.on("/a", html(&text(1, 5000)));
    assert_eq!(coding(&get(&bed, "/a", ALL)), "gzip");
    assert_eq!(coding(&get(&bed, "/a", "br")), "none");
}

/// Over TLS, Chromium accepts Brotli. The test is skipped without Chromium.
#[test]
fn chromium_decodes_the_encodings() {
    let Some(chromium) = find_or_skip("chromium") else {
        return;
    };
    let identity = SelfSigned::new();
    let bed = TestBed::with_config(|config| config.listeners[0].tls = Some(identity.files()));
    let body = text(1, 20_000);
    bed.origin.on("/a", html(&body));
    let profile = tempfile::tempdir().expect("a folder");
    for _ in 0..2 {
        let output = Command::new(&chromium)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--ignore-certificate-errors",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(["--dump-dom", "--timeout=20000"])
            .arg(format!("https://{}/a", bed.addr()))
            .output()
            .expect("chromium runs");
        let page = String::from_utf8_lossy(&output.stdout);
        let last = body.trim_end().lines().next_back().expect("a line");
        assert!(page.contains(last), "{page} {output:?}");
    }
    let sent = bed.metric("edgeward_encoded_responses_total{coding=\"br\"}");
    assert!(sent >= 1.0, "{sent}");
}

/// curl decodes all codings that its libraries know. The test is skipped without curl.
#[test]
fn curl_decodes_the_encodings() {
    let Some(curl) = find_or_skip("curl") else {
        return;
    };
    let bed = TestBed::start();
    let body = text(1, 50_000);
    bed.origin.on("/a", html(&body));
    for _ in 0..2 {
        let url = format!("http://{}/a", bed.addr());
        let arguments = ["--silent", "--compressed", "--max-time", "10", &url];
        let output = Command::new(&curl).args(arguments).output();
        let output = output.expect("curl runs");
        assert_eq!(String::from_utf8(output.stdout).expect("text"), body);
    }
    let sent: f64 = ["br", "zstd", "gzip"]
        .map(|name| {
            bed.metric(&format!(
                "edgeward_encoded_responses_total{{coding=\"{name}\"}}"
            ))
        })
        .iter()
        .sum();
    assert_eq!(sent, 2.0);
}
