use proptest::prelude::*;

use super::*;
use crate::log::{self, Header};
use crate::scope::Scope;

const LIMITS: Limits = Limits {
    entries_max: 1000,
    patterns_max: 100,
};

fn table(limits: Limits) -> PurgeTable {
    PurgeTable::new(limits, Stamp::start_of(5), 1)
}

fn purge(table: &mut PurgeTable, scope: Scope, soft: bool) {
    let record = table.record(&Purge { scope, soft }, 0);
    table.apply(record);
}

fn verdict(table: &PurgeTable, object: &Object) -> Verdict {
    let mut check = table.check(object.url.as_bytes(), object.stamp);
    object.tags.iter().for_each(|tag| check.tag(tag.as_bytes()));
    check.verdict()
}

fn tag(text: &str) -> Scope {
    Scope::tag(text).expect("a tag")
}

/// RFC 9875 §2.1: a group has members of one origin only. A purge of a tag covers the group on all origins.
#[test]
fn a_purge_of_a_group_covers_its_members_of_one_origin() {
    let verdict = |table: &PurgeTable, url: &str, head: &str| {
        let mut check = table.check(url.as_bytes(), Stamp::start_of(5));
        check.head(url.as_bytes(), head.as_bytes());
        check.verdict()
    };
    let mut by_group = table(LIMITS);
    for scope in Scope::invalidated_groups(b"http://a/x", [&b"\"one\""[..]]) {
        purge(&mut by_group, scope, false);
    }
    let mut by_tag = table(LIMITS);
    purge(&mut by_tag, tag("one"), false);
    for (url, head, covers) in [
        (
            "http://a/y?z",
            "date: x\r\ncache-groups: \"two\", \"one\"\r\n",
            true,
        ),
        ("http://a/y", "cache-groups: \"One\"\r\n", false),
        ("http://a/y", "cache-tag: one\r\n", false),
        ("http://a/y", "x-cache-groups: \"one\"\r\n", false),
        ("https://a/y", "cache-groups: \"one\"\r\n", false),
        ("http://a:81/y", "cache-groups: \"one\"\r\n", false),
        ("http://b/y", "cache-groups: \"one\"\r\n", false),
    ] {
        let expected = if covers {
            Verdict::Hard
        } else {
            Verdict::Current
        };
        assert_eq!(verdict(&by_group, url, head), expected, "{url} {head}");
        let has_tag = ["cache-groups: \"one\"", "\"two\", \"one\"", "cache-tag"];
        let is_tagged = !head.starts_with('x') && has_tag.iter().any(|text| head.contains(text));
        let expected = if is_tagged {
            Verdict::Hard
        } else {
            Verdict::Current
        };
        assert_eq!(verdict(&by_tag, url, head), expected, "{url} {head}");
    }
}

/// A stored object.
#[derive(Clone, Debug)]
struct Object {
    url: String,
    tags: Vec<String>,
    stamp: Stamp,
    /// The expected verdict: each purge is applied to each object literally.
    oracle: Verdict,
}

#[derive(Clone, Debug)]
enum Step {
    /// An object with this URL and these tags is stored.
    Store(String, Vec<String>),
    /// The scope is purged; true for a soft purge.
    Purge(Scope, bool),
    /// The edge stops and starts again from its log.
    Restart,
    /// The log is rewritten from the table.
    Compact,
}

fn url() -> impl Strategy<Value = String> {
    ("https?", "[ab]\\.x(:81)?", "/[ab]{0,3}")
        .prop_map(|(scheme, host, path)| format!("{scheme}://{host}{path}"))
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        url().prop_map(|url| Scope::url(&url).expect("a URL")),
        "[ab]\\.x(:81)?".prop_map(|host| Scope::host(&host).expect("a host")),
        "[a-e]".prop_map(|tag| Scope::tag(&tag).expect("a tag")),
        ("(https?://)?", "[ab]\\.x/[ab]{0,2}")
            .prop_map(|(scheme, rest)| Scope::prefix(&(scheme + &rest)).expect("a prefix")),
        ("(https?://|\\*://)?", "\\*?[ab]?\\.x/[ab*]{0,3}")
            .prop_map(|(scheme, rest)| Scope::pattern(&(scheme + &rest)).expect("a pattern")),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (url(), prop::collection::vec("[a-e]", 0..3)).prop_map(|(url, tags)| Step::Store(url, tags)),
        4 => (scope(), any::<bool>()).prop_map(|(scope, soft)| Step::Purge(scope, soft)),
        1 => Just(Step::Restart),
        1 => Just(Step::Compact),
    ]
}

fn restored(limits: Limits, bytes: &[u8]) -> PurgeTable {
    let parsed = log::parse(bytes).expect("the log is valid");
    assert_eq!(parsed.valid_bytes, bytes.len());
    let mut table = PurgeTable::new(limits, parsed.header.start, parsed.header.hash_seed);
    parsed
        .records
        .into_iter()
        .for_each(|record| table.apply(record));
    table
}

