use std::sync::mpsc::channel;

use edgeward_purge::Scope;

use super::*;

const LIMITS: Limits = Limits {
    entries_max: 1000,
    patterns_max: 100,
};
const URL: &[u8] = b"http://a.example/x";
const HEAD: &[u8] = b"surrogate-key: a b\r\n";

fn settings(log: PurgeLog) -> PurgeSettings {
    PurgeSettings {
        log,
        limits: LIMITS,
        random: [7, 8],
    }
}

fn open(path: &Path) -> Purges {
    Purges::open(&settings(PurgeLog::File(path.to_owned()))).expect("the log opens")
}

fn purge_all(purges: &Purges, scopes: &[Scope], soft: bool) -> Result<Stamp, PurgeError> {
    let (sender, done) = channel();
    let scopes = scopes.iter().cloned().map(|scope| Purge { scope, soft });
    purges.purge(scopes.collect(), move |result| {
        sender.send(result).expect("the test waits");
    });
    done.recv().expect("the thread answers")
}

fn purge_tag(purges: &Purges, tag: &str) -> Result<Stamp, PurgeError> {
    purge_all(purges, &[Scope::tag(tag).expect("a tag")], false)
}

/// Returns the newest number after a start with a log whose newest number is `newest`.
fn after_start(newest: Stamp) -> Stamp {
    Stamp(newest.0 + RESERVED)
}

fn verdict(purges: &Purges, since: Stamp) -> Verdict {
    purges.verdict(URL, HEAD, since).0
}

/// Method: the file is copied when the purge is acknowledged. The copy is the file that a crash would leave.
#[test]
fn an_acknowledged_purge_applies_after_a_crash() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let purges = open(&path);
    let before = purges.latest();
    purge_tag(&purges, "a").expect("accepted");
    assert_eq!(verdict(&purges, before), Verdict::Hard);
    let copy = directory.path().join("copy.log");
    std::fs::copy(&path, &copy).expect("copied");
    let after_crash = open(&copy);
    assert_eq!(after_crash.latest(), after_start(purges.latest()));
    assert_eq!(verdict(&after_crash, before), Verdict::Hard);
    assert_eq!(
        verdict(&after_crash, purges.latest()),
        Verdict::Current,
        "an object that was fetched after the purge"
    );
    assert_eq!(
        verdict(&after_crash, after_crash.latest()),
        Verdict::Current
    );
}

#[test]
fn the_tail_of_an_interrupted_write_is_cut_off_and_later_purges_follow_the_last_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let before = open(&path).latest();
    let between = purge_tag(&open(&path), "a").expect("accepted");
    let whole = std::fs::read(&path).expect("read");
    std::fs::write(
        &path,
        [&whole[..], &whole[log::HEADER_BYTES..][..20]].concat(),
    )
    .expect("written");
    purge_all(
        &open(&path),
        &[Scope::prefix("a.example/").expect("a prefix")],
        true,
    )
    .expect("accepted");
    let purges = open(&path);
    assert_eq!(verdict(&purges, before), Verdict::Hard);
    assert_eq!(verdict(&purges, between), Verdict::Soft);
}

/// Method: each byte of a log is changed. Only a length of the last record that looks like an interrupted write leaves
/// the epoch as it was.
#[test]
fn a_damaged_log_is_lost_and_all_objects_count_as_purged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let before = open(&path).latest();
    let between = purge_tag(&open(&path), "other").expect("accepted");
    let whole = std::fs::read(&path).expect("read");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).expect("written");
        let random = [9, 10];
        let log = PurgeLog::File(path.clone());
        let damaged = PurgeSettings {
            random,
            ..settings(log)
        };
        let purges = Purges::open(&damaged).expect("the cache serves");
        let Some(damage) = purges.damage() else {
            let last = whole.len() - 32; // a record with 8 bytes of payload
            assert!((last..last + 2).contains(&at), "{at}");
            continue;
        };
        assert_eq!(std::fs::read(&damage.renamed).expect("renamed"), bytes);
        for since in [before, between] {
            assert_eq!(verdict(&purges, since), Verdict::Hard, "{at}");
        }
        let after = purges.latest();
        assert_eq!(verdict(&purges, after), Verdict::Current);
        purge_tag(&purges, "a").expect("accepted");
        drop(purges);
        let reopened = open(&path);
        assert!(reopened.damage().is_none());
        assert_eq!(verdict(&reopened, after), Verdict::Hard);
    }
}

