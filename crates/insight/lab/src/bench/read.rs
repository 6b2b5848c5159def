//! Reads the plan of a benchmark key by key.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::measure::Expression;
use super::plan::{Benchmark, Counter, CounterValue, Goal, LoadPlan, ServerPlan};
use super::text::{self, Values};
use crate::plan::{Entry, Table, nearest};

/// Reads a plan. `given` has values that replace those of `[set]`.
pub(super) fn read(document: Table<'_>, given: &[(String, String)]) -> Option<Benchmark> {
    let title = document.needed_text("title", "write title = \"How many …?\"");
    let about = document.entry("about").and_then(|entry| entry.text());
    let rounds = document
        .entry("rounds")
        .map_or(Some(3), |entry| entry.whole(1..=ROUNDS_MAX));
    let mut set = match document.table("set") {
        Some(table) => values(&table)?,
        None => Values::new(),
    };
    for (name, value) in given {
        if set.insert(name.clone(), value.clone()).is_none() {
            let names: Vec<_> = set.keys().filter(|key| *key != name).cloned().collect();
            let hint = format!("the values of this plan are {}", names.join(", "));
            document.wrong(format!("[set] has no value {name}, which was given"), hint);
        }
    }
    let tables = document.tables("server");
    let mut names: BTreeSet<String> = BUILT_IN.iter().map(|name| (*name).to_owned()).collect();
    names.extend(set.keys().cloned());
    for table in &tables {
        let ports = table.peek_texts("ports").unwrap_or_else(default_ports);
        let own = ports.iter().cloned();
        names.extend(own.chain(["dir".to_owned(), "pid".to_owned()]));
        names.extend(table.peek_keys("set"));
        if let Some(name) = table.peek("name") {
            let qualified = ports.iter().map(|port| format!("{name}.{port}"));
            names.extend(qualified.chain([format!("{name}.dir"), format!("{name}.pid")]));
        }
    }
    let several_words = set.iter().filter(|(_, value)| value.contains(' '));
    let known = Placeholders {
        names,
        several_words: several_words
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    };
    let commands = |entry: Entry<'_>| commands(&entry, &known);
    let prepare = document.entry("prepare").map_or(Some(Vec::new()), commands);
    let servers: Option<Vec<ServerPlan>> = tables
        .into_iter()
        .map(|table| server(table, &known))
        .collect();
    let servers = servers?;
    let measured = servers.iter().filter(|server| server.is_measured);
    let names: Vec<&str> = measured.map(|server| server.name.as_str()).collect();
    let tables = document.tables("load");
    if tables.is_empty() {
        document.missing("load", "write [[load]] for each load");
    }
    let mut loads = Vec::new();
    for table in tables {
        loads.extend(load(table, &known, &names)?);
    }
    if loads.len() > LOADS_MAX {
        document.wrong("the plan has too many loads", format!("up to {LOADS_MAX}"));
    }
    let mut all = BTreeSet::new();
    for name in servers
        .iter()
        .map(|server| &server.name)
        .chain(loads.iter().map(|load| &load.name))
    {
        if !all.insert(name) {
            document.wrong(
                format!("two servers or loads have the name {name}"),
                "give each its own name",
            );
        }
    }
    let load_names = loads
        .iter()
        .flat_map(|load| [load.name.as_str(), load.kind.as_str()]);
    let load_names: Vec<&str> = load_names.collect();
    let show = document.entry("show").map_or(Some(Vec::new()), |entry| {
        let items = entry.items();
        items.iter().map(expression).collect()
    });
    let goals = |key| {
        let tables = document.tables(key).into_iter();
        let goals = tables.map(|table| goal(table, &names, &load_names));
        goals.collect::<Option<Vec<_>>>()
    };
    let (checks, goals) = (goals("check"), goals("goal"));
    document.finish();
    Some(Benchmark {
        title: title?,
        about: about.map(str::to_owned),
        rounds: u32::try_from(rounds?).ok()?,
        set,
        prepare: prepare?,
        servers,
        loads,
        show: show?,
        checks: checks?,
        goals: goals?,
    })
}

fn server(table: Table<'_>, known: &Placeholders) -> Option<ServerPlan> {
    let name = table.needed_text("name", "write name = \"nginx\"");
    let set = match table.table("set") {
        Some(table) => values(&table)?,
        None => Values::new(),
    };
    let run = match table.entry("run") {
        Some(entry) => command(&entry, known),
        None => {
            table.missing("run", "write run = \"nginx -c @dir@/nginx.conf\"");
            None
        }
    };
    let files = table.entry("files").map_or(Some(Vec::new()), |e| e.texts());
    let prepare = table
        .entry("prepare")
        .map_or(Some(Vec::new()), |entry| commands(&entry, known));
    let ports = table
        .entry("ports")
        .map_or_else(|| Some(default_ports()), |e| e.texts());
    let flag = |key, default| table.entry(key).map_or(Some(default), |e| e.boolean());
    let (is_measured, is_fresh) = (flag("measured", true), flag("fresh", false));
    let (restarts, in_memory) = (flag("restarts", false), flag("in_memory", false));
    let core = core(&table);
    let ready = table.entry("ready").map(|entry| path(&entry));
    let counters: Option<Vec<Counter>> = table
        .tables("counter")
        .into_iter()
        .map(|table| counter(table, known))
        .collect();
    table.finish();
    Some(ServerPlan {
        name: name?,
        run: run?,
        files: files?.into_iter().map(PathBuf::from).collect(),
        prepare: prepare?,
        ports: ports?,
        core: core?,
        is_measured: is_measured?,
        is_fresh: is_fresh?,
        restarts: restarts?,
        in_memory: in_memory?,
        ready: ready.map_or(Some(None), |given| given.map(Some))?,
        counters: counters?,
        set,
    })
}

