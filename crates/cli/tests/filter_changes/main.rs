//! Tests `edgeward filter serve --changes-query` with a publisher process, a database that is changed, and a
//! client that queries the ids.

mod fixture;
#[expect(dead_code, reason = "the tests of the scans use the other functions")]
#[path = "../../../filter/idsync/tests/postgres/server.rs"]
mod postgres;
#[expect(dead_code, reason = "other tests use the other functions")]
#[path = "../whole_cli/run.rs"]
mod run;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use edgeward_filter_client::Answer;
use rusqlite::Connection;
use rustix::process::Signal;

use fixture::{Fixture, Psql, Random, id};
use run::until;

/// The publisher finds new rows by polls of the database. No writer posts ids to it by HTTP. A killed publisher
/// continues from its last position: it publishes the rows that were inserted while it was down, although its scans
/// fail. Only then do clients answer *absent* again.
#[test]
fn new_rows_of_sqlite_are_published_also_after_a_restart() {
    let fixture = Fixture::new();
    let path = fixture.path("shop.db");
    let database = Connection::open(&path).expect("the database file is created");
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE resource (seq INTEGER PRIMARY KEY AUTOINCREMENT, id UUID);",
        )
        .expect("the SQL is valid");
    let insert = |n: u64| {
        let sql = "INSERT INTO resource (id) VALUES (?1)";
        database.execute(sql, [id(n)]).expect("the row is inserted");
    };
    (0..1000).for_each(insert);
    let publisher = || {
        fixture.serve(&[
            &format!("--source=sqlite://{path}"),
            "--query=SELECT id FROM resource",
            "--changes-query=SELECT id, seq FROM resource WHERE seq > ?1 ORDER BY seq",
            "--changes-every=20ms",
            "--look-back=100",
            "--least-share=1",
        ])
    };
    let running = publisher();
    let client = fixture.client(&running, Duration::from_secs(20));
    until("the client has the filter", || {
        let has_row = client.answer(id(1)) == Answer::Maybe;
        (has_row && client.answer(id(2000)) == Answer::Absent).then_some(())
    });
    let find_absent =
        |first: u64| (first..first + 100).find(|n| client.answer(id(*n)) == Answer::Absent);
    let new = find_absent(10_000).expect("one of a hundred ids is absent");
    let new_while_down = find_absent(20_000).expect("one of a hundred ids is absent");
    insert(new);
    until("the client answers maybe for the new row", || {
        (client.answer(id(new)) == Answer::Maybe).then_some(())
    });
    drop((running, client));

    insert(new_while_down);
    // The next scan finds fewer ids than the scan before. `--least-share=1` therefore rejects it.
    let sql = "DELETE FROM resource WHERE seq < 500";
    database.execute(sql, []).expect("the rows are deleted");
    let running = publisher();
    let client = fixture.client(&running, Duration::from_secs(20));
    until("the filter is fresh again", || {
        let answers_absent = (0..100).any(|n| client.answer(id(30_000 + n)) == Answer::Absent);
        for n in [new, new_while_down, 1, 999] {
            assert_ne!(client.answer(id(n)), Answer::Absent, "{n}");
        }
        answers_absent.then_some(())
    });
    until("the scan has failed", || {
        (fixture.count(&running, "scans_failed") > 0).then_some(())
    });
    assert_eq!(fixture.count(&running, "scans"), 0);
    assert!(fixture.count(&running, "changes_polls") > 0);
    // The polls continued from the last position, so they returned only the rows of the look-back and the new rows.
    let changed_ids = fixture.count(&running, "changes_ids");
    assert!((1..=102).contains(&changed_ids), "{changed_ids}");
}

