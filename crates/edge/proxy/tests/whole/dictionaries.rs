//! Compression dictionaries: clients that have one version of a script and request the next one. The tests are clients
//! of a trusted proxy that states the scheme, so that each may also come without TLS. Chromium has TLS of its own.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, LOOPBACK_ANY_PORT, ListenerConfig, Token};
use edgeward_semantics::content_coding::Coding;
use edgeward_sites::{DictionaryScope, Settings, Stated};
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::Answer as OriginAnswer;
use edgeward_testkit::client::until;
use edgeward_testkit::programs::find_or_skip;
use edgeward_types::ByteSize;
use rcgen::PublicKeyData as _;
use zstd::zstd_safe::DCtx;

use crate::browser::Browser;
use crate::identity::SelfSigned;
use crate::one_site::set_site;
use crate::support::{Answer, Client, TestBed};

const TOKEN: &str = "correct-horse-battery";
const ALL: &str = "gzip, deflate, br, zstd, dcb, dcz";
const TLS: (&str, &str) = ("x-forwarded-proto", "https");

/// Returns a script. Versions differ in one of 50 lines.
fn script(version: usize) -> String {
    let line = |at: usize| match at % 50 {
        7 => format!(
            "function f{at}(a) {{ return a * {} + {version}; }}\n",
            at * 31 + version
        ),
        _ => format!(
            "var value{at} = \"text {} of {}\";\n",
            at * 7919 % 6151,
            at * 31 % 977
        ),
    };
    (0..600).map(line).collect()
}

fn javascript(version: usize) -> OriginAnswer {
    OriginAnswer::ok(script(version))
        .header("content-type", "text/javascript")
        .header("cache-control", "max-age=600")
        .header("etag", &format!("\"v{version}\""))
}

/// Returns the SHA-256 of the public key of a certificate.
fn key_hash(identity: &SelfSigned) -> String {
    let pem = std::fs::read_to_string(identity.files().key).expect("the key can be read");
    let key = rcgen::KeyPair::from_pem(&pem).expect("a key");
    let digest = digest::digest(&digest::SHA256, &key.subject_public_key_info());
    BASE64_STANDARD.encode(digest)
}

/// Returns the value of `Available-Dictionary` for a body.
fn hash_of(body: &str) -> String {
    let digest = digest::digest(&digest::SHA256, body.as_bytes());
    format!(":{}:", BASE64_STANDARD.encode(digest))
}

fn start(change: impl FnOnce(&mut EdgeConfig)) -> TestBed {
    start_with(DictionaryScope::Versions, change)
}

fn start_with(scope: DictionaryScope, change: impl FnOnce(&mut EdgeConfig)) -> TestBed {
    let bed = TestBed::with_config(|config| {
        config.forwarding.trusted_proxies = "127.0.0.0/8".parse().expect("a network");
        config.purge.token = Token::new(TOKEN).ok();
        let settings = Settings {
            dictionary: Stated::On(scope),
            ..Settings::default()
        };
        set_site(config, settings, Vec::new());
        change(config);
    });
    bed.origin.otherwise(|request| {
        let digits: String = request
            .path()
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        javascript(digits.parse().unwrap_or(0))
    });
    bed
}

fn get(bed: &TestBed, path: &str, fields: &[(&str, &str)]) -> Answer {
    bed.get_with(path, &[&[TLS, ("accept-encoding", ALL)], fields].concat())
}

/// Requests a path until its response is in a coding with a dictionary.
fn delta(bed: &TestBed, path: &str, fields: &[(&str, &str)]) -> Answer {
    until("the delta is made", || {
        let answer = get(bed, path, fields);
        coding(&answer).starts_with("dc").then_some(answer)
    })
}

/// Requests a path, and waits until the response is a dictionary.
fn learn(bed: &TestBed, path: &str) -> Answer {
    let before = bed.metric("edgeward_dictionaries");
    let answer = get(bed, path, &[]);
    until("the response is a dictionary", || {
        (bed.metric("edgeward_dictionaries") > before).then_some(())
    });
    answer
}

fn coding(answer: &Answer) -> &str {
    answer.header("content-encoding").unwrap_or("none")
}

fn offers(bed: &TestBed, result: &str) -> f64 {
    bed.metric(&format!(
        "edgeward_dictionary_offers_total{{result=\"{result}\"}}"
    ))
}