fn counter(table: Table<'_>, known: &Placeholders) -> Option<Counter> {
    let name = table.needed_text("name", "write name = \"origin_requests\"");
    let url = match table.entry("url") {
        Some(entry) => entry
            .text()
            .filter(|text| check_placeholders(&entry, text, known)),
        None => {
            table.missing("url", "write url = \"http://127.0.0.1:@admin@/metrics\"");
            None
        }
    };
    let metric = table.entry("metric").map(|entry| entry.text());
    let word = table.entry("word").map(|entry| entry.whole(1..=10_000));
    let json = table.entry("json").map(|entry| path(&entry));
    let value = match (metric, json, word) {
        (Some(metric), None, None) => metric.map(|name| CounterValue::Metric(name.to_owned())),
        (None, Some(json), None) => json.map(CounterValue::Json),
        (None, None, Some(word)) => word
            .and_then(|n| usize::try_from(n).ok())
            .map(CounterValue::Word),
        _ => {
            table.wrong(
                "a counter needs either a metric, a JSON pointer or a word",
                "write metric = \"edgeward_origin_requests_total\", json = \"/requests\", or word = 10",
            );
            None
        }
    };
    table.finish();
    Some(Counter {
        name: name?,
        url: url?.to_owned(),
        value: value?,
    })
}

/// Reads `[[load]]`. A load with `each` gives a load for each combination of values.
fn load(table: Table<'_>, known: &Placeholders, servers: &[&str]) -> Option<Vec<LoadPlan>> {
    let kind = table.needed_text("name", "write name = \"hits\"");
    let mut known = known.clone();
    let mut combinations = vec![Values::new()];
    if let Some(each) = table.table("each") {
        for (key, entry) in each.all() {
            let items: Option<Vec<String>> = entry.items().iter().map(Entry::word).collect();
            let items = items?;
            known.names.insert(key.to_owned());
            let longer = combinations.iter().flat_map(|values| {
                items.iter().map(move |item| {
                    let mut values = values.clone();
                    values.insert(key.to_owned(), item.clone());
                    values
                })
            });
            combinations = longer.take(LOADS_MAX + 1).collect();
        }
    }
    let run = match table.entry("run") {
        Some(entry) => command(&entry, &known),
        None => {
            table.missing(
                "run",
                "write run = \"wrk --duration @seconds@s http://127.0.0.1:@port@/\"",
            );
            None
        }
    };
    let before = table
        .entry("before")
        .map_or(Some(Vec::new()), |entry| commands(&entry, &known));
    let given = table.entry("servers").map(|entry| {
        let names = entry.texts()?;
        let is_known =
            |name: &String| *name == LoadPlan::ALONE || check_name(&entry, name, servers);
        let all = names.iter().all(is_known);
        all.then_some(names)
    });
    let core = core(&table);
    let warmup = table.entry("warmup").map(|entry| entry.whole(1..=3600));
    let second = Duration::from_secs(1);
    let time_max = table.entry("time_max").map_or(Some(second * 600), |entry| {
        entry.time(second..=second * 86_400)
    });
    table.finish();
    let all = || match servers {
        [] => vec![LoadPlan::ALONE.to_owned()],
        servers => servers.iter().map(|name| (*name).to_owned()).collect(),
    };
    let (kind, run, before, core, time_max) = (kind?, run?, before?, core?, time_max?);
    let servers: Vec<String> = given.unwrap_or_else(|| Some(all()))?;
    let warmup_seconds = warmup.map_or(Some(None), |given| given.map(Some))?;
    let load = |set: Values| {
        let name = text::expand(&kind, &set);
        let mut parts = vec![name];
        // The values that the name does not contain.
        parts.extend(
            set.iter()
                .filter(|(key, _)| !kind.contains(&format!("@{key}@")))
                .map(|(_, v)| v.clone()),
        );
        LoadPlan {
            name: parts.join(" "),
            kind: kind.clone(),
            run: run.clone(),
            before: before.clone(),
            servers: servers.clone(),
            core,
            warmup_seconds,
            time_max,
            set,
        }
    };
    Some(combinations.into_iter().map(load).collect())
}