/// A malformed row is counted, logged with its position and skipped; the rows after it are published.
#[test]
fn a_malformed_row_does_not_hide_the_rows_after_it() {
    let fixture = Fixture::new();
    let path = fixture.path("shop.db");
    let database = Connection::open(&path).expect("the database file is created");
    let sql = "PRAGMA journal_mode = WAL;
         CREATE TABLE resource (seq INTEGER PRIMARY KEY AUTOINCREMENT, id UUID);";
    database.execute_batch(sql).expect("the SQL is valid");
    let insert = |id: &str| {
        let sql = "INSERT INTO resource (id) VALUES (?1)";
        database.execute(sql, [id]).expect("the row is inserted");
    };
    (0..1000).for_each(|n| insert(&id(n)));
    let running = fixture.serve(&[
        &format!("--source=sqlite://{path}"),
        "--query=SELECT id FROM resource",
        "--changes-query=SELECT id, seq FROM resource WHERE seq > ?1 ORDER BY seq",
        "--changes-every=20ms",
    ]);
    let client = fixture.client(&running, Duration::from_secs(60));
    let new = until("the client has the filter", || {
        (10_000..10_100).find(|n| client.answer(id(*n)) == Answer::Absent)
    });
    insert("not a uuid");
    insert(&id(new));
    until(
        "the client answers maybe for the row after the malformed row",
        || (client.answer(id(new)) == Answer::Maybe).then_some(()),
    );
    // The malformed row is counted when the poll ends, shortly after the later rows are published.
    until("the malformed row is counted", || {
        (fixture.count(&running, "changes_malformed") > 0).then_some(())
    });
    assert_eq!(fixture.count(&running, "changes_malformed"), 1);
    running.signal(Signal::TERM);
    let (_, _, log) = running.wait_for_end();
    let line = log.lines().find(|line| line.contains("malformed rows"));
    let line = line.unwrap_or_else(|| panic!("no line in {log}"));
    for part in ["rows=1", "position=1001", "shop.db", "not a uuid"] {
        assert!(line.contains(part), "{line}");
    }
}