/// Decodes a body in `dcz` and checks its fields.
fn decoded(answer: &Answer, dictionary: &str) -> String {
    assert_eq!(coding(answer), "dcz");
    assert_eq!(
        answer.field("content-length"),
        answer.body.len().to_string()
    );
    let digest = digest::digest(&digest::SHA256, dictionary.as_bytes());
    assert_eq!(&answer.body[8..40], digest.as_ref());
    let mut context = DCtx::create();
    context.ref_prefix(dictionary.as_bytes()).expect("a prefix");
    let mut body = Vec::with_capacity(1 << 20);
    let frame = &answer.body[40..];
    context.decompress(&mut body, frame).expect("a valid frame");
    String::from_utf8(body).expect("text")
}

#[test]
fn a_client_with_one_version_gets_the_next_one_as_a_delta() {
    let bed = start(|_| {});
    let first = learn(&bed, "/js/app.00000001.js");
    let terms = "match=\"/js/app.*.js\"";
    assert_eq!(first.header("use-as-dictionary"), Some(terms));
    let vary = |answer: &Answer| {
        let lines = answer.headers.iter().filter(|(name, _)| name == "vary");
        lines
            .map(|(_, value)| value.clone())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let expected = "accept-encoding, available-dictionary, sec-fetch-site, sec-fetch-mode";
    assert_eq!(vary(&first), expected);
    let hash = hash_of(&script(1));
    let offer = [("available-dictionary", &*hash)];
    // The first two requests get an ordinary coding: the second one begins to make the delta.
    for _ in 0..2 {
        assert_eq!(coding(&get(&bed, "/js/app.00000002.js", &offer)), "br");
    }
    let answer = delta(&bed, "/js/app.00000002.js", &offer);
    assert!(answer.is_hit(), "{answer:?}");
    assert_eq!(decoded(&answer, &script(1)), script(2));
    let ordinary = get(&bed, "/js/app.00000002.js", &[]);
    assert!(
        answer.body.len() * 5 < ordinary.body.len(),
        "{}",
        answer.body.len()
    );
    assert_eq!(answer.header("etag"), Some("W/\"v2\""));
    assert_eq!(
        answer.header("use-as-dictionary"),
        Some(terms),
        "it is the next dictionary"
    );
    assert_eq!(vary(&answer), expected);
    assert_eq!(offers(&bed, "first"), 1.0);
    assert!(offers(&bed, "used") >= 1.0);
    let saved = bed.metric("edgeward_dictionary_saved_bytes_total");
    assert!(saved >= (script(2).len() - answer.body.len()) as f64);
    // The origin gets no offer.
    let request = bed.origin.last("/js/app.00000002.js").expect("a request");
    assert_eq!(request.header("available-dictionary"), None);
    // The second coding, for a client that knows no other.
    let fields = [("accept-encoding", "dcb"), TLS, offer[0]];
    let answer = until("the delta is made", || {
        let answer = bed.get_with("/js/app.00000002.js", &fields);
        (coding(&answer) == "dcb").then_some(answer)
    });
    assert_eq!(answer.body[..4], *b"\xffDCB");
    assert_eq!(answer.header("etag"), Some("W/\"v2\""));
}

/// Method: the delta is stored, so that only the request decides.
#[test]
fn other_requests_get_no_delta() {
    let bed = start(|_| {});
    learn(&bed, "/js/app.00000001.js");
    let path = "/js/app.00000002.js";
    let (hash, other) = (hash_of(&script(1)), hash_of("other"));
    let offer = ("available-dictionary", &*hash);
    delta(&bed, path, &[offer]);
    let two = format!("{hash}, {hash}");
    let cross = [
        ("sec-fetch-site", "cross-site"),
        ("origin", "https://b.example"),
    ];
    let [site, origin] = cross;
    for (fields, result) in [
        (vec![("available-dictionary", &*other)], "unknown"),
        (vec![("available-dictionary", &*two)], "malformed"),
        (vec![offer, offer], "malformed"),
        (vec![("available-dictionary", "abc")], "malformed"),
        (
            vec![offer, site, origin, ("sec-fetch-mode", "no-cors")],
            "cross-origin",
        ),
        (
            vec![offer, site, origin, ("sec-fetch-mode", "cors")],
            "cross-origin",
        ),
        (vec![offer, ("dictionary-id", "\"x\"")], "id"),
    ] {
        let before = offers(&bed, result);
        let answer = get(&bed, path, &fields);
        assert_eq!((answer.status, coding(&answer)), (200, "br"), "{fields:?}");
        assert_eq!(offers(&bed, result), before + 1.0, "{fields:?}");
    }
    // Without TLS, the response is another object, and it is no dictionary.
    let answer = bed.get_with(path, &[("accept-encoding", ALL), offer]);
    assert_eq!(
        (coding(&answer), answer.header("use-as-dictionary")),
        ("br", None)
    );
    assert_eq!(offers(&bed, "cleartext"), 1.0);
    // Another origin that has the same script.
    let mut client = bed.connect();
    let before = offers(&bed, "unknown");
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: other.example\r\nX-Forwarded-Proto: https\r\n\
         Accept-Encoding: {ALL}\r\nAvailable-Dictionary: {hash}\r\n\r\n"
    ));
    assert_eq!(coding(&client.answer("GET")), "br");
    assert_eq!(offers(&bed, "unknown"), before + 1.0);
    // A URL that the pattern does not match.
    assert_eq!(coding(&get(&bed, "/js/other.2.js", &[offer])), "br");
    assert_eq!(offers(&bed, "pattern"), 1.0);
    for accept in ["gzip, br, zstd", "*", "br, dcz;q=0, dcb;q=0"] {
        let answer = bed.get_with(path, &[TLS, offer, ("accept-encoding", accept)]);
        assert!(!coding(&answer).starts_with("dc"), "{accept}");
    }
    assert!(
        coding(&get(&bed, path, &[offer])) == "dcz",
        "the delta is still there"
    );
}

