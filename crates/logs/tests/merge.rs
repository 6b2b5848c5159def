//! Compares merged partial results, and analyses with checkpoints, with one analysis of all logs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use edgeward_analysis::wire::Writer;
use edgeward_logs::{
    Analysis, AnalyzeError, Checkpoint, Depth, FingerprintBits, PartialError, Settings, analyze,
    analyze_to_partial, check, find, merge, merge_to_partial,
};
use edgeward_types::ByteSize;

fn settings(folder: &Path, depth: Depth) -> Settings {
    Settings {
        depth,
        format: None,
        names: Default::default(),
        query: Default::default(),
        fingerprints: FingerprintBits::B64,
        threads: 2,
        memory: ByteSize::mib(16),
        temp_folder: folder.to_owned(),
        temp_max: ByteSize(u64::MAX),
        line_bytes_max: 1 << 20,
        zstd_window_log_max: 27,
        top_max: 10,
        checkpoint: None,
    }
}

/// Formats all results of an analysis as text, for a comparison.
fn summary(analysis: Analysis) -> String {
    let mut wire = Writer::new();
    if let Some(tally) = &analysis.tally {
        tally.write_to(&mut wire);
    }
    let mut objects = vec![
        analysis.objects.urls(),
        analysis.objects.requests(),
        analysis.objects.once(),
    ];
    for (requests, urls) in analysis.objects.popularity().rows() {
        objects.extend([requests, urls]);
    }
    let mut files = analysis.files;
    files.sort_by(|a, b| a.label.cmp(&b.label));
    let files: Vec<String> = files
        .iter()
        .map(|file| {
            let problem = file.problem.as_ref().map(|p| (p.to_string(), p.hint()));
            let summary = (&file.label, &file.machine, file.compression, file.format);
            let counts = (file.lines, file.requests, file.passed_over);
            let order = (&file.malformed, file.backwards);
            format!("{summary:?} {counts:?} {order:?} {problem:?}")
        })
        .collect();
    format!(
        "{objects:?} {:?} {:?} {:?} {:?} {:?} {files:#?}",
        analysis.objects.storable(),
        analysis.objects.sizes(),
        analysis.objects.top(),
        wire.bytes(),
        analysis.sampled,
    )
}

/// Returns the text around the first difference.
fn difference(one: &str, other: &str) -> Option<(String, String)> {
    let at = one.bytes().zip(other.bytes()).position(|(a, b)| a != b);
    let at = at.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))?;
    let near = |text: &str| {
        let near = text.bytes().skip(at.saturating_sub(200)).take(300);
        String::from_utf8_lossy(&near.collect::<Vec<u8>>()).into_owned()
    };
    Some((near(one), near(other)))
}

fn line(url: u64, time: u64, status: u16, bytes: u64) -> String {
    let (minute, second) = (time / 60 % 60, time % 60);
    format!(
        "c - - [17/May/2015:10:{minute:02}:{second:02} +0000] \"GET /{url}.css HTTP/1.1\" {status} {bytes}\n"
    )
}

/// Logs with requests (URL, time, status, bytes). A status of 0 makes a malformed line.
type Logs = Vec<Vec<(u64, u64, u16, u64)>>;

fn logs() -> impl Strategy<Value = Logs> {
    let request = (
        0u64..300,
        0u64..5000,
        prop_oneof![Just(200u16), Just(304), Just(206), Just(0)],
        0u64..10_000,
    );
    prop::collection::vec(prop::collection::vec(request, 0..400), 1..7)
}

fn write_logs(folder: &Path, logs: &Logs) -> Vec<PathBuf> {
    fs::create_dir_all(folder).expect("a folder");
    let paths = logs.iter().enumerate().map(|(n, requests)| {
        let path = folder.join(format!("{n}.log"));
        let mut text = String::new();
        for (url, time, status, bytes) in requests {
            text += &match status {
                0 => format!("junk {url}\n"),
                _ => line(*url, *time, *status, *bytes),
            };
        }
        let mut file = fs::File::create(&path).expect("a file");
        file.write_all(text.as_bytes()).expect("a file");
        path
    });
    paths.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Method: assign each log to one of three machines. Merge two partial results into a partial result, and
    /// then merge it with the third.
    #[test]
    fn merged_results_equal_one_analysis_of_all_logs(
        logs in logs(),
        machines in prop::collection::vec(0usize..3, 7),
        counts in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let depth = if counts { Depth::Counts } else { Depth::Full };
        let settings = settings(folder.path(), depth);
        let paths = write_logs(&folder.path().join("logs"), &logs);
        let whole = analyze(&find(&paths).expect("logs"), &settings, &|_| ()).expect("figures");

        let mut parts = Vec::new();
        for machine in 0..3 {
            let of_machine: Vec<PathBuf> = paths
                .iter()
                .zip(&machines)
                .filter(|(_, of)| **of == machine)
                .map(|(path, _)| path.clone())
                .collect();
            if of_machine.is_empty() {
                continue;
            }
            let out = folder.path().join(format!("{machine}.part"));
            let sources = find(&of_machine).expect("logs");
            analyze_to_partial(&sources, &settings, &out, &|_| ()).expect("a partial result");
            parts.push(out);
        }
        let of_two = folder.path().join("two.part");
        if parts.len() == 3 {
            merge_to_partial(&parts[..2], &of_two, 2).expect("a partial result");
            parts.drain(..2);
            parts.push(of_two);
        }
        let merged = merge(&parts, 2, settings.top_max).expect("they fit");
        prop_assert_eq!(difference(&summary(merged), &summary(whole)), None);
    }

    /// Method: use small intervals between checkpoints, so that reading is interrupted many times in the middle
    /// of logs.
    #[test]
    fn an_analysis_in_rounds_equals_one_without_checkpoints(
        logs in logs(),
        every in 1u64..200_000,
        counts in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let depth = if counts { Depth::Counts } else { Depth::Full };
        let mut settings = settings(folder.path(), depth);
        // The logs must be longer than the number of lines between two checks for an interruption.
        let logs: Logs = logs.iter().map(|log| log.repeat(8)).collect();
        let paths = write_logs(&folder.path().join("logs"), &logs);
        let sources = find(&paths).expect("logs");
        let whole = analyze(&sources, &settings, &|_| ()).expect("figures");
        let kept = folder.path().join("kept");
        settings.checkpoint = Some(Checkpoint { folder: kept.clone(), every: ByteSize(every) });
        let rounds = analyze(&sources, &settings, &|_| ()).expect("figures");
        prop_assert_eq!(difference(&summary(rounds), &summary(whole)), None);
        prop_assert!(!kept.exists(), "the checkpoint is removed");
    }
}