/// Runs steps on a table, and on a list of objects to which each purge is applied literally. If `exact` is false, the
/// table may reach a bound, and then also purges objects that the oracle keeps.
fn run(limits: Limits, steps: Vec<Step>, exact: bool) -> Result<(), TestCaseError> {
    let header = Header {
        start: Stamp::start_of(5),
        hash_seed: 1,
    };
    let mut table = PurgeTable::new(limits, header.start, header.hash_seed);
    let mut log = header.bytes().to_vec();
    let mut objects: Vec<Object> = Vec::new();
    for step in steps {
        match step {
            Step::Store(url, tags) => objects.push(Object {
                url,
                tags,
                stamp: table.latest(),
                oracle: Verdict::Current,
            }),
            Step::Purge(scope, soft) => {
                let to = if soft { Verdict::Soft } else { Verdict::Hard };
                for object in &mut objects {
                    let tags: Vec<_> = object.tags.iter().map(String::as_bytes).collect();
                    if scope.contains(object.url.as_bytes(), &tags) {
                        object.oracle = object.oracle.max(to);
                    }
                }
                let record = table.record(&Purge { scope, soft }, 0);
                record.write(&header, &mut log);
                table.apply(record);
            }
            Step::Restart => table = restored(limits, &log),
            Step::Compact => {
                log = header.bytes().to_vec();
                table
                    .records()
                    .for_each(|record| record.write(&header, &mut log));
                prop_assert!(log.len() as u64 <= 40 + table.records_bytes_max());
            }
        }
        for object in &mut objects {
            let verdict = verdict(&table, object);
            if exact {
                prop_assert_eq!(verdict, object.oracle, "{:?}", object);
            } else {
                prop_assert!(verdict >= object.oracle, "{:?} got {:?}", object, verdict);
            }
            if verdict == Verdict::Current {
                // A checked object need not be checked again for the same purges.
                object.stamp = table.latest();
            }
        }
        let size = table.size();
        prop_assert!(
            size.entries <= limits.entries_max.max(2) && size.patterns <= limits.patterns_max
        );
        prop_assert!(!exact || size.floor_raises == 0);
    }
    Ok(())
}

proptest! {
    /// Method: a list of objects, to which each purge is applied literally, through restarts and rewritten logs.
    #[test]
    fn a_table_gives_the_verdicts_of_purges_applied_one_by_one(steps in prop::collection::vec(step(), 0..40)) {
        run(LIMITS, steps, true)?;
    }

    /// Method: the steps of the test above, with bounds that a few purges exceed.
    #[test]
    fn a_full_table_loses_no_purge(
        steps in prop::collection::vec(step(), 0..60),
        entries_max in 1_usize..6,
        patterns_max in 1_usize..4,
    ) {
        run(Limits { entries_max, patterns_max }, steps, false)?;
    }
}

#[test]
fn a_table_with_its_most_entries_has_not_raised_the_floor_and_one_more_raises_it() {
    let mut table = table(Limits {
        entries_max: 8,
        patterns_max: 2,
    });
    (0..8).for_each(|n| purge(&mut table, tag(&format!("t{n}")), false));
    assert_eq!((table.size().entries, table.size().floor_raises), (8, 0));
    purge(&mut table, tag("t7"), false);
    assert_eq!(
        table.size().floor_raises,
        0,
        "a repeated tag takes no entry"
    );
    purge(&mut table, tag("t8"), false);
    assert_eq!(table.size().floor_raises, 1);
    for (n, raises) in [(0, 1), (1, 1), (2, 2)] {
        purge(
            &mut table,
            Scope::prefix(&format!("a.x/{n}")).expect("a prefix"),
            true,
        );
        assert_eq!(table.size().floor_raises, raises);
    }
}

#[test]
fn an_object_of_another_log_counts_as_purged_and_one_from_before_all_logs_does_not() {
    let mut table = table(LIMITS);
    let object = |stamp| Object {
        url: "http://a.x/".to_owned(),
        tags: vec!["a".to_owned()],
        stamp,
        oracle: Verdict::Current,
    };
    assert_eq!(verdict(&table, &object(Stamp::start_of(6))), Verdict::Hard);
    assert_eq!(verdict(&table, &object(Stamp::start_of(4))), Verdict::Hard);
    assert_eq!(verdict(&table, &object(Stamp::NONE)), Verdict::Current);
    purge(&mut table, tag("a"), false);
    assert_eq!(verdict(&table, &object(Stamp::NONE)), Verdict::Hard);
    assert_eq!(verdict(&table, &object(table.latest())), Verdict::Current);
}

/// Later releases must open logs of version 1.
#[test]
fn the_log_of_version_1_restores_its_purges() {
    let bytes = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fixtures/purge-log-v1.bin"
    ));
    let table = restored(LIMITS, bytes);
    let stamp = log::parse(bytes).expect("it is valid").header.start;
    let expected = [
        ("http://o.example/", "a", Verdict::Hard),
        ("http://a.example/xy", "", Verdict::Soft),
        ("http://a.example/x.png", "", Verdict::Hard),
        ("https://b.example/", "", Verdict::Soft),
        ("http://c.example/d", "", Verdict::Soft),
        ("http://c.example/e", "b", Verdict::Current),
    ];
    for (url, tag, oracle) in expected {
        let (url, tags) = (url.to_owned(), vec![tag.to_owned()]);
        let object = Object {
            url,
            tags,
            stamp,
            oracle,
        };
        assert_eq!(verdict(&table, &object), oracle, "{object:?}");
    }
    assert_eq!(table.latest(), Stamp(stamp.0 + 5));
}