/// Method: the new process of an upgrade gets a log that was damaged meanwhile.
#[test]
fn a_damaged_log_of_an_earlier_process_is_lost_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let old = open(&path);
    let on_disk = old.latest();
    purge_tag(&old, "a").expect("accepted");
    old.detach();
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[20] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let later = PurgeSettings {
        random: [9, 10],
        ..settings(PurgeLog::Later(old.latest()))
    };
    let new = Purges::open(&later).expect("opens");
    new.attach(path).expect("attached");
    assert!(new.damage().is_some());
    assert_eq!(verdict(&new, on_disk), Verdict::Hard);
    assert_eq!(verdict(&new, new.latest()), Verdict::Current);
}

/// A process that replaces another one may find no log, for example because an operator has removed it.
#[test]
fn a_log_that_is_missing_when_it_is_attached_is_lost_and_the_next_start_opens_the_new_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let old = open(&path);
    let on_disk = purge_tag(&old, "a").expect("accepted");
    old.detach();
    std::fs::remove_file(&path).expect("removed");
    let random = [11, 13];
    let settings = PurgeSettings {
        random,
        ..settings(PurgeLog::Later(old.latest()))
    };
    let new = Purges::open(&settings).expect("opens");
    assert!(new.renewal().is_none());
    new.attach(path.clone()).expect("attached");
    let reason = new.renewal().expect("a reason").to_string();
    assert_eq!(reason, "the log of purges is missing");
    assert_eq!(verdict(&new, on_disk), Verdict::Hard);
    let stored = purge_tag(&new, "a").expect("accepted");
    drop(new);
    let reopened = open(&path);
    assert_eq!(reopened.damage(), None);
    assert_eq!(verdict(&reopened, stored), Verdict::Current);
}

/// Method: one tag is purged repeatedly, until the log exceeds the minimum length for a rewrite.
#[test]
fn a_log_that_is_much_longer_than_its_table_is_rewritten() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let purges = open(&path);
    let before = purges.latest();
    let scopes = vec![Scope::tag("a").expect("a tag"); 1000];
    let mut longest = 0;
    for _ in 0..40 {
        purge_all(&purges, &scopes, false).expect("accepted");
        longest = longest.max(std::fs::metadata(&path).expect("a file").len());
    }
    let latest = purges.latest();
    drop(purges); // joins the thread, which rewrites the file after the acknowledgement
    assert!(longest > COMPACTION_BYTES_MIN / 2);
    assert!(std::fs::metadata(&path).expect("a file").len() < COMPACTION_BYTES_MIN);
    let purges = open(&path);
    assert_eq!(purges.latest(), after_start(latest));
    assert_eq!(verdict(&purges, before), Verdict::Hard);
}

/// Method: the log is open for reading only, and its directory is removed, so no new log can be written.
#[test]
fn a_purge_that_is_not_durable_applies_and_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let purges = open(&path);
    let before = purges.latest();
    let file = LogFile::read_only(&path);
    let mut writer = Writer {
        shared: Arc::clone(&purges.shared),
        header: Header {
            start: before,
            hash_seed: 8,
        },
        fresh: Header {
            start: before,
            hash_seed: 8,
        },
        file: Some(file),
        limits: LIMITS,
        accepted: None,
        detached: None,
        unwritten: None,
        persisted: before,
    };
    directory.close().expect("removed");
    let (sender, done) = channel();
    let scope = Scope::tag("a").expect("a tag");
    let answer: Done = Box::new(move |result| sender.send(result).expect("the test waits"));
    writer.accept(vec![PurgeJob {
        purges: vec![Purge { scope, soft: false }],
        position: None,
        writes: true,
        done: answer,
    }]);
    assert!(matches!(done.recv(), Ok(Err(PurgeError::NotDurable(_)))));
    assert_eq!(verdict(&purges, before), Verdict::Hard);
    assert_eq!(purges.failures(), 1);
}

#[test]
fn a_cache_without_a_log_on_disk_keeps_purges_in_memory_only() {
    let purges = Purges::open(&settings(PurgeLog::None)).expect("opened");
    let before = purges.latest();
    purge_tag(&purges, "b").expect("accepted");
    assert_eq!(verdict(&purges, before), Verdict::Hard);
    let missing = Purges::open(&settings(PurgeLog::Missing)).expect("opened");
    assert!(matches!(purge_tag(&missing, "b"), Err(PurgeError::NoLog)));
    assert_eq!(missing.latest(), Stamp::NONE);
}

