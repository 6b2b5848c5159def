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

    fn connect_changes<'a>(&'a self, _: &'a str) -> SourceFuture<'a, Box<dyn ChangesConnection>> {
        Box::pin(async { Ok(Box::new(Self::clone(self)) as Box<dyn ChangesConnection>) })
    }
}

impl ChangesConnection for Arc<Table> {
    fn form(&self) -> IdForm {
        IdForm::Integer
    }

    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let mut all = self.0.lock().expect("no thread panics").clone();
            all.sort_unstable_by_key(|(_, number)| *number);
            for (id, number) in all {
                if number > after {
                    rows.add_row(Value::Integer(id), number)?;
                }
            }
            Ok(())
        })
    }
}

fn poller(table: &Arc<Table>, look_back: u64) -> ChangesPoller {
    let config = ChangesConfig {
        look_back,
        batch_ids: 3,
        ..ChangesConfig::new("")
    };
    ChangesPoller::new(Arc::new(Arc::clone(table)), config, i64::MIN)
        .expect("the runtime is created")
}

fn poll(changes: &mut ChangesPoller) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut each = |batch: Batch| {
        let texts = batch.ids().map(|id| String::from_utf8_lossy(id).parse());
        ids.extend(texts.map(|id| id.unwrap_or(i64::MIN)));
    };
    changes.poll(&mut each).expect("the poll succeeds");
    ids
}

