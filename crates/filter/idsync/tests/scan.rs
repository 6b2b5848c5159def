//! Scans a source in memory that fails after given numbers of rows. The scan must deliver all ids.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edgeward_filter::IdForm;
use edgeward_idsync::{
    Batch, ChangesConnection, Checkpoint, Identity, Ledger, Retry, Scan, ScanConfig, Sink, Source,
    SourceError, SourceFuture, SourceInfo, Value,
};
use proptest::prelude::*;

/// A source with `spans` spans of `rows` rows each, which fails as the test demands. A span is a part of the rows. Its
/// progress is recorded separately.
#[derive(Debug)]
struct FailingSource {
    spans: usize,
    rows: i64,
    /// True to report positions, so that an attempt continues within a span.
    positions: bool,
    /// The number of rows after which each attempt fails; the last entry is for the first attempt. `u64::MAX`: the
    /// attempt cannot connect. When the list is empty, attempts succeed.
    rows_until_failure: Mutex<Vec<u64>>,
    attempts: Mutex<u32>,
    failures_are_transient: bool,
}

impl FailingSource {
    fn new(spans: usize, rows: i64, rows_until_failure: &[u64]) -> Self {
        Self {
            spans,
            rows,
            positions: true,
            rows_until_failure: Mutex::new(rows_until_failure.iter().rev().copied().collect()),
            attempts: Mutex::new(0),
            failures_are_transient: true,
        }
    }

    fn expected(&self) -> BTreeSet<String> {
        let all = self.spans as i64 * self.rows;
        (0..all).map(|id| id.to_string()).collect()
    }
}

impl Source for FailingSource {
    fn label(&self) -> String {
        "a script".to_owned()
    }

    fn query(&self) -> &'static str {
        "SELECT id"
    }

    fn read<'a>(&'a self, sink: &'a Sink) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            *self.attempts.lock().expect("no thread panics") += 1;
            let mut rows_left = self
                .rows_until_failure
                .lock()
                .expect("no thread panics")
                .pop();
            let failure = |is_transient| match is_transient {
                true => SourceError::Lost {
                    label: self.label(),
                    cause: "a failure that the test demands".into(),
                },
                false => SourceError::Query {
                    label: self.label(),
                    cause: "a failure that the test demands".into(),
                },
            };
            if rows_left == Some(u64::MAX) {
                return Err(SourceError::Connect {
                    label: self.label(),
                    cause: "no server".into(),
                    transient: true,
                });
            }
            let info = SourceInfo {
                form: IdForm::Integer,
                equates_texts: false,
                column: "id".to_owned(),
                rows_estimated: Some(self.rows as u64),
            };
            let plan = || {
                (0..self.spans)
                    .map(|n| n.to_string().into_bytes())
                    .collect()
            };
            let attempt = sink.begin(info, plan)?;
            for (number, span) in attempt.ledger.open_spans() {
                let text = String::from_utf8_lossy(&span.bounds).into_owned();
                let first = text.parse::<i64>().expect("the source made these bounds") * self.rows;
                let start = span.position.as_ref().map_or(first, |position| {
                    i64::from_le_bytes(
                        position[..]
                            .try_into()
                            .expect("the source made this position"),
                    )
                });
                let mut builder = attempt.batch_builder(number, "");
                for id in start..first + self.rows {
                    if rows_left == Some(0) {
                        return Err(failure(self.failures_are_transient));
                    }
                    rows_left = rows_left.map(|rows| rows - 1);
                    if builder.add_row(Value::Integer(id))? {
                        let next = self.positions.then(|| (id + 1).to_le_bytes().to_vec());
                        sink.send(builder.take_batch(next)).await?;
                    }
                }
                sink.send(builder.finish()).await?;
            }
            Ok(())
        })
    }

    fn connect_changes<'a>(&'a self, _: &'a str) -> SourceFuture<'a, Box<dyn ChangesConnection>> {
        unreachable!("no test of this file polls changes")
    }
}

fn config() -> ScanConfig {
    ScanConfig {
        batch_ids: 7,
        batches_ahead: 2,
        retry: Retry {
            first: Duration::ZERO,
            longest: Duration::ZERO,
            give_up_after: Duration::from_secs(600),
        },
        ..ScanConfig::default()
    }
}

fn add_ids(batch: &Batch, ids: &mut BTreeSet<String>) {
    ids.extend(
        batch
            .ids()
            .map(|id| String::from_utf8_lossy(id).into_owned()),
    );
}

