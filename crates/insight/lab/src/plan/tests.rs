//! Tests of valid and invalid plans.

use proptest::prelude::*;

use super::*;

const SMALL: &str = r#"
title = "Which is better?"

[trace]
preset = "small"
requests = 1000

[[contender]]
server = "varnish"
memory = "1%"
"#;

const FULL: &str = r#"
title = "Which is better?"
about = "Because."

[trace]
preset = "web"
requests = 200_000
seed = 3
one_hit_share = "70%"
churn = 0.1
objects = 30000
max_size = "4MiB"

[load]
connections = 64
rate = 2500.5
warmup = 1000
round_trip = "30ms"
order = "in-turn"
time_max = "2min"

[origin]
round_trip = "100ms"

[compare]
subject = "ours"
with = ["nginx", "varnish"]

[[contender]]
name = "ours"
server = "edgeward"
memory = "64MiB"
disk = "50%"
workers = 2

[contender.config.hot]
policy = "adaptsize"
window_requests = 20_000

[contender.config.disk]
admission = "always"

[contender.switch]
at = "50%"

[contender.switch.config.disk]
admission = "second-hit"

[[contender]]
name = "nginx, second"
group = "nginx"
server = "nginx"
memory = "64MiB"
min_uses = 2

[[contender]]
server = "varnish"
memory = "64MiB"

[[contender]]
server = "trafficserver"
disk = "256MiB"

[[source]]
figure = "hit-ratio"
as = "percent"
before = "varnish"
after = "ours"
says = "+47 %"
from = "a paper"
"#;

/// Returns the line, message and hint of each problem.
fn problems(text: &str) -> Vec<(usize, String, String)> {
    let problems = Plan::parse(text).expect_err("the plan is invalid");
    let parts = problems.into_iter();
    parts
        .map(|p| (p.line, p.message, p.hint.unwrap_or_default()))
        .collect()
}

#[test]
fn absent_keys_have_defaults() {
    let plan = Plan::parse(SMALL).expect("the plan is valid");
    assert_eq!(plan.load, LoadPlan::default());
    assert_eq!(plan.trace.requests, 1000);
    assert_eq!(plan.origin_round_trip, Duration::ZERO);
    let [contender] = &plan.contenders[..] else {
        panic!("{plan:?}");
    };
    assert_eq!((contender.name.as_str(), contender.line), ("varnish", 8));
    assert_eq!(contender.memory, Some(Size::Share(0.01)));
    assert_eq!(
        contender
            .memory
            .expect("the plan has a memory capacity")
            .of(1 << 40),
        (1 << 40) / 100
    );
    // A share gives a capacity of at least 1 MiB.
    assert_eq!(
        contender
            .memory
            .expect("the plan has a memory capacity")
            .of(10),
        1 << 20
    );
}

#[test]
fn a_plan_with_all_keys_is_parsed() {
    let plan = Plan::parse(FULL).expect("the plan is valid");
    assert_eq!(plan.load.rate, Some(2500.5));
    assert_eq!(plan.load.warmup.of(200_000), 1000);
    assert_eq!(plan.load.round_trip, Duration::from_millis(30));
    assert_eq!(plan.origin_round_trip, Duration::from_millis(100));
    assert_eq!(plan.load.time_max, Duration::from_secs(120));
    let TraceOrigin::Generated(generated) = &plan.trace.origin else {
        panic!("{plan:?}");
    };
    assert_eq!((generated.seed, generated.objects), (3, Some(30_000)));
    assert_eq!(generated.one_hit_share, Some(0.7));
    assert_eq!(plan.trace.size_bytes_max, Some(4 << 20));
    let Server::Edgeward {
        settings,
        settings_switch,
    } = &plan.contenders[0].server
    else {
        panic!("{plan:?}");
    };
    let mut shown: Vec<String> = settings
        .iter()
        .map(|setting| format!("{}={}", setting.path(), setting.value))
        .collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            "disk.admission=always",
            "hot.policy=adaptsize",
            "hot.window_requests=20000"
        ]
    );
    let settings_switch = settings_switch.as_ref().expect("the plan has a switch");
    assert_eq!(
        (
            settings_switch.at.of(200_000),
            settings_switch.settings.len()
        ),
        (100_000, 1)
    );
    let min_uses = NonZeroU64::new(2).expect("the number is not zero");
    assert_eq!(plan.contenders[1].server, Server::Nginx { min_uses });
    assert_eq!(plan.sources[0].figure, Figure::HitRatio);
}

