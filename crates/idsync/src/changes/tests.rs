//! Tests which rows polls deliver, with a table in memory.

use proptest::prelude::*;

use super::*;
use crate::Sink;

/// A table in memory. Each row is an id and its number. A test commits a row by adding it here.
#[derive(Debug, Default)]
struct Table(std::sync::Mutex<Vec<(i64, i64)>>);

impl Source for Arc<Table> {
    fn label(&self) -> String {
        "a table".to_owned()
    }

    fn query(&self) -> &'static str {
        ""
    }

    fn read<'a>(&'a self, _: &'a Sink) -> SourceFuture<'a, ()> {
        unreachable!("the tests poll changes only")
    }

    fn follow<'a>(&'a self, _: &'a str) -> SourceFuture<'a, Box<dyn Feed>> {
        Box::pin(async { Ok(Box::new(Self::clone(self)) as Box<dyn Feed>) })
    }
}

impl Feed for Arc<Table> {
    fn form(&self) -> IdForm {
        IdForm::Integer
    }

    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let mut all = self.0.lock().expect("no thread panics").clone();
            all.sort_unstable_by_key(|(_, number)| *number);
            for (id, number) in all {
                if number > after {
                    rows.row(Value::Integer(id), number)?;
                }
            }
            Ok(())
        })
    }
}

fn follow(table: &Arc<Table>, look_back: u64) -> Changes {
    let config = ChangesConfig {
        look_back,
        batch_ids: 3,
        ..ChangesConfig::new("")
    };
    Changes::new(Arc::new(Arc::clone(table)), config, i64::MIN).expect("a runtime")
}

fn poll(changes: &mut Changes) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut each = |batch: Batch| {
        let texts = batch.ids().map(|id| String::from_utf8_lossy(id).parse());
        ids.extend(texts.map(|id| id.unwrap_or(i64::MIN)));
    };
    changes.poll(&mut each).expect("rows");
    ids
}

proptest! {
    /// Method: commit rows out of the order of their numbers, but with delays shorter than the look-back, and poll at
    /// random times. Each id is delivered exactly once.
    #[test]
    fn late_commits_within_the_overlap_are_delivered_once(
        order in prop::collection::vec((0i64..20, prop::bool::ANY), 1..200),
    ) {
        // The delay of a row is the number of later rows that get their numbers before this row is committed.
        let mut commits: Vec<_> = (0..).zip(&order).map(|(n, (delay, poll))| (n + delay, n, *poll)).collect();
        commits.sort_unstable();
        let table = Arc::new(Table::default());
        let mut changes = follow(&table, 21);
        let mut found = Vec::new();
        for (_, n, then_poll) in commits {
            table.0.lock().expect("no thread panics").push((1000 + n, n));
            if then_poll {
                found.extend(poll(&mut changes));
            }
        }
        found.extend(poll(&mut changes));
        found.sort_unstable();
        prop_assert_eq!(found, (0..order.len() as i64).map(|n| 1000 + n).collect::<Vec<_>>());
        prop_assert_eq!(poll(&mut changes), Vec::<i64>::new());
    }
}

/// Method: read number 100 with a look-back of 10. Then commit a row with a number at or below 90, or above 90.
#[test]
fn a_commit_later_than_the_overlap_is_missed() {
    for (late, found) in [(89, vec![]), (90, vec![]), (91, vec![7])] {
        let table = Arc::new(Table::default());
        let mut changes = follow(&table, 10);
        table.0.lock().expect("no thread panics").push((1, 100));
        assert_eq!(poll(&mut changes), [1]);
        table.0.lock().expect("no thread panics").push((7, late));
        assert_eq!(poll(&mut changes), found, "{late}");
    }
}

#[test]
fn after_skipping_only_new_rows_are_delivered() {
    let table = Arc::new(Table::default());
    *table.0.lock().expect("no thread panics") = (0..100).map(|n| (n, n / 2)).collect();
    let mut changes = follow(&table, 1000);
    assert_eq!(changes.skip_to_head().expect("rows").cursor, 49);
    table.0.lock().expect("no thread panics").push((500, 49));
    assert_eq!(poll(&mut changes), [500]);
}

#[test]
fn decreasing_numbers_are_refused() {
    struct Falling;
    impl Feed for Falling {
        fn form(&self) -> IdForm {
            IdForm::Integer
        }
        fn poll<'a>(&'a mut self, _: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
            Box::pin(async move {
                rows.row(Value::Integer(1), 5)?;
                rows.row(Value::Integer(2), 4)
            })
        }
    }
    let mut changes = follow(&Arc::new(Table::default()), 0);
    changes.feed = Some(Box::new(Falling));
    let error = changes.poll(&mut |_| ()).expect_err("unordered");
    assert!(matches!(error, SourceError::Unordered { number: 4 }));
}

/// A connection that fails after `rows_left` rows. `unit` is the unit of the column that orders the rows.
struct FailingConnection {
    table: Arc<Table>,
    rows_left: usize,
    unit: Unit,
}

impl Feed for FailingConnection {
    fn form(&self) -> IdForm {
        IdForm::Integer
    }

