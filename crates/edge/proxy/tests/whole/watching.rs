//! The samples that a watcher gets of the requests.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::TestBed;
use edgeward_policy::KeySample;
use edgeward_proxy::watch::{
    FinishedRequest, Progress, SampledText, Samples, Watcher, WatcherFacts,
};
use edgeward_testkit::{Answer, Gate};
use edgeward_types::ByteSize;

/// Keeps all requests.
#[derive(Debug, Default)]
struct Recorder(Mutex<(Vec<FinishedRequest>, Progress)>);

impl Watcher for Recorder {
    fn observe(&self, batch: &mut Vec<FinishedRequest>, progress: &Progress) {
        let mut kept = self.0.lock().expect("no test panics in it");
        kept.0.append(batch);
        kept.1.clone_from(progress);
    }

    fn samples(&self) -> Samples {
        Samples {
            keys: KeySample {
                below: u64::MAX,
                large_log2: 63,
            },
            texts_one_in: 1,
        }
    }

    fn report(&self) -> serde_json::Value {
        let progress = &self.0.lock().expect("no test panics in it").1;
        let ended = progress.of_objects.requests + progress.others.requests;
        serde_json::json!({ "what_if": { "ended": ended }, "top": "/secret" })
    }

    fn facts(&self) -> WatcherFacts {
        WatcherFacts {
            samples: 7,
            ..WatcherFacts::default()
        }
    }
}

/// Runs requests at an edge, stops it, and returns what the watcher has got.
fn watched(requests: impl FnOnce(&TestBed)) -> (Vec<FinishedRequest>, Progress) {
    let recorder = Arc::new(Recorder::default());
    let watcher: Arc<dyn Watcher> = Arc::clone(&recorder) as _;
    let bed = TestBed::with_config(|config| {
        config.workers = NonZeroUsize::MIN; // so that the samples are in the order of the requests
        config.hot.capacity = ByteSize::mib(4);
        config.watcher = Some(watcher);
    });
    bed.origin
        .otherwise(|_| Answer::ok("page").header("cache-control", "max-age=600"));
    requests(&bed);
    drop(bed);
    let mut kept = recorder.0.lock().expect("no test panics in it");
    std::mem::take(&mut *kept)
}

/// Method: pairs of a miss and a hit. A body of unknown length, a variant, and a body that is larger than memory, which
/// is no hit, are among them.
#[test]
fn a_miss_and_a_hit_are_seen_with_the_same_object() {
    let (seen, progress) = watched(|bed| {
        let fresh = |answer: Answer| answer.header("cache-control", "max-age=600");
        bed.origin.on("/plain", fresh(Answer::ok("0123456789")));
        bed.origin
            .on("/chunked", fresh(Answer::ok("0123456789").chunked(4)));
        bed.origin.on(
            "/varies",
            fresh(Answer::ok("0123456789")).header("vary", "accept-language"),
        );
        bed.origin
            .on("/large", fresh(Answer::ok("0123456789".repeat(500_000))));
        for path in ["/plain", "/chunked", "/varies", "/large"] {
            for is_hit in [false, path != "/large"] {
                assert_eq!(bed.get(path).is_hit(), is_hit, "{path}");
            }
        }
    });
    assert_eq!(seen.len(), 8);
    for (pair, path) in seen
        .chunks(2)
        .zip(["/plain", "/chunked", "/varies", "/large"])
    {
        let (first, second) = (pair[0].object, pair[1].object);
        let (first, second) = (first.expect("an object"), second.expect("an object"));
        assert_eq!(first.key, second.key, "{path}");
        assert_eq!(first.length, second.length, "{path}");
        assert!(
            first.charge_bytes.abs_diff(second.charge_bytes) <= 256,
            "{first:?} {second:?}"
        );
        assert!(first.charge_bytes > first.length + 100, "{first:?}");
        // The response has aged while it came from the origin.
        let lifetimes = Duration::from_secs(590)..=Duration::from_secs(600);
        assert!(lifetimes.contains(&first.lifetime), "{first:?}");
        assert_eq!(pair[0].outcome, "uri-miss");
        assert_eq!(pair[1].class, if path == "/large" { "miss" } else { "hit" });
        let texts = pair.iter().filter_map(|seen| seen.text.as_deref());
        assert!(texts.map(|text| &*text.target).eq([path; 2]));
    }
    let tally = progress.of_objects;
    assert_eq!((tally.requests, tally.hits), (8, 3));
    assert_eq!((tally.bytes, tally.hit_bytes), (60 + 10_000_000, 30));
    assert_eq!(progress.others.requests, 0);
}

#[test]
fn a_request_that_the_cache_cannot_answer_has_no_object() {
    let (seen, progress) = watched(|bed| {
        bed.origin.on(
            "/private",
            Answer::ok("page").header("cache-control", "no-store"),
        );
        bed.get("/private");
        let mut client = bed.connect();
        client.request("POST", "/", &[("content-length", "0")], b"");
    });
    let objects = seen.iter().filter_map(|seen| seen.object);
    assert_eq!((seen.len(), objects.count()), (2, 0));
    assert_eq!(progress.of_objects.requests, 0);
    assert_eq!(progress.others.requests, 2);
    assert!(progress.others.bytes > 0, "{progress:?}");
}