/// Measures the time from the commit of a row until a client answers *maybe* for it: at most two seconds for 99 % of
/// the rows. Rows are inserted at random moments, some by transactions that commit late. Then the database server
/// crashes, and the client stops answering *absent*. After the restart of the server, a row is inserted. The client
/// answers *absent* again, but not for this row.
#[test]
fn a_row_of_postgresql_is_known_to_clients_within_two_seconds() {
    const ROWS: usize = 300;
    let Some(mut server) = postgres::Server::start() else {
        return;
    };
    let mut random = Random::seeded();
    server.sql(
        "CREATE TABLE resource (id uuid PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT now());
         CREATE INDEX ON resource (created_at);
         INSERT INTO resource (id) SELECT md5(i::text)::uuid FROM generate_series(1, 2000) i",
    );
    let fixture = Fixture::new();
    let running = fixture.serve(&[
        &format!("--source={}", server.address()),
        "--query=SELECT id FROM resource",
        "--changes-query=SELECT id, created_at FROM resource WHERE created_at > $1 ORDER BY created_at",
        "--changes-every=500ms",
        "--look-back=5s",
    ]);
    let max_staleness = Duration::from_secs(4);
    let client = fixture.client(&running, max_staleness);
    until("the client has the filter", || {
        let answers_absent = (0..100).any(|n| client.answer(id(n)) == Answer::Absent);
        answers_absent.then_some(())
    });
    let (mut psql, mut slow_psql) = (Psql::of(&server), Psql::of(&server));
    let (mut unpublished, mut latencies) = (VecDeque::new(), Vec::new());
    let (mut next, mut inserted, mut late_commits) = (1_000_000, 0, 0);
    // The row that the open transaction has inserted, and the time at which this transaction commits.
    let mut open_transaction: Option<(u64, Instant)> = None;
    let mut insert_at = Instant::now();
    let deadline = Instant::now() + Duration::from_secs(180);
    while latencies.len() < ROWS {
        assert!(Instant::now() < deadline, "{} of {ROWS}", latencies.len());
        if inserted < ROWS && Instant::now() >= insert_at {
            insert_at = Instant::now() + Duration::from_millis(random.below(60));
            // Selects a row that is not a false positive of the filter.
            let row = until("the client is fresh", || {
                (next..next + 100).find(|n| client.answer(id(*n)) == Answer::Absent)
            });
            next = row + 1;
            let insert = format!("INSERT INTO resource (id) VALUES ('{}');", id(row));
            if open_transaction.is_none() && inserted % 10 == 0 {
                slow_psql.execute(&format!("BEGIN; {insert}"));
                let commit_at = Instant::now() + Duration::from_millis(200 + random.below(1500));
                open_transaction = Some((row, commit_at));
            } else {
                let before = Instant::now();
                psql.execute(&insert);
                unpublished.push_back((row, before));
            }
            inserted += 1;
        }
        if let Some((row, commit_at)) = open_transaction
            && Instant::now() >= commit_at
        {
            let before = Instant::now();
            slow_psql.execute("COMMIT;");
            unpublished.push_back((row, before));
            (open_transaction, late_commits) = (None, late_commits + 1);
        }
        unpublished.retain(|(row, since)| {
            let is_published = client.answer(id(*row)) == Answer::Maybe;
            if is_published {
                latencies.push(since.elapsed());
            }
            !is_published
        });
        std::thread::park_timeout(Duration::from_millis(1));
    }
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies[(latencies.len() * percent).div_ceil(100) - 1];
    eprintln!(
        "{ROWS} rows, {late_commits} of them committed late: known after p50 {:?}, p90 {:?}, p99 {:?}, max {:?}",
        percentile(50),
        percentile(90),
        percentile(99),
        percentile(100)
    );
    assert!(late_commits > 5, "{late_commits}");
    // On a busy machine one pause of the publisher delays many rows.
    assert!(
        percentile(50) <= Duration::from_secs(2) && percentile(99) <= Duration::from_secs(30),
        "{:?}, {:?}",
        percentile(50),
        percentile(99)
    );

    drop((psql, slow_psql));
    server.crash();
    until("no id is answered absent any more", || {
        let answers_absent = (0..100).any(|n| client.answer(id(n)) == Answer::Absent);
        (!answers_absent).then_some(())
    });
    assert!(fixture.count(&running, "changes_failed") > 0);
    server.restart();
    let row = next + 1000;
    server.sql(&format!("INSERT INTO resource (id) VALUES ('{}')", id(row)));
    until("absent ids are answered absent again", || {
        // The row is queried last. A client that has just answered absent for other ids has a fresh filter, so its
        // answer for the row comes from this filter.
        let answers_absent = (0..100).any(|n| client.answer(id(n)) == Answer::Absent);
        let is_row_absent = client.answer(id(row)) == Answer::Absent;
        (answers_absent && !is_row_absent).then_some(())
    });
}

#[test]
fn invalid_options_of_polls_get_an_error_with_a_hint() {
    let fixture = Fixture::new();
    let path = fixture.path("shop.db");
    let database = Connection::open(&path).expect("the database file is created");
    let sql = "CREATE TABLE resource (seq INTEGER PRIMARY KEY, id UUID)";
    database.execute_batch(sql).expect("the SQL is valid");
    let (state, source) = (fixture.path("state"), format!("sqlite://{path}"));
    let query = "--query=SELECT id FROM resource";
    let changes = "--changes-query=SELECT id, seq FROM resource WHERE seq > ? ORDER BY seq";
    // With `--covered-by=changes`, the polls ensure that the filter has all ids. It therefore needs a changes query.
    for (source, extra, expected) in [
        ("ids.txt", &[query, changes][..], "needs a database"),
        (&source, &[query, "--covered-by=changes"], "needs polls"),
        (&source, &[query, changes, "--look-back=5s"], "is a number"),
        (&source, &[query, changes, "--changes-every=1us"], "10ms"),
        (
            &source,
            &[query, "--changes-query=SELECT 1, 2"],
            "one parameter",
        ),
    ] {
        let (source, state) = (format!("--source={source}"), format!("--state={state}"));
        let mut all = vec!["filter", "serve", "--set=s", "--unsigned", &source, &state];
        all.push("--listen=127.0.0.1:0");
        all.extend_from_slice(extra);
        let output = run::output(&all);
        let printed = run::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(expected), "{printed}");
        assert!(printed.contains("hint"), "{printed}");
    }
}
