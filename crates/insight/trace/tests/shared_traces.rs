//! Tests with published traces: the summary of each trace must have the figures of an independent count. The traces are
//! in the folder `shared/traces` beside the checkout. A test without its traces is skipped.

use std::fs::File;
use std::path::{Path, PathBuf};

use edgeward_trace::{QueryRule, ReadOptions, Summary, TraceSummary, open};

/// The expected figures: requests, objects, footprint in bytes, share of one-hit objects in tenths of a percent,
/// sizes in bytes (minimum, p50, p90, p99, maximum), and length in seconds. A figure that is
/// `None` is not compared.
type Expected = (u64, u64, Option<u128>, u64, [u64; 5], Option<u64>);

#[test]
fn published_traces_have_their_published_figures() {
    // The large synthetic traces are read in release builds only: a debug build takes a minute.
    let reads_large = !cfg!(debug_assertions);
    // The file, true if this build reads the file, and the expected figures.
    let table: [(&str, bool, Expected); 6] = [
        (
            "bu98-proxy.tr.zst",
            true,
            (
                66_987,
                36_815,
                Some(279_261_548),
                811,
                [1, 2_722, 16_170, 65_544, 4_092_928],
                None,
            ),
        ),
        (
            "nasa-jul95-10k.tr.zst",
            true,
            (
                8_976,
                803,
                Some(33_972_315),
                402,
                [156, 7_777, 114_688, 517_624, 1_081_049],
                Some(13_183),
            ),
        ),
        (
            "semicomplete-2015-10k.tr.zst",
            true,
            (
                8_911,
                1_212,
                Some(559_229_648),
                531,
                [35, 10_489, 82_859, 4_378_624, 69_192_717],
                Some(298_859),
            ),
        ),
        (
            "akamai-w-web.tr.zst",
            reads_large,
            (
                6_043_111,
                590_127,
                Some(200_524_248_554),
                722,
                [100, 8_133, 839_977, 4_366_199, 1_602_993_023],
                Some(321_168),
            ),
        ),
        (
            "akamai-tc0-download.tr.zst",
            reads_large,
            (
                5_000_000,
                446_148,
                Some(263_242_235_346),
                770,
                [100, 11_829, 296_165, 4_102_031, 4_294_967_295],
                Some(211_856),
            ),
        ),
        (
            "akamai-v-video.tr.zst",
            reads_large,
            (
                5_000_113,
                1_451_542,
                Some(5_309_833_620_212),
                564,
                [100, 588_277, 18_629_086, 24_359_618, 104_323_222],
                Some(321_168),
            ),
        ),
    ];
    for (file, is_read, expected) in table {
        let Some(path) = shared(file).filter(|_| is_read) else {
            continue;
        };
        let got = summarise(&path, ReadOptions::named(file));
        let (requests, objects, footprint, one_hit_tenths, sizes, span) = expected;
        assert_eq!((got.requests, got.objects), (requests, objects), "{file}");
        if let Some(footprint) = footprint {
            assert_eq!(got.footprint_bytes, footprint, "{file}");
        }
        let tenths = (got.one_hit_share() * 1000.0).round() as u64;
        assert_eq!(tenths, one_hit_tenths, "{file}");
        let q = got.sizes.expect("the trace has objects");
        assert_eq!([q.min, q.p50, q.p90, q.p99, q.max], sizes, "{file}");
        if let Some(span) = span {
            let got = got.latest.since(got.earliest).as_secs();
            assert_eq!(got, span, "{file}");
        }
    }
}

/// The raw log and the published trace derived from it have the same figures.
#[test]
fn an_access_log_has_the_figures_of_the_trace_derived_from_it() {
    let (Some(log), Some(trace)) = (
        shared("logs/semicomplete-2015.combined.log.gz"),
        shared("semicomplete-2015-10k.tr.zst"),
    ) else {
        return;
    };
    let mut options = ReadOptions::named("log");
    options.access_log.query = QueryRule::Cut;
    let from_log = summarise(&log, options);
    let from_trace = summarise(&trace, ReadOptions::named("trace"));
    let figures = |s: &TraceSummary| (s.requests, s.objects, s.requested_bytes, s.one_hit_objects);
    assert_eq!(figures(&from_log), figures(&from_trace));
}

fn summarise(path: &Path, options: ReadOptions) -> TraceSummary {
    let file = File::open(path).expect("the file existed before");
    let mut reader = open(file, options).expect("the file is a trace");
    let mut summary = Summary::default();
    while let Some(batch) = reader.next_batch().expect("the input is valid") {
        batch.iter().for_each(|record| summary.add(record));
    }
    summary.finish()
}

fn shared(file: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../..");
    let path = root.join("shared/traces").join(file);
    if !path.exists() {
        eprintln!("skipped: no {}", path.display());
        return None;
    }
    Some(path)
}