fn read_all(scan: &mut Scan) -> Result<BTreeSet<String>, SourceError> {
    let mut ids = BTreeSet::new();
    while let Some(batch) = scan.next_batch()? {
        add_ids(&batch, &mut ids);
    }
    Ok(ids)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All ids are delivered, whichever rows the attempts fail at, with positions or without. With positions,
    /// the progress counts each row once.
    #[test]
    fn all_ids_are_delivered_despite_failures(
        spans in 1usize..12,
        rows in 0i64..60,
        rows_until_failure in prop::collection::vec(0u64..200, 0..6),
        positions: bool,
    ) {
        let source = FailingSource { positions, ..FailingSource::new(spans, rows, &rows_until_failure) };
        let expected = source.expected();
        let source = Arc::new(source);
        let mut scan = Scan::begin(source.clone(), Ledger::default(), config()).expect("the scan begins");
        prop_assert_eq!(read_all(&mut scan).expect("the scan ends"), expected);
        let progress = scan.progress();
        prop_assert_eq!(progress.spans, (spans, spans));
        let attempts = u64::from(*source.attempts.lock().expect("no thread panics"));
        prop_assert_eq!(progress.interruptions, attempts - 1);
        if positions {
            prop_assert_eq!(progress.rows, spans as u64 * rows as u64);
        }
    }

    /// Method: end a scan after some batches, as if the program were killed, and continue from the checkpoint. The
    /// checkpoint and the last run together have all ids.
    #[test]
    fn the_next_run_continues_from_a_checkpoint(
        spans in 1usize..6,
        rows in 0i64..60,
        batches_until_kill in prop::collection::vec(0usize..12, 0..4),
        positions: bool,
    ) {
        let folder = tempfile::tempdir().expect("the folder is created");
        let path = folder.path().join("scan");
        let mut batches_until_kill = batches_until_kill.into_iter();
        loop {
            let source = FailingSource { positions, ..FailingSource::new(spans, rows, &[]) };
            let number = |id: &String| id.parse().expect("the id is a number");
            let expected: BTreeSet<u64> = source.expected().iter().map(number).collect();
            let mut ids = BTreeSet::new();
            let mut each = |hashes: &[u64]| ids.extend(hashes.iter().copied());
            let identity = Identity::new(&["a script"]);
            // The scan begins at time 0.
            let (mut checkpoint, resumed) = Checkpoint::open(&path, identity, 0).expect("the file opens");
            checkpoint.hashes(&mut each).expect("the file is readable");
            let mut scan = Scan::begin(Arc::new(source), resumed.ledger, config()).expect("the scan begins");
            checkpoint.begin(scan.source_info().form, &scan.ledger()).expect("the file is written");
            let mut batches = batches_until_kill.next();
            let was_killed = loop {
                if batches == Some(0) {
                    break true;
                }
                batches = batches.map(|left| left - 1);
                let Some(batch) = scan.next_batch().expect("the source does not fail") else {
                    break false;
                };
                // In this test the hash of an id is its number.
                let number = |id| String::from_utf8_lossy(id).parse().expect("the id is a number");
                let hashes: Vec<u64> = batch.ids().map(number).collect();
                ids.extend(&hashes);
                checkpoint.append(&batch.progress, &hashes).expect("the file is written");
            };
            if !was_killed {
                prop_assert_eq!(ids, expected);
                break;
            }
        }
    }
}

#[test]
fn an_error_before_the_scan_begins_is_not_retried() {
    let source = Arc::new(FailingSource::new(1, 5, &[u64::MAX]));
    let error =
        Scan::begin(source.clone(), Ledger::default(), config()).expect_err("no server is running");
    assert!(matches!(error, SourceError::Connect { .. }), "{error}");
    assert_eq!(*source.attempts.lock().expect("no thread panics"), 1);
}

#[test]
fn a_permanent_error_ends_the_scan() {
    let source = FailingSource {
        failures_are_transient: false,
        ..FailingSource::new(1, 50, &[20])
    };
    let mut scan =
        Scan::begin(Arc::new(source), Ledger::default(), config()).expect("the scan begins");
    let error = read_all(&mut scan).expect_err("the operation fails");
    assert!(matches!(error, SourceError::Query { .. }), "{error}");
}

#[test]
fn a_scan_fails_after_its_retry_limit() {
    let rows_until_failure = [30, u64::MAX, u64::MAX, u64::MAX];
    for (give_up_after, fails) in [(Duration::ZERO, true), (Duration::from_secs(600), false)] {
        let retry = Retry {
            first: Duration::from_micros(1),
            longest: Duration::from_micros(1),
            give_up_after,
        };
        let config = ScanConfig { retry, ..config() };
        let source = Arc::new(FailingSource::new(1, 50, &rows_until_failure));
        let mut scan = Scan::begin(source, Ledger::default(), config).expect("the scan begins");
        assert_eq!(read_all(&mut scan).is_err(), fails, "{give_up_after:?}");
    }
}

/// While the caller takes no batch, the source stops. It has then read the batches that the caller took, the
/// queue of two batches, and the batch that waits for space. A batch has seven ids.
#[test]
fn a_slow_caller_stops_the_source() {
    let source = Arc::new(FailingSource::new(1, 100_000, &[]));
    let mut scan = Scan::begin(source, Ledger::default(), config()).expect("the scan begins");
    for taken in 1..50 {
        scan.next_batch()
            .expect("the scan delivers a batch")
            .expect("more rows follow");
        let progress = scan.progress();
        assert!(
            progress.rows <= 7 * (taken + 3),
            "{progress:?} after {taken}"
        );
    }
}

#[test]
fn cancelling_or_dropping_a_scan_ends_it() {
    let source = Arc::new(FailingSource::new(1, 100_000, &[]));
    let mut scan =
        Scan::begin(source.clone(), Ledger::default(), config()).expect("the scan begins");
    scan.handle().cancel();
    let error = read_all(&mut scan).expect_err("the operation is cancelled");
    assert!(matches!(error, SourceError::Cancelled), "{error}");
    drop(Scan::begin(source.clone(), Ledger::default(), config()).expect("the scan begins"));
    assert_eq!(Arc::strong_count(&source), 1, "its thread has ended");
}

/// The source estimates 30 rows, but it has 300. At the end, the estimate follows from the completed spans.
#[test]
fn progress_estimates_the_number_of_rows() {
    let source = Arc::new(FailingSource::new(10, 30, &[]));
    let mut scan = Scan::begin(source, Ledger::default(), config()).expect("the scan begins");
    read_all(&mut scan).expect("the scan ends");
    assert_eq!(scan.progress().rows_estimated, Some(300));
}
