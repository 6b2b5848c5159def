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
            let irregular = (&file.malformed, file.backwards);
            format!("{summary:?} {counts:?} {irregular:?} {problem:?}")
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
    let position = one.bytes().zip(other.bytes()).position(|(a, b)| a != b);
    let position =
        position.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))?;
    let excerpt = |text: &str| {
        let excerpt = text.bytes().skip(position.saturating_sub(200)).take(300);
        String::from_utf8_lossy(&excerpt.collect::<Vec<u8>>()).into_owned()
    };
    Some((excerpt(one), excerpt(other)))
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
    fs::create_dir_all(folder).expect("the folder can be created");
    let paths = logs.iter().enumerate().map(|(n, requests)| {
        let path = folder.join(format!("{n}.log"));
        let mut text = String::new();
        for (url, time, status, bytes) in requests {
            text += &match status {
                0 => format!("junk {url}\n"),
                _ => line(*url, *time, *status, *bytes),
            };
        }
        let mut file = fs::File::create(&path).expect("the file can be written");
        file.write_all(text.as_bytes())
            .expect("the file can be written");
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
        let folder = tempfile::tempdir().expect("the folder can be created");
        let depth = if counts { Depth::Counts } else { Depth::Full };
        let settings = settings(folder.path(), depth);
        let paths = write_logs(&folder.path().join("logs"), &logs);
        let sources = find(&paths).expect("the logs exist");
        let expected = analyze(&sources, &settings, &|_| ()).expect("the analysis succeeds");

        let mut parts = Vec::new();
        for machine in 0..3 {
            let machine_logs: Vec<PathBuf> = paths
                .iter()
                .zip(&machines)
                .filter(|(_, assigned)| **assigned == machine)
                .map(|(path, _)| path.clone())
                .collect();
            if machine_logs.is_empty() {
                continue;
            }
            let out = folder.path().join(format!("{machine}.part"));
            let sources = find(&machine_logs).expect("the logs exist");
            analyze_to_partial(&sources, &settings, &out, &|_| ()).expect("the partial result is written");
            parts.push(out);
        }
        let merged_pair = folder.path().join("two.part");
        if parts.len() == 3 {
            merge_to_partial(&parts[..2], &merged_pair, 2).expect("the partial result is written");
            parts.drain(..2);
            parts.push(merged_pair);
        }
        let merged = merge(&parts, 2, settings.top_max).expect("the partial results can be merged");
        prop_assert_eq!(difference(&summary(merged), &summary(expected)), None);
    }

    /// Method: write a checkpoint after every `every` bytes of logs, so that reading is interrupted many times in
    /// the middle of logs.
    #[test]
    fn an_analysis_with_checkpoints_equals_one_without(
        logs in logs(),
        every in 1u64..200_000,
        counts in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let depth = if counts { Depth::Counts } else { Depth::Full };
        let mut settings = settings(folder.path(), depth);
        // Reading checks for an interruption only every 1024 lines, so the logs need more lines.
        let logs: Logs = logs.iter().map(|log| log.repeat(8)).collect();
        let paths = write_logs(&folder.path().join("logs"), &logs);
        let sources = find(&paths).expect("the logs exist");
        let expected = analyze(&sources, &settings, &|_| ()).expect("the analysis succeeds");
        let checkpoint_folder = folder.path().join("kept");
        settings.checkpoint = Some(Checkpoint { folder: checkpoint_folder.clone(), every: ByteSize(every) });
        let interrupted = analyze(&sources, &settings, &|_| ()).expect("the analysis succeeds");
        prop_assert_eq!(difference(&summary(interrupted), &summary(expected)), None);
        prop_assert!(!checkpoint_folder.exists(), "the checkpoint is removed");
    }
}

/// Returns a partial result of two logs, and its bytes.
fn partial(folder: &Path, depth: Depth) -> (PathBuf, Vec<u8>) {
    let log = (0..900).map(|n| (n % 41, n, 200, n * 7)).collect();
    let logs: Logs = vec![log, vec![(1, 1, 0, 0), (2, 2, 304, 0)]];
    let paths = write_logs(&folder.join("logs"), &logs);
    let out = folder.join("a.part");
    let sources = find(&paths).expect("the logs exist");
    analyze_to_partial(&sources, &settings(folder, depth), &out, &|_| ())
        .expect("the partial result is written");
    let bytes = fs::read(&out).expect("the file can be read");
    (out, bytes)
}