/// Method: an old and a new process use one log. Both accept purges before the new one opens the log. An object on disk
/// has a stamp of the old process, and an object in memory one of the new process.
#[test]
fn a_process_that_gets_the_log_later_applies_the_purges_of_both_processes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let old = open(&path);
    let on_disk = old.latest();
    let new = Purges::open(&settings(PurgeLog::Later(old.latest()))).expect("opens");
    let in_memory = new.latest();
    assert_eq!(verdict(&new, on_disk), Verdict::Current);
    purge_tag(&new, "b").expect("accepted");
    assert_eq!(verdict(&new, in_memory), Verdict::Hard);
    let after_own_purge = new.latest();
    purge_tag(&old, "other").expect("accepted");
    purge_tag(&old, "a").expect("accepted");
    old.detach();
    purge_tag(&old, "not in the log").expect("accepted");
    let attached = new.attach(path.clone()).expect("the log opens");
    assert_eq!(new.latest(), attached);
    assert!(attached >= old.latest());
    // The purge of the new process covers both objects again, and so does that of the old process.
    for since in [on_disk, in_memory, after_own_purge] {
        assert_eq!(verdict(&new, since), Verdict::Hard);
    }
    assert_eq!(verdict(&new, attached), Verdict::Current);
    drop(new);
    let reopened = open(&path);
    assert_eq!(reopened.latest(), after_start(attached));
    assert_eq!(verdict(&reopened, on_disk), Verdict::Hard);
    assert_eq!(verdict(&reopened, attached), Verdict::Current);
}

#[test]
fn without_the_log_of_the_earlier_process_purges_apply_and_are_not_durable() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    std::fs::create_dir(&path).expect("a directory in place of the log");
    let new = Purges::open(&settings(PurgeLog::Later(Stamp::start_of(7)))).expect("opens");
    purge_tag(&new, "a").expect("the log may still come");
    let error = new.attach(path).expect_err("no log");
    assert!(error.to_string().contains("purges.log"), "{error}");
    let before = new.latest();
    let refused = purge_tag(&new, "b");
    assert!(
        matches!(refused, Err(PurgeError::NotDurable(_))),
        "{refused:?}"
    );
    assert_eq!(verdict(&new, before), Verdict::Hard);
}

#[test]
fn purges_before_the_log_is_attached_are_bounded() {
    let new = Purges::open(&settings(PurgeLog::Later(Stamp::start_of(7)))).expect("opens");
    let scopes = vec![Scope::tag("a").expect("a tag"); 10_000];
    for _ in 0..ACCEPTED_MAX / scopes.len() {
        purge_all(&new, &scopes, false).expect("accepted");
    }
    assert!(matches!(purge_tag(&new, "a"), Err(PurgeError::Busy)));
    assert_eq!(new.failures(), 1);
}

/// Method: the file is copied after each batch, as a crash would leave it. A log that was rewritten has the position
/// too.
#[test]
fn a_crash_leaves_the_position_of_the_fleet_with_its_purges() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let purges = open(&path);
    assert_eq!(purges.position(), None);
    let before = purges.latest();
    let apply = |position: Stamp, tags: &[&str]| {
        let (sender, done) = channel();
        let scopes = tags.iter().map(|tag| Scope::tag(tag).expect("a tag"));
        let of_stream = scopes.map(|scope| Purge { scope, soft: false });
        purges.purge_up_to(position, of_stream.collect(), true, move |result| {
            sender.send(result).expect("the test waits");
        });
        done.recv().expect("the thread answers").expect("durable")
    };
    apply(Stamp::at(5, 7), &[]);
    let stamp = apply(Stamp::at(5, 9), &["a", "b"]);
    purge_tag(&purges, "of this node only").expect("accepted");
    let copy = directory.path().join("copy.log");
    std::fs::copy(&path, &copy).expect("copied");
    let after_crash = open(&copy);
    assert_eq!(after_crash.position(), Some(Stamp::at(5, 9)));
    assert_eq!(verdict(&after_crash, before), Verdict::Hard);
    assert_eq!(after_crash.stated_stamp(before), Stamp::at(5, 7));
    assert_eq!(after_crash.stated_stamp(stamp), Stamp::at(5, 9));
    let received = |sequence| after_crash.received_stamp(Stamp::at(5, sequence), stamp);
    assert_eq!([received(9), received(8)], [stamp, before]);
    drop(after_crash);
    let scopes = vec![Scope::tag("of this node only").expect("a tag"); 1000];
    for _ in 0..40 {
        purge_all(&purges, &scopes, false).expect("accepted");
    }
    drop(purges);
    assert!(std::fs::metadata(&path).expect("a file").len() < COMPACTION_BYTES_MIN);
    assert_eq!(open(&path).position(), Some(Stamp::at(5, 9)));
}