fn goal(table: Table<'_>, servers: &[&str], loads: &[&str]) -> Option<Goal> {
    let measure = match table.entry("measure") {
        Some(entry) => expression(&entry),
        None => {
            table.missing("measure", "write measure = \"requests / cpu_seconds\"");
            None
        }
    };
    let names = |key, known: &[&str]| {
        let Some(entry) = table.entry(key) else {
            return Some(Vec::new());
        };
        let names = entry.texts()?;
        let all = names.iter().all(|name| check_name(&entry, name, known));
        all.then_some(names)
    };
    let (loads_given, of, to) = (
        names("loads", loads),
        names("of", servers),
        names("to", servers),
    );
    let to_load = names("to_load", loads);
    let number = |key| {
        table.entry(key).map_or(Some(None), |entry| {
            let number = entry.number();
            if number.is_none() {
                entry.wrong("is not a number", "write 0.95");
            }
            number.map(Some)
        })
    };
    let (at_least, at_most) = (number("at_least"), number("at_most"));
    let says = table.entry("says").map(|entry| entry.text());
    table.finish();
    let measure = measure?;
    Some(Goal {
        says: says.map_or_else(
            || Some(measure.to_string()),
            |given| given.map(str::to_owned),
        )?,
        measure,
        loads: loads_given?,
        of: of?,
        to: to?,
        to_load: to_load?.into_iter().next(),
        at_least: at_least?,
        at_most: at_most?,
    })
}

/// The placeholders that a command may have.
#[derive(Clone)]
struct Placeholders {
    names: BTreeSet<String>,
    /// The values that have blanks. In a command that is a text, each of their words is a word of the command.
    several_words: Values,
}

/// Reads a table of texts and numbers.
fn values(table: &Table<'_>) -> Option<Values> {
    let all = table.all().collect::<Vec<_>>().into_iter();
    all.map(|(name, entry)| Some((name.to_owned(), entry.word()?)))
        .collect()
}

fn core(table: &Table<'_>) -> Option<Option<u64>> {
    let core = table.entry("core").map(|entry| entry.whole(0..=4095));
    core.map_or(Some(None), |given| given.map(Some))
}

fn expression(entry: &Entry<'_>) -> Option<Expression> {
    let expression = Expression::parse(entry.text()?);
    if expression.is_none() {
        entry.wrong(
            "is not a measure",
            "write \"requests\" or \"requests / cpu_seconds\"",
        );
    }
    expression
}

fn path(entry: &Entry<'_>) -> Option<String> {
    let path = entry.text().filter(|text| text.starts_with('/'));
    if path.is_none() {
        entry.wrong("is not a path", "write \"/\"");
    }
    path.map(str::to_owned)
}

/// Reads a command: a text whose words are separated by blanks, or a list of words. A text inside of a list may have
/// blanks.
fn command(entry: &Entry<'_>, known: &Placeholders) -> Option<Vec<String>> {
    let items = entry.items();
    if let [single] = &items[..]
        && !entry.is_list()
    {
        let text = text::expand(single.text()?, &known.several_words);
        let words = text.split_whitespace().map(str::to_owned).collect();
        return check_placeholders(single, &text, known).then_some(words);
    }
    let words: Option<Vec<String>> = items
        .iter()
        .map(|item| Some((item, item.word()?)))
        .map(|word| word.filter(|(item, text)| check_placeholders(item, text, known)))
        .map(|word| word.map(|(_, text)| text))
        .collect();
    words.filter(|words| {
        if words.is_empty() {
            entry.wrong("is an empty command", "write the program and its arguments");
        }
        !words.is_empty()
    })
}

/// Reads a list of commands; a text is a list with one command.
fn commands(entry: &Entry<'_>, known: &Placeholders) -> Option<Vec<Vec<String>>> {
    entry
        .items()
        .iter()
        .map(|item| command(item, known))
        .collect()
}

fn check_placeholders(entry: &Entry<'_>, text: &str, known: &Placeholders) -> bool {
    let unknown = text::names(text)
        .into_iter()
        .find(|name| !known.names.contains(*name));
    if let Some(name) = unknown {
        let names: Vec<&str> = known.names.iter().map(String::as_str).collect();
        let nearest = nearest(name, names.iter().copied());
        let guess = nearest.map_or_else(String::new, |name| format!("did you mean @{name}@? "));
        let hint = format!("{guess}the values are {}", names.join(", "));
        entry.wrong(&format!("has @{name}@, which has no value"), hint);
    }
    unknown.is_none()
}

fn check_name(entry: &Entry<'_>, name: &str, names: &[&str]) -> bool {
    let found = names.contains(&name);
    if !found {
        entry.wrong(
            &format!("names {name}, which does not exist"),
            format!("the names are {}", names.join(", ")),
        );
    }
    found
}

/// The ports of a server without `ports`: the one that gets the load, and one for admin pages.
fn default_ports() -> Vec<String> {
    ["port", "admin"].map(str::to_owned).into()
}

/// Placeholders that every plan has.
const BUILT_IN: [&str; 8] = [
    "edgeward",
    "plan",
    "scratch",
    "seconds",
    "tag",
    "round",
    "server",
    "nginx_user",
];

const ROUNDS_MAX: u64 = 1000;
const LOADS_MAX: usize = 200;