proptest! {
    /// Method: commit rows out of the order of their numbers, but with delays shorter than the look-back, and poll at
    /// random times. Each id is delivered exactly once.
    #[test]
    fn late_commits_within_the_look_back_are_delivered_once(
        order in prop::collection::vec((0i64..20, prop::bool::ANY), 1..200),
    ) {
        // The delay of a row is the number of later rows that get their numbers before this row is committed.
        let mut commits: Vec<_> = (0..).zip(&order).map(|(n, (delay, poll))| (n + delay, n, *poll)).collect();
        commits.sort_unstable();
        let table = Arc::new(Table::default());
        let mut changes = poller(&table, 21);
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
fn a_commit_behind_the_look_back_is_missed() {
    for (late_number, found) in [(89, vec![]), (90, vec![]), (91, vec![7])] {
        let table = Arc::new(Table::default());
        let mut changes = poller(&table, 10);
        table.0.lock().expect("no thread panics").push((1, 100));
        assert_eq!(poll(&mut changes), [1]);
        table
            .0
            .lock()
            .expect("no thread panics")
            .push((7, late_number));
        assert_eq!(poll(&mut changes), found, "{late_number}");
    }
}

#[test]
fn after_skipping_only_new_rows_are_delivered() {
    let table = Arc::new(Table::default());
    *table.0.lock().expect("no thread panics") = (0..100).map(|n| (n, n / 2)).collect();
    let mut changes = poller(&table, 1000);
    assert_eq!(
        changes.skip_to_head().expect("the poll succeeds").cursor,
        49
    );
    table.0.lock().expect("no thread panics").push((500, 49));
    assert_eq!(poll(&mut changes), [500]);
}

#[test]
fn decreasing_numbers_are_refused() {
    struct DecreasingNumbers;
    impl ChangesConnection for DecreasingNumbers {
        fn form(&self) -> IdForm {
            IdForm::Integer
        }
        fn poll<'a>(&'a mut self, _: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
            Box::pin(async move {
                rows.add_row(Value::Integer(1), 5)?;
                rows.add_row(Value::Integer(2), 4)
            })
        }
    }
    let mut changes = poller(&Arc::new(Table::default()), 0);
    changes.connection = Some(Box::new(DecreasingNumbers));
    let error = changes.poll(&mut |_| ()).expect_err("the numbers decrease");
    assert!(matches!(error, SourceError::Unordered { number: 4 }));
}

/// A connection that fails after `rows_left` rows. `unit` is the unit of the column that orders the rows.
struct FailingConnection {
    table: Arc<Table>,
    rows_left: usize,
    unit: Unit,
}

impl ChangesConnection for FailingConnection {
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
                rows.add_row(Value::Integer(id), number)?;
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
    fn polls_miss_no_id_after_failures(
        order in prop::collection::vec((0i64..20, 0u8..8, 0usize..9), 1..150),
        rows_per_number in 1i64..4,
    ) {
        let mut commits: Vec<_> = (0..)
            .zip(&order)
            .map(|(n, (delay, action, row_limit))| (n + delay, n, *action, *row_limit))
            .collect();
        commits.sort_unstable();
        let table = Arc::new(Table::default());
        // `rows_per_number` rows have the same number. The delays, counted in numbers, are then shorter and
        // still within the look-back.
        let mut changes = poller(&table, 21);
        let (mut found, mut failures) = (Vec::new(), 0);
        for (_, n, action, row_limit) in commits {
            table.0.lock().expect("no thread panics").push((1000 + n, n / rows_per_number));
            // 0 to 2: no poll. 3: a poll. 4: a new poller at the cursor of the old one. 5: a poll whose batches are
            // rejected from some batch on. 6 and 7: a poll whose connection fails after `row_limit` rows.
            match action {
                0..=2 => {}
                3 => found.extend(poll(&mut changes)),
                4 => {
                    let cursor = changes.cursor();
                    changes = poller(&table, 21);
                    changes.seek(cursor);
                    failures += 1;
                }
                _ => {
                    let (rows_left, refuse) = if action == 5 { (usize::MAX, true) } else { (row_limit, false) };
                    let table = Arc::clone(&table);
                    changes.connection = Some(Box::new(FailingConnection { table, rows_left, unit: Unit::Number }));
                    let mut offered_batches = 0;
                    let polled = changes.poll_while(&mut |batch| {
                        offered_batches += 1;
                        if refuse && offered_batches > row_limit / 3 {
                            return false;
                        }
                        let texts = batch.ids().map(|id| String::from_utf8_lossy(id).parse());
                        found.extend(texts.map(|id| id.unwrap_or(i64::MIN)));
                        true
                    });
                    failures += usize::from(polled.is_err());
                    changes.connection = None;
                }
            }
        }
        found.extend(poll(&mut changes));
        let delivered = found.len();
        found.sort_unstable();
        found.dedup();
        prop_assert_eq!(&found, &(0..order.len() as i64).map(|n| 1000 + n).collect::<Vec<_>>());
        prop_assert!(failures > 0 || delivered == found.len());
        prop_assert_eq!(poll(&mut changes), Vec::<i64>::new());
    }
}

/// A row with a time in the future is delivered but does not move the cursor. Later rows with correct times are
/// therefore delivered too. The look-back is computed in the column's unit.
#[test]
fn rows_after_a_time_in_the_future_are_delivered() {
    // Times in milliseconds after 1970-01-12T13:46:40, which is 1,000,000 seconds after 1970.
    let unit = Unit::Time {
        per_second: 1000,
        zero: 1_000_000,
        ahead: Duration::ZERO,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = i64::try_from(now.expect("the clock is after 1970").as_millis())
        .expect("the time fits")
        - 1_000_000_000;
    let table = Arc::new(Table::default());
    let mut changes = poller(&table, 0);
    changes.config.look_back_time = Duration::from_secs(10);
    let mut poll_times = |row| {
        table.0.lock().expect("no thread panics").push(row);
        let (table, rows_left) = (Arc::clone(&table), usize::MAX);
        changes.connection = Some(Box::new(FailingConnection {
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
    let nothing_new = (vec![], now - 20_000);
    assert_eq!(
        poll_times((5, now - 30_000)),
        nothing_new,
        "beyond the look-back"
    );
}

/// A poll of a database that never responds ends after the timeout, and when another thread stops the poll.
#[test]
fn a_poll_without_a_response_ends() {
    struct Silent;
    impl ChangesConnection for Silent {
        fn form(&self) -> IdForm {
            IdForm::Integer
        }
        fn poll<'a>(&'a mut self, _: i64, _: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
            Box::pin(std::future::pending())
        }
    }
    let mut changes = poller(&Arc::new(Table::default()), 0);
    changes.config.stall = Duration::from_millis(20);
    changes.connection = Some(Box::new(Silent));
    let error = changes.poll(&mut |_| ()).expect_err("the timeout expires");
    assert!(matches!(error, SourceError::Lost { .. }), "{error:?}");
    changes.config.stall = Duration::from_secs(3600);
    changes.connection = Some(Box::new(Silent));
    let stopper = changes.stopper();
    let stopping = std::thread::spawn(move || stopper.stop());
    let error = changes.poll(&mut |_| ()).expect_err("the poll is stopped");
    assert!(matches!(error, SourceError::Cancelled), "{error:?}");
    stopping.join().expect("the thread ends");
}