/// Method: the folder of the log is moved away, and the log is open for reading only. Then the folder returns. A crash
/// leaves the file as it is.
#[test]
fn after_a_failed_write_the_next_write_persists_all_purges_and_their_position() {
    let directory = tempfile::tempdir().expect("a directory");
    let (folder, away) = (directory.path().join("log"), directory.path().join("away"));
    std::fs::create_dir(&folder).expect("created");
    let path = folder.join("purges.log");
    let purges = open(&path);
    let before = purges.latest();
    let header = Header {
        start: before,
        hash_seed: 8,
    };
    let mut writer = Writer {
        shared: Arc::clone(&purges.shared),
        header,
        fresh: header,
        file: Some(LogFile::read_only(&path)),
        limits: LIMITS,
        accepted: None,
        detached: None,
        unwritten: None,
        persisted: before,
    };
    let mut apply = |sequence: u64, tag: Option<&str>, writes: bool| {
        let (sender, done) = channel();
        let scopes = tag.map(|tag| Scope::tag(tag).expect("a tag"));
        writer.accept(vec![PurgeJob {
            purges: scopes
                .into_iter()
                .map(|scope| Purge { scope, soft: false })
                .collect(),
            position: Some(Stamp::at(5, sequence)),
            writes,
            done: Box::new(move |result| sender.send(result).expect("the test waits")),
        }]);
        done.recv().expect("the writer answers").is_ok()
    };
    std::fs::rename(&folder, &away).expect("moved");
    assert!(!apply(7, Some("a"), true));
    assert_eq!(verdict(&purges, before), Verdict::Hard);
    std::fs::rename(&away, &folder).expect("moved back");
    // A request that does not repeat the write leaves the file as it is.
    assert!(!apply(8, Some("b"), false));
    assert_eq!(open(&path).position(), None);
    assert!(apply(8, None, true));
    assert!(apply(9, Some("c"), true), "appended");
    drop(purges);
    let after_crash = open(&path);
    assert_eq!(after_crash.position(), Some(Stamp::at(5, 9)));
    assert_eq!(verdict(&after_crash, before), Verdict::Hard);
    assert_eq!(after_crash.failures(), 0);
}

/// Method: the folder of the log is moved away, and the log is open for reading only, so the purges after the first one
/// apply in memory only. An object that is then fetched is stored on disk. A crash leaves the file as it is.
#[test]
fn a_purge_after_a_crash_covers_objects_whose_stamps_the_log_lacks() {
    let directory = tempfile::tempdir().expect("a directory");
    let (folder, away) = (directory.path().join("log"), directory.path().join("away"));
    std::fs::create_dir(&folder).expect("created");
    let path = folder.join("purges.log");
    let purges = open(&path);
    purge_tag(&purges, "b").expect("accepted");
    let mut writer = writer_that_cannot_write(&purges, &path);
    std::fs::rename(&folder, &away).expect("moved");
    let lost = vec![Scope::tag("other").expect("a tag"); 3];
    assert!(!accept(&mut writer, &lost));
    let stored = purges.latest();
    std::fs::rename(&away, &folder).expect("moved back");
    let after_crash = open(&path);
    assert_eq!(verdict(&after_crash, stored), Verdict::Current);
    purge_tag(&after_crash, "a").expect("accepted");
    assert_eq!(verdict(&after_crash, stored), Verdict::Hard);
}

/// Method: the last purges of the old process apply in memory only. Its objects on disk have stamps that the log lacks.
#[test]
fn a_process_that_gets_the_log_later_begins_above_the_numbers_of_the_earlier_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let (folder, away) = (directory.path().join("log"), directory.path().join("away"));
    std::fs::create_dir(&folder).expect("created");
    let path = folder.join("purges.log");
    let old = open(&path);
    let mut writer = writer_that_cannot_write(&old, &path);
    std::fs::rename(&folder, &away).expect("moved");
    assert!(!accept(&mut writer, &[Scope::tag("b").expect("a tag")]));
    let new = Purges::open(&settings(PurgeLog::Later(old.latest()))).expect("opens");
    let lost = vec![Scope::tag("other").expect("a tag"); 3];
    assert!(!accept(&mut writer, &lost));
    let on_disk = old.latest();
    std::fs::rename(&away, &folder).expect("moved back");
    let attached = new.attach(path).expect("the log opens");
    assert!(attached > on_disk);
    assert_eq!(verdict(&new, on_disk), Verdict::Current);
    purge_tag(&new, "a").expect("accepted");
    assert_eq!(verdict(&new, on_disk), Verdict::Hard);
}