/// Returns a partial result of two logs, and its bytes.
fn partial(folder: &Path, depth: Depth) -> (PathBuf, Vec<u8>) {
    let log = (0..900).map(|n| (n % 41, n, 200, n * 7)).collect();
    let logs: Logs = vec![log, vec![(1, 1, 0, 0), (2, 2, 304, 0)]];
    let paths = write_logs(&folder.join("logs"), &logs);
    let out = folder.join("a.part");
    let sources = find(&paths).expect("logs");
    analyze_to_partial(&sources, &settings(folder, depth), &out, &|_| ()).expect("it is written");
    let bytes = fs::read(&out).expect("just written");
    (out, bytes)
}

/// Method: change every byte in two ways, and truncate the file to every shorter length.
#[test]
fn a_corrupt_or_truncated_partial_result_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, bytes) = partial(folder.path(), Depth::Counts);
    assert_eq!(check(bytes.clone()).expect("it is whole"), 41);
    for at in 0..bytes.len() {
        for flip in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            assert!(check(damaged).is_err(), "byte {at} of {}", bytes.len());
        }
        assert!(check(bytes[..at].to_vec()).is_err(), "cut at {at}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(matches!(check(longer), Err(PartialError::CutShort { .. })));
}

#[test]
fn a_partial_result_of_version_1_is_still_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/partial-v1.part");
    let analysis = merge(&[path], 1, 3).expect("it is whole");
    let objects = &analysis.objects;
    assert_eq!(
        (objects.requests(), objects.urls(), objects.once()),
        (60, 27, 20)
    );
    assert_eq!(
        (objects.top()[0].requests, objects.storable().bytes),
        (6, 21_010)
    );
    let tally = analysis.tally.expect("all figures were wanted");
    assert_eq!(tally.total.bytes, 26_850);
    assert_eq!(
        tally.texts.get(objects.top()[0].fingerprint),
        Some(&b"/2.css"[..])
    );
    assert_eq!(analysis.sampled.expect("and a sample").requests, 60);
    assert_eq!(analysis.files[0].machine, "edge-1");
    assert_eq!(analysis.files[0].malformed.examples[0].2, "junk");
}

#[test]
fn partial_results_that_cannot_be_merged_give_different_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let (full, bytes) = partial(folder.path(), Depth::Full);
    let copy = folder.path().join("copy.part");
    fs::write(&copy, &bytes).expect("a file");
    let error = |paths: &[&PathBuf]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
        merge(&paths, 1, 10).expect_err("it must not").to_string()
    };
    let twice = error(&[&full, &copy]);
    assert!(twice.contains("the same partial result"), "{twice}");

    let counts = folder.path().join("counts");
    fs::create_dir(&counts).expect("a folder");
    let (counts, _) = partial(&counts, Depth::Counts);
    let differs = error(&[&full, &counts]);
    assert!(differs.contains("--counts"), "{differs}");

    let mut newer = bytes.clone();
    newer[8] = 2;
    fs::write(&copy, &newer).expect("a file");
    let version = error(&[&copy]);
    assert!(version.contains("format 2"), "{version}");
    fs::write(&copy, &bytes[..bytes.len() / 2]).expect("a file");
    let cut = error(&[&copy]);
    assert!(cut.contains("ends in the middle"), "{cut}");
    fs::write(&copy, "GET / HTTP/1.1").expect("a file");
    let none = error(&[&copy]);
    assert!(none.contains("not a partial result"), "{none}");
}

#[test]
fn a_checkpoint_with_other_options_is_not_continued() {
    let folder = tempfile::tempdir().expect("a folder");
    let logs: Logs = vec![(0..3000).map(|n| (n % 7, n, 200, 5)).collect()];
    let paths = write_logs(&folder.path().join("logs"), &logs);
    let sources = find(&paths).expect("logs");
    let kept = folder.path().join("kept");
    fs::create_dir(&kept).expect("a folder");
    let mut settings = settings(folder.path(), Depth::Full);
    // A partial result that was not written by an analysis with checkpoints has other options.
    let first = kept.join("000001.partial");
    analyze_to_partial(&sources, &settings, &first, &|_| ()).expect("it is written");
    settings.checkpoint = Some(Checkpoint {
        folder: kept,
        every: ByteSize::mib(1),
    });
    let error = analyze(&sources, &settings, &|_| ()).expect_err("it asks something else");
    assert!(matches!(error, AnalyzeError::Checkpoint(_)), "{error}");
    assert!(error.to_string().contains("other options"), "{error}");
    assert!(first.exists(), "nothing of it is lost");
}