/// Method: HEAD, a condition that holds, and a body that breaks off, each with a response of unknown length.
#[test]
fn a_response_whose_length_stays_unknown_has_no_object() {
    let (seen, progress) = watched(|bed| {
        let answer = || {
            let answer = Answer::ok("0123456789").chunked(4).header("etag", "\"a\"");
            answer.header("cache-control", "max-age=600")
        };
        bed.origin.on("/same", answer());
        bed.origin.on("/cut", answer().close_at(4));
        bed.origin.on("/head", answer());
        let same = bed.get_with("/same", &[("if-none-match", "\"a\"")]);
        assert_eq!(same.status, 304);
        let mut client = bed.connect();
        client.send_head("GET", "/cut", &[]);
        // 200, or 502 if the origin's body breaks off before the head is sent.
        client.head();
        drop(client);
        for _ in 0..2 {
            let mut client = bed.connect();
            client.request("HEAD", "/head", &[], b"");
        }
        bed.wait_until("the requests end", |status| status["what_if"]["ended"] == 4);
        assert!(bed.get("/same").is_hit());
    });
    let lengths: Vec<_> = seen
        .iter()
        .map(|seen| seen.object.map(|object| object.length))
        .collect();
    // A body that ended before its request has its whole length, but none has a part of it.
    assert_eq!(lengths.len(), 5);
    assert!(
        lengths
            .iter()
            .all(|length| matches!(length, None | Some(10))),
        "{lengths:?}"
    );
    assert_eq!(lengths[4], Some(10));
    let ended = progress.others.requests + progress.of_objects.requests;
    assert_eq!(ended, 5);
}

/// Method: one request waits for the origin while others end.
#[test]
fn a_request_is_counted_at_its_end() {
    let gate = Gate::new();
    let (_, progress) = watched(|bed| {
        bed.origin.on(
            "/slow",
            Answer::ok("page")
                .header("cache-control", "no-store")
                .wait_before_head(&gate),
        );
        let mut client = bed.connect();
        client.send_head("GET", "/slow", &[]);
        gate.wait_reached(1);
        bed.get("/a");
        bed.get("/a");
        bed.wait_until("both requests are counted", |status| {
            status["what_if"]["ended"] == 2
        });
        gate.open();
        client.answer("GET");
        bed.wait_until("all are counted", |status| status["what_if"]["ended"] == 3);
    });
    let Progress {
        of_objects, others, ..
    } = progress;
    assert_eq!((of_objects.requests, others.requests), (2, 1));
}

/// The text has the facts of the head that the client got, and no credentials.
#[test]
fn a_text_has_the_fields_that_matter_to_a_cache() {
    let (seen, _) = watched(|bed| {
        let answer = Answer::ok("page").header("set-cookie", "secret=1");
        bed.origin
            .on("/set", answer.header("content-type", "text/css"));
        bed.get_with(
            "/set",
            &[("cookie", "secret=2"), ("cache-control", "no-cache")],
        );
        bed.get("/a?b=c");
        bed.get("/a?b=c");
    });
    let texts: Vec<&SampledText> = seen
        .iter()
        .filter_map(|seen| seen.text.as_deref())
        .collect();
    assert_eq!(texts.len(), 3);
    let value = |text: &SampledText, name: &str| {
        let mut fields = text.request.iter().chain(text.response.iter().flatten());
        let found = fields.find(|(field, _)| field == name);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    assert_eq!(value(texts[0], "set-cookie").as_deref(), Some(""));
    assert_eq!(value(texts[0], "cookie").as_deref(), Some(""));
    assert_eq!(texts[0].detail.as_deref(), Some("set-cookie"));
    assert_eq!(value(texts[0], "content-type").as_deref(), Some("text/css"));
    assert_eq!(
        value(texts[0], "cache-control").as_deref(),
        Some("no-cache")
    );
    assert_eq!(
        value(texts[1], "cache-control").as_deref(),
        Some("max-age=600")
    );
    assert_eq!(&*texts[1].target, "/a?b=c");
    assert_eq!((&texts[1].host, texts[1].site), (&texts[2].host, Some(0)));
    // The fast path has answered the third request.
    assert_eq!(
        value(texts[2], "cache-control").as_deref(),
        Some("max-age=600")
    );
    assert!(texts.iter().all(|text| text.is_get));
}

/// Method: a body in one piece, the same body in chunks, a body that is too long, a part of a body, and a HEAD.
#[test]
fn a_text_has_the_hash_of_a_whole_body() {
    let body = "0123456789".repeat(20_000);
    let (seen, _) = watched(|bed| {
        bed.origin.on("/whole", Answer::ok(body.clone()));
        bed.origin
            .on("/chunked", Answer::ok(body.clone()).chunked(9000));
        bed.origin.on("/long", Answer::ok(body.repeat(2)));
        bed.origin
            .on("/cut", Answer::ok(body.clone()).close_at(100_000));
        for path in ["/whole", "/chunked", "/long"] {
            bed.get(path);
        }
        let mut client = bed.connect();
        client.request("HEAD", "/whole", &[], b"");
        let mut client = bed.connect();
        client.send_head("GET", "/cut", &[]);
        client.head();
        drop(client);
        bed.wait_until("the requests end", |status| status["what_if"]["ended"] == 5);
    });
    let hashes: Vec<_> = seen
        .iter()
        .map(|seen| seen.text.as_ref().map(|text| (text.is_get, text.body_hash)))
        .collect();
    let hash = Some(edgeward_types::xxh3::xxh3_64(body.as_bytes()));
    assert_eq!(hashes[..2], [Some((true, hash)); 2]);
    assert_eq!(
        hashes[2..],
        [Some((true, None)), Some((false, None)), Some((true, None))]
    );
}

/// `/status` needs no token at any address, so it has no URLs.
#[test]
fn status_and_metrics_have_the_results_of_the_watcher_without_urls() {
    watched(|bed| {
        let status = bed.status();
        assert!(status["what_if"]["ended"].is_u64());
        assert!(!status.to_string().contains("/secret"), "{status}");
        assert_eq!(bed.metric("edgeward_whatif_samples_total"), 7.0);
    });
}