/// Each case replaces one line of the full plan and checks the reported problem.
#[test]
fn a_problem_names_its_line_and_key_and_has_a_hint() {
    for (line, replacement, message, hint) in [
        (
            "preset = \"web\"",
            "preset = \"wep\"",
            "trace.preset = \"wep\" is not a preset",
            "use web,",
        ),
        (
            "seed = 3",
            "sead = 3",
            "there is no key trace.sead",
            "did you mean seed?",
        ),
        (
            "requests = 200_000",
            "requests = 7",
            "trace.requests = 7 is not a number in the allowed range",
            "from 100 to",
        ),
        (
            "churn = 0.1",
            "churn = 1.5",
            "trace.churn = 1.5 is not a share",
            "write 0.7",
        ),
        (
            "rate = 2500.5",
            "rate = \"fast\"",
            "load.rate = \"fast\" is not a rate",
            "\"closed\"",
        ),
        (
            "rate = 2500.5",
            "rate = 0",
            "load.rate = 0 is not a rate",
            "\"closed\"",
        ),
        (
            "round_trip = \"30ms\"",
            "round_trip = 30",
            "load.round_trip = 30 is not a time in the allowed range",
            "\"30ms\"",
        ),
        (
            "order = \"in-turn\"",
            "order = \"inturn\"",
            "load.order = \"inturn\" is not a known value",
            "did you mean \"in-turn\"?",
        ),
        (
            "disk = \"50%\"",
            "disk = \"half\"",
            "contender[0].disk = \"half\" is not a size in the allowed range",
            "64MiB",
        ),
        (
            "min_uses = 2",
            "min_use = 2",
            "there is no key contender[1].min_use",
            "did you mean min_uses?",
        ),
        (
            "min_uses = 2",
            "min_uses = 2\ndisk = \"1GiB\"",
            "nginx has one cache: a folder",
            "not both",
        ),
        (
            "disk = \"256MiB\"",
            "memory = \"256MiB\"",
            "contender[3].disk is missing",
            "always has a disk cache",
        ),
        (
            "workers = 2",
            "server = \"apache\"",
            "server is given twice",
            "remove one of the two lines",
        ),
        (
            "subject = \"ours\"",
            "subject = \"theirs\"",
            "names theirs, which is neither a contender nor a group",
            "the names are ours",
        ),
        (
            "figure = \"hit-ratio\"",
            "figure = \"hits\"",
            "source[0].figure = \"hits\" is not a known value",
            "hit-ratio",
        ),
        (
            "policy = \"adaptsize\"",
            "capacity = \"1MiB\"",
            "contender[0].config.hot.capacity = \"1MiB\" is set by the lab",
            "memory =",
        ),
        (
            "policy = \"adaptsize\"",
            "policy = [1]",
            "contender[0].config.hot.policy = [1] has a type that is not supported here",
            "write text",
        ),
        (
            "name = \"ours\"",
            "name = \"varnish\"",
            "two contenders have the name varnish",
            "its own name",
        ),
        (
            "title = \"Which is better?\"",
            "",
            "title is missing",
            "write title",
        ),
        (
            "at = \"50%\"",
            "at = \"half\"",
            "contender[0].switch.at = \"half\" is not a part of the trace",
            "20%",
        ),
    ] {
        assert!(FULL.contains(line), "{line}");
        let found = problems(&FULL.replacen(line, replacement, 1));
        let problem = found
            .iter()
            .find(|(_, text, _)| text.contains(message))
            .unwrap_or_else(|| panic!("{replacement}: {found:#?}"));
        assert!(problem.2.contains(hint), "{replacement}: {problem:?}");
        let expected = FULL
            .lines()
            .position(|candidate| candidate == line)
            .expect("the text has this line")
            + 1;
        // These problems may have another line than the replaced one, such as the first line of the contender.
        let is_elsewhere = message.contains("missing")
            || message.contains("cache:")
            || message.contains("two contenders");
        assert!(
            is_elsewhere || problem.0 == expected,
            "{replacement}: {problem:?}, line {expected}"
        );
    }
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_their_lines() {
    let text = FULL
        .replace("seed = 3", "sead = 3")
        .replace("workers = 2", "workers = 0")
        .replace("as = \"percent\"", "as = \"luck\"");
    let lines: Vec<usize> = problems(&text)
        .into_iter()
        .map(|(line, _, _)| line)
        .collect();
    assert_eq!(lines.len(), 3, "{:#?}", problems(&text));
    assert!(lines.is_sorted());
}

#[test]
fn an_empty_plan_reports_all_required_keys() {
    let messages: Vec<String> = problems("").into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(
        messages,
        [
            "title is missing",
            "trace is missing",
            "contender is missing"
        ]
    );
}

#[test]
fn a_switch_requires_the_order_in_turn_and_seventeen_contenders_are_too_many() {
    let together = FULL.replace("order = \"in-turn\"", "order = \"together\"");
    let found = problems(&together);
    assert!(found[0].1.contains("cannot run together"), "{found:?}");
    let many: String = (0..17)
        .map(|n| format!("[[contender]]\nname = \"v{n}\"\nserver = \"varnish\"\nmemory = \"1%\"\n"))
        .collect();
    let found = problems(&format!(
        "title = \"x\"\n[trace]\npreset = \"small\"\n{many}"
    ));
    assert!(
        found[0].1.contains("17 contenders are too many"),
        "{found:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any text, the parser returns a plan, or problems with valid line numbers.
    #[test]
    fn any_text_is_a_plan_or_has_problems_with_line_numbers(text in "\\PC{0,200}") {
        prop_assert!(is_plan_or_problems(&text));
    }

    /// A valid plan is damaged: some bytes are removed and others inserted. The parser returns a plan or
    /// problems, and does not panic.
    #[test]
    fn a_damaged_plan_has_problems_and_does_not_panic(
        at in 0..FULL.len(),
        cut in 0_usize..40,
        more in "[ -~\\n]{0,12}",
    ) {
        let end = (at + cut).min(FULL.len());
        let text = format!("{}{more}{}", &FULL[..at], &FULL[end..]);
        prop_assert!(is_plan_or_problems(&text), "{text}");
    }
}

fn is_plan_or_problems(text: &str) -> bool {
    match Plan::parse(text) {
        Ok(plan) => !plan.contenders.is_empty(),
        Err(problems) => {
            let lines = text.lines().count().max(1) + 1;
            !problems.is_empty() && problems.iter().all(|p| (1..=lines).contains(&p.line))
        }
    }
}