    fn unit(&self) -> Unit {
        self.unit
    }

    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let mut all = self.table.0.lock().expect("no thread panics").clone();
            all.sort_unstable_by_key(|(_, number)| *number);
            for (id, number) in all.into_iter().filter(|(_, number)| *number > after) {
                if self.rows_left == 0 {
                    let (label, cause) = (String::new(), "cut".into());
                    return Err(SourceError::Lost { label, cause });
                }
                self.rows_left -= 1;
                rows.row(Value::Integer(id), number)?;
            }
            Ok(())
        })
    }
}

proptest! {
    /// Method: commit rows out of order within the look-back. Between the commits, let connections fail during
    /// a poll, reject batches, and create a new poller at the last cursor. No id is missed, and ids are
    /// delivered twice only after failures.
    #[test]
    fn no_failure_makes_a_poll_miss_an_id(
        order in prop::collection::vec((0i64..20, 0u8..8, 0usize..9), 1..150),
        same in 1i64..4,
    ) {
        let mut commits: Vec<_> = (0..).zip(&order).map(|(n, (delay, act, cut))| (n + delay, n, *act, *cut)).collect();
        commits.sort_unstable();
        let table = Arc::new(Table::default());
        // `same` rows have the same number. The delays, counted in numbers, are then shorter and still within
        // the look-back.
        let mut changes = follow(&table, 21);
        let (mut found, mut troubles) = (Vec::new(), 0);
        for (_, n, act, cut) in commits {
            table.0.lock().expect("no thread panics").push((1000 + n, n / same));
            match act {
                0..=2 => {}
                3 => found.extend(poll(&mut changes)),
                4 => {
                    let cursor = changes.cursor();
                    changes = follow(&table, 21);
                    changes.seek(cursor);
                    troubles += 1;
                }
                _ => {
                    let (rows_left, refuse) = if act == 5 { (usize::MAX, true) } else { (cut, false) };
                    let table = Arc::clone(&table);
                    changes.feed = Some(Box::new(FailingConnection { table, rows_left, unit: Unit::Number }));
                    let mut taken = 0;
                    let polled = changes.poll_while(&mut |batch| {
                        taken += 1;
                        if refuse && taken > cut / 3 {
                            return false;
                        }
                        let texts = batch.ids().map(|id| String::from_utf8_lossy(id).parse());
                        found.extend(texts.map(|id| id.unwrap_or(i64::MIN)));
                        true
                    });
                    troubles += usize::from(polled.is_err());
                    changes.feed = None;
                }
            }
        }
        found.extend(poll(&mut changes));
        let came = found.len();
        found.sort_unstable();
        found.dedup();
        prop_assert_eq!(&found, &(0..order.len() as i64).map(|n| 1000 + n).collect::<Vec<_>>());
        prop_assert!(troubles > 0 || came == found.len());
        prop_assert_eq!(poll(&mut changes), Vec::<i64>::new());
    }
}

/// A row with a time in the future is delivered but does not move the cursor. Later rows with correct times are
/// therefore delivered too. The look-back is computed in the column's unit.
#[test]
fn a_time_in_the_future_hides_no_later_row() {
    let unit = Unit::Time {
        per_second: 1000,
        zero: 1_000_000,
        ahead: Duration::ZERO,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = i64::try_from(now.expect("after 1970").as_millis()).expect("small") - 1_000_000_000;
    let table = Arc::new(Table::default());
    let mut changes = follow(&table, 0);
    changes.config.look_back_time = Duration::from_secs(10);
    let mut poll_times = |row| {
        table.0.lock().expect("no thread panics").push(row);
        let (table, rows_left) = (Arc::clone(&table), usize::MAX);
        changes.feed = Some(Box::new(FailingConnection {
            table,
            rows_left,
            unit,
        }));
        (poll(&mut changes), changes.cursor())
    };
    assert_eq!(poll_times((1, now - 60_000)), (vec![1], now - 60_000));
    assert_eq!(poll_times((2, now + 3_600_000)), (vec![2], now - 60_000));
    assert_eq!(poll_times((3, now - 20_000)), (vec![3], now - 20_000));
    assert_eq!(poll_times((4, now - 29_999)), (vec![4], now - 20_000));
    let none = (vec![], now - 20_000);
    assert_eq!(poll_times((5, now - 30_000)), none, "beyond the look-back");
}

/// A poll of a database that never responds ends after the timeout, and when another thread stops the poll.
#[test]
fn a_poll_without_a_response_ends() {
    struct Silent;
    impl Feed for Silent {
        fn form(&self) -> IdForm {
            IdForm::Integer
        }
        fn poll<'a>(&'a mut self, _: i64, _: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
            Box::pin(std::future::pending())
        }
    }
    let mut changes = follow(&Arc::new(Table::default()), 0);
    changes.config.stall = Duration::from_millis(20);
    changes.feed = Some(Box::new(Silent));
    let error = changes.poll(&mut |_| ()).expect_err("silence");
    assert!(matches!(error, SourceError::Lost { .. }), "{error:?}");
    changes.config.stall = Duration::from_secs(3600);
    changes.feed = Some(Box::new(Silent));
    let stopper = changes.stopper();
    let stopping = std::thread::spawn(move || stopper.stop());
    let error = changes.poll(&mut |_| ()).expect_err("stopped");
    assert!(matches!(error, SourceError::Cancelled), "{error:?}");
    stopping.join().expect("it stopped");
}
