//! Ids added since: a query on a column that only grows, asked again and again.
//!
//! The query gives two columns, an id and a number (or a time), and takes the number after which to
//! begin: `SELECT id, seq FROM resource WHERE seq > $1 ORDER BY seq`.
//!
//! **Numbers are drawn before their rows are committed**, so a row can appear behind one that was
//! already seen: transaction A draws 7, B draws 8 and commits, we see 8, A commits 7. Each poll
//! therefore begins [`ChangesConfig::overlap`] below the highest number seen. A row is missed only
//! if its transaction stays open while the others draw more numbers than that, so the overlap has to
//! cover the longest transaction that writes ids; where the column is a time, it is that long.
//!
//! A poll is one statement and sees one state of the database, however many rows it gives: were a
//! long backlog cut into several statements, rows committed between two of them would lie further
//! back than the overlap reaches. It comes in batches, so that memory is bounded nevertheless.
//! What lies in the overlap is remembered and handed over once.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use edgeward_filter::{IdForm, IdText};
use tokio::runtime::Runtime;

use crate::batch::Batch;
use crate::error::SourceError;
use crate::scan::{Reading, Source};
use crate::value::Value;

/// A connection that answers one query of changes.
pub trait Feed {
    /// What the id's column holds.
    fn form(&self) -> IdForm;

    /// Gives each row with a number above `after` to `rows`, in the order of their numbers.
    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> Reading<'a, ()>;
}

/// How changes are followed.
#[derive(Clone, Debug)]
pub struct ChangesConfig {
    /// The query, with two columns and one parameter (`$1` in PostgreSQL, `?` elsewhere).
    pub query: String,
    /// What the ids are, if not what the column's type says.
    pub form: Option<IdForm>,
    /// Leave out what is no id, and count it, instead of stopping.
    pub skip_malformed: bool,
    /// How far below the highest number a poll begins; microseconds where the column is a time.
    pub overlap: u64,
    /// Ids of a batch.
    pub batch_ids: usize,
}

impl ChangesConfig {
    /// One for this query, with an overlap of 10,000 numbers or 10 ms: to be set for what the
    /// database is used for.
    pub fn new(query: impl Into<String>) -> Self {
        Self {
            query: query.into(),
            form: None,
            skip_malformed: false,
            overlap: 10_000,
            batch_ids: 8192,
        }
    }
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Ids handed over.
    pub ids: u64,
    /// Rows left out because they are no ids.
    pub malformed: u64,
    /// The highest number seen so far: a later run begins here.
    pub cursor: i64,
    /// When the poll began. What was committed before it is handed over, as far as the overlap
    /// covers it.
    pub as_of: SystemTime,
}

/// Follows a source's changes. Blocks; it is not for use inside a runtime.
pub struct Changes {
    source: Arc<dyn Source>,
    config: ChangesConfig,
    runtime: Runtime,
    feed: Option<Box<dyn Feed>>,
    cursor: i64,
    seen: Seen,
}

impl Changes {
    /// Follows `source` from `cursor` on: `i64::MIN` for everything there is.
    pub fn new(
        source: Arc<dyn Source>,
        config: ChangesConfig,
        cursor: i64,
    ) -> Result<Self, SourceError> {
        let runtime = crate::scan::runtime(source.as_ref())?;
        Ok(Self {
            source,
            config,
            runtime,
            feed: None,
            cursor,
            seen: Seen::default(),
        })
    }

    /// Hands what came since the last poll to `each`, in batches.
    ///
    /// After an error the next poll connects anew, begins where this one did and misses nothing;
    /// ids may then come twice.
    pub fn poll(&mut self, each: &mut dyn FnMut(Batch)) -> Result<Polled, SourceError> {
        let as_of = SystemTime::now();
        let overlap = i64::try_from(self.config.overlap).unwrap_or(i64::MAX);
        let after = self.cursor.saturating_sub(overlap);
        let (source, config) = (Arc::clone(&self.source), &self.config);
        let (seen, connected) = (&mut self.seen, self.feed.take());
        let (feed, polled) = self.runtime.block_on(async {
            let mut feed = match connected {
                Some(feed) => feed,
                None => source.follow(&config.query).await?,
            };
            let mut rows = Rows {
                form: config.form.unwrap_or_else(|| feed.form()),
                config,
                overlap,
                seen,
                each,
                batch: Batch::default(),
                last: None,
                ids: 0,
                malformed: 0,
            };
            feed.poll(after, &mut rows).await?;
            rows.flush();
            Ok::<_, SourceError>((feed, (rows.last, rows.ids, rows.malformed)))
        })?;
        // Only a connection that did its work is kept.
        self.feed = Some(feed);
        let (last, ids, malformed) = polled;
        self.cursor = last.map_or(self.cursor, |last| last.max(self.cursor));
        Ok(Polled {
            ids,
            malformed,
            cursor: self.cursor,
            as_of,
        })
    }

