//! Tests of valid and invalid plans.

use std::fs;
use std::path::Path;

use super::{Benchmark, CounterValue};

const PLAN: &str = r#"
title = "Which is faster?"
rounds = 2
show = ["requests / cpu_seconds"]

[set]
seconds = 4
wrk = "wrk --duration @seconds@s"

[[server]]
name = "origin"
run = "nginx -c @dir@/origin.conf"
files = ["origin.conf"]
measured = false
core = 1

[[server.counter]]
name = "origin_requests"
url = "http://127.0.0.1:@port@/requests"
word = 10

[[server]]
name = "ours"
run = "@edgeward@ serve --listen 127.0.0.1:@https@ --origin http://127.0.0.1:@origin.port@"
ports = ["https"]
set = { own = "x y" }

[[server]]
name = "theirs"
run = ["sh", "-c", "exec theirs @plan@"]

[[load]]
name = "hit @size@"
each = { size = [1024, 65536], kind = ["kept"] }
run = "@wrk@ http://127.0.0.1:@https@/@size@ -- @kind@"
warmup = 1

[[load]]
name = "miss"
servers = ["ours"]
run = "@wrk@ http://127.0.0.1:@https@/@tag@"

[[check]]
measure = "errors"
at_most = 0

[[goal]]
loads = ["hit @size@"]
measure = "requests / cpu_seconds"
of = ["ours"]
to = ["theirs"]
at_least = 1.05
"#;

#[test]
fn a_plan_has_a_load_for_each_combination_and_values_with_blanks_are_several_words() {
    assert!(Benchmark::is_plan(PLAN));
    let set = [("seconds".to_owned(), "1".to_owned())];
    let plan = Benchmark::parse(PLAN, &set).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!(plan.rounds, 2);
    let names: Vec<&str> = plan.loads.iter().map(|load| load.name.as_str()).collect();
    assert_eq!(names, ["hit 1024 kept", "hit 65536 kept", "miss"]);
    assert_eq!(plan.loads[0].servers, ["ours", "theirs"]);
    assert_eq!(plan.loads[2].servers, ["ours"]);
    assert_eq!(plan.loads[0].run[..3], ["wrk", "--duration", "@seconds@s"]);
    assert_eq!(plan.set["seconds"], "1");
    assert_eq!(plan.servers[2].run[2], "exec theirs @plan@");
    assert_eq!(plan.servers[0].counters[0].value, CounterValue::Word(10));
    assert!(!plan.servers[0].is_measured && plan.servers[1].is_measured);
}

#[test]
fn only_pairs_with_a_matching_load_or_server_are_kept() {
    let pairs = |words: &[&str]| {
        let mut plan = Benchmark::parse(PLAN, &[]).expect("the plan is valid");
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let is_left = plan.keep_only(&words);
        let pairs: usize = plan.loads.iter().map(|load| load.servers.len()).sum();
        assert_eq!(is_left, pairs > 0);
        pairs
    };
    assert_eq!(pairs(&["hit"]), 4);
    assert_eq!(pairs(&["1024", "miss"]), 3);
    assert_eq!(pairs(&["theirs"]), 2);
    assert_eq!(pairs(&["nothing"]), 0);
}

#[test]
fn mistakes_are_reported_with_line_and_hint() {
    for (line, instead, message, hint) in [
        (
            "rounds = 2",
            "rouns = 2",
            "there is no key rouns",
            "did you mean rounds?",
        ),
        (
            "core = 1",
            "core = \"first\"",
            "server[0].core = \"first\" is not a number",
            "write a whole number",
        ),
        (
            "word = 10",
            "worth = 10",
            "a counter needs either",
            "metric",
        ),
        (
            "ports = [\"https\"]",
            "ports = [\"http\"]",
            "has @https@, which has no value",
            "the values are",
        ),
        (
            "servers = [\"ours\"]",
            "servers = [\"our\"]",
            "names our, which does not exist",
            "the names are ours, theirs",
        ),
        (
            "measure = \"errors\"",
            "measure = \"errors * 2\"",
            "is not a measure",
            "requests / cpu_seconds",
        ),
        (
            "to = [\"theirs\"]",
            "to = [\"origin\"]",
            "names origin, which does not exist",
            "the names are ours, theirs",
        ),
        (
            "name = \"theirs\"",
            "name = \"miss\"",
            "two servers or loads have the name miss",
            "give each its own name",
        ),
        (
            "run = [\"sh\", \"-c\", \"exec theirs @plan@\"]",
            "run = []",
            "is an empty command",
            "write the program",
        ),
    ] {
        let text = PLAN.replacen(line, instead, 1);
        assert_ne!(text, PLAN, "{line}");
        let problems = Benchmark::parse(&text, &[]).expect_err(instead);
        let problem = problems
            .iter()
            .find(|problem| problem.message.contains(message))
            .unwrap_or_else(|| panic!("{instead}: {problems:?}"));
        let lines = text.lines().count();
        assert!((1..=lines).contains(&problem.line), "{problem:?}");
        let shown = problem.hint.as_deref().unwrap_or_default();
        assert!(shown.contains(hint), "{instead}: {problem:?}");
    }
    let set = [("second".to_owned(), "1".to_owned())];
    let problems = Benchmark::parse(PLAN, &set).expect_err("the value is unknown");
    assert!(
        problems[0].message.contains("no value second"),
        "{problems:?}"
    );
}

#[test]
fn every_plan_of_the_repository_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench");
    let mut plans = 0;
    for entry in fs::read_dir(folder)
        .expect("the folder is readable")
        .flatten()
    {
        let file = entry.path().join("plan.toml");
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        assert!(Benchmark::is_plan(&text), "{}", file.display());
        let plan = Benchmark::parse(&text, &[]);
        let plan = plan.unwrap_or_else(|problems| panic!("{}: {problems:?}", file.display()));
        for path in plan.servers.iter().flat_map(|server| &server.files) {
            assert!(entry.path().join(path).is_file(), "{}", path.display());
        }
        plans += 1;
    }
    assert!(plans > 0);
}
