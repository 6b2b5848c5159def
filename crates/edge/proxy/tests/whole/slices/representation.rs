//! An origin with a representation that can change, and requests for its ranges.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_proxy::EdgeConfig;
use edgeward_proxy::config::{DiskConfig, Token};
use edgeward_store::disk::DiskSettings;
use edgeward_testkit::{Answer, ScriptedOrigin, pattern_byte};
use edgeward_types::ByteSize;

use crate::support::TestBed;

pub(crate) const SLICE: u64 = 64 << 10;
pub(crate) const LENGTH: u64 = 10 * SLICE + 1000;

pub(crate) fn sliced(config: &mut EdgeConfig) {
    config.ranges.slice_bytes = ByteSize(SLICE);
    config.ranges.read_ahead_slices = 0;
}

/// Returns a configuration with 64 MiB of disk in `folder`, and memory for a few entries but no slice.
pub(crate) fn on_disk(folder: &Path) -> impl FnOnce(&mut EdgeConfig) + use<> {
    let settings = DiskSettings::new(folder, ByteSize::mib(64));
    move |config| {
        sliced(config);
        config.purge.token = Token::new(TOKEN).ok();
        config.hot.capacity = ByteSize::kib(4);
        let mut disk = DiskConfig::with(settings);
        disk.admission = "always".parse().expect("the rule is valid");
        config.disk = Some(disk);
    }
}

pub(crate) const TOKEN: &str = "correct-horse-battery";

/// A representation of [`LENGTH`] bytes that an origin changes by increasing its version.
#[derive(Clone, Default)]
pub(crate) struct Representation {
    pub(crate) version: Arc<AtomicU64>,
    /// Fields of each response, in addition to the entity tag.
    pub(crate) fields: Vec<(&'static str, &'static str)>,
}

impl Representation {
    pub(crate) fn with(fields: &[(&'static str, &'static str)]) -> Self {
        Self {
            version: Arc::default(),
            fields: fields.to_vec(),
        }
    }

    pub(crate) fn cached() -> Self {
        Self::with(&[("cache-control", "max-age=600")])
    }

    pub(crate) fn change(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the bytes of a range of one version.
    pub(crate) fn bytes(version: u64, range: Range<u64>) -> Vec<u8> {
        range.map(|at| pattern_byte(at + version * 17)).collect()
    }

    /// Answers a request as an origin that follows RFC 9110 §13 and §14.
    pub(crate) fn answer(&self, request: &edgeward_testkit::RecordedRequest) -> Answer {
        let version = self.version.load(Ordering::SeqCst);
        let tag = format!("\"v{version}\"");
        let with_fields = |answer: Answer| {
            let answer = answer.header("etag", &tag);
            self.fields
                .iter()
                .fold(answer, |answer, (name, value)| answer.header(name, value))
        };
        if request.header("if-none-match") == Some(&tag) {
            return with_fields(Answer::status(304));
        }
        let is_current = request.header("if-range").is_none_or(|value| value == tag);
        let range = request.header("range").filter(|_| is_current);
        let Some(range) = range.and_then(|range| range.strip_prefix("bytes=")) else {
            return with_fields(Answer::ok(Self::bytes(version, 0..LENGTH)));
        };
        let (first, last) = range.split_once('-').expect("a range has a dash");
        let (first, last): (u64, u64) = if first.is_empty() {
            (LENGTH - last.parse::<u64>().expect("a number"), LENGTH - 1)
        } else {
            let last = last.parse().unwrap_or(u64::MAX);
            (first.parse().expect("a number"), last.min(LENGTH - 1))
        };
        if first >= LENGTH {
            let range = format!("bytes */{LENGTH}");
            return Answer::status(416).header("content-range", &range);
        }
        let part = Answer::ok(Self::bytes(version, first..last + 1)).with_status(206);
        with_fields(part).header("content-range", &format!("bytes {first}-{last}/{LENGTH}"))
    }

    pub(crate) fn serve(&self, origin: &ScriptedOrigin, path: &str) {
        let this = self.clone();
        origin.on_call(path, move |request| this.answer(request));
    }
}

/// Returns an edge whose origin has a [`Representation`] at `/a`.
pub(crate) fn bed_with(representation: &Representation) -> TestBed {
    let bed = TestBed::with_config(sliced);
    representation.serve(&bed.origin, "/a");
    bed
}

pub(crate) fn get_range(bed: &TestBed, range: Range<u64>) -> crate::support::Answer {
    let value = format!("bytes={}-{}", range.start, range.end - 1);
    bed.get_with("/a", &[("range", &value)])
}

/// Requests a range and checks the response.
#[track_caller]
pub(crate) fn expect_range(
    bed: &TestBed,
    version: u64,
    range: Range<u64>,
) -> crate::support::Answer {
    let answer = get_range(bed, range.clone());
    let content = format!("bytes {}-{}/{LENGTH}", range.start, range.end - 1);
    assert_eq!(answer.status, 206, "{answer:?}");
    assert_eq!(answer.header("content-range"), Some(content.as_str()));
    assert!(
        answer.complete && answer.body == Representation::bytes(version, range.clone()),
        "{range:?} of version {version}"
    );
    answer
}

/// Returns the ranges that the origin was asked for.
pub(crate) fn ranges_requested(bed: &TestBed) -> Vec<String> {
    let recorded = bed.origin.recorded();
    recorded
        .iter()
        .map(|request| request.header("range").unwrap_or("none").to_owned())
        .collect()
}

pub(crate) fn slice_value(index: u64) -> String {
    let last = ((index + 1) * SLICE).min(LENGTH) - 1;
    format!("bytes={}-{last}", index * SLICE)
}