/// Method: as many purges are accepted as a start leaves out numbers. Then the log can be written again.
#[test]
fn no_more_purges_apply_without_the_log_than_a_start_leaves_out_numbers() {
    let directory = tempfile::tempdir().expect("a directory");
    let (folder, away) = (directory.path().join("log"), directory.path().join("away"));
    std::fs::create_dir(&folder).expect("created");
    let path = folder.join("purges.log");
    let purges = open(&path);
    let mut writer = writer_that_cannot_write(&purges, &path);
    std::fs::rename(&folder, &away).expect("moved");
    let scopes = vec![Scope::tag("a").expect("a tag"); 1 << 16];
    for _ in 0..RESERVED >> 16 {
        assert!(!writer.is_full(scopes.len()));
        assert!(!accept(&mut writer, &scopes));
    }
    assert!(writer.is_full(1));
    std::fs::rename(&away, &folder).expect("moved back");
    assert!(!writer.is_full(1), "the log has all purges");
    assert!(accept(&mut writer, &scopes));
    let newest = purges.latest();
    assert_eq!(open(&path).latest(), after_start(newest));
}

/// Method: the log cannot be written when it is opened, and the file is too near to the end of its epoch.
#[test]
fn a_log_that_cannot_reserve_numbers_begins_an_epoch() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("purges.log");
    let on_disk = open(&path).latest();
    let restore = |file: LogFile, newest: u64| {
        let header = Header {
            start: on_disk,
            hash_seed: 8,
        };
        let opened = OpenedLog {
            file,
            header,
            records: vec![Record::State {
                latest: Stamp(on_disk.0 + newest),
                floor: Stamp::NONE,
            }],
            damage: None,
            is_new: false,
        };
        let fresh = Header {
            start: Stamp::start_of(9),
            hash_seed: 10,
        };
        opened.restore(LIMITS, &fresh, Stamp::NONE)
    };
    let (file, _) = LogFile::open(&path).expect("opened").expect("it exists");
    let near_the_end = restore(file, (1 << 40) - 2 * RESERVED);
    assert_eq!(near_the_end.table.latest(), Stamp::start_of(9));
    assert!(near_the_end.unwritten.is_none(), "the new epoch is durable");
    assert!(near_the_end.renewed.is_some());
    assert_eq!(open(&path).latest(), after_start(Stamp::start_of(9)));
    let file = LogFile::read_only(&path);
    directory.close().expect("removed");
    let unwritable = restore(file, 5);
    assert!(unwritable.unwritten.is_some());
    let verdict = unwritable.table.check(URL, on_disk).verdict();
    assert_eq!(verdict, Verdict::Hard);
}

#[test]
fn a_log_that_is_closed_for_a_later_process_has_the_purges_whose_write_has_failed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (folder, away) = (directory.path().join("log"), directory.path().join("away"));
    std::fs::create_dir(&folder).expect("created");
    let path = folder.join("purges.log");
    let purges = open(&path);
    let before = purges.latest();
    let mut writer = writer_that_cannot_write(&purges, &path);
    std::fs::rename(&folder, &away).expect("moved");
    assert!(!accept(&mut writer, &[Scope::tag("a").expect("a tag")]));
    std::fs::rename(&away, &folder).expect("moved back");
    let (jobs, waiting) = mpsc::sync_channel(1);
    let (done, detached) = mpsc::sync_channel(1);
    jobs.send(Job::Detach { done }).expect("there is room");
    drop(jobs);
    writer.run(&waiting);
    detached.recv().expect("the writer answers");
    assert_eq!(verdict(&open(&path), before), Verdict::Hard);
}

/// Returns a writer for the table of `purges` whose log is open for reading only.
fn writer_that_cannot_write(purges: &Purges, path: &Path) -> Writer {
    let header = Header {
        start: Stamp::start_of(7),
        hash_seed: 8,
    };
    Writer {
        shared: Arc::clone(&purges.shared),
        header,
        fresh: header,
        file: Some(LogFile::read_only(path)),
        limits: LIMITS,
        accepted: None,
        detached: None,
        unwritten: None,
        persisted: purges.latest(),
    }
}

/// Returns true if hard purges of these scopes are durable.
fn accept(writer: &mut Writer, scopes: &[Scope]) -> bool {
    let (sender, done) = channel();
    let scopes = scopes.iter().cloned();
    writer.accept(vec![PurgeJob {
        purges: scopes.map(|scope| Purge { scope, soft: false }).collect(),
        position: None,
        writes: true,
        done: Box::new(move |result| sender.send(result).expect("the test waits")),
    }]);
    done.recv().expect("the writer answers").is_ok()
}