#[test]
fn a_page_of_another_origin_gets_a_delta_if_the_response_allows_it() {
    let bed = start(|_| {});
    bed.origin.otherwise(|request| {
        let digits: String = request
            .path()
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        javascript(digits.parse().unwrap_or(0)).header("access-control-allow-origin", "*")
    });
    learn(&bed, "/js/app.00000001.js");
    let hash = hash_of(&script(1));
    let fields = [
        ("available-dictionary", &*hash),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-mode", "cors"),
        ("origin", "https://b.example"),
    ];
    delta(&bed, "/js/app.00000002.js", &fields);
    let fields = [fields[0], fields[1], ("sec-fetch-mode", "no-cors")];
    assert_eq!(coding(&get(&bed, "/js/app.00000002.js", &fields)), "br");
}

#[test]
fn conditions_ranges_and_heads_are_answered_as_for_other_codings() {
    let bed = start(|_| {});
    learn(&bed, "/js/app.00000001.js");
    let path = "/js/app.00000002.js";
    let hash = hash_of(&script(1));
    let offer = ("available-dictionary", &*hash);
    let whole = delta(&bed, path, &[offer]);
    for tag in ["\"v2\"", "\"v2~br\""] {
        let answer = get(&bed, path, &[offer, ("if-none-match", tag)]);
        assert_eq!((answer.status, answer.header("etag")), (304, Some(tag)));
        assert!(answer.body.is_empty());
    }
    // A client revalidates what it has decoded, also without the dictionary, or in no coding.
    for fields in [&[offer][..], &[], &[("accept-encoding", "br")]] {
        let condition = ("if-none-match", "W/\"v2\"");
        let answer = bed.get_with(path, &[&[TLS, condition], fields].concat());
        assert_eq!(
            (answer.status, answer.header("etag")),
            (304, Some("\"v2\""))
        );
    }
    let answer = get(&bed, path, &[offer, ("if-none-match", "W/\"v1\"")]);
    assert_eq!((answer.status, answer.body == whole.body), (200, true));
    let range = ("range", "bytes=10-19");
    let answer = get(&bed, path, &[offer, range]);
    assert_eq!((answer.status, answer.text()), (206, &script(2)[10..20]));
    let answer = get(&bed, path, &[offer, range, ("if-range", "W/\"v2\"")]);
    assert_eq!((answer.status, answer.body == whole.body), (200, true));
    let mut client = bed.connect();
    let fields = [TLS, ("accept-encoding", ALL), offer];
    let head = client.request("HEAD", path, &fields, b"");
    assert_eq!((coding(&head), head.body.len()), ("dcz", 0));
    assert_eq!(head.field("content-length"), whole.body.len().to_string());
}