    /// Passes over everything there is now, so that the next poll brings what comes later. To be
    /// called before a scan begins, so that nothing falls between the two.
    pub fn skip_to_head(&mut self) -> Result<Polled, SourceError> {
        self.poll(&mut |_| ())
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Changes");
        debug.field("source", &self.source.label());
        debug.field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// Takes the rows of a poll.
pub struct Rows<'a> {
    config: &'a ChangesConfig,
    form: IdForm,
    overlap: i64,
    seen: &'a mut Seen,
    each: &'a mut dyn FnMut(Batch),
    batch: Batch,
    last: Option<i64>,
    ids: u64,
    malformed: u64,
}

impl Rows<'_> {
    /// Takes a row.
    pub fn row(&mut self, id: Value<'_>, number: i64) -> Result<(), SourceError> {
        let no_id = |what| SourceError::NotAnId {
            place: "changes".to_owned(),
            column: "1".to_owned(),
            what,
        };
        if self.last.is_some_and(|last| number < last) {
            return Err(SourceError::Unordered { number });
        }
        self.last = Some(number);
        self.seen
            .forget_up_to(number.saturating_sub(self.overlap.max(0)));
        self.batch.reached.rows += 1;
        let mut room = IdText::default();
        match id.canonical(self.form, &mut room) {
            Ok(id) => {
                if self.seen.is_new(number, id) {
                    self.batch.push(id);
                }
            }
            Err(_) if self.config.skip_malformed => self.batch.reached.malformed += 1,
            Err(what) => return Err(no_id(what)),
        }
        if self.batch.is_full(self.config.batch_ids.max(1)) {
            self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.ids += batch.len() as u64;
        self.malformed += batch.reached.malformed;
        if !batch.is_empty() {
            (self.each)(batch);
        }
    }
}

/// What was handed over within the overlap.
#[derive(Debug, Default)]
struct Seen {
    /// Numbers with the hash of an id, keyed so that nobody can choose ids that collide.
    rows: BTreeSet<(i64, u64)>,
    keys: RandomState,
}

impl Seen {
    fn is_new(&mut self, number: i64, id: &[u8]) -> bool {
        let row = (number, self.keys.hash_one(id));
        if self.rows.len() >= SEEN_MAX {
            return !self.rows.contains(&row);
        }
        self.rows.insert(row)
    }

    fn forget_up_to(&mut self, number: i64) {
        while let Some(first) = self.rows.first()
            && first.0 <= number
        {
            self.rows.pop_first();
        }
    }
}

/// Beyond it, ids of the overlap are handed over again with each poll. About 20 MB.
const SEEN_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Sink;

    /// A table of ids with numbers, some of them not yet visible.
    #[derive(Debug, Default)]
    struct Table(std::sync::Mutex<Vec<(i64, i64)>>);

    impl Source for Arc<Table> {
        fn label(&self) -> String {
            "a table".to_owned()
        }

        fn query(&self) -> &'static str {
            ""
        }

        fn read<'a>(&'a self, _: &'a Sink) -> Reading<'a, ()> {
            unreachable!("only changes are asked for")
        }

        fn follow<'a>(&'a self, _: &'a str) -> Reading<'a, Box<dyn Feed>> {
            Box::pin(async { Ok(Box::new(Self::clone(self)) as Box<dyn Feed>) })
        }
    }

    impl Feed for Arc<Table> {
        fn form(&self) -> IdForm {
            IdForm::Integer
        }

        fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> Reading<'a, ()> {
            Box::pin(async move {
                let mut all = self.0.lock().expect("nobody panics").clone();
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

    fn follow(table: &Arc<Table>, overlap: u64) -> Changes {
        let config = ChangesConfig {
            overlap,
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
        /// Rows are committed in an order that differs from their numbers by less than the
        /// overlap, polls fall anywhere: each id comes, and comes once.
        #[test]
        fn late_commits_within_the_overlap_are_found_once(
            order in prop::collection::vec((0i64..20, prop::bool::ANY), 1..200),
        ) {
            // A row's delay: how many others draw numbers before it is committed.
            let mut commits: Vec<_> = (0..).zip(&order).map(|(n, (delay, poll))| (n + delay, n, *poll)).collect();
            commits.sort_unstable();
            let table = Arc::new(Table::default());
            let mut changes = follow(&table, 21);
            let mut found = Vec::new();
            for (_, n, then_poll) in commits {
                table.0.lock().expect("nobody panics").push((1000 + n, n));
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

    /// Look on both sides of the overlap's edge.
    #[test]
    fn a_commit_later_than_the_overlap_is_missed() {
        for (late, found) in [(89, vec![]), (90, vec![]), (91, vec![7])] {
            let table = Arc::new(Table::default());
            let mut changes = follow(&table, 10);
            table.0.lock().expect("nobody panics").push((1, 100));
            assert_eq!(poll(&mut changes), [1]);
            table.0.lock().expect("nobody panics").push((7, late));
            assert_eq!(poll(&mut changes), found, "{late}");
        }
    }

    #[test]
    fn after_skipping_only_what_is_new_comes() {
        let table = Arc::new(Table::default());
        *table.0.lock().expect("nobody panics") = (0..100).map(|n| (n, n / 2)).collect();
        let mut changes = follow(&table, 1000);
        assert_eq!(changes.skip_to_head().expect("rows").cursor, 49);
        table.0.lock().expect("nobody panics").push((500, 49));
        assert_eq!(poll(&mut changes), [500]);
    }

    #[test]
    fn numbers_that_fall_are_refused() {
        struct Falling;
        impl Feed for Falling {
            fn form(&self) -> IdForm {
                IdForm::Integer
            }
            fn poll<'a>(&'a mut self, _: i64, rows: &'a mut Rows<'_>) -> Reading<'a, ()> {
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
}