/// Method: change every byte in two ways, and truncate the file to every shorter length.
#[test]
fn a_corrupt_or_truncated_partial_result_is_rejected() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let (_, bytes) = partial(folder.path(), Depth::Counts);
    // The logs have 41 URLs.
    assert_eq!(
        check(bytes.clone()).expect("the partial result is valid"),
        41
    );
    for position in 0..bytes.len() {
        for flip in [1, 0x80] {
            let mut corrupt = bytes.clone();
            corrupt[position] ^= flip;
            assert!(
                check(corrupt).is_err(),
                "byte {position} of {}",
                bytes.len()
            );
        }
        assert!(
            check(bytes[..position].to_vec()).is_err(),
            "cut at {position}"
        );
    }
    // An additional byte moves the end of the file, where the footer is expected, so the footer counts as missing.
    let longer = [&bytes[..], b"x"].concat();
    assert!(matches!(check(longer), Err(PartialError::Truncated { .. })));
}

#[test]
fn a_partial_result_of_version_1_is_still_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/partial-v1.part");
    let analysis = merge(&[path], 1, 3).expect("the partial result is valid");
    let objects = &analysis.objects;
    assert_eq!(
        (objects.requests(), objects.urls(), objects.once()),
        (60, 27, 20)
    );
    assert_eq!(
        (objects.top()[0].requests, objects.storable().bytes),
        (6, 21_010)
    );
    let tally = analysis.tally.expect("a full analysis has a tally");
    assert_eq!(tally.total.bytes, 26_850);
    assert_eq!(
        tally.texts.get(objects.top()[0].fingerprint),
        Some(&b"/2.css"[..])
    );
    assert_eq!(
        analysis
            .sampled
            .expect("a full analysis has a sample")
            .requests,
        60
    );
    assert_eq!(analysis.files[0].machine, "edge-1");
    assert_eq!(analysis.files[0].malformed.examples[0].2, "junk");
}

#[test]
fn partial_results_that_cannot_be_merged_give_different_errors() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let (full, bytes) = partial(folder.path(), Depth::Full);
    let copy = folder.path().join("copy.part");
    fs::write(&copy, &bytes).expect("the file can be written");
    let error = |paths: &[&PathBuf]| {
        let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
        merge(&paths, 1, 10)
            .expect_err("the merge must fail")
            .to_string()
    };
    let twice = error(&[&full, &copy]);
    assert!(twice.contains("the same partial result"), "{twice}");

    let counts = folder.path().join("counts");
    fs::create_dir(&counts).expect("the folder can be created");
    let (counts, _) = partial(&counts, Depth::Counts);
    let differs = error(&[&full, &counts]);
    assert!(differs.contains("--counts"), "{differs}");

    let mut newer = bytes.clone();
    // Byte 8 is the version of the format.
    newer[8] = 2;
    fs::write(&copy, &newer).expect("the file can be written");
    let version = error(&[&copy]);
    assert!(version.contains("format 2"), "{version}");
    fs::write(&copy, &bytes[..bytes.len() / 2]).expect("the file can be written");
    let cut = error(&[&copy]);
    assert!(cut.contains("ends in the middle"), "{cut}");
    fs::write(&copy, "GET / HTTP/1.1").expect("the file can be written");
    let none = error(&[&copy]);
    assert!(none.contains("not a partial result"), "{none}");
}

#[test]
fn a_checkpoint_with_other_options_is_not_continued() {
    let folder = tempfile::tempdir().expect("the folder can be created");
    let logs: Logs = vec![(0..3000).map(|n| (n % 7, n, 200, 5)).collect()];
    let paths = write_logs(&folder.path().join("logs"), &logs);
    let sources = find(&paths).expect("the logs exist");
    let checkpoint_folder = folder.path().join("kept");
    fs::create_dir(&checkpoint_folder).expect("the folder can be created");
    let mut settings = settings(folder.path(), Depth::Full);
    // Only an analysis with checkpoints writes its options into a partial result. This partial result has an empty
    // text instead, which differs from all options.
    let first = checkpoint_folder.join("000001.partial");
    analyze_to_partial(&sources, &settings, &first, &|_| ())
        .expect("the partial result is written");
    settings.checkpoint = Some(Checkpoint {
        folder: checkpoint_folder,
        every: ByteSize::mib(1),
    });
    let error = analyze(&sources, &settings, &|_| ()).expect_err("the options differ");
    assert!(matches!(error, AnalyzeError::Checkpoint(_)), "{error}");
    assert!(error.to_string().contains("other options"), "{error}");
    assert!(first.exists(), "the checkpoint is kept");
}