#[test]
fn a_purge_of_the_dictionary_or_of_the_response_ends_the_delta() {
    let bed = start(|_| {});
    let purge = |body: &str| {
        let addr = bed.edge.admin_addr().expect("configured");
        let (token, length) = (format!("Bearer {TOKEN}"), body.len().to_string());
        let fields = [("authorization", &*token), ("content-length", &*length)];
        let answer = Client::connect(addr).request("POST", "/purge", &fields, body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let (old, new) = ("/js/app.00000001.js", "/js/app.00000002.js");
    let hash = hash_of(&script(1));
    let offer = [("available-dictionary", &*hash)];
    for (scope, ends) in [
        (
            format!("{{\"urls\": [\"https://test.example{old}\"]}}"),
            true,
        ),
        (
            "{\"prefixes\": [\"https://test.example/js/app.00000001\"]}".to_owned(),
            true,
        ),
        ("{\"hosts\": [\"test.example\"]}".to_owned(), true),
        ("{\"hosts\": [\"other.example\"]}".to_owned(), false),
    ] {
        get(&bed, old, &[]);
        bed.wait_for_metric("edgeward_dictionaries", 1.0);
        delta(&bed, new, &offer);
        let before = offers(&bed, "unknown");
        purge(&scope);
        let answer = get(&bed, new, &offer);
        assert_eq!(coding(&answer) != "dcz", ends, "{scope}");
        assert_eq!(
            offers(&bed, "unknown"),
            before + f64::from(u8::from(ends)),
            "{scope}"
        );
        if ends {
            // The response itself is a dictionary, too.
            purge(&format!("{{\"urls\": [\"https://test.example{new}\"]}}"));
            bed.wait_for_metric("edgeward_dictionaries", 0.0);
        }
    }
    // After a purge of the response, its next version is not answered by the delta of the old one.
    purge(&format!("{{\"urls\": [\"https://test.example{new}\"]}}"));
    bed.origin.on(new, javascript(3));
    let answer = delta(&bed, new, &offer);
    assert_eq!(decoded(&answer, &script(1)), script(3));
}

/// Method: the path has no version. A POST invalidates the response, and the next version has the same URL.
#[test]
fn a_dictionary_outlives_its_response_at_the_same_url() {
    let bed = start(|_| {});
    bed.origin.on("/app.js", javascript(1));
    let first = learn(&bed, "/app.js");
    assert_eq!(first.header("use-as-dictionary"), Some("match=\"/app.js\""));
    let answer = bed
        .connect()
        .request("POST", "/app.js", &[TLS, ("content-length", "0")], b"");
    assert_eq!(answer.status, 200);
    bed.origin.on("/app.js", javascript(2));
    let hash = hash_of(&script(1));
    let answer = delta(&bed, "/app.js", &[("available-dictionary", &hash)]);
    assert_eq!(decoded(&answer, &script(1)), script(2));
}

#[test]
fn the_terms_of_the_origin_are_honoured() {
    let bed = start(|_| {});
    let terms = "match=\"/a/*\", match-dest=(\"script\"), id=\"one\"";
    bed.origin
        .on("/x.js", javascript(1).header("use-as-dictionary", terms));
    assert_eq!(
        learn(&bed, "/x.js").header("use-as-dictionary"),
        Some(terms)
    );
    let hash = hash_of(&script(1));
    let offer = ("available-dictionary", &*hash);
    let (script_dest, id) = (("sec-fetch-dest", "script"), ("dictionary-id", "\"one\""));
    delta(&bed, "/a/2.js", &[offer, script_dest, id]);
    for (fields, result) in [
        ([offer, ("sec-fetch-dest", "style"), id], "destination"),
        ([offer, script_dest, ("dictionary-id", "\"two\"")], "id"),
    ] {
        assert_eq!(coding(&get(&bed, "/a/2.js", &fields)), "br", "{result}");
        assert_eq!(offers(&bed, result), 1.0);
    }
    // A pattern that the edge does not understand makes no dictionary, and reaches the client.
    let terms = "match=\"/:name\"";
    bed.origin
        .on("/y.js", javascript(3).header("use-as-dictionary", terms));
    assert_eq!(
        get(&bed, "/y.js", &[]).header("use-as-dictionary"),
        Some(terms)
    );
}

#[test]
fn a_stated_pattern_replaces_the_automatic_one() {
    let bed = start_with(DictionaryScope::Pattern("/js/*".into()), |_| {});
    let first = learn(&bed, "/js/one.1.js");
    assert_eq!(first.header("use-as-dictionary"), Some("match=\"/js/*\""));
    let hash = hash_of(&script(1));
    delta(&bed, "/js/two.2.js", &[("available-dictionary", &hash)]);
}

#[test]
fn responses_for_one_user_and_with_no_transform_are_no_dictionaries() {
    let bed = start(|_| {});
    for (path, field) in [
        ("/1.js", ("set-cookie", "a=1")),
        ("/2.js", ("vary", "cookie")),
        ("/3.js", ("cache-control", "max-age=600, no-transform")),
        ("/4.js", ("content-encoding", "gzip")),
    ] {
        let answer = OriginAnswer::ok(script(1))
            .header("content-type", "text/javascript")
            .header("cache-control", "max-age=600");
        bed.origin.on(path, answer.header(field.0, field.1));
        assert_eq!(
            get(&bed, path, &[]).header("use-as-dictionary"),
            None,
            "{path}"
        );
    }
    assert_eq!(bed.metric("edgeward_dictionaries"), 0.0);
}

/// Method: an edge with a disk is replaced, and the response is read from the disk.
#[test]
fn a_response_on_disk_becomes_a_dictionary_when_a_client_gets_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let on_disk = |config: &mut EdgeConfig| {
        let mut disk = DiskConfig::with(DiskSettings::new(folder.path(), ByteSize::mib(64)));
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    };
    let bed = start(on_disk);
    learn(&bed, "/js/app.00000001.js");
    let origin = bed.stop();
    let bed = start(on_disk);
    assert_eq!(bed.metric("edgeward_dictionaries"), 0.0);
    assert!(learn(&bed, "/js/app.00000001.js").is_hit());
    let hash = hash_of(&script(1));
    delta(
        &bed,
        "/js/app.00000002.js",
        &[("available-dictionary", &hash)],
    );
    drop(origin);
}

#[test]
fn more_bodies_than_the_memory_holds_keep_it_within_its_bound() {
    let body = script(1).len() as u64;
    let bed = start(|config| {
        config.compression.dictionary_bytes_max = ByteSize(3 * body);
    });
    for version in 1..9 {
        get(&bed, &format!("/js/app.0000000{version}.js"), &[]);
    }
    bed.wait_for_metric("edgeward_dictionaries", 2.0);
    assert!(bed.metric("edgeward_dictionary_bytes") <= bed.metric("edgeward_dictionary_bytes_max"));
}

/// Method: a page reads one version of a script, then further ones. Before each of them, a client without TLS makes the
/// edge store the delta. Chromium writes its dictionaries in the background, so the first versions may be whole.
#[test]
fn chromium_gets_the_next_version_as_a_delta_in_both_codings() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    for (base, name) in [("zstd", "dcz"), ("br", "dcb")] {
        let identity = SelfSigned::new();
        let bed = start(|config| {
            let mut tls = ListenerConfig::plain(LOOPBACK_ANY_PORT);
            tls.tls = Some(identity.files());
            config.listeners.push(tls);
            config.compression.codings =
                vec![Coding::from_name(base.as_bytes()).expect("a coding")];
        });
        let page = OriginAnswer::ok("<!doctype html><title>page</title>");
        bed.origin.on("/", page.header("cache-control", "no-store"));
        let host = format!("localhost:{}", bed.edge.addrs()[1].port());
        // Chromium stores no dictionaries from servers whose certificate is faulty, also if it ignores the fault.
        let trusted = format!(
            "--ignore-certificate-errors-spki-list={}",
            key_hash(&identity)
        );
        let mut browser = Browser::start_with(&[&trusted]);
        browser.open(&format!("https://{host}/"), 800, "light");
        browser.wait_for("document.title === 'page'");
        let mut load = |version: usize| {
            let path = format!("/js/app.{version:08}.js");
            let text = browser.evaluate(&format!("fetch('{path}').then(it => it.text())"));
            assert_eq!(text, script(version), "{name}");
        };
        load(1);
        let mut version = 1;
        until("the browser gets a delta", || {
            version += 1;
            let hash = hash_of(&script(version - 1));
            let fields = [("host", &*host), ("available-dictionary", &hash)];
            delta(&bed, &format!("/js/app.{version:08}.js"), &fields);
            let used = offers(&bed, "used");
            load(version);
            (offers(&bed, "used") > used).then_some(())
        });
    }
}
